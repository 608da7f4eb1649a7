/* Self-test: modules, launches, capture, timing, the process's life. */
#include "selftest_internal.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

void selftest_entries(struct selftest *t)
{
    struct gpu_kernel *kernel = NULL, *again = NULL;
    enum gpu_status status = gpu_backend_cuda.resolve(t->module, "no_such", &kernel, &t->report);

    selftest_expect(t, status == GPU_NO_ENTRY && !kernel && strstr(t->report.text, "selftest_iota"),
                    "status %d: %s", (int)status, t->report.text);
    if (selftest_need(t, gpu_backend_cuda.resolve(t->module, "selftest_iota", &kernel, &t->report),
                      "resolve") &&
        selftest_need(t, gpu_backend_cuda.resolve(t->module, "selftest_iota", &again, &t->report),
                      "resolve again"))
        selftest_expect(t, kernel == again, "an entry is resolved once");
}

void selftest_bad_module(struct selftest *t)
{
    static const char wrong[] = ".version 7.0\n.target sm_80\n.address_size 64\n"
                                ".visible .entry broken(.param .u64 p)\n{\n    no_such_op;\n}\n";
    struct gpu_module *module;
    struct gpu_kernel *kernel;
    enum gpu_status status;

    if (!selftest_load(t, wrong, &module, &status)) return;
    if (status == GPU_OK) /* a driver that compiles late says so here */
        status = gpu_backend_cuda.resolve(module, "broken", &kernel, &t->report);
    selftest_expect(t, status == GPU_INFRA && !strcmp(t->report.rule, "bad-module"),
                    "wrong PTX: %s", t->report.text);
    status = gpu_backend_cuda.load(t->device, "no/such/file.fatbin", &module, &t->report);
    selftest_expect(t, status == GPU_INFRA && !strcmp(t->report.rule, "bad-module"), "no file: %s",
                    t->report.text);
    selftest_expect(t, !gpu_cuda_context_lost(t->device), "the context survives a bad module");
}

void selftest_shared(struct selftest *t)
{
    struct gpu_buffer out;
    uint32_t most = gpu_backend_cuda.limits(t->device)->max_shared_bytes, got = 0;
    uint32_t sizes[] = {1024, 49152, 65536, most};

    if (!selftest_alloc(t, &out, "out", 4, GPU_FENCE_AFTER)) return;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint32_t n = sizes[i] / 4;
        void *args[] = {&out.address, &n};
        if (!selftest_need(t, selftest_run(t, "selftest_shared", 1, sizes[i], args), "launch") ||
            !selftest_need(t, gpu_backend_cuda.download(t->device, &out, 0, &got, 4, &t->report),
                           "download"))
            return;
        selftest_expect(t, got == n - 1, "%u bytes of dynamic shared memory", sizes[i]);
    }
    uint32_t n = 1;
    void *args[] = {&out.address, &n};
    enum gpu_status status = selftest_run(t, "selftest_shared", 1, most + 1, args);
    selftest_expect(t, status == GPU_REFUSED && !strcmp(t->report.rule, "shared_limit"),
                    "one byte more: %s", t->report.text);
}

/* A launch the driver refuses must leave the context alive. */
void selftest_geometry(struct selftest *t)
{
    struct gpu_kernel *kernel;
    struct gpu_buffer out;
    uint32_t n = 2048, first = 5, got[2048], wrong = 0;

    if (!selftest_alloc(t, &out, "out", sizeof got, GPU_FENCE_AFTER) ||
        !selftest_need(t, gpu_backend_cuda.resolve(t->module, "selftest_iota", &kernel, &t->report),
                       "resolve"))
        return;
    void *args[] = {&out.address, &n, &first};
    enum gpu_status status =
        gpu_backend_cuda.launch(t->device, kernel, (struct gpu_dim){1, 1, 1},
                                (struct gpu_dim){2048, 1, 1}, 0, args, &t->report);
    selftest_expect(t, status != GPU_OK && !gpu_cuda_context_lost(t->device),
                    "a block of 2048 threads: status %d: %s", (int)status, t->report.text);
    status = gpu_backend_cuda.launch(t->device, kernel, (struct gpu_dim){2, 1, 1},
                                     (struct gpu_dim){1024, 1, 1}, 0, args, &t->report);
    if (!selftest_need(t, status, "two blocks of 1024") ||
        !selftest_need(t,
                       gpu_backend_cuda.download(t->device, &out, 0, got, sizeof got, &t->report),
                       "download"))
        return;
    for (uint32_t i = 0; i < n; i++) wrong += got[i] != i + first;
    selftest_expect(t, wrong == 0, "two blocks of 1024 afterwards: %u wrong", wrong);
}

static bool holds(struct selftest *t, const struct gpu_buffer *b, uint32_t add, const char *when)
{
    uint32_t got[1000], wrong = 0;

    if (!selftest_need(t, gpu_backend_cuda.download(t->device, b, 0, got, sizeof got, &t->report),
                       "download"))
        return false;
    for (uint32_t i = 0; i < 1000; i++) wrong += got[i] != i + add;
    return selftest_expect(t, wrong == 0, "%s: %u of 1000 wrong", when, wrong);
}

static bool capture_two(struct selftest *t, struct gpu_buffer *b, struct gpu_cuda_graph **graph)
{
    uint32_t n = 1000, one = 1, ten = 10;
    void *first[] = {&b->address, &n, &one}, *second[] = {&b->address, &n, &ten};

    if (!selftest_need(t, gpu_cuda_capture_begin(t->device, &t->report), "capture_begin") ||
        !selftest_need(t, selftest_run(t, "selftest_add", n, 0, first), "captured launch") ||
        !selftest_need(t, selftest_run(t, "selftest_add", n, 0, second), "captured launch"))
        return false;
    enum gpu_status status = gpu_backend_cuda.upload(t->device, b, 0, &n, 4, &t->report);
    selftest_expect(t, status == GPU_INFRA && !strcmp(t->report.rule, "wrong-mode"),
                    "an upload while capturing: %s", t->report.text);
    return selftest_need(t, gpu_cuda_capture_end(t->device, graph, &t->report), "capture_end");
}

void selftest_replay(struct selftest *t)
{
    struct gpu_buffer b;
    struct gpu_cuda_graph *graph, *empty = NULL;
    uint32_t n = 1000, zero = 0, start[1000];
    void *iota[] = {&b.address, &n, &zero};
    double ms = 0;

    if (!selftest_alloc(t, &b, "replayed", sizeof start, GPU_FENCE_AFTER) ||
        !selftest_need(t, selftest_run(t, "selftest_iota", n, 0, iota), "iota") ||
        !capture_two(t, &b, &graph) || !holds(t, &b, 0, "after the capture nothing ran") ||
        !selftest_need(t, gpu_cuda_replay(t->device, graph, &t->report), "replay") ||
        !holds(t, &b, 11, "after one replay") ||
        !selftest_need(t, gpu_cuda_replay(t->device, graph, &t->report), "replay") ||
        !holds(t, &b, 22, "after two"))
        return;
    for (uint32_t i = 0; i < n; i++) start[i] = i + 100;
    if (!selftest_need(t,
                       gpu_backend_cuda.upload(t->device, &b, 0, start, sizeof start, &t->report),
                       "upload") ||
        !selftest_need(t, gpu_cuda_replay(t->device, graph, &t->report), "replay") ||
        !holds(t, &b, 111, "replayed on new contents") ||
        !selftest_need(t, gpu_cuda_time_replay(t->device, graph, 10, &ms, &t->report), "time") ||
        !holds(t, &b, 221, "after ten timed replays"))
        return;
    selftest_expect(t, ms > 0, "%.4f ms a replay of two launches", ms / 10);
    gpu_cuda_graph_free(t->device, graph);
    if (selftest_need(t, gpu_cuda_capture_begin(t->device, &t->report), "capture nothing") &&
        selftest_need(t, gpu_cuda_capture_end(t->device, &empty, &t->report), "capture_end") &&
        selftest_need(t, gpu_cuda_replay(t->device, empty, &t->report), "replay nothing"))
        holds(t, &b, 221, "after an empty graph");
    gpu_cuda_graph_free(t->device, empty);
}

void selftest_timing(struct selftest *t)
{
    enum { BYTES = 256 << 20, LAUNCHES = 200 };
    struct gpu_buffer b, from, to;
    uint32_t n = 1000, one = 1, zero = 0;
    void *iota[] = {&b.address, &n, &zero}, *add[] = {&b.address, &n, &one};
    double ms = 0;

    if (!selftest_alloc(t, &b, "timed", 4000, GPU_FENCE_AFTER) ||
        !selftest_need(t, selftest_run(t, "selftest_iota", n, 0, iota), "iota") ||
        !selftest_need(t, gpu_cuda_time_begin(t->device, &t->report), "time_begin"))
        return;
    for (int i = 0; i < LAUNCHES; i++)
        if (!selftest_need(t, selftest_run(t, "selftest_add", n, 0, add), "timed launch")) return;
    if (!selftest_need(t, gpu_cuda_time_end(t->device, &ms, &t->report), "time_end") ||
        !holds(t, &b, LAUNCHES, "after the timed launches"))
        return;
    selftest_expect(t, ms > 0, "%.2f us a launch of a small kernel", 1000 * ms / LAUNCHES);
    selftest_expect(t, gpu_cuda_time_end(t->device, &ms, &t->report) == GPU_INFRA,
                    "time_end without begin: %s", t->report.text);
    if (!selftest_alloc(t, &from, "from", BYTES, GPU_FENCE_AFTER) ||
        !selftest_alloc(t, &to, "to", BYTES, GPU_FENCE_AFTER) ||
        !selftest_need(t, gpu_cuda_time_copy(t->device, &to, &from, BYTES, 20, &ms, &t->report),
                       "time_copy"))
        return;
    selftest_expect(t, ms > 0, "device copy: %.1f GB/s read and written",
                    2.0 * 20 * (double)BYTES / ms / 1e6);
}

void selftest_reopen(struct selftest *t)
{
    struct gpu_device *second;
    struct gpu_options options = {0}, beyond = {.device_index = 999};

    for (int i = 0; i < 3; i++) {
        if (!selftest_open(t, 0)) return;
        enum gpu_status status = gpu_backend_cuda.open(&second, &options, &t->report);
        selftest_expect(t, status == GPU_INFRA && !strcmp(t->report.rule, "already-open"),
                        "a second open: %s", t->report.text);
        gpu_backend_cuda.close(t->device);
        t->device = NULL;
    }
    selftest_expect(t, gpu_backend_cuda.open(&second, &beyond, &t->report) == GPU_UNAVAILABLE,
                    "device 999: %s", t->report.text);
}

void selftest_fork(struct selftest *t)
{
    struct gpu_options options = {0};
    int status = 0;
    pid_t pid;

    gpu_backend_cuda.close(t->device);
    t->device = NULL;
    pid = fork();
    if (pid == 0) {
        struct gpu_device *device;
        enum gpu_status opened = gpu_backend_cuda.open(&device, &options, &t->report);
        selftest_expect(t, opened == GPU_INFRA && !strcmp(t->report.rule, "forked"),
                        "open in a child of the opener: %s", t->report.text);
        _exit(0);
    }
    selftest_expect(t, pid > 0 && waitpid(pid, &status, 0) == pid && status == 0,
                    "the child ended by itself");
}
