/* qsa_score: scores of every block for one query (ops.md §1). */
#include "harness/ops/qsa_common.h"

enum { STREAM_Q = 1, STREAM_K = 2 };

static const char *const regimes[] = {
    "normal",   "exact_int", "relu_ties",      "all_negative", "low_bits", "cancel", "equal",
    "outlier",  "walk",      "needle",         "offset",       "zeros",    "huge",   "subnormal",
    "overflow", "specials",  "query_specials", "exact_split",  "bits",     "noise",  "low_halves",
    NULL};
enum { REGIMES = sizeof regimes / sizeof *regimes - 1 };

static const struct param params[] = {
    {"blocks", PARAM_INT, false, "9", 0, UINT32_MAX, NULL, "blocks", 1},
    {"heads", PARAM_INT, false, "4", 0, UINT32_MAX, NULL, "heads", 1},
    {"hd", PARAM_INT, false, "32", 0, UINT32_MAX, NULL, "channels of a head", 32},
    {"first", PARAM_INT, true, "0", 0, UINT32_MAX, NULL, "which block's key comes first", 0},
    {"dead", PARAM_INT, true, "0", 0, 64, NULL, "further heads of zeros at the end", 0},
    {"double", PARAM_INT, true, "0", 0, 1, NULL, "queries twice as large", 0},
    {"regime", PARAM_ENUM, false, "normal", 0, 0, regimes, "values", 0},
    {"seed", PARAM_SEED, false, "0x1", 0, 0, NULL, "of every byte", 0},
};

static const struct preset presets[] = {{"qwen38", "heads=4,hd=128"}, {NULL, NULL}};

static const char *const always[] = {
    "qsa_score:model=qwen38,blocks=130,regime=low_bits,seed=0x38",
    "qsa_score:heads=2,hd=32,blocks=4099,regime=relu_ties,seed=0x39",
    "qsa_score:heads=9,hd=1024,blocks=2,seed=0x3a", NULL};

static void gpu_args(const struct case_line *c, struct gpu_qsa_score *a)
{
    *a = (struct gpu_qsa_score){.n_blocks = case_u32(c, "blocks"),
                                .n_heads = qsa_sum_u32(case_u32(c, "heads"), case_int(c, "dead")),
                                .hd = case_u32(c, "hd")};
}

static void ref_args(const struct case_line *c, const struct instance *in, struct ref_qsa_score *g)
{
    struct gpu_qsa_score a;
    gpu_args(c, &a);
    *g = (struct ref_qsa_score){.n_blocks = a.n_blocks, .n_heads = a.n_heads, .hd = a.hd};
    if (!in) return;
    g->q = instance_data(in, "q");
    g->block_keys = instance_data(in, "block_keys");
}

static bool ref_accepts(const struct case_line *c, const struct instance *in,
                        struct ref_refusal *why)
{
    struct ref_qsa_score g;
    ref_args(c, in, &g);
    return ref_qsa_score_accepts(&g, why);
}

static enum gpu_status gpu_check(const struct case_line *c, const struct instance *in,
                                 struct gpu_report *report)
{
    struct gpu_qsa_score a;
    gpu_args(c, &a);
    return gpu_qsa_score_check(&a, report);
}

static bool build(const struct case_line *c, struct instance *in)
{
    struct gpu_qsa_score a;
    gpu_args(c, &a);
    uint64_t q_shape[] = {a.n_heads, a.hd}, key_shape[] = {a.n_blocks, a.hd};
    uint64_t score_shape[] = {a.n_blocks}, first = case_u32(c, "first");
    struct qsa_data q = qsa_data_make(c, "regime", STREAM_Q, FIELD_QUERY, a.hd);
    struct qsa_data k = qsa_data_make(c, "regime", STREAM_K, FIELD_KEY, a.hd);
    q.exponent = (int)case_int(c, "double");
    k.f.huge = 0x1p100;
    if (!instance_add(in, "q", DTYPE_F32, ROLE_IN, CONTRACT_ANY, 2, q_shape, "head,dim") ||
        !instance_add(in, "block_keys", DTYPE_BF16, ROLE_IN, CONTRACT_ANY, 2, key_shape,
                      "block,dim") ||
        !instance_add(in, "scores", DTYPE_F32, ROLE_OUT, CONTRACT_EXACT, 1, score_shape, "block"))
        return false;
    float *q_data = instance_data(in, "q");
    uint16_t *keys = instance_data(in, "block_keys");
    for (uint64_t h = 0; h < case_u32(c, "heads"); h++)
        qsa_data_store(&q, h, DTYPE_F32, q_data + h * a.hd);
    for (uint64_t b = 0; b < a.n_blocks; b++)
        qsa_data_store(&k, first + b, DTYPE_BF16, keys + b * a.hd);
    return true;
}

static enum gpu_status launch(const struct gpu_target *targets, const struct case_line *c,
                              const struct instance *in, const struct gpu_buffer *buffers,
                              struct gpu_report *report)
{
    struct gpu_qsa_score a;
    gpu_args(c, &a);
    a.q = &buffers[instance_index(in, "q")];
    a.block_keys = &buffers[instance_index(in, "block_keys")];
    a.scores = &buffers[instance_index(in, "scores")];
    return gpu_qsa_score(&targets[0], &a, report);
}

static void oracle(const struct case_line *c, const struct instance *in,
                   const struct ref_error_model *model, const uint8_t *const *got,
                   struct expected *e)
{
    struct ref_qsa_score g;
    ref_args(c, in, &g);
    ref_qsa_score(&g, (float *)(void *)e[instance_index(in, "scores")].exact);
}

static void sample(struct case_line *c, struct rng *r, enum tier tier, uint64_t index)
{
    static const int64_t dims[] = {32, 32, 64, 96, 128, 160, 256, 512, 1024};
    static const int64_t heads[] = {1, 2, 3, 4, 4, 5, 8, 9, 17, 33};
    uint32_t hd = (uint32_t)rng_pick(r, dims, rng_one_in(r, 10) ? 9 : 5);
    uint32_t n = (uint32_t)rng_pick(r, heads, rng_one_in(r, 4) ? 10 : 6);
    uint32_t most = (tier == TIER_FULL ? 60000 : 4000) / (hd * (n + 2)) + 2;
    case_set_int(c, "hd", hd);
    case_set_int(c, "heads", n);
    case_set_int(c, "blocks", rng_edge(r, 1, most, 16));
    case_set_enum(c, "regime", regimes[index % REGIMES]);
}

static void sample_wild(struct case_line *c, struct rng *r)
{
    static const char *const keys[] = {"blocks", "heads", "hd"};
    sample(c, r, TIER_QUICK, rng_u32(r));
    for (uint32_t faults = (uint32_t)rng_range(r, 0, 2); faults; faults--)
        qsa_absurd_param(c, r, keys, 3);
}

static bool edit_fewer(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    int64_t blocks = case_int(base, "blocks"), dropped = rng_range(r, 1, blocks - 1);
    if (blocks < 2) return false;
    case_set_int(changed, "first", case_int(base, "first") + dropped);
    case_set_int(changed, "blocks", rng_range(r, 1, blocks - dropped));
    return true;
}

static int64_t shifted_block(const struct case_line *base, const struct case_line *changed,
                             int64_t row)
{
    return row + case_int(changed, "first") - case_int(base, "first");
}

/* A head of zeros adds +0: relu of a dot with a finite key. */
static bool edit_dead(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    if (qsa_ends_of_range(base, "regime")) return false;
    case_set_int(changed, "dead", rng_range(r, 1, 5));
    return true;
}

static bool edit_double(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    if (qsa_ends_of_range(base, "regime")) return false;
    case_set_int(changed, "double", 1);
    return true;
}

static const struct relation relations[] = {
    {"blocks-dropped", RELATION_SAME_BITS, edit_fewer, shifted_block},
    {"dead-heads-added", RELATION_SAME_BITS, edit_dead, NULL},
    {"queries-doubled", RELATION_DOUBLED, edit_double, NULL},
    {NULL, RELATION_SAME_BITS, NULL, NULL}};

static const char *const modules[] = {"qsa_indexer", NULL};

const struct op op_qsa_score = {
    .name = "qsa_score",
    .modules = modules,
    .family = "qsa",
    .summary = "scores of all blocks for one query, in canonical arithmetic",
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
