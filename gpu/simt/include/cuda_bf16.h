/* bfloat16. Conversions round to nearest even; every NaN becomes 0x7fff. */
#ifndef ATTEST_SIMT_CUDA_BF16_H
#define ATTEST_SIMT_CUDA_BF16_H

#include "simt_small_float.h"

#define CUDART_NAN_BF16 __ushort_as_bfloat16((unsigned short)0x7fffu)
#define CUDART_INF_BF16 __ushort_as_bfloat16((unsigned short)0x7f80u)
#define CUDART_ZERO_BF16 __ushort_as_bfloat16((unsigned short)0x0000u)
#define CUDART_ONE_BF16 __ushort_as_bfloat16((unsigned short)0x3f80u)

SIMT_FN unsigned short simt_bf16_from_float(float x)
{
    unsigned bits = simt_bits<unsigned>(x);
    unsigned rounded = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
    return (unsigned short)(x != x ? 0x7fffu : rounded);
}
SIMT_FN unsigned short simt_bf16_from_double(double x)
{
    if (x != x) return 0x7fff;
    unsigned code = simt_encode(x, 7, -126);
    return (unsigned short)((code > 0x7f80 ? 0x7f80 : code) | (signbit(x) ? 0x8000 : 0));
}

struct __attribute__((aligned(2))) __nv_bfloat16_raw {
    unsigned short x;
};
struct __attribute__((aligned(4))) __nv_bfloat162_raw {
    unsigned short x, y;
};

struct __attribute__((aligned(2))) __nv_bfloat16 {
    unsigned short __x;

    __nv_bfloat16() = default;
    SIMT_MEMBER constexpr __nv_bfloat16(__nv_bfloat16_raw raw) : __x(raw.x)
    {
    }
    SIMT_MEMBER __nv_bfloat16(float x) : __x(simt_bf16_from_float(x))
    {
    }
    SIMT_MEMBER __nv_bfloat16(double x) : __x(simt_bf16_from_double(x))
    {
    }
    template <class I, class = std::enable_if_t<std::is_integral<I>::value>>
    SIMT_MEMBER __nv_bfloat16(I x) : __x(simt_bf16_from_double((double)x))
    {
    }
    SIMT_MEMBER operator float() const
    {
        return simt_bits<float>((unsigned)__x << 16);
    }
    SIMT_MEMBER operator __nv_bfloat16_raw() const
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
typedef __nv_bfloat16 nv_bfloat16;

struct __attribute__((aligned(4))) __nv_bfloat162 {
    __nv_bfloat16 x, y;

    __nv_bfloat162() = default;
    SIMT_MEMBER constexpr __nv_bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) : x(a), y(b)
    {
    }
    SIMT_MEMBER __nv_bfloat162(__nv_bfloat162_raw raw)
        : x(__nv_bfloat16_raw{raw.x}), y(__nv_bfloat16_raw{raw.y})
    {
    }
    SIMT_MEMBER operator __nv_bfloat162_raw() const
    {
        return {x.__x, y.__x};
    }
};
typedef __nv_bfloat162 nv_bfloat162;

/* clang-format off */
SIMT_FN __nv_bfloat16 __ushort_as_bfloat16(unsigned short x) { return __nv_bfloat16_raw{x}; }
SIMT_FN __nv_bfloat16 __short_as_bfloat16(short x) { return __nv_bfloat16_raw{(unsigned short)x}; }
SIMT_FN unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.__x; }
SIMT_FN short __bfloat16_as_short(__nv_bfloat16 x) { return (short)x.__x; }
SIMT_FN __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(x); }
SIMT_FN __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
SIMT_FN __nv_bfloat16 __double2bfloat16(double x) { return __nv_bfloat16(x); }
SIMT_FN __nv_bfloat16 __int2bfloat16_rn(int x) { return __nv_bfloat16(x); }
SIMT_FN __nv_bfloat16 __uint2bfloat16_rn(unsigned x) { return __nv_bfloat16(x); }
SIMT_FN float __bfloat162float(__nv_bfloat16 x) { return (float)x; }
SIMT_FN int __bfloat162int_rn(__nv_bfloat16 x) { return __float2int_rn((float)x); }
SIMT_FN int __bfloat162int_rz(__nv_bfloat16 x) { return __float2int_rz((float)x); }
SIMT_FN __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x) { return {x, x}; }
SIMT_FN __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
SIMT_FN __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
SIMT_FN __nv_bfloat162 __float2bfloat162_rn(float x)
{
    return {__nv_bfloat16(x), __nv_bfloat16(x)};
}
SIMT_FN __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return {__nv_bfloat16(x), __nv_bfloat16(y)};
}
SIMT_FN __nv_bfloat162 __float22bfloat162_rn(float2 v) { return __floats2bfloat162_rn(v.x, v.y); }
SIMT_FN float2 __bfloat1622float2(__nv_bfloat162 v) { return {(float)v.x, (float)v.y}; }
SIMT_FN __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v) { return v.x; }
SIMT_FN __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v) { return v.y; }
SIMT_FN float __low2float(__nv_bfloat162 v) { return (float)v.x; }
SIMT_FN float __high2float(__nv_bfloat162 v) { return (float)v.y; }
SIMT_FN __nv_bfloat162 __low2bfloat162(__nv_bfloat162 v) { return {v.x, v.x}; }
SIMT_FN __nv_bfloat162 __high2bfloat162(__nv_bfloat162 v) { return {v.y, v.y}; }
SIMT_FN __nv_bfloat162 __lowhigh2highlow(__nv_bfloat162 v) { return {v.y, v.x}; }
/* clang-format on */

/* Toward zero: the bits below are dropped. Finite values only become smaller, NaN stays NaN. */
SIMT_FN __nv_bfloat16 __float2bfloat16_rz(float x)
{
    return __nv_bfloat16_raw{(unsigned short)(x != x ? 0x7fffu : simt_bits<unsigned>(x) >> 16)};
}

SIMT_SMALL_INTRINSICS(__nv_bfloat16)
SIMT_SMALL_OPERATORS(__nv_bfloat16)
SIMT_SMALL_PAIRS(__nv_bfloat16, __nv_bfloat162)

SIMT_ATOMIC_OP(atomicAdd, __nv_bfloat16, old + value)
SIMT_ATOMIC_OP(atomicAdd, __nv_bfloat162, old + value)

#endif
