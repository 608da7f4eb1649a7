/* Sparse MLA decode over FP8 latents on tensor cores (GLM-5.3). Grid (heads, sequences), 256
 * threads, no dynamic shared memory.
 *
 *   T = {t in the selection row : 0 <= t < seq_len}
 *   score_t = scale * k_scale * (q . k_t),  out = v_scale * sum_t softmax(score)_t v_t
 *
 * All heads of a sequence read the same latents, so both sums are matrix products. E4M3 values and
 * q are exact in bf16; a weight p is split into hi = bf16(p) and lo = bf16(p - hi).
 *
 * The arithmetic of one head, the same whatever block computes it:
 *   T is a dense list in row order, holes left out; 16 neighbours are a tile.
 *   dot       eight partial sums, one for 64 dimensions each: four MMAs (m16n8k16, bf16, f32
 *             accumulators) from +0; then ((p0+p1)+(p2+p3))+((p4+p5)+(p6+p7)) in f32
 *   score     RN(RN(scale * k_scale) * dot)
 *   weights   top = max(top, the tile's scores); p = det_exp_nonpos(RN(score - top))
 *   sum       RN(sum * f + tree of the tile's p), f = det_exp_nonpos(RN(old top - top))
 *   values    one accumulator a dimension: RN(acc * f), then the MMA with hi, then that with lo
 *   end       bf16(RN(RN(acc / sum) * v_scale)); zeros for an empty T
 * The order of dimensions or keys inside one MMA does not matter on sm_90 and later.
 *
 * Shape. A warp has 64 dimensions. It computes the partial scores of its dimensions for `heads`
 * tiles of 16 heads, so that a latent is read by one warp only and the queries stay in registers.
 * 1,024 partial scores a warp go through shared memory (an exchange: 16 keys of 64 heads, or 64
 * keys of 16), each warp then finishes an eighth of them, and every warp adds all weighted values
 * of its dimensions; nothing is merged at the end. Scores of one exchange and values of the one
 * before are computed between the same two barriers.
 *
 * Which heads and dimensions a block takes is chosen by the size of the batch, see mla_plan; blocks
 * in excess return at once. With few sequences a block computes an eighth of the dimensions, and
 * the scores are computed eight times over.
 *
 * Error model, n = attended keys (numerics 5.2, 5.3, 5.8): scores and values on tensor cores,
 * mma_k = 16; weights in two bf16 parts, |p - hi - lo| <= 2^-17 p, their sum from unsplit f32
 * weights; exponential within 0.89 ulp, exp(0) = 1 exactly; at most one rescale a tile after the
 * first, so R <= ceil(n/16) - 1 < n/16; one division, one product with v_scale, then bf16 to
 * nearest even. */
#include "det_math.cuh"
#include "formats.cuh"
#include "mma.cuh"

#define MLA_LATENT 512
#define MLA_THREADS 256
#define MLA_WARPS (MLA_THREADS / DET_WARP)
#define MLA_DIMS (MLA_LATENT / MLA_WARPS) /* of a warp in the dot products */
#define MLA_STEPS (MLA_DIMS / 16)         /* MMAs of a partial sum */
#define MLA_TILE 16                       /* heads, and keys, of an operand of the MMA */
#define MLA_TILES 4                       /* tiles of 16 heads x 16 keys in an exchange */
#define MLA_SLOTS (MLA_TILES * 2 * DET_WARP)
#define MLA_IDS_PER_THREAD 3
#define MLA_CHUNK (MLA_THREADS * MLA_IDS_PER_THREAD) /* row ids listed at a time */
#define MLA_LIST (MLA_CHUNK + MLA_TILES * MLA_TILE)
#define MLA_SLICES 8 /* blocks that share a head where there are blocks to spare */
#define MLA_SLICED_WIDTH 256
#define MLA_BLOCKS_AT_ONCE 132 /* the multiprocessors of an H200 */

/* Scores and weights lie in slots: slot (tile * 2 + half) * 32 + 4g + t belongs to head g + 8 half
 * and keys 2t, 2t+1, 2t+8, 2t+9 of a tile, as the fragments of the MMA have them. */
struct mla_shared {
    float4 partial[MLA_WARPS][MLA_SLOTS];
    uint4 weights[2][MLA_SLOTS]; /* hi of keys 2t, +1; of 2t+8, +9; lo of the same */
    float factors[2][MLA_TILES][MLA_TILE];
    float sums[MLA_TILES * MLA_TILE];
    uint64_t offsets[MLA_LIST]; /* of the listed latents in the caches */
    uint32_t warp_counts[MLA_WARPS];
};

struct mla_row {
    const int32_t *selection, *block_table;
    const uint8_t *k_lane, *v_lane; /* the caches, moved to this lane's part of a token */
    uint32_t width, seq_len, block_size, token_stride;
    uint32_t existing; /* heads from this block's first on */
    uint64_t page_stride;
    float score_scale;
};

/* What a thread holds of `heads` tiles of heads: queries of its dimensions of the dot product, sums
 * of its dimensions of the output (8 `parts` a warp), the latents of the next exchange, and for one
 * head the running maximum and sum. */
template <int heads, int parts> struct mla_state {
    uint32_t q[heads][MLA_STEPS][4];
    float acc[heads][parts][4];
    uint4 keys[MLA_TILES / heads][2];
    float top, sum;
};

/* Appends the offsets of the valid ids among row positions first .. first + MLA_CHUNK - 1 to the
 * list, in row order. Returns the new length of the list. Two barriers; the list is complete after
 * them. */
static __device__ __forceinline__ uint32_t mla_list_chunk(struct mla_shared *shared,
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
    if (lane == 0) shared->warp_counts[warp] = mine;
    __syncthreads();
    for (uint32_t w = 0; w < MLA_WARPS; w++) {
        listed += w < warp ? shared->warp_counts[w] : 0;
        total += shared->warp_counts[w];
    }
#pragma unroll
    for (int i = 0; i < MLA_IDS_PER_THREAD; i++) {
        bool keep = ids[i] < row->seq_len;
        uint32_t kept = __ballot_sync(DET_FULL_MASK, keep);
        uint32_t page = ids[i] / row->block_size;

        if (keep)
            shared->offsets[listed + __popc(kept & ((1u << lane) - 1))] =
                (uint64_t)(uint32_t)row->block_table[page] * row->page_stride +
                (uint64_t)(ids[i] - page * row->block_size) * row->token_stride;
        listed += __popc(kept);
    }
    __syncthreads();
    return total;
}

/* Four E4M3 values as two pairs of bf16, all exact. */
static __device__ __forceinline__ void mla_widen(uint32_t word, uint32_t pairs[2])
{
    float values[4];

    fmt_e4m3x4_to_f32(word, values);
    pairs[0] = mma_bf16x2(values[0], values[1]);
    pairs[1] = mma_bf16x2(values[2], values[3]);
}

/* This lane's queries: of heads g and g+8 of each tile, dimensions 16t .. 16t+15 of the warp's 64;
 * zeros past the last head. `q` is the block's first head at this lane's dimensions. */
template <int heads, int parts>
static __device__ __forceinline__ void mla_load_queries(struct mla_state<heads, parts> *state,
                                                        const uint16_t *q, uint32_t existing)
{
#pragma unroll
    for (int m = 0; m < heads; m++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t half = i / 2, head = m * MLA_TILE + half * 8 + threadIdx.x % DET_WARP / 4;
            const uint4 *from = (const uint4 *)(q + (uint64_t)head * MLA_LATENT);
            uint4 raw = head < existing ? from[i % 2] : make_uint4(0, 0, 0, 0);

            state->q[m][i % 2 * 2][half] = raw.x;
            state->q[m][i % 2 * 2][half + 2] = raw.y;
            state->q[m][i % 2 * 2 + 1][half] = raw.z;
            state->q[m][i % 2 * 2 + 1][half + 2] = raw.w;
        }
}

/* Reads the latents of an exchange's keys, key g of each eight: 16 dimensions a lane. Keys from
 * `count` on are not read and zero. */
template <int heads, int parts>
static __device__ __forceinline__ void
mla_fetch_keys(struct mla_state<heads, parts> *state, const struct mla_shared *shared,
               const struct mla_row *row, uint32_t first, uint32_t count)
{
#pragma unroll
    for (int i = 0; i < 2 * MLA_TILES / heads; i++) {
        uint32_t key = first + 8 * i + threadIdx.x % DET_WARP / 4;

        state->keys[i / 2][i % 2] = make_uint4(0, 0, 0, 0);
        if (key < count)
            state->keys[i / 2][i % 2] = *(const uint4 *)(row->k_lane + shared->offsets[key]);
    }
}

/* The warp's partial scores of the fetched keys, of which `left` exist; those of tiles past the
 * last are zeros. */
template <int heads, int parts>
static __device__ __forceinline__ void mla_dot(const struct mla_state<heads, parts> *state,
                                               struct mla_shared *shared, uint32_t left)
{
    uint32_t warp = threadIdx.x / DET_WARP, lane = threadIdx.x % DET_WARP;

#pragma unroll
    for (int k = 0; k < MLA_TILES / heads; k++) {
        float dot[heads][2][4] = {};

#pragma unroll
        for (int n = 0; n < 2; n++) {
            if (k > 0 && left <= k * MLA_TILE) break;
            uint4 raw = state->keys[k][n];
            uint32_t words[MLA_STEPS] = {raw.x, raw.y, raw.z, raw.w};

#pragma unroll
            for (int step = 0; step < MLA_STEPS; step++) {
                uint32_t b[2];

                mla_widen(words[step], b);
#pragma unroll
                for (int m = 0; m < heads; m++) mma_bf16_m16n8k16(dot[m][n], state->q[m][step], b);
            }
        }
#pragma unroll
        for (int m = 0; m < heads; m++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                shared->partial[warp][((k * heads + m) * 2 + half) * DET_WARP + lane] =
                    make_float4(dot[m][0][2 * half], dot[m][0][2 * half + 1], dot[m][1][2 * half],
                                dot[m][1][2 * half + 1]);
    }
}

/* The eight warps' partial scores of one slot, added as a tree. */
static __device__ __forceinline__ void mla_gather(const struct mla_shared *shared, uint32_t slot,
                                                  float score[4])
{
    float4 sum[4];

#pragma unroll
    for (int w = 0; w < 4; w++) {
        float4 a = shared->partial[2 * w][slot], b = shared->partial[2 * w + 1][slot];

        sum[w] = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
    }
    score[0] = (sum[0].x + sum[1].x) + (sum[2].x + sum[3].x);
    score[1] = (sum[0].y + sum[1].y) + (sum[2].y + sum[3].y);
    score[2] = (sum[0].z + sum[1].z) + (sum[2].z + sum[3].z);
    score[3] = (sum[0].w + sum[1].w) + (sum[2].w + sum[3].w);
}

/* Splits four weights in hi and lo. */
static __device__ __forceinline__ uint4 mla_split(const float weight[4])
{
    uint32_t first = mma_bf16x2(weight[0], weight[1]), last = mma_bf16x2(weight[2], weight[3]);

    return make_uint4(first, last,
                      mma_bf16x2(weight[0] - fmt_bf16_low(first), weight[1] - fmt_bf16_high(first)),
                      mma_bf16x2(weight[2] - fmt_bf16_low(last), weight[3] - fmt_bf16_high(last)));
}

/* Takes up the sums and factors of an exchange's tiles, in order. */
template <int tiles>
static __device__ __forceinline__ float mla_add_tiles(float sum, float factor, float added)
{
    const uint32_t stride = DET_WARP / tiles;

#pragma unroll
    for (uint32_t k = 0; k < tiles; k++) {
        uint32_t from = k * stride + threadIdx.x % stride;

        sum = fmaf(sum, __shfl_sync(DET_FULL_MASK, factor, from),
                   __shfl_sync(DET_FULL_MASK, added, from));
    }
    return sum;
}

/* The running maximum up to and with this lane's tile of keys, and the one before it. A tile of
 * keys lies in 32/tiles neighbouring lanes. */
template <int tiles>
static __device__ __forceinline__ float mla_running_max(float top, float start, float *before)
{
    const uint32_t stride = DET_WARP / tiles;
    uint32_t lane = threadIdx.x % DET_WARP;

#pragma unroll
    for (uint32_t step = stride; step < DET_WARP; step *= 2) {
        float other = __shfl_sync(DET_FULL_MASK, top, (lane - step) % DET_WARP);

        if (lane >= step) top = fmaxf(top, other);
    }
    top = fmaxf(top, start);
    *before = __shfl_sync(DET_FULL_MASK, top, (lane - stride) % DET_WARP);
    if (lane < stride) *before = start;
    return top;
}

/* The weights of an exchange: a warp does 2*heads heads, four lanes a head and tile of keys. Keys
 * from `count` on weigh zero, heads past the last too. */
template <int heads, int parts>
static __device__ __forceinline__ void
mla_weigh(struct mla_state<heads, parts> *state, struct mla_shared *shared,
          const struct mla_row *row, uint32_t stage, uint32_t first, uint32_t count)
{
    const uint32_t tiles = MLA_TILES / heads, stride = DET_WARP / tiles;
    uint32_t lane = threadIdx.x % DET_WARP, tile = lane / stride;
    uint32_t head = threadIdx.x / DET_WARP * (2 * heads) + lane % stride / 4;
    uint32_t operand = tile * heads + head / MLA_TILE;
    uint32_t slot = (operand * 2 + head / 8 % 2) * DET_WARP + head % 8 * 4 + lane % 4;
    float weight[4], top, before, factor, added;

    mla_gather(shared, slot, weight);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t key = first + tile * MLA_TILE + lane % 4 * 2 + i % 2 + i / 2 * 8;

        weight[i] = key < count ? weight[i] * row->score_scale : -det_inf();
    }
    top = fmaxf(fmaxf(weight[0], weight[1]), fmaxf(weight[2], weight[3]));
    top = fmaxf(top, __shfl_xor_sync(DET_FULL_MASK, top, 1));
    top = fmaxf(top, __shfl_xor_sync(DET_FULL_MASK, top, 2));
    top = mla_running_max<tiles>(top, state->top, &before);
    factor = det_exp_nonpos(before - top);
#pragma unroll
    for (int i = 0; i < 4; i++) weight[i] = det_exp_nonpos(weight[i] - top);
    added = (weight[0] + weight[1]) + (weight[2] + weight[3]);
    added = added + __shfl_xor_sync(DET_FULL_MASK, added, 1);
    added = added + __shfl_xor_sync(DET_FULL_MASK, added, 2);
    state->sum = mla_add_tiles<tiles>(state->sum, factor, added);
    state->top = __shfl_sync(DET_FULL_MASK, top, DET_WARP - stride + lane % stride);
    shared->weights[stage][slot] =
        head < row->existing ? mla_split(weight) : make_uint4(0, 0, 0, 0);
    if (lane % 4 == 0) shared->factors[stage][operand][head % MLA_TILE] = factor;
}

/* The values of one tile of keys as operands B: dimension g*parts + n of the warp's is column g of
 * operand n. Keys from `count` on are not read and zero. */
template <int parts>
static __device__ __forceinline__ void
mla_load_values(uint32_t values[parts][2], const struct mla_shared *shared,
                const struct mla_row *row, uint32_t first, uint32_t count)
{
    uint32_t raw[4][(parts + 3) / 4];

#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t key = first + threadIdx.x % 4 * 2 + i % 2 + i / 2 * 8;
        const uint8_t *from = row->v_lane + (key < count ? shared->offsets[key] : 0);

#pragma unroll
        for (int w = 0; w < (parts + 3) / 4; w++) raw[i][w] = 0;
        if (key >= count) continue;
        if constexpr (parts == 8) {
            uint2 both = *(const uint2 *)from;

            raw[i][0] = both.x;
            raw[i][1] = both.y;
        } else {
            raw[i][0] = *from;
        }
    }
#pragma unroll
    for (int n = 0; n < parts; n += 2)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            uint32_t word =
                __byte_perm(raw[2 * r][n / 4], raw[2 * r + 1][n / 4], n % 4 == 0 ? 0x5140 : 0x7362);
            uint32_t pairs[2];

            mla_widen(word, pairs);
            values[n][r] = pairs[0];
            if (n + 1 < parts) values[n + 1][r] = pairs[1];
        }
}

/* Adds the weighted values of an exchange. */
template <int heads, int parts>
static __device__ __forceinline__ void
mla_add_values(struct mla_state<heads, parts> *state, const struct mla_shared *shared,
               const struct mla_row *row, uint32_t stage, uint32_t first, uint32_t count)
{
    uint32_t lane = threadIdx.x % DET_WARP;

#pragma unroll
    for (int k = 0; k < MLA_TILES / heads; k++) {
        uint32_t values[parts][2];

        if (k > 0 && first + k * MLA_TILE >= count) break;
        mla_load_values<parts>(values, shared, row, first + k * MLA_TILE, count);
#pragma unroll
        for (int m = 0; m < heads; m++) {
            const uint4 *weights = shared->weights[stage] + (k * heads + m) * 2 * DET_WARP + lane;
            const float *factors = shared->factors[stage][k * heads + m] + lane / 4;
            uint4 upper = weights[0], lower = weights[DET_WARP];
            uint32_t hi[4] = {upper.x, lower.x, upper.y, lower.y};
            uint32_t lo[4] = {upper.z, lower.z, upper.w, lower.w};
            float shrink[2] = {factors[0], factors[8]};

            if (__any_sync(DET_FULL_MASK, shrink[0] != 1.0f || shrink[1] != 1.0f)) {
#pragma unroll
                for (int i = 0; i < parts * 4; i++)
                    state->acc[m][i / 4][i % 4] *= shrink[i / 2 % 2];
            }
#pragma unroll
            for (int n = 0; n < parts; n++) mma_bf16_m16n8k16(state->acc[m][n], hi, values[n]);
#pragma unroll
            for (int n = 0; n < parts; n++) mma_bf16_m16n8k16(state->acc[m][n], lo, values[n]);
        }
    }
}

/* Attends the first `count` keys of the list. The scores of one exchange and the values of the one
 * before lie between the same barriers. */
template <int heads, int parts>
static __device__ __forceinline__ void mla_attend(struct mla_state<heads, parts> *state,
                                                  struct mla_shared *shared,
                                                  const struct mla_row *row, uint32_t count)
{
    const uint32_t keys = MLA_TILES / heads * MLA_TILE;
    uint32_t stage = 0;

    mla_fetch_keys(state, shared, row, 0, count);
    for (uint32_t first = 0; first < count; first += keys, stage ^= 1) {
        mla_dot(state, shared, count - first);
        __syncthreads();
        mla_fetch_keys(state, shared, row, first + keys, count);
        mla_weigh(state, shared, row, stage, first, count);
        if (first > 0) mla_add_values(state, shared, row, stage ^ 1, first - keys, count);
        __syncthreads();
    }
    if (count > 0) mla_add_values(state, shared, row, stage ^ 1, (count - 1) / keys * keys, count);
}

/* Lists the row in chunks and attends it. Between chunks only whole exchanges are taken and the
 * rest moves to the front, so chunks do not show in the result. Returns whether there was a key. */
template <int heads, int parts>
static __device__ __forceinline__ bool mla_attend_row(struct mla_state<heads, parts> *state,
                                                      struct mla_shared *shared,
                                                      const struct mla_row *row)
{
    const uint32_t keys = MLA_TILES / heads * MLA_TILE;
    uint32_t listed = 0;
    bool attended = false;

    for (uint32_t first = 0; first < row->width; first += MLA_CHUNK) {
        bool last = row->width - first <= MLA_CHUNK;
        uint32_t ready;

        listed = mla_list_chunk(shared, row, first, listed);
        ready = last ? listed : listed / keys * keys;
        attended = attended || ready > 0;
        mla_attend(state, shared, row, ready);
        listed -= ready;
        if (last) break;
        __syncthreads();
        if (ready != 0 && threadIdx.x < listed)
            shared->offsets[threadIdx.x] = shared->offsets[ready + threadIdx.x];
    }
    return attended;
}

/* Writes this lane's outputs: of each head 2*parts neighbours, from column 2t's on. `out` is the
 * block's first head at this lane's dimensions. */
template <int heads, int parts>
static __device__ __forceinline__ void mla_store(const struct mla_state<heads, parts> *state,
                                                 const struct mla_shared *shared, uint16_t *out,
                                                 uint32_t existing, bool attended, float v_scale)
{
#pragma unroll
    for (int i = 0; i < 2 * heads; i++) {
        uint32_t head = i / 2 * MLA_TILE + i % 2 * 8 + threadIdx.x % DET_WARP / 4;
        float values[2 * parts], sum = shared->sums[head];

        if (head >= existing) continue;
#pragma unroll
        for (int n = 0; n < 2 * parts; n++)
            values[n] = attended
                            ? state->acc[i / 2][n % parts][i % 2 * 2 + n / parts] / sum * v_scale
                            : 0.0f;
#pragma unroll
        for (int n = 0; n < parts; n++)
            ((uint32_t *)(out + (uint64_t)head * MLA_LATENT))[n] =
                mma_bf16x2(values[2 * n], values[2 * n + 1]);
    }
}

/* The row for `heads` tiles of heads and 64*parts dimensions from `dim` on. q and out are the
 * block's first head. */
template <int heads, int parts>
static __device__ __forceinline__ void mla_decode(struct mla_shared *shared, struct mla_row *row,
                                                  const uint16_t *q, uint16_t *out, uint32_t dim,
                                                  float v_scale)
{
    uint32_t warp = threadIdx.x / DET_WARP, lane = threadIdx.x % DET_WARP;
    struct mla_state<heads, parts> state;
    bool attended;

    dim += warp * (8 * parts);
    row->k_lane += warp * MLA_DIMS + lane % 4 * 16;
    row->v_lane += dim + lane / 4 * parts;
    mla_load_queries(&state, q + warp * MLA_DIMS + lane % 4 * 16, row->existing);
#pragma unroll
    for (int i = 0; i < heads * parts * 4; i++) state.acc[i / 4 / parts][i / 4 % parts][i % 4] = 0;
    state.top = -det_inf();
    state.sum = 0.0f;
    attended = mla_attend_row(&state, shared, row);
    if (lane < 8 * heads && lane % 4 == 0) /* every tile of keys has the same sum */
        shared->sums[warp * (2 * heads) + lane / 4] = state.sum;
    __syncthreads();
    mla_store(&state, shared, out + dim + lane % 4 * (2 * parts), row->existing, attended, v_scale);
}

/* How a sequence is shared out: `heads` tiles of 16 heads a block, in `slices` of the dimensions.
 * The more heads a block has, the fewer times a latent is read and widened; the fewer, the more
 * blocks there are. No bit of the result depends on it. */
struct mla_plan {
    uint32_t heads, slices;
};

/* Time of a batch in which a block does `heads` tiles of heads: rounds of blocks, times what one
 * costs against the others. */
static __device__ __forceinline__ uint64_t mla_cost(uint64_t tiles, uint32_t heads, uint32_t cost)
{
    uint64_t blocks = (tiles + heads - 1) / heads * gridDim.y;

    return (blocks + MLA_BLOCKS_AT_ONCE - 1) / MLA_BLOCKS_AT_ONCE * cost;
}

static __device__ __forceinline__ struct mla_plan mla_make_plan(uint32_t num_q_heads,
                                                                uint32_t width)
{
    uint64_t tiles = (num_q_heads + MLA_TILE - 1) / MLA_TILE;
    uint64_t one = mla_cost(tiles, 1, 7), two = mla_cost(tiles, 2, 10);
    uint64_t four = mla_cost(tiles, 4, 16);

    if (tiles * gridDim.y * MLA_SLICES <= MLA_BLOCKS_AT_ONCE && width >= MLA_SLICED_WIDTH &&
        tiles * MLA_SLICES <= num_q_heads)
        return {1, MLA_SLICES};
    if (one <= two && one <= four) return {1, 1};
    return {two <= four ? 2u : 4u, 1};
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
    __shared__ struct mla_shared shared;
    struct mla_plan plan = mla_make_plan(num_q_heads, width);
    uint32_t seq = blockIdx.y, slice = blockIdx.x % plan.slices;
    uint64_t head = (uint64_t)(blockIdx.x / plan.slices) * plan.heads * MLA_TILE;
    uint64_t latent = ((uint64_t)seq * num_q_heads + head) * MLA_LATENT;
    int32_t seq_len = seq_lens[seq];
    struct mla_row row;

    if (head >= num_q_heads) return;
    row.selection = sel_indices + (uint64_t)seq * width;
    row.block_table = block_tables + (uint64_t)seq * max_blocks_per_seq;
    row.k_lane = k_cache;
    row.v_lane = v_cache;
    row.width = width;
    row.seq_len = seq_len > 0 ? (uint32_t)seq_len : 0;
    row.block_size = block_size;
    row.token_stride = num_kv_heads * kv_lora_rank;
    row.existing = num_q_heads - (uint32_t)head;
    row.page_stride = cache_stride_bytes;
    row.score_scale = scale * k_scale;
    if (plan.heads == 4)
        mla_decode<4, 8>(&shared, &row, q + latent, out + latent, 0, v_scale);
    else if (plan.heads == 2)
        mla_decode<2, 8>(&shared, &row, q + latent, out + latent, 0, v_scale);
    else if (plan.slices == 1)
        mla_decode<1, 8>(&shared, &row, q + latent, out + latent, 0, v_scale);
    else
        mla_decode<1, 1>(&shared, &row, q + latent, out + latent, slice * (MLA_LATENT / MLA_SLICES),
                         v_scale);
}
