/* Block scores on tensor cores: 4 heads, hd 128, q split into hi = bf16(q) and lo = bf16(q - hi).
 *
 * The arithmetic, which the CPU model repeats bit for bit: one f32 accumulator a (row, head,
 * block), from +0; for each k16 step in ascending k first the MMA with hi, then the MMA with lo.
 * Then relu a head, the heads added in order from +0, times rnorm(128).
 *
 * Shape. A tile is 16 rows x 64 blocks, 4 heads: 512 MMAs (m16n8k16). The keys are operand A, the
 * queries B: a warp has 16 blocks and 8 rows, and keeps the hi and lo fragments of its rows' four
 * heads for all k in 128 registers. So only keys pass through shared memory (16 KiB a tile written
 * by asynchronous copies two tiles ahead, 32 KiB read by ldmatrix), a step of k is one ldmatrix and
 * eight MMAs in four chains, and the heads are added in registers: one barrier a tile.
 *
 * Loading and splitting the queries costs a few tiles' time. Where the grid has CTAs to spare, one
 * CTA therefore covers the tiles of `span` neighbours of its grid column and these have nothing to
 * do; which CTA computes a tile does not show in the result.
 *
 * 8,192 rows x 7,168 blocks: 57,344 tiles; 2*2*4*128*8192*7168 = 1.2e11 flop, 0.15 ms at 800
 * TFLOP/s. L2 to shared memory: keys 57,344 * 16 KiB = 0.94 GB; queries, with span 56, 1,024 CTAs *
 * 32 KiB = 34 MB (without spans 1.9 GB). To memory: 235 MB of scores, 0.05 ms at 4.8 TB/s. */
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
#define QSA_TC_STAGES 3
#define QSA_TC_ENOUGH_CTAS 1024 /* several waves on the largest devices, one CTA a multiprocessor */

/* A tile's keys; piece c of key n lies at c ^ (n/2 % 8), so that the eight keys of one ldmatrix
 * phase, every other one of 16, lie in different banks. */
struct qsa_tc_keys {
    uint4 pieces[QSA_TC_BLOCKS][QSA_TC_CHUNKS];
};

/* The hi and lo fragments of 8 queries. */
struct qsa_tc_query {
    uint32_t hi[QSA_TC_HEADS][QSA_TC_STEPS][2], lo[QSA_TC_HEADS][QSA_TC_STEPS][2];
};

/* Where a thread's scores go, the same for all tiles of a CTA: two rows, two columns of each. */
struct qsa_tc_target {
    float *row_scores[2], scale;
    uint32_t complete[2], n_blocks_max;
    bool wide;
};

static __device__ __forceinline__ uint32_t qsa_tc_swizzled(uint32_t block, uint32_t piece)
{
    return piece ^ (block / 2 % 8);
}

/* `from` is the first of the 8 rows; a row is 512 floats. Fragment register r of lane 4g + t holds
 * k = 8r + 2t, +1 of row g. */
static __device__ __forceinline__ void qsa_tc_load_query(struct qsa_tc_query *query,
                                                         const float *from)
{
    uint32_t lane = threadIdx.x % DET_WARP;

    from += lane / 4 * (QSA_TC_HEADS * QSA_TC_HD) + lane % 4 * 2;
    for (int head = 0; head < QSA_TC_HEADS; head++) {
        for (int i = 0; i < QSA_TC_STEPS * 2; i++) {
            float2 q = *(const float2 *)(from + head * QSA_TC_HD + 8 * i);
            uint32_t hi = mma_bf16x2(q.x, q.y);

            query->hi[head][i / 2][i % 2] = hi;
            query->lo[head][i / 2][i % 2] =
                mma_bf16x2(q.x - fmt_bf16_low(hi), q.y - fmt_bf16_high(hi));
        }
    }
}

/* Begins copying the keys of blocks first..., zeros from block `limit` on. */
static __device__ __forceinline__ void
qsa_tc_begin_copy(struct qsa_tc_keys *keys, const uint16_t *block_keys, uint32_t first,
                  uint32_t limit)
{
    uint32_t piece = threadIdx.x % QSA_TC_CHUNKS;

    for (int i = 0; i < QSA_TC_BLOCKS * QSA_TC_CHUNKS / QSA_THREADS; i++) {
        uint32_t n = threadIdx.x / QSA_TC_CHUNKS + i * (QSA_THREADS / QSA_TC_CHUNKS);
        bool wanted = first + n < limit;
        const uint16_t *from = block_keys + (uint64_t)(first + n) * QSA_TC_HD + piece * 8;

        mma_copy16(&keys->pieces[n][qsa_tc_swizzled(n, piece)], wanted ? from : block_keys, wanted);
    }
}

/* Sums for 16 blocks from `first` on and this warp's 8 rows, in PTX's layout; row i of operand A is
 * block 2(i % 8) + i / 8, so that a thread has neighbours. */
static __device__ __forceinline__ void qsa_tc_dot(float acc[QSA_TC_HEADS][4],
                                                  const struct qsa_tc_query *query,
                                                  const struct qsa_tc_keys *keys, uint32_t first)
{
    uint32_t lane = threadIdx.x % DET_WARP, block = first + lane % 8 * 2 + lane / 8 % 2;

    for (int head = 0; head < QSA_TC_HEADS; head++)
        for (int i = 0; i < 4; i++) acc[head][i] = 0.0f;
    for (int step = 0; step < QSA_TC_STEPS; step++) {
        uint32_t a[4];

        mma_load_matrices(a, &keys->pieces[block][qsa_tc_swizzled(block, 2 * step + lane / 16)]);
        for (int head = 0; head < QSA_TC_HEADS; head++)
            mma_bf16_m16n8k16(acc[head], a, query->hi[head][step]);
        for (int head = 0; head < QSA_TC_HEADS; head++)
            mma_bf16_m16n8k16(acc[head], a, query->lo[head][step]);
    }
}

static __device__ __forceinline__ void qsa_tc_add_heads(float score[4],
                                                        const struct qsa_tc_target *target,
                                                        const float acc[QSA_TC_HEADS][4])
{
    for (int i = 0; i < 4; i++) {
        score[i] = 0.0f;
        for (int head = 0; head < QSA_TC_HEADS; head++)
            score[i] = score[i] + mma_relu(acc[head][i]);
        score[i] = score[i] * target->scale;
    }
}

/* Stores two columns from `column` on of two rows, -inf from the row's complete blocks on; columns
 * at n_blocks_max or beyond are not touched. score[i] is column + i / 2 of row i % 2. */
static __device__ __forceinline__ void qsa_tc_store(const struct qsa_tc_target *target,
                                                    uint32_t column, const float score[4])
{
    for (int r = 0; r < 2; r++) {
        float *to = target->row_scores[r] + column;
        float left = column < target->complete[r] ? score[r] : -det_inf();
        float right = column + 1 < target->complete[r] ? score[2 + r] : -det_inf();

        if (target->wide && column + 1 < target->n_blocks_max) {
            *(float2 *)to = make_float2(left, right);
        } else {
            if (column < target->n_blocks_max) to[0] = left;
            if (column + 1 < target->n_blocks_max) to[1] = right;
        }
    }
}

static __device__ __forceinline__ struct qsa_tc_target
qsa_tc_target_of(float *scores, uint32_t score_stride, uint32_t row, uint32_t first_pos,
                 uint32_t ratio, uint32_t n_blocks_max)
{
    float *first = scores + (uint64_t)row * score_stride;

    return {{first, first + score_stride},
            det_rnorm((float)QSA_TC_HD),
            {qsa_complete_blocks(first_pos + row, ratio),
             qsa_complete_blocks(first_pos + row + 1, ratio)},
            n_blocks_max,
            score_stride % 2 == 0 && ((uintptr_t)scores & 7u) == 0};
}

/* How many CTAs of a grid column one CTA stands for, so that about QSA_TC_ENOUGH_CTAS have work. */
static __device__ __forceinline__ uint32_t qsa_tc_span(void)
{
    uint32_t parts = (QSA_TC_ENOUGH_CTAS + gridDim.x - 1) / gridDim.x;

    return parts < gridDim.y ? (gridDim.y + parts - 1) / parts : 1;
}

/* Grid (ceil(rows/16), ceil(n_blocks_max/64)), block 256, no dynamic shared memory. q and scores
 * are allocated for ceil(rows/16)*16 rows; q and block_keys are 16-byte aligned. Keys that no row
 * of the tile reaches are not read. */
extern "C" __global__ void __launch_bounds__(QSA_THREADS, 1)
    qsa_score_rows_tc(const float *q, const uint16_t *block_keys, float *scores, uint32_t first_pos,
                      uint32_t score_stride, uint32_t ratio, uint32_t n_blocks_max)
{
    __shared__ struct qsa_tc_keys keys[QSA_TC_STAGES];
    uint32_t lane = threadIdx.x % DET_WARP, warp = threadIdx.x / DET_WARP;
    uint32_t row_base = blockIdx.x * QSA_TC_ROWS, rows8 = row_base + warp / 4 * 8;
    uint32_t warp_blocks = warp % 4 * 16;
    uint32_t span = qsa_tc_span(), tile = blockIdx.y * span;
    uint32_t end = gridDim.y - tile < span ? gridDim.y : tile + span;
    uint32_t reach = qsa_complete_blocks(first_pos + row_base + QSA_TC_ROWS - 1, ratio);
    uint32_t limit = reach < n_blocks_max ? reach : n_blocks_max;
    struct qsa_tc_target target = qsa_tc_target_of(scores, score_stride, rows8 + lane % 4 * 2,
                                                   first_pos, ratio, n_blocks_max);
    struct qsa_tc_query query;

    if (tile >= gridDim.y) return;
    for (uint32_t ahead = 0; ahead < QSA_TC_STAGES - 1; ahead++) {
        qsa_tc_begin_copy(&keys[ahead], block_keys, (tile + ahead) * QSA_TC_BLOCKS, limit);
        mma_copy_commit();
    }
    qsa_tc_load_query(&query, q + (uint64_t)rows8 * (QSA_TC_HEADS * QSA_TC_HD));
    for (uint32_t stage = 0; tile < end && tile * QSA_TC_BLOCKS < limit; tile++) {
        uint32_t next = stage == 0 ? QSA_TC_STAGES - 1 : stage - 1;
        float acc[QSA_TC_HEADS][4], score[4];

        mma_copy_wait<QSA_TC_STAGES - 2>();
        __syncthreads();
        if (tile + QSA_TC_STAGES - 1 < end)
            qsa_tc_begin_copy(&keys[next], block_keys,
                              (tile + QSA_TC_STAGES - 1) * QSA_TC_BLOCKS, limit);
        mma_copy_commit();
        qsa_tc_dot(acc, &query, &keys[stage], warp_blocks);
        qsa_tc_add_heads(score, &target, acc);
        qsa_tc_store(&target, tile * QSA_TC_BLOCKS + warp_blocks + lane / 4 * 2, score);
        stage = stage == QSA_TC_STAGES - 1 ? 0 : stage + 1;
    }
    for (; tile < end; tile++) {
        const float nothing[4] = {};

        qsa_tc_store(&target, tile * QSA_TC_BLOCKS + warp_blocks + lane / 4 * 2, nothing);
    }
}

#endif
