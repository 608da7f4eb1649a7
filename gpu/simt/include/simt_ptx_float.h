/* Floating-point PTX instructions. Those with a rounding in their name are exact to the bit (a NaN
 * may carry other bits). Of the others the correctly rounded result is given, but for results that
 * lie within 2^-29 ulp of a tie; the PTX ISA documentation bounds the device's error by
 *   ex2.approx.f32                2 ulp
 *   lg2.approx.f32                2^-22 absolute on (0.5, 2), 2^-22 relative elsewhere
 *   rcp.approx.f32                1 ulp
 *   div.approx.f32, div.full.f32  2 ulp (approx: for divisors of 2^-126 to 2^126)
 *   sqrt.approx.f32               2^-23 relative
 *   rsqrt.approx.f32              2^-22.9 relative
 *   sin.approx.f32, cos.approx    2^-20.5 absolute on [-pi, pi]
 *   tanh.approx.f32               2^-11 relative */
#ifndef ATTEST_SIMT_PTX_FLOAT_H
#define ATTEST_SIMT_PTX_FLOAT_H

namespace simt_ptx
{

/* .ftz: subnormals become zeros of their sign, going in and coming out. */
template <mod Ftz, class T> SIMT_FN T flush(T x)
{
    if constexpr (Ftz == m_ftz) {
        static_assert(sizeof(T) == 4, ".ftz is for f32");
        return fabsf(x) < FLT_MIN ? copysignf(0.0f, x) : x;
    } else {
        return x;
    }
}
template <mod Ftz, mod Sat, class T> SIMT_FN T finish(T x)
{
    x = flush<Ftz>(x);
    if constexpr (Sat == m_sat)
        return __saturatef(x);
    else
        return x;
}
constexpr unsigned csr_of(mod rounding)
{
    return rounding == m_rz ? SIMT_RZ : rounding == m_rm ? SIMT_RD : SIMT_RU;
}
constexpr bool is_nearest(mod rounding)
{
    return rounding == m_none || rounding == m_rn;
}

/* clang-format off */
template <mod R, class T> SIMT_FN T add_rounded(T a, T b)
{
    if constexpr (is_nearest(R)) return a + b; else return simt_add<csr_of(R)>(a, b);
}
template <mod R, class T> SIMT_FN T mul_rounded(T a, T b)
{
    if constexpr (is_nearest(R)) return a * b; else return simt_mul<csr_of(R)>(a, b);
}
template <mod R, class T> SIMT_FN T div_rounded(T a, T b)
{
    if constexpr (is_nearest(R)) return a / b; else return simt_div<csr_of(R)>(a, b);
}
template <mod R> SIMT_FN float fma_rounded(float a, float b, float c)
{
    if constexpr (is_nearest(R)) return __builtin_fmaf(a, b, c);
    else return simt_fma<csr_of(R)>(a, b, c);
}
template <mod R> SIMT_FN double fma_rounded(double a, double b, double c)
{
    if constexpr (is_nearest(R)) return __builtin_fma(a, b, c);
    else return simt_fma<csr_of(R)>(a, b, c);
}
template <mod R> SIMT_FN float sqrt_rounded(float a)
{
    if constexpr (is_nearest(R)) return __builtin_sqrtf(a); else return simt_sqrt<csr_of(R)>(a);
}
template <mod R> SIMT_FN double sqrt_rounded(double a)
{
    if constexpr (is_nearest(R)) return __builtin_sqrt(a); else return simt_sqrt<csr_of(R)>(a);
}
/* clang-format on */

template <class T, mod R, mod Ftz = m_none, mod Sat = m_none> SIMT_FN T add_float(T a, T b)
{
    return finish<Ftz, Sat>(add_rounded<R>(flush<Ftz>(a), flush<Ftz>(b)));
}
template <class T, mod R, mod Ftz = m_none, mod Sat = m_none> SIMT_FN T sub_float(T a, T b)
{
    return finish<Ftz, Sat>(add_rounded<R>(flush<Ftz>(a), -flush<Ftz>(b)));
}
template <class T, mod R, mod Ftz = m_none, mod Sat = m_none> SIMT_FN T mul_float(T a, T b)
{
    return finish<Ftz, Sat>(mul_rounded<R>(flush<Ftz>(a), flush<Ftz>(b)));
}
template <class T, mod R, mod Ftz = m_none, mod Sat = m_none> SIMT_FN T fma_float(T a, T b, T c)
{
    return finish<Ftz, Sat>(fma_rounded<R>(flush<Ftz>(a), flush<Ftz>(b), flush<Ftz>(c)));
}
template <class T, mod R, mod Ftz> SIMT_FN T div_float(T a, T b)
{
    return flush<Ftz>(div_rounded<R>(flush<Ftz>(a), flush<Ftz>(b)));
}
template <class T, mod R, mod Ftz> SIMT_FN T rcp_float(T a)
{
    return flush<Ftz>(div_rounded<R>((T)1, flush<Ftz>(a)));
}
template <class T, mod R, mod Ftz> SIMT_FN T sqrt_float(T a)
{
    return flush<Ftz>(sqrt_rounded<R>(flush<Ftz>(a)));
}

/* Computed in double, rounded once more. */
template <class T, mod Ftz> SIMT_FN T div_approx(T a, T b)
{
    return flush<Ftz>(flush<Ftz>(a) / flush<Ftz>(b));
}
template <class T, mod Ftz> SIMT_FN T rcp_approx(T a)
{
    return flush<Ftz>(1.0f / flush<Ftz>(a));
}
template <class T, mod Ftz> SIMT_FN T sqrt_approx(T a)
{
    return flush<Ftz>(__builtin_sqrtf(flush<Ftz>(a)));
}
template <class T, mod Ftz> SIMT_FN T rsqrt_approx(T a)
{
    return flush<Ftz>((T)(1.0 / __builtin_sqrt((double)flush<Ftz>(a))));
}
template <class T, mod Ftz> SIMT_FN T ex2_approx(T a)
{
    return flush<Ftz>((T)exp2((double)flush<Ftz>(a)));
}
template <class T, mod Ftz> SIMT_FN T lg2_approx(T a)
{
    return flush<Ftz>((T)log2((double)flush<Ftz>(a)));
}
template <class T, mod Ftz> SIMT_FN T sin_approx(T a)
{
    return flush<Ftz>((T)sin((double)flush<Ftz>(a)));
}
template <class T, mod Ftz> SIMT_FN T cos_approx(T a)
{
    return flush<Ftz>((T)cos((double)flush<Ftz>(a)));
}
template <class T> SIMT_FN T tanh_approx(T a)
{
    return (T)tanh((double)a);
}

template <class T, mod Ftz> SIMT_FN T neg_float(T a)
{
    return -flush<Ftz>(a);
}
template <class T, mod Ftz> SIMT_FN T abs_float(T a)
{
    return std::fabs(flush<Ftz>(a));
}
/* The sign of the first on the second. */
template <class T> SIMT_FN T copysign_float(T a, T b)
{
    return std::copysign(b, a);
}
SIMT_FN float larger(float a, float b)
{
    return simt_fmaxf(a, b);
}
SIMT_FN double larger(double a, double b)
{
    return simt_fmax(a, b);
}
SIMT_FN float smaller(float a, float b)
{
    return simt_fminf(a, b);
}
SIMT_FN double smaller(double a, double b)
{
    return simt_fmin(a, b);
}
template <class T, mod Ftz, mod Nan> SIMT_FN T max_float(T a, T b)
{
    if (Nan == m_NaN && (a != a || b != b)) return (T)simt_bits<float>(0x7fffffffu);
    return larger(flush<Ftz>(a), flush<Ftz>(b));
}
template <class T, mod Ftz, mod Nan> SIMT_FN T min_float(T a, T b)
{
    if (Nan == m_NaN && (a != a || b != b)) return (T)simt_bits<float>(0x7fffffffu);
    return smaller(flush<Ftz>(a), flush<Ftz>(b));
}
template <class T, mod What> SIMT_FN bool testp(T a)
{
    T size = std::fabs(a);
    if constexpr (What == m_finite) return size <= std::numeric_limits<T>::max();
    if constexpr (What == m_infinite) return size > std::numeric_limits<T>::max();
    if constexpr (What == m_number) return a == a;
    if constexpr (What == m_notanumber) return a != a;
    if constexpr (What == m_normal)
        return size >= std::numeric_limits<T>::min() && size <= std::numeric_limits<T>::max();
    if constexpr (What == m_subnormal) return size > 0 && size < std::numeric_limits<T>::min();
}

/* The 16-bit formats, alone and in pairs: rounded to nearest. */
template <class T>
constexpr bool is_pair = std::is_same<T, __half2>::value || std::is_same<T, __nv_bfloat162>::value;
template <class T> SIMT_FN T add_small(T a, T b)
{
    return a + b;
}
template <class T> SIMT_FN T sub_small(T a, T b)
{
    return a - b;
}
template <class T> SIMT_FN T mul_small(T a, T b)
{
    return a * b;
}
template <class T> SIMT_FN T fma_small(T a, T b, T c)
{
    if constexpr (is_pair<T>)
        return __hfma2(a, b, c);
    else
        return __hfma(a, b, c);
}
template <class T> SIMT_FN T min_small(T a, T b)
{
    if constexpr (is_pair<T>)
        return __hmin2(a, b);
    else
        return __hmin(a, b);
}
template <class T> SIMT_FN T max_small(T a, T b)
{
    if constexpr (is_pair<T>)
        return __hmax2(a, b);
    else
        return __hmax(a, b);
}
template <class T> SIMT_FN T neg_small(T a)
{
    if constexpr (is_pair<T>)
        return __hneg2(a);
    else
        return __hneg(a);
}
template <class T> SIMT_FN T abs_small(T a)
{
    if constexpr (is_pair<T>)
        return __habs2(a);
    else
        return __habs(a);
}

/* Comparisons. lo, ls, hi, hs are those of unsigned numbers; of floats the plain ones are false for
 * NaN, those with a u true. */
template <mod Op, class T> SIMT_FN bool compare(T a, T b)
{
    bool unordered = !(a == a) || !(b == b);
    switch (Op) {
    case m_eq:
        return a == b;
    case m_ne:
        return a != b && !unordered;
    case m_lt:
        return a < b;
    case m_le:
        return a <= b;
    case m_gt:
        return a > b;
    case m_ge:
        return a >= b;
    case m_lo:
        return a < b;
    case m_ls:
        return a <= b;
    case m_hi:
        return a > b;
    case m_hs:
        return a >= b;
    case m_equ:
        return a == b || unordered;
    case m_neu:
        return a != b;
    case m_ltu:
        return !(a >= b);
    case m_leu:
        return !(a > b);
    case m_gtu:
        return !(a <= b);
    case m_geu:
        return !(a < b);
    case m_num:
        return !unordered;
    default:
        return unordered;
    }
}
template <mod Ftz, mod Op, class T> SIMT_FN bool compare_flushed(T a, T b)
{
    if constexpr (std::is_floating_point<T>::value)
        return compare<Op>(flush<Ftz>(a), flush<Ftz>(b));
    else if constexpr (std::is_integral<T>::value)
        return compare<Op>(a, b);
    else
        return compare<Op>((float)a, (float)b);
}
template <class T, mod Op, mod Ftz> SIMT_FN flagged<bool> setp(T a, T b)
{
    bool p = compare_flushed<Ftz, Op>(a, b);
    return {p, !p};
}
template <class T, mod Op, mod Bool, mod Ftz> SIMT_FN flagged<bool> setp_with(T a, T b, bool c)
{
    bool p = compare_flushed<Ftz, Op>(a, b);
    if constexpr (Bool == m_and)
        return {p && c, !p && c};
    else if constexpr (Bool == m_or)
        return {p || c, !p || c};
    else
        return {p != c, !p != c};
}

} // namespace simt_ptx

#endif
