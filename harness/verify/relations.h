/* Metamorphic relations (contracts.md, section 3): a case changed so that its outputs must stay, double or
 * keep their limits. */
#ifndef ATTEST_RELATIONS_H
#define ATTEST_RELATIONS_H

#include "harness/run/run.h"

/* Runs every relation of the operation that applies to the case: a changed case is built while a GPU
 * is at the one before. `out` and `e` are the outputs and limits of the case itself, which ran with
 * `options`. False with the verdict set. */
bool relations_hold(struct verify_context *context, const struct case_line *c,
                    const struct instance *in, const struct outputs *out,
                    const struct expected *e, const struct run_options *options,
                    struct result *result);
#endif
