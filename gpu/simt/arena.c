/* Address space for buffers: one large reservation, cut into spans of accessible pages that always
 * have unmapped pages on both sides. Freed spans are kept by size, so that allocating a buffer like
 * an earlier one costs no system call. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Freed memory kept for reuse; beyond this, spans go back to the system. */
#define POOL_BYTES (1ull << 30)
#define MAX_GAP_GRANULES (1u << 16)
#define N_GRANULES (SIMT_ARENA_BYTES / SIMT_GRANULE)

void *simt_map_zeroed(uint64_t bytes)
{
    void *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return address == MAP_FAILED ? NULL : address;
}

void simt_unmap(void *address, uint64_t bytes)
{
    if (address) munmap(address, bytes);
}

bool simt_arena_open(struct simt_arena *arena)
{
    void *begin = mmap(NULL, SIMT_ARENA_BYTES + SIMT_GRANULE, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    memset(arena, 0, sizeof *arena);
    if (begin == MAP_FAILED) return false;
    arena->begin = (uintptr_t)begin;
    arena->owner = simt_map_zeroed(N_GRANULES * sizeof *arena->owner);
    arena->ranges = malloc(16 * sizeof *arena->ranges);
    if (!arena->owner || !arena->ranges) {
        simt_arena_close(arena);
        return false;
    }
    arena->cap_ranges = 16;
    arena->n_ranges = 1;
    arena->ranges[0] = (struct simt_range){0, N_GRANULES};
    return true;
}

static void destroy(struct simt_buffer *buffer)
{
    simt_unmap(buffer->written, buffer->map_bytes);
    simt_unmap(buffer->cells, SIMT_CELLS(buffer->map_bytes) * sizeof *buffer->cells);
    free(buffer->extents);
    free(buffer);
}

void simt_arena_close(struct simt_arena *arena)
{
    for (uint32_t i = 0; i < arena->n_pools; i++) {
        for (struct simt_buffer *b = arena->pools[i].free, *next; b; b = next) {
            next = b->next;
            destroy(b);
        }
    }
    for (struct simt_buffer *b = arena->live, *next; b; b = next) {
        next = b->next;
        destroy(b);
    }
    free(arena->pools);
    free(arena->ranges);
    simt_unmap(arena->owner, N_GRANULES * sizeof *arena->owner);
    if (arena->begin) munmap((void *)arena->begin, SIMT_ARENA_BYTES + SIMT_GRANULE);
    memset(arena, 0, sizeof *arena);
}

/* First fit. */
static bool take_granules(struct simt_arena *arena, uint64_t count, uint64_t *first)
{
    for (uint32_t i = 0; i < arena->n_ranges; i++) {
        struct simt_range *range = &arena->ranges[i];

        if (range->count < count) continue;
        *first = range->first;
        range->first += count;
        range->count -= count;
        if (range->count == 0) {
            arena->n_ranges--;
            memmove(range, range + 1, (arena->n_ranges - i) * sizeof *range);
        }
        return true;
    }
    return false;
}

/* Puts granules back in order and joins them with their neighbours. If the list cannot grow the
 * address space is lost, which the arena's size makes harmless. */
static void give_granules(struct simt_arena *arena, uint64_t first, uint64_t count)
{
    struct simt_range *ranges = arena->ranges;
    uint32_t at = 0;

    while (at < arena->n_ranges && ranges[at].first < first) at++;
    if (at > 0 && ranges[at - 1].first + ranges[at - 1].count == first) {
        ranges[at - 1].count += count;
        if (at < arena->n_ranges && first + count == ranges[at].first) {
            ranges[at - 1].count += ranges[at].count;
            arena->n_ranges--;
            memmove(&ranges[at], &ranges[at + 1], (arena->n_ranges - at) * sizeof *ranges);
        }
        return;
    }
    if (at < arena->n_ranges && first + count == ranges[at].first) {
        ranges[at].first = first;
        ranges[at].count += count;
        return;
    }
    if (arena->n_ranges == arena->cap_ranges) {
        ranges = realloc(ranges, 2 * arena->cap_ranges * sizeof *ranges);
        if (!ranges) return;
        arena->ranges = ranges;
        arena->cap_ranges *= 2;
    }
    memmove(&ranges[at + 1], &ranges[at], (arena->n_ranges - at) * sizeof *ranges);
    ranges[at] = (struct simt_range){first, count};
    arena->n_ranges++;
}

/* Granules of a span: its pages, an unmapped one on each side, and then as much unmapped space as
 * the span is large, so that an index that is wrong by a factor of two hits nothing. */
static uint64_t span_granules(uint64_t pages)
{
    uint64_t count = ((pages + 2) * SIMT_PAGE + SIMT_GRANULE - 1) / SIMT_GRANULE;

    return count + (count < MAX_GAP_GRANULES ? count : MAX_GAP_GRANULES);
}

static struct simt_buffer *reserve(struct simt_arena *arena, uint64_t pages)
{
    struct simt_buffer *buffer;
    uint64_t first, count = span_granules(pages);

    if (pages > SIMT_ARENA_BYTES / SIMT_PAGE) return NULL;
    buffer = calloc(1, sizeof *buffer);
    if (!buffer) return NULL;
    if (!take_granules(arena, count, &first)) {
        free(buffer);
        return NULL;
    }
    buffer->map = arena->begin + first * SIMT_GRANULE + SIMT_PAGE;
    buffer->map_bytes = pages * SIMT_PAGE;
    for (uint64_t i = 0; i < count; i++) arena->owner[first + i] = buffer;
    return buffer;
}

static void unreserve(struct simt_arena *arena, struct simt_buffer *buffer)
{
    uint64_t first = (buffer->map - arena->begin) / SIMT_GRANULE;
    uint64_t count = span_granules(buffer->map_bytes / SIMT_PAGE);

    mmap((void *)buffer->map, buffer->map_bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    for (uint64_t i = 0; i < count; i++) arena->owner[first + i] = NULL;
    give_granules(arena, first, count);
    destroy(buffer);
}

static void make_live(struct simt_arena *arena, struct simt_buffer *buffer)
{
    buffer->live = true;
    buffer->previous = NULL;
    buffer->next = arena->live;
    if (arena->live) arena->live->previous = buffer;
    arena->live = buffer;
}

/* Spans come in eight sizes an octave, so that a pool fits more than one size of buffer. */
static uint64_t pool_pages(uint64_t pages)
{
    uint64_t step = 1;

    while (pages / step > 15) step *= 2;
    return (pages + step - 1) / step * step;
}

static struct simt_pool *find_pool(struct simt_arena *arena, uint64_t pages)
{
    struct simt_pool *grown;

    for (uint32_t i = 0; i < arena->n_pools; i++)
        if (arena->pools[i].pages == pages) return &arena->pools[i];
    if (arena->n_pools == arena->cap_pools) {
        uint32_t cap = arena->cap_pools ? 2 * arena->cap_pools : 32;

        grown = realloc(arena->pools, cap * sizeof *grown);
        if (!grown) return NULL;
        arena->pools = grown;
        arena->cap_pools = cap;
    }
    arena->pools[arena->n_pools] = (struct simt_pool){pages, NULL};
    return &arena->pools[arena->n_pools++];
}

struct simt_buffer *simt_arena_take(struct simt_arena *arena, uint64_t pages)
{
    struct simt_pool *pool;
    struct simt_buffer *buffer;

    pages = pool_pages(pages);
    pool = find_pool(arena, pages);
    if (pool && pool->free) {
        buffer = pool->free;
        pool->free = buffer->next;
        arena->pooled_bytes -= buffer->map_bytes;
    } else {
        buffer = reserve(arena, pages);
        if (!buffer) return NULL;
    }
    if (!buffer->writable && !simt_arena_protect(buffer, true)) {
        unreserve(arena, buffer);
        return NULL;
    }
    make_live(arena, buffer);
    return buffer;
}

struct simt_buffer *simt_arena_take_sparse(struct simt_arena *arena, uint64_t pages,
                                           uint64_t data_offset, const struct gpu_extent *extents,
                                           uint32_t n_extents)
{
    struct simt_buffer *buffer = reserve(arena, pages);

    if (!buffer) return NULL;
    buffer->begin = buffer->map + data_offset;
    buffer->extents = malloc(n_extents * sizeof *extents);
    if (buffer->extents) {
        memcpy(buffer->extents, extents, n_extents * sizeof *extents);
        buffer->n_extents = n_extents;
    }
    if (!buffer->extents || !simt_arena_protect(buffer, true)) {
        unreserve(arena, buffer);
        return NULL;
    }
    make_live(arena, buffer);
    return buffer;
}

void simt_arena_give(struct simt_arena *arena, struct simt_buffer *buffer)
{
    struct simt_pool *pool = NULL;

    if (buffer->previous)
        buffer->previous->next = buffer->next;
    else
        arena->live = buffer->next;
    if (buffer->next) buffer->next->previous = buffer->previous;
    buffer->live = false;
    if (!buffer->extents && arena->pooled_bytes + buffer->map_bytes <= POOL_BYTES)
        pool = find_pool(arena, buffer->map_bytes / SIMT_PAGE);
    if (!pool) {
        unreserve(arena, buffer);
        return;
    }
    arena->pooled_bytes += buffer->map_bytes;
    buffer->next = pool->free;
    pool->free = buffer;
}

bool simt_arena_protect(struct simt_buffer *buffer, bool writable)
{
    int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
    uint64_t mask = ~(uint64_t)(SIMT_PAGE - 1);
    int failed = 0;

    if (!buffer->extents) failed = mprotect((void *)buffer->map, buffer->map_bytes, protection);
    for (uint32_t i = 0; i < buffer->n_extents; i++) {
        const struct gpu_extent *extent = &buffer->extents[i];
        uintptr_t from = (buffer->begin + extent->offset_bytes) & mask;
        uintptr_t to =
            (buffer->begin + extent->offset_bytes + extent->size_bytes + SIMT_PAGE - 1) & mask;

        if (extent->size_bytes > 0) failed |= mprotect((void *)from, to - from, protection);
    }
    if (!failed) buffer->writable = writable;
    return !failed;
}

static void drop_cells(struct simt_buffer *list)
{
    for (struct simt_buffer *b = list; b; b = b->next) {
        simt_unmap(b->cells, SIMT_CELLS(b->map_bytes) * sizeof *b->cells);
        b->cells = NULL;
    }
}

void simt_arena_drop_cells(struct simt_arena *arena)
{
    drop_cells(arena->live);
    for (uint32_t i = 0; i < arena->n_pools; i++) drop_cells(arena->pools[i].free);
}

struct simt_buffer *simt_arena_nearest(const struct simt_arena *arena, uintptr_t address,
                                       uint64_t *distance_bytes)
{
    struct simt_buffer *best = NULL;
    uint64_t best_distance = UINT64_MAX;

    for (struct simt_buffer *b = arena->live; b; b = b->next) {
        uintptr_t end = b->begin + b->size;
        uint64_t distance = address < b->begin ? b->begin - address
                            : address >= end   ? address - end
                                               : 0;

        /* A launch without dynamic shared memory still has an address for it. */
        if (b->shared && b->size == 0 && distance >= SIMT_PAGE) continue;
        if (distance < best_distance) {
            best_distance = distance;
            best = b;
        }
    }
    *distance_bytes = best_distance;
    return best;
}
