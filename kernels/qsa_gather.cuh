/* Copies selected tokens of both caches out of their pages. */
#ifndef ATTEST_KERNELS_QSA_GATHER_CUH
#define ATTEST_KERNELS_QSA_GATHER_CUH

#include "qsa_common.cuh"

static __device__ __forceinline__ bool qsa_aligned16(const void *pointer)
{
    return ((uintptr_t)pointer & 15u) == 0;
}

/* Grid n_sel, block 256. Slot i of the output is token sel[i], all heads, of k and of v. A token is
 * nkv*hd values, a multiple of 64 bytes, so it moves in 16-byte pieces unless a base is unaligned.
 */
extern "C" __global__ void __launch_bounds__(QSA_THREADS)
    qsa_gather(const uint16_t *k_cache, const uint16_t *v_cache, const int32_t *block_table,
               const int32_t *sel, uint16_t *k_out, uint16_t *v_out, uint32_t block_size,
               uint32_t nkv, uint32_t hd)
{
    uint32_t token = (uint32_t)sel[blockIdx.x];
    uint64_t page = (uint32_t)block_table[token / block_size];
    uint64_t width = (uint64_t)nkv * hd;
    const uint16_t *k_from = k_cache + (page * block_size + token % block_size) * width;
    const uint16_t *v_from = v_cache + (page * block_size + token % block_size) * width;
    uint16_t *k_to = k_out + blockIdx.x * width, *v_to = v_out + blockIdx.x * width;

    if (qsa_aligned16(k_from) && qsa_aligned16(v_from) && qsa_aligned16(k_to) &&
        qsa_aligned16(v_to)) {
#pragma unroll 1
        for (uint64_t i = threadIdx.x; i < width / 8; i += QSA_THREADS) {
            uint4 k = ((const uint4 *)k_from)[i], v = ((const uint4 *)v_from)[i];

            ((uint4 *)k_to)[i] = k;
            ((uint4 *)v_to)[i] = v;
        }
    } else {
#pragma unroll 1
        for (uint64_t i = threadIdx.x; i < width; i += QSA_THREADS) {
            k_to[i] = k_from[i];
            v_to[i] = v_from[i];
        }
    }
}

#endif
