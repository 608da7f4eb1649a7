/* The DSA indexer (GLM-5.3): keys pooled by a gate, pool scores per query, the best pools and the
 * token ids they stand for. A pool is KP consecutive tokens from the first valid one on. */
#include "det_math.cuh"
#include "dsa_expand.cuh"
#include "dsa_geom.cuh"
#include "dsa_masked.cuh"
#include "dsa_score.cuh"
#include "dsa_topk.cuh"
#include "formats.cuh"

#define DSA_MAX_KPOOL 16
#define DSA_COMPRESS_THREADS 128

/* Tokens first .. first + KP - 1 of a pool; bit s of the result: slot s is in range and valid. */
static __device__ __forceinline__ uint32_t dsa_pool_slots(const uint8_t *valid, int64_t first,
                                                          uint32_t KP, uint32_t S)
{
    uint32_t slots = 0;

    for (uint32_t s = 0; s < KP; s++) {
        int64_t token = first + s;

        if (token >= 0 && token < (int64_t)S && valid[token] != 0) slots |= 1u << s;
    }
    return slots;
}

/* One channel of a pool key: softmax of gate + ape over the valid slots, times k. The logits, at
 * most 16, are formed twice rather than kept. */
static __device__ __forceinline__ float dsa_pool_channel(const uint16_t *k, const uint16_t *gate,
                                                         const float *ape, uint32_t slots,
                                                         uint32_t KP, uint32_t D)
{
    float top = -det_inf(), sum = 0.0f, acc = 0.0f;

    for (uint32_t s = 0; s < KP; s++)
        if ((slots >> s & 1) != 0)
            top = fmaxf(top, fmt_bf16_to_f32(gate[(uint64_t)s * D]) + ape[(uint64_t)s * D]);
    for (uint32_t s = 0; s < KP; s++) {
        float weight;

        if ((slots >> s & 1) == 0) continue;
        weight =
            det_exp_nonpos(fmt_bf16_to_f32(gate[(uint64_t)s * D]) + ape[(uint64_t)s * D] - top);
        sum += weight;
        acc = fmaf(weight, fmt_bf16_to_f32(k[(uint64_t)s * D]), acc);
    }
    return slots == 0 ? 0.0f : acc / sum;
}

/* One block a pool. Writes its key, the token id of each slot (-1: out of range or invalid) and
 * whether all slots are valid. A pool without a valid slot has key 0.
 *
 * Error model, n <= KP valid slots: logit = RN(gate + ape); weight = det_exp_nonpos(RN(logit -
 * max)), at most 1 ulp; sums of n terms in order, the key's by fma; one division; no rescales. */
extern "C" __global__ void __launch_bounds__(DSA_COMPRESS_THREADS)
    dsa_kpool_compress(const uint16_t *k, const uint16_t *gate, const uint8_t *valid,
                       const float *ape, float *pool_keys, int32_t *pool_indices,
                       uint8_t *pool_valid, uint32_t S, uint32_t D, uint32_t KP, int32_t first_key,
                       const int32_t *geom)
{
    uint32_t pool = blockIdx.x, keys = geom != NULL ? (uint32_t)geom[DSA_GEOM_KEYS] : S, slots;
    int64_t first = (int64_t)first_key + (int64_t)pool * KP;

    if (geom != NULL && pool >= (uint32_t)geom[DSA_GEOM_POOLS]) return;
    slots = dsa_pool_slots(valid, first, KP, keys);
    for (uint32_t d = threadIdx.x; d < D; d += DSA_COMPRESS_THREADS)
        pool_keys[(uint64_t)pool * D + d] =
            dsa_pool_channel(k + first * D + d, gate + first * D + d, ape + d, slots, KP, D);
    if (threadIdx.x < KP)
        pool_indices[(uint64_t)pool * KP + threadIdx.x] =
            (slots >> threadIdx.x & 1) != 0 ? (int32_t)(first + threadIdx.x) : -1;
    if (threadIdx.x == 0) pool_valid[pool] = slots == (1u << KP) - 1;
}
