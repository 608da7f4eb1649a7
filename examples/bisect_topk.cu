/* QSA top-k without sorting the row, for the production interface of qsa_topk_rows (docs/ops.md):
 * the worst score that still belongs to the list is found bit by bit, by counting how many blocks
 * reach a trial value; the winners are then collected and each placed by the number of winners
 * before it. */
#include <stdint.h>

namespace bisect_topk {

constexpr unsigned kFull = 0xffffffffu;
constexpr uint32_t kWarps = 8;

/* Larger for a better score. NaN is below every number, -0 equals +0. */
__device__ inline uint32_t order_key(float score)
{
    if (isnan(score)) return 0;
    uint32_t bits = __float_as_uint(score + 0.0f);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/* The block's sum of one number a thread; every thread gets it. */
__device__ inline uint32_t block_sum(uint32_t mine, uint32_t *partial)
{
    uint32_t warp_sum = __reduce_add_sync(kFull, mine), all = 0;
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = warp_sum;
    __syncthreads();
    for (uint32_t w = 0; w < kWarps; w++) all += partial[w];
    __syncthreads();
    return all;
}

__device__ inline uint32_t count_reaching(const float *row, uint32_t n, uint32_t least,
                                          uint32_t *partial)
{
    uint32_t mine = 0;
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) mine += order_key(row[i]) >= least;
    return block_sum(mine, partial);
}

/* How many threads before this one have the flag; *all is the block's count. */
__device__ inline uint32_t flags_before(bool flag, uint32_t *partial, uint32_t *all)
{
    uint32_t votes = __ballot_sync(kFull, flag), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t before = __popc(votes & ((1u << lane) - 1u));
    if (lane == 0) partial[warp] = __popc(votes);
    __syncthreads();
    *all = 0;
    for (uint32_t w = 0; w < kWarps; w++) {
        before += w < warp ? partial[w] : 0;
        *all += partial[w];
    }
    __syncthreads();
    return before;
}

struct winner {
    uint32_t key, block;
};

/* Winners in block order: all above the threshold, and the first `ties` that equal it. */
__device__ inline void collect(const float *row, uint32_t n, uint32_t least, uint32_t ties,
                               winner *found, uint32_t *partial)
{
    uint32_t taken = 0, equal_seen = 0;
    for (uint32_t base = 0; base < n; base += blockDim.x) {
        uint32_t block = base + threadIdx.x, count;
        uint32_t key = block < n ? order_key(row[block]) : 0;
        bool equal = block < n && key == least;
        uint32_t rank = equal_seen + flags_before(equal, partial, &count);
        equal_seen += count;
        bool wins = (block < n && key > least) || (equal && rank < ties);
        uint32_t at = taken + flags_before(wins, partial, &count);
        taken += count;
        if (wins) found[at] = {key, block};
    }
}

} /* namespace bisect_topk */

extern "C" __global__ void __launch_bounds__(256)
    qsa_topk_rows(const float *scores, int32_t *lists, uint32_t first_pos, uint32_t score_stride,
                  uint32_t ratio, uint32_t topk)
{
    using namespace bisect_topk;
    extern __shared__ winner found[]; /* [topk] */
    __shared__ uint32_t partial[kWarps];
    const float *row = scores + (size_t)blockIdx.x * score_stride;
    int32_t *list = lists + (size_t)blockIdx.x * topk;
    uint32_t n = (uint32_t)(((uint64_t)first_pos + blockIdx.x + 1) / ratio);
    uint32_t want = min(n, topk), least = 0;

    for (uint32_t bit = 0x80000000u; bit && want; bit >>= 1) {
        if (count_reaching(row, n, least | bit, partial) >= want) least |= bit;
    }
    uint32_t above = least < UINT32_MAX ? count_reaching(row, n, least + 1, partial) : 0;
    collect(row, n, least, want - above, found, partial);
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < want; i += blockDim.x) {
        uint32_t place = 0;
        for (uint32_t j = 0; j < want; j++) {
            bool better = found[j].key > found[i].key;
            place += better || (found[j].key == found[i].key && j < i);
        }
        list[place] = (int32_t)found[i].block;
    }
    for (uint32_t i = want + threadIdx.x; i < topk; i += blockDim.x) list[i] = -1;
}
