/* qsa_prefill_pipeline: consecutive queries from raw keys to attention (ops.md §1): pool,
 * qprep_rows, score_rows or score_rows_tc, top-k, prefill attention. */
#include <stdlib.h>
#include <string.h>

#include "harness/ops/qsa_pipeline.h"

static const char *const scorer_names[] = {"rows", "tc", NULL};

static const struct param params[] = {
    COUNT_KEY("rows", "2", "query rows", 1),
    COUNT_KEY("pos", "37", "position of the first", 0),
    COUNT_KEY("topk", "4", "blocks to select", 1),
    COUNT_KEY("ratio", "4", "tokens of a block", 1),
    ENUM_KEY("scorer", "rows", scorer_names, "which kernel scores", 0),
    COUNT_KEY("heads", "4", "heads of the indexer", 1),
    COUNT_KEY("ihd", "32", "channels of them", 32),
    COUNT_KEY("rot", "16", "rotated channels", 0),
    REAL_KEY("theta", "1e7", "base of the rotation", 0),
    REAL_KEY("eps", "1e-6", "of the norm", 0),
    ENUM_KEY("norm", "random", qsa_norm_names, "weights of the norm", 0),
    {"qkpad", PARAM_OFFSET, true, "+0", -WIDE_OFFSET, WIDE_OFFSET, NULL,
     "columns of a row of qk behind the queries", 0},
    {"pad", PARAM_OFFSET, true, "+0", -WIDE_OFFSET, WIDE_OFFSET, NULL,
     "columns of a row of scores past the blocks", 0},
    COUNT_KEY("block", "16", "slots of a page", 1),
    COUNT_KEY("nq", "2", "query heads", 1),
    COUNT_KEY("nkv", "1", "heads of the cache", 1),
    COUNT_KEY("hd", "32", "channels of them", 32),
    REAL_KEY("scale", "0.125", "softmax scale", 1),
    {"fold", PARAM_OFFSET, true, "+0", -8, 8, NULL, "2^fold moved from the queries to the scale",
     0},
    RARE_FLAG_KEY("double", "values twice as large"),
    RARE_FROM_KEY("change", "from this token on the data is other data"),
    ENUM_KEY("pages", "shuffled", qsa_page_names, "order of physical pages", 0),
    {"spare", PARAM_OFFSET, true, "+1", -4096, 4096, NULL, "table entries past the sequence", 0},
    RARE_COUNT_KEY("pageseed", "0", "another order of pages", 0),
    ENUM_KEY("index", "normal", qsa_index_regimes, "raw keys, index queries", 0),
    ENUM_KEY("regime", "normal", qsa_attention_regimes, "attention's values", 0),
    SEED_KEY,
};

static const struct preset presets[] = {
    {"qwen38", "topk=512,ratio=4,heads=4,ihd=128,rot=64,theta=1e7,eps=1e-6,qkpad=+128,block=16,"
               "nq=24,nkv=2,hd=256,scale=0.0625"},
    {NULL, NULL}};

static const char *const always[] = {
    "qsa_prefill_pipeline:model=qwen38,rows=10,pos=2046,scorer=tc,nq=1,nkv=1,hd=32,seed=0x38",
    "qsa_prefill_pipeline:rows=2,pos=11998,topk=100,heads=1,ihd=32,rot=0,nq=1,hd=96,index=relu_"
    "ties,"
    "seed=0x39",
    "qsa_prefill_pipeline:rows=17,pos=0,topk=3,scorer=tc,ihd=128,rot=64,seed=0x3a",
    "qsa_prefill_pipeline:rows=3,pos=0,topk=2048,ratio=2,block=2,seed=0x3b", NULL};

static const struct number numbers[] = {
    {"qkw", "heads*ihd + qkpad"},
    QSA_PIPELINE_NUMBERS,
    {"score_stride", "blocks + pad"},
    {"buffer_rows", "scorer.tc ? ceil(rows/16)*16 : rows"},
};

static const struct step steps[] = {{&interface_qsa_block_pool, QSA_POOL_BINDINGS},
                                    {&interface_qsa_qprep_rows, QSA_QPREP_BINDINGS},
                                    {&interface_qsa_score_rows, QSA_SCORE_BINDINGS, "scorer.rows"},
                                    {&interface_qsa_score_rows_tc, QSA_SCORE_BINDINGS, "scorer.tc"},
                                    {&interface_qsa_topk_rows},
                                    {&interface_qsa_prefill_attn, QSA_ATTENTION_BINDINGS},
                                    {0}};

/* Queries and scores for the tensor cores are allocated in sixteens of rows; what the padding rows
 * hold is nobody's business. */
static const struct array arrays[] = {
    QSA_PIPELINE_INPUTS,
    {"block_keys", ARRAY_EXACT},
    {"q_index", ARRAY_EXACT, .dtype = DTYPE_F32, .shape = "buffer_rows, heads, ihd",
     .owned = "rows, heads, ihd", .dims = "row,head,dim", .loose = true},
    {"scores", ARRAY_EXACT, .when = "scorer.rows"},
    {"scores", ARRAY_BOUND, .when = "scorer.tc"},
    {"lists", ARRAY_EXACT},
    {"selection", ARRAY_SELECT, .alias_of = "lists"},
    {"out", ARRAY_BOUND},
    {"legal", ARRAY_SCRATCH},
};

static enum gpu_status launch(const struct gpu_target *targets, const struct case_line *c,
                              const struct instance *in, const struct gpu_buffer *buffers,
                              struct gpu_report *report)
{
    struct qsa_run r = {c, in, buffers, &targets[0], report, NULL, false};
    r.legal = malloc(instance_find(in, "lists")->elems * sizeof *r.legal + 1);
    enum gpu_status status = r.legal ? GPU_OK : GPU_INFRA;
    for (const struct step *step = steps; step->kernel && status == GPU_OK; step++) {
        if (step->kernel == &interface_qsa_prefill_attn) {
            status = qsa_run_read_lists(&r);
            if (status == GPU_OK) status = qsa_run_attention(&r);
        } else {
            status = qsa_run_step(&r, step);
        }
    }
    free(r.legal);
    return status;
}

static void oracle(const struct case_line *c, const struct instance *in,
                   const struct ref_error_model *model, const uint8_t *const *got,
                   struct expected *e)
{
    struct qsa_judge j = {.c = c, .in = in, .model = model, .got = got, .e = e};
    if (!qsa_judge_open(&j)) return;
    qsa_judge_keys_and_queries(&j);
    qsa_judge_lists(&j);
    qsa_judge_attention(&j, "out");
    qsa_judge_close(&j);
}

static void sample(struct case_line *c, struct rng *r, enum tier tier, uint64_t index)
{
    static const int64_t rows[] = {1, 2, 2, 3, 4, 15, 16, 17};
    qsa_pipeline_sample(c, r, tier, index);
    case_set_int(c, "rows", rng_range(r, 1, 3));
    case_set_int(c, "qkpad", rng_one_in(r, 3) ? 0 : rng_range(r, 1, 40));
    case_set_int(c, "pad", rng_one_in(r, 3) ? 0 : rng_range(r, 1, 9));
    if (rng_one_in(r, 6)) case_set_int(c, "change", rng_range(r, 0, case_int(c, "pos") + 2));
    if ((index / 3 + index) % 4) return;
    case_set_enum(c, "scorer", "tc");
    case_set_int(c, "heads", 4);
    case_set_int(c, "ihd", 128);
    case_set_int(c, "nq", case_int(c, "nkv"));
    case_set_int(c, "rows", rng_pick(r, rows, case_int(c, "pos") < 2000 ? 8 : 3));
}

/* Block keys have no query rows, and a row of scores is as wide as the last row's blocks. */
#define OF_ROWS "out, q_index, lists"
static const struct relation relations[] = {{QSA_ROW_ALONE, .outputs = OF_ROWS},
                                            {QSA_FIRST_ROWS_DROPPED, .outputs = OF_ROWS},
                                            {QSA_LATER_TOKENS_CHANGED, .outputs = OF_ROWS},
                                            {QSA_VALUES_DOUBLED, .outputs = "out"},
                                            {QSA_PAGES_PERMUTED},
                                            {QSA_BLOCK_SIZE_CHANGED},
                                            {0}};

const struct op op_qsa_prefill_pipeline = {
    .name = "qsa_prefill_pipeline",
    .modules = (const char *const[]){"qsa_indexer", NULL},
    .family = "qsa",
    .summary =
        "consecutive queries from raw keys to attention: pool, qprep, scores, top-k, attention",
    .contract = CONTRACT_SELECT,
    USUAL_TABLES,
    .steps = steps,
    .model = &qsa_attention_model,
    .wild =
        "rows pos topk ratio heads ihd rot block nq nkv hd theta eps scale spare qkpad pad scorer",
    .lay_out = qsa_lay_out,
    .fill = qsa_pipeline_fill_cache,
    .launch = launch,
    .oracle = oracle,
};
