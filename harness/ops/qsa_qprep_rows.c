/* qsa_qprep_rows: the heads of consecutive queries, normed and rotated (ops.md §1). */
#include "harness/ops/qsa_common.h"

enum { STREAM_Q = 1, STREAM_NORM = 2 };

static const char *const regimes[] = {
    "normal", "exact_int", "cancel",         "outlier", "offset", "near_eps", "zeros",
    "bits",   "overflow",  "query_specials", "peaked",  "flat",   NULL};
enum { REGIMES = sizeof regimes / sizeof *regimes - 1 };

static const struct param params[] = {
    {"rows", PARAM_INT, false, "2", 0, UINT32_MAX, NULL, "query rows", 1},
    {"pos", PARAM_INT, false, "1", 0, UINT32_MAX, NULL, "position of the first", 0},
    {"heads", PARAM_INT, false, "4", 0, UINT32_MAX, NULL, "heads", 1},
    {"hd", PARAM_INT, false, "64", 0, UINT32_MAX, NULL, "channels of a head", 32},
    {"rot", PARAM_INT, false, "32", 0, UINT32_MAX, NULL, "rotated channels", 0},
    {"pad", PARAM_OFFSET, false, "+0", -(INT64_C(1) << 32), INT64_C(1) << 32, NULL,
     "columns of a row of qk behind the queries", 0},
    {"theta", PARAM_REAL, false, "1e7", 0, 0, NULL, "base of the rotation", 0},
    {"eps", PARAM_REAL, false, "1e-6", 0, 0, NULL, "of the norm", 0},
    {"double", PARAM_INT, true, "0", 0, 1, NULL, "queries twice as large", 0},
    {"norm", PARAM_ENUM, false, "random", 0, 0, qsa_norm_names, "weights of the norm", 0},
    {"regime", PARAM_ENUM, false, "normal", 0, 0, regimes, "queries", 0},
    {"seed", PARAM_SEED, false, "0x1", 0, 0, NULL, "of every byte", 0},
};

static const struct preset presets[] = {
    {"qwen38", "heads=4,hd=128,rot=64,pad=+128,theta=1e7,eps=1e-6"}, {NULL, NULL}};

static const char *const always[] = {
    "qsa_qprep_rows:model=qwen38,rows=10,pos=2046,seed=0x38",
    "qsa_qprep_rows:model=qwen38,rows=17,pos=1048559,seed=0x39",
    "qsa_qprep_rows:rows=3,pos=0,heads=1,hd=1024,rot=1024,seed=0x3a",
    "qsa_qprep_rows:rows=2,pos=2147483646,heads=3,hd=32,rot=2,theta=10000,pad=+1,seed=0x3b", NULL};

static void gpu_args(const struct case_line *c, struct gpu_qsa_qprep_rows *a)
{
    uint32_t heads = case_u32(c, "heads"), hd = case_u32(c, "hd");
    *a = (struct gpu_qsa_qprep_rows){.rows = case_u32(c, "rows"),
                                     .first_pos = case_u32(c, "pos"),
                                     .qkw = qsa_sum_u32((uint64_t)heads * hd, case_int(c, "pad")),
                                     .n_heads = heads,
                                     .hd = hd,
                                     .rot = case_u32(c, "rot"),
                                     .theta = (float)case_real(c, "theta"),
                                     .eps = (float)case_real(c, "eps")};
}

static void ref_args(const struct case_line *c, const struct instance *in,
                     struct ref_qsa_qprep_rows *g)
{
    struct gpu_qsa_qprep_rows a;
    gpu_args(c, &a);
    *g = (struct ref_qsa_qprep_rows){.rows = a.rows,
                                     .first_pos = a.first_pos,
                                     .qkw = a.qkw,
                                     .n_heads = a.n_heads,
                                     .hd = a.hd,
                                     .rot = a.rot,
                                     .theta = a.theta,
                                     .eps = a.eps};
    if (!in) return;
    g->qk = instance_data(in, "qk");
    g->q_norm_w = instance_data(in, "q_norm_w");
}

static bool ref_accepts(const struct case_line *c, const struct instance *in,
                        struct ref_refusal *why)
{
    struct ref_qsa_qprep_rows g;
    ref_args(c, in, &g);
    return ref_qsa_qprep_rows_accepts(&g, why);
}

static enum gpu_status gpu_check(const struct case_line *c, const struct instance *in,
                                 struct gpu_report *report)
{
    struct gpu_qsa_qprep_rows a;
    gpu_args(c, &a);
    return gpu_qsa_qprep_rows_check(&a, report);
}

/* The columns behind the queries, in production the key, are poison. */
static void fill_queries(const struct case_line *c, struct instance *in,
                         const struct gpu_qsa_qprep_rows *a)
{
    struct qsa_data d = qsa_data_make(c, "regime", STREAM_Q, FIELD_QUERY, a->hd);
    uint16_t *qk = instance_data(in, "qk");
    d.exponent = (int)case_int(c, "double");
    d.group = a->n_heads;
    poison_fill(qk, DTYPE_BF16, (uint64_t)a->rows * a->qkw, in->poison);
    for (uint64_t row = 0; row < a->rows; row++) {
        for (uint64_t h = 0; h < a->n_heads; h++)
            qsa_data_store(&d, (a->first_pos + row) * a->n_heads + h, DTYPE_BF16,
                           qk + row * a->qkw + h * a->hd);
    }
}

static bool build(const struct case_line *c, struct instance *in)
{
    struct gpu_qsa_qprep_rows a;
    gpu_args(c, &a);
    uint64_t qk_shape[] = {a.rows, a.qkw}, norm_shape[] = {a.hd};
    uint64_t out_shape[] = {a.rows, a.n_heads, a.hd};
    if (!instance_add(in, "qk", DTYPE_BF16, ROLE_IN, CONTRACT_ANY, 2, qk_shape, "row,dim") ||
        !instance_add(in, "q_norm_w", DTYPE_BF16, ROLE_IN, CONTRACT_ANY, 1, norm_shape, "dim") ||
        !instance_add(in, "q_out", DTYPE_F32, ROLE_OUT, CONTRACT_EXACT, 3, out_shape,
                      "row,head,dim"))
        return false;
    qsa_norm_fill(c, STREAM_NORM, a.hd, instance_data(in, "q_norm_w"));
    fill_queries(c, in, &a);
    return true;
}

static enum gpu_status launch(const struct gpu_target *targets, const struct case_line *c,
                              const struct instance *in, const struct gpu_buffer *buffers,
                              struct gpu_report *report)
{
    struct gpu_qsa_qprep_rows a;
    gpu_args(c, &a);
    a.qk = &buffers[instance_index(in, "qk")];
    a.q_norm_w = &buffers[instance_index(in, "q_norm_w")];
    a.q_out = &buffers[instance_index(in, "q_out")];
    return gpu_qsa_qprep_rows(&targets[0], &a, report);
}

static void oracle(const struct case_line *c, const struct instance *in,
                   const struct ref_error_model *model, const uint8_t *const *got,
                   struct expected *e)
{
    struct ref_qsa_qprep_rows g;
    ref_args(c, in, &g);
    ref_qsa_qprep_rows(&g, (float *)(void *)e[instance_index(in, "q_out")].exact);
}

static void sample(struct case_line *c, struct rng *r, enum tier tier, uint64_t index)
{
    static const int64_t dims[] = {32, 64, 96, 128, 160, 256, 512, 1024};
    static const int64_t around[] = {4, 64, 2048, 1 << 16};
    uint32_t hd = (uint32_t)rng_pick(r, dims, rng_one_in(r, 10) ? 8 : 4);
    uint32_t heads = (uint32_t)rng_range(r, 1, hd > 128 ? 2 : 5);
    uint32_t most = (tier == TIER_FULL ? 8000 : 700) / (hd * heads) + 1;
    case_set_int(c, "hd", hd);
    case_set_int(c, "heads", heads);
    case_set_int(c, "rows", rng_range(r, 1, most + 1));
    case_set_int(c, "pos", rng_edge(r, 0, (1 << 20) - 400, rng_pick(r, around, 4)));
    if (rng_one_in(r, 3)) case_set_int(c, "pos", rng_range(r, 0, 40));
    case_set_int(c, "pad", rng_one_in(r, 2) ? rng_range(r, 0, 3) : hd);
    qsa_sample_norm(c, r, hd);
    case_set_enum(c, "regime", regimes[index % REGIMES]);
}

static void sample_wild(struct case_line *c, struct rng *r)
{
    static const char *const keys[] = {"rows", "heads", "hd", "rot", "pos"};
    sample(c, r, TIER_QUICK, rng_u32(r));
    for (uint32_t faults = (uint32_t)rng_range(r, 0, 2); faults; faults--) {
        uint32_t which = rng_u32(r) % 8;
        if (which < 2)
            case_set_real(c, which ? "theta" : "eps", qsa_absurd_real(r));
        else if (which == 2)
            case_set_int(c, "pad", rng_range(r, -2, 2));
        else
            qsa_absurd_param(c, r, keys, 5);
    }
}

static bool edit_pad(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    case_set_int(changed, "pad", case_int(base, "pad") + rng_range(r, 1, 70));
    return true;
}

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
    {"row-alone", RELATION_SAME_BITS, qsa_edit_alone, qsa_base_row},
    {"first-rows-dropped", RELATION_SAME_BITS, qsa_edit_chunk, qsa_base_row},
    {"row-width-changed", RELATION_SAME_BITS, edit_pad, NULL},
    {"queries-doubled-without-eps", RELATION_SAME_BITS, edit_double, NULL},
    {"theta-without-rotation", RELATION_SAME_BITS, edit_theta, NULL},
    {NULL, RELATION_SAME_BITS, NULL, NULL}};

static const char *const modules[] = {"qsa_indexer", NULL};

const struct op op_qsa_qprep_rows = {
    .name = "qsa_qprep_rows",
    .modules = modules,
    .family = "qsa",
    .summary = "heads of consecutive queries: norm, rotation",
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
