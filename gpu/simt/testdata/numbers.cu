// The number formats and arithmetic intrinsics, one element a thread.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

extern "C" {

// Formats: 0 bf16, 1 half, 2 e4m3, 3 e5m2.
__global__ void encode(const double *in, unsigned *out, int n, int format, int from_double,
                       int saturate)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    __nv_saturation_t mode = saturate ? __NV_SATFINITE : __NV_NOSAT;
    __nv_fp8_interpretation_t fp8 = format == 2 ? __NV_E4M3 : __NV_E5M2;

    if (i >= n) return;
    if (format == 0)
        out[i] = __bfloat16_as_ushort(from_double ? __double2bfloat16(in[i])
                                                  : __float2bfloat16((float)in[i]));
    else if (format == 1)
        out[i] = __half_as_ushort(from_double ? __double2half(in[i]) : __float2half((float)in[i]));
    else
        out[i] = from_double ? __nv_cvt_double_to_fp8(in[i], mode, fp8)
                             : __nv_cvt_float_to_fp8((float)in[i], mode, fp8);
}

__global__ void decode(unsigned *out, int format)
{
    unsigned code = blockIdx.x * blockDim.x + threadIdx.x;
    float x;

    if (format == 0) {
        x = __bfloat162float(__ushort_as_bfloat16((unsigned short)code));
    } else if (format == 1) {
        x = __half2float(__ushort_as_half((unsigned short)code));
    } else if (format == 2) {
        __nv_fp8_e4m3 v;

        v.__x = (__nv_fp8_storage_t)code;
        x = (float)v;
        // The way over half gives the same.
        if (x == x && x != __half2float(__half(__nv_cvt_fp8_to_halfraw(v.__x, __NV_E4M3))))
            x = -777;
    } else {
        __nv_fp8_e5m2 v;

        v.__x = (__nv_fp8_storage_t)code;
        x = (float)v;
    }
    out[code] = __float_as_uint(x);
}

// Pairs: the first value is the low part, in memory as in registers.
__global__ void pairs(float2 *in, unsigned *out)
{
    __nv_bfloat162 b = __float22bfloat162_rn(in[0]);
    __half2 h = __floats2half2_rn(in[0].x, in[0].y);
    __nv_fp8x4_e4m3 f(make_float4(in[0].x, in[0].y, in[1].x, in[1].y));
    float4 back = (float4)f;

    out[0] = *(unsigned *)&b;
    out[1] = *(unsigned *)&h;
    out[2] = f.__x;
    out[3] = __nv_cvt_float2_to_fp8x2(in[1], __NV_SATFINITE, __NV_E4M3);
    out[4] = back.x == 1.0f && back.y == -2.0f && back.z == 0.5f && back.w == 448.0f;
    out[5] = __bfloat1622float2(b).x == 1.0f && __bfloat1622float2(b).y == -2.0f;
    out[6] = __hadd2(h, h).y == __half(-4.0f) && __hmul2(b, b).y == __nv_bfloat16(4.0f);
}

__global__ void fused(const unsigned short *a, const unsigned short *b, const unsigned short *c,
                      unsigned short *out, int n, int format)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i >= n) return;
    if (format == 0)
        out[i] = __bfloat16_as_ushort(__hfma(__ushort_as_bfloat16(a[i]), __ushort_as_bfloat16(b[i]),
                                             __ushort_as_bfloat16(c[i])));
    else
        out[i] = __half_as_ushort(
            __hfma(__ushort_as_half(a[i]), __ushort_as_half(b[i]), __ushort_as_half(c[i])));
}

// [n][20]: four modes of five operations.
__global__ void directed(const float *a, const float *b, const float *c, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float *o = out + i * 20;

    if (i >= n) return;
    o[0] = __fadd_rn(a[i], b[i]), o[1] = __fmul_rn(a[i], b[i]), o[2] = __fdiv_rn(a[i], b[i]);
    o[3] = __fsqrt_rn(fabsf(a[i])), o[4] = __fmaf_rn(a[i], b[i], c[i]);
    o[5] = __fadd_rz(a[i], b[i]), o[6] = __fmul_rz(a[i], b[i]), o[7] = __fdiv_rz(a[i], b[i]);
    o[8] = __fsqrt_rz(fabsf(a[i])), o[9] = __fmaf_rz(a[i], b[i], c[i]);
    o[10] = __fadd_ru(a[i], b[i]), o[11] = __fmul_ru(a[i], b[i]), o[12] = __fdiv_ru(a[i], b[i]);
    o[13] = __fsqrt_ru(fabsf(a[i])), o[14] = __fmaf_ru(a[i], b[i], c[i]);
    o[15] = __fadd_rd(a[i], b[i]), o[16] = __fmul_rd(a[i], b[i]), o[17] = __fdiv_rd(a[i], b[i]);
    o[18] = __fsqrt_rd(fabsf(a[i])), o[19] = __fmaf_rd(a[i], b[i], c[i]);
}

// [n][8]
__global__ void to_integers(const float *in, long long *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    long long *o = out + i * 8;

    if (i >= n) return;
    o[0] = __float2int_rn(in[i]), o[1] = __float2int_rz(in[i]);
    o[2] = __float2int_ru(in[i]), o[3] = __float2int_rd(in[i]);
    o[4] = __float2uint_rn(in[i]), o[5] = __float2uint_rz(in[i]);
    o[6] = __float2ll_rn(in[i]), o[7] = (long long)__float2ull_rz(in[i]);
}

__global__ void integers(unsigned *out)
{
    const float zero = 0.0f, minus = -0.0f, nan = __int_as_float(0x7fffffff);

    out[0] = __clz(0), out[1] = __clz(1), out[2] = __ffs(0), out[3] = __ffs(0x50);
    out[4] = __brev(0x80000001u), out[5] = __byte_perm(0x33221100, 0x77665544, 0x7a40);
    out[6] = __funnelshift_l(0x80000001u, 0x12345678, 8);
    out[7] = __funnelshift_r(0x80000001u, 0x12345678, 40);
    out[8] = __funnelshift_lc(5, 6, 32), out[9] = __umulhi(0xffffffffu, 0xffffffffu);
    out[10] = (unsigned)__mulhi(-2, 3), out[11] = __fns(0xf0, 0, 3);
    out[12] = __float_as_uint(fmaxf(minus, zero)), out[13] = __float_as_uint(fmaxf(zero, minus));
    out[14] = __float_as_uint(fminf(zero, minus)), out[15] = __float_as_uint(min(minus, zero));
    out[16] = __float_as_uint(fmaxf(nan, 3.0f)), out[17] = __float_as_uint(max(3.0f, nan));
    out[18] = (unsigned)min(3u, 0xfffffffeu), out[19] = max(-1, 1), out[20] = __popcll(~0ull);
    out[21] = __float_as_uint(__saturatef(nan)), out[22] = __float_as_uint(__saturatef(7.0f));
    out[23] = __dp4a((int)0xff020304, 0x01010101, 10), out[24] = __sad(-5, 7, 1);
    out[25] = __float_as_uint(__frsqrt_rn(4.0f)), out[26] = __float_as_uint(rsqrtf(0.0f));
    out[27] = __double2hiint(1.0), out[28] = __float_as_uint(__double2float_rz(1.0 - 0x1p-40));
}

} // extern "C"
