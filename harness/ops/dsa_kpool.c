/* dsa_kpool_compress: pools of gated keys (ops.md §2). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/ops/dsa_common.h"
#include "ref/formats.h"

enum { STREAM_K = 1, STREAM_GATE = 2, STREAM_APE = 3, COLUMNS_MAX = 4096 };

static const char *const regimes[] = {"normal",  "exact_int", "peaked", "flat",  "cancel",
                                      "outlier", "walk",      "huge",   "equal", "subnormal",
                                      "offset",  "specials",  NULL};
enum { REGIMES = 12 };

static const struct param params[] = {
    {"len", PARAM_INT, false, "37", 0, UINT32_MAX, NULL, "tokens, the padding included", 4},
    {"dim", PARAM_INT, false, "64", 0, UINT32_MAX, NULL, "channels of a key", 32},
    {"kpool", PARAM_INT, false, "4", 0, UINT32_MAX, NULL, "tokens of a pool", 1},
    {"pad", PARAM_INT, false, "0", 0, UINT32_MAX, NULL, "left padding, tokens", 0},
    {"first", PARAM_INT, true, "-1", INT32_MIN, INT32_MAX, NULL, "first_key; -1: after the padding",
     -1},
    {"pools", PARAM_INT, true, "-1", -1, UINT32_MAX, NULL,
     "pools to make; -1: up to the trailing partial one", -1},
    {"block", PARAM_INT, true, "0", 0, UINT32_MAX, NULL,
     "slots of a page of indexer keys; 0: contiguous", 0},
    {"invalid", PARAM_ENUM, false, "none", 0, 0, dsa_invalid_names, "which tokens are invalid", 0},
    {"geom", PARAM_ENUM, false, "none", 0, 0, dsa_geom_names, "geometry vector", 0},
    {"slack", PARAM_INT, true, "2", 0, 4096, NULL, "pools the scalars have more than the vector",
     1},
    {"change", PARAM_INT, true, "-1", -1, INT32_MAX, NULL,
     "from this token on the data is other data", -1},
    {"double", PARAM_INT, true, "0", 0, 1, NULL, "keys twice as large", 0},
    {"regime", PARAM_ENUM, false, "normal", 0, 0, regimes, "values", 0},
    {"seed", PARAM_SEED, false, "0x1", 0, 0, NULL, "of every byte", 0},
};

static const struct preset presets[] = {{"glm53", "len=257,dim=128,kpool=4"}, {NULL, NULL}};

static const char *const always[] = {
    "dsa_kpool_compress:model=glm53,pad=5,invalid=scattered,seed=0x53",
    "dsa_kpool_compress:len=4099,dim=128,kpool=16,pad=3,regime=peaked,seed=0x54",
    "dsa_kpool_compress:len=3,dim=32,kpool=4,seed=0x55",
    "dsa_kpool_compress:len=9,dim=32,kpool=4,pad=9,first=0,invalid=all,seed=0x56", NULL};

static int64_t first_key(const struct case_line *c)
{
    int64_t first = case_int(c, "first");
    return first != -1 ? first : case_int(c, "pad");
}

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
    uint32_t len = case_u32(c, "len"), kpool = case_u32(c, "kpool");
    int64_t pools = case_int(c, "pools"), first = first_key(c);
    struct dsa_extent e = {.len = len,
                           .pools =
                               pools >= 0 ? (uint32_t)pools : dsa_pools(len, first, kpool, true),
                           .complete = dsa_pools(len, first, kpool, false),
                           .np2 = 1};
    if (e.complete > e.pools) e.complete = e.pools;
    dsa_extent_close(&e, (enum dsa_geom)case_int(c, "geom"), case_u32(c, "slack"), kpool);
    return e;
}

static void gpu_args(const struct case_line *c, const struct dsa_extent *e,
                     struct gpu_dsa_kpool_compress *a)
{
    *a = (struct gpu_dsa_kpool_compress){.pools = e->scalar_pools,
                                         .S = e->scalar_len,
                                         .D = case_u32(c, "dim"),
                                         .KP = case_u32(c, "kpool"),
                                         .block_size = case_u32(c, "block"),
                                         .first_key = (int32_t)first_key(c),
                                         .host_geom = e->given ? e->numbers : NULL};
}

static void ref_args(const struct case_line *c, const struct dsa_extent *e,
                     const struct instance *in, struct ref_dsa_kpool_compress *g)
{
    *g = (struct ref_dsa_kpool_compress){.pools = e->scalar_pools,
                                         .S = e->scalar_len,
                                         .D = case_u32(c, "dim"),
                                         .KP = case_u32(c, "kpool"),
                                         .block_size = case_u32(c, "block"),
                                         .first_key = (int32_t)first_key(c),
                                         .geom = e->given ? e->numbers : NULL};
    if (!in) return;
    g->k = instance_data(in, "k");
    g->gate = instance_data(in, "gate");
    g->valid = instance_data(in, "valid");
    g->ape = instance_data(in, "ape");
}

static bool ref_accepts(const struct case_line *c, const struct instance *in,
                        struct ref_refusal *why)
{
    struct dsa_extent e = extent_of(c);
    struct ref_dsa_kpool_compress g;
    ref_args(c, &e, in, &g);
    return ref_dsa_kpool_compress_accepts(&g, why);
}

static enum gpu_status gpu_check(const struct case_line *c, const struct instance *in,
                                 struct gpu_report *report)
{
    struct dsa_extent e = extent_of(c);
    struct gpu_dsa_kpool_compress a;
    gpu_args(c, &e, &a);
    return gpu_dsa_kpool_compress_check(&a, report);
}

/* Outputs are only the pools the geometry counts; slack pools are allocated and not owned. */
static bool add_tensors(struct instance *in, const struct dsa_extent *e, uint32_t dim,
                        uint32_t kpool)
{
    uint64_t key_shape[] = {e->scalar_len, dim}, valid_shape[] = {e->scalar_len};
    uint64_t ape_shape[] = {kpool, dim}, pool_shape[] = {e->pools, dim};
    uint64_t slot_shape[] = {e->pools, kpool}, flag_shape[] = {e->pools};
    uint64_t pool_stride[] = {dim, 1}, slot_stride[] = {kpool, 1}, flag_stride[] = {1};
    return instance_add(in, "k", DTYPE_BF16, ROLE_IN, CONTRACT_ANY, 2, key_shape, "token,dim") &&
           instance_add(in, "gate", DTYPE_BF16, ROLE_IN, CONTRACT_ANY, 2, key_shape, "token,dim") &&
           instance_add(in, "valid", DTYPE_U8, ROLE_IN, CONTRACT_ANY, 1, valid_shape, "token") &&
           instance_add(in, "ape", DTYPE_F32, ROLE_IN, CONTRACT_ANY, 2, ape_shape, "slot,dim") &&
           instance_add_strided(in, "pool_keys", DTYPE_F32, ROLE_OUT, CONTRACT_BOUND, 2, pool_shape,
                                pool_stride, 0, (uint64_t)e->scalar_pools * dim, "pool,dim") &&
           instance_add_strided(in, "pool_indices", DTYPE_I32, ROLE_OUT, CONTRACT_EXACT, 2,
                                slot_shape, slot_stride, 0, (uint64_t)e->scalar_pools * kpool,
                                "pool,slot") &&
           instance_add_strided(in, "pool_valid", DTYPE_U8, ROLE_OUT, CONTRACT_EXACT, 1, flag_shape,
                                flag_stride, 0, e->scalar_pools, "pool") &&
           dsa_add_geom(in, e);
}

/* cancel: neighbouring tokens are opposite but for a small remainder. */
static void cancelling_row(const struct field *f, uint64_t row, uint16_t *out)
{
    double pair[COLUMNS_MAX], own[COLUMNS_MAX];
    field_row(f, (UINT64_C(1) << 43) + row / 2, pair);
    field_row(f, row, own);
    for (uint32_t d = 0; d < f->cols; d++)
        out[d] = ref_bf16_from_f32((float)((row % 2 ? -16 : 16) * pair[d] + own[d] * 0x1p-5));
}

static void fill_keys(const struct case_line *c, struct instance *in, const struct dsa_extent *e)
{
    struct dsa_keys keys = keys_of(c);
    uint32_t dim = case_u32(c, "dim");
    uint16_t *k = instance_data(in, "k"), *gate = instance_data(in, "gate");
    uint8_t *valid = instance_data(in, "valid");
    enum regime regime = dsa_regime(c, "regime");
    bool exact = regime == REGIME_EXACT_INT;
    struct field kf = field_make(keys.seed, STREAM_K, FIELD_VALUE, regime, DTYPE_BF16, dim);
    struct field gf = field_make(keys.seed, STREAM_GATE, FIELD_QUERY, regime, DTYPE_BF16, dim);
    gf.unit = 2; /* so that the slots of a pool weigh differently */
    /* Where the case says so even the gates hold NaN and infinities. */
    if (regime == REGIME_SPECIALS) gf.kind = FIELD_KEY;
    int exponent = (int)case_int(c, "double");
    uint64_t reach = (uint64_t)first_key(c) + (uint64_t)e->pools * keys.kpool;
    for (uint64_t t = 0; t < e->scalar_len; t++) {
        uint16_t *k_row = k + t * dim, *gate_row = gate + t * dim;
        /* Tokens past the length or past the last pool are nobody's, valid or not. */
        if (t >= keys.len || t >= reach) {
            poison_fill(valid + t, DTYPE_U8, 1, in->poison);
        } else {
            valid[t] = dsa_key_valid(&keys, (uint32_t)t);
        }
        if (t >= keys.len || t >= reach || !valid[t]) {
            poison_fill(k_row, DTYPE_BF16, dim, in->poison);
            poison_fill(gate_row, DTYPE_BF16, dim, in->poison);
            continue;
        }
        uint64_t row = dsa_key_row(&keys, (uint32_t)t);
        if (regime == REGIME_CANCEL)
            cancelling_row(&kf, row, k_row);
        else
            dsa_store_scaled(&kf, row, exponent, DTYPE_BF16, k_row);
        /* exact_int: one gate for all tokens, so that every weight is the same. */
        dsa_store_scaled(&gf, exact ? 0 : row, 0, DTYPE_BF16, gate_row);
    }
}

static bool build(const struct case_line *c, struct instance *in)
{
    struct dsa_extent e = extent_of(c);
    uint32_t dim = case_u32(c, "dim"), kpool = case_u32(c, "kpool");
    if (!add_tensors(in, &e, dim, kpool)) return false;
    bool exact = dsa_regime(c, "regime") == REGIME_EXACT_INT;
    enum regime regime = exact ? REGIME_EXACT_INT : REGIME_NORMAL;
    struct field ape = field_make(case_seed(c), STREAM_APE, FIELD_QUERY, regime, DTYPE_F32, dim);
    float *out = instance_data(in, "ape");
    for (uint32_t s = 0; s < kpool; s++)
        dsa_store_scaled(&ape, exact ? 0 : s, -1, DTYPE_F32, out + (uint64_t)s * dim);
    fill_keys(c, in, &e);
    return true;
}

static enum gpu_status launch(const struct gpu_target *targets, const struct case_line *c,
                              const struct instance *in, const struct gpu_buffer *buffers,
                              struct gpu_report *report)
{
    struct dsa_extent e = extent_of(c);
    struct gpu_dsa_kpool_compress a;
    gpu_args(c, &e, &a);
    a.k = &buffers[instance_index(in, "k")];
    a.gate = &buffers[instance_index(in, "gate")];
    a.valid = &buffers[instance_index(in, "valid")];
    a.ape = &buffers[instance_index(in, "ape")];
    a.pool_keys = &buffers[instance_index(in, "pool_keys")];
    a.pool_indices = &buffers[instance_index(in, "pool_indices")];
    a.pool_valid = &buffers[instance_index(in, "pool_valid")];
    a.geom = dsa_geom_buffer(in, &e, buffers);
    return gpu_dsa_kpool_compress(&targets[0], &a, report);
}

/* exact_int: all weights of a pool are equal, the keys are small integers. With a power of two of
 * valid slots every weight, product, sum and quotient is exact, so the bound is 0. */
static bool exactly_computable(const int32_t *slots, uint32_t kpool)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < kpool; s++) n += slots[s] >= 0;
    return (n & (n - 1)) == 0;
}

static void oracle(const struct case_line *c, const struct instance *in,
                   const struct ref_error_model *model, const uint8_t *const *got,
                   struct expected *e)
{
    struct dsa_extent extent = extent_of(c);
    struct ref_dsa_kpool_compress g;
    struct expected *keys = &e[instance_index(in, "pool_keys")];
    int32_t *indices = (int32_t *)(void *)e[instance_index(in, "pool_indices")].exact;
    ref_args(c, &extent, in, &g);
    g.pools = extent.pools; /* the scalar sizes the grid; the vector says which pools there are */
    ref_dsa_kpool_compress(&g, model, keys->value, keys->bound, indices,
                           e[instance_index(in, "pool_valid")].exact);
    if (dsa_regime(c, "regime") != REGIME_EXACT_INT) return;
    for (uint64_t pool = 0; pool < g.pools; pool++) {
        if (!exactly_computable(indices + pool * g.KP, g.KP)) continue;
        for (uint64_t d = 0; d < g.D; d++) keys->bound[pool * g.D + d] = 0;
    }
}

static void sample(struct case_line *c, struct rng *r, enum tier tier, uint64_t index)
{
    static const int64_t dims[] = {32, 32, 64, 96, 128, 160, 256};
    uint32_t kpool = (uint32_t)rng_range(r, 1, 16);
    uint32_t longest = tier == TIER_FULL ? 600 : 120;
    uint32_t len = (uint32_t)rng_edge(r, 1, longest, kpool);
    uint32_t pad = rng_one_in(r, 2) ? 0 : (uint32_t)rng_edge(r, 0, len - 1, kpool);
    case_set_int(c, "len", len);
    case_set_int(c, "dim", rng_pick(r, dims, tier == TIER_FULL ? 7 : 6));
    case_set_int(c, "kpool", kpool);
    case_set_int(c, "pad", pad);
    if (rng_one_in(r, 4)) case_set_int(c, "block", kpool * rng_range(r, 1, 8));
    /* More pools than tokens, or fewer. */
    if (rng_one_in(r, 5)) case_set_int(c, "pools", rng_range(r, 1, len / kpool + 3));
    case_set_enum(c, "regime", regimes[index % REGIMES]);
    case_set_int(c, "invalid", (int64_t)(index / REGIMES + index) % 7);
    case_set_int(c, "geom", (int64_t)(index / REGIMES + index) % 5 % 3);
    case_set_int(c, "slack", rng_range(r, 1, 5));
    if (rng_one_in(r, 8)) case_set_int(c, "first", rng_range(r, 0, pad));
    if (rng_one_in(r, 6)) case_set_int(c, "change", rng_range(r, 0, len));
}

static void sample_wild(struct case_line *c, struct rng *r)
{
    static const char *const keys[] = {"len", "dim", "kpool", "pad", "pools", "block"};
    sample(c, r, TIER_QUICK, rng_u32(r));
    for (uint32_t faults = (uint32_t)rng_range(r, 0, 2); faults; faults--) {
        if (rng_one_in(r, 5))
            case_set_int(c, "first", rng_range(r, -3, case_int(c, "len") + 3));
        else
            dsa_absurd_param(c, r, keys, 6);
    }
}

/* Pools that end before `change` have none of the changed tokens. */
static bool edit_later(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    struct dsa_extent e = extent_of(base);
    if (e.pools < 2 || case_int(base, "change") >= 0) return false;
    case_set_int(changed, "change",
                 first_key(base) + rng_range(r, 1, e.pools - 1) * case_int(base, "kpool"));
    return true;
}

static int64_t row_before_change(const struct case_line *base, const struct case_line *changed,
                                 int64_t pool)
{
    int64_t end = first_key(base) + (pool + 1) * case_int(base, "kpool");
    return end <= case_int(changed, "change") ? pool : -1;
}

static bool edit_cut(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    struct dsa_extent e = extent_of(base);
    if (e.pools < 2) return false;
    case_set_int(changed, "pools", rng_range(r, 1, e.pools - 1));
    return true;
}

/* Padding is skipped, not pooled: the same tokens behind more padding give the same keys. */
static bool edit_pad(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    uint32_t more = (uint32_t)rng_range(r, 1, 7);
    if (case_int(base, "first") != -1 || case_int(base, "change") >= 0) return false;
    case_set_int(changed, "pad", case_int(base, "pad") + more);
    case_set_int(changed, "len", case_int(base, "len") + more);
    return true;
}

static bool edit_double(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    /* Below the normal range doubling is not exact on the way; cancel builds its own rows. */
    if (case_enum_is(base, "regime", "subnormal") || case_enum_is(base, "regime", "cancel"))
        return false;
    case_set_int(changed, "double", 1);
    return true;
}

enum { RELATION_PAD = 2, RELATION_DOUBLE = 3 };

static const struct relation relations[] = {
    {"later-tokens-changed", RELATION_SAME_BITS, edit_later, row_before_change},
    {"pools-cut", RELATION_SAME_BITS, edit_cut, NULL},
    {"padding-added", RELATION_SAME_BITS, edit_pad, NULL},
    {"keys-doubled", RELATION_DOUBLED, edit_double, NULL},
    {"geometry-dropped", RELATION_SAME_BITS, dsa_edit_no_geom, NULL},
    {NULL, RELATION_SAME_BITS, NULL, NULL}};

static bool covers(const struct relation *relation, const struct tensor *output)
{
    bool keys = !strcmp(output->name, "pool_keys");
    if (relation == &relations[RELATION_DOUBLE]) return keys;
    if (relation == &relations[RELATION_PAD]) return strcmp(output->name, "pool_indices") != 0;
    return true;
}

static const char *const modules[] = {"dsa_indexer", NULL};

/* What the kernel declares: logits rounded once, weights to 1 ulp, one division, no rescales. */
static const struct ref_error_model model = {.exp_ulp = 1.0, .div_ulp = 0.5, .mma_k = 16};

const struct op op_dsa_kpool = {
    .name = "dsa_kpool_compress",
    .modules = modules,
    .family = "dsa",
    .summary = "pools of keys under a softmax gate",
    .contract = CONTRACT_BOUND,
    .params = params,
    .n_params = sizeof params / sizeof *params,
    .presets = presets,
    .always = always,
    .model = &model,
    .relations = relations,
    .relation_covers = covers,
    .sample = sample,
    .sample_wild = sample_wild,
    .ref_accepts = ref_accepts,
    .gpu_check = gpu_check,
    .build = build,
    .launch = launch,
    .oracle = oracle,
};
