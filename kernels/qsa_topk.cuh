/* The best blocks of each row, in order: score descending, then block ascending. */
#ifndef ATTEST_KERNELS_QSA_TOPK_CUH
#define ATTEST_KERNELS_QSA_TOPK_CUH

#include "qsa_common.cuh"
#include "topk_stream.cuh"

/* Grid rows, block 256. Dynamic shared memory, the launcher's formula: sizeof(struct topk_scratch)
 * + 8*(P + TOPK_TILE + TOPK_SLACK) with P the power of two at or above topk. Columns from the row's
 * complete blocks on are not read; slots without a block get -1. */
extern "C" __global__ void __launch_bounds__(TOPK_THREADS, 6)
    qsa_topk_rows(const float *scores, int32_t *lists, uint32_t first_pos, uint32_t score_stride,
                  uint32_t ratio, uint32_t topk)
{
    extern __shared__ struct topk_scratch qsa_topk_shared[];

    topk_row(lists + (uint64_t)blockIdx.x * topk, scores + (uint64_t)blockIdx.x * score_stride,
             qsa_complete_blocks(first_pos + blockIdx.x, ratio), topk,
             (uint64_t *)(qsa_topk_shared + 1), topk_padded(topk) + TOPK_TILE + TOPK_SLACK,
             qsa_topk_shared);
}

#endif
