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

static const struct number numbers[] = {
    {"first_pos", "pos"},
    {"n_heads", "heads"},
    {"qkw", "heads*hd + pad"},
    {"ends_of_range", "regime.zeros || regime.bits || regime.overflow || regime.query_specials"},
};

/* The columns behind the queries, in production the key, are poison. */
static bool fill_queries(const struct filling *f)
{
    uint64_t heads = case_u32(f->c, "heads"), hd = case_u32(f->c, "hd");
    uint64_t first = case_u32(f->c, "pos"), rows = f->t->shape[0], width = f->t->shape[1];
    struct qsa_data d = qsa_data_make(f->c, "regime", STREAM_Q, FIELD_QUERY, (uint32_t)hd);
    d.exponent = (int)case_int(f->c, "double");
    d.group = (uint32_t)heads;
    for (uint64_t row = 0; row < rows; row++) {
        for (uint64_t h = 0; h < heads; h++)
            qsa_data_store(&d, (first + row) * heads + h, DTYPE_BF16,
                           f->t->data + 2 * (row * width + h * hd));
    }
    return true;
}

static const struct array arrays[] = {
    {"qk", ARRAY_POISONED, fill_queries},
    {"q_norm_w", ARRAY_IN, qsa_fill_norm, STREAM_NORM},
    {"q_out", ARRAY_EXACT},
};

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

static const struct relation relations[] = {
    {QSA_ROW_ALONE},
    {QSA_FIRST_ROWS_DROPPED},
    {"row-width-changed", RELATION_SAME_BITS, NULL, "pad = pad + draw(1, 70)"},
    {"queries-doubled-without-eps", RELATION_SAME_BITS, "eps == 0 && !ends_of_range", "double = 1"},
    {"theta-without-rotation", RELATION_SAME_BITS, "rot == 0", "theta = 3"},
    {0}};

const struct op op_qsa_qprep_rows = {
    .name = "qsa_qprep_rows",
    .modules = (const char *const[]){"qsa_indexer", NULL},
    .family = "qsa",
    .summary = "heads of consecutive queries: norm, rotation",
    .contract = CONTRACT_EXACT,
    TABLE(params),
    TABLE(numbers),
    TABLE(arrays),
    .steps = (const struct step[]){{&interface_qsa_qprep_rows}, {0}},
    .presets = presets,
    .always = always,
    .relations = relations,
    .wild = "rows heads hd rot pos theta eps pad",
    .sample = sample,
};
