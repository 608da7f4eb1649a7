/* Typed launchers of the DSA family (GLM-5.3 sparse MLA): modules dsa_indexer and
 * glm5next_dsa_mla_decode. Shapes are row-major; `[a,b]` means b fastest.
 *
 * Each `gpu_X_check` applies every refusal of the operation to host-known numbers and runs nothing:
 * GPU_OK, or GPU_REFUSED with rule and numbers. Each `gpu_X` checks, then launches. Buffers are
 * borrowed. `host_*` pointers are host copies of index tensors; a NULL one skips only the rules that
 * need its values. A buffer pointer that is NULL in a check-only call skips its size rule
 * ("buffer_size"). */
#ifndef ATTEST_GPU_LAUNCH_DSA_H
#define ATTEST_GPU_LAUNCH_DSA_H

#include "gpu.h"

struct gpu_dsa_decode {
    const struct gpu_buffer *q;            /* bf16 [num_seqs, num_q_heads, kv_lora_rank] */
    const struct gpu_buffer *k_cache;      /* e4m3 pages, pitch cache_stride_bytes */
    const struct gpu_buffer *v_cache;      /* may be k_cache */
    const struct gpu_buffer *out;          /* bf16 [num_seqs, num_q_heads, kv_lora_rank] */
    const struct gpu_buffer *block_tables; /* i32 [num_seqs, max_blocks_per_seq] */
    const struct gpu_buffer *seq_lens;     /* i32 [num_seqs] */
    const struct gpu_buffer *sel_indices;  /* i32 [sel_rows, width] */
    const int32_t *host_block_tables, *host_seq_lens, *host_sel_indices;
    uint32_t num_seqs, sel_rows, width, max_blocks_per_seq;
    uint32_t num_q_heads, num_kv_heads, kv_lora_rank;
    uint32_t block_size, index_kpool, num_pages;
    float scale, k_scale, v_scale;
    uint64_t cache_stride_bytes; /* page pitch */
};
enum gpu_status gpu_dsa_decode_check(const struct gpu_dsa_decode *args, struct gpu_report *report);
enum gpu_status gpu_dsa_decode(const struct gpu_target *target, const struct gpu_dsa_decode *args,
                               struct gpu_report *report);

/* The five numbers that override the scalars on the device, so that a captured graph replays at
 * another length: {S, pools incl. a trailing partial one, complete pools, select_k, NP2}. */
enum { GPU_DSA_GEOM_INTS = 5 };

struct gpu_dsa_kpool_compress {
    const struct gpu_buffer *k, *gate;     /* bf16 [S, D] */
    const struct gpu_buffer *valid;        /* u8 [S] */
    const struct gpu_buffer *ape;          /* f32 [KP, D] */
    const struct gpu_buffer *pool_keys;    /* out f32 [P, D] */
    const struct gpu_buffer *pool_indices; /* out i32 [P, KP] */
    const struct gpu_buffer *pool_valid;   /* out u8 [P] */
    const struct gpu_buffer *geom;         /* i32 [5] or NULL */
    const int32_t *host_geom;
    uint32_t pools; /* P: the grid */
    uint32_t S, D, KP;
    uint32_t block_size; /* paged indexer keys: block_size/KP pools a page; 0 = contiguous keys */
    int32_t first_key;
};
enum gpu_status gpu_dsa_kpool_compress_check(const struct gpu_dsa_kpool_compress *args,
                                             struct gpu_report *report);
enum gpu_status gpu_dsa_kpool_compress(const struct gpu_target *target,
                                       const struct gpu_dsa_kpool_compress *args,
                                       struct gpu_report *report);

struct gpu_dsa_index_scores {
    const struct gpu_buffer *q;            /* f32 [Q, H, D] */
    const struct gpu_buffer *pool_keys;    /* f32 [P, D] */
    const struct gpu_buffer *weights;      /* f32 [Q, H] */
    const struct gpu_buffer *pool_indices; /* i32 [P, KP] */
    const struct gpu_buffer *pool_valid;   /* u8 [P] */
    const struct gpu_buffer *valid_keys;   /* u8 [S] */
    const struct gpu_buffer *q_pos;        /* i32 [Q] */
    const struct gpu_buffer *out;          /* out f32 [Q, P] */
    const struct gpu_buffer *valid_cand;   /* out u8 [Q, P] */
    const struct gpu_buffer *geom;
    const int32_t *host_geom, *host_pool_indices;
    uint32_t Q, P, H, D, KP, S;
    float scale;
};
enum gpu_status gpu_dsa_index_scores_check(const struct gpu_dsa_index_scores *args,
                                           struct gpu_report *report);
enum gpu_status gpu_dsa_index_scores(const struct gpu_target *target,
                                     const struct gpu_dsa_index_scores *args,
                                     struct gpu_report *report);
/* The same scores and the same refusals; a CTA has 128 pools. */
enum gpu_status gpu_dsa_index_scores_tiled(const struct gpu_target *target,
                                           const struct gpu_dsa_index_scores *args,
                                           struct gpu_report *report);

struct gpu_dsa_topk_pools {
    const struct gpu_buffer *scores;   /* f32 [Q, P] */
    const struct gpu_buffer *selected; /* out i32 [Q, select_k] */
    const struct gpu_buffer *geom;
    const int32_t *host_geom;
    uint32_t Q, P, NP2, select_k;
};
enum gpu_status gpu_dsa_topk_pools_check(const struct gpu_dsa_topk_pools *args,
                                         struct gpu_report *report);
enum gpu_status gpu_dsa_topk_pools(const struct gpu_target *target,
                                   const struct gpu_dsa_topk_pools *args,
                                   struct gpu_report *report);

struct gpu_dsa_expand_selection {
    const struct gpu_buffer *selected;     /* i32 [Q, select_k] */
    const struct gpu_buffer *pool_indices; /* i32 [P, KP] */
    const struct gpu_buffer *valid_cand;   /* u8 [Q, P] */
    const struct gpu_buffer *valid_keys;   /* u8 [S] */
    const struct gpu_buffer *q_pos;        /* i32 [Q] */
    const struct gpu_buffer *q_mask;       /* u8 [Q] */
    const struct gpu_buffer *out;          /* out i32 [Q, width] */
    const struct gpu_buffer *geom;
    const int32_t *host_geom, *host_q_pos;
    const uint8_t *host_valid_keys, *host_q_mask;
    uint32_t Q, P, KP, S, select_k, width, index_topk;
    int32_t first_key, always_tail;
};
enum gpu_status gpu_dsa_expand_selection_check(const struct gpu_dsa_expand_selection *args,
                                               struct gpu_report *report);
enum gpu_status gpu_dsa_expand_selection(const struct gpu_target *target,
                                         const struct gpu_dsa_expand_selection *args,
                                         struct gpu_report *report);

struct gpu_dsa_topk_to_mask {
    const struct gpu_buffer *topk; /* i32 [Q, width] */
    const struct gpu_buffer *mask; /* out u8 [Q, S] */
    uint32_t Q, width, S;
};
enum gpu_status gpu_dsa_topk_to_mask_check(const struct gpu_dsa_topk_to_mask *args,
                                           struct gpu_report *report);
enum gpu_status gpu_dsa_topk_to_mask(const struct gpu_target *target,
                                     const struct gpu_dsa_topk_to_mask *args,
                                     struct gpu_report *report);

struct gpu_dsa_mla_masked_attn {
    const struct gpu_buffer *q;    /* bf16 [Q, H, qd] */
    const struct gpu_buffer *k;    /* bf16 [S, H, qd] */
    const struct gpu_buffer *v;    /* bf16 [S, H, vd] */
    const struct gpu_buffer *mask; /* u8 [Q, S] */
    const struct gpu_buffer *out;  /* out f32 [Q, H, vd] */
    uint32_t Q, S, H, qd, vd;
    float scale;
    int32_t round_scores_bf16;
};
enum gpu_status gpu_dsa_mla_masked_attn_check(const struct gpu_dsa_mla_masked_attn *args,
                                              struct gpu_report *report);
enum gpu_status gpu_dsa_mla_masked_attn(const struct gpu_target *target,
                                        const struct gpu_dsa_mla_masked_attn *args,
                                        struct gpu_report *report);
#endif
