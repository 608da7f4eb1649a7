/* FP8 sparse MLA decode by hand-written PTX, for the production interface (docs/ops.md, decode):
 * tiles of 16 selected tokens come in by cp.async, keys first and values while the scores are
 * computed; both are widened to bf16 in shared memory, read by ldmatrix and multiplied by
 * mma.sync, scores as K q and values as V^T p, with one column of the product in use. The softmax
 * is online, a tile at a time, with weights rounded to bf16.
 *
 * Eight warps share the 512 channels: each sums its 64 of the scores and owns its 64 of the output.
 * Error model: tensor_core=1,p_bf16=1. */
#include <cuda_bf16.h>
#include <stdint.h>

namespace ptx_decode {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kLatent = 512, kTile = 16, kPart = kLatent / kWarps;
constexpr int kPitch = kLatent + 8; /* eight rows of a matrix lie in different banks */

struct Shared {
    alignas(16) uint8_t keys[kTile][kLatent];
    alignas(16) uint8_t values[kTile][kLatent];
    alignas(16) __nv_bfloat16 wide[kTile][kPitch];
    float partial[kWarps][kTile];
};

struct Tokens {
    const uint8_t *bytes;
    const int *table;
    unsigned block_size;
    uint64_t token_bytes, page_bytes;

    __device__ const uint8_t *at(int t) const
    {
        return bytes + (uint64_t)table[t / block_size] * page_bytes + t % block_size * token_bytes;
    }
};

__device__ __forceinline__ uint32_t smem(const void *pointer)
{
    uint32_t address;
    asm("{\n\t.reg .u64 wide;\n\t"
        "cvta.to.shared.u64 wide, %1;\n\t"
        "cvt.u32.u64 %0, wide;\n\t}"
        : "=r"(address)
        : "l"(pointer));
    return address;
}

__device__ __forceinline__ uint32_t lane_id()
{
    uint32_t lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}

template <int kPending> __device__ __forceinline__ void wait_copies()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
    __syncthreads();
}

/* Starts copying the tile's tokens, zeros in place of holes; ids are -1 there. */
__device__ __forceinline__ void copy_tile(uint8_t (*to)[kLatent], const Tokens &from,
                                          const int *ids, unsigned n, int length)
{
    for (int i = threadIdx.x; i < kTile * kLatent / 16; i += kThreads) {
        unsigned row = i / (kLatent / 16), column = i % (kLatent / 16) * 16;
        int t = row < n ? ids[row] : -1;
        bool wanted = t >= 0 && t < length;
        const uint8_t *source = wanted ? from.at(t) + column : from.bytes;
        asm volatile("{\n\t.reg .pred p;\n\t.reg .u32 bytes;\n\t"
                     "setp.ne.b32 p, %2, 0;\n\t"
                     "selp.u32 bytes, 16, 0, p;\n\t"
                     "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, bytes;\n\t}"
                     ::"r"(smem(&to[row][column])), "l"(source), "r"((int)wanted)
                     : "memory");
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Two e4m3 to two bf16: exact, by way of f16. */
__device__ __forceinline__ uint32_t widen2(uint16_t pair)
{
    uint32_t result;
    asm("{\n\t.reg .b32 halves;\n\t.reg .b16 low, high;\n\t.reg .f32 a, b;\n\t"
        "cvt.rn.f16x2.e4m3x2 halves, %1;\n\t"
        "mov.b32 {low, high}, halves;\n\t"
        "cvt.f32.f16 a, low;\n\t"
        "cvt.f32.f16 b, high;\n\t"
        "cvt.rn.bf16x2.f32 %0, b, a;\n\t}"
        : "=r"(result)
        : "h"(pair));
    return result;
}

__device__ __forceinline__ void widen_tile(__nv_bfloat16 (*to)[kPitch], uint8_t (*from)[kLatent])
{
    for (int i = threadIdx.x; i < kTile * kLatent / 8; i += kThreads) {
        int row = i / (kLatent / 8), column = i % (kLatent / 8) * 8;
        uint32_t low, high, out[4];
        asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                     : "=r"(low), "=r"(high)
                     : "r"(smem(&from[row][column])));
        out[0] = widen2((uint16_t)low), out[1] = widen2((uint16_t)(low >> 16));
        out[2] = widen2((uint16_t)high), out[3] = widen2((uint16_t)(high >> 16));
        asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(smem(&to[row][column])),
                     "r"(out[0]), "r"(out[1]), "r"(out[2]), "r"(out[3])
                     : "memory");
    }
    __syncthreads();
}

__device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* The warp's part of the 16 scores. Only column 0 of the right factor holds the query: lanes 0 to
 * 3. */
__device__ __forceinline__ void score_tile(Shared &s, const uint32_t (&query)[kPart / 16][2],
                                           uint32_t warp, uint32_t lane)
{
    float d[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int step = 0; step < kPart / 16; step++) {
        uint32_t a[4];
        uint32_t row = smem(&s.wide[lane % 16][warp * kPart + step * 16 + lane / 16 * 8]);
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                     : "r"(row));
        mma(d, a, query[step][0], query[step][1]);
    }
    if (lane % 4 == 0) {
        s.partial[warp][lane / 4] = d[0];
        s.partial[warp][lane / 4 + 8] = d[2];
    }
}

/* Over the lower 16 lanes, which hold a token each; the upper ones mirror them. */
__device__ __forceinline__ float max16(float x)
{
    for (int step = 8; step > 0; step /= 2) {
        float other;
        asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;"
                     : "=f"(other)
                     : "f"(x), "r"(step));
        asm("max.f32 %0, %0, %1;" : "+f"(x) : "f"(other));
    }
    return x;
}

__device__ __forceinline__ float exp_of(float x)
{
    float result;
    asm("{\n\t.reg .f32 t;\n\t"
        "mul.f32 t, %1, 0f3FB8AA3B;\n\t" /* log2(e) */
        "ex2.approx.f32 %0, t;\n\t}"
        : "=f"(result)
        : "f"(x));
    return result;
}

/* The softmax so far, kept alike by every warp: lane i of 16 sums the weights of tokens i. */
struct Softmax {
    float best, total;

    /* This lane's weight for the tile's token lane % 16; *rescale is for what was summed before. */
    __device__ float weight(float score, bool attended, float *rescale)
    {
        float tile_best = max16(attended ? score : -INFINITY);
        float next = fmaxf(best, tile_best);
        *rescale = next == -INFINITY ? 1.0f : exp_of(best - next);
        float w = attended ? exp_of(score - next) : 0.0f;
        best = next;
        total = total * *rescale + w;
        return w;
    }
};

/* out += V^T p for the warp's channels. */
__device__ __forceinline__ void add_values(Shared &s, float (&sum)[kPart / 16][4], uint32_t p,
                                           float rescale, uint32_t warp, uint32_t lane)
{
    /* Lane l % 4 of the first four has weights 2l, 2l + 1 and 2l + 8, 2l + 9 of the column. */
    uint32_t low = __shfl_sync(0xffffffffu, p, 2 * (lane % 4));
    uint32_t high = __shfl_sync(0xffffffffu, p, 2 * (lane % 4) + 8);
    uint32_t low2 = __shfl_sync(0xffffffffu, p, 2 * (lane % 4) + 1);
    uint32_t high2 = __shfl_sync(0xffffffffu, p, 2 * (lane % 4) + 9);
    uint32_t b0 = 0, b1 = 0;
    if (lane < 4) {
        asm("prmt.b32 %0, %1, %2, 0x5410;" : "=r"(b0) : "r"(low), "r"(low2));
        asm("prmt.b32 %0, %1, %2, 0x5410;" : "=r"(b1) : "r"(high), "r"(high2));
    }
    for (int step = 0; step < kPart / 16; step++) {
        uint32_t a[4];
        uint32_t row = smem(&s.wide[lane % 8 + lane / 16 * 8]
                                   [warp * kPart + step * 16 + lane / 8 % 2 * 8]);
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                     : "r"(row));
        for (int i = 0; i < 4; i++) sum[step][i] *= rescale;
        mma(sum[step], a, b0, b1);
    }
}

__device__ __forceinline__ uint32_t to_bf16(float x)
{
    uint16_t result;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result) : "f"(x));
    return result;
}

__device__ void decode(Shared &s, const __nv_bfloat16 *query_row, const Tokens &keys,
                       const Tokens &values, const int *selected, unsigned width, int length,
                       float score_scale, float value_scale, __nv_bfloat16 *out)
{
    uint32_t lane = lane_id(), warp = threadIdx.x / 32;
    uint32_t query[kPart / 16][2] = {};
    float sum[kPart / 16][4] = {};
    Softmax softmax = {-INFINITY, 0.0f};

    if (lane < 4)
        for (int step = 0; step < kPart / 16; step++)
            for (int half = 0; half < 2; half++)
                asm("ld.global.nc.b32 %0, [%1];"
                    : "=r"(query[step][half])
                    : "l"(query_row + warp * kPart + step * 16 + half * 8 + 2 * lane));

    for (unsigned tile = 0; tile < width; tile += kTile) {
        unsigned n = min(width - tile, (unsigned)kTile);
        copy_tile(s.keys, keys, selected + tile, n, length);
        copy_tile(s.values, values, selected + tile, n, length);
        wait_copies<1>();
        widen_tile(s.wide, s.keys);
        score_tile(s, query, warp, lane);
        wait_copies<0>();
        widen_tile(s.wide, s.values);

        unsigned token = lane % kTile;
        int t = token < n ? selected[tile + token] : -1;
        float score = 0.0f, rescale;
        for (int w = 0; w < kWarps; w++) score += s.partial[w][token];
        float p = softmax.weight(score * score_scale, t >= 0 && t < length, &rescale);
        add_values(s, sum, to_bf16(p), rescale, warp, lane);
    }

    float total = softmax.total;
    for (int step = 8; step > 0; step /= 2) total += __shfl_xor_sync(0xffffffffu, total, step);
    /* Nothing attended: total is 0 and the row is zeros. A NaN total stays NaN. */
    float factor = total == 0.0f ? 0.0f : value_scale / total;
    if (lane % 4 != 0) return;
    for (int step = 0; step < kPart / 16; step++)
        for (int half = 0; half < 2; half++)
            out[warp * kPart + step * 16 + half * 8 + lane / 4] =
                __float2bfloat16(sum[step][2 * half] * factor);
}

} /* namespace ptx_decode */

extern "C" __global__ void __launch_bounds__(256)
    glm5next_dsa_mla_decode_fp8(const __nv_bfloat16 *q, const unsigned char *k_cache,
                                const unsigned char *v_cache, __nv_bfloat16 *out,
                                const int *block_tables, const int *seq_lens,
                                const int *sel_indices, unsigned width, unsigned max_blocks_per_seq,
                                unsigned num_q_heads, unsigned num_kv_heads, unsigned kv_lora_rank,
                                unsigned block_size, float scale, float k_scale, float v_scale,
                                unsigned long long cache_stride_bytes)
{
    using namespace ptx_decode;
    __shared__ Shared shared;
    size_t seq = blockIdx.y, row = (seq * num_q_heads + blockIdx.x) * kLatent;
    const int *table = block_tables + seq * max_blocks_per_seq;
    uint64_t token_bytes = (uint64_t)num_kv_heads * kv_lora_rank;
    Tokens keys = {k_cache, table, block_size, token_bytes, cache_stride_bytes};
    Tokens values = {v_cache, table, block_size, token_bytes, cache_stride_bytes};

    decode(shared, q + row, keys, values, sel_indices + seq * width, width, seq_lens[seq],
           scale * k_scale, v_scale, out + row);
}
