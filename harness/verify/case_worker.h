/* What a worker of the pool keeps between cases: its own, for workers may be threads. */
#ifndef ATTEST_CASE_WORKER_H
#define ATTEST_CASE_WORKER_H

#include "harness/verify/verify.h"

struct case_worker {
    struct verify_context context; /* a copy, with the device it opens */
    struct case_line c;
};

/* The worker behind *state, made at first. NULL with an erroneous result if there is no memory. */
struct case_worker *case_worker_get(void **state, const struct verify_context *context,
                                    struct result *result);
/* Whether its process can take another case after this result. A device context that saw a fault is
 * lost, and a wrong kernel may have written into memory that the next case gets. */
bool case_worker_healthy(const struct case_worker *worker, const struct result *result);
/* The case ran, but compared nothing. */
bool result_is_empty(const struct result *result);
#endif
