/* The golden vectors of corpora/golden as inputs of the oracles.
 *
 * They come from public reference models, written by nobody who writes the oracles or the kernels.
 * Each file holds inputs, `expect.*` outputs, and its geometry in the metadata. Loading checks that
 * every tensor is there with the shape the geometry gives it, and builds what a file does not hold:
 * paged caches whose unused slots, pages, pitch and table entries are poison, and channel counts
 * padded with zeros to a multiple of 32 (which changes no dot product and no pooled key). */
#ifndef ATTEST_HARNESS_GOLDEN_H
#define ATTEST_HARNESS_GOLDEN_H

#include "harness/files/safetensors.h"
#include "ref/dsa.h"
#include "ref/qsa.h"

/* The file, and buffers built while loading. */
struct golden_owned {
    struct st_file *file;
    void *buffers[8];
    uint32_t n_buffers;
};

struct golden_dsa {
    /* Ready to run, except for what an earlier step computes: topk.scores, expand.selected and
     * expand.valid_cand are NULL. The scores' pool keys and indices are the expected ones. P counts
     * the complete pools, as the file does. */
    struct ref_dsa_kpool_compress compress;
    struct ref_dsa_index_scores scores;
    struct ref_dsa_topk_pools topk;
    struct ref_dsa_expand_selection expand;
    struct ref_dsa_decode decode;   /* num_seqs 0: the file holds no decode */
    uint32_t rows, pools, head_dim; /* Q, P, and D before padding */
    const float *pool_keys;         /* expected, [P, head_dim] */
    const int32_t *pool_indices;    /* [P, KP] */
    const uint8_t *pool_valid;      /* [P] */
    const double *scores_f64;       /* [Q, P], of every pool, candidate or not */
    const int32_t *topk_indices;    /* [Q, width] */
    const double *attn_f64;         /* [num_seqs, num_q_heads, kv_lora_rank] or NULL */
    const uint8_t *latent;          /* e4m3 [S, kv_lora_rank], unpaged, or NULL */
    struct golden_owned owned;
};

/* False, with the reason, if the file breaks a rule of safetensors.h or of this layout. Everything
 * reached through *out lives until golden_dsa_close. */
bool golden_dsa_open(const char *path, struct golden_dsa *out, char *error, size_t error_size);
void golden_dsa_close(struct golden_dsa *golden);

struct golden_qsa {
    struct ref_qsa_block_pool pool;  /* every complete block */
    uint32_t rows, blocks, topk;     /* probe rows, complete blocks of S, budget / ratio */
    const int32_t *row_pos;          /* [rows] position of each probe row */
    const float *block_keys_f32;     /* expected, before the bf16 store, [blocks, hd] */
    const float *q_post;             /* [rows, n_heads, hd] */
    const double *scores_f64;        /* [rows, blocks], invisible blocks -inf */
    const int32_t *lists;            /* [rows, topk] blocks of the selected mask, then -1 */
    uint32_t attn_rows;              /* 0: the file holds no attention */
    const int32_t *attn_row_pos;     /* [attn_rows] */
    const uint8_t *attn_mask;        /* [attn_rows, S] */
    const double *attn_f64;          /* [attn_rows, nq, attn_hd] */
    const uint16_t *attn_k, *attn_v; /* bf16 [S, nkv * attn_hd], unpaged */
    struct ref_qsa_qprep_rows qprep; /* row 0 of each; use the functions below */
    struct ref_qsa_score_rows score;
    struct ref_qsa_prefill_attn attn;
    struct golden_owned owned;
};

bool golden_qsa_open(const char *path, struct golden_qsa *out, char *error, size_t error_size);
void golden_qsa_close(struct golden_qsa *golden);

/* One probe row each, at its own position. The scores' q and block keys are the expected ones, the
 * keys rounded to bf16. */
struct ref_qsa_qprep_rows golden_qsa_qprep(const struct golden_qsa *golden, uint32_t row);
struct ref_qsa_score_rows golden_qsa_score(const struct golden_qsa *golden, uint32_t row);
/* One attention row, its lists read off the mask; row < attn_rows. */
struct ref_qsa_prefill_attn golden_qsa_attn(const struct golden_qsa *golden, uint32_t row);
/* The tokens of an attention row, ascending: sel [S]. Returns how many. */
uint32_t golden_qsa_attended(const struct golden_qsa *golden, uint32_t row, int32_t *sel);
/* The gather of those tokens; sel and n_sel from golden_qsa_attended. */
struct ref_qsa_gather golden_qsa_gather(const struct golden_qsa *golden, const int32_t *sel,
                                        uint32_t n_sel);
#endif
