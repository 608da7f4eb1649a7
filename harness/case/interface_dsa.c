/* The kernels of the DSA family (ops.md §2). An operation that has the geometry vector declares it
 * as the array `geom`, and the numbers in it as S, pools, complete, select_k and NP2. */
#include "harness/case/interface.h"

static void *bits(const struct expected *e)
{
    return e->exact;
}

/* Ends every selector kernel's arguments. */
#define GEOMETRY_VECTOR(kernel)                                                             \
    {                                                                                       \
        .name = "geom", .kind = ARGUMENT_IN, .gpu = IN_GPU(kernel, geom),                   \
        .ref = IN_REF(kernel, geom), .host = IN_GPU(kernel, host_geom), .dtype = DTYPE_I32, \
        .shape = "5", .dims = "item"                                                        \
    }

LAUNCHER(dsa_decode)
PREDICATE(dsa_decode)
static void dsa_decode_reference(const void *ref, const struct ref_error_model *model,
                                 struct expected *const *out)
{
    ref_dsa_decode(ref, model, out[0]->value, out[0]->bound);
}
static const struct argument dsa_decode[] = {
    INPUT(dsa_decode, q, .dtype = DTYPE_BF16, .shape = "num_seqs, num_q_heads, kv_lora_rank",
          .dims = "seq,head,dim"),
    INPUT(dsa_decode, k_cache, .dtype = DTYPE_E4M3, .shape = "num_pages*cache_stride_bytes",
          .dims = "byte"),
    INPUT(dsa_decode, v_cache, .dtype = DTYPE_E4M3, .shape = "num_pages*cache_stride_bytes",
          .dims = "byte"),
    OUTPUT(dsa_decode, out, .dtype = DTYPE_BF16, .shape = "num_seqs, num_q_heads, kv_lora_rank",
           .dims = "seq,head,dim"),
    INPUT_KNOWN(dsa_decode, block_tables, .dtype = DTYPE_I32,
                .shape = "num_seqs, max_blocks_per_seq", .dims = "seq,page"),
    INPUT_KNOWN(dsa_decode, seq_lens, .dtype = DTYPE_I32, .shape = "num_seqs", .dims = "seq"),
    INPUT_KNOWN(dsa_decode, sel_indices, .dtype = DTYPE_I32, .shape = "num_seqs, width",
                .dims = "seq,slot"),
    NUMBER(dsa_decode, width),
    NUMBER(dsa_decode, max_blocks_per_seq),
    NUMBER(dsa_decode, num_q_heads),
    NUMBER(dsa_decode, num_kv_heads),
    NUMBER(dsa_decode, kv_lora_rank),
    NUMBER(dsa_decode, block_size),
    NUMBER(dsa_decode, scale),
    NUMBER(dsa_decode, k_scale),
    NUMBER(dsa_decode, v_scale),
    NUMBER(dsa_decode, cache_stride_bytes),
    HOST(dsa_decode, num_seqs),
    HOST(dsa_decode, sel_rows),
    HOST(dsa_decode, index_kpool),
    HOST(dsa_decode, num_pages),
};
const struct interface interface_dsa_decode = {.entry = "glm5next_dsa_mla_decode_fp8",
                                               ARGUMENTS(dsa_decode),
                                               .grid = "num_q_heads, num_seqs",
                                               .block = "256",
                                               .shared = "0",
                                               FUNCTIONS(dsa_decode)};

LAUNCHER(dsa_kpool_compress)
PREDICATE(dsa_kpool_compress)
static void dsa_kpool_compress_reference(const void *ref, const struct ref_error_model *model,
                                         struct expected *const *out)
{
    ref_dsa_kpool_compress(ref, model, out[0]->value, out[0]->bound, bits(out[1]), bits(out[2]));
}
static const struct argument dsa_kpool_compress[] = {
    INPUT(dsa_kpool_compress, k, .dtype = DTYPE_BF16, .shape = "S, D", .dims = "token,dim"),
    INPUT(dsa_kpool_compress, gate, .dtype = DTYPE_BF16, .shape = "S, D", .dims = "token,dim"),
    INPUT(dsa_kpool_compress, valid, .dtype = DTYPE_U8, .shape = "S", .dims = "token"),
    INPUT(dsa_kpool_compress, ape, .dtype = DTYPE_F32, .shape = "KP, D", .dims = "slot,dim"),
    OUTPUT(dsa_kpool_compress, pool_keys, .dtype = DTYPE_F32, .shape = "P, D", .dims = "pool,dim",
           .owned = "pools, D"),
    OUTPUT(dsa_kpool_compress, pool_indices, .dtype = DTYPE_I32, .shape = "P, KP",
           .dims = "pool,slot", .owned = "pools, KP"),
    OUTPUT(dsa_kpool_compress, pool_valid, .dtype = DTYPE_U8, .shape = "P", .dims = "pool",
           .owned = "pools"),
    NUMBER(dsa_kpool_compress, S),
    NUMBER(dsa_kpool_compress, D),
    NUMBER(dsa_kpool_compress, KP),
    NUMBER(dsa_kpool_compress, first_key),
    GEOMETRY_VECTOR(dsa_kpool_compress),
    {.name = "P",
     .kind = ARGUMENT_HOST,
     .gpu = IN_GPU(dsa_kpool_compress, pools),
     .ref = IN_REF(dsa_kpool_compress, pools)},
    HOST(dsa_kpool_compress, block_size),
};
const struct interface interface_dsa_kpool_compress = {.entry = "dsa_kpool_compress",
                                                       ARGUMENTS(dsa_kpool_compress),
                                                       .grid = "P",
                                                       .block = "128",
                                                       .shared = "0",
                                                       FUNCTIONS(dsa_kpool_compress)};

LAUNCHER(dsa_index_scores)
PREDICATE(dsa_index_scores)
static void dsa_index_scores_reference(const void *ref, const struct ref_error_model *model,
                                       struct expected *const *out)
{
    ref_dsa_index_scores(ref, bits(out[0]), bits(out[1]));
}
static const struct argument dsa_index_scores[] = {
    INPUT(dsa_index_scores, q, .dtype = DTYPE_F32, .shape = "Q, H, D", .dims = "query,head,dim"),
    INPUT(dsa_index_scores, pool_keys, .dtype = DTYPE_F32, .shape = "P, D", .dims = "pool,dim"),
    INPUT(dsa_index_scores, weights, .dtype = DTYPE_F32, .shape = "Q, H", .dims = "query,head"),
    INPUT_KNOWN(dsa_index_scores, pool_indices, .dtype = DTYPE_I32, .shape = "P, KP",
                .dims = "pool,slot"),
    INPUT(dsa_index_scores, pool_valid, .dtype = DTYPE_U8, .shape = "P", .dims = "pool"),
    INPUT(dsa_index_scores, valid_keys, .dtype = DTYPE_U8, .shape = "S", .dims = "token"),
    INPUT(dsa_index_scores, q_pos, .dtype = DTYPE_I32, .shape = "Q", .dims = "query"),
    OUTPUT(dsa_index_scores, out, .dtype = DTYPE_F32, .shape = "Q, P", .dims = "query,pool",
           .owned = "Q, pools"),
    OUTPUT(dsa_index_scores, valid_cand, .dtype = DTYPE_U8, .shape = "Q, P", .dims = "query,pool",
           .owned = "Q, pools"),
    NUMBER(dsa_index_scores, Q),
    NUMBER(dsa_index_scores, P),
    NUMBER(dsa_index_scores, H),
    NUMBER(dsa_index_scores, D),
    NUMBER(dsa_index_scores, KP),
    NUMBER(dsa_index_scores, S),
    NUMBER(dsa_index_scores, scale),
    GEOMETRY_VECTOR(dsa_index_scores),
};
const struct interface interface_dsa_index_scores = {.entry = "dsa_index_scores",
                                                     ARGUMENTS(dsa_index_scores),
                                                     .grid = "P, Q",
                                                     .block = "256",
                                                     .shared = "max(1024, 4*H)",
                                                     FUNCTIONS(dsa_index_scores)};

/* All but the entry point and the grid is dsa_index_scores. */
static enum gpu_status dsa_index_scores_tiled_launch(const struct gpu_target *target,
                                                     const void *gpu, struct gpu_report *report)
{
    return gpu_dsa_index_scores_tiled(target, gpu, report);
}
#define dsa_index_scores_tiled_check dsa_index_scores_check
#define dsa_index_scores_tiled_accepts dsa_index_scores_accepts
#define dsa_index_scores_tiled_reference dsa_index_scores_reference
const struct interface interface_dsa_index_scores_tiled = {.entry = "dsa_index_scores_tiled",
                                                           ARGUMENTS(dsa_index_scores),
                                                           .grid = "ceil(P/128), Q",
                                                           .block = "256",
                                                           .shared = "0",
                                                           FUNCTIONS(dsa_index_scores_tiled)};

LAUNCHER(dsa_topk_pools)
PREDICATE(dsa_topk_pools)
static void dsa_topk_pools_reference(const void *ref, const struct ref_error_model *model,
                                     struct expected *const *out)
{
    ref_dsa_topk_pools(ref, bits(out[0]));
}
static const struct argument dsa_topk_pools[] = {
    INPUT(dsa_topk_pools, scores, .dtype = DTYPE_F32, .shape = "Q, P", .dims = "query,pool"),
    OUTPUT(dsa_topk_pools, selected, .dtype = DTYPE_I32, .shape = "Q, select_k",
           .dims = "query,item", .owned = "Q, selected_k"),
    NUMBER(dsa_topk_pools, Q),
    NUMBER(dsa_topk_pools, P),
    NUMBER(dsa_topk_pools, NP2),
    NUMBER(dsa_topk_pools, select_k),
    GEOMETRY_VECTOR(dsa_topk_pools),
};
const struct interface interface_dsa_topk_pools = {.entry = "dsa_topk_pools",
                                                   ARGUMENTS(dsa_topk_pools),
                                                   .grid = "Q",
                                                   .block = "256",
                                                   .shared = "16*NP2",
                                                   FUNCTIONS(dsa_topk_pools)};

LAUNCHER(dsa_expand_selection)
PREDICATE(dsa_expand_selection)
static void dsa_expand_selection_reference(const void *ref, const struct ref_error_model *model,
                                           struct expected *const *out)
{
    ref_dsa_expand_selection(ref, bits(out[0]));
}
static const struct argument dsa_expand_selection[] = {
    INPUT(dsa_expand_selection, selected, .dtype = DTYPE_I32, .shape = "Q, select_k",
          .dims = "query,item"),
    INPUT(dsa_expand_selection, pool_indices, .dtype = DTYPE_I32, .shape = "P, KP",
          .dims = "pool,slot"),
    INPUT(dsa_expand_selection, valid_cand, .dtype = DTYPE_U8, .shape = "Q, P",
          .dims = "query,pool"),
    INPUT_KNOWN(dsa_expand_selection, valid_keys, .dtype = DTYPE_U8, .shape = "S", .dims = "token"),
    INPUT_KNOWN(dsa_expand_selection, q_pos, .dtype = DTYPE_I32, .shape = "Q", .dims = "query"),
    INPUT_KNOWN(dsa_expand_selection, q_mask, .dtype = DTYPE_U8, .shape = "Q", .dims = "query"),
    OUTPUT(dsa_expand_selection, out, .dtype = DTYPE_I32, .shape = "Q, width",
           .dims = "query,slot"),
    NUMBER(dsa_expand_selection, Q),
    NUMBER(dsa_expand_selection, P),
    NUMBER(dsa_expand_selection, KP),
    NUMBER(dsa_expand_selection, S),
    NUMBER(dsa_expand_selection, select_k),
    NUMBER(dsa_expand_selection, width),
    NUMBER(dsa_expand_selection, first_key),
    NUMBER(dsa_expand_selection, always_tail),
    GEOMETRY_VECTOR(dsa_expand_selection),
    HOST(dsa_expand_selection, index_topk),
};
const struct interface interface_dsa_expand_selection = {.entry = "dsa_expand_selection",
                                                         ARGUMENTS(dsa_expand_selection),
                                                         .grid = "Q",
                                                         .block = "256",
                                                         .shared = "0",
                                                         FUNCTIONS(dsa_expand_selection)};

LAUNCHER(dsa_topk_to_mask)
PREDICATE(dsa_topk_to_mask)
static void dsa_topk_to_mask_reference(const void *ref, const struct ref_error_model *model,
                                       struct expected *const *out)
{
    ref_dsa_topk_to_mask(ref, bits(out[0]));
}
static const struct argument dsa_topk_to_mask[] = {
    INPUT(dsa_topk_to_mask, topk, .dtype = DTYPE_I32, .shape = "Q, width", .dims = "query,slot"),
    OUTPUT(dsa_topk_to_mask, mask, .dtype = DTYPE_U8, .shape = "Q, S", .dims = "query,token"),
    NUMBER(dsa_topk_to_mask, Q),
    NUMBER(dsa_topk_to_mask, width),
    NUMBER(dsa_topk_to_mask, S),
};
const struct interface interface_dsa_topk_to_mask = {.entry = "dsa_topk_to_mask",
                                                     ARGUMENTS(dsa_topk_to_mask),
                                                     .grid = "Q",
                                                     .block = "256",
                                                     .shared = "0",
                                                     FUNCTIONS(dsa_topk_to_mask)};

LAUNCHER(dsa_mla_masked_attn)
PREDICATE(dsa_mla_masked_attn)
static void dsa_mla_masked_attn_reference(const void *ref, const struct ref_error_model *model,
                                          struct expected *const *out)
{
    ref_dsa_mla_masked_attn(ref, model, out[0]->value, out[0]->bound);
}
static const struct argument dsa_mla_masked_attn[] = {
    INPUT(dsa_mla_masked_attn, q, .dtype = DTYPE_BF16, .shape = "Q, H, qd",
          .dims = "query,head,dim"),
    INPUT(dsa_mla_masked_attn, k, .dtype = DTYPE_BF16, .shape = "S, H, qd",
          .dims = "token,head,dim"),
    INPUT(dsa_mla_masked_attn, v, .dtype = DTYPE_BF16, .shape = "S, H, vd",
          .dims = "token,head,dim"),
    INPUT(dsa_mla_masked_attn, mask, .dtype = DTYPE_U8, .shape = "Q, S", .dims = "query,token"),
    OUTPUT(dsa_mla_masked_attn, out, .dtype = DTYPE_F32, .shape = "Q, H, vd",
           .dims = "query,head,dim"),
    NUMBER(dsa_mla_masked_attn, Q),
    NUMBER(dsa_mla_masked_attn, S),
    NUMBER(dsa_mla_masked_attn, H),
    NUMBER(dsa_mla_masked_attn, qd),
    NUMBER(dsa_mla_masked_attn, vd),
    NUMBER(dsa_mla_masked_attn, scale),
    NUMBER(dsa_mla_masked_attn, round_scores_bf16),
};
const struct interface interface_dsa_mla_masked_attn = {.entry = "dsa_mla_masked_attn",
                                                        ARGUMENTS(dsa_mla_masked_attn),
                                                        .grid = "Q, H",
                                                        .block = "256",
                                                        .shared = "4*S",
                                                        FUNCTIONS(dsa_mla_masked_attn)};
