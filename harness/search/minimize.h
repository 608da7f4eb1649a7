/* Shrinking a failing case: geometry first, then structure, then regime and seed, keeping the same
 * kind of failure. */
#ifndef ATTEST_MINIMIZE_H
#define ATTEST_MINIMIZE_H

#include "harness/case/case.h"
#include "harness/judge/result.h"
#include "harness/verify/verify.h"

struct minimize_options {
    double budget_s;   /* stop after this long */
    double timeout_s;  /* per trial */
    uint32_t jobs;
    bool progress;     /* a line on stderr for each step down */
    const volatile bool *stop; /* set to end early with what was found so far; may be NULL */
};

/* Replaces *c by a smaller case that fails in the same way, and *failure by its result. Runs the
 * case first: false, with a message, if it does not fail at all. *trials counts the cases run. */
bool minimize_case(const struct verify_context *context, const struct minimize_options *options,
                   struct case_line *c, struct result *failure, uint64_t *trials, char *error,
                   uint32_t error_size);
/* Whether two failures are of the same kind: the same check, on the same tensor. */
bool minimize_same_kind(const struct result *a, const struct result *b);
#endif
