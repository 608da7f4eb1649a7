/* Floating-point intrinsics and the overloads CUDA adds to C's mathematics.
 *
 * The _rn intrinsics, sqrt, division and fma are correctly rounded, as on the device. Functions
 * that the device approximates (rsqrtf, __expf, expf, sinf, ...) are within the device's documented
 * error here, but not the same bits. */
#ifndef ATTEST_SIMT_MATH_H
#define ATTEST_SIMT_MATH_H

/* One line a function: they are tables more than code. */
/* clang-format off */

/* Rounding control in MXCSR: exceptions masked, RC in bits 13-14. */
enum simt_rounding { SIMT_RN = 0x1f80, SIMT_RD = 0x3f80, SIMT_RU = 0x5f80, SIMT_RZ = 0x7f80 };

/* One instruction under another rounding mode; the two control loads hold it in place. */
#define SIMT_DIRECTED_BINARY(name, type, instruction)                                              \
    template <unsigned Csr> SIMT_FN type name(type a, type b)                                      \
    {                                                                                              \
        unsigned csr = Csr, normal = SIMT_RN;                                                      \
        type result;                                                                               \
        __asm__ volatile("vldmxcsr %3\n\t" instruction " %2, %1, %0\n\tvldmxcsr %4"                \
                         : "=&x"(result)                                                           \
                         : "x"(a), "x"(b), "m"(csr), "m"(normal));                                 \
        return result;                                                                             \
    }
SIMT_DIRECTED_BINARY(simt_add, float, "vaddss")
SIMT_DIRECTED_BINARY(simt_sub, float, "vsubss")
SIMT_DIRECTED_BINARY(simt_mul, float, "vmulss")
SIMT_DIRECTED_BINARY(simt_div, float, "vdivss")
SIMT_DIRECTED_BINARY(simt_add, double, "vaddsd")
SIMT_DIRECTED_BINARY(simt_sub, double, "vsubsd")
SIMT_DIRECTED_BINARY(simt_mul, double, "vmulsd")
SIMT_DIRECTED_BINARY(simt_div, double, "vdivsd")
#undef SIMT_DIRECTED_BINARY
#define SIMT_DIRECTED_UNARY(name, type, instruction)                                               \
    template <unsigned Csr> SIMT_FN type name(type a)                                              \
    {                                                                                              \
        unsigned csr = Csr, normal = SIMT_RN;                                                      \
        type result;                                                                               \
        __asm__ volatile("vldmxcsr %2\n\t" instruction " %1, %1, %0\n\tvldmxcsr %3"                \
                         : "=&x"(result)                                                           \
                         : "x"(a), "m"(csr), "m"(normal));                                         \
        return result;                                                                             \
    }
SIMT_DIRECTED_UNARY(simt_sqrt, float, "vsqrtss")
SIMT_DIRECTED_UNARY(simt_sqrt, double, "vsqrtsd")
#undef SIMT_DIRECTED_UNARY
#define SIMT_DIRECTED_FMA(type, instruction)                                                       \
    template <unsigned Csr> SIMT_FN type simt_fma(type a, type b, type c)                          \
    {                                                                                              \
        unsigned csr = Csr, normal = SIMT_RN;                                                      \
        __asm__ volatile("vldmxcsr %3\n\t" instruction " %2, %1, %0\n\tvldmxcsr %4"                \
                         : "+&x"(c)                                                                \
                         : "x"(a), "x"(b), "m"(csr), "m"(normal));                                 \
        return c;                                                                                  \
    }
SIMT_DIRECTED_FMA(float, "vfmadd231ss")
SIMT_DIRECTED_FMA(double, "vfmadd231sd")
#undef SIMT_DIRECTED_FMA

#define SIMT_DIRECTED(mode, csr)                                                                   \
    SIMT_FN float __fadd_##mode(float a, float b) { return simt_add<csr>(a, b); }                  \
    SIMT_FN float __fsub_##mode(float a, float b) { return simt_sub<csr>(a, b); }                  \
    SIMT_FN float __fmul_##mode(float a, float b) { return simt_mul<csr>(a, b); }                  \
    SIMT_FN float __fdiv_##mode(float a, float b) { return simt_div<csr>(a, b); }                  \
    SIMT_FN float __frcp_##mode(float a) { return simt_div<csr>(1.0f, a); }                        \
    SIMT_FN float __fsqrt_##mode(float a) { return simt_sqrt<csr>(a); }                            \
    SIMT_FN float __fmaf_##mode(float a, float b, float c) { return simt_fma<csr>(a, b, c); }      \
    SIMT_FN double __dadd_##mode(double a, double b) { return simt_add<csr>(a, b); }               \
    SIMT_FN double __dsub_##mode(double a, double b) { return simt_sub<csr>(a, b); }               \
    SIMT_FN double __dmul_##mode(double a, double b) { return simt_mul<csr>(a, b); }               \
    SIMT_FN double __ddiv_##mode(double a, double b) { return simt_div<csr>(a, b); }               \
    SIMT_FN double __drcp_##mode(double a) { return simt_div<csr>(1.0, a); }                       \
    SIMT_FN double __dsqrt_##mode(double a) { return simt_sqrt<csr>(a); }                          \
    SIMT_FN double __fma_##mode(double a, double b, double c) { return simt_fma<csr>(a, b, c); }
SIMT_DIRECTED(rz, SIMT_RZ)
SIMT_DIRECTED(ru, SIMT_RU)
SIMT_DIRECTED(rd, SIMT_RD)
#undef SIMT_DIRECTED

/* Round to nearest even is the mode the process runs in. */
SIMT_FN float __fadd_rn(float a, float b) { return a + b; }
SIMT_FN float __fsub_rn(float a, float b) { return a - b; }
SIMT_FN float __fmul_rn(float a, float b) { return a * b; }
SIMT_FN float __fdiv_rn(float a, float b) { return a / b; }
SIMT_FN float __frcp_rn(float a) { return 1.0f / a; }
SIMT_FN float __fsqrt_rn(float a) { return __builtin_sqrtf(a); }
SIMT_FN float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
SIMT_FN double __dadd_rn(double a, double b) { return a + b; }
SIMT_FN double __dsub_rn(double a, double b) { return a - b; }
SIMT_FN double __dmul_rn(double a, double b) { return a * b; }
SIMT_FN double __ddiv_rn(double a, double b) { return a / b; }
SIMT_FN double __drcp_rn(double a) { return 1.0 / a; }
SIMT_FN double __dsqrt_rn(double a) { return __builtin_sqrt(a); }
SIMT_FN double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }
/* The double result is close enough for the second rounding to be the right one for every float
 * (checked over all significands of two binades, numerics 2). */
SIMT_FN float __frsqrt_rn(float a) { return (float)(1.0 / __builtin_sqrt((double)a)); }
SIMT_FN float rsqrtf(float a) { return __frsqrt_rn(a); }
SIMT_FN double rsqrt(double a) { return 1.0 / __builtin_sqrt(a); }
SIMT_FN float rsqrt(float a) { return __frsqrt_rn(a); }
SIMT_FN float rcbrtf(float a) { return (float)(1.0 / cbrt((double)a)); }

/* NaN is the missing value and +0 is above -0, as in PTX's min and max. */
SIMT_FN float simt_fmaxf(float a, float b)
{
    if (a != a) return b;
    if (b != b) return a;
    if (a == b) return simt_bits<float>(simt_bits<unsigned>(a) & simt_bits<unsigned>(b));
    return a > b ? a : b;
}
SIMT_FN float simt_fminf(float a, float b)
{
    if (a != a) return b;
    if (b != b) return a;
    if (a == b) return simt_bits<float>(simt_bits<unsigned>(a) | simt_bits<unsigned>(b));
    return a < b ? a : b;
}
SIMT_FN double simt_fmax(double a, double b)
{
    if (a != a) return b;
    if (b != b) return a;
    if (a == b) return simt_bits<double>(simt_bits<uint64_t>(a) & simt_bits<uint64_t>(b));
    return a > b ? a : b;
}
SIMT_FN double simt_fmin(double a, double b)
{
    if (a != a) return b;
    if (b != b) return a;
    if (a == b) return simt_bits<double>(simt_bits<uint64_t>(a) | simt_bits<uint64_t>(b));
    return a < b ? a : b;
}
#define fmaxf simt_fmaxf
#define fminf simt_fminf

#define SIMT_MINMAX(type, a_type, b_type)                                                          \
    SIMT_FN constexpr type min(a_type a, b_type b)                                                 \
    {                                                                                              \
        return (type)a < (type)b ? (type)a : (type)b;                                              \
    }                                                                                              \
    SIMT_FN constexpr type max(a_type a, b_type b)                                                 \
    {                                                                                              \
        return (type)a > (type)b ? (type)a : (type)b;                                              \
    }
#define SIMT_MINMAX_SIGNS(type)                                                                    \
    SIMT_MINMAX(type, type, type)                                                                  \
    SIMT_MINMAX(unsigned type, unsigned type, unsigned type)                                       \
    SIMT_MINMAX(unsigned type, type, unsigned type)                                                \
    SIMT_MINMAX(unsigned type, unsigned type, type)
SIMT_MINMAX_SIGNS(int)
SIMT_MINMAX_SIGNS(long)
SIMT_MINMAX_SIGNS(long long)
#undef SIMT_MINMAX_SIGNS
#undef SIMT_MINMAX
SIMT_FN float min(float a, float b) { return simt_fminf(a, b); }
SIMT_FN float max(float a, float b) { return simt_fmaxf(a, b); }
SIMT_FN double min(double a, double b) { return simt_fmin(a, b); }
SIMT_FN double max(double a, double b) { return simt_fmax(a, b); }
SIMT_FN double min(float a, double b) { return simt_fmin(a, b); }
SIMT_FN double max(float a, double b) { return simt_fmax(a, b); }
SIMT_FN double min(double a, float b) { return simt_fmin(a, b); }
SIMT_FN double max(double a, float b) { return simt_fmax(a, b); }

/* glibc owns these names; the device's fast functions are at least this wrong. */
SIMT_FN float simt_fast_sinf(float x) { return sinf(x); }
SIMT_FN float simt_fast_cosf(float x) { return cosf(x); }
SIMT_FN float simt_fast_tanf(float x) { return tanf(x); }
SIMT_FN float simt_fast_expf(float x) { return expf(x); }
SIMT_FN float simt_fast_exp10f(float x) { return (float)exp2((double)x * 3.321928094887362); }
SIMT_FN float simt_fast_logf(float x) { return logf(x); }
SIMT_FN float simt_fast_log2f(float x) { return log2f(x); }
SIMT_FN float simt_fast_log10f(float x) { return log10f(x); }
SIMT_FN float simt_fast_powf(float x, float y) { return powf(x, y); }
SIMT_FN void simt_fast_sincosf(float x, float *s, float *c)
{
    *s = sinf(x);
    *c = cosf(x);
}
#define __sinf simt_fast_sinf
#define __cosf simt_fast_cosf
#define __tanf simt_fast_tanf
#define __expf simt_fast_expf
#define __exp10f simt_fast_exp10f
#define __logf simt_fast_logf
#define __log2f simt_fast_log2f
#define __log10f simt_fast_log10f
#define __powf simt_fast_powf
#define __sincosf simt_fast_sincosf
SIMT_FN float __fdividef(float a, float b) { return a / b; }
SIMT_FN float fdividef(float a, float b) { return a / b; }
/* NaN becomes +0. */
SIMT_FN float __saturatef(float a) { return !(a > 0.0f) ? 0.0f : a > 1.0f ? 1.0f : a; }
SIMT_FN double sinpi(double x) { return sin(3.141592653589793 * remainder(x, 2.0)); }
SIMT_FN double cospi(double x) { return cos(3.141592653589793 * remainder(x, 2.0)); }
SIMT_FN float sinpif(float x) { return (float)sinpi((double)x); }
SIMT_FN float cospif(float x) { return (float)cospi((double)x); }
SIMT_FN void sincospif(float x, float *s, float *c)
{
    *s = sinpif(x);
    *c = cospif(x);
}

/* Conversions to integers saturate and take NaN to 0. */
template <class I, class F> SIMT_FN I simt_to_integer(F x)
{
    constexpr F low = (F)std::numeric_limits<I>::min();
    constexpr F above = (F)(std::numeric_limits<I>::max() / 2 + 1) * 2;
    if (x != x) return 0;
    if (x < low) return std::numeric_limits<I>::min();
    return x >= above ? std::numeric_limits<I>::max() : (I)x;
}
#define SIMT_TO_INTEGER(name, from, to)                                                            \
    SIMT_FN to name##_rn(from x) { return simt_to_integer<to>(rint(x)); }                          \
    SIMT_FN to name##_rz(from x) { return simt_to_integer<to>(trunc(x)); }                         \
    SIMT_FN to name##_ru(from x) { return simt_to_integer<to>(ceil(x)); }                          \
    SIMT_FN to name##_rd(from x) { return simt_to_integer<to>(floor(x)); }
SIMT_TO_INTEGER(__float2int, float, int)
SIMT_TO_INTEGER(__float2uint, float, unsigned)
SIMT_TO_INTEGER(__float2ll, float, long long)
SIMT_TO_INTEGER(__float2ull, float, unsigned long long)
SIMT_TO_INTEGER(__double2int, double, int)
SIMT_TO_INTEGER(__double2uint, double, unsigned)
SIMT_TO_INTEGER(__double2ll, double, long long)
SIMT_TO_INTEGER(__double2ull, double, unsigned long long)
#undef SIMT_TO_INTEGER
SIMT_FN float __int2float_rn(int x) { return (float)x; }
SIMT_FN float __uint2float_rn(unsigned x) { return (float)x; }
SIMT_FN float __ll2float_rn(long long x) { return (float)x; }
SIMT_FN float __ull2float_rn(unsigned long long x) { return (float)x; }
SIMT_FN double __int2double_rn(int x) { return (double)x; }
SIMT_FN double __uint2double_rn(unsigned x) { return (double)x; }
SIMT_FN double __ll2double_rn(long long x) { return (double)x; }
SIMT_FN double __ull2double_rn(unsigned long long x) { return (double)x; }
SIMT_FN float __double2float_rn(double x) { return (float)x; }
/* Toward zero: the nearest float, one step back if it lies beyond x. */
SIMT_FN float __double2float_rz(double x)
{
    float nearest = (float)x;
    return fabs((double)nearest) > fabs(x) ? nextafterf(nearest, 0.0f) : nearest;
}

/* clang-format on */

#endif
