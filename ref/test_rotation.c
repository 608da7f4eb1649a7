#include "rotation.h"

#include <criterion/criterion.h>
#include <math.h>
#include <mpfr.h>
#include <string.h>

#include "qsa.h"

/* theta^(-2j/rot) at 300 bits, rounded to the nearest double. */
static double frequency_by_mpfr(float theta, uint32_t rot, uint32_t j)
{
    mpfr_t value, exponent;
    mpfr_inits2(300, value, exponent, (mpfr_ptr)0);
    mpfr_set_si(exponent, -2 * (long)j, MPFR_RNDN);
    mpfr_div_ui(exponent, exponent, rot, MPFR_RNDN);
    mpfr_set_d(value, theta, MPFR_RNDN);
    mpfr_pow(value, value, exponent, MPFR_RNDN);
    double result = mpfr_get_d(value, MPFR_RNDN);
    mpfr_clears(value, exponent, (mpfr_ptr)0);
    return result;
}

/* Cosine and sine at 200 bits, rounded to the nearest floats. */
static void sincos_by_mpfr(double angle, float *cosine, float *sine)
{
    mpfr_t x, s, c;
    mpfr_init2(x, 53);
    mpfr_inits2(200, s, c, (mpfr_ptr)0);
    mpfr_set_d(x, angle, MPFR_RNDN);
    mpfr_sin_cos(s, c, x, MPFR_RNDN);
    *sine = mpfr_get_flt(s, MPFR_RNDN);
    *cosine = mpfr_get_flt(c, MPFR_RNDN);
    mpfr_clears(x, s, c, (mpfr_ptr)0);
}

static uint64_t random_next(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15;
    uint64_t z = *state;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

Test(rotation, frequencies_worked_by_hand)
{
    /* 16^(-2j/8) = 2^-j, and (1/16)^(-2j/8) = 2^j: exact. 2^(-1/2) is 0.70710678118654752440...,
     * whose nearest double is 0x1.6a09e667f3bcdp-1 (the square root is correctly rounded). */
    for (uint32_t j = 0; j < 4; j++) {
        cr_assert_eq(ref_rotation_frequency(16, 8, j), ldexp(1, -(int)j));
        cr_assert_eq(ref_rotation_frequency(0.0625f, 8, j), ldexp(1, (int)j));
    }
    cr_assert_eq(ref_rotation_frequency(2, 4, 1), 0x1.6a09e667f3bcdp-1);
    /* 1e4^(-2*16/64) is one hundredth. */
    cr_assert_eq(ref_rotation_frequency(1e4f, 64, 16), 0.01);
    /* Every theta and rot: pair 0 turns by one radian a position. */
    cr_assert_eq(ref_rotation_frequency(12345.678f, 2, 0), 1.0);
}

Test(rotation, frequencies_are_the_nearest_doubles)
{
    static const float thetas[] = {1e7f,
                                   1e4f,
                                   1e6f,
                                   5e5f,
                                   1.5f,
                                   2.0f,
                                   0.5f,
                                   3.0f,
                                   0.01f,
                                   12345.678f,
                                   0x1.fffffep127f,
                                   0x1p-149f,
                                   0x1.000002p0f,
                                   1.0f,
                                   0x1.fffffep-1f,
                                   8388609.0f};
    static const uint32_t rots[] = {2, 4, 6, 10, 32, 62, 64, 96, 128, 130, 256, 1022, 1024};
    for (size_t t = 0; t < sizeof thetas / sizeof *thetas; t++) {
        for (size_t r = 0; r < sizeof rots / sizeof *rots; r++) {
            uint32_t step = rots[r] > 256 ? 5 : 1;
            for (uint32_t j = 0; j < rots[r] / 2; j += step) {
                double got = ref_rotation_frequency(thetas[t], rots[r], j);
                double want = frequency_by_mpfr(thetas[t], rots[r], j);
                cr_assert_eq(got, want, "theta %a rot %u j %u: %a, not %a", thetas[t], rots[r], j,
                             got, want);
            }
        }
    }
}

/* Random thetas: about one value in 2^6 goes through the exact comparison with a midpoint. */
Test(rotation, frequencies_of_random_thetas)
{
    uint64_t state = 1;
    for (int i = 0; i < 20000; i++) {
        uint32_t bits = (uint32_t)(random_next(&state) % 0x7f7fffff) + 1;
        float theta;
        memcpy(&theta, &bits, sizeof theta);
        uint32_t rot = 2 * (1 + (uint32_t)(random_next(&state) % 64));
        uint32_t j = (uint32_t)(random_next(&state) % (rot / 2));
        double got = ref_rotation_frequency(theta, rot, j);
        cr_assert_eq(got, frequency_by_mpfr(theta, rot, j), "theta %a rot %u j %u", theta, rot, j);
    }
}

static void check_sincos(double angle)
{
    float c, s, wide_c, wide_s, want_c, want_s;
    ref_rotation_sincos(angle, &c, &s);
    ref_rotation_sincos_wide(angle, &wide_c, &wide_s);
    sincos_by_mpfr(angle, &want_c, &want_s);
    cr_assert(c == want_c && s == want_s, "angle %a: cos %a sin %a, not %a %a", angle, c, s, want_c,
              want_s);
    cr_assert(wide_c == want_c && wide_s == want_s, "angle %a, fixed point: cos %a sin %a", angle,
              wide_c, wide_s);
}

Test(rotation, sincos_at_edges)
{
    static const double angles[] = {0.0, 1.0, 0x1p-149, 0x1p-126, 0x1.8p-127, 0x1p-30, 0x1p-12,
                                    /* sine of an exact float midpoint just below it */
                                    0x1.000001p-40, 0x1.000003p-60, 0x1.ffffffp-100,
                                    /* the doubles next to pi/2, pi, 2 pi and 2^20 pi */
                                    0x1.921fb54442d18p0, 0x1.921fb54442d19p0, 0x1.921fb54442d18p1,
                                    0x1.921fb54442d19p1, 0x1.921fb54442d18p2, 0x1.921fb54442d18p21,
                                    1048575.0, 1048576.0, 2147483647.0, 0x1p62, 0x1p64, 0x1.8p180};
    for (size_t i = 0; i < sizeof angles / sizeof *angles; i++) check_sincos(angles[i]);
}

Test(rotation, sincos_at_random)
{
    uint64_t state = 2;
    for (int i = 0; i < 20000; i++) {
        int exponent = (int)(random_next(&state) % 180) - 148;
        check_sincos(ldexp((double)(random_next(&state) >> 11), exponent - 53));
    }
    for (int i = 0; i < 20000; i++) {
        double position = (double)(random_next(&state) % (1u << 31));
        uint32_t j = (uint32_t)(random_next(&state) % 32);
        check_sincos(position * ref_rotation_frequency(1e7f, 64, j));
    }
}

/* Angles whose double cosine or sine lies so near a float midpoint that the fast path must refuse
 * them: found by walking from a midpoint's arc sine. */
Test(rotation, sincos_next_to_midpoints)
{
    uint64_t state = 3;
    for (int i = 0; i < 2000; i++) {
        double midpoint = ldexp((double)(((random_next(&state) >> 41) | 1u << 23) * 2 + 1), -25);
        double angle = asin(midpoint);
        for (int k = 0; k < 3; k++) {
            check_sincos(angle);
            angle = nextafter(angle, k ? 2 : 0);
        }
    }
}

Test(rotation, entry_point_rounds_the_angle_once)
{
    float c, s, want_c, want_s;
    for (uint32_t j = 0; j < 32; j++) {
        double angle = 262143.0 * frequency_by_mpfr(1e7f, 64, j);
        sincos_by_mpfr(angle, &want_c, &want_s);
        ref_qsa_rotation(1e7f, 64, j, 262143, &c, &s);
        cr_assert(c == want_c && s == want_s);
    }
    /* Position 0 does not turn. */
    ref_qsa_rotation(1e7f, 64, 31, 0, &c, &s);
    cr_assert(c == 1 && s == 0 && !signbit(s));
}
