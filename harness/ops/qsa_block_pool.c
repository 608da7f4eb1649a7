/* qsa_block_pool: pooled, normed and rotated block keys (ops.md §1). */
#include <string.h>

#include "harness/ops/qsa_common.h"

enum { STREAM_K = 1, STREAM_NORM = 2, SPARSE_BYTES = 64 << 20 };

static const char *const regimes[] = {"normal", "exact_int", "cancel",   "outlier", "walk",
                                      "equal",  "offset",    "near_eps", "zeros",   "subnormal",
                                      "huge",   "overflow",  "specials", "bits",    NULL};
enum { REGIMES = sizeof regimes / sizeof *regimes - 1 };

static const struct param params[] = {
    COUNT_KEY("new", "4", "blocks to make", 1),
    COUNT_KEY("first", "0", "the first of them", 0),
    COUNT_KEY("ratio", "4", "tokens of a block", 1),
    COUNT_KEY("hd", "64", "channels of a key", 32),
    COUNT_KEY("rot", "32", "rotated channels", 0),
    REAL_KEY("theta", "1e7", "base of the rotation", 0),
    REAL_KEY("eps", "1e-6", "of the norm", 0),
    {"more", PARAM_OFFSET, true, "+1", -WIDE_OFFSET, WIDE_OFFSET, NULL,
     "rows of block_keys past the last block", 0},
    {"spare", PARAM_OFFSET, true, "+1", -WIDE_OFFSET, WIDE_OFFSET, NULL,
     "raw keys past the last block", 0},
    RARE_COUNT_KEY("block", "0", "slots of a page of the cache that the blocks index; 0: not paged",
                   0),
    RARE_FROM_KEY("change", "from this token on the data is other data"),
    RARE_FLAG_KEY("double", "raw keys twice as large"),
    ENUM_KEY("norm", "random", qsa_norm_names, "weights of the norm", 0),
    ENUM_KEY("regime", "normal", regimes, "raw keys", 0),
    SEED_KEY,
};

static const struct preset presets[] = {{"qwen38", "ratio=4,hd=128,rot=64,theta=1e7,eps=1e-6"},
                                        {NULL, NULL}};

static const char *const always[] = {
    "qsa_block_pool:model=qwen38,new=13,block=16,seed=0x38",
    "qsa_block_pool:model=qwen38,new=44,first=262100,more=+0,spare=+0,seed=0x39",
    "qsa_block_pool:new=1,first=0,ratio=1,hd=32,rot=32,more=+0,spare=+0,seed=0x3a",
    "qsa_block_pool:new=2,first=3,ratio=7,hd=1024,rot=1024,seed=0x3b", NULL};

static const struct number numbers[] = {
    {"n_new", "new"},
    {"first_block", "first"},
    {"max_blocks", "first + new + more"},
    {"S", "(first + new)*ratio + spare"},
    {"block_size", "block"},
    {"ends_of_range", "regime.subnormal || regime.huge || regime.specials || regime.zeros || "
                      "regime.overflow || regime.bits"},
};

/* The tokens of the new blocks hold data, the others poison. Where there are very many others they
 * are not backed at all. */
static bool fill_keys(const struct filling *f)
{
    const struct case_line *c = f->c;
    uint64_t hd = case_u32(c, "hd"), ratio = case_u32(c, "ratio");
    uint64_t first = case_u32(c, "first") * ratio, count = case_u32(c, "new") * ratio;
    struct qsa_data d = qsa_data_make(c, "regime", STREAM_K, FIELD_KEY, (uint32_t)hd);
    d.f.huge = 0x1p60;
    d.exponent = (int)case_int(c, "double");
    if (2 * f->t->elems > SPARSE_BYTES && count) {
        if (!tensor_add_extent(f->t, 2 * first * hd, 2 * count * hd)) return false;
    } else {
        poison_fill(f->t->data, DTYPE_BF16, f->t->elems, f->in->poison);
    }
    for (uint64_t token = first; token < first + count; token++) {
        bool changed = case_int(c, "change") >= 0 && token >= (uint64_t)case_int(c, "change");
        qsa_data_store(&d, changed ? qsa_changed_row(token) : token, DTYPE_BF16,
                       f->t->data + 2 * token * hd);
    }
    return true;
}

static const struct array arrays[] = {
    {"raw_keys", ARRAY_IN, fill_keys},
    {"k_norm_w", ARRAY_IN, qsa_fill_norm, STREAM_NORM},
    {"block_keys", ARRAY_EXACT},
};

/* Positions up to 2^20 through long blocks, which cost little. */
static void sample_far(struct case_line *c, struct rng *r)
{
    int64_t ratio = rng_range(r, 500, 4096);
    case_set_int(c, "ratio", ratio);
    case_set_int(c, "hd", 32);
    case_set_int(c, "new", rng_range(r, 1, 2));
    case_set_int(c, "first", rng_range(r, 0, (1 << 20) / ratio - 2));
}

static void sample(struct case_line *c, struct rng *r, enum tier tier, uint64_t index)
{
    static const int64_t dims[] = {32, 64, 64, 96, 128, 160, 256, 512, 1024};
    static const int64_t ratios[] = {1, 2, 3, 4, 4, 4, 5, 8, 16, 31, 64};
    uint32_t hd = (uint32_t)rng_pick(r, dims, rng_one_in(r, 12) ? 9 : 5);
    uint32_t most = (tier == TIER_FULL ? 16000 : 800) / hd;
    case_set_int(c, "hd", hd);
    case_set_int(c, "new", rng_edge(r, 1, most + 1, 4));
    case_set_int(c, "first", rng_one_in(r, 2) ? 0 : rng_edge(r, 0, 600, 64));
    case_set_int(c, "ratio", rng_pick(r, ratios, 11));
    if (rng_one_in(r, 10)) sample_far(c, r);
    qsa_sample_norm(c, r, case_u32(c, "hd"));
    case_set_int(c, "more", rng_range(r, 0, 3));
    case_set_int(c, "spare", rng_range(r, 0, 2 * case_int(c, "ratio")));
    if (rng_one_in(r, 4)) case_set_int(c, "block", case_int(c, "ratio") * rng_range(r, 1, 16));
    case_set_enum(c, "regime", regimes[index % REGIMES]);
}

static const struct relation relations[] = {
    {"first-blocks-dropped", RELATION_SAME_BITS, "new >= 2",
     "first = first + draw(1, new - 1), new = new + first - new.first", "row + new.first - first"},
    {"block-alone", RELATION_SAME_BITS, "new >= 2", "first = first + draw(0, new - 1), new = 1",
     "row + new.first - first"},
    {"later-tokens-changed", RELATION_SAME_BITS, "change < 0 && (first + new)*ratio <= 2147483647",
     "change = draw(first*ratio + 1, (first + new)*ratio)",
     "(first + row + 1)*ratio <= new.change ? row : -1"},
    /* Without eps the norm does not see a power of two. */
    {"keys-doubled-without-eps", RELATION_SAME_BITS, "eps == 0 && !ends_of_range", "double = 1"},
    {"theta-without-rotation", RELATION_SAME_BITS, "rot == 0", "theta = 3"},
    {0}};

const struct op op_qsa_block_pool = {
    .name = "qsa_block_pool",
    .modules = (const char *const[]){"qsa_indexer", NULL},
    .family = "qsa",
    .summary = "block keys: mean of raw keys, norm, rotation",
    .contract = CONTRACT_EXACT,
    USUAL_TABLES,
    .steps = (const struct step[]){{&interface_qsa_block_pool}, {0}},
    .wild = "new first ratio hd rot block theta eps more spare",
};
