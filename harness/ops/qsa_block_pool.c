/* qsa_block_pool: pooled, normed and rotated block keys (ops.md §1). */
#include <string.h>

#include "harness/ops/qsa_common.h"

enum { STREAM_K = 1, STREAM_NORM = 2, SPARSE_BYTES = 64 << 20 };

static const char *const regimes[] = {"normal", "exact_int", "cancel",   "outlier", "walk",
                                      "equal",  "offset",    "near_eps", "zeros",   "subnormal",
                                      "huge",   "overflow",  "specials", "bits",    NULL};
enum { REGIMES = sizeof regimes / sizeof *regimes - 1 };

static const struct param params[] = {
    {"new", PARAM_INT, false, "4", 0, UINT32_MAX, NULL, "blocks to make", 1},
    {"first", PARAM_INT, false, "0", 0, UINT32_MAX, NULL, "the first of them", 0},
    {"ratio", PARAM_INT, false, "4", 0, UINT32_MAX, NULL, "tokens of a block", 1},
    {"hd", PARAM_INT, false, "64", 0, UINT32_MAX, NULL, "channels of a key", 32},
    {"rot", PARAM_INT, false, "32", 0, UINT32_MAX, NULL, "rotated channels", 0},
    {"theta", PARAM_REAL, false, "1e7", 0, 0, NULL, "base of the rotation", 0},
    {"eps", PARAM_REAL, false, "1e-6", 0, 0, NULL, "of the norm", 0},
    {"more", PARAM_OFFSET, true, "+1", -(INT64_C(1) << 32), INT64_C(1) << 32, NULL,
     "rows of block_keys past the last block", 0},
    {"spare", PARAM_OFFSET, true, "+1", -(INT64_C(1) << 32), INT64_C(1) << 32, NULL,
     "raw keys past the last block", 0},
    {"block", PARAM_INT, true, "0", 0, UINT32_MAX, NULL,
     "slots of a page of the cache that the blocks index; 0: not paged", 0},
    {"change", PARAM_INT, true, "-1", -1, INT32_MAX, NULL,
     "from this token on the data is other data", -1},
    {"double", PARAM_INT, true, "0", 0, 1, NULL, "raw keys twice as large", 0},
    {"norm", PARAM_ENUM, false, "random", 0, 0, qsa_norm_names, "weights of the norm", 0},
    {"regime", PARAM_ENUM, false, "normal", 0, 0, regimes, "raw keys", 0},
    {"seed", PARAM_SEED, false, "0x1", 0, 0, NULL, "of every byte", 0},
};

static const struct preset presets[] = {{"qwen38", "ratio=4,hd=128,rot=64,theta=1e7,eps=1e-6"},
                                        {NULL, NULL}};

static const char *const always[] = {
    "qsa_block_pool:model=qwen38,new=13,block=16,seed=0x38",
    "qsa_block_pool:model=qwen38,new=44,first=262100,more=+0,spare=+0,seed=0x39",
    "qsa_block_pool:new=1,first=0,ratio=1,hd=32,rot=32,more=+0,spare=+0,seed=0x3a",
    "qsa_block_pool:new=2,first=3,ratio=7,hd=1024,rot=1024,seed=0x3b", NULL};

static uint64_t end_block(const struct case_line *c)
{
    return (uint64_t)case_u32(c, "first") + case_u32(c, "new");
}

static void gpu_args(const struct case_line *c, struct gpu_qsa_block_pool *a)
{
    uint32_t ratio = case_u32(c, "ratio");
    *a = (struct gpu_qsa_block_pool){.n_new = case_u32(c, "new"),
                                     .S = qsa_sum_u32(end_block(c) * ratio, case_int(c, "spare")),
                                     .max_blocks = qsa_sum_u32(end_block(c), case_int(c, "more")),
                                     .first_block = case_u32(c, "first"),
                                     .ratio = ratio,
                                     .hd = case_u32(c, "hd"),
                                     .rot = case_u32(c, "rot"),
                                     .block_size = case_u32(c, "block"),
                                     .theta = (float)case_real(c, "theta"),
                                     .eps = (float)case_real(c, "eps")};
}

static void ref_args(const struct case_line *c, const struct instance *in,
                     struct ref_qsa_block_pool *g)
{
    struct gpu_qsa_block_pool a;
    gpu_args(c, &a);
    *g = (struct ref_qsa_block_pool){.n_new = a.n_new,
                                     .S = a.S,
                                     .max_blocks = a.max_blocks,
                                     .first_block = a.first_block,
                                     .ratio = a.ratio,
                                     .hd = a.hd,
                                     .rot = a.rot,
                                     .block_size = a.block_size,
                                     .theta = a.theta,
                                     .eps = a.eps};
    if (!in) return;
    g->raw_keys = instance_data(in, "raw_keys");
    g->k_norm_w = instance_data(in, "k_norm_w");
}

static bool ref_accepts(const struct case_line *c, const struct instance *in,
                        struct ref_refusal *why)
{
    struct ref_qsa_block_pool g;
    ref_args(c, in, &g);
    return ref_qsa_block_pool_accepts(&g, why);
}

static enum gpu_status gpu_check(const struct case_line *c, const struct instance *in,
                                 struct gpu_report *report)
{
    struct gpu_qsa_block_pool a;
    gpu_args(c, &a);
    return gpu_qsa_block_pool_check(&a, report);
}

/* The tokens of the new blocks hold data, the others poison. Where there are very many others they
 * are not backed at all. */
static bool fill_keys(const struct case_line *c, struct instance *in, struct tensor *keys,
                      const struct gpu_qsa_block_pool *a)
{
    struct qsa_data d = qsa_data_make(c, "regime", STREAM_K, FIELD_KEY, a->hd);
    uint64_t first = (uint64_t)a->first_block * a->ratio, count = (uint64_t)a->n_new * a->ratio;
    uint16_t *out = (uint16_t *)(void *)keys->data;
    d.f.huge = 0x1p60;
    d.exponent = (int)case_int(c, "double");
    if (2 * keys->elems > SPARSE_BYTES && count) {
        if (!tensor_add_extent(keys, 2 * first * a->hd, 2 * count * a->hd)) return false;
    } else {
        poison_fill(out, DTYPE_BF16, keys->elems, in->poison);
    }
    for (uint64_t token = first; token < first + count; token++) {
        bool changed = case_int(c, "change") >= 0 && token >= (uint64_t)case_int(c, "change");
        qsa_data_store(&d, changed ? qsa_changed_row(token) : token, DTYPE_BF16,
                       out + token * a->hd);
    }
    return true;
}

static bool build(const struct case_line *c, struct instance *in)
{
    struct gpu_qsa_block_pool a;
    gpu_args(c, &a);
    uint64_t key_shape[] = {a.S, a.hd}, norm_shape[] = {a.hd}, out_shape[] = {a.n_new, a.hd};
    uint64_t out_stride[] = {a.hd, 1}, origin = (uint64_t)a.first_block * a.hd;
    struct tensor *keys =
        instance_add(in, "raw_keys", DTYPE_BF16, ROLE_IN, CONTRACT_ANY, 2, key_shape, "token,dim");
    if (!keys || !fill_keys(c, in, keys, &a) ||
        !instance_add(in, "k_norm_w", DTYPE_BF16, ROLE_IN, CONTRACT_ANY, 1, norm_shape, "dim"))
        return false;
    qsa_norm_fill(c, STREAM_NORM, a.hd, instance_data(in, "k_norm_w"));
    return instance_add_strided(in, "block_keys", DTYPE_BF16, ROLE_OUT, CONTRACT_EXACT, 2,
                                out_shape, out_stride, origin, (uint64_t)a.max_blocks * a.hd,
                                "block,dim") != NULL;
}

static enum gpu_status launch(const struct gpu_target *targets, const struct case_line *c,
                              const struct instance *in, const struct gpu_buffer *buffers,
                              struct gpu_report *report)
{
    struct gpu_qsa_block_pool a;
    gpu_args(c, &a);
    a.raw_keys = &buffers[instance_index(in, "raw_keys")];
    a.k_norm_w = &buffers[instance_index(in, "k_norm_w")];
    a.block_keys = &buffers[instance_index(in, "block_keys")];
    return gpu_qsa_block_pool(&targets[0], &a, report);
}

static void oracle(const struct case_line *c, const struct instance *in,
                   const struct ref_error_model *model, const uint8_t *const *got,
                   struct expected *e)
{
    struct ref_qsa_block_pool g;
    ref_args(c, in, &g);
    ref_qsa_block_pool(&g, (uint16_t *)(void *)e[instance_index(in, "block_keys")].exact);
}

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

static void sample_wild(struct case_line *c, struct rng *r)
{
    static const char *const keys[] = {"new", "first", "ratio", "hd", "rot", "block"};
    sample(c, r, TIER_QUICK, rng_u32(r));
    for (uint32_t faults = (uint32_t)rng_range(r, 0, 2); faults; faults--) {
        switch (rng_u32(r) % 8) {
        case 0:
            case_set_real(c, "theta", qsa_absurd_real(r));
            break;
        case 1:
            case_set_real(c, "eps", qsa_absurd_real(r));
            break;
        case 2:
            case_set_int(c, "more", rng_range(r, -3, 3));
            break;
        case 3:
            case_set_int(c, "spare", rng_range(r, -9, 3));
            break;
        default:
            qsa_absurd_param(c, r, keys, 6);
        }
    }
}

static bool edit_dropped(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    int64_t blocks = case_int(base, "new"), dropped = rng_range(r, 1, blocks - 1);
    if (blocks < 2) return false;
    case_set_int(changed, "first", case_int(base, "first") + dropped);
    case_set_int(changed, "new", blocks - dropped);
    return true;
}

static bool edit_alone(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    int64_t blocks = case_int(base, "new");
    if (blocks < 2) return false;
    case_set_int(changed, "first", case_int(base, "first") + rng_range(r, 0, blocks - 1));
    case_set_int(changed, "new", 1);
    return true;
}

static int64_t shifted_block(const struct case_line *base, const struct case_line *changed,
                             int64_t row)
{
    return row + case_int(changed, "first") - case_int(base, "first");
}

static bool edit_later(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    int64_t first = case_int(base, "first") * case_int(base, "ratio");
    int64_t last = first + case_int(base, "new") * case_int(base, "ratio");
    if (case_int(base, "change") >= 0 || last > INT32_MAX) return false;
    case_set_int(changed, "change", rng_range(r, first + 1, last));
    return true;
}

static int64_t block_before_change(const struct case_line *base, const struct case_line *changed,
                                   int64_t row)
{
    int64_t end = (case_int(base, "first") + row + 1) * case_int(base, "ratio");
    return end <= case_int(changed, "change") ? row : -1;
}

/* Without eps the norm does not see a power of two. */
static bool edit_double(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    if (case_real(base, "eps") != 0 || qsa_ends_of_range(base, "regime")) return false;
    case_set_int(changed, "double", 1);
    return true;
}

static bool edit_theta(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    if (case_int(base, "rot") != 0) return false;
    case_set_real(changed, "theta", 3);
    return true;
}

static const struct relation relations[] = {
    {"first-blocks-dropped", RELATION_SAME_BITS, edit_dropped, shifted_block},
    {"block-alone", RELATION_SAME_BITS, edit_alone, shifted_block},
    {"later-tokens-changed", RELATION_SAME_BITS, edit_later, block_before_change},
    {"keys-doubled-without-eps", RELATION_SAME_BITS, edit_double, NULL},
    {"theta-without-rotation", RELATION_SAME_BITS, edit_theta, NULL},
    {NULL, RELATION_SAME_BITS, NULL, NULL}};

static const char *const modules[] = {"qsa_indexer", NULL};

const struct op op_qsa_block_pool = {
    .name = "qsa_block_pool",
    .modules = modules,
    .family = "qsa",
    .summary = "block keys: mean of raw keys, norm, rotation",
    .contract = CONTRACT_EXACT,
    .params = params,
    .n_params = sizeof params / sizeof *params,
    .presets = presets,
    .always = always,
    .relations = relations,
    .sample = sample,
    .sample_wild = sample_wild,
    .ref_accepts = ref_accepts,
    .gpu_check = gpu_check,
    .build = build,
    .launch = launch,
    .oracle = oracle,
};
