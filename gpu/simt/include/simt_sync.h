/* Barriers, warp collectives, fences, clocks. */
#ifndef ATTEST_SIMT_SYNC_H
#define ATTEST_SIMT_SYNC_H

SIMT_FN void __syncthreads(void)
{
    simt_barrier(SIMT_BARRIER_PLAIN, 0);
}
SIMT_FN int __syncthreads_count(int predicate)
{
    return (int)simt_barrier(SIMT_BARRIER_COUNT, predicate != 0);
}
SIMT_FN int __syncthreads_and(int predicate)
{
    return (int)simt_barrier(SIMT_BARRIER_AND, predicate != 0);
}
SIMT_FN int __syncthreads_or(int predicate)
{
    return (int)simt_barrier(SIMT_BARRIER_OR, predicate != 0);
}
SIMT_FN void __syncwarp(unsigned mask = 0xffffffffu)
{
    simt_collective(SIMT_SYNCWARP, mask, 0, 0);
}
SIMT_FN unsigned __activemask(void)
{
    return simt_live_lanes();
}

/* Shuffles move up to 8 bytes. The source lane is worked out here, inside segments of `width`; a
 * source outside the segment means the lane's own value, as in PTX. */
template <class T> SIMT_FN T simt_shuffle(unsigned mask, T value, unsigned source)
{
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable<T>::value,
                  "a shuffle moves 8 bytes");
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    bits = simt_collective(SIMT_SHUFFLE, mask, bits, source);
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}
template <class T> SIMT_FN T __shfl_sync(unsigned mask, T value, int source, int width = 32)
{
    unsigned segment = ~((unsigned)width - 1) & 31;
    return simt_shuffle(mask, value, (simt_lane & segment) | ((unsigned)source & ~segment & 31));
}
template <class T> SIMT_FN T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32)
{
    unsigned inside = simt_lane & ((unsigned)width - 1);
    return simt_shuffle(mask, value, inside < delta ? simt_lane : simt_lane - delta);
}
template <class T>
SIMT_FN T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32)
{
    unsigned inside = simt_lane & ((unsigned)width - 1);
    return simt_shuffle(mask, value,
                        delta >= (unsigned)width - inside ? simt_lane : simt_lane + delta);
}
/* A source in a later segment is out of range; one in an earlier segment is not. */
template <class T> SIMT_FN T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32)
{
    unsigned source = (simt_lane ^ (unsigned)lane_mask) & 31;
    unsigned last = simt_lane | ((unsigned)width - 1);
    return simt_shuffle(mask, value, source > last ? simt_lane : source);
}

SIMT_FN unsigned __ballot_sync(unsigned mask, int predicate)
{
    return (unsigned)simt_collective(SIMT_BALLOT, mask, predicate != 0, 0);
}
SIMT_FN int __any_sync(unsigned mask, int predicate)
{
    return (int)simt_collective(SIMT_ANY, mask, predicate != 0, 0);
}
SIMT_FN int __all_sync(unsigned mask, int predicate)
{
    return (int)simt_collective(SIMT_ALL, mask, predicate != 0, 0);
}
template <class T> SIMT_FN uint64_t simt_word(T value)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "matched values have 4 or 8 bytes");
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    return bits;
}
template <class T> SIMT_FN unsigned __match_any_sync(unsigned mask, T value)
{
    return (unsigned)simt_collective(SIMT_MATCH_ANY, mask, simt_word(value), 0);
}
template <class T> SIMT_FN unsigned __match_all_sync(unsigned mask, T value, int *predicate)
{
    unsigned all = (unsigned)simt_collective(SIMT_MATCH_ALL, mask, simt_word(value), 0);
    *predicate = all != 0;
    return all;
}

SIMT_FN unsigned __reduce_add_sync(unsigned mask, unsigned value)
{
    return (unsigned)simt_collective(SIMT_REDUCE_ADD, mask, value, 0);
}
SIMT_FN int __reduce_add_sync(unsigned mask, int value)
{
    return (int)simt_collective(SIMT_REDUCE_ADD, mask, (unsigned)value, 0);
}
SIMT_FN unsigned __reduce_min_sync(unsigned mask, unsigned value)
{
    return (unsigned)simt_collective(SIMT_REDUCE_MIN_U32, mask, value, 0);
}
SIMT_FN int __reduce_min_sync(unsigned mask, int value)
{
    return (int)simt_collective(SIMT_REDUCE_MIN_S32, mask, (unsigned)value, 0);
}
SIMT_FN unsigned __reduce_max_sync(unsigned mask, unsigned value)
{
    return (unsigned)simt_collective(SIMT_REDUCE_MAX_U32, mask, value, 0);
}
SIMT_FN int __reduce_max_sync(unsigned mask, int value)
{
    return (int)simt_collective(SIMT_REDUCE_MAX_S32, mask, (unsigned)value, 0);
}
SIMT_FN unsigned __reduce_and_sync(unsigned mask, unsigned value)
{
    return (unsigned)simt_collective(SIMT_REDUCE_AND, mask, value, 0);
}
SIMT_FN unsigned __reduce_or_sync(unsigned mask, unsigned value)
{
    return (unsigned)simt_collective(SIMT_REDUCE_OR, mask, value, 0);
}
SIMT_FN unsigned __reduce_xor_sync(unsigned mask, unsigned value)
{
    return (unsigned)simt_collective(SIMT_REDUCE_XOR, mask, value, 0);
}

/* Threads share one processor here, so a fence only has to hold the compiler. */
SIMT_FN void __threadfence_block(void)
{
    __asm__ volatile("" ::: "memory");
}
SIMT_FN void __threadfence(void)
{
    __asm__ volatile("" ::: "memory");
#ifdef SIMT_TRACE
    simt_trace_fence();
#endif
}
SIMT_FN void __threadfence_system(void)
{
    __threadfence();
}
SIMT_FN void __nanosleep(unsigned)
{
    simt_yield();
}
SIMT_FN void __trap(void)
{
    simt_trap();
}
SIMT_FN void __brkpt(void)
{
    simt_trap();
}
SIMT_FN long long clock64(void)
{
    return (long long)simt_clock();
}
#define __assume(condition) __builtin_assume(condition)

#endif
