/* Rounding-error constants and the small formulas every bound is made of (numerics §5).
 *
 * Bounds are evaluated in double and inflated once by REF_INFLATE, which covers their own rounding:
 * none of them is a sum of more than a few thousand positive terms. */
#ifndef ATTEST_REF_BOUND_H
#define ATTEST_REF_BOUND_H

#include <math.h>
#include <stddef.h>

#include "exact.h"
#include "ref.h"

#define REF_U_F32 0x1p-24   /* unit roundoff of f32, round to nearest */
#define REF_U_BF16 0x1p-8   /* of bf16 */
#define REF_U_F64 0x1p-53   /* of double */
#define REF_ULP_F32 0x1p-23 /* one ulp of a normal f32 result is at most this share of it */
#define REF_INFLATE (1.0 + 0x1p-30)
#define REF_F32_LEAST_NORMAL 0x1p-126
#define REF_F32_LEAST 0x1p-149

/* gamma_k(u) = k*u/(1-k*u): the relative error k roundings can build up. Infinite for k*u >= 1. */
static inline double ref_gamma(double k, double u)
{
    return k * u < 1.0 ? k * u / (1.0 - k * u) : INFINITY;
}

/* Relative to the sum of |products|: error of a dot product of n exact products in f32, any order,
 * FMA or not, with `extra` further roundings on every term: gamma_{n+extra} (§5.1). On tensor cores
 * (§5.2) a chain of s = ceil(n/mma_k) fused steps: s*5*2^-23 for the steps of 4, 8 or 16 products
 * that exist (their F is 23, 24, 25), 17*2^-23 a step otherwise; the partial sums of several
 * accumulators may be added in f32, s more roundings at most. */
double ref_dot_relative(const struct ref_error_model *model, size_t n, unsigned extra);

/* What a fused step of a tensor core may lose besides, absolutely (§5.2): a subnormal accumulator
 * or operand has the label -126. With T <= 17 terms and F >= 23, 16 terms lose 2^(-126-23) each and
 * the result 2^-149; times the largest of the other vector's elements where an operand is
 * subnormal. */
#define REF_STEP_LOST (17 * REF_F32_LEAST)

/* Relative error of a function whose f32 result is within `ulp` ulp. */
double ref_ulp_relative(double ulp);

/* An attention score: the real number factor*dot(q, k), and how far from it a kernel's f32 score
 * (and the oracle's value) may be. */
struct ref_score {
    double value;
    double error; /* INFINITY: an f32 kernel may overflow on the way, so anything may come out */
};
/* factor: the product of the scales, exact in double. factor_peak: the largest product of any of
 * the scales, at least 1. The kernel may multiply q, k or the sum by them, in any association, and
 * fold log2(e) in. A NaN score has error 0, also +Inf (softmax of it is NaN in every kernel); -Inf
 * has error INFINITY. */
struct ref_score ref_attn_score(const struct ref_error_model *model, const struct ref_vec *q,
                                const struct ref_vec *k, double factor, double factor_peak);
#endif
