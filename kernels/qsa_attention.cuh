/* Attention over selected blocks: online softmax, blocks of 8 warps.
 *
 * Order. The attended tokens form one sequence: the tokens of the listed blocks in list order,
 * holes skipped, then the tail. Every four neighbours in it are a group, and warp w takes the
 * groups w, w+8, w+16, .... So the bits depend on the sequence alone, not on where holes, pages and
 * list windows fall.
 *
 * The query heads of a kv head read the same K and V. With hd 32, 128 or 256 one block
 * therefore does up to six neighbouring ones, and the blocks of the others return at once. The
 * arithmetic of a head is the same whichever heads are beside it.
 *
 * Error model, n attended tokens, u = 2^-24; all roundings to nearest, nothing flushed:
 * - score: RN(dot * inv_sqrt_d); dot: hd/32 fma a lane, then 5 additions: depth hd/32 + 5.
 * - exponent: RN(score - max), one rounding: kappa = u (numerics 5.8).
 * - exp: det_exp_nonpos, at most 1 ulp: relative 2^-23 for normal results, absolute 2^-149 below.
 *   Weights stay f32.
 * - rescales: R(n) = n/32 + 1 (a = 1/32, b = 1). A warp has at most ceil(ceil(n/4)/8) = ceil(n/32)
 *   groups, so a key meets at most ceil(n/32) - 1 later factors and the merge's one. Where the
 *   maximum did not grow the factor is exactly 1.
 * - sums: numerator one fma a key and channel; denominator one addition a key in one of four sums,
 *   then 2 that join them; each factor one more rounding; the merge 8 fma.
 * - division: numerator / denominator, one rounding.
 * - output: bf16, nearest even, from the f32 quotient. */
#ifndef ATTEST_KERNELS_QSA_ATTENTION_CUH
#define ATTEST_KERNELS_QSA_ATTENTION_CUH

#include "mma.cuh"
#include "qsa_cache.cuh"

#define QSA_GROUP 4 /* tokens a warp takes at a time */
#define QSA_GROUPS_AHEAD (DET_WARP / QSA_GROUP)
#define QSA_LIST_STEP QSA_THREADS            /* list entries read at a time */
#define QSA_KEY_LANES (DET_WARP / QSA_GROUP) /* lanes that hold the weights of one key */
#define QSA_MAX_HEADS 6                      /* heads of a block */
#define QSA_MAX_HD 256
#define QSA_RING (QSA_WARPS * 2 * QSA_GROUP * QSA_MAX_HD) /* bf16 elements */

/* A stretch of the attended sequence: the tokens of `n_blocks` listed blocks of `ratio` tokens,
 * then consecutive tokens from tail_begin on; n_tokens together. first_group is the number of its
 * first group in the whole sequence. */
struct qsa_stretch {
    const int32_t *blocks;
    uint32_t n_blocks, ratio, tail_begin, n_tokens, first_group;
};

/* What a warp holds. A lane has DIMS = hd/32 neighbouring channels of every head, and of one head
 * (see qsa_head_lane) the maximum and the sum of the weights of its key of each group. */
template <int HEADS, int DIMS> struct qsa_flow {
    float q[HEADS][DIMS], acc[HEADS][DIMS];
    float max, sum, inv_sqrt_d;
};

/* The way of a warp's keys from the cache through its part of the ring, which holds the K of one
 * group and the V of one: while a group is attended the copies of the next are in flight. A lane
 * reads only what it copied itself. */
struct qsa_feed {
    uint16_t *k_ring, *v_ring; /* this lane's channels of the first key */
    uint32_t first, groups;    /* this warp's first group of the stretch, groups of the stretch */
    uint32_t slot;             /* where this lane's token of the current eight groups is */
};

static __device__ __forceinline__ uint32_t qsa_stretch_token(const struct qsa_stretch *stretch,
                                                             uint32_t i)
{
    uint32_t entry = i / stretch->ratio;

    if (entry < stretch->n_blocks)
        return (uint32_t)stretch->blocks[entry] * stretch->ratio + i % stretch->ratio;
    return stretch->tail_begin + (i - stretch->n_blocks * stretch->ratio);
}

/* Begins copying a lane's DIMS channels into the ring; where `wanted` is false nothing is read and
 * zeros are written. 2, 4 and 8 of them move in one access when aligned. */
template <int DIMS>
static __device__ __forceinline__ void qsa_copy(uint16_t *to, const uint16_t *from, bool wanted,
                                                bool wide)
{
    if ((DIMS != 2 && DIMS != 4 && DIMS != 8) || !wide) {
        for (int i = 0; i < DIMS; i++) to[i] = wanted ? from[i] : 0;
        return;
    }
#if !defined(ATTEST_SIMT)
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(to)),
                 "l"(__cvta_generic_to_global(from)), "n"(2 * (DIMS & 14)),
                 "r"(wanted ? 2 * DIMS : 0)
                 : "memory");
#else
    if constexpr (DIMS == 8)
        *(uint4 *)to = wanted ? *(const uint4 *)from : make_uint4(0, 0, 0, 0);
    else if constexpr (DIMS == 4)
        *(uint2 *)to = wanted ? *(const uint2 *)from : make_uint2(0, 0);
    else
        *(uint32_t *)to = wanted ? *(const uint32_t *)from : 0;
#endif
}

/* DIMS neighbouring channels of the ring as floats. */
template <int DIMS>
static __device__ __forceinline__ void qsa_load(float out[DIMS], const uint16_t *from)
{
    if constexpr (DIMS == 8) {
        uint4 four = *(const uint4 *)from;
        uint32_t words[4] = {four.x, four.y, four.z, four.w};

        for (int i = 0; i < 4; i++) {
            out[2 * i] = fmt_bf16_low(words[i]);
            out[2 * i + 1] = fmt_bf16_high(words[i]);
        }
    } else if constexpr (DIMS % 2 == 0) {
        for (int i = 0; i < DIMS / 2; i++) {
            uint32_t word = ((const uint32_t *)from)[i];

            out[2 * i] = fmt_bf16_low(word);
            out[2 * i + 1] = fmt_bf16_high(word);
        }
    } else {
        for (int i = 0; i < DIMS; i++) out[i] = fmt_bf16_to_f32(from[i]);
    }
}

/* Finds the slots of this warp's eight groups from number `turn` on, one token a lane. */
static __device__ __forceinline__ void qsa_find_slots(struct qsa_feed *feed,
                                                      const struct qsa_cache *cache,
                                                      const struct qsa_stretch *stretch,
                                                      uint32_t turn)
{
    uint32_t lane = threadIdx.x % DET_WARP;
    uint32_t group = feed->first + (turn + lane / QSA_GROUP) * QSA_WARPS;
    uint32_t token = group * QSA_GROUP + lane % QSA_GROUP;

    feed->slot = 0;
    if (group < feed->groups && token < stretch->n_tokens)
        feed->slot = qsa_token_slot(cache, qsa_stretch_token(stretch, token));
}

/* Begins copying the K or the V of the warp's group number `turn`; zeros where there is no token.
 */
template <int DIMS>
static __device__ __forceinline__ void
qsa_fetch(uint16_t *ring, const struct qsa_feed *feed, const struct qsa_cache *cache,
          const uint16_t *elements, uint32_t turn, uint32_t n_tokens)
{
    uint32_t group = feed->first + turn * QSA_WARPS, lane = threadIdx.x % DET_WARP;

#pragma unroll
    for (uint32_t t = 0; t < QSA_GROUP; t++) {
        int from = (int)(turn % QSA_GROUPS_AHEAD * QSA_GROUP + t);
        uint64_t slot = __shfl_sync(DET_FULL_MASK, feed->slot, from);
        uint64_t offset = (slot * cache->nkv + cache->kv_head) * cache->hd + lane * DIMS;
        bool wanted = group < feed->groups && group * QSA_GROUP + t < n_tokens;

        qsa_copy<DIMS>(ring + t * DET_WARP * DIMS, elements + offset, wanted, cache->wide);
    }
    mma_copy_commit();
}

/* The lane that holds the weight of a key and a head. */
template <int HEADS>
static __device__ __forceinline__ constexpr int qsa_head_lane(int key, int head)
{
    int lane = key * QSA_KEY_LANES;

    while (det_tree_index<QSA_GROUP * HEADS>((uint32_t)lane) != (uint32_t)(key * HEADS + head))
        lane++;
    return lane;
}

/* Shrinks what was added so far to the maximum `top`. */
template <int HEADS, int DIMS>
static __device__ __forceinline__ void qsa_rescale(struct qsa_flow<HEADS, DIMS> *flow, float top,
                                                   float base)
{
    float factor = top == flow->max ? 1.0f : det_exp_nonpos(flow->max - base);

#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        float shrink = __shfl_sync(DET_FULL_MASK, factor, qsa_head_lane<HEADS>(0, h));

        for (int i = 0; i < DIMS; i++) flow->acc[h][i] = flow->acc[h][i] * shrink;
    }
    flow->sum = flow->sum * factor;
    flow->max = top;
}

/* This lane's score of a group whose K is in the ring: of key lane / 8 and its own head. */
template <int HEADS, int DIMS>
static __device__ __forceinline__ float qsa_score_group(const struct qsa_flow<HEADS, DIMS> *flow,
                                                        const uint16_t *k_ring)
{
    float parts[QSA_GROUP * HEADS];

#pragma unroll
    for (int t = 0; t < QSA_GROUP; t++) {
        float k[DIMS];

        qsa_load<DIMS>(k, k_ring + t * DET_WARP * DIMS);
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            float dot = flow->q[h][0] * k[0];

            for (int i = 1; i < DIMS; i++) dot = fmaf(flow->q[h][i], k[i], dot);
            parts[t * HEADS + h] = dot;
        }
    }
    return det_tree32_many<QSA_GROUP * HEADS>(parts) * flow->inv_sqrt_d;
}

/* Adds a group's values, weighted. Absent tokens are zeros with weight zero. */
template <int HEADS, int DIMS>
static __device__ __forceinline__ void qsa_add_values(struct qsa_flow<HEADS, DIMS> *flow,
                                                      const uint16_t *v_ring, float weight)
{
#pragma unroll
    for (int t = 0; t < QSA_GROUP; t++) {
        float v[DIMS];

        qsa_load<DIMS>(v, v_ring + t * DET_WARP * DIMS);
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            float share = __shfl_sync(DET_FULL_MASK, weight, qsa_head_lane<HEADS>(t, h));

            for (int i = 0; i < DIMS; i++) flow->acc[h][i] = fmaf(share, v[i], flow->acc[h][i]);
        }
    }
}

/* Takes up the warp's group number `turn`, of which the first `count` tokens exist, and fetches the
 * next. A maximum of -inf would make -inf - -inf: zero stands in for it, and the weights are the
 * zeros they should be. */
template <int HEADS, int DIMS>
static __device__ __forceinline__ void
qsa_take_group(struct qsa_flow<HEADS, DIMS> *flow, struct qsa_feed *feed,
               const struct qsa_cache *cache, const struct qsa_stretch *stretch, uint32_t turn)
{
    uint32_t begin = (feed->first + turn * QSA_WARPS) * QSA_GROUP;
    bool exists = begin + threadIdx.x % DET_WARP / QSA_KEY_LANES < stretch->n_tokens;
    float score, top, base, weight;

    mma_copy_wait<1>();
    score = qsa_score_group<HEADS, DIMS>(flow, feed->k_ring);
    if ((turn + 1) % QSA_GROUPS_AHEAD == 0) qsa_find_slots(feed, cache, stretch, turn + 1);
    qsa_fetch<DIMS>(feed->k_ring, feed, cache, cache->k, turn + 1, stretch->n_tokens);
    score = exists ? score : -det_inf();
    top = fmaxf(score, __shfl_xor_sync(DET_FULL_MASK, score, QSA_KEY_LANES));
    top = fmaxf(top, __shfl_xor_sync(DET_FULL_MASK, top, 2 * QSA_KEY_LANES));
    top = fmaxf(top, flow->max);
    base = top == -det_inf() ? 0.0f : top;
    weight = det_exp_nonpos(score - base);
    if (__any_sync(DET_FULL_MASK, top != flow->max)) qsa_rescale<HEADS, DIMS>(flow, top, base);
    flow->sum = flow->sum + weight;
    mma_copy_wait<1>();
    qsa_add_values<HEADS, DIMS>(flow, feed->v_ring, weight);
    qsa_fetch<DIMS>(feed->v_ring, feed, cache, cache->v, turn + 1, stretch->n_tokens);
}

/* Takes up this warp's groups of a stretch. */
template <int HEADS, int DIMS>
static __device__ __forceinline__ void
qsa_take_stretch(struct qsa_flow<HEADS, DIMS> *flow, const struct qsa_cache *cache,
                 const struct qsa_stretch *stretch, uint16_t *ring)
{
    uint32_t warp = threadIdx.x / DET_WARP, lane = threadIdx.x % DET_WARP;
    uint32_t groups = stretch->n_tokens / QSA_GROUP + (stretch->n_tokens % QSA_GROUP != 0);
    uint16_t *k_ring = ring + warp * 2 * QSA_GROUP * DET_WARP * DIMS + lane * DIMS;
    struct qsa_feed feed = {k_ring, k_ring + QSA_GROUP * DET_WARP * DIMS,
                            (warp - stretch->first_group) % QSA_WARPS, groups, 0};

    if (feed.first >= groups) return;
    qsa_find_slots(&feed, cache, stretch, 0);
    qsa_fetch<DIMS>(feed.k_ring, &feed, cache, cache->k, 0, stretch->n_tokens);
    qsa_fetch<DIMS>(feed.v_ring, &feed, cache, cache->v, 0, stretch->n_tokens);
    for (uint32_t turn = 0; feed.first + turn * QSA_WARPS < groups; turn++)
        qsa_take_group<HEADS, DIMS>(flow, &feed, cache, stretch, turn);
}

/* Reads the queries, zeros from head `existing` on, and empties the running softmax. */
template <int HEADS, int DIMS>
static __device__ __forceinline__ void qsa_begin_flow(struct qsa_flow<HEADS, DIMS> *flow,
                                                      const uint16_t *q, uint32_t existing,
                                                      float inv_sqrt_d)
{
    const uint16_t *lane_q = q + threadIdx.x % DET_WARP * DIMS;

#pragma unroll
    for (uint32_t h = 0; h < HEADS; h++) {
        for (int i = 0; i < DIMS; i++) {
            flow->q[h][i] = h < existing ? fmt_bf16_to_f32(lane_q[h * DET_WARP * DIMS + i]) : 0.0f;
            flow->acc[h][i] = 0.0f;
        }
    }
    flow->max = -det_inf();
    flow->sum = 0.0f;
    flow->inv_sqrt_d = inv_sqrt_d;
}

/* Joins the warps' results, one head after the other, and stores the heads that exist. shared is
 * [8][hd] sums, [8] maxima, [8] denominators. */
template <int HEADS, int DIMS>
static __device__ __forceinline__ void qsa_merge_warps(uint16_t *out, float *shared,
                                                       const struct qsa_flow<HEADS, DIMS> *flow,
                                                       uint32_t existing, bool attended)
{
    const uint32_t hd = DIMS * DET_WARP;
    uint32_t lane = threadIdx.x % DET_WARP, warp = threadIdx.x / DET_WARP;
    float *maxima = shared + QSA_WARPS * hd, *sums = maxima + QSA_WARPS;
    float sum = flow->sum + __shfl_xor_sync(DET_FULL_MASK, flow->sum, QSA_KEY_LANES);

    sum = sum + __shfl_xor_sync(DET_FULL_MASK, sum, 2 * QSA_KEY_LANES);
#pragma unroll
    for (uint32_t h = 0; h < HEADS; h++) {
        if (h >= existing) break;
        __syncthreads();
        for (int i = 0; i < DIMS; i++) shared[warp * hd + lane * DIMS + i] = flow->acc[h][i];
        if (lane == qsa_head_lane<HEADS>(0, h)) {
            maxima[warp] = flow->max;
            sums[warp] = sum;
        }
        __syncthreads();
        if (threadIdx.x < hd)
            out[h * hd + threadIdx.x] =
                qsa_join_warps(shared + threadIdx.x, hd, maxima, sums, attended);
    }
}

/* Appends the block numbers of list[base ...], holes left out, to the queue of `queued` blocks and
 * returns the new length. `counts` holds 8 words. Ends with a barrier. */
static __device__ __forceinline__ uint32_t qsa_queue_blocks(int32_t *queue, uint32_t *counts,
                                                            uint32_t queued, const int32_t *list,
                                                            uint32_t base, uint32_t topk)
{
    uint32_t lane = threadIdx.x % DET_WARP, warp = threadIdx.x / DET_WARP;
    int32_t block = base + threadIdx.x < topk ? list[base + threadIdx.x] : -1;
    uint32_t present = __ballot_sync(DET_FULL_MASK, block >= 0), total = queued;

    if (lane == 0) counts[warp] = (uint32_t)__popc(present);
    __syncthreads();
    for (uint32_t w = 0; w < QSA_WARPS; w++) {
        if (w == warp && block >= 0)
            queue[total + (uint32_t)__popc(present & ((1u << lane) - 1))] = block;
        total += counts[w];
    }
    __syncthreads();
    return total;
}

/* All listed blocks, 256 list entries at a time, then the tail up to `position`. Of each step's
 * blocks a multiple of four is taken, so that groups do not straddle steps; the up to three left
 * over move to the front of the queue. Returns whether there was any token. */
template <int HEADS, int DIMS>
static __device__ __forceinline__ bool
qsa_take_list(struct qsa_flow<HEADS, DIMS> *flow, const struct qsa_cache *cache, float *shared,
              uint16_t *ring, const int32_t *list, uint32_t topk, uint32_t ratio, uint32_t position)
{
    int32_t *queue = (int32_t *)shared, moved = 0;
    uint32_t *counts = (uint32_t *)shared + QSA_LIST_STEP + QSA_GROUP;
    uint32_t queued = 0, tail_begin = qsa_complete_blocks(position, ratio) * ratio;
    struct qsa_stretch stretch = {queue, 0, ratio, tail_begin, 0, 0};
    bool attended = position + 1 > tail_begin;

    for (uint32_t base = 0; base < topk; base += QSA_LIST_STEP) {
        bool last = topk - base <= QSA_LIST_STEP;

        queued = qsa_queue_blocks(queue, counts, queued, list, base, topk);
        attended = attended || queued > 0;
        stretch.n_blocks = last ? queued : queued - queued % QSA_GROUP;
        stretch.n_tokens = stretch.n_blocks * ratio + (last ? position + 1 - tail_begin : 0);
        qsa_take_stretch<HEADS, DIMS>(flow, cache, &stretch, ring);
        stretch.first_group += stretch.n_tokens / QSA_GROUP;
        queued -= stretch.n_blocks;
        if (threadIdx.x < queued) moved = queue[stretch.n_blocks + threadIdx.x];
        __syncthreads();
        if (threadIdx.x < queued) queue[threadIdx.x] = moved;
    }
    return attended;
}

struct qsa_prefill_args {
    const uint16_t *q;
    struct qsa_cache cache;
    const int32_t *lists;
    uint16_t *out;
    uint32_t first_pos, topk, ratio, nq;
    uint32_t existing; /* heads of the block */
    float inv_sqrt_d;
};

template <int HEADS, int DIMS>
static __device__ __forceinline__ void qsa_prefill_heads(const struct qsa_prefill_args *args,
                                                         float *shared, uint16_t *ring)
{
    uint64_t row = blockIdx.x, at = (row * args->nq + blockIdx.y) * args->cache.hd;
    struct qsa_flow<HEADS, DIMS> flow;
    bool attended;

    qsa_begin_flow<HEADS, DIMS>(&flow, args->q + at, args->existing, args->inv_sqrt_d);
    attended = qsa_take_list<HEADS, DIMS>(&flow, &args->cache, shared, ring,
                                          args->lists + row * args->topk, args->topk, args->ratio,
                                          args->first_pos + (uint32_t)row);
    qsa_merge_warps<HEADS, DIMS>(args->out + at, shared, &flow, args->existing, attended);
}

/* Grid (rows, nq), block 256, dynamic shared 4(8 hd + 16). The row at position p attends its listed
 * blocks, each named once, and the tail [complete*ratio, p]. */
extern "C" __global__ void __launch_bounds__(QSA_THREADS)
    qsa_prefill_attn(const uint16_t *q, const uint16_t *k_cache, const uint16_t *v_cache,
                     const int32_t *block_table, const int32_t *lists, uint16_t *attn_out,
                     uint32_t first_pos, uint32_t topk, uint32_t ratio, uint32_t block_size,
                     uint32_t nq, uint32_t nkv, uint32_t hd, float inv_sqrt_d)
{
    extern __shared__ float qsa_shared[];
    __shared__ __align__(16) uint16_t ring[QSA_RING];
    uint32_t sharers = nq / nkv, kv_head = blockIdx.y / sharers, place = blockIdx.y % sharers;
    bool share = sharers > 1 && (hd == 32 || hd == 128 || hd == 256);
    uint32_t heads = share ? QSA_MAX_HEADS : 1, left = sharers - place;
    struct qsa_prefill_args args = {
        q,
        qsa_cache_view(k_cache, v_cache, block_table, block_size, nkv, hd, kv_head),
        lists,
        attn_out,
        first_pos,
        topk,
        ratio,
        nq,
        left < heads ? left : heads,
        inv_sqrt_d};

    if (place % heads != 0) return;
    if (!share)
        QSA_FOR_HD(qsa_prefill_heads, 1, hd, &args, qsa_shared, ring)
    else if (hd == 32)
        qsa_prefill_heads<QSA_MAX_HEADS, 1>(&args, qsa_shared, ring);
    else if (hd == 128)
        qsa_prefill_heads<QSA_MAX_HEADS, 4>(&args, qsa_shared, ring);
    else
        qsa_prefill_heads<QSA_MAX_HEADS, 8>(&args, qsa_shared, ring);
}

#endif
