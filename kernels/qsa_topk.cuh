/* The best blocks of each row, in order: score descending, then block ascending.
 *
 * A score becomes an integer key of the same order (-0 equal to +0, NaN below every number). Three
 * counting passes over the row, 11 + 11 + 10 bits, find the key of the last winner and how many of
 * the blocks that share it still fit; those with the lowest numbers do. The winners, at most 2048,
 * are sorted by (key, lowest block first), a total order, so the list has one possible value. */
#ifndef ATTEST_KERNELS_QSA_TOPK_CUH
#define ATTEST_KERNELS_QSA_TOPK_CUH

#include "qsa_common.cuh"

#define QSA_TOPK_BINS 2048
#define QSA_TOPK_AHEAD 4 /* scores a lane has on their way at a time */
#define QSA_TOPK_STEP (DET_WARP * QSA_TOPK_AHEAD)

/* What follows the winners in dynamic shared memory. The launcher's formula is
 * 8*P + sizeof(struct qsa_topk_scratch) with P the power of two at or above topk. */
struct qsa_topk_scratch {
    uint32_t bins[QSA_TOPK_BINS];
    uint32_t above[QSA_WARPS], tied[QSA_WARPS]; /* counts of each warp's part of the row */
    uint32_t bin, rank;                         /* where the sought rank lies, its rank in there */
};

/* The key of the last winner, and how many blocks with exactly this key win. */
struct qsa_topk_cut {
    uint32_t key, ties;
};

static __device__ __forceinline__ uint32_t qsa_topk_key(float score)
{
    uint32_t bits = __float_as_uint(score);

    if (score != score) return 0;
    if (score == 0.0f) return 0x80000000u;
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static __device__ __forceinline__ uint64_t qsa_topk_entry(uint32_t key, uint32_t block)
{
    return (uint64_t)key << 32 | (uint32_t)~block;
}

static __device__ __forceinline__ uint32_t qsa_topk_padded(uint32_t count)
{
    uint32_t size = 1;

    while (size < count) size <<= 1;
    return size;
}

/* The keys of blocks first, first + 32, ... of this lane; 0 from `end` on. */
static __device__ __forceinline__ void
qsa_topk_read(uint32_t keys[QSA_TOPK_AHEAD], const float *scores, uint32_t first, uint32_t end)
{
    float ahead[QSA_TOPK_AHEAD];

    for (uint32_t i = 0; i < QSA_TOPK_AHEAD; i++)
        ahead[i] = first + i * DET_WARP < end ? scores[first + i * DET_WARP] : 0.0f;
    for (uint32_t i = 0; i < QSA_TOPK_AHEAD; i++)
        keys[i] = first + i * DET_WARP < end ? qsa_topk_key(ahead[i]) : 0;
}

/* Adds one to the bin of every active lane. Lanes that agree with the first active one are counted
 * by it alone: rows full of one score would otherwise serialise on one address. */
static __device__ __forceinline__ void qsa_topk_count(uint32_t *bins, uint32_t bin, bool active)
{
    uint32_t lane = threadIdx.x % DET_WARP, mask = __ballot_sync(DET_FULL_MASK, active);
    uint32_t leader = (uint32_t)__ffs((int)mask) - 1;
    uint32_t first, same;

    if (mask == 0) return;
    first = __shfl_sync(DET_FULL_MASK, bin, (int)leader);
    same = __ballot_sync(DET_FULL_MASK, active && bin == first);
    if (lane == leader)
        atomicAdd(&bins[first], (uint32_t)__popc(same));
    else if (active && bin != first)
        atomicAdd(&bins[bin], 1u);
}

/* Inclusive sum over the lanes of a full warp. */
static __device__ __forceinline__ uint32_t qsa_warp_scan(uint32_t count)
{
    for (uint32_t step = 1; step < DET_WARP; step <<= 1) {
        uint32_t below = __shfl_up_sync(DET_FULL_MASK, count, step);

        if (threadIdx.x % DET_WARP >= step) count += below;
    }
    return count;
}

/* Finds the bin that holds the `rank`-th best (from 1), bins counted from the highest down, and the
 * rank inside it. Thread t looks after the t-th run of bins from the top. */
static __device__ __forceinline__ void qsa_topk_find(struct qsa_topk_scratch *scratch,
                                                     uint32_t n_bins, uint32_t rank)
{
    uint32_t each = n_bins / QSA_THREADS, top = n_bins - 1 - threadIdx.x * each;
    uint32_t own = 0, before, warp = threadIdx.x / DET_WARP;

    for (uint32_t i = 0; i < each; i++) own += scratch->bins[top - i];
    before = qsa_warp_scan(own) - own;
    if (threadIdx.x % DET_WARP == DET_WARP - 1) scratch->above[warp] = before + own;
    __syncthreads();
    for (uint32_t w = 0; w < warp; w++) before += scratch->above[w];
    if (before < rank && rank <= before + own) {
        uint32_t bin = top;

        while (before + scratch->bins[bin] < rank) before += scratch->bins[bin--];
        scratch->bin = bin;
        scratch->rank = rank - before;
    }
    __syncthreads();
}

/* The cut for the `count` best of n scores, 0 < count <= n. */
static __device__ __forceinline__ struct qsa_topk_cut
qsa_topk_cut_row(const float *scores, struct qsa_topk_scratch *scratch, uint32_t n, uint32_t count)
{
    struct qsa_topk_cut cut = {0, count};
    uint32_t lane = threadIdx.x % DET_WARP, warp = threadIdx.x / DET_WARP, known = 0, width = 11;

    for (uint32_t shift = 32 - width;; shift -= width) {
        uint32_t n_bins = 1u << width;

        for (uint32_t i = threadIdx.x; i < n_bins; i += QSA_THREADS) scratch->bins[i] = 0;
        __syncthreads();
        for (uint32_t base = warp * QSA_TOPK_STEP; base < n; base += QSA_WARPS * QSA_TOPK_STEP) {
            uint32_t keys[QSA_TOPK_AHEAD];

            qsa_topk_read(keys, scores, base + lane, n);
            for (uint32_t i = 0; i < QSA_TOPK_AHEAD; i++)
                qsa_topk_count(scratch->bins, keys[i] >> shift & (n_bins - 1),
                               base + lane + i * DET_WARP < n && (keys[i] & known) == cut.key);
        }
        __syncthreads();
        qsa_topk_find(scratch, n_bins, cut.ties);
        cut.key |= scratch->bin << shift;
        cut.ties = scratch->rank;
        known |= (n_bins - 1) << shift;
        if (shift == 0) return cut;
        width = shift < width ? shift : width;
    }
}

/* Writes the winners of one row, in no particular order but at determined places. Each warp owns a
 * contiguous part of the row: it counts, learns what lies before it, and writes. */
static __device__ __forceinline__ void qsa_topk_collect(uint64_t *winners, const float *scores,
                                                        struct qsa_topk_scratch *scratch,
                                                        uint32_t n, uint32_t count,
                                                        struct qsa_topk_cut cut)
{
    uint32_t lane = threadIdx.x % DET_WARP, warp = threadIdx.x / DET_WARP;
    uint32_t part = (n / (QSA_WARPS * QSA_TOPK_STEP) + 1) * QSA_TOPK_STEP;
    uint32_t begin = warp * part < n ? warp * part : n;
    uint32_t end = n - begin < part ? n : begin + part;
    uint32_t above = 0, tied = 0, below_lane = (1u << lane) - 1, keys[QSA_TOPK_AHEAD];

    for (uint32_t first = begin + lane; first < end; first += QSA_TOPK_STEP) {
        qsa_topk_read(keys, scores, first, end);
        for (uint32_t i = 0; i < QSA_TOPK_AHEAD; i++) {
            above += keys[i] > cut.key; /* the absent ones' 0 is above nothing */
            tied += first + i * DET_WARP < end && keys[i] == cut.key;
        }
    }
    above = qsa_warp_scan(above);
    tied = qsa_warp_scan(tied);
    if (lane == DET_WARP - 1) {
        scratch->above[warp] = above;
        scratch->tied[warp] = tied;
    }
    __syncthreads();
    above = 0;
    tied = 0;
    for (uint32_t w = 0; w < warp; w++) {
        above += scratch->above[w];
        tied += scratch->tied[w];
    }
    for (uint32_t base = begin; base < end; base += QSA_TOPK_STEP) {
        qsa_topk_read(keys, scores, base + lane, end);
        for (uint32_t i = 0; i < QSA_TOPK_AHEAD; i++) {
            uint32_t block = base + i * DET_WARP + lane, key = keys[i];
            uint32_t is_above = __ballot_sync(DET_FULL_MASK, key > cut.key);
            uint32_t is_tied = __ballot_sync(DET_FULL_MASK, block < end && key == cut.key);
            uint32_t tie = tied + (uint32_t)__popc(is_tied & below_lane);

            if (is_above >> lane & 1u)
                winners[above + (uint32_t)__popc(is_above & below_lane)] =
                    qsa_topk_entry(key, block);
            else if ((is_tied >> lane & 1u) && tie < cut.ties)
                winners[count - cut.ties + tie] = qsa_topk_entry(key, block);
            above += (uint32_t)__popc(is_above);
            tied += (uint32_t)__popc(is_tied);
        }
    }
}

/* Bitonic sort, descending; size is a power of two. */
static __device__ __forceinline__ void qsa_topk_sort(uint64_t *entries, uint32_t size)
{
    for (uint32_t run = 2; run <= size; run <<= 1) {
        for (uint32_t gap = run / 2; gap > 0; gap >>= 1) {
            __syncthreads();
            for (uint32_t pair = threadIdx.x; pair < size / 2; pair += QSA_THREADS) {
                uint32_t low = 2 * pair - (pair & (gap - 1)), high = low + gap;
                uint64_t a = entries[low], b = entries[high];

                if ((a < b) == ((low & run) == 0)) {
                    entries[low] = b;
                    entries[high] = a;
                }
            }
        }
    }
    __syncthreads();
}

/* Grid rows, block 256, dynamic shared as above. Columns from the row's complete blocks on are not
 * read; slots without a block get -1. */
extern "C" __global__ void __launch_bounds__(QSA_THREADS)
    qsa_topk_rows(const float *scores, int32_t *lists, uint32_t first_pos, uint32_t score_stride,
                  uint32_t ratio, uint32_t topk)
{
    extern __shared__ uint64_t qsa_topk_winners[];
    struct qsa_topk_scratch *scratch =
        (struct qsa_topk_scratch *)(qsa_topk_winners + qsa_topk_padded(topk));
    const float *row_scores = scores + (uint64_t)blockIdx.x * score_stride;
    int32_t *list = lists + (uint64_t)blockIdx.x * topk;
    uint32_t n = qsa_complete_blocks(first_pos + blockIdx.x, ratio);
    uint32_t count = n < topk ? n : topk, size = qsa_topk_padded(count);

    /* Entry 0 is below every real one: NaN's key, and a block number that none can have. */
    for (uint32_t i = count + threadIdx.x; i < size; i += QSA_THREADS) qsa_topk_winners[i] = 0;
    if (n <= topk) {
        for (uint32_t i = threadIdx.x; i < n; i += QSA_THREADS)
            qsa_topk_winners[i] = qsa_topk_entry(qsa_topk_key(row_scores[i]), i);
    } else {
        struct qsa_topk_cut cut = qsa_topk_cut_row(row_scores, scratch, n, count);

        qsa_topk_collect(qsa_topk_winners, row_scores, scratch, n, count, cut);
    }
    qsa_topk_sort(qsa_topk_winners, size);
    for (uint32_t i = threadIdx.x; i < topk; i += QSA_THREADS)
        list[i] = i < count ? (int32_t) ~(uint32_t)qsa_topk_winners[i] : -1;
}

#endif
