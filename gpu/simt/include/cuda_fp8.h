/* The 8-bit types: e4m3 (finite only: no infinities, 0x7f and 0xff are NaN, largest 448) and e5m2.
 * Conversions round to nearest even; NaN becomes 0x7f. In a pair the first value is the low byte.
 */
#ifndef ATTEST_SIMT_CUDA_FP8_H
#define ATTEST_SIMT_CUDA_FP8_H

#include "cuda_bf16.h"
#include "cuda_fp16.h"

typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short __nv_fp8x2_storage_t;
typedef unsigned int __nv_fp8x4_storage_t;
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

SIMT_FN __nv_fp8_storage_t __nv_cvt_double_to_fp8(double x, __nv_saturation_t saturate,
                                                  __nv_fp8_interpretation_t format)
{
    if (x != x) return 0x7f;
    unsigned sign = signbit(x) ? 0x80 : 0;
    unsigned code = format == __NV_E4M3 ? simt_encode(x, 3, -6) : simt_encode(x, 2, -14);
    unsigned largest = format == __NV_E4M3 ? 0x7e : 0x7b;
    unsigned beyond = format == __NV_E4M3 ? 0x7f : 0x7c;
    if (code > largest) code = saturate == __NV_SATFINITE ? largest : beyond;
    return (__nv_fp8_storage_t)(code | sign);
}
SIMT_FN __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t saturate,
                                                 __nv_fp8_interpretation_t format)
{
    return __nv_cvt_double_to_fp8((double)x, saturate, format);
}
SIMT_FN __nv_fp8_storage_t __nv_cvt_bfloat16raw_to_fp8(__nv_bfloat16_raw x,
                                                       __nv_saturation_t saturate,
                                                       __nv_fp8_interpretation_t format)
{
    return __nv_cvt_float_to_fp8((float)__nv_bfloat16(x), saturate, format);
}
SIMT_FN __nv_fp8_storage_t __nv_cvt_halfraw_to_fp8(__half_raw x, __nv_saturation_t saturate,
                                                   __nv_fp8_interpretation_t format)
{
    return __nv_cvt_float_to_fp8((float)__half(x), saturate, format);
}
SIMT_FN __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2 v, __nv_saturation_t saturate,
                                                      __nv_fp8_interpretation_t format)
{
    return (__nv_fp8x2_storage_t)(__nv_cvt_float_to_fp8(v.x, saturate, format) |
                                  __nv_cvt_float_to_fp8(v.y, saturate, format) << 8);
}
SIMT_FN __nv_fp8x2_storage_t __nv_cvt_halfraw2_to_fp8x2(__half2_raw x, __nv_saturation_t saturate,
                                                        __nv_fp8_interpretation_t format)
{
    return (__nv_fp8x2_storage_t)(__nv_cvt_halfraw_to_fp8({x.x}, saturate, format) |
                                  __nv_cvt_halfraw_to_fp8({x.y}, saturate, format) << 8);
}
SIMT_FN __nv_fp8x2_storage_t __nv_cvt_bfloat16raw2_to_fp8x2(__nv_bfloat162_raw x,
                                                            __nv_saturation_t saturate,
                                                            __nv_fp8_interpretation_t format)
{
    return (__nv_fp8x2_storage_t)(__nv_cvt_bfloat16raw_to_fp8({x.x}, saturate, format) |
                                  __nv_cvt_bfloat16raw_to_fp8({x.y}, saturate, format) << 8);
}

/* Every e4m3 value is a half: significands of 3 bits, exponents -9 to 8. e5m2 is half's upper byte.
 */
SIMT_FN __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t x, __nv_fp8_interpretation_t format)
{
    if (format == __NV_E5M2) {
        bool nan = (x & 0x7f) > 0x7c;
        return {(unsigned short)(nan ? 0x7fff : x << 8)};
    }
    constexpr unsigned short subnormals[8] = {0,      0x1800, 0x1c00, 0x1e00,
                                              0x2000, 0x2100, 0x2200, 0x2300};
    unsigned code = x & 0x7f;
    if (code == 0x7f) return {0x7fff};
    unsigned magnitude = code < 8 ? subnormals[code] : (code << 7) + 0x2000;
    return {(unsigned short)(magnitude | (x & 0x80) << 8)};
}
SIMT_FN __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t x,
                                               __nv_fp8_interpretation_t format)
{
    return {__nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)x, format).x,
            __nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)(x >> 8), format).x};
}

/* Straight to f32: the code moved to f32's exponent field, times the difference of the biases. */
SIMT_FN float simt_e4m3_to_float(__nv_fp8_storage_t x)
{
    unsigned sign = (unsigned)(x & 0x80) << 24;
    if ((x & 0x7f) == 0x7f) return simt_bits<float>(0x7fffffffu);
    float scaled = simt_bits<float>((unsigned)(x & 0x7f) << 20) * 0x1p120f;
    return simt_bits<float>(simt_bits<unsigned>(scaled) | sign);
}
SIMT_FN float simt_e5m2_to_float(__nv_fp8_storage_t x)
{
    return (float)__half(__nv_cvt_fp8_to_halfraw(x, __NV_E5M2));
}

/* The same set of types for each format, converting with saturation as CUDA's constructors do. */
#define SIMT_FP8_TYPES(suffix, format, to_float)                                                  \
    struct __nv_fp8_##suffix {                                                                    \
        __nv_fp8_storage_t __x;                                                                   \
        __nv_fp8_##suffix() = default;                                                            \
        SIMT_MEMBER explicit __nv_fp8_##suffix(float x)                                           \
            : __x(__nv_cvt_float_to_fp8(x, __NV_SATFINITE, format))                               \
        {                                                                                         \
        }                                                                                         \
        SIMT_MEMBER explicit __nv_fp8_##suffix(double x)                                          \
            : __x(__nv_cvt_double_to_fp8(x, __NV_SATFINITE, format))                              \
        {                                                                                         \
        }                                                                                         \
        SIMT_MEMBER explicit __nv_fp8_##suffix(__half x) : __nv_fp8_##suffix((float)x)            \
        {                                                                                         \
        }                                                                                         \
        SIMT_MEMBER explicit __nv_fp8_##suffix(__nv_bfloat16 x) : __nv_fp8_##suffix((float)x)     \
        {                                                                                         \
        }                                                                                         \
        SIMT_MEMBER explicit operator float() const                                               \
        {                                                                                         \
            return to_float(__x);                                                                 \
        }                                                                                         \
        SIMT_MEMBER explicit operator double() const                                              \
        {                                                                                         \
            return to_float(__x);                                                                 \
        }                                                                                         \
        SIMT_MEMBER explicit operator __half() const                                              \
        {                                                                                         \
            return __half(__nv_cvt_fp8_to_halfraw(__x, format));                                  \
        }                                                                                         \
        SIMT_MEMBER explicit operator __nv_bfloat16() const                                       \
        {                                                                                         \
            return __nv_bfloat16(to_float(__x));                                                  \
        }                                                                                         \
        SIMT_MEMBER explicit operator bool() const                                                \
        {                                                                                         \
            return (__x & 0x7f) != 0;                                                             \
        }                                                                                         \
    };                                                                                            \
    struct __attribute__((aligned(2))) __nv_fp8x2_##suffix {                                      \
        __nv_fp8x2_storage_t __x;                                                                 \
        __nv_fp8x2_##suffix() = default;                                                          \
        SIMT_MEMBER explicit __nv_fp8x2_##suffix(float2 v)                                        \
            : __x(__nv_cvt_float2_to_fp8x2(v, __NV_SATFINITE, format))                            \
        {                                                                                         \
        }                                                                                         \
        SIMT_MEMBER explicit __nv_fp8x2_##suffix(__half2 v)                                       \
            : __x(__nv_cvt_halfraw2_to_fp8x2(v, __NV_SATFINITE, format))                          \
        {                                                                                         \
        }                                                                                         \
        SIMT_MEMBER explicit __nv_fp8x2_##suffix(__nv_bfloat162 v)                                \
            : __x(__nv_cvt_bfloat16raw2_to_fp8x2(v, __NV_SATFINITE, format))                      \
        {                                                                                         \
        }                                                                                         \
        SIMT_MEMBER explicit operator float2() const                                              \
        {                                                                                         \
            return {to_float((__nv_fp8_storage_t)__x), to_float((__nv_fp8_storage_t)(__x >> 8))}; \
        }                                                                                         \
        SIMT_MEMBER explicit operator __half2() const                                             \
        {                                                                                         \
            return __half2(__nv_cvt_fp8x2_to_halfraw2(__x, format));                              \
        }                                                                                         \
    };                                                                                            \
    struct __attribute__((aligned(4))) __nv_fp8x4_##suffix {                                      \
        __nv_fp8x4_storage_t __x;                                                                 \
        __nv_fp8x4_##suffix() = default;                                                          \
        SIMT_MEMBER explicit __nv_fp8x4_##suffix(float4 v)                                        \
            : __x(__nv_cvt_float2_to_fp8x2({v.x, v.y}, __NV_SATFINITE, format) |                  \
                  (unsigned)__nv_cvt_float2_to_fp8x2({v.z, v.w}, __NV_SATFINITE, format) << 16)   \
        {                                                                                         \
        }                                                                                         \
        SIMT_MEMBER explicit __nv_fp8x4_##suffix(__half2 low, __half2 high)                       \
            : __x(__nv_cvt_halfraw2_to_fp8x2(low, __NV_SATFINITE, format) |                       \
                  (unsigned)__nv_cvt_halfraw2_to_fp8x2(high, __NV_SATFINITE, format) << 16)       \
        {                                                                                         \
        }                                                                                         \
        SIMT_MEMBER explicit operator float4() const                                              \
        {                                                                                         \
            return {to_float((__nv_fp8_storage_t)__x), to_float((__nv_fp8_storage_t)(__x >> 8)),  \
                    to_float((__nv_fp8_storage_t)(__x >> 16)),                                    \
                    to_float((__nv_fp8_storage_t)(__x >> 24))};                                   \
        }                                                                                         \
    };
SIMT_FP8_TYPES(e4m3, __NV_E4M3, simt_e4m3_to_float)
SIMT_FP8_TYPES(e5m2, __NV_E5M2, simt_e5m2_to_float)
#undef SIMT_FP8_TYPES

#endif
