/* qsa_decode_pipeline: one query from raw keys to attention (ops.md §1): pool, qprep, score,
 * top-k, gather, paged decode. Between top-k and gather the host turns blocks into tokens, as a
 * server does. Beside them run the kernels that must agree: the _rows kernels on the one row, bit
 * for bit, and prefill attention straight from the pages, within the same limits. */
#include <stdlib.h>
#include <string.h>

#include "harness/ops/qsa_pipeline.h"

static const struct param params[] = {
    COUNT_KEY("pos", "37", "position of the query", 0),
    COUNT_KEY("topk", "4", "blocks to select", 1),
    COUNT_KEY("ratio", "4", "tokens of a block", 1),
    COUNT_KEY("heads", "4", "heads of the indexer", 1),
    COUNT_KEY("ihd", "32", "channels of them", 32),
    COUNT_KEY("rot", "16", "rotated channels", 0),
    REAL_KEY("theta", "1e7", "base of the rotation", 0),
    REAL_KEY("eps", "1e-6", "of the norm", 0),
    ENUM_KEY("norm", "random", qsa_norm_names, "weights of the norm", 0),
    COUNT_KEY("block", "16", "slots of a page", 1),
    COUNT_KEY("gblock", "16", "slots of a page of the gathered tokens", 1),
    COUNT_KEY("nq", "2", "query heads", 1),
    COUNT_KEY("nkv", "1", "heads of the cache", 1),
    COUNT_KEY("hd", "32", "channels of them", 32),
    REAL_KEY("scale", "0.125", "softmax scale", 1),
    {"fold", PARAM_OFFSET, true, "+0", -8, 8, NULL, "2^fold moved from the queries to the scale",
     0},
    RARE_FLAG_KEY("double", "values twice as large"),
    ENUM_KEY("pages", "shuffled", qsa_page_names, "order of physical pages", 0),
    {"spare", PARAM_OFFSET, true, "+1", -4096, 4096, NULL, "table entries past the sequence", 0},
    RARE_COUNT_KEY("pageseed", "0", "another order of pages", 0),
    ENUM_KEY("index", "normal", qsa_index_regimes, "raw keys, index queries", 0),
    ENUM_KEY("regime", "normal", qsa_attention_regimes, "attention's values", 0),
    SEED_KEY,
};

static const struct preset presets[] = {
    {"qwen38", "topk=512,ratio=4,heads=4,ihd=128,rot=64,theta=1e7,eps=1e-6,block=16,nq=24,nkv=2,"
               "hd=256,scale=0.0625"},
    {NULL, NULL}};

static const char *const always[] = {"qsa_decode_pipeline:model=qwen38,pos=2055,nq=2,seed=0x38",
                                     "qsa_decode_pipeline:pos=11998,topk=100,heads=1,ihd=32,rot=0,"
                                     "nq=1,hd=96,index=relu_ties,seed=0x39",
                                     "qsa_decode_pipeline:pos=2,topk=2048,seed=0x3a", NULL};

static const struct number numbers[] = {
    {"rows", "1"},
    {"qkw", "heads*ihd"},
    QSA_PIPELINE_NUMBERS,
    {"score_stride", "blocks"},
    {"block_size", "block"},
    /* Tokens that are gathered: blocks of the list, and the tail. */
    {"gathered", "min(blocks, topk)*ratio + seq_len % ratio"},
    {"gathered_pages", "ceil(gathered/gblock)"},
};

static const struct step steps[] = {
    {&interface_qsa_block_pool, QSA_POOL_BINDINGS},
    {&interface_qsa_qprep, "q_in = qk, " QSA_QPREP_BINDINGS},
    {&interface_qsa_score, "q = q_index, n_blocks = blocks, n_heads = heads, hd = ihd"},
    {&interface_qsa_topk_rows},
    {&interface_qsa_gather, "n_sel = gathered, k_out = k_sel, v_out = v_sel"},
    {&interface_paged_decode_attn,
     "k_cache = k_sel, v_cache = v_sel, block_table = identity, table_len = gathered_pages, "
     "num_pages = gathered_pages, seq_len = gathered, block_size = gblock"},
    {&interface_qsa_qprep_rows, "n_heads = heads, hd = ihd, q_out = q_index_rows"},
    {&interface_qsa_score_rows, QSA_SCORE_BINDINGS ", scores = scores_rows"},
    {&interface_qsa_prefill_attn, "lists = legal, attn_out = out_prefill"},
    {0}};

static bool fill_identity(const struct filling *f)
{
    for (uint64_t i = 0; i < f->t->elems; i++) ((int32_t *)(void *)f->t->data)[i] = (int32_t)i;
    return true;
}

/* The gathered caches end in the middle of a page: slots past the last token belong to nobody. */
#define GATHERED                                                                                  \
    .dtype = DTYPE_BF16, .shape = "gathered_pages*gblock, nkv, hd", .owned = "gathered, nkv, hd", \
    .dims = "slot,head,dim"
#define OF_THE_ROW(type, rest, names) .dtype = type, .shape = "1, " rest, .dims = "row," names

static const struct array arrays[] = {
    QSA_PIPELINE_INPUTS,
    {"block_keys", ARRAY_EXACT},
    {"q_index", ARRAY_EXACT, OF_THE_ROW(DTYPE_F32, "heads, ihd", "head,dim")},
    {"scores", ARRAY_EXACT, OF_THE_ROW(DTYPE_F32, "blocks", "block")},
    {"lists", ARRAY_EXACT},
    {"selection", ARRAY_SELECT, .alias_of = "lists"},
    {"identity", ARRAY_IN, fill_identity},
    {"sel", ARRAY_EXACT},
    {"k_sel", ARRAY_EXACT, GATHERED},
    {"v_sel", ARRAY_EXACT, GATHERED},
    {"out", ARRAY_BOUND, OF_THE_ROW(DTYPE_BF16, "nq, hd", "head,dim")},
    {"q_index_rows", ARRAY_EXACT},
    {"scores_rows", ARRAY_EXACT},
    {"out_prefill", ARRAY_BOUND},
    {"legal", ARRAY_SCRATCH},
};

/* The tokens of a legal list in its order, then the tail; slots that are left hold token 0, so that
 * a short list from a wrong kernel can still be followed to the end. */
static void expand(const struct case_line *c, const int32_t *legal, int32_t *sel)
{
    uint32_t n = case_number_u32(c, "gathered"), ratio = case_u32(c, "ratio"), used = 0;
    uint32_t topk = case_u32(c, "topk"), len = case_number_u32(c, "seq_len");
    for (uint32_t i = 0; i < topk; i++) {
        for (uint32_t t = 0; legal[i] >= 0 && t < ratio; t++)
            sel[used++] = legal[i] * (int32_t)ratio + (int32_t)t;
    }
    for (uint32_t t = len / ratio * ratio; t < len; t++) sel[used++] = (int32_t)t;
    while (used < n) sel[used++] = 0;
}

/* Between top-k and gather: the list as tokens, on the host and on the device. */
static enum gpu_status select_tokens(struct qsa_run *r, int32_t *sel)
{
    enum gpu_status status = qsa_run_read_lists(r);
    if (status != GPU_OK) return status;
    expand(r->c, r->legal, sel);
    return qsa_run_upload(r, "sel", 0, sel, case_number_u32(r->c, "gathered") * sizeof *sel);
}

static enum gpu_status run_gather(const struct qsa_run *r, const struct step *step,
                                  const int32_t *sel)
{
    struct gpu_qsa_gather a = {0};
    step_gpu_arguments(step, r->c, r->in, r->buffers, &a, NULL);
    a.host_sel = sel;
    return step->kernel->launch(r->target, &a, r->report);
}

static enum gpu_status run(struct qsa_run *r, int32_t *sel)
{
    enum gpu_status status = GPU_OK;
    for (const struct step *step = steps; step->kernel && status == GPU_OK; step++) {
        if (step->kernel == &interface_qsa_gather) {
            status = select_tokens(r, sel);
            if (status == GPU_OK) status = run_gather(r, step, sel);
        } else if (step->kernel == &interface_qsa_prefill_attn) {
            status = qsa_run_attention(r);
        } else {
            status = qsa_run_step(r, step);
        }
    }
    return status;
}

static enum gpu_status launch(const struct gpu_target *targets, const struct case_line *c,
                              const struct instance *in, const struct gpu_buffer *buffers,
                              struct gpu_report *report)
{
    struct qsa_run r = {c, in, buffers, &targets[0], report, NULL, false};
    int32_t *sel = malloc(case_number_u32(c, "gathered") * sizeof *sel + 1);
    r.legal = malloc(case_u32(c, "topk") * sizeof *r.legal);
    enum gpu_status status = r.legal && sel ? run(&r, sel) : GPU_INFRA;
    free(r.legal);
    free(sel);
    return status;
}

static void judge_gather(const struct qsa_judge *j)
{
    int32_t *sel = (int32_t *)(void *)qsa_judge_of(j, "sel")->exact;
    struct ref_qsa_gather g = {0};
    expand(j->c, j->legal, sel);
    step_ref_arguments(qsa_pipeline_step(j->c, &interface_qsa_gather), j->c, j->in, &g, NULL);
    g.sel = sel;
    ref_qsa_gather(&g, (uint16_t *)(void *)qsa_judge_of(j, "k_sel")->exact,
                   (uint16_t *)(void *)qsa_judge_of(j, "v_sel")->exact);
}

/* What a kernel for many rows makes of the one row is what the kernel for one made. */
static void judge_twin(const struct qsa_judge *j, const char *name, const char *of)
{
    const struct tensor *t = instance_find(j->in, name);
    memcpy(qsa_judge_of(j, name)->exact, qsa_judge_got(j, of),
           tensor_logical_elems(t) * dtype_bytes(t->dtype));
}

static void oracle(const struct case_line *c, const struct instance *in,
                   const struct ref_error_model *model, const uint8_t *const *got,
                   struct expected *e)
{
    struct qsa_judge j = {.c = c, .in = in, .model = model, .got = got, .e = e};
    if (!qsa_judge_open(&j)) return;
    qsa_judge_keys_and_queries(&j);
    qsa_judge_lists(&j);
    judge_gather(&j);
    qsa_judge_attention(&j, "out");
    qsa_judge_attention(&j, "out_prefill");
    judge_twin(&j, "q_index_rows", "q_index");
    judge_twin(&j, "scores_rows", "scores");
    qsa_judge_close(&j);
}

static void sample(struct case_line *c, struct rng *r, enum tier tier, uint64_t index)
{
    qsa_pipeline_sample(c, r, tier, index);
    case_set_int(c, "gblock", rng_range(r, 1, 40));
}

static const struct relation relations[] = {
    {QSA_PAGES_PERMUTED},
    {QSA_BLOCK_SIZE_CHANGED},
    {"gathered-block-size-changed", RELATION_SAME_BITS, NULL, "gblock = gblock + draw(1, 9)"},
    {QSA_VALUES_DOUBLED, .outputs = "v_sel, out, out_prefill"},
    {QSA_SCALE_FOLDED},
    {0}};

const struct op op_qsa_decode_pipeline = {
    .name = "qsa_decode_pipeline",
    .modules = (const char *const[]){"qsa_indexer", NULL},
    .family = "qsa",
    .summary = "one query from raw keys to attention: pool, qprep, score, top-k, gather, decode",
    .contract = CONTRACT_SELECT,
    USUAL_TABLES,
    .steps = steps,
    .model = &qsa_decode_model,
    .wild = "pos topk ratio heads ihd rot block gblock nq nkv hd theta eps scale spare",
    .lay_out = qsa_lay_out,
    .fill = qsa_pipeline_fill_cache,
    .launch = launch,
    .oracle = oracle,
};
