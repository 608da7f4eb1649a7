/* What qsa_decode_pipeline and qsa_prefill_pipeline share: the numbers of a case, their inputs, the
 * stages from raw keys to lists, and what each must produce.
 *
 * A stage is judged given what the stage before it really produced, so that the first wrong one is
 * named. The selection is judged a second time, given nothing but the inputs: `selection` shares
 * the buffer of `lists` and is certified against the scores of the oracle's own keys and queries.
 * Those two stages are EXACT, so the only error that reaches a score is the scorer's. */
#ifndef ATTEST_OPS_QSA_PIPELINE_H
#define ATTEST_OPS_QSA_PIPELINE_H

#include "harness/ops/qsa_attention.h"

struct qsa_pipeline {
    uint32_t rows, first_pos; /* decode: one row */
    uint32_t len;             /* tokens up to the last row's position */
    uint32_t blocks;          /* complete at the last row */
    uint32_t topk, ratio;
    uint32_t heads, ihd, rot; /* indexer */
    uint32_t qkw, buffer_rows, score_stride;
    bool tensor_core; /* scores by qsa_score_rows_tc */
    float theta, eps;
    uint32_t block, table_len, nq, nkv, hd; /* attention */
    float scale;
};
void qsa_pipeline_read(const struct case_line *c, struct qsa_pipeline *p);

/* Arguments of the stages without buffers; arrays of `in` (may be NULL) where a stage reads inputs
 * of the pipeline. What a stage before makes is left NULL. */
void qsa_pipeline_gpu_pool(const struct qsa_pipeline *p, struct gpu_qsa_block_pool *a);
void qsa_pipeline_gpu_qprep_rows(const struct qsa_pipeline *p, struct gpu_qsa_qprep_rows *a);
void qsa_pipeline_gpu_scores(const struct qsa_pipeline *p, struct gpu_qsa_score_rows *a);
void qsa_pipeline_gpu_topk(const struct qsa_pipeline *p, struct gpu_qsa_topk_rows *a);
void qsa_pipeline_gpu_attn(const struct qsa_pipeline *p, const struct instance *in,
                           struct gpu_qsa_prefill_attn *a);
/* The oracle's predicate and the launchers' on the stages above; the scorer is that of the case. */
bool qsa_pipeline_ref_accepts(const struct qsa_pipeline *p, const struct instance *in,
                              struct ref_refusal *why);
enum gpu_status qsa_pipeline_gpu_check(const struct qsa_pipeline *p, const struct instance *in,
                                       struct gpu_report *report);

/* Adds the inputs raw_keys, k_norm_w, qk, q_norm_w, k_cache, v_cache, block_table, q, filled, and
 * the outputs block_keys, q_index, scores, lists, selection. */
bool qsa_pipeline_build(const struct qsa_pipeline *p, const struct case_line *c,
                        struct instance *in);

/* One run of the stages. */
struct qsa_run {
    const struct qsa_pipeline *p;
    const struct instance *in;
    const struct gpu_buffer *buffers;
    const struct gpu_target *target;
    struct gpu_report *report;
};
const struct gpu_buffer *qsa_run_buffer(const struct qsa_run *r, const char *name);
enum gpu_status qsa_run_pool(const struct qsa_run *r);
enum gpu_status qsa_run_qprep_rows(const struct qsa_run *r, const char *out);
/* qsa_score_rows or, where the case says so, qsa_score_rows_tc. */
enum gpu_status qsa_run_score_rows(const struct qsa_run *r, const char *out);
enum gpu_status qsa_run_topk(const struct qsa_run *r);
/* Copies the lists the kernel made to the host: legal [rows, topk] without entries that no consumer
 * may be given. *all: whether there were none. */
enum gpu_status qsa_run_read_lists(const struct qsa_run *r, int32_t *legal, bool *all);
enum gpu_status qsa_run_upload(const struct qsa_run *r, const char *name, const void *data,
                               uint64_t bytes);
enum gpu_status qsa_run_attention(const struct qsa_run *r, const int32_t *legal, const char *lists,
                                  const char *out);

/* A list without entries that are no visible block, or a block for the second time; true if there
 * were none. */
bool qsa_pipeline_legal_list(const struct qsa_pipeline *p, uint32_t row, const int32_t *list,
                             int32_t *legal);

/* Fills what the shared outputs and the attention must be. */
struct qsa_judge {
    struct qsa_pipeline p;
    const struct case_line *c;
    const struct instance *in;
    const struct ref_error_model *model;
    const uint8_t *const *got;
    struct expected *e;
    int32_t *legal; /* [rows, topk]: the kernel's lists as consumers were given them */
};
void *qsa_judge_exact(const struct qsa_judge *j, const char *name);
const void *qsa_judge_got(const struct qsa_judge *j, const char *name);
/* Opens with the legal lists made; false: out of memory, and nothing can pass. */
bool qsa_judge_open(struct qsa_judge *j);
void qsa_judge_close(struct qsa_judge *j);
void qsa_judge_keys_and_queries(const struct qsa_judge *j);
void qsa_judge_lists(const struct qsa_judge *j);
void qsa_judge_attention(const struct qsa_judge *j, const char *name);

/* Draws everything the two pipelines have in common; the rows are set. */
void qsa_pipeline_sample(struct case_line *c, struct rng *r, enum tier tier, uint64_t index);
void qsa_pipeline_absurd(struct case_line *c, struct rng *r);
extern const char *const qsa_index_regimes[];

#endif
