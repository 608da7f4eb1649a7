/* Attention over selected blocks (prefill) and over a whole short cache (decode): online softmax,
 * one query head a block of 8 warps.
 *
 * Order. The attended tokens form one sequence: the tokens of the listed blocks in list order,
 * holes skipped, then the tail; for decode, tokens 0, 1, .... Every four neighbours in it are a
 * group, and warp w takes the groups w, w+8, w+16, .... So the bits depend on the sequence alone,
 * not on where holes, pages and list windows fall, and decode over gathered tokens equals prefill.
 *
 * Error model, n attended tokens, u = 2^-24; all roundings to nearest, nothing flushed:
 * - score: RN(dot * inv_sqrt_d); dot: hd/32 fma a lane, then 5 additions: depth hd/32 + 5.
 * - exponent: RN(score - max), one rounding: kappa = u (numerics 5.8).
 * - exp: det_exp_nonpos, at most 1 ulp: relative 2^-23 for normal results, absolute 2^-149 below.
 *   Weights stay f32.
 * - rescales: R(n) = n/32 + 1 (a = 1/32, b = 1). A warp has at most ceil(ceil(n/4)/8) = ceil(n/32)
 *   groups, so a key meets at most ceil(n/32) - 1 later factors and the merge's one. Where the
 *   maximum did not grow the factor is exp(0) = 1 exactly.
 * - sums: numerator one fma a key and channel, denominator one addition a key, each factor one more
 *   rounding; the merge 8 fma.
 * - division: numerator / denominator, one rounding.
 * - output: bf16, nearest even, from the f32 quotient. */
#ifndef ATTEST_KERNELS_QSA_ATTENTION_CUH
#define ATTEST_KERNELS_QSA_ATTENTION_CUH

#include "qsa_common.cuh"

#define QSA_GROUP 4 /* tokens a warp takes at a time */
#define QSA_GROUPS_AHEAD (DET_WARP / QSA_GROUP)
#define QSA_LIST_STEP QSA_THREADS /* list entries read at a time */

/* The paged cache as one kv head sees it. Offsets of a token are in elements. */
struct qsa_cache {
    const uint16_t *k, *v;
    const int32_t *block_table;
    uint32_t block_size, nkv, hd, kv_head;
    bool wide; /* vector loads are aligned */
};

/* A stretch of the attended sequence: the tokens of `n_blocks` listed blocks of `ratio` tokens,
 * then consecutive tokens from tail_begin on; n_tokens together. first_group is the number of its
 * first group in the whole sequence. */
struct qsa_stretch {
    const int32_t *blocks;
    uint32_t n_blocks, ratio, tail_begin, n_tokens, first_group;
};

/* A warp's running softmax; a lane holds DIMS = hd/32 neighbouring channels. */
template <int DIMS> struct qsa_flow {
    float q[DIMS], acc[DIMS];
    float max, sum, inv_sqrt_d;
};

static __device__ __forceinline__ uint64_t qsa_token_offset(const struct qsa_cache *cache,
                                                            uint32_t token)
{
    uint64_t page = (uint32_t)cache->block_table[token / cache->block_size];
    uint64_t slot = page * cache->block_size + token % cache->block_size;

    return (slot * cache->nkv + cache->kv_head) * cache->hd;
}

static __device__ __forceinline__ uint32_t qsa_stretch_token(const struct qsa_stretch *stretch,
                                                             uint32_t i)
{
    uint32_t entry = i / stretch->ratio;

    if (entry < stretch->n_blocks)
        return (uint32_t)stretch->blocks[entry] * stretch->ratio + i % stretch->ratio;
    return stretch->tail_begin + (i - stretch->n_blocks * stretch->ratio);
}

/* DIMS neighbouring bf16 as floats; 2, 4 and 8 of them move in one access when aligned. */
template <int DIMS>
static __device__ __forceinline__ void qsa_load(float out[DIMS], const uint16_t *from, bool wide)
{
    uint32_t words[4];

    if ((DIMS != 2 && DIMS != 4 && DIMS != 8) || !wide) {
        for (int i = 0; i < DIMS; i++) out[i] = fmt_bf16_to_f32(from[i]);
        return;
    }
    if constexpr (DIMS == 8) {
        uint4 four = *(const uint4 *)from;

        words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w;
    } else if constexpr (DIMS == 4) {
        uint2 two = *(const uint2 *)from;

        words[0] = two.x, words[1] = two.y;
    } else {
        words[0] = *(const uint32_t *)from;
    }
    for (int i = 0; i < DIMS / 2; i++) {
        out[2 * i] = fmt_bf16_low(words[i]);
        out[2 * i + 1] = fmt_bf16_high(words[i]);
    }
}

/* Takes up the first `count` of four tokens. Absent ones are not read and weigh nothing. A maximum
 * of -inf would make -inf - -inf: zero stands in for it, and the weights are the zeros they should
 * be. */
template <int DIMS>
static __device__ __forceinline__ void
qsa_take_group(struct qsa_flow<DIMS> *flow, const struct qsa_cache *cache,
               const uint64_t offsets[QSA_GROUP], uint32_t count)
{
    float k[QSA_GROUP][DIMS], v[QSA_GROUP][DIMS], score[QSA_GROUP], weight[QSA_GROUP];
    float max = flow->max, base, factor;

    for (uint32_t t = 0; t < QSA_GROUP; t++) {
        for (int i = 0; i < DIMS; i++) k[t][i] = v[t][i] = 0.0f;
        if (t < count) {
            qsa_load<DIMS>(k[t], cache->k + offsets[t], cache->wide);
            qsa_load<DIMS>(v[t], cache->v + offsets[t], cache->wide);
        }
    }
    for (uint32_t t = 0; t < QSA_GROUP; t++) {
        float dot = flow->q[0] * k[t][0];

        for (int i = 1; i < DIMS; i++) dot = fmaf(flow->q[i], k[t][i], dot);
        score[t] = det_tree32(dot) * flow->inv_sqrt_d;
        if (t < count && score[t] > max) max = score[t];
    }
    base = max == -det_inf() ? 0.0f : max;
    factor = det_exp_nonpos(flow->max - base);
    flow->max = max;
    flow->sum = flow->sum * factor;
    for (uint32_t t = 0; t < QSA_GROUP; t++) {
        weight[t] = t < count ? det_exp_nonpos(score[t] - base) : 0.0f;
        flow->sum = flow->sum + weight[t];
    }
    for (int i = 0; i < DIMS; i++) {
        flow->acc[i] = flow->acc[i] * factor;
        for (uint32_t t = 0; t < QSA_GROUP; t++)
            flow->acc[i] = fmaf(weight[t], v[t][i], flow->acc[i]);
    }
}

/* Takes up this warp's groups of a stretch. The lanes work out the offsets of eight groups at once,
 * one token each. */
template <int DIMS>
static __device__ __forceinline__ void qsa_take_stretch(struct qsa_flow<DIMS> *flow,
                                                        const struct qsa_cache *cache,
                                                        const struct qsa_stretch *stretch)
{
    uint32_t lane = threadIdx.x % DET_WARP, warp = threadIdx.x / DET_WARP;
    uint32_t groups = stretch->n_tokens / QSA_GROUP + (stretch->n_tokens % QSA_GROUP != 0);

    for (uint32_t first = (warp - stretch->first_group) % QSA_WARPS; first < groups;
         first += QSA_WARPS * QSA_GROUPS_AHEAD) {
        uint32_t token = (first + lane / QSA_GROUP * QSA_WARPS) * QSA_GROUP + lane % QSA_GROUP;
        uint64_t own = 0, offsets[QSA_GROUP];

        if (token < stretch->n_tokens)
            own = qsa_token_offset(cache, qsa_stretch_token(stretch, token));
        for (uint32_t ahead = 0; ahead < QSA_GROUPS_AHEAD; ahead++) {
            uint32_t begin = (first + ahead * QSA_WARPS) * QSA_GROUP;

            if (begin >= stretch->n_tokens) break;
            for (uint32_t t = 0; t < QSA_GROUP; t++)
                offsets[t] =
                    __shfl_sync(DET_FULL_MASK, own, (int)(ahead * QSA_GROUP + t)) + lane * DIMS;
            qsa_take_group<DIMS>(flow, cache, offsets, stretch->n_tokens - begin);
        }
    }
}

/* Reads the query and empties the running softmax. */
template <int DIMS>
static __device__ __forceinline__ void qsa_begin_flow(struct qsa_flow<DIMS> *flow,
                                                      const uint16_t *q, float inv_sqrt_d)
{
    for (int i = 0; i < DIMS; i++) {
        flow->q[i] = fmt_bf16_to_f32(q[threadIdx.x % DET_WARP * DIMS + i]);
        flow->acc[i] = 0.0f;
    }
    flow->max = -det_inf();
    flow->sum = 0.0f;
    flow->inv_sqrt_d = inv_sqrt_d;
}

/* Joins the warps' results in warp order and stores the head; zeros if nothing was attended. shared
 * is [8][hd] sums, [8] maxima, [8] denominators. */
template <int DIMS>
static __device__ __forceinline__ void
qsa_merge_warps(uint16_t *out, float *shared, const struct qsa_flow<DIMS> *flow, bool attended)
{
    const uint32_t hd = DIMS * DET_WARP;
    uint32_t lane = threadIdx.x % DET_WARP, warp = threadIdx.x / DET_WARP;
    float *maxima = shared + QSA_WARPS * hd, *sums = maxima + QSA_WARPS;
    float base = -det_inf(), numerator = 0.0f, denominator = 0.0f;

    __syncthreads();
    for (int i = 0; i < DIMS; i++) shared[warp * hd + lane * DIMS + i] = flow->acc[i];
    if (lane == 0) {
        maxima[warp] = flow->max;
        sums[warp] = flow->sum;
    }
    __syncthreads();
    if (threadIdx.x >= hd) return;
    for (uint32_t w = 0; w < QSA_WARPS; w++) base = maxima[w] > base ? maxima[w] : base;
    base = base == -det_inf() ? 0.0f : base;
    for (uint32_t w = 0; w < QSA_WARPS; w++) {
        float factor = det_exp_nonpos(maxima[w] - base);

        numerator = fmaf(factor, shared[w * hd + threadIdx.x], numerator);
        denominator = fmaf(factor, sums[w], denominator);
    }
    out[threadIdx.x] = fmt_f32_to_bf16(attended ? numerator / denominator : 0.0f);
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
template <int DIMS>
static __device__ __forceinline__ bool
qsa_take_list(struct qsa_flow<DIMS> *flow, const struct qsa_cache *cache, float *shared,
              const int32_t *list, uint32_t topk, uint32_t ratio, uint32_t position)
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
        qsa_take_stretch<DIMS>(flow, cache, &stretch);
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
    float inv_sqrt_d;
};

template <int DIMS>
static __device__ __forceinline__ void qsa_prefill_head(const struct qsa_prefill_args *args,
                                                        float *shared)
{
    uint64_t row = blockIdx.x, at = (row * args->nq + blockIdx.y) * args->cache.hd;
    struct qsa_flow<DIMS> flow;
    bool attended;

    qsa_begin_flow<DIMS>(&flow, args->q + at, args->inv_sqrt_d);
    attended = qsa_take_list<DIMS>(&flow, &args->cache, shared, args->lists + row * args->topk,
                                   args->topk, args->ratio, args->first_pos + (uint32_t)row);
    qsa_merge_warps<DIMS>(args->out + at, shared, &flow, attended);
}

struct qsa_decode_args {
    const uint16_t *q;
    struct qsa_cache cache;
    uint16_t *out;
    uint32_t seq_len;
    float inv_sqrt_d;
};

template <int DIMS>
static __device__ __forceinline__ void qsa_decode_head(const struct qsa_decode_args *args,
                                                       float *shared)
{
    uint64_t at = (uint64_t)blockIdx.x * args->cache.hd;
    struct qsa_stretch stretch = {0, 0, 1, 0, args->seq_len, 0};
    struct qsa_flow<DIMS> flow;

    qsa_begin_flow<DIMS>(&flow, args->q + at, args->inv_sqrt_d);
    qsa_take_stretch<DIMS>(&flow, &args->cache, &stretch);
    qsa_merge_warps<DIMS>(args->out + at, shared, &flow, args->seq_len > 0);
}

static __device__ __forceinline__ struct qsa_cache
qsa_cache_view(const uint16_t *k_cache, const uint16_t *v_cache, const int32_t *block_table,
               uint32_t block_size, uint32_t nkv, uint32_t hd, uint32_t kv_head)
{
    bool wide = (((uintptr_t)k_cache | (uintptr_t)v_cache) & 15u) == 0;

    return {k_cache, v_cache, block_table, block_size, nkv, hd, kv_head, wide};
}

/* clang-format off */
/* Calls HEAD<hd/32>. hd is a multiple of 32 from 32 to 256. */
#define QSA_FOR_HD(HEAD, hd, ...)          \
    switch ((hd) / DET_WARP) {             \
    case 1: HEAD<1>(__VA_ARGS__); break;   \
    case 2: HEAD<2>(__VA_ARGS__); break;   \
    case 3: HEAD<3>(__VA_ARGS__); break;   \
    case 4: HEAD<4>(__VA_ARGS__); break;   \
    case 5: HEAD<5>(__VA_ARGS__); break;   \
    case 6: HEAD<6>(__VA_ARGS__); break;   \
    case 7: HEAD<7>(__VA_ARGS__); break;   \
    case 8: HEAD<8>(__VA_ARGS__); break;   \
    }
/* clang-format on */

/* Grid (rows, nq), block 256, dynamic shared 4(8 hd + 16). The row at position p attends its listed
 * blocks, each named once, and the tail [complete*ratio, p]. */
extern "C" __global__ void __launch_bounds__(QSA_THREADS)
    qsa_prefill_attn(const uint16_t *q, const uint16_t *k_cache, const uint16_t *v_cache,
                     const int32_t *block_table, const int32_t *lists, uint16_t *attn_out,
                     uint32_t first_pos, uint32_t topk, uint32_t ratio, uint32_t block_size,
                     uint32_t nq, uint32_t nkv, uint32_t hd, float inv_sqrt_d)
{
    extern __shared__ float qsa_shared[];
    struct qsa_prefill_args args = {
        q,
        qsa_cache_view(k_cache, v_cache, block_table, block_size, nkv, hd, blockIdx.y / (nq / nkv)),
        lists,
        attn_out,
        first_pos,
        topk,
        ratio,
        nq,
        inv_sqrt_d};

    QSA_FOR_HD(qsa_prefill_head, hd, &args, qsa_shared)
}

/* Grid nq, block 256, dynamic shared 4(8 hd + 16). Attends tokens [0, seq_len). */
extern "C" __global__ void __launch_bounds__(QSA_THREADS)
    paged_decode_attn(const uint16_t *q, const uint16_t *k_cache, const uint16_t *v_cache,
                      const int32_t *block_table, uint16_t *out, uint32_t seq_len,
                      uint32_t block_size, uint32_t nq, uint32_t nkv, uint32_t hd, float inv_sqrt_d)
{
    extern __shared__ float qsa_shared[];
    struct qsa_decode_args args = {
        q,
        qsa_cache_view(k_cache, v_cache, block_table, block_size, nkv, hd, blockIdx.x / (nq / nkv)),
        out, seq_len, inv_sqrt_d};

    QSA_FOR_HD(qsa_decode_head, hd, &args, qsa_shared)
}

#endif
