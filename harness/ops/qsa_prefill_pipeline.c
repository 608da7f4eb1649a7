/* qsa_prefill_pipeline: consecutive queries from raw keys to attention (ops.md §1): pool,
 * qprep_rows, score_rows or score_rows_tc, top-k, prefill attention. */
#include <stdlib.h>
#include <string.h>

#include "harness/ops/qsa_pipeline.h"

static const char *const scorer_names[] = {"rows", "tc", NULL};

static const struct param params[] = {
    {"rows", PARAM_INT, false, "2", 0, UINT32_MAX, NULL, "query rows", 1},
    {"pos", PARAM_INT, false, "37", 0, UINT32_MAX, NULL, "position of the first", 0},
    {"topk", PARAM_INT, false, "4", 0, UINT32_MAX, NULL, "blocks to select", 1},
    {"ratio", PARAM_INT, false, "4", 0, UINT32_MAX, NULL, "tokens of a block", 1},
    {"scorer", PARAM_ENUM, false, "rows", 0, 0, scorer_names, "which kernel scores", 0},
    {"heads", PARAM_INT, false, "4", 0, UINT32_MAX, NULL, "heads of the indexer", 1},
    {"ihd", PARAM_INT, false, "32", 0, UINT32_MAX, NULL, "channels of them", 32},
    {"rot", PARAM_INT, false, "16", 0, UINT32_MAX, NULL, "rotated channels", 0},
    {"theta", PARAM_REAL, false, "1e7", 0, 0, NULL, "base of the rotation", 0},
    {"eps", PARAM_REAL, false, "1e-6", 0, 0, NULL, "of the norm", 0},
    {"norm", PARAM_ENUM, false, "random", 0, 0, qsa_norm_names, "weights of the norm", 0},
    {"qkpad", PARAM_OFFSET, true, "+0", -(INT64_C(1) << 32), INT64_C(1) << 32, NULL,
     "columns of a row of qk behind the queries", 0},
    {"pad", PARAM_OFFSET, true, "+0", -(INT64_C(1) << 32), INT64_C(1) << 32, NULL,
     "columns of a row of scores past the blocks", 0},
    {"block", PARAM_INT, false, "16", 0, UINT32_MAX, NULL, "slots of a page", 1},
    {"nq", PARAM_INT, false, "2", 0, UINT32_MAX, NULL, "query heads", 1},
    {"nkv", PARAM_INT, false, "1", 0, UINT32_MAX, NULL, "heads of the cache", 1},
    {"hd", PARAM_INT, false, "32", 0, UINT32_MAX, NULL, "channels of them", 32},
    {"scale", PARAM_REAL, false, "0.125", 0, 0, NULL, "softmax scale", 1},
    {"fold", PARAM_OFFSET, true, "+0", -8, 8, NULL, "2^fold moved from the queries to the scale",
     0},
    {"double", PARAM_INT, true, "0", 0, 1, NULL, "values twice as large", 0},
    {"change", PARAM_INT, true, "-1", -1, INT32_MAX, NULL,
     "from this token on the data is other data", -1},
    {"pages", PARAM_ENUM, false, "shuffled", 0, 0, qsa_page_names, "order of physical pages", 0},
    {"spare", PARAM_OFFSET, true, "+1", -4096, 4096, NULL, "table entries past the sequence", 0},
    {"pageseed", PARAM_INT, true, "0", 0, UINT32_MAX, NULL, "another order of pages", 0},
    {"index", PARAM_ENUM, false, "normal", 0, 0, qsa_index_regimes, "raw keys, index queries", 0},
    {"regime", PARAM_ENUM, false, "normal", 0, 0, qsa_attention_regimes, "attention's values", 0},
    {"seed", PARAM_SEED, false, "0x1", 0, 0, NULL, "of every byte", 0},
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

static bool ref_accepts(const struct case_line *c, const struct instance *in,
                        struct ref_refusal *why)
{
    struct qsa_pipeline p;
    qsa_pipeline_read(c, &p);
    return qsa_pipeline_ref_accepts(&p, in, why);
}

static enum gpu_status gpu_check(const struct case_line *c, const struct instance *in,
                                 struct gpu_report *report)
{
    struct qsa_pipeline p;
    qsa_pipeline_read(c, &p);
    return qsa_pipeline_gpu_check(&p, in, report);
}

static bool build(const struct case_line *c, struct instance *in)
{
    struct qsa_pipeline p;
    qsa_pipeline_read(c, &p);
    uint64_t list_shape[] = {p.rows, p.topk}, out_shape[] = {p.rows, p.nq, p.hd};
    return qsa_pipeline_build(&p, c, in) &&
           instance_add(in, "out", DTYPE_BF16, ROLE_OUT, CONTRACT_BOUND, 3, out_shape,
                        "row,head,dim") &&
           instance_add(in, "legal", DTYPE_I32, ROLE_OUT, CONTRACT_ANY, 2, list_shape, "row,slot");
}

static enum gpu_status launch(const struct gpu_target *targets, const struct case_line *c,
                              const struct instance *in, const struct gpu_buffer *buffers,
                              struct gpu_report *report)
{
    struct qsa_pipeline p;
    struct qsa_run r = {&p, in, buffers, &targets[0], report};
    bool all = false;
    qsa_pipeline_read(c, &p);
    uint64_t bytes = (uint64_t)p.rows * p.topk * sizeof(int32_t);
    int32_t *legal = malloc(bytes + 1);
    enum gpu_status status = legal ? qsa_run_pool(&r) : GPU_INFRA;
    if (status == GPU_OK) status = qsa_run_qprep_rows(&r, "q_index");
    if (status == GPU_OK) status = qsa_run_score_rows(&r, "scores");
    if (status == GPU_OK) status = qsa_run_topk(&r);
    if (status == GPU_OK) status = qsa_run_read_lists(&r, legal, &all);
    if (status == GPU_OK) status = qsa_run_upload(&r, "legal", legal, bytes);
    if (status == GPU_OK) status = qsa_run_attention(&r, legal, all ? "lists" : "legal", "out");
    free(legal);
    return status;
}

static void oracle(const struct case_line *c, const struct instance *in,
                   const struct ref_error_model *model, const uint8_t *const *got,
                   struct expected *e)
{
    struct qsa_judge j = {.c = c, .in = in, .model = model, .got = got, .e = e};
    qsa_pipeline_read(c, &j.p);
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

static void sample_wild(struct case_line *c, struct rng *r)
{
    sample(c, r, TIER_QUICK, rng_u32(r));
    for (uint32_t faults = (uint32_t)rng_range(r, 0, 2); faults; faults--) {
        switch (rng_u32(r) % 8) {
        case 0:
            case_set_int(c, "qkpad", rng_range(r, -2, 2));
            break;
        case 1:
            case_set_int(c, "pad", rng_range(r, -2, 2));
            break;
        case 2:
            case_set_enum(c, "scorer", "tc");
            break;
        default:
            qsa_pipeline_absurd(c, r);
        }
    }
    if (rng_one_in(r, 30)) case_set_int(c, "rows", 0);
}

static bool edit_later(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    int64_t pos = case_int(base, "pos"), rows = case_int(base, "rows");
    if (case_int(base, "change") >= 0 || rows < 2) return false;
    case_set_int(changed, "change", rng_range(r, pos + 1, pos + rows - 1));
    return true;
}

static int64_t row_before_change(const struct case_line *base, const struct case_line *changed,
                                 int64_t row)
{
    return case_int(base, "pos") + row < case_int(changed, "change") ? row : -1;
}

enum { RELATIONS_ON_ROWS = 3, RELATION_VALUES_DOUBLED = 3 };

static const struct relation relations[] = {
    {"row-alone", RELATION_SAME_BITS, qsa_edit_alone, qsa_base_row},
    {"first-rows-dropped", RELATION_SAME_BITS, qsa_edit_chunk, qsa_base_row},
    {"later-tokens-changed", RELATION_SAME_BITS, edit_later, row_before_change},
    {"values-doubled", RELATION_DOUBLED, qsa_attention_edit_double, NULL},
    {"pages-permuted", RELATION_SAME_BITS, qsa_edit_pages, NULL},
    {"block-size-changed", RELATION_SAME_BITS, qsa_edit_block, NULL},
    {NULL, RELATION_SAME_BITS, NULL, NULL}};

/* Block keys have no query rows, and a row of scores is as wide as the last row's blocks. */
static bool covers(const struct relation *relation, const struct tensor *output)
{
    bool attention = !strcmp(output->name, "out");
    if (relation == &relations[RELATION_VALUES_DOUBLED]) return attention;
    if (relation >= &relations[RELATIONS_ON_ROWS]) return true;
    return attention || !strcmp(output->name, "q_index") || !strcmp(output->name, "lists");
}

static const char *const modules[] = {"qsa_indexer", NULL};

const struct op op_qsa_prefill_pipeline = {
    .name = "qsa_prefill_pipeline",
    .modules = modules,
    .family = "qsa",
    .summary =
        "consecutive queries from raw keys to attention: pool, qprep, scores, top-k, attention",
    .contract = CONTRACT_SELECT,
    .params = params,
    .n_params = sizeof params / sizeof *params,
    .presets = presets,
    .always = always,
    .model = &qsa_attention_model,
    .relations = relations,
    .relation_covers = covers,
    .sample = sample,
    .sample_wild = sample_wild,
    .ref_accepts = ref_accepts,
    .gpu_check = gpu_check,
    .build = build,
    .launch = launch,
    .oracle = oracle,
};
