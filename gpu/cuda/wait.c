/* Waiting for the stream, with a deadline. */
#include "internal.h"

#include <sched.h>
#include <stdio.h>
#include <time.h>

#define DEFAULT_WATCHDOG_MS 20000
#define SPIN_NS 1000000ull /* a small case ends within this; sleeping would double it */
#define SHORT_SLEEP_NS 20000
#define LONG_SLEEP_NS 500000
#define LONG_AFTER_NS 10000000ull

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void pause_for(uint64_t waited_ns)
{
    struct timespec t = {0, waited_ns < LONG_AFTER_NS ? SHORT_SLEEP_NS : LONG_SLEEP_NS};

    if (waited_ns < SPIN_NS)
        sched_yield();
    else
        nanosleep(&t, NULL);
}

static enum gpu_status hang(struct gpu_cuda_device *d, uint64_t limit_ns, struct gpu_report *report)
{
    char text[sizeof d->lost_text];

    snprintf(text, sizeof text, "kernel %s has not ended after %llu ms",
             d->running[0] ? d->running : "(none: the backend's own transfer)",
             (unsigned long long)(limit_ns / 1000000u));
    gpu_cuda_lose(d, text);
    if (!d->running[0]) return gpu_cuda_fail(report, "driver-error", "%s", text);
    snprintf(report->text, sizeof report->text, "%s", text);
    return gpu_cuda_finding(report, "hang");
}

static void forget_launched(struct gpu_cuda_table *table)
{
    if (table->start == table->n) table->start = table->n = 0;
}

/* Asks the stream for a sign, and waits for it as long as a small case takes. The stream gives it
 * behind all its work and with that work's writes seen. A fault gives none: the stream itself tells
 * then, as it does where the driver cannot give signs. */
static bool wait_for_sign(struct gpu_cuda_device *d, uint64_t start)
{
    uint32_t ticket = d->waits + 1;

    if (!d->api.write_word || d->mode != GPU_CUDA_RUNNING ||
        d->api.write_word(d->stream, (cu_address)(uintptr_t)d->reached, ticket, 0) != CU_OK)
        return false;
    d->waits = ticket;
    while (*d->reached != ticket && now_ns() - start < SPIN_NS) sched_yield();
    return *d->reached == ticket;
}

/* The answers of a pull that has come back. */
static void read_answers(struct gpu_cuda_device *d)
{
    for (struct gpu_cuda_buffer *b = d->live; b; b = b->next) {
        if (b->check_at == UINT32_MAX) continue;
        b->far_checked = true;
        b->far_hit = 0;
        for (uint32_t i = 0; i < b->n_far && !b->far_hit; i++)
            b->far_hit = d->results[b->check_at + i];
    }
    d->pulled_epoch = d->launch_epoch;
    d->pulling = false;
}

static void all_reached(struct gpu_cuda_device *d)
{
    d->running[0] = '\0';
    d->in_flight = false;
    d->stage_used = 0;
    if (d->pulling) read_answers(d);
    forget_launched(&d->copies);
    forget_launched(&d->fills);
    forget_launched(&d->checks);
}

enum gpu_status gpu_cuda_wait(struct gpu_cuda_device *d, struct gpu_report *report)
{
    uint32_t ms = d->options.watchdog_ms ? d->options.watchdog_ms : DEFAULT_WATCHDOG_MS;
    uint64_t start = now_ns(), limit = (uint64_t)ms * 1000000u, waited = 0;
    cu_result rc;

    if (wait_for_sign(d, start)) {
        all_reached(d);
        return GPU_OK;
    }
    while ((rc = d->api.stream_query(d->stream)) == CU_NOT_READY) {
        waited = now_ns() - start;
        if (waited > limit) return hang(d, limit, report);
        pause_for(waited);
    }
    enum gpu_status status = gpu_cuda_result(d, rc, "cuStreamQuery", report);
    if (status == GPU_OK) all_reached(d);
    return status;
}

enum gpu_status gpu_cuda_finish(struct gpu_device *device, struct gpu_report *report)
{
    struct gpu_cuda_device *d = gpu_cuda_of(device);
    enum gpu_status status = gpu_cuda_ready(d, "finish", report);

    return status == GPU_OK && d->in_flight ? gpu_cuda_wait(d, report) : status;
}
