/* What every kernel of the module shares: the canonical block sum and the causal block count. */
#ifndef ATTEST_KERNELS_QSA_COMMON_CUH
#define ATTEST_KERNELS_QSA_COMMON_CUH

#include "det_math.cuh"
#include "formats.cuh"

#define QSA_THREADS 256
#define QSA_WARPS (QSA_THREADS / DET_WARP)

/* Whole blocks of `ratio` tokens that a query at `position` may see. Positions are below 2^31. */
static __device__ __forceinline__ uint32_t qsa_complete_blocks(uint32_t position, uint32_t ratio)
{
    return (position + 1) / ratio;
}

/* blocksum over the `hd` threads of the block, hd a multiple of 32: tree32 of each warp, then the
 * partials in order from +0. Every thread gets the sum. `partials` holds hd/32 floats and may be
 * written again only after the next barrier. */
static __device__ __forceinline__ float qsa_block_sum(float x, float *partials, uint32_t hd)
{
    float tree = det_tree32(x), sum = 0.0f;

    if (threadIdx.x % DET_WARP == 0) partials[threadIdx.x / DET_WARP] = tree;
    __syncthreads();
    for (uint32_t warp = 0; warp < hd / DET_WARP; warp++) sum = sum + partials[warp];
    return sum;
}

#endif
