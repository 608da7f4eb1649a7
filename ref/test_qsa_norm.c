#include <criterion/criterion.h>
#include <string.h>

#include "bound.h"
#include "qsa.h"
#include "qsa_canonical.h"
#include "rotation.h"
#include "test_qsa.h"

static uint16_t bf16(double x)
{
    return ref_bf16_from_f64(x);
}

static void fill(uint16_t *out, size_t n, double x)
{
    for (size_t i = 0; i < n; i++) out[i] = bf16(x);
}

Test(qsa_norm, rnorm_rounds_twice)
{
    /* sqrt(3) = 1.7320508075..., the nearest float is 1.7320507764816284 = 0x1.bb67aep0; its
     * reciprocal 0.5773502796 lies between 0x1.279a74p-1 = 0.5773502588 and 0x1.279a76p-1 =
     * 0.5773503184. */
    cr_assert_eq(ref_qsa_rnorm(3), 0x1.279a74p-1f);
    /* Twice rounded is not rounded once: search the numbers of [1, 4) for cases where they differ;
     * numerics §2 counts 26 percent. */
    uint32_t differ = 0, all = 0;
    for (uint32_t bits = 0x3f800000; bits < 0x40800000; bits += 97, all++) {
        float x = ref_f32_from_bits(bits);
        differ += ref_qsa_rnorm(x) != (float)(1 / sqrt((double)x));
    }
    cr_assert(differ > all / 5 && differ < all / 3);
    cr_assert(isinf(ref_qsa_rnorm(0)) && isnan(ref_qsa_rnorm(-1)));
}

/* Two tokens of 3 and 5 everywhere: v = 4, mean square 16, 1/sqrt = 1/4, so n = 1+w = 1.5. Block 1
 * turns pair (0, 1) by its first token's position 2 (theta^0 = 1):
 *   1.5 (cos 2 - sin 2) = 1.5 (-0.41614683 - 0.90929743) = -1.98816639, in steps of 2^-7: -254.49
 *   1.5 (cos 2 + sin 2) = 0.73972590, in steps of 2^-8: 189.37
 * Position 3, of the last token, would give -1.6967 and -1.2733; the mean position 2.5 others too.
 */
Test(qsa_norm, pool_worked_by_hand)
{
    enum { HD = 32 };
    uint16_t raw[4 * HD], weight[HD], out[2 * HD];
    for (int t = 0; t < 4; t++) fill(raw + t * HD, HD, t % 2 ? 5 : 3);
    fill(weight, HD, 0.5);
    struct ref_qsa_block_pool g = {.raw_keys = raw,
                                   .k_norm_w = weight,
                                   .n_new = 2,
                                   .S = 4,
                                   .max_blocks = 2,
                                   .ratio = 2,
                                   .hd = HD,
                                   .rot = 2,
                                   .theta = 1e7f};
    ref_qsa_block_pool(&g, out);
    for (int d = 0; d < HD; d++) cr_assert_eq(out[d], bf16(1.5));
    cr_assert_eq(out[HD], bf16(-254 * 0x1p-7));
    cr_assert_eq(out[HD + 1], bf16(189 * 0x1p-8));
    for (int d = 2; d < HD; d++) cr_assert_eq(out[HD + d], bf16(1.5));
    /* first_block names the block, row 0 of the output holds it. */
    uint16_t second[HD];
    g.first_block = g.n_new = 1;
    ref_qsa_block_pool(&g, second);
    cr_assert_arr_eq(second, out + HD, sizeof second);
}

Test(qsa_norm, pool_sums_in_token_order_from_plus_zero)
{
    enum { HD = 32 };
    uint16_t raw[4 * HD], weight[HD], out[HD];
    memset(raw, 0, sizeof raw);
    fill(weight, HD, 0);
    /* ((2^24 + 1) + 1) - 2^24: each 1 is a tie to even and is lost. Any other place of -2^24, or
     * adding the ones first, leaves 1 or 2. */
    raw[0] = bf16(0x1p24), raw[HD] = raw[2 * HD] = bf16(1), raw[3 * HD] = bf16(-0x1p24);
    /* Negative zeros sum to +0, because the sum starts from it. */
    for (int t = 0; t < 4; t++) raw[t * HD + 1] = 0x8000;
    for (int t = 0; t < 4; t++) raw[t * HD + 2] = bf16(1);
    struct ref_qsa_block_pool g = {.raw_keys = raw,
                                   .k_norm_w = weight,
                                   .n_new = 1,
                                   .S = 4,
                                   .max_blocks = 1,
                                   .ratio = 4,
                                   .hd = HD,
                                   .theta = 1e7f,
                                   .eps = 1e-6f};
    ref_qsa_block_pool(&g, out);
    cr_assert_eq(out[0], 0);
    cr_assert_eq(out[1], 0);
    /* v_2 = 1 alone: mean square 1/32 + 1e-6, n = 5.6567..., bf16 steps of 2^-5: 181.01 */
    cr_assert_eq(out[2], bf16(181 * 0x1p-5));
}

/* A query of one 4 and 31 zeros in dims 0..31, hd 32: mean square 0.5, plus eps 0.5 is 1: n_0 = 4.
 * Pair (0, 16) at position 1: 4 cos 1 = 2.1612092, 4 sin 1 = 3.3658839 in dims 0 and 16. */
Test(qsa_norm, qprep_worked_by_hand)
{
    enum { HD = 32, QKW = 70 };
    uint16_t qk[2 * QKW], weight[HD];
    float out[2 * 2 * HD];
    for (int i = 0; i < 2 * QKW; i++) qk[i] = TEST_BF16_NAN; /* beyond the queries: never read */
    memset(weight, 0, sizeof weight);
    for (int r = 0; r < 2; r++) memset(qk + r * QKW, 0, 2 * HD * sizeof *qk);
    qk[0] = qk[QKW] = bf16(4);
    qk[HD + 3] = qk[QKW + HD + 3] = bf16(-4); /* head 1: dim 3 */
    struct ref_qsa_qprep_rows g = {.qk = qk,
                                   .q_norm_w = weight,
                                   .rows = 2,
                                   .first_pos = 0,
                                   .qkw = QKW,
                                   .n_heads = 2,
                                   .hd = HD,
                                   .rot = 32,
                                   .theta = 1e4f,
                                   .eps = 0.5f};
    ref_qsa_qprep_rows(&g, out);
    cr_assert_eq(out[0], 4);
    cr_assert_eq(out[16], 0);
    cr_assert_eq(out[2 * HD], 4 * (float)cos(1.0));
    cr_assert_eq(out[2 * HD + 16], 4 * (float)sin(1.0));
    /* Head 1, dim 3 turns by 1e4^(-6/32) = 0.17782794: -4 cos, -4 sin in dims 3 and 19. */
    cr_assert_eq(out[3 * HD + 3], -4 * (float)cos(0.17782794100389229));
    cr_assert_eq(out[3 * HD + 19], -4 * (float)sin(0.17782794100389229));
    /* The weight is 1 + w, and w = -1 silences the dim. */
    weight[0] = bf16(-1);
    ref_qsa_qprep_rows(&g, out);
    cr_assert_eq(out[0], 0);
}

Test(qsa_norm, qprep_row_equals_single_query)
{
    enum { HD = 64, HEADS = 3, ROWS = 9, QKW = 4 * HD + 5 };
    uint64_t state = 7;
    uint16_t qk[ROWS * QKW], weight[HD];
    float rows[ROWS * HEADS * HD], one[HEADS * HD];
    test_fill_bf16(&state, 2, ROWS * QKW, qk);
    test_fill_bf16(&state, 0.5, HD, weight);
    struct ref_qsa_qprep_rows g = {.qk = qk,
                                   .q_norm_w = weight,
                                   .rows = ROWS,
                                   .first_pos = 1000003,
                                   .qkw = QKW,
                                   .n_heads = HEADS,
                                   .hd = HD,
                                   .rot = 48,
                                   .theta = 1e7f,
                                   .eps = 1e-6f};
    ref_qsa_qprep_rows(&g, rows);
    for (uint32_t r = 0; r < ROWS; r++) {
        struct ref_qsa_qprep_rows single = g;
        single.qk = qk + r * QKW;
        single.rows = 1;
        single.first_pos += r;
        single.qkw = HEADS * HD;
        ref_qsa_qprep_rows(&single, one);
        cr_assert_arr_eq(one, rows + r * HEADS * HD, sizeof one);
    }
}

/* Every rounding after the mean written out: products of floats are exact in double, and so are the
 * sums here, so each cast is one rounding to nearest. */
Test(qsa_norm, every_rounding_in_its_place)
{
    enum { HD = 64, HALF = 24 };
    uint64_t state = 21;
    uint16_t qk[HD], weight[HD];
    float out[HD], x[HD], n[HD];
    for (uint32_t pos = 0; pos < 50; pos++) {
        test_fill_bf16(&state, 1, HD, qk);
        test_fill_bf16(&state, 1, HD, weight);
        struct ref_qsa_qprep_rows g = {.qk = qk,
                                       .q_norm_w = weight,
                                       .rows = 1,
                                       .first_pos = pos,
                                       .qkw = HD,
                                       .n_heads = 1,
                                       .hd = HD,
                                       .rot = 2 * HALF,
                                       .theta = 1e4f,
                                       .eps = 1e-6f};
        ref_qsa_qprep_rows(&g, out);
        ref_bf16_to_f32_n(qk, HD, x);
        float mean = (float)((double)(float)(ref_qsa_dot(x, x, HD) / 64.0) + (double)1e-6f);
        float scale = (float)(1 / (double)(float)sqrt((double)mean));
        for (int d = 0; d < HD; d++) {
            float gain = (float)(1 + (double)ref_bf16_to_f32(weight[d]));
            n[d] = (float)((double)(float)((double)x[d] * scale) * gain);
        }
        for (int j = 0; j < HALF; j++) {
            float c, s;
            ref_qsa_rotation(1e4f, 2 * HALF, (uint32_t)j, pos, &c, &s);
            double a = n[j], b = n[j + HALF];
            cr_assert_eq(out[j], (float)((double)(float)(a * c) - (float)(b * s)));
            cr_assert_eq(out[j + HALF], (float)((double)(float)(b * c) + (float)(a * s)));
        }
        cr_assert_arr_eq(out + 2 * HALF, n + 2 * HALF, (HD - 2 * HALF) * sizeof *n);
    }
}

/* ---- an f32 kernel of another kind, for the bounds ---- */

struct foreign {
    bool fused, reversed, gain_first;
    double rsqrt_ulps, table_ulps; /* pushed so far off */
};

static float foreign_square(const struct foreign *f, const float *x, uint32_t hd)
{
    float sum = 0;
    for (uint32_t i = 0; i < hd; i++) {
        float v = x[f->reversed ? hd - 1 - i : i];
        sum = f->fused ? fmaf(v, v, sum) : sum + v * v;
    }
    return sum;
}

static float pushed(double exact, double ulps)
{
    float nearest = (float)exact;
    double ulp = nextafterf(fabsf(nearest), INFINITY) - fabsf(nearest);
    return (float)(exact + ulps * ulp);
}

static void foreign_row(const struct foreign *f, float *x, const uint16_t *weight, uint32_t hd,
                        uint32_t rot, float theta, float eps, uint32_t pos)
{
    float mean = foreign_square(f, x, hd) / (float)hd + eps;
    float scale = pushed(1 / sqrt((double)mean), f->rsqrt_ulps);
    for (uint32_t d = 0; d < hd; d++) {
        float gain = 1 + ref_bf16_to_f32(weight[d]);
        x[d] = f->gain_first ? x[d] * (scale * gain) : x[d] * scale * gain;
    }
    for (uint32_t j = 0; j < rot / 2; j++) {
        double frequency = pow(theta, -2.0 * j / rot);
        double angle = pos * nextafter(frequency, f->reversed ? 0 : 2);
        float c = pushed(cos(angle), f->table_ulps), s = pushed(sin(angle), -f->table_ulps);
        float a = x[j], b = x[j + rot / 2];
        x[j] = f->fused ? fmaf(a, c, -(b * s)) : a * c - b * s;
        x[j + rot / 2] = f->fused ? fmaf(b, c, a * s) : b * c + a * s;
    }
}

static const struct foreign foreigners[] = {{false, false, false, 0, 0},
                                            {true, false, false, 1.9, 0.4},
                                            {false, true, true, -1.9, -0.4},
                                            {true, true, true, 1.9, -0.4}};

/* Every foreign kernel stays inside, and the bound is no larger than it need be: the errors reach a
 * fair share of it. */
Test(qsa_norm, qprep_bound_holds_for_other_kernels)
{
    enum { HD = 128, HEADS = 2, QKW = HEADS * HD };
    static const uint32_t positions[] = {0, 1, 777, 1048575, 2147483647};
    uint64_t state = 11;
    uint16_t qk[QKW], weight[HD];
    double value[QKW], bound[QKW], worst = 0;
    for (int run = 0; run < 60; run++) {
        test_fill_bf16(&state, ldexp(1, run % 12 - 6), QKW, qk);
        test_fill_bf16(&state, 1, HD, weight);
        struct ref_qsa_qprep_rows g = {.qk = qk,
                                       .q_norm_w = weight,
                                       .rows = 1,
                                       .first_pos = positions[run % 5],
                                       .qkw = QKW,
                                       .n_heads = HEADS,
                                       .hd = HD,
                                       .rot = 64,
                                       .theta = 1e7f,
                                       .eps = 1e-6f};
        ref_qsa_qprep_rows_bound(&g, &REF_MODEL_DEFAULT, value, bound);
        for (size_t k = 0; k < sizeof foreigners / sizeof *foreigners; k++) {
            for (int h = 0; h < HEADS; h++) {
                float x[HD];
                ref_bf16_to_f32_n(qk + h * HD, HD, x);
                foreign_row(&foreigners[k], x, weight, HD, 64, 1e7f, 1e-6f, g.first_pos);
                for (int d = 0; d < HD; d++) {
                    double error = fabs(x[d] - value[h * HD + d]), limit = bound[h * HD + d];
                    cr_assert(error <= limit, "run %d kernel %zu dim %d: %g beyond %g", run, k, d,
                              error, limit);
                    if (limit > 0) worst = fmax(worst, error / limit);
                }
            }
        }
    }
    cr_assert(worst > 0.05 && worst < 1, "worst err/E %g", worst);
}

/* Without rotation and with w = 0 the relative bound is that of numerics §5.5: to first order
 * (hd/2 + 1)u for the mean, div/2 and rsqrt ulps of 2u each, and two more products. */
Test(qsa_norm, bound_is_the_formula)
{
    enum { HD = 128 };
    uint16_t qk[HD], weight[HD];
    double value[HD], bound[HD], u = 0x1p-24;
    fill(qk, HD, 1.5);
    fill(weight, HD, 0);
    struct ref_qsa_qprep_rows g = {
        .qk = qk, .q_norm_w = weight, .rows = 1, .qkw = HD, .n_heads = 1, .hd = HD, .theta = 1e4f};
    struct ref_error_model model = REF_MODEL_DEFAULT;
    model.rsqrt_ulp = 1;
    model.div_ulp = 0.5;
    ref_qsa_qprep_rows_bound(&g, &model, value, bound);
    double first_order = (HD / 2 + 1) * u + 0.5 * u + 2 * u + 3 * u;
    for (int d = 0; d < HD; d++) {
        cr_assert_float_eq(value[d], 1, 1e-15);
        cr_assert_float_eq(bound[d], first_order, 1e-4 * first_order);
    }
}

/* Pair (0, 1) at position 2^31-1, theta^0: the angle is an integer of 31 bits, so its error, kernel
 * and oracle together 5 * 2^-53 of it, is 20u beside the table's u. With n = 1 in both elements
 *   E = (dn + 2u)(|c| + |s|) + 2 * 21u,  dn = (hd/2 + 1)u + 0.5u + 2u + 3u as above. */
Test(qsa_norm, rotation_bound_is_the_formula)
{
    enum { HD = 32, POS = 2147483647 };
    uint16_t qk[HD], weight[HD];
    double value[HD], bound[HD], u = 0x1p-24, c = cos(POS), s = sin(POS);
    fill(qk, HD, 1.5);
    fill(weight, HD, 0);
    struct ref_qsa_qprep_rows g = {.qk = qk,
                                   .q_norm_w = weight,
                                   .rows = 1,
                                   .first_pos = POS,
                                   .qkw = HD,
                                   .n_heads = 1,
                                   .hd = HD,
                                   .rot = 2,
                                   .theta = 1e4f};
    struct ref_error_model model = REF_MODEL_DEFAULT;
    model.rsqrt_ulp = 1;
    model.div_ulp = 0.5;
    ref_qsa_qprep_rows_bound(&g, &model, value, bound);
    double dn = (HD / 2 + 1) * u + 0.5 * u + 2 * u + 3 * u;
    double want = (dn + 2 * u) * (fabs(c) + fabs(s)) + 42 * u;
    cr_assert_float_eq(value[0], c - s, 1e-14);
    cr_assert_float_eq(value[1], c + s, 1e-14);
    cr_assert_float_eq(bound[0], want, 1e-4 * want);
    cr_assert_float_eq(bound[1], want, 1e-4 * want);
}

/* Four equal tokens: dv = 3u + d for v = 1, which moves the mean by 2 dv and the key by itself:
 *   dn = dv + (2 dv + (hd + 2)u + d)/2 + rho + 3u,  d = 2 div_ulp u */
Test(qsa_norm, pool_bound_is_the_formula)
{
    enum { HD = 64 };
    uint16_t raw[4 * HD], weight[HD];
    double value[HD], bound[HD], u = 0x1p-24;
    fill(raw, 4 * HD, 1);
    fill(weight, HD, 0);
    struct ref_qsa_block_pool g = {.raw_keys = raw,
                                   .k_norm_w = weight,
                                   .n_new = 1,
                                   .S = 4,
                                   .max_blocks = 1,
                                   .ratio = 4,
                                   .hd = HD,
                                   .theta = 1e4f};
    struct ref_error_model model = REF_MODEL_DEFAULT;
    model.rsqrt_ulp = 1;
    for (int twice = 1; twice <= 5; twice += 2) {
        model.div_ulp = 0.5 * twice;
        ref_qsa_block_pool_bound(&g, &model, value, bound);
        double d = twice * u, dv = 3 * u + d;
        double want = dv + (2 * dv + (HD + 2) * u + d) / 2 + 2 * u + 3 * u;
        for (int i = 0; i < HD; i++) cr_assert_float_eq(bound[i], want, 1e-4 * want);
    }
}

Test(qsa_norm, pool_bound_holds_for_other_kernels)
{
    enum { HD = 64, BLOCKS = 5, MOST = 16 };
    uint64_t state = 13;
    uint16_t raw[BLOCKS * MOST * HD], weight[HD], canonical[BLOCKS * HD];
    double value[BLOCKS * HD], bound[BLOCKS * HD], worst = 0;
    static const uint32_t ratios[] = {1, 3, 4, 16};
    for (int run = 0; run < 24; run++) {
        uint32_t ratio = ratios[run % 4];
        test_fill_bf16(&state, 1, BLOCKS * MOST * HD, raw);
        test_fill_bf16(&state, 1, HD, weight);
        struct ref_qsa_block_pool g = {.raw_keys = raw,
                                       .k_norm_w = weight,
                                       .n_new = BLOCKS,
                                       .S = BLOCKS * ratio,
                                       .max_blocks = BLOCKS,
                                       .ratio = ratio,
                                       .hd = HD,
                                       .rot = 64,
                                       .theta = 1e6f,
                                       .eps = 1e-5f};
        ref_qsa_block_pool(&g, canonical);
        ref_qsa_block_pool_bound(&g, &REF_MODEL_DEFAULT, value, bound);
        for (uint32_t b = 0; b < BLOCKS; b++) {
            const struct foreign *f = &foreigners[b % 4];
            float x[HD] = {0};
            for (uint32_t i = 0; i < ratio; i++) {
                uint32_t t = b * ratio + (f->reversed ? ratio - 1 - i : i);
                for (int d = 0; d < HD; d++) x[d] += ref_bf16_to_f32(raw[t * HD + d]);
            }
            for (int d = 0; d < HD; d++) x[d] *= 1 / (float)ratio;
            foreign_row(f, x, weight, HD, 64, 1e6f, 1e-5f, b * ratio);
            for (int d = 0; d < HD; d++) {
                double v = value[b * HD + d], limit = bound[b * HD + d];
                cr_assert(fabs(x[d] - v) <= limit, "ratio %u block %u dim %d", ratio, b, d);
                worst = fmax(worst, fabs(x[d] - v) / limit);
                uint16_t got = canonical[b * HD + d];
                float low = ref_bf16_to_f32(ref_bf16_from_f64(v - limit));
                float high = ref_bf16_to_f32(ref_bf16_from_f64(v + limit));
                cr_assert(ref_bf16_to_f32(got) >= low && ref_bf16_to_f32(got) <= high);
            }
        }
    }
    cr_assert(worst > 0.05 && worst < 1, "worst err/E %g", worst);
}

Test(qsa_norm, special_rows)
{
    enum { HD = 32 };
    uint16_t qk[HD], weight[HD];
    float out[HD];
    double value[HD], bound[HD];
    fill(weight, HD, 0);
    struct ref_qsa_qprep_rows g = {
        .qk = qk, .q_norm_w = weight, .rows = 1, .qkw = HD, .n_heads = 1, .hd = HD, .theta = 1e4f};
    /* A zero row: without eps 0 * (1/0), with eps 0. */
    fill(qk, HD, 0);
    ref_qsa_qprep_rows(&g, out);
    ref_qsa_qprep_rows_bound(&g, &REF_MODEL_DEFAULT, value, bound);
    for (int d = 0; d < HD; d++) cr_assert(isnan(out[d]) && isnan(value[d]) && bound[d] == 0);
    g.eps = 1e-6f;
    ref_qsa_qprep_rows(&g, out);
    ref_qsa_qprep_rows_bound(&g, &REF_MODEL_DEFAULT, value, bound);
    for (int d = 0; d < HD; d++) cr_assert(out[d] == 0 && value[d] == 0 && bound[d] < 1e-40);
    /* NaN reaches every dim through the mean. */
    qk[5] = TEST_BF16_NAN;
    ref_qsa_qprep_rows(&g, out);
    ref_qsa_qprep_rows_bound(&g, &REF_MODEL_DEFAULT, value, bound);
    for (int d = 0; d < HD; d++) cr_assert(isnan(out[d]) && isnan(value[d]) && bound[d] == 0);
    /* Infinity: 1/inf is 0, so the others become 0 and it becomes NaN. */
    qk[5] = 0x7f80;
    qk[6] = TEST_BF16_ONE;
    ref_qsa_qprep_rows(&g, out);
    ref_qsa_qprep_rows_bound(&g, &REF_MODEL_DEFAULT, value, bound);
    cr_assert(isnan(out[5]) && isnan(value[5]) && bound[5] == 0);
    cr_assert(out[6] == 0 && value[6] == 0 && bound[6] == 0);
    /* Squares beyond the f32 range, or below it: the real result is 1, nothing is promised. */
    fill(qk, HD, 0x1p100);
    ref_qsa_qprep_rows_bound(&g, &REF_MODEL_DEFAULT, value, bound);
    cr_assert(fabs(value[0] - 1) < 1e-12 && isinf(bound[0]));
    g.eps = 0;
    fill(qk, HD, 0x1p-100);
    ref_qsa_qprep_rows_bound(&g, &REF_MODEL_DEFAULT, value, bound);
    cr_assert(fabs(value[0] - 1) < 1e-12 && isinf(bound[0]));
}
