/* The device-side oracle of sparse attention: a selection as a mask, and dense attention under it.
 * Never a serving path. */
#ifndef ATTEST_KERNELS_DSA_MASKED_CUH
#define ATTEST_KERNELS_DSA_MASKED_CUH

#include "det_math.cuh"
#include "formats.cuh"

#define MASKED_THREADS 256
#define MASKED_WARPS (MASKED_THREADS / DET_WARP)
#define MASKED_GROUP 8 /* keys a warp scores at a time */
#define MASKED_DIMS 8  /* neighbouring channels of a lane, 16 bytes */
#define MASK_WORDS 256 /* of bits: a stretch of 8,192 tokens */

/* Sets the bits of the ids in [from, from + count), count at most 32 * MASK_WORDS. */
static __device__ __forceinline__ void mask_collect(uint32_t *bits, const int32_t *ids,
                                                    uint32_t width, uint32_t from, uint32_t count)
{
    for (uint32_t i = threadIdx.x; i < MASK_WORDS; i += MASKED_THREADS) bits[i] = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < width; i += MASKED_THREADS) {
        int32_t id = ids[i];

        if (id >= 0 && (uint32_t)id >= from && (uint32_t)id - from < count)
            atomicOr(&bits[((uint32_t)id - from) / 32], 1u << ((uint32_t)id - from) % 32);
    }
    __syncthreads();
}

/* Bits of four tokens as four bytes: copies of them at a distance of 7 put bit j at 8j. */
static __device__ __forceinline__ uint32_t mask_bytes(uint32_t four)
{
    return four * 0x00204081u & 0x01010101u;
}

/* mask[q, s] = 1 iff s is among the ids of row q; ids outside [0, S) are dropped, duplicates
 * collapse. One block a row. The ids of a stretch of the row set bits in shared memory, the bits
 * become bytes, four to a store where the row's address allows it. */
extern "C" __global__ void __launch_bounds__(MASKED_THREADS)
    dsa_topk_to_mask(const int32_t *topk, uint8_t *mask, uint32_t Q, uint32_t width, uint32_t S)
{
    __shared__ uint32_t bits[MASK_WORDS];
    const int32_t *ids = topk + (uint64_t)blockIdx.x * width;
    uint8_t *row = mask + (uint64_t)blockIdx.x * S;
    bool aligned = (uintptr_t)row % 4 == 0;

    for (uint32_t from = 0, count; from < S; from += count) {
        count = S - from < 32 * MASK_WORDS ? S - from : 32 * MASK_WORDS;
        mask_collect(bits, ids, width, from, count);
        for (uint32_t s = 4 * threadIdx.x; s < count; s += 4 * MASKED_THREADS) {
            uint32_t bytes = mask_bytes(bits[s / 32] >> s % 32 & 0xf);

            if (aligned && count - s >= 4)
                *(uint32_t *)(row + from + s) = bytes;
            else
                for (uint32_t j = 0; j < 4 && s + j < count; j++)
                    row[from + s + j] = (uint8_t)(bytes >> 8 * j);
        }
        __syncthreads();
    }
}

/* The mask of tokens first .. first + 31, token first + i in bit i; the same in every lane. */
static __device__ __forceinline__ uint32_t masked_bits(const uint8_t *mask, uint32_t first,
                                                       uint32_t S)
{
    uint32_t token = first + threadIdx.x % DET_WARP;

    return __ballot_sync(DET_FULL_MASK, token < S && mask[token] == 1);
}

/* Eight neighbouring channels from `at` on as floats, zeros from `dims` on. */
static __device__ __forceinline__ void masked_load(float out[MASKED_DIMS], const uint16_t *row,
                                                   uint32_t at, uint32_t dims, bool wide)
{
    if (wide) {
        uint4 raw = *(const uint4 *)(row + at);
        uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};

        for (int i = 0; i < 4; i++) {
            out[2 * i] = fmt_bf16_low(words[i]);
            out[2 * i + 1] = fmt_bf16_high(words[i]);
        }
        return;
    }
    for (uint32_t i = 0; i < MASKED_DIMS; i++)
        out[i] = at + i < dims ? fmt_bf16_to_f32(row[at + i]) : 0.0f;
}

/* Dot products with eight keys at once. Lane l takes channels 8l .. 8l + 7 of every 256; lanes 4j
 * .. 4j + 3 get the product with key j. */
static __device__ __forceinline__ float masked_dots(const uint16_t *q,
                                                    const uint16_t *const keys[MASKED_GROUP],
                                                    uint32_t qd, bool wide_q, bool wide_k)
{
    float sums[MASKED_GROUP] = {}, q_dims[MASKED_DIMS], dims[MASKED_DIMS];

    for (uint32_t at = threadIdx.x % DET_WARP * MASKED_DIMS; at < qd;
         at += DET_WARP * MASKED_DIMS) {
        masked_load(q_dims, q, at, qd, wide_q);
#pragma unroll
        for (int j = 0; j < MASKED_GROUP; j++) {
            masked_load(dims, keys[j], at, qd, wide_k);
            for (int i = 0; i < MASKED_DIMS; i++) sums[j] = fmaf(q_dims[i], dims[i], sums[j]);
        }
    }
    return det_tree32_many<MASKED_GROUP>(sums);
}

/* Scores of the masked-in keys of one row; the other entries of `scores` stay unwritten. Warp w
 * takes the 32 tokens from 32(w + 8i) on, eight masked-in keys at a time; a group that is not full
 * repeats its last key. */
static __device__ __forceinline__ void masked_scores(float *scores, const uint16_t *q,
                                                     const uint16_t *k, const uint8_t *mask,
                                                     uint32_t S, uint64_t key_stride, uint32_t qd,
                                                     float scale, bool round_bf16)
{
    bool wide_q = ((uintptr_t)q & 15u) == 0 && qd % MASKED_DIMS == 0;
    bool wide_k = ((uintptr_t)k & 15u) == 0 && qd % MASKED_DIMS == 0;
    uint32_t lane = threadIdx.x % DET_WARP, own = lane / (DET_WARP / MASKED_GROUP);

    for (uint32_t first = threadIdx.x / DET_WARP * DET_WARP; first < S; first += MASKED_THREADS) {
        for (uint32_t bits = masked_bits(mask, first, S); bits != 0;) {
            const uint16_t *keys[MASKED_GROUP];
            uint32_t token = first, own_token = first, count = 0;
            float score;

#pragma unroll
            for (uint32_t j = 0; j < MASKED_GROUP; j++) {
                if (bits != 0) token = first + (uint32_t)__ffs((int)bits) - 1, count++;
                bits &= bits - 1;
                keys[j] = k + token * key_stride;
                own_token = j == own ? token : own_token;
            }
            score = masked_dots(q, keys, qd, wide_q, wide_k) * scale;
            if (own < count && lane % (DET_WARP / MASKED_GROUP) == 0)
                scores[own_token] = round_bf16 ? fmt_bf16_to_f32(fmt_f32_to_bf16(score)) : score;
        }
    }
    __syncthreads();
}

/* Turns scores into weights exp(score - max) and returns their sum, the same in every warp; 0 where
 * the mask is empty, else at least 1 or NaN. */
static __device__ __forceinline__ float masked_weights(float *scores, const uint8_t *mask,
                                                       uint32_t S)
{
    uint32_t lane = threadIdx.x % DET_WARP;
    float top = -det_inf(), sum = 0.0f;

    for (uint32_t s = lane; s < S; s += DET_WARP) top = mask[s] == 1 ? fmaxf(top, scores[s]) : top;
    for (int step = DET_WARP / 2; step > 0; step /= 2)
        top = fmaxf(top, __shfl_xor_sync(DET_FULL_MASK, top, step));
    __syncthreads();
    for (uint32_t s = threadIdx.x; s < S; s += MASKED_THREADS)
        if (mask[s] == 1) scores[s] = det_exp_nonpos(scores[s] - top);
    __syncthreads();
    for (uint32_t s = lane; s < S; s += DET_WARP) sum = mask[s] == 1 ? sum + scores[s] : sum;
    return det_tree32(sum);
}

/* The weighted sums of channels `at` and `at` + 1 over the masked-in keys, in token order. `values`
 * is the head's part of token 0. Of 32 tokens all loads are under way before the first is used.
 * Warp-collective; `exists` says which of the two channels there are. */
static __device__ __forceinline__ void masked_values(float sums[2], const float *weights,
                                                     const uint16_t *values, const uint8_t *mask,
                                                     uint32_t S, uint64_t stride,
                                                     const bool exists[2], bool wide)
{
    sums[0] = sums[1] = 0.0f;
    for (uint32_t first = 0; first < S; first += DET_WARP) {
        uint32_t bits = masked_bits(mask, first, S), pairs[DET_WARP];

        if (bits == 0) continue;
#pragma unroll
        for (uint32_t t = 0; t < DET_WARP; t++) {
            const uint16_t *value = values + (first + t) * stride;

            pairs[t] = 0;
            if ((bits >> t & 1) == 0 || !exists[0]) continue;
            if (wide)
                pairs[t] = *(const uint32_t *)value;
            else
                pairs[t] = value[0] | (exists[1] ? (uint32_t)value[1] << 16 : 0);
        }
#pragma unroll
        for (uint32_t t = 0; t < DET_WARP; t++) {
            if ((bits >> t & 1) == 0) continue;
            sums[0] = fmaf(weights[first + t], fmt_bf16_low(pairs[t]), sums[0]);
            sums[1] = fmaf(weights[first + t], fmt_bf16_high(pairs[t]), sums[1]);
        }
    }
}

/* Dense attention over the keys with mask 1; one block per (row, head); dynamic shared memory: 4*S
 * bytes of scores. An empty mask gives zeros.
 *
 * A block reads the K and V of its head once, so memory is the limit; there may be fewer blocks
 * than multiprocessors, so each keeps many bytes in flight: eight keys a warp, then 32 tokens a
 * thread of two channels. At S = 12288 the scores fill the 48 KiB there are: nothing else is
 * shared.
 *
 * Error model, n = masked-in keys: dot product by f32 fma, 8 ceil(qd/256) in a lane and 5 roundings
 * in the tree; score = RN(dot * scale), then to bf16 if round_scores_bf16; weight = det_exp_nonpos(
 * RN(score - max)), at most 1 ulp; both sums any order of n terms in f32, the output's by fma; one
 * division; no rescales. */
extern "C" __global__ void __launch_bounds__(MASKED_THREADS)
    dsa_mla_masked_attn(const uint16_t *q, const uint16_t *k, const uint16_t *v,
                        const uint8_t *mask, float *out, uint32_t Q, uint32_t S, uint32_t H,
                        uint32_t qd, uint32_t vd, float scale, int32_t round_scores_bf16)
{
    extern __shared__ float masked_row[];
    uint32_t head = blockIdx.y;
    uint64_t row_head = (uint64_t)blockIdx.x * H + head;
    const uint8_t *row_mask = mask + (uint64_t)blockIdx.x * S;
    bool wide = ((uintptr_t)v & 3u) == 0 && vd % 2 == 0;
    float sum;

    masked_scores(masked_row, q + row_head * qd, k + (uint64_t)head * qd, row_mask, S,
                  (uint64_t)H * qd, qd, scale, round_scores_bf16 != 0);
    sum = masked_weights(masked_row, row_mask, S);
    /* A warp stays together: its first lane decides whether there is another turn. */
    for (uint32_t d = 2 * threadIdx.x; d - 2 * (threadIdx.x % DET_WARP) < vd;
         d += 2 * MASKED_THREADS) {
        const bool exists[2] = {d < vd, d + 1 < vd};
        float sums[2];

        masked_values(sums, masked_row, v + (uint64_t)head * vd + d, row_mask, S, (uint64_t)H * vd,
                      exists, wide);
        for (uint32_t i = 0; i < 2; i++)
            if (exists[i]) out[row_head * vd + d + i] = sum == 0.0f ? 0.0f : sums[i] / sum;
    }
}

#endif
