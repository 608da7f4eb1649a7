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

/* clang-format off */
class thread_block
{
  public:
    __attribute__((nodebug)) void sync() const { __syncthreads(); }
    __attribute__((nodebug)) static unsigned thread_rank() { return simt_rank_in_block(); }
    __attribute__((nodebug)) static unsigned size() { return simt_block_size(); }
    __attribute__((nodebug)) static unsigned num_threads() { return simt_block_size(); }
    __attribute__((nodebug)) static dim3 group_index() { return blockIdx; }
    __attribute__((nodebug)) static dim3 thread_index() { return threadIdx; }
    __attribute__((nodebug)) static dim3 group_dim() { return blockDim; }
    __attribute__((nodebug)) static dim3 dim_threads() { return blockDim; }
};
SIMT_FN thread_block this_thread_block() { return thread_block(); }

/* `Size` neighbouring lanes of a warp. */
template <unsigned Size, class Parent = thread_block> class thread_block_tile
{
    static_assert(Size >= 1 && Size <= 32 && (Size & (Size - 1)) == 0, "a power of two up to 32");
    __attribute__((nodebug)) static unsigned first_lane() { return simt_lane & ~(Size - 1); }
    __attribute__((nodebug)) static unsigned mask() { return (unsigned)((1ull << Size) - 1) << first_lane(); }

  public:
    __attribute__((nodebug)) void sync() const { __syncwarp(mask()); }
    __attribute__((nodebug)) static unsigned thread_rank() { return simt_lane & (Size - 1); }
    __attribute__((nodebug)) static constexpr unsigned size() { return Size; }
    __attribute__((nodebug)) static constexpr unsigned num_threads() { return Size; }
    __attribute__((nodebug)) static unsigned meta_group_rank() { return simt_rank_in_block() / Size; }
    __attribute__((nodebug)) static unsigned meta_group_size() { return (simt_block_size() + Size - 1) / Size; }
    template <class T> __attribute__((nodebug)) T shfl(T value, int rank) const { return __shfl_sync(mask(), value, rank, Size); }
    template <class T> __attribute__((nodebug)) T shfl_up(T value, unsigned delta) const { return __shfl_up_sync(mask(), value, delta, Size); }
    template <class T> __attribute__((nodebug)) T shfl_down(T value, unsigned delta) const { return __shfl_down_sync(mask(), value, delta, Size); }
    template <class T> __attribute__((nodebug)) T shfl_xor(T value, int lanes) const { return __shfl_xor_sync(mask(), value, lanes, Size); }
    __attribute__((nodebug)) unsigned ballot(int predicate) const { return __ballot_sync(mask(), predicate) >> first_lane(); }
    __attribute__((nodebug)) int any(int predicate) const { return __any_sync(mask(), predicate); }
    __attribute__((nodebug)) int all(int predicate) const { return __all_sync(mask(), predicate); }
    template <class T> __attribute__((nodebug)) unsigned match_any(T value) const { return __match_any_sync(mask(), value) >> first_lane(); }
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
template <class Group> SIMT_FN void sync(const Group &group) { group.sync(); }
/* clang-format on */

} // namespace cooperative_groups

#endif
