/* What the descriptors of qsa_score_rows and qsa_score_rows_tc share. Both have the parameters
 * rows, pos, ratio, blocks, pad, heads, hd, dead, double, change, regime, seed. */
#ifndef ATTEST_OPS_QSA_SCORES_H
#define ATTEST_OPS_QSA_SCORES_H

#include "harness/ops/qsa_common.h"

void qsa_scores_gpu_args(const struct case_line *c, struct gpu_qsa_score_rows *a);
void qsa_scores_ref_args(const struct case_line *c, const struct instance *in,
                         struct ref_qsa_score_rows *g);
/* Adds q, block_keys and scores, allocated for `buffer_rows` rows. Keys that no row sees, padding
 * rows and columns are poison. */
bool qsa_scores_build(const struct case_line *c, struct instance *in, uint32_t buffer_rows,
                      enum contract contract);
void qsa_scores_buffers(const struct instance *in, const struct gpu_buffer *buffers,
                        struct gpu_qsa_score_rows *a);
/* The canonical scores in dense logical order [rows, n_blocks_max]. */
void qsa_scores_canonical(const struct case_line *c, const struct instance *in, float *dense);
/* struct op's certify, for a scorer of that kind. */
uint32_t qsa_scores_certify(const struct case_line *c, const struct instance *in,
                            enum ref_qsa_scorer scorer, struct expected *e);

/* Draws positions, ratio and columns for `rows` rows that see about `blocks` blocks. */
void qsa_scores_sample_rows(struct case_line *c, struct rng *r, uint32_t rows, uint32_t blocks);
void qsa_scores_absurd(struct case_line *c, struct rng *r);

bool qsa_scores_edit_pad(const struct case_line *base, struct rng *r, struct case_line *changed);
bool qsa_scores_edit_dead(const struct case_line *base, struct rng *r, struct case_line *changed);
bool qsa_scores_edit_double(const struct case_line *base, struct rng *r, struct case_line *changed);
/* Keys of later blocks changed: rows that do not see them stay. */
bool qsa_scores_edit_later(const struct case_line *base, struct rng *r, struct case_line *changed);
int64_t qsa_scores_row_before(const struct case_line *base, const struct case_line *changed,
                              int64_t row);

#endif
