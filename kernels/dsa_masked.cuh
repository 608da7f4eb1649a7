/* The device-side oracle of sparse attention: a selection as a mask, and dense attention under it.
 * Never a serving path. */
#ifndef ATTEST_KERNELS_DSA_MASKED_CUH
#define ATTEST_KERNELS_DSA_MASKED_CUH

#include "det_math.cuh"
#include "formats.cuh"

#define MASKED_THREADS 256
#define MASKED_WARPS (MASKED_THREADS / DET_WARP)
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

/* Scores of the masked-in keys of one row; the other entries of `scores` stay unwritten. */
static __device__ __forceinline__ void masked_scores(float *scores, const uint16_t *q,
                                                     const uint16_t *k, const uint8_t *mask,
                                                     uint32_t S, uint64_t key_stride, uint32_t qd,
                                                     float scale, bool round_bf16)
{
    uint32_t lane = threadIdx.x % DET_WARP;

    for (uint32_t s = threadIdx.x / DET_WARP; s < S; s += MASKED_WARPS) {
        const uint16_t *key = k + s * key_stride;
        float sum = 0.0f;

        if (mask[s] != 1) continue;
        for (uint32_t d = lane; d < qd; d += DET_WARP)
            sum = fmaf(fmt_bf16_to_f32(q[d]), fmt_bf16_to_f32(key[d]), sum);
        sum = det_tree32(sum) * scale;
        if (lane == 0) scores[s] = round_bf16 ? fmt_bf16_to_f32(fmt_f32_to_bf16(sum)) : sum;
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

/* Dense attention over the keys with mask 1; one block per (row, head); dynamic shared memory: 4*S
 * bytes of scores. An empty mask gives zeros.
 *
 * Error model, n = masked-in keys: dot product by f32 fma, ceil(qd/32) in a lane and 5 roundings in
 * the tree; score = RN(dot * scale), then to bf16 if round_scores_bf16; weight = det_exp_nonpos(
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
    float sum;

    masked_scores(masked_row, q + row_head * qd, k + (uint64_t)head * qd, row_mask, S,
                  (uint64_t)H * qd, qd, scale, round_scores_bf16 != 0);
    sum = masked_weights(masked_row, row_mask, S);
    for (uint32_t d = threadIdx.x; d < vd; d += MASKED_THREADS) {
        float acc = 0.0f;

        for (uint32_t s = 0; s < S; s++)
            if (row_mask[s] == 1)
                acc =
                    fmaf(masked_row[s], fmt_bf16_to_f32(v[((uint64_t)s * H + head) * vd + d]), acc);
        out[row_head * vd + d] = sum == 0.0f ? 0.0f : acc / sum;
    }
}

#endif
