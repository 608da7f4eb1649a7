/* Oracles and refusal predicates of the DSA family (ops.md §2), written from the spec alone.
 *
 * Inputs are host arrays in the storage formats of formats.h (bf16 as uint16_t, e4m3 as uint8_t).
 * Arrays are borrowed. Exact operations write the bits a right kernel must produce. Bounded ones
 * write, per output element, the exact value and a bound E that holds for any summation order under
 * the given error model (numerics.md §5); the oracle's own error is included in E. */
#ifndef ATTEST_REF_DSA_H
#define ATTEST_REF_DSA_H

#include "ref.h"

struct ref_dsa_decode {
    const uint16_t *q;            /* bf16 [num_seqs, num_q_heads, kv_lora_rank] */
    const uint8_t *k_cache;       /* e4m3; byte t of page p at p*cache_stride_bytes + t */
    const uint8_t *v_cache;       /* may equal k_cache */
    const int32_t *block_tables;  /* [num_seqs, max_blocks_per_seq] */
    const int32_t *seq_lens;      /* [num_seqs] */
    const int32_t *sel_indices;   /* [sel_rows, width] */
    uint32_t num_seqs, sel_rows, width, max_blocks_per_seq;
    uint32_t num_q_heads, num_kv_heads, kv_lora_rank;
    uint32_t block_size, index_kpool, num_pages;
    float scale, k_scale, v_scale;
    uint64_t cache_stride_bytes;
};
/* False, with the reason, if the geometry or the index tensors break a rule of ops.md §2. Null index
 * tensors skip the rules that need their values. A block-table entry is used if a selected token
 * below seq_len lies in it; an id is a duplicate if it is >= 0 and twice in a row, within the
 * sequence or not. The operations below expect what their predicate accepts. */
bool ref_dsa_decode_accepts(const struct ref_dsa_decode *g, struct ref_refusal *why);
/* value, bound: [num_seqs, num_q_heads, kv_lora_rank], of the exact real result before the bf16
 * store; bound excludes the store. Masked attention by set membership over all tokens of each
 * sequence: duplicates collapse, ids outside [0, seq_len) drop, an empty set gives 0 with bound 0.
 * Reads only tokens in the set. Not finite: as softmax.h says, value NaN with bound 0 demands a NaN,
 * bound INFINITY says nothing. Without memory: NaN with bound 0, so that nothing passes. */
void ref_dsa_decode(const struct ref_dsa_decode *g, const struct ref_error_model *model,
                    double *value, double *bound);

/* In every DSA selector oracle below, geom != NULL overrides the scalars as on the device:
 * {S, pools incl. a trailing partial one, complete pools, select_k, NP2}. The scalars stay what
 * arrays, strides and launch are sized for, so geom must fit in them; with it only one row is
 * allowed, and only the columns below geom's pools or select_k are written. kpool_compress writes
 * all `pools`, those beyond geom's length as empty ones. */
struct ref_dsa_kpool_compress {
    const uint16_t *k, *gate; /* bf16 [S, D] */
    const uint8_t *valid;     /* [S] */
    const float *ape;         /* [KP, D] */
    const int32_t *geom;
    uint32_t pools, S, D, KP, block_size;
    int32_t first_key;
};
bool ref_dsa_kpool_compress_accepts(const struct ref_dsa_kpool_compress *g,
                                    struct ref_refusal *why);
/* key_value, key_bound [P, D]; indices [P, KP]; pool_valid [P]. */
void ref_dsa_kpool_compress(const struct ref_dsa_kpool_compress *g,
                            const struct ref_error_model *model, double *key_value,
                            double *key_bound, int32_t *indices, uint8_t *pool_valid);

struct ref_dsa_index_scores {
    const float *q, *pool_keys, *weights; /* [Q,H,D] [P,D] [Q,H] */
    const int32_t *pool_indices;          /* [P, KP] */
    const uint8_t *pool_valid;            /* [P] */
    const uint8_t *valid_keys;            /* [S] */
    const int32_t *q_pos;                 /* [Q] */
    const int32_t *geom;
    uint32_t Q, P, H, D, KP, S;
    float scale;
};
bool ref_dsa_index_scores_accepts(const struct ref_dsa_index_scores *g, struct ref_refusal *why);
/* The canonical f32 arithmetic. scores [Q, P], valid_cand [Q, P]. */
void ref_dsa_index_scores(const struct ref_dsa_index_scores *g, float *scores,
                          uint8_t *valid_cand);
/* The same scores as real numbers with the bound of any f32 summation order (numerics §5.4): what a
 * kernel with another order may produce, and what certifies a selection. Non-candidates: -FLT_MAX
 * with bound 0. value, bound [Q, P]. */
void ref_dsa_index_scores_bound(const struct ref_dsa_index_scores *g, double *value,
                                double *bound);

struct ref_dsa_topk_pools {
    const float *scores; /* [Q, P] */
    const int32_t *geom;
    uint32_t Q, P, NP2, select_k;
};
bool ref_dsa_topk_pools_accepts(const struct ref_dsa_topk_pools *g, struct ref_refusal *why);
void ref_dsa_topk_pools(const struct ref_dsa_topk_pools *g, int32_t *selected /* [Q, select_k] */);

struct ref_dsa_expand_selection {
    const int32_t *selected, *pool_indices;  /* [Q, select_k] [P, KP] */
    const uint8_t *valid_cand, *valid_keys;  /* [Q, P] [S] */
    const int32_t *q_pos;                    /* [Q] */
    const uint8_t *q_mask;                   /* [Q] */
    const int32_t *geom;
    uint32_t Q, P, KP, S, select_k, width, index_topk;
    int32_t first_key, always_tail;
};
bool ref_dsa_expand_selection_accepts(const struct ref_dsa_expand_selection *g,
                                      struct ref_refusal *why);
void ref_dsa_expand_selection(const struct ref_dsa_expand_selection *g,
                              int32_t *out /* [Q, width] */);

struct ref_dsa_topk_to_mask {
    const int32_t *topk; /* [Q, width] */
    uint32_t Q, width, S;
};
bool ref_dsa_topk_to_mask_accepts(const struct ref_dsa_topk_to_mask *g, struct ref_refusal *why);
void ref_dsa_topk_to_mask(const struct ref_dsa_topk_to_mask *g, uint8_t *mask /* [Q, S] */);

struct ref_dsa_mla_masked_attn {
    const uint16_t *q, *k, *v; /* bf16 [Q,H,qd] [S,H,qd] [S,H,vd] */
    const uint8_t *mask;       /* [Q, S] */
    uint32_t Q, S, H, qd, vd;
    float scale;
    int32_t round_scores_bf16; /* scores rounded to bf16 before the softmax */
};
bool ref_dsa_mla_masked_attn_accepts(const struct ref_dsa_mla_masked_attn *g,
                                     struct ref_refusal *why);
/* value, bound [Q, H, vd]. */
void ref_dsa_mla_masked_attn(const struct ref_dsa_mla_masked_attn *g,
                             const struct ref_error_model *model, double *value, double *bound);
#endif
