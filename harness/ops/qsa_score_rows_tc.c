/* qsa_score_rows_tc: the scores of qsa_score_rows on tensor cores, queries split in two bf16 parts
 * (ops.md §1). The scores are judged by the interval of numerics §5.4 for the scorer that `bound`
 * names; qsa_prefill_pipeline judges the selection they lead to. */
#include <math.h>
#include <stdlib.h>

#include "harness/ops/qsa_scores.h"

static const char *const regimes[] = {"normal",      "exact_int", "relu_ties",  "all_negative",
                                      "low_bits",    "cancel",    "equal",      "outlier",
                                      "walk",        "needle",    "offset",     "zeros",
                                      "huge",        "subnormal", "specials",   "query_specials",
                                      "exact_split", "noise",     "low_halves", NULL};
enum { REGIMES = sizeof regimes / sizeof *regimes - 1 };
/* In the order of enum ref_qsa_scorer. */
static const char *const bound_names[] = {"f32", "split", "plain", NULL};

static const struct param params[] = {
    COUNT_KEY("rows", "2", "query rows", 1),
    COUNT_KEY("pos", "17", "position of the first", 0),
    COUNT_KEY("ratio", "4", "tokens of a block", 1),
    COUNT_KEY("blocks", "5", "columns of a row to write", 1),
    {"pad", PARAM_OFFSET, false, "+0", -WIDE_OFFSET, WIDE_OFFSET, NULL,
     "columns of a row past them", 0},
    RARE_COUNT_KEY("heads", "4", "heads", 4),
    RARE_COUNT_KEY("hd", "128", "channels of a head", 128),
    {"dead", PARAM_INT, true, "0", 0, 64, NULL, "further heads of zeros at the end", 0},
    RARE_FROM_KEY("change", "from this block on the keys are other keys"),
    RARE_FLAG_KEY("double", "queries twice as large"),
    {"bound", PARAM_ENUM, true, "split", 0, 0, bound_names,
     "whose interval: f32 in any order, split queries, queries cast to bf16", 1},
    ENUM_KEY("regime", "normal", regimes, "values", 0),
    SEED_KEY,
};

static const struct preset presets[] = {{"qwen38", "ratio=4"}, {NULL, NULL}};

static const char *const always[] = {
    "qsa_score_rows_tc:model=qwen38,rows=10,pos=2046,blocks=513,pad=+3,seed=0x38",
    "qsa_score_rows_tc:rows=1,pos=12287,blocks=3073,regime=relu_ties,seed=0x39",
    "qsa_score_rows_tc:rows=1,pos=1,ratio=4,blocks=1,seed=0x3b", NULL};

static const struct number numbers[] = {
    QSA_SCORES_NUMBERS,
    {"ends_of_range", "regime.subnormal || regime.huge || regime.specials || regime.zeros || "
                      "regime.query_specials"},
};

static const struct array arrays[] = {
    {"q", ARRAY_IN, qsa_scores_fill_queries},
    {"block_keys", ARRAY_IN, qsa_scores_fill_keys},
    {"scores", ARRAY_BOUND},
};

/* Integers of which every partial sum is exact: the tensor core's sums, the relu and the sum of
 * heads have one value, and only the product with the scale rounds, as in canonical arithmetic. */
static bool exactly_computable(const struct case_line *c)
{
    return case_enum_is(c, "regime", "exact_int") || case_enum_is(c, "regime", "exact_split");
}

static void oracle(const struct case_line *c, const struct instance *in,
                   const struct ref_error_model *model, const uint8_t *const *got,
                   struct expected *e)
{
    struct ref_qsa_score_rows g = {0};
    struct expected *out = &e[instance_index(in, "scores")];
    step_ref_arguments(c->op->steps, c, in, &g, NULL);
    ref_qsa_score_rows_bound(&g, (enum ref_qsa_scorer)case_int(c, "bound"), out->value, out->bound);
    if (!exactly_computable(c)) return;
    uint64_t n = (uint64_t)g.rows * g.n_blocks_max;
    float *canonical = malloc((n + 1) * sizeof *canonical);
    for (uint64_t i = 0; i < n; i++) {
        /* Without memory nothing may pass. */
        out->value[i] = NAN;
        out->bound[i] = 0;
    }
    if (!canonical) return;
    g.score_stride = g.n_blocks_max;
    ref_qsa_score_rows(&g, canonical);
    for (uint64_t i = 0; i < n; i++) out->value[i] = canonical[i];
    free(canonical);
}

static uint32_t certify(const struct case_line *c, const struct instance *in, struct expected *e)
{
    return qsa_scores_certify(c, in, (enum ref_qsa_scorer)case_int(c, "bound"), e);
}

static void sample(struct case_line *c, struct rng *r, enum tier tier, uint64_t index)
{
    static const int64_t rows[] = {1, 1, 2, 5, 15, 16, 17, 31, 33};
    uint32_t most = tier == TIER_FULL ? 700 : 66, n = (uint32_t)rng_pick(r, rows, 9);
    qsa_scores_sample_rows(c, r, n, (uint32_t)rng_edge(r, 1, n > 16 ? most / 2 : most, 64));
    case_set_enum(c, "regime", regimes[index % REGIMES]);
    /* What the split makes of infinities cannot be judged: leave something else in the case. */
    if (case_enum_is(c, "regime", "specials"))
        case_set_int(c, "blocks", (case_int(c, "pos") + n) / case_int(c, "ratio") + 1);
    if (case_enum_is(c, "regime", "query_specials") && case_int(c, "rows") < 3)
        case_set_int(c, "rows", 3);
}

static const struct relation relations[] = {
    {QSA_ROW_ALONE},
    {QSA_FIRST_ROWS_DROPPED},
    {"row-width-changed", RELATION_SAME_BITS, NULL, "pad = pad + draw(1, 70)"},
    {QSA_LATER_KEYS_CHANGED},
    {"queries-doubled", RELATION_DOUBLED, "!ends_of_range", "double = 1"},
    {0}};

/* Sums on tensor cores; the scorer's interval knows the rest. */
static const struct ref_error_model model = {.tensor_core = true, .mma_k = 16};

const struct op op_qsa_score_rows_tc = {
    .name = "qsa_score_rows_tc",
    .modules = (const char *const[]){"qsa_indexer", NULL},
    .family = "qsa",
    .summary = "the same scores on tensor cores, queries split in two",
    .contract = CONTRACT_BOUND,
    USUAL_TABLES,
    .steps = (const struct step[]){{&interface_qsa_score_rows_tc}, {0}},
    .model = &model,
    .wild = "rows pos ratio blocks heads hd pad",
    .oracle = oracle,
    .certify = certify,
};
