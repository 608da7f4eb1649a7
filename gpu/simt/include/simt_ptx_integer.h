/* Integer and logical PTX instructions: exact. */
#ifndef ATTEST_SIMT_PTX_INTEGER_H
#define ATTEST_SIMT_PTX_INTEGER_H

namespace simt_ptx
{

template <class T> using unsigned_of = typename raw<sizeof(T)>::type;
template <class T> struct twice;
template <> struct twice<int16_t> {
    typedef int32_t type;
};
template <> struct twice<uint16_t> {
    typedef uint32_t type;
};
template <> struct twice<int32_t> {
    typedef int64_t type;
};
template <> struct twice<uint32_t> {
    typedef uint64_t type;
};
template <> struct twice<int64_t> {
    typedef __int128 type;
};
template <> struct twice<uint64_t> {
    typedef unsigned __int128 type;
};

template <class T, class W> SIMT_FN T saturate_to(W x)
{
    constexpr W low = std::numeric_limits<T>::min(), high = std::numeric_limits<T>::max();
    return (T)(x < low ? low : x > high ? high : x);
}
/* Sums and products wrap. */
template <class T, mod Sat> SIMT_FN T add(T a, T b)
{
    if constexpr (Sat == m_sat)
        return saturate_to<T>((__int128)a + b);
    else
        return (T)((uint64_t)a + (uint64_t)b);
}
template <class T, mod Sat> SIMT_FN T sub(T a, T b)
{
    if constexpr (Sat == m_sat)
        return saturate_to<T>((__int128)a - b);
    else
        return (T)((uint64_t)a - (uint64_t)b);
}
template <class T> SIMT_FN typename twice<T>::type mul_wide(T a, T b)
{
    typedef typename twice<T>::type wide;
    return (wide)((wide)a * b);
}
template <class T, mod Half> SIMT_FN T mul(T a, T b)
{
    if constexpr (Half == m_lo)
        return (T)((uint64_t)a * (uint64_t)b);
    else
        return (T)(mul_wide(a, b) >> (8 * sizeof(T)));
}
template <class T, mod Half> SIMT_FN T mad(T a, T b, T c)
{
    return add<T, m_none>(mul<T, Half>(a, b), c);
}
template <class T> SIMT_FN typename twice<T>::type mad_wide(T a, T b, typename twice<T>::type c)
{
    return add<typename twice<T>::type, m_none>(mul_wide(a, b), c);
}
template <class T> SIMT_FN T mul24(T a, T b)
{
    if constexpr (std::is_signed<T>::value)
        return __mul24(a, b);
    else
        return __umul24(a, b);
}
/* By zero: what is documented as unspecified is a finding here, like `/`. */
template <class T> SIMT_FN T div(T a, T b)
{
    if constexpr (std::is_signed<T>::value)
        if (b == -1) return sub<T, m_none>(0, a);
    return (T)(a / b);
}
template <class T> SIMT_FN T rem(T a, T b)
{
    if constexpr (std::is_signed<T>::value)
        if (b == -1) return 0;
    return (T)(a % b);
}
template <class T> SIMT_FN T sad(T a, T b, T c)
{
    return (T)((unsigned)c + (a > b ? (unsigned)a - (unsigned)b : (unsigned)b - (unsigned)a));
}
SIMT_FN unsigned dp4a(unsigned a, unsigned b, unsigned c)
{
    return __dp4a(a, b, c);
}
SIMT_FN int dp4a(int a, int b, int c)
{
    return __dp4a(a, b, c);
}
template <class T> SIMT_FN T neg(T a)
{
    return sub<T, m_none>(0, a);
}
template <class T> SIMT_FN T abs(T a)
{
    return a < 0 ? neg(a) : a;
}
template <class T> SIMT_FN T min_int(T a, T b)
{
    return a < b ? a : b;
}
template <class T> SIMT_FN T max_int(T a, T b)
{
    return a > b ? a : b;
}

template <class T> SIMT_FN T bit_and(T a, T b)
{
    return (T)(a & b);
}
template <class T> SIMT_FN T bit_or(T a, T b)
{
    return (T)(a | b);
}
template <class T> SIMT_FN T bit_xor(T a, T b)
{
    return (T)(a ^ b);
}
template <class T> SIMT_FN T bit_not(T a)
{
    if constexpr (std::is_same<T, bool>::value)
        return !a;
    else
        return (T)~a;
}
template <class T> SIMT_FN T cnot(T a)
{
    return a == 0;
}
/* Shift counts beyond the width give zeros, or copies of the sign. */
template <class T> SIMT_FN T shl(T a, unsigned n)
{
    return n >= 8 * sizeof(T) ? (T)0 : (T)((unsigned_of<T>)a << n);
}
template <class T> SIMT_FN T shr(T a, unsigned n)
{
    if (n >= 8 * sizeof(T)) return a < 0 ? (T)-1 : (T)0;
    return (T)(a >> n);
}
template <mod Way, mod Mode> SIMT_FN unsigned shf(unsigned low, unsigned high, unsigned n)
{
    if constexpr (Way == m_l)
        return Mode == m_wrap ? __funnelshift_l(low, high, n) : __funnelshift_lc(low, high, n);
    else
        return Mode == m_wrap ? __funnelshift_r(low, high, n) : __funnelshift_rc(low, high, n);
}
/* A field of `length` bits from bit `position` on, both modulo 256; beyond the top there is the
 * sign. */
template <class T> SIMT_FN T bfe(T a, unsigned position, unsigned length)
{
    const unsigned top = 8 * sizeof(T) - 1;
    unsigned pos = position & 0xff, len = length & 0xff, last = pos + len - 1;
    if (len == 0) return 0;
    bool sign = std::is_signed<T>::value && ((a >> (last < top ? last : top)) & 1) != 0;
    unsigned_of<T> field = pos > top ? 0 : (unsigned_of<T>)a >> pos;
    unsigned known = pos > top ? 0 : min(len, top + 1 - pos);
    unsigned_of<T> mask = known > top ? ~(unsigned_of<T>)0 : ((unsigned_of<T>)1 << known) - 1;
    return (T)((field & mask) | (sign ? ~mask : 0));
}
template <class T> SIMT_FN T bfi(T a, T b, unsigned position, unsigned length)
{
    const unsigned width = 8 * sizeof(T);
    unsigned pos = position & 0xff, len = length & 0xff;
    if (pos >= width || len == 0) return b;
    T mask = (T)((len >= width ? ~(T)0 : ((T)1 << len) - 1) << pos);
    return (T)((b & ~mask) | ((T)(a << pos) & mask));
}
/* Bit i of the table is the result for the bits of a, b, c that spell i. */
SIMT_FN unsigned lop3(unsigned a, unsigned b, unsigned c, unsigned table)
{
    unsigned result = 0;
    for (unsigned i = 0; i < 8; i++) {
        unsigned match = (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
        if ((table >> i) & 1) result |= match;
    }
    return result;
}
template <class T> SIMT_FN unsigned popc(T a)
{
    return (unsigned)__popcll(a);
}
template <class T> SIMT_FN unsigned clz(T a)
{
    return (unsigned)__clzll((long long)a) - (64 - 8 * (unsigned)sizeof(T));
}
template <class T> SIMT_FN T brev(T a)
{
    return (T)(__brevll(a) >> (64 - 8 * sizeof(T)));
}
/* The highest bit that is no copy of the sign, or its distance from the top; all ones for none. */
template <class T, mod Shift> SIMT_FN unsigned bfind(T a)
{
    unsigned_of<T> bits = (unsigned_of<T>)(a < 0 ? (T)~a : a);
    if (bits == 0) return 0xffffffffu;
    unsigned place = 63u - (unsigned)__clzll((long long)bits);
    return Shift == m_shiftamt ? (unsigned)(8 * sizeof(T) - 1) - place : place;
}

} // namespace simt_ptx

#endif
