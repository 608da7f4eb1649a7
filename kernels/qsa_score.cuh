/* Block scores in canonical arithmetic: score = (((0 + relu t_0) + relu t_1) + ...) rnorm(hd) with
 * t_h = blocksum(q_h k). The relu is per head, before the sum. */
#ifndef ATTEST_KERNELS_QSA_SCORE_CUH
#define ATTEST_KERNELS_QSA_SCORE_CUH

#include "qsa_common.cuh"

#define QSA_SCORE_PARTIALS 32 /* floats of dynamic shared memory: 128 bytes */

/* The score of the key whose element threadIdx.x is `key`. hd/32 partials a head: as many heads as
 * fit the 32 partials share a barrier. q is [n_heads, hd]. The result is the same in all threads.
 */
static __device__ __forceinline__ float qsa_score_key(const float *q, float key, float *partials,
                                                      uint32_t n_heads, uint32_t hd)
{
    uint32_t warp = threadIdx.x / DET_WARP, warps = hd / DET_WARP;
    uint32_t heads_at_once = QSA_SCORE_PARTIALS / warps;
    float total = 0.0f;

    for (uint32_t first = 0; first < n_heads; first += heads_at_once) {
        uint32_t heads = n_heads - first < heads_at_once ? n_heads - first : heads_at_once;

        if (first > 0) __syncthreads();
        for (uint32_t h = 0; h < heads; h++) {
            float tree = det_tree32(q[(uint64_t)(first + h) * hd + threadIdx.x] * key);

            if (threadIdx.x % DET_WARP == 0) partials[h * warps + warp] = tree;
        }
        __syncthreads();
        for (uint32_t h = 0; h < heads; h++) {
            float dot = 0.0f;

            for (uint32_t w = 0; w < warps; w++) dot = dot + partials[h * warps + w];
            total = total + det_relu(dot);
        }
    }
    return total * det_rnorm((float)hd);
}

/* Grid n_blocks, block hd, dynamic shared 128 bytes. */
extern "C" __global__ void qsa_score(const float *q, const uint16_t *block_keys, float *scores,
                                     uint32_t n_heads, uint32_t hd)
{
    extern __shared__ float qsa_shared[];
    float key = fmt_bf16_to_f32(block_keys[(uint64_t)blockIdx.x * hd + threadIdx.x]);
    float score = qsa_score_key(q, key, qsa_shared, n_heads, hd);

    if (threadIdx.x == 0) scores[blockIdx.x] = score;
}

/* Grid (rows, n_blocks_max), block hd, dynamic shared 128 bytes. A column that the row's position
 * does not reach gets -inf and its key is not read. */
extern "C" __global__ void qsa_score_rows(const float *q, const uint16_t *block_keys, float *scores,
                                          uint32_t first_pos, uint32_t score_stride, uint32_t ratio,
                                          uint32_t n_heads, uint32_t hd)
{
    extern __shared__ float qsa_shared[];
    uint32_t row = blockIdx.x, column = blockIdx.y;
    float score = -det_inf();

    if (column < qsa_complete_blocks(first_pos + row, ratio)) {
        float key = fmt_bf16_to_f32(block_keys[(uint64_t)column * hd + threadIdx.x]);

        score = qsa_score_key(q + (uint64_t)row * n_heads * hd, key, qsa_shared, n_heads, hd);
    }
    if (threadIdx.x == 0) scores[(uint64_t)row * score_stride + column] = score;
}

#endif
