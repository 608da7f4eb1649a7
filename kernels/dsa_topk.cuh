/* Exact top-k of a row of pool scores, any length up to 2^31 - 1, one block of 256 threads a row.
 *
 * Order: score descending, pool ascending; -0 equals +0; NaN after every number. A radix select
 * over the 32-bit rank keys (four passes of 8 bits) finds the key of the last place and how many of
 * the pools that share it are taken, lowest first. Each warp then scans its own contiguous part of
 * the row, so the taken pools are listed without a race for slots, and the list is sorted by
 * (key, pool), a strict order. Nothing depends on timing: the only atomics count integers.
 *
 * NP2, a power of two, is at least select_k, not the number of pools. The interface's 16*NP2 bytes
 * of dynamic shared memory hold 2*NP2 entries of (key, pool), as a kernel needs that keeps the best
 * NP2 of a stream; this one lists the select_k taken pools there. */
#ifndef ATTEST_KERNELS_DSA_TOPK_CUH
#define ATTEST_KERNELS_DSA_TOPK_CUH

#include "det_math.cuh"
#include "dsa_geom.cuh"

#define TOPK_THREADS 256
#define TOPK_WARPS (TOPK_THREADS / DET_WARP)
#define TOPK_BINS 256
#define TOPK_BATCH 8 /* loads a thread has in flight */

struct topk_shared {
    uint32_t counts[TOPK_WARPS][TOPK_BINS];
    uint32_t warp_totals[TOPK_WARPS], warp_ties[TOPK_WARPS];
    uint32_t bin, before;
};

/* The pools taken: those with a key below `key`, and the first `ties` of those equal to it. */
struct topk_cut {
    uint32_t key, ties;
};

/* Ascending key = descending score. Only NaN reaches 0xffffffff. */
static __device__ __forceinline__ uint32_t topk_rank_key(float score)
{
    uint32_t bits = __float_as_uint(score);

    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0xffffffffu;
    if (bits == 0x80000000u) bits = 0;
    return (bits & 0x80000000u) != 0 ? bits : ~(bits | 0x80000000u);
}

/* Keys of pools first, first + stride, ...; 0 at and past `end`. */
static __device__ __forceinline__ void topk_load_keys(uint32_t keys[TOPK_BATCH],
                                                      const float *scores, uint32_t first,
                                                      uint32_t stride, uint32_t end)
{
    float batch[TOPK_BATCH];

#pragma unroll
    for (int j = 0; j < TOPK_BATCH; j++)
        batch[j] = first + j * stride < end ? scores[first + j * stride] : 0.0f;
#pragma unroll
    for (int j = 0; j < TOPK_BATCH; j++) keys[j] = topk_rank_key(batch[j]);
}

/* Adds one warp's digits to its histogram. A warp that agrees on a digit, the usual case in a row
 * of ties, counts it once. */
static __device__ __forceinline__ void topk_vote(uint32_t *counts, bool counted, uint32_t digit)
{
    uint32_t voters = __ballot_sync(DET_FULL_MASK, counted);
    uint32_t leader = (uint32_t)__ffs((int)voters) - 1;
    uint32_t common = __shfl_sync(DET_FULL_MASK, digit, (int)(leader % DET_WARP));

    if (__all_sync(DET_FULL_MASK, !counted || digit == common)) {
        if (counted && threadIdx.x % DET_WARP == leader)
            atomicAdd(&counts[digit], (uint32_t)__popc(voters));
    } else if (counted) {
        atomicAdd(&counts[digit], 1u);
    }
}

/* Counts, warp by warp, the digits at `shift` of the keys whose upper bits are `prefix`. */
static __device__ __forceinline__ void topk_count_digits(struct topk_shared *shared,
                                                         const float *scores, uint32_t pools,
                                                         uint32_t prefix, uint32_t shift)
{
    uint32_t warp = threadIdx.x / DET_WARP, lane = threadIdx.x % DET_WARP;

    for (uint32_t w = 0; w < TOPK_WARPS; w++) shared->counts[w][threadIdx.x] = 0;
    __syncthreads();
    for (uint32_t base = warp * DET_WARP; base < pools; base += TOPK_BATCH * TOPK_THREADS) {
        uint32_t keys[TOPK_BATCH];

        topk_load_keys(keys, scores, base + lane, TOPK_THREADS, pools);
#pragma unroll
        for (uint32_t j = 0; j < TOPK_BATCH; j++) {
            uint32_t start = base + j * TOPK_THREADS;

            if (start >= pools) break;
            topk_vote(shared->counts[warp],
                      start + lane < pools && (uint64_t)keys[j] >> (shift + 8) == prefix,
                      keys[j] >> shift & 0xff);
        }
    }
    __syncthreads();
}

/* Inclusive prefix sum over the block; thread t adds `value`. One barrier. */
static __device__ __forceinline__ uint32_t topk_block_scan(uint32_t *warp_totals, uint32_t value)
{
    uint32_t warp = threadIdx.x / DET_WARP, lane = threadIdx.x % DET_WARP;

    for (uint32_t step = 1; step < DET_WARP; step <<= 1) {
        uint32_t other = __shfl_up_sync(DET_FULL_MASK, value, step);

        value += lane >= step ? other : 0;
    }
    if (lane == DET_WARP - 1) warp_totals[warp] = value;
    __syncthreads();
    for (uint32_t w = 0; w < warp; w++) value += warp_totals[w];
    return value;
}

/* The cut that takes exactly `wanted` pools, 1 <= wanted <= pools. */
static __device__ __forceinline__ struct topk_cut
topk_find_cut(struct topk_shared *shared, const float *scores, uint32_t pools, uint32_t wanted)
{
    struct topk_cut cut = {0, wanted};

    for (int shift = 24; shift >= 0; shift -= 8) {
        uint32_t total = 0, upto;

        topk_count_digits(shared, scores, pools, cut.key, (uint32_t)shift);
        for (uint32_t w = 0; w < TOPK_WARPS; w++) total += shared->counts[w][threadIdx.x];
        upto = topk_block_scan(shared->warp_totals, total);
        if (upto >= cut.ties && upto - total < cut.ties) {
            shared->bin = threadIdx.x;
            shared->before = upto - total;
        }
        __syncthreads();
        cut.key = cut.key << 8 | shared->bin;
        cut.ties -= shared->before;
    }
    return cut;
}

/* A warp's contiguous part of the row, and how many pools before it are better than the cut and how
 * many tie with it. */
struct topk_part {
    uint32_t start, end, better, ties;
};

/* Splits the row among the warps and counts. Ends with the counts of the warps before this one. */
static __device__ __forceinline__ struct topk_part
topk_split(struct topk_shared *shared, const float *scores, uint32_t pools, uint32_t cut_key)
{
    uint32_t warp = threadIdx.x / DET_WARP, lane = threadIdx.x % DET_WARP, keys[TOPK_BATCH];
    uint32_t size = (pools + TOPK_THREADS - 1) / TOPK_THREADS * DET_WARP, better = 0, ties = 0;
    struct topk_part part = {0, 0, 0, 0};

    part.start = warp * size < pools ? warp * size : pools;
    part.end = pools - part.start < size ? pools : part.start + size;
    for (uint32_t base = part.start; base < part.end; base += TOPK_BATCH * DET_WARP) {
        topk_load_keys(keys, scores, base + lane, DET_WARP, part.end);
#pragma unroll
        for (uint32_t j = 0; j < TOPK_BATCH; j++) {
            bool inside = base + j * DET_WARP + lane < part.end;

            better += inside && keys[j] < cut_key;
            ties += inside && keys[j] == cut_key;
        }
    }
    better = __reduce_add_sync(DET_FULL_MASK, better);
    ties = __reduce_add_sync(DET_FULL_MASK, ties);
    if (lane == 0) {
        shared->warp_totals[warp] = better;
        shared->warp_ties[warp] = ties;
    }
    __syncthreads();
    for (uint32_t w = 0; w < warp; w++) {
        part.better += shared->warp_totals[w];
        part.ties += shared->warp_ties[w];
    }
    return part;
}

/* Lists the `wanted` pools inside the cut: the better ones first, then the ties in order. */
static __device__ __forceinline__ void topk_collect(uint64_t *list, const float *scores,
                                                    struct topk_part part, uint32_t wanted,
                                                    struct topk_cut cut)
{
    uint32_t lane = threadIdx.x % DET_WARP, below = (1u << lane) - 1, keys[TOPK_BATCH];

    for (uint32_t base = part.start; base < part.end; base += TOPK_BATCH * DET_WARP) {
        topk_load_keys(keys, scores, base + lane, DET_WARP, part.end);
#pragma unroll
        for (uint32_t j = 0; j < TOPK_BATCH; j++) {
            uint32_t pool = base + j * DET_WARP + lane, better, ties, tie, place;
            bool is_better = pool < part.end && keys[j] < cut.key;
            bool is_tie = pool < part.end && keys[j] == cut.key;

            if (pool - lane >= part.end) break;
            better = __ballot_sync(DET_FULL_MASK, is_better);
            ties = __ballot_sync(DET_FULL_MASK, is_tie);
            tie = part.ties + (uint32_t)__popc(ties & below);
            place = is_better ? part.better + (uint32_t)__popc(better & below)
                              : wanted - cut.ties + tie;
            part.better += (uint32_t)__popc(better);
            part.ties += (uint32_t)__popc(ties);
            if (is_better || (is_tie && tie < cut.ties))
                list[place] = (uint64_t)keys[j] << 32 | pool;
        }
    }
    __syncthreads();
}

static __device__ __forceinline__ void topk_order(uint64_t *low, uint64_t *high)
{
    uint64_t a = *low, b = *high;

    if (b < a) {
        *low = b;
        *high = a;
    }
}

/* Bitonic sort of any length: the first step of each merge compares mirrored positions, so every
 * exchange puts the smaller entry first and the missing entries past the end never move. */
static __device__ __forceinline__ void topk_sort(uint64_t *list, uint32_t count)
{
    for (uint64_t run = 2; run < 2 * (uint64_t)count; run *= 2) {
        for (uint64_t step = run / 2; step > 0; step /= 2) {
            uint32_t flip = (uint32_t)(step == run / 2 ? run - 1 : step);

            for (uint32_t low = threadIdx.x; low < count; low += TOPK_THREADS) {
                uint32_t high = low ^ flip;

                if (high > low && high < count) topk_order(&list[low], &list[high]);
            }
            __syncthreads();
        }
    }
}

extern "C" __global__ void __launch_bounds__(TOPK_THREADS, 4)
    dsa_topk_pools(const float *scores, int32_t *selected, uint32_t Q, uint32_t P, uint32_t NP2,
                   uint32_t select_k, const int32_t *geom)
{
    extern __shared__ uint64_t topk_list[];
    __shared__ struct topk_shared shared;
    uint32_t pools = geom != NULL ? (uint32_t)geom[DSA_GEOM_POOLS] : P;
    uint32_t slots = geom != NULL ? (uint32_t)geom[DSA_GEOM_SELECT_K] : select_k;
    uint32_t wanted = slots < pools ? slots : pools;
    const float *row = scores + (uint64_t)blockIdx.x * P;
    int32_t *out = selected + (uint64_t)blockIdx.x * select_k;

    if (wanted > 0) {
        struct topk_cut cut = topk_find_cut(&shared, row, pools, wanted);
        struct topk_part part = topk_split(&shared, row, pools, cut.key);

        topk_collect(topk_list, row, part, wanted, cut);
        topk_sort(topk_list, wanted);
    }
    for (uint32_t i = threadIdx.x; i < slots; i += TOPK_THREADS)
        out[i] = i < wanted ? (int32_t)(uint32_t)topk_list[i] : -1;
}

#endif
