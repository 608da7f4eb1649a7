/* qsa_score_rows_tc: the scores of qsa_score_rows on tensor cores, queries split in two bf16 parts
 * (ops.md §1). The scores are judged by the interval of numerics §5.4 for the scorer that `bound`
 * names; qsa_prefill_pipeline judges the selection they lead to. */
#include <math.h>
#include <stdlib.h>

#include "harness/ops/qsa_scores.h"

enum { TC_ROWS = 16 };

static const char *const regimes[] = {"normal",      "exact_int", "relu_ties",  "all_negative",
                                      "low_bits",    "cancel",    "equal",      "outlier",
                                      "walk",        "needle",    "offset",     "zeros",
                                      "huge",        "subnormal", "specials",   "query_specials",
                                      "exact_split", "noise",     "low_halves", NULL};
enum { REGIMES = sizeof regimes / sizeof *regimes - 1 };
/* In the order of enum ref_qsa_scorer. */
static const char *const bound_names[] = {"f32", "split", "plain", NULL};

static const struct param params[] = {
    {"rows", PARAM_INT, false, "2", 0, UINT32_MAX, NULL, "query rows", 1},
    {"pos", PARAM_INT, false, "17", 0, UINT32_MAX, NULL, "position of the first", 0},
    {"ratio", PARAM_INT, false, "4", 0, UINT32_MAX, NULL, "tokens of a block", 1},
    {"blocks", PARAM_INT, false, "5", 0, UINT32_MAX, NULL, "columns of a row to write", 1},
    {"pad", PARAM_OFFSET, false, "+0", -(INT64_C(1) << 32), INT64_C(1) << 32, NULL,
     "columns of a row past them", 0},
    {"heads", PARAM_INT, true, "4", 0, UINT32_MAX, NULL, "heads", 4},
    {"hd", PARAM_INT, true, "128", 0, UINT32_MAX, NULL, "channels of a head", 128},
    {"dead", PARAM_INT, true, "0", 0, 64, NULL, "further heads of zeros at the end", 0},
    {"change", PARAM_INT, true, "-1", -1, INT32_MAX, NULL,
     "from this block on the keys are other keys", -1},
    {"double", PARAM_INT, true, "0", 0, 1, NULL, "queries twice as large", 0},
    {"bound", PARAM_ENUM, true, "split", 0, 0, bound_names,
     "whose interval: f32 in any order, split queries, queries cast to bf16", 1},
    {"regime", PARAM_ENUM, false, "normal", 0, 0, regimes, "values", 0},
    {"seed", PARAM_SEED, false, "0x1", 0, 0, NULL, "of every byte", 0},
};

static const struct preset presets[] = {{"qwen38", "ratio=4"}, {NULL, NULL}};

static const char *const always[] = {
    "qsa_score_rows_tc:model=qwen38,rows=10,pos=2046,blocks=513,pad=+3,seed=0x38",
    "qsa_score_rows_tc:rows=1,pos=12287,blocks=3073,regime=relu_ties,seed=0x39",
    "qsa_score_rows_tc:rows=1,pos=1,ratio=4,blocks=1,seed=0x3b", NULL};

static bool ref_accepts(const struct case_line *c, const struct instance *in,
                        struct ref_refusal *why)
{
    struct ref_qsa_score_rows g;
    qsa_scores_ref_args(c, in, &g);
    return ref_qsa_score_rows_tc_accepts(&g, why);
}

static enum gpu_status gpu_check(const struct case_line *c, const struct instance *in,
                                 struct gpu_report *report)
{
    struct gpu_qsa_score_rows a;
    qsa_scores_gpu_args(c, &a);
    return gpu_qsa_score_rows_tc_check(&a, report);
}

/* Rows are allocated in sixteens. */
static bool build(const struct case_line *c, struct instance *in)
{
    uint32_t rows = case_u32(c, "rows");
    return qsa_scores_build(c, in, (rows + TC_ROWS - 1) / TC_ROWS * TC_ROWS, CONTRACT_BOUND);
}

static enum gpu_status launch(const struct gpu_target *targets, const struct case_line *c,
                              const struct instance *in, const struct gpu_buffer *buffers,
                              struct gpu_report *report)
{
    struct gpu_qsa_score_rows a;
    qsa_scores_gpu_args(c, &a);
    qsa_scores_buffers(in, buffers, &a);
    return gpu_qsa_score_rows_tc(&targets[0], &a, report);
}

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
    struct ref_qsa_score_rows g;
    struct expected *out = &e[instance_index(in, "scores")];
    qsa_scores_ref_args(c, in, &g);
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
    qsa_scores_canonical(c, in, canonical);
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

static void sample_wild(struct case_line *c, struct rng *r)
{
    sample(c, r, TIER_QUICK, rng_u32(r));
    for (uint32_t faults = (uint32_t)rng_range(r, 0, 2); faults; faults--) qsa_scores_absurd(c, r);
}

static const struct relation relations[] = {
    {"row-alone", RELATION_SAME_BITS, qsa_edit_alone, qsa_base_row},
    {"first-rows-dropped", RELATION_SAME_BITS, qsa_edit_chunk, qsa_base_row},
    {"row-width-changed", RELATION_SAME_BITS, qsa_scores_edit_pad, NULL},
    {"later-keys-changed", RELATION_SAME_BITS, qsa_scores_edit_later, qsa_scores_row_before},
    {"queries-doubled", RELATION_DOUBLED, qsa_scores_edit_double, NULL},
    {NULL, RELATION_SAME_BITS, NULL, NULL}};

static const char *const modules[] = {"qsa_indexer", NULL};

/* Sums on tensor cores; the scorer's interval knows the rest. */
static const struct ref_error_model model = {.tensor_core = true, .mma_k = 16};

const struct op op_qsa_score_rows_tc = {
    .name = "qsa_score_rows_tc",
    .modules = modules,
    .family = "qsa",
    .summary = "the same scores on tensor cores, queries split in two",
    .contract = CONTRACT_BOUND,
    .params = params,
    .n_params = sizeof params / sizeof *params,
    .presets = presets,
    .always = always,
    .model = &model,
    .relations = relations,
    .sample = sample,
    .sample_wild = sample_wild,
    .ref_accepts = ref_accepts,
    .gpu_check = gpu_check,
    .build = build,
    .launch = launch,
    .oracle = oracle,
    .certify = certify,
};
