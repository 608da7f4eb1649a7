#include "bound.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>

#include "formats.h"
#include "test_attn_sim.h"

static const struct ref_error_model f32_model = REF_MODEL_DEFAULT;

Test(bound, gamma_by_hand)
{
    cr_assert_eq(ref_gamma(0, REF_U_F32), 0);
    cr_assert_eq(ref_gamma(1, 0.25), 1.0 / 3);
    cr_assert_eq(ref_gamma(2, 0.25), 1.0);
    cr_assert_eq(ref_gamma(4, 0.25), INFINITY);
    cr_assert_eq(ref_gamma(0x1p24, REF_U_F32), INFINITY);
}

/* numerics §5.2: 5*2^-23 a step of 16, 17*2^-23 for steps nobody knows. */
Test(bound, dots_under_both_models)
{
    struct ref_error_model tensor = {.tensor_core = true, .mma_k = 16};
    cr_assert_eq(ref_dot_relative(&f32_model, 128, 0), ref_gamma(128, 0x1p-24));
    cr_assert_eq(ref_dot_relative(&f32_model, 128, 3), ref_gamma(131, 0x1p-24));
    double steps = 8 * 5 * 0x1p-23, got = ref_dot_relative(&tensor, 128, 0);
    cr_assert(got > steps + 8 * 0x1p-24 && got < (steps + 8 * 0x1p-24) * 1.001);
    cr_assert(ref_dot_relative(&tensor, 129, 0) > 9 * 5 * 0x1p-23);
    cr_assert(ref_dot_relative(&tensor, 1, 0) > 5 * 0x1p-23);
    tensor.mma_k = 32;
    cr_assert(ref_dot_relative(&tensor, 128, 0) > 4 * 17 * 0x1p-23);
    tensor.mma_k = 0;
    cr_assert(ref_dot_relative(&tensor, 128, 0) > 128 * 17 * 0x1p-23);
    cr_assert_eq(ref_ulp_relative(2.5), 2.5 * 0x1p-23);
}

/* numerics §1.5: the steps the bound stands for, by their known vectors. */
Test(bound, tensor_core_step_of_the_tests)
{
    float tiny[4] = {0x1p-12f, 0x1p-12f, 0x1p-12f, 0x1p-12f}, half[4], large[8], one[8];
    for (int i = 0; i < 4; i++) half[i] = 0x1p-13f;
    cr_assert_eq(ref_f32_bits(sim_mma_step(1, tiny, tiny, 2)), 0x3f800001);
    cr_assert_eq(ref_f32_bits(sim_mma_step(1, tiny, half, 4)), 0x3f800001);
    cr_assert_eq(ref_f32_bits(sim_mma_step(-1, (float[]){-0x1p-12f}, tiny, 1)), 0xbf800000);
    for (int i = 0; i < 8; i++) large[i] = one[i] = 1;
    large[0] = one[0] = large[7] = 0x1p15f;
    one[7] = -0x1p15f;
    cr_assert_eq(sim_mma_step(0, large, one, 8), 0);
}

enum { DIM = 512 };
static float q[DIM], k[DIM];

/* How a kernel may form a score: where the two scales go, and log2(e) with them. */
static float kernel_score(int folding, float scale, float k_scale, int order)
{
    static float left[DIM], right[DIM];
    const float log2e = 1.4426950408889634f;
    float both = scale * k_scale;
    for (int i = 0; i < DIM; i++) {
        left[i] = folding == 2 ? q[i] * scale : folding == 3 ? q[i] * both : q[i];
        right[i] = folding == 1 || folding == 2 ? k[i] * k_scale : k[i];
    }
    float dot = sim_dot(left, right, DIM, order);
    switch (folding) {
    case 0:
        return dot * both;
    case 1:
        return dot * scale;
    case 4:
        return dot * k_scale * scale;
    case 5:
        return (float)((double)(dot * (both * log2e)) / (double)log2e); /* e^x = 2^(x log2e) */
    default:
        return dot;
    }
}

static void fill(struct test_random *rng, double q_size, double k_size)
{
    for (int i = 0; i < DIM; i++) {
        q[i] = ref_bf16_to_f32(ref_bf16_from_f64(q_size * test_normal(rng)));
        k[i] = ref_e4m3_to_f32(ref_e4m3_from_f32((float)(k_size * test_normal(rng))));
    }
}

static double worst_share(struct test_random *rng, double q_size, float scale, float k_scale)
{
    double worst = 0;
    fill(rng, q_size, 1);
    struct ref_vec a = ref_vec_scan(q, DIM), b = ref_vec_scan(k, DIM);
    double factor = (double)scale * (double)k_scale;
    double peak = fmax(fmax(1, factor), fmax(scale, k_scale));
    struct ref_score score = ref_attn_score(&f32_model, &a, &b, factor, peak);
    cr_assert(isfinite(score.error));
    double exact = factor * ref_dot_exact(q, k, DIM);
    cr_assert(fabs(score.value - exact) <= 1e-15 * fabs(exact) + factor * ref_dot(&a, &b).error);
    for (int folding = 0; folding < 6; folding++) {
        for (int order = 0; order < SIM_DOT_ORDERS; order++) {
            double got = kernel_score(folding, scale, k_scale, order);
            double error = fabs(got - score.value);
            cr_assert(error <= score.error, "folding %d, order %d: %g off, bound %g", folding,
                      order, error, score.error);
            worst = fmax(worst, error / score.error);
        }
    }
    return worst;
}

Test(bound, scores_of_honest_kernels)
{
    struct test_random rng = {12};
    double worst = 0;
    for (int round = 0; round < 200; round++)
        worst = fmax(worst, worst_share(&rng, 1, 0.044194174f, round & 1 ? 0.37f : 1.0f));
    cr_log_info("scores use %.4f of their bound", worst);
    cr_assert(worst > 0.005, "%g", worst);
    for (int round = 0; round < 50; round++) { /* subnormal queries, tiny and large scales */
        worst_share(&rng, 0x1p-130, 0.044194174f, 0.37f);
        worst_share(&rng, 0x1p-120, 0x1p-10f, 1e-40f);
        worst_share(&rng, 0x1p100, 1e-40f, 1e-3f);
        worst_share(&rng, 1, 1e20f, 1e-25f);
        worst_share(&rng, 1, 1e-30f, 1e-30f); /* the product of the scales is 0 in f32 */
    }
}

/* One product: what is left is the roundings of the scales, up to one for each way to fold them. */
Test(bound, scores_of_one_product)
{
    struct test_random rng = {16};
    double worst = 0;
    for (int i = 1; i < DIM; i++) q[i] = k[i] = 0;
    for (int round = 0; round < 3000; round++) {
        q[0] = ref_bf16_to_f32(ref_bf16_from_f64(test_normal(&rng)));
        k[0] = ref_e4m3_to_f32(ref_e4m3_from_f32((float)test_normal(&rng)));
        float scale = (float)fabs(test_normal(&rng)) + 0x1p-30f;
        float k_scale = (float)fabs(test_normal(&rng)) + 0x1p-30f;
        struct ref_vec a = ref_vec_scan(q, 1), b = ref_vec_scan(k, 1);
        double factor = (double)scale * (double)k_scale, peak = fmax(1, fmax(scale, k_scale));
        struct ref_score score = ref_attn_score(&f32_model, &a, &b, factor, fmax(peak, factor));
        for (int folding = 0; folding < 6; folding++) {
            double got = kernel_score(folding, scale, k_scale, 0);
            cr_assert(fabs(got - score.value) <= score.error);
            if (score.error > 0) worst = fmax(worst, fabs(got - score.value) / score.error);
        }
    }
    cr_assert(worst > 0.3, "%g", worst);
}

/* Positive products in sequence: 512 and 1/2 ulp are swallowed one by one, so nearly all of gamma.
 */
Test(bound, a_crafted_sum_uses_most_of_it)
{
    for (int i = 0; i < DIM; i++) q[i] = i ? 0x1p-24f : 1, k[i] = 1;
    struct ref_vec a = ref_vec_scan(q, DIM), b = ref_vec_scan(k, DIM);
    struct ref_score score = ref_attn_score(&f32_model, &a, &b, 1, 1);
    double share = fabs((double)sim_dot(q, k, DIM, 0) - score.value) / score.error;
    cr_assert(share > 0.95 && share <= 1, "%g", share);
}

Test(bound, scores_that_are_not_finite_or_may_not_be)
{
    struct {
        float q0, q1, k0, k1, scale;
        double value, error; /* -1: usual; 0 and infinity as given; value 0: any */
    } cases[] = {
        {NAN, 0, 1, 1, 1, NAN, 0},
        {INFINITY, 0, 1, 1, 1, INFINITY, 0},
        {INFINITY, 0, -1, 1, 1, -INFINITY, INFINITY},
        {INFINITY, 0, 0, 1, 1, NAN, 0},
        {3e38f, 3e38f, 1, -1, 1, 0, INFINITY}, /* a partial sum may overflow, the score is 0 */
        {1e38f, 0, 1, 1, 1, 1e38, -1},
        {1e30f, 0, 1, 1, 1e10f, 1e40, INFINITY},
        {1e30f, 0, 1e-20f, 0, 1e10f, 0, INFINITY}, /* scale folded into q overflows */
        {1e-20f, 0, 1e30f, 0, 1e10f, 0, INFINITY}, /* into k */
        {1e30f, 0, 1, 1, 1e-10f, 1e20, -1},
        {1, 0, 0, 1, 1, 0, 0}, /* all products are exact zeros */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float x[2] = {cases[i].q0, cases[i].q1}, y[2] = {cases[i].k0, cases[i].k1};
        struct ref_vec a = ref_vec_scan(x, 2), b = ref_vec_scan(y, 2);
        struct ref_score s =
            ref_attn_score(&f32_model, &a, &b, cases[i].scale, fmax(1, cases[i].scale));
        double want = cases[i].value;
        cr_assert(isnan(want)   ? isnan(s.value)
                  : isinf(want) ? s.value == want
                                : want == 0 || fabs(s.value / want - 1) < 1e-6,
                  "case %zu: %g", i, s.value);
        cr_assert(cases[i].error < 0 ? s.error > 0 && isfinite(s.error) : s.error == cases[i].error,
                  "case %zu: error %g", i, s.error);
    }
}
