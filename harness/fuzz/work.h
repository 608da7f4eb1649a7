/* How large a case fuzzing may run: an estimate of the work, learnt from the operation's sampler.
 *
 * The work of an operation is multilinear in the extents that its sampler draws, but for a square in
 * one of them (a mask of S times S). So against a typical case, one with the median of every integer,
 * it is at most the product of (value / median), no factor below 1. A case may run if that product is
 * not above what all but a fifth of the sampler's own cases have, and if no integer exceeds
 * twice the largest that the sampler draws, which bounds the square to 4 times the sampler's. */
#ifndef ATTEST_WORK_H
#define ATTEST_WORK_H

#include "harness/case/case.h"
#include "harness/case/op.h"

struct work_limit {
    const struct op *op;
    double typical[CASE_PARAMS_MAX]; /* median of the parameter; of the list's sum */
    double largest[CASE_PARAMS_MAX]; /* that one integer may reach */
    double elements[CASE_PARAMS_MAX]; /* that one list may have */
    double log2_limit;
};

/* Samples the operation; deterministic. */
void work_learn(struct work_limit *limit, const struct op *op, enum tier tier);
/* log2 of the estimate against the typical case; INFINITY where one integer is too large. */
double work_log2(const struct work_limit *limit, const struct case_line *c);
bool work_fits(const struct work_limit *limit, const struct case_line *c);

#endif
