/* Sums and dot products as real numbers (numerics §4).
 *
 * All elements are f32 values: bf16 and e4m3 rows are decoded once with formats.h, which is exact.
 * A product of two f32 values has at most 48 significant bits and lies between 2^-298 and 2^256, so
 * it is exact in double; only the sum can round.
 *
 * Infinities and NaN give the IEEE class of the sum: NaN if an element is NaN, at Inf*0 or Inf-Inf,
 * otherwise the infinity. Finite elements never overflow. */
#ifndef ATTEST_REF_EXACT_H
#define ATTEST_REF_EXACT_H

#include <stdbool.h>
#include <stddef.h>

/* A vector with what its dot products need to know about it. `at` is borrowed. */
struct ref_vec {
    const float *at;
    size_t n;
    int lsb, msb; /* every element is a multiple of 2^lsb and below 2^msb; 0, 0 for a zero vector */
    double abs_sum; /* not below the sum of |x_i| */
    double max_abs; /* the largest |x_i| */
    bool finite;
};
struct ref_vec ref_vec_scan(const float *at, size_t n);

struct ref_dot {
    double value; /* the sum of x_i*y_i, to within error */
    double error; /* 0 where the exponents prove the double sum exact in any order */
    double abs;   /* not below the sum of |x_i*y_i| */
};
/* Fast: one pass in double. x->n == y->n. If value is not finite, error is 0 and abs is unset. */
struct ref_dot ref_dot(const struct ref_vec *x, const struct ref_vec *y);

/* The sum of x_i*y_i, of x_i, correctly rounded to double (nearest even). An exact zero is +0. A
 * sum beyond the double range is infinite. */
double ref_dot_exact(const float *x, const float *y, size_t n);
double ref_sum_exact(const double *x, size_t n);
#endif
