#include "harness/fuzz/draw.h"

#include "harness/fuzz/mutate.h"

enum { FUZZ_STREAM = 0xf0, TRIES = 64 };

void fuzz_draw_start(struct fuzz_draw *d)
{
    d->r = (struct rng){d->state->seed, FUZZ_STREAM, d->state->round << 32};
}

/* A kept case of the operation, more often one of the last; false if none turns up. */
static bool draw_kept(struct fuzz_draw *d, const struct op *op, struct case_line *c)
{
    uint32_t n = d->state->n_kept;
    char error[256];
    for (int tries = 0; n && tries < 32; tries++) {
        uint32_t low = rng_one_in(&d->r, 2) ? 0 : n - (n + 3) / 4;
        uint32_t i = (uint32_t)rng_range(&d->r, low, n - 1);
        if (case_parse(d->state->kept[i], c, error, sizeof error) && c->op == op) return true;
    }
    return false;
}

static void draw_any(struct fuzz_draw *d, const struct op *op, struct case_line *c)
{
    static _Thread_local struct case_line other;
    if (op->wild && rng_one_in(&d->r, 16)) {
        case_init(c, op);
        op_sample_wild(c, &d->r);
        return;
    }
    if (rng_one_in(&d->r, 8) || !draw_kept(d, op, c)) {
        mutate_fresh(c, op, &d->r, d->tier);
        return;
    }
    if (rng_one_in(&d->r, 4) && draw_kept(d, op, &other)) mutate_cross(c, &other, &d->r);
    else
        mutate_case(c, &d->r, d->tier);
    /* Other data too: the geometry is what mutation steers. */
    if (rng_one_in(&d->r, 2)) case_set_int(c, "seed", rng_range(&d->r, 1, INT64_C(1) << 47));
}

void fuzz_draw_case(struct fuzz_draw *d, struct case_line *c)
{
    struct ref_refusal why;
    uint32_t which = rng_u32(&d->r) % d->n_ops;
    for (int tries = 0; tries < TRIES; tries++) {
        draw_any(d, d->ops[which], c);
        if (work_fits(&d->limits[which], c) || !op_ref_accepts(c, NULL, &why)) return;
    }
    case_init(c, d->ops[which]);
}
