/* Buffers: fences, red zones, copies, and the map of written bytes that trace builds keep. */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A red zone reaches this far from the data, or to the unmapped page. */
#define RED_ZONE_BYTES (64u * 1024)

enum gpu_status simt_infra(struct gpu_report *report, const char *format, ...)
{
    va_list list;

    if (!report) return GPU_INFRA;
    snprintf(report->rule, sizeof report->rule, "simt");
    va_start(list, format);
    vsnprintf(report->text, sizeof report->text, format, list);
    va_end(list);
    return GPU_INFRA;
}

static uint64_t alignment_of(const struct gpu_buffer_desc *desc)
{
    uint64_t wanted = desc->elem_bytes > desc->align_bytes ? desc->elem_bytes : desc->align_bytes;
    uint64_t alignment = 1;

    while (alignment < wanted && alignment < SIMT_PAGE) alignment *= 2;
    return alignment;
}

/* Calls visit for every accessible byte range around the data, nearest bytes first in importance:
 * the slack of the first and the last page, and between extents that do not fill their pages. */
typedef bool (*zone_visitor)(uintptr_t begin, uintptr_t end, void *context);

static bool visit_sparse_zones(const struct simt_buffer *buffer, zone_visitor visit, void *context)
{
    uint64_t mask = ~(uint64_t)(SIMT_PAGE - 1);

    for (uint32_t i = 0; i < buffer->n_extents; i++) {
        const struct gpu_extent *extent = &buffer->extents[i];
        uintptr_t begin = buffer->begin + extent->offset_bytes, end = begin + extent->size_bytes;
        uintptr_t before = begin & mask, after = (end + SIMT_PAGE - 1) & mask;

        if (extent->size_bytes == 0) continue;
        if (i > 0) {
            uintptr_t last = buffer->begin + extent[-1].offset_bytes + extent[-1].size_bytes;

            if (before < last) before = last;
        }
        if (i + 1 < buffer->n_extents && after > buffer->begin + extent[1].offset_bytes)
            after = buffer->begin + extent[1].offset_bytes;
        if (before < begin && !visit(before, begin, context)) return false;
        if (end < after && !visit(end, after, context)) return false;
    }
    return true;
}

static bool visit_zones(const struct simt_buffer *buffer, zone_visitor visit, void *context)
{
    uintptr_t end = buffer->begin + buffer->size, map_end = buffer->map + buffer->map_bytes;
    uintptr_t low = buffer->map, high = map_end;

    if (buffer->extents) return visit_sparse_zones(buffer, visit, context);
    if (buffer->begin - low > RED_ZONE_BYTES) low = buffer->begin - RED_ZONE_BYTES;
    if (high - end > RED_ZONE_BYTES) high = end + RED_ZONE_BYTES;
    return (low == buffer->begin || visit(low, buffer->begin, context)) &&
           (high == end || visit(end, high, context));
}

static bool fill_zone(uintptr_t begin, uintptr_t end, void *context)
{
    memset((void *)begin, SIMT_RED_ZONE_BYTE, end - begin);
    return true;
}

/* The data's place in its span: flush against the unmapped page on the chosen side, as far as the
 * alignment lets it. An empty buffer lies on an unmapped page whichever side was asked for. */
static uint64_t data_offset(const struct gpu_buffer_desc *desc, uint64_t map_bytes)
{
    if (desc->size_bytes == 0) return map_bytes;
    if (desc->fence == GPU_FENCE_BEFORE) return 0;
    return (map_bytes - desc->size_bytes) & ~(alignment_of(desc) - 1);
}

static bool extents_are_sane(const struct gpu_buffer_desc *desc)
{
    uint64_t at = 0;

    for (uint32_t i = 0; i < desc->n_extents; i++) {
        const struct gpu_extent *extent = &desc->extents[i];

        if (extent->offset_bytes < at || extent->offset_bytes > desc->size_bytes) return false;
        if (extent->size_bytes > desc->size_bytes - extent->offset_bytes) return false;
        at = extent->offset_bytes + extent->size_bytes;
    }
    return true;
}

/* A fresh map has no byte written; one of a reused span is cleared. */
static bool prepare_written(struct simt_buffer *buffer)
{
    if (buffer->written) {
        memset(buffer->written, 0, buffer->map_bytes);
        return true;
    }
    buffer->written = simt_map_zeroed(buffer->map_bytes);
    return buffer->written != NULL;
}

enum gpu_status simt_alloc(struct gpu_device *device, const struct gpu_buffer_desc *desc,
                           struct gpu_buffer *buffer, struct gpu_report *report)
{
    struct simt_buffer *impl;
    uint64_t pages;

    *buffer = (struct gpu_buffer){0, 0, NULL};
    if (desc->size_bytes > SIMT_ARENA_BYTES / 2)
        return simt_infra(report, "%s: %llu bytes are more than the backend can address",
                          desc->name, (unsigned long long)desc->size_bytes);
    if (!extents_are_sane(desc))
        return simt_infra(report, "%s: extents overlap or leave the buffer", desc->name);
    pages = (desc->size_bytes + alignment_of(desc) - 1 + SIMT_PAGE - 1) / SIMT_PAGE;
    if (pages == 0) pages = 1;
    if (desc->n_extents > 0)
        impl = simt_arena_take_sparse(&device->arena, pages, data_offset(desc, pages * SIMT_PAGE),
                                      desc->extents, desc->n_extents);
    else
        impl = simt_arena_take(&device->arena, pages);
    if (!impl)
        return simt_infra(report, "%s: no memory for %llu bytes", desc->name,
                          (unsigned long long)desc->size_bytes);
    impl->name = desc->name;
    impl->begin = impl->map + data_offset(desc, impl->map_bytes);
    impl->size = desc->size_bytes;
    impl->elem_bytes = desc->elem_bytes ? desc->elem_bytes : 1;
    impl->read_only = desc->read_only;
    impl->shared = false;
    if (device->tracing && !prepare_written(impl)) {
        simt_arena_give(&device->arena, impl);
        return simt_infra(report, "%s: no memory for the map of written bytes", desc->name);
    }
    visit_zones(impl, fill_zone, NULL);
    *buffer = (struct gpu_buffer){impl->begin, desc->size_bytes, impl};
    return GPU_OK;
}

void simt_free(struct gpu_device *device, struct gpu_buffer *buffer)
{
    if (!buffer->impl) return;
    simt_arena_give(&device->arena, buffer->impl);
    *buffer = (struct gpu_buffer){0, 0, NULL};
}

bool simt_is_backed(const struct simt_buffer *buffer, uint64_t offset, uint64_t bytes)
{
    uint64_t end = offset + bytes;

    if (end < offset || end > buffer->size) return false;
    if (!buffer->extents || bytes == 0) return true;
    for (uint32_t i = 0; i < buffer->n_extents; i++) {
        const struct gpu_extent *extent = &buffer->extents[i];

        if (offset < extent->offset_bytes) return false;
        if (offset >= extent->offset_bytes + extent->size_bytes) continue;
        offset = extent->offset_bytes + extent->size_bytes;
        if (offset >= end) return true;
    }
    return false;
}

enum gpu_status simt_upload(struct gpu_device *device, struct gpu_buffer *buffer,
                            uint64_t offset_bytes, const void *source, uint64_t size_bytes,
                            struct gpu_report *report)
{
    struct simt_buffer *impl = buffer->impl;

    if (!impl || !simt_is_backed(impl, offset_bytes, size_bytes))
        return simt_infra(report, "upload of %llu bytes at %llu leaves the memory behind %s",
                          (unsigned long long)size_bytes, (unsigned long long)offset_bytes,
                          impl ? impl->name : "an empty buffer");
    if (size_bytes == 0) return GPU_OK;
    if (!impl->writable && !simt_arena_protect(impl, true))
        return simt_infra(report, "cannot make %s writable again", impl->name);
    memcpy((void *)(impl->begin + offset_bytes), source, size_bytes);
    if (impl->written)
        memset(impl->written + (impl->begin - impl->map) + offset_bytes, 1, size_bytes);
    return GPU_OK;
}

enum gpu_status simt_download(struct gpu_device *device, const struct gpu_buffer *buffer,
                              uint64_t offset_bytes, void *target, uint64_t size_bytes,
                              struct gpu_report *report)
{
    const struct simt_buffer *impl = buffer->impl;

    if (!impl || !simt_is_backed(impl, offset_bytes, size_bytes))
        return simt_infra(report, "download of %llu bytes at %llu leaves the memory behind %s",
                          (unsigned long long)size_bytes, (unsigned long long)offset_bytes,
                          impl ? impl->name : "an empty buffer");
    if (size_bytes > 0) memcpy(target, (const void *)(impl->begin + offset_bytes), size_bytes);
    return GPU_OK;
}

void simt_mark_unwritten(struct gpu_device *device, struct gpu_buffer *buffer)
{
    struct simt_buffer *impl = buffer->impl;
    uint8_t *data;

    if (!impl || !impl->written) return;
    data = impl->written + (impl->begin - impl->map);
    if (!impl->extents) memset(data, 0, impl->size);
    for (uint32_t i = 0; i < impl->n_extents; i++)
        memset(data + impl->extents[i].offset_bytes, 0, impl->extents[i].size_bytes);
}

struct guard_search {
    const struct simt_buffer *buffer;
    struct gpu_report *report;
};

static bool check_zone(uintptr_t begin, uintptr_t end, void *context)
{
    const struct guard_search *search = context;
    const struct simt_buffer *buffer = search->buffer;
    const unsigned char *bytes = (const unsigned char *)begin;
    size_t n = end - begin, at = 0;

    if (bytes[0] == SIMT_RED_ZONE_BYTE && memcmp(bytes, bytes + 1, n - 1) == 0) return true;
    if (!search->report) return false;
    while (bytes[at] == SIMT_RED_ZONE_BYTE) at++;
    snprintf(search->report->rule, sizeof search->report->rule, "red-zone");
    if (begin + at < buffer->begin)
        snprintf(search->report->text, sizeof search->report->text,
                 "something wrote %llu bytes before the start of %s",
                 (unsigned long long)(buffer->begin - (begin + at)), buffer->name);
    else if (begin + at >= buffer->begin + buffer->size)
        snprintf(search->report->text, sizeof search->report->text,
                 "something wrote %llu bytes past the end of %s (%llu bytes long)",
                 (unsigned long long)(begin + at - (buffer->begin + buffer->size)), buffer->name,
                 (unsigned long long)buffer->size);
    else
        snprintf(search->report->text, sizeof search->report->text,
                 "something wrote at byte %llu of %s, outside its backed extents",
                 (unsigned long long)(begin + at - buffer->begin), buffer->name);
    return false;
}

enum gpu_status simt_check_guards(struct gpu_device *device, const struct gpu_buffer *buffer,
                                  struct gpu_report *report)
{
    struct guard_search search = {buffer->impl, report};

    if (!buffer->impl) return GPU_OK;
    return visit_zones(buffer->impl, check_zone, &search) ? GPU_OK : GPU_FINDING;
}
