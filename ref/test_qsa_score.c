#include <criterion/criterion.h>
#include <float.h>
#include <string.h>

#include "bound.h"
#include "qsa.h"
#include "qsa_canonical.h"
#include "test_qsa.h"

/* One score of one head against a key of ones. */
static float score_of_ones(const float *q, uint32_t hd)
{
    uint16_t key[REF_QSA_MAX_HD];
    float score;
    for (uint32_t i = 0; i < hd; i++) key[i] = TEST_BF16_ONE;
    struct ref_qsa_score g = {.q = q, .block_keys = key, .n_blocks = 1, .n_heads = 1, .hd = hd};
    ref_qsa_score(&g, &score);
    return score;
}

/* 2^24 at element 0 swallows a lone 1 (a tie to even) but not a 2: the sum is 2^24 + 2 exactly if
 * elements a and b meet before they reach element 0. tree32 folds at 16, 8, 4, 2, 1, so two
 * elements meet at the first of these modulo which they are equal. hd 64: scale 1/8, exact. */
Test(qsa_score, tree_order_is_revealed)
{
    for (uint32_t a = 1; a < 32; a++) {
        for (uint32_t b = a + 1; b < 32; b++) {
            float q[64] = {0};
            q[0] = 0x1p24f;
            q[a] = q[b] = 1;
            uint32_t fold = 16;
            while (a % fold != b % fold) fold /= 2;
            bool together = a % fold != 0;
            cr_assert_eq(score_of_ones(q, 64), together ? 2097152.25f : 2097152.0f, "%u %u", a, b);
        }
    }
}

/* Runs of 32 are added one after the other: two ones in one run survive, in two runs they do not.
 * hd 256: scale 1/16. */
Test(qsa_score, runs_are_added_in_order)
{
    float q[256] = {0};
    q[0] = 0x1p24f;
    q[32] = q[64] = 1;
    cr_assert_eq(score_of_ones(q, 256), 0x1p20f);
    q[64] = 0;
    q[63] = 1;
    cr_assert_eq(score_of_ones(q, 256), 0x1p20f + 0.125f);
    /* The big one last: 1 + 1 first. */
    memset(q, 0, sizeof q);
    q[32] = q[64] = 1;
    q[255] = 0x1p24f;
    cr_assert_eq(score_of_ones(q, 256), 0x1p20f + 0.125f);
}

/* Products are rounded before they are added: (1 + 2^-23)(1 + 2^-7) = 1 + 2^-7 + 2^-23 + 2^-30,
 * whose last term is lost in the product; with an FMA the sum with -(1 + 2^-7 + 2^-23) would keep
 * it. */
Test(qsa_score, products_are_rounded)
{
    float q[64] = {0}, score;
    uint16_t key[64] = {0};
    q[0] = 1 + 0x1p-23f;
    key[0] = ref_bf16_from_f64(1 + 0x1p-7);
    q[1] = -(1 + 0x1p-7f + 0x1p-23f);
    key[1] = TEST_BF16_ONE;
    struct ref_qsa_score g = {.q = q, .block_keys = key, .n_blocks = 1, .n_heads = 1, .hd = 64};
    ref_qsa_score(&g, &score);
    cr_assert_eq(score, 0);
}

Test(qsa_score, relu_of_every_head_before_the_sum)
{
    enum { HD = 64, HEADS = 3 };
    float q[HEADS * HD] = {0}, score;
    uint16_t key[HD] = {TEST_BF16_ONE, TEST_BF16_ONE};
    struct ref_qsa_score g = {.q = q, .block_keys = key, .n_blocks = 1, .n_heads = HEADS, .hd = HD};
    /* 3 + relu(-2) + 0.5, times 1/8; the relu of the sum would be 1.5/8. */
    q[0] = 3, q[HD] = -2, q[2 * HD] = 0.5f;
    ref_qsa_score(&g, &score);
    cr_assert_eq(score, 3.5f / 8);
    /* All dead: +0, also where a head is -0. */
    q[0] = -3, q[HD] = -0.0f, q[2 * HD] = -1;
    ref_qsa_score(&g, &score);
    cr_assert(score == 0 && !signbit(score));
    /* In head order: (2^24 + 1) + 1 stays 2^24, (1 + 1) + 2^24 does not. */
    q[0] = 0x1p24f, q[HD] = 1, q[2 * HD] = 1;
    ref_qsa_score(&g, &score);
    cr_assert_eq(score, 0x1p21f);
    q[0] = 1, q[HD] = 1, q[2 * HD] = 0x1p24f;
    ref_qsa_score(&g, &score);
    cr_assert_eq(score, 0x1p21f + 0.25f);
    /* NaN never becomes a number, infinity stays. */
    q[1] = NAN;
    ref_qsa_score(&g, &score);
    cr_assert(isnan(score));
    q[1] = INFINITY;
    ref_qsa_score(&g, &score);
    cr_assert(isinf(score) && score > 0);
    q[HD] = INFINITY, q[HD + 1] = -INFINITY;
    ref_qsa_score(&g, &score);
    cr_assert(isnan(score));
}

/* hd 128: the scale is RN(1/RN(sqrt 128)) = RN(1/11.3137083) = 0x1.6a09e6p-4; 1/sqrt(128) itself is
 * 0x1.6a09e667...p-4. A score of 3 t is one rounding of 3 c. */
Test(qsa_score, scale_of_128)
{
    float q[128] = {0};
    q[0] = 3;
    cr_assert_eq(score_of_ones(q, 128), (float)(3 * (double)0x1.6a09e6p-4f));
}

struct scene {
    float *q, *scores;
    uint16_t *keys;
    double *value, *bound;
    struct ref_qsa_score_rows g;
};

static struct scene scene_make(uint64_t seed, uint32_t rows, uint32_t blocks, uint32_t heads,
                               uint32_t hd)
{
    struct scene s;
    s.q = test_alloc((size_t)rows * heads * hd, sizeof *s.q);
    s.keys = test_alloc((size_t)blocks * hd, sizeof *s.keys);
    s.scores = test_alloc((size_t)rows * blocks, sizeof *s.scores);
    s.value = test_alloc((size_t)rows * blocks, sizeof *s.value);
    s.bound = test_alloc((size_t)rows * blocks, sizeof *s.bound);
    test_fill_f32(&seed, 1, (size_t)rows * heads * hd, s.q);
    test_fill_bf16(&seed, 1, (size_t)blocks * hd, s.keys);
    s.g = (struct ref_qsa_score_rows){.q = s.q,
                                      .block_keys = s.keys,
                                      .rows = rows,
                                      .n_blocks_max = blocks,
                                      .first_pos = 4 * blocks,
                                      .score_stride = blocks,
                                      .ratio = 4,
                                      .n_heads = heads,
                                      .hd = hd};
    return s;
}

static void scene_free(struct scene *s)
{
    free(s->q);
    free(s->keys);
    free(s->scores);
    free(s->value);
    free(s->bound);
}

Test(qsa_score, rows_equal_single_scores_and_end_at_complete)
{
    enum { ROWS = 11, BLOCKS = 300, STRIDE = 310, HEADS = 2, HD = 96 };
    struct scene s = scene_make(3, ROWS, BLOCKS, HEADS, HD);
    float *scores = test_alloc((size_t)ROWS * STRIDE, sizeof *scores), one[BLOCKS];
    for (int i = 0; i < ROWS * STRIDE; i++) scores[i] = 77;
    s.g.first_pos = 700;
    s.g.ratio = 3;
    s.g.score_stride = STRIDE;
    /* Row r sees (701 + r)/3 blocks, 233 to 237. Later keys must not matter: they are NaN. */
    for (int i = 237 * HD; i < BLOCKS * HD; i++) s.keys[i] = TEST_BF16_NAN;
    ref_qsa_score_rows(&s.g, scores);
    struct ref_qsa_score single = {
        .block_keys = s.keys, .n_blocks = BLOCKS, .n_heads = HEADS, .hd = HD};
    for (uint32_t r = 0; r < ROWS; r++) {
        uint32_t complete = (701 + r) / 3;
        const float *row = scores + r * STRIDE;
        single.q = s.q + r * HEADS * HD;
        ref_qsa_score(&single, one);
        cr_assert_arr_eq(one, row, complete * sizeof *one);
        for (uint32_t b = complete; b < BLOCKS; b++) cr_assert(isinf(row[b]) && row[b] < 0);
        for (uint32_t b = BLOCKS; b < STRIDE; b++) cr_assert_eq(row[b], 77);
    }
    free(scores);
    scene_free(&s);
}

/* ---- bounds ---- */

/* An f32 kernel with another order: lane l of `lanes` takes elements l, l+lanes, ..., with or
 * without FMA, and the lanes are added one after the other. */
static float foreign_dot(const float *q, const uint16_t *key, uint32_t hd, uint32_t lanes,
                         bool fused)
{
    float sum = 0;
    for (uint32_t l = 0; l < lanes; l++) {
        float lane = 0;
        for (uint32_t i = l; i < hd; i += lanes) {
            float k = ref_bf16_to_f32(key[i]);
            lane = fused ? fmaf(q[i], k, lane) : lane + q[i] * k;
        }
        sum += lane;
    }
    return sum;
}

/* One fused step of the tensor core (numerics §1.1) for 16 products and an accumulator. */
static int label(double x)
{
    int exponent = ilogb(x);
    return exponent < -126 ? -126 : exponent;
}

static float mma_step(float c, const float *a, const float *b)
{
    int top = c != 0 ? label(c) : -133;
    for (int i = 0; i < 16; i++) {
        if (a[i] == 0 || b[i] == 0) continue;
        int own = label(a[i]) + label(b[i]);
        top = own > top ? own : top;
    }
    int64_t sum = (int64_t)ldexp(c, 25 - top);
    for (int i = 0; i < 16; i++) sum += (int64_t)ldexp((double)a[i] * b[i], 25 - top);
    double exact = ldexp((double)sum, top - 25);
    float result = (float)exact;
    return fabs((double)result) > fabs(exact) ? nextafterf(result, 0) : result;
}

enum mma_order { HI_THEN_LO, INTERLEAVED, TWO_ACCUMULATORS, HI_ONLY };

static float mma_dot(const float *q, const uint16_t *key, uint32_t hd, enum mma_order order)
{
    float hi[REF_QSA_MAX_HD], lo[REF_QSA_MAX_HD], k[REF_QSA_MAX_HD], c = 0, second = 0;
    for (uint32_t i = 0; i < hd; i++) {
        hi[i] = ref_bf16_to_f32(ref_bf16_from_f32(q[i]));
        lo[i] = ref_bf16_to_f32(ref_bf16_from_f32(q[i] - hi[i]));
        k[i] = ref_bf16_to_f32(key[i]);
    }
    for (uint32_t i = 0; i < hd; i += 16) {
        c = mma_step(c, hi + i, k + i);
        if (order == INTERLEAVED) c = mma_step(c, lo + i, k + i);
        if (order == TWO_ACCUMULATORS) second = mma_step(second, lo + i, k + i);
    }
    for (uint32_t i = 0; i < hd && order == HI_THEN_LO; i += 16) c = mma_step(c, lo + i, k + i);
    return c + second;
}

enum kernel { FORWARD, FORWARD_FUSED, LANES, TENSOR };

static float kernel_score(enum kernel kernel, enum mma_order order, const float *q,
                          const uint16_t *key, uint32_t heads, uint32_t hd)
{
    float sum = 0;
    for (uint32_t h = heads; h-- > 0;) { /* backwards: any order of heads */
        const float *head = q + h * hd;
        float t = kernel == TENSOR ? mma_dot(head, key, hd, order)
                                   : foreign_dot(head, key, hd, kernel == LANES ? 8 : 1,
                                                 kernel == FORWARD_FUSED);
        sum += t > 0 ? t : 0;
    }
    return sum * ref_qsa_rnorm((float)hd);
}

/* The worst err/E of a kernel over a scene; also that of the values themselves against it. */
static double worst_ratio(struct scene *s, enum ref_qsa_scorer scorer, enum kernel kernel,
                          enum mma_order order)
{
    const struct ref_qsa_score_rows *g = &s->g;
    double worst = 0;
    ref_qsa_score_rows_bound(g, scorer, s->value, s->bound);
    for (uint32_t r = 0; r < g->rows; r++) {
        for (uint32_t b = 0; b < g->n_blocks_max; b++) {
            size_t at = (size_t)r * g->n_blocks_max + b;
            float got = kernel_score(kernel, order, g->q + (size_t)r * g->n_heads * g->hd,
                                     g->block_keys + (size_t)b * g->hd, g->n_heads, g->hd);
            double error = fabs(got - s->value[at]);
            if (error > 0) worst = fmax(worst, error / s->bound[at]);
        }
    }
    return worst;
}

/* Elements spread over many binades, with pairs that cancel. */
static void make_hard(struct scene *s, uint64_t seed)
{
    const struct ref_qsa_score_rows *g = &s->g;
    for (size_t i = 0; i < (size_t)g->rows * g->n_heads * g->hd; i++) {
        s->q[i] = (float)ldexp(test_uniform(&seed), (int)test_below(&seed, 28) - 14);
        if (i % 3 == 2) s->q[i] = -s->q[i - 1];
    }
}

Test(qsa_score, bounds_hold_for_other_kernels)
{
    for (uint64_t seed = 1; seed < 9; seed++) {
        struct scene s = scene_make(seed, 3, 40, 4, seed % 2 ? 128 : 64);
        if (seed > 4) make_hard(&s, seed);
        double f32 = worst_ratio(&s, REF_SCORER_F32, FORWARD, 0);
        f32 = fmax(f32, worst_ratio(&s, REF_SCORER_F32, FORWARD_FUSED, 0));
        f32 = fmax(f32, worst_ratio(&s, REF_SCORER_F32, LANES, 0));
        cr_assert(f32 <= 1, "f32 err/E %g", f32);
        double split = worst_ratio(&s, REF_SCORER_SPLIT_Q, TENSOR, HI_THEN_LO);
        split = fmax(split, worst_ratio(&s, REF_SCORER_SPLIT_Q, TENSOR, INTERLEAVED));
        split = fmax(split, worst_ratio(&s, REF_SCORER_SPLIT_Q, TENSOR, TWO_ACCUMULATORS));
        cr_assert(split <= 1, "split err/E %g", split);
        double plain = worst_ratio(&s, REF_SCORER_PLAIN_BF16, TENSOR, HI_ONLY);
        cr_assert(plain <= 1, "plain err/E %g", plain);
        /* A kernel of the wrong kind must stand out: half of q thrown away is far outside what an
         * f32 order or a split may do. */
        double wrong = worst_ratio(&s, REF_SCORER_F32, TENSOR, HI_ONLY);
        cr_assert(wrong > 5, "plain bf16 judged as f32: err/E %g", wrong);
        wrong = worst_ratio(&s, REF_SCORER_SPLIT_Q, TENSOR, HI_ONLY);
        cr_assert(wrong > 5, "plain bf16 judged as split: err/E %g", wrong);
        scene_free(&s);
    }
}

/* Errors that all go one way bring the bounds within reach. In f32: 2^24 first and then ones, each
 * lost, forward: hd-1 lost of a bound of hd(2^24 + hd - 1)u, nearly all. On the tensor core: 16
 * terms one quantum short of counting beside a large accumulator, in every step of the chain. */
Test(qsa_score, bounds_are_nearly_reached)
{
    struct scene s = scene_make(1, 1, 1, 1, 64);
    for (int i = 0; i < 64; i++) {
        s.q[i] = i ? 1 : 0x1p24f;
        s.keys[i] = TEST_BF16_ONE;
    }
    double f32 = worst_ratio(&s, REF_SCORER_F32, FORWARD, 0);
    cr_assert(f32 > 0.95 && f32 <= 1, "err/E %g", f32);
    /* q has a part 1.9921875 * 2^-26, short of the quantum 2^-25 of an accumulator of label 0. */
    for (int i = 0; i < 64; i++) s.q[i] = i ? 0x1.fep-26f : 1;
    double plain = worst_ratio(&s, REF_SCORER_PLAIN_BF16, TENSOR, HI_ONLY);
    cr_assert(plain > 0.7 && plain <= 1, "err/E %g", plain);
    scene_free(&s);
}

static void one_bound(struct scene *s, enum ref_qsa_scorer scorer, float q, double value,
                      double bound)
{
    for (uint32_t i = 0; i < s->g.hd; i++) {
        s->q[i] = q;
        s->keys[i] = TEST_BF16_ONE;
    }
    ref_qsa_score_rows_bound(&s->g, scorer, s->value, s->bound);
    cr_assert_eq(s->value[0], value);
    cr_assert_float_eq(s->bound[0], bound, 1e-4 * bound, "%a, not %a", s->bound[0], bound);
}

/* One head, hd 64, all ones: t = A = 64, c = 1/8 exact.
 *   f32     e = 64*64u,           E = (4096 + 64)u/8  = 520u
 *   split   s = 8: e = 8*10u*64,  E = (5120 + 64)u/8  = 648u
 *   plain   s = 4: e = 4*10u*64,  E = (2560 + 64)u/8  = 328u
 * and with q = 1 + 2^-9 plain bf16 holds 1: 64*2^-9/8 = 2^-6 more, exactly known; the split holds
 * all of it, and everything is 1 + 2^-9 times as large. */
Test(qsa_score, bounds_are_the_formulas)
{
    struct scene s = scene_make(1, 1, 1, 1, 64);
    double u = 0x1p-24;
    one_bound(&s, REF_SCORER_F32, 1, 8, 520 * u);
    one_bound(&s, REF_SCORER_SPLIT_Q, 1, 8, 648 * u);
    one_bound(&s, REF_SCORER_PLAIN_BF16, 1, 8, 328 * u);
    one_bound(&s, REF_SCORER_PLAIN_BF16, 1 + 0x1p-9f, 8 + 0x1p-6, 0x1p-6 + 328 * u);
    one_bound(&s, REF_SCORER_SPLIT_Q, 1 + 0x1p-9f, 8 + 0x1p-6, 648 * u * (1 + 0x1p-9));
    scene_free(&s);
    /* hd 128: c' = 0x1.6a09e6p-4 is short of c by 1.7e-8 of it: another S |c' - c|. */
    s = scene_make(1, 1, 1, 1, 128);
    double c = 1 / sqrt(128), off = fabs((double)0x1.6a09e6p-4f - c);
    one_bound(&s, REF_SCORER_F32, 1, 128 * c, 128 * (c * 129 * u + off));
    scene_free(&s);
}

Test(qsa_score, dead_heads_and_hidden_blocks_cost_nothing)
{
    struct scene s = scene_make(1, 1, 2, 2, 64);
    for (int i = 0; i < 64; i++) {
        s.q[i] = 1;
        s.q[64 + i] = -100;
        s.keys[i] = TEST_BF16_ONE;
    }
    ref_qsa_score_rows_bound(&s.g, REF_SCORER_SPLIT_Q, s.value, s.bound);
    /* The dead head's A is a hundred times larger, and only gamma_1 of the sum of heads shows. */
    cr_assert_float_eq(s.bound[0], 656 * 0x1p-24, 0.1 * 0x1p-24);
    for (int i = 0; i < 64; i++) s.q[i] = -1;
    for (int k = REF_SCORER_F32; k <= REF_SCORER_PLAIN_BF16; k++) {
        ref_qsa_score_rows_bound(&s.g, (enum ref_qsa_scorer)k, s.value, s.bound);
        cr_assert(s.value[0] == 0 && s.bound[0] == 0);
    }
    /* A head so near zero that an order may revive it keeps its interval. */
    for (int i = 0; i < 64; i++) s.q[i] = i % 2 ? -1 : 1;
    s.q[63] = -1.0001f;
    ref_qsa_score_rows_bound(&s.g, REF_SCORER_SPLIT_Q, s.value, s.bound);
    cr_assert(s.value[0] == 0 && s.bound[0] > 0);
    /* Hidden blocks. */
    s.g.first_pos = 3; /* one block of four tokens */
    ref_qsa_score_rows_bound(&s.g, REF_SCORER_F32, s.value, s.bound);
    cr_assert(isfinite(s.value[0]) && s.value[1] == -INFINITY && s.bound[1] == 0);
    scene_free(&s);
}

Test(qsa_score, special_values_in_bounds)
{
    struct scene s = scene_make(1, 1, 1, 1, 64);
    for (int k = REF_SCORER_F32; k <= REF_SCORER_PLAIN_BF16; k++) {
        s.q[7] = NAN;
        ref_qsa_score_rows_bound(&s.g, (enum ref_qsa_scorer)k, s.value, s.bound);
        cr_assert(isnan(s.value[0]) && s.bound[0] == 0);
        /* Products of 2^127 * 2^2: the real score is finite, f32 overflows. */
        for (int i = 0; i < 64; i++) s.q[i] = i % 2 ? 0x1p127f : -0x1p127f;
        for (int i = 0; i < 64; i++) s.keys[i] = ref_bf16_from_f64(4);
        ref_qsa_score_rows_bound(&s.g, (enum ref_qsa_scorer)k, s.value, s.bound);
        cr_assert(s.value[0] == 0 && isinf(s.bound[0]));
        for (int i = 0; i < 64; i++) s.q[i] = 0;
    }
    /* +Inf has one answer in f32; the split makes Inf - Inf of it. */
    s.q[0] = INFINITY;
    ref_qsa_score_rows_bound(&s.g, REF_SCORER_F32, s.value, s.bound);
    cr_assert(s.value[0] == INFINITY && s.bound[0] == 0);
    ref_qsa_score_rows_bound(&s.g, REF_SCORER_SPLIT_Q, s.value, s.bound);
    cr_assert(s.value[0] == INFINITY && isinf(s.bound[0]));
    /* bf16 overflows where f32 does not. */
    s.q[0] = FLT_MAX;
    for (int i = 0; i < 64; i++) s.keys[i] = ref_bf16_from_f64(0x1p-20);
    ref_qsa_score_rows_bound(&s.g, REF_SCORER_F32, s.value, s.bound);
    cr_assert(isfinite(s.bound[0]));
    ref_qsa_score_rows_bound(&s.g, REF_SCORER_PLAIN_BF16, s.value, s.bound);
    cr_assert(isinf(s.bound[0]));
    scene_free(&s);
}

/* Subnormal keys and queries: the tensor core takes their labels for 2^-126, and loses more than
 * their magnitudes say. */
Test(qsa_score, bounds_hold_for_subnormals)
{
    struct scene s = scene_make(1, 1, 30, 2, 64);
    uint64_t seed = 5;
    for (int run = 0; run < 40; run++) {
        int shift = -(int)test_below(&seed, 24) - 100, other = -(int)test_below(&seed, 34) - 4;
        int q_shift = run % 2 ? shift - 30 : other, key_shift = run % 2 ? other : shift - 24;
        for (int i = 0; i < 128; i++) s.q[i] = (float)ldexp(test_uniform(&seed), q_shift);
        for (int i = 0; i < 30 * 64; i++)
            s.keys[i] = ref_bf16_from_f64(ldexp(test_uniform(&seed), key_shift));
        cr_assert(worst_ratio(&s, REF_SCORER_F32, FORWARD, 0) <= 1);
        cr_assert(worst_ratio(&s, REF_SCORER_F32, FORWARD_FUSED, 0) <= 1);
        cr_assert(worst_ratio(&s, REF_SCORER_SPLIT_Q, TENSOR, HI_THEN_LO) <= 1);
        cr_assert(worst_ratio(&s, REF_SCORER_PLAIN_BF16, TENSOR, HI_ONLY) <= 1);
    }
    scene_free(&s);
}

/* One product 2^100 * 2^-133, whose subnormal factor is labelled 2^-126: the quantum of its step is
 * 2^(100 - 126 - 25) = 2^-51, 2^-18 of the product itself, and 15 terms just below it vanish. The
 * bound of the magnitudes alone would be 10 * 2^-23 of 2^-33, thirty times too small. */
Test(qsa_score, subnormal_factors_cost_their_label)
{
    struct scene s = scene_make(1, 1, 1, 1, 32);
    for (int swap = 0; swap < 2; swap++) {
        for (int i = 0; i < 32; i++) {
            s.q[i] = 0;
            s.keys[i] = 0;
        }
        s.q[0] = swap ? 0x1p-133f : 0x1p100f;
        s.keys[0] = ref_bf16_from_f64(swap ? 0x1p100 : 0x1p-133);
        for (int i = 1; i < 16; i++) {
            s.q[i] = 0x1.fcp-1f;
            s.keys[i] = ref_bf16_from_f64(0x1p-51);
        }
        double plain = worst_ratio(&s, REF_SCORER_PLAIN_BF16, TENSOR, HI_ONLY);
        cr_assert(plain > 0.3 && plain <= 1, "err/E %g", plain);
        double split = worst_ratio(&s, REF_SCORER_SPLIT_Q, TENSOR, HI_THEN_LO);
        cr_assert(split > 0.15 && split <= 1, "err/E %g", split);
    }
    scene_free(&s);
    /* An accumulator of 2^-149 aligns at 2^-126 too: 16 terms below 2^-151 vanish beside it in the
     * second of two steps, a quarter of the 2 * 2^-146 allowed. Four heads lift it above the
     * rounding of the score. */
    s = scene_make(1, 1, 1, 4, 32);
    for (int i = 0; i < 128; i++) s.q[i] = i % 32 < 16 ? 0 : 0x1.fcp-76f;
    for (int i = 0; i < 32; i++) s.keys[i] = ref_bf16_from_f64(0x1p-76);
    for (int h = 0; h < 4; h++) s.q[32 * h] = 0x1p-75f;
    s.keys[0] = ref_bf16_from_f64(0x1p-74);
    double plain = worst_ratio(&s, REF_SCORER_PLAIN_BF16, TENSOR, HI_ONLY);
    cr_assert(plain > 0.2 && plain <= 1, "err/E %g", plain);
    scene_free(&s);
}
