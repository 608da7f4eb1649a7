/* PTX instructions as functions, for the C++ that gpu/simt/ptx makes out of asm statements.
 * Included first into every module whose source has some, by mk/simt-module.sh.
 *
 * A PTX register is a variable of 8 to 64 bits, a predicate a bool; a function takes and gives the
 * types that the instruction names. What the PTX ISA documentation calls exact (or rounded in the
 * IEEE way) gives the device's bits. The .approx instructions give the correctly rounded result
 * instead, and where the device's may lie is said beside each: a kernel's error model has to allow
 * for it. */
#ifndef ATTEST_SIMT_PTX_H
#define ATTEST_SIMT_PTX_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include "simt_copy.h"
#include "simt_mma.h"

namespace simt_ptx
{

/* The words of an instruction's name that change what it does. */
enum mod {
    m_none,
    m_rn,
    m_rz,
    m_rm,
    m_rp,
    m_rni,
    m_rzi,
    m_rmi,
    m_rpi,
    m_ftz,
    m_sat,
    m_relu,
    m_NaN,
    m_lo,
    m_hi,
    m_l,
    m_r,
    m_wrap,
    m_clamp,
    m_shiftamt,
    m_trans,
    m_eq,
    m_ne,
    m_lt,
    m_le,
    m_gt,
    m_ge,
    m_ls,
    m_hs,
    m_equ,
    m_neu,
    m_ltu,
    m_leu,
    m_gtu,
    m_geu,
    m_num,
    m_nan,
    m_finite,
    m_infinite,
    m_number,
    m_notanumber,
    m_normal,
    m_subnormal,
    m_add,
    m_min,
    m_max,
    m_and,
    m_or,
    m_xor,
    m_exch,
    m_inc,
    m_dec,
    m_popc,
    m_up,
    m_down,
    m_bfly,
    m_idx,
    m_all,
    m_any,
    m_uni,
    m_global,
    m_shared,
    m_shared__cta,
    m_shared__cluster,
    m_volatile,
    m_relaxed,
    m_acquire,
    m_release,
    m_acq_rel,
    m_cta,
    m_cluster,
    m_gpu,
    m_gl,
    m_sys
};

template <class T, int N> struct alignas(sizeof(T) * N) vec {
    T x[N];
};
/* An instruction with two results. */
template <class T> struct flagged {
    T value;
    bool flag;
};
template <int Bytes> struct raw;
template <> struct raw<1> {
    typedef uint8_t type;
};
template <> struct raw<2> {
    typedef uint16_t type;
};
template <> struct raw<4> {
    typedef uint32_t type;
};
template <> struct raw<8> {
    typedef uint64_t type;
};

/* A register as the instruction's type, which has to be of its size. */
template <class T, class R> SIMT_FN T as(R bits)
{
    static_assert(sizeof(T) == sizeof(R), "a register of another size than the PTX instruction's");
    return simt_bits<T>(bits);
}
/* The low part of a register, for instructions that take wider ones. */
template <class T, class R> SIMT_FN T low(R bits)
{
    static_assert(sizeof(T) <= sizeof(R), "a register smaller than the PTX instruction's type");
    return simt_bits<T>((typename raw<sizeof(T)>::type)bits);
}
template <class T, class C> SIMT_FN constexpr T constant(C value)
{
    return (T)value;
}
template <class R, class V> SIMT_FN void set(R &target, V value)
{
    static_assert(sizeof(R) == sizeof(V), "a register of another size than the PTX instruction's");
    target = simt_bits<R>(value);
}
/* A wider register is filled up by the sign, or by zeros. */
template <class R, class V> SIMT_FN void set_wide(R &target, V value)
{
    static_assert(sizeof(R) >= sizeof(V), "a register smaller than the PTX instruction's type");
    if constexpr (sizeof(R) == sizeof(V))
        target = simt_bits<R>(value);
    else if constexpr (std::is_signed<V>::value && std::is_integral<V>::value)
        target = (R)(int64_t)value;
    else
        target = (R)simt_bits<typename raw<sizeof(V)>::type>(value);
}
template <int I, int N, class T> SIMT_FN typename raw<sizeof(T) / N>::type part(T value)
{
    typedef typename raw<sizeof(T) / N>::type piece;
    return (piece)(simt_bits<typename raw<sizeof(T)>::type>(value) >> (I * 8 * sizeof(piece)));
}

template <char C> constexpr size_t constraint_bytes = C == 'h' ? 2 : C == 'r' || C == 'f' ? 4 : 8;
template <char C> constexpr bool is_float_constraint = C == 'f' || C == 'd';

/* Operands of an asm statement. As for nvcc, their type has to be what the constraint says;
 * integers smaller than a register are widened. */
template <char C, class T> SIMT_FN typename raw<constraint_bytes<C>>::type in(T value)
{
    typedef typename raw<constraint_bytes<C>>::type bits;
    static_assert(sizeof(T) == sizeof(bits) ||
                      (sizeof(T) < sizeof(bits) && sizeof(bits) <= 4 && std::is_integral<T>::value),
                  "the size of an asm operand does not match its constraint");
    static_assert(is_float_constraint<C> == std::is_floating_point<T>::value ||
                      !std::is_arithmetic<T>::value,
                  "the type of an asm operand does not match its constraint");
    if constexpr (sizeof(T) == sizeof(bits))
        return simt_bits<bits>(value);
    else
        return (bits)value;
}
template <char C, class T> SIMT_FN void out(T &target, typename raw<constraint_bytes<C>>::type bits)
{
    static_assert(sizeof(T) == sizeof bits ||
                      (sizeof(T) < sizeof bits && sizeof bits <= 4 && std::is_integral<T>::value),
                  "the size of an asm operand does not match its constraint");
    static_assert(is_float_constraint<C> == std::is_floating_point<T>::value ||
                      !std::is_arithmetic<T>::value,
                  "the type of an asm operand does not match its constraint");
    if constexpr (sizeof(T) == sizeof bits)
        target = simt_bits<T>(bits);
    else
        target = (T)bits;
}

/* Special registers. A block's multiprocessor is its own number modulo an H200's 132. */
SIMT_FN unsigned thread_rank(void)
{
    return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
}
SIMT_FN unsigned warp_id(void)
{
    return thread_rank() / 32;
}
SIMT_FN unsigned n_warps(void)
{
    return (blockDim.x * blockDim.y * blockDim.z + 31) / 32;
}
SIMT_FN unsigned n_sms(void)
{
    return 132;
}
SIMT_FN unsigned sm_id(void)
{
    return ((blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x) % n_sms();
}
/* 0 to 4: equal, less, less or equal, greater, greater or equal. */
template <int Which> SIMT_FN unsigned lane_mask(void)
{
    unsigned bit = 1u << simt_lane;
    return Which == 0   ? bit
           : Which == 1 ? bit - 1
           : Which == 2 ? (bit - 1) | bit
           : Which == 3 ? ~((bit - 1) | bit)
                        : ~(bit - 1);
}

/* mov, selp, prmt and the like */
template <class T> SIMT_FN T mov(T a)
{
    return a;
}
template <class T, class... Parts> SIMT_FN T pack(Parts... parts)
{
    typedef typename raw<sizeof(T)>::type bits;
    static_assert((sizeof(Parts) + ...) == sizeof(T), "parts that do not make up the register");
    bits whole = 0;
    int shift = 0;
    ((whole |= (bits)parts << shift, shift += (int)(8 * sizeof(Parts))), ...);
    return simt_bits<T>(whole);
}
template <class T> SIMT_FN T selp(T a, T b, bool p)
{
    return p ? a : b;
}
SIMT_FN unsigned prmt(unsigned a, unsigned b, unsigned selector)
{
    return __byte_perm(a, b, selector);
}
template <class T> SIMT_FN T cache_policy(float = 1.0f)
{
    return 0;
}

constexpr bool is_shared(mod space)
{
    return space == m_shared || space == m_shared__cta || space == m_shared__cluster;
}
template <class T, mod Space> SIMT_FN T to_space(T pointer)
{
    if constexpr (!is_shared(Space))
        return pointer;
    else {
        static_assert(sizeof(T) == 8, "a generic address has 64 bits");
        return (T)__cvta_generic_to_shared((const void *)(uintptr_t)pointer);
    }
}
template <class T, mod Space> SIMT_FN T from_space(T address)
{
    if constexpr (!is_shared(Space))
        return address;
    else {
        static_assert(sizeof(T) == 8, "a generic address has 64 bits");
        return (T)(uintptr_t)__cvta_shared_to_generic((size_t)address);
    }
}
template <mod Space> SIMT_FN bool is_space(uint64_t pointer)
{
    return __isShared((const void *)(uintptr_t)pointer) == is_shared(Space);
}

} // namespace simt_ptx

#include "simt_ptx_integer.h"
#include "simt_ptx_float.h"
#include "simt_ptx_convert.h"
#include "simt_ptx_memory.h"
#include "simt_ptx_warp.h"

#endif
