/* Host memory the device can reach: large chunks, carved into blocks of a few size classes that
 * are never given back before close. Pinning costs about as much as a whole small case. */
#include "internal.h"

#include <stdlib.h>

#define CHUNK_BYTES (8u << 20)

void *gpu_cuda_pinned_make(struct gpu_cuda_device *d, uint64_t bytes)
{
    void *memory = NULL;

    if (d->n_chunks == d->chunk_capacity) {
        uint32_t capacity = d->chunk_capacity ? 2 * d->chunk_capacity : 16;
        void **chunks = realloc(d->chunks, capacity * sizeof *chunks);
        if (!chunks) return NULL;
        d->chunks = chunks;
        d->chunk_capacity = capacity;
    }
    if (d->api.host_alloc(&memory, bytes, CU_HOSTALLOC_PORTABLE_MAPPED) != CU_OK || !memory)
        return NULL;
    d->chunks[d->n_chunks++] = memory;
    d->usage.pinned_bytes += bytes;
    return memory;
}

static uint32_t class_of(uint64_t bytes)
{
    uint32_t class = 0;

    while (((uint64_t)GPU_CUDA_SMALLEST_PINNED << class) < bytes) class ++;
    return class;
}

void *gpu_cuda_pinned_take(struct gpu_cuda_device *d, uint64_t bytes)
{
    uint32_t class = class_of(bytes);
    uint64_t block_bytes = (uint64_t)GPU_CUDA_SMALLEST_PINNED << class;
    struct gpu_cuda_pinned_block *block;

    if (class >= GPU_CUDA_PINNED_CLASSES) return NULL;
    block = d->free_pinned[class];
    if (block) {
        d->free_pinned[class] = block->next;
        return block;
    }
    if (!d->carve || d->chunk_used + block_bytes > CHUNK_BYTES) {
        uint8_t *chunk = gpu_cuda_pinned_make(d, CHUNK_BYTES);
        if (!chunk) return NULL;
        d->carve = chunk;
        d->chunk_used = 0;
    }
    d->chunk_used += block_bytes;
    return d->carve + d->chunk_used - block_bytes;
}

void gpu_cuda_pinned_put(struct gpu_cuda_device *d, void *memory, uint64_t bytes)
{
    struct gpu_cuda_pinned_block *block = memory;
    uint32_t class = class_of(bytes);

    block->next = d->free_pinned[class];
    d->free_pinned[class] = block;
}

void gpu_cuda_pinned_drop_all(struct gpu_cuda_device *d)
{
    for (uint32_t i = 0; i < d->n_chunks && !d->lost; i++) d->api.host_free(d->chunks[i]);
    free(d->chunks);
    d->chunks = NULL;
    d->n_chunks = 0;
}
