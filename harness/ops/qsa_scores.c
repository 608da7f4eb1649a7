#include "harness/ops/qsa_scores.h"

enum { STREAM_Q = 1, STREAM_K = 2 };

void qsa_scores_gpu_args(const struct case_line *c, struct gpu_qsa_score_rows *a)
{
    uint32_t blocks = case_u32(c, "blocks");
    *a = (struct gpu_qsa_score_rows){.rows = case_u32(c, "rows"),
                                     .n_blocks_max = blocks,
                                     .first_pos = case_u32(c, "pos"),
                                     .score_stride = qsa_sum_u32(blocks, case_int(c, "pad")),
                                     .ratio = case_u32(c, "ratio"),
                                     .n_heads =
                                         qsa_sum_u32(case_u32(c, "heads"), case_int(c, "dead")),
                                     .hd = case_u32(c, "hd")};
}

void qsa_scores_ref_args(const struct case_line *c, const struct instance *in,
                         struct ref_qsa_score_rows *g)
{
    struct gpu_qsa_score_rows a;
    qsa_scores_gpu_args(c, &a);
    *g = (struct ref_qsa_score_rows){.rows = a.rows,
                                     .n_blocks_max = a.n_blocks_max,
                                     .first_pos = a.first_pos,
                                     .score_stride = a.score_stride,
                                     .ratio = a.ratio,
                                     .n_heads = a.n_heads,
                                     .hd = a.hd};
    if (!in) return;
    g->q = instance_data(in, "q");
    g->block_keys = instance_data(in, "block_keys");
}

static void fill_queries(const struct case_line *c, struct instance *in,
                         const struct gpu_qsa_score_rows *a, uint32_t buffer_rows)
{
    struct qsa_data d = qsa_data_make(c, "regime", STREAM_Q, FIELD_QUERY, a->hd);
    uint64_t heads = case_u32(c, "heads"), row_elems = (uint64_t)a->n_heads * a->hd;
    float *q = instance_data(in, "q");
    d.exponent = (int)case_int(c, "double");
    d.group = (uint32_t)heads;
    poison_fill(q + a->rows * row_elems, DTYPE_F32, (buffer_rows - a->rows) * row_elems,
                in->poison);
    for (uint64_t row = 0; row < a->rows; row++) {
        for (uint64_t h = 0; h < heads; h++)
            qsa_data_store(&d, (a->first_pos + row) * heads + h, DTYPE_F32,
                           q + row * row_elems + h * a->hd);
    }
}

static void fill_keys(const struct case_line *c, struct instance *in,
                      const struct gpu_qsa_score_rows *a)
{
    struct qsa_data d = qsa_data_make(c, "regime", STREAM_K, FIELD_KEY, a->hd);
    uint64_t seen = a->rows ? qsa_complete((uint64_t)a->first_pos + a->rows - 1, a->ratio) : 0;
    uint16_t *keys = instance_data(in, "block_keys");
    int64_t change = case_int(c, "change");
    d.f.huge = 0x1p100;
    for (uint64_t b = 0; b < a->n_blocks_max; b++) {
        uint16_t *key = keys + b * a->hd;
        if (b >= seen)
            poison_fill(key, DTYPE_BF16, a->hd, in->poison);
        else
            qsa_data_store(&d, change >= 0 && b >= (uint64_t)change ? qsa_changed_row(b) : b,
                           DTYPE_BF16, key);
    }
}

bool qsa_scores_build(const struct case_line *c, struct instance *in, uint32_t buffer_rows,
                      enum contract contract)
{
    struct gpu_qsa_score_rows a;
    qsa_scores_gpu_args(c, &a);
    uint64_t q_shape[] = {buffer_rows, a.n_heads, a.hd}, key_shape[] = {a.n_blocks_max, a.hd};
    uint64_t score_shape[] = {a.rows, a.n_blocks_max}, score_stride[] = {a.score_stride, 1};
    if (!instance_add(in, "q", DTYPE_F32, ROLE_IN, CONTRACT_ANY, 3, q_shape, "row,head,dim") ||
        !instance_add(in, "block_keys", DTYPE_BF16, ROLE_IN, CONTRACT_ANY, 2, key_shape,
                      "block,dim"))
        return false;
    struct tensor *scores =
        instance_add_strided(in, "scores", DTYPE_F32, ROLE_OUT, contract, 2, score_shape,
                             score_stride, 0, (uint64_t)buffer_rows * a.score_stride, "row,block");
    if (!scores) return false;
    scores->free_from = (uint64_t)a.rows * a.score_stride;
    fill_queries(c, in, &a, buffer_rows);
    fill_keys(c, in, &a);
    return true;
}

void qsa_scores_buffers(const struct instance *in, const struct gpu_buffer *buffers,
                        struct gpu_qsa_score_rows *a)
{
    a->q = &buffers[instance_index(in, "q")];
    a->block_keys = &buffers[instance_index(in, "block_keys")];
    a->scores = &buffers[instance_index(in, "scores")];
}

void qsa_scores_canonical(const struct case_line *c, const struct instance *in, float *dense)
{
    struct ref_qsa_score_rows g;
    qsa_scores_ref_args(c, in, &g);
    g.score_stride = g.n_blocks_max;
    ref_qsa_score_rows(&g, dense);
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

void qsa_scores_absurd(struct case_line *c, struct rng *r)
{
    static const char *const keys[] = {"rows", "pos", "ratio", "blocks", "heads", "hd"};
    if (rng_one_in(r, 6))
        case_set_int(c, "pad", rng_range(r, -3, 3));
    else
        qsa_absurd_param(c, r, keys, 6);
}

bool qsa_scores_edit_pad(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    case_set_int(changed, "pad", case_int(base, "pad") + rng_range(r, 1, 70));
    return true;
}

/* A head of zeros adds +0: relu of a dot with a finite key. */
bool qsa_scores_edit_dead(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    if (qsa_ends_of_range(base, "regime")) return false;
    case_set_int(changed, "dead", rng_range(r, 1, 5));
    return true;
}

bool qsa_scores_edit_double(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    if (qsa_ends_of_range(base, "regime")) return false;
    case_set_int(changed, "double", 1);
    return true;
}

bool qsa_scores_edit_later(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    uint64_t pos = case_u32(base, "pos"), rows = case_u32(base, "rows");
    uint32_t ratio = case_u32(base, "ratio");
    uint64_t low = qsa_complete(pos, ratio), high = qsa_complete(pos + rows - 1, ratio);
    if (case_int(base, "change") >= 0 || low == high) return false;
    case_set_int(changed, "change", rng_range(r, (int64_t)low, (int64_t)high - 1));
    return true;
}

int64_t qsa_scores_row_before(const struct case_line *base, const struct case_line *changed,
                              int64_t row)
{
    uint64_t complete =
        qsa_complete((uint64_t)(case_int(base, "pos") + row), case_u32(base, "ratio"));
    return complete <= (uint64_t)case_int(changed, "change") ? row : -1;
}

uint32_t qsa_scores_certify(const struct case_line *c, const struct instance *in,
                            enum ref_qsa_scorer scorer, struct expected *e)
{
    struct ref_qsa_score_rows g;
    qsa_scores_ref_args(c, in, &g);
    if (!expected_alloc_select(e, g.rows, g.n_blocks_max)) return 0;
    ref_qsa_score_rows_bound(&g, scorer, e->select_value, e->select_bound);
    for (uint32_t row = 0; row < g.rows; row++) {
        uint64_t complete = qsa_complete((uint64_t)g.first_pos + row, g.ratio);
        e->select_n[row] = complete < g.n_blocks_max ? (uint32_t)complete : g.n_blocks_max;
    }
    return g.rows;
}
