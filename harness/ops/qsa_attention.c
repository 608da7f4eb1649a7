#include "harness/ops/qsa_attention.h"

#include <math.h>

const struct ref_error_model qsa_attention_model = {
    .exp_ulp = 1.0, .div_ulp = 0.5, .mma_k = 16, .rescales_per_key = 1.0 / 32, .rescales_fixed = 1};

const char *const qsa_attention_regimes[] = {
    "normal", "exact_int", "peaked", "flat",   "all_negative", "cancel",   "outlier", "walk",
    "needle", "subnormal", "huge",   "offset", "equal",        "specials", NULL};

float qsa_attention_scale(const struct case_line *c)
{
    return (float)ldexp(case_real(c, "scale"), (int)case_int(c, "fold"));
}

void qsa_attention_queries(const struct case_line *c, const char *regime, uint32_t rows,
                           uint64_t first, uint32_t nq, uint32_t hd, uint16_t *q)
{
    struct qsa_data d = qsa_data_make(c, regime, 0x51, FIELD_QUERY, hd);
    d.exponent = -(int)case_int(c, "fold");
    for (uint64_t row = 0; row < rows; row++) {
        for (uint64_t h = 0; h < nq; h++)
            qsa_data_store_attention(&d, (first + row) * nq + h, q + (row * nq + h) * hd);
    }
}

void qsa_attention_exact(const struct case_line *c, const char *regime, uint64_t attended,
                         uint64_t elems, double *bound)
{
    if (!case_enum_is(c, regime, "exact_int") || (attended & (attended - 1))) return;
    for (uint64_t i = 0; i < elems; i++) {
        if (isfinite(bound[i])) bound[i] = 0; /* an absurd scale overflows */
    }
}

bool qsa_attention_edit_double(const struct case_line *base, struct rng *r,
                               struct case_line *changed)
{
    /* Below the normal range doubling is not exact on the way. */
    if (case_has(base, "regime") && case_enum_is(base, "regime", "subnormal")) return false;
    case_set_int(changed, "double", 1);
    return true;
}

bool qsa_attention_edit_fold(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    if (case_enum_is(base, "regime", "subnormal")) return false;
    case_set_int(changed, "fold", rng_one_in(r, 2) ? 3 : -2);
    return true;
}
