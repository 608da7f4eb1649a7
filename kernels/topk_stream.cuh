/* Exact top-k of one row of scores by one block of 256 threads, the row read once.
 *
 * Order: score descending, index ascending; -0 equals +0; NaN after every number. A score becomes a
 * 32-bit key of that order, and key and index together an entry, so that no two are equal.
 *
 * Candidates wait in a list in shared memory. When a tile of the row does not fit, the list is cut
 * to about its best `wanted`: a radix search finds the last that has to stay. From then on a score
 * has to beat it, for its equals come later in the row. A row in random order is thus cut once or
 * twice, a rising one every tile.
 *
 * At the end the list is spread over bins by key, and an entry's place is the number of entries in
 * the bins above and of better ones in its own. Where many share a bin, ties mostly, the list is
 * cut exactly and sorted by merges (topk_sort.cuh).
 *
 * Timing decides where in the list an entry waits, and nothing else: a list is a set. */
#ifndef ATTEST_KERNELS_TOPK_STREAM_CUH
#define ATTEST_KERNELS_TOPK_STREAM_CUH

#include "topk_sort.cuh"

#define TOPK_EACH 8 /* keys a thread holds at a time, neighbours */
#define TOPK_TILE (TOPK_THREADS * TOPK_EACH)
#define TOPK_DIGIT 8
#define TOPK_BIN_BITS 10
#define TOPK_BINS (1u << TOPK_BIN_BITS)
#define TOPK_CROWD 32    /* entries of a bin that are compared with each other */
#define TOPK_SLACK 256   /* entries more than wanted that a cut may leave */
#define TOPK_SPREAD 1024 /* the most that are wanted of a list that is spread over bins */

/* Shared memory of a block beside its list, whose capacity is at least wanted + TOPK_TILE. */
struct topk_scratch {
    uint4 bins[TOPK_BINS / 4];                /* counters, 0 between two searches */
    uint32_t sums[TOPK_WARPS];                /* one of each warp */
    uint32_t added[3];                        /* entries of a tile; see topk_admit */
    uint32_t kept;                            /* entries a cut has kept */
    uint32_t bin, rank, size;                 /* where a rank lies, its rank and what is in there */
    uint32_t low, high;                       /* the least and the greatest key */
    uint32_t unused[3];                       /* to a multiple of 16 bytes */
    uint16_t order[TOPK_SPREAD + TOPK_CROWD]; /* places in the list, by bin */
};

/* The same in every thread. */
struct topk_list {
    uint64_t *entries;
    uint32_t count, capacity, wanted;
    uint32_t floor; /* the least key that may still win */
    uint32_t turn;  /* which of the three counters is next */
};

/* Ascending with the score: NaN is 1, below -inf's 0x007fffff. The sum makes -0 into +0. */
static __device__ __forceinline__ uint32_t topk_key(float score)
{
    uint32_t bits = __float_as_uint(score + 0.0f);

    return score != score ? 1 : bits ^ ((uint32_t)((int32_t)bits >> 31) | 0x80000000u);
}

/* The better entry is the larger; 0 is none. */
static __device__ __forceinline__ uint64_t topk_entry(uint32_t key, uint32_t index)
{
    return (uint64_t)key << 32 | (uint32_t)~index;
}

static __device__ __forceinline__ uint32_t topk_entry_key(uint64_t entry)
{
    return (uint32_t)(entry >> 32);
}

/* Inclusive sum over the lanes of a full warp. */
static __device__ __forceinline__ uint32_t topk_warp_scan(uint32_t count)
{
    for (uint32_t step = 1; step < DET_WARP; step <<= 1) {
        uint32_t below = __shfl_up_sync(DET_FULL_MASK, count, step);

        count += threadIdx.x % DET_WARP >= step ? below : 0;
    }
    return count;
}

/* The first of `own` places, counted by `counter`, for each thread of a full warp. The address has
 * a term that is 0 and differs from lane to lane for all the compiler knows: at an address that is
 * the same for all it would wrap the one addition in code that joins the additions of many. */
static __device__ __forceinline__ uint32_t topk_reserve(uint32_t *counter, uint32_t own)
{
    uint32_t upto = topk_warp_scan(own), first = 0;

    if (threadIdx.x % DET_WARP == DET_WARP - 1) first = atomicAdd(counter + (upto >> 31), upto);
    return __shfl_sync(DET_FULL_MASK, first, DET_WARP - 1) + upto - own;
}

/* The first warp finds the bin of one digit that holds the rank-th best (from 1), bins counted from
 * the highest down, and clears the counters. Lane l looks after the l-th eight from the top. */
static __device__ __forceinline__ void topk_find(struct topk_scratch *scratch, uint32_t rank)
{
    if (threadIdx.x < DET_WARP) {
        uint32_t top = (1u << TOPK_DIGIT) - 1 - 8 * threadIdx.x, own = 0, before;
        uint4 *quads = &scratch->bins[top / 4 - 1], low = quads[0], high = quads[1];
        uint32_t bins[8] = {high.w, high.z, high.y, high.x, low.w, low.z, low.y, low.x};

        for (uint32_t i = 0; i < 8; i++) own += bins[i];
        quads[0] = quads[1] = make_uint4(0, 0, 0, 0);
        before = topk_warp_scan(own) - own;
        if (before < rank && rank <= before + own) {
            for (uint32_t i = 0; i < 8; i++) {
                if (before < rank && rank <= before + bins[i]) {
                    scratch->bin = top - i;
                    scratch->rank = rank - before;
                    scratch->size = bins[i];
                }
                before += bins[i];
            }
        }
    }
    __syncthreads();
}

/* Counts the digits at `shift` of the keys, or of the lower halves of the entries with this key,
 * that agree with `word` in the known bits. */
template <bool lower>
static __device__ __forceinline__ void topk_count(const struct topk_list *list,
                                                  struct topk_scratch *scratch, uint32_t key,
                                                  uint32_t word, uint32_t known, uint32_t shift)
{
    uint32_t *bins = &scratch->bins[0].x;

#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < list->count; i += TOPK_THREADS) {
        uint64_t entry = list->entries[i];
        uint32_t rest = (lower ? (uint32_t)entry : topk_entry_key(entry)) ^ word;

        if ((rest & known) == 0 && (!lower || topk_entry_key(entry) == key))
            atomicAdd(&bins[rest >> shift], 1u);
    }
    __syncthreads();
}

/* Finds the rank-th best word among those topk_count counts, or the least word that agrees with it
 * in so many digits that no more than `slack` others rank behind. False where all digits were not
 * enough; `rank` is then that among equals. */
template <bool lower>
static __device__ __forceinline__ bool topk_search(const struct topk_list *list,
                                                   struct topk_scratch *scratch, uint32_t key,
                                                   uint32_t *word, uint32_t *rank, uint32_t slack)
{
    uint32_t known = 0;

    *word = 0;
    for (int shift = 32 - TOPK_DIGIT; shift >= 0; shift -= TOPK_DIGIT) {
        topk_count<lower>(list, scratch, key, *word, known, (uint32_t)shift);
        topk_find(scratch, *rank);
        *word |= scratch->bin << shift;
        *rank = scratch->rank;
        if (scratch->size - *rank <= slack) return true;
        known = ~0u << shift;
    }
    return false;
}

/* Moves the entries from `least` on together. Entries move down only, and a turn's are read before
 * any is written. */
static __device__ __forceinline__ void topk_keep(struct topk_list *list,
                                                 struct topk_scratch *scratch, uint64_t least)
{
    for (uint32_t base = threadIdx.x; base - threadIdx.x < list->count; base += TOPK_TILE) {
        uint64_t held[TOPK_EACH], *place;
        uint32_t own = 0;

#pragma unroll
        for (uint32_t j = 0; j < TOPK_EACH; j++) {
            uint32_t i = base + j * TOPK_THREADS;

            held[j] = i < list->count ? list->entries[i] : 0;
            if (held[j] >= least) own++;
        }
        __syncthreads();
        place = list->entries + topk_reserve(&scratch->kept, own);
#pragma unroll
        for (uint32_t j = 0; j < TOPK_EACH; j++)
            if (held[j] >= least) *place++ = held[j];
    }
    __syncthreads();
    list->count = scratch->kept;
}

/* Cuts a list longer than `wanted` to that and at most `slack` more. A barrier lies behind the last
 * write to it. */
static __device__ __forceinline__ void topk_cut(struct topk_list *list,
                                                struct topk_scratch *scratch, uint32_t slack)
{
    uint32_t key, lower = 0, rank = list->wanted;

    if (threadIdx.x == 0) scratch->kept = 0;
    if (!topk_search<false>(list, scratch, 0, &key, &rank, slack))
        topk_search<true>(list, scratch, key, &lower, &rank, slack);
    if (key == 0) key = 1; /* NaN's, the least: 0 is no entry */
    topk_keep(list, scratch, (uint64_t)key << 32 | lower);
    /* The wanted-th best has this key or a better one, and its equals come later in the row. */
    list->floor = key + 1;
}

/* Keys of the elements from `first` on of a row of n; 0 for those outside, where first may have
 * wrapped below 0. The address of the first one is a multiple of 16. */
static __device__ __forceinline__ void topk_load(uint32_t keys[TOPK_EACH], const float *row,
                                                 uint32_t first, uint32_t n)
{
    if (first < n && n - first >= TOPK_EACH) {
        const float4 *quads = (const float4 *)(row + first);
        float4 loaded[TOPK_EACH / 4];

#pragma unroll
        for (uint32_t j = 0; j < TOPK_EACH / 4; j++) loaded[j] = quads[j];
#pragma unroll
        for (uint32_t j = 0; j < TOPK_EACH / 4; j++) {
            keys[4 * j] = topk_key(loaded[j].x);
            keys[4 * j + 1] = topk_key(loaded[j].y);
            keys[4 * j + 2] = topk_key(loaded[j].z);
            keys[4 * j + 3] = topk_key(loaded[j].w);
        }
    } else {
#pragma unroll
        for (uint32_t j = 0; j < TOPK_EACH; j++)
            keys[j] = first + j < n ? topk_key(row[first + j]) : 0;
    }
}

/* Appends what may win of a tile, whose elements from `first` on are this thread's; false, and
 * nothing appended, where it has no room. One barrier: of the three counters one is in use, one may
 * still be read by slower warps, and one is cleared for the next turn but one. */
static __device__ __forceinline__ bool topk_admit(struct topk_list *list,
                                                  struct topk_scratch *scratch, const float *row,
                                                  uint32_t first, uint32_t n)
{
    uint32_t keys[TOPK_EACH], own = 0, turn = list->turn, added;
    uint64_t *place = list->entries + list->count;

    topk_load(keys, row, first, n);
#pragma unroll
    for (uint32_t j = 0; j < TOPK_EACH; j++)
        if (keys[j] >= list->floor) own++;
    place += topk_reserve(&scratch->added[turn], own);
    __syncthreads();
    added = scratch->added[turn];
    if (threadIdx.x == 0) scratch->added[turn == 0 ? 2 : turn - 1] = 0;
    list->turn = turn == 2 ? 0 : turn + 1;
    if (list->count + added > list->capacity) return false;
#pragma unroll
    for (uint32_t j = 0; j < TOPK_EACH; j++)
        if (keys[j] >= list->floor) *place++ = topk_entry(keys[j], first + j);
    list->count += added;
    return true;
}

/* How keys become bins: (key - low) >> shift, below TOPK_BINS. */
struct topk_scale {
    uint32_t low, shift;
};

static __device__ __forceinline__ struct topk_scale topk_find_scale(const struct topk_list *list,
                                                                    struct topk_scratch *scratch)
{
    uint32_t low = ~0u, high = 0, bits;

#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < list->count; i += TOPK_THREADS) {
        uint32_t key = topk_entry_key(list->entries[i]);

        low = key < low ? key : low;
        high = key > high ? key : high;
    }
    low = __reduce_min_sync(DET_FULL_MASK, low);
    high = __reduce_max_sync(DET_FULL_MASK, high);
    if (threadIdx.x % DET_WARP == 0) {
        atomicMin(&scratch->low, low);
        atomicMax(&scratch->high, high);
    }
    __syncthreads();
    low = scratch->low;
    bits = 32 - (uint32_t)__clz((int)((scratch->high - low) | 1));
    return {low, bits > TOPK_BIN_BITS ? bits - TOPK_BIN_BITS : 0};
}

/* Counts the list's keys in bins, and turns each count into the number of entries in the bins
 * above. False where a bin that may hold a wanted entry is crowded. Thread t looks after the t-th
 * four bins from the top. */
static __device__ __forceinline__ bool
topk_spread(const struct topk_list *list, struct topk_scratch *scratch, struct topk_scale scale)
{
    uint32_t *bins = &scratch->bins[0].x, own, before, warp = threadIdx.x / DET_WARP;
    uint4 *quad = &scratch->bins[TOPK_BINS / 4 - 1 - threadIdx.x], counts, starts;
    bool crowded;

#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < list->count; i += TOPK_THREADS)
        atomicAdd(&bins[(topk_entry_key(list->entries[i]) - scale.low) >> scale.shift], 1u);
    __syncthreads();
    counts = *quad;
    own = counts.x + counts.y + counts.z + counts.w;
    before = topk_warp_scan(own);
    if (threadIdx.x % DET_WARP == DET_WARP - 1) scratch->sums[warp] = before;
    __syncthreads();
    starts.w = before - own;
    for (uint32_t w = 0; w < TOPK_WARPS; w++) starts.w += w < warp ? scratch->sums[w] : 0;
    starts.z = starts.w + counts.w;
    starts.y = starts.z + counts.z;
    starts.x = starts.y + counts.y;
    *quad = starts;
    crowded = (starts.w < list->wanted && counts.w > TOPK_CROWD) ||
              (starts.z < list->wanted && counts.z > TOPK_CROWD) ||
              (starts.y < list->wanted && counts.y > TOPK_CROWD) ||
              (starts.x < list->wanted && counts.x > TOPK_CROWD);
    return !__syncthreads_or(crowded);
}

/* Writes the wanted entries' indices, best first. `bins` hold where each bin's entries start; they
 * take their places in `order` in any order, which moves the start to the next bin's. */
static __device__ __forceinline__ void topk_rank(int32_t *out, const struct topk_list *list,
                                                 struct topk_scratch *scratch,
                                                 struct topk_scale scale)
{
    uint32_t *bins = &scratch->bins[0].x, most = list->wanted + TOPK_CROWD;

#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < list->count; i += TOPK_THREADS) {
        uint32_t key = topk_entry_key(list->entries[i]);
        uint32_t place = atomicAdd(&bins[(key - scale.low) >> scale.shift], 1u);

        if (place < most) scratch->order[place] = (uint16_t)i;
    }
    __syncthreads();
    most = list->count < most ? list->count : most;
    for (uint32_t i = threadIdx.x; i < most; i += TOPK_THREADS) {
        uint64_t entry = list->entries[scratch->order[i]];
        uint32_t bin = (topk_entry_key(entry) - scale.low) >> scale.shift;
        uint32_t start = bin + 1 < TOPK_BINS ? bins[bin + 1] : 0, end = bins[bin], rank = start;

        if (start >= list->wanted) continue;
        for (uint32_t other = start; other < end; other++)
            rank += list->entries[scratch->order[other]] > entry;
        if (rank < list->wanted) out[rank] = (int32_t) ~(uint32_t)entry;
    }
}

/* Writes the best of a list in order, at most `wanted`; false, and nothing written, where they do
 * not spread. */
static __device__ __forceinline__ bool topk_write_spread(int32_t *out, const struct topk_list *list,
                                                         struct topk_scratch *scratch)
{
    struct topk_scale scale;

    if (list->wanted > TOPK_SPREAD) return false;
    scale = topk_find_scale(list, scratch);
    if (!topk_spread(list, scratch, scale)) return false;
    topk_rank(out, list, scratch, scale);
    return true;
}

static __device__ __forceinline__ void topk_clear(struct topk_scratch *scratch)
{
    for (uint32_t i = threadIdx.x; i < TOPK_BINS / 4; i += TOPK_THREADS)
        scratch->bins[i] = make_uint4(0, 0, 0, 0);
    if (threadIdx.x < 3) scratch->added[threadIdx.x] = 0;
    if (threadIdx.x == 0) {
        scratch->low = ~0u;
        scratch->high = 0;
    }
}

/* Sorts and writes a list of `wanted` entries or fewer. */
static __device__ __forceinline__ void topk_write_sorted(int32_t *out, struct topk_list *list)
{
    uint32_t size = topk_padded(list->count < TOPK_CHUNK ? TOPK_CHUNK : list->count);

    for (uint32_t i = list->count + threadIdx.x; i < size; i += TOPK_THREADS) list->entries[i] = 0;
    __syncthreads();
    topk_sort(list->entries, size);
    for (uint32_t i = threadIdx.x; i < list->count; i += TOPK_THREADS)
        out[i] = (int32_t) ~(uint32_t)list->entries[i];
}

/* Writes the list, or says false where it has to be cut before, to `wanted` and *slack more. */
static __device__ __forceinline__ bool topk_write(int32_t *out, struct topk_list *list,
                                                  struct topk_scratch *scratch, uint32_t *slack)
{
    /* What no cut has bounded below does not spread: its keys have either sign. */
    if (list->floor == 1 && list->count > list->wanted + *slack) return false;
    if (*slack > 0 && topk_write_spread(out, list, scratch)) return true;
    *slack = 0;
    topk_clear(scratch);
    __syncthreads();
    if (list->count > list->wanted) return false;
    topk_write_sorted(out, list);
    return true;
}

/* The best of the n scores of a row into the first `slots` places of `out`, best first, then -1.
 * `entries` has room for `capacity`, at least slots rounded up to a power of two + TOPK_TILE, and
 * 64 at least. Tiles begin where the address is a multiple of 16, the first one perhaps before the
 * row. */
static __device__ __forceinline__ void topk_row(int32_t *out, const float *row, uint32_t n,
                                                uint32_t slots, uint64_t *entries,
                                                uint32_t capacity, struct topk_scratch *scratch)
{
    struct topk_list list = {entries, 0, capacity, slots, 1, 0};
    uint32_t before = (uint32_t)((uintptr_t)row / 4 % 4), base = 0, spare = capacity - TOPK_TILE;
    uint32_t slack = spare - slots < TOPK_SLACK ? spare - slots : TOPK_SLACK;

    if (slots == 0) return;
    topk_clear(scratch);
    __syncthreads();
    for (;;) {
        if (base < n + before &&
            topk_admit(&list, scratch, row, base + threadIdx.x * TOPK_EACH - before, n)) {
            base += TOPK_TILE;
            continue;
        }
        __syncthreads();
        if (base >= n + before && topk_write(out, &list, scratch, &slack)) break;
        topk_cut(&list, scratch, slack);
    }
    for (uint32_t i = n + threadIdx.x; i < slots; i += TOPK_THREADS) out[i] = -1;
}

#endif
