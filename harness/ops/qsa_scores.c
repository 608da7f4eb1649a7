#include "harness/ops/qsa_scores.h"

enum { STREAM_Q = 1, STREAM_K = 2 };

bool qsa_scores_fill_queries(const struct filling *f)
{
    const struct case_line *c = f->c;
    uint64_t hd = case_u32(c, "hd"), heads = case_u32(c, "heads"), first = case_u32(c, "pos");
    uint64_t rows = case_u32(c, "rows"), row_elems = f->t->stride[0];
    struct qsa_data d = qsa_data_make(c, "regime", STREAM_Q, FIELD_QUERY, (uint32_t)hd);
    float *q = (float *)(void *)f->t->data;
    d.exponent = (int)case_int(c, "double");
    d.group = (uint32_t)heads;
    poison_fill(q + rows * row_elems, DTYPE_F32, (f->t->shape[0] - rows) * row_elems,
                f->in->poison);
    for (uint64_t row = 0; row < rows; row++) {
        for (uint64_t h = 0; h < heads; h++)
            qsa_data_store(&d, (first + row) * heads + h, DTYPE_F32, q + row * row_elems + h * hd);
    }
    return true;
}

bool qsa_scores_fill_keys(const struct filling *f)
{
    const struct case_line *c = f->c;
    uint64_t hd = case_u32(c, "hd"), seen = (uint64_t)case_number(c, "last_seen");
    struct qsa_data d = qsa_data_make(c, "regime", STREAM_K, FIELD_KEY, (uint32_t)hd);
    int64_t change = case_int(c, "change");
    d.f.huge = 0x1p100;
    for (uint64_t b = 0; b < f->t->shape[0]; b++) {
        uint8_t *key = f->t->data + 2 * b * hd;
        if (b >= seen)
            poison_fill(key, DTYPE_BF16, hd, f->in->poison);
        else
            qsa_data_store(&d, change >= 0 && b >= (uint64_t)change ? qsa_changed_row(b) : b,
                           DTYPE_BF16, key);
    }
    return true;
}

void qsa_scores_sample_rows(struct case_line *c, struct rng *r, uint32_t rows, uint32_t blocks)
{
    static const int64_t ratios[] = {1, 2, 3, 4, 4, 4, 5, 8, 16, 64};
    int64_t ratio = rng_pick(r, ratios, 10), around[] = {64, 16, ratio};
    int64_t pos = (int64_t)blocks * ratio + rng_range(r, -2, 2) - (int64_t)rows / 2;
    if (rng_one_in(r, 3)) { /* near the budget of 2,048 tokens, by long blocks */
        pos = rng_range(r, 2046, 2055);
        ratio = pos / (blocks + 1) + 1;
    }
    if (rng_one_in(r, 6)) pos = rng_range(r, 0, ratio);
    if (pos < 0) pos = 0;
    int64_t complete = (int64_t)qsa_complete((uint64_t)(pos + rows - 1), (uint32_t)ratio);
    int64_t columns = complete + rng_range(r, 0, 2);
    if (rng_one_in(r, 4)) columns = rng_edge(r, 1, complete + 9, rng_pick(r, around, 3));
    case_set_int(c, "rows", rows);
    case_set_int(c, "pos", pos);
    case_set_int(c, "ratio", ratio);
    case_set_int(c, "blocks", columns > 0 ? columns : 1);
    case_set_int(c, "pad", rng_one_in(r, 3) ? 0 : rng_range(r, 1, 9));
}

uint32_t qsa_scores_certify(const struct case_line *c, const struct instance *in,
                            enum ref_qsa_scorer scorer, struct expected *e)
{
    struct ref_qsa_score_rows g = {0};
    step_ref_arguments(c->op->steps, c, in, &g, NULL);
    if (!expected_alloc_select(e, g.rows, g.n_blocks_max)) return 0;
    ref_qsa_score_rows_bound(&g, scorer, e->select_value, e->select_bound);
    for (uint32_t row = 0; row < g.rows; row++) {
        uint64_t complete = qsa_complete((uint64_t)g.first_pos + row, g.ratio);
        e->select_n[row] = complete < g.n_blocks_max ? (uint32_t)complete : g.n_blocks_max;
    }
    return g.rows;
}
