/* The search for failing cases without a coverage engine: cases are changed at random, those that
 * bring new geometry classes are kept and changed again. Works on either backend. */
#ifndef ATTEST_FUZZ_RUN_H
#define ATTEST_FUZZ_RUN_H

#include "harness/fuzz/state.h"
#include "harness/session/options.h"
#include "harness/verify/verify.h"

struct fuzz_plan {
    const struct op *ops[64];
    uint32_t n_ops;
    struct verify_context context;
    const struct options *options; /* jobs, budget, timeout, tier, trace, state, findings, quiet */
};

/* Runs until the budget is spent or SIGINT; prints its progress and findings, and writes each finding
 * to the findings folder as one line, after shrinking it. Returns the exit code. */
int fuzz_run(const struct fuzz_plan *plan, struct fuzz_state *state);

#endif
