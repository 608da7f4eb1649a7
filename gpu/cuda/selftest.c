#include "selftest.h"

#include "selftest_internal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK_LIMIT_MS 120000

static const struct selftest_check checks[] = {
    {"info", selftest_info, false},
    {"round-trip", selftest_round_trip, false},
    {"round-trip-plain", selftest_round_trip_plain, false},
    {"alignment", selftest_alignment, false},
    {"coherence", selftest_coherence, false},
    {"extents", selftest_extents, false},
    {"red-zone", selftest_red_zone, false},
    {"red-zone-plain", selftest_red_zone_plain, false},
    {"reuse", selftest_reuse, false},
    {"pool", selftest_pool, false},
    {"descriptors", selftest_descriptors, false},
    {"fault-read-after", selftest_fault_read_after, false},
    {"fault-read-before", selftest_fault_read_before, false},
    {"fault-write-after", selftest_fault_write_after, false},
    {"fault-large", selftest_fault_large, false},
    {"fault-hole", selftest_fault_hole, false},
    {"fault-far", selftest_fault_far, false},
    {"fault-empty", selftest_fault_empty, false},
    {"fault-misaligned", selftest_fault_misaligned, false},
    {"fault-trap", selftest_fault_trap, false},
    {"hang", selftest_hang, true},
    {"deferred", selftest_deferred, true},
    {"deferred-fault", selftest_deferred_fault, false},
    {"entries", selftest_entries, false},
    {"bad-module", selftest_bad_module, false},
    {"shared", selftest_shared, false},
    {"geometry", selftest_geometry, false},
    {"replay", selftest_replay, false},
    {"timing", selftest_timing, false},
    {"reopen", selftest_reopen, true},
    {"fork", selftest_fork, false},
    {"figures", selftest_figures, true},
    {"rate", selftest_rate, true},
};

static _Noreturn void child(const struct selftest_check *check, int out)
{
    struct selftest t = {.name = check->name, .out = out};

    if (check->own_device || selftest_open(&t, 0)) check->run(&t);
    /* A lost context must not run the driver's exit handlers: they may wait for ever. */
    if (t.device && !gpu_cuda_context_lost(t.device)) gpu_backend_cuda.close(t.device);
    selftest_write_all(out, "end\n", 4);
    _exit(0);
}

struct reader {
    void (*line)(void *context, const char *text);
    void *context;
    char buffer[4096];
    size_t used;
    uint32_t ok, fail, skip;
    bool ended;
};

static void take_line(struct reader *r, const char *text)
{
    r->ok += strncmp(text, "ok ", 3) == 0;
    r->fail += strncmp(text, "FAIL ", 5) == 0;
    r->skip += strncmp(text, "skip ", 5) == 0;
    if (strcmp(text, "end") == 0)
        r->ended = true;
    else
        r->line(r->context, text);
}

/* Reads what is there; false at the end of the pipe. */
static bool take(struct reader *r, int fd)
{
    ssize_t n = read(fd, r->buffer + r->used, sizeof r->buffer - r->used);
    char *end;

    if (n <= 0) return n < 0 && errno == EINTR;
    r->used += (size_t)n;
    while ((end = memchr(r->buffer, '\n', r->used))) {
        size_t bytes = (size_t)(end - r->buffer) + 1;
        *end = '\0';
        take_line(r, r->buffer);
        r->used -= bytes;
        memmove(r->buffer, r->buffer + bytes, r->used);
    }
    return true;
}

static void fail_line(struct reader *r, const char *name, const char *why)
{
    char text[200];

    snprintf(text, sizeof text, "FAIL %s %s", name, why);
    take_line(r, text);
}

/* Runs one check in a child and passes its lines on. */
static void run_check(const struct selftest_check *check, struct reader *r)
{
    int fds[2], status = 0;
    uint64_t until = selftest_now_ns() + CHECK_LIMIT_MS * 1000000ull;
    pid_t pid = -1;
    bool more = pipe(fds) == 0;

    r->ended = false;
    r->used = r->ok = 0;
    if (more) pid = fork();
    if (pid < 0) {
        fail_line(r, check->name, "cannot fork or make a pipe");
        return;
    }
    if (pid == 0) {
        close(fds[0]);
        child(check, fds[1]);
    }
    close(fds[1]);
    while (more && !r->ended && selftest_now_ns() < until) {
        struct pollfd p = {fds[0], POLLIN, 0};
        more = poll(&p, 1, 1000) <= 0 || take(r, fds[0]);
    }
    if (more && !r->ended) fail_line(r, check->name, "took longer than 120 s and was killed");
    if (!r->ended) kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    close(fds[0]);
    if (!more && !r->ended)
        fail_line(r, check->name, WIFSIGNALED(status) ? "died by a signal" : "ended early");
    if (r->ended && !r->ok && !r->skip) fail_line(r, check->name, "ended without a verdict");
}

static void probe(struct selftest *t)
{
    struct gpu_options options = {0};
    enum gpu_status status = gpu_backend_cuda.open(&t->device, &options, &t->report);

    if (status == GPU_UNAVAILABLE)
        selftest_say(t, "skip", "%s", t->report.text);
    else
        selftest_expect(t, status == GPU_OK, "open: %s", status == GPU_OK ? "ok" : t->report.text);
}

int gpu_cuda_selftest(const char *filter, void (*line)(void *context, const char *text),
                      void *context)
{
    /* Whether there is a device is asked in a child too: the driver must stay untouched here. */
    static const struct selftest_check device = {"device", probe, true};
    struct reader r = {.line = line, .context = context};
    uint32_t ran = 0;

    run_check(&device, &r);
    if (r.skip) return -1;
    for (uint32_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        const struct selftest_check *check = &checks[i];
        if (filter && strncmp(check->name, filter, strlen(filter))) continue;
        ran++;
        run_check(check, &r);
    }
    return ran ? (int)r.fail : -2;
}
