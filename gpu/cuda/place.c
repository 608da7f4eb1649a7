/* Where a buffer lies, and which kind of region it takes. */
#include "internal.h"

#include <stdlib.h>

uint64_t gpu_cuda_alignment(const struct gpu_buffer_desc *desc)
{
    uint64_t wanted = desc->elem_bytes > desc->align_bytes ? desc->elem_bytes : desc->align_bytes;
    uint64_t power = 1;

    while (power < wanted) power *= 2;
    return power;
}

void gpu_cuda_range_append(struct gpu_cuda_range *list, uint32_t *n, uint64_t lo, uint64_t hi)
{
    if (lo >= hi) return;
    if (*n && lo <= list[*n - 1].hi) {
        if (hi > list[*n - 1].hi) list[*n - 1].hi = hi;
        return;
    }
    list[(*n)++] = (struct gpu_cuda_range){lo, hi};
}

static bool make_extents(struct gpu_cuda_buffer *b, const struct gpu_buffer_desc *desc)
{
    b->extents = calloc(desc->n_extents + 1, sizeof *b->extents);
    if (!b->extents) return false;
    if (!desc->n_extents)
        gpu_cuda_range_append(b->extents, &b->n_extents, b->address, b->address + b->size_bytes);
    for (uint32_t i = 0; i < desc->n_extents; i++) {
        uint64_t lo = b->address + desc->extents[i].offset_bytes;
        gpu_cuda_range_append(b->extents, &b->n_extents, lo, lo + desc->extents[i].size_bytes);
    }
    return true;
}

static enum gpu_status no_memory(const struct gpu_buffer_desc *desc, struct gpu_report *report)
{
    return gpu_cuda_fail(report, "out-of-memory", "no host memory for '%s'", desc->name);
}

/* Takes a region for a buffer that is backed as a whole. */
static enum gpu_status place_whole(struct gpu_cuda_device *d, const struct gpu_buffer_desc *desc,
                                   struct gpu_cuda_buffer *b, struct gpu_report *report)
{
    uint64_t bytes = gpu_cuda_up(desc->size_bytes, gpu_cuda_alignment(desc));
    enum gpu_status status =
        gpu_cuda_region_take(d, gpu_cuda_up(bytes, d->granule) / d->granule, false, &b->region,
                             report);

    if (status == GPU_OK)
        b->address =
            desc->fence == GPU_FENCE_AFTER ? b->region->runs[0].hi - bytes : b->region->runs[0].lo;
    return status;
}

/* Where a buffer backed in parts lies, as offsets from the granule its address is placed by. */
struct gpu_cuda_layout {
    uint64_t start;              /* of the buffer in its first granule */
    uint64_t bytes;              /* the buffer's granules */
    struct gpu_cuda_range *runs; /* granules that hold a part of an extent */
    uint32_t n_runs;
};

static bool make_layout(const struct gpu_cuda_device *d, const struct gpu_buffer_desc *desc,
                        struct gpu_cuda_layout *layout)
{
    uint64_t bytes = gpu_cuda_up(desc->size_bytes, gpu_cuda_alignment(desc));

    layout->bytes = gpu_cuda_up(bytes, d->granule);
    layout->start = desc->fence == GPU_FENCE_AFTER ? layout->bytes - bytes : 0;
    layout->runs = calloc(desc->n_extents, sizeof *layout->runs);
    for (uint32_t i = 0; layout->runs && i < desc->n_extents; i++) {
        uint64_t lo = layout->start + desc->extents[i].offset_bytes;
        if (!desc->extents[i].size_bytes) continue;
        gpu_cuda_range_append(layout->runs, &layout->n_runs, gpu_cuda_down(lo, d->granule),
                              gpu_cuda_up(lo + desc->extents[i].size_bytes, d->granule));
    }
    return layout->runs != NULL;
}

/* One run near enough to both ends of the buffer: what lies around it fits the guards of a wide
 * region, with half of them left for accesses outside the buffer. */
static bool fits_wide(const struct gpu_cuda_layout *l)
{
    return l->n_runs == 1 && l->runs[0].lo <= GPU_CUDA_WIDE_BYTES / 2 &&
           l->bytes - l->runs[0].hi <= GPU_CUDA_GUARD_BYTES / 2;
}

static enum gpu_status take_parts(struct gpu_cuda_device *d, const struct gpu_cuda_layout *l,
                                  struct gpu_cuda_buffer *b, struct gpu_report *report)
{
    enum gpu_status status;

    if (fits_wide(l)) {
        status = gpu_cuda_region_take(d, (l->runs[0].hi - l->runs[0].lo) / d->granule, true,
                                      &b->region, report);
        if (status == GPU_OK) b->address = b->region->runs[0].lo - l->runs[0].lo + l->start;
        return status;
    }
    status = gpu_cuda_region_reserve(d, GPU_CUDA_GUARD_BYTES, l->bytes, &b->region, report);
    if (status != GPU_OK) return status;
    b->address = b->region->base + l->start;
    for (uint32_t i = 0; i < l->n_runs; i++) {
        l->runs[i].lo += b->region->base;
        l->runs[i].hi += b->region->base;
    }
    return gpu_cuda_region_map_sparse(d, b->region, l->runs, l->n_runs, report);
}

/* Takes a region for a buffer that is backed in parts. */
static enum gpu_status place_parts(struct gpu_cuda_device *d, const struct gpu_buffer_desc *desc,
                                   struct gpu_cuda_buffer *b, struct gpu_report *report)
{
    struct gpu_cuda_layout layout = {0};

    if (!make_layout(d, desc, &layout)) return no_memory(desc, report);
    enum gpu_status status = take_parts(d, &layout, b, report);
    free(layout.runs);
    return status;
}

enum gpu_status gpu_cuda_place(struct gpu_cuda_device *d, const struct gpu_buffer_desc *desc,
                               struct gpu_cuda_buffer *b, struct gpu_report *report)
{
    enum gpu_status status =
        desc->n_extents ? place_parts(d, desc, b, report) : place_whole(d, desc, b, report);

    return status == GPU_OK && !make_extents(b, desc) ? no_memory(desc, report) : status;
}
