/* The canonical arithmetic of the QSA operations (ops.md §0): f32, round to nearest even, one
 * order. Private to ref/qsa_*.c. */
#ifndef ATTEST_REF_QSA_CANONICAL_H
#define ATTEST_REF_QSA_CANONICAL_H

#include <math.h>
#include <stdint.h>

enum { REF_QSA_MAX_HD = 1024 };

/* tree32: halves of 16, 8, 4, 2, 1. Destroys x. */
static inline float ref_qsa_tree32(float x[32])
{
    for (int i = 0; i < 16; i++) x[i] += x[i + 16];
    for (int i = 0; i < 8; i++) x[i] += x[i + 8];
    for (int i = 0; i < 4; i++) x[i] += x[i + 4];
    for (int i = 0; i < 2; i++) x[i] += x[i + 2];
    return x[0] + x[1];
}

/* blocksum of the rounded products a_i*b_i; n a multiple of 32. */
static inline float ref_qsa_dot(const float *a, const float *b, uint32_t n)
{
    float sum = 0;
    for (uint32_t from = 0; from < n; from += 32) {
        float x[32];
        for (int i = 0; i < 32; i++) x[i] = a[from + i] * b[from + i];
        sum += ref_qsa_tree32(x);
    }
    return sum;
}

static inline float ref_qsa_rnorm(float a)
{
    return 1 / sqrtf(a);
}

/* NaN stays NaN, -0 and everything below become +0. */
static inline float ref_qsa_relu(float x)
{
    return x > 0 || isnan(x) ? x : 0;
}
#endif
