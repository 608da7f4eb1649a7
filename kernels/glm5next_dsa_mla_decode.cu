/* Sparse MLA decode over FP8 latents (GLM-5.3). Grid (heads, sequences), 256 threads.
 *
 *   T = {t in the selection row : 0 <= t < seq_len}
 *   score_t = scale * k_scale * (q . k_t),  out = v_scale * sum_t softmax(score)_t v_t
 *
 * The latent is the whole token: 512 E4M3 values, one 16-byte load for each lane of a warp. The row
 * is a set with holes anywhere; its ids are unique (the launcher refuses duplicates). The block
 * first turns the row into a dense list of ids in row order, so holes cost nothing later and where
 * they lie cannot change a bit of the result. Warp w then takes keys 4(w + 8i) .. +3 of that list,
 * with a running maximum, sum and output of its own, and the eight warps are merged at the end.
 * Only selected tokens and only the block-table entries of selected tokens are read. An empty T
 * gives zeros. k_cache and v_cache may be one buffer: then each latent is read and decoded once. q,
 * out and the caches are 16-byte aligned; the page pitch is a multiple of 16.
 *
 * All heads of a sequence read the same latents. Where the grid has blocks to spare, one block does
 * four neighbouring heads and the other three return at once: reading and decoding a latent is then
 * shared by four heads. The arithmetic of a head is the same either way, bit for bit, so a row does
 * not depend on its batch.
 *
 * Error model, n = attended keys (numerics 5.1, 5.8):
 *   dot product       f32 fma, any leaf passes at most 21 roundings: 16 in a lane's chain and 5 in
 *                     the tree over lanes; the products are not rounded by themselves
 *   score             c = RN(scale * k_scale), score = RN(c * dot): 2 roundings
 *   exponential       det_exp_nonpos(RN(score - max)), within 0.89 ulp, exp(0) = 1 exactly; the
 *                     base is e, so the argument takes one rounding (the subtraction), no product
 *   P                 stays f32
 *   sums              f32 fma; a key's weight enters the output with the fma that adds it
 *   rescales          a warp rescales a head at most once for each of its groups of 4 keys after
 *                     the first, and only if that head's maximum grew (else by exactly 1). It has
 *                     at most ceil(n/32) groups, so a key passes at most ceil(n/32) - 1 rescales
 *                     there and one in the merge: R <= ceil(n/32) < n/32 + 1, that is
 *                     rescales_per_key = 1/32, rescales_fixed = 1
 *   end               one division, one product with v_scale, then bf16 to nearest even
 *
 * On sm_90: 242 registers, 42,400 bytes of shared memory, no spills, one block an SM. */
#include "det_math.cuh"
#include "formats.cuh"

#define MLA_LATENT 512
#define MLA_THREADS 256
#define MLA_WARPS (MLA_THREADS / DET_WARP)
#define MLA_DIMS (MLA_LATENT / DET_WARP)     /* of a lane */
#define MLA_GROUP 4                          /* keys a warp attends together */
#define MLA_ROUND (MLA_GROUP * MLA_WARPS)    /* keys all warps attend in one turn */
#define MLA_KEY_LANES (DET_WARP / MLA_GROUP) /* lanes that hold the weights of one key */
#define MLA_BATCH (DET_WARP / MLA_GROUP)     /* groups whose addresses a warp finds together */
#define MLA_STAGES 2                         /* groups of latents the ring holds for a warp */
#define MLA_IDS_PER_THREAD 9
#define MLA_CHUNK (MLA_THREADS * MLA_IDS_PER_THREAD) /* row ids listed at a time, >= 2051 */
#define MLA_SHARED_HEADS 4                           /* heads of a block that shares latents */
#define MLA_SPARE_BLOCKS 132 /* more blocks than this are worth sharing: the SMs of an H200 */

typedef uint4 mla_stage[MLA_GROUP][DET_WARP];

union mla_shared {
    mla_stage ring[MLA_WARPS][MLA_STAGES]; /* latents on their way, see mla_feed */
    float partial[MLA_WARPS][MLA_LATENT];
};

struct mla_merge {
    float max[MLA_SHARED_HEADS][MLA_WARPS], sum[MLA_SHARED_HEADS][MLA_WARPS];
};

struct mla_row {
    const int32_t *selection, *block_table;
    const uint8_t *k_lane, *v_lane; /* the caches, moved to this lane's part of a token */
    uint32_t width, seq_len, block_size, token_stride;
    uint64_t page_stride;
    float score_scale;
};

/* What a warp holds: for each head, 16 dimensions a lane. max and sum are those of the lane's head
 * and, for sum, of the lane's key of each group: key = lane / 8, head = lane % 8 * heads / 8. */
template <int heads> struct mla_state {
    float q[heads][MLA_DIMS], acc[heads][MLA_DIMS];
    float max, sum;
};

/* The way of a warp's latents from the cache through its part of the ring: the copies of later
 * groups are in flight while one is attended. Where K and V are one buffer the two stages hold two
 * groups, else the K and the V latents of one. Each lane reads only what it copied itself. */
struct mla_feed {
    const uint32_t *ids;
    mla_stage *ring;
    uint32_t warp, count; /* count: keys in the list */
    uint64_t offset;      /* of this lane's key in the current batch of groups */
};

/* A value all lanes have; going through a shuffle tells the compiler so. */
static __device__ __forceinline__ uint32_t mla_uniform(uint32_t value)
{
    return __shfl_sync(DET_FULL_MASK, value, 0);
}

static __device__ __forceinline__ void mla_copy16(uint4 *to, const uint8_t *from, bool wanted)
{
#if defined(__CUDA_ARCH__)
    asm volatile("{\n\t"
                 ".reg .pred wanted;\n\t"
                 "setp.ne.u32 wanted, %2, 0;\n\t"
                 "@wanted cp.async.cg.shared.global [%0], [%1], 16;\n\t"
                 "}" ::"r"((uint32_t)__cvta_generic_to_shared(to)),
                 "l"(from), "r"((uint32_t)wanted)
                 : "memory");
#else
    if (wanted) *to = *(const uint4 *)from;
#endif
}

static __device__ __forceinline__ void mla_copies_commit(void)
{
#if defined(__CUDA_ARCH__)
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Waits for all committed copies but those of the last commit. */
static __device__ __forceinline__ void mla_copies_wait(void)
{
#if defined(__CUDA_ARCH__)
    asm volatile("cp.async.wait_group 1;" ::: "memory");
#endif
}

/* Appends the valid ids among row positions first .. first + MLA_CHUNK - 1 to the list, in row
 * order. Returns the new length of the list. Two barriers; the list is complete after them. */
static __device__ __forceinline__ uint32_t mla_list_chunk(uint32_t *list, uint32_t *warp_counts,
                                                          const struct mla_row *row, uint32_t first,
                                                          uint32_t listed)
{
    uint32_t warp = threadIdx.x / DET_WARP, lane = threadIdx.x % DET_WARP, mine = 0;
    uint32_t left = row->width - first, total = listed;
    uint32_t ids[MLA_IDS_PER_THREAD];

#pragma unroll
    for (int i = 0; i < MLA_IDS_PER_THREAD; i++) {
        uint32_t index = (warp * MLA_IDS_PER_THREAD + i) * DET_WARP + lane;

        ids[i] = index < left ? (uint32_t)row->selection[(uint64_t)first + index] : 0xffffffffu;
        mine += __popc(__ballot_sync(DET_FULL_MASK, ids[i] < row->seq_len));
    }
    if (lane == 0) warp_counts[warp] = mine;
    __syncthreads();
    for (uint32_t w = 0; w < MLA_WARPS; w++) {
        listed += w < warp ? warp_counts[w] : 0;
        total += warp_counts[w];
    }
#pragma unroll
    for (int i = 0; i < MLA_IDS_PER_THREAD; i++) {
        bool keep = ids[i] < row->seq_len;
        uint32_t kept = __ballot_sync(DET_FULL_MASK, keep);

        if (keep) list[listed + __popc(kept & ((1u << lane) - 1))] = ids[i];
        listed += __popc(kept);
    }
    __syncthreads();
    return total;
}

/* First key of the warp's group number `group`. */
static __device__ __forceinline__ uint32_t mla_group_start(const struct mla_feed *feed,
                                                           uint32_t group)
{
    return group * MLA_ROUND + feed->warp * MLA_GROUP;
}

/* Offsets of the keys of groups first .. first + 7, one a lane. The list is padded to whole
 * groups. */
static __device__ __forceinline__ void mla_find_batch(struct mla_feed *feed,
                                                      const struct mla_row *row, uint32_t first)
{
    uint32_t lane = threadIdx.x % DET_WARP, id, page;
    uint32_t start = mla_group_start(feed, first + lane / MLA_GROUP);

    feed->offset = 0;
    if (start >= feed->count) return;
    id = feed->ids[start + lane % MLA_GROUP];
    page = id / row->block_size;
    feed->offset = (uint64_t)(uint32_t)row->block_table[page] * row->page_stride +
                   (uint64_t)(id - page * row->block_size) * row->token_stride;
}

/* Starts the copies of one group, if there is one, into a stage of the ring. */
static __device__ __forceinline__ void mla_fetch(const struct mla_feed *feed, uint32_t group,
                                                 uint32_t stage, const uint8_t *cache_lane)
{
    bool wanted = mla_group_start(feed, group) < feed->count;

#pragma unroll
    for (int j = 0; j < MLA_GROUP; j++) {
        int from = (int)(group % MLA_BATCH * MLA_GROUP) + j;
        uint64_t offset = __shfl_sync(DET_FULL_MASK, feed->offset, from);

        mla_copy16(&feed->ring[stage][j][threadIdx.x % DET_WARP], cache_lane + offset, wanted);
    }
    mla_copies_commit();
}

static __device__ __forceinline__ void mla_decode(const uint4 raw, float dims[MLA_DIMS])
{
    fmt_e4m3x4_to_f32(raw.x, dims);
    fmt_e4m3x4_to_f32(raw.y, dims + 4);
    fmt_e4m3x4_to_f32(raw.z, dims + 8);
    fmt_e4m3x4_to_f32(raw.w, dims + 12);
}

static __device__ __forceinline__ float mla_lane_dot(const float q[MLA_DIMS],
                                                     const float k[MLA_DIMS])
{
    float sum = q[0] * k[0];

#pragma unroll
    for (int i = 1; i < MLA_DIMS; i++) sum = fmaf(q[i], k[i], sum);
    return sum;
}

/* Adds the group's weighted values. */
template <int heads>
static __device__ __forceinline__ void mla_add_values(struct mla_state<heads> *state, float weight,
                                                      const float dims[MLA_GROUP][MLA_DIMS])
{
#pragma unroll
    for (int j = 0; j < MLA_GROUP; j++) {
#pragma unroll
        for (int h = 0; h < heads; h++) {
            float share =
                __shfl_sync(DET_FULL_MASK, weight, j * MLA_KEY_LANES + h * (MLA_KEY_LANES / heads));

#pragma unroll
            for (int i = 0; i < MLA_DIMS; i++)
                state->acc[h][i] = fmaf(share, dims[j][i], state->acc[h][i]);
        }
    }
}

/* Shrinks what was added so far to the maximum `top`. */
template <int heads>
static __device__ __forceinline__ void mla_rescale(struct mla_state<heads> *state, float top)
{
    float shrink = top == state->max ? 1.0f : det_exp_nonpos(state->max - top);

#pragma unroll
    for (int h = 0; h < heads; h++) {
        float factor = __shfl_sync(DET_FULL_MASK, shrink, h * (MLA_KEY_LANES / heads));

#pragma unroll
        for (int i = 0; i < MLA_DIMS; i++) state->acc[h][i] *= factor;
    }
    state->sum *= shrink;
    state->max = top;
}

static __device__ __forceinline__ void mla_decode_stage(const mla_stage stage,
                                                        float dims[MLA_GROUP][MLA_DIMS])
{
#pragma unroll
    for (int j = 0; j < MLA_GROUP; j++) mla_decode(stage[j][threadIdx.x % DET_WARP], dims[j]);
}

/* Attends one group. Fetches a later one as soon as its stage of the ring is free. */
template <int heads, bool one_cache>
static __device__ __forceinline__ void mla_turn(struct mla_state<heads> *state,
                                                const struct mla_feed *feed,
                                                const struct mla_row *row, uint32_t group)
{
    uint32_t stage = one_cache ? group % MLA_STAGES : 0;
    float dims[MLA_GROUP][MLA_DIMS], parts[MLA_GROUP * heads], score, top, weight;

    mla_copies_wait();
    mla_decode_stage(feed->ring[stage], dims);
    mla_fetch(feed, group + (one_cache ? MLA_STAGES : 1), stage, row->k_lane);
#pragma unroll
    for (int j = 0; j < MLA_GROUP; j++)
#pragma unroll
        for (int h = 0; h < heads; h++) parts[j * heads + h] = mla_lane_dot(state->q[h], dims[j]);
    score = det_tree32_many<MLA_GROUP * heads>(parts) * row->score_scale;
    if (mla_group_start(feed, group) + threadIdx.x % DET_WARP / MLA_KEY_LANES >= feed->count)
        score = -det_inf();
    top = fmaxf(score, __shfl_xor_sync(DET_FULL_MASK, score, MLA_KEY_LANES));
    top = fmaxf(top, __shfl_xor_sync(DET_FULL_MASK, top, 2 * MLA_KEY_LANES));
    top = fmaxf(top, state->max);
    weight = det_exp_nonpos(score - top);
    if (__any_sync(DET_FULL_MASK, top != state->max)) mla_rescale<heads>(state, top);
    state->sum += weight;
    if (!one_cache) {
        mla_copies_wait();
        mla_decode_stage(feed->ring[1], dims);
        mla_fetch(feed, group + 1, 1, row->v_lane);
    }
    mla_add_values<heads>(state, weight, dims);
}

/* Attends the first `count` ids of the list, which is padded to whole groups with ids of the row
 * whose weight here is zero. */
template <int heads, bool one_cache>
static __device__ __forceinline__ void mla_attend(struct mla_state<heads> *state,
                                                  const struct mla_row *row, const uint32_t *ids,
                                                  mla_stage *ring, uint32_t count)
{
    struct mla_feed feed = {ids, ring, mla_uniform(threadIdx.x / DET_WARP), mla_uniform(count), 0};
    const uint32_t ahead = one_cache ? MLA_STAGES : 1;

    mla_find_batch(&feed, row, 0);
    mla_fetch(&feed, 0, 0, row->k_lane);
    mla_fetch(&feed, one_cache ? 1 : 0, 1, row->v_lane);
    for (uint32_t group = 0; mla_group_start(&feed, group) < feed.count; group++) {
        if ((group + ahead) % MLA_BATCH == 0) mla_find_batch(&feed, row, group + ahead);
        mla_turn<heads, one_cache>(state, &feed, row, group);
    }
}

/* Lists the row in chunks and attends it. Between chunks only whole rounds are taken and the rest
 * moves to the front, so chunks do not show in the result. Returns the number of attended keys. */
template <int heads, bool one_cache>
static __device__ __forceinline__ uint32_t mla_attend_row(struct mla_state<heads> *state,
                                                          const struct mla_row *row, uint32_t *list,
                                                          uint32_t *warp_counts, mla_stage *ring)
{
    uint32_t attended = 0, listed = 0;

    for (uint32_t first = 0; first < row->width; first += MLA_CHUNK) {
        bool last = row->width - first <= MLA_CHUNK;
        uint32_t ready;

        listed = mla_list_chunk(list, warp_counts, row, first, listed);
        ready = last ? listed : listed / MLA_ROUND * MLA_ROUND;
        if (last && threadIdx.x < (0u - listed) % MLA_GROUP)
            list[listed + threadIdx.x] = list[listed - 1];
        __syncthreads();
        mla_attend<heads, one_cache>(state, row, list, ring, ready);
        __syncthreads();
        attended += ready;
        listed -= ready;
        if (last) break;
        if (ready != 0 && threadIdx.x < listed) list[threadIdx.x] = list[ready + threadIdx.x];
    }
    return attended;
}

/* This lane's 16 dimensions of one head's query; zeros past the last head. */
static __device__ __forceinline__ void mla_load_query(float dims[MLA_DIMS], const uint16_t *q,
                                                      bool exists)
{
    const uint4 *lane_q = (const uint4 *)(q + threadIdx.x % DET_WARP * MLA_DIMS);

#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint4 raw = exists ? lane_q[half] : make_uint4(0, 0, 0, 0);
        uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};

#pragma unroll
        for (int i = 0; i < 4; i++) {
            dims[half * 8 + 2 * i] = fmt_bf16_low(words[i]);
            dims[half * 8 + 2 * i + 1] = fmt_bf16_high(words[i]);
        }
    }
}

/* Leaves each head's maximum and sum of this warp in shared memory. */
template <int heads>
static __device__ __forceinline__ void mla_store_sums(struct mla_state<heads> *state,
                                                      struct mla_merge *merge)
{
    uint32_t warp = threadIdx.x / DET_WARP, lane = threadIdx.x % DET_WARP;
    float sum = state->sum + __shfl_xor_sync(DET_FULL_MASK, state->sum, MLA_KEY_LANES);

    sum += __shfl_xor_sync(DET_FULL_MASK, sum, 2 * MLA_KEY_LANES);
    if (lane < MLA_KEY_LANES && lane % (MLA_KEY_LANES / heads) == 0) {
        merge->max[lane / (MLA_KEY_LANES / heads)][warp] = state->max;
        merge->sum[lane / (MLA_KEY_LANES / heads)][warp] = sum;
    }
}

/* Merges the warps that had keys (warp w had some iff attended > 4w) and writes one head's row. */
static __device__ __forceinline__ void mla_store_head(const float (*partial)[MLA_LATENT],
                                                      const float *warp_max, const float *warp_sum,
                                                      uint32_t attended, float v_scale,
                                                      uint16_t *out)
{
    uint32_t live = (attended + MLA_GROUP - 1) / MLA_GROUP;
    float top = -det_inf(), below = 0.0f, even = 0.0f, odd = 0.0f;

    live = live < MLA_WARPS ? live : MLA_WARPS;
    for (uint32_t w = 0; w < live; w++) top = fmaxf(top, warp_max[w]);
    for (uint32_t w = 0; w < live; w++) {
        float factor = det_exp_nonpos(warp_max[w] - top);

        below = fmaf(factor, warp_sum[w], below);
        even = fmaf(factor, partial[w][2 * threadIdx.x], even);
        odd = fmaf(factor, partial[w][2 * threadIdx.x + 1], odd);
    }
    ((uint32_t *)out)[threadIdx.x] =
        live == 0 ? 0 : fmt_f32_to_bf16x2(even / below * v_scale, odd / below * v_scale);
}

/* The row for heads first .. first + heads - 1 of a sequence, those that exist. */
template <int heads, bool one_cache>
static __device__ __forceinline__ void
mla_decode_heads(const struct mla_row *row, union mla_shared *shared, uint32_t *list,
                 uint32_t *warp_counts, struct mla_merge *merge, const uint16_t *q, uint16_t *out,
                 uint32_t existing, float v_scale)
{
    uint32_t warp = threadIdx.x / DET_WARP, lane = threadIdx.x % DET_WARP, attended;
    struct mla_state<heads> state;

#pragma unroll
    for (int h = 0; h < heads; h++) {
        mla_load_query(state.q[h], q + h * MLA_LATENT, (uint32_t)h < existing);
#pragma unroll
        for (int i = 0; i < MLA_DIMS; i++) state.acc[h][i] = 0.0f;
    }
    state.max = -det_inf();
    state.sum = 0.0f;
    attended = mla_attend_row<heads, one_cache>(&state, row, list, warp_counts, shared->ring[warp]);
    mla_store_sums<heads>(&state, merge);
#pragma unroll
    for (int h = 0; h < heads; h++) {
#pragma unroll
        for (int i = 0; i < MLA_DIMS; i++)
            shared->partial[warp][lane * MLA_DIMS + i] = state.acc[h][i];
        __syncthreads();
        if ((uint32_t)h < existing)
            mla_store_head(shared->partial, merge->max[h], merge->sum[h], attended, v_scale,
                           out + h * MLA_LATENT);
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(MLA_THREADS)
    glm5next_dsa_mla_decode_fp8(const uint16_t *q, const uint8_t *k_cache, const uint8_t *v_cache,
                                uint16_t *out, const int32_t *block_tables, const int32_t *seq_lens,
                                const int32_t *sel_indices, uint32_t width,
                                uint32_t max_blocks_per_seq, uint32_t num_q_heads,
                                uint32_t num_kv_heads, uint32_t kv_lora_rank, uint32_t block_size,
                                float scale, float k_scale, float v_scale,
                                uint64_t cache_stride_bytes)
{
    __shared__ union mla_shared shared;
    __shared__ uint32_t list[MLA_CHUNK + MLA_ROUND], warp_counts[MLA_WARPS];
    __shared__ struct mla_merge merge;
    uint32_t head = blockIdx.x, seq = blockIdx.y, existing = num_q_heads - head;
    bool share =
        num_q_heads >= MLA_SHARED_HEADS && (uint64_t)gridDim.x * gridDim.y > MLA_SPARE_BLOCKS;
    uint64_t latent = ((uint64_t)seq * num_q_heads + head) * MLA_LATENT;
    uint32_t lane_bytes = threadIdx.x % DET_WARP * (uint32_t)sizeof(uint4);
    int32_t seq_len = seq_lens[seq];
    struct mla_row row;

    if (share && head % MLA_SHARED_HEADS != 0) return;
    row.selection = sel_indices + (uint64_t)seq * width;
    row.block_table = block_tables + (uint64_t)seq * max_blocks_per_seq;
    row.k_lane = k_cache + lane_bytes;
    row.v_lane = v_cache + lane_bytes;
    row.width = width;
    row.seq_len = seq_len > 0 ? (uint32_t)seq_len : 0;
    row.block_size = block_size;
    row.token_stride = num_kv_heads * kv_lora_rank;
    row.page_stride = cache_stride_bytes;
    row.score_scale = scale * k_scale;
    if (share && k_cache == v_cache)
        mla_decode_heads<MLA_SHARED_HEADS, true>(&row, &shared, list, warp_counts, &merge,
                                                 q + latent, out + latent, existing, v_scale);
    else if (share)
        mla_decode_heads<MLA_SHARED_HEADS, false>(&row, &shared, list, warp_counts, &merge,
                                                  q + latent, out + latent, existing, v_scale);
    else if (k_cache == v_cache)
        mla_decode_heads<1, true>(&row, &shared, list, warp_counts, &merge, q + latent,
                                  out + latent, existing, v_scale);
    else
        mla_decode_heads<1, false>(&row, &shared, list, warp_counts, &merge, q + latent,
                                   out + latent, existing, v_scale);
}
