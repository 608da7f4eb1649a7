#include "exact.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <mpfr.h>
#include <stdio.h>

#include "formats.h"
#include "test_random.h"

enum { MAX_N = 600, PRECISION = 2400 }; /* bits that hold any sum here exactly */

/* The exact sum of x_i*y_i (y null: of x_i), or of magnitudes. */
static void mpfr_exact(mpfr_t sum, const double *x, const double *y, size_t n, bool magnitudes)
{
    mpfr_t term;
    mpfr_init2(term, PRECISION);
    mpfr_set_zero(sum, 1);
    for (size_t i = 0; i < n; i++) {
        mpfr_set_d(term, x[i], MPFR_RNDN);
        if (y) cr_assert_eq(mpfr_mul_d(term, term, y[i], MPFR_RNDN), 0);
        if (magnitudes) mpfr_abs(term, term, MPFR_RNDN);
        cr_assert_eq(mpfr_add(sum, sum, term, MPFR_RNDN), 0);
    }
    mpfr_clear(term);
}

/* mpfr_get_d rounds once, also into the subnormals. */
static double rounded(mpfr_t sum)
{
    return mpfr_zero_p(sum) ? 0.0 : mpfr_get_d(sum, MPFR_RNDN);
}

static void check_dot(const float *x, const float *y, size_t n, const char *what)
{
    static double wide_x[MAX_N], wide_y[MAX_N];
    for (size_t i = 0; i < n; i++) {
        wide_x[i] = x[i];
        wide_y[i] = y[i];
    }
    mpfr_t sum, difference;
    mpfr_inits2(PRECISION, sum, difference, (mpfr_ptr)0);
    mpfr_exact(sum, wide_x, wide_y, n, false);
    double want = rounded(sum), got = ref_dot_exact(x, y, n);
    cr_assert(want == got && !signbit(want) == !signbit(got), "%s: %a, exactly %a", what, got,
              want);
    struct ref_vec a = ref_vec_scan(x, n), b = ref_vec_scan(y, n);
    struct ref_dot dot = ref_dot(&a, &b);
    mpfr_sub_d(difference, sum, dot.value, MPFR_RNDN);
    mpfr_abs(difference, difference, MPFR_RNDN);
    cr_assert(mpfr_cmp_d(difference, dot.error) <= 0, "%s: %a, exactly %a, error %a", what,
              dot.value, want, dot.error);
    mpfr_exact(sum, wide_x, wide_y, n, true);
    cr_assert(mpfr_cmp_d(sum, dot.abs) <= 0, "%s", what);
    cr_assert(mpfr_get_d(sum, MPFR_RNDU) * (1 + 1e-12) >= dot.abs, "%s", what);
    mpfr_clears(sum, difference, (mpfr_ptr)0);
}

typedef float sampler(struct test_random *rng);

static float normal(struct test_random *rng)
{
    return (float)test_normal(rng);
}

static float normal_bf16(struct test_random *rng)
{
    return ref_bf16_to_f32(ref_bf16_from_f64(test_normal(rng)));
}

static float any_e4m3(struct test_random *rng)
{
    float value = ref_e4m3_to_f32((uint8_t)test_bits(rng));
    return isnan(value) ? 0 : value;
}

static float any_finite(struct test_random *rng)
{
    float value = ref_f32_from_bits((uint32_t)test_bits(rng));
    return isfinite(value) ? value : 0;
}

static float subnormal(struct test_random *rng)
{
    return ref_f32_from_bits((uint32_t)test_bits(rng) & 0x807fffff);
}

static float spread(struct test_random *rng)
{
    return (float)ldexp(test_normal(rng), (int)test_below(rng, 61) - 30);
}

static float integer(struct test_random *rng)
{
    return (float)((int)test_below(rng, 31) - 15);
}

/* 32 additional bits, but no more than 62 binades: what the 128-bit path is for. */
static float wide_bf16(struct test_random *rng)
{
    return ref_bf16_to_f32(ref_bf16_from_f64(ldexp(test_normal(rng), (int)test_below(rng, 40))));
}

Test(exact, dots_of_all_kinds)
{
    static sampler *const kinds[] = {normal,    normal_bf16, any_e4m3, any_finite,
                                     subnormal, spread,      integer,  wide_bf16};
    static const size_t lengths[] = {0, 1, 2, 15, 16, 17, 31, 128, 512, MAX_N};
    static float x[MAX_N], y[MAX_N];
    struct test_random rng = {2};
    for (int a = 0; a < 8; a++) {
        for (int b = 0; b < 8; b++) {
            for (int k = 0; k < 10; k++) {
                for (size_t i = 0; i < lengths[k]; i++) {
                    x[i] = kinds[a](&rng);
                    y[i] = kinds[b](&rng);
                }
                char what[40];
                snprintf(what, sizeof what, "kinds %d %d, length %zu", a, b, lengths[k]);
                check_dot(x, y, lengths[k], what);
            }
        }
    }
}

/* All but a little cancels: term i and its negative, shuffled, and one small term. */
Test(exact, cancellation)
{
    static float x[MAX_N], y[MAX_N];
    struct test_random rng = {3};
    for (int round = 0; round < 200; round++) {
        size_t n = 2 * (1 + test_below(&rng, MAX_N / 2 - 1)) + 1;
        for (size_t i = 0; i + 1 < n; i += 2) {
            x[i] = round & 1 ? any_finite(&rng) : normal(&rng);
            y[i] = round & 2 ? spread(&rng) : normal_bf16(&rng);
            x[i + 1] = -x[i];
            y[i + 1] = y[i];
        }
        x[n - 1] = (float)ldexp(1.0, -(int)test_below(&rng, 149));
        y[n - 1] = round & 4 ? 0x1p-149f : 1.0f;
        for (size_t i = n - 1; i > 0; i--) {
            size_t j = test_below(&rng, (uint32_t)i + 1);
            float mx = x[i], my = y[i];
            x[i] = x[j], y[i] = y[j], x[j] = mx, y[j] = my;
        }
        check_dot(x, y, n, "cancellation");
    }
}

static float odd24(struct test_random *rng)
{
    return (float)(0x800001 | (test_bits(rng) & 0x7ffffe));
}

/* Spans on both sides of what 53 and 126 bits hold; all terms positive, so that sums fill them. */
Test(exact, at_the_edges_of_the_fast_paths)
{
    static float x[64], y[64];
    struct test_random rng = {6};
    for (int round = 0; round < 4000; round++) {
        bool small = round & 1;
        size_t n = small ? 8 : 64;
        int shift = small ? 1 + (int)test_below(&rng, 4) : 34 + (int)test_below(&rng, 5);
        for (size_t i = 0; i < n; i++) {
            x[i] = ldexpf(odd24(&rng), test_below(&rng, 4) ? shift : 0);
            y[i] = small ? odd24(&rng) : ldexpf(odd24(&rng), test_below(&rng, 4) ? shift : 0);
        }
        check_dot(x, y, n, small ? "53 bits" : "126 bits");
    }
}

/* 2^53 + 1 is a tie and goes down to even, 2^53 + 3 up; a last term far below decides them. */
Test(exact, ties_and_what_breaks_them)
{
    struct {
        float x[4];
        double want;
    } cases[] = {
        {{0x1p53f, 1, 0, 0}, 0x1p53},
        {{0x1p53f, 1, 0x1p-100f, 0}, 0x1p53 + 2},
        {{0x1p53f, 1, -0x1p-100f, 0}, 0x1p53},
        {{0x1p53f, 3, 0, 0}, 0x1p53 + 4},
        {{0x1p53f, 3, -0x1p-149f, 0}, 0x1p53 + 2},
        {{-0x1p53f, -1, -0x1p-100f, 0}, -0x1p53 - 2},
        {{0x1p127f, 1, -0x1p127f, 0x1p-149f}, 1},
        {{0x1p127f, 0x1p-149f, -0x1p127f, 0}, 0x1p-149},
        {{1, -1, 0, -0.0f}, 0},
    };
    static const float ones[4] = {1, 1, 1, 1};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cr_assert_eq(ref_dot_exact(cases[i].x, ones, 4), cases[i].want, "case %zu", i);
    static const float minus_zero[1] = {-0.0f};
    cr_assert(!signbit(ref_dot_exact(minus_zero, ones, 1)));
}

Test(exact, sums_of_doubles)
{
    static double x[MAX_N];
    struct test_random rng = {4};
    mpfr_t sum;
    mpfr_init2(sum, PRECISION);
    for (int round = 0; round < 600; round++) {
        size_t n = test_below(&rng, MAX_N);
        for (size_t i = 0; i < n; i++) {
            uint64_t bits = test_bits(&rng);
            if (round % 3 == 1) bits &= 0x803fffffffffffff; /* around the least normal */
            union {
                uint64_t bits;
                double value;
            } pun = {bits};
            x[i] = round % 3 == 2 ? test_normal(&rng) : pun.value;
            if (!isfinite(x[i])) x[i] = -DBL_MAX;
            if (i & 1 && round & 8) x[i] = nextafter(-x[i - 1], 0);
        }
        mpfr_exact(sum, x, NULL, n, false);
        double want = rounded(sum), got = ref_sum_exact(x, n);
        cr_assert(want == got && !signbit(want) == !signbit(got), "%d: %a, exactly %a", round, got,
                  want);
    }
    mpfr_clear(sum);
    double large[3] = {DBL_MAX, DBL_MAX, -DBL_MAX};
    cr_assert_eq(ref_sum_exact(large, 3), DBL_MAX);
    cr_assert_eq(ref_sum_exact(large, 2), INFINITY);
}

/* More terms than a limb takes between carries would need 2^30; the carry itself is seen here by
 * sums that overflow and underflow many limbs at once. */
Test(exact, carries_run_through_all_limbs)
{
    double x[4] = {0x1p1000, -DBL_TRUE_MIN, DBL_TRUE_MIN, -0x1p1000};
    cr_assert_eq(ref_sum_exact(x, 2), 0x1p1000);
    cr_assert_eq(ref_sum_exact(x, 3), 0x1p1000);
    cr_assert_eq(ref_sum_exact(x, 4), 0);
    cr_assert_eq(ref_sum_exact(x + 1, 1), -DBL_TRUE_MIN);
    double y[3] = {0x1p53, -DBL_TRUE_MIN, 1};
    cr_assert_eq(ref_sum_exact(y, 3), 0x1p53); /* just below the tie */
}

Test(exact, not_finite)
{
    static const float inf = INFINITY;
    struct {
        float x[3], y[3];
        double want;
    } cases[] = {
        {{inf, 1, 2}, {1, 1, 1}, INFINITY},   {{inf, 1, 2}, {-1, 1, 1}, -INFINITY},
        {{inf, 1, 2}, {0, 1, 1}, NAN},        {{inf, inf, 2}, {1, -1, 1}, NAN},
        {{inf, inf, 2}, {1, 1, 1}, INFINITY}, {{NAN, 1, 2}, {0, 1, 1}, NAN},
        {{1, 2, 3}, {NAN, 0, 0}, NAN},        {{FLT_MAX, 1, -inf}, {FLT_MAX, 1, 1}, -INFINITY},
        {{inf, NAN, 3}, {1, 1, 1}, NAN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ref_vec a = ref_vec_scan(cases[i].x, 3), b = ref_vec_scan(cases[i].y, 3);
        double fast = ref_dot(&a, &b).value, exact = ref_dot_exact(cases[i].x, cases[i].y, 3);
        cr_assert(isnan(cases[i].want) ? isnan(fast) : fast == cases[i].want, "case %zu", i);
        cr_assert(isnan(cases[i].want) ? isnan(exact) : exact == cases[i].want, "case %zu", i);
        cr_assert_eq(ref_dot(&a, &b).error, 0);
    }
    double sums[3] = {DBL_MAX, DBL_MAX, -INFINITY};
    cr_assert_eq(ref_sum_exact(sums, 3), -INFINITY);
    sums[0] = INFINITY;
    cr_assert(isnan(ref_sum_exact(sums, 3)));
}

Test(exact, scan_of_a_vector)
{
    float x[4] = {0.0f, -6.0f, 0x1.8p-3f, 0x1p-149f};
    struct ref_vec vec = ref_vec_scan(x, 3); /* 6 = 0b110, 0.1875 = 0b11 * 2^-4 */
    cr_assert_eq(vec.lsb, -4);
    cr_assert_eq(vec.msb, 3);
    cr_assert_eq(vec.max_abs, 6.0);
    cr_assert(vec.abs_sum >= 6.1875 && vec.abs_sum < 6.1876 && vec.finite);
    vec = ref_vec_scan(x, 4);
    cr_assert_eq(vec.lsb, -149);
    vec = ref_vec_scan(x, 1);
    cr_assert(vec.lsb == 0 && vec.msb == 0 && vec.max_abs == 0 && vec.abs_sum == 0);
    x[2] = -INFINITY;
    vec = ref_vec_scan(x, 4);
    cr_assert(!vec.finite && isinf(vec.abs_sum) && isinf(vec.max_abs));
}

/* What decode lives on: the sums of its usual data are exact and say so. */
Test(exact, usual_data_has_no_error)
{
    static float q[512], k[512];
    struct test_random rng = {5};
    for (int i = 0; i < 512; i++) {
        q[i] = integer(&rng) * 0x1p-7f;
        k[i] = any_e4m3(&rng);
    }
    struct ref_vec a = ref_vec_scan(q, 512), b = ref_vec_scan(k, 512);
    struct ref_dot dot = ref_dot(&a, &b);
    cr_assert_eq(dot.error, 0);
    cr_assert_eq(dot.value, ref_dot_exact(q, k, 512));
}
