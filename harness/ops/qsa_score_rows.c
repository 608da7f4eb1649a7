/* qsa_score_rows: scores of the visible blocks of consecutive queries (ops.md §1), and
 * qsa_score_rows_tiled: the same operation by a grid of tiles. */
#include "harness/ops/qsa_scores.h"

static const char *const regimes[] = {
    "normal",   "exact_int", "relu_ties",      "all_negative", "low_bits", "cancel", "equal",
    "outlier",  "walk",      "needle",         "offset",       "zeros",    "huge",   "subnormal",
    "overflow", "specials",  "query_specials", "exact_split",  "bits",     "noise",  "low_halves",
    NULL};
enum { REGIMES = sizeof regimes / sizeof *regimes - 1 };

static const struct param params[] = {
    COUNT_KEY("rows", "2", "query rows", 1),
    COUNT_KEY("pos", "17", "position of the first", 0),
    COUNT_KEY("ratio", "4", "tokens of a block", 1),
    COUNT_KEY("blocks", "5", "columns of a row to write", 1),
    {"pad", PARAM_OFFSET, false, "+0", -WIDE_OFFSET, WIDE_OFFSET, NULL,
     "columns of a row past them", 0},
    COUNT_KEY("heads", "4", "heads", 1),
    COUNT_KEY("hd", "32", "channels of a head", 32),
    {"dead", PARAM_INT, true, "0", 0, 64, NULL, "further heads of zeros at the end", 0},
    RARE_FROM_KEY("change", "from this block on the keys are other keys"),
    RARE_FLAG_KEY("double", "queries twice as large"),
    ENUM_KEY("regime", "normal", regimes, "values", 0),
    SEED_KEY,
};

static const struct preset presets[] = {{"qwen38", "ratio=4,heads=4,hd=128"}, {NULL, NULL}};

static const char *const always[] = {
    "qsa_score_rows:model=qwen38,rows=1,pos=2051,blocks=513,pad=+3,seed=0x38",
    "qsa_score_rows:rows=2,pos=12000,blocks=3001,heads=1,hd=32,regime=relu_ties,seed=0x39",
    "qsa_score_rows:rows=3,pos=1048575,ratio=65536,blocks=19,heads=3,hd=96,seed=0x3b", NULL};

static const char *const tiled_always[] = {
    "qsa_score_rows_tiled:model=qwen38,rows=1,pos=2051,blocks=513,pad=+3,seed=0x38",
    "qsa_score_rows_tiled:model=qwen38,rows=65,pos=255,blocks=65,regime=low_bits,seed=0x39",
    "qsa_score_rows_tiled:rows=3,pos=1048575,ratio=65536,blocks=19,heads=3,hd=96,seed=0x3b",
    "qsa_score_rows_tiled:rows=2,pos=40,ratio=4,blocks=9,heads=2,hd=1024,seed=0x3c", NULL};

static const struct number numbers[] = {
    QSA_SCORES_NUMBERS,
    {"ends_of_range", "regime.subnormal || regime.huge || regime.specials || regime.zeros || "
                      "regime.overflow || regime.bits || regime.query_specials"},
};

static const struct array arrays[] = {
    {"q", ARRAY_IN, qsa_scores_fill_queries},
    {"block_keys", ARRAY_IN, qsa_scores_fill_keys},
    {"scores", ARRAY_EXACT},
};

static uint32_t certify(const struct case_line *c, const struct instance *in, struct expected *e)
{
    return qsa_scores_certify(c, in, REF_SCORER_F32, e);
}

static void sample(struct case_line *c, struct rng *r, enum tier tier, uint64_t index)
{
    static const int64_t dims[] = {32, 32, 64, 96, 128, 160, 256, 512, 1024};
    static const int64_t heads[] = {1, 2, 3, 4, 4, 5, 8, 9, 17, 33};
    uint32_t hd = (uint32_t)rng_pick(r, dims, rng_one_in(r, 10) ? 9 : 4);
    uint32_t n = (uint32_t)rng_pick(r, heads, rng_one_in(r, 4) ? 10 : 6);
    uint32_t pairs = (tier == TIER_FULL ? 60000 : 3000) / (hd * (n + 2)) + 2;
    uint32_t rows = (uint32_t)rng_range(r, 1, pairs < 6 ? 2 : 5);
    qsa_scores_sample_rows(c, r, rows, (uint32_t)rng_edge(r, 1, pairs / rows + 1, 16));
    case_set_int(c, "hd", hd);
    case_set_int(c, "heads", n);
    case_set_enum(c, "regime", regimes[index % REGIMES]);
}

/* Rows and blocks about the edges of a tile and of a thread's part of it. The released geometry has
 * half of the cases; there the work of a case allows few rows by many blocks or the reverse. */
static void tiled_sample(struct case_line *c, struct rng *r, enum tier tier, uint64_t index)
{
    static const int64_t dims[] = {32, 32, 64, 96, 160, 256, 1024}, heads[] = {1, 2, 3, 5, 9, 33};
    bool released = rng_one_in(r, 2);
    uint32_t hd = released ? 128 : (uint32_t)rng_pick(r, dims, rng_one_in(r, 10) ? 7 : 5);
    uint32_t n = released ? 4 : (uint32_t)rng_pick(r, heads, rng_one_in(r, 4) ? 6 : 4);
    uint32_t pairs = (tier == TIER_FULL ? 600000 : 60000) / (hd * n) + 2;
    uint32_t rows = (uint32_t)rng_edge(r, 1, pairs < 70 ? pairs : 70, rng_one_in(r, 2) ? 64 : 4);
    uint32_t blocks = (uint32_t)rng_edge(r, 1, pairs / rows + 1, 64);
    qsa_scores_sample_rows(c, r, rows, blocks);
    case_set_int(c, "hd", hd);
    case_set_int(c, "heads", n);
    case_set_enum(c, "regime", regimes[index % REGIMES]);
}

static const struct relation relations[] = {
    {QSA_ROW_ALONE},
    {QSA_FIRST_ROWS_DROPPED},
    {"row-width-changed", RELATION_SAME_BITS, NULL, "pad = pad + draw(1, 70)"},
    {QSA_LATER_KEYS_CHANGED},
    {"queries-doubled", RELATION_DOUBLED, "!ends_of_range", "double = 1"},
    /* A head of zeros adds +0: relu of a dot with a finite key. */
    {"dead-heads-added", RELATION_SAME_BITS, "!ends_of_range", "dead = draw(1, 5)"},
    {0}};

const struct op op_qsa_score_rows = {
    .name = "qsa_score_rows",
    .modules = (const char *const[]){"qsa_indexer", NULL},
    .family = "qsa",
    .summary = "scores of the visible blocks of consecutive queries",
    .contract = CONTRACT_EXACT,
    USUAL_TABLES,
    .steps = (const struct step[]){{&interface_qsa_score_rows}, {0}},
    .wild = "rows pos ratio blocks heads hd pad",
    .certify = certify,
};

const struct op op_qsa_score_rows_tiled = {
    .name = "qsa_score_rows_tiled",
    .modules = (const char *const[]){"qsa_indexer", NULL},
    .family = "qsa",
    .summary = "the same scores, a tile of rows and blocks a CTA",
    .contract = CONTRACT_EXACT,
    TABLE(params),
    TABLE(numbers),
    TABLE(arrays),
    .steps = (const struct step[]){{&interface_qsa_score_rows_tiled}, {0}},
    .presets = presets,
    .always = tiled_always,
    .relations = relations,
    .wild = "rows pos ratio blocks heads hd pad",
    .sample = tiled_sample,
    .certify = certify,
};
