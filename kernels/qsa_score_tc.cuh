/* Block scores on tensor cores: 4 heads, hd 128, q split into hi = bf16(q) and lo = bf16(q - hi).
 *
 * The arithmetic, which the CPU model repeats bit for bit: one f32 accumulator a (row, head,
 * block), from +0; for each k16 step in ascending k first the MMA with hi, then the MMA with lo.
 * Then relu a head, the heads added in order from +0, times rnorm(128).
 *
 * Shape. A tile is 16 rows x 64 blocks, 4 heads: 512 MMAs (m16n8k16). The keys are operand A, the
 * queries B. A warp has 32 blocks, 8 rows and 2 heads, whose hi and lo fragments it keeps for all k
 * in 64 registers; so only keys pass through shared memory (16 KiB a tile written by asynchronous
 * copies one tile ahead, 64 KiB read by ldmatrix: 512 cycles of shared memory), and a step of k is
 * two ldmatrix and eight MMAs in four chains. The warp of heads 0 and 1 hands its sum through 4 KiB
 * of shared memory to the warp of heads 2 and 3 on the same scheduler, which finishes a tile while
 * the other begins the next: one barrier a tile. Two CTAs fit a multiprocessor.
 *
 * Loading and splitting the queries costs about a tile's time. Where the grid has CTAs to spare,
 * one CTA therefore covers the tiles of `span` neighbours of its grid column and these have nothing
 * to do; which CTA computes a tile does not show in the result.
 *
 * 8,192 rows x 7,168 blocks: 57,344 tiles; 2*2*4*128*8192*7168 = 1.2e11 flop, 0.15 ms at 800
 * TFLOP/s. L2 to shared memory: keys 57,344 * 16 KiB = 0.94 GB; queries, with span 56, 1,024 CTAs *
 * 32 KiB = 34 MB (without spans 1.9 GB). To memory: 235 MB of scores, 0.05 ms at 4.8 TB/s.
 * Launching the CTAs alone takes 0.045 ms. Measured on one H200: 0.37 ms. */
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
#define QSA_TC_STAGES 2
#define QSA_TC_PAIRS 4          /* pairs of warps, each 8 rows x 32 blocks */
#define QSA_TC_ENOUGH_CTAS 1024 /* several waves on the largest devices */

/* A tile's keys; piece c of key n lies at c ^ (n/4 % 8), so that the eight keys of one ldmatrix
 * phase, every fourth one of 32, lie in different banks. */
struct qsa_tc_keys {
    uint4 pieces[QSA_TC_BLOCKS][QSA_TC_CHUNKS];
};

/* Sums of heads 0 and 1 on their way: [pair][row of the thread][lane], four blocks. */
struct qsa_tc_sums {
    float4 values[QSA_TC_PAIRS][2][DET_WARP];
};

/* The hi and lo fragments of two heads of 8 queries. */
struct qsa_tc_query {
    uint32_t hi[2][QSA_TC_STEPS][2], lo[2][QSA_TC_STEPS][2];
};

/* Results of two heads: block 2m + i/2 of a thread's four, row i%2 of its two. */
struct qsa_tc_dots {
    float head[2][2][4]; /* [head][m][i] */
};

/* Where a thread's scores go, the same for all tiles of a CTA. */
struct qsa_tc_target {
    float *row_scores[2], scale;
    uint32_t complete[2], n_blocks_max;
    bool wide;
};

static __device__ __forceinline__ uint32_t qsa_tc_min(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static __device__ __forceinline__ uint32_t qsa_tc_swizzled(uint32_t block, uint32_t piece)
{
    return piece ^ (block / 4 % 8);
}

/* `from` is the first row at the first of the two heads; a row is 512 floats. Fragment register r
 * of lane 4g + t holds k = 8r + 2t, +1 of row g. */
static __device__ __forceinline__ void qsa_tc_load_query(struct qsa_tc_query *query,
                                                         const float *from)
{
    uint32_t lane = threadIdx.x % DET_WARP;

    from += lane / 4 * (QSA_TC_HEADS * QSA_TC_HD) + lane % 4 * 2;
    for (int head = 0; head < 2; head++) {
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
static __device__ __forceinline__ void qsa_tc_begin_copy(struct qsa_tc_keys *keys,
                                                         const uint16_t *block_keys, uint32_t first,
                                                         uint32_t limit)
{
    uint32_t row = threadIdx.x / QSA_TC_CHUNKS, piece = threadIdx.x % QSA_TC_CHUNKS;
    const uint16_t *from = block_keys + (uint64_t)(first + row) * QSA_TC_HD + piece * 8;

    for (uint32_t i = 0; i < QSA_TC_BLOCKS; i += QSA_THREADS / QSA_TC_CHUNKS)
        mma_copy16(&keys->pieces[row + i][qsa_tc_swizzled(row + i, piece)], from + i * QSA_TC_HD,
                   first + row + i < limit);
    mma_copy_commit();
}

/* Two heads of this warp's rows and of 32 blocks from `first` on. Row i of the m-th operand A is
 * block 4(i % 8) + 2m + i / 8, so that a thread has four neighbours. */
static __device__ __forceinline__ void qsa_tc_dot(struct qsa_tc_dots *dots,
                                                  const struct qsa_tc_query *query,
                                                  const struct qsa_tc_keys *keys, uint32_t first)
{
    uint32_t lane = threadIdx.x % DET_WARP, block = first + lane % 8 * 4 + lane / 8 % 2;

    for (int i = 0; i < 16; i++) dots->head[i / 8][i / 4 % 2][i % 4] = 0.0f;
    for (int step = 0; step < QSA_TC_STEPS; step++) {
        uint32_t a[2][4], piece = qsa_tc_swizzled(block, 2 * step + lane / 16);

        mma_load_matrices(a[0], &keys->pieces[block][piece]);
        mma_load_matrices(a[1], &keys->pieces[block + 2][piece]);
        for (int i = 0; i < 4; i++)
            mma_bf16_m16n8k16(dots->head[i % 2][i / 2], a[i / 2], query->hi[i % 2][step]);
        for (int i = 0; i < 4; i++)
            mma_bf16_m16n8k16(dots->head[i % 2][i / 2], a[i / 2], query->lo[i % 2][step]);
    }
}

/* Heads 0 and 1 for the pair's other warp. A relu is never -0, so the first head is the sum of +0
 * and itself. */
static __device__ __forceinline__ void qsa_tc_hand_on(float4 sums[2][DET_WARP],
                                                      const struct qsa_tc_dots *dots)
{
    for (int r = 0; r < 2; r++) {
        float sum[4];

        for (int b = 0; b < 4; b++)
            sum[b] = mma_relu(dots->head[0][b / 2][b % 2 * 2 + r]) +
                     mma_relu(dots->head[1][b / 2][b % 2 * 2 + r]);
        sums[r][threadIdx.x % DET_WARP] = make_float4(sum[0], sum[1], sum[2], sum[3]);
    }
}

/* Stores a row's four columns from `column` on, -inf from its complete blocks on; columns at
 * n_blocks_max or beyond are not touched. */
static __device__ __forceinline__ void qsa_tc_store(const struct qsa_tc_target *target, int row,
                                                    uint32_t column, float score[4])
{
    float *to = target->row_scores[row] + column;

    for (uint32_t b = 0; b < 4; b++)
        score[b] = column + b < target->complete[row] ? score[b] : -det_inf();
    if (target->wide && column + 3 < target->n_blocks_max) {
        *(float4 *)to = make_float4(score[0], score[1], score[2], score[3]);
    } else {
        for (uint32_t b = 0; b < 4; b++)
            if (column + b < target->n_blocks_max) to[b] = score[b];
    }
}

/* Adds heads 2 and 3 to the sums of heads 0 and 1 and stores the scores. */
static __device__ __forceinline__ void qsa_tc_finish(const struct qsa_tc_target *target,
                                                     uint32_t column,
                                                     const float4 sums[2][DET_WARP],
                                                     const struct qsa_tc_dots *dots)
{
    for (int r = 0; r < 2; r++) {
        float4 sum = sums[r][threadIdx.x % DET_WARP];
        float score[4] = {sum.x, sum.y, sum.z, sum.w};

        for (int b = 0; b < 4; b++) {
            score[b] = score[b] + mma_relu(dots->head[0][b / 2][b % 2 * 2 + r]);
            score[b] = score[b] + mma_relu(dots->head[1][b / 2][b % 2 * 2 + r]);
            score[b] = score[b] * target->scale;
        }
        qsa_tc_store(target, r, column, score);
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
            score_stride % 4 == 0 && ((uintptr_t)scores & 15u) == 0};
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
extern "C" __global__ void __launch_bounds__(QSA_THREADS, 2)
    qsa_score_rows_tc(const float *q, const uint16_t *block_keys, float *scores, uint32_t first_pos,
                      uint32_t score_stride, uint32_t ratio, uint32_t n_blocks_max)
{
    __shared__ struct qsa_tc_keys keys[QSA_TC_STAGES];
    __shared__ struct qsa_tc_sums sums[2];
    uint32_t lane = threadIdx.x % DET_WARP, warp = threadIdx.x / DET_WARP;
    uint32_t pair = warp % QSA_TC_PAIRS, half = pair % 2 * 32;
    uint32_t row_base = blockIdx.x * QSA_TC_ROWS, rows8 = row_base + pair / 2 * 8;
    bool finishes = warp >= QSA_TC_PAIRS; /* has heads 2 and 3 */
    uint32_t span = qsa_tc_span(), tile = blockIdx.y * span, next = tile * QSA_TC_BLOCKS;
    uint32_t end = qsa_tc_min(next + span * QSA_TC_BLOCKS, n_blocks_max);
    uint32_t reach = qsa_complete_blocks(first_pos + row_base + QSA_TC_ROWS - 1, ratio);
    uint32_t limit = qsa_tc_min(reach, end), first = next, column = half + lane / 4 * 4;
    struct qsa_tc_target target = qsa_tc_target_of(scores, score_stride, rows8 + lane % 4 * 2,
                                                   first_pos, ratio, n_blocks_max);
    struct qsa_tc_query query;
    struct qsa_tc_dots dots;

    if (tile >= gridDim.y) return;
    qsa_tc_begin_copy(&keys[0], block_keys, next, limit);
    qsa_tc_load_query(&query,
                      q + ((uint64_t)rows8 * QSA_TC_HEADS + (finishes ? 2 : 0)) * QSA_TC_HD);
    while (next < limit) {
#pragma unroll
        for (int stage = 0; stage < QSA_TC_STAGES; stage++) {
            if (next >= limit) break;
            mma_copy_wait<0>();
            __syncthreads();
            qsa_tc_begin_copy(&keys[stage ^ 1], block_keys, next + QSA_TC_BLOCKS, limit);
            if (finishes && next > first)
                qsa_tc_finish(&target, next - QSA_TC_BLOCKS + column, sums[stage ^ 1].values[pair],
                              &dots);
            qsa_tc_dot(&dots, &query, &keys[stage], half);
            if (!finishes) qsa_tc_hand_on(sums[stage].values[pair], &dots);
            next += QSA_TC_BLOCKS;
        }
    }
    __syncthreads();
    if (!finishes) return;
    if (next > first)
        qsa_tc_finish(&target, next - QSA_TC_BLOCKS + column,
                      sums[((next - first) / QSA_TC_BLOCKS - 1) % 2].values[pair], &dots);
    for (; next < end; next += QSA_TC_BLOCKS) {
        for (int r = 0; r < 2; r++) {
            float nothing[4] = {};

            qsa_tc_store(&target, r, next + column, nothing);
        }
    }
}

#endif
