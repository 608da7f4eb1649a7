/* Block scores in canonical arithmetic, a tile of rows and blocks at a time: the bits of qsa_score.
 *
 * qsa_score_rows has a CTA a (row, block) pair. With 8,192 rows and 7,168 blocks these are 5.9e7
 * CTAs. 57,344 took 0.045 ms to launch on one H200: at that rate launching takes 46 ms, against 2
 * ms for the arithmetic. Hence this entry point of its own, whose grid counts tiles.
 *
 * A thread computes 4 x 4 scores. tree32 over a run of 32 channels is evaluated depth first: the
 * products of channels c and c + 16, the sum with that of c + 8 and c + 24, and so on, so that at
 * most five sums of each score wait at any time. The order of additions is that of det_tree32; only
 * which independent sum comes first differs.
 *
 * A slab, 32 channels of one head for all rows and blocks of the tile, lies in shared memory with
 * the channel as the outer index: a channel's four rows and four blocks are two 16-byte loads for
 * 16 products and 16 sums. While a slab is used, the next is on its way: queries by
 * asynchronous copies, keys, which are to be floats, in registers. */
#ifndef ATTEST_KERNELS_QSA_SCORE_TILE_CUH
#define ATTEST_KERNELS_QSA_SCORE_TILE_CUH

#include "mma.cuh"
#include "qsa_common.cuh"

#define QSA_TILE 64                                              /* rows, and blocks, of a tile */
#define QSA_TILE_OWN 4                                           /* rows, and blocks, of a thread */
#define QSA_TILE_RUN DET_WARP                                    /* channels of a slab */
#define QSA_TILE_FETCHED (QSA_TILE * QSA_TILE_RUN / QSA_THREADS) /* of q and of keys, a thread */

/* Four floats behind 64 keep 16-byte alignment, and a warp that writes 8 channels of 4 rows meets
 * every bank once. */
struct qsa_tile_slab {
    float q[QSA_TILE_RUN][QSA_TILE + 4], keys[QSA_TILE_RUN][QSA_TILE + 4];
};

/* A thread's 4 x 4 values: [row][block]. */
struct qsa_tile_values {
    float of[QSA_TILE_OWN][QSA_TILE_OWN];
};

/* A thread's part in copying: the channels channel + 8i of rows, and blocks, line and line + 4. */
struct qsa_tile_source {
    const float *q[2];
    const uint16_t *keys[2];
    uint32_t line, channel;
    bool wants_q[2], wants_keys[2];
};

/* What of the output a CTA has: rows row..., blocks block..., of which the first n_rows and
 * n_blocks are scored; n_blocks is 0 if no row of the tile sees a block of it. */
struct qsa_tile_extent {
    uint32_t row, block, n_rows, n_blocks;
};

static __device__ __forceinline__ uint32_t qsa_tile_min(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static __device__ __forceinline__ void qsa_tile_add(struct qsa_tile_values *sum,
                                                    const struct qsa_tile_values *other)
{
#pragma unroll
    for (int i = 0; i < QSA_TILE_OWN * QSA_TILE_OWN; i++)
        sum->of[i / QSA_TILE_OWN][i % QSA_TILE_OWN] = sum->of[i / QSA_TILE_OWN][i % QSA_TILE_OWN] +
                                                      other->of[i / QSA_TILE_OWN][i % QSA_TILE_OWN];
}

static __device__ __forceinline__ void qsa_tile_products(struct qsa_tile_values *products,
                                                         const float *q, const float *keys)
{
    float4 q4 = *(const float4 *)q, keys4 = *(const float4 *)keys;
    float qs[] = {q4.x, q4.y, q4.z, q4.w}, ks[] = {keys4.x, keys4.y, keys4.z, keys4.w};

#pragma unroll
    for (int i = 0; i < QSA_TILE_OWN * QSA_TILE_OWN; i++)
        products->of[i / QSA_TILE_OWN][i % QSA_TILE_OWN] =
            qs[i / QSA_TILE_OWN] * ks[i % QSA_TILE_OWN];
}

/* What tree32 leaves in x[channel], channel < STEP, once it has added STEP and all larger steps;
 * STEP 1 is the whole tree. q and keys are the thread's columns of channel 0. */
template <int STEP>
static __device__ __forceinline__ void qsa_tile_tree(struct qsa_tile_values *sum, const float *q,
                                                     const float *keys, int channel)
{
    if constexpr (STEP == QSA_TILE_RUN) {
        qsa_tile_products(sum, q + channel * (QSA_TILE + 4), keys + channel * (QSA_TILE + 4));
    } else {
        struct qsa_tile_values other;

        qsa_tile_tree<2 * STEP>(sum, q, keys, channel);
        qsa_tile_tree<2 * STEP>(&other, q, keys, channel + STEP);
        qsa_tile_add(sum, &other);
    }
}

/* Rows and blocks past the end repeat the last one: what is computed of them is not stored. */
static __device__ __forceinline__ void
qsa_tile_source_of(struct qsa_tile_source *source, const float *q, const uint16_t *block_keys,
                   const struct qsa_tile_extent *tile, uint32_t n_heads, uint32_t hd)
{
    uint32_t lane = threadIdx.x % DET_WARP;

    source->line = threadIdx.x / DET_WARP * 8 + lane / 8;
    source->channel = lane % 8;
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t line = source->line + 4 * i;
        uint64_t row = tile->row + qsa_tile_min(line, tile->n_rows - 1);
        uint64_t block = tile->block + qsa_tile_min(line, tile->n_blocks - 1);

        source->wants_q[i] = line / 4 * 4 < tile->n_rows;
        source->wants_keys[i] = line / 4 * 4 < tile->n_blocks;
        source->q[i] = q + row * n_heads * hd + source->channel;
        source->keys[i] = block_keys + block * hd + source->channel;
    }
}

/* Begins the copy of the queries' next 32 channels and reads the keys' from `channel` on. */
static __device__ __forceinline__ void qsa_tile_fetch(struct qsa_tile_slab *slab,
                                                      uint16_t keys[QSA_TILE_FETCHED],
                                                      struct qsa_tile_source *source,
                                                      uint32_t channel)
{
#pragma unroll
    for (uint32_t i = 0; i < QSA_TILE_FETCHED; i++) {
        if (source->wants_q[i / 4])
            mma_copy_float(&slab->q[source->channel + i % 4 * 8][source->line + i / 4 * 4],
                           source->q[i / 4] + i % 4 * 8);
        if (source->wants_keys[i / 4]) keys[i] = source->keys[i / 4][channel + i % 4 * 8];
    }
    mma_copy_commit();
    source->q[0] += QSA_TILE_RUN;
    source->q[1] += QSA_TILE_RUN;
}

/* Writes the keys that qsa_tile_fetch read and waits for its copies. */
static __device__ __forceinline__ void qsa_tile_place(struct qsa_tile_slab *slab,
                                                      const uint16_t keys[QSA_TILE_FETCHED],
                                                      const struct qsa_tile_source *source)
{
#pragma unroll
    for (uint32_t i = 0; i < QSA_TILE_FETCHED; i++) {
        if (source->wants_keys[i / 4])
            slab->keys[source->channel + i % 4 * 8][source->line + i / 4 * 4] =
                fmt_bf16_to_f32(keys[i]);
    }
    mma_copy_wait<0>();
}

/* blocksum, relu and the sum over heads of the slab's products. A blocksum starts with its first
 * partial instead of adding it to +0, which differs in the sign of a zero at most; the relu makes
 * both zeros +0. */
static __device__ __forceinline__ void qsa_tile_collect(struct qsa_tile_values *total,
                                                        struct qsa_tile_values *dot,
                                                        const struct qsa_tile_values *partial,
                                                        bool first, bool last)
{
    if (first)
        *dot = *partial;
    else
        qsa_tile_add(dot, partial);
    if (!last) return;
#pragma unroll
    for (int i = 0; i < QSA_TILE_OWN * QSA_TILE_OWN; i++)
        total->of[i / QSA_TILE_OWN][i % QSA_TILE_OWN] =
            total->of[i / QSA_TILE_OWN][i % QSA_TILE_OWN] +
            mma_relu(dot->of[i / QSA_TILE_OWN][i % QSA_TILE_OWN]);
}

/* The sums over heads of the thread's rows `row`... and blocks `block`... of the tile. One barrier
 * a slab: while one is used, the other is written. */
static __device__ __forceinline__ void qsa_tile_sums(struct qsa_tile_values *total,
                                                     struct qsa_tile_slab slabs[2],
                                                     struct qsa_tile_source *source, uint32_t row,
                                                     uint32_t block, bool wanted, uint32_t n_heads,
                                                     uint32_t hd)
{
    uint32_t slab = 0, head = 0, channel = 0;
    struct qsa_tile_values dot, partial;
    uint16_t keys[QSA_TILE_FETCHED];

    qsa_tile_fetch(&slabs[0], keys, source, 0);
    qsa_tile_place(&slabs[0], keys, source);
    __syncthreads();
    while (head < n_heads) {
        bool first = channel == 0;

        channel = channel + QSA_TILE_RUN == hd ? 0 : channel + QSA_TILE_RUN;
        head += channel == 0;
        if (head < n_heads) qsa_tile_fetch(&slabs[slab ^ 1], keys, source, channel);
        if (wanted) {
            qsa_tile_tree<1>(&partial, &slabs[slab].q[0][row], &slabs[slab].keys[0][block], 0);
            qsa_tile_collect(total, &dot, &partial, first, channel == 0);
        }
        slab ^= 1;
        if (head < n_heads) qsa_tile_place(&slabs[slab], keys, source);
        __syncthreads();
    }
}

/* Stores a row's four columns from `column` on, -inf from its complete blocks on; columns at
 * n_blocks_max or beyond are not touched. */
static __device__ __forceinline__ void qsa_tile_store(float *row_scores, uint32_t column,
                                                      const float sums[QSA_TILE_OWN], float scale,
                                                      uint32_t complete, uint32_t n_blocks_max,
                                                      bool wide)
{
    float score[QSA_TILE_OWN];

#pragma unroll
    for (uint32_t b = 0; b < QSA_TILE_OWN; b++)
        score[b] = column + b < complete ? sums[b] * scale : -det_inf();
    if (wide && column + 3 < n_blocks_max) {
        *(float4 *)(row_scores + column) = make_float4(score[0], score[1], score[2], score[3]);
    } else {
#pragma unroll
        for (uint32_t b = 0; b < QSA_TILE_OWN; b++)
            if (column + b < n_blocks_max) row_scores[column + b] = score[b];
    }
}

/* Grid (ceil(rows/64), ceil(n_blocks_max/64)), block 256, no dynamic shared memory. Keys that no
 * row of the tile reaches are not read. */
extern "C" __global__ void __launch_bounds__(QSA_THREADS, 2)
    qsa_score_rows_tiled(const float *q, const uint16_t *block_keys, float *scores,
                         uint32_t first_pos, uint32_t score_stride, uint32_t ratio,
                         uint32_t n_heads, uint32_t hd, uint32_t rows, uint32_t n_blocks_max)
{
    __shared__ struct qsa_tile_slab slabs[2];
    uint32_t lane = threadIdx.x % DET_WARP, warp = threadIdx.x / DET_WARP;
    uint32_t row = warp / 2 * 16 + lane / 8 * 4, block = warp % 2 * 32 + lane % 8 * 4;
    struct qsa_tile_extent tile = {blockIdx.x * QSA_TILE, blockIdx.y * QSA_TILE, 0, 0};
    struct qsa_tile_values total = {};
    bool wide = score_stride % 4 == 0 && ((uintptr_t)scores & 15u) == 0;
    uint32_t reach;

    tile.n_rows = qsa_tile_min(rows - tile.row, QSA_TILE);
    reach = qsa_tile_min(qsa_complete_blocks(first_pos + tile.row + tile.n_rows - 1, ratio),
                         n_blocks_max);
    tile.n_blocks = reach > tile.block ? qsa_tile_min(reach - tile.block, QSA_TILE) : 0;
    if (tile.n_blocks > 0) {
        struct qsa_tile_source source;

        qsa_tile_source_of(&source, q, block_keys, &tile, n_heads, hd);
        qsa_tile_sums(&total, slabs, &source, row, block,
                      row < tile.n_rows && block < tile.n_blocks, n_heads, hd);
    }
#pragma unroll
    for (uint32_t r = 0; r < QSA_TILE_OWN; r++) {
        uint32_t at = tile.row + row + r;

        if (row + r >= tile.n_rows) break;
        qsa_tile_store(scores + (uint64_t)at * score_stride, tile.block + block, total.of[r],
                       det_rnorm((float)hd), qsa_complete_blocks(first_pos + at, ratio),
                       n_blocks_max, wide);
    }
}

#endif
