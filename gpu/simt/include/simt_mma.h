/* The tensor core's mma.sync.m16n8k16 (bf16 in, f32 accumulate) on the CPU: a warp collective of
 * all 32 lanes that gives the bits of the architecture chosen for the device (mma_model.h).
 * Fragments as in PTX: lane = 4*group + t;
 *   a[0..3]  rows group and group+8, columns 2t,2t+1 (a[0], a[1]) and 2t+8,2t+9 (a[2], a[3])
 *   b[0..1]  rows 2t,2t+1 and 2t+8,2t+9 of column group
 *   c, d     row group: columns 2t, 2t+1; row group+8: columns 2t, 2t+1 */
#ifndef ATTEST_SIMT_MMA_H
#define ATTEST_SIMT_MMA_H

#include <cuda_runtime.h>

SIMT_FN void simt_mma_m16n8k16_bf16(float d[4], const uint32_t a[4], const uint32_t b[2],
                                    const float c[4])
{
    simt_mma_operands operands = {d, a, b, c};
    simt_collective(SIMT_MMA_BF16_M16N8K16, 0xffffffffu, (uint64_t)(uintptr_t)&operands, 0);
}

#endif
