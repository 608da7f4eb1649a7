/* How fast a device multiplies: independent chains of f32 fma, and of the tensor-core instruction
 * the kernels use (m16n8k16, bf16, f32 accumulator). `attest bench` holds kernels against these
 * measured rates and not against a data sheet. Every thread writes what it computed, so that
 * nothing is optimised away. */
#include "mma.cuh"

enum { RATE_CHAINS = 8 };

/* RATE_CHAINS fma a thread and round. */
extern "C" __global__ void rate_fma_f32(float *out, float factor, uint32_t rounds)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    float acc[RATE_CHAINS], sum = 0;

    for (int c = 0; c < RATE_CHAINS; c++) acc[c] = (float)c;
    for (uint32_t r = 0; r < rounds; r++) {
#pragma unroll
        for (int c = 0; c < RATE_CHAINS; c++) acc[c] = fmaf(acc[c], factor, factor);
    }
    for (int c = 0; c < RATE_CHAINS; c++) sum += acc[c];
    out[i] = sum;
}

/* RATE_CHAINS instructions a warp and round: 16 x 8 x 16 multiply-adds each. */
extern "C" __global__ void rate_mma_bf16(float *out, uint32_t pair, uint32_t rounds)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t a[4] = {pair, pair, pair, pair}, b[2] = {pair, pair};
    float acc[RATE_CHAINS][4], sum = 0;

    for (int c = 0; c < RATE_CHAINS; c++) {
        for (int k = 0; k < 4; k++) acc[c][k] = 0;
    }
    for (uint32_t r = 0; r < rounds; r++) {
#pragma unroll
        for (int c = 0; c < RATE_CHAINS; c++) mma_bf16_m16n8k16(acc[c], a, b);
    }
    for (int c = 0; c < RATE_CHAINS; c++) {
        for (int k = 0; k < 4; k++) sum += acc[c][k];
    }
    out[i] = sum;
}
