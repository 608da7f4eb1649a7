/* Atomics. All threads of a launch run on one processor thread and are switched only at barriers
 * and collectives, so a plain read, change and write is atomic. In trace builds the runtime is told
 * first, and the access itself goes unchecked, so that atomics do not race with atomics.
 *
 * One difference from the device stays: atomicAdd on a float in global memory flushes subnormals
 * there and keeps them here. */
#ifndef ATTEST_SIMT_ATOMIC_H
#define ATTEST_SIMT_ATOMIC_H

#ifdef SIMT_TRACE
#define SIMT_ATOMIC static __attribute__((noinline, nodebug, no_sanitize("kernel-address")))
#define SIMT_ATOMIC_NOTE(pointer) simt_trace_atomic(pointer, sizeof *(pointer))
#else
#define SIMT_ATOMIC SIMT_FN
#define SIMT_ATOMIC_NOTE(pointer) (void)0
#endif

template <class T> SIMT_ATOMIC T simt_atomic_load(T *address)
{
    return *address;
}
template <class T> SIMT_ATOMIC void simt_atomic_store(T *address, T value)
{
    *address = value;
}

/* Replaces *address by change(*address) and returns the old value. */
template <class T, class F> SIMT_FN T simt_atomic(T *address, F change)
{
    SIMT_ATOMIC_NOTE(address);
    T old = simt_atomic_load<T>(address);
    simt_atomic_store<T>(address, change(old));
    return old;
}

#define SIMT_ATOMIC_OP(name, type, expression)                                     \
    SIMT_FN type name(type *address, type value)                                   \
    {                                                                              \
        return simt_atomic(                                                        \
            address, [=](type old) __attribute__((always_inline, nodebug))->type { \
                return expression;                                                 \
            });                                                                    \
    }                                                                              \
    SIMT_FN type name##_block(type *address, type value)                           \
    {                                                                              \
        return name(address, value);                                               \
    }                                                                              \
    SIMT_FN type name##_system(type *address, type value)                          \
    {                                                                              \
        return name(address, value);                                               \
    }
#define SIMT_ATOMIC_INTEGERS(name, expression)           \
    SIMT_ATOMIC_OP(name, int, expression)                \
    SIMT_ATOMIC_OP(name, unsigned, expression)           \
    SIMT_ATOMIC_OP(name, unsigned long long, expression) \
    SIMT_ATOMIC_OP(name, unsigned long, expression)

/* Signed sums wrap. */
SIMT_ATOMIC_OP(atomicAdd, int, (int)((unsigned)old + (unsigned)value))
SIMT_ATOMIC_OP(atomicAdd, unsigned, old + value)
SIMT_ATOMIC_OP(atomicAdd, unsigned long long, old + value)
SIMT_ATOMIC_OP(atomicAdd, unsigned long, old + value)
SIMT_ATOMIC_OP(atomicAdd, float, old + value)
SIMT_ATOMIC_OP(atomicAdd, double, old + value)
SIMT_ATOMIC_OP(atomicSub, int, (int)((unsigned)old - (unsigned)value))
SIMT_ATOMIC_OP(atomicSub, unsigned, old - value)
SIMT_ATOMIC_INTEGERS(atomicExch, value)
SIMT_ATOMIC_OP(atomicExch, float, value)
SIMT_ATOMIC_INTEGERS(atomicMin, old < value ? old : value)
SIMT_ATOMIC_OP(atomicMin, long long, old < value ? old : value)
SIMT_ATOMIC_INTEGERS(atomicMax, old > value ? old : value)
SIMT_ATOMIC_OP(atomicMax, long long, old > value ? old : value)
SIMT_ATOMIC_INTEGERS(atomicAnd, old &value)
SIMT_ATOMIC_INTEGERS(atomicOr, old | value)
SIMT_ATOMIC_INTEGERS(atomicXor, old ^ value)
SIMT_ATOMIC_OP(atomicInc, unsigned, old >= value ? 0u : old + 1u)
SIMT_ATOMIC_OP(atomicDec, unsigned, (old == 0u || old > value) ? value : old - 1u)

template <class T> SIMT_FN T atomicCAS(T *address, T expected, T desired)
{
    static_assert(std::is_integral<T>::value, "atomicCAS compares integers");
    return simt_atomic(
        address, [=](T old) __attribute__((always_inline, nodebug))->T {
            return old == expected ? desired : old;
        });
}
template <class T> SIMT_FN T atomicCAS_block(T *address, T expected, T desired)
{
    return atomicCAS(address, expected, desired);
}

#endif
