/* How long the checker itself takes over a case, and with what. */
#ifndef ATTEST_BENCH_CHECKER_H
#define ATTEST_BENCH_CHECKER_H

#include "harness/case/plan.h"
#include "harness/judge/result.h"
#include "harness/run/context.h"

struct checker_figures {
    uint64_t cases;              /* refused ones are left out */
    double seconds[PHASE_COUNT]; /* of all processes together: processor time on the CPU backend,
                                    time on the wall where a GPU is waited for */
    double wall; /* from the moment that all processes are ready until the last one is done */
};

/* Does the cases of a plan in `processes` processes of their own, each after a case that warms it
 * up. context->device must not be open. False with the verdict and text in *result. */
bool checker_measure(const struct verify_context *context, const struct plan *plan,
                     uint32_t processes, struct checker_figures *figures, struct result *result);
#endif
