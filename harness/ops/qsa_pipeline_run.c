/* The stages of the QSA pipelines on the device. */
#include <stdlib.h>
#include <string.h>

#include "harness/ops/qsa_pipeline.h"

const struct step *qsa_pipeline_step(const struct case_line *c, const struct interface *kernel)
{
    const struct step *step = c->op->steps;
    while (step->kernel != kernel || !step_runs(step, c)) step++;
    return step;
}

enum gpu_status qsa_run_upload(const struct qsa_run *r, const char *name, uint64_t offset_bytes,
                               const void *data, uint64_t bytes)
{
    struct gpu_buffer buffer = r->buffers[instance_index(r->in, name)];
    return r->target->backend->upload(r->target->device, &buffer, offset_bytes, data, bytes,
                                      r->report);
}

/* The tensor-core scorer reads the padding rows, and must not care what they hold. */
static enum gpu_status poison_padding_rows(const struct qsa_run *r)
{
    const struct tensor *q = instance_find(r->in, "q_index");
    uint64_t n = q->elems - q->free_from;
    float *poison = malloc(n * sizeof *poison + 1);
    enum gpu_status status = GPU_INFRA;
    if (!poison) return status;
    poison_fill(poison, DTYPE_F32, n, r->in->poison);
    status =
        n ? qsa_run_upload(r, "q_index", q->free_from * sizeof *poison, poison, n * sizeof *poison)
          : GPU_OK;
    free(poison);
    return status;
}

enum gpu_status qsa_run_step(const struct qsa_run *r, const struct step *step)
{
    int32_t values[ARRAY_VALUES_MAX];
    union arguments a = {0};
    if (!step_runs(step, r->c)) return GPU_OK;
    if (step->kernel == &interface_qsa_qprep_rows) {
        enum gpu_status status = poison_padding_rows(r);
        if (status != GPU_OK) return status;
    }
    step_gpu_arguments(step, r->c, r->in, r->buffers, &a, values);
    return step->kernel->launch(r->target, &a, r->report);
}

enum gpu_status qsa_run_attention(const struct qsa_run *r)
{
    const struct step *step = qsa_pipeline_step(r->c, &interface_qsa_prefill_attn);
    struct gpu_qsa_prefill_attn a = {0};
    int32_t values[ARRAY_VALUES_MAX];
    step_gpu_arguments(step, r->c, r->in, r->buffers, &a, values);
    a.host_lists = r->legal;
    if (r->all_legal) a.lists = &r->buffers[instance_index(r->in, "lists")];
    return step->kernel->launch(r->target, &a, r->report);
}

bool qsa_pipeline_legal_list(const struct case_line *c, uint32_t row, const int32_t *list,
                             int32_t *legal)
{
    uint64_t complete = qsa_complete((uint64_t)case_u32(c, "pos") + row, case_u32(c, "ratio"));
    uint8_t *seen = calloc(complete + 1, 1);
    bool all = seen != NULL;
    for (uint32_t i = 0; i < case_u32(c, "topk"); i++) {
        bool block = list[i] >= 0 && (uint64_t)list[i] < complete;
        legal[i] = seen && block && !seen[list[i]] ? list[i] : -1;
        all = all && legal[i] == list[i];
        if (seen && block) seen[list[i]] = 1;
    }
    free(seen);
    return all;
}

enum gpu_status qsa_run_read_lists(struct qsa_run *r)
{
    const struct tensor *t = instance_find(r->in, "lists");
    uint64_t rows = t->shape[0], topk = t->shape[1], bytes = rows * topk * sizeof *r->legal;
    int32_t *lists = malloc(bytes + 1);
    enum gpu_status status = GPU_INFRA;
    if (lists)
        status = r->target->backend->download(r->target->device,
                                              &r->buffers[instance_index(r->in, "lists")], 0, lists,
                                              bytes, r->report);
    r->all_legal = true;
    for (uint32_t row = 0; status == GPU_OK && row < rows; row++) {
        if (!qsa_pipeline_legal_list(r->c, row, lists + row * topk, r->legal + row * topk))
            r->all_legal = false;
    }
    free(lists);
    return status == GPU_OK ? qsa_run_upload(r, "legal", 0, r->legal, bytes) : status;
}
