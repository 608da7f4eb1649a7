/* What every part of the oracle shares: refusals, error models, the result of a bounded operation.
 *
 * The oracle is pure C17: no allocation that outlives a call, no printing, no exit, no globals. It
 * includes nothing from the other folders; in particular it shares no code with the kernels. */
#ifndef ATTEST_REF_H
#define ATTEST_REF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Why a geometry is refused. `rule` is a short stable name ("block_size_multiple_of_kpool"), `text`
 * says the rule and the numbers that break it. The rule names are listed in docs/refusals.md. */
struct ref_refusal {
    char rule[48];
    char text[208];
};

/* How a kernel is allowed to compute: data, not code, so that a kernel from elsewhere can be given
 * one. The bounds in the oracle hold for every summation order under this model (numerics §5). */
struct ref_error_model {
    bool tensor_core;        /* QK and PV sums run on tensor cores (numerics §5.2) instead of f32 RN */
    uint32_t mma_k;          /* products per fused step of the tensor core, 16 on sm_90 */
    double exp_ulp;          /* max error of the exponential in ulp of its f32 result */
    double rsqrt_ulp;        /* max error of 1/sqrt in ulp of its f32 result */
    double div_ulp;          /* max error of the final division in ulp (0.5: correctly rounded) */
    uint32_t p_bf16;         /* bf16 parts of a softmax weight in the value sum: 0 it stays f32, 1
                              * rounded, 2 split in hi and lo, each rounded to nearest */
    double rescales_per_key; /* online-softmax rescales any one key may pass, as a share of the */
    double rescales_fixed;   /*   number n of attended keys: R = rescales_per_key*n + rescales_fixed */
};

/* The loosest model that is honest for CUDA's documented functions with default flags: any f32
 * order, FMA or not, expf to 2 ulp, one rescale per key. Given to kernels nobody vouches for. */
#define REF_MODEL_DEFAULT                                                                          \
    ((struct ref_error_model){.exp_ulp = 2.5,                                                      \
                              .rsqrt_ulp = 2.5,                                                    \
                              .div_ulp = 2.5,                                                      \
                              .mma_k = 16,                                                         \
                              .rescales_per_key = 1.0,                                             \
                              .rescales_fixed = 2.0})

#endif
