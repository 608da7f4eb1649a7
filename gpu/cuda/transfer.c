/* Moving bytes. Buffers with a mirror travel together: tables of small copies in pinned memory,
 * run by one kernel each way, because a hundred calls of the driver cost more than a small case.
 * The rest goes through a pinned stage. Everything is in the order of one stream. */
#include "internal.h"

#include <stdio.h>
#include <string.h>

#define TRANSFER_THREADS 512 /* 16 bytes a thread: GPU_CUDA_OP_BYTES a block */
#define VERIFY_THREADS 256
#define VERIFY_SLICES 64       /* blocks that share one range */
#define LARGE_FILL (64u << 10) /* from here on the driver's own fill is as good */

void gpu_cuda_helpers_load(struct gpu_cuda_device *d)
{
    struct gpu_report report = {0};
    cu_result rc;

    if (gpu_cuda_image_take(d, "helper kernels", gpu_cuda_helper_ptx, &d->helpers, &report)) {
        snprintf(d->info.helper_note, sizeof d->info.helper_note, "%.255s", report.text);
        return;
    }
    rc = d->api.module_function(&d->transfer, d->helpers->module, "gpu_cuda_transfer");
    if (rc == CU_OK) rc = d->api.module_function(&d->verify, d->helpers->module, "gpu_cuda_verify");
    if (rc != CU_OK)
        gpu_cuda_describe(&d->api, rc, d->info.helper_note, sizeof d->info.helper_note);
    d->info.helper_kernels = rc == CU_OK;
}

void gpu_cuda_helpers_disable(struct gpu_device *device)
{
    gpu_cuda_of(device)->info.helper_kernels = false;
}

static enum gpu_status run_helper(struct gpu_cuda_device *d, struct gpu_cuda_table *table,
                                  cu_function function, struct gpu_dim grid, unsigned threads,
                                  struct gpu_report *report)
{
    cu_address address = (cu_address)(uintptr_t)(table->ops + table->start);
    void *params[] = {&address};

    return gpu_cuda_result(
        d, d->api.launch(function, grid.x, grid.y, 1, threads, 1, 1, 0, d->stream, params, NULL),
        "cuLaunchKernel (helper)", report);
}

/* Without helper kernels: one driver call for each entry. */
static cu_result run_one(struct gpu_cuda_device *d, const struct gpu_cuda_op *op, bool to_host)
{
    if (!op->source)
        return d->api.fill_words(op->target, GPU_CUDA_RED_WORD, op->bytes / 4, d->stream);
    if (to_host)
        return d->api.copy_to_host((void *)(uintptr_t)op->target, op->source, op->bytes, d->stream);
    return d->api.copy_to_device(op->target, (const void *)(uintptr_t)op->source, op->bytes,
                                 d->stream);
}

static enum gpu_status run_table(struct gpu_cuda_device *d, struct gpu_cuda_table *table,
                                 bool to_host, struct gpu_report *report)
{
    enum gpu_status status = GPU_OK;
    uint32_t n = table->n - table->start;

    if (!n) return GPU_OK;
    d->in_flight = true;
    if (d->info.helper_kernels)
        status =
            run_helper(d, table, d->transfer, (struct gpu_dim){n, 1, 1}, TRANSFER_THREADS, report);
    for (uint32_t i = table->start; !d->info.helper_kernels && status == GPU_OK && i < table->n;
         i++)
        status = gpu_cuda_result(d, run_one(d, &table->ops[i], to_host), "copy or fill", report);
    if (status == GPU_OK) table->start = table->n;
    return status;
}

/* Adds a copy in pieces of one block's work; runs the table early when it is full. */
static enum gpu_status add(struct gpu_cuda_device *d, struct gpu_cuda_table *table, bool to_host,
                           uint64_t target, uint64_t source, uint64_t bytes,
                           struct gpu_report *report)
{
    uint64_t most = d->info.helper_kernels ? GPU_CUDA_OP_BYTES : bytes;

    for (uint64_t at = 0; at < bytes; at += most) {
        if (table->n == GPU_CUDA_TABLE_OPS) {
            enum gpu_status status = run_table(d, table, to_host, report);
            if (status == GPU_OK) status = gpu_cuda_wait(d, report);
            if (status != GPU_OK) return status;
        }
        table->ops[table->n++] = (struct gpu_cuda_op){
            .target = target + at,
            .source = source ? source + at : 0,
            .bytes = bytes - at < most ? bytes - at : most,
        };
    }
    return GPU_OK;
}

enum gpu_status gpu_cuda_fill(struct gpu_cuda_device *d, struct gpu_cuda_range range,
                              struct gpu_report *report)
{
    uint64_t bytes = range.hi > range.lo ? range.hi - range.lo : 0;

    if (bytes < LARGE_FILL) return add(d, &d->fills, false, range.lo, 0, bytes, report);
    d->in_flight = true;
    return gpu_cuda_result(d, d->api.fill_words(range.lo, GPU_CUDA_RED_WORD, bytes / 4, d->stream),
                           "cuMemsetD32Async", report);
}

enum gpu_status gpu_cuda_run_fills(struct gpu_cuda_device *d, struct gpu_report *report)
{
    return run_table(d, &d->fills, false, report);
}

static enum gpu_status add_mirror(struct gpu_cuda_device *d, const struct gpu_cuda_buffer *b,
                                  bool to_host, struct gpu_report *report)
{
    enum gpu_status status = GPU_OK;
    uint64_t host = (uint64_t)(uintptr_t)b->mirror;

    for (uint32_t i = 0; i < b->n_segments && status == GPU_OK; i++) {
        uint64_t device = b->segments[i].lo, bytes = b->segments[i].hi - device;
        status = add(d, &d->copies, to_host, to_host ? host : device, to_host ? device : host,
                     bytes, report);
        host += bytes;
    }
    return status;
}

enum gpu_status gpu_cuda_flush(struct gpu_cuda_device *d, struct gpu_report *report)
{
    /* A fill may lie under a mirror of a later buffer in the same region: fills go first. */
    enum gpu_status status = gpu_cuda_run_fills(d, report);

    for (struct gpu_cuda_buffer *b = d->live; b && status == GPU_OK; b = b->next) {
        if (b->dirty) status = add_mirror(d, b, false, report);
        b->dirty = b->dirty && status != GPU_OK;
        b->settled = b->settled || status == GPU_OK;
    }
    return status == GPU_OK ? run_table(d, &d->copies, false, report) : status;
}

/* Lists what lies outside the mirrors for comparison on the device. What does not fit the table
 * stays unchecked, and check_guards then compares it on the host. */
static enum gpu_status run_checks(struct gpu_cuda_device *d, struct gpu_report *report)
{
    struct gpu_cuda_table *table = &d->checks;

    for (struct gpu_cuda_buffer *b = d->live; b; b = b->next) {
        b->check_at = UINT32_MAX;
        b->far_checked = false;
        if (!d->info.helper_kernels || !b->settled || b->n_far > GPU_CUDA_TABLE_OPS - table->n)
            continue;
        b->check_at = table->n;
        for (uint32_t i = 0; i < b->n_far; i++) {
            uint64_t *result = &d->results[table->n];
            *result = 0;
            table->ops[table->n++] = (struct gpu_cuda_op){
                .target = b->far[i].lo,
                .source = b->far[i].hi,
                .result = (uint64_t)(uintptr_t)result,
            };
        }
    }
    if (table->n == table->start) return GPU_OK;
    enum gpu_status status =
        run_helper(d, table, d->verify, (struct gpu_dim){table->n - table->start, VERIFY_SLICES, 1},
                   VERIFY_THREADS, report);
    table->start = table->n;
    return status;
}

enum gpu_status gpu_cuda_pull(struct gpu_cuda_device *d, struct gpu_report *report)
{
    enum gpu_status status = GPU_OK;

    d->in_flight = true;
    for (struct gpu_cuda_buffer *b = d->live; b && status == GPU_OK; b = b->next)
        if (b->mirror && !b->dirty) status = add_mirror(d, b, true, report);
    if (status == GPU_OK) status = run_table(d, &d->copies, true, report);
    if (status == GPU_OK) status = run_checks(d, report);
    d->pulling = status == GPU_OK;
    return status;
}

enum gpu_status gpu_cuda_refresh(struct gpu_cuda_device *d, struct gpu_report *report)
{
    enum gpu_status status;

    if (d->pulled_epoch == d->launch_epoch) return GPU_OK;
    status = d->pulling ? GPU_OK : gpu_cuda_pull(d, report);
    return status == GPU_OK ? gpu_cuda_wait(d, report) : status;
}

/* A piece of the stage, at most half of it; waits for its earlier use to end when it is full. */
static enum gpu_status stage_piece(struct gpu_cuda_device *d, uint64_t wanted, uint8_t **piece,
                                   uint64_t *bytes, struct gpu_report *report)
{
    uint64_t most = GPU_CUDA_STAGE_BYTES / 2;

    *bytes = wanted < most ? wanted : most;
    if (d->stage_used + *bytes > GPU_CUDA_STAGE_BYTES) {
        enum gpu_status status = gpu_cuda_wait(d, report);
        if (status != GPU_OK) return status;
    }
    *piece = d->stage + d->stage_used;
    d->stage_used += gpu_cuda_up(*bytes, 256);
    d->in_flight = true;
    return GPU_OK;
}

enum gpu_status gpu_cuda_stage_in(struct gpu_cuda_device *d, uint64_t address, const void *source,
                                  uint64_t bytes, struct gpu_report *report)
{
    enum gpu_status status = gpu_cuda_run_fills(d, report);

    for (uint64_t at = 0, n; at < bytes && status == GPU_OK; at += n) {
        uint8_t *piece;
        status = stage_piece(d, bytes - at, &piece, &n, report);
        if (status != GPU_OK) break;
        memcpy(piece, (const uint8_t *)source + at, n);
        status = gpu_cuda_result(d, d->api.copy_to_device(address + at, piece, n, d->stream),
                                 "cuMemcpyHtoDAsync", report);
    }
    return status;
}

enum gpu_status gpu_cuda_stage_out(struct gpu_cuda_device *d, void *target, uint64_t address,
                                   uint64_t bytes, struct gpu_report *report)
{
    enum gpu_status status = gpu_cuda_run_fills(d, report);

    for (uint64_t at = 0, n; at < bytes && status == GPU_OK; at += n) {
        uint8_t *piece;
        status = stage_piece(d, bytes - at, &piece, &n, report);
        if (status == GPU_OK)
            status = gpu_cuda_result(d, d->api.copy_to_host(piece, address + at, n, d->stream),
                                     "cuMemcpyDtoHAsync", report);
        if (status == GPU_OK) status = gpu_cuda_wait(d, report);
        if (status == GPU_OK) memcpy((uint8_t *)target + at, piece, n);
    }
    return status;
}
