/* Storage formats on the device: bf16 and FP8 E4M3 to f32 and back.
 *
 * Every conversion has one possible result: widening is exact, narrowing rounds to nearest even.
 * A NaN stays a NaN; its payload carries no meaning. Subnormals are kept. */
#ifndef ATTEST_KERNELS_FORMATS_CUH
#define ATTEST_KERNELS_FORMATS_CUH

#include <cuda_runtime.h>
#include <stdint.h>

static __device__ __forceinline__ float fmt_bf16_to_f32(uint16_t bits)
{
    return __uint_as_float((uint32_t)bits << 16);
}

/* The two values of a 32-bit word: element 0 is the low half. */
static __device__ __forceinline__ float fmt_bf16_low(uint32_t word)
{
    return __uint_as_float(word << 16);
}

static __device__ __forceinline__ float fmt_bf16_high(uint32_t word)
{
    return __uint_as_float(word & 0xffff0000u);
}

/* Nearest even; beyond the largest finite value by half a step or more gives infinity; every NaN
 * becomes 0x7fff. */
static __device__ __forceinline__ uint16_t fmt_f32_to_bf16(float value)
{
    uint32_t bits = __float_as_uint(value);

    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

static __device__ __forceinline__ uint32_t fmt_f32_to_bf16x2(float low, float high)
{
    return (uint32_t)fmt_f32_to_bf16(low) | (uint32_t)fmt_f32_to_bf16(high) << 16;
}

/* E4M3 (fn): exponent bias 7, no infinities, 0x7f and 0xff NaN. Moving the seven magnitude bits to
 * the top of a float's mantissa gives the value times 2^-120, subnormals included, so one exact
 * multiplication finishes the job. */
static __device__ __forceinline__ float fmt_e4m3_to_f32(uint8_t code)
{
    uint32_t sign = (uint32_t)(code & 0x80u) << 24, magnitude = code & 0x7fu;

    if (magnitude == 0x7f) return __uint_as_float(0x7fffffffu);
    return __uint_as_float(sign | magnitude << 20) * 0x1p120f;
}

/* The four values of a 32-bit word, element 0 in the lowest byte. The hardware's conversion goes
 * through f16, which holds every E4M3 value; both forms give the same floats. */
static __device__ __forceinline__ void fmt_e4m3x4_to_f32(uint32_t word, float values[4])
{
#if defined(__CUDA_ARCH__)
    asm("{\n\t"
        ".reg .b16 low, high, h0, h1, h2, h3;\n\t"
        ".reg .b32 pair0, pair1;\n\t"
        "mov.b32 {low, high}, %4;\n\t"
        "cvt.rn.f16x2.e4m3x2 pair0, low;\n\t"
        "cvt.rn.f16x2.e4m3x2 pair1, high;\n\t"
        "mov.b32 {h0, h1}, pair0;\n\t"
        "mov.b32 {h2, h3}, pair1;\n\t"
        "cvt.f32.f16 %0, h0;\n\t"
        "cvt.f32.f16 %1, h1;\n\t"
        "cvt.f32.f16 %2, h2;\n\t"
        "cvt.f32.f16 %3, h3;\n\t"
        "}"
        : "=f"(values[0]), "=f"(values[1]), "=f"(values[2]), "=f"(values[3])
        : "r"(word));
#else
    for (int i = 0; i < 4; i++) values[i] = fmt_e4m3_to_f32((uint8_t)(word >> (8 * i)));
#endif
}

#endif
