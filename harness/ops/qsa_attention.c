#include "harness/ops/qsa_attention.h"

#include <math.h>

const struct ref_error_model qsa_attention_model = {
    .exp_ulp = 1.0, .div_ulp = 0.5, .mma_k = 16, .rescales_per_key = 1.0 / 32, .rescales_fixed = 1};

const struct ref_error_model qsa_decode_model = {.exp_ulp = 1.0,
                                                 .div_ulp = 0.5,
                                                 .mma_k = 16,
                                                 .rescales_per_key = 1.0 / 256,
                                                 .rescales_fixed = 1};

const char *const qsa_attention_regimes[] = {
    "normal", "exact_int", "peaked", "flat",   "all_negative", "cancel",   "outlier", "walk",
    "needle", "subnormal", "huge",   "offset", "equal",        "specials", NULL};

bool qsa_attention_fill_queries(const struct filling *f)
{
    struct qsa_data d =
        qsa_data_make(f->c, "regime", 0x51, FIELD_QUERY, (uint32_t)f->t->shape[f->t->rank - 1]);
    uint64_t rows = tensor_logical_elems(f->t) / d.f.cols, nq = case_u32(f->c, "nq");
    uint64_t first = case_has(f->c, "pos") ? case_u32(f->c, "pos") : 0;
    d.exponent = -(int)case_int(f->c, "fold");
    for (uint64_t row = 0; row < rows; row++)
        qsa_data_store_attention(&d, first * nq + row,
                                 (uint16_t *)(void *)f->t->data + row * d.f.cols);
    return true;
}

void qsa_attention_exact(const struct case_line *c, uint64_t attended, uint64_t elems,
                         double *bound)
{
    if (!case_enum_is(c, "regime", "exact_int") || (attended & (attended - 1))) return;
    for (uint64_t i = 0; i < elems; i++) {
        if (isfinite(bound[i])) bound[i] = 0; /* an absurd scale overflows */
    }
}

void qsa_attention_exact_rows(const struct case_line *c, const struct ref_qsa_prefill_attn *g,
                              double *bound)
{
    uint64_t elems = (uint64_t)g->nq * g->hd;
    for (uint32_t row = 0; row < g->rows; row++) {
        uint64_t attended = ((uint64_t)g->first_pos + row + 1) % g->ratio;
        for (uint32_t i = 0; i < g->topk; i++)
            attended += g->lists[(uint64_t)row * g->topk + i] >= 0 ? g->ratio : 0;
        qsa_attention_exact(c, attended, elems, bound + row * elems);
    }
}
