/* What the descriptors with attention over paged bf16 caches share: qsa_prefill_attn,
 * paged_decode_attn and the pipelines. Parameters: nq, nkv, scale, fold, double and a regime. */
#ifndef ATTEST_OPS_QSA_ATTENTION_H
#define ATTEST_OPS_QSA_ATTENTION_H

#include "harness/ops/qsa_common.h"

/* What kernels/qsa_attention.cuh and kernels/qsa_paged_decode.cuh declare: exponentials to 1 ulp,
 * weights in f32, one division; of any key n/32 + 1 rescales in the first, n/256 + 1 in the second.
 */
extern const struct ref_error_model qsa_attention_model, qsa_decode_model;
/* Regimes of attention, NULL-terminated. */
extern const char *const qsa_attention_regimes[];
enum { QSA_ATTENTION_REGIMES = 14 };

/* The softmax scale with 2^fold moved to it from the queries. */
#define QSA_SCALE "ldexp(scale, fold)"
/* An array's filling: queries [rows, nq, hd] or [nq, hd]; row r is keyed by position pos + r. */
bool qsa_attention_fill_queries(const struct filling *f);
/* In exact_int every weight is 1 and every sum exact; with a power of two of tokens the quotient is
 * exact too, so nothing but the store rounds: sets the bounds of the row to 0 where that holds. */
void qsa_attention_exact(const struct case_line *c, uint64_t attended, uint64_t elems,
                         double *bound);
/* The same for the rows of a prefill with these lists [rows, topk]. */
void qsa_attention_exact_rows(const struct case_line *c, const struct ref_qsa_prefill_attn *g,
                              double *bound);

/* Below the normal range doubling is not exact on the way. */
#define QSA_VALUES_DOUBLED "values-doubled", RELATION_DOUBLED, "!regime.subnormal", "double = 1"
#define QSA_SCALE_FOLDED \
    "scale-folded", RELATION_SAME_BITS, "!regime.subnormal", "fold = one_in(2) ? 3 : -2"
/* Rows before a token do not see it. */
#define QSA_LATER_TOKENS_CHANGED                                           \
    "later-tokens-changed", RELATION_SAME_BITS, "change < 0 && rows >= 2", \
        "change = draw(pos + 1, pos + rows - 1)", "pos + row < new.change ? row : -1"

#endif
