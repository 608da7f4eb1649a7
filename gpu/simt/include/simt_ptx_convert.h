/* PTX conversions: all rounded as the instruction says. */
#ifndef ATTEST_SIMT_PTX_CONVERT_H
#define ATTEST_SIMT_PTX_CONVERT_H

namespace simt_ptx
{

/* Without .sat the low bits remain. */
template <class D, class S, mod Sat> SIMT_FN D cvt_int(S a)
{
    if constexpr (Sat == m_sat)
        return saturate_to<D>((__int128)a);
    else
        return (D)a;
}
template <mod R, class T> SIMT_FN T to_integral(T a)
{
    if constexpr (R == m_rni)
        return std::rint(a);
    else if constexpr (R == m_rzi)
        return std::trunc(a);
    else if constexpr (R == m_rmi)
        return std::floor(a);
    else
        return std::ceil(a);
}
/* A number as f32 or f64: small formats widen. */
SIMT_FN float widened(float a)
{
    return a;
}
SIMT_FN double widened(double a)
{
    return a;
}
SIMT_FN float widened(__half a)
{
    return (float)a;
}
SIMT_FN float widened(__nv_bfloat16 a)
{
    return (float)a;
}

/* To integers it saturates with or without .sat, and NaN becomes 0. */
template <class D, class S, mod R, mod Ftz, mod Sat> SIMT_FN D cvt_to_int(S a)
{
    return simt_to_integer<D>(to_integral<R>(flush<Ftz>(widened(a))));
}
template <class D, class S, mod R, mod Ftz, mod Sat> SIMT_FN D cvt_from_int(S a)
{
    if constexpr (std::is_floating_point<D>::value)
        return finish<Ftz, Sat>((D)a);
    else {
        static_assert(Sat == m_none && sizeof(S) <= 4, "cvt.sat to f16 is not modelled");
        return D((double)a);
    }
}
template <class T, mod R, mod Ftz = m_none, mod Sat = m_none> SIMT_FN T cvt_to_integral(T a)
{
    return finish<Ftz, Sat>(to_integral<R>(flush<Ftz>(a)));
}
template <class T, mod Ftz, mod Sat> SIMT_FN T cvt_same(T a)
{
    return finish<Ftz, Sat>(a);
}
template <class D, class S, mod Ftz, mod Sat = m_none> SIMT_FN D cvt_widen(S a)
{
    return finish<m_none, Sat>((D)flush<Ftz>(widened(a)));
}
template <class D, class S, mod Ftz, mod Sat> SIMT_FN D cvt_narrow(S a)
{
    if constexpr (sizeof(S) == 4)
        return D(finish<Ftz, Sat>(a));
    else
        return finish<Ftz, Sat>(D(a));
}
/* .relu: negative numbers become +0, NaN stays. */
template <mod Relu> SIMT_FN float rectified(float a)
{
    return Relu == m_relu && a <= 0.0f ? 0.0f : a;
}
template <class D, class S, mod Relu> SIMT_FN D cvt_narrow_relu(S a)
{
    return D(rectified<Relu>(a));
}
template <class D, class S, mod Relu> SIMT_FN D cvt_truncate(S a)
{
    return __float2bfloat16_rz(rectified<Relu>(a));
}
/* The first operand goes to the upper half. */
template <class D, mod Relu> SIMT_FN D cvt_pair(float a, float b)
{
    typedef decltype(D::x) half;
    return D(half(rectified<Relu>(b)), half(rectified<Relu>(a)));
}
template <class D, mod Relu> SIMT_FN D cvt_to_fp8(float a, float b)
{
    return D(make_float2(rectified<Relu>(b), rectified<Relu>(a)));
}
template <class D, class S, mod Relu> SIMT_FN D cvt_half_to_fp8(S a)
{
    return cvt_to_fp8<D, Relu>((float)a.y, (float)a.x);
}
template <class D, class S, mod Relu> SIMT_FN D cvt_from_fp8(S a)
{
    D both = (D)a;
    if constexpr (Relu == m_none) return both;
    return D(decltype(D::x)(rectified<Relu>((float)both.x)),
             decltype(D::x)(rectified<Relu>((float)both.y)));
}

} // namespace simt_ptx

#endif
