/* The launches of dsa_decode_pipeline. */
#include <stdlib.h>

#include "harness/ops/dsa_pipeline.h"

/* One run of the stages. */
struct run {
    const struct dsa_pipeline *p;
    const struct case_line *c;
    const struct instance *in;
    const struct gpu_buffer *buffers;
    const struct gpu_target *targets;
    struct gpu_report *report;
    int32_t values[ARRAY_VALUES_MAX]; /* of the geometry vector */
};

static enum gpu_status launch(const struct run *r, uint32_t index, const void *arguments)
{
    const struct step *step = &r->c->op->steps[index];
    return step->kernel->launch(&r->targets[step->module], arguments, r->report);
}

static void arguments_of(struct run *r, uint32_t index, void *arguments)
{
    step_gpu_arguments(&r->c->op->steps[index], r->c, r->in, r->buffers, arguments, r->values);
}

static enum gpu_status run_from(struct run *r, uint32_t first)
{
    enum gpu_status status = GPU_OK;
    for (uint32_t i = first; i < DSA_STEPS && status == GPU_OK; i++) {
        union arguments arguments = {0};
        arguments_of(r, i, &arguments);
        status = launch(r, i, &arguments);
    }
    return status;
}

/* The rest of a buffer from an element on. */
static struct gpu_buffer from(const struct run *r, const char *name, uint64_t elem)
{
    const struct tensor *t = instance_find(r->in, name);
    struct gpu_buffer part = r->buffers[t - r->in->tensors];
    part.address += elem * dtype_bytes(t->dtype);
    part.size_bytes -= elem * dtype_bytes(t->dtype);
    return part;
}

/* Paged keys: a launch fills or reads the pools of one page, which lie together. */
static enum gpu_status run_compress_page(struct run *r, uint32_t page, uint32_t physical)
{
    const struct dsa_pipeline *p = r->p;
    uint64_t pool = (uint64_t)page * p->page_pools;
    struct gpu_buffer keys = from(r, "pool_keys", physical * p->key_pitch);
    struct gpu_buffer indices = from(r, "pool_indices", pool * p->kpool);
    struct gpu_buffer valid = from(r, "pool_valid", pool);
    struct gpu_dsa_kpool_compress a = {0};
    arguments_of(r, DSA_STEP_COMPRESS, &a);
    a.pool_keys = &keys;
    a.pool_indices = &indices;
    a.pool_valid = &valid;
    a.pools = p->page_pools;
    a.first_key = (int32_t)(p->pad + pool * p->kpool);
    return launch(r, DSA_STEP_COMPRESS, &a);
}

static enum gpu_status run_scores_page(struct run *r, uint32_t row, uint32_t page,
                                       uint32_t physical)
{
    const struct dsa_pipeline *p = r->p;
    uint64_t pool = (uint64_t)page * p->page_pools;
    struct gpu_buffer q = from(r, "index_q", (uint64_t)row * p->index_heads * p->dim);
    struct gpu_buffer keys = from(r, "pool_keys", physical * p->key_pitch);
    struct gpu_buffer weights = from(r, "weights", (uint64_t)row * p->index_heads);
    struct gpu_buffer indices = from(r, "pool_indices", pool * p->kpool);
    struct gpu_buffer valid = from(r, "pool_valid", pool), q_pos = from(r, "q_pos", row);
    struct gpu_buffer out = from(r, "scores", (uint64_t)row * p->pools + pool);
    struct gpu_buffer cand = from(r, "valid_cand", (uint64_t)row * p->pools + pool);
    struct gpu_dsa_index_scores a = {0};
    arguments_of(r, DSA_STEP_SCORES, &a);
    a.Q = 1;
    a.P = p->page_pools;
    a.q = &q;
    a.pool_keys = &keys;
    a.weights = &weights;
    a.pool_indices = &indices;
    a.pool_valid = &valid;
    a.q_pos = &q_pos;
    a.out = &out;
    a.valid_cand = &cand;
    return launch(r, DSA_STEP_SCORES, &a);
}

static enum gpu_status run_paged(struct run *r, const uint32_t *pages)
{
    enum gpu_status status = GPU_OK;
    for (uint32_t i = 0; i < r->p->pool_pages && status == GPU_OK; i++)
        status = run_compress_page(r, i, pages[i]);
    for (uint32_t row = 0; row < r->p->rows; row++) {
        for (uint32_t i = 0; i < r->p->pool_pages && status == GPU_OK; i++)
            status = run_scores_page(r, row, i, pages[i]);
    }
    return status;
}

enum gpu_status dsa_pipeline_launch(const struct gpu_target *targets, const struct case_line *c,
                                    const struct instance *in, const struct gpu_buffer *buffers,
                                    struct gpu_report *report)
{
    struct dsa_pipeline p;
    struct run r = {&p, c, in, buffers, targets, report, {0}};
    dsa_pipeline_read(c, &p);
    if (!p.paged) return run_from(&r, DSA_STEP_COMPRESS);
    uint32_t *pages = dsa_pipeline_key_pages(c, &p);
    enum gpu_status status = pages ? run_paged(&r, pages) : GPU_INFRA;
    free(pages);
    return status == GPU_OK ? run_from(&r, DSA_STEP_TOPK) : status;
}
