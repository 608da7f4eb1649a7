/* Opening and closing, options, what the device is; the backend's table. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define POOL_MOST_BYTES (1ull << 30)

/* The driver keeps one state a process, and that state does not survive a fork. */
static _Atomic pid_t initialised_in;
/* Threads that open the device share its context and nothing else. */
static _Thread_local bool is_open;

static enum gpu_status find_device(struct gpu_cuda_device *d, struct gpu_report *report)
{
    char words[200];
    int count = 0;
    cu_result rc = d->api.init(0);

    if (rc == CU_OK) {
        initialised_in = getpid();
        rc = d->api.device_count(&count);
    }
    if (rc != CU_OK || count == 0) {
        gpu_cuda_describe(&d->api, rc, words, sizeof words);
        gpu_cuda_fail(report, "no-device", "the CUDA driver is there but gives no device: %s",
                      rc == CU_OK ? "none is visible" : words);
        return GPU_UNAVAILABLE;
    }
    if (d->options.device_index < 0 || d->options.device_index >= count) {
        gpu_cuda_fail(report, "no-device", "device %d was asked for; there are %d, from 0",
                      d->options.device_index, count);
        return GPU_UNAVAILABLE;
    }
    return gpu_cuda_result(d, d->api.device_get(&d->ordinal, d->options.device_index),
                           "cuDeviceGet", report);
}

static cu_result read_attributes(struct gpu_cuda_device *d)
{
    int grid[3] = {0}, threads = 0, shared = 0, l2 = 0, vmm = 0;
    const struct {
        int attribute, *value;
    } wanted[] = {
        {CU_ATTR_MAX_GRID_X, &grid[0]},
        {CU_ATTR_MAX_GRID_Y, &grid[1]},
        {CU_ATTR_MAX_GRID_Z, &grid[2]},
        {CU_ATTR_MAX_THREADS_PER_BLOCK, &threads},
        {CU_ATTR_MAX_SHARED_OPTIN, &shared},
        {CU_ATTR_L2_BYTES, &l2},
        {CU_ATTR_CC_MAJOR, &d->info.cc_major},
        {CU_ATTR_CC_MINOR, &d->info.cc_minor},
        {CU_ATTR_MULTIPROCESSORS, &d->info.multiprocessors},
        {CU_ATTR_VIRTUAL_MEMORY, &vmm},
    };

    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        cu_result rc = d->api.device_attribute(wanted[i].value, wanted[i].attribute, d->ordinal);
        if (rc != CU_OK) return rc;
    }
    d->limits = (struct gpu_limits){(uint32_t)grid[0], (uint32_t)grid[1], (uint32_t)grid[2],
                                    (uint32_t)threads, (uint32_t)shared};
    d->info.l2_bytes = (uint64_t)l2;
    d->has_virtual_memory = vmm != 0;
    return CU_OK;
}

static enum gpu_status describe_device(struct gpu_cuda_device *d, struct gpu_report *report)
{
    size_t memory = 0, granule = 0;
    cu_result rc = read_attributes(d);

    if (rc == CU_OK) rc = d->api.device_name(d->info.name, sizeof d->info.name, d->ordinal);
    if (rc == CU_OK) rc = d->api.device_memory(&memory, d->ordinal);
    if (rc == CU_OK) rc = d->api.driver_version(&d->info.driver_version);
    if (rc != CU_OK) return gpu_cuda_result(d, rc, "reading the device's attributes", report);
    if (!d->has_virtual_memory) {
        gpu_cuda_fail(report, "no-virtual-memory",
                      "%s has no virtual memory management, which the fences need", d->info.name);
        return GPU_UNAVAILABLE;
    }
    d->prop = (struct cu_allocation_prop){.type = CU_ALLOCATION_PINNED,
                                          .location = {CU_LOCATION_DEVICE, d->ordinal}};
    d->access = (struct cu_access_desc){d->prop.location, CU_ACCESS_READ_WRITE};
    rc = d->api.granularity(&granule, &d->prop, CU_GRANULARITY_MINIMUM);
    if (rc != CU_OK) return gpu_cuda_result(d, rc, "cuMemGetAllocationGranularity", report);
    if (granule < GPU_CUDA_PAGE || (granule & (granule - 1)) || granule > GPU_CUDA_GUARD_BYTES)
        return gpu_cuda_fail(report, "driver-error", "a granule of %zu bytes is not usable",
                             granule);
    d->granule = d->info.granule_bytes = granule;
    d->info.memory_bytes = memory;
    d->pool_limit_bytes = memory / 64 < POOL_MOST_BYTES ? memory / 64 : POOL_MOST_BYTES;
    return GPU_OK;
}

static enum gpu_status make_context(struct gpu_cuda_device *d, struct gpu_report *report)
{
    const char *call = "cuDevicePrimaryCtxRetain";
    cu_result rc = d->api.context_retain(&d->context, d->ordinal);

    if (rc == CU_OK) {
        d->retained = true;
        call = "cuCtxSetCurrent";
        rc = d->api.context_set(d->context);
    }
    if (rc == CU_OK) {
        call = "cuStreamCreate";
        rc = d->api.stream_create(&d->stream, CU_STREAM_NONBLOCKING);
    }
    for (int i = 0; i < 2 && rc == CU_OK; i++) {
        call = "cuEventCreate";
        rc = d->api.event_create(&d->events[i], 0);
    }
    return gpu_cuda_result(d, rc, call, report);
}

static enum gpu_status make_memory(struct gpu_cuda_device *d, struct gpu_report *report)
{
    uint64_t table_bytes = GPU_CUDA_TABLE_OPS * sizeof(struct gpu_cuda_op);
    cu_address empty = 0;

    d->copies.ops = gpu_cuda_pinned_make(d, table_bytes);
    d->fills.ops = gpu_cuda_pinned_make(d, table_bytes);
    d->checks.ops = gpu_cuda_pinned_make(d, table_bytes);
    d->results = gpu_cuda_pinned_make(d, GPU_CUDA_TABLE_OPS * sizeof *d->results);
    d->stage = gpu_cuda_pinned_make(d, GPU_CUDA_STAGE_BYTES);
    d->reached = gpu_cuda_pinned_make(d, sizeof *d->reached);
    if (!d->copies.ops || !d->fills.ops || !d->checks.ops || !d->results || !d->stage ||
        !d->reached)
        return gpu_cuda_fail(report, "out-of-memory", "the driver gives no pinned host memory");
    cu_result rc = d->api.reserve(&empty, 2 * GPU_CUDA_GUARD_BYTES, d->granule, 0, 0);
    if (rc == CU_OK) d->empty_address = empty + GPU_CUDA_GUARD_BYTES;
    return gpu_cuda_result(d, rc, "cuMemAddressReserve", report);
}

static void cuda_close(struct gpu_device *device)
{
    struct gpu_cuda_device *d = gpu_cuda_of(device);

    if (!d) return;
    gpu_cuda_buffers_drop_all(d);
    gpu_cuda_region_drop_all(d);
    gpu_cuda_modules_drop_all(d);
    gpu_cuda_pinned_drop_all(d);
    if (d->retained && !d->lost) {
        if (d->empty_address)
            d->api.unreserve(d->empty_address - GPU_CUDA_GUARD_BYTES, 2 * GPU_CUDA_GUARD_BYTES);
        for (int i = 0; i < 2; i++)
            if (d->events[i]) d->api.event_destroy(d->events[i]);
        if (d->stream) d->api.stream_destroy(d->stream);
        d->api.context_release(d->ordinal);
    }
    free(d);
    is_open = false;
}

static enum gpu_status cuda_open(struct gpu_device **device, const struct gpu_options *options,
                                 struct gpu_report *report)
{
    struct gpu_cuda_device *d;
    enum gpu_status status;

    *device = NULL;
    if (is_open)
        return gpu_cuda_fail(report, "already-open", "this thread has the CUDA device open");
    if (initialised_in && initialised_in != getpid())
        return gpu_cuda_fail(report, "forked",
                             "the CUDA driver was initialised in the parent of this process; "
                             "fork before opening the device");
    d = calloc(1, sizeof *d);
    if (!d) return gpu_cuda_fail(report, "out-of-memory", "no host memory for the device");
    is_open = true;
    if (options) d->options = *options;
    status = gpu_cuda_driver_load(&d->api, report);
    if (status == GPU_OK) status = find_device(d, report);
    if (status == GPU_OK) status = describe_device(d, report);
    if (status == GPU_OK) status = make_context(d, report);
    if (status == GPU_OK) status = make_memory(d, report);
    if (status != GPU_OK) {
        cuda_close((struct gpu_device *)d);
        return status;
    }
    gpu_cuda_helpers_load(d);
    *device = (struct gpu_device *)d;
    return GPU_OK;
}

static void cuda_set_options(struct gpu_device *device, const struct gpu_options *options)
{
    struct gpu_cuda_device *d = gpu_cuda_of(device);
    int index = d->options.device_index;

    d->options = *options;
    d->options.device_index = index;
}

static const struct gpu_limits *cuda_limits(const struct gpu_device *device)
{
    return &((const struct gpu_cuda_device *)device)->limits;
}

static void cuda_mark_unwritten(struct gpu_device *device, struct gpu_buffer *buffer)
{
    (void)device;
    (void)buffer;
}

const struct gpu_cuda_info *gpu_cuda_get_info(const struct gpu_device *device)
{
    return &((const struct gpu_cuda_device *)device)->info;
}

bool gpu_cuda_context_lost(const struct gpu_device *device)
{
    return ((const struct gpu_cuda_device *)device)->lost;
}

void gpu_cuda_get_usage(const struct gpu_device *device, struct gpu_cuda_usage *usage)
{
    *usage = ((const struct gpu_cuda_device *)device)->usage;
}

const struct gpu_backend gpu_backend_cuda = {
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .set_options = cuda_set_options,
    .limits = cuda_limits,
    .load = gpu_cuda_load,
    .resolve = gpu_cuda_resolve,
    .alloc = gpu_cuda_alloc,
    .free = gpu_cuda_free,
    .upload = gpu_cuda_upload,
    .download = gpu_cuda_download,
    .mark_unwritten = cuda_mark_unwritten,
    .launch = gpu_cuda_launch,
    .finish = gpu_cuda_finish,
    .check_guards = gpu_cuda_check_guards,
};
