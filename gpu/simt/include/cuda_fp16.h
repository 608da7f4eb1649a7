/* IEEE binary16. Conversions round to nearest even; every NaN becomes 0x7fff. */
#ifndef ATTEST_SIMT_CUDA_FP16_H
#define ATTEST_SIMT_CUDA_FP16_H

#include "simt_small_float.h"

#define CUDART_NAN_FP16 __ushort_as_half((unsigned short)0x7fffu)
#define CUDART_INF_FP16 __ushort_as_half((unsigned short)0x7c00u)
#define CUDART_ZERO_FP16 __ushort_as_half((unsigned short)0x0000u)
#define CUDART_ONE_FP16 __ushort_as_half((unsigned short)0x3c00u)

SIMT_FN unsigned short simt_half_from_double(double x)
{
    if (x != x) return 0x7fff;
    unsigned code = simt_encode(x, 10, -14);
    return (unsigned short)((code > 0x7c00 ? 0x7c00 : code) | (signbit(x) ? 0x8000 : 0));
}
SIMT_FN float simt_half_to_float(unsigned short half)
{
    unsigned sign = (unsigned)(half & 0x8000) << 16, magnitude = half & 0x7fff;
    if (magnitude >= 0x7c00)
        return simt_bits<float>(magnitude == 0x7c00 ? sign | 0x7f800000u : 0x7fffffffu);
    /* The exponent's place moves from bit 10 to bit 23; the bias difference is a scale of 2^112,
     * which also makes subnormals right. */
    float scaled = simt_bits<float>(magnitude << 13) * 0x1p112f;
    return simt_bits<float>(simt_bits<unsigned>(scaled) | sign);
}

struct __attribute__((aligned(2))) __half_raw {
    unsigned short x;
};
struct __attribute__((aligned(4))) __half2_raw {
    unsigned short x, y;
};

struct __attribute__((aligned(2))) __half {
    unsigned short __x;

    __half() = default;
    SIMT_MEMBER constexpr __half(__half_raw raw) : __x(raw.x)
    {
    }
    SIMT_MEMBER __half(float x) : __x(simt_half_from_double((double)x))
    {
    }
    SIMT_MEMBER __half(double x) : __x(simt_half_from_double(x))
    {
    }
    template <class I, class = std::enable_if_t<std::is_integral<I>::value>>
    SIMT_MEMBER __half(I x) : __x(simt_half_from_double((double)x))
    {
    }
    SIMT_MEMBER operator float() const
    {
        return simt_half_to_float(__x);
    }
    SIMT_MEMBER operator __half_raw() const
    {
        return {__x};
    }
    SIMT_MEMBER explicit operator double() const
    {
        return (double)(float)*this;
    }
    template <class I, class = std::enable_if_t<std::is_integral<I>::value>>
    SIMT_MEMBER explicit operator I() const
    {
        return simt_to_integer<I>(truncf((float)*this));
    }
};
typedef __half half;
typedef __half nv_half;

struct __attribute__((aligned(4))) __half2 {
    __half x, y;

    __half2() = default;
    SIMT_MEMBER constexpr __half2(__half a, __half b) : x(a), y(b)
    {
    }
    SIMT_MEMBER __half2(__half2_raw raw) : x(__half_raw{raw.x}), y(__half_raw{raw.y})
    {
    }
    SIMT_MEMBER operator __half2_raw() const
    {
        return {x.__x, y.__x};
    }
};
typedef __half2 half2;
typedef __half2 nv_half2;

/* clang-format off */
SIMT_FN __half __ushort_as_half(unsigned short x) { return __half_raw{x}; }
SIMT_FN __half __short_as_half(short x) { return __half_raw{(unsigned short)x}; }
SIMT_FN unsigned short __half_as_ushort(__half x) { return x.__x; }
SIMT_FN short __half_as_short(__half x) { return (short)x.__x; }
SIMT_FN __half __float2half(float x) { return __half(x); }
SIMT_FN __half __float2half_rn(float x) { return __half(x); }
SIMT_FN __half __double2half(double x) { return __half(x); }
SIMT_FN __half __int2half_rn(int x) { return __half(x); }
SIMT_FN __half __uint2half_rn(unsigned x) { return __half(x); }
SIMT_FN float __half2float(__half x) { return (float)x; }
SIMT_FN int __half2int_rn(__half x) { return __float2int_rn((float)x); }
SIMT_FN int __half2int_rz(__half x) { return __float2int_rz((float)x); }
SIMT_FN __half2 __half2half2(__half x) { return {x, x}; }
SIMT_FN __half2 __halves2half2(__half x, __half y) { return {x, y}; }
SIMT_FN __half2 make_half2(__half x, __half y) { return {x, y}; }
SIMT_FN __half2 __float2half2_rn(float x) { return {__half(x), __half(x)}; }
SIMT_FN __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }
SIMT_FN __half2 __float22half2_rn(float2 v) { return {__half(v.x), __half(v.y)}; }
SIMT_FN float2 __half22float2(__half2 v) { return {(float)v.x, (float)v.y}; }
SIMT_FN __half __low2half(__half2 v) { return v.x; }
SIMT_FN __half __high2half(__half2 v) { return v.y; }
SIMT_FN float __low2float(__half2 v) { return (float)v.x; }
SIMT_FN float __high2float(__half2 v) { return (float)v.y; }
SIMT_FN __half2 __low2half2(__half2 v) { return {v.x, v.x}; }
SIMT_FN __half2 __high2half2(__half2 v) { return {v.y, v.y}; }
SIMT_FN __half2 __lowhigh2highlow(__half2 v) { return {v.y, v.x}; }
/* clang-format on */

SIMT_SMALL_INTRINSICS(__half)
SIMT_SMALL_OPERATORS(__half)
SIMT_SMALL_PAIRS(__half, __half2)

SIMT_ATOMIC_OP(atomicAdd, __half, old + value)
SIMT_ATOMIC_OP(atomicAdd, __half2, old + value)

#endif
