/* qsa_qprep: the heads of one query, normed and rotated (ops.md §1). */
#include "harness/ops/qsa_common.h"

enum { STREAM_Q = 1, STREAM_NORM = 2 };

static const char *const regimes[] = {
    "normal", "exact_int", "cancel",         "outlier", "offset", "near_eps", "zeros",
    "bits",   "overflow",  "query_specials", "peaked",  "flat",   NULL};
enum { REGIMES = sizeof regimes / sizeof *regimes - 1 };

static const struct param params[] = {
    COUNT_KEY("heads", "4", "heads", 1),
    COUNT_KEY("hd", "64", "channels of a head", 32),
    COUNT_KEY("rot", "32", "rotated channels", 0),
    COUNT_KEY("pos", "1", "position of the query", 0),
    REAL_KEY("theta", "1e7", "base of the rotation", 0),
    REAL_KEY("eps", "1e-6", "of the norm", 0),
    RARE_COUNT_KEY("first", "0", "which head's data comes first", 0),
    RARE_FLAG_KEY("double", "queries twice as large"),
    ENUM_KEY("norm", "random", qsa_norm_names, "weights of the norm", 0),
    ENUM_KEY("regime", "normal", regimes, "queries", 0),
    SEED_KEY,
};

static const struct preset presets[] = {{"qwen38", "heads=4,hd=128,rot=64,theta=1e7,eps=1e-6"},
                                        {NULL, NULL}};

static const char *const always[] = {
    "qsa_qprep:model=qwen38,pos=2051,seed=0x38", "qsa_qprep:model=qwen38,pos=1048575,seed=0x39",
    "qsa_qprep:heads=1,hd=1024,rot=1024,pos=0,seed=0x3a",
    "qsa_qprep:heads=2,hd=32,rot=2,pos=2147483647,theta=10000,seed=0x3b", NULL};

static const struct number numbers[] = {
    {"n_heads", "heads"},
    {"ends_of_range", "regime.zeros || regime.bits || regime.overflow || regime.query_specials"},
};

static bool fill_queries(const struct filling *f)
{
    struct qsa_data d = qsa_data_make(f->c, "regime", STREAM_Q, FIELD_QUERY, case_u32(f->c, "hd"));
    d.exponent = (int)case_int(f->c, "double");
    qsa_store_rows(&d, case_u32(f->c, "first"), f->t);
    return true;
}

static const struct array arrays[] = {
    {"q_in", ARRAY_IN, fill_queries},
    {"q_norm_w", ARRAY_IN, qsa_fill_norm, STREAM_NORM},
    {"q_out", ARRAY_EXACT},
};

static void sample(struct case_line *c, struct rng *r, enum tier tier, uint64_t index)
{
    static const int64_t dims[] = {32, 64, 96, 128, 160, 256, 512, 1024};
    static const int64_t around[] = {4, 64, 2048, 1 << 16};
    uint32_t hd = (uint32_t)rng_pick(r, dims, rng_one_in(r, 8) ? 8 : 5);
    case_set_int(c, "hd", hd);
    case_set_int(c, "heads", rng_range(r, 1, hd > 256 ? 2 : 9));
    case_set_int(c, "pos", rng_edge(r, 0, (1 << 20) - 1, rng_pick(r, around, 4)));
    if (rng_one_in(r, 3)) case_set_int(c, "pos", rng_range(r, 0, 40));
    qsa_sample_norm(c, r, hd);
    case_set_enum(c, "regime", regimes[index % REGIMES]);
}

static const struct relation relations[] = {
    {"head-alone", RELATION_SAME_BITS, "heads >= 2",
     "first = first + draw(0, heads - 1), heads = 1", "row + new.first - first"},
    {"queries-doubled-without-eps", RELATION_SAME_BITS, "eps == 0 && !ends_of_range", "double = 1"},
    {"position-without-rotation", RELATION_SAME_BITS, "rot == 0", "pos = draw(0, 1048576)"},
    {"theta-at-position-0", RELATION_SAME_BITS, "pos == 0", "theta = 3"},
    {0}};

const struct op op_qsa_qprep = {
    .name = "qsa_qprep",
    .modules = (const char *const[]){"qsa_indexer", NULL},
    .family = "qsa",
    .summary = "heads of one query: norm, rotation",
    .contract = CONTRACT_EXACT,
    USUAL_TABLES,
    .steps = (const struct step[]){{&interface_qsa_qprep}, {0}},
    .wild = "heads hd rot pos theta eps",
};
