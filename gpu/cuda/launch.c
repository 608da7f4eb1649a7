/* Running kernels, waiting for them with a deadline, and what the driver's results mean. */
#include "internal.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
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

/* Results that a kernel's own behaviour brings about. */
static bool is_fault(cu_result rc)
{
    switch (rc) {
    case CU_ILLEGAL_ADDRESS:
    case CU_ASSERT:
    case CU_HARDWARE_STACK_ERROR:
    case CU_ILLEGAL_INSTRUCTION:
    case CU_MISALIGNED_ADDRESS:
    case CU_INVALID_ADDRESS_SPACE:
    case CU_INVALID_PC:
    case CU_LAUNCH_FAILED:
    case CU_TENSOR_MEMORY_LEAK:
        return true;
    default:
        return false;
    }
}

/* Results after which every later call on the context fails as well. */
static bool is_sticky(cu_result rc)
{
    return is_fault(rc) || rc == CU_DEINITIALIZED || rc == CU_INVALID_CONTEXT ||
           rc == CU_ECC_UNCORRECTABLE || rc == CU_NVLINK_UNCORRECTABLE || rc == CU_CONTAINED ||
           rc == CU_LAUNCH_TIMEOUT || rc == CU_CONTEXT_IS_DESTROYED || rc == CU_UNKNOWN;
}

static const char *fault_words(cu_result rc)
{
    switch (rc) {
    case CU_ILLEGAL_ADDRESS:
        return "it read or wrote an address where nothing is mapped: past a buffer's fence, "
               "outside an extent, or wild";
    case CU_MISALIGNED_ADDRESS:
        return "it accessed an address that is not a multiple of the access's size";
    case CU_ASSERT:
        return "a device-side assertion failed";
    case CU_LAUNCH_OUT_OF_RESOURCES:
        return "the device cannot start it: too many registers or threads for one block";
    default:
        return "it was stopped by the device";
    }
}

static void lose(struct gpu_cuda_device *d, const char *text)
{
    if (d->lost) return;
    d->lost = true;
    snprintf(d->lost_text, sizeof d->lost_text, "%s", text);
}

static enum gpu_status finding(struct gpu_report *report, const char *rule)
{
    snprintf(report->rule, sizeof report->rule, "%s", rule);
    return GPU_FINDING;
}

enum gpu_status gpu_cuda_result(struct gpu_cuda_device *d, cu_result rc, const char *call,
                                struct gpu_report *report)
{
    char words[200], text[sizeof d->lost_text];
    bool ran = d->running[0] != '\0';

    if (rc == CU_OK) return GPU_OK;
    gpu_cuda_describe(&d->api, rc, words, sizeof words);
    if (ran && (is_fault(rc) || rc == CU_LAUNCH_OUT_OF_RESOURCES || rc == CU_LAUNCH_TIMEOUT))
        snprintf(text, sizeof text, "%s in kernel %s: %s", words, d->running, fault_words(rc));
    else
        snprintf(text, sizeof text, "%s: %s%s%s", call, words, ran ? "; the kernel was " : "",
                 d->running);
    if (is_sticky(rc)) lose(d, text);
    snprintf(report->text, sizeof report->text, "%s", text);
    if (ran && rc == CU_LAUNCH_TIMEOUT) return finding(report, "hang");
    if (ran && (is_fault(rc) || rc == CU_LAUNCH_OUT_OF_RESOURCES)) return finding(report, "fault");
    return gpu_cuda_fail(report, rc == CU_OUT_OF_MEMORY ? "out-of-memory" : "driver-error", "%s",
                         text);
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
    lose(d, text);
    if (!d->running[0]) return gpu_cuda_fail(report, "driver-error", "%s", text);
    snprintf(report->text, sizeof report->text, "%s", text);
    return finding(report, "hang");
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

static void all_reached(struct gpu_cuda_device *d)
{
    d->running[0] = '\0';
    d->in_flight = false;
    d->stage_used = 0;
    if (d->pulling) gpu_cuda_pull_finish(d);
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

enum gpu_status gpu_cuda_behind(struct gpu_cuda_device *d, struct gpu_report *report)
{
    bool eager = d->mirrored_bytes <= GPU_CUDA_EAGER_BYTES;
    enum gpu_status status = GPU_OK;

    d->launch_epoch++;
    if (eager) status = gpu_cuda_pull(d, report);
    if (status == GPU_OK && !d->options.deferred) status = gpu_cuda_wait(d, report);
    return status;
}

enum gpu_status gpu_cuda_finish(struct gpu_device *device, struct gpu_report *report)
{
    struct gpu_cuda_device *d = gpu_cuda_of(device);
    enum gpu_status status = gpu_cuda_ready(d, "finish", report);

    return status == GPU_OK && d->in_flight ? gpu_cuda_wait(d, report) : status;
}

/* Dynamic shared memory above 48 KiB has to be asked for, once a kernel. All that a block has, so
 * that threads which share the module ask for the same. */
static enum gpu_status allow_shared(struct gpu_cuda_device *d, struct gpu_cuda_kernel *kernel,
                                    uint32_t bytes, struct gpu_report *report)
{
    uint64_t all = (uint64_t)bytes + kernel->static_shared;

    if (all > d->limits.max_shared_bytes)
        return gpu_refuse(report, "shared_limit",
                          "kernel '%s' needs %u bytes of dynamic and %u of static shared memory; "
                          "a block has %u",
                          kernel->name, bytes, kernel->static_shared, d->limits.max_shared_bytes);
    if (bytes <= kernel->dynamic_shared_set) return GPU_OK;
    uint32_t most = d->limits.max_shared_bytes - kernel->static_shared;
    cu_result rc =
        d->api.function_set(kernel->function, CU_FUNC_MAX_DYNAMIC_SHARED_BYTES, (int)most);
    if (rc == CU_OK) kernel->dynamic_shared_set = most;
    return gpu_cuda_result(d, rc, "cuFuncSetAttribute(dynamic shared memory)", report);
}

static enum gpu_status enqueue(struct gpu_cuda_device *d, struct gpu_cuda_kernel *kernel,
                               struct gpu_dim grid, struct gpu_dim block, uint32_t shared_bytes,
                               void **args, struct gpu_report *report)
{
    cu_result rc;

    snprintf(d->running, sizeof d->running,
             "'%.80s' (grid %ux%ux%u, block %ux%ux%u, %u bytes of dynamic shared memory)",
             kernel->name, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared_bytes);
    d->in_flight = true;
    rc = d->api.launch(kernel->function, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                       shared_bytes, d->stream, args, NULL);
    enum gpu_status status = gpu_cuda_result(d, rc, "cuLaunchKernel", report);
    if (status != GPU_OK && !d->lost) d->running[0] = '\0';
    return status;
}

enum gpu_status gpu_cuda_launch(struct gpu_device *device, struct gpu_kernel *kernel,
                                struct gpu_dim grid, struct gpu_dim block, uint32_t shared_bytes,
                                void **args, struct gpu_report *report)
{
    struct gpu_cuda_device *d = gpu_cuda_of(device);
    struct gpu_cuda_kernel *k = (struct gpu_cuda_kernel *)kernel;
    enum gpu_status status = gpu_cuda_alive(d, "launch", report);

    /* A deferred kernel answers for itself. */
    if (status == GPU_OK && d->mode == GPU_CUDA_RUNNING && d->running[0])
        status = gpu_cuda_wait(d, report);
    if (status == GPU_OK) status = allow_shared(d, k, shared_bytes, report);
    if (status == GPU_OK && d->mode == GPU_CUDA_RUNNING) status = gpu_cuda_flush(d, report);
    if (status == GPU_OK) status = enqueue(d, k, grid, block, shared_bytes, args, report);
    if (d->mode == GPU_CUDA_CAPTURING && status == GPU_OK) {
        d->running[0] = '\0'; /* recorded, not running */
        d->captured++;
    }
    if (d->mode == GPU_CUDA_TIMING) d->launch_epoch++;
    if (status == GPU_OK && d->mode == GPU_CUDA_RUNNING) status = gpu_cuda_behind(d, report);
    return status;
}
