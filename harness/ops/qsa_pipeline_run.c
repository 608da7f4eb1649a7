/* The stages of the QSA pipelines: arguments, refusals, launches. */
#include <stdlib.h>
#include <string.h>

#include "harness/ops/qsa_pipeline.h"

void qsa_pipeline_gpu_pool(const struct qsa_pipeline *p, struct gpu_qsa_block_pool *a)
{
    *a = (struct gpu_qsa_block_pool){.n_new = p->blocks,
                                     .S = p->len,
                                     .max_blocks = p->blocks,
                                     .ratio = p->ratio,
                                     .hd = p->ihd,
                                     .rot = p->rot,
                                     .block_size = p->block,
                                     .theta = p->theta,
                                     .eps = p->eps};
}

void qsa_pipeline_gpu_qprep_rows(const struct qsa_pipeline *p, struct gpu_qsa_qprep_rows *a)
{
    *a = (struct gpu_qsa_qprep_rows){.rows = p->rows,
                                     .first_pos = p->first_pos,
                                     .qkw = p->qkw,
                                     .n_heads = p->heads,
                                     .hd = p->ihd,
                                     .rot = p->rot,
                                     .theta = p->theta,
                                     .eps = p->eps};
}

void qsa_pipeline_gpu_scores(const struct qsa_pipeline *p, struct gpu_qsa_score_rows *a)
{
    *a = (struct gpu_qsa_score_rows){.rows = p->rows,
                                     .n_blocks_max = p->blocks,
                                     .first_pos = p->first_pos,
                                     .score_stride = p->score_stride,
                                     .ratio = p->ratio,
                                     .n_heads = p->heads,
                                     .hd = p->ihd};
}

void qsa_pipeline_gpu_topk(const struct qsa_pipeline *p, struct gpu_qsa_topk_rows *a)
{
    *a = (struct gpu_qsa_topk_rows){.rows = p->rows,
                                    .first_pos = p->first_pos,
                                    .score_stride = p->score_stride,
                                    .ratio = p->ratio,
                                    .topk = p->topk};
}

void qsa_pipeline_gpu_attn(const struct qsa_pipeline *p, const struct instance *in,
                           struct gpu_qsa_prefill_attn *a)
{
    *a = (struct gpu_qsa_prefill_attn){.rows = p->rows,
                                       .table_len = p->table_len,
                                       .first_pos = p->first_pos,
                                       .topk = p->topk,
                                       .ratio = p->ratio,
                                       .block_size = p->block,
                                       .nq = p->nq,
                                       .nkv = p->nkv,
                                       .hd = p->hd,
                                       .inv_sqrt_d = p->scale};
    if (!in) return;
    a->num_pages = qsa_num_pages(in);
    a->host_block_table = instance_data(in, "block_table");
}

enum gpu_status qsa_pipeline_gpu_check(const struct qsa_pipeline *p, const struct instance *in,
                                       struct gpu_report *report)
{
    struct gpu_qsa_block_pool pool;
    struct gpu_qsa_qprep_rows qprep;
    struct gpu_qsa_score_rows scores;
    struct gpu_qsa_topk_rows topk;
    struct gpu_qsa_prefill_attn attn;
    qsa_pipeline_gpu_pool(p, &pool);
    qsa_pipeline_gpu_qprep_rows(p, &qprep);
    qsa_pipeline_gpu_scores(p, &scores);
    qsa_pipeline_gpu_topk(p, &topk);
    qsa_pipeline_gpu_attn(p, in, &attn);
    enum gpu_status status = gpu_qsa_block_pool_check(&pool, report);
    if (status == GPU_OK) status = gpu_qsa_qprep_rows_check(&qprep, report);
    if (status == GPU_OK)
        status = p->tensor_core ? gpu_qsa_score_rows_tc_check(&scores, report)
                                : gpu_qsa_score_rows_check(&scores, report);
    if (status == GPU_OK) status = gpu_qsa_topk_rows_check(&topk, report);
    if (status == GPU_OK) status = gpu_qsa_prefill_attn_check(&attn, report);
    return status;
}

const struct gpu_buffer *qsa_run_buffer(const struct qsa_run *r, const char *name)
{
    return &r->buffers[instance_index(r->in, name)];
}

enum gpu_status qsa_run_pool(const struct qsa_run *r)
{
    struct gpu_qsa_block_pool a;
    qsa_pipeline_gpu_pool(r->p, &a);
    a.raw_keys = qsa_run_buffer(r, "raw_keys");
    a.k_norm_w = qsa_run_buffer(r, "k_norm_w");
    a.block_keys = qsa_run_buffer(r, "block_keys");
    return gpu_qsa_block_pool(r->target, &a, r->report);
}

enum gpu_status qsa_run_upload(const struct qsa_run *r, const char *name, const void *data,
                               uint64_t bytes)
{
    struct gpu_buffer buffer = *qsa_run_buffer(r, name);
    return r->target->backend->upload(r->target->device, &buffer, 0, data, bytes, r->report);
}

/* The tensor-core scorer reads the padding rows, and must not care what they hold. */
static enum gpu_status poison_padding_rows(const struct qsa_run *r, const char *name)
{
    uint64_t row = (uint64_t)r->p->heads * r->p->ihd, n = (r->p->buffer_rows - r->p->rows) * row;
    struct gpu_buffer buffer = *qsa_run_buffer(r, name);
    float *poison = malloc(n * sizeof *poison + 1);
    enum gpu_status status = GPU_INFRA;
    if (!poison) return status;
    poison_fill(poison, DTYPE_F32, n, r->in->poison);
    status =
        r->target->backend->upload(r->target->device, &buffer, r->p->rows * row * sizeof *poison,
                                   poison, n * sizeof *poison, r->report);
    free(poison);
    return status;
}

enum gpu_status qsa_run_qprep_rows(const struct qsa_run *r, const char *out)
{
    struct gpu_qsa_qprep_rows a;
    qsa_pipeline_gpu_qprep_rows(r->p, &a);
    a.qk = qsa_run_buffer(r, "qk");
    a.q_norm_w = qsa_run_buffer(r, "q_norm_w");
    a.q_out = qsa_run_buffer(r, out);
    enum gpu_status status = GPU_OK;
    if (r->p->buffer_rows > r->p->rows) status = poison_padding_rows(r, out);
    return status == GPU_OK ? gpu_qsa_qprep_rows(r->target, &a, r->report) : status;
}

enum gpu_status qsa_run_score_rows(const struct qsa_run *r, const char *out)
{
    struct gpu_qsa_score_rows a;
    qsa_pipeline_gpu_scores(r->p, &a);
    a.q = qsa_run_buffer(r, "q_index");
    a.block_keys = qsa_run_buffer(r, "block_keys");
    a.scores = qsa_run_buffer(r, out);
    return r->p->tensor_core ? gpu_qsa_score_rows_tc(r->target, &a, r->report)
                             : gpu_qsa_score_rows(r->target, &a, r->report);
}

enum gpu_status qsa_run_topk(const struct qsa_run *r)
{
    struct gpu_qsa_topk_rows a;
    qsa_pipeline_gpu_topk(r->p, &a);
    a.scores = qsa_run_buffer(r, "scores");
    a.lists = qsa_run_buffer(r, "lists");
    return gpu_qsa_topk_rows(r->target, &a, r->report);
}

bool qsa_pipeline_legal_list(const struct qsa_pipeline *p, uint32_t row, const int32_t *list,
                             int32_t *legal)
{
    uint64_t complete = qsa_complete((uint64_t)p->first_pos + row, p->ratio);
    uint8_t *seen = calloc(complete + 1, 1);
    bool all = seen != NULL;
    for (uint32_t i = 0; i < p->topk; i++) {
        bool block = list[i] >= 0 && (uint64_t)list[i] < complete;
        legal[i] = seen && block && !seen[list[i]] ? list[i] : -1;
        all = all && legal[i] == list[i];
        if (seen && block) seen[list[i]] = 1;
    }
    free(seen);
    return all;
}

enum gpu_status qsa_run_read_lists(const struct qsa_run *r, int32_t *legal, bool *all)
{
    uint64_t n = (uint64_t)r->p->rows * r->p->topk;
    int32_t *lists = malloc(n * sizeof *lists + 1);
    enum gpu_status status = GPU_INFRA;
    if (lists)
        status = r->target->backend->download(r->target->device, qsa_run_buffer(r, "lists"), 0,
                                              lists, n * sizeof *lists, r->report);
    *all = true;
    for (uint32_t row = 0; status == GPU_OK && row < r->p->rows; row++) {
        uint64_t at = (uint64_t)row * r->p->topk;
        if (!qsa_pipeline_legal_list(r->p, row, lists + at, legal + at)) *all = false;
    }
    free(lists);
    return status;
}

enum gpu_status qsa_run_attention(const struct qsa_run *r, const int32_t *legal, const char *lists,
                                  const char *out)
{
    struct gpu_qsa_prefill_attn a;
    qsa_pipeline_gpu_attn(r->p, r->in, &a);
    a.host_lists = legal;
    a.q = qsa_run_buffer(r, "q");
    a.k_cache = qsa_run_buffer(r, "k_cache");
    a.v_cache = qsa_run_buffer(r, "v_cache");
    a.block_table = qsa_run_buffer(r, "block_table");
    a.lists = qsa_run_buffer(r, lists);
    a.attn_out = qsa_run_buffer(r, out);
    return gpu_qsa_prefill_attn(r->target, &a, r->report);
}
