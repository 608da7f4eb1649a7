/* Block scores on tensor cores: 4 heads, hd 128, q split into hi = bf16(q) and lo = bf16(q - hi).
 *
 * The arithmetic, which the CPU model repeats bit for bit: one f32 accumulator a (row, head,
 * block), from +0; for each k16 step in ascending k first the MMA with hi, then the MMA with lo.
 * Then relu a head, the heads added in order from +0, times rnorm(128).
 *
 * Shape. A tile is 16 rows x 64 blocks, 4 heads: 512 MMAs (m16n8k16), a head of 32 blocks a warp.
 * Each warp keeps the hi and lo fragments of its head's 16 queries in 64 registers for all k, so
 * the tile's only operand in shared memory is the keys, 16 KiB, copied one tile ahead. They are
 * read by each head's warps, 64 KiB of ldmatrix a tile (512 cycles of shared memory against 512 of
 * the matrix units), the heads meet through 16 KiB written and read, and 4 KiB of scores go out.
 *
 * Queries are 32 KiB of f32 a CTA and their split costs as much as a tile. Where the grid has CTAs
 * to spare, the first of every `span` CTAs of a grid column covers the tiles of all of them and the
 * others have nothing to do; which CTA computes a tile does not show in the result. For 8,192 rows
 * x 7,168 blocks: 57,344 tiles; 2*2*4*128*8192*7168 = 1.2e11 flop, 0.15 ms at 800 TFLOP/s; to L2:
 * keys 57,344 * 16 KiB = 0.94 GB (less what L1 holds from a neighbour CTA on the same tiles),
 * queries 57,344/16 * 32 KiB = 0.12 GB, which without spans would be 1.9 GB; to memory: 235 MB of
 * scores. */
#ifndef ATTEST_KERNELS_QSA_SCORE_TC_CUH
#define ATTEST_KERNELS_QSA_SCORE_TC_CUH

#include "mma.cuh"
#include "qsa_common.cuh"

#define QSA_TC_ROWS 16
#define QSA_TC_BLOCKS 64
#define QSA_TC_HEADS 4
#define QSA_TC_HD 128
#define QSA_TC_STEPS (QSA_TC_HD / 16)
#define QSA_TC_CHUNKS (QSA_TC_HD / 8) /* 16-byte pieces of a key */
#define QSA_TC_MAX_SPAN 16
#define QSA_TC_ENOUGH_CTAS 2048 /* several waves on the largest devices */

/* A tile's keys; piece c of key n lies at c ^ qsa_tc_swizzle(n), so that the eight keys of one
 * ldmatrix phase lie in different banks. */
struct qsa_tc_keys {
    uint4 pieces[QSA_TC_BLOCKS][QSA_TC_CHUNKS];
};

/* Head sums on their way from the warp of a head to the warp that adds the heads. */
struct qsa_tc_exchange {
    float4 values[2][QSA_TC_HEADS][QSA_TC_HEADS][DET_WARP]; /* [half][to][from][lane] */
};

/* The hi and lo fragments of one head of 16 queries. */
struct qsa_tc_query {
    uint32_t hi[QSA_TC_STEPS][4], lo[QSA_TC_STEPS][4];
};

/* Where a tile's scores go, the same for all tiles of a CTA. A thread stores four columns of a row.
 */
struct qsa_tc_target {
    float *row_scores, scale;
    uint32_t complete, n_blocks_max;
    bool wide;
};

/* Columns of a warp's 32: MMA tile 2p + odd, column n, is block 16p + 4(n/2) + n%2 + 2 odd, so that
 * a thread's results of the two tiles of p are four neighbours. */
static __device__ __forceinline__ uint32_t qsa_tc_swizzle(uint32_t block)
{
    return (block & 1u) | (block >> 1 & 6u);
}

static __device__ __forceinline__ void qsa_tc_split(uint32_t *hi, uint32_t *lo, float2 q)
{
    *hi = mma_bf16x2(q.x, q.y);
    *lo = mma_bf16x2(q.x - fmt_bf16_low(*hi), q.y - fmt_bf16_high(*hi));
}

/* `head_q` is row 0 of the tile at this warp's head; a row is 512 floats. Fragment register r holds
 * rows lane/4 + 8(r%2) and k from 2(lane%4) + 8(r/2). */
static __device__ __forceinline__ void qsa_tc_load_query(struct qsa_tc_query *query,
                                                         const float *head_q)
{
    uint32_t lane = threadIdx.x % DET_WARP;
    const float *from = head_q + (lane / 4) * (QSA_TC_HEADS * QSA_TC_HD) + lane % 4 * 2;

    for (int step = 0; step < QSA_TC_STEPS; step++) {
        for (int r = 0; r < 4; r++) {
            const float *pair =
                from + (r % 2) * (8 * QSA_TC_HEADS * QSA_TC_HD) + 16 * step + 8 * (r / 2);

            qsa_tc_split(&query->hi[step][r], &query->lo[step][r], *(const float2 *)pair);
        }
    }
}

/* Begins copying the keys of blocks first..., zeros from block `limit` on. */
static __device__ __forceinline__ void qsa_tc_begin_copy(struct qsa_tc_keys *keys,
                                                         const uint16_t *block_keys, uint32_t first,
                                                         uint32_t limit)
{
    uint32_t piece = threadIdx.x % QSA_TC_CHUNKS;

    for (uint32_t n = threadIdx.x / QSA_TC_CHUNKS; n < QSA_TC_BLOCKS;
         n += QSA_THREADS / QSA_TC_CHUNKS) {
        bool wanted = first + n < limit;
        uint64_t block = wanted ? first + n : 0;

        mma_copy16(&keys->pieces[n][piece ^ qsa_tc_swizzle(n)],
                   block_keys + block * QSA_TC_HD + piece * 8, wanted);
    }
    mma_copy_commit();
}

/* This warp's head of 16 rows x 32 blocks; acc[tile] in PTX's layout. */
static __device__ __forceinline__ void qsa_tc_dot(float acc[4][4], const struct qsa_tc_query *query,
                                                  const struct qsa_tc_keys *keys, uint32_t half)
{
    uint32_t lane = threadIdx.x % DET_WARP, n = lane % 8, odd = lane / 16, upper = lane / 8 % 2;
    uint32_t block = 32 * half + 4 * (n / 2) + n % 2 + 2 * odd;

    for (int tile = 0; tile < 4; tile++)
        for (int i = 0; i < 4; i++) acc[tile][i] = 0.0f;
    for (uint32_t step = 0; step < QSA_TC_STEPS; step++) {
        uint32_t b[2][4], piece = (2 * step + upper) ^ n; /* n is the block's swizzle */

        mma_load_matrices(b[0], &keys->pieces[block][piece]);
        mma_load_matrices(b[1], &keys->pieces[block + 16][piece]);
        for (int tile = 0; tile < 4; tile++)
            mma_bf16_m16n8k16(acc[tile], query->hi[step], b[tile / 2] + tile % 2 * 2);
        for (int tile = 0; tile < 4; tile++)
            mma_bf16_m16n8k16(acc[tile], query->lo[step], b[tile / 2] + tile % 2 * 2);
    }
}

/* Hands the head's sums on: warp `to` of the half adds the heads for the blocks 16(to%2)... of its
 * half and the rows lane/4 + 8(to/2). */
static __device__ __forceinline__ void qsa_tc_hand_on(struct qsa_tc_exchange *exchange,
                                                      float acc[4][4], uint32_t half, uint32_t head)
{
    uint32_t lane = threadIdx.x % DET_WARP;

    for (int to = 0; to < QSA_TC_HEADS; to++) {
        const float *even = acc[to % 2 * 2] + to / 2 * 2, *odd = acc[to % 2 * 2 + 1] + to / 2 * 2;

        exchange->values[half][to][head][lane] =
            make_float4(det_relu(even[0]), det_relu(even[1]), det_relu(odd[0]), det_relu(odd[1]));
    }
}

/* Scales and stores four columns from `column` on; those at n_blocks_max or beyond are not touched.
 */
static __device__ __forceinline__ void qsa_tc_store(const struct qsa_tc_target *target,
                                                    uint32_t column, const float score[4])
{
    float out[4];

    for (uint32_t i = 0; i < 4; i++)
        out[i] = column + i < target->complete ? score[i] * target->scale : -det_inf();
    if (target->wide && column + 3 < target->n_blocks_max) {
        *(float4 *)(target->row_scores + column) = make_float4(out[0], out[1], out[2], out[3]);
    } else {
        for (uint32_t i = 0; i < 4; i++)
            if (column + i < target->n_blocks_max) target->row_scores[column + i] = out[i];
    }
}

/* score += the heads' sums in order. */
static __device__ __forceinline__ void
qsa_tc_add_heads(float score[4], const struct qsa_tc_exchange *exchange, uint32_t half, uint32_t to)
{
    for (int head = 0; head < QSA_TC_HEADS; head++) {
        float4 dot = exchange->values[half][to][head][threadIdx.x % DET_WARP];

        score[0] = score[0] + dot.x;
        score[1] = score[1] + dot.y;
        score[2] = score[2] + dot.z;
        score[3] = score[3] + dot.w;
    }
}

/* How many CTAs of a grid column share their tiles' work in one: a power of two that leaves enough.
 */
static __device__ __forceinline__ uint32_t qsa_tc_span(void)
{
    uint32_t span = 1;

    while (span < QSA_TC_MAX_SPAN &&
           (uint64_t)gridDim.x * (gridDim.y / (2 * span)) >= QSA_TC_ENOUGH_CTAS)
        span *= 2;
    return span;
}

/* Grid (ceil(rows/16), ceil(n_blocks_max/64)), block 256, no dynamic shared memory. q and scores
 * are allocated for ceil(rows/16)*16 rows, q, block_keys 16-byte aligned. Keys that no row of the
 * tile reaches are not read. */
extern "C" __global__ void __launch_bounds__(QSA_THREADS, 2)
    qsa_score_rows_tc(const float *q, const uint16_t *block_keys, float *scores, uint32_t first_pos,
                      uint32_t score_stride, uint32_t ratio, uint32_t n_blocks_max)
{
    __shared__ struct qsa_tc_keys keys[2];
    __shared__ struct qsa_tc_exchange exchange;
    uint32_t lane = threadIdx.x % DET_WARP, warp = threadIdx.x / DET_WARP;
    uint32_t head = warp % QSA_TC_HEADS, half = warp / QSA_TC_HEADS;
    uint32_t row_base = blockIdx.x * QSA_TC_ROWS, row = row_base + lane / 4 + head / 2 * 8;
    uint32_t span = qsa_tc_span(), tile = blockIdx.y * span;
    uint32_t end = gridDim.y - tile < span ? gridDim.y : tile + span;
    uint32_t reach = qsa_complete_blocks(first_pos + row_base + QSA_TC_ROWS - 1, ratio);
    uint32_t limit = reach < n_blocks_max ? reach : n_blocks_max;
    struct qsa_tc_target target = {scores + (uint64_t)row * score_stride,
                                   det_rnorm((float)QSA_TC_HD),
                                   qsa_complete_blocks(first_pos + row, ratio), n_blocks_max,
                                   score_stride % 4 == 0 && ((uintptr_t)scores & 15u) == 0};
    struct qsa_tc_query query;

    if (tile >= gridDim.y) return;
    qsa_tc_begin_copy(&keys[0], block_keys, tile * QSA_TC_BLOCKS, limit);
    qsa_tc_load_query(&query, q + ((uint64_t)row_base * QSA_TC_HEADS + head) * QSA_TC_HD);
    for (uint32_t buffer = 0; tile < end; tile++, buffer ^= 1) {
        uint32_t column = tile * QSA_TC_BLOCKS + 32 * half + head % 2 * 16 + lane % 4 * 4;
        bool seen = tile * QSA_TC_BLOCKS < limit; /* by some row */
        float acc[4][4], score[4] = {0.0f, 0.0f, 0.0f, 0.0f};

        mma_copy_wait<0>();
        __syncthreads();
        if (tile + 1 < end)
            qsa_tc_begin_copy(&keys[buffer ^ 1], block_keys, (tile + 1) * QSA_TC_BLOCKS, limit);
        if (seen) {
            qsa_tc_dot(acc, &query, &keys[buffer], half);
            qsa_tc_hand_on(&exchange, acc, half, head);
        }
        __syncthreads();
        if (seen) qsa_tc_add_heads(score, &exchange, half, head);
        qsa_tc_store(&target, column, score);
    }
}

#endif
