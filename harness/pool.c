#include "harness/pool.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* What a worker sends back. */
struct message {
    struct result result;
    bool healthy; /* the worker can take another job */
};

struct worker {
    pid_t pid;
    int jobs, results; /* parent's ends */
    bool busy;
    uint64_t job;
    double deadline;
    size_t received; /* bytes of the message that have arrived */
    struct message *message;
};

struct pool {
    const struct pool_config *config;
    struct worker *workers;
    uint64_t next, count, finished;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool write_all(int fd, const void *data, size_t size)
{
    const char *at = data;
    while (size) {
        ssize_t n = write(fd, at, size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += n;
        size -= (size_t)n;
    }
    return true;
}

static bool read_all(int fd, void *data, size_t size)
{
    char *at = data;
    while (size) {
        ssize_t n = read(fd, at, size);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += n;
        size -= (size_t)n;
    }
    return true;
}

static void worker_main(const struct pool_config *config, int jobs, int results)
{
    static struct message message;
    void *state = NULL;
    uint64_t index;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGINT, SIG_IGN);
    while (read_all(jobs, &index, sizeof index)) {
        memset(&message, 0, sizeof message);
        message.healthy = config->work(config->shared, &state, index, &message.result);
        if (!write_all(results, &message, sizeof message) || !message.healthy) break;
    }
    _exit(0);
}

static bool start_worker(struct pool *pool, struct worker *w)
{
    int jobs[2], results[2];
    if (pipe(jobs)) return false;
    if (pipe(results)) {
        close(jobs[0]);
        close(jobs[1]);
        return false;
    }
    fflush(NULL);
    w->pid = fork();
    if (w->pid < 0) return false;
    if (w->pid == 0) {
        close(jobs[1]);
        close(results[0]);
        for (uint32_t i = 0; i < pool->config->workers; i++) {
            if (&pool->workers[i] == w || !pool->workers[i].pid) continue;
            close(pool->workers[i].jobs);
            close(pool->workers[i].results);
        }
        worker_main(pool->config, jobs[0], results[1]);
    }
    close(jobs[0]);
    close(results[1]);
    w->jobs = jobs[1];
    w->results = results[0];
    w->busy = false;
    w->received = 0;
    return true;
}

static int end_worker(struct worker *w, bool kill_it)
{
    int status = 0;
    if (!w->pid) return 0;
    if (kill_it) kill(w->pid, SIGKILL);
    close(w->jobs);
    close(w->results);
    while (waitpid(w->pid, &status, 0) < 0 && errno == EINTR) continue;
    w->pid = 0;
    return status;
}

static bool give_job(struct pool *pool, struct worker *w)
{
    const volatile bool *stop = pool->config->stop;
    if (pool->next >= pool->count || (stop && *stop)) return true;
    if (!w->pid && !start_worker(pool, w)) return false;
    w->job = pool->next++;
    w->busy = true;
    w->received = 0;
    w->deadline = now() + pool->config->timeout_s;
    /* A worker that died between jobs is noticed by its closed result pipe. */
    write_all(w->jobs, &w->job, sizeof w->job);
    return true;
}

static void finish(struct pool *pool, struct worker *w)
{
    w->busy = false;
    pool->finished++;
    pool->config->done(pool->config->shared, w->job, &w->message->result);
}

/* The worker is gone in the middle of a job: that job fails, and only that. */
static void lose(struct pool *pool, struct worker *w, bool timed_out)
{
    int status = end_worker(w, timed_out);
    struct result *r = &w->message->result;
    if (!w->busy) return;
    memset(r, 0, sizeof *r);
    r->verdict = VERDICT_FAIL;
    if (timed_out) {
        snprintf(r->check, sizeof r->check, "hang");
        snprintf(r->text, sizeof r->text, "  not finished after %.0f s; its process was ended\n",
                 pool->config->timeout_s);
    } else {
        snprintf(r->check, sizeof r->check, "crash");
        snprintf(r->text, sizeof r->text, "  the worker process died (%s %d)\n",
                 WIFSIGNALED(status) ? "signal" : "exit status",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
    finish(pool, w);
}

static void receive(struct pool *pool, struct worker *w)
{
    ssize_t n = read(w->results, (char *)w->message + w->received,
                     sizeof *w->message - w->received);
    if (n < 0 && errno == EINTR) return;
    if (n <= 0) {
        lose(pool, w, false);
        return;
    }
    w->received += (size_t)n;
    if (w->received < sizeof *w->message) return;
    finish(pool, w);
    if (!w->message->healthy) end_worker(w, false);
}

static void wait_for_news(struct pool *pool, struct pollfd *polls)
{
    const struct pool_config *config = pool->config;
    for (uint32_t i = 0; i < config->workers; i++)
        polls[i] = (struct pollfd){pool->workers[i].pid ? pool->workers[i].results : -1, POLLIN, 0};
    poll(polls, config->workers, 250);
    double time = now();
    for (uint32_t i = 0; i < config->workers; i++) {
        struct worker *w = &pool->workers[i];
        if (!w->pid) continue;
        if (polls[i].revents)
            receive(pool, w);
        else if (w->busy && time > w->deadline)
            lose(pool, w, true);
    }
}

static bool all_idle(const struct pool *pool)
{
    for (uint32_t i = 0; i < pool->config->workers; i++) {
        if (pool->workers[i].busy) return false;
    }
    return true;
}

bool pool_run(const struct pool_config *config, uint64_t count, char *error, uint32_t error_size)
{
    struct pool pool = {config, NULL, 0, count, 0};
    struct pollfd *polls = calloc(config->workers, sizeof *polls);
    bool fine = true;
    double next_tick = now() + 0.25;
    pool.workers = calloc(config->workers, sizeof *pool.workers);
    for (uint32_t i = 0; pool.workers && i < config->workers; i++) {
        pool.workers[i].message = malloc(sizeof(struct message));
        if (!pool.workers[i].message) fine = false;
    }
    if (!polls || !pool.workers || !fine) {
        snprintf(error, error_size, "no memory for %u workers", config->workers);
        return false;
    }
    signal(SIGPIPE, SIG_IGN);
    for (;;) {
        for (uint32_t i = 0; i < config->workers && fine; i++) {
            if (!pool.workers[i].busy) fine = give_job(&pool, &pool.workers[i]);
        }
        if (!fine || all_idle(&pool)) break;
        wait_for_news(&pool, polls);
        if (config->tick && now() >= next_tick) {
            config->tick(config->shared);
            next_tick = now() + 0.25;
        }
    }
    if (!fine) snprintf(error, error_size, "cannot start a worker process: %s", strerror(errno));
    for (uint32_t i = 0; i < config->workers; i++) {
        end_worker(&pool.workers[i], !fine);
        free(pool.workers[i].message);
    }
    free(pool.workers);
    free(polls);
    return fine;
}
