/* Selected pools as a row of token ids: the pools' tokens, then the tail of the unfinished pool. */
#ifndef ATTEST_KERNELS_DSA_EXPAND_CUH
#define ATTEST_KERNELS_DSA_EXPAND_CUH

#include "det_math.cuh"
#include "dsa_geom.cuh"

#define EXPAND_THREADS 256
#define EXPAND_WARPS (EXPAND_THREADS / DET_WARP)

struct expand_tail {
    int64_t start;
    uint32_t count;
};

/* Non-zero bytes of a word, times 128 in each byte: bit 7 of a byte is set iff it is not 0. */
static __device__ __forceinline__ uint32_t expand_nonzero_bytes(uint32_t word)
{
    return (((word & 0x7f7f7f7fu) + 0x7f7f7f7fu) | word) & 0x80808080u;
}

/* This thread's share of the valid keys among the first `count`: bytes up to a 16-byte boundary,
 * then 16 at a time, then the rest. */
static __device__ __forceinline__ uint32_t expand_count_valid(const uint8_t *valid, uint64_t count)
{
    uint64_t head = (0u - (uint64_t)valid) % 16, vectors, total = 0;
    const uint4 *body;

    head = head < count ? head : count;
    vectors = (count - head) / 16;
    body = (const uint4 *)(valid + head);
    if (threadIdx.x < head) total += valid[threadIdx.x] != 0;
    for (uint64_t i = threadIdx.x; i < vectors; i += EXPAND_THREADS) {
        uint4 keys = body[i];

        total += __popc(expand_nonzero_bytes(keys.x)) + __popc(expand_nonzero_bytes(keys.y)) +
                 __popc(expand_nonzero_bytes(keys.z)) + __popc(expand_nonzero_bytes(keys.w));
    }
    for (uint64_t i = head + 16 * vectors + threadIdx.x; i < count; i += EXPAND_THREADS)
        total += valid[i] != 0;
    return (uint32_t)total;
}

/* The tokens after the last complete pool: visible = valid keys at or before the query. One
 * barrier, reached by the whole block. */
static __device__ __forceinline__ struct expand_tail expand_find_tail(uint32_t *warp_counts,
                                                                      const uint8_t *valid,
                                                                      uint64_t keys, uint32_t KP,
                                                                      int32_t first_key)
{
    uint32_t visible = 0, share = expand_count_valid(valid, keys);
    struct expand_tail tail;

    share = __reduce_add_sync(DET_FULL_MASK, share);
    if (threadIdx.x % DET_WARP == 0) warp_counts[threadIdx.x / DET_WARP] = share;
    __syncthreads();
    for (uint32_t w = 0; w < EXPAND_WARPS; w++) visible += warp_counts[w];
    tail.count = visible % KP;
    tail.start = (int64_t)first_key + visible - tail.count;
    return tail;
}

/* One block a query row. The id at position i of the row follows from i alone, so every position is
 * written once: KP ids for each of the first k_r selected pools (-1 throughout for a pool that is
 * no candidate), the tail's tokens right behind them, -1 in the rest. k_r is what a pass over this
 * row alone would select, so a row does not depend on its batch. A masked query (q_mask 0) is all
 * -1. */
extern "C" __global__ void __launch_bounds__(EXPAND_THREADS)
    dsa_expand_selection(const int32_t *selected, const int32_t *pool_indices,
                         const uint8_t *valid_cand, const uint8_t *valid_keys, const int32_t *q_pos,
                         const uint8_t *q_mask, int32_t *out, uint32_t Q, uint32_t P, uint32_t KP,
                         uint32_t S, uint32_t select_k, uint32_t width, int32_t first_key,
                         int32_t always_tail, const int32_t *geom)
{
    __shared__ uint32_t warp_counts[EXPAND_WARPS];
    uint64_t query = blockIdx.x, keys = geom != NULL ? (uint32_t)geom[DSA_GEOM_KEYS] : S;
    uint32_t pools = geom != NULL ? (uint32_t)geom[DSA_GEOM_POOLS] : P;
    int64_t most = geom != NULL ? (uint32_t)geom[DSA_GEOM_SELECT_K] : select_k;
    int64_t reach = (int64_t)q_pos[query] + 1, complete = (reach - first_key) / KP, chosen;
    struct expand_tail tail = {0, 0};
    bool masked = q_mask[query] == 0;

    complete = reach > first_key ? complete : 0;
    chosen = most < complete ? most : complete;
    reach = reach > 0 ? reach : 0;
    keys = (uint64_t)reach < keys ? (uint64_t)reach : keys;
    if (always_tail != 0 && !masked)
        tail = expand_find_tail(warp_counts, valid_keys, keys, KP, first_key);
    for (uint64_t i = threadIdx.x; i < width; i += EXPAND_THREADS) {
        int64_t slot = (int64_t)(i / KP), after = (int64_t)i - chosen * KP;
        int32_t id = -1;

        if (!masked && slot < chosen) {
            int32_t pool = selected[query * select_k + (uint64_t)slot];

            if (pool >= 0 && (uint32_t)pool < pools && valid_cand[query * P + (uint32_t)pool] != 0)
                id = pool_indices[(uint64_t)pool * KP + i % KP];
        } else if (!masked && after < (int64_t)tail.count) {
            id = (int32_t)(tail.start + after);
        }
        out[query * width + i] = id;
    }
}

#endif
