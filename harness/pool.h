/* Worker processes that run cases, so that a kernel that hangs or kills its process costs that case
 * and not the run. */
#ifndef ATTEST_POOL_H
#define ATTEST_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "harness/result.h"

/* Does job `index` in a worker process. `state` is the worker's own, NULL at first. Returns true if
 * the worker can go on; false if it must be replaced (a lost device context). */
typedef bool pool_work(void *shared, void **state, uint64_t index, struct result *result);
/* Called in the parent for every finished job, in the order of completion. */
typedef void pool_done(void *shared, uint64_t index, const struct result *result);
/* Called in the parent about four times a second. */
typedef void pool_tick(void *shared);

struct pool_config {
    uint32_t workers;
    double timeout_s; /* per job */
    pool_work *work;
    pool_done *done;
    pool_tick *tick;  /* may be NULL */
    void *shared;     /* inherited by the workers as it was at pool_run */
    const volatile bool *stop; /* checked between jobs: set it to end early; may be NULL */
};
/* Runs jobs 0..count-1. False, with a message, if the machine would not give processes or pipes. */
bool pool_run(const struct pool_config *config, uint64_t count, char *error, uint32_t error_size);
#endif
