/* Jobs that failed in a process shared with other jobs, until they have run alone. The jobs that
 * failed in one process are reported together: as they ended alone if any of them failed alone too,
 * otherwise as they failed, with a line that says so. */
#ifndef ATTEST_POOL_SUSPECTS_H
#define ATTEST_POOL_SUSPECTS_H

#include <stdbool.h>
#include <stdint.h>

#include "harness/judge/result.h"

typedef void suspects_report(void *context, uint64_t job, const struct result *result);

struct suspect;
struct suspects {
    struct suspect *list;
    uint32_t n, room;
    suspects_report *report;
    void *context;
};

/* A job failed in process `number`. Reported at once if there is no memory to keep it. */
void suspects_add(struct suspects *s, uint64_t job, uint32_t number, const struct result *together);
/* The next job to be run alone. False if there is none. */
bool suspects_take(struct suspects *s, uint64_t *job);
bool suspects_waiting(const struct suspects *s);
/* What became of a job that was taken. */
void suspects_settle(struct suspects *s, uint64_t job, const struct result *alone);
/* No more suspects of process `number` will come. */
void suspects_close(struct suspects *s, uint32_t number);
/* At the end of a run: reports what has not run alone as it failed. Frees everything. */
void suspects_finish(struct suspects *s);
#endif
