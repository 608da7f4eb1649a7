/* dsa_index_scores: pool scores of the DSA indexer (ops.md §2), and dsa_index_scores_tiled: the
 * same operation by a grid of tiles. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/ops/dsa_common.h"

enum { STREAM_Q = 1, STREAM_KEY = 2, STREAM_WEIGHT = 3, STREAM_DROP = 4 };

static const char *const regimes[] = {
    "normal", "exact_int", "all_negative", "relu_ties", "low_bits", "cancel",   "outlier", "walk",
    "needle", "subnormal", "huge",         "offset",    "equal",    "specials", NULL};
enum { REGIMES = 14 };

static const char *const weight_names[] = {"positive", "mixed", "negative", "zeros", NULL};

static const struct param params[] = {
    COUNT_KEY("rows", "1", "query rows", 1),
    COUNT_KEY("heads", "4", "index heads", 1),
    COUNT_KEY("dim", "64", "channels of a key", 32),
    COUNT_KEY("len", "37", "tokens, the padding included", 4),
    COUNT_KEY("kpool", "4", "tokens of a pool", 1),
    COUNT_KEY("pad", "0", "left padding, tokens", 0),
    RARE_OWN_KEY("pools", "pools to score; -1: up to the trailing partial one"),
    {"pos", PARAM_LIST, false, "[]", INT32_MIN, INT32_MAX, NULL,
     "position of each row; a shorter list repeats; empty: the last token", 0},
    ENUM_KEY("invalid", "none", dsa_invalid_names, "which tokens are invalid", 0),
    RARE_FLAG_KEY("drop", "clear valid_keys of the last token of some valid pools"),
    ENUM_KEY("weights", "mixed", weight_names, "signs of the head weights", 0),
    {"factor", PARAM_REAL, true, "1", 0, 0, NULL, "scale in units of dim^-0.5", 1},
    {"fold", PARAM_OFFSET, true, "+0", -8, 8, NULL, "2^fold moved from the queries to the scale",
     0},
    RARE_FLAG_KEY("double", "queries twice as large"),
    ENUM_KEY("geom", "none", dsa_geom_names, "geometry vector, one row only", 0),
    {"slack", PARAM_INT, true, "2", 0, 4096, NULL, "pools the scalars have more than the vector",
     1},
    RARE_FROM_KEY("change", "from this token on the data is other data"),
    RARE_COUNT_KEY("first", "0", "which row comes first", 0),
    RARE_FLAG_KEY("reverse", "rows in reverse order"),
    ENUM_KEY("regime", "normal", regimes, "values", 0),
    SEED_KEY,
};

static const struct preset presets[] = {{"glm53", "heads=32,dim=128,kpool=4,len=515"},
                                        {NULL, NULL}};

static const char *const always[] = {
    "dsa_index_scores:model=glm53,rows=2,pos=[514,300],seed=0x53",
    "dsa_index_scores:heads=3,dim=32,len=24,kpool=4,rows=5,pos=[-1,2,3,4,23],seed=0x54",
    "dsa_index_scores:heads=33,dim=160,len=50,kpool=16,pad=2,regime=cancel,seed=0x55",
    "dsa_index_scores:heads=257,dim=32,len=9,kpool=3,regime=low_bits,seed=0x56", NULL};

static const char *const tiled_always[] = {
    "dsa_index_scores_tiled:model=glm53,rows=2,pos=[514,300],seed=0x53",
    "dsa_index_scores_tiled:heads=33,dim=128,len=520,kpool=4,regime=cancel,seed=0x55",
    "dsa_index_scores_tiled:heads=3,dim=160,len=50,kpool=16,pad=2,regime=low_bits,seed=0x56", NULL};

static const struct number numbers[] = {
    {"Q", "rows"},
    {"H", "heads"},
    {"D", "dim"},
    {"KP", "kpool"},
    {"pools", "pools < 0 ? ceil(max(len - pad, 0)/kpool) : pools"},
    {"complete", "min(max(len - pad, 0)/kpool, pools)"},
    {"slack", "geom.shorter ? slack : 0"},
    {"S", "len + slack*kpool"},
    {"P", "pools + slack"},
    {"scale", "ldexp(factor / sqrt(dim), fold)"},
    {"ends_of_range", "regime.subnormal || regime.huge || regime.specials"},
};

/* What a pool's score hangs on besides the key: its last token. The other valid_keys must not
 * matter. */
static void fill_validity(const struct case_line *c, struct instance *in)
{
    struct dsa_keys keys = dsa_keys_of(c);
    int32_t *indices = instance_data(in, "pool_indices");
    uint8_t *pool_valid = instance_data(in, "pool_valid"), *valid = instance_data(in, "valid_keys");
    uint32_t pools = case_number_u32(c, "pools");
    dsa_pool_tables(&keys, pools, indices, pool_valid);
    for (uint64_t pool = 0; pool < pools; pool++) {
        int32_t last = indices[pool * keys.kpool + keys.kpool - 1];
        bool drop = case_int(c, "drop") && random_u32(keys.seed, STREAM_DROP, pool) % 4 == 0;
        if (last >= 0) valid[last] = !drop;
    }
}

static bool is_candidate_of_any(const struct case_line *c, const struct instance *in, uint64_t pool)
{
    uint32_t kpool = case_u32(c, "kpool");
    int32_t last = ((const int32_t *)instance_data(in, "pool_indices"))[pool * kpool + kpool - 1];
    const int32_t *q_pos = instance_data(in, "q_pos");
    if (!((const uint8_t *)instance_data(in, "pool_valid"))[pool] || last < 0 ||
        !((const uint8_t *)instance_data(in, "valid_keys"))[last])
        return false;
    for (uint32_t row = 0; row < case_u32(c, "rows"); row++) {
        if (last <= q_pos[row]) return true;
    }
    return false;
}

static struct field field_of(const struct case_line *c, uint32_t stream, enum field_kind kind)
{
    struct field f = field_make(case_seed(c), stream, kind, dsa_regime(c, "regime"), DTYPE_F32,
                                case_u32(c, "dim"));
    f.huge = 0x1p126; /* products and sums overflow: infinities and their differences */
    f.needle_row = 3;
    return f;
}

static void fill_keys(const struct case_line *c, struct instance *in)
{
    struct dsa_keys keys = dsa_keys_of(c);
    struct field f = field_of(c, STREAM_KEY, FIELD_KEY);
    float *out = instance_data(in, "pool_keys");
    uint32_t pools = case_number_u32(c, "pools");
    for (uint64_t pool = 0; pool < pools; pool++) {
        float *row = out + pool * f.cols;
        if (!is_candidate_of_any(c, in, pool)) continue;
        uint64_t first = keys.pad + pool * keys.kpool;
        bool changed = keys.change >= 0 && first + keys.kpool > (uint64_t)keys.change;
        field_row_store(&f, changed ? (UINT64_C(1) << 32) + pool : pool, DTYPE_F32, row);
    }
}

static float weight_of(const struct case_line *c, uint64_t key)
{
    uint32_t heads = case_u32(c, "heads"), word = random_u32(case_seed(c), STREAM_WEIGHT, key);
    double size = fabs(random_normal_from(word)) + 0x1p-6;
    double unit = 1 / sqrt((double)heads);
    if (case_enum_is(c, "regime", "exact_int")) {
        size = 1 + word % 3;
        unit = 1;
    }
    if (case_enum_is(c, "weights", "zeros") && word / 7 % 2) return 0;
    bool negative = case_enum_is(c, "weights", "negative") ||
                    (!case_enum_is(c, "weights", "positive") && word / 5 % 2);
    return (float)((negative ? -size : size) * unit);
}

static void fill_queries(const struct case_line *c, struct instance *in)
{
    struct field f = field_of(c, STREAM_Q, FIELD_QUERY);
    uint32_t rows = case_u32(c, "rows"), heads = case_u32(c, "heads");
    float *q = instance_data(in, "q"), *weights = instance_data(in, "weights");
    int32_t *q_pos = instance_data(in, "q_pos");
    int exponent = (int)(case_int(c, "double") - case_int(c, "fold"));
    for (uint32_t row = 0; row < rows; row++) {
        q_pos[row] = (int32_t)dsa_row_item(c, "pos", row, case_int(c, "len") - 1);
        for (uint32_t h = 0; h < heads; h++) {
            uint64_t key = (uint64_t)dsa_row_key(c, row) * heads + h,
                     at = (uint64_t)row * heads + h;
            dsa_store_scaled(&f, key, exponent, DTYPE_F32, q + at * f.cols);
            weights[at] = weight_of(c, key);
        }
    }
}

static bool fill(const struct case_line *c, struct instance *in)
{
    fill_queries(c, in);
    fill_validity(c, in);
    fill_keys(c, in);
    return true;
}

static const struct array arrays[] = {
    {"q", ARRAY_IN},
    {"pool_keys", ARRAY_POISONED},
    {"weights", ARRAY_IN},
    {"pool_indices", ARRAY_POISONED},
    {"pool_valid", ARRAY_POISONED},
    {"valid_keys", ARRAY_POISONED},
    {"q_pos", ARRAY_IN},
    {"out", ARRAY_EXACT},
    {"valid_cand", ARRAY_EXACT},
    {DSA_GEOM("len, pools, complete, 0, 1")},
};

static uint32_t certify(const struct case_line *c, const struct instance *in, struct expected *e)
{
    struct ref_dsa_index_scores g = {0};
    int32_t values[ARRAY_VALUES_MAX];
    step_ref_arguments(c->op->steps, c, in, &g, values);
    if (!expected_alloc_select(e, g.Q, g.P)) return 0;
    ref_dsa_index_scores_bound(&g, e->select_value, e->select_bound);
    for (uint32_t row = 0; row < g.Q; row++) e->select_n[row] = case_number_u32(c, "pools");
    return g.Q;
}

/* About the edges of a tile of the project's kernel: 128 pools, 32 heads, the released width. */
static void sample_tile(struct rng *r, uint32_t kpool, int64_t *heads, uint32_t *len)
{
    static const int64_t counts[] = {1, 4, 5, 31, 32, 33, 65};
    *heads = rng_pick(r, counts, 7);
    if (*heads > 5) return;
    *len = kpool * (uint32_t)rng_range(r, 124, 133) + (uint32_t)rng_range(r, 0, kpool - 1);
}

static void sample(struct case_line *c, struct rng *r, enum tier tier, uint64_t index)
{
    static const int64_t heads[] = {1, 2, 3, 4, 5, 8, 9, 32, 33, 64};
    static const int64_t dims[] = {32, 64, 96, 128, 160, 256};
    uint32_t kpool = (uint32_t)rng_range(r, 1, 16), rows = (uint32_t)rng_range(r, 1, 4);
    uint32_t longest = kpool * (tier == TIER_FULL ? 60 : 18);
    uint32_t len = (uint32_t)rng_edge(r, 1, longest, kpool);
    int64_t n_heads = rng_pick(r, heads, tier == TIER_FULL ? 10 : 8);
    int64_t dim = rng_pick(r, dims, tier == TIER_FULL ? 6 : 4);
    if (dim == 128 && rng_one_in(r, 3)) sample_tile(r, kpool, &n_heads, &len);
    uint32_t pad = rng_one_in(r, 3) ? (uint32_t)rng_edge(r, 0, len - 1, kpool) : 0;
    int64_t positions[4];
    for (uint32_t row = 0; row < rows; row++)
        positions[row] = rng_one_in(r, 8) ? rng_range(r, -2, 1) : rng_edge(r, 0, len + 2, kpool);
    case_set_int(c, "rows", rows);
    case_set_int(c, "heads", n_heads);
    case_set_int(c, "dim", dim);
    case_set_int(c, "len", len);
    case_set_int(c, "kpool", kpool);
    case_set_int(c, "pad", pad);
    if (rng_one_in(r, 6)) case_set_int(c, "pools", rng_range(r, 1, len / kpool + 3));
    if (!rng_one_in(r, 6)) case_set_list(c, "pos", positions, rows);
    case_set_enum(c, "regime", regimes[index % REGIMES]);
    case_set_int(c, "invalid", (int64_t)(index / REGIMES + index) % 11 % 7);
    case_set_int(c, "weights", (int64_t)(rng_u32(r) % 4));
    case_set_int(c, "drop", rng_one_in(r, 4));
    if (rng_one_in(r, 6)) case_set_real(c, "factor", rng_one_in(r, 2) ? 0.37 : 3.0);
    if (rng_one_in(r, 3)) {
        case_set_int(c, "rows", 1);
        case_set_int(c, "geom", rng_range(r, 1, 2));
        case_set_int(c, "slack", rng_range(r, 1, 5));
    }
    if (rng_one_in(r, 8)) case_set_int(c, "change", rng_range(r, 0, len));
}

static const struct relation relations[] = {
    {DSA_ROWS_REVERSED},
    {DSA_ROW_ALONE},
    /* Pools that later tokens belong to are no candidates of the row. */
    {DSA_LATER_TOKENS_CHANGED},
    {"queries-doubled", RELATION_DOUBLED, "!ends_of_range", "double = 1", .outputs = "out"},
    {"scale-folded", RELATION_SAME_BITS, "!ends_of_range", "fold = one_in(2) ? 3 : -2"},
    {DSA_GEOMETRY_DROPPED},
    {0}};

const struct op op_dsa_index_scores = {
    .name = "dsa_index_scores",
    .modules = (const char *const[]){"dsa_indexer", NULL},
    .family = "dsa",
    .summary = "scores of pools for each query, in canonical arithmetic",
    .contract = CONTRACT_EXACT,
    USUAL_TABLES,
    .wild = "rows heads dim len kpool pad pools factor",
    .steps = (const struct step[]){{&interface_dsa_index_scores}, {0}},
    .fill = fill,
    .certify = certify,
};

const struct op op_dsa_index_scores_tiled = {
    .name = "dsa_index_scores_tiled",
    .modules = (const char *const[]){"dsa_indexer", NULL},
    .family = "dsa",
    .summary = "the same scores, a tile of pools a CTA",
    .contract = CONTRACT_EXACT,
    TABLE(params),
    TABLE(numbers),
    TABLE(arrays),
    .presets = presets,
    .always = tiled_always,
    .relations = relations,
    .wild = "rows heads dim len kpool pad pools factor",
    .sample = sample,
    .steps = (const struct step[]){{&interface_dsa_index_scores_tiled}, {0}},
    .fill = fill,
    .certify = certify,
};
