/* What the golden tests of both families share. */
#ifndef ATTEST_HARNESS_TEST_GOLDEN_H
#define ATTEST_HARNESS_TEST_GOLDEN_H

#include <stddef.h>
#include <stdint.h>

/* "corpora/golden/NAME.safetensors"; valid until the next call. */
const char *test_golden_path(const char *name);

/* Zeroed; the test fails without memory. */
void *test_golden_allocate(uint64_t count, size_t size);

/* A row where several candidates tie at score 0 across the boundary and the reference keeps others
 * than the lowest: its position and how many others. */
struct test_tie {
    uint32_t position, differ;
};
/* How many differ at a position; `ties` ends at differ 0. */
uint32_t test_ties_at(const struct test_tie *ties, uint32_t position);
/* Expects that each of two selections of k holds exactly `differ` items that the other lacks, and
 * that all of them have the score 0. */
void test_ties_differ(const int32_t *left, const int32_t *right, uint32_t k, const double *scores,
                      uint32_t differ);

/* How far two double evaluations of an attention row may lie apart, each in any order, per unit of
 * the largest |value| (numerics §5.8 with u = 2^-53; R = n rescales, the exponential to 4 ulp).
 *
 * peak: not below |score| of any key, nor below the sum of the absolute products in it. dim:
 * products in a score. n: keys. Scores are wrong by gamma_{dim+4}*peak and the exponent's argument,
 * up to 2*peak, is rounded once; each rescale adds its own; so the weights' logarithms are wrong by
 *     theta <= (gamma_{dim+4} + 2u)*peak + (n+1)*5u + 4u*peak
 * (the shifts of the rescales telescope, see §5.8), the row by tanh(theta/2)*range <= theta*max|v|,
 * and sums, division and scale by gamma_{3n+8}. Twice that for two evaluations. */
double test_attention_f64_limit(double peak, uint32_t dim, uint64_t n);

/* The oracles take the score scale as a float, the golden attention used the real 1/sqrt(d). Both
 * neighbours of the real scale are evaluated and the result interpolated. With x the scores,
 * o'' in the scale is a third mixed cumulant, |o''| <= var(x)*max|v-o| <= peak^2/scale^2*2*max|v|,
 * and the step is one ulp, so the interpolation is off by at most
 *     (2^-23)^2/8 * peak^2 * 2 * max|v|. Per unit of max|v|: */
double test_interpolation_limit(double peak);
/* Interpolates between a (scale `low`) and b (scale `high`) into a; low == high leaves a. */
void test_interpolate(double *a, const double *b, size_t n, float low, float high, double exact);
#endif
