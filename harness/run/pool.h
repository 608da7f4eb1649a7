/* Worker processes that run cases, so that a kernel that hangs or kills its process costs that case
 * and not the run.
 *
 * Workers of a device may be threads of a few processes instead (pool_config.processes): a device
 * takes turns between processes, and each turn costs more than a small case. There a failure may be
 * another case's fault, so it is a suspicion only: its process takes no more jobs and is replaced,
 * and every job in it that did not end well is run again alone, in a process of its own, with that
 * result for its result. If none of them fails alone they are all reported as they failed
 * together: something happened, and it must not be lost. A run in which failures turn out to be
 * common goes on with one process a worker. */
#ifndef ATTEST_POOL_H
#define ATTEST_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "harness/judge/result.h"

/* Does job `index` in a worker. `state` is the worker's own, NULL at first. Returns true if the
 * worker can go on; false if its process must be replaced (a lost device context). With workers
 * that share a process it is called by several threads at once. */
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
    uint32_t processes; /* that the workers share, at most one each; 0: each has its own */
};
/* Runs jobs 0..count-1. False, with a message, if the machine would not give processes or pipes. */
bool pool_run(const struct pool_config *config, uint64_t count, char *error, uint32_t error_size);
#endif
