/* Where the time of a case goes. Every moment belongs to one phase. */
#ifndef ATTEST_PHASES_H
#define ATTEST_PHASES_H

#include <stdbool.h>

enum phase {
    PHASE_OTHER,     /* refusal agreement, digests, allocation, what no other phase covers */
    PHASE_BUILD,     /* the case's data */
    PHASE_BUFFERS,   /* device buffers made, filled and given back */
    PHASE_LAUNCH,    /* the plain launches, until the kernel is done */
    PHASE_COLLECT,   /* guards, inputs and outputs after them */
    PHASE_ORACLE,
    PHASE_COMPARE,   /* runs with each other and with the contract */
    PHASE_TRACED,    /* all of the instrumented run */
    PHASE_RELATIONS, /* all of the changed cases */
    PHASE_COUNT
};
extern const char *const phase_names[PHASE_COUNT];

struct phase_clock {
    double seconds[PHASE_COUNT];
    bool processor_time; /* of the thread, instead of time on the wall */
    enum phase now;
    double since;
};

/* A NULL clock does nothing. */
void phases_start(struct phase_clock *clock);
void phases_stop(struct phase_clock *clock);
/* Time counts for `phase` until the end, unless all that goes on belongs to a phase already
 * (PHASE_TRACED, PHASE_RELATIONS). Returns what phase_end needs. */
enum phase phase_begin(struct phase_clock *clock, enum phase phase);
void phase_end(struct phase_clock *clock, enum phase before);
#endif
