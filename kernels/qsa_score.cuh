/* Block scores in canonical arithmetic: score = (((0 + relu t_0) + relu t_1) + ...) rnorm(hd) with
 * t_h = blocksum(q_h k). The relu is per head, before the sum.
 *
 * The interface has a CTA of hd threads for every pair of a query row and a block. One CTA of
 * sixteen computes the scores of sixteen neighbouring pairs, because sixteen trees over a warp
 * together take about the exchanges of three, and the other fifteen return; which CTA computes a
 * score does not show in it. What is left is the launching of the CTAs. */
#ifndef ATTEST_KERNELS_QSA_SCORE_CUH
#define ATTEST_KERNELS_QSA_SCORE_CUH

#include "qsa_common.cuh"

#define QSA_SCORE_THREADS 1024 /* hd at most */
#define QSA_SCORE_PAIRS 16     /* of a CTA */
#define QSA_SCORE_SIDE 4       /* rows, and blocks, of a CTA of qsa_score_rows */

/* Partial sums of a head: [warp][pair]. Two heads take turns, so that a head needs one barrier. */
struct qsa_score_partials {
    float of[2][QSA_SCORE_THREADS / DET_WARP][QSA_SCORE_PAIRS];
};

static __device__ __forceinline__ uint32_t qsa_score_min(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* The score of pair threadIdx.x, ROWS rows by 16 / ROWS blocks; other threads get nothing. q is
 * [rows, n_heads, hd], keys [blocks, hd]; rows and blocks past these numbers, which are not 0,
 * repeat the last one. */
template <uint32_t ROWS>
static __device__ __forceinline__ float
qsa_score_pairs(struct qsa_score_partials *partials, const float *q, uint32_t rows,
                const uint16_t *keys, uint32_t blocks, uint32_t n_heads, uint32_t hd)
{
    const uint32_t side = QSA_SCORE_PAIRS / ROWS;
    uint32_t lane = threadIdx.x % DET_WARP, warp = threadIdx.x / DET_WARP;
    float key[side], total = 0.0f;

#pragma unroll
    for (uint32_t b = 0; b < side; b++)
        key[b] = fmt_bf16_to_f32(keys[(uint64_t)qsa_score_min(b, blocks - 1) * hd + threadIdx.x]);
    for (uint32_t h = 0; h < n_heads; h++) {
        float products[QSA_SCORE_PAIRS], tree, dot = 0.0f;

#pragma unroll
        for (uint32_t r = 0; r < ROWS; r++) {
            uint64_t row = qsa_score_min(r, rows - 1);
            float q_d = q[(row * n_heads + h) * hd + threadIdx.x];

#pragma unroll
            for (uint32_t b = 0; b < side; b++) products[r * side + b] = q_d * key[b];
        }
        tree = det_tree32_many<QSA_SCORE_PAIRS>(products);
        if (lane % 2 == 0) partials->of[h % 2][warp][lane / 2] = tree;
        __syncthreads();
        if (threadIdx.x >= QSA_SCORE_PAIRS) continue;
        for (uint32_t w = 0; w < hd / DET_WARP; w++)
            dot = dot + partials->of[h % 2][w][threadIdx.x];
        total = total + det_relu(dot);
    }
    return total * det_rnorm((float)hd);
}

/* Grid n_blocks, block hd; the interface's 128 bytes of dynamic shared memory are not used. */
extern "C" __global__ void __launch_bounds__(QSA_SCORE_THREADS)
    qsa_score(const float *q, const uint16_t *block_keys, float *scores, uint32_t n_heads,
              uint32_t hd)
{
    __shared__ struct qsa_score_partials partials;
    uint32_t block = blockIdx.x, blocks = qsa_score_min(gridDim.x - block, QSA_SCORE_PAIRS);
    float score;

    if (block % QSA_SCORE_PAIRS != 0) return;
    score =
        qsa_score_pairs<1>(&partials, q, 1, block_keys + (uint64_t)block * hd, blocks, n_heads, hd);
    if (threadIdx.x < blocks) scores[block + threadIdx.x] = score;
}

/* Grid (rows, n_blocks_max), block hd; the dynamic shared memory is not used. A column that the
 * row's position does not reach gets -inf; keys that no row of the CTA reaches are not read. */
extern "C" __global__ void __launch_bounds__(QSA_SCORE_THREADS)
    qsa_score_rows(const float *q, const uint16_t *block_keys, float *scores, uint32_t first_pos,
                   uint32_t score_stride, uint32_t ratio, uint32_t n_heads, uint32_t hd)
{
    __shared__ struct qsa_score_partials partials;
    uint32_t row = blockIdx.x, block = blockIdx.y, reach;
    uint32_t rows = qsa_score_min(gridDim.x - row, QSA_SCORE_SIDE);
    uint32_t blocks = qsa_score_min(gridDim.y - block, QSA_SCORE_SIDE);
    uint32_t r = threadIdx.x / QSA_SCORE_SIDE, b = threadIdx.x % QSA_SCORE_SIDE;
    float score = 0.0f;

    if (row % QSA_SCORE_SIDE != 0 || block % QSA_SCORE_SIDE != 0) return;
    reach = qsa_complete_blocks(first_pos + row + rows - 1, ratio);
    if (block < reach)
        score = qsa_score_pairs<QSA_SCORE_SIDE>(&partials, q + (uint64_t)row * n_heads * hd, rows,
                                                block_keys + (uint64_t)block * hd,
                                                qsa_score_min(blocks, reach - block), n_heads, hd);
    if (r >= rows || b >= blocks) return;
    if (block + b >= qsa_complete_blocks(first_pos + row + r, ratio)) score = -det_inf();
    scores[(uint64_t)(row + r) * score_stride + block + b] = score;
}

#endif
