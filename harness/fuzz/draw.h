/* The cases of one round of a fuzz run: a function of the state alone, so that a run can be
 * repeated. */
#ifndef ATTEST_FUZZ_DRAW_H
#define ATTEST_FUZZ_DRAW_H

#include "harness/case/op.h"
#include "harness/fuzz/state.h"
#include "harness/fuzz/work.h"

struct fuzz_draw {
    const struct op *const *ops;
    uint32_t n_ops;
    const struct work_limit *limits; /* [n_ops] */
    enum tier tier;
    const struct fuzz_state *state;
    struct rng r;
};
/* Starts the state's next round. */
void fuzz_draw_start(struct fuzz_draw *d);
/* The next case: small enough to run, or one that its operation refuses. */
void fuzz_draw_case(struct fuzz_draw *d, struct case_line *c);

#endif
