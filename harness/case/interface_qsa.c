/* The kernels of the QSA family (ops.md §1). */
#include "harness/case/interface.h"

static void *bits(const struct expected *e)
{
    return e->exact;
}

LAUNCHER(qsa_block_pool)
PREDICATE(qsa_block_pool)
static void qsa_block_pool_reference(const void *ref, const struct ref_error_model *model,
                                     struct expected *const *out)
{
    ref_qsa_block_pool(ref, bits(out[0]));
}
static const struct argument qsa_block_pool[] = {
    INPUT(qsa_block_pool, raw_keys, .dtype = DTYPE_BF16, .shape = "S, hd", .dims = "token,dim"),
    INPUT(qsa_block_pool, k_norm_w, .dtype = DTYPE_BF16, .shape = "hd", .dims = "dim"),
    OUTPUT(qsa_block_pool, block_keys, .dtype = DTYPE_BF16, .shape = "max_blocks, hd",
           .dims = "block,dim", .owned = "n_new, hd", .first = "first_block"),
    NUMBER(qsa_block_pool, first_block),
    NUMBER(qsa_block_pool, ratio),
    NUMBER(qsa_block_pool, hd),
    NUMBER(qsa_block_pool, rot),
    NUMBER(qsa_block_pool, theta),
    NUMBER(qsa_block_pool, eps),
    HOST(qsa_block_pool, n_new),
    HOST(qsa_block_pool, S),
    HOST(qsa_block_pool, max_blocks),
    HOST(qsa_block_pool, block_size),
};
const struct interface interface_qsa_block_pool = {.entry = "qsa_block_pool",
                                                   ARGUMENTS(qsa_block_pool),
                                                   .grid = "n_new",
                                                   .block = "hd",
                                                   .shared = "4*(hd+32)",
                                                   FUNCTIONS(qsa_block_pool)};

/* The oracle is that of qsa_qprep_rows, for one row. */
LAUNCHER(qsa_qprep)
static bool qsa_qprep_accepts(const void *ref, struct ref_refusal *why)
{
    return ref_qsa_qprep_accepts(ref, why);
}
static void qsa_qprep_rows_reference(const void *ref, const struct ref_error_model *model,
                                     struct expected *const *out)
{
    ref_qsa_qprep_rows(ref, bits(out[0]));
}
static void qsa_qprep_reference(const void *ref, const struct ref_error_model *model,
                                struct expected *const *out)
{
    struct ref_qsa_qprep_rows one = *(const struct ref_qsa_qprep_rows *)ref;
    one.rows = 1;
    one.qkw = one.n_heads * one.hd;
    ref_qsa_qprep_rows(&one, bits(out[0]));
}
static const struct argument qsa_qprep[] = {
    {.name = "q_in",
     .kind = ARGUMENT_IN,
     .gpu = IN_GPU(qsa_qprep, q_in),
     .ref = IN_REF(qsa_qprep_rows, qk),
     .dtype = DTYPE_BF16,
     .shape = "n_heads, hd",
     .dims = "head,dim"},
    {.name = "q_norm_w",
     .kind = ARGUMENT_IN,
     .gpu = IN_GPU(qsa_qprep, q_norm_w),
     .ref = IN_REF(qsa_qprep_rows, q_norm_w),
     .dtype = DTYPE_BF16,
     .shape = "hd",
     .dims = "dim"},
    OUTPUT(qsa_qprep, q_out, .dtype = DTYPE_F32, .shape = "n_heads, hd", .dims = "head,dim"),
    {.name = "hd",
     .kind = ARGUMENT_NUMBER,
     .gpu = IN_GPU(qsa_qprep, hd),
     .ref = IN_REF(qsa_qprep_rows, hd)},
    {.name = "rot",
     .kind = ARGUMENT_NUMBER,
     .gpu = IN_GPU(qsa_qprep, rot),
     .ref = IN_REF(qsa_qprep_rows, rot)},
    {.name = "pos",
     .kind = ARGUMENT_NUMBER,
     .gpu = IN_GPU(qsa_qprep, pos),
     .ref = IN_REF(qsa_qprep_rows, first_pos)},
    {.name = "theta",
     .kind = ARGUMENT_NUMBER,
     .gpu = IN_GPU(qsa_qprep, theta),
     .ref = IN_REF(qsa_qprep_rows, theta)},
    {.name = "eps",
     .kind = ARGUMENT_NUMBER,
     .gpu = IN_GPU(qsa_qprep, eps),
     .ref = IN_REF(qsa_qprep_rows, eps)},
    {.name = "n_heads",
     .kind = ARGUMENT_HOST,
     .gpu = IN_GPU(qsa_qprep, n_heads),
     .ref = IN_REF(qsa_qprep_rows, n_heads)},
};
const struct interface interface_qsa_qprep = {.entry = "qsa_qprep",
                                              ARGUMENTS(qsa_qprep),
                                              .grid = "n_heads",
                                              .block = "hd",
                                              .shared = "4*(hd+32)",
                                              FUNCTIONS(qsa_qprep)};

LAUNCHER(qsa_qprep_rows)
PREDICATE(qsa_qprep_rows)
static const struct argument qsa_qprep_rows[] = {
    INPUT(qsa_qprep_rows, qk, .dtype = DTYPE_BF16, .shape = "rows, qkw", .dims = "row,dim"),
    INPUT(qsa_qprep_rows, q_norm_w, .dtype = DTYPE_BF16, .shape = "hd", .dims = "dim"),
    OUTPUT(qsa_qprep_rows, q_out, .dtype = DTYPE_F32, .shape = "rows, n_heads, hd",
           .dims = "row,head,dim"),
    NUMBER(qsa_qprep_rows, first_pos),
    NUMBER(qsa_qprep_rows, qkw),
    NUMBER(qsa_qprep_rows, n_heads),
    NUMBER(qsa_qprep_rows, hd),
    NUMBER(qsa_qprep_rows, rot),
    NUMBER(qsa_qprep_rows, theta),
    NUMBER(qsa_qprep_rows, eps),
    HOST(qsa_qprep_rows, rows),
};
const struct interface interface_qsa_qprep_rows = {.entry = "qsa_qprep_rows",
                                                   ARGUMENTS(qsa_qprep_rows),
                                                   .grid = "rows, n_heads",
                                                   .block = "hd",
                                                   .shared = "4*(hd+32)",
                                                   FUNCTIONS(qsa_qprep_rows)};

LAUNCHER(qsa_score)
PREDICATE(qsa_score)
static void qsa_score_reference(const void *ref, const struct ref_error_model *model,
                                struct expected *const *out)
{
    ref_qsa_score(ref, bits(out[0]));
}
static const struct argument qsa_score[] = {
    INPUT(qsa_score, q, .dtype = DTYPE_F32, .shape = "n_heads, hd", .dims = "head,dim"),
    INPUT(qsa_score, block_keys, .dtype = DTYPE_BF16, .shape = "n_blocks, hd", .dims = "block,dim"),
    OUTPUT(qsa_score, scores, .dtype = DTYPE_F32, .shape = "n_blocks", .dims = "block"),
    NUMBER(qsa_score, n_heads),
    NUMBER(qsa_score, hd),
    HOST(qsa_score, n_blocks),
};
const struct interface interface_qsa_score = {.entry = "qsa_score",
                                              ARGUMENTS(qsa_score),
                                              .grid = "n_blocks",
                                              .block = "hd",
                                              .shared = "128",
                                              FUNCTIONS(qsa_score)};

/* Dense rows in, dense rows out: what the oracle fills is as wide as a row's owned columns. */
static void qsa_score_rows_reference(const void *ref, const struct ref_error_model *model,
                                     struct expected *const *out)
{
    struct ref_qsa_score_rows dense = *(const struct ref_qsa_score_rows *)ref;
    dense.score_stride = dense.n_blocks_max;
    ref_qsa_score_rows(&dense, bits(out[0]));
}
LAUNCHER(qsa_score_rows)
PREDICATE(qsa_score_rows)
static const struct argument qsa_score_rows[] = {
    INPUT(qsa_score_rows, q, .dtype = DTYPE_F32, .shape = "rows, n_heads, hd",
          .dims = "row,head,dim"),
    INPUT(qsa_score_rows, block_keys, .dtype = DTYPE_BF16, .shape = "n_blocks_max, hd",
          .dims = "block,dim"),
    OUTPUT(qsa_score_rows, scores, .dtype = DTYPE_F32, .shape = "rows, score_stride",
           .dims = "row,block", .owned = "rows, n_blocks_max"),
    NUMBER(qsa_score_rows, first_pos),
    NUMBER(qsa_score_rows, score_stride),
    NUMBER(qsa_score_rows, ratio),
    NUMBER(qsa_score_rows, n_heads),
    NUMBER(qsa_score_rows, hd),
    HOST(qsa_score_rows, rows),
    HOST(qsa_score_rows, n_blocks_max),
};
const struct interface interface_qsa_score_rows = {.entry = "qsa_score_rows",
                                                   ARGUMENTS(qsa_score_rows),
                                                   .grid = "rows, n_blocks_max",
                                                   .block = "hd",
                                                   .shared = "128",
                                                   FUNCTIONS(qsa_score_rows)};

static enum gpu_status qsa_score_rows_tiled_check(const void *gpu, struct gpu_report *report)
{
    return gpu_qsa_score_rows_tiled_check(gpu, report);
}
static enum gpu_status qsa_score_rows_tiled_launch(const struct gpu_target *target, const void *gpu,
                                                   struct gpu_report *report)
{
    return gpu_qsa_score_rows_tiled(target, gpu, report);
}
static bool qsa_score_rows_tiled_accepts(const void *ref, struct ref_refusal *why)
{
    return ref_qsa_score_rows_tiled_accepts(ref, why);
}
#define qsa_score_rows_tiled_reference qsa_score_rows_reference
static const struct argument qsa_score_rows_tiled[] = {
    INPUT(qsa_score_rows, q, .dtype = DTYPE_F32, .shape = "rows, n_heads, hd",
          .dims = "row,head,dim"),
    INPUT(qsa_score_rows, block_keys, .dtype = DTYPE_BF16, .shape = "n_blocks_max, hd",
          .dims = "block,dim"),
    OUTPUT(qsa_score_rows, scores, .dtype = DTYPE_F32, .shape = "rows, score_stride",
           .dims = "row,block", .owned = "rows, n_blocks_max"),
    NUMBER(qsa_score_rows, first_pos),
    NUMBER(qsa_score_rows, score_stride),
    NUMBER(qsa_score_rows, ratio),
    NUMBER(qsa_score_rows, n_heads),
    NUMBER(qsa_score_rows, hd),
    NUMBER(qsa_score_rows, rows),
    NUMBER(qsa_score_rows, n_blocks_max),
};
const struct interface interface_qsa_score_rows_tiled = {.entry = "qsa_score_rows_tiled",
                                                         ARGUMENTS(qsa_score_rows_tiled),
                                                         .grid =
                                                             "ceil(rows/64), ceil(n_blocks_max/64)",
                                                         .block = "256",
                                                         .shared = "0",
                                                         FUNCTIONS(qsa_score_rows_tiled)};

static enum gpu_status qsa_score_rows_tc_check(const void *gpu, struct gpu_report *report)
{
    return gpu_qsa_score_rows_tc_check(gpu, report);
}
static enum gpu_status qsa_score_rows_tc_launch(const struct gpu_target *target, const void *gpu,
                                                struct gpu_report *report)
{
    return gpu_qsa_score_rows_tc(target, gpu, report);
}
static bool qsa_score_rows_tc_accepts(const void *ref, struct ref_refusal *why)
{
    return ref_qsa_score_rows_tc_accepts(ref, why);
}
static void qsa_score_rows_tc_reference(const void *ref, const struct ref_error_model *model,
                                        struct expected *const *out)
{
    ref_qsa_score_rows_bound(ref, REF_SCORER_SPLIT_Q, out[0]->value, out[0]->bound);
}
/* Rows come in sixteens. */
static const struct argument qsa_score_rows_tc[] = {
    INPUT(qsa_score_rows, q, .dtype = DTYPE_F32, .shape = "ceil(rows/16)*16, n_heads, hd",
          .dims = "row,head,dim"),
    INPUT(qsa_score_rows, block_keys, .dtype = DTYPE_BF16, .shape = "n_blocks_max, hd",
          .dims = "block,dim"),
    OUTPUT(qsa_score_rows, scores, .dtype = DTYPE_F32, .shape = "ceil(rows/16)*16, score_stride",
           .dims = "row,block", .owned = "rows, n_blocks_max", .loose = true),
    NUMBER(qsa_score_rows, first_pos),
    NUMBER(qsa_score_rows, score_stride),
    NUMBER(qsa_score_rows, ratio),
    NUMBER(qsa_score_rows, n_blocks_max),
    HOST(qsa_score_rows, rows),
    HOST(qsa_score_rows, n_heads),
    HOST(qsa_score_rows, hd),
};
const struct interface interface_qsa_score_rows_tc = {.entry = "qsa_score_rows_tc",
                                                      ARGUMENTS(qsa_score_rows_tc),
                                                      .grid =
                                                          "ceil(rows/16), ceil(n_blocks_max/64)",
                                                      .block = "256",
                                                      .shared = "0",
                                                      FUNCTIONS(qsa_score_rows_tc)};

LAUNCHER(qsa_topk_rows)
PREDICATE(qsa_topk_rows)
static void qsa_topk_rows_reference(const void *ref, const struct ref_error_model *model,
                                    struct expected *const *out)
{
    ref_qsa_topk_rows(ref, bits(out[0]));
}
static const struct argument qsa_topk_rows[] = {
    INPUT(qsa_topk_rows, scores, .dtype = DTYPE_F32, .shape = "rows, score_stride",
          .dims = "row,block"),
    OUTPUT(qsa_topk_rows, lists, .dtype = DTYPE_I32, .shape = "rows, topk", .dims = "row,slot"),
    NUMBER(qsa_topk_rows, first_pos),
    NUMBER(qsa_topk_rows, score_stride),
    NUMBER(qsa_topk_rows, ratio),
    NUMBER(qsa_topk_rows, topk),
    HOST(qsa_topk_rows, rows),
};
const struct interface interface_qsa_topk_rows = {.entry = "qsa_topk_rows",
                                                  ARGUMENTS(qsa_topk_rows),
                                                  .grid = "rows",
                                                  .block = "256",
                                                  .shared = NULL, /* the implementer's formula */
                                                  FUNCTIONS(qsa_topk_rows)};

LAUNCHER(qsa_gather)
PREDICATE(qsa_gather)
static void qsa_gather_reference(const void *ref, const struct ref_error_model *model,
                                 struct expected *const *out)
{
    ref_qsa_gather(ref, bits(out[0]), bits(out[1]));
}
static const struct argument qsa_gather[] = {
    INPUT(qsa_gather, k_cache, .dtype = DTYPE_BF16, .shape = "num_pages*block_size*nkv*hd",
          .dims = "item"),
    INPUT(qsa_gather, v_cache, .dtype = DTYPE_BF16, .shape = "num_pages*block_size*nkv*hd",
          .dims = "item"),
    INPUT_KNOWN(qsa_gather, block_table, .dtype = DTYPE_I32, .shape = "table_len", .dims = "page"),
    INPUT_KNOWN(qsa_gather, sel, .dtype = DTYPE_I32, .shape = "n_sel", .dims = "slot"),
    OUTPUT(qsa_gather, k_out, .dtype = DTYPE_BF16, .shape = "n_sel, nkv, hd",
           .dims = "slot,head,dim"),
    OUTPUT(qsa_gather, v_out, .dtype = DTYPE_BF16, .shape = "n_sel, nkv, hd",
           .dims = "slot,head,dim"),
    NUMBER(qsa_gather, block_size),
    NUMBER(qsa_gather, nkv),
    NUMBER(qsa_gather, hd),
    HOST(qsa_gather, n_sel),
    HOST(qsa_gather, table_len),
    HOST(qsa_gather, num_pages),
    HOST(qsa_gather, seq_len),
    HOST(qsa_gather, ratio),
};
const struct interface interface_qsa_gather = {.entry = "qsa_gather",
                                               ARGUMENTS(qsa_gather),
                                               .grid = "n_sel",
                                               .block = "256",
                                               .shared = "0",
                                               FUNCTIONS(qsa_gather)};

LAUNCHER(qsa_prefill_attn)
PREDICATE(qsa_prefill_attn)
static void qsa_prefill_attn_reference(const void *ref, const struct ref_error_model *model,
                                       struct expected *const *out)
{
    ref_qsa_prefill_attn(ref, model, out[0]->value, out[0]->bound);
}
static const struct argument qsa_prefill_attn[] = {
    INPUT(qsa_prefill_attn, q, .dtype = DTYPE_BF16, .shape = "rows, nq, hd",
          .dims = "row,head,dim"),
    INPUT(qsa_prefill_attn, k_cache, .dtype = DTYPE_BF16, .shape = "num_pages*block_size*nkv*hd",
          .dims = "item"),
    INPUT(qsa_prefill_attn, v_cache, .dtype = DTYPE_BF16, .shape = "num_pages*block_size*nkv*hd",
          .dims = "item"),
    INPUT_KNOWN(qsa_prefill_attn, block_table, .dtype = DTYPE_I32, .shape = "table_len",
                .dims = "page"),
    INPUT_KNOWN(qsa_prefill_attn, lists, .dtype = DTYPE_I32, .shape = "rows, topk",
                .dims = "row,slot"),
    OUTPUT(qsa_prefill_attn, attn_out, .dtype = DTYPE_BF16, .shape = "rows, nq, hd",
           .dims = "row,head,dim"),
    NUMBER(qsa_prefill_attn, first_pos),
    NUMBER(qsa_prefill_attn, topk),
    NUMBER(qsa_prefill_attn, ratio),
    NUMBER(qsa_prefill_attn, block_size),
    NUMBER(qsa_prefill_attn, nq),
    NUMBER(qsa_prefill_attn, nkv),
    NUMBER(qsa_prefill_attn, hd),
    NUMBER(qsa_prefill_attn, inv_sqrt_d),
    HOST(qsa_prefill_attn, rows),
    HOST(qsa_prefill_attn, table_len),
    HOST(qsa_prefill_attn, num_pages),
};
const struct interface interface_qsa_prefill_attn = {.entry = "qsa_prefill_attn",
                                                     ARGUMENTS(qsa_prefill_attn),
                                                     .grid = "rows, nq",
                                                     .block = "256",
                                                     .shared = "4*(8*hd+16)",
                                                     FUNCTIONS(qsa_prefill_attn)};

LAUNCHER(paged_decode_attn)
PREDICATE(paged_decode_attn)
static void paged_decode_attn_reference(const void *ref, const struct ref_error_model *model,
                                        struct expected *const *out)
{
    ref_paged_decode_attn(ref, model, out[0]->value, out[0]->bound);
}
static const struct argument paged_decode_attn[] = {
    INPUT(paged_decode_attn, q, .dtype = DTYPE_BF16, .shape = "nq, hd", .dims = "head,dim"),
    INPUT(paged_decode_attn, k_cache, .dtype = DTYPE_BF16, .shape = "num_pages*block_size*nkv*hd",
          .dims = "item"),
    INPUT(paged_decode_attn, v_cache, .dtype = DTYPE_BF16, .shape = "num_pages*block_size*nkv*hd",
          .dims = "item"),
    INPUT_KNOWN(paged_decode_attn, block_table, .dtype = DTYPE_I32, .shape = "table_len",
                .dims = "page"),
    OUTPUT(paged_decode_attn, out, .dtype = DTYPE_BF16, .shape = "nq, hd", .dims = "head,dim"),
    NUMBER(paged_decode_attn, seq_len),
    NUMBER(paged_decode_attn, block_size),
    NUMBER(paged_decode_attn, nq),
    NUMBER(paged_decode_attn, nkv),
    NUMBER(paged_decode_attn, hd),
    NUMBER(paged_decode_attn, inv_sqrt_d),
    HOST(paged_decode_attn, table_len),
    HOST(paged_decode_attn, num_pages),
};
const struct interface interface_paged_decode_attn = {.entry = "paged_decode_attn",
                                                      ARGUMENTS(paged_decode_attn),
                                                      .grid = "nq",
                                                      .block = "256",
                                                      .shared = "4*(8*hd+16)",
                                                      FUNCTIONS(paged_decode_attn)};
