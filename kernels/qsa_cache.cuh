/* What attention over a paged bf16 cache shares: where a token lies, and how the warps of a block
 * join their running softmaxes. */
#ifndef ATTEST_KERNELS_QSA_CACHE_CUH
#define ATTEST_KERNELS_QSA_CACHE_CUH

#include "qsa_common.cuh"

/* The paged cache as one kv head sees it. Offsets of a token are in elements. */
struct qsa_cache {
    const uint16_t *k, *v;
    const int32_t *block_table;
    uint32_t block_size, nkv, hd, kv_head;
    bool wide; /* vector loads are aligned */
};

static __device__ __forceinline__ struct qsa_cache
qsa_cache_view(const uint16_t *k_cache, const uint16_t *v_cache, const int32_t *block_table,
               uint32_t block_size, uint32_t nkv, uint32_t hd, uint32_t kv_head)
{
    bool wide = (((uintptr_t)k_cache | (uintptr_t)v_cache) & 15u) == 0;

    return {k_cache, v_cache, block_table, block_size, nkv, hd, kv_head, wide};
}

/* 32 bits are enough: 2^32 slots of at least 64 bytes would be 256 GiB. */
static __device__ __forceinline__ uint32_t qsa_token_slot(const struct qsa_cache *cache,
                                                          uint32_t token)
{
    uint32_t page = (uint32_t)cache->block_table[token / cache->block_size];

    return page * cache->block_size + token % cache->block_size;
}

/* Joins the warps' results for one channel of a head, in warp order; zero if nothing was attended.
 * Warp w's sum is at partial[w * stride]. */
static __device__ __forceinline__ uint16_t qsa_join_warps(const float *partial, uint32_t stride,
                                                          const float *maxima, const float *sums,
                                                          bool attended)
{
    float base = -det_inf(), numerator = 0.0f, denominator = 0.0f;

    for (uint32_t w = 0; w < QSA_WARPS; w++) base = maxima[w] > base ? maxima[w] : base;
    base = base == -det_inf() ? 0.0f : base;
    for (uint32_t w = 0; w < QSA_WARPS; w++) {
        float factor = det_exp_nonpos(maxima[w] - base);

        numerator = fmaf(factor, partial[w * stride], numerator);
        denominator = fmaf(factor, sums[w], denominator);
    }
    return fmt_f32_to_bf16(attended ? numerator / denominator : 0.0f);
}

/* clang-format off */
/* Calls HEADS_OF<HEADS, hd/32>. hd is a multiple of 32 from 32 to 256. */
#define QSA_FOR_HD(HEADS_OF, HEADS, hd, ...)          \
    switch ((hd) / DET_WARP) {                        \
    case 1: HEADS_OF<HEADS, 1>(__VA_ARGS__); break;   \
    case 2: HEADS_OF<HEADS, 2>(__VA_ARGS__); break;   \
    case 3: HEADS_OF<HEADS, 3>(__VA_ARGS__); break;   \
    case 4: HEADS_OF<HEADS, 4>(__VA_ARGS__); break;   \
    case 5: HEADS_OF<HEADS, 5>(__VA_ARGS__); break;   \
    case 6: HEADS_OF<HEADS, 6>(__VA_ARGS__); break;   \
    case 7: HEADS_OF<HEADS, 7>(__VA_ARGS__); break;   \
    case 8: HEADS_OF<HEADS, 8>(__VA_ARGS__); break;   \
    }
/* clang-format on */

#endif
