/* Typed launchers of the QSA family (Qwen3.8 block indexer): module qsa_indexer.
 * The conventions are those of launch_dsa.h. bf16 page layout: [page, slot, nkv, hd]. */
#ifndef ATTEST_GPU_LAUNCH_QSA_H
#define ATTEST_GPU_LAUNCH_QSA_H

#include "gpu.h"

struct gpu_qsa_block_pool {
    const struct gpu_buffer *raw_keys;   /* bf16 [S, hd] */
    const struct gpu_buffer *k_norm_w;   /* bf16 [hd] */
    const struct gpu_buffer *block_keys; /* out bf16 [max_blocks, hd]; owns rows first_block.. */
    uint32_t n_new, S, max_blocks;
    uint32_t first_block, ratio, hd, rot;
    uint32_t block_size; /* page size of the KV cache the blocks index; 0 = not paged */
    float theta, eps;
};
enum gpu_status gpu_qsa_block_pool_check(const struct gpu_qsa_block_pool *args,
                                         struct gpu_report *report);
enum gpu_status gpu_qsa_block_pool(const struct gpu_target *target,
                                   const struct gpu_qsa_block_pool *args,
                                   struct gpu_report *report);

struct gpu_qsa_qprep {
    const struct gpu_buffer *q_in;     /* bf16 [n_heads, hd] */
    const struct gpu_buffer *q_norm_w; /* bf16 [hd] */
    const struct gpu_buffer *q_out;    /* out f32 [n_heads, hd] */
    uint32_t n_heads, hd, rot, pos;
    float theta, eps;
};
enum gpu_status gpu_qsa_qprep_check(const struct gpu_qsa_qprep *args, struct gpu_report *report);
enum gpu_status gpu_qsa_qprep(const struct gpu_target *target, const struct gpu_qsa_qprep *args,
                              struct gpu_report *report);

struct gpu_qsa_qprep_rows {
    const struct gpu_buffer *qk;       /* bf16 [rows, qkw] */
    const struct gpu_buffer *q_norm_w; /* bf16 [hd] */
    const struct gpu_buffer *q_out;    /* out f32 [rows, n_heads, hd] */
    uint32_t rows, first_pos, qkw, n_heads, hd, rot;
    float theta, eps;
};
enum gpu_status gpu_qsa_qprep_rows_check(const struct gpu_qsa_qprep_rows *args,
                                         struct gpu_report *report);
enum gpu_status gpu_qsa_qprep_rows(const struct gpu_target *target,
                                   const struct gpu_qsa_qprep_rows *args,
                                   struct gpu_report *report);

struct gpu_qsa_score {
    const struct gpu_buffer *q;          /* f32 [n_heads, hd] */
    const struct gpu_buffer *block_keys; /* bf16 [n_blocks, hd] */
    const struct gpu_buffer *scores;     /* out f32 [n_blocks] */
    uint32_t n_blocks, n_heads, hd;
};
enum gpu_status gpu_qsa_score_check(const struct gpu_qsa_score *args, struct gpu_report *report);
enum gpu_status gpu_qsa_score(const struct gpu_target *target, const struct gpu_qsa_score *args,
                              struct gpu_report *report);

/* qsa_score_rows, qsa_score_rows_tiled and qsa_score_rows_tc. For _tc, q and scores are allocated
 * for ceil(rows/16)*16 rows; ratio, n_heads 4, hd 128. */
struct gpu_qsa_score_rows {
    const struct gpu_buffer *q;          /* f32 [rows, n_heads, hd] */
    const struct gpu_buffer *block_keys; /* bf16 [n_blocks_max, hd] */
    const struct gpu_buffer *scores; /* out f32 [rows, score_stride]; owns n_blocks_max columns */
    uint32_t rows, n_blocks_max, first_pos, score_stride, ratio, n_heads, hd;
};
enum gpu_status gpu_qsa_score_rows_check(const struct gpu_qsa_score_rows *args,
                                         struct gpu_report *report);
enum gpu_status gpu_qsa_score_rows(const struct gpu_target *target,
                                   const struct gpu_qsa_score_rows *args,
                                   struct gpu_report *report);
enum gpu_status gpu_qsa_score_rows_tiled_check(const struct gpu_qsa_score_rows *args,
                                               struct gpu_report *report);
enum gpu_status gpu_qsa_score_rows_tiled(const struct gpu_target *target,
                                         const struct gpu_qsa_score_rows *args,
                                         struct gpu_report *report);
enum gpu_status gpu_qsa_score_rows_tc_check(const struct gpu_qsa_score_rows *args,
                                            struct gpu_report *report);
enum gpu_status gpu_qsa_score_rows_tc(const struct gpu_target *target,
                                      const struct gpu_qsa_score_rows *args,
                                      struct gpu_report *report);

struct gpu_qsa_topk_rows {
    const struct gpu_buffer *scores; /* f32 [rows, score_stride] */
    const struct gpu_buffer *lists;  /* out i32 [rows, topk] */
    uint32_t rows, first_pos, score_stride, ratio, topk;
};
/* Dynamic shared bytes of the project's kernel for a launch with these numbers. */
uint32_t gpu_qsa_topk_shared_bytes(const struct gpu_qsa_topk_rows *args);
enum gpu_status gpu_qsa_topk_rows_check(const struct gpu_qsa_topk_rows *args,
                                        struct gpu_report *report);
enum gpu_status gpu_qsa_topk_rows(const struct gpu_target *target,
                                  const struct gpu_qsa_topk_rows *args, struct gpu_report *report);

struct gpu_qsa_gather {
    const struct gpu_buffer *k_cache, *v_cache; /* bf16 [num_pages, block_size, nkv, hd] */
    const struct gpu_buffer *block_table;       /* i32 [table_len] */
    const struct gpu_buffer *sel;               /* i32 [n_sel] */
    const struct gpu_buffer *k_out, *v_out;     /* out bf16 [n_sel, nkv, hd] */
    const int32_t *host_block_table, *host_sel;
    uint32_t n_sel, table_len, num_pages, seq_len;
    uint32_t block_size, nkv, hd, ratio;
};
enum gpu_status gpu_qsa_gather_check(const struct gpu_qsa_gather *args, struct gpu_report *report);
enum gpu_status gpu_qsa_gather(const struct gpu_target *target, const struct gpu_qsa_gather *args,
                               struct gpu_report *report);

struct gpu_qsa_prefill_attn {
    const struct gpu_buffer *q;                 /* bf16 [rows, nq, hd] */
    const struct gpu_buffer *k_cache, *v_cache; /* bf16 [num_pages, block_size, nkv, hd] */
    const struct gpu_buffer *block_table;       /* i32 [table_len] */
    const struct gpu_buffer *lists;             /* i32 [rows, topk] */
    const struct gpu_buffer *attn_out;          /* out bf16 [rows, nq, hd] */
    const int32_t *host_block_table, *host_lists;
    uint32_t rows, table_len, num_pages;
    uint32_t first_pos, topk, ratio, block_size, nq, nkv, hd;
    float inv_sqrt_d;
};
enum gpu_status gpu_qsa_prefill_attn_check(const struct gpu_qsa_prefill_attn *args,
                                           struct gpu_report *report);
enum gpu_status gpu_qsa_prefill_attn(const struct gpu_target *target,
                                     const struct gpu_qsa_prefill_attn *args,
                                     struct gpu_report *report);

struct gpu_paged_decode_attn {
    const struct gpu_buffer *q;                 /* bf16 [nq, hd] */
    const struct gpu_buffer *k_cache, *v_cache; /* bf16 [num_pages, block_size, nkv, hd] */
    const struct gpu_buffer *block_table;       /* i32 [table_len] */
    const struct gpu_buffer *out;               /* out bf16 [nq, hd] */
    const int32_t *host_block_table;
    uint32_t table_len, num_pages;
    uint32_t seq_len, block_size, nq, nkv, hd;
    float inv_sqrt_d;
};
enum gpu_status gpu_paged_decode_attn_check(const struct gpu_paged_decode_attn *args,
                                            struct gpu_report *report);
enum gpu_status gpu_paged_decode_attn(const struct gpu_target *target,
                                      const struct gpu_paged_decode_attn *args,
                                      struct gpu_report *report);
#endif
