/* FP8 sparse MLA decode in another style than the project's kernel, for the same production
 * interface (docs/ops.md, decode): first the maximum over all selected tokens, then weights and
 * values tile by tile with the final maximum known, so that nothing is ever rescaled. The query-key
 * products are computed twice for it.
 *
 * A warp takes a token, a lane 16 neighbouring channels; in the value sum a thread takes two. */
#include <cuda_bf16.h>
#include <cuda_fp8.h>

namespace two_pass {

constexpr unsigned kFull = 0xffffffffu;

struct Cache {
    const unsigned char *bytes;
    const int *table;
    unsigned block_size;
    unsigned long long token_bytes, page_bytes;

    __device__ const unsigned char *token(int t) const
    {
        unsigned long long page = (unsigned long long)table[t / block_size];
        return bytes + page * page_bytes + t % block_size * token_bytes;
    }
};

template <int kLatent> struct Query {
    static constexpr int kPerLane = kLatent / 32;
    float value[kPerLane];

    __device__ Query(const __nv_bfloat16 *row, int lane)
    {
        const __nv_bfloat162 *pairs = reinterpret_cast<const __nv_bfloat162 *>(row);
        for (int i = 0; i < kPerLane / 2; i++) {
            float2 two = __bfloat1622float2(pairs[lane * (kPerLane / 2) + i]);
            value[2 * i] = two.x;
            value[2 * i + 1] = two.y;
        }
    }

    /* The whole warp's dot with one key; every lane gets it. */
    __device__ float dot(const unsigned char *key, int lane) const
    {
        uint4 packed = *reinterpret_cast<const uint4 *>(key + lane * kPerLane);
        const __nv_fp8_e4m3 *k = reinterpret_cast<const __nv_fp8_e4m3 *>(&packed);
        float even = 0.0f, odd = 0.0f;
        for (int i = 0; i < kPerLane; i += 2) {
            even = fmaf(value[i], float(k[i]), even);
            odd = fmaf(value[i + 1], float(k[i + 1]), odd);
        }
        float sum = even + odd;
        for (int step = 1; step < 32; step *= 2) sum += __shfl_xor_sync(kFull, sum, step);
        return sum;
    }
};

template <int kWarps> __device__ float block_max(float mine, int warp, int lane)
{
    __shared__ float best[kWarps];
    if (lane == 0) best[warp] = mine;
    __syncthreads();
    float all = best[lane % kWarps];
    for (int step = 1; step < kWarps; step *= 2)
        all = fmaxf(all, __shfl_xor_sync(kFull, all, step));
    return all;
}

template <int kLatent, int kThreads>
__device__ void decode(const __nv_bfloat16 *query_row, const Cache &keys, const Cache &values,
                       const int *selected, unsigned width, int length, float score_scale,
                       float value_scale, __nv_bfloat16 *out)
{
    static_assert(kLatent == 2 * kThreads, "a thread sums two channels");
    static_assert(kLatent == 32 * sizeof(uint4), "a lane reads one vector of a key");
    constexpr int kWarps = kThreads / 32;
    __shared__ float weight[kThreads];
    int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    Query<kLatent> query(query_row, lane);

    float best = -INFINITY;
    for (unsigned i = warp; i < width; i += kWarps) {
        int t = selected[i];
        if (t < 0 || t >= length) continue;
        best = fmaxf(best, query.dot(keys.token(t), lane) * score_scale);
    }
    best = block_max<kWarps>(best, warp, lane);

    float2 sum = {0.0f, 0.0f};
    float total = 0.0f;
    for (unsigned tile = 0; tile < width; tile += kThreads) {
        unsigned end = min(width, tile + kThreads);
        for (unsigned i = tile + warp; i < end; i += kWarps) {
            int t = selected[i];
            if (t < 0 || t >= length) continue;
            float w = __expf(query.dot(keys.token(t), lane) * score_scale - best);
            if (lane == 0) weight[i - tile] = w;
        }
        __syncthreads();
        for (unsigned i = tile; i < end; i++) {
            int t = selected[i];
            if (t < 0 || t >= length) continue;
            const unsigned char *v = values.token(t) + 2 * thread;
            float2 two = float2(*reinterpret_cast<const __nv_fp8x2_e4m3 *>(v));
            float w = weight[i - tile];
            sum.x = fmaf(w, two.x, sum.x);
            sum.y = fmaf(w, two.y, sum.y);
            total += w;
        }
        __syncthreads();
    }

    /* Nothing attended: total is 0 and the row is zeros. A NaN total stays NaN. */
    float factor = total == 0.0f ? 0.0f : value_scale / total;
    reinterpret_cast<__nv_bfloat162 *>(out)[thread] =
        __floats2bfloat162_rn(sum.x * factor, sum.y * factor);
}

} /* namespace two_pass */

extern "C" __global__ void __launch_bounds__(256)
    glm5next_dsa_mla_decode_fp8(const __nv_bfloat16 *q, const unsigned char *k_cache,
                                const unsigned char *v_cache, __nv_bfloat16 *out,
                                const int *block_tables, const int *seq_lens,
                                const int *sel_indices, unsigned width, unsigned max_blocks_per_seq,
                                unsigned num_q_heads, unsigned num_kv_heads, unsigned kv_lora_rank,
                                unsigned block_size, float scale, float k_scale, float v_scale,
                                unsigned long long cache_stride_bytes)
{
    size_t seq = blockIdx.y, row = seq * num_q_heads + blockIdx.x;
    const int *table = block_tables + seq * max_blocks_per_seq;
    unsigned long long token_bytes = (unsigned long long)num_kv_heads * kv_lora_rank;
    two_pass::Cache keys = {k_cache, table, block_size, token_bytes, cache_stride_bytes};
    two_pass::Cache values = {v_cache, table, block_size, token_bytes, cache_stride_bytes};

    two_pass::decode<512, 256>(q + row * kv_lora_rank, keys, values, sel_indices + seq * width,
                               width, seq_lens[seq], scale * k_scale, v_scale,
                               out + row * kv_lora_rank);
}
