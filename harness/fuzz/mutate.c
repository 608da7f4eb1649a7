#include "harness/fuzz/mutate.h"

#include <math.h>
#include <string.h>

enum { LIST_ELEMENTS_MAX = 48, TRIES = 8 };

static int64_t clamp(int64_t value, const struct param *p)
{
    return value < p->min ? p->min : value > p->max ? p->max : value;
}

static bool is_integer(const struct param *p)
{
    return p->kind == PARAM_INT || p->kind == PARAM_OFFSET;
}

static uint64_t draw_seed(struct rng *r)
{
    return (uint64_t)rng_u32(r) << 16 | (rng_u32(r) & 0xffff);
}

void mutate_fresh(struct case_line *c, const struct op *op, struct rng *r, enum tier tier)
{
    case_init(c, op);
    op->sample(c, r, tier, rng_u32(r));
    case_set_int(c, "seed", (int64_t)draw_seed(r));
}

/* Some integer of the case: a parameter or an element of a list. */
static int64_t some_integer(const struct case_line *c, struct rng *r)
{
    for (int tries = 0; tries < 16; tries++) {
        uint32_t i = rng_u32(r) % c->op->n_params;
        const struct param *p = &c->op->params[i];
        const struct case_value *v = &c->v[i];
        if (is_integer(p) && v->i > 1) return v->i;
        if (p->kind == PARAM_LIST && v->i > 0)
            return c->list[v->list_start + rng_u32(r) % (uint32_t)v->i];
    }
    return 1;
}

/* Wraps instead of overflowing. */
static int64_t plus(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

static int64_t times(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a * (uint64_t)b);
}

static int64_t change_integer(const struct case_line *c, int64_t value, const struct param *p,
                              struct rng *r)
{
    switch (rng_u32(r) % 12) {
    case 0:
    case 1:
    case 2: return clamp(plus(value, rng_one_in(r, 2) ? 1 : -1), p);
    case 3: return clamp(times(value, 2), p);
    case 4: return clamp(value / 2, p);
    case 5:
    case 6:
    case 7: /* at or beside a multiple of another number of the case */
        return clamp(plus(times(some_integer(c, r), rng_range(r, 1, 4)), rng_range(r, -1, 1)), p);
    case 8: return clamp((INT64_C(1) << rng_range(r, 0, 11)) + rng_range(r, -1, 1), p);
    case 9: return clamp(plus(value, 16 * rng_range(r, -4, 4)), p);
    case 10: return clamp(rng_range(r, 0, 3), p);
    default: return rng_one_in(r, 8) ? (rng_one_in(r, 2) ? p->min : p->max)
                                     : clamp(p->simplest, p);
    }
}

static double change_real(double value, struct rng *r)
{
    static const double usual[] = {0.0625, 1, 0.37, 0.25, 0.011, 3.7, 0.044194173};
    static const double odd[] = {0, -1, INFINITY, NAN, 0x1p-149, 0x1p127};
    switch (rng_u32(r) % 8) {
    case 0: return value * 2;
    case 1: return value / 2;
    case 2: return value * (1 + 0x1p-23);
    case 3: return odd[rng_u32(r) % 6];
    default: return usual[rng_u32(r) % 7];
    }
}

static bool set_list(struct case_line *c, uint32_t i, const int64_t *values, uint32_t n)
{
    if (c->list_used - (uint32_t)c->v[i].i + n > CASE_LIST_MAX) return false;
    case_set_list(c, c->op->params[i].key, values, n);
    return true;
}

static void change_list(struct case_line *c, uint32_t i, struct rng *r)
{
    const struct param *p = &c->op->params[i];
    uint32_t n = (uint32_t)c->v[i].i, at = n ? rng_u32(r) % n : 0;
    int64_t values[CASE_LIST_MAX + 1];
    memcpy(values, c->list + c->v[i].list_start, n * sizeof *values);
    switch (rng_u32(r) % 6) {
    case 0: /* drop */
        if (!n) return;
        memmove(values + at, values + at + 1, (n - at - 1) * sizeof *values);
        n--;
        break;
    case 1: /* insert a copy, an integer of the case, or the simplest */
        if (n >= LIST_ELEMENTS_MAX) return;
        memmove(values + at + 1, values + at, (n - at) * sizeof *values);
        if (!n || rng_one_in(r, 2)) values[at] = clamp(some_integer(c, r), p);
        n++;
        break;
    default:
        if (!n) return;
        values[at] = change_integer(c, values[at], p, r);
    }
    set_list(c, i, values, n);
}

/* Copies a parameter between cases of which both tables call it the same. */
static void copy_param(struct case_line *c, uint32_t i, const struct case_line *from, uint32_t j)
{
    const struct param *p = &c->op->params[i], *q = &from->op->params[j];
    const struct case_value *v = &from->v[j];
    int64_t values[CASE_LIST_MAX];
    if (p->kind == PARAM_ENUM && p->names != q->names) return;
    if (p->kind == PARAM_LIST) {
        for (int64_t k = 0; k < v->i; k++) values[k] = clamp(from->list[v->list_start + k], p);
        set_list(c, i, values, (uint32_t)v->i);
        return;
    }
    c->v[i].r = v->r;
    c->v[i].i = is_integer(p) ? clamp(v->i, p) : v->i;
}

static void change_param(struct case_line *c, uint32_t i, struct rng *r, enum tier tier)
{
    static _Thread_local struct case_line fresh;
    const struct param *p = &c->op->params[i];
    uint32_t names = 0;
    /* As the sampler has it; rare enums always: some name a claim (whose bound shall hold), which a
     * change would make false. */
    if (rng_one_in(r, 5) || (p->rare && p->kind == PARAM_ENUM)) {
        mutate_fresh(&fresh, c->op, r, tier);
        copy_param(c, i, &fresh, i);
        return;
    }
    switch (p->kind) {
    case PARAM_INT:
    case PARAM_OFFSET: c->v[i].i = change_integer(c, c->v[i].i, p, r); break;
    case PARAM_REAL: c->v[i].r = (double)(float)change_real(c->v[i].r, r); break;
    case PARAM_SEED: c->v[i].i = (int64_t)draw_seed(r); break;
    case PARAM_ENUM:
        while (p->names[names]) names++;
        c->v[i].i = rng_u32(r) % names;
        break;
    case PARAM_LIST: change_list(c, i, r); break;
    }
}

/* Rare parameters are changed one time in eight that they are drawn. */
static uint32_t draw_param(const struct case_line *c, struct rng *r)
{
    uint32_t i = rng_u32(r) % c->op->n_params;
    while (c->op->params[i].rare && !rng_one_in(r, 8)) i = rng_u32(r) % c->op->n_params;
    return i;
}

void mutate_case(struct case_line *c, struct rng *r, enum tier tier)
{
    static _Thread_local struct case_line base;
    struct ref_refusal why;
    uint32_t kind = rng_u32(r) % 32;
    if (kind < 2) {
        mutate_fresh(c, c->op, r, tier);
        return;
    }
    if (kind < 3 && c->op->wild) {
        case_init(c, c->op);
        op_sample_wild(c, r);
        return;
    }
    base = *c;
    for (int tries = 0; tries < TRIES; tries++) {
        *c = base;
        do change_param(c, draw_param(c, r), r, tier);
        while (rng_one_in(r, 2));
        if (op_ref_accepts(c, NULL, &why) || rng_one_in(r, 8)) return;
    }
}

static int find_same(const struct case_line *other, const struct param *p)
{
    for (uint32_t j = 0; j < other->op->n_params; j++) {
        const struct param *q = &other->op->params[j];
        if (q->kind == p->kind && !strcmp(q->key, p->key)) return (int)j;
    }
    return -1;
}

/* The front of one list and the back of the other. */
static void splice(struct case_line *c, uint32_t i, const struct case_line *other, uint32_t j,
                   struct rng *r)
{
    uint32_t n = (uint32_t)c->v[i].i, m = (uint32_t)other->v[j].i;
    uint32_t keep = (uint32_t)rng_range(r, 0, n), from = (uint32_t)rng_range(r, 0, m);
    int64_t values[2 * CASE_LIST_MAX];
    memcpy(values, c->list + c->v[i].list_start, keep * sizeof *values);
    for (uint32_t k = from; k < m; k++)
        values[keep + k - from] = clamp(other->list[other->v[j].list_start + k], &c->op->params[i]);
    n = keep + m - from;
    set_list(c, i, values, n > LIST_ELEMENTS_MAX ? LIST_ELEMENTS_MAX : n);
}

void mutate_cross(struct case_line *c, const struct case_line *other, struct rng *r)
{
    static _Thread_local struct case_line base;
    struct ref_refusal why;
    base = *c;
    for (int tries = 0; tries < TRIES; tries++) {
        *c = base;
        for (uint32_t i = 0; i < c->op->n_params; i++) {
            int j = find_same(other, &c->op->params[i]);
            if (j < 0 || !rng_one_in(r, 2)) continue;
            if (c->op->params[i].kind == PARAM_LIST && rng_one_in(r, 2))
                splice(c, i, other, (uint32_t)j, r);
            else
                copy_param(c, i, other, (uint32_t)j);
        }
        if (op_ref_accepts(c, NULL, &why)) return;
    }
}
