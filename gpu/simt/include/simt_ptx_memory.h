/* PTX loads, stores, atomics and asynchronous copies. They go the way of the kernel's own accesses,
 * so that a trace build checks them. Cache hints and policies have no meaning here. */
#ifndef ATTEST_SIMT_PTX_MEMORY_H
#define ATTEST_SIMT_PTX_MEMORY_H

namespace simt_ptx
{

template <class R> SIMT_FN uint64_t at(R address)
{
    return (uint64_t)address;
}
/* The generic pointer behind an address of a state space; `none` is generic. */
template <mod Space> SIMT_FN void *pointer_to(uint64_t address)
{
    if constexpr (is_shared(Space))
        return __cvta_shared_to_generic((size_t)address);
    else
        return (void *)(uintptr_t)address;
}
/* The compiler's instrumentation knows alignment up to 8 bytes; the rest is seen to here. */
template <int Bytes> SIMT_FN void need_alignment(const void *pointer)
{
    if (Bytes > 8 && (uintptr_t)pointer % Bytes != 0)
        simt_assert("a vector access has an address that is a multiple of its size", __FILE__,
                    __LINE__);
}
template <class T, mod Space, int N> SIMT_FN vec<T, N> ld(uint64_t address, uint64_t = 0)
{
    const vec<T, N> *from = (const vec<T, N> *)pointer_to<Space>(address);
    need_alignment<sizeof(T) * N>(from);
    return *from;
}
template <class T, mod Space, int N>
SIMT_FN void st(uint64_t address, vec<T, N> value, uint64_t = 0)
{
    vec<T, N> *to = (vec<T, N> *)pointer_to<Space>(address);
    need_alignment<sizeof(T) * N>(to);
    *to = value;
}

/* Volatile, relaxed, acquire and release accesses do not race with each other. A release comes
 * after all that the thread did before, as behind a fence. */
template <class T, mod Order, mod Space, int N>
SIMT_FN vec<T, N> ld_strong(uint64_t address, uint64_t = 0)
{
    vec<T, N> *from = (vec<T, N> *)pointer_to<Space>(address);
    need_alignment<sizeof(T) * N>(from);
    SIMT_ATOMIC_NOTE(from);
    return simt_atomic_load(from);
}
template <class T, mod Order, mod Space, int N>
SIMT_FN void st_strong(uint64_t address, vec<T, N> value, uint64_t = 0)
{
    vec<T, N> *to = (vec<T, N> *)pointer_to<Space>(address);
    need_alignment<sizeof(T) * N>(to);
    if (Order == m_release) __threadfence();
    SIMT_ATOMIC_NOTE(to);
    simt_atomic_store(to, value);
}
SIMT_FN void prefetch(uint64_t)
{
}

template <mod Op, class T> SIMT_FN T combined(T old, T value)
{
    constexpr bool is_float = std::is_floating_point<T>::value;
    if constexpr (Op == m_exch)
        return value;
    else if constexpr (Op == m_add && is_float)
        return old + value;
    else if constexpr (Op == m_add)
        return add<T, m_none>(old, value);
    else if constexpr (Op == m_min)
        return old < value ? old : value;
    else if constexpr (Op == m_max)
        return old > value ? old : value;
    else if constexpr (Op == m_and)
        return old & value;
    else if constexpr (Op == m_or)
        return old | value;
    else if constexpr (Op == m_xor)
        return old ^ value;
    else if constexpr (Op == m_inc)
        return old >= value ? 0 : old + 1;
    else
        return old == 0 || old > value ? value : old - 1;
}
constexpr bool releases(mod order)
{
    return order == m_release || order == m_acq_rel;
}
template <class T, mod Order, mod Space, mod Op> SIMT_FN T atom(uint64_t address, T value)
{
    if (releases(Order)) __threadfence();
    return simt_atomic(
        (T *)pointer_to<Space>(address), [=](T old) __attribute__((always_inline, nodebug))->T {
            return combined<Op>(old, value);
        });
}
template <class T, mod Order, mod Space, mod Op> SIMT_FN void red(uint64_t address, T value)
{
    atom<T, Order, Space, Op>(address, value);
}
template <class T, mod Order, mod Space> SIMT_FN T atom_cas(uint64_t address, T expected, T desired)
{
    if (releases(Order)) __threadfence();
    return atomicCAS((T *)pointer_to<Space>(address), expected, desired);
}

SIMT_FN void cp_async(uint64_t to, uint64_t from, unsigned bytes, unsigned wanted)
{
    simt_copy_start(pointer_to<m_shared>(to), pointer_to<m_global>(from), bytes, wanted);
}
SIMT_FN void cp_async(uint64_t to, uint64_t from, unsigned bytes)
{
    cp_async(to, from, bytes, bytes);
}
SIMT_FN void cp_async_hint(uint64_t to, uint64_t from, unsigned bytes, uint64_t)
{
    cp_async(to, from, bytes, bytes);
}
SIMT_FN void cp_async_hint(uint64_t to, uint64_t from, unsigned bytes, unsigned wanted, uint64_t)
{
    cp_async(to, from, bytes, wanted);
}
SIMT_FN void cp_async_commit(void)
{
    simt_copy_commit();
}
SIMT_FN void cp_async_wait(unsigned pending)
{
    simt_copy_wait(pending);
}
SIMT_FN void cp_async_wait_all(void)
{
    simt_copy_wait_all();
}

} // namespace simt_ptx

#endif
