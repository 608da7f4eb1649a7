#include <criterion/criterion.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/run/pool.h"

enum { JOBS = 40 };

struct tally {
    uint32_t seen[JOBS];
    struct result last[JOBS];
};

/* Job 7 kills its process, job 11 hangs, job 13 exits, job 17 asks for a fresh worker. */
static bool work(void *shared, void **state, uint64_t index, struct result *r)
{
    if (index == 7) raise(SIGKILL);
    if (index == 11)
        for (;;) pause();
    if (index == 13) _exit(5);
    r->verdict = VERDICT_PASS;
    r->compared = index * index;
    return index != 17;
}

static void done(void *shared, uint64_t index, const struct result *r)
{
    struct tally *t = shared;
    t->seen[index]++;
    t->last[index] = *r;
}

Test(pool, a_job_that_kills_its_process_costs_only_itself)
{
    static struct tally t;
    char error[256];
    struct pool_config config = {.workers = 3, .timeout_s = 0.5, .work = work, .done = done, .shared = &t};
    cr_assert(pool_run(&config, JOBS, error, sizeof error), "%s", error);
    for (uint64_t i = 0; i < JOBS; i++) {
        cr_assert_eq(t.seen[i], 1, "job %d was reported %u times", (int)i, t.seen[i]);
        bool bad = i == 7 || i == 11 || i == 13;
        cr_assert_eq(t.last[i].verdict, bad ? VERDICT_FAIL : VERDICT_PASS, "job %d", (int)i);
        if (!bad) cr_assert_eq(t.last[i].compared, i * i);
    }
    cr_assert_str_eq(t.last[7].check, "crash");
    cr_assert_str_eq(t.last[11].check, "hang");
    cr_assert(strstr(t.last[7].text, "signal 9"), "%s", t.last[7].text);
    cr_assert(strstr(t.last[13].text, "exit status 5"), "%s", t.last[13].text);
}

Test(pool, no_jobs_is_no_work)
{
    static struct tally t;
    char error[256];
    struct pool_config config = {.workers = 2, .timeout_s = 1, .work = work, .done = done, .shared = &t};
    cr_assert(pool_run(&config, 0, error, sizeof error));
}

/* Workers that are threads of one process. The same jobs kill it, hang and exit; job 19 fails, and
 * job 20 where 19 has failed in its process. */
static _Atomic uint32_t threads_here;
static _Atomic bool culprit_was_here;

static bool shared_work(void *shared, void **state, uint64_t index, struct result *r)
{
    if (!*state) {
        *state = &threads_here;
        threads_here++;
    }
    r->verdict = VERDICT_PASS;
    r->compared = index * index;
    if (index == 7 || index == 11 || index == 13) return work(NULL, state, index, r);
    if (index == 19) {
        culprit_was_here = true;
        usleep(20000); /* so that job 20 is given to this process */
        r->verdict = VERDICT_FAIL;
    }
    if (index == 20) {
        usleep(10000);
        if (culprit_was_here) r->verdict = VERDICT_ERROR;
    }
    return r->verdict == VERDICT_PASS;
}

static const struct tally *run_shared(uint32_t processes)
{
    static struct tally t;
    char error[256];
    struct pool_config config = {.workers = 4, .timeout_s = 1, .work = shared_work, .done = done,
                                 .shared = &t, .processes = processes};
    cr_assert(pool_run(&config, JOBS, error, sizeof error), "%s", error);
    for (uint64_t i = 0; i < JOBS; i++)
        cr_assert_eq(t.seen[i], 1, "job %d was reported %u times", (int)i, t.seen[i]);
    return &t;
}

static void expect_as_alone(const struct tally *t)
{
    for (uint64_t i = 0; i < JOBS; i++) {
        bool bad = i == 7 || i == 11 || i == 13 || i == 19;
        cr_assert_eq(t->last[i].verdict, bad ? VERDICT_FAIL : VERDICT_PASS, "job %d: %s", (int)i,
                     t->last[i].text);
        if (!bad) cr_assert_eq(t->last[i].compared, i * i);
    }
    cr_assert_str_eq(t->last[7].check, "crash");
    cr_assert_str_eq(t->last[11].check, "hang");
    cr_assert(strstr(t->last[7].text, "signal 9"), "%s", t->last[7].text);
    cr_assert(strstr(t->last[13].text, "exit status 5"), "%s", t->last[13].text);
}

Test(pool, threads_of_one_process_fail_as_they_would_alone)
{
    expect_as_alone(run_shared(1));
}

Test(pool, two_shared_processes_do_so_too)
{
    expect_as_alone(run_shared(2));
}

/* Fails with other threads in its process, passes alone. The first jobs wait for each other. */
static bool passes_alone(void *shared, void **state, uint64_t index, struct result *r)
{
    if (!*state) {
        *state = &threads_here;
        threads_here++;
    }
    while (index < 4 && threads_here < 4) sched_yield();
    r->verdict = index == 5 && threads_here > 1 ? VERDICT_FAIL : VERDICT_PASS;
    snprintf(r->text, sizeof r->text, "  as seen\n");
    return r->verdict == VERDICT_PASS;
}

Test(pool, a_failure_that_nothing_shows_alone_is_not_lost)
{
    static struct tally t;
    char error[256];
    struct pool_config config = {.workers = 4, .timeout_s = 5, .work = passes_alone,
                                 .done = done, .shared = &t, .processes = 1};
    cr_assert(pool_run(&config, JOBS, error, sizeof error), "%s", error);
    for (uint64_t i = 0; i < JOBS; i++) {
        cr_assert_eq(t.seen[i], 1);
        cr_assert_eq(t.last[i].verdict, i == 5 ? VERDICT_FAIL : VERDICT_PASS, "job %d", (int)i);
    }
    cr_assert(strstr(t.last[5].text, "as seen\n  it passed when it ran alone"), "%s", t.last[5].text);
}

/* Every job fails: after a few processes each worker has its own. */
static bool always_fails(void *shared, void **state, uint64_t index, struct result *r)
{
    r->verdict = VERDICT_FAIL;
    return false;
}

Test(pool, common_failures_are_all_reported_once)
{
    static struct tally t;
    char error[256];
    struct pool_config config = {.workers = 4, .timeout_s = 5, .work = always_fails, .done = done,
                                 .shared = &t, .processes = 1};
    cr_assert(pool_run(&config, JOBS, error, sizeof error), "%s", error);
    for (uint64_t i = 0; i < JOBS; i++) {
        cr_assert_eq(t.seen[i], 1);
        cr_assert_eq(t.last[i].verdict, VERDICT_FAIL, "job %d", (int)i);
    }
}

/* Interrupted while a suspect waits: it is reported as it failed. */
static volatile bool stop_now;

static void tick_stop(void *shared)
{
    stop_now = true;
}

static bool slow_failure(void *shared, void **state, uint64_t index, struct result *r)
{
    r->verdict = index == 0 ? VERDICT_FAIL : VERDICT_PASS;
    if (index) usleep(600000);
    return index != 0;
}

Test(pool, a_suspect_is_reported_when_the_run_is_stopped)
{
    static struct tally t;
    char error[256];
    struct pool_config config = {.workers = 2, .timeout_s = 5, .work = slow_failure, .done = done,
                                 .tick = tick_stop, .shared = &t, .stop = &stop_now,
                                 .processes = 1};
    cr_assert(pool_run(&config, JOBS, error, sizeof error), "%s", error);
    cr_assert_eq(t.seen[0], 1);
    cr_assert_eq(t.last[0].verdict, VERDICT_FAIL);
}
