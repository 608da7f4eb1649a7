/* Buffers: what of them travels, their red zones, and copies. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

static enum gpu_status check_descriptor(const struct gpu_cuda_device *d,
                                        const struct gpu_buffer_desc *desc,
                                        struct gpu_report *report)
{
    uint64_t end = 0;

    if (gpu_cuda_alignment(desc) > d->granule)
        return gpu_cuda_fail(report, "bad-descriptor", "'%s' wants alignment %u; the most is %llu",
                             desc->name, desc->align_bytes, (unsigned long long)d->granule);
    if (desc->size_bytes > 1ull << 46)
        return gpu_cuda_fail(report, "out-of-memory", "'%s' of %llu bytes", desc->name,
                             (unsigned long long)desc->size_bytes);
    for (uint32_t i = 0; i < desc->n_extents; i++) {
        const struct gpu_extent *e = &desc->extents[i];
        if (e->offset_bytes < end || e->offset_bytes > desc->size_bytes ||
            e->size_bytes > desc->size_bytes - e->offset_bytes)
            return gpu_cuda_fail(report, "bad-descriptor",
                                 "extent %u of '%s', %llu bytes at %llu, is out of order or past "
                                 "the end at %llu",
                                 i, desc->name, (unsigned long long)e->size_bytes,
                                 (unsigned long long)e->offset_bytes,
                                 (unsigned long long)desc->size_bytes);
        end = e->offset_bytes + e->size_bytes;
    }
    return GPU_OK;
}

/* Segments are the pages of each extent and one page on either side, inside the mapping. */
static bool make_segments(struct gpu_cuda_buffer *b)
{
    const struct gpu_cuda_region *r = b->region;
    uint32_t run = 0;

    b->segments = calloc(b->n_extents, sizeof *b->segments);
    if (!b->segments) return false;
    for (uint32_t i = 0; i < b->n_extents; i++) {
        uint64_t lo = gpu_cuda_down(b->extents[i].lo, GPU_CUDA_PAGE) - GPU_CUDA_PAGE;
        uint64_t hi = gpu_cuda_up(b->extents[i].hi, GPU_CUDA_PAGE) + GPU_CUDA_PAGE;
        while (r->runs[run].hi < b->extents[i].hi) run++;
        lo = lo < r->runs[run].lo ? r->runs[run].lo : lo;
        hi = hi > r->runs[run].hi ? r->runs[run].hi : hi;
        gpu_cuda_range_append(b->segments, &b->n_segments, lo, hi);
    }
    for (uint32_t i = 0; i < b->n_segments; i++)
        b->mirror_bytes += b->segments[i].hi - b->segments[i].lo;
    return true;
}

static bool make_far(struct gpu_cuda_buffer *b)
{
    const struct gpu_cuda_region *r = b->region;
    uint32_t s = 0;

    b->far = calloc(r->n_runs + b->n_segments, sizeof *b->far);
    if (!b->far) return false;
    for (uint32_t i = 0; i < r->n_runs; i++) {
        uint64_t at = r->runs[i].lo;
        for (; s < b->n_segments && b->segments[s].hi <= r->runs[i].hi; s++) {
            gpu_cuda_range_append(b->far, &b->n_far, at, b->segments[s].lo);
            at = b->segments[s].hi;
        }
        gpu_cuda_range_append(b->far, &b->n_far, at, r->runs[i].hi);
    }
    return true;
}

static void red_bytes(uint8_t *host, uint64_t bytes)
{
    const uint32_t word = GPU_CUDA_RED_WORD;

    for (uint64_t i = 0; i < bytes; i += sizeof word) memcpy(host + i, &word, sizeof word);
}

static struct gpu_cuda_range both(struct gpu_cuda_range a, struct gpu_cuda_range b)
{
    return (struct gpu_cuda_range){a.lo > b.lo ? a.lo : b.lo, a.hi < b.hi ? a.hi : b.hi};
}

/* The red zone of a new buffer: what its region's last user left, and what lies in its own
 * segments. With a mirror the segments are uploaded whole before the first launch; without one
 * their margins are filled here, rounded outwards, before any upload of contents. */
static enum gpu_status paint(struct gpu_cuda_device *d, struct gpu_cuda_buffer *b,
                             struct gpu_report *report)
{
    struct gpu_cuda_region *r = b->region;
    struct gpu_cuda_range whole = {b->segments[0].lo, b->segments[b->n_segments - 1].hi};
    enum gpu_status status = GPU_OK;

    if (!r->granules)
        for (uint32_t i = 0; i < r->n_runs && status == GPU_OK; i++)
            status = gpu_cuda_fill(d, r->runs[i], report);
    for (uint32_t i = 0; r->granules && i < b->n_far && status == GPU_OK; i++)
        status = gpu_cuda_fill(d, both(b->far[i], r->dirty), report);
    if (b->mirror) red_bytes(b->mirror, b->mirror_bytes);
    if (b->mirror || !r->granules || status != GPU_OK) return status;
    status = gpu_cuda_fill(d, (struct gpu_cuda_range){whole.lo, gpu_cuda_up(b->extents[0].lo, 16)},
                           report);
    if (status == GPU_OK)
        status = gpu_cuda_fill(
            d, (struct gpu_cuda_range){gpu_cuda_down(b->extents[0].hi, 16), whole.hi}, report);
    return status;
}

static void list_add(struct gpu_cuda_device *d, struct gpu_cuda_buffer *b)
{
    b->next = d->live;
    if (d->live) d->live->previous = b;
    d->live = b;
    d->usage.live_buffers++;
    d->mirrored_bytes += b->mirror ? b->mirror_bytes : 0;
}

static enum gpu_status fill_buffer(struct gpu_cuda_device *d, const struct gpu_buffer_desc *desc,
                                   struct gpu_cuda_buffer *b, struct gpu_report *report)
{
    enum gpu_status status = gpu_cuda_place(d, desc, b, report);

    if (status != GPU_OK || !b->n_extents) return status;
    if (!make_segments(b) || !make_far(b))
        return gpu_cuda_fail(report, "out-of-memory", "no host memory for '%s'", desc->name);
    if (b->mirror_bytes <= GPU_CUDA_MIRROR_MAX)
        b->mirror = gpu_cuda_pinned_take(d, b->mirror_bytes);
    b->dirty = b->mirror != NULL;
    return paint(d, b, report);
}

/* Gives back what a buffer holds; how much of its region may differ from the pattern is decided
 * here. Damage that nobody asked check_guards about must not be blamed on the next buffer. */
static void release(struct gpu_cuda_device *d, struct gpu_cuda_buffer *b)
{
    struct gpu_cuda_region *r = b->region;
    bool far_clean =
        !b->settled || (b->far_checked && !b->far_hit && d->pulled_epoch == d->launch_epoch);

    if (r && r->granules)
        r->dirty =
            far_clean && b->n_segments
                ? (struct gpu_cuda_range){b->segments[0].lo, b->segments[b->n_segments - 1].hi}
                : r->runs[0];
    if (r) gpu_cuda_region_put(d, r);
    if (b->mirror) gpu_cuda_pinned_put(d, b->mirror, b->mirror_bytes);
    free(b->extents);
    free(b->segments);
    free(b->far);
    free(b);
}

void gpu_cuda_buffers_drop_all(struct gpu_cuda_device *d)
{
    while (d->live) {
        struct gpu_cuda_buffer *b = d->live;
        d->live = b->next;
        release(d, b);
    }
}

enum gpu_status gpu_cuda_alloc(struct gpu_device *device, const struct gpu_buffer_desc *desc,
                               struct gpu_buffer *buffer, struct gpu_report *report)
{
    struct gpu_cuda_device *d = gpu_cuda_of(device);
    struct gpu_cuda_buffer *b;
    enum gpu_status status = gpu_cuda_ready(d, "alloc", report);

    memset(buffer, 0, sizeof *buffer);
    if (status == GPU_OK) status = check_descriptor(d, desc, report);
    if (status == GPU_OK) status = gpu_cuda_region_bury(d, report);
    if (status != GPU_OK) return status;
    b = calloc(1, sizeof *b);
    if (!b) return gpu_cuda_fail(report, "out-of-memory", "no host memory for '%s'", desc->name);
    b->name = desc->name;
    b->size_bytes = desc->size_bytes;
    b->check_at = UINT32_MAX;
    b->address = d->empty_address;
    if (desc->size_bytes) status = fill_buffer(d, desc, b, report);
    if (status != GPU_OK) {
        release(d, b);
        return status;
    }
    list_add(d, b);
    *buffer = (struct gpu_buffer){b->address, b->size_bytes, b};
    return GPU_OK;
}

void gpu_cuda_free(struct gpu_device *device, struct gpu_buffer *buffer)
{
    struct gpu_cuda_device *d = gpu_cuda_of(device);
    struct gpu_cuda_buffer *b = buffer->impl;
    struct gpu_report ignored;

    if (!b) return;
    /* A kernel that nobody waited for may use it still. If that one went wrong, the context is lost
     * and remembers it. */
    if (d->running[0] && !d->lost) gpu_cuda_wait(d, &ignored);
    if (b->previous)
        b->previous->next = b->next;
    else
        d->live = b->next;
    if (b->next) b->next->previous = b->previous;
    d->usage.live_buffers--;
    d->mirrored_bytes -= b->mirror ? b->mirror_bytes : 0;
    release(d, b);
    memset(buffer, 0, sizeof *buffer);
}

bool gpu_cuda_backed(const struct gpu_cuda_buffer *b, uint64_t offset, uint64_t bytes)
{
    uint64_t lo = b->address + offset;

    if (offset > b->size_bytes || bytes > b->size_bytes - offset) return false;
    if (!bytes) return true;
    for (uint32_t i = 0; i < b->n_extents; i++)
        if (lo >= b->extents[i].lo && lo < b->extents[i].hi) return bytes <= b->extents[i].hi - lo;
    return false;
}

static enum gpu_status check_range(struct gpu_cuda_device *d, const struct gpu_cuda_buffer *b,
                                   const char *call, uint64_t offset, uint64_t bytes,
                                   struct gpu_report *report)
{
    enum gpu_status status = gpu_cuda_ready(d, call, report);

    if (status != GPU_OK) return status;
    if (b && gpu_cuda_backed(b, offset, bytes)) return GPU_OK;
    return gpu_cuda_fail(report, "bad-range", "%s of %llu bytes at %llu of '%s', which has %llu",
                         call, (unsigned long long)bytes, (unsigned long long)offset,
                         b ? b->name : "(freed)", (unsigned long long)(b ? b->size_bytes : 0));
}

/* Where a backed device address is in the mirror. */
static uint8_t *in_mirror(const struct gpu_cuda_buffer *b, uint64_t address)
{
    uint8_t *host = b->mirror;
    uint32_t i = 0;

    for (; address >= b->segments[i].hi; i++) host += b->segments[i].hi - b->segments[i].lo;
    return host + (address - b->segments[i].lo);
}

enum gpu_status gpu_cuda_upload(struct gpu_device *device, struct gpu_buffer *buffer,
                                uint64_t offset, const void *source, uint64_t bytes,
                                struct gpu_report *report)
{
    struct gpu_cuda_device *d = gpu_cuda_of(device);
    struct gpu_cuda_buffer *b = buffer->impl;
    enum gpu_status status = check_range(d, b, "upload", offset, bytes, report);

    if (status != GPU_OK || !bytes) return status;
    if (!b->mirror) return gpu_cuda_stage_in(d, b->address + offset, source, bytes, report);
    if (!b->dirty) status = gpu_cuda_refresh(d, report);
    if (status != GPU_OK) return status;
    memcpy(in_mirror(b, b->address + offset), source, bytes);
    b->dirty = true;
    return GPU_OK;
}

enum gpu_status gpu_cuda_download(struct gpu_device *device, const struct gpu_buffer *buffer,
                                  uint64_t offset, void *target, uint64_t bytes,
                                  struct gpu_report *report)
{
    struct gpu_cuda_device *d = gpu_cuda_of(device);
    const struct gpu_cuda_buffer *b = buffer->impl;
    enum gpu_status status = check_range(d, b, "download", offset, bytes, report);

    if (status != GPU_OK || !bytes) return status;
    if (!b->mirror) return gpu_cuda_stage_out(d, target, b->address + offset, bytes, report);
    if (!b->dirty) status = gpu_cuda_refresh(d, report);
    if (status == GPU_OK) memcpy(target, in_mirror(b, b->address + offset), bytes);
    return status;
}
