#include "harness/run/pool_worker.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* As large as a main thread's: thread-local storage (kept rows, cases) lies in it too. */
enum { THREAD_STACK_BYTES = 16 << 20 };
/* Every case allocates and frees arrays of about the same sizes: below this they stay at hand, and
 * do not cost page faults, for which threads would wait in turn. */
enum { KEPT_BYTES = 32 << 20 };

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

/* The child's side of one worker. */
struct server {
    const struct pool_config *config;
    int jobs, results;
};

static void *serve(void *argument)
{
    static _Thread_local struct message message;
    const struct server *s = argument;
    void *state = NULL;
    uint64_t index;
    while (read_all(s->jobs, &index, sizeof index)) {
        memset(&message, 0, sizeof message);
        message.healthy = s->config->work(s->config->shared, &state, index, &message.result);
        if (!write_all(s->results, &message, sizeof message) || !message.healthy) break;
    }
    return NULL;
}

void worker_keep_memory(void)
{
    mallopt(M_MMAP_THRESHOLD, KEPT_BYTES);
    mallopt(M_TRIM_THRESHOLD, 4 * KEPT_BYTES);
}

/* Pipes stay open to the end: a thread that has left must not look like a process that died. */
static _Noreturn void child_main(struct server *servers, uint32_t n)
{
    pthread_attr_t attributes;
    pthread_t threads[n];
    uint32_t started = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGINT, SIG_IGN);
    worker_keep_memory();
    if (n == 1) {
        serve(servers);
        _exit(0);
    }
    if (pthread_attr_init(&attributes) ||
        pthread_attr_setstacksize(&attributes, THREAD_STACK_BYTES))
        _exit(1);
    for (; started < n; started++)
        if (pthread_create(&threads[started], &attributes, serve, &servers[started])) _exit(1);
    for (uint32_t i = 0; i < n; i++) pthread_join(threads[i], NULL);
    _exit(0);
}

static void close_pair(const int *fds)
{
    close(fds[0]);
    close(fds[1]);
}

/* pipes[i]: reading and writing end for jobs, then for results. */
static bool make_pipes(int (*pipes)[4], uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        bool first = pipe(pipes[i]) == 0;
        if (first && pipe(pipes[i] + 2) == 0) continue;
        if (first) close_pair(pipes[i]);
        while (i--) {
            close_pair(pipes[i]);
            close_pair(pipes[i] + 2);
        }
        return false;
    }
    return true;
}

static _Noreturn void become_child(const struct pool_config *config, int (*pipes)[4], uint32_t n,
                                   const struct worker *all, uint32_t n_all)
{
    struct server servers[n];
    for (uint32_t i = 0; i < n_all; i++) {
        if (!all[i].process) continue;
        close(all[i].jobs);
        close(all[i].results);
    }
    for (uint32_t i = 0; i < n; i++) {
        close(pipes[i][1]);
        close(pipes[i][2]);
        servers[i] = (struct server){config, pipes[i][0], pipes[i][3]};
    }
    child_main(servers, n);
}

bool process_start(const struct pool_config *config, struct process *p, struct worker *w, uint32_t n,
                   const struct worker *all, uint32_t n_all)
{
    int pipes[n][4];
    if (!make_pipes(pipes, n)) return false;
    fflush(NULL);
    p->pid = fork();
    if (p->pid == 0) become_child(config, pipes, n, all, n_all);
    bool started = p->pid > 0;
    if (!started) p->pid = 0;
    p->workers = n;
    p->leaving = false;
    for (uint32_t i = 0; i < n; i++) {
        close(pipes[i][0]);
        close(pipes[i][3]);
        if (!started) {
            close(pipes[i][1]);
            close(pipes[i][2]);
            continue;
        }
        w[i].process = p;
        w[i].jobs = pipes[i][1];
        w[i].results = pipes[i][2];
        w[i].busy = false;
        w[i].received = 0;
    }
    return started;
}

int process_end(struct process *p, bool kill_it)
{
    int status = 0;
    if (!p->pid) return 0;
    if (kill_it) kill(p->pid, SIGKILL);
    while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR) continue;
    p->pid = 0;
    return status;
}

void worker_give(struct worker *w, uint64_t job, double deadline)
{
    w->job = job;
    w->busy = true;
    w->received = 0;
    w->deadline = deadline;
    /* A worker that died between jobs is noticed by its closed result pipe. */
    write_all(w->jobs, &w->job, sizeof w->job);
}

enum arrival worker_receive(struct worker *w)
{
    ssize_t n;
    do n = read(w->results, (char *)w->message + w->received, sizeof *w->message - w->received);
    while (n < 0 && errno == EINTR);
    if (n <= 0) return GONE;
    w->received += (size_t)n;
    return w->received < sizeof *w->message ? ARRIVING : ARRIVED;
}

void worker_dismiss(struct worker *w)
{
    if (w->jobs >= 0) close(w->jobs);
    w->jobs = -1;
}

void worker_close(struct worker *w)
{
    worker_dismiss(w);
    close(w->results);
    w->process = NULL;
    w->busy = false;
}
