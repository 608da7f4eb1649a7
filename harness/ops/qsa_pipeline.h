/* What qsa_decode_pipeline and qsa_prefill_pipeline share: numbers, inputs, the stages from raw
 * keys to lists, and what each must produce.
 *
 * A stage is judged given what the stage before it really produced, so that the first wrong one is
 * named. The selection is judged a second time, given nothing but the inputs: `selection` shares
 * the buffer of `lists` and is certified against the scores of the oracle's own keys and queries.
 * Those two stages are EXACT, so the only error that reaches a score is the scorer's. */
#ifndef ATTEST_OPS_QSA_PIPELINE_H
#define ATTEST_OPS_QSA_PIPELINE_H

#include "harness/ops/qsa_attention.h"

extern const char *const qsa_index_regimes[];

/* Numbers of both; before them an operation gives rows and qkw, after them score_stride and
 * buffer_rows, the rows that queries and scores are allocated for. */
/* clang-format off */
#define QSA_PIPELINE_NUMBERS                                                                       \
    {"first_pos", "pos"},                                                                          \
    {"seq_len", "rows ? pos + rows : 0"},                                                          \
    {"blocks", "seq_len/ratio"},                                                                   \
    {"table_len", QSA_TABLE_LEN},                                                                  \
    {"inv_sqrt_d", QSA_SCALE}
/* clang-format on */

/* What the kernels' own names mean in a pipeline. */
#define QSA_POOL_BINDINGS                                                           \
    "n_new = blocks, S = seq_len, max_blocks = blocks, first_block = 0, hd = ihd, " \
    "block_size = block"
#define QSA_QPREP_BINDINGS "n_heads = heads, hd = ihd, q_out = q_index"
#define QSA_SCORE_BINDINGS "q = q_index, n_blocks_max = blocks, n_heads = heads, hd = ihd"
#define QSA_ATTENTION_BINDINGS "lists = legal, block_size = block, attn_out = out"

/* Fillings of the inputs that both have. */
bool qsa_pipeline_fill_raw_keys(const struct filling *f);
bool qsa_pipeline_fill_index_queries(const struct filling *f);
/* struct op's fill: every token of the sequence has data, for which of them are attended is for the
 * kernels to choose. */
bool qsa_pipeline_fill_cache(const struct case_line *c, struct instance *in);
enum { QSA_STREAM_K_NORM = 12, QSA_STREAM_Q_NORM = 14 };
/* clang-format off */
#define QSA_PIPELINE_INPUTS                                                                        \
    {"raw_keys", ARRAY_POISONED, qsa_pipeline_fill_raw_keys},                                      \
    {"k_norm_w", ARRAY_IN, qsa_fill_norm, QSA_STREAM_K_NORM},                                      \
    {"qk", ARRAY_POISONED, qsa_pipeline_fill_index_queries},                                       \
    {"q_norm_w", ARRAY_IN, qsa_fill_norm, QSA_STREAM_Q_NORM},                                      \
    {"q", ARRAY_IN, qsa_attention_fill_queries},                                                   \
    {"k_cache", ARRAY_IN},                                                                         \
    {"v_cache", ARRAY_IN},                                                                         \
    {"block_table", ARRAY_POISONED}
/* clang-format on */

/* One run of the stages. */
struct qsa_run {
    const struct case_line *c;
    const struct instance *in;
    const struct gpu_buffer *buffers;
    const struct gpu_target *target;
    struct gpu_report *report;
    int32_t *legal; /* [rows, topk]: the lists that the kernel made, without entries that no
                     * consumer may be given */
    bool all_legal; /* there were no such entries */
};
/* The operation's step with that kernel, the first that runs. */
const struct step *qsa_pipeline_step(const struct case_line *c, const struct interface *kernel);
enum gpu_status qsa_run_step(const struct qsa_run *r, const struct step *step);
/* Prefill attention straight from the pages, by the kernel's own list where it is legal. */
enum gpu_status qsa_run_attention(const struct qsa_run *r);
/* Copies the lists the kernel made to the host, legal ones to the array `legal`. */
enum gpu_status qsa_run_read_lists(struct qsa_run *r);
enum gpu_status qsa_run_upload(const struct qsa_run *r, const char *name, uint64_t offset_bytes,
                               const void *data, uint64_t bytes);

/* Fills what the shared outputs and the attention must be. */
struct qsa_judge {
    const struct case_line *c;
    const struct instance *in;
    const struct ref_error_model *model;
    const uint8_t *const *got;
    struct expected *e;
    int32_t *legal; /* [rows, topk]: the kernel's lists as consumers were given them */
};
struct expected *qsa_judge_of(const struct qsa_judge *j, const char *name);
const void *qsa_judge_got(const struct qsa_judge *j, const char *name);
/* Opens with the legal lists made; false: out of memory, and nothing can pass. */
bool qsa_judge_open(struct qsa_judge *j);
void qsa_judge_close(struct qsa_judge *j);
void qsa_judge_keys_and_queries(const struct qsa_judge *j);
void qsa_judge_lists(const struct qsa_judge *j);
void qsa_judge_attention(const struct qsa_judge *j, const char *name);

/* A list without entries that are no block visible to the row, or a block for the second time; true
 * if there were none. */
bool qsa_pipeline_legal_list(const struct case_line *c, uint32_t row, const int32_t *list,
                             int32_t *legal);
/* Draws everything the two pipelines have in common; the rows are set. */
void qsa_pipeline_sample(struct case_line *c, struct rng *r, enum tier tier, uint64_t index);

#endif
