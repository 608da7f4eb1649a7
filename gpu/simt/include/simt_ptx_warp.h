/* PTX instructions in which a warp or a block takes part. */
#ifndef ATTEST_SIMT_PTX_WARP_H
#define ATTEST_SIMT_PTX_WARP_H

namespace simt_ptx
{

constexpr unsigned whole_warp = 0xffffffffu;

/* The row of an 8x8 matrix of 16-bit elements that a lane named. */
SIMT_FN uint16_t *matrix_row(unsigned lane)
{
    uintptr_t row = (uintptr_t)simt_given_by(lane);
    if (row % 16 != 0)
        simt_assert("a matrix row has an address that is a multiple of 16", __FILE__, __LINE__);
    return (uint16_t *)row;
}
/* Lane i names row i % 8 of matrix i / 8. It gets elements 2(i % 4) and the next of row i / 4, or
 * with .trans of column i / 4. */
template <mod Trans, int N> SIMT_FN vec<unsigned, N> ldmatrix(uint64_t address)
{
    vec<unsigned, N> result;
    unsigned pair = simt_lane % 4, other = simt_lane / 4;
    simt_exchange(pointer_to<m_shared>(address));
    for (unsigned m = 0; m < N; m++) {
        if constexpr (Trans == m_trans) {
            unsigned first = matrix_row(8 * m + 2 * pair)[other];
            result.x[m] = first | (unsigned)matrix_row(8 * m + 2 * pair + 1)[other] << 16;
        } else {
            result.x[m] = ((const unsigned *)matrix_row(8 * m + other))[pair];
        }
    }
    return result;
}
template <mod Trans, int N> SIMT_FN void stmatrix(uint64_t address, vec<unsigned, N> value)
{
    unsigned pair = simt_lane % 4, other = simt_lane / 4;
    simt_exchange(pointer_to<m_shared>(address));
    for (unsigned m = 0; m < N; m++) {
        if constexpr (Trans == m_trans) {
            matrix_row(8 * m + 2 * pair)[other] = (uint16_t)value.x[m];
            matrix_row(8 * m + 2 * pair + 1)[other] = (uint16_t)(value.x[m] >> 16);
        } else {
            ((unsigned *)matrix_row(8 * m + other))[pair] = value.x[m];
        }
    }
}
/* Bit for bit (mma_model.h). */
SIMT_FN vec<float, 4> mma_bf16(vec<unsigned, 4> a, vec<unsigned, 2> b, vec<float, 4> c)
{
    vec<float, 4> d;
    simt_mma_m16n8k16_bf16(d.x, a.x, b.x, c.x);
    return d;
}

/* `limits` holds the highest lane of a segment in its low 5 bits and the bits that number the
 * segments from bit 8 on. A lane out of its segment reads itself, and the flag says so. */
template <mod Mode>
SIMT_FN flagged<unsigned> shfl(unsigned value, unsigned by, unsigned limits, unsigned mask)
{
    unsigned segments = (limits >> 8) & 31, clamp = limits & 31, lane = simt_lane;
    unsigned last = (lane & segments) | (clamp & ~segments), first = lane & segments;
    int source = 0;
    by &= 31;
    if constexpr (Mode == m_up)
        source = (int)lane - (int)by;
    else if constexpr (Mode == m_down)
        source = (int)(lane + by);
    else if constexpr (Mode == m_bfly)
        source = (int)(lane ^ by);
    else
        source = (int)(first | (by & ~segments));
    bool inside = Mode == m_up ? source >= (int)last : source <= (int)last;
    return {simt_shuffle(mask, value, inside ? (unsigned)source : lane), inside};
}
template <mod Mode> SIMT_FN bool vote(bool p, unsigned mask)
{
    if constexpr (Mode == m_all)
        return __all_sync(mask, p) != 0;
    else if constexpr (Mode == m_any)
        return __any_sync(mask, p) != 0;
    else {
        unsigned votes = __ballot_sync(mask, p), members = mask & simt_live_lanes();
        return votes == 0 || votes == members;
    }
}
SIMT_FN unsigned ballot(bool p, unsigned mask)
{
    return __ballot_sync(mask, p);
}
template <class T> SIMT_FN unsigned match_any(T value, unsigned mask)
{
    return __match_any_sync(mask, value);
}
template <class T> SIMT_FN flagged<unsigned> match_all(T value, unsigned mask)
{
    int all;
    unsigned lanes = __match_all_sync(mask, value, &all);
    return {lanes, all != 0};
}
template <class T, mod Op> SIMT_FN T redux(T value, unsigned mask)
{
    if constexpr (Op == m_add)
        return __reduce_add_sync(mask, value);
    else if constexpr (Op == m_min)
        return __reduce_min_sync(mask, value);
    else if constexpr (Op == m_max)
        return __reduce_max_sync(mask, value);
    else if constexpr (Op == m_and)
        return (T)__reduce_and_sync(mask, (unsigned)value);
    else if constexpr (Op == m_or)
        return (T)__reduce_or_sync(mask, (unsigned)value);
    else
        return (T)__reduce_xor_sync(mask, (unsigned)value);
}
SIMT_FN unsigned activemask(void)
{
    return __activemask();
}
/* Which lane is chosen is not documented; here the lowest. */
SIMT_FN flagged<unsigned> elect(unsigned mask)
{
    unsigned members = __ballot_sync(mask, 1);
    unsigned leader = (unsigned)__ffs((int)members) - 1;
    return {leader, leader == simt_lane};
}

/* Barrier 0 of all threads is modelled; others would let parts of a block wait. */
SIMT_FN void need_whole_block(unsigned barrier, unsigned threads)
{
    if (barrier != 0) simt_assert("bar.sync: only barrier 0 is modelled", __FILE__, __LINE__);
    if (threads != blockDim.x * blockDim.y * blockDim.z)
        simt_assert("bar.sync: only a barrier of all threads is modelled", __FILE__, __LINE__);
}
SIMT_FN void bar_sync(unsigned barrier, unsigned threads)
{
    need_whole_block(barrier, threads);
    __syncthreads();
}
SIMT_FN void bar_sync(unsigned barrier)
{
    bar_sync(barrier, blockDim.x * blockDim.y * blockDim.z);
}
template <mod Op> SIMT_FN auto bar_red(unsigned barrier, bool p)
{
    need_whole_block(barrier, blockDim.x * blockDim.y * blockDim.z);
    if constexpr (Op == m_popc)
        return (unsigned)__syncthreads_count(p);
    else if constexpr (Op == m_and)
        return __syncthreads_and(p) != 0;
    else
        return __syncthreads_or(p) != 0;
}
SIMT_FN void bar_warp_sync(unsigned mask)
{
    __syncwarp(mask);
}
template <mod Scope> SIMT_FN void fence(void)
{
    if constexpr (Scope == m_cta)
        __threadfence_block();
    else
        __threadfence();
}
SIMT_FN void nanosleep(unsigned ns)
{
    __nanosleep(ns);
}
SIMT_FN void trap(void)
{
    __trap();
}
/* A launch depends on no other here. */
SIMT_FN void griddepcontrol(void)
{
}

} // namespace simt_ptx

#endif
