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
    COUNT_KEY("blocks", "9", "blocks", 1),
    COUNT_KEY("heads", "4", "heads", 1),
    COUNT_KEY("hd", "32", "channels of a head", 32),
    RARE_COUNT_KEY("first", "0", "which block's key comes first", 0),
    {"dead", PARAM_INT, true, "0", 0, 64, NULL, "further heads of zeros at the end", 0},
    RARE_FLAG_KEY("double", "queries twice as large"),
    ENUM_KEY("regime", "normal", regimes, "values", 0),
    SEED_KEY,
};

static const struct preset presets[] = {{"qwen38", "heads=4,hd=128"}, {NULL, NULL}};

static const char *const always[] = {
    "qsa_score:model=qwen38,blocks=130,regime=low_bits,seed=0x38",
    "qsa_score:heads=2,hd=32,blocks=4099,regime=relu_ties,seed=0x39",
    "qsa_score:heads=9,hd=1024,blocks=2,seed=0x3a", NULL};

static const struct number numbers[] = {
    {"n_blocks", "blocks"},
    {"n_heads", "heads + dead"},
    {"ends_of_range", "regime.subnormal || regime.huge || regime.specials || regime.zeros || "
                      "regime.overflow || regime.bits || regime.query_specials"},
};

/* Dead heads stay 0. */
static bool fill_queries(const struct filling *f)
{
    uint64_t hd = case_u32(f->c, "hd");
    struct qsa_data d = qsa_data_make(f->c, "regime", STREAM_Q, FIELD_QUERY, (uint32_t)hd);
    d.exponent = (int)case_int(f->c, "double");
    for (uint64_t h = 0; h < case_u32(f->c, "heads"); h++)
        qsa_data_store(&d, h, DTYPE_F32, f->t->data + 4 * h * hd);
    return true;
}

static bool fill_keys(const struct filling *f)
{
    struct qsa_data d = qsa_data_make(f->c, "regime", STREAM_K, FIELD_KEY, case_u32(f->c, "hd"));
    d.f.huge = 0x1p100;
    qsa_store_rows(&d, case_u32(f->c, "first"), f->t);
    return true;
}

static const struct array arrays[] = {
    {"q", ARRAY_IN, fill_queries},
    {"block_keys", ARRAY_IN, fill_keys},
    {"scores", ARRAY_EXACT},
};

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

static const struct relation relations[] = {
    {"blocks-dropped", RELATION_SAME_BITS, "blocks >= 2",
     "first = first + draw(1, blocks - 1), blocks = draw(1, blocks + first - new.first)",
     "row + new.first - first"},
    /* A head of zeros adds +0: relu of a dot with a finite key. */
    {"dead-heads-added", RELATION_SAME_BITS, "!ends_of_range", "dead = draw(1, 5)"},
    {"queries-doubled", RELATION_DOUBLED, "!ends_of_range", "double = 1"},
    {0}};

const struct op op_qsa_score = {
    .name = "qsa_score",
    .modules = (const char *const[]){"qsa_indexer", NULL},
    .family = "qsa",
    .summary = "scores of all blocks for one query, in canonical arithmetic",
    .contract = CONTRACT_EXACT,
    USUAL_TABLES,
    .steps = (const struct step[]){{&interface_qsa_score}, {0}},
    .wild = "blocks heads hd",
};
