#include "dsa.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "formats.h"
#include "test_attn_sim.h"

enum { Q = 4, S = 30, H = 3, QD = 48, VD = 20 };

static const struct ref_error_model default_model = REF_MODEL_DEFAULT;

struct test_case {
    uint16_t q[Q * H * QD], k[S * H * QD], v[S * H * VD];
    uint8_t mask[Q * S];
    double value[Q * H * VD], bound[Q * H * VD];
    struct ref_dsa_mla_masked_attn g;
};

static void draw(struct test_case *t, uint64_t seed)
{
    struct test_random rng = {seed};
    memset(t, 0, sizeof *t);
    for (int i = 0; i < Q * H * QD; i++) t->q[i] = ref_bf16_from_f64(test_normal(&rng));
    for (int i = 0; i < S * H * QD; i++) t->k[i] = ref_bf16_from_f64(test_normal(&rng));
    for (int i = 0; i < S * H * VD; i++) t->v[i] = ref_bf16_from_f64(test_normal(&rng));
    for (int i = 0; i < Q * S; i++) t->mask[i] = (uint8_t)test_below(&rng, 3);
    memset(t->mask + 2 * S, 0, S); /* row 2 attends nothing */
    t->g = (struct ref_dsa_mla_masked_attn){.q = t->q,
                                            .k = t->k,
                                            .v = t->v,
                                            .mask = t->mask,
                                            .Q = Q,
                                            .S = S,
                                            .H = H,
                                            .qd = QD,
                                            .vd = VD,
                                            .scale = 0.14433756f};
}

static void run(struct test_case *t)
{
    cr_assert(ref_dsa_mla_masked_attn_accepts(&t->g, NULL));
    ref_dsa_mla_masked_attn(&t->g, &default_model, t->value, t->bound);
}

static double real_score(const struct test_case *t, int r, int h, int s)
{
    double dot = 0;
    for (int i = 0; i < QD; i++)
        dot += (double)ref_bf16_to_f32(t->q[(r * H + h) * QD + i]) *
               (double)ref_bf16_to_f32(t->k[(s * H + h) * QD + i]);
    return (double)t->g.scale * dot;
}

static double by_definition(const struct test_case *t, int r, int h, int c)
{
    double sum = 0, weights = 0;
    for (int s = 0; s < S; s++) {
        if (!t->mask[r * S + s]) continue;
        double x = real_score(t, r, h, s);
        if (t->g.round_scores_bf16) x = ref_bf16_to_f32(ref_bf16_from_f64(x));
        weights += exp(x);
        sum += exp(x) * (double)ref_bf16_to_f32(t->v[(s * H + h) * VD + c]);
    }
    return weights > 0 ? sum / weights : 0;
}

Test(dsa_masked, agrees_with_the_definition)
{
    static struct test_case t;
    for (int round = 0; round < 6; round++) {
        draw(&t, (uint64_t)round);
        t.g.round_scores_bf16 = round & 1;
        run(&t);
        for (int i = 0; i < Q * H * VD; i++) {
            int r = i / VD / H;
            double want = by_definition(&t, r, i / VD % H, i % VD);
            cr_assert(fabs(t.value[i] - want) < 1e-13, "%d: %.17g, not %.17g", i, t.value[i], want);
            cr_assert_eq(t.bound[i] == 0, r == 2);
        }
    }
}

/* By hand: one head, scores 1 + 2^-9 and 1. As reals the weights differ; rounded to bf16 both
 * scores are 1 (2^-9 is a quarter of a bf16 ulp), so the values 1 and 3 average to exactly 2. */
Test(dsa_masked, scores_rounded_by_hand)
{
    uint16_t q[2] = {0x3f80, 0x3f80}, k[4] = {0x3f80, 0x3b00, 0x3f80, 0}, v[2] = {0x3f80, 0x4040};
    uint8_t mask[2] = {1, 1};
    double value, bound;
    struct ref_dsa_mla_masked_attn g = {q, k, v, mask, 1, 2, 1, 2, 1, 1.0f, 1};
    ref_dsa_mla_masked_attn(&g, &default_model, &value, &bound);
    cr_assert(value == 2 && bound < 1e-4, "%.17g", value);
    g.round_scores_bf16 = 0;
    ref_dsa_mla_masked_attn(&g, &default_model, &value, &bound);
    cr_assert(fabs(value - (2 - tanh(0x1p-10))) < 1e-15, "%.17g", value);
    /* 1 + 2^-8 is a tie between 1 and 1 + 2^-7: a kernel may round it either way. */
    k[1] = 0x3b80;
    g.round_scores_bf16 = 1;
    ref_dsa_mla_masked_attn(&g, &default_model, &value, &bound);
    cr_assert(value == 2 && bound > 0x1p-9, "%.17g %g", value, bound);
}

/* NaN that is not attended changes nothing. Attended, it goes where it belongs. */
Test(dsa_masked, nan_only_where_attended)
{
    static struct test_case base, t;
    draw(&base, 7);
    for (int r = 0; r < Q; r++) base.mask[r * S + 9] = 0;
    run(&base);
    memcpy(&t, &base, sizeof t);
    t.g.q = t.q, t.g.k = t.k, t.g.v = t.v, t.g.mask = t.mask;
    for (int i = 0; i < H * QD; i++) t.k[9 * H * QD + i] = 0x7fff;
    for (int i = 0; i < H * VD; i++) t.v[9 * H * VD + i] = 0x7fff;
    run(&t);
    cr_assert(!memcmp(t.value, base.value, sizeof t.value));
    cr_assert(!memcmp(t.bound, base.bound, sizeof t.bound));
    t.mask[1 * S + 9] = 1;
    run(&t);
    for (int i = 0; i < Q * H * VD; i++) cr_assert_eq(isnan(t.value[i]), i / VD / H == 1);
}

Test(dsa_masked, honest_kernels_keep_the_bound)
{
    static const struct sim kernels[] = {
        {.splits = 1, .exp_ulp = 2.5, .exp_error = SIM_EXP_ALTERNATE, .normalise_first = true},
        {.splits = 8, .strided = true, .tile = 1, .exp_ulp = 2.5, .exp_error = SIM_EXP_UP},
        {.splits = 1, .exp_ulp = 0.5, .fma = true, .log2_domain = true},
    };
    static struct test_case t;
    struct test_random rng = {14};
    double worst[2] = {0, 0};
    for (int round = 0; round < 40; round++) {
        draw(&t, 100 + (uint64_t)round);
        t.g.round_scores_bf16 = round & 1;
        run(&t);
        for (int i = 0; i < Q * H * SIM_DOT_ORDERS; i++) {
            int row = i % (Q * H), r = row / H, h = row % H, order = i / (Q * H);
            float score[S], values[S * VD], q[QD], k[QD], out[VD];
            size_t n = 0;
            ref_bf16_to_f32_n(t.q + row * QD, QD, q);
            for (int s = 0; s < S; s++) {
                if (!t.mask[r * S + s]) continue;
                ref_bf16_to_f32_n(t.k + (s * H + h) * QD, QD, k);
                ref_bf16_to_f32_n(t.v + (s * H + h) * VD, VD, values + n * VD);
                score[n] = sim_dot(q, k, QD, order) * t.g.scale;
                if (round & 1) score[n] = ref_bf16_to_f32(ref_bf16_from_f32(score[n]));
                n++;
            }
            if (!n) continue;
            struct sim sim = kernels[i % 3];
            sim.value_scale = 1;
            sim_softmax(&sim, &rng, score, values, n, VD, VD, NULL, out);
            for (int c = 0; c < VD; c++) {
                double bound = t.bound[row * VD + c];
                double error = fabs((double)out[c] - t.value[row * VD + c]);
                cr_assert(error <= bound, "round %d: %g off, bound %g", round, error, bound);
                worst[round & 1] = fmax(worst[round & 1], error / bound);
            }
        }
    }
    /* The model allows far more rescales and error than these kernels have. */
    cr_assert(worst[0] > 0.01 && worst[1] > 0.01, "%g %g", worst[0], worst[1]);
}

/* Decode is masked attention: with one head, powers of two for scales and the tokens of a row as
 * mask, both give the same real numbers. */
Test(dsa_masked, decode_is_masked_attention)
{
    enum { RANK = 512, TOKENS = 16, WIDTH = 7 };
    static uint8_t cache[TOKENS * RANK], mask[TOKENS];
    static uint16_t q[RANK], k[TOKENS * RANK];
    static double value[RANK], bound[RANK], masked[RANK], masked_bound[RANK];
    int32_t table[4] = {2, 0, 3, 1}, length = 15, row[WIDTH] = {-1, 4, 14, 15, 0, -1, 9};
    struct test_random rng = {15};
    for (int i = 0; i < RANK; i++) q[i] = ref_bf16_from_f64(test_normal(&rng));
    for (int i = 0; i < TOKENS * RANK; i++)
        cache[i] = ref_e4m3_from_f32((float)test_normal(&rng) * 4);
    for (int t = 0; t < TOKENS; t++)
        for (int i = 0; i < RANK; i++)
            k[t * RANK + i] = ref_bf16_from_f32(
                0.25f * ref_e4m3_to_f32(cache[(table[t / 4] * 4 + t % 4) * RANK + i]));
    struct ref_dsa_decode decode = {q, cache, cache, table, &length, row,     1,
                                    1, WIDTH, 4,     1,     1,       RANK,    4,
                                    4, 4,     0.1f,  0.25f, 0.25f,   4 * RANK};
    cr_assert(ref_dsa_decode_accepts(&decode, NULL));
    ref_dsa_decode(&decode, &default_model, value, bound);
    struct ref_dsa_topk_to_mask to_mask = {row, 1, WIDTH, (uint32_t)length};
    ref_dsa_topk_to_mask(&to_mask, mask);
    struct ref_dsa_mla_masked_attn attn = {q, k, k, mask, 1, 15, 1, RANK, RANK, 0.1f, 0};
    ref_dsa_mla_masked_attn(&attn, &default_model, masked, masked_bound);
    for (int i = 0; i < RANK; i++)
        cr_assert(fabs(value[i] - masked[i]) < 1e-14, "%d: %g and %g", i, value[i], masked[i]);
}
