/* Softmax-weighted sums as real numbers, with the bound of any f32 kernel (numerics §5.8). Shared
 * by every attention oracle and by pool compression. */
#ifndef ATTEST_REF_SOFTMAX_H
#define ATTEST_REF_SOFTMAX_H

#include <stddef.h>

#include "ref.h"

/* One row: n attended keys, one score each; n may be 0. Arrays are borrowed. */
struct ref_softmax {
    const double *score;       /* [n] */
    const double *score_error; /* [n], as struct ref_score */
    const float *values;       /* [n, value_stride]; columns 0 .. channels-1 */
    size_t n, channels, value_stride;
    size_t slots;             /* key slots a kernel may walk to find the n keys; >= n */
    double value_scale;       /* every output is multiplied by it; > 0, 1 if there is none */
    unsigned value_roundings; /* roundings it may cost a term (2: dequantised value and constant) */
};

#define REF_SOFTMAX_SCRATCH(n) (3 * (size_t)(n)) /* doubles */

/* value [channels]: value_scale * sum_j p_j v_j, p = softmax(score); bound [channels]: how far an
 * f32 result under the model may be from it, before any store to a narrower type. n = 0 gives 0, 0.
 *
 * What a kernel may do: subtract anything between a key's own score and the final maximum (running,
 * tile, warp or global maximum), rounded before or after scaling; take exponentials through e^x or
 * 2^x; rescale as often as the model says; divide once or weight by weight; add in any order, in
 * f32 or on tensor cores; flush exponentials below 2^-126 to zero.
 *
 * Not finite:  value NaN, bound 0   the result must be NaN (a NaN or +Inf score, a NaN value,
 * values +Inf and -Inf in one channel) bound INFINITY       not judged: an infinite value or a -Inf
 * score is attended, or the f32 sums may overflow although the result does not: score terms or
 * n*max|v| beyond the f32 range. Value is still the real result where there is one. */
void ref_softmax(const struct ref_softmax *row, const struct ref_error_model *model,
                 double *scratch, double *value, double *bound);
#endif
