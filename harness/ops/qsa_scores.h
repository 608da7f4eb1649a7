/* What qsa_score_rows and qsa_score_rows_tc share: data, certificate, samples. Keys rows, pos,
 * ratio, blocks, pad, heads, hd, dead, change, double, regime; numbers n_heads and last_seen. */
#ifndef ATTEST_OPS_QSA_SCORES_H
#define ATTEST_OPS_QSA_SCORES_H

#include "harness/ops/qsa_common.h"

/* The numbers but for ends_of_range; first_seen and last_seen are the blocks that the first and the
 * last row see. */
/* clang-format off */
#define QSA_SCORES_NUMBERS                                                                         \
    {"n_blocks_max", "blocks"},                                                                    \
    {"first_pos", "pos"},                                                                          \
    {"score_stride", "blocks + pad"},                                                              \
    {"n_heads", "heads + dead"},                                                                   \
    {"first_seen", "(pos + 1)/ratio"},                                                             \
    {"last_seen", "rows ? (pos + rows)/ratio : 0"}
/* clang-format on */
/* Queries; rows past the case's are poison, dead heads 0. */
bool qsa_scores_fill_queries(const struct filling *f);
/* Keys; those that no row sees are poison. */
bool qsa_scores_fill_keys(const struct filling *f);
/* struct op's certify, for a scorer of that kind. */
uint32_t qsa_scores_certify(const struct case_line *c, const struct instance *in,
                            enum ref_qsa_scorer scorer, struct expected *e);
/* Draws positions, ratio and columns for `rows` rows that see about `blocks` blocks. */
void qsa_scores_sample_rows(struct case_line *c, struct rng *r, uint32_t rows, uint32_t blocks);

/* Relations that need no word on the arithmetic. */
#define QSA_LATER_KEYS_CHANGED                                                        \
    "later-keys-changed", RELATION_SAME_BITS, "change < 0 && first_seen < last_seen", \
        "change = draw(first_seen, last_seen - 1)",                                   \
        "(pos + row + 1)/ratio <= new.change ? row : -1"

#endif
