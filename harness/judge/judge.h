/* The outputs of a run against what a right kernel must produce. */
#ifndef ATTEST_JUDGE_H
#define ATTEST_JUDGE_H

#include "harness/case/expected.h"
#include "harness/judge/result.h"

/* Every output against its contract; `label` names the check in a failure. */
bool judge_outputs(const struct instance *in, const struct outputs *out, const struct expected *e,
                   const char *label, struct result *result);
#endif
