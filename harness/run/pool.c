#include "harness/run/pool.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "harness/run/pool_suspects.h"
#include "harness/run/pool_worker.h"

enum {
    ALONE_MAX = 4,          /* processes that run suspects: a context takes a third of a second */
    SHARED_REPLACED_MAX = 3 /* then failures are common, and one process a worker is faster */
};

struct pool {
    const struct pool_config *config;
    struct worker *workers; /* config->workers, then ALONE_MAX that run suspects */
    uint32_t n_workers;
    struct process *processes; /* one a worker; a shared one is its first worker's */
    struct suspects suspects;
    uint32_t share; /* workers a process */
    uint32_t started, shared_replaced;
    uint64_t next, count;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool stopped(const struct pool *pool)
{
    return pool->config->stop && *pool->config->stop;
}

static bool is_alone(const struct pool *pool, const struct worker *w)
{
    return w >= pool->workers + pool->config->workers;
}

static bool start(struct pool *pool, struct worker *w)
{
    uint32_t i = (uint32_t)(w - pool->workers), n = 1;
    if (!is_alone(pool, w)) {
        n = pool->share;
        i -= i % n;
        if (n > pool->config->workers - i) n = pool->config->workers - i;
    }
    pool->processes[i].number = ++pool->started;
    return process_start(pool->config, &pool->processes[i], &pool->workers[i], n, pool->workers,
                         pool->n_workers);
}

/* The next job for an idle worker, if there is one. */
static bool give_job(struct pool *pool, struct worker *w)
{
    uint64_t job;
    if (stopped(pool) || (w->process && w->process->leaving)) return true;
    if (is_alone(pool, w)) {
        if (!suspects_take(&pool->suspects, &job)) return true;
    } else {
        if (pool->next >= pool->count) return true;
        job = pool->next++;
    }
    if (!w->process && !start(pool, w)) return false;
    worker_give(w, job, now() + pool->config->timeout_s);
    return true;
}

static void report(void *context, uint64_t job, const struct result *r)
{
    struct pool *pool = context;
    pool->config->done(pool->config->shared, job, r);
}

/* A job's message is there, from the worker or made up for it. */
static void finish(struct pool *pool, struct worker *w)
{
    const struct result *r = &w->message->result;
    bool bad = r->verdict == VERDICT_FAIL || r->verdict == VERDICT_ERROR;
    w->busy = false;
    if (!w->message->healthy) w->process->leaving = true;
    if (is_alone(pool, w)) {
        suspects_settle(&pool->suspects, w->job, r);
        if (!suspects_waiting(&pool->suspects)) w->process->leaving = true;
    } else if (w->process->workers > 1 && bad && !w->message->healthy) {
        suspects_add(&pool->suspects, w->job, w->process->number, r);
    } else {
        report(pool, w->job, r);
    }
}

/* Lets go of the workers of a process that has ended. */
static void ended(struct pool *pool, struct process *p)
{
    for (uint32_t i = 0; i < pool->n_workers; i++)
        if (pool->workers[i].process == p) worker_close(&pool->workers[i]);
    if (p->workers > 1 && ++pool->shared_replaced >= SHARED_REPLACED_MAX) pool->share = 1;
    suspects_close(&pool->suspects, p->number);
}

static void dismiss(struct pool *pool, struct process *p)
{
    for (uint32_t i = 0; i < pool->n_workers; i++)
        if (pool->workers[i].process == p) worker_dismiss(&pool->workers[i]);
}

static void end_if_idle(struct pool *pool, struct process *p)
{
    for (uint32_t i = 0; i < pool->n_workers; i++)
        if (pool->workers[i].process == p && pool->workers[i].busy) return;
    dismiss(pool, p);
    process_end(p, false);
    ended(pool, p);
}

static void make_lost(struct pool *pool, struct worker *w, bool timed_out, int status)
{
    struct result *r = &w->message->result;
    memset(w->message, 0, sizeof *w->message);
    r->verdict = VERDICT_FAIL;
    if (timed_out) {
        snprintf(r->check, sizeof r->check, "hang");
        snprintf(r->text, sizeof r->text,
                 "  not finished after %.0f s; its process was ended\n"
                 "  a large case may only need longer: --timeout S\n",
                 pool->config->timeout_s);
    } else {
        snprintf(r->check, sizeof r->check, "crash");
        snprintf(r->text, sizeof r->text, "  the worker process died (%s %d)\n",
                 WIFSIGNALED(status) ? "signal" : "exit status",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
}

/* The process is gone in the middle of its jobs, or has to go for one that ran out of time: those
 * jobs fail, and only those. What other workers had sent before counts. */
static void lose(struct pool *pool, struct process *p, double time)
{
    int status = process_end(p, time > 0);
    dismiss(pool, p);
    for (uint32_t i = 0; i < pool->n_workers; i++) {
        struct worker *w = &pool->workers[i];
        enum arrival arrival = ARRIVING;
        if (w->process != p || !w->busy) continue;
        while (arrival == ARRIVING) arrival = worker_receive(w);
        if (arrival == GONE) make_lost(pool, w, time > w->deadline, status);
        finish(pool, w);
    }
    ended(pool, p);
}

static void receive(struct pool *pool, struct worker *w)
{
    struct process *p = w->process;
    switch (worker_receive(w)) {
    case ARRIVING: return;
    case GONE: lose(pool, p, 0); return;
    case ARRIVED: break;
    }
    finish(pool, w);
    if (p->leaving) end_if_idle(pool, p);
}

static void wait_for_news(struct pool *pool, struct pollfd *polls)
{
    for (uint32_t i = 0; i < pool->n_workers; i++)
        polls[i] = (struct pollfd){pool->workers[i].process ? pool->workers[i].results : -1, POLLIN,
                                   0};
    poll(polls, pool->n_workers, 250);
    double time = now();
    for (uint32_t i = 0; i < pool->n_workers; i++) {
        struct worker *w = &pool->workers[i];
        if (!w->process || polls[i].fd != w->results) continue; /* ended since the poll */
        if (polls[i].revents)
            receive(pool, w);
        else if (w->busy && time > w->deadline)
            lose(pool, w->process, time);
    }
}

static bool all_idle(const struct pool *pool)
{
    for (uint32_t i = 0; i < pool->n_workers; i++) {
        if (pool->workers[i].busy) return false;
    }
    return true;
}

static bool make_pool(struct pool *pool, const struct pool_config *config, uint64_t count)
{
    uint32_t processes = config->processes ? config->processes : config->workers;
    bool fine = true;
    if (processes > config->workers) processes = config->workers;
    *pool = (struct pool){.config = config, .count = count, .suspects = {.report = report, .context = pool}};
    pool->n_workers = config->workers + ALONE_MAX;
    pool->share = (config->workers + processes - 1) / processes;
    pool->workers = calloc(pool->n_workers, sizeof *pool->workers);
    pool->processes = calloc(pool->n_workers, sizeof *pool->processes);
    for (uint32_t i = 0; pool->workers && i < pool->n_workers; i++) {
        pool->workers[i].message = malloc(sizeof(struct message));
        if (!pool->workers[i].message) fine = false;
    }
    return fine && pool->workers && pool->processes;
}

static void drop_pool(struct pool *pool, bool kill_it)
{
    for (uint32_t i = 0; pool->processes && i < pool->n_workers; i++) {
        dismiss(pool, &pool->processes[i]);
        process_end(&pool->processes[i], kill_it);
    }
    for (uint32_t i = 0; pool->workers && i < pool->n_workers; i++) {
        if (pool->workers[i].process) worker_close(&pool->workers[i]);
        free(pool->workers[i].message);
    }
    free(pool->workers);
    free(pool->processes);
}

static bool give_jobs(struct pool *pool)
{
    bool fine = true;
    for (uint32_t i = 0; i < pool->n_workers && fine; i++) {
        if (!pool->workers[i].busy) fine = give_job(pool, &pool->workers[i]);
    }
    return fine;
}

bool pool_run(const struct pool_config *config, uint64_t count, char *error, uint32_t error_size)
{
    struct pool pool;
    struct pollfd *polls = calloc(config->workers + ALONE_MAX, sizeof *polls);
    bool fine;
    double next_tick = now() + 0.25;
    if (!make_pool(&pool, config, count) || !polls) {
        snprintf(error, error_size, "no memory for %u workers", config->workers);
        drop_pool(&pool, true);
        free(polls);
        return false;
    }
    signal(SIGPIPE, SIG_IGN);
    for (;;) {
        fine = give_jobs(&pool);
        if (!fine || all_idle(&pool)) break;
        wait_for_news(&pool, polls);
        if (config->tick && now() >= next_tick) {
            config->tick(config->shared);
            next_tick = now() + 0.25;
        }
    }
    if (!fine) snprintf(error, error_size, "cannot start a worker process: %s", strerror(errno));
    suspects_finish(&pool.suspects);
    drop_pool(&pool, !fine);
    free(polls);
    return fine;
}
