/* Whether a kernel that reads past an input is seen, tried on every input of every operation: the
 * buffer is made one element shorter than the case says, so that a right kernel's read of the last
 * element is a read of one element past the end. Where the kernel wants its buffers aligned they are
 * one aligned unit shorter, and where no case reads the last element (a geometry vector of which an
 * operation takes some) as much shorter as it takes. */
#ifndef ATTEST_FENCES_H
#define ATTEST_FENCES_H

#include "harness/case/case.h"
#include "harness/judge/result.h"
#include "harness/verify/verify.h"

enum { FENCE_INPUTS_MAX = 32 };

/* The names of the operation's inputs that have buffers of their own, as its small cases have them:
 * names[FENCE_INPUTS_MAX] gets pointers to constant text. Returns their number. */
uint32_t fences_inputs(const struct op *op, uint64_t seed, const char **names);

/* Draws cases until one both passes as it is and is stopped with the input cut by an element.
 * result: VERDICT_PASS with the case in *c, its text what stopped it, `compared` the cases that were
 * run and `identical` the elements cut; VERDICT_FAIL if no case was stopped; VERDICT_ERROR as
 * verify_case has it. */
void fences_try(struct verify_context *context, const struct op *op, const char *input,
                uint64_t seed, struct case_line *c, struct result *result);
#endif
