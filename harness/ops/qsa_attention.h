/* What the descriptors with attention over paged bf16 caches share: qsa_prefill_attn,
 * paged_decode_attn and the pipelines. Parameters: nq, nkv, scale, fold, double and a regime. */
#ifndef ATTEST_OPS_QSA_ATTENTION_H
#define ATTEST_OPS_QSA_ATTENTION_H

#include "harness/ops/qsa_common.h"

/* What kernels/qsa_attention.cuh declares: exponentials to 1 ulp, weights in f32, one division,
 * n/32 + 1 rescales of any key. */
extern const struct ref_error_model qsa_attention_model;
/* Regimes of attention, NULL-terminated. */
extern const char *const qsa_attention_regimes[];
enum { QSA_ATTENTION_REGIMES = 14 };

/* The softmax scale with 2^fold moved to it from the queries. */
float qsa_attention_scale(const struct case_line *c);
/* Queries [rows, nq, hd]; row r is keyed by position first + r. */
void qsa_attention_queries(const struct case_line *c, const char *regime, uint32_t rows,
                           uint64_t first, uint32_t nq, uint32_t hd, uint16_t *q);
/* In exact_int every weight is 1 and every sum exact; with a power of two of tokens the quotient is
 * exact too, so nothing but the store rounds: sets the bounds of the row to 0 where that holds. */
void qsa_attention_exact(const struct case_line *c, const char *regime, uint64_t attended,
                         uint64_t elems, double *bound);

bool qsa_attention_edit_double(const struct case_line *base, struct rng *r,
                               struct case_line *changed);
bool qsa_attention_edit_fold(const struct case_line *base, struct rng *r,
                             struct case_line *changed);

#endif
