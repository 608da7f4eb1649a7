#include "harness/bench/checker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "gpu/gpu.h"
#include "harness/run/pool_worker.h"
#include "harness/verify/verify.h"

/* What a process says at its end. */
struct account {
    uint64_t cases;
    double seconds[PHASE_COUNT];
    bool fine;
    struct result result; /* of the case that went wrong */
};

/* The ends of pipes that a process keeps: it says that it is ready, waits until `go` is closed, and
 * says what it did. */
struct measurer {
    pid_t pid;
    int said;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool read_all(int fd, void *data, size_t size)
{
    char *at = data;
    while (size) {
        ssize_t n = read(fd, at, size);
        if (n <= 0) return false;
        at += n;
        size -= (size_t)n;
    }
    return true;
}

static bool write_all(int fd, const void *data, size_t size)
{
    const char *at = data;
    while (size) {
        ssize_t n = write(fd, at, size);
        if (n <= 0) return false;
        at += n;
        size -= (size_t)n;
    }
    return true;
}

static bool one_case(struct verify_context *x, const struct plan *plan, uint64_t index,
                     struct result *r, bool *refused)
{
    static struct case_line c;
    struct job job = plan_job(plan, index);
    bool trace = x->trace;
    char error[512];
    *refused = false;
    if (job.kind != JOB_CASE || !plan_case(plan, &job, &c, error, sizeof error)) return true;
    x->trace = trace && job.index % VERIFY_TRACE_EVERY == 0;
    verify_case(x, &c, r);
    x->trace = trace;
    *refused = r->verdict == VERDICT_REFUSED;
    return *refused || r->verdict == VERDICT_PASS;
}

static void do_cases(struct verify_context *x, const struct plan *plan, uint32_t first,
                     uint32_t stride, int go, int said)
{
    static struct account a;
    struct phase_clock clock = {.processor_time = x->backend == &gpu_backend_simt};
    uint64_t jobs = plan_jobs(plan);
    bool refused;
    char nothing;
    a.fine = first >= jobs || one_case(x, plan, first, &a.result, &refused);
    if (!write_all(said, &a.fine, 1) || read(go, &nothing, 1) != 0) return;
    x->phases = &clock;
    for (uint64_t i = first; i < jobs && a.fine; i += stride) {
        a.fine = one_case(x, plan, i, &a.result, &refused);
        a.cases += !refused;
    }
    memcpy(a.seconds, clock.seconds, sizeof a.seconds);
    write_all(said, &a, sizeof a);
    verify_close(x);
}

static bool start(const struct verify_context *context, const struct plan *plan, uint32_t index,
                  uint32_t processes, const int go[2], struct measurer *p)
{
    int said[2];
    if (pipe(said)) return false;
    fflush(NULL);
    p->pid = fork();
    if (p->pid < 0) return false;
    if (p->pid == 0) {
        struct verify_context x = *context;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        worker_keep_memory();
        close(go[1]);
        close(said[0]);
        do_cases(&x, plan, index, processes, go[0], said[1]);
        _exit(0);
    }
    close(said[1]);
    p->said = said[0];
    return true;
}

/* Adds a process's account; false with the verdict set. */
static bool settle(struct measurer *p, struct checker_figures *f, struct result *r)
{
    static struct account a;
    if (!read_all(p->said, &a, sizeof a))
        return result_fail(r, VERDICT_ERROR, "process", "  a process ended without its figures\n");
    if (!a.fine) *r = a.result;
    f->cases += a.cases;
    for (int i = 0; i < PHASE_COUNT; i++) f->seconds[i] += a.seconds[i];
    return a.fine;
}

bool checker_measure(const struct verify_context *context, const struct plan *plan,
                     uint32_t processes, struct checker_figures *figures, struct result *r)
{
    struct measurer *p = calloc(processes, sizeof *p);
    uint32_t started = 0;
    bool fine = true, ready;
    int go[2];
    memset(figures, 0, sizeof *figures);
    memset(r, 0, sizeof *r);
    if (!p || pipe(go)) {
        free(p);
        return result_fail(r, VERDICT_ERROR, "process", "  no memory or pipe for processes\n");
    }
    while (started < processes && start(context, plan, started, processes, go, &p[started]))
        started++;
    close(go[0]);
    for (uint32_t i = 0; i < started; i++) fine = read_all(p[i].said, &ready, 1) && fine;
    double begin = now();
    close(go[1]);
    for (uint32_t i = 0; i < started; i++) {
        fine = settle(&p[i], figures, r) && fine;
        close(p[i].said);
    }
    figures->wall = now() - begin;
    for (uint32_t i = 0; i < started; i++) waitpid(p[i].pid, NULL, 0);
    free(p);
    if (started < processes)
        return result_fail(r, VERDICT_ERROR, "process", "  %u of %u processes started\n", started,
                           processes);
    return fine;
}
