/* The numbers and the data of a QSA pipeline. */
#include "harness/ops/qsa_pipeline.h"

#include <stdlib.h>
#include <string.h>

enum { STREAM_RAW = 11, STREAM_K_NORM = 12, STREAM_QK = 13, STREAM_Q_NORM = 14, TC_ROWS = 16 };
/* Sampled positions from here on have one attention head: attention is slow on the CPU. */
enum { LONG = 2000 };

const char *const qsa_index_regimes[] = {
    "normal",         "relu_ties", "low_bits",     "equal",     "cancel", "specials",
    "query_specials", "zeros",     "all_negative", "walk",      "needle", "outlier",
    "offset",         "near_eps",  "huge",         "subnormal", "noise",  NULL};
enum { INDEX_REGIMES = sizeof qsa_index_regimes / sizeof *qsa_index_regimes - 1 };

void qsa_pipeline_read(const struct case_line *c, struct qsa_pipeline *p)
{
    uint32_t heads = case_u32(c, "heads"), ihd = case_u32(c, "ihd");
    memset(p, 0, sizeof *p);
    p->rows = case_has(c, "rows") ? case_u32(c, "rows") : 1;
    p->first_pos = case_u32(c, "pos");
    p->len = p->rows ? qsa_sum_u32((uint64_t)p->first_pos + p->rows, 0) : 0;
    p->topk = case_u32(c, "topk");
    p->ratio = case_u32(c, "ratio");
    p->blocks = p->ratio ? p->len / p->ratio : 0;
    p->heads = heads;
    p->ihd = ihd;
    p->rot = case_u32(c, "rot");
    p->qkw = qsa_sum_u32((uint64_t)heads * ihd, case_has(c, "qkpad") ? case_int(c, "qkpad") : 0);
    p->tensor_core = case_has(c, "scorer") && case_enum_is(c, "scorer", "tc");
    p->buffer_rows = p->rows;
    if (p->tensor_core)
        p->buffer_rows = qsa_sum_u32(((uint64_t)p->rows + TC_ROWS - 1) / TC_ROWS * TC_ROWS, 0);
    p->score_stride = qsa_sum_u32(p->blocks, case_has(c, "pad") ? case_int(c, "pad") : 0);
    p->theta = (float)case_real(c, "theta");
    p->eps = (float)case_real(c, "eps");
    p->block = case_u32(c, "block");
    p->table_len = qsa_table_len(c, p->len);
    p->nq = case_u32(c, "nq");
    p->nkv = case_u32(c, "nkv");
    p->hd = case_u32(c, "hd");
    p->scale = qsa_attention_scale(c);
}

/* Regimes that live on signs keep them: channels that a rotation would mix hold 0. */
static struct qsa_data index_data(const struct qsa_pipeline *p, const struct case_line *c,
                                  uint32_t stream, enum field_kind kind)
{
    struct qsa_data d = qsa_data_make(c, "index", stream, kind, p->ihd);
    d.f.huge = 0x1p60;
    d.group = p->heads;
    if (qsa_regime_of_signs(c, "index")) d.mute = p->rot;
    return d;
}

/* A block of equal raw keys pools to that key: rows are keyed by block where the regime is about
 * blocks. */
static uint64_t raw_row(const struct qsa_pipeline *p, const struct case_line *c, uint64_t token)
{
    return qsa_regime_of_signs(c, "index") ? token / p->ratio : token;
}

/* Raw keys of tokens behind the last complete block are poison. */
static void fill_raw_keys(const struct qsa_pipeline *p, const struct case_line *c,
                          struct instance *in)
{
    struct qsa_data d = index_data(p, c, STREAM_RAW, FIELD_KEY);
    uint16_t *out = instance_data(in, "raw_keys");
    int64_t change = case_has(c, "change") ? case_int(c, "change") : -1;
    poison_fill(out, DTYPE_BF16, (uint64_t)p->len * p->ihd, in->poison);
    for (uint64_t token = 0; token < (uint64_t)p->blocks * p->ratio; token++) {
        uint64_t row = raw_row(p, c, token);
        bool changed = change >= 0 && token >= (uint64_t)change;
        qsa_data_store(&d, changed ? qsa_changed_row(row) : row, DTYPE_BF16, out + token * p->ihd);
    }
}

static void fill_queries(const struct qsa_pipeline *p, const struct case_line *c,
                         struct instance *in)
{
    struct qsa_data d = index_data(p, c, STREAM_QK, FIELD_QUERY);
    uint16_t *qk = instance_data(in, "qk");
    poison_fill(qk, DTYPE_BF16, (uint64_t)p->rows * p->qkw, in->poison);
    for (uint64_t row = 0; row < p->rows; row++) {
        for (uint64_t h = 0; h < p->heads; h++)
            qsa_data_store(&d, (p->first_pos + row) * p->heads + h, DTYPE_BF16,
                           qk + row * p->qkw + h * p->ihd);
    }
    qsa_attention_queries(c, "regime", p->rows, p->first_pos, p->nq, p->hd, instance_data(in, "q"));
}

/* Which tokens are attended is for the kernels to choose, so every token of the sequence has data.
 */
static bool build_cache(const struct qsa_pipeline *p, const struct case_line *c,
                        struct instance *in)
{
    struct qsa_cache cache = {.len = 0};
    uint8_t *used = malloc((size_t)p->len + 1);
    bool fine = used && qsa_cache_make(&cache, c, in, p->len, p->nkv, p->hd, "regime");
    if (fine) {
        memset(used, 1, p->len);
        fine = qsa_cache_fill(&cache, in, used, false);
    }
    free(used);
    qsa_cache_free(&cache);
    return fine;
}

static bool add_inputs(const struct qsa_pipeline *p, struct instance *in)
{
    uint64_t raw_shape[] = {p->len, p->ihd}, norm_shape[] = {p->ihd},
             qk_shape[] = {p->rows, p->qkw};
    uint64_t q_shape[] = {p->rows, p->nq, p->hd};
    return instance_add(in, "raw_keys", DTYPE_BF16, ROLE_IN, CONTRACT_ANY, 2, raw_shape,
                        "token,dim") &&
           instance_add(in, "k_norm_w", DTYPE_BF16, ROLE_IN, CONTRACT_ANY, 1, norm_shape, "dim") &&
           instance_add(in, "qk", DTYPE_BF16, ROLE_IN, CONTRACT_ANY, 2, qk_shape, "row,dim") &&
           instance_add(in, "q_norm_w", DTYPE_BF16, ROLE_IN, CONTRACT_ANY, 1, norm_shape, "dim") &&
           instance_add(in, "q", DTYPE_BF16, ROLE_IN, CONTRACT_ANY, 3, q_shape, "row,head,dim");
}

/* Queries and scores for the tensor cores are allocated in sixteens of rows; what the padding rows
 * hold is nobody's business. */
static bool add_outputs(const struct qsa_pipeline *p, struct instance *in)
{
    uint64_t key_shape[] = {p->blocks, p->ihd}, q_shape[] = {p->rows, p->heads, p->ihd};
    uint64_t q_stride[] = {(uint64_t)p->heads * p->ihd, p->ihd, 1};
    uint64_t score_shape[] = {p->rows, p->blocks}, score_stride[] = {p->score_stride, 1};
    uint64_t list_shape[] = {p->rows, p->topk};
    if (!instance_add(in, "block_keys", DTYPE_BF16, ROLE_OUT, CONTRACT_EXACT, 2, key_shape,
                      "block,dim"))
        return false;
    struct tensor *q =
        instance_add_strided(in, "q_index", DTYPE_F32, ROLE_OUT, CONTRACT_EXACT, 3, q_shape,
                             q_stride, 0, p->buffer_rows * q_stride[0], "row,head,dim");
    struct tensor *scores = instance_add_strided(
        in, "scores", DTYPE_F32, ROLE_OUT, p->tensor_core ? CONTRACT_BOUND : CONTRACT_EXACT, 2,
        score_shape, score_stride, 0, (uint64_t)p->buffer_rows * p->score_stride, "row,block");
    struct tensor *lists =
        instance_add(in, "lists", DTYPE_I32, ROLE_OUT, CONTRACT_EXACT, 2, list_shape, "row,slot");
    if (!q || !scores || !lists || in->n_tensors == INSTANCE_TENSORS_MAX) return false;
    q->free_from = p->rows * q_stride[0];
    scores->free_from = (uint64_t)p->rows * p->score_stride;
    struct tensor *selection = &in->tensors[in->n_tensors++];
    *selection = *lists;
    selection->name = "selection";
    selection->contract = CONTRACT_SELECT;
    selection->alias_of = (int32_t)instance_index(in, "lists");
    return true;
}

bool qsa_pipeline_build(const struct qsa_pipeline *p, const struct case_line *c,
                        struct instance *in)
{
    if (!add_inputs(p, in) || !build_cache(p, c, in) || !add_outputs(p, in)) return false;
    qsa_norm_fill(c, STREAM_K_NORM, p->ihd, instance_data(in, "k_norm_w"));
    qsa_norm_fill(c, STREAM_Q_NORM, p->ihd, instance_data(in, "q_norm_w"));
    fill_raw_keys(p, c, in);
    fill_queries(p, c, in);
    return true;
}

/* The position of the last row, and a budget, such that selection just begins to matter, or just
 * does not. */
static void sample_budget(struct case_line *c, struct rng *r, int64_t ratio, int64_t most)
{
    int64_t complete = rng_edge(r, 0, most, 16),
            pos = complete * ratio + rng_range(r, -1, ratio - 2);
    int64_t topk = rng_edge(r, 1, most, 8);
    if (rng_one_in(r, 3)) topk = complete + rng_range(r, -1, 1);
    if (rng_one_in(r, 24)) { /* the released budget of 2,048 tokens, in long blocks */
        pos = rng_range(r, 2046, 2055);
        ratio = rng_one_in(r, 2) ? 128 : 64;
        topk = 2048 / ratio;
    }
    case_set_int(c, "ratio", ratio);
    case_set_int(c, "pos", pos < 0 ? 0 : pos);
    case_set_int(c, "topk", topk < 1 ? 1 : topk);
}

void qsa_pipeline_sample(struct case_line *c, struct rng *r, enum tier tier, uint64_t index)
{
    static const double scales[] = {0.125, 0.17677669, 0.37};
    int64_t most = tier == TIER_FULL ? 150 : 24, ratio = rng_one_in(r, 2) ? 4 : rng_range(r, 1, 6);
    sample_budget(c, r, ratio, most);
    ratio = case_int(c, "ratio");
    case_set_int(c, "block", ratio * rng_range(r, 1, ratio > 32 ? 2 : 64 / ratio));
    case_set_int(c, "heads", rng_range(r, 1, 4));
    case_set_int(c, "ihd", rng_one_in(r, 4) ? 64 : 32);
    qsa_sample_norm(c, r, case_u32(c, "ihd"));
    case_set_int(c, "nkv", rng_range(r, 1, 2));
    case_set_int(c, "nq", case_int(c, "nkv") * (rng_one_in(r, 3) ? 2 : 1));
    case_set_int(c, "hd", rng_one_in(r, 5) ? 64 : 32);
    case_set_real(c, "scale", scales[rng_u32(r) % 3]);
    case_set_enum(c, "index", qsa_index_regimes[index % INDEX_REGIMES]);
    case_set_enum(c, "regime",
                  qsa_attention_regimes[rng_one_in(r, 3) ? rng_u32(r) % QSA_ATTENTION_REGIMES : 0]);
    /* Exact zeros, ties and cancelled sums survive weights that are equal. */
    if (qsa_regime_of_signs(c, "index")) {
        case_set_enum(c, "norm",
                      rng_one_in(r, 2) || case_enum_is(c, "index", "noise") ? "zero" : "random");
        if (case_u32(c, "rot") == case_u32(c, "ihd"))
            case_set_int(c, "rot", case_int(c, "ihd") / 2);
    }
    qsa_sample_pages(c, r, index);
    if (case_int(c, "pos") < LONG) return;
    case_set_int(c, "nq", 1);
    case_set_int(c, "nkv", 1);
}

void qsa_pipeline_absurd(struct case_line *c, struct rng *r)
{
    static const char *const keys[] = {"pos", "topk",  "ratio", "heads", "ihd",
                                       "rot", "block", "nq",    "nkv",   "hd"};
    switch (rng_u32(r) % 12) {
    case 0:
        case_set_real(c, "theta", qsa_absurd_real(r));
        break;
    case 1:
        case_set_real(c, "eps", qsa_absurd_real(r));
        break;
    case 2:
        case_set_real(c, "scale", qsa_absurd_real(r));
        break;
    case 3:
        case_set_int(c, "spare", rng_range(r, -3, 3));
        break;
    default:
        qsa_absurd_param(c, r, keys, 10);
    }
}
