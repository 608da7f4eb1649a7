/* Honest f32 attention kernels for the tests of bounds: every operation rounds as a GPU's does, and
 * the exponential may be as wrong as a model allows, in the worst direction if asked. */
#ifndef ATTEST_REF_TEST_ATTN_SIM_H
#define ATTEST_REF_TEST_ATTN_SIM_H

#include <stdbool.h>
#include <stddef.h>

#include "ref.h"
#include "test_random.h"

enum sim_exp_error { SIM_EXP_RANDOM, SIM_EXP_UP, SIM_EXP_AGAINST, SIM_EXP_ALTERNATE };

struct sim {
    size_t splits;       /* parts of the keys, each with its own maximum, merged at the end */
    bool strided;        /* key j goes to part j % splits; else parts are runs */
    size_t tile;         /* keys a maximum is taken over before they are added; 0: all of a part */
    bool fma, backwards; /* fused products; keys of a part in falling order */
    bool log2_domain;    /* 2^(x*log2e - m*log2e), the product rounded, else e^(x - m) */
    unsigned p_bf16; /* bf16 parts of a weight in the value sum: 0 f32, 1 rounded, 2 hi and lo */
    bool sum_bf16;   /* its first part in the sum of weights too */
    bool normalise_first; /* each weight divided by the sum before the value sum; one part only */
    bool reciprocal;      /* 1/sum, then a product */
    bool flush;           /* exponentials below 2^-126 give 0 */
    bool tensor_core;     /* value sums in fused truncating steps of 16 (numerics §1.1) */
    double exp_ulp;       /* the exponential's error; 0.5 is right rounding */
    enum sim_exp_error exp_error;
    float value_scale; /* multiplied into every value first if dequantise, else at the end */
    bool dequantise;
};

/* out [channels]. centre [channels] (or null) is what SIM_EXP_AGAINST pushes away from. */
void sim_softmax(const struct sim *sim, struct test_random *rng, const float *score,
                 const float *values, size_t n, size_t channels, size_t stride,
                 const double *centre, float *out);

/* One dot product in f32: order 0 in sequence, 1 falling, 2 fused, 3 32 lanes and a tree, 4
 * pairwise with fused leaves. */
enum { SIM_DOT_ORDERS = 5 };
float sim_dot(const float *x, const float *y, size_t n, int order);

/* One on a tensor core: runs of 64 products in steps of 16, the runs' sums added as a tree. n is 64
 * times a power of two. */
float sim_tensor_dot(const float *x, const float *y, size_t n);

/* One fused step of a tensor core: c plus 16 products, aligned and truncated; normal numbers only.
 */
float sim_mma_step(float c, const float *a, const float *b, size_t count);

/* The model this kernel keeps to. */
struct ref_error_model sim_model(const struct sim *sim);
#endif
