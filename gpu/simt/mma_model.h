/* The tensor core's bf16 matrix instruction, bit for bit (docs/numerics 1).
 *
 * One output element of mma.sync.m16n8k16 with f32 accumulation is a fused sum of c and the
 * products a_i b_i: every term is truncated toward zero to a multiple of one quantum, which lies F
 * bits below the label of the largest term; the truncated terms are added exactly; the sum is
 * normalised once, truncating. The order of the terms does not matter. arch 80 to 89:       F = 24,
 * sixteen products in two steps of 8, the first eight first arch 90 and higher:  F = 25, one step
 * of 16 The label of x is max(floor(log2 |x|), -126), that of a product the sum of its factors'
 * labels; labels below -133 count as -133. Zero terms have none. Subnormals are kept. NaN, infinity
 * times zero and infinity minus infinity give 0x7fffffff; otherwise an infinite term gives that
 * infinity. A result of zero is +0, also when a negative sum was truncated to it.
 *
 * Compared on an H200 with testdata/mma_probe.cu: 70 million elements over the whole exponent
 * range, subnormals, cancelling pairs, labels around -133, infinities and NaN, zeros of both signs:
 * every bit the same. */
#ifndef ATTEST_SIMT_MMA_MODEL_H
#define ATTEST_SIMT_MMA_MODEL_H

#include "include/simt_abi.h"

#define SIMT_MMA_M 16
#define SIMT_MMA_N 8
#define SIMT_MMA_K 16

/* One element: c plus the sum of a[i] * b[i], a and b bf16 [k], in as many steps as k needs. arch 0
 * means 90. A chain of instructions is one call with k a multiple of 16. */
float simt_mma_dot(uint32_t arch, const uint16_t *a, const uint16_t *b, uint32_t k, float c);

/* One instruction: d = a b + c with a bf16 [16, 16], b bf16 [16, 8], c and d f32 [16, 8]. d may be
 * c. */
void simt_mma_tile(uint32_t arch, float *d, const uint16_t *a, const uint16_t *b, const float *c);

/* One instruction from the 32 lanes' fragments; writes every lane's d. */
void simt_mma_warp(uint32_t arch, const struct simt_mma_operands *const operands[SIMT_WARP]);

#endif
