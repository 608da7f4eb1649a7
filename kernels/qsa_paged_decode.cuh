/* Attention of one query over a whole short paged cache: online softmax, blocks of 8 warps.
 *
 * There are only nq blocks, so what counts is the time of one block: its issue slots, and the bytes
 * it draws through one multiprocessor. Two neighbouring heads of a kv head divide their work
 * where hd is 64, 128 or 256: both blocks score the keys for both heads, and each adds up half of
 * the channels of V for both. That is 3/4 of the bytes, and for a head the same arithmetic, bit for
 * bit, as by itself.
 *
 * Order. Every eight neighbouring tokens are a group; warp w takes the groups w, w+8, w+16, ...,
 * four of them a turn, so that a turn has a key for every lane. The bits depend on the sequence
 * alone, not on pages or on the heads beside it.
 *
 * Error model, n attended tokens, u = 2^-24; all roundings to nearest, nothing flushed:
 * - score: RN(dot * inv_sqrt_d); dot: hd/32 fma a lane, then 5 additions: depth hd/32 + 5.
 * - exponent: RN(score - max), one rounding: kappa = u (numerics 5.8).
 * - exp: det_exp_nonpos, at most 1 ulp: relative 2^-23 for normal results, absolute 2^-149 below.
 *   Weights stay f32.
 * - rescales: R(n) = n/256 + 1 (a = 1/256, b = 1). A warp has at most ceil(n/256) turns, so a key
 *   meets at most ceil(n/256) - 1 later factors and the merge's one. Where the maximum did not grow
 *   the factor is exactly 1.
 * - sums: numerator one fma a key and channel; denominator one addition a key in one of 32 sums,
 * then 5 that join them; each factor one more rounding; the merge 8 fma.
 * - division: numerator / denominator, one rounding.
 * - output: bf16, nearest even, from the f32 quotient. */
#ifndef ATTEST_KERNELS_QSA_PAGED_DECODE_CUH
#define ATTEST_KERNELS_QSA_PAGED_DECODE_CUH

#include "qsa_cache.cuh"

#define QSA_STEP 8                      /* keys a warp loads together, a group */
#define QSA_STEPS (DET_WARP / QSA_STEP) /* steps of a turn for K, and again for V */
#define QSA_BUFFERS 4                   /* steps in registers; divides 2 QSA_STEPS */
#define QSA_AHEAD 2                     /* steps loaded before they are used */

/* Arrays stay in registers only where every index is known to the compiler. The CPU backend has no
 * such need, and its modules compile in half the time. */
#if defined(ATTEST_SIMT)
#define QSA_UNROLL
#else
#define QSA_UNROLL _Pragma("unroll")
#endif

/* One step of a lane: neighbouring channels of eight keys, two a word. */
template <int DIMS> struct qsa_raw {
    uint32_t words[QSA_STEP][(DIMS + 1) / 2];
};

/* What the lanes of a warp tell each other. A place is where a token begins in the cache for this
 * kv head, in units of 32 elements. */
struct qsa_decode_shared {
    uint32_t places[2][DET_WARP]; /* of this turn's tokens and the next's, by turns */
    float weights[2][DET_WARP];   /* of one or two heads */
};

/* What a warp holds of HEADS heads. A lane has DIMS = hd/32 neighbouring channels of q and K and
 * DIMS/HEADS of V. `max` is the warp's, `sum` the lane's. */
template <int HEADS, int DIMS> struct qsa_decode {
    float q[HEADS][DIMS], acc[HEADS][DIMS / HEADS], max[HEADS], sum[HEADS];
    struct qsa_raw<DIMS> raw[QSA_BUFFERS];
    const uint16_t *k_lane, *v_lane; /* the caches, moved to this lane's channels */
    uint32_t n_tokens, warp;
    float inv_sqrt_d;
    bool wide;
};

/* First token of step `step` of a turn. */
static __device__ __forceinline__ uint32_t qsa_step_begin(uint32_t turn, uint32_t step,
                                                          uint32_t warp)
{
    return ((turn * QSA_STEPS + step) * QSA_WARPS + warp) * QSA_STEP;
}

/* The place of this lane's token of a turn; of the last token where there is none. 32 bits are
 * enough: 2^32 units of 64 bytes would be 256 GiB. */
static __device__ __forceinline__ uint32_t qsa_lane_place(const struct qsa_cache *cache,
                                                          uint32_t turn, uint32_t n_tokens)
{
    uint32_t lane = threadIdx.x % DET_WARP;
    uint32_t token =
        qsa_step_begin(turn, lane / QSA_STEP, threadIdx.x / DET_WARP) + lane % QSA_STEP;
    uint32_t slot = qsa_token_slot(cache, token < n_tokens ? token : n_tokens - 1);

    return (slot * cache->nkv + cache->kv_head) * (cache->hd / DET_WARP);
}

/* N neighbouring bf16, two a word; 2, 4 and 8 of them move in one access when aligned. */
template <int N>
static __device__ __forceinline__ void qsa_read(uint32_t words[(N + 1) / 2], const uint16_t *from,
                                                bool wide)
{
    if ((N != 2 && N != 4 && N != 8) || !wide) {
        for (int i = 0; i < (N + 1) / 2; i++)
            words[i] = from[2 * i] | (2 * i + 1 < N ? (uint32_t)from[2 * i + 1] << 16 : 0);
        return;
    }
    if constexpr (N == 8) {
        uint4 four = *(const uint4 *)from;

        words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w;
    } else if constexpr (N == 4) {
        uint2 two = *(const uint2 *)from;

        words[0] = two.x, words[1] = two.y;
    } else {
        words[0] = *(const uint32_t *)from;
    }
}

template <int N>
static __device__ __forceinline__ void qsa_unpack(float out[N], const uint32_t words[(N + 1) / 2])
{
    for (int i = 0; i < N; i++)
        out[i] = i % 2 == 0 ? fmt_bf16_low(words[i / 2]) : fmt_bf16_high(words[i / 2]);
}

/* Loads step 0 .. 3 of K or 4 .. 7 of V of a turn, if it has a token. */
template <int HEADS, int DIMS, int step>
static __device__ __forceinline__ void qsa_load_step(struct qsa_decode<HEADS, DIMS> *state,
                                                     const struct qsa_decode_shared *shared,
                                                     uint32_t turn)
{
    constexpr bool values = step >= QSA_STEPS;
    constexpr int n = values ? DIMS / HEADS : DIMS;
    const uint32_t *places = shared->places[turn % 2] + step % QSA_STEPS * QSA_STEP;
    const uint16_t *from = values ? state->v_lane : state->k_lane;

    if (qsa_step_begin(turn, step % QSA_STEPS, state->warp) >= state->n_tokens) return;
    QSA_UNROLL
    for (int t = 0; t < QSA_STEP; t++)
        qsa_read<n>(state->raw[step % QSA_BUFFERS].words[t], from + (uint64_t)places[t] * DET_WARP,
                    state->wide);
}

/* This lane's part of the scores of a step. */
template <int HEADS, int DIMS, int step>
static __device__ __forceinline__ void qsa_score_step(const struct qsa_decode<HEADS, DIMS> *state,
                                                      float parts[HEADS][DET_WARP])
{
    QSA_UNROLL
    for (int t = 0; t < QSA_STEP; t++) {
        float k[DIMS];

        qsa_unpack<DIMS>(k, state->raw[step % QSA_BUFFERS].words[t]);
        QSA_UNROLL
        for (int h = 0; h < HEADS; h++) {
            float dot = state->q[h][0] * k[0];

            for (int i = 1; i < DIMS; i++) dot = fmaf(state->q[h][i], k[i], dot);
            parts[h][step * QSA_STEP + t] = dot;
        }
    }
}

/* Adds the values of a step, weighted. Tokens past the end are left out. */
template <int HEADS, int DIMS, int step>
static __device__ __forceinline__ void qsa_add_step(struct qsa_decode<HEADS, DIMS> *state,
                                                    const struct qsa_decode_shared *shared,
                                                    uint32_t turn)
{
    uint32_t begin = qsa_step_begin(turn, step - QSA_STEPS, state->warp);

    QSA_UNROLL
    for (uint32_t t = 0; t < QSA_STEP; t++) {
        float v[DIMS / HEADS];

        if (begin + t >= state->n_tokens) break;
        qsa_unpack<DIMS / HEADS>(v, state->raw[step % QSA_BUFFERS].words[t]);
        QSA_UNROLL
        for (int h = 0; h < HEADS; h++) {
            float weight = shared->weights[h][(step - QSA_STEPS) * QSA_STEP + t];

            for (int i = 0; i < DIMS / HEADS; i++)
                state->acc[h][i] = fmaf(weight, v[i], state->acc[h][i]);
        }
    }
}

/* The weights of a turn's keys for one head, from the lanes' parts of their scores. A maximum of
 * -inf would make -inf - -inf: zero stands in for it, and the weights are the zeros they should
 * be. */
template <int HEADS, int DIMS>
static __device__ __forceinline__ float qsa_weigh(struct qsa_decode<HEADS, DIMS> *state, int head,
                                                  float parts[DET_WARP], bool exists)
{
    float score = det_tree32_many<DET_WARP>(parts) * state->inv_sqrt_d, top, base, weight;

    score = exists ? score : -det_inf();
    top = fmaxf(score, state->max[head]);
    for (int step = DET_WARP / 2; step > 0; step /= 2)
        top = fmaxf(top, __shfl_xor_sync(DET_FULL_MASK, top, step));
    base = top == -det_inf() ? 0.0f : top;
    weight = det_exp_nonpos(score - base);
    if (top != state->max[head]) {
        float factor = det_exp_nonpos(state->max[head] - base);

        for (int i = 0; i < DIMS / HEADS; i++) state->acc[head][i] = state->acc[head][i] * factor;
        state->sum[head] = state->sum[head] * factor;
        state->max[head] = top;
    }
    state->sum[head] = state->sum[head] + weight;
    return weight;
}

/* Steps `step` .. 3 of K or .. 7 of V; each first loads the step QSA_AHEAD after it. */
template <int HEADS, int DIMS, int step>
static __device__ __forceinline__ void qsa_take_steps(struct qsa_decode<HEADS, DIMS> *state,
                                                      const struct qsa_decode_shared *shared,
                                                      float parts[HEADS][DET_WARP], uint32_t turn)
{
    constexpr int later = step + QSA_AHEAD, all = 2 * QSA_STEPS;

    qsa_load_step<HEADS, DIMS, later % all>(state, shared, turn + later / all);
    if constexpr (step < QSA_STEPS)
        qsa_score_step<HEADS, DIMS, step>(state, parts);
    else
        qsa_add_step<HEADS, DIMS, step>(state, shared, turn);
    if constexpr ((step + 1) % QSA_STEPS != 0)
        qsa_take_steps<HEADS, DIMS, step + 1>(state, shared, parts, turn);
}

/* All turns of this warp. */
template <int HEADS, int DIMS>
static __device__ __forceinline__ void qsa_take_tokens(struct qsa_decode<HEADS, DIMS> *state,
                                                       const struct qsa_cache *cache,
                                                       struct qsa_decode_shared *shared)
{
    uint32_t lane = threadIdx.x % DET_WARP, n = state->n_tokens;

    if (qsa_step_begin(0, 0, state->warp) >= n) return;
    shared->places[0][lane] = qsa_lane_place(cache, 0, n);
    __syncwarp();
    qsa_load_step<HEADS, DIMS, 0>(state, shared, 0);
    qsa_load_step<HEADS, DIMS, 1>(state, shared, 0);
    for (uint32_t turn = 0; qsa_step_begin(turn, 0, state->warp) < n; turn++) {
        uint32_t next = qsa_lane_place(cache, turn + 1, n);
        uint32_t token = qsa_step_begin(turn, lane / QSA_STEP, state->warp) + lane % QSA_STEP;
        float parts[HEADS][DET_WARP];

        qsa_take_steps<HEADS, DIMS, 0>(state, shared, parts, turn);
        for (int h = 0; h < HEADS; h++)
            shared->weights[h][lane] = qsa_weigh<HEADS, DIMS>(state, h, parts[h], token < n);
        shared->places[(turn + 1) % 2][lane] = next;
        __syncwarp();
        qsa_take_steps<HEADS, DIMS, QSA_STEPS>(state, shared, parts, turn);
        __syncwarp();
    }
}

struct qsa_decode_args {
    const uint16_t *q; /* of the first of the heads */
    struct qsa_cache cache;
    uint16_t *out;
    uint32_t seq_len, part; /* part: which share of the channels of V */
    float inv_sqrt_d;
};

/* Joins the warps' results in warp order. partial is [8][HEADS][hd/HEADS]. */
template <int HEADS, int DIMS>
static __device__ __forceinline__ void
qsa_decode_merge(const struct qsa_decode_args *args, const struct qsa_decode<HEADS, DIMS> *state,
                 float *partial, float maxima[][QSA_WARPS], float sums[][QSA_WARPS])
{
    constexpr uint32_t hd = DIMS * DET_WARP, channels = hd / HEADS;
    uint32_t lane = threadIdx.x % DET_WARP, head = threadIdx.x / channels;
    float *own = partial + state->warp * hd + lane * (DIMS / HEADS);

    for (int h = 0; h < HEADS; h++) {
        float sum = det_tree32(state->sum[h]);

        for (int i = 0; i < DIMS / HEADS; i++) own[h * channels + i] = state->acc[h][i];
        if (lane != 0) continue;
        maxima[h][state->warp] = state->max[h];
        sums[h][state->warp] = sum;
    }
    __syncthreads();
    if (threadIdx.x < hd)
        args->out[head * hd + args->part * channels + threadIdx.x % channels] =
            qsa_join_warps(partial + threadIdx.x, hd, maxima[head], sums[head], args->seq_len > 0);
}

template <int HEADS, int DIMS>
static __device__ __forceinline__ void
qsa_decode_heads(const struct qsa_decode_args *args, float *partial,
                 struct qsa_decode_shared *shared, float maxima[][QSA_WARPS],
                 float sums[][QSA_WARPS])
{
    constexpr uint32_t hd = DIMS * DET_WARP;
    uint32_t lane = threadIdx.x % DET_WARP;
    struct qsa_decode<HEADS, DIMS> state;

    for (int h = 0; h < HEADS; h++) {
        for (int i = 0; i < DIMS; i++)
            state.q[h][i] = fmt_bf16_to_f32(args->q[h * hd + lane * DIMS + i]);
        for (int i = 0; i < DIMS / HEADS; i++) state.acc[h][i] = 0.0f;
        state.max[h] = -det_inf();
        state.sum[h] = 0.0f;
    }
    state.k_lane = args->cache.k + lane * DIMS;
    state.v_lane = args->cache.v + args->part * (hd / HEADS) + lane * (DIMS / HEADS);
    state.n_tokens = args->seq_len;
    state.warp = threadIdx.x / DET_WARP;
    state.inv_sqrt_d = args->inv_sqrt_d;
    state.wide = args->cache.wide;
    qsa_take_tokens<HEADS, DIMS>(&state, &args->cache, &shared[state.warp]);
    qsa_decode_merge<HEADS, DIMS>(args, &state, partial, maxima, sums);
}

/* Grid nq, block 256, dynamic shared 4(8 hd + 16). Attends tokens [0, seq_len). */
extern "C" __global__ void __launch_bounds__(QSA_THREADS)
    paged_decode_attn(const uint16_t *q, const uint16_t *k_cache, const uint16_t *v_cache,
                      const int32_t *block_table, uint16_t *out, uint32_t seq_len,
                      uint32_t block_size, uint32_t nq, uint32_t nkv, uint32_t hd, float inv_sqrt_d)
{
    extern __shared__ float qsa_shared[];
    __shared__ struct qsa_decode_shared shared[QSA_WARPS];
    __shared__ float maxima[2][QSA_WARPS], sums[2][QSA_WARPS];
    bool pairs = nq / nkv % 2 == 0 && (hd == 64 || hd == 128 || hd == 256);
    uint32_t first = pairs ? blockIdx.x / 2 * 2 : blockIdx.x;
    struct qsa_decode_args args = {
        q + (uint64_t)first * hd,
        qsa_cache_view(k_cache, v_cache, block_table, block_size, nkv, hd, first / (nq / nkv)),
        out + (uint64_t)first * hd,
        seq_len,
        blockIdx.x - first,
        inv_sqrt_d};

    if (!pairs)
        QSA_FOR_HD(qsa_decode_heads, 1, hd, &args, qsa_shared, shared, maxima, sums)
    else if (hd == 64)
        qsa_decode_heads<2, 2>(&args, qsa_shared, shared, maxima, sums);
    else if (hd == 128)
        qsa_decode_heads<2, 4>(&args, qsa_shared, shared, maxima, sums);
    else
        qsa_decode_heads<2, 8>(&args, qsa_shared, shared, maxima, sums);
}

#endif
