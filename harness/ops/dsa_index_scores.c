/* dsa_index_scores: pool scores of the DSA indexer (ops.md §2). */
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
    {"rows", PARAM_INT, false, "1", 0, UINT32_MAX, NULL, "query rows", 1},
    {"heads", PARAM_INT, false, "4", 0, UINT32_MAX, NULL, "index heads", 1},
    {"dim", PARAM_INT, false, "64", 0, UINT32_MAX, NULL, "channels of a key", 32},
    {"len", PARAM_INT, false, "37", 0, UINT32_MAX, NULL, "tokens, the padding included", 4},
    {"kpool", PARAM_INT, false, "4", 0, UINT32_MAX, NULL, "tokens of a pool", 1},
    {"pad", PARAM_INT, false, "0", 0, UINT32_MAX, NULL, "left padding, tokens", 0},
    {"pools", PARAM_INT, true, "-1", -1, UINT32_MAX, NULL,
     "pools to score; -1: up to the trailing partial one", -1},
    {"pos", PARAM_LIST, false, "[]", INT32_MIN, INT32_MAX, NULL,
     "position of each row; a shorter list repeats; empty: the last token", 0},
    {"invalid", PARAM_ENUM, false, "none", 0, 0, dsa_invalid_names, "which tokens are invalid", 0},
    {"drop", PARAM_INT, true, "0", 0, 1, NULL,
     "clear valid_keys of the last token of some valid pools", 0},
    {"weights", PARAM_ENUM, false, "mixed", 0, 0, weight_names, "signs of the head weights", 0},
    {"factor", PARAM_REAL, true, "1", 0, 0, NULL, "scale in units of dim^-0.5", 1},
    {"fold", PARAM_OFFSET, true, "+0", -8, 8, NULL, "2^fold moved from the queries to the scale",
     0},
    {"double", PARAM_INT, true, "0", 0, 1, NULL, "queries twice as large", 0},
    {"geom", PARAM_ENUM, false, "none", 0, 0, dsa_geom_names, "geometry vector, one row only", 0},
    {"slack", PARAM_INT, true, "2", 0, 4096, NULL, "pools the scalars have more than the vector",
     1},
    {"change", PARAM_INT, true, "-1", -1, INT32_MAX, NULL,
     "from this token on the data is other data", -1},
    {"first", PARAM_INT, true, "0", 0, UINT32_MAX, NULL, "which row comes first", 0},
    {"reverse", PARAM_INT, true, "0", 0, 1, NULL, "rows in reverse order", 0},
    {"regime", PARAM_ENUM, false, "normal", 0, 0, regimes, "values", 0},
    {"seed", PARAM_SEED, false, "0x1", 0, 0, NULL, "of every byte", 0},
};

static const struct preset presets[] = {{"glm53", "heads=32,dim=128,kpool=4,len=515"},
                                        {NULL, NULL}};

static const char *const always[] = {
    "dsa_index_scores:model=glm53,rows=2,pos=[514,300],seed=0x53",
    "dsa_index_scores:heads=3,dim=32,len=24,kpool=4,rows=5,pos=[-1,2,3,4,23],seed=0x54",
    "dsa_index_scores:heads=33,dim=160,len=50,kpool=16,pad=2,regime=cancel,seed=0x55",
    "dsa_index_scores:heads=257,dim=32,len=9,kpool=3,regime=low_bits,seed=0x56", NULL};

static struct dsa_keys keys_of(const struct case_line *c)
{
    return (struct dsa_keys){.len = case_u32(c, "len"),
                             .pad = case_u32(c, "pad"),
                             .kpool = case_u32(c, "kpool"),
                             .invalid = (enum dsa_invalid)case_int(c, "invalid"),
                             .seed = case_seed(c),
                             .change = case_int(c, "change")};
}

static struct dsa_extent extent_of(const struct case_line *c)
{
    uint32_t len = case_u32(c, "len"), pad = case_u32(c, "pad"), kpool = case_u32(c, "kpool");
    int64_t pools = case_int(c, "pools");
    struct dsa_extent e = {.len = len,
                           .pools = pools >= 0 ? (uint32_t)pools : dsa_pools(len, pad, kpool, true),
                           .complete = dsa_pools(len, pad, kpool, false),
                           .np2 = 1};
    if (e.complete > e.pools) e.complete = e.pools;
    dsa_extent_close(&e, (enum dsa_geom)case_int(c, "geom"), case_u32(c, "slack"), kpool);
    return e;
}

static float scale_of(const struct case_line *c)
{
    double scale = case_real(c, "factor") / sqrt((double)case_u32(c, "dim"));
    return (float)ldexp((float)scale, (int)case_int(c, "fold"));
}

static void gpu_args(const struct case_line *c, const struct dsa_extent *e,
                     const struct instance *in, struct gpu_dsa_index_scores *a)
{
    *a = (struct gpu_dsa_index_scores){.Q = case_u32(c, "rows"),
                                       .P = e->scalar_pools,
                                       .H = case_u32(c, "heads"),
                                       .D = case_u32(c, "dim"),
                                       .KP = case_u32(c, "kpool"),
                                       .S = e->scalar_len,
                                       .scale = scale_of(c),
                                       .host_geom = e->given ? e->numbers : NULL};
    if (in) a->host_pool_indices = instance_data(in, "pool_indices");
}

static void ref_args(const struct case_line *c, const struct dsa_extent *e,
                     const struct instance *in, struct ref_dsa_index_scores *g)
{
    *g = (struct ref_dsa_index_scores){.Q = case_u32(c, "rows"),
                                       .P = e->scalar_pools,
                                       .H = case_u32(c, "heads"),
                                       .D = case_u32(c, "dim"),
                                       .KP = case_u32(c, "kpool"),
                                       .S = e->scalar_len,
                                       .scale = scale_of(c),
                                       .geom = e->given ? e->numbers : NULL};
    if (!in) return;
    g->q = instance_data(in, "q");
    g->pool_keys = instance_data(in, "pool_keys");
    g->weights = instance_data(in, "weights");
    g->pool_indices = instance_data(in, "pool_indices");
    g->pool_valid = instance_data(in, "pool_valid");
    g->valid_keys = instance_data(in, "valid_keys");
    g->q_pos = instance_data(in, "q_pos");
}

static bool ref_accepts(const struct case_line *c, const struct instance *in,
                        struct ref_refusal *why)
{
    struct dsa_extent e = extent_of(c);
    struct ref_dsa_index_scores g;
    ref_args(c, &e, in, &g);
    return ref_dsa_index_scores_accepts(&g, why);
}

static enum gpu_status gpu_check(const struct case_line *c, const struct instance *in,
                                 struct gpu_report *report)
{
    struct dsa_extent e = extent_of(c);
    struct gpu_dsa_index_scores a;
    gpu_args(c, &e, in, &a);
    return gpu_dsa_index_scores_check(&a, report);
}

static bool add_tensors(const struct case_line *c, struct instance *in, const struct dsa_extent *e)
{
    uint64_t rows = case_u32(c, "rows"), heads = case_u32(c, "heads"), dim = case_u32(c, "dim");
    uint64_t pools = e->scalar_pools, kpool = case_u32(c, "kpool");
    uint64_t q_shape[] = {rows, heads, dim}, key_shape[] = {pools, dim};
    uint64_t weight_shape[] = {rows, heads}, slot_shape[] = {pools, kpool}, flag_shape[] = {pools};
    uint64_t valid_shape[] = {e->scalar_len}, pos_shape[] = {rows};
    uint64_t out_shape[] = {rows, e->pools}, out_stride[] = {pools, 1};
    return instance_add(in, "q", DTYPE_F32, ROLE_IN, CONTRACT_ANY, 3, q_shape, "query,head,dim") &&
           instance_add(in, "pool_keys", DTYPE_F32, ROLE_IN, CONTRACT_ANY, 2, key_shape,
                        "pool,dim") &&
           instance_add(in, "weights", DTYPE_F32, ROLE_IN, CONTRACT_ANY, 2, weight_shape,
                        "query,head") &&
           instance_add(in, "pool_indices", DTYPE_I32, ROLE_IN, CONTRACT_ANY, 2, slot_shape,
                        "pool,slot") &&
           instance_add(in, "pool_valid", DTYPE_U8, ROLE_IN, CONTRACT_ANY, 1, flag_shape, "pool") &&
           instance_add(in, "valid_keys", DTYPE_U8, ROLE_IN, CONTRACT_ANY, 1, valid_shape,
                        "token") &&
           instance_add(in, "q_pos", DTYPE_I32, ROLE_IN, CONTRACT_ANY, 1, pos_shape, "query") &&
           instance_add_strided(in, "out", DTYPE_F32, ROLE_OUT, CONTRACT_EXACT, 2, out_shape,
                                out_stride, 0, rows * pools, "query,pool") &&
           instance_add_strided(in, "valid_cand", DTYPE_U8, ROLE_OUT, CONTRACT_EXACT, 2, out_shape,
                                out_stride, 0, rows * pools, "query,pool") &&
           dsa_add_geom(in, e);
}

/* What a pool's score hangs on besides the key: its last token. The other valid_keys must not
 * matter. */
static void fill_validity(const struct case_line *c, struct instance *in,
                          const struct dsa_extent *e)
{
    struct dsa_keys keys = keys_of(c);
    int32_t *indices = instance_data(in, "pool_indices");
    uint8_t *pool_valid = instance_data(in, "pool_valid"), *valid = instance_data(in, "valid_keys");
    poison_fill(indices, DTYPE_I32, (uint64_t)e->scalar_pools * keys.kpool, in->poison);
    poison_fill(pool_valid, DTYPE_U8, e->scalar_pools, in->poison);
    poison_fill(valid, DTYPE_U8, e->scalar_len, in->poison);
    dsa_pool_tables(&keys, e->pools, indices, pool_valid);
    for (uint64_t pool = 0; pool < e->pools; pool++) {
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

static void fill_keys(const struct case_line *c, struct instance *in, const struct dsa_extent *e)
{
    struct dsa_keys keys = keys_of(c);
    struct field f = field_of(c, STREAM_KEY, FIELD_KEY);
    float *out = instance_data(in, "pool_keys");
    for (uint64_t pool = 0; pool < e->scalar_pools; pool++) {
        float *row = out + pool * f.cols;
        if (pool >= e->pools || !is_candidate_of_any(c, in, pool)) {
            poison_fill(row, DTYPE_F32, f.cols, in->poison);
            continue;
        }
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

static bool build(const struct case_line *c, struct instance *in)
{
    struct dsa_extent e = extent_of(c);
    if (!add_tensors(c, in, &e)) return false;
    fill_queries(c, in);
    fill_validity(c, in, &e);
    fill_keys(c, in, &e);
    return true;
}

static enum gpu_status launch(const struct gpu_target *targets, const struct case_line *c,
                              const struct instance *in, const struct gpu_buffer *buffers,
                              struct gpu_report *report)
{
    struct dsa_extent e = extent_of(c);
    struct gpu_dsa_index_scores a;
    gpu_args(c, &e, in, &a);
    a.q = &buffers[instance_index(in, "q")];
    a.pool_keys = &buffers[instance_index(in, "pool_keys")];
    a.weights = &buffers[instance_index(in, "weights")];
    a.pool_indices = &buffers[instance_index(in, "pool_indices")];
    a.pool_valid = &buffers[instance_index(in, "pool_valid")];
    a.valid_keys = &buffers[instance_index(in, "valid_keys")];
    a.q_pos = &buffers[instance_index(in, "q_pos")];
    a.out = &buffers[instance_index(in, "out")];
    a.valid_cand = &buffers[instance_index(in, "valid_cand")];
    a.geom = dsa_geom_buffer(in, &e, buffers);
    return gpu_dsa_index_scores(&targets[0], &a, report);
}

/* The oracle fills whole rows of the scalar width; with a vector there is one row, of which only
 * the first pools are owned, so the arrays it fills are as long as they must be. */
static void oracle(const struct case_line *c, const struct instance *in,
                   const struct ref_error_model *model, const uint8_t *const *got,
                   struct expected *e)
{
    struct dsa_extent extent = extent_of(c);
    struct ref_dsa_index_scores g;
    ref_args(c, &extent, in, &g);
    ref_dsa_index_scores(&g, (float *)(void *)e[instance_index(in, "out")].exact,
                         e[instance_index(in, "valid_cand")].exact);
}

static uint32_t certify(const struct case_line *c, const struct instance *in, struct expected *e)
{
    struct dsa_extent extent = extent_of(c);
    struct ref_dsa_index_scores g;
    ref_args(c, &extent, in, &g);
    if (!expected_alloc_select(e, g.Q, g.P)) return 0;
    ref_dsa_index_scores_bound(&g, e->select_value, e->select_bound);
    for (uint32_t row = 0; row < g.Q; row++) e->select_n[row] = extent.pools;
    return g.Q;
}

static void sample(struct case_line *c, struct rng *r, enum tier tier, uint64_t index)
{
    static const int64_t heads[] = {1, 2, 3, 4, 5, 8, 9, 32, 33, 64};
    static const int64_t dims[] = {32, 64, 96, 128, 160, 256};
    uint32_t kpool = (uint32_t)rng_range(r, 1, 16), rows = (uint32_t)rng_range(r, 1, 4);
    uint32_t longest = kpool * (tier == TIER_FULL ? 60 : 18);
    uint32_t len = (uint32_t)rng_edge(r, 1, longest, kpool);
    uint32_t pad = rng_one_in(r, 3) ? (uint32_t)rng_edge(r, 0, len - 1, kpool) : 0;
    int64_t positions[4];
    for (uint32_t row = 0; row < rows; row++)
        positions[row] = rng_one_in(r, 8) ? rng_range(r, -2, 1) : rng_edge(r, 0, len + 2, kpool);
    case_set_int(c, "rows", rows);
    case_set_int(c, "heads", rng_pick(r, heads, tier == TIER_FULL ? 10 : 8));
    case_set_int(c, "dim", rng_pick(r, dims, tier == TIER_FULL ? 6 : 4));
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

static void sample_wild(struct case_line *c, struct rng *r)
{
    static const char *const keys[] = {"rows", "heads", "dim", "len", "kpool", "pad", "pools"};
    sample(c, r, TIER_QUICK, rng_u32(r));
    for (uint32_t faults = (uint32_t)rng_range(r, 0, 2); faults; faults--) {
        if (rng_one_in(r, 6))
            case_set_real(c, "factor", dsa_absurd_real(r));
        else
            dsa_absurd_param(c, r, keys, 7);
    }
}

/* Tokens after the position of a row: pools they belong to are no candidates of it. */
static bool edit_later(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    uint32_t row = (uint32_t)rng_range(r, 0, case_int(base, "rows") - 1);
    int64_t pos = dsa_row_item(base, "pos", row, case_int(base, "len") - 1);
    if (case_int(base, "change") >= 0 || pos < -1 || pos + 1 >= case_int(base, "len")) return false;
    case_set_int(changed, "change", pos + 1);
    return true;
}

static int64_t row_before_change(const struct case_line *base, const struct case_line *changed,
                                 int64_t row)
{
    int64_t pos = dsa_row_item(base, "pos", (uint32_t)row, case_int(base, "len") - 1);
    return pos < case_int(changed, "change") ? row : -1;
}

static bool ends_of_range(const struct case_line *c)
{
    return case_enum_is(c, "regime", "subnormal") || case_enum_is(c, "regime", "huge") ||
           case_enum_is(c, "regime", "specials");
}

static bool edit_double(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    if (ends_of_range(base)) return false;
    case_set_int(changed, "double", 1);
    return true;
}

static bool edit_fold(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    if (ends_of_range(base)) return false;
    case_set_int(changed, "fold", rng_one_in(r, 2) ? 3 : -2);
    return true;
}

enum { RELATION_DOUBLE = 3 };

static const struct relation relations[] = {
    {"rows-reversed", RELATION_SAME_BITS, dsa_edit_reversed, dsa_row_reversed},
    {"row-alone", RELATION_SAME_BITS, dsa_edit_alone, dsa_row_alone},
    {"later-tokens-changed", RELATION_SAME_BITS, edit_later, row_before_change},
    {"queries-doubled", RELATION_DOUBLED, edit_double, NULL},
    {"scale-folded", RELATION_SAME_BITS, edit_fold, NULL},
    {"geometry-dropped", RELATION_SAME_BITS, dsa_edit_no_geom, NULL},
    {NULL, RELATION_SAME_BITS, NULL, NULL}};

static bool covers(const struct relation *relation, const struct tensor *output)
{
    return relation != &relations[RELATION_DOUBLE] || output->dtype == DTYPE_F32;
}

static const char *const modules[] = {"dsa_indexer", NULL};

const struct op op_dsa_index_scores = {
    .name = "dsa_index_scores",
    .modules = modules,
    .family = "dsa",
    .summary = "scores of pools for each query, in canonical arithmetic",
    .contract = CONTRACT_EXACT,
    .params = params,
    .n_params = sizeof params / sizeof *params,
    .presets = presets,
    .always = always,
    .relations = relations,
    .relation_covers = covers,
    .sample = sample,
    .sample_wild = sample_wild,
    .ref_accepts = ref_accepts,
    .gpu_check = gpu_check,
    .build = build,
    .launch = launch,
    .oracle = oracle,
    .certify = certify,
};
