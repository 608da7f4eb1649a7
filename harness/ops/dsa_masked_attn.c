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
    COUNT_KEY("rows", "1", "query rows", 1),
    COUNT_KEY("heads", "2", "heads", 1),
    COUNT_KEY("len", "37", "tokens", 1),
    {"qdim", PARAM_INT, false, "64", 0, 4096, NULL, "channels of a query and a key", 1},
    {"vdim", PARAM_INT, false, "48", 0, 4096, NULL, "channels of a value", 1},
    ENUM_KEY("mask", "random", mask_names, "which tokens are attended", 3),
    RARE_COUNT_KEY("count", "0", "tokens attended, with a random mask; 0: half", 1),
    {"round", PARAM_INT, false, "0", 0, 1, NULL, "scores rounded to bf16", 0},
    REAL_KEY("scale", "0.125", "softmax scale", 1),
    {"fold", PARAM_OFFSET, true, "+0", -8, 8, NULL, "2^fold moved from the queries to the scale",
     0},
    RARE_FLAG_KEY("double", "values twice as large"),
    RARE_COUNT_KEY("first", "0", "which row comes first", 0),
    RARE_FLAG_KEY("reverse", "rows in reverse order"),
    ENUM_KEY("regime", "normal", regimes, "values", 0),
    SEED_KEY,
};

static const struct preset presets[] = {
    {"glm53", "heads=2,len=300,qdim=512,vdim=512,scale=0.044194173"}, {NULL, NULL}};

static const char *const always[] = {
    "dsa_mla_masked_attn:model=glm53,regime=peaked,seed=0x53",
    "dsa_mla_masked_attn:heads=1,len=12288,qdim=8,vdim=3,count=40,seed=0x54",
    "dsa_mla_masked_attn:rows=2,len=65,qdim=33,vdim=1,round=1,regime=cancel,seed=0x55",
    "dsa_mla_masked_attn:rows=2,len=0,seed=0x56", NULL};

static const struct number numbers[] = {
    {"Q", "rows"},
    {"S", "len"},
    {"H", "heads"},
    {"qd", "qdim"},
    {"vd", "vdim"},
    {"scale", "ldexp(scale, fold)"},
    {"round_scores_bf16", "round"},
};

static void fill_mask_row(const struct case_line *c, uint64_t key, uint8_t *row)
{
    struct rng r = {case_seed(c), STREAM_MASK, key << 32};
    uint32_t len = case_u32(c, "len"), count = case_u32(c, "count");
    uint32_t start = (uint32_t)rng_range(&r, 0, len - 1), end = (uint32_t)rng_range(&r, start, len);
    uint32_t left = count && count < len ? count : (len + 1) / 2;
    for (uint32_t s = 0; s < len; s++) {
        switch ((enum mask)case_int(c, "mask")) {
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

static bool fill_mask(const struct filling *f)
{
    uint64_t len = f->t->shape[1];
    for (uint64_t row = 0; len && row < f->t->shape[0]; row++)
        fill_mask_row(f->c, dsa_row_key(f->c, (uint32_t)row), f->t->data + row * len);
    return true;
}

static struct field field_of(const struct filling *f, enum field_kind kind)
{
    return field_make(case_seed(f->c), f->stream, kind, dsa_regime(f->c, "regime"), DTYPE_BF16,
                      (uint32_t)f->t->shape[2]);
}

static void store_exact(const struct field *f, uint64_t row, bool query, uint16_t *out)
{
    double value[COLUMNS_MAX];
    dsa_exact_row(f, row, query, value);
    for (uint32_t d = 0; d < f->cols; d++) out[d] = ref_bf16_from_f32((float)value[d]);
}

static bool fill_queries(const struct filling *f)
{
    struct field q = field_of(f, FIELD_QUERY);
    uint64_t rows = f->t->shape[0], heads = f->t->shape[1];
    for (uint64_t at = 0; at < rows * heads; at++) {
        uint64_t key = dsa_row_key(f->c, (uint32_t)(at / heads)) * heads + at % heads;
        uint16_t *out = (uint16_t *)(void *)f->t->data + at * q.cols;
        if (q.regime == REGIME_EXACT_INT)
            store_exact(&q, key, true, out);
        else
            dsa_store_scaled(&q, key, -(int)case_int(f->c, "fold"), DTYPE_BF16, out);
    }
    return true;
}

static bool is_attended(const struct filling *f, uint64_t token)
{
    const struct tensor *mask = instance_find(f->in, "mask");
    bool attended = false;
    for (uint64_t row = 0; row < mask->shape[0]; row++)
        attended |= mask->data[row * mask->shape[1] + token];
    return attended;
}

/* Keys or values; tokens that no row attends hold poison. */
static bool fill_tokens(const struct filling *f)
{
    bool keys = f->stream == STREAM_K;
    struct field field = field_of(f, keys ? FIELD_KEY : FIELD_VALUE), plain = field;
    uint64_t heads = f->t->shape[1];
    int exponent = keys ? 0 : (int)case_int(f->c, "double");
    plain.regime = REGIME_NORMAL;
    for (uint64_t at = 0; at < f->t->shape[0] * heads; at++) {
        uint16_t *out = (uint16_t *)(void *)f->t->data + at * field.cols;
        /* Where an infinity is attended little can be judged: head 0 has none. */
        bool tame = field.regime == REGIME_SPECIALS && at % heads == 0;
        if (!is_attended(f, at / heads))
            poison_fill(out, DTYPE_BF16, field.cols, f->in->poison);
        else if (keys && field.regime == REGIME_EXACT_INT)
            store_exact(&field, at, false, out);
        else
            dsa_store_scaled(tame ? &plain : &field, at, exponent, DTYPE_BF16, out);
    }
    return true;
}

static bool fill(const struct case_line *c, struct instance *in)
{
    struct tensor *k = &in->tensors[instance_index(in, "k")];
    struct tensor *v = &in->tensors[instance_index(in, "v")];
    return fill_tokens(&(struct filling){c, in, k, STREAM_K}) &&
           fill_tokens(&(struct filling){c, in, v, STREAM_V});
}

static const struct array arrays[] = {
    {"q", ARRAY_IN, fill_queries, STREAM_Q}, {"k", ARRAY_IN},      {"v", ARRAY_IN},
    {"mask", ARRAY_IN, fill_mask},           {"out", ARRAY_BOUND},
};

/* In exact_int every weight is 1 and every sum of values exact; with a power of two of tokens the
 * quotient is exact too, so the bound is 0. */
static bool exactly_computable(const uint8_t *mask, uint32_t len)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < len; s++) n += mask[s];
    return (n & (n - 1)) == 0;
}

static void sharpen(const struct case_line *c, const struct instance *in, struct expected *e)
{
    const struct tensor *out = instance_find(in, "out"), *mask = instance_find(in, "mask");
    double *bound = e[instance_index(in, "out")].bound;
    uint64_t elems = out->stride[0];
    if (dsa_regime(c, "regime") != REGIME_EXACT_INT) return;
    for (uint64_t row = 0; row < out->shape[0]; row++) {
        if (!exactly_computable(mask->data + row * mask->shape[1], (uint32_t)mask->shape[1]))
            continue;
        /* Scores overflow under an absurd scale: the oracle then bounds nothing. */
        for (uint64_t i = row * elems; i < (row + 1) * elems; i++) {
            if (isfinite(bound[i])) bound[i] = 0;
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

static const struct relation relations[] = {
    {DSA_ROWS_REVERSED},
    {DSA_ROW_ALONE},
    /* Below the normal range doubling is not exact on the way. */
    {"values-doubled", RELATION_DOUBLED, "!regime.subnormal", "double = 1"},
    /* exact_int has queries of its own. */
    {"scale-folded", RELATION_SAME_BITS, "!regime.subnormal && !regime.exact_int",
     "fold = one_in(2) ? 3 : -2"},
    {0}};

/* What the kernel declares: weights to 1 ulp, one division, no rescales. */
static const struct ref_error_model model = {.exp_ulp = 1.0, .div_ulp = 0.5, .mma_k = 16};

const struct op op_dsa_masked_attn = {
    .name = "dsa_mla_masked_attn",
    .modules = (const char *const[]){"dsa_indexer", NULL},
    .family = "dsa",
    .summary = "dense attention under a mask, the device-side oracle",
    .contract = CONTRACT_BOUND,
    USUAL_TABLES,
    .wild = "rows heads len scale",
    .steps = (const struct step[]){{&interface_dsa_mla_masked_attn}, {0}},
    .model = &model,
    .fill = fill,
    .sharpen = sharpen,
};
