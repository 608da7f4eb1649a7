/* What every backend shares: refusing, and running an entry point within a device's limits. */
#include "gpu.h"

#include <stdarg.h>
#include <stdio.h>

enum gpu_status gpu_refuse(struct gpu_report *report, const char *rule, const char *format, ...)
{
    va_list list;

    if (!report) return GPU_REFUSED;
    snprintf(report->rule, sizeof report->rule, "%s", rule);
    va_start(list, format);
    vsnprintf(report->text, sizeof report->text, format, list);
    va_end(list);
    return GPU_REFUSED;
}

/* Every limit, on numbers wide enough that no product wraps. */
static enum gpu_status check_limits(const struct gpu_limits *limits, struct gpu_dim grid,
                                    struct gpu_dim block, uint32_t shared_bytes,
                                    struct gpu_report *report)
{
    /* Two 32-bit factors at a time: three could wrap even in 64 bits. */
    uint64_t xy = (uint64_t)block.x * block.y;

    if (grid.x > limits->max_grid_x || grid.y > limits->max_grid_y || grid.z > limits->max_grid_z)
        return gpu_refuse(report, "grid_limit",
                          "grid (%u, %u, %u) is beyond the device's (%u, %u, %u)", grid.x, grid.y,
                          grid.z, limits->max_grid_x, limits->max_grid_y, limits->max_grid_z);
    if (xy == 0 || block.z == 0)
        return gpu_refuse(report, "block_limit", "block (%u, %u, %u) has no threads", block.x,
                          block.y, block.z);
    if (xy > limits->max_block_threads || xy * block.z > limits->max_block_threads)
        return gpu_refuse(report, "block_limit",
                          "block (%u, %u, %u) has more threads than the device's %u", block.x,
                          block.y, block.z, limits->max_block_threads);
    if (shared_bytes > limits->max_shared_bytes)
        return gpu_refuse(report, "shared_limit",
                          "%u bytes of dynamic shared memory are more than the device's %u",
                          shared_bytes, limits->max_shared_bytes);
    return GPU_OK;
}

enum gpu_status gpu_run(const struct gpu_target *target, const char *entry, struct gpu_dim grid,
                        struct gpu_dim block, uint32_t shared_bytes, void **args,
                        struct gpu_report *report)
{
    const struct gpu_backend *backend = target->backend;
    struct gpu_kernel *kernel;
    enum gpu_status status;

    status = check_limits(backend->limits(target->device), grid, block, shared_bytes, report);
    if (status != GPU_OK) return status;
    status =
        backend->resolve(target->module, target->entry ? target->entry : entry, &kernel, report);
    if (status != GPU_OK) return status;
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return GPU_OK;
    return backend->launch(target->device, kernel, grid, block, shared_bytes, args, report);
}
