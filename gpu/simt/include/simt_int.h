/* Integer intrinsics, bit casts, cached loads and stores. */
#ifndef ATTEST_SIMT_INT_H
#define ATTEST_SIMT_INT_H

SIMT_FN int __clz(int x)
{
    return x == 0 ? 32 : __builtin_clz((unsigned)x);
}
SIMT_FN int __clzll(long long x)
{
    return x == 0 ? 64 : __builtin_clzll((unsigned long long)x);
}
SIMT_FN int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
SIMT_FN int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}
SIMT_FN int __ffs(int x)
{
    return __builtin_ffs(x);
}
SIMT_FN int __ffsll(long long x)
{
    return __builtin_ffsll(x);
}
SIMT_FN unsigned __brev(unsigned x)
{
    return __builtin_bitreverse32(x);
}
SIMT_FN unsigned long long __brevll(unsigned long long x)
{
    return __builtin_bitreverse64(x);
}
/* The position of the n-th set bit counted from `base`, upward for n > 0 and downward for n < 0. */
SIMT_FN unsigned __fns(unsigned mask, unsigned base, int offset)
{
    int step = offset < 0 ? -1 : 1, left = offset < 0 ? -offset : offset;
    if (offset == 0) return (mask >> base) & 1 ? base : 0xffffffffu;
    for (int i = (int)base; i >= 0 && i < 32; i += step)
        if (((mask >> i) & 1) != 0 && --left == 0) return (unsigned)i;
    return 0xffffffffu;
}
SIMT_FN unsigned __byte_perm(unsigned x, unsigned y, unsigned selector)
{
    uint64_t bytes = (uint64_t)y << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) {
        unsigned control = (selector >> (4 * i)) & 0xf;
        unsigned byte = (unsigned)(bytes >> (8 * (control & 7))) & 0xff;
        if ((control & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
        result |= byte << (8 * i);
    }
    return result;
}
SIMT_FN unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift)
{
    return (unsigned)((((uint64_t)high << 32 | low) << (shift & 31)) >> 32);
}
SIMT_FN unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift)
{
    return (unsigned)(((uint64_t)high << 32 | low) >> (shift & 31));
}
SIMT_FN unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift)
{
    return shift >= 32 ? low : __funnelshift_l(low, high, shift);
}
SIMT_FN unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift)
{
    return shift >= 32 ? high : __funnelshift_r(low, high, shift);
}
SIMT_FN int __mulhi(int x, int y)
{
    return (int)(((int64_t)x * y) >> 32);
}
SIMT_FN unsigned __umulhi(unsigned x, unsigned y)
{
    return (unsigned)(((uint64_t)x * y) >> 32);
}
SIMT_FN long long __mul64hi(long long x, long long y)
{
    return (long long)(((__int128)x * y) >> 64);
}
SIMT_FN unsigned long long __umul64hi(unsigned long long x, unsigned long long y)
{
    return (unsigned long long)(((unsigned __int128)x * y) >> 64);
}
SIMT_FN int __mul24(int x, int y)
{
    return (int)((unsigned)(((int)((unsigned)x << 8) >> 8)) *
                 (unsigned)((int)((unsigned)y << 8) >> 8));
}
SIMT_FN unsigned __umul24(unsigned x, unsigned y)
{
    return (x & 0xffffff) * (y & 0xffffff);
}
SIMT_FN unsigned __sad(int x, int y, unsigned z)
{
    return z + (x > y ? (unsigned)x - (unsigned)y : (unsigned)y - (unsigned)x);
}
SIMT_FN unsigned __usad(unsigned x, unsigned y, unsigned z)
{
    return z + (x > y ? x - y : y - x);
}
SIMT_FN int __dp4a(int a, int b, int c)
{
    for (int i = 0; i < 32; i += 8)
        c = (int)((unsigned)c + (unsigned)((int)(int8_t)(a >> i) * (int8_t)(b >> i)));
    return c;
}
SIMT_FN unsigned __dp4a(unsigned a, unsigned b, unsigned c)
{
    for (int i = 0; i < 32; i += 8) c += ((a >> i) & 0xff) * ((b >> i) & 0xff);
    return c;
}

template <class To, class From> SIMT_FN To simt_bits(From value)
{
    static_assert(sizeof(To) == sizeof(From), "a bit cast keeps the size");
    To result;
    __builtin_memcpy(&result, &value, sizeof result);
    return result;
}
SIMT_FN int __float_as_int(float x)
{
    return simt_bits<int>(x);
}
SIMT_FN unsigned __float_as_uint(float x)
{
    return simt_bits<unsigned>(x);
}
SIMT_FN float __int_as_float(int x)
{
    return simt_bits<float>(x);
}
SIMT_FN float __uint_as_float(unsigned x)
{
    return simt_bits<float>(x);
}
SIMT_FN long long __double_as_longlong(double x)
{
    return simt_bits<long long>(x);
}
SIMT_FN double __longlong_as_double(long long x)
{
    return simt_bits<double>(x);
}
SIMT_FN int __double2hiint(double x)
{
    return (int)(simt_bits<uint64_t>(x) >> 32);
}
SIMT_FN int __double2loint(double x)
{
    return (int)simt_bits<uint64_t>(x);
}
SIMT_FN double __hiloint2double(int high, int low)
{
    return simt_bits<double>((uint64_t)(unsigned)high << 32 | (unsigned)low);
}

/* Cache hints have no meaning here. */
#define SIMT_CACHED_LOAD(name)                          \
    template <class T> SIMT_FN T name(const T *pointer) \
    {                                                   \
        return *pointer;                                \
    }
SIMT_CACHED_LOAD(__ldg)
SIMT_CACHED_LOAD(__ldcg)
SIMT_CACHED_LOAD(__ldca)
SIMT_CACHED_LOAD(__ldcs)
SIMT_CACHED_LOAD(__ldlu)
SIMT_CACHED_LOAD(__ldcv)
#undef SIMT_CACHED_LOAD
#define SIMT_CACHED_STORE(name)                               \
    template <class T> SIMT_FN void name(T *pointer, T value) \
    {                                                         \
        *pointer = value;                                     \
    }
SIMT_CACHED_STORE(__stwb)
SIMT_CACHED_STORE(__stcg)
SIMT_CACHED_STORE(__stcs)
SIMT_CACHED_STORE(__stwt)
#undef SIMT_CACHED_STORE

#endif
