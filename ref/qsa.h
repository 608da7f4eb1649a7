/* Oracles and refusal predicates of the QSA family (ops.md §1), written from the spec alone.
 * Conventions as in dsa.h. An oracle is given only what its predicate accepts.
 *
 * Values that are not finite, in every bounded oracle: NaN with bound 0 must be NaN in every
 * kernel, an infinity with bound 0 must be that infinity; bound INFINITY is not judged, because an
 * f32 kernel may overflow, or lose everything to underflow, on the way. */
#ifndef ATTEST_REF_QSA_H
#define ATTEST_REF_QSA_H

#include "ref.h"

struct ref_qsa_block_pool {
    const uint16_t *raw_keys, *k_norm_w; /* bf16 [S, hd] [hd] */
    uint32_t n_new, S, max_blocks, first_block, ratio, hd, rot, block_size;
    float theta, eps;
};
bool ref_qsa_block_pool_accepts(const struct ref_qsa_block_pool *g, struct ref_refusal *why);
/* block_keys bf16 [n_new, hd]: row i is block first_block+i. */
void ref_qsa_block_pool(const struct ref_qsa_block_pool *g, uint16_t *block_keys);
/* The keys before the bf16 store as real numbers, with the bound of any f32 kernel of the formula
 * (numerics §5.5, §5.6). The value turns by the real angle pos*theta^(-2j/rot); the bound covers
 * a kernel that builds it in double, from a frequency within one ulp, and its table entries to one
 * ulp of f32. value, bound [n_new, hd]. */
void ref_qsa_block_pool_bound(const struct ref_qsa_block_pool *g,
                              const struct ref_error_model *model, double *value, double *bound);

struct ref_qsa_qprep_rows {
    const uint16_t *qk, *q_norm_w; /* bf16 [rows, qkw] [hd] */
    uint32_t rows, first_pos, qkw, n_heads, hd, rot;
    float theta, eps;
};
bool ref_qsa_qprep_rows_accepts(const struct ref_qsa_qprep_rows *g, struct ref_refusal *why);
/* The rules of a qsa_qprep launch: position first_pos, heads along grid x; rows and qkw unread. */
bool ref_qsa_qprep_accepts(const struct ref_qsa_qprep_rows *g, struct ref_refusal *why);
/* q_out f32 [rows, n_heads, hd]. qsa_qprep is the case rows 1, first_pos pos, qkw n_heads*hd. */
void ref_qsa_qprep_rows(const struct ref_qsa_qprep_rows *g, float *q_out);
void ref_qsa_qprep_rows_bound(const struct ref_qsa_qprep_rows *g,
                              const struct ref_error_model *model, double *value, double *bound);

/* Rotation of one pair index at a position (ops.md §0): the nearest floats of the cosine and sine. */
void ref_qsa_rotation(float theta, uint32_t rot, uint32_t j, uint32_t pos, float *cosine,
                      float *sine);

struct ref_qsa_score_rows {
    const float *q;             /* [rows, n_heads, hd] */
    const uint16_t *block_keys; /* bf16 [n_blocks_max, hd] */
    uint32_t rows, n_blocks_max, first_pos, score_stride, ratio, n_heads, hd;
};
bool ref_qsa_score_rows_accepts(const struct ref_qsa_score_rows *g, struct ref_refusal *why);
bool ref_qsa_score_rows_tiled_accepts(const struct ref_qsa_score_rows *g, struct ref_refusal *why);
bool ref_qsa_score_rows_tc_accepts(const struct ref_qsa_score_rows *g, struct ref_refusal *why);
/* scores f32 [rows, score_stride]; columns >= n_blocks_max are left alone. */
void ref_qsa_score_rows(const struct ref_qsa_score_rows *g, float *scores);
/* qsa_score: one row that sees every block. */
struct ref_qsa_score {
    const float *q;
    const uint16_t *block_keys;
    uint32_t n_blocks, n_heads, hd;
};
bool ref_qsa_score_accepts(const struct ref_qsa_score *g, struct ref_refusal *why);
void ref_qsa_score(const struct ref_qsa_score *g, float *scores /* [n_blocks] */);

/* How a scorer computes, for the certificate (numerics §5.3, §5.4). */
enum ref_qsa_scorer { REF_SCORER_F32, REF_SCORER_SPLIT_Q, REF_SCORER_PLAIN_BF16 };
/* Exact scores and bounds; invisible blocks are -inf with bound 0. value, bound
 * [rows, n_blocks_max]. */
void ref_qsa_score_rows_bound(const struct ref_qsa_score_rows *g, enum ref_qsa_scorer scorer,
                              double *value, double *bound);

struct ref_qsa_topk_rows {
    const float *scores; /* [rows, score_stride] */
    uint32_t rows, first_pos, score_stride, ratio, topk;
};
bool ref_qsa_topk_rows_accepts(const struct ref_qsa_topk_rows *g, struct ref_refusal *why);
void ref_qsa_topk_rows(const struct ref_qsa_topk_rows *g, int32_t *lists /* [rows, topk] */);

struct ref_qsa_gather {
    const uint16_t *k_cache, *v_cache; /* bf16 [num_pages, block_size, nkv, hd] */
    const int32_t *block_table, *sel;  /* [table_len] [n_sel] */
    uint32_t n_sel, table_len, num_pages, seq_len, block_size, nkv, hd, ratio;
};
bool ref_qsa_gather_accepts(const struct ref_qsa_gather *g, struct ref_refusal *why);
void ref_qsa_gather(const struct ref_qsa_gather *g, uint16_t *k_out, uint16_t *v_out);

struct ref_qsa_prefill_attn {
    const uint16_t *q;                   /* bf16 [rows, nq, hd] */
    const uint16_t *k_cache, *v_cache;   /* bf16 [num_pages, block_size, nkv, hd] */
    const int32_t *block_table, *lists;  /* [table_len] [rows, topk] */
    uint32_t rows, table_len, num_pages, first_pos, topk, ratio, block_size, nq, nkv, hd;
    float inv_sqrt_d;
};
bool ref_qsa_prefill_attn_accepts(const struct ref_qsa_prefill_attn *g, struct ref_refusal *why);
void ref_qsa_prefill_attn(const struct ref_qsa_prefill_attn *g,
                          const struct ref_error_model *model, double *value, double *bound);

struct ref_paged_decode_attn {
    const uint16_t *q;                 /* bf16 [nq, hd] */
    const uint16_t *k_cache, *v_cache; /* bf16 [num_pages, block_size, nkv, hd] */
    const int32_t *block_table;        /* [table_len] */
    uint32_t table_len, num_pages, seq_len, block_size, nq, nkv, hd;
    float inv_sqrt_d;
};
bool ref_paged_decode_attn_accepts(const struct ref_paged_decode_attn *g,
                                   struct ref_refusal *why);
void ref_paged_decode_attn(const struct ref_paged_decode_attn *g,
                           const struct ref_error_model *model, double *value, double *bound);
#endif
