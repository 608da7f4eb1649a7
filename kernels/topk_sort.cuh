/* Descending sort of distinct 64-bit entries in shared memory by one block of 256 threads: bitonic
 * merges, in registers within 64 neighbours. */
#ifndef ATTEST_KERNELS_TOPK_SORT_CUH
#define ATTEST_KERNELS_TOPK_SORT_CUH

#include "det_math.cuh"

#define TOPK_THREADS 256
#define TOPK_WARPS (TOPK_THREADS / DET_WARP)
#define TOPK_CHUNK (2 * DET_WARP) /* entries a warp sorts by itself */

static __device__ __forceinline__ uint32_t topk_padded(uint32_t count)
{
    uint32_t size = 1;

    while (size < count) size <<= 1;
    return size;
}

/* One exchange of a descending bitonic sort, seen from the entry at place i. */
static __device__ __forceinline__ uint64_t topk_exchange(uint64_t mine, uint64_t other, uint32_t i,
                                                         uint32_t run, uint32_t gap)
{
    bool keeps_better = ((i & run) == 0) == ((i & gap) == 0);

    return (mine > other) == keeps_better ? mine : other;
}

/* The exchanges of merge `run` with gaps below 64, for places i and i + 1 of the warp's 64. */
static __device__ __forceinline__ void topk_merge_chunk(uint64_t pair[2], uint32_t i, uint32_t run)
{
    uint64_t low;

#pragma unroll
    for (uint32_t gap = TOPK_CHUNK / 2; gap > 1; gap /= 2) {
        if (gap >= run) continue;
        for (uint32_t e = 0; e < 2; e++) {
            uint64_t other = __shfl_xor_sync(DET_FULL_MASK, pair[e], (int)(gap / 2));

            pair[e] = topk_exchange(pair[e], other, i + e, run, gap);
        }
    }
    low = pair[0];
    pair[0] = topk_exchange(low, pair[1], i, run, 1);
    pair[1] = topk_exchange(pair[1], low, i + 1, run, 1);
}

/* All merges up to `last` with gaps below 64, from merge `run` on, of the chunks of this warp. */
static __device__ __forceinline__ void topk_sort_chunks(uint64_t *entries, uint32_t size,
                                                        bool whole, uint32_t last)
{
    uint32_t first = threadIdx.x / DET_WARP * TOPK_CHUNK + threadIdx.x % DET_WARP * 2;

    for (uint32_t i = first; i < size; i += TOPK_WARPS * TOPK_CHUNK) {
        uint64_t pair[2] = {entries[i], entries[i + 1]};

        if (whole) {
#pragma unroll
            for (uint32_t run = 2; run <= TOPK_CHUNK; run *= 2) topk_merge_chunk(pair, i, run);
        } else {
            topk_merge_chunk(pair, i, last);
        }
        entries[i] = pair[0];
        entries[i + 1] = pair[1];
    }
    __syncthreads();
}

/* Sorts the entries, best first; size is a power of two, 64 at least. */
static __device__ __forceinline__ void topk_sort(uint64_t *entries, uint32_t size)
{
    topk_sort_chunks(entries, size, true, TOPK_CHUNK);
    for (uint32_t run = 2 * TOPK_CHUNK; run <= size; run *= 2) {
        for (uint32_t gap = run / 2; gap >= TOPK_CHUNK; gap /= 2) {
            for (uint32_t pair = threadIdx.x; pair < size / 2; pair += TOPK_THREADS) {
                uint32_t low = 2 * pair - (pair & (gap - 1)), high = low + gap;
                uint64_t a = entries[low], b = entries[high];

                entries[low] = topk_exchange(a, b, low, run, gap);
                entries[high] = topk_exchange(b, a, high, run, gap);
            }
            __syncthreads();
        }
        topk_sort_chunks(entries, size, false, run);
    }
}

#endif
