#include "harness/run/phases.h"

#include <stddef.h>
#include <time.h>

const char *const phase_names[PHASE_COUNT] = {
    [PHASE_OTHER] = "other",     [PHASE_BUILD] = "build",     [PHASE_BUFFERS] = "buffers",
    [PHASE_LAUNCH] = "launch",   [PHASE_COLLECT] = "collect", [PHASE_ORACLE] = "oracle",
    [PHASE_COMPARE] = "compare", [PHASE_TRACED] = "traced",   [PHASE_RELATIONS] = "relations"};

static double read_clock(const struct phase_clock *clock)
{
    struct timespec t;
    clock_gettime(clock->processor_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void turn_to(struct phase_clock *clock, enum phase phase)
{
    double time = read_clock(clock);
    clock->seconds[clock->now] += time - clock->since;
    clock->since = time;
    clock->now = phase;
}

void phases_start(struct phase_clock *clock)
{
    if (!clock) return;
    clock->now = PHASE_OTHER;
    clock->since = read_clock(clock);
}

void phases_stop(struct phase_clock *clock)
{
    if (clock) turn_to(clock, PHASE_OTHER);
}

enum phase phase_begin(struct phase_clock *clock, enum phase phase)
{
    if (!clock) return PHASE_OTHER;
    enum phase before = clock->now;
    if (before != PHASE_TRACED && before != PHASE_RELATIONS) turn_to(clock, phase);
    return before;
}

void phase_end(struct phase_clock *clock, enum phase before)
{
    if (clock && clock->now != before) turn_to(clock, before);
}
