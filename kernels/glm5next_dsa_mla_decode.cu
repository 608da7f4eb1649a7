/* Sparse MLA decode over FP8 latents (GLM-5.3): one block of 256 threads per (head, sequence).
 *
 *   T = {t in the selection row : 0 <= t < seq_len}
 *   score_t = scale * k_scale * (q . k_t),  out = v_scale * sum_t softmax(score)_t v_t
 *
 * The latent is the whole token: 512 E4M3 values, one 16-byte load for each lane of a warp. The row
 * is a set with holes anywhere; its ids are unique (the launcher refuses duplicates). The block
 * first turns the row into a dense list of byte offsets in row order, so holes cost nothing later
 * and where they lie cannot change a bit of the result. Warp w then takes keys 4(w + 8i) .. +3 of
 * that list, with a running maximum, sum and output of its own, and the eight warps are merged at
 * the end. Only selected tokens and only the block-table entries of selected tokens are read.
 * An empty T gives zeros. k_cache and v_cache may be one buffer: then each latent is read and
 * decoded once. q, out and the caches are 16-byte aligned; the page pitch is a multiple of 16.
 *
 * Error model, n = attended keys (numerics 5.1, 5.8):
 *   dot product       f32 fma, any leaf passes at most 21 roundings: 16 in a lane's chain and 5 in
 *                     the tree over lanes; the products are not rounded by themselves
 *   score             c = RN(scale * k_scale), score = RN(c * dot): 2 roundings
 *   exponential       det_exp_nonpos(RN(score - max)), at most 1 ulp, exp(0) = 1 exactly; the base
 *                     is e, so the argument takes one rounding (the subtraction) and no product
 *   P                 stays f32
 *   sums              f32 fma; a key's weight enters the output with the fma that adds it
 *   rescales          a warp rescales at most once for each of its groups of 4 keys after the
 *                     first, and only if its maximum grew. It has at most ceil(n/32) groups, so a
 *                     key passes at most ceil(n/32) - 1 rescales there and 1 in the merge:
 *                     R <= ceil(n/32) < n/32 + 1, i.e. rescales_per_key = 1/32, rescales_fixed = 1
 *   end               one division, one multiplication by v_scale, then bf16 to nearest even */
#include "det_math.cuh"
#include "formats.cuh"

#define MLA_LATENT 512
#define MLA_THREADS 256
#define MLA_WARPS (MLA_THREADS / DET_WARP)
#define MLA_LANE_DIMS (MLA_LATENT / DET_WARP)
#define MLA_GROUP 4                       /* keys a warp has in flight */
#define MLA_ROUND (MLA_GROUP * MLA_WARPS) /* keys all warps take in one turn */
#define MLA_IDS_PER_THREAD 9
#define MLA_CHUNK (MLA_THREADS * MLA_IDS_PER_THREAD) /* row ids listed at a time, >= 2051 */

union mla_shared {
    uint64_t offsets[MLA_CHUNK + MLA_ROUND]; /* bytes from the cache's start to the token */
    float partial[MLA_WARPS][MLA_LATENT];
};

struct mla_row {
    const int32_t *selection, *block_table;
    uint32_t width, seq_len, block_size, token_stride;
    uint64_t page_stride;
};

struct mla_state {
    float q[MLA_LANE_DIMS], acc[MLA_LANE_DIMS];
    float max, sum; /* sum: over the keys of this lane's quarter of each group */
};

static __device__ __forceinline__ uint64_t mla_token_offset(const struct mla_row *row, uint32_t id)
{
    uint32_t page = id / row->block_size, slot = id - page * row->block_size;

    return (uint64_t)(uint32_t)row->block_table[page] * row->page_stride +
           (uint64_t)slot * row->token_stride;
}

/* Appends the valid ids among row positions first .. first + MLA_CHUNK - 1 to the list, in row
 * order. Returns the new length of the list. Two barriers; the list is complete after them. */
static __device__ __forceinline__ uint32_t mla_list_chunk(uint64_t *offsets, uint32_t *warp_counts,
                                                          const struct mla_row *row, uint32_t first,
                                                          uint32_t listed)
{
    uint32_t warp = threadIdx.x / DET_WARP, lane = threadIdx.x % DET_WARP, mine = 0;
    uint32_t left = row->width - first, total = listed;
    int32_t ids[MLA_IDS_PER_THREAD];

#pragma unroll
    for (int i = 0; i < MLA_IDS_PER_THREAD; i++) {
        uint32_t index = (warp * MLA_IDS_PER_THREAD + i) * DET_WARP + lane;

        ids[i] = index < left ? row->selection[(uint64_t)first + index] : -1;
        mine += __popc(__ballot_sync(DET_FULL_MASK, (uint32_t)ids[i] < row->seq_len));
    }
    if (lane == 0)
        warp_counts[warp] = mine;
    __syncthreads();
    for (uint32_t w = 0; w < MLA_WARPS; w++) {
        listed += w < warp ? warp_counts[w] : 0;
        total += warp_counts[w];
    }
#pragma unroll
    for (int i = 0; i < MLA_IDS_PER_THREAD; i++) {
        bool keep = (uint32_t)ids[i] < row->seq_len;
        uint32_t kept = __ballot_sync(DET_FULL_MASK, keep);

        if (keep)
            offsets[listed + __popc(kept & ((1u << lane) - 1))] =
                mla_token_offset(row, (uint32_t)ids[i]);
        listed += __popc(kept);
    }
    __syncthreads();
    return total;
}

static __device__ __forceinline__ void mla_decode_latent(const uint4 raw, float dims[MLA_LANE_DIMS])
{
    fmt_e4m3x4_to_f32(raw.x, dims);
    fmt_e4m3x4_to_f32(raw.y, dims + 4);
    fmt_e4m3x4_to_f32(raw.z, dims + 8);
    fmt_e4m3x4_to_f32(raw.w, dims + 12);
}

static __device__ __forceinline__ float mla_lane_dot(const float q[MLA_LANE_DIMS],
                                                     const float k[MLA_LANE_DIMS])
{
    float sum = q[0] * k[0];

#pragma unroll
    for (int i = 1; i < MLA_LANE_DIMS; i++)
        sum = fmaf(q[i], k[i], sum);
    return sum;
}

/* Raises the running maximum to cover the group's scores and returns this lane's weight. */
static __device__ __forceinline__ float mla_group_weight(struct mla_state *state, float score)
{
    float top = fmaxf(score, __shfl_xor_sync(DET_FULL_MASK, score, 8)), weight;

    top = fmaxf(top, __shfl_xor_sync(DET_FULL_MASK, top, 16));
    top = fmaxf(top, state->max);
    if (top != state->max) {
        float shrink = det_exp_nonpos(state->max - top);

#pragma unroll
        for (int i = 0; i < MLA_LANE_DIMS; i++)
            state->acc[i] *= shrink;
        state->sum *= shrink;
        state->max = top;
    }
    weight = det_exp_nonpos(score - top);
    state->sum += weight;
    return weight;
}

/* Attends list entries 0 .. count-1; the list is padded to a multiple of MLA_GROUP with tokens of
 * the row, whose weight here is zero. */
template <bool one_cache>
static __device__ __forceinline__ void mla_attend(struct mla_state *state, const uint8_t *k_cache,
                                                  const uint8_t *v_cache, const uint64_t *offsets,
                                                  uint32_t count, float score_scale)
{
    uint32_t lane = threadIdx.x % DET_WARP;
    const uint8_t *k_lane = k_cache + lane * sizeof(uint4);
    const uint8_t *v_lane = v_cache + lane * sizeof(uint4);

    for (uint32_t group = threadIdx.x / DET_WARP * MLA_GROUP; group < count; group += MLA_ROUND) {
        uint4 raw[MLA_GROUP], raw_v[MLA_GROUP];
        float dims[MLA_GROUP][MLA_LANE_DIMS], parts[MLA_GROUP], score, weight;

#pragma unroll
        for (int j = 0; j < MLA_GROUP; j++)
            raw[j] = *(const uint4 *)(k_lane + offsets[group + j]);
#pragma unroll
        for (int j = 0; j < MLA_GROUP && !one_cache; j++)
            raw_v[j] = *(const uint4 *)(v_lane + offsets[group + j]);
#pragma unroll
        for (int j = 0; j < MLA_GROUP; j++) {
            mla_decode_latent(raw[j], dims[j]);
            parts[j] = mla_lane_dot(state->q, dims[j]);
        }
        score = det_tree32x4(parts, lane) * score_scale;
        if (group + lane / 8 >= count)
            score = -det_inf();
        weight = mla_group_weight(state, score);
#pragma unroll
        for (int j = 0; j < MLA_GROUP; j++) {
            float share = __shfl_sync(DET_FULL_MASK, weight, j * 8);

            if (!one_cache)
                mla_decode_latent(raw_v[j], dims[j]);
#pragma unroll
            for (int i = 0; i < MLA_LANE_DIMS; i++)
                state->acc[i] = fmaf(share, dims[j][i], state->acc[i]);
        }
    }
}

/* Lists the row in chunks and attends it. Between chunks only whole rounds are taken and the rest
 * moves to the front, so chunks do not show in the result. Returns the number of attended keys. */
template <bool one_cache>
static __device__ __forceinline__ uint32_t mla_attend_row(struct mla_state *state,
                                                          uint64_t *offsets, uint32_t *warp_counts,
                                                          const struct mla_row *row,
                                                          const uint8_t *k_cache,
                                                          const uint8_t *v_cache, float score_scale)
{
    uint32_t attended = 0, listed = 0;

    for (uint32_t first = 0; first < row->width; first += MLA_CHUNK) {
        bool last = row->width - first <= MLA_CHUNK;
        uint32_t ready;

        listed = mla_list_chunk(offsets, warp_counts, row, first, listed);
        ready = last ? listed : listed / MLA_ROUND * MLA_ROUND;
        if (last && threadIdx.x < (0u - listed) % MLA_GROUP)
            offsets[listed + threadIdx.x] = offsets[listed - 1];
        __syncthreads();
        mla_attend<one_cache>(state, k_cache, v_cache, offsets, ready, score_scale);
        __syncthreads();
        attended += ready;
        listed -= ready;
        if (last)
            break;
        if (ready != 0 && threadIdx.x < listed)
            offsets[threadIdx.x] = offsets[ready + threadIdx.x];
    }
    return attended;
}

static __device__ __forceinline__ void mla_load_query(struct mla_state *state, const uint16_t *q)
{
    const uint4 *lane_q = (const uint4 *)(q + threadIdx.x % DET_WARP * MLA_LANE_DIMS);

#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint4 raw = lane_q[half];
        uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};

#pragma unroll
        for (int i = 0; i < 4; i++) {
            state->q[half * 8 + 2 * i] = fmt_bf16_low(words[i]);
            state->q[half * 8 + 2 * i + 1] = fmt_bf16_high(words[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < MLA_LANE_DIMS; i++)
        state->acc[i] = 0.0f;
    state->max = -det_inf();
    state->sum = 0.0f;
}

/* Merges the warps that had keys (warp w had some iff attended > 4w) and writes the row. */
static __device__ __forceinline__ void mla_store_row(struct mla_state *state,
                                                     float (*partial)[MLA_LATENT], float *warp_max,
                                                     float *warp_sum, uint32_t attended,
                                                     float v_scale, uint16_t *out)
{
    uint32_t warp = threadIdx.x / DET_WARP, lane = threadIdx.x % DET_WARP;
    uint32_t live = (attended + MLA_GROUP - 1) / MLA_GROUP;
    float sum = state->sum + __shfl_xor_sync(DET_FULL_MASK, state->sum, 8);
    float top = -det_inf(), below = 0.0f, even = 0.0f, odd = 0.0f;

    sum += __shfl_xor_sync(DET_FULL_MASK, sum, 16);
    for (int i = 0; i < MLA_LANE_DIMS; i++)
        partial[warp][lane * MLA_LANE_DIMS + i] = state->acc[i];
    if (lane == 0) {
        warp_max[warp] = state->max;
        warp_sum[warp] = sum;
    }
    __syncthreads();
    live = live < MLA_WARPS ? live : MLA_WARPS;
    for (uint32_t w = 0; w < live; w++)
        top = fmaxf(top, warp_max[w]);
    for (uint32_t w = 0; w < live; w++) {
        float factor = det_exp_nonpos(warp_max[w] - top);

        below = fmaf(factor, warp_sum[w], below);
        even = fmaf(factor, partial[w][2 * threadIdx.x], even);
        odd = fmaf(factor, partial[w][2 * threadIdx.x + 1], odd);
    }
    ((uint32_t *)out)[threadIdx.x] =
        live == 0 ? 0 : fmt_f32_to_bf16x2(even / below * v_scale, odd / below * v_scale);
}

extern "C" __global__ void __launch_bounds__(MLA_THREADS, 2)
glm5next_dsa_mla_decode_fp8(const uint16_t *q, const uint8_t *k_cache, const uint8_t *v_cache,
                            uint16_t *out, const int32_t *block_tables, const int32_t *seq_lens,
                            const int32_t *sel_indices, uint32_t width,
                            uint32_t max_blocks_per_seq, uint32_t num_q_heads,
                            uint32_t num_kv_heads, uint32_t kv_lora_rank, uint32_t block_size,
                            float scale, float k_scale, float v_scale, uint64_t cache_stride_bytes)
{
    __shared__ union mla_shared shared;
    __shared__ uint32_t warp_counts[MLA_WARPS];
    __shared__ float warp_max[MLA_WARPS], warp_sum[MLA_WARPS];
    uint32_t head = blockIdx.x, seq = blockIdx.y, attended;
    uint64_t latent = ((uint64_t)seq * num_q_heads + head) * MLA_LATENT;
    int32_t seq_len = seq_lens[seq];
    struct mla_state state;
    struct mla_row row;

    row.selection = sel_indices + (uint64_t)seq * width;
    row.block_table = block_tables + (uint64_t)seq * max_blocks_per_seq;
    row.width = width;
    row.seq_len = seq_len > 0 ? (uint32_t)seq_len : 0;
    row.block_size = block_size;
    row.token_stride = num_kv_heads * kv_lora_rank;
    row.page_stride = cache_stride_bytes;
    mla_load_query(&state, q + latent);
    attended = k_cache == v_cache
                   ? mla_attend_row<true>(&state, shared.offsets, warp_counts, &row, k_cache,
                                          v_cache, scale * k_scale)
                   : mla_attend_row<false>(&state, shared.offsets, warp_counts, &row, k_cache,
                                           v_cache, scale * k_scale);
    mla_store_row(&state, shared.partial, warp_max, warp_sum, attended, v_scale, out + latent);
}
