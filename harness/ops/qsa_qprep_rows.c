/* qsa_qprep_rows: the heads of consecutive queries, normed and rotated (ops.md §1). */
#include "harness/ops/qsa_common.h"

enum { STREAM_Q = 1, STREAM_NORM = 2 };

static const char *const regimes[] = {
    "normal", "exact_int", "cancel",         "outlier", "offset", "near_eps", "zeros",
    "bits",   "overflow",  "query_specials", "peaked",  "flat",   NULL};
enum { REGIMES = sizeof regimes / sizeof *regimes - 1 };

static const struct param params[] = {
    COUNT_KEY("rows", "2", "query rows", 1),
    COUNT_KEY("pos", "1", "position of the first", 0),
    COUNT_KEY("heads", "4", "heads", 1),
    COUNT_KEY("hd", "64", "channels of a head", 32),
    COUNT_KEY("rot", "32", "rotated channels", 0),
    {"pad", PARAM_OFFSET, false, "+0", -WIDE_OFFSET, WIDE_OFFSET, NULL,
     "columns of a row of qk behind the queries", 0},
    REAL_KEY("theta", "1e7", "base of the rotation", 0),
    REAL_KEY("eps", "1e-6", "of the norm", 0),
    RARE_FLAG_KEY("double", "queries twice as large"),
    ENUM_KEY("norm", "random", qsa_norm_names, "weights of the norm", 0),
    ENUM_KEY("regime", "normal", regimes, "queries", 0),
    SEED_KEY,
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
    USUAL_TABLES,
    .steps = (const struct step[]){{&interface_qsa_qprep_rows}, {0}},
    .wild = "rows heads hd rot pos theta eps pad",
};
