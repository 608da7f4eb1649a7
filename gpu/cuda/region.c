/* Reserved addresses and the memory mapped in them.
 *
 * A pooled region maps a run of granules between two unmapped guards and is reused for the life of
 * the process; one kind has small guards, the wide kind a large one below, so that a page with a
 * high id can be backed without what lies before it. A sparse region maps single granules inside a
 * large reservation and lives as long as its buffer, but its granules are reused. Mapping is slow,
 * and threads that share a context wait for each other's. */
#include "internal.h"

#include <stdlib.h>

/* Sizes in steps of a quarter of a power of two: 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, ... so
 * that at most a fifth of a mapping is slack and few sizes share the pool. */
static uint64_t size_class(uint64_t granules)
{
    uint64_t step = 1;

    while (8 * step < granules) step *= 2;
    return (granules + step - 1) / step * step;
}

enum gpu_status gpu_cuda_region_reserve(struct gpu_cuda_device *d, uint64_t before, uint64_t bytes,
                                        struct gpu_cuda_region **region, struct gpu_report *report)
{
    struct gpu_cuda_region *r = calloc(1, sizeof *r);
    cu_address address = 0;

    if (!r) return gpu_cuda_fail(report, "out-of-memory", "no host memory for a region");
    r->reserved_bytes = before + bytes + GPU_CUDA_GUARD_BYTES;
    cu_result rc = d->api.reserve(&address, r->reserved_bytes, d->granule, 0, 0);
    if (rc != CU_OK) {
        free(r);
        return gpu_cuda_result(d, rc, "cuMemAddressReserve", report);
    }
    r->reserved = address;
    r->base = address + before;
    *region = r;
    return GPU_OK;
}

/* Keeps the granules of a sparse region for the next one, up to the pool's limit. */
static void spare(struct gpu_cuda_device *d, struct gpu_cuda_region *r)
{
    uint64_t limit = d->pool_limit_bytes / d->granule;

    for (uint64_t i = 0; i < r->n_handles; i++) {
        if (d->n_spare == d->spare_capacity && d->n_spare < limit) {
            uint64_t capacity = d->spare_capacity ? 2 * d->spare_capacity : 64;
            cu_handle *grown = realloc(d->spare_handles, capacity * sizeof *grown);
            if (grown) {
                d->spare_handles = grown;
                d->spare_capacity = capacity;
            }
        }
        if (d->n_spare < d->spare_capacity && d->n_spare < limit)
            d->spare_handles[d->n_spare++] = r->handles[i];
        else
            d->api.release(r->handles[i]);
    }
}

/* One call a mapping: a single unmap over several is not promised to work. */
static void unmap_all(struct gpu_cuda_device *d, struct gpu_cuda_region *r)
{
    for (uint32_t i = 0; i < r->n_runs; i++) {
        uint64_t lo = r->runs[i].lo, hi = r->runs[i].hi;
        uint64_t step = r->granules ? hi - lo : d->granule;
        for (; lo < hi; lo += step) d->api.unmap(lo, step);
        d->usage.mapped_bytes -= hi - r->runs[i].lo;
    }
}

static void destroy(struct gpu_cuda_device *d, struct gpu_cuda_region *r)
{
    if (!d->lost) {
        unmap_all(d, r);
        spare(d, r);
        d->api.unreserve(r->reserved, r->reserved_bytes);
    }
    free(r->runs);
    free(r->handles);
    free(r);
}

enum gpu_status gpu_cuda_region_bury(struct gpu_cuda_device *d, struct gpu_report *report)
{
    enum gpu_status status;

    if (!d->doomed) return GPU_OK;
    status = gpu_cuda_run_fills(d, report);
    if (status == GPU_OK && d->in_flight) status = gpu_cuda_wait(d, report);
    if (status != GPU_OK) return status;
    while (d->doomed) {
        struct gpu_cuda_region *r = d->doomed;
        d->doomed = r->next;
        destroy(d, r);
    }
    return GPU_OK;
}

void gpu_cuda_region_put(struct gpu_cuda_device *d, struct gpu_cuda_region *r)
{
    uint64_t bytes = r->granules * d->granule;
    bool keep = r->granules && d->usage.pooled_bytes + bytes <= d->pool_limit_bytes;
    struct gpu_cuda_region **list = keep ? &d->pool : &d->doomed;

    if (keep) d->usage.pooled_bytes += bytes;
    r->next = *list;
    *list = r;
}

/* Moves every free region to the doomed and unmaps them, for their memory. */
static enum gpu_status drain(struct gpu_cuda_device *d, struct gpu_report *report)
{
    while (d->pool) {
        struct gpu_cuda_region *r = d->pool;
        d->pool = r->next;
        r->next = d->doomed;
        d->doomed = r;
    }
    d->usage.pooled_bytes = 0;
    enum gpu_status status = gpu_cuda_region_bury(d, report);
    while (d->n_spare) d->api.release(d->spare_handles[--d->n_spare]);
    return status;
}

void gpu_cuda_region_drop_all(struct gpu_cuda_device *d)
{
    struct gpu_report ignored;

    if (!d->lost) drain(d, &ignored);
    for (struct gpu_cuda_region **list = &d->pool;; list = &d->doomed) {
        while (*list) {
            struct gpu_cuda_region *r = *list;
            *list = r->next;
            destroy(d, r);
        }
        if (list == &d->doomed) break;
    }
    free(d->spare_handles);
    d->spare_handles = NULL;
}

static enum gpu_status create(struct gpu_cuda_device *d, uint64_t bytes, cu_handle *handle,
                              struct gpu_report *report)
{
    cu_result rc = d->api.create(handle, bytes, &d->prop, 0);

    if (rc == CU_OUT_OF_MEMORY) {
        enum gpu_status status = drain(d, report);
        if (status != GPU_OK) return status;
        rc = d->api.create(handle, bytes, &d->prop, 0);
    }
    if (rc == CU_OUT_OF_MEMORY)
        return gpu_cuda_fail(report, "out-of-memory",
                             "the device has no %llu bytes more; %llu are held by this process",
                             (unsigned long long)bytes, (unsigned long long)d->usage.mapped_bytes);
    return gpu_cuda_result(d, rc, "cuMemCreate", report);
}

static enum gpu_status add_run(struct gpu_cuda_region *r, uint64_t lo, uint64_t hi,
                               struct gpu_report *report)
{
    struct gpu_cuda_range *runs = realloc(r->runs, (r->n_runs + 1) * sizeof *runs);

    if (!runs) return gpu_cuda_fail(report, "out-of-memory", "no host memory for a region's runs");
    r->runs = runs;
    runs[r->n_runs++] = (struct gpu_cuda_range){lo, hi};
    return GPU_OK;
}

static enum gpu_status map_pooled(struct gpu_cuda_device *d, struct gpu_cuda_region *r,
                                  struct gpu_report *report)
{
    uint64_t bytes = r->granules * d->granule, lo = r->base;
    cu_handle handle;
    enum gpu_status status = create(d, bytes, &handle, report);

    if (status != GPU_OK) return status;
    cu_result rc = d->api.map(lo, bytes, 0, handle, 0);
    /* The mapping keeps the memory alive; without one this frees it. */
    d->api.release(handle);
    if (rc != CU_OK) return gpu_cuda_result(d, rc, "cuMemMap", report);
    status = add_run(r, lo, lo + bytes, report);
    if (status != GPU_OK) {
        d->api.unmap(lo, bytes);
        return status;
    }
    d->usage.mapped_bytes += bytes;
    rc = d->api.set_access(lo, bytes, &d->access, 1);
    return gpu_cuda_result(d, rc, "cuMemSetAccess", report);
}

enum gpu_status gpu_cuda_region_take(struct gpu_cuda_device *d, uint64_t granules, bool wide,
                                     struct gpu_cuda_region **region, struct gpu_report *report)
{
    uint64_t class = wide ? granules : size_class(granules);
    struct gpu_cuda_region *r;
    enum gpu_status status;

    for (struct gpu_cuda_region **at = &d->pool; *at; at = &(*at)->next) {
        if ((*at)->granules != class || (*at)->wide != wide) continue;
        *region = *at;
        *at = (*at)->next;
        d->usage.pooled_bytes -= class * d->granule;
        return GPU_OK;
    }
    if (class > d->info.memory_bytes / d->granule)
        return gpu_cuda_fail(report, "out-of-memory",
                             "a buffer of %llu granules of %llu bytes; the device has %llu bytes",
                             (unsigned long long)granules, (unsigned long long)d->granule,
                             (unsigned long long)d->info.memory_bytes);
    status = gpu_cuda_region_reserve(d, wide ? GPU_CUDA_WIDE_BYTES : GPU_CUDA_GUARD_BYTES,
                                     class * d->granule, &r, report);
    if (status != GPU_OK) return status;
    r->wide = wide;
    r->granules = (uint32_t) class;
    status = map_pooled(d, r, report);
    if (status != GPU_OK) {
        destroy(d, r);
        return status;
    }
    r->dirty = r->runs[0];
    d->usage.regions_made++;
    *region = r;
    return GPU_OK;
}

static enum gpu_status map_granule(struct gpu_cuda_device *d, struct gpu_cuda_region *r,
                                   uint64_t address, struct gpu_report *report)
{
    cu_handle handle;
    enum gpu_status status = GPU_OK;

    if (d->n_spare)
        handle = d->spare_handles[--d->n_spare];
    else
        status = create(d, d->granule, &handle, report);
    if (status != GPU_OK) return status;
    r->handles[r->n_handles++] = handle;
    return gpu_cuda_result(d, d->api.map(address, d->granule, 0, handle, 0), "cuMemMap", report);
}

enum gpu_status gpu_cuda_region_map_sparse(struct gpu_cuda_device *d, struct gpu_cuda_region *r,
                                           const struct gpu_cuda_range *runs, uint32_t n_runs,
                                           struct gpu_report *report)
{
    uint64_t granules = 0;
    enum gpu_status status = GPU_OK;

    for (uint32_t i = 0; i < n_runs; i++) granules += (runs[i].hi - runs[i].lo) / d->granule;
    r->handles = calloc(granules, sizeof *r->handles);
    if (!r->handles)
        return gpu_cuda_fail(report, "out-of-memory", "no host memory for %llu granules",
                             (unsigned long long)granules);
    for (uint32_t i = 0; i < n_runs && status == GPU_OK; i++) {
        status = add_run(r, runs[i].lo, runs[i].lo, report);
        struct gpu_cuda_range *run = &r->runs[i];
        while (status == GPU_OK && run->hi < runs[i].hi) {
            status = map_granule(d, r, run->hi, report);
            if (status == GPU_OK) {
                run->hi += d->granule;
                d->usage.mapped_bytes += d->granule;
            }
        }
        if (status == GPU_OK)
            status =
                gpu_cuda_result(d, d->api.set_access(run->lo, run->hi - run->lo, &d->access, 1),
                                "cuMemSetAccess", report);
    }
    d->usage.regions_made++;
    return status;
}
