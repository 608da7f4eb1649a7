/* Cooperative groups: the thread block and tiles of up to a warp. Grids and clusters, whose threads
 * do not run at the same time here, are left out. */
#ifndef ATTEST_SIMT_COOPERATIVE_GROUPS_H
#define ATTEST_SIMT_COOPERATIVE_GROUPS_H

#include <cuda_runtime.h>

namespace cooperative_groups
{

SIMT_FN unsigned simt_rank_in_block(void)
{
    return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
}
SIMT_FN unsigned simt_block_size(void)
{
    return blockDim.x * blockDim.y * blockDim.z;
}

class thread_block
{
  public:
    SIMT_MEMBER void sync() const
    {
        __syncthreads();
    }
    SIMT_MEMBER static unsigned thread_rank()
    {
        return simt_rank_in_block();
    }
    SIMT_MEMBER static unsigned size()
    {
        return simt_block_size();
    }
    SIMT_MEMBER static unsigned num_threads()
    {
        return simt_block_size();
    }
    SIMT_MEMBER static dim3 group_index()
    {
        return blockIdx;
    }
    SIMT_MEMBER static dim3 thread_index()
    {
        return threadIdx;
    }
    SIMT_MEMBER static dim3 group_dim()
    {
        return blockDim;
    }
    SIMT_MEMBER static dim3 dim_threads()
    {
        return blockDim;
    }
};
SIMT_FN thread_block this_thread_block()
{
    return thread_block();
}

/* `Size` neighbouring lanes of a warp. */
template <unsigned Size, class Parent = thread_block> class thread_block_tile
{
    static_assert(Size >= 1 && Size <= 32 && (Size & (Size - 1)) == 0, "a power of two up to 32");
    SIMT_MEMBER static unsigned first_lane()
    {
        return simt_lane & ~(Size - 1);
    }
    SIMT_MEMBER static unsigned mask()
    {
        return (unsigned)((1ull << Size) - 1) << first_lane();
    }

  public:
    SIMT_MEMBER void sync() const
    {
        __syncwarp(mask());
    }
    SIMT_MEMBER static unsigned thread_rank()
    {
        return simt_lane & (Size - 1);
    }
    SIMT_MEMBER static constexpr unsigned size()
    {
        return Size;
    }
    SIMT_MEMBER static constexpr unsigned num_threads()
    {
        return Size;
    }
    SIMT_MEMBER static unsigned meta_group_rank()
    {
        return simt_rank_in_block() / Size;
    }
    SIMT_MEMBER static unsigned meta_group_size()
    {
        return (simt_block_size() + Size - 1) / Size;
    }
    template <class T> SIMT_MEMBER T shfl(T value, int rank) const
    {
        return __shfl_sync(mask(), value, rank, Size);
    }
    template <class T> SIMT_MEMBER T shfl_up(T value, unsigned delta) const
    {
        return __shfl_up_sync(mask(), value, delta, Size);
    }
    template <class T> SIMT_MEMBER T shfl_down(T value, unsigned delta) const
    {
        return __shfl_down_sync(mask(), value, delta, Size);
    }
    template <class T> SIMT_MEMBER T shfl_xor(T value, int lanes) const
    {
        return __shfl_xor_sync(mask(), value, lanes, Size);
    }
    SIMT_MEMBER unsigned ballot(int predicate) const
    {
        return __ballot_sync(mask(), predicate) >> first_lane();
    }
    SIMT_MEMBER int any(int predicate) const
    {
        return __any_sync(mask(), predicate);
    }
    SIMT_MEMBER int all(int predicate) const
    {
        return __all_sync(mask(), predicate);
    }
    template <class T> SIMT_MEMBER unsigned match_any(T value) const
    {
        return __match_any_sync(mask(), value) >> first_lane();
    }
};
template <unsigned Size> SIMT_FN thread_block_tile<Size> tiled_partition(const thread_block &)
{
    return thread_block_tile<Size>();
}
template <unsigned Size, unsigned Outer, class P>
SIMT_FN thread_block_tile<Size> tiled_partition(const thread_block_tile<Outer, P> &)
{
    static_assert(Size <= Outer, "a tile is cut into smaller ones");
    return thread_block_tile<Size>();
}
template <class Group> SIMT_FN void sync(const Group &group)
{
    group.sync();
}

} // namespace cooperative_groups

#endif
