/* The CPU backend's table of functions. */
#include "internal.h"

#include "fiber.h"

#include <immintrin.h>
#include <stdlib.h>

/* What a GPU of compute capability 9.0 allows (docs/kernels: limits where no device is at hand). */
static const struct gpu_limits limits = {
    .max_grid_x = 2147483647u,
    .max_grid_y = 65535u,
    .max_grid_z = 65535u,
    .max_block_threads = SIMT_MAX_BLOCK,
    .max_shared_bytes = 232448u,
};

/* MXCSR: flush-to-zero, denormals-are-zero and the rounding control must be off or nearest. */
#define MXCSR_MODE_BITS 0xe040u

static void close_device(struct gpu_device *device)
{
    if (!device) return;
    simt_free(device, &device->dynamic_shared);
    simt_unload_all(device);
    simt_arena_close(&device->arena);
    free(device);
}

static enum gpu_status open_device(struct gpu_device **device, const struct gpu_options *options,
                                   struct gpu_report *report)
{
    unsigned mxcsr = _mm_getcsr();
    struct gpu_device *opened;

    *device = NULL;
    if (mxcsr & MXCSR_MODE_BITS)
        return simt_infra(report,
                          "MXCSR is 0x%04x: this process flushes subnormals or does not "
                          "round to nearest, so no result would mean anything",
                          mxcsr);
    opened = calloc(1, sizeof *opened);
    if (!opened || !simt_fibers_open() || !simt_arena_open(&opened->arena)) {
        free(opened);
        return simt_infra(report, "no address space for the CPU backend");
    }
    if (options) opened->options = *options;
    opened->tracing = opened->options.trace;
    *device = opened;
    return GPU_OK;
}

static void set_options(struct gpu_device *device, const struct gpu_options *options)
{
    device->options = *options;
    device->tracing |= options->trace;
}

static const struct gpu_limits *get_limits(const struct gpu_device *device)
{
    return &limits;
}

/* A launch runs to completion here. */
static enum gpu_status finish(struct gpu_device *device, struct gpu_report *report)
{
    (void)device;
    (void)report;
    return GPU_OK;
}

const struct gpu_backend gpu_backend_simt = {
    .name = "simt",
    .open = open_device,
    .close = close_device,
    .set_options = set_options,
    .limits = get_limits,
    .load = simt_load,
    .resolve = simt_resolve,
    .alloc = simt_alloc,
    .free = simt_free,
    .upload = simt_upload,
    .download = simt_download,
    .mark_unwritten = simt_mark_unwritten,
    .launch = simt_launch,
    .finish = finish,
    .check_guards = simt_check_guards,
};
