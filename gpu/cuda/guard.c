/* Comparing red zones: the margins in a mirror on the host, the rest by the verify kernel's answer,
 * and byte by byte where that answer says or nobody can say. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES (256u << 10)

/* Device addresses of red-zone bytes have the pattern's low byte at even addresses. */
static bool is_red(uint64_t address, uint8_t byte)
{
    return byte == (uint8_t)(GPU_CUDA_RED_WORD >> (8 * (address & 3)));
}

struct damage {
    uint64_t first; /* address of the first changed byte */
    uint64_t bytes; /* changed bytes seen; 0: none */
};

/* Bytes from `host` on that are intact, in steps of 8; `at` is the device address of *host. */
static uint64_t intact(const uint8_t *host, uint64_t at, uint64_t bytes)
{
    const uint64_t red = (uint64_t)GPU_CUDA_RED_WORD << 32 | GPU_CUDA_RED_WORD;
    uint64_t n = 0, word;

    if (at & 3) return 0;
    for (; n + sizeof word <= bytes; n += sizeof word) {
        memcpy(&word, host + n, sizeof word);
        if (word != red) break;
    }
    return n;
}

static void scan(struct damage *damage, const uint8_t *host, struct gpu_cuda_range range)
{
    for (uint64_t at = range.lo; at < range.hi; at++) {
        at += intact(host + (at - range.lo), at, range.hi - at);
        if (at == range.hi || is_red(at, host[at - range.lo])) continue;
        if (!damage->bytes++) damage->first = at;
    }
}

static enum gpu_status scan_device(struct gpu_cuda_device *d, struct damage *damage,
                                   struct gpu_cuda_range range, struct gpu_report *report)
{
    uint64_t most = range.hi - range.lo < PIECE_BYTES ? range.hi - range.lo : PIECE_BYTES;
    uint8_t *piece = malloc(most);
    enum gpu_status status = GPU_OK;

    if (!piece)
        return gpu_cuda_fail(report, "out-of-memory", "no host memory to compare a red zone");
    while (range.lo < range.hi && status == GPU_OK) {
        struct gpu_cuda_range part = {range.lo, range.hi};
        if (part.hi - part.lo > most) part.hi = part.lo + most;
        status = gpu_cuda_stage_out(d, piece, part.lo, part.hi - part.lo, report);
        if (status == GPU_OK) scan(damage, piece, part);
        range.lo = part.hi;
    }
    free(piece);
    return status;
}

/* The margins: segments less extents. */
static enum gpu_status scan_margins(struct gpu_cuda_device *d, const struct gpu_cuda_buffer *b,
                                    struct damage *damage, struct gpu_report *report)
{
    enum gpu_status status = GPU_OK;
    const uint8_t *host = b->mirror;
    uint32_t e = 0;

    for (uint32_t s = 0; s < b->n_segments && status == GPU_OK; s++) {
        struct gpu_cuda_range segment = b->segments[s];
        uint64_t at = segment.lo;
        while (at < segment.hi && status == GPU_OK) {
            bool inside = e < b->n_extents && b->extents[e].lo < segment.hi;
            struct gpu_cuda_range gap = {at, inside ? b->extents[e].lo : segment.hi};
            if (b->mirror)
                scan(damage, host + (gap.lo - segment.lo), gap);
            else if (gap.lo < gap.hi)
                status = scan_device(d, damage, gap, report);
            at = inside ? b->extents[e++].hi : segment.hi;
        }
        if (b->mirror) host += segment.hi - segment.lo;
    }
    return status;
}

static enum gpu_status scan_far(struct gpu_cuda_device *d, const struct gpu_cuda_buffer *b,
                                struct damage *damage, struct gpu_report *report)
{
    enum gpu_status status = GPU_OK;

    if (b->far_checked && !b->far_hit) return GPU_OK;
    for (uint32_t i = 0; i < b->n_far && status == GPU_OK; i++)
        status = scan_device(d, damage, b->far[i], report);
    return status;
}

static enum gpu_status tell(const struct gpu_cuda_buffer *b, const struct damage *damage,
                            struct gpu_report *report)
{
    char where[120];
    uint64_t end = b->address + b->size_bytes, at = damage->first;

    if (at < b->address)
        snprintf(where, sizeof where, "%llu bytes before its start",
                 (unsigned long long)(b->address - at));
    else if (at >= end)
        snprintf(where, sizeof where, "%llu bytes behind its last byte",
                 (unsigned long long)(at - end + 1));
    else
        snprintf(where, sizeof where, "at offset %llu, outside its extents",
                 (unsigned long long)(at - b->address));
    snprintf(report->rule, sizeof report->rule, "red-zone");
    snprintf(report->text, sizeof report->text,
             "%llu bytes around '%s' (%llu bytes) changed, the first %s",
             (unsigned long long)damage->bytes, b->name, (unsigned long long)b->size_bytes, where);
    return GPU_FINDING;
}

enum gpu_status gpu_cuda_check_guards(struct gpu_device *device, const struct gpu_buffer *buffer,
                                      struct gpu_report *report)
{
    struct gpu_cuda_device *d = gpu_cuda_of(device);
    const struct gpu_cuda_buffer *b = buffer->impl;
    struct damage far = {0}, margin = {0};
    enum gpu_status status = gpu_cuda_ready(d, "check_guards", report);

    if (status == GPU_OK && !b)
        return gpu_cuda_fail(report, "bad-range", "check_guards of a buffer that was freed");
    if (status != GPU_OK || !b->n_extents || !b->settled)
        return status; /* not settled: nothing has run since alloc */
    status = gpu_cuda_refresh(d, report);
    if (status == GPU_OK) status = scan_margins(d, b, &margin, report);
    if (status == GPU_OK) status = scan_far(d, b, &far, report);
    if (status != GPU_OK || !(far.bytes + margin.bytes)) return status;
    if (!margin.bytes || (far.bytes && far.first < margin.first)) margin.first = far.first;
    margin.bytes += far.bytes;
    return tell(b, &margin, report);
}
