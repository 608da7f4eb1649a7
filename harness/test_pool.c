#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/pool.h"

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
    struct pool_config config = {3, 0.5, work, done, NULL, &t, NULL};
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
    struct pool_config config = {2, 1, work, done, NULL, &t, NULL};
    cr_assert(pool_run(&config, 0, error, sizeof error));
}
