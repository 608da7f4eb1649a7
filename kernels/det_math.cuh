/* Deterministic device mathematics: only + - * / sqrt and explicit fma in f32, integer operations
 * and fixed-order shuffles, each with exactly one possible result. Compiled with contraction off
 * these functions give the same bits on every device and on the CPU. */
#ifndef ATTEST_KERNELS_DET_MATH_CUH
#define ATTEST_KERNELS_DET_MATH_CUH

#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>

#define DET_WARP 32
#define DET_FULL_MASK 0xffffffffu

static __device__ __forceinline__ float det_inf(void)
{
    return __uint_as_float(0x7f800000u);
}

/* Reduced argument of exp: x = steps*ln2 + rest, |rest| <= ln2/2 (1 + 2^-20). `shifted` is
 * 1.5*2^23 + steps, so its low bits hold steps as an integer. The upper part of ln2 has 15 bits and
 * |steps| < 2^8, so the first fma is exact. */
struct det_exp_parts {
    float shifted, rest;
};

static __device__ __forceinline__ struct det_exp_parts det_exp_reduce(float x)
{
    struct det_exp_parts parts;
    float steps;

    parts.shifted = fmaf(x, 0x1.715476p+0f, 0x1.8p+23f);
    steps = parts.shifted - 0x1.8p+23f;
    parts.rest = fmaf(-steps, 0x1.7f7d1cp-20f, fmaf(-steps, 0x1.62e4p-1f, x));
    return parts;
}

/* exp on the reduced range: 1 + r + r^2 * (degree 4), relative error 2^-28.2 before rounding. The
 * first two coefficients are exactly 1, so exp(0) is exactly 1. */
static __device__ __forceinline__ float det_exp_core(float rest)
{
    float sum = 0x1.6a23ccp-10f;

    sum = fmaf(sum, rest, 0x1.123a2p-7f);
    sum = fmaf(sum, rest, 0x1.5558f2p-5f);
    sum = fmaf(sum, rest, 0x1.555492p-3f);
    sum = fmaf(sum, rest, 0x1.fffffcp-2f);
    sum = fmaf(sum, rest, 1.0f);
    return fmaf(sum, rest, 1.0f);
}

/* exp(x) for x <= 0, -inf and NaN: within 0.89 ulp of the true value, subnormal results included
 * (0.8822 normal, 0.8578 subnormal, the largest over every float); exp(-0) = exp(0) = 1 exactly;
 * below -104 the result is +0; NaN stays NaN. The power of two is applied 2^64 too large and then
 * taken back, so that a subnormal result rounds once. */
static __device__ __forceinline__ float det_exp_nonpos(float x)
{
    struct det_exp_parts parts = det_exp_reduce(x < -104.0f ? -104.0f : x);
    uint32_t power = (__float_as_uint(parts.shifted) << 23) + ((127u + 64u) << 23);

    return det_exp_core(parts.rest) * __uint_as_float(power) * 0x1p-64f;
}

/* x if x > 0, +0 if not, and a NaN stays a NaN. */
static __device__ __forceinline__ float det_relu(float x)
{
    return x > 0.0f ? x : x != x ? x : 0.0f;
}

/* RN(1 / RN(sqrt a)). */
static __device__ __forceinline__ float det_rnorm(float a)
{
    return 1.0f / sqrtf(a);
}

/* tree32 over the lanes of a full warp: lane i adds lane i+16, then +8, +4, +2, +1. The exchange
 * form gives every lane the value the tree leaves in lane 0, since addition commutes. */
static __device__ __forceinline__ float det_tree32(float x)
{
    for (int step = DET_WARP / 2; step > 0; step >>= 1)
        x = x + __shfl_xor_sync(DET_FULL_MASK, x, step);
    return x;
}

/* One step of det_tree32_many: `count` values over lanes that differ in bit `step` and below. */
template <int count, int step>
static __device__ __forceinline__ float det_tree_step(float *values, uint32_t lane)
{
    if constexpr (step == 0) {
        return values[0];
    } else if constexpr (count == 1) {
        values[0] = values[0] + __shfl_xor_sync(DET_FULL_MASK, values[0], step);
        return det_tree_step<1, step / 2>(values, lane);
    } else {
        constexpr int half = (count + 1) / 2;
        bool upper = (lane & step) != 0;

#pragma unroll
        for (int i = 0; i < half; i++) {
            float other = i + half < count ? values[i + half] : 0.0f;
            float kept = upper ? other : values[i], sent = upper ? values[i] : other;

            values[i] = kept + __shfl_xor_sync(DET_FULL_MASK, sent, step);
        }
        return det_tree_step<half, step / 2>(values, lane);
    }
}

/* tree32 of `count` values at once (at most 32) with about one exchange a value instead of five:
 * lane l is left with the tree of value det_tree_index<count>(l), bit for bit what det_tree32
 * gives. The values are used up. */
template <int count> static __device__ __forceinline__ float det_tree32_many(float *values)
{
    return det_tree_step<count, DET_WARP / 2>(values, threadIdx.x % DET_WARP);
}

/* Which of `count` values det_tree32_many leaves in a lane: l*count/32 where count is a power of
 * two; `count` where there is none. */
template <int count>
static __device__ __forceinline__ constexpr uint32_t det_tree_index(uint32_t lane)
{
    uint32_t index = 0, width = count, left = count; /* left: values in the lane's part */

    for (uint32_t step = DET_WARP / 2; step > 0 && width > 1; step /= 2) {
        width = (width + 1) / 2;
        if ((lane & step) != 0) {
            index += width;
            left = left > width ? left - width : 0;
        } else {
            left = left < width ? left : width;
        }
    }
    return left > 0 ? index : count;
}

#endif
