/* What the 16-bit and 8-bit floating-point types share: rounding into a small format, and the
 * operators and intrinsics of the two 16-bit types. Included by cuda_bf16.h, cuda_fp16.h and
 * cuda_fp8.h. */
#ifndef ATTEST_SIMT_SMALL_FLOAT_H
#define ATTEST_SIMT_SMALL_FLOAT_H

#include <cuda_runtime.h>

/* The magnitude of a finite x rounded to nearest even, as the code of a format with
 * `significand_bits` stored bits and smallest normal exponent `min_exponent`. Codes of adjacent
 * values are adjacent integers, so a carry into the next binade comes out right, and a value beyond
 * the format's range gets a code beyond its largest: the caller decides what that means. Scaling by
 * powers of two is exact in double, so there is one rounding. */
SIMT_FN unsigned simt_encode(double x, int significand_bits, int min_exponent)
{
    uint64_t bits = simt_bits<uint64_t>(x) & 0x7fffffffffffffff;
    int exponent = (int)(bits >> 52) - 1023;
    if (exponent > 128) exponent = 128; /* every caller's format ends below 2^128 */
    if (exponent < min_exponent) exponent = min_exponent;
    double scale = simt_bits<double>((uint64_t)(1023 + significand_bits - exponent) << 52);
    double steps = rint(simt_bits<double>(bits) * scale);
    if (!(steps < 65536.0)) steps = 65536.0;
    return (unsigned)(((exponent - min_exponent) << significand_bits) + (int)steps);
}

/* a * b + c for operands whose product is exact in double, rounded to odd: a later rounding to
 * fewer bits then acts as if it were the only one (the sticky bit survives in the last place). */
SIMT_FN double simt_fma_to_odd(double a, double b, double c)
{
    double product = a * b, sum = product + c;
    double part = sum - product;
    double error = (product - (sum - part)) + (c - part);
    uint64_t bits = simt_bits<uint64_t>(sum);
    if (!(error != 0.0) || !(fabs(sum) <= DBL_MAX) || (bits & 1) != 0) return sum;
    return simt_bits<double>(bits + ((error > 0.0) == (sum > 0.0) ? 1 : -1));
}

/* clang-format off */
/* Operators of a 16-bit type T. Sums, products, quotients and roots are computed in f32 and
 * rounded: 24 bits are more than twice 11 plus 2, so the second rounding changes nothing. */
#define SIMT_SMALL_OPERATORS(T)                                                                    \
    SIMT_FN T operator+(T a, T b) { return T((float)a + (float)b); }                               \
    SIMT_FN T operator-(T a, T b) { return T((float)a - (float)b); }                               \
    SIMT_FN T operator*(T a, T b) { return T((float)a * (float)b); }                               \
    SIMT_FN T operator/(T a, T b) { return T((float)a / (float)b); }                               \
    SIMT_FN T &operator+=(T &a, T b) { return a = a + b; }                                         \
    SIMT_FN T &operator-=(T &a, T b) { return a = a - b; }                                         \
    SIMT_FN T &operator*=(T &a, T b) { return a = a * b; }                                         \
    SIMT_FN T &operator/=(T &a, T b) { return a = a / b; }                                         \
    SIMT_FN T operator+(T a) { return a; }                                                         \
    SIMT_FN T operator-(T a) { return __hneg(a); }                                                 \
    SIMT_FN bool operator==(T a, T b) { return (float)a == (float)b; }                             \
    SIMT_FN bool operator!=(T a, T b) { return (float)a != (float)b; }                             \
    SIMT_FN bool operator<(T a, T b) { return (float)a < (float)b; }                               \
    SIMT_FN bool operator<=(T a, T b) { return (float)a <= (float)b; }                             \
    SIMT_FN bool operator>(T a, T b) { return (float)a > (float)b; }                               \
    SIMT_FN bool operator>=(T a, T b) { return (float)a >= (float)b; }

#define SIMT_SMALL_INTRINSICS(T)                                                                   \
    SIMT_FN T __hneg(T a) { return simt_bits<T>((uint16_t)(simt_bits<uint16_t>(a) ^ 0x8000)); }    \
    SIMT_FN T __habs(T a) { return simt_bits<T>((uint16_t)(simt_bits<uint16_t>(a) & 0x7fff)); }    \
    SIMT_FN T __hadd(T a, T b) { return T((float)a + (float)b); }                                  \
    SIMT_FN T __hadd_rn(T a, T b) { return T((float)a + (float)b); }                               \
    SIMT_FN T __hsub(T a, T b) { return T((float)a - (float)b); }                                  \
    SIMT_FN T __hsub_rn(T a, T b) { return T((float)a - (float)b); }                               \
    SIMT_FN T __hmul(T a, T b) { return T((float)a * (float)b); }                                  \
    SIMT_FN T __hmul_rn(T a, T b) { return T((float)a * (float)b); }                               \
    SIMT_FN T __hdiv(T a, T b) { return T((float)a / (float)b); }                                  \
    SIMT_FN T __hfma(T a, T b, T c) { return T(simt_fma_to_odd((float)a, (float)b, (float)c)); }   \
    SIMT_FN T __hmax(T a, T b) { return T(simt_fmaxf((float)a, (float)b)); }                       \
    SIMT_FN T __hmin(T a, T b) { return T(simt_fminf((float)a, (float)b)); }                       \
    SIMT_FN T hsqrt(T a) { return T(__builtin_sqrtf((float)a)); }                                  \
    SIMT_FN T hrcp(T a) { return T(1.0f / (float)a); }                                             \
    SIMT_FN T hrsqrt(T a) { return T(1.0 / __builtin_sqrt((double)(float)a)); }                    \
    SIMT_FN T hexp(T a) { return T(exp((double)(float)a)); }                                       \
    SIMT_FN T hlog(T a) { return T(log((double)(float)a)); }                                       \
    SIMT_FN T hexp2(T a) { return T(exp2((double)(float)a)); }                                     \
    SIMT_FN T hlog2(T a) { return T(log2((double)(float)a)); }                                     \
    SIMT_FN bool __heq(T a, T b) { return (float)a == (float)b; }                                  \
    SIMT_FN bool __hne(T a, T b) { return (float)a < (float)b || (float)a > (float)b; }            \
    SIMT_FN bool __hlt(T a, T b) { return (float)a < (float)b; }                                   \
    SIMT_FN bool __hle(T a, T b) { return (float)a <= (float)b; }                                  \
    SIMT_FN bool __hgt(T a, T b) { return (float)a > (float)b; }                                   \
    SIMT_FN bool __hge(T a, T b) { return (float)a >= (float)b; }                                  \
    SIMT_FN bool __hisnan(T a) { return (float)a != (float)a; }                                    \
    SIMT_FN int __hisinf(T a)                                                                      \
    {                                                                                              \
        return fabsf((float)a) <= FLT_MAX || __hisnan(a) ? 0 : (float)a > 0.0f ? 1 : -1;           \
    }

#define SIMT_SMALL_PAIRS(T, T2)                                                                    \
    SIMT_FN T2 __hadd2(T2 a, T2 b) { return T2(__hadd(a.x, b.x), __hadd(a.y, b.y)); }              \
    SIMT_FN T2 __hsub2(T2 a, T2 b) { return T2(__hsub(a.x, b.x), __hsub(a.y, b.y)); }              \
    SIMT_FN T2 __hmul2(T2 a, T2 b) { return T2(__hmul(a.x, b.x), __hmul(a.y, b.y)); }              \
    SIMT_FN T2 __h2div(T2 a, T2 b) { return T2(__hdiv(a.x, b.x), __hdiv(a.y, b.y)); }              \
    SIMT_FN T2 __hmax2(T2 a, T2 b) { return T2(__hmax(a.x, b.x), __hmax(a.y, b.y)); }              \
    SIMT_FN T2 __hmin2(T2 a, T2 b) { return T2(__hmin(a.x, b.x), __hmin(a.y, b.y)); }              \
    SIMT_FN T2 __hneg2(T2 a) { return T2(__hneg(a.x), __hneg(a.y)); }                              \
    SIMT_FN T2 __habs2(T2 a) { return T2(__habs(a.x), __habs(a.y)); }                              \
    SIMT_FN T2 __hfma2(T2 a, T2 b, T2 c)                                                           \
    {                                                                                              \
        return T2(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y));                                   \
    }                                                                                              \
    SIMT_FN T2 h2exp(T2 a) { return T2(hexp(a.x), hexp(a.y)); }                                    \
    SIMT_FN T2 h2exp2(T2 a) { return T2(hexp2(a.x), hexp2(a.y)); }                                 \
    SIMT_FN T2 h2rcp(T2 a) { return T2(hrcp(a.x), hrcp(a.y)); }                                    \
    SIMT_FN T2 h2sqrt(T2 a) { return T2(hsqrt(a.x), hsqrt(a.y)); }                                 \
    SIMT_FN T2 h2rsqrt(T2 a) { return T2(hrsqrt(a.x), hrsqrt(a.y)); }                              \
    SIMT_FN T2 &operator+=(T2 &a, T2 b) { return a = __hadd2(a, b); }                              \
    SIMT_FN T2 &operator-=(T2 &a, T2 b) { return a = __hsub2(a, b); }                              \
    SIMT_FN T2 &operator*=(T2 &a, T2 b) { return a = __hmul2(a, b); }                              \
    SIMT_FN T2 operator+(T2 a, T2 b) { return __hadd2(a, b); }                                     \
    SIMT_FN T2 operator-(T2 a, T2 b) { return __hsub2(a, b); }                                     \
    SIMT_FN T2 operator*(T2 a, T2 b) { return __hmul2(a, b); }                                     \
    SIMT_FN T2 operator/(T2 a, T2 b) { return __h2div(a, b); }

/* clang-format on */

#endif
