/* qsa_decode_pipeline: one query from raw keys to attention (ops.md §1): pool, qprep, score,
 * top-k, gather, paged decode. Between top-k and gather the host turns blocks into tokens, as a
 * server does. Beside them run the kernels that must agree: the _rows kernels on the one row, bit
 * for bit, and prefill attention straight from the pages, within the same limits. */
#include <stdlib.h>
#include <string.h>

#include "harness/ops/qsa_pipeline.h"

static const struct param params[] = {
    {"pos", PARAM_INT, false, "37", 0, UINT32_MAX, NULL, "position of the query", 0},
    {"topk", PARAM_INT, false, "4", 0, UINT32_MAX, NULL, "blocks to select", 1},
    {"ratio", PARAM_INT, false, "4", 0, UINT32_MAX, NULL, "tokens of a block", 1},
    {"heads", PARAM_INT, false, "4", 0, UINT32_MAX, NULL, "heads of the indexer", 1},
    {"ihd", PARAM_INT, false, "32", 0, UINT32_MAX, NULL, "channels of them", 32},
    {"rot", PARAM_INT, false, "16", 0, UINT32_MAX, NULL, "rotated channels", 0},
    {"theta", PARAM_REAL, false, "1e7", 0, 0, NULL, "base of the rotation", 0},
    {"eps", PARAM_REAL, false, "1e-6", 0, 0, NULL, "of the norm", 0},
    {"norm", PARAM_ENUM, false, "random", 0, 0, qsa_norm_names, "weights of the norm", 0},
    {"block", PARAM_INT, false, "16", 0, UINT32_MAX, NULL, "slots of a page", 1},
    {"gblock", PARAM_INT, false, "16", 0, UINT32_MAX, NULL,
     "slots of a page of the gathered tokens", 1},
    {"nq", PARAM_INT, false, "2", 0, UINT32_MAX, NULL, "query heads", 1},
    {"nkv", PARAM_INT, false, "1", 0, UINT32_MAX, NULL, "heads of the cache", 1},
    {"hd", PARAM_INT, false, "32", 0, UINT32_MAX, NULL, "channels of them", 32},
    {"scale", PARAM_REAL, false, "0.125", 0, 0, NULL, "softmax scale", 1},
    {"fold", PARAM_OFFSET, true, "+0", -8, 8, NULL, "2^fold moved from the queries to the scale",
     0},
    {"double", PARAM_INT, true, "0", 0, 1, NULL, "values twice as large", 0},
    {"pages", PARAM_ENUM, false, "shuffled", 0, 0, qsa_page_names, "order of physical pages", 0},
    {"spare", PARAM_OFFSET, true, "+1", -4096, 4096, NULL, "table entries past the sequence", 0},
    {"pageseed", PARAM_INT, true, "0", 0, UINT32_MAX, NULL, "another order of pages", 0},
    {"index", PARAM_ENUM, false, "normal", 0, 0, qsa_index_regimes, "raw keys, index queries", 0},
    {"regime", PARAM_ENUM, false, "normal", 0, 0, qsa_attention_regimes, "attention's values", 0},
    {"seed", PARAM_SEED, false, "0x1", 0, 0, NULL, "of every byte", 0},
};

static const struct preset presets[] = {
    {"qwen38", "topk=512,ratio=4,heads=4,ihd=128,rot=64,theta=1e7,eps=1e-6,block=16,nq=24,nkv=2,"
               "hd=256,scale=0.0625"},
    {NULL, NULL}};

static const char *const always[] = {"qsa_decode_pipeline:model=qwen38,pos=2055,nq=2,seed=0x38",
                                     "qsa_decode_pipeline:pos=11998,topk=100,heads=1,ihd=32,rot=0,"
                                     "nq=1,hd=96,index=relu_ties,seed=0x39",
                                     "qsa_decode_pipeline:pos=2,topk=2048,seed=0x3a", NULL};

/* Tokens that are gathered: blocks of the list, and the tail. */
static uint32_t gathered(const struct qsa_pipeline *p)
{
    uint32_t blocks = p->blocks < p->topk ? p->blocks : p->topk;
    return qsa_sum_u32((uint64_t)blocks * p->ratio + (p->ratio ? p->len % p->ratio : 0), 0);
}

static uint32_t gathered_pages(const struct case_line *c, const struct qsa_pipeline *p)
{
    uint64_t block = case_u32(c, "gblock");
    return block ? (uint32_t)((gathered(p) + block - 1) / block) : 0;
}

static void gpu_gather(const struct qsa_pipeline *p, const struct instance *in,
                       struct gpu_qsa_gather *a)
{
    *a = (struct gpu_qsa_gather){.n_sel = gathered(p),
                                 .table_len = p->table_len,
                                 .seq_len = p->len,
                                 .block_size = p->block,
                                 .nkv = p->nkv,
                                 .hd = p->hd,
                                 .ratio = p->ratio};
    if (!in) return;
    a->num_pages = qsa_num_pages(in);
    a->host_block_table = instance_data(in, "block_table");
}

static void gpu_decode(const struct case_line *c, const struct qsa_pipeline *p,
                       const struct instance *in, struct gpu_paged_decode_attn *a)
{
    *a = (struct gpu_paged_decode_attn){.table_len = gathered_pages(c, p),
                                        .num_pages = gathered_pages(c, p),
                                        .seq_len = gathered(p),
                                        .block_size = case_u32(c, "gblock"),
                                        .nq = p->nq,
                                        .nkv = p->nkv,
                                        .hd = p->hd,
                                        .inv_sqrt_d = p->scale};
    if (in) a->host_block_table = instance_data(in, "identity");
}

static bool ref_accepts(const struct case_line *c, const struct instance *in,
                        struct ref_refusal *why)
{
    struct qsa_pipeline p;
    struct gpu_qsa_gather a;
    struct gpu_paged_decode_attn d;
    qsa_pipeline_read(c, &p);
    gpu_gather(&p, in, &a);
    gpu_decode(c, &p, in, &d);
    struct ref_qsa_gather gather = {.n_sel = a.n_sel,
                                    .table_len = a.table_len,
                                    .num_pages = a.num_pages,
                                    .seq_len = a.seq_len,
                                    .block_size = a.block_size,
                                    .nkv = a.nkv,
                                    .hd = a.hd,
                                    .ratio = a.ratio,
                                    .block_table = a.host_block_table};
    struct ref_paged_decode_attn decode = {.table_len = d.table_len,
                                           .num_pages = d.num_pages,
                                           .seq_len = d.seq_len,
                                           .block_size = d.block_size,
                                           .nq = d.nq,
                                           .nkv = d.nkv,
                                           .hd = d.hd,
                                           .inv_sqrt_d = d.inv_sqrt_d,
                                           .block_table = d.host_block_table};
    return qsa_pipeline_ref_accepts(&p, in, why) && ref_qsa_gather_accepts(&gather, why) &&
           ref_paged_decode_attn_accepts(&decode, why);
}

static enum gpu_status gpu_check(const struct case_line *c, const struct instance *in,
                                 struct gpu_report *report)
{
    struct qsa_pipeline p;
    struct gpu_qsa_gather gather;
    struct gpu_paged_decode_attn decode;
    qsa_pipeline_read(c, &p);
    gpu_gather(&p, in, &gather);
    gpu_decode(c, &p, in, &decode);
    enum gpu_status status = qsa_pipeline_gpu_check(&p, in, report);
    if (status == GPU_OK) status = gpu_qsa_gather_check(&gather, report);
    return status == GPU_OK ? gpu_paged_decode_attn_check(&decode, report) : status;
}

/* The gathered caches end in the middle of a page: slots past the last token belong to nobody. */
static bool add_gathered(const struct case_line *c, const struct qsa_pipeline *p,
                         struct instance *in)
{
    uint64_t pages = gathered_pages(c, p), n = gathered(p), token = (uint64_t)p->nkv * p->hd;
    uint64_t sel_shape[] = {n}, table_shape[] = {pages}, shape[] = {n, p->nkv, p->hd};
    uint64_t stride[] = {token, p->hd, 1}, elems = pages * case_u32(c, "gblock") * token;
    struct tensor *table =
        instance_add(in, "identity", DTYPE_I32, ROLE_IN, CONTRACT_ANY, 1, table_shape, "page");
    for (uint64_t i = 0; table && i < pages; i++) ((int32_t *)(void *)table->data)[i] = (int32_t)i;
    return table &&
           instance_add(in, "sel", DTYPE_I32, ROLE_OUT, CONTRACT_EXACT, 1, sel_shape, "slot") &&
           instance_add_strided(in, "k_sel", DTYPE_BF16, ROLE_OUT, CONTRACT_EXACT, 3, shape, stride,
                                0, elems, "slot,head,dim") &&
           instance_add_strided(in, "v_sel", DTYPE_BF16, ROLE_OUT, CONTRACT_EXACT, 3, shape, stride,
                                0, elems, "slot,head,dim");
}

static bool build(const struct case_line *c, struct instance *in)
{
    struct qsa_pipeline p;
    qsa_pipeline_read(c, &p);
    uint64_t q_shape[] = {1, p.heads, p.ihd}, score_shape[] = {1, p.blocks};
    uint64_t list_shape[] = {1, p.topk}, out_shape[] = {1, p.nq, p.hd};
    return qsa_pipeline_build(&p, c, in) && add_gathered(c, &p, in) &&
           instance_add(in, "out", DTYPE_BF16, ROLE_OUT, CONTRACT_BOUND, 3, out_shape,
                        "row,head,dim") &&
           instance_add(in, "q_index_rows", DTYPE_F32, ROLE_OUT, CONTRACT_EXACT, 3, q_shape,
                        "row,head,dim") &&
           instance_add(in, "scores_rows", DTYPE_F32, ROLE_OUT, CONTRACT_EXACT, 2, score_shape,
                        "row,block") &&
           instance_add(in, "out_prefill", DTYPE_BF16, ROLE_OUT, CONTRACT_BOUND, 3, out_shape,
                        "row,head,dim") &&
           instance_add(in, "legal", DTYPE_I32, ROLE_OUT, CONTRACT_ANY, 2, list_shape, "row,slot");
}

/* The tokens of a legal list in its order, then the tail; slots that are left hold token 0, so that
 * a short list from a wrong kernel can still be followed to the end. */
static void expand(const struct qsa_pipeline *p, const int32_t *legal, int32_t *sel)
{
    uint32_t n = gathered(p), used = 0;
    for (uint32_t i = 0; i < p->topk; i++) {
        for (uint32_t t = 0; legal[i] >= 0 && t < p->ratio; t++)
            sel[used++] = legal[i] * (int32_t)p->ratio + (int32_t)t;
    }
    for (uint32_t t = p->blocks * p->ratio; t < p->len; t++) sel[used++] = (int32_t)t;
    while (used < n) sel[used++] = 0;
}

static enum gpu_status run_index(const struct qsa_run *r)
{
    const struct qsa_pipeline *p = r->p;
    struct gpu_qsa_qprep qprep = {.q_in = qsa_run_buffer(r, "qk"),
                                  .q_norm_w = qsa_run_buffer(r, "q_norm_w"),
                                  .q_out = qsa_run_buffer(r, "q_index"),
                                  .n_heads = p->heads,
                                  .hd = p->ihd,
                                  .rot = p->rot,
                                  .pos = p->first_pos,
                                  .theta = p->theta,
                                  .eps = p->eps};
    struct gpu_qsa_score score = {.q = qsa_run_buffer(r, "q_index"),
                                  .block_keys = qsa_run_buffer(r, "block_keys"),
                                  .scores = qsa_run_buffer(r, "scores"),
                                  .n_blocks = p->blocks,
                                  .n_heads = p->heads,
                                  .hd = p->ihd};
    enum gpu_status status = qsa_run_pool(r);
    if (status == GPU_OK) status = gpu_qsa_qprep(r->target, &qprep, r->report);
    if (status == GPU_OK) status = gpu_qsa_score(r->target, &score, r->report);
    return status == GPU_OK ? qsa_run_topk(r) : status;
}

static enum gpu_status run_gather(const struct qsa_run *r, const int32_t *sel)
{
    struct gpu_qsa_gather a;
    gpu_gather(r->p, r->in, &a);
    a.host_sel = sel;
    a.k_cache = qsa_run_buffer(r, "k_cache");
    a.v_cache = qsa_run_buffer(r, "v_cache");
    a.block_table = qsa_run_buffer(r, "block_table");
    a.sel = qsa_run_buffer(r, "sel");
    a.k_out = qsa_run_buffer(r, "k_sel");
    a.v_out = qsa_run_buffer(r, "v_sel");
    enum gpu_status status = qsa_run_upload(r, "sel", sel, (uint64_t)a.n_sel * sizeof *sel);
    return status == GPU_OK ? gpu_qsa_gather(r->target, &a, r->report) : status;
}

static enum gpu_status run_decode(const struct qsa_run *r, const struct case_line *c)
{
    struct gpu_paged_decode_attn a;
    gpu_decode(c, r->p, r->in, &a);
    a.q = qsa_run_buffer(r, "q");
    a.k_cache = qsa_run_buffer(r, "k_sel");
    a.v_cache = qsa_run_buffer(r, "v_sel");
    a.block_table = qsa_run_buffer(r, "identity");
    a.out = qsa_run_buffer(r, "out");
    return gpu_paged_decode_attn(r->target, &a, r->report);
}

/* The same stages by the kernels for many rows. */
static enum gpu_status run_twins(const struct qsa_run *r, const int32_t *legal, bool all)
{
    uint64_t bytes = (uint64_t)r->p->topk * sizeof *legal;
    enum gpu_status status = qsa_run_qprep_rows(r, "q_index_rows");
    if (status == GPU_OK) status = qsa_run_score_rows(r, "scores_rows");
    if (status == GPU_OK) status = qsa_run_upload(r, "legal", legal, bytes);
    if (status != GPU_OK) return status;
    return qsa_run_attention(r, legal, all ? "lists" : "legal", "out_prefill");
}

static enum gpu_status launch(const struct gpu_target *targets, const struct case_line *c,
                              const struct instance *in, const struct gpu_buffer *buffers,
                              struct gpu_report *report)
{
    struct qsa_pipeline p;
    struct qsa_run r = {&p, in, buffers, &targets[0], report};
    bool all = false;
    qsa_pipeline_read(c, &p);
    int32_t *legal = malloc((uint64_t)p.topk * sizeof *legal);
    int32_t *sel = malloc((uint64_t)gathered(&p) * sizeof *sel + 1);
    enum gpu_status status = legal && sel ? run_index(&r) : GPU_INFRA;
    if (status == GPU_OK) status = qsa_run_read_lists(&r, legal, &all);
    if (status == GPU_OK) {
        expand(&p, legal, sel);
        status = run_gather(&r, sel);
    }
    if (status == GPU_OK) status = run_decode(&r, c);
    if (status == GPU_OK) status = run_twins(&r, legal, all);
    free(legal);
    free(sel);
    return status;
}

static void judge_gather(const struct qsa_judge *j)
{
    int32_t *sel = qsa_judge_exact(j, "sel");
    struct gpu_qsa_gather a;
    expand(&j->p, j->legal, sel);
    gpu_gather(&j->p, j->in, &a);
    struct ref_qsa_gather g = {.k_cache = instance_data(j->in, "k_cache"),
                               .v_cache = instance_data(j->in, "v_cache"),
                               .block_table = a.host_block_table,
                               .sel = sel,
                               .n_sel = a.n_sel,
                               .table_len = a.table_len,
                               .num_pages = a.num_pages,
                               .seq_len = a.seq_len,
                               .block_size = a.block_size,
                               .nkv = a.nkv,
                               .hd = a.hd,
                               .ratio = a.ratio};
    ref_qsa_gather(&g, qsa_judge_exact(j, "k_sel"), qsa_judge_exact(j, "v_sel"));
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
    judge_gather(&j);
    qsa_judge_attention(&j, "out");
    qsa_judge_attention(&j, "out_prefill");
    memcpy(qsa_judge_exact(&j, "q_index_rows"), qsa_judge_got(&j, "q_index"),
           (uint64_t)j.p.heads * j.p.ihd * sizeof(float));
    memcpy(qsa_judge_exact(&j, "scores_rows"), qsa_judge_got(&j, "scores"),
           (uint64_t)j.p.blocks * sizeof(float));
    qsa_judge_close(&j);
}

static void sample(struct case_line *c, struct rng *r, enum tier tier, uint64_t index)
{
    qsa_pipeline_sample(c, r, tier, index);
    case_set_int(c, "gblock", rng_range(r, 1, 40));
}

static void sample_wild(struct case_line *c, struct rng *r)
{
    sample(c, r, TIER_QUICK, rng_u32(r));
    for (uint32_t faults = (uint32_t)rng_range(r, 0, 2); faults; faults--)
        qsa_pipeline_absurd(c, r);
    if (rng_one_in(r, 20)) case_set_int(c, "gblock", 0);
}

static bool edit_gblock(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    case_set_int(changed, "gblock", case_int(base, "gblock") + rng_range(r, 1, 9));
    return true;
}

enum { RELATION_VALUES_DOUBLED = 3 };

static const struct relation relations[] = {
    {"pages-permuted", RELATION_SAME_BITS, qsa_edit_pages, NULL},
    {"block-size-changed", RELATION_SAME_BITS, qsa_edit_block, NULL},
    {"gathered-block-size-changed", RELATION_SAME_BITS, edit_gblock, NULL},
    {"values-doubled", RELATION_DOUBLED, qsa_attention_edit_double, NULL},
    {"scale-folded", RELATION_SAME_BITS, qsa_attention_edit_fold, NULL},
    {NULL, RELATION_SAME_BITS, NULL, NULL}};

static bool covers(const struct relation *relation, const struct tensor *output)
{
    if (relation != &relations[RELATION_VALUES_DOUBLED]) return true;
    return !strcmp(output->name, "v_sel") || !strcmp(output->name, "out") ||
           !strcmp(output->name, "out_prefill");
}

static const char *const modules[] = {"qsa_indexer", NULL};

const struct op op_qsa_decode_pipeline = {
    .name = "qsa_decode_pipeline",
    .modules = modules,
    .family = "qsa",
    .summary = "one query from raw keys to attention: pool, qprep, score, top-k, gather, decode",
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
