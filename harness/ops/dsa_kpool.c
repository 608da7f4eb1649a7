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
    COUNT_KEY("len", "37", "tokens, the padding included", 4),
    COUNT_KEY("dim", "64", "channels of a key", 32),
    COUNT_KEY("kpool", "4", "tokens of a pool", 1),
    COUNT_KEY("pad", "0", "left padding, tokens", 0),
    {"first", PARAM_INT, true, "-1", INT32_MIN, INT32_MAX, NULL, "first_key; -1: after the padding",
     -1},
    RARE_OWN_KEY("pools", "pools to make; -1: up to the trailing partial one"),
    RARE_COUNT_KEY("block", "0", "slots of a page of indexer keys; 0: contiguous", 0),
    ENUM_KEY("invalid", "none", dsa_invalid_names, "which tokens are invalid", 0),
    ENUM_KEY("geom", "none", dsa_geom_names, "geometry vector", 0),
    {"slack", PARAM_INT, true, "2", 0, 4096, NULL, "pools the scalars have more than the vector",
     1},
    RARE_FROM_KEY("change", "from this token on the data is other data"),
    RARE_FLAG_KEY("double", "keys twice as large"),
    ENUM_KEY("regime", "normal", regimes, "values", 0),
    SEED_KEY,
};

static const struct preset presets[] = {{"glm53", "len=257,dim=128,kpool=4"}, {NULL, NULL}};

static const char *const always[] = {
    "dsa_kpool_compress:model=glm53,pad=5,invalid=scattered,seed=0x53",
    "dsa_kpool_compress:len=4099,dim=128,kpool=16,pad=3,regime=peaked,seed=0x54",
    "dsa_kpool_compress:len=3,dim=32,kpool=4,seed=0x55",
    "dsa_kpool_compress:len=9,dim=32,kpool=4,pad=9,first=0,invalid=all,seed=0x56", NULL};

static const struct number numbers[] = {
    {"first_key", "first == -1 ? pad : first"},
    {"pools", "pools < 0 ? ceil(max(len - first_key, 0)/kpool) : pools"},
    {"complete", "min(max(len - first_key, 0)/kpool, pools)"},
    {"slack", "geom.shorter ? slack : 0"},
    {"S", "len + slack*kpool"},
    {"P", "pools + slack"},
    {"D", "dim"},
    {"KP", "kpool"},
    {"block_size", "block"},
};

static bool fill_ape(const struct filling *f)
{
    bool exact = dsa_regime(f->c, "regime") == REGIME_EXACT_INT;
    uint64_t dim = f->t->shape[1];
    struct field ape =
        field_make(case_seed(f->c), f->stream, FIELD_QUERY,
                   exact ? REGIME_EXACT_INT : REGIME_NORMAL, DTYPE_F32, (uint32_t)dim);
    for (uint64_t s = 0; s < f->t->shape[0]; s++)
        dsa_store_scaled(&ape, exact ? 0 : s, -1, DTYPE_F32, f->t->data + 4 * s * dim);
    return true;
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

/* k, gate and valid. */
static bool fill(const struct case_line *c, struct instance *in)
{
    struct dsa_keys keys = dsa_keys_of(c);
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
    uint64_t reach = (uint64_t)case_number(c, "first_key + pools*kpool");
    uint64_t scalar_len = instance_find(in, "valid")->elems;
    for (uint64_t t = 0; t < scalar_len; t++) {
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
    return true;
}

/* Outputs are only the pools the geometry counts; slack pools are allocated and not owned. */
static const struct array arrays[] = {
    {"k", ARRAY_IN},
    {"gate", ARRAY_IN},
    {"valid", ARRAY_IN},
    {"ape", ARRAY_IN, fill_ape, STREAM_APE},
    {"pool_keys", ARRAY_BOUND},
    {"pool_indices", ARRAY_EXACT},
    {"pool_valid", ARRAY_EXACT},
    {DSA_GEOM("len, pools, complete, 0, 1")},
};

static void oracle(const struct case_line *c, const struct instance *in,
                   const struct ref_error_model *model, const uint8_t *const *got,
                   struct expected *e)
{
    struct ref_dsa_kpool_compress g = {0};
    int32_t values[ARRAY_VALUES_MAX];
    struct expected *keys = &e[instance_index(in, "pool_keys")];
    int32_t *indices = (int32_t *)(void *)e[instance_index(in, "pool_indices")].exact;
    step_ref_arguments(c->op->steps, c, in, &g, values);
    /* The scalar sizes the grid; the vector says which pools there are. */
    g.pools = case_number_u32(c, "pools");
    ref_dsa_kpool_compress(&g, model, keys->value, keys->bound, indices,
                           e[instance_index(in, "pool_valid")].exact);
    if (dsa_regime(c, "regime") == REGIME_EXACT_INT) dsa_pools_exact(&g, indices, keys->bound);
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

static const struct relation relations[] = {
    /* Pools that end before `change` have none of the changed tokens. */
    {"later-tokens-changed", RELATION_SAME_BITS, "change < 0 && pools >= 2",
     "change = first_key + draw(1, pools - 1)*kpool",
     "first_key + (row + 1)*kpool <= new.change ? row : -1"},
    {"pools-cut", RELATION_SAME_BITS, "pools >= 2", "pools = draw(1, pools - 1)"},
    /* Padding is skipped, not pooled: the same tokens behind more padding give the same keys. */
    {"padding-added", RELATION_SAME_BITS, "first == -1 && change < 0",
     "pad = pad + draw(1, 7), len = len + new.pad - pad", .outputs = "pool_keys, pool_valid"},
    /* Below the normal range doubling is not exact on the way; cancel builds its own rows. */
    {"keys-doubled", RELATION_DOUBLED, "!regime.subnormal && !regime.cancel", "double = 1",
     .outputs = "pool_keys"},
    {DSA_GEOMETRY_DROPPED},
    {0}};

/* What the kernel declares: logits rounded once, weights to 1 ulp, one division, no rescales. */
static const struct ref_error_model model = {.exp_ulp = 1.0, .div_ulp = 0.5, .mma_k = 16};

const struct op op_dsa_kpool = {
    .name = "dsa_kpool_compress",
    .modules = (const char *const[]){"dsa_indexer", NULL},
    .family = "dsa",
    .summary = "pools of keys under a softmax gate",
    .contract = CONTRACT_BOUND,
    USUAL_TABLES,
    .wild = "len dim kpool pad first pools block",
    .steps = (const struct step[]){{&interface_dsa_kpool_compress}, {0}},
    .model = &model,
    .fill = fill,
    .oracle = oracle,
};
