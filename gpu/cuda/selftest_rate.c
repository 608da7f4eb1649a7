/* Self-test: what the backend costs, alone and with processes side by side. */
#include "internal.h"
#include "selftest_internal.h"

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BUFFERS 8
#define RATE_NS 2000000000ull
#define WORKERS_MAX 16

static bool fill_case(struct selftest *t, struct gpu_buffer *b, uint32_t seed)
{
    static uint32_t noise[4096];
    bool good = true;

    for (uint32_t i = 0; i < BUFFERS && good; i++) {
        uint64_t bytes = 64 + 4 * ((uint64_t)(seed * 2654435761u + i * 40503u) % 4000);
        good =
            selftest_alloc(t, &b[i], "case", bytes, (enum gpu_fence)(i % 2)) &&
            selftest_need(t, gpu_backend_cuda.upload(t->device, &b[i], 0, noise, bytes, &t->report),
                          "upload");
    }
    return good;
}

/* A small case as the harness runs one: eight fresh buffers, two runs, outputs and guards read. */
static bool small_case(struct selftest *t, uint32_t seed)
{
    struct gpu_buffer b[BUFFERS];
    uint32_t got[16];
    bool good = true;

    for (uint32_t run = 0; run < 2 && good; run++) {
        uint32_t n = 16, first = seed + run;
        void *args[] = {&b[0].address, &n, &first};
        good = fill_case(t, b, seed) &&
               selftest_need(t, selftest_run(t, "selftest_iota", n, 0, args), "launch") &&
               selftest_need(
                   t, gpu_backend_cuda.download(t->device, &b[0], 0, got, sizeof got, &t->report),
                   "download");
        for (uint32_t i = 0; i < BUFFERS && good; i++)
            good = selftest_need(t, gpu_backend_cuda.check_guards(t->device, &b[i], &t->report),
                                 "check_guards");
        if (good && got[15] != first + 15)
            good = selftest_expect(t, false, "element 15 is %u, not %u", got[15], first + 15);
        for (uint32_t i = 0; i < BUFFERS && good; i++) gpu_backend_cuda.free(t->device, &b[i]);
    }
    return good;
}

static double per_case_us(struct selftest *t, uint32_t cases)
{
    uint64_t start = selftest_now_ns();

    for (uint32_t i = 0; i < cases; i++)
        if (!small_case(t, i)) return -1;
    return (double)(selftest_now_ns() - start) / 1000.0 / cases;
}

static void launch_figures(struct selftest *t)
{
    enum { N = 500 };
    struct gpu_buffer b[BUFFERS];
    uint32_t n = 16, first = 0;
    uint64_t start = selftest_now_ns();

    if (!selftest_alloc(t, &b[0], "one", 64, GPU_FENCE_AFTER)) return;
    for (int i = 0; i < N; i++) {
        void *args[] = {&b[0].address, &n, &first};
        if (!selftest_need(t, selftest_run(t, "selftest_iota", n, 0, args), "launch")) return;
    }
    selftest_say(t, "note", "%.1f us a launch to completion with one small buffer",
                 (double)(selftest_now_ns() - start) / 1000.0 / N);
    start = selftest_now_ns();
    for (uint32_t i = 0; i < N; i++) {
        if (!fill_case(t, b, i)) return;
        for (uint32_t k = 0; k < BUFFERS; k++) gpu_backend_cuda.free(t->device, &b[k]);
    }
    selftest_say(t, "note", "%.2f us to make, fill and free a pooled buffer (no launch)",
                 (double)(selftest_now_ns() - start) / 1000.0 / (N * BUFFERS));
}

void selftest_figures(struct selftest *t)
{
    struct gpu_buffer fresh[32];
    uint64_t start = selftest_now_ns();
    double us;

    if (!selftest_open(t, 0)) return;
    selftest_say(t, "note", "%.0f ms to open and load the test kernels",
                 (double)(selftest_now_ns() - start) / 1e6);
    start = selftest_now_ns();
    for (int i = 0; i < 32; i++)
        if (!selftest_alloc(t, &fresh[i], "fresh", 64, GPU_FENCE_AFTER)) return;
    selftest_say(t, "note", "%.1f us a fresh fenced mapping",
                 (double)(selftest_now_ns() - start) / 1000.0 / 32);
    for (int i = 0; i < 32; i++) gpu_backend_cuda.free(t->device, &fresh[i]);
    launch_figures(t);
    us = per_case_us(t, 1000);
    selftest_expect(t, us > 0, "%.1f us a small case (8 buffers, 2 runs) in one process", us);
    gpu_cuda_helpers_disable(t->device);
    us = per_case_us(t, 300);
    selftest_expect(t, us > 0, "%.1f us the same without helper kernels", us);
}

/* One worker: its own device, and the pipes to the parent. */
struct rate {
    struct selftest t;
    int ready, go, count;
};

/* Opens, says so, waits for the start, runs for two seconds, sends its count. */
static void *rate_worker(void *argument)
{
    struct rate *w = argument;
    uint64_t cases = 0, start;
    char byte = 0;
    bool good = selftest_open(&w->t, 0) && per_case_us(&w->t, 20) > 0;

    if (write(w->ready, &byte, 1) != 1 || read(w->go, &byte, 1) != 0) _exit(1);
    start = selftest_now_ns();
    while (good && selftest_now_ns() - start < RATE_NS) {
        good = small_case(&w->t, (uint32_t)cases);
        cases++;
    }
    if (!good) cases = 0;
    if (write(w->count, &cases, sizeof cases) != sizeof cases) _exit(1);
    return NULL;
}

static _Noreturn void rate_process(const struct rate *worker, uint32_t threads)
{
    static struct rate workers[WORKERS_MAX];
    pthread_t thread[WORKERS_MAX];

    for (uint32_t i = 0; i < threads; i++) {
        workers[i] = *worker;
        if (pthread_create(&thread[i], NULL, rate_worker, &workers[i])) _exit(1);
    }
    for (uint32_t i = 0; i < threads; i++) pthread_join(thread[i], NULL);
    _exit(0);
}

/* Cases a second of so many threads in so many processes; 0 after a failure. */
static double rate_of(const struct selftest *t, uint32_t processes, uint32_t threads)
{
    int ready[2], go[2], count[2];
    uint64_t sum = 0, cases, start;
    uint32_t good = 0, n = processes * threads;
    char byte;

    if (pipe(ready) || pipe(go) || pipe(count)) return 0;
    for (uint32_t i = 0; i < processes; i++) {
        if (fork() == 0) {
            struct rate worker = {*t, ready[1], go[0], count[1]};
            close(go[1]);
            close(ready[0]);
            close(count[0]);
            rate_process(&worker, threads);
        }
    }
    close(ready[1]);
    close(count[1]);
    close(go[0]);
    for (uint32_t i = 0; i < n && read(ready[0], &byte, 1) == 1; i++) {
    }
    start = selftest_now_ns();
    close(go[1]); /* the start */
    while (read(count[0], &cases, sizeof cases) == (ssize_t)sizeof cases) {
        sum += cases;
        good += cases > 0;
    }
    double seconds = (double)(selftest_now_ns() - start) / 1e9;
    for (uint32_t i = 0; i < processes; i++) wait(NULL);
    close(ready[0]);
    close(count[0]);
    return good == n ? (double)sum / seconds : 0;
}

void selftest_rate(struct selftest *t)
{
    for (uint32_t n = 1; n <= WORKERS_MAX; n *= 4) {
        double apart = rate_of(t, n, 1), together = rate_of(t, 1, n);
        if (!selftest_expect(t, apart > 0 && together > 0,
                             "%.0f small cases a second by %u processes, %.0f by as many threads",
                             apart, n, together))
            return;
    }
}
