/* One kernel a group of PTX instructions; each result is one word of `out` (test_ptx.c knows
 * which). */
#include <stdint.h>

#define U2(name, a, b)                                                                    \
    do {                                                                                  \
        uint32_t result;                                                                  \
        asm(name " %0, %1, %2;" : "=r"(result) : "r"((uint32_t)(a)), "r"((uint32_t)(b))); \
        *out++ = result;                                                                  \
    } while (0)
#define U3(name, a, b, c)                                              \
    do {                                                               \
        uint32_t result;                                               \
        asm(name " %0, %1, %2, %3;"                                    \
            : "=r"(result)                                             \
            : "r"((uint32_t)(a)), "r"((uint32_t)(b)), "r"((uint32_t)(c))); \
        *out++ = result;                                               \
    } while (0)
#define U1(name, a)                                                  \
    do {                                                             \
        uint32_t result;                                             \
        asm(name " %0, %1;" : "=r"(result) : "r"((uint32_t)(a)));    \
        *out++ = result;                                             \
    } while (0)
#define F1(name, a)                                          \
    do {                                                     \
        float result;                                        \
        asm(name " %0, %1;" : "=f"(result) : "f"(a));        \
        *out++ = __float_as_uint(result);                    \
    } while (0)
#define F2(name, a, b)                                               \
    do {                                                             \
        float result;                                                \
        asm(name " %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));    \
        *out++ = __float_as_uint(result);                            \
    } while (0)

extern "C" __global__ void integers(uint32_t *out)
{
    U2("add.u32", 0xffffffff, 2);
    U2("add.sat.s32", 0x7fffffff, 1);
    U2("sub.s32", 1, 3);
    U2("mul.lo.u32", 0x10001, 0x10001);
    U2("mul.hi.u32", 0x80000000, 6);
    U2("mul.hi.s32", 0x80000000, 6);
    U3("mad.lo.s32", 7, 6, -2);
    U2("div.s32", -7, 2);
    U2("rem.s32", -7, 2);
    U2("min.s32", -1, 1);
    U2("min.u32", -1, 1);
    U2("shl.b32", 1, 31);
    U2("shl.b32", 1, 32);
    U2("shr.s32", 0x80000000, 40);
    U2("shr.u32", 0x80000000, 31);
    U3("shf.l.wrap.b32", 0x80000000, 0x12345678, 4);
    U3("shf.r.clamp.b32", 0x80000000, 0x12345678, 40);
    U3("prmt.b32", 0x33221100, 0x77665544, 0x7250);
    U3("prmt.b32", 0x80221100, 0x77665544, 0x000b);
    U3("bfe.u32", 0x12345678, 8, 12);
    U3("bfe.s32", 0x00000f00, 8, 4);
    U3("bfe.s32", 0x80000000, 28, 20);
    U1("popc.b32", 0xf0f0f0f0);
    U1("clz.b32", 0x00010000);
    U1("brev.b32", 0x00000003);
    U1("bfind.u32", 0x00010000);
    U1("bfind.s32", -1);
    U1("not.b32", 0xff);
    U1("abs.s32", -5);
}

extern "C" __global__ void wide(uint32_t *out)
{
    uint64_t x, y = 0x123456789abcdef0;
    uint32_t low, high, field;
    unsigned short half = 0xbeef;

    asm("mul.wide.s32 %0, %1, %2;" : "=l"(x) : "r"(-3), "r"(5));
    *out++ = (uint32_t)x, *out++ = (uint32_t)(x >> 32);
    asm("mad.wide.u32 %0, %1, %2, %3;" : "=l"(x) : "r"(0xffffffff), "r"(0xffffffff), "l"(y));
    *out++ = (uint32_t)x, *out++ = (uint32_t)(x >> 32);
    asm("mov.b64 {%0, %1}, %2;" : "=r"(low), "=r"(high) : "l"(y));
    *out++ = low, *out++ = high;
    asm("mov.b64 %0, {%1, %2};" : "=l"(x) : "r"(high), "r"(low));
    *out++ = (uint32_t)x, *out++ = (uint32_t)(x >> 32);
    asm("mov.b32 %0, {%1, %1};" : "=r"(low) : "h"(half));
    *out++ = low;
    asm("bfi.b32 %0, %1, %2, 4, 8;" : "=r"(field) : "r"(0xab), "r"(0xffffffff));
    *out++ = field;
    asm("lop3.b32 %0, %1, %2, %3, 0x60;" /* a & (b ^ c) */
        : "=r"(field)
        : "r"(0xff00ff00), "r"(0x0ff00ff0), "r"(0xffff0000));
    *out++ = field;
    asm("cvt.u64.u32 %0, %1;" : "=l"(x) : "r"(0xfffffffe));
    *out++ = (uint32_t)(x >> 32);
    asm("cvt.s64.s32 %0, %1;" : "=l"(x) : "r"(-2));
    *out++ = (uint32_t)(x >> 32);
    asm("cvt.u32.u64 %0, %1;" : "=r"(low) : "l"(y));
    *out++ = low;
    asm("cvt.sat.s8.s32 %0, %1;" : "=r"(low) : "r"(-300));
    *out++ = low;
}

/* Several instructions, registers of their own in nested scopes, guards, a loop. */
extern "C" __global__ void statements(uint32_t *out, uint32_t n)
{
    uint32_t a, b, c = n, lane, sum = 0;
    asm volatile(R"({
        .reg .pred p, q;
        .reg .b32 t<3>;
        setp.lt.u32 p, %2, 10;
        setp.ge.and.s32 q|p, %2, 0, p;   // q: n >= 0 and n < 10; p: n < 0 and n < 10
        mov.u32 t0, 1;
        @q mov.u32 t0, 2;
        @!q add.u32 t0, t0, 10;
        { .reg .b32 t1; mov.b32 t1, 100; add.u32 t0, t0, t1; }
        selp.b32 t2, -1, 0x10, q;
        mov.u32 %0, t0;
        mov.u32 %1, t2;
    })" : "=r"(a), "=r"(b) : "r"(n));
    *out++ = a, *out++ = b;
    asm volatile("{\n\t.reg .pred done;\n"
                 "AGAIN_%=:\n\t"
                 "add.u32 %[sum], %[sum], %[c];\n\t"
                 "sub.u32 %[c], %[c], 1;\n\t"
                 "setp.eq.u32 done, %[c], 0;\n\t"
                 "@!done bra AGAIN_%=;\n\t}"
                 : [sum] "+r"(sum), [c] "+r"(c));
    *out++ = sum;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    *out++ = lane;
    asm("{ .reg .u32 %%t; mov.u32 %%t, %%ntid.x; mad.lo.u32 %0, %%t, %%ctaid.x, %%tid.x; }"
        : "=r"(lane));
    *out++ = lane;
    if (n == 3) asm("mov.u32 %0, 77;" : "=r"(a));
    else asm("mov.u32 %0, 78;" : "=r"(a));
    *out++ = a;
    asm volatile("" ::: "memory");
}

extern "C" __global__ void floats(uint32_t *out)
{
    F1("ex2.approx.ftz.f32", -3.0f);
    F1("ex2.approx.ftz.f32", -130.0f);
    F1("ex2.approx.f32", -130.0f);
    F1("lg2.approx.f32", 1024.0f);
    F1("rcp.approx.ftz.f32", -4.0f);
    F1("rsqrt.approx.f32", 0.25f);
    F1("sqrt.rn.f32", 2.0f);
    F2("add.rz.f32", 1.0f, 0x1.fffffep-1f);
    F2("add.rp.f32", 1.0f, 0x1p-30f);
    F2("mul.rn.ftz.f32", 0x1p-100f, -0x1p-30f);
    F2("add.sat.f32", 0.75f, 0.5f);
    F2("max.f32", -0.0f, 0.0f);
    F2("max.f32", __uint_as_float(0x7fc00000), 1.0f);
    F2("max.NaN.f32", __uint_as_float(0x7fc00000), 1.0f);
    F2("min.f32", -0.0f, 0.0f);
    F2("div.full.f32", 1.0f, 3.0f);
    float r;
    asm("fma.rn.f32 %0, %1, %1, 0fBF800000;" : "=f"(r) : "f"(0x1.000002p0f));
    *out++ = __float_as_uint(r);
    double d;
    asm("fma.rn.f64 %0, %1, 2.5, 0d3FF0000000000000;" : "=d"(d) : "d"(4.0));
    *out++ = (uint32_t)d;
    uint32_t ordered;
    asm("{ .reg .pred p; setp.ltu.f32 p, %1, %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(ordered)
        : "f"(__uint_as_float(0x7fc00000)), "f"(1.0f));
    *out++ = ordered;
    asm("{ .reg .pred p; setp.ne.f32 p, %1, %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(ordered)
        : "f"(__uint_as_float(0x7fc00000)), "f"(1.0f));
    *out++ = ordered;
}

extern "C" __global__ void conversions(uint32_t *out)
{
    uint32_t word;
    unsigned short half;
    float f;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(1.0f), "f"(-2.0f));
    *out++ = word;
    asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(1.0f), "f"(-2.0f));
    *out++ = word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(0.5f), "f"(1.0f));
    *out++ = word;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half) : "f"(0x1.01p0f));
    *out++ = half;
    asm("cvt.rz.bf16.f32 %0, %1;" : "=h"(half) : "f"(0x1.03p0f));
    *out++ = half;
    asm("cvt.f32.bf16 %0, %1;" : "=f"(f) : "h"((unsigned short)0xc000));
    *out++ = __float_as_uint(f);
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"((unsigned short)0x0001));
    *out++ = __float_as_uint(f);
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(half) : "f"(1000.0f), "f"(-1.0f));
    *out++ = half;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(word) : "h"((unsigned short)0x7eb8));
    *out++ = word;
    asm("cvt.rzi.s32.f32 %0, %1;" : "=r"(word) : "f"(-1.9f));
    *out++ = word;
    asm("cvt.rni.s32.f32 %0, %1;" : "=r"(word) : "f"(2.5f));
    *out++ = word;
    asm("cvt.rzi.u32.f32 %0, %1;" : "=r"(word) : "f"(-5.0f));
    *out++ = word;
    asm("cvt.rn.f32.s32 %0, %1;" : "=f"(f) : "r"(-16777217));
    *out++ = __float_as_uint(f);
    asm("cvt.rmi.f32.f32 %0, %1;" : "=f"(f) : "f"(-1.5f));
    *out++ = __float_as_uint(f);
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(word)
        : "r"(0x3f804000), "r"(0x40404040), "r"(0x3f800000));
    *out++ = word;
    asm("mul.f16x2 %0, %1, %2;" : "=r"(word) : "r"(0x3c004000), "r"(0x42004200));
    *out++ = word;
}
