/* Pool scores of the DSA indexer: a tile of pools for one query at a time.
 *
 * A thread computes the dots of 4 heads with 4 pools. Channel d belongs to lane d % 32 of the
 * canonical sum: a lane adds its channels in order, then tree32 joins the lanes. It is evaluated
 * depth first: of the lanes that tree32 adds last (lane mod 4: 0 and 2, 1 and 3) one class after
 * the other, within a class lane l with l + 16, then with l + 8 and l + 24, and so on. So a class,
 * a quarter of the channels, passes through shared memory at a time, and few sums wait. The
 * canonical sums start from +0; starting from the first product differs in the sign of a zero at
 * most, and the relu makes both zeros +0. */
#ifndef ATTEST_KERNELS_DSA_SCORE_CUH
#define ATTEST_KERNELS_DSA_SCORE_CUH

#include "det_math.cuh"
#include "dsa_geom.cuh"
#include "mma.cuh"

#define DSA_SCORE_THREADS 256
#define DSA_TILE_POOLS 128
#define DSA_TILE_HEADS 32
#define DSA_TILE_OWN 4     /* heads, and pools, of a thread */
#define DSA_TILE_D 128     /* channels of a staged tile */
#define DSA_TILE_CLASSES 4 /* stages of a tile: channels by their remainder */
#define DSA_TILE_CHANNELS (DSA_TILE_D / DSA_TILE_CLASSES)
#define DSA_TILE_LANES (DET_WARP / DSA_TILE_CLASSES) /* lanes of a class */
#define DSA_TILE_RUNS (DSA_TILE_D / DET_WARP)        /* channels of a lane */

/* Channel 4c + class of every head and pool: [c]. Four floats behind a row keep 16-byte alignment,
 * and a warp that writes 8 channels of 4 pools meets every bank once. */
struct dsa_tile_stage {
    float q[DSA_TILE_CHANNELS][DSA_TILE_HEADS + 4], keys[DSA_TILE_CHANNELS][DSA_TILE_POOLS + 4];
};

/* The terms of the heads take the place of the first stage, of which all threads are done when the
 * last class, in the second, begins. */
union dsa_tile_shared {
    struct dsa_tile_stage stages[2];
    float terms[DSA_TILE_HEADS][DSA_TILE_POOLS + 4];
};

/* A thread's 4 x 4 values: [head][pool]. */
struct dsa_tile_values {
    float of[DSA_TILE_OWN][DSA_TILE_OWN];
};

/* One query against pools: q [H, D], weights [H], keys [n_pools, D], n_pools <= 128; the thread's
 * first head, within 32 of them, and first pool. */
struct dsa_tile {
    const float *q, *weights, *keys;
    uint32_t H, D, n_pools, head, pool;
    float scale;
};

static __device__ __forceinline__ uint32_t dsa_tile_min(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static __device__ __forceinline__ void dsa_tile_add(struct dsa_tile_values *sum,
                                                    const struct dsa_tile_values *other)
{
#pragma unroll
    for (int h = 0; h < DSA_TILE_OWN; h++)
#pragma unroll
        for (int p = 0; p < DSA_TILE_OWN; p++) sum->of[h][p] = sum->of[h][p] + other->of[h][p];
}

static __device__ __forceinline__ void dsa_tile_products(struct dsa_tile_values *products,
                                                         const float *q, const float *keys)
{
    float4 q4 = *(const float4 *)q, keys4 = *(const float4 *)keys;
    float qs[] = {q4.x, q4.y, q4.z, q4.w}, ks[] = {keys4.x, keys4.y, keys4.z, keys4.w};

#pragma unroll
    for (int h = 0; h < DSA_TILE_OWN; h++)
#pragma unroll
        for (int p = 0; p < DSA_TILE_OWN; p++) products->of[h][p] = qs[h] * ks[p];
}

/* The tree over the eight lanes of a class, of which this node joins lane, lane + STEP, ... STEP 1
 * is all of them. Lane l of the class has the stage's channels l, l + 8, ... */
template <int STEP>
static __device__ __forceinline__ void dsa_tile_tree(struct dsa_tile_values *sum,
                                                     const struct dsa_tile_stage *stage,
                                                     const struct dsa_tile *t, int lane)
{
    struct dsa_tile_values other;

    if constexpr (STEP == DSA_TILE_LANES) {
        dsa_tile_products(sum, &stage->q[lane][t->head], &stage->keys[lane][t->pool]);
#pragma unroll
        for (int run = 1; run < DSA_TILE_RUNS; run++) {
            int c = lane + run * DSA_TILE_LANES;

            dsa_tile_products(&other, &stage->q[c][t->head], &stage->keys[c][t->pool]);
            dsa_tile_add(sum, &other);
        }
    } else {
        dsa_tile_tree<2 * STEP>(sum, stage, t, lane);
        dsa_tile_tree<2 * STEP>(&other, stage, t, lane + STEP);
        dsa_tile_add(sum, &other);
    }
}

/* Begins copying a class of channels of the heads group... and of all pools. Heads and pools past
 * the end repeat the last one, up to the thread that has it: what comes of them is not used. */
static __device__ __forceinline__ void
dsa_tile_copy(struct dsa_tile_stage *stage, const struct dsa_tile *t, uint32_t group, uint32_t cls)
{
    uint32_t first = threadIdx.x / 8, c = threadIdx.x % 8;
    const float *q = t->q + (uint64_t)dsa_tile_min(group + first, t->H - 1) * t->D;

#pragma unroll
    for (uint32_t i = 0; i < DSA_TILE_CHANNELS; i += 8) {
        if (group + first / DSA_TILE_OWN * DSA_TILE_OWN < t->H)
            mma_copy_float(&stage->q[c + i][first], q + (c + i) * DSA_TILE_CLASSES + cls);
    }
#pragma unroll
    for (uint32_t pool = first; pool < DSA_TILE_POOLS; pool += DSA_SCORE_THREADS / 8) {
        const float *key = t->keys + (uint64_t)dsa_tile_min(pool, t->n_pools - 1) * t->D;

        if (pool / DSA_TILE_OWN * DSA_TILE_OWN >= t->n_pools) break;
#pragma unroll
        for (uint32_t i = 0; i < DSA_TILE_CHANNELS; i += 8)
            mma_copy_float(&stage->keys[c + i][pool], key + (c + i) * DSA_TILE_CLASSES + cls);
    }
    mma_copy_commit();
}

/* The dots of the thread's heads, from the tile's group on, and pools; all threads take part. The
 * classes come in the order 0, 2, 1, 3, in which tree32 joins them. */
static __device__ __forceinline__ void dsa_tile_dots(struct dsa_tile_values *dots,
                                                     struct dsa_tile_stage stages[2],
                                                     const struct dsa_tile *t, uint32_t group,
                                                     bool wanted)
{
    struct dsa_tile_values odd, cls;

    dsa_tile_copy(&stages[0], t, group, 0);
#pragma unroll
    for (int stage = 0; stage < DSA_TILE_CLASSES; stage++) {
        mma_copy_wait<0>();
        __syncthreads();
        if (stage + 1 < DSA_TILE_CLASSES)
            dsa_tile_copy(&stages[(stage + 1) % 2], t, group, stage == 0 ? 2 : stage == 1 ? 1 : 3);
        if (!wanted) continue;
        dsa_tile_tree<1>(&cls, &stages[stage % 2], t, 0);
        if (stage == 0) *dots = cls;
        if (stage == 1) dsa_tile_add(dots, &cls);
        if (stage == 2) odd = cls;
        if (stage == 3) {
            dsa_tile_add(&odd, &cls);
            dsa_tile_add(dots, &odd);
        }
    }
}

/* The canonical dot for any D, in one thread. */
static __device__ __forceinline__ float dsa_dot(const float *q, const float *key, uint32_t D)
{
    float lanes[DET_WARP];

#pragma unroll
    for (int lane = 0; lane < DET_WARP; lane++) lanes[lane] = 0.0f;
    for (uint32_t run = 0; run < D; run += DET_WARP) {
#pragma unroll
        for (int lane = 0; lane < DET_WARP; lane++) {
            float product = q[run + lane] * key[run + lane];

            lanes[lane] = lanes[lane] + product;
        }
    }
#pragma unroll
    for (int step = DET_WARP / 2; step > 0; step /= 2) {
#pragma unroll
        for (int lane = 0; lane < DET_WARP / 2; lane++)
            if (lane < step) lanes[lane] = lanes[lane] + lanes[lane + step];
    }
    return lanes[0];
}

static __device__ __forceinline__ float dsa_term(const struct dsa_tile *t, uint32_t head, float dot)
{
    return t->weights[head] * mma_relu(t->scale * dot);
}

static_assert(DSA_TILE_CLASSES % 2 == 0 &&
                  sizeof(((union dsa_tile_shared *)0)->terms) <= sizeof(struct dsa_tile_stage),
              "terms would lie over the stage of the last class");

/* weights[h] * relu(scale * dot_h) of the heads group..., at most 32, into `terms`. */
static __device__ __forceinline__ void dsa_tile_terms(union dsa_tile_shared *shared,
                                                      const struct dsa_tile *t, uint32_t group)
{
    bool wanted = group + t->head < t->H && t->pool < t->n_pools;
    struct dsa_tile_values dots;

    if (t->D == DSA_TILE_D) {
        dsa_tile_dots(&dots, shared->stages, t, group, wanted);
#pragma unroll
        for (uint32_t h = 0; h < DSA_TILE_OWN; h++) {
            if (!wanted || group + t->head + h >= t->H) break;
#pragma unroll
            for (uint32_t p = 0; p < DSA_TILE_OWN; p++)
                shared->terms[t->head + h][t->pool + p] =
                    dsa_term(t, group + t->head + h, dots.of[h][p]);
        }
    } else {
        for (uint32_t i = 0; wanted && i < DSA_TILE_OWN * DSA_TILE_OWN; i++) {
            uint32_t h = t->head + i / DSA_TILE_OWN, p = t->pool + i % DSA_TILE_OWN;

            if (group + h < t->H && p < t->n_pools)
                shared->terms[h][p] = dsa_term(t, group + h,
                                               dsa_dot(t->q + (uint64_t)(group + h) * t->D,
                                                       t->keys + (uint64_t)p * t->D, t->D));
        }
    }
    __syncthreads();
}

/* The score of pool threadIdx.x of the tile: the terms in head order from +0. All threads take
 * part; those without a pool get 0. */
static __device__ __forceinline__ float dsa_tile_score(union dsa_tile_shared *shared,
                                                       const struct dsa_tile *t)
{
    float score = 0.0f;

    for (uint32_t group = 0; group < t->H; group += DSA_TILE_HEADS) {
        uint32_t heads = dsa_tile_min(t->H - group, DSA_TILE_HEADS);

        if (group > 0) __syncthreads();
        dsa_tile_terms(shared, t, group);
        for (uint32_t h = 0; threadIdx.x < t->n_pools && h < heads; h++)
            score = score + shared->terms[h][threadIdx.x];
    }
    return score;
}

/* A pool is a candidate of a query iff it is valid and its last token is valid and not after it. */
static __device__ __forceinline__ bool dsa_is_candidate(uint8_t pool_valid, int32_t last_token,
                                                        const uint8_t *valid_keys, uint32_t S,
                                                        int32_t q_pos)
{
    return pool_valid != 0 && last_token >= 0 && (uint32_t)last_token < S && last_token <= q_pos &&
           valid_keys[last_token] != 0;
}

/* What the two entry points are called with. */
struct dsa_scoring {
    const float *q, *pool_keys, *weights;
    const int32_t *pool_indices;
    const uint8_t *pool_valid, *valid_keys;
    const int32_t *q_pos;
    float *out;
    uint8_t *valid_cand;
    uint32_t P, H, D, KP, S;
    float scale;
    const int32_t *geom;
};

/* Exact: score = sum over heads, in order from +0, of weights[h] * relu(scale * dot_h); a pool that
 * is no candidate scores -FLT_MAX. Block x of a query has the pools 128x..., none if there are no
 * so many: the grid may be larger than the tiles. */
static __device__ __forceinline__ void dsa_score_tile(const struct dsa_scoring *s)
{
    __shared__ union dsa_tile_shared shared;
    uint64_t begin = (uint64_t)blockIdx.x * DSA_TILE_POOLS;
    uint32_t first = (uint32_t)begin, query = blockIdx.y, pool = first + threadIdx.x;
    uint32_t keys = s->geom != NULL ? (uint32_t)s->geom[DSA_GEOM_KEYS] : s->S;
    uint32_t pools = s->geom != NULL ? (uint32_t)s->geom[DSA_GEOM_POOLS] : s->P;
    uint32_t lane = threadIdx.x % DET_WARP, warp = threadIdx.x / DET_WARP;
    bool candidate = false;
    float score = 0.0f;

    if (begin >= pools) return;
    struct dsa_tile tile = {s->q + (uint64_t)query * s->H * s->D,
                            s->weights + (uint64_t)query * s->H,
                            s->pool_keys + (uint64_t)first * s->D,
                            s->H,
                            s->D,
                            dsa_tile_min(pools - first, DSA_TILE_POOLS),
                            warp % 2 * 16 + lane / 8 * DSA_TILE_OWN,
                            warp / 2 * 32 + lane % 8 * DSA_TILE_OWN,
                            s->scale};
    if (threadIdx.x < tile.n_pools)
        candidate = dsa_is_candidate(s->pool_valid[pool],
                                     s->pool_indices[(uint64_t)pool * s->KP + s->KP - 1],
                                     s->valid_keys, keys, s->q_pos[query]);
    if (__syncthreads_or(candidate)) score = dsa_tile_score(&shared, &tile);
    if (threadIdx.x >= tile.n_pools) return;
    s->out[(uint64_t)query * s->P + pool] = candidate ? score : -0x1.fffffep+127f;
    s->valid_cand[(uint64_t)query * s->P + pool] = candidate;
}

/* Grid (P, Q), the production interface: the first blocks of a query do the work and the others
 * return; which block computes a pool does not show in the result. The interface's dynamic shared
 * memory is not used. */
extern "C" __global__ void __launch_bounds__(DSA_SCORE_THREADS, 2)
    dsa_index_scores(const float *q, const float *pool_keys, const float *weights,
                     const int32_t *pool_indices, const uint8_t *pool_valid,
                     const uint8_t *valid_keys, const int32_t *q_pos, float *out,
                     uint8_t *valid_cand, uint32_t Q, uint32_t P, uint32_t H, uint32_t D,
                     uint32_t KP, uint32_t S, float scale, const int32_t *geom)
{
    struct dsa_scoring scoring = {
        q, pool_keys, weights, pool_indices, pool_valid, valid_keys, q_pos, out, valid_cand,
        P, H,         D,       KP,           S,          scale,      geom};

    dsa_score_tile(&scoring);
}

/* Grid (ceil(P/128), Q): the same without the blocks that return. */
extern "C" __global__ void __launch_bounds__(DSA_SCORE_THREADS, 2)
    dsa_index_scores_tiled(const float *q, const float *pool_keys, const float *weights,
                           const int32_t *pool_indices, const uint8_t *pool_valid,
                           const uint8_t *valid_keys, const int32_t *q_pos, float *out,
                           uint8_t *valid_cand, uint32_t Q, uint32_t P, uint32_t H, uint32_t D,
                           uint32_t KP, uint32_t S, float scale, const int32_t *geom)
{
    struct dsa_scoring scoring = {
        q, pool_keys, weights, pool_indices, pool_valid, valid_keys, q_pos, out, valid_cand,
        P, H,         D,       KP,           S,          scale,      geom};

    dsa_score_tile(&scoring);
}

#endif
