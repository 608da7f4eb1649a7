/* Running kernels. */
#include "internal.h"

#include <stdio.h>

enum gpu_status gpu_cuda_behind(struct gpu_cuda_device *d, struct gpu_report *report)
{
    bool eager = d->mirrored_bytes <= GPU_CUDA_EAGER_BYTES;
    enum gpu_status status = GPU_OK;

    d->launch_epoch++;
    if (eager) status = gpu_cuda_pull(d, report);
    if (status == GPU_OK && !d->options.deferred) status = gpu_cuda_wait(d, report);
    return status;
}

/* Dynamic shared memory above 48 KiB has to be asked for, once a kernel. All that a block has, so
 * that threads which share the module ask for the same. */
static enum gpu_status allow_shared(struct gpu_cuda_device *d, struct gpu_cuda_kernel *kernel,
                                    uint32_t bytes, struct gpu_report *report)
{
    uint64_t all = (uint64_t)bytes + kernel->static_shared;

    if (all > d->limits.max_shared_bytes)
        return gpu_refuse(report, "shared_limit",
                          "kernel '%s' needs %u bytes of dynamic and %u of static shared memory; "
                          "a block has %u",
                          kernel->name, bytes, kernel->static_shared, d->limits.max_shared_bytes);
    if (bytes <= kernel->dynamic_shared_set) return GPU_OK;
    uint32_t most = d->limits.max_shared_bytes - kernel->static_shared;
    cu_result rc =
        d->api.function_set(kernel->function, CU_FUNC_MAX_DYNAMIC_SHARED_BYTES, (int)most);
    if (rc == CU_OK) kernel->dynamic_shared_set = most;
    return gpu_cuda_result(d, rc, "cuFuncSetAttribute(dynamic shared memory)", report);
}

static enum gpu_status enqueue(struct gpu_cuda_device *d, struct gpu_cuda_kernel *kernel,
                               struct gpu_dim grid, struct gpu_dim block, uint32_t shared_bytes,
                               void **args, struct gpu_report *report)
{
    cu_result rc;

    snprintf(d->running, sizeof d->running,
             "'%.80s' (grid %ux%ux%u, block %ux%ux%u, %u bytes of dynamic shared memory)",
             kernel->name, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared_bytes);
    d->in_flight = true;
    rc = d->api.launch(kernel->function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                       shared_bytes, d->stream, args, NULL);
    enum gpu_status status = gpu_cuda_result(d, rc, "cuLaunchKernel", report);
    if (status != GPU_OK && !d->lost) d->running[0] = '\0';
    return status;
}

enum gpu_status gpu_cuda_launch(struct gpu_device *device, struct gpu_kernel *kernel,
                                struct gpu_dim grid, struct gpu_dim block, uint32_t shared_bytes,
                                void **args, struct gpu_report *report)
{
    struct gpu_cuda_device *d = gpu_cuda_of(device);
    struct gpu_cuda_kernel *k = (struct gpu_cuda_kernel *)kernel;
    enum gpu_status status = gpu_cuda_alive(d, "launch", report);

    /* A deferred kernel answers for itself. */
    if (status == GPU_OK && d->mode == GPU_CUDA_RUNNING && d->running[0])
        status = gpu_cuda_wait(d, report);
    if (status == GPU_OK) status = allow_shared(d, k, shared_bytes, report);
    if (status == GPU_OK && d->mode == GPU_CUDA_RUNNING) status = gpu_cuda_flush(d, report);
    if (status == GPU_OK) status = enqueue(d, k, grid, block, shared_bytes, args, report);
    if (d->mode == GPU_CUDA_CAPTURING && status == GPU_OK) {
        d->running[0] = '\0'; /* recorded, not running */
        d->captured++;
    }
    if (d->mode == GPU_CUDA_TIMING) d->launch_epoch++;
    if (status == GPU_OK && d->mode == GPU_CUDA_RUNNING) status = gpu_cuda_behind(d, report);
    return status;
}
