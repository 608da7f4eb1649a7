/* kpool_compress and index_scores. */
#include "dsa.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "formats.h"
#include "test_attn_sim.h"

static const struct ref_error_model default_model = REF_MODEL_DEFAULT;

enum { S = 40, D = 32, KP = 4, POOLS = 11 };

struct pools {
    uint16_t k[S * D], gate[S * D];
    uint8_t valid[S], pool_valid[POOLS];
    float ape[16 * D];
    double value[POOLS * D], bound[POOLS * D];
    int32_t indices[POOLS * 16];
    struct ref_dsa_kpool_compress g;
};

static void draw_pools(struct pools *t, uint64_t seed)
{
    struct test_random rng = {seed};
    memset(t, 0, sizeof *t);
    for (int i = 0; i < S * D; i++) {
        t->k[i] = ref_bf16_from_f64(test_normal(&rng));
        t->gate[i] = ref_bf16_from_f64(2 * test_normal(&rng));
    }
    for (int i = 0; i < 16 * D; i++) t->ape[i] = (float)test_normal(&rng);
    memset(t->valid, 1, S);
    t->g = (struct ref_dsa_kpool_compress){.k = t->k,
                                           .gate = t->gate,
                                           .valid = t->valid,
                                           .ape = t->ape,
                                           .pools = POOLS,
                                           .S = S,
                                           .D = D,
                                           .KP = KP};
}

static void run_pools(struct pools *t)
{
    struct ref_refusal why;
    cr_assert(ref_dsa_kpool_compress_accepts(&t->g, &why), "%s", why.text);
    ref_dsa_kpool_compress(&t->g, &default_model, t->value, t->bound, t->indices, t->pool_valid);
}

/* By hand. first_key 1, KP 2, five tokens: pools {1,2} {3,4} and one beyond the end. Token 3 is not
 * valid. Channel 0: gate+ape is ln 3 + 0 for token 1 and 0 + 0 for token 2, keys 4 and -4: weights
 * 3/4 and 1/4, so 2. Pool 1 holds token 4 alone: its key, 8. Pool 2 nothing: 0. */
Test(dsa_pools, compress_by_hand)
{
    static struct pools t;
    draw_pools(&t, 1);
    memset(t.gate, 0, sizeof t.gate);
    memset(t.ape, 0, sizeof t.ape);
    t.g.S = 5;
    t.g.KP = 2;
    t.g.pools = 3;
    t.g.first_key = 1;
    t.valid[0] = t.valid[3] = 0;
    t.ape[0] = (float)log(3); /* slot 0 of every pool */
    t.k[1 * D] = ref_bf16_from_f32(4);
    t.k[2 * D] = ref_bf16_from_f32(-4);
    t.k[4 * D] = ref_bf16_from_f32(8);
    run_pools(&t);
    static const int32_t indices[6] = {1, 2, -1, 4, -1, -1};
    cr_assert(!memcmp(t.indices, indices, sizeof indices));
    cr_assert(t.pool_valid[0] == 1 && t.pool_valid[1] == 0 && t.pool_valid[2] == 0);
    double weight = exp((double)t.ape[0]);
    cr_assert(fabs(t.value[0] - 4 * (weight - 1) / (weight + 1)) < 1e-15);
    cr_assert(fabs(t.value[0] - 2) < 1e-6);
    cr_assert_eq(t.value[D], 8);
    cr_assert_eq(t.value[2 * D], 0);
    cr_assert_eq(t.bound[2 * D], 0);
}

/* geom's length stands for S: pools beyond it are empty although the tokens are there. */
Test(dsa_pools, geom_sets_the_length)
{
    static struct pools t;
    int32_t geom[5] = {10, 3, 2, 2, 2};
    draw_pools(&t, 2);
    t.g.geom = geom;
    run_pools(&t);
    for (int p = 0; p < POOLS; p++) {
        cr_assert_eq(t.pool_valid[p], p < 2);
        for (int slot = 0; slot < KP; slot++) {
            int token = p * KP + slot;
            cr_assert_eq(t.indices[token], token < 10 ? token : -1);
        }
    }
    cr_assert(t.value[2 * D] != 0 && t.value[3 * D] == 0);
}

/* One channel of one pool, softmax by its definition. */
static double channel_by_definition(const struct pools *t, int p, int d)
{
    double sum = 0, weights = 0;
    for (int slot = 0; slot < KP; slot++) {
        int token = t->g.first_key + p * KP + slot;
        if (token >= S || !t->valid[token]) continue;
        double x = (double)ref_bf16_to_f32(t->gate[token * D + d]) + (double)t->ape[slot * D + d];
        weights += exp(x);
        sum += exp(x) * (double)ref_bf16_to_f32(t->k[token * D + d]);
    }
    return weights > 0 ? sum / weights : 0;
}

Test(dsa_pools, compress_agrees_with_the_definition_and_bounds_kernels)
{
    static const struct sim kernels[] = {
        {.splits = 1, .exp_ulp = 2.5, .exp_error = SIM_EXP_AGAINST},
        {.splits = 1, .tile = 1, .exp_ulp = 2.5, .exp_error = SIM_EXP_UP},
        {.splits = 1, .exp_ulp = 1, .normalise_first = true, .log2_domain = true},
    };
    static struct pools t;
    struct test_random rng = {3};
    double worst = 0;
    for (int round = 0; round < 20; round++) {
        draw_pools(&t, 10 + (uint64_t)round);
        t.g.first_key = round % 7;
        for (int i = 0; i < S; i++) t.valid[i] = i >= t.g.first_key && test_below(&rng, 8);
        run_pools(&t);
        for (int i = 0; i < POOLS * D; i++) {
            int p = i / D, d = i % D;
            float score[KP], key[KP], out;
            size_t n = 0;
            cr_assert(fabs(t.value[i] - channel_by_definition(&t, p, d)) < 1e-14);
            for (int slot = 0; slot < KP; slot++) {
                int32_t token = t.indices[p * KP + slot];
                if (token < 0) continue;
                score[n] = ref_bf16_to_f32(t.gate[token * D + d]) + t.ape[slot * D + d];
                key[n++] = ref_bf16_to_f32(t.k[token * D + d]);
            }
            if (!n) continue;
            struct sim sim = kernels[i % 3];
            sim.value_scale = 1;
            sim_softmax(&sim, &rng, score, key, n, 1, 1, &t.value[i], &out);
            cr_assert(fabs((double)out - t.value[i]) <= t.bound[i]);
            worst = fmax(worst, fabs((double)out - t.value[i]) / t.bound[i]);
        }
    }
    cr_assert(worst > 0.1, "%g", worst);
}

Test(dsa_pools, compress_with_not_finite_gates)
{
    static struct pools t;
    draw_pools(&t, 4);
    t.gate[0] = 0x7fc0; /* NaN: pool 0, channel 0 */
    t.gate[1] = 0xff80; /* -Inf: channel 1 may lose the token or be NaN */
    t.k[2] = 0x7fff;    /* NaN key: channel 2 */
    t.gate[3] = 0x7f7f; /* the largest bf16 */
    t.ape[3] = FLT_MAX; /* their sum overflows in f32 */
    run_pools(&t);
    cr_assert(isnan(t.value[0]) && t.bound[0] == 0);
    cr_assert(isfinite(t.value[1]) && isinf(t.bound[1]));
    cr_assert(isnan(t.value[2]) && t.bound[2] == 0);
    cr_assert(isinf(t.bound[3]));
    cr_assert(isfinite(t.value[4]) && isfinite(t.bound[4]));
    cr_assert(isfinite(t.value[D]) && isfinite(t.bound[D]));
}

enum { Q = 5, H = 3 };

struct scores {
    float q[Q * H * D], keys[POOLS * D], weights[Q * H], out[Q * POOLS];
    int32_t indices[POOLS * KP], q_pos[Q];
    uint8_t pool_valid[POOLS], valid[S + KP], cand[Q * POOLS];
    double value[Q * POOLS], bound[Q * POOLS];
    struct ref_dsa_index_scores g;
};

static void draw_scores(struct scores *t, uint64_t seed)
{
    struct test_random rng = {seed};
    memset(t, 0, sizeof *t);
    for (int i = 0; i < Q * H * D; i++) t->q[i] = (float)test_normal(&rng);
    for (int i = 0; i < POOLS * D; i++) t->keys[i] = (float)test_normal(&rng);
    for (int i = 0; i < Q * H; i++) t->weights[i] = (float)test_normal(&rng);
    for (int i = 0; i < POOLS * KP; i++) t->indices[i] = i < S ? i : -1;
    for (int i = 0; i < POOLS; i++) t->pool_valid[i] = i < S / KP;
    memset(t->valid, 1, S);
    for (int i = 0; i < Q; i++) t->q_pos[i] = 9 * i + 2;
    t->g = (struct ref_dsa_index_scores){.q = t->q,
                                         .pool_keys = t->keys,
                                         .weights = t->weights,
                                         .pool_indices = t->indices,
                                         .pool_valid = t->pool_valid,
                                         .valid_keys = t->valid,
                                         .q_pos = t->q_pos,
                                         .Q = Q,
                                         .P = POOLS,
                                         .H = H,
                                         .D = D,
                                         .KP = KP,
                                         .S = S,
                                         .scale = 0.17677669f};
}

static void run_scores(struct scores *t)
{
    struct ref_refusal why;
    cr_assert(ref_dsa_index_scores_accepts(&t->g, &why), "%s", why.text);
    ref_dsa_index_scores(&t->g, t->out, t->cand);
    ref_dsa_index_scores_bound(&t->g, t->value, t->bound);
}

/* By hand, scale 0.5, weights 2, -3, 5. Row 4 (position 38), pool 0: dots 8, 4 and -6: relu(4),
 * relu(2) and relu(-3) = 0 give 2*4 - 3*2 + 0 = 2. The relu is per head: of the sum it would be
 * 2*4-3*2-15. */
Test(dsa_pools, score_by_hand)
{
    static struct scores t;
    draw_scores(&t, 5);
    memset(t.q, 0, sizeof t.q);
    memset(t.keys, 0, sizeof t.keys);
    t.g.scale = 0.5f;
    t.keys[0] = 2;
    t.keys[31] = 1;
    float *q = t.q + 4 * H * D;
    q[0] = 4;                   /* head 0: 8 */
    q[D] = 1.5f, q[D + 31] = 1; /* head 1: 3 + 1 */
    q[2 * D + 31] = -6;         /* head 2: -6 */
    t.weights[4 * H] = 2, t.weights[4 * H + 1] = -3, t.weights[4 * H + 2] = 5;
    run_scores(&t);
    cr_assert_eq(t.out[4 * POOLS], 2.0f);
    cr_assert_eq(t.value[4 * POOLS], 2.0);
    cr_assert_eq(t.cand[4 * POOLS], 1);
    cr_assert_eq(t.out[4 * POOLS + 1], 0.0f); /* all heads dead: +0, and certain */
    cr_assert_eq(t.bound[4 * POOLS + 1], 0);
}

/* The order of the additions, by numbers that show it. 64 dimensions: lane l adds d = l and l + 32.
 * q = 1. Lane 0: 2^24 + 1 = 2^24 (tie to even). Lane 16: 1 + 0. Tree: lane 0 + lane 16 = 2^24
 * again. Lanes 8 and 24 hold 1 each and meet first: 2, and 2^24 + 2 is exact. In sequence it would
 * be 2^24; exactly it is 2^24 + 4. */
Test(dsa_pools, canonical_order)
{
    float q[64], key[64] = {0}, weight = 1, out;
    int32_t index = 0, position = 0;
    uint8_t one = 1, cand;
    for (int i = 0; i < 64; i++) q[i] = 1;
    key[0] = 0x1p24f;
    key[32] = key[16] = key[8] = key[24] = 1;
    struct ref_dsa_index_scores g = {q, key, &weight, &index, &one, &one, &position, NULL,
                                     1, 1,   1,       64,     1,    1,    1.0f};
    ref_dsa_index_scores(&g, &out, &cand);
    cr_assert_eq(out, 0x1p24f + 2);
}

/* Heads in order from +0: 2^24 + 1 + 1 is 2^24, and w*relu is rounded before it is added. */
Test(dsa_pools, heads_add_in_order)
{
    static struct scores t;
    draw_scores(&t, 6);
    memset(t.q, 0, sizeof t.q);
    t.g.scale = 1;
    t.keys[0] = 1;
    float *q = t.q + 4 * H * D;
    q[0] = 0x1p24f, q[D] = 1, q[2 * D] = 1;
    t.weights[12] = t.weights[13] = t.weights[14] = 1;
    run_scores(&t);
    cr_assert_eq(t.out[4 * POOLS], 0x1p24f);
    cr_assert_eq(t.value[4 * POOLS], 0x1p24 + 2);
    q[0] = 1, q[D] = 0x1p24f; /* 1 + 2^24 = 2^24, then + 1 */
    run_scores(&t);
    cr_assert_eq(t.out[4 * POOLS], 0x1p24f);
    q[D] = 1, q[2 * D] = 0x1p24f;
    run_scores(&t);
    cr_assert_eq(t.out[4 * POOLS], 0x1p24f + 2);
    q[0] = q[D] = 1, q[2 * D] = 0; /* product rounded: (1+2^-23)^2 - (1+2^-22) would leave 2^-46 */
    t.keys[0] = 1 + 0x1p-23f;
    t.weights[12] = 1 + 0x1p-23f;
    t.weights[13] = -1;
    q[D] = 1;
    run_scores(&t);
    cr_assert_eq(t.out[4 * POOLS], (1 + 0x1p-22f) - (1 + 0x1p-23f));
}

Test(dsa_pools, who_is_a_candidate)
{
    static struct scores t;
    draw_scores(&t, 7);
    t.pool_valid[2] = 0;
    t.valid[4 * KP - 1] = 0; /* the last token of pool 3 */
    t.valid[5 * KP - 2] = 0; /* not the last: pool_valid would say so */
    run_scores(&t);
    for (int r = 0; r < Q; r++) {
        for (int p = 0; p < POOLS; p++) {
            bool want = p < S / KP && p != 2 && p != 3 && p * KP + KP - 1 <= t.q_pos[r];
            int at = r * POOLS + p;
            cr_assert_eq(t.cand[at], want, "row %d pool %d", r, p);
            if (want) continue;
            cr_assert_eq(t.out[at], -FLT_MAX);
            cr_assert(t.value[at] == (double)-FLT_MAX && t.bound[at] == 0);
        }
    }
}

/* Rows do not know of each other, and geom cuts pools and length. */
Test(dsa_pools, row_alone_and_geom)
{
    static struct scores t, one;
    draw_scores(&t, 8);
    run_scores(&t);
    for (int r = 0; r < Q; r++) {
        draw_scores(&one, 8);
        one.g.Q = 1;
        one.g.q += r * H * D;
        one.g.weights += r * H;
        one.g.q_pos += r;
        run_scores(&one);
        cr_assert(!memcmp(one.out, t.out + r * POOLS, POOLS * sizeof(float)));
        cr_assert(!memcmp(one.cand, t.cand + r * POOLS, POOLS));
    }
    int32_t geom[5] = {14, 4, 3, 3, 4};
    for (int p = 0; p < POOLS; p++) one.out[p] = 7, one.value[p] = 7;
    for (int i = 14; i < 16; i++) one.indices[i] = -1;
    one.g.geom = geom;
    run_scores(&one);
    for (int p = 0; p < POOLS; p++) {
        float want = p < 3 ? t.out[4 * POOLS + p] : p == 3 ? -FLT_MAX : 7;
        cr_assert_eq(one.out[p], want, "pool %d", p);
        cr_assert_eq(one.value[p] == 7, p > 3);
    }
}

/* Terms of the bound that others hide: products w*relu below the least float, and the sum over many
 * heads, where 255 weights of nearly 2^-24 are lost after a 1. */
Test(dsa_pools, underflow_and_many_heads)
{
    enum { HEADS = 256 };
    static float q[HEADS * D], weights[HEADS], key[D] = {1};
    int32_t index = 0, position = 0;
    uint8_t one = 1, cand;
    double value, bound;
    float score;
    struct ref_dsa_index_scores g = {q, key, weights, &index, &one, &one, &position, NULL,
                                     1, 1,   1,       D,      1,    1,    1.0f};
    q[0] = weights[0] = 0x1.ep-76f;
    ref_dsa_index_scores(&g, &score, &cand);
    ref_dsa_index_scores_bound(&g, &value, &bound);
    cr_assert(score == 0 && value > 0x1p-151 && bound >= value && bound < 64 * value);
    for (int h = 0; h < HEADS; h++) q[h * D] = 1, weights[h] = h ? 0x1.fp-25f : 1;
    g.H = HEADS;
    ref_dsa_index_scores(&g, &score, &cand);
    ref_dsa_index_scores_bound(&g, &value, &bound);
    double share = fabs((double)score - value) / bound;
    cr_assert(score == 1 && share <= 1 && share > 0.5, "%g", share);
}

Test(dsa_pools, nan_and_infinite_scores)
{
    static struct scores t;
    draw_scores(&t, 9);
    t.keys[0] = NAN;                                       /* pool 0 */
    t.keys[D] = INFINITY;                                  /* pool 1: +-Inf by the sign of q */
    for (int i = 0; i < D; i++) t.keys[2 * D + i] = 3e38f; /* pool 2: may overflow */
    for (int h = 0; h < H; h++) t.q[(4 * H + h) * D] = 1, t.weights[4 * H + h] = 2;
    run_scores(&t);
    int row = 4 * POOLS;
    cr_assert(isnan(t.out[row]) && isnan(t.value[row]) && t.bound[row] == 0);
    cr_assert(isinf(t.out[row + 1]) && isinf(t.value[row + 1]) && t.bound[row + 1] == 0);
    cr_assert(isinf(t.bound[row + 2]));
    cr_assert(isfinite(t.out[row + 3]) && isfinite(t.bound[row + 3]));
}

/* Another kernel's score: any order of the dots, scale folded, heads backwards with fma. */
static float other_score(const struct scores *t, int r, int p, int order)
{
    float sum = 0, scaled[D];
    for (int h = H - 1; h >= 0; h--) {
        const float *q = t->q + (r * H + h) * D;
        for (int d = 0; d < D; d++) scaled[d] = q[d] * t->g.scale;
        float dot = order & 1 ? sim_dot(scaled, t->keys + p * D, D, order)
                              : sim_dot(q, t->keys + p * D, D, order) * t->g.scale;
        float w = t->weights[r * H + h];
        if (order == 4) { /* scale into the weight */
            dot = sim_dot(q, t->keys + p * D, D, order);
            w *= t->g.scale;
        }
        sum = fmaf(w, dot > 0 ? dot : 0, sum);
    }
    return sum;
}

Test(dsa_pools, scores_of_any_order_keep_the_bound)
{
    static struct scores t;
    double worst = 0;
    for (int round = 0; round < 60; round++) {
        draw_scores(&t, 50 + (uint64_t)round);
        double size = round % 3 == 2 ? 0x1p-70 : 1; /* products among the subnormals */
        for (int i = 0; i < Q * H * D; i++) t.q[i] *= (float)size;
        for (int i = 0; i < POOLS * D; i++) t.keys[i] *= (float)size;
        run_scores(&t);
        for (int at = 0; at < Q * POOLS; at++) {
            if (!t.cand[at]) continue;
            for (int order = -1; order < SIM_DOT_ORDERS; order++) {
                float got = order < 0 ? t.out[at] : other_score(&t, at / POOLS, at % POOLS, order);
                double error = fabs((double)got - t.value[at]);
                cr_assert(error <= t.bound[at], "%d: %g off, bound %g", order, error, t.bound[at]);
                if (t.bound[at] > 0) worst = fmax(worst, error / t.bound[at]);
            }
        }
    }
    cr_assert(worst > 0.1 && worst <= 1, "%g", worst);
}
