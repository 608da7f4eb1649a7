/* Exact top-k of each row of pool scores: score descending, pool ascending. */
#ifndef ATTEST_KERNELS_DSA_TOPK_CUH
#define ATTEST_KERNELS_DSA_TOPK_CUH

#include "dsa_geom.cuh"
#include "topk_stream.cuh"

/* Grid Q, block 256. NP2, a power of two, is at least select_k, not the number of pools. The
 * interface's 16*NP2 bytes of dynamic shared memory hold 2*NP2 entries: room for the list and a
 * tile where NP2 is a tile or more. Shorter lists live in static memory. */
extern "C" __global__ void __launch_bounds__(TOPK_THREADS)
    dsa_topk_pools(const float *scores, int32_t *selected, uint32_t Q, uint32_t P, uint32_t NP2,
                   uint32_t select_k, const int32_t *geom)
{
    extern __shared__ uint64_t topk_long_list[];
    __shared__ uint64_t short_list[2 * TOPK_TILE];
    __shared__ struct topk_scratch scratch;
    uint32_t pools = geom != NULL ? (uint32_t)geom[DSA_GEOM_POOLS] : P;
    uint32_t slots = geom != NULL ? (uint32_t)geom[DSA_GEOM_SELECT_K] : select_k;
    bool is_long = NP2 >= TOPK_TILE;

    topk_row(selected + (uint64_t)blockIdx.x * select_k, scores + (uint64_t)blockIdx.x * P, pools,
             slots, is_long ? topk_long_list : short_list, is_long ? 2 * NP2 : 2 * TOPK_TILE,
             &scratch);
}

#endif
