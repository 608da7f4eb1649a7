/* dsa_mla_masked_attn: dense attention under a mask, the device-side oracle of DSA (ops.md §2). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/ops/dsa_common.h"
#include "ref/formats.h"

enum { STREAM_Q = 1, STREAM_K = 2, STREAM_V = 3, STREAM_MASK = 4, COLUMNS_MAX = 4096 };

static const char *const regimes[] = {"normal", "exact_int", "peaked", "flat",     "all_negative",
                                      "cancel", "outlier",   "walk",   "needle",   "subnormal",
                                      "huge",   "offset",    "equal",  "specials", NULL};
enum { REGIMES = 14 };

enum mask {
    MASK_RANDOM,
    MASK_ALL,
    MASK_NONE,
    MASK_ONE,    /* one token a row */
    MASK_ENDS,   /* the first and the last token */
    MASK_STRIPE, /* one run of tokens */
    MASK_KINDS
};
static const char *const mask_names[] = {"random", "all", "none", "one", "ends", "stripe", NULL};

static const struct param params[] = {
    {"rows", PARAM_INT, false, "1", 0, UINT32_MAX, NULL, "query rows", 1},
    {"heads", PARAM_INT, false, "2", 0, UINT32_MAX, NULL, "heads", 1},
    {"len", PARAM_INT, false, "37", 0, UINT32_MAX, NULL, "tokens", 1},
    {"qdim", PARAM_INT, false, "64", 0, 4096, NULL, "channels of a query and a key", 1},
    {"vdim", PARAM_INT, false, "48", 0, 4096, NULL, "channels of a value", 1},
    {"mask", PARAM_ENUM, false, "random", 0, 0, mask_names, "which tokens are attended", 3},
    {"count", PARAM_INT, true, "0", 0, UINT32_MAX, NULL,
     "tokens attended, with a random mask; 0: half", 1},
    {"round", PARAM_INT, false, "0", 0, 1, NULL, "scores rounded to bf16", 0},
    {"scale", PARAM_REAL, false, "0.125", 0, 0, NULL, "softmax scale", 1},
    {"fold", PARAM_OFFSET, true, "+0", -8, 8, NULL, "2^fold moved from the queries to the scale",
     0},
    {"double", PARAM_INT, true, "0", 0, 1, NULL, "values twice as large", 0},
    {"first", PARAM_INT, true, "0", 0, UINT32_MAX, NULL, "which row comes first", 0},
    {"reverse", PARAM_INT, true, "0", 0, 1, NULL, "rows in reverse order", 0},
    {"regime", PARAM_ENUM, false, "normal", 0, 0, regimes, "values", 0},
    {"seed", PARAM_SEED, false, "0x1", 0, 0, NULL, "of every byte", 0},
};

static const struct preset presets[] = {
    {"glm53", "heads=2,len=300,qdim=512,vdim=512,scale=0.044194173"}, {NULL, NULL}};

static const char *const always[] = {
    "dsa_mla_masked_attn:model=glm53,regime=peaked,seed=0x53",
    "dsa_mla_masked_attn:heads=1,len=12288,qdim=8,vdim=3,count=40,seed=0x54",
    "dsa_mla_masked_attn:rows=2,len=65,qdim=33,vdim=1,round=1,regime=cancel,seed=0x55",
    "dsa_mla_masked_attn:rows=2,len=0,seed=0x56", NULL};

static float scale_of(const struct case_line *c)
{
    return (float)ldexp(case_real(c, "scale"), (int)case_int(c, "fold"));
}

static void gpu_args(const struct case_line *c, struct gpu_dsa_mla_masked_attn *a)
{
    *a = (struct gpu_dsa_mla_masked_attn){.Q = case_u32(c, "rows"),
                                          .S = case_u32(c, "len"),
                                          .H = case_u32(c, "heads"),
                                          .qd = case_u32(c, "qdim"),
                                          .vd = case_u32(c, "vdim"),
                                          .scale = scale_of(c),
                                          .round_scores_bf16 = (int32_t)case_int(c, "round")};
}

static void ref_args(const struct case_line *c, const struct instance *in,
                     struct ref_dsa_mla_masked_attn *g)
{
    *g = (struct ref_dsa_mla_masked_attn){.Q = case_u32(c, "rows"),
                                          .S = case_u32(c, "len"),
                                          .H = case_u32(c, "heads"),
                                          .qd = case_u32(c, "qdim"),
                                          .vd = case_u32(c, "vdim"),
                                          .scale = scale_of(c),
                                          .round_scores_bf16 = (int32_t)case_int(c, "round")};
    if (!in) return;
    g->q = instance_data(in, "q");
    g->k = instance_data(in, "k");
    g->v = instance_data(in, "v");
    g->mask = instance_data(in, "mask");
}

static bool ref_accepts(const struct case_line *c, const struct instance *in,
                        struct ref_refusal *why)
{
    struct ref_dsa_mla_masked_attn g;
    ref_args(c, in, &g);
    return ref_dsa_mla_masked_attn_accepts(&g, why);
}

static enum gpu_status gpu_check(const struct case_line *c, const struct instance *in,
                                 struct gpu_report *report)
{
    struct gpu_dsa_mla_masked_attn a;
    gpu_args(c, &a);
    return gpu_dsa_mla_masked_attn_check(&a, report);
}

struct build {
    const struct case_line *c;
    struct instance *in;
    struct field q, k, v;
    uint32_t rows, len, heads;
    uint8_t *mask;
};

static void fill_mask_row(const struct build *b, uint64_t key, uint8_t *row)
{
    struct rng r = {case_seed(b->c), STREAM_MASK, key << 32};
    uint32_t len = b->len, count = case_u32(b->c, "count");
    uint32_t start = (uint32_t)rng_range(&r, 0, len - 1), end = (uint32_t)rng_range(&r, start, len);
    uint32_t left = count && count < len ? count : (len + 1) / 2;
    for (uint32_t s = 0; s < len; s++) {
        switch ((enum mask)case_int(b->c, "mask")) {
        case MASK_RANDOM: /* exactly `left` of the tokens that are left, each as likely */
            row[s] = rng_range(&r, 1, len - s) <= left;
            left -= row[s];
            break;
        case MASK_ALL:
            row[s] = 1;
            break;
        case MASK_ONE:
            row[s] = s == start;
            break;
        case MASK_ENDS:
            row[s] = s == 0 || s == len - 1;
            break;
        case MASK_STRIPE:
            row[s] = s >= start && s < end;
            break;
        case MASK_NONE:
        case MASK_KINDS:
            row[s] = 0;
            break;
        }
    }
}

static void store_exact(const struct field *f, uint64_t row, bool query, uint16_t *out)
{
    double value[COLUMNS_MAX];
    dsa_exact_row(f, row, query, value);
    for (uint32_t d = 0; d < f->cols; d++) out[d] = ref_bf16_from_f32((float)value[d]);
}

static void fill_queries(struct build *b)
{
    uint16_t *q = instance_data(b->in, "q");
    for (uint32_t row = 0; row < b->rows; row++) {
        for (uint32_t h = 0; h < b->heads; h++) {
            uint64_t key = (uint64_t)dsa_row_key(b->c, row) * b->heads + h;
            uint16_t *out = q + ((uint64_t)row * b->heads + h) * b->q.cols;
            if (b->q.regime == REGIME_EXACT_INT)
                store_exact(&b->q, key, true, out);
            else
                dsa_store_scaled(&b->q, key, -(int)case_int(b->c, "fold"), DTYPE_BF16, out);
        }
    }
}

/* Tokens that no row attends hold poison. */
static void fill_token(struct build *b, uint32_t token)
{
    bool attended = false;
    for (uint32_t row = 0; row < b->rows; row++)
        attended |= b->mask[(uint64_t)row * b->len + token];
    for (uint32_t h = 0; h < b->heads; h++) {
        /* Where an infinity is attended little can be judged: head 0 has none. */
        bool plain = h == 0 && b->k.regime == REGIME_SPECIALS;
        struct field k_field = b->k, v_field = b->v;
        if (plain) k_field.regime = v_field.regime = REGIME_NORMAL;
        uint64_t key = (uint64_t)token * b->heads + h;
        uint16_t *k = (uint16_t *)instance_data(b->in, "k") + key * b->k.cols;
        uint16_t *v = (uint16_t *)instance_data(b->in, "v") + key * b->v.cols;
        if (!attended) {
            poison_fill(k, DTYPE_BF16, b->k.cols, b->in->poison);
            poison_fill(v, DTYPE_BF16, b->v.cols, b->in->poison);
            continue;
        }
        if (b->k.regime == REGIME_EXACT_INT)
            store_exact(&b->k, key, false, k);
        else
            field_row_store(&k_field, key, DTYPE_BF16, k);
        dsa_store_scaled(&v_field, key, (int)case_int(b->c, "double"), DTYPE_BF16, v);
    }
}

static bool build(const struct case_line *c, struct instance *in)
{
    struct build b = {.c = c,
                      .in = in,
                      .rows = case_u32(c, "rows"),
                      .len = case_u32(c, "len"),
                      .heads = case_u32(c, "heads")};
    enum regime regime = dsa_regime(c, "regime");
    uint64_t seed = case_seed(c), qdim = case_u32(c, "qdim"), vdim = case_u32(c, "vdim");
    uint64_t q_shape[] = {b.rows, b.heads, qdim}, k_shape[] = {b.len, b.heads, qdim};
    uint64_t v_shape[] = {b.len, b.heads, vdim}, mask_shape[] = {b.rows, b.len};
    uint64_t out_shape[] = {b.rows, b.heads, vdim};
    b.q = field_make(seed, STREAM_Q, FIELD_QUERY, regime, DTYPE_BF16, (uint32_t)qdim);
    b.k = field_make(seed, STREAM_K, FIELD_KEY, regime, DTYPE_BF16, (uint32_t)qdim);
    b.v = field_make(seed, STREAM_V, FIELD_VALUE, regime, DTYPE_BF16, (uint32_t)vdim);
    if (!instance_add(in, "q", DTYPE_BF16, ROLE_IN, CONTRACT_ANY, 3, q_shape, "query,head,dim") ||
        !instance_add(in, "k", DTYPE_BF16, ROLE_IN, CONTRACT_ANY, 3, k_shape, "token,head,dim") ||
        !instance_add(in, "v", DTYPE_BF16, ROLE_IN, CONTRACT_ANY, 3, v_shape, "token,head,dim") ||
        !instance_add(in, "mask", DTYPE_U8, ROLE_IN, CONTRACT_ANY, 2, mask_shape, "query,token") ||
        !instance_add(in, "out", DTYPE_F32, ROLE_OUT, CONTRACT_BOUND, 3, out_shape,
                      "query,head,dim"))
        return false;
    b.mask = instance_data(in, "mask");
    for (uint32_t row = 0; row < b.rows && b.len; row++)
        fill_mask_row(&b, dsa_row_key(c, row), b.mask + (uint64_t)row * b.len);
    fill_queries(&b);
    for (uint32_t token = 0; token < b.len; token++) fill_token(&b, token);
    return true;
}

static enum gpu_status launch(const struct gpu_target *targets, const struct case_line *c,
                              const struct instance *in, const struct gpu_buffer *buffers,
                              struct gpu_report *report)
{
    struct gpu_dsa_mla_masked_attn a;
    gpu_args(c, &a);
    a.q = &buffers[instance_index(in, "q")];
    a.k = &buffers[instance_index(in, "k")];
    a.v = &buffers[instance_index(in, "v")];
    a.mask = &buffers[instance_index(in, "mask")];
    a.out = &buffers[instance_index(in, "out")];
    return gpu_dsa_mla_masked_attn(&targets[0], &a, report);
}

/* In exact_int every weight is 1 and every sum of values exact; with a power of two of tokens the
 * quotient is exact too, so the bound is 0. */
static bool exactly_computable(const uint8_t *mask, uint32_t len)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < len; s++) n += mask[s];
    return (n & (n - 1)) == 0;
}

static void oracle(const struct case_line *c, const struct instance *in,
                   const struct ref_error_model *model, const uint8_t *const *got,
                   struct expected *e)
{
    struct ref_dsa_mla_masked_attn g;
    struct expected *out = &e[instance_index(in, "out")];
    ref_args(c, in, &g);
    ref_dsa_mla_masked_attn(&g, model, out->value, out->bound);
    if (dsa_regime(c, "regime") != REGIME_EXACT_INT) return;
    for (uint32_t row = 0; row < g.Q; row++) {
        uint64_t elems = (uint64_t)g.H * g.vd;
        if (!exactly_computable(g.mask + (uint64_t)row * g.S, g.S)) continue;
        /* Scores overflow under an absurd scale: the oracle then bounds nothing. */
        for (uint64_t i = row * elems; i < (row + 1) * elems; i++) {
            if (isfinite(out->bound[i])) out->bound[i] = 0;
        }
    }
}

static void sample(struct case_line *c, struct rng *r, enum tier tier, uint64_t index)
{
    static const int64_t heads[] = {1, 2, 3, 5}, around[] = {8, 32, 256};
    static const double scales[] = {0.125, 0.044194173, 0.37, 1};
    uint32_t longest = tier == TIER_FULL ? 700 : 150, widest = tier == TIER_FULL ? 576 : 100;
    uint32_t len = (uint32_t)rng_edge(r, 1, longest, rng_pick(r, around, 3));
    case_set_int(c, "rows", rng_range(r, 1, 3));
    case_set_int(c, "heads", rng_pick(r, heads, 4));
    case_set_int(c, "len", len);
    case_set_int(c, "qdim", rng_edge(r, 1, widest, 32));
    case_set_int(c, "vdim", rng_edge(r, 1, rng_one_in(r, 6) ? 260 : widest, 32));
    case_set_int(c, "round", rng_one_in(r, 3));
    case_set_real(c, "scale", scales[rng_u32(r) % 4]);
    case_set_enum(c, "regime", regimes[index % REGIMES]);
    case_set_int(c, "mask", (int64_t)(index / REGIMES + index) % 11 % MASK_KINDS);
    if (rng_one_in(r, 3)) case_set_int(c, "count", rng_range(r, 1, len));
    if (case_enum_is(c, "regime", "specials")) case_set_int(c, "heads", rng_range(r, 2, 3));
    if (case_enum_is(c, "regime", "exact_int")) {
        case_set_enum(c, "mask", rng_one_in(r, 4) ? "one" : "random");
        case_set_int(c, "count", INT64_C(1) << rng_range(r, 0, 5));
    }
}

static void sample_wild(struct case_line *c, struct rng *r)
{
    static const char *const keys[] = {"rows", "heads", "len"};
    sample(c, r, TIER_QUICK, rng_u32(r));
    for (uint32_t faults = (uint32_t)rng_range(r, 0, 2); faults; faults--) {
        if (rng_one_in(r, 4))
            case_set_real(c, "scale", dsa_absurd_real(r));
        else
            dsa_absurd_param(c, r, keys, 3);
        if (rng_one_in(r, 4)) case_set_int(c, "len", 12288 + rng_range(r, -1, 1));
    }
}

static bool edit_double(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    /* Below the normal range doubling is not exact on the way. */
    if (case_enum_is(base, "regime", "subnormal")) return false;
    case_set_int(changed, "double", 1);
    return true;
}

static bool edit_fold(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    /* exact_int has queries of its own. */
    if (case_enum_is(base, "regime", "subnormal") || case_enum_is(base, "regime", "exact_int"))
        return false;
    case_set_int(changed, "fold", rng_one_in(r, 2) ? 3 : -2);
    return true;
}

static const struct relation relations[] = {
    {"rows-reversed", RELATION_SAME_BITS, dsa_edit_reversed, dsa_row_reversed},
    {"row-alone", RELATION_SAME_BITS, dsa_edit_alone, dsa_row_alone},
    {"values-doubled", RELATION_DOUBLED, edit_double, NULL},
    {"scale-folded", RELATION_SAME_BITS, edit_fold, NULL},
    {NULL, RELATION_SAME_BITS, NULL, NULL}};

static const char *const modules[] = {"dsa_indexer", NULL};

/* What the kernel declares: weights to 1 ulp, one division, no rescales. */
static const struct ref_error_model model = {.exp_ulp = 1.0, .div_ulp = 0.5, .mma_k = 16};

const struct op op_dsa_masked_attn = {
    .name = "dsa_mla_masked_attn",
    .modules = modules,
    .family = "dsa",
    .summary = "dense attention under a mask, the device-side oracle",
    .contract = CONTRACT_BOUND,
    .params = params,
    .n_params = sizeof params / sizeof *params,
    .presets = presets,
    .always = always,
    .model = &model,
    .relations = relations,
    .sample = sample,
    .sample_wild = sample_wild,
    .ref_accepts = ref_accepts,
    .gpu_check = gpu_check,
    .build = build,
    .launch = launch,
    .oracle = oracle,
};
