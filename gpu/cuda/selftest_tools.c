/* What the checks of the self-test share: telling, opening, launching. */
#include "selftest_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

uint64_t selftest_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void selftest_write_all(int fd, const char *text, size_t bytes)
{
    while (bytes) {
        ssize_t n = write(fd, text, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return; /* the parent is gone; nobody is left to tell */
        text += n;
        bytes -= (size_t)n;
    }
}

static void say(struct selftest *t, const char *verdict, const char *format, va_list list)
{
    char text[1200];
    int used = snprintf(text, sizeof text, "%s %s ", verdict, t->name);
    int more = vsnprintf(text + used, sizeof text - (size_t)used - 1, format, list);
    size_t bytes = (size_t)used + (size_t)(more < 0 ? 0 : more);

    if (bytes > sizeof text - 2) bytes = sizeof text - 2;
    for (size_t i = 0; i < bytes; i++)
        if (text[i] == '\n') text[i] = ' ';
    text[bytes] = '\n';
    selftest_write_all(t->out, text, bytes + 1);
}

void selftest_say(struct selftest *t, const char *verdict, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    say(t, verdict, format, list);
    va_end(list);
}

bool selftest_expect(struct selftest *t, bool good, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    say(t, good ? "ok" : "FAIL", format, list);
    va_end(list);
    return good;
}

bool selftest_need(struct selftest *t, enum gpu_status status, const char *what)
{
    if (status != GPU_OK)
        selftest_say(t, "FAIL", "%s: status %d, rule '%s': %s", what, (int)status, t->report.rule,
                     t->report.text);
    return status == GPU_OK;
}

bool selftest_load(struct selftest *t, const char *ptx, struct gpu_module **module,
                   enum gpu_status *status)
{
    size_t bytes = strlen(ptx);
    char path[40];
    int fd = memfd_create("selftest", 0);
    bool good = fd >= 0 && write(fd, ptx, bytes) == (ssize_t)bytes;

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (good)
        *status = gpu_backend_cuda.load(t->device, path, module, &t->report);
    else
        selftest_say(t, "FAIL", "cannot write a file in memory: %s", strerror(errno));
    return good; /* the file stays open: its path must stay the key of this module only */
}

bool selftest_open(struct selftest *t, uint32_t watchdog_ms)
{
    struct gpu_options options = {.watchdog_ms = watchdog_ms};
    enum gpu_status status;

    return selftest_need(t, gpu_backend_cuda.open(&t->device, &options, &t->report), "open") &&
           selftest_load(t, gpu_cuda_selftest_ptx, &t->module, &status) &&
           selftest_need(t, status, "load the test kernels");
}

bool selftest_alloc(struct selftest *t, struct gpu_buffer *buffer, const char *name, uint64_t bytes,
                    enum gpu_fence fence)
{
    struct gpu_buffer_desc desc = {
        .name = name, .size_bytes = bytes, .elem_bytes = 4, .align_bytes = 4, .fence = fence};

    return selftest_need(t, gpu_backend_cuda.alloc(t->device, &desc, buffer, &t->report), name);
}

enum gpu_status selftest_run(struct selftest *t, const char *entry, uint32_t threads,
                             uint32_t shared_bytes, void **args)
{
    struct gpu_kernel *kernel;
    struct gpu_dim grid = {(threads + 255) / 256, 1, 1},
                   block = {threads < 256 ? threads : 256, 1, 1};
    enum gpu_status status = gpu_backend_cuda.resolve(t->module, entry, &kernel, &t->report);

    if (status != GPU_OK) return status;
    return gpu_backend_cuda.launch(t->device, kernel, grid, block, shared_bytes, args, &t->report);
}
