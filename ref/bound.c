#include "bound.h"

#include <float.h>

/* Five roundings a term may pass outside the sum: dequantised key, product of the two scales, that
 * product times log2(e), log2(e) itself, and the multiplication. */
enum { SCORE_ROUNDINGS = 5 };

double ref_dot_relative(const struct ref_error_model *model, size_t n, unsigned extra)
{
    if (!model->tensor_core) return ref_gamma((double)n + extra, REF_U_F32);
    size_t width = model->mma_k ? model->mma_k : 1;
    size_t steps = n / width + (n % width != 0);
    bool known = width == 4 || width == 8 || width == 16;
    double chain = (double)steps * (known ? 5.0 : 17.0) * 0x1p-23;
    double rounded = ref_gamma((double)steps + extra, REF_U_F32);
    return chain + rounded + chain * rounded;
}

double ref_ulp_relative(double ulp)
{
    return ulp * REF_ULP_F32;
}

struct ref_score ref_attn_score(const struct ref_error_model *model, const struct ref_vec *q,
                                const struct ref_vec *k, double factor, double factor_peak)
{
    struct ref_dot dot = ref_dot(q, k);
    struct ref_score score = {.value = factor * dot.value};
    if (!isfinite(dot.value)) {
        score.error = dot.value < 0 ? INFINITY : 0;
        return score;
    }
    double peak = dot.abs > q->max_abs ? dot.abs : q->max_abs;
    peak = peak > k->max_abs ? peak : k->max_abs;
    double relative = ref_dot_relative(model, q->n, SCORE_ROUNDINGS);
    if (1.5 * peak * factor_peak * (1.0 + relative) > FLT_MAX) { /* 1.5: log2(e) folded in */
        score.error = INFINITY;
        return score;
    }
    /* Underflow: of a product, of a scaled element (which then meets the other vector), of the
     * product of the scales (which then meets the whole sum), of the result. */
    double lost = (double)q->n + q->abs_sum + k->abs_sum + dot.abs + 2.0;
    /* On tensor cores a step takes the place of a product; there are no more steps than products.
     */
    if (model->tensor_core) lost *= REF_STEP_LOST / REF_F32_LEAST;
    if (dot.abs == 0) lost = 0; /* every product is an exact zero */
    double error = relative * factor * dot.abs + factor * dot.error +
                   REF_U_F64 * fabs(score.value) + REF_F32_LEAST * factor_peak * lost;
    score.error = error * REF_INFLATE;
    return score;
}
