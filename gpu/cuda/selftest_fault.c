/* Self-test: what must fault, each in a process of its own, and what is left afterwards. */
#include "selftest_internal.h"

#include <math.h>
#include <string.h>

/* A first access inside must pass; one outside must be a finding; then everything is lost. */
static enum gpu_status access_at(struct selftest *t, bool write, const struct gpu_buffer *out,
                                 uint64_t base, int64_t offset)
{
    uint32_t value = 9;
    uint64_t out_address = out->address;
    void *peek[] = {&out_address, &base, &offset}, *poke[] = {&base, &offset, &value};

    return write ? selftest_run(t, "selftest_poke", 1, 0, poke)
                 : selftest_run(t, "selftest_peek", 1, 0, peek);
}

static void expect_lost(struct selftest *t, struct gpu_buffer *b)
{
    struct gpu_report first = t->report, *r = &t->report;
    struct gpu_buffer_desc desc = {.name = "late", .size_bytes = 64, .elem_bytes = 4};
    struct gpu_buffer late;
    struct gpu_module *module;
    uint32_t word = 0, n = 1, lost = 0;
    void *args[] = {&b->address, &n, &word};

    lost += selftest_run(t, "selftest_iota", 1, 0, args) == GPU_INFRA &&
            !strcmp(r->rule, "context-lost");
    lost += gpu_backend_cuda.alloc(t->device, &desc, &late, r) == GPU_INFRA &&
            !strcmp(r->rule, "context-lost");
    lost += gpu_backend_cuda.upload(t->device, b, 0, &word, 4, r) == GPU_INFRA &&
            !strcmp(r->rule, "context-lost");
    lost += gpu_backend_cuda.download(t->device, b, 0, &word, 4, r) == GPU_INFRA &&
            !strcmp(r->rule, "context-lost");
    lost += gpu_backend_cuda.check_guards(t->device, b, r) == GPU_INFRA &&
            !strcmp(r->rule, "context-lost");
    lost += gpu_backend_cuda.load(t->device, "none", &module, r) == GPU_INFRA &&
            !strcmp(r->rule, "context-lost");
    gpu_backend_cuda.free(t->device, b);
    selftest_expect(t, lost == 6 && gpu_cuda_context_lost(t->device),
                    "%u of 6 later calls say context-lost: %s", lost, r->text);
    t->report = first;
}

static void expect_fault(struct selftest *t, enum gpu_status status, struct gpu_buffer *b)
{
    if (selftest_expect(t, status == GPU_FINDING && !strcmp(t->report.rule, "fault"),
                        "status %d, rule '%s': %s", (int)status, t->report.rule, t->report.text))
        expect_lost(t, b);
}

static void fence(struct selftest *t, uint64_t bytes, enum gpu_fence side, bool write)
{
    struct gpu_buffer b, out;
    int64_t last = (int64_t)bytes - 4;
    int64_t inside = side == GPU_FENCE_AFTER ? last : 0;
    int64_t outside = side == GPU_FENCE_AFTER ? last + 4 : -4;

    t->report.text[0] = '\0';
    if (!selftest_alloc(t, &b, "fenced", bytes, side) ||
        !selftest_alloc(t, &out, "out", 4, GPU_FENCE_AFTER) ||
        !selftest_need(t, access_at(t, write, &out, b.address, inside), "the element inside"))
        return;
    expect_fault(t, access_at(t, write, &out, b.address, outside), &b);
}

void selftest_fault_read_after(struct selftest *t)
{
    fence(t, 1000, GPU_FENCE_AFTER, false);
}

void selftest_fault_read_before(struct selftest *t)
{
    fence(t, 1000, GPU_FENCE_BEFORE, false);
}

void selftest_fault_write_after(struct selftest *t)
{
    fence(t, 1000, GPU_FENCE_AFTER, true);
}

void selftest_fault_large(struct selftest *t)
{
    fence(t, 5000000, GPU_FENCE_AFTER, false);
}

void selftest_fault_hole(struct selftest *t)
{
    const struct gpu_extent extents[] = {{0, 4096}, {1ull << 30, 4096}};
    struct gpu_buffer_desc desc = {.name = "holes",
                                   .size_bytes = (1ull << 30) + 4096,
                                   .elem_bytes = 4,
                                   .extents = extents,
                                   .n_extents = 2};
    struct gpu_buffer b, out;

    if (!selftest_need(t, gpu_backend_cuda.alloc(t->device, &desc, &b, &t->report), "alloc") ||
        !selftest_alloc(t, &out, "out", 4, GPU_FENCE_AFTER) ||
        !selftest_need(t, access_at(t, false, &out, b.address, 1ll << 30), "inside an extent"))
        return;
    expect_fault(t, access_at(t, false, &out, b.address, 1ll << 29), &b);
}

/* The same pages behind 5 GiB that are not there, twice: the second time nothing is mapped anew,
 * and nothing is left of the first. */
void selftest_fault_far(struct selftest *t)
{
    enum { WORDS = 3000, AT = 100 };
    static uint32_t words[WORDS];
    const uint64_t far = 5ull << 30;
    const struct gpu_extent extents[] = {{far, sizeof words / 2},
                                         {far + sizeof words / 2 + AT, sizeof words / 2 - AT}};
    struct gpu_buffer_desc desc = {.name = "far",
                                   .size_bytes = far + sizeof words,
                                   .elem_bytes = 4,
                                   .extents = extents,
                                   .n_extents = 2};
    struct gpu_cuda_usage first, second;
    struct gpu_buffer b, out;
    uint32_t got = 0;

    if (!selftest_alloc(t, &out, "out", 4, GPU_FENCE_AFTER)) return;
    for (int i = 0; i < 2; i++) {
        desc.fence = i ? GPU_FENCE_BEFORE : GPU_FENCE_AFTER;
        selftest_noise(words, sizeof words, (uint32_t)i);
        if (!selftest_need(t, gpu_backend_cuda.alloc(t->device, &desc, &b, &t->report), "alloc"))
            return;
        gpu_cuda_get_usage(t->device, i ? &second : &first);
        for (int e = 0; e < 2; e++)
            if (!selftest_need(t,
                               gpu_backend_cuda.upload(t->device, &b, extents[e].offset_bytes,
                                                       (uint8_t *)words +
                                                           (extents[e].offset_bytes - far),
                                                       extents[e].size_bytes, &t->report),
                               "upload"))
                return;
        if (!selftest_need(t, access_at(t, false, &out, b.address, (int64_t)far + 40), "inside") ||
            !selftest_need(t, gpu_backend_cuda.download(t->device, &out, 0, &got, 4, &t->report),
                           "download") ||
            !selftest_need(t, gpu_backend_cuda.check_guards(t->device, &b, &t->report), "guards"))
            return;
        selftest_expect(t, got == words[10], "read %08x", got);
        if (i == 0) gpu_backend_cuda.free(t->device, &b);
    }
    selftest_expect(t, first.regions_made == second.regions_made, "%llu regions, then %llu",
                    (unsigned long long)first.regions_made,
                    (unsigned long long)second.regions_made);
    expect_fault(t, access_at(t, false, &out, b.address, (int64_t)far - (4 << 20)), &b);
}

void selftest_fault_empty(struct selftest *t)
{
    struct gpu_buffer b, out;

    if (!selftest_alloc(t, &b, "empty", 0, GPU_FENCE_AFTER) ||
        !selftest_alloc(t, &out, "out", 4, GPU_FENCE_AFTER))
        return;
    selftest_expect(t, b.address != 0, "an empty buffer has the address %llx",
                    (unsigned long long)b.address);
    expect_fault(t, access_at(t, false, &out, b.address, 0), &out);
}

void selftest_fault_misaligned(struct selftest *t)
{
    struct gpu_buffer b, out;

    if (!selftest_alloc(t, &b, "odd", 64, GPU_FENCE_AFTER) ||
        !selftest_alloc(t, &out, "out", 4, GPU_FENCE_AFTER))
        return;
    void *args[] = {&out.address, &b.address};
    expect_fault(t, selftest_run(t, "selftest_misaligned", 1, 0, args), &b);
}

void selftest_fault_trap(struct selftest *t)
{
    struct gpu_buffer b;

    if (!selftest_alloc(t, &b, "out", 4, GPU_FENCE_AFTER)) return;
    void *args[] = {&b.address};
    expect_fault(t, selftest_run(t, "selftest_trap", 1, 0, args), &b);
}

void selftest_hang(struct selftest *t)
{
    struct gpu_buffer b;
    uint64_t ns = 20000000, start;

    if (!selftest_open(t, 300) || !selftest_alloc(t, &b, "out", 4, GPU_FENCE_AFTER)) return;
    void *args[] = {&b.address, &ns};
    if (!selftest_need(t, selftest_run(t, "selftest_spin", 1, 0, args), "20 ms of 300")) return;
    ns = 3000000000u; /* ends by itself, so that nothing keeps the device busy afterwards */
    start = selftest_now_ns();
    enum gpu_status status = selftest_run(t, "selftest_spin", 1, 0, args);
    double ms = (double)(selftest_now_ns() - start) / 1e6;
    if (selftest_expect(t, status == GPU_FINDING && !strcmp(t->report.rule, "hang") && ms < 1500,
                        "status %d after %.0f ms: %s", (int)status, ms, t->report.text))
        expect_lost(t, &b);
}

static void defer(struct selftest *t, uint32_t watchdog_ms)
{
    struct gpu_options options = {.watchdog_ms = watchdog_ms, .deferred = true};

    gpu_backend_cuda.set_options(t->device, &options);
}

static double launch_ms(struct selftest *t, const char *entry, void **args)
{
    uint64_t start = selftest_now_ns();

    if (!selftest_need(t, selftest_run(t, entry, 1, 0, args), "deferred launch")) return INFINITY;
    return (double)(selftest_now_ns() - start) / 1e6;
}

/* A deferred launch comes back at once; finish, a download or the next launch waits for it, and a
 * hang is the finding of whichever comes first. */
void selftest_deferred(struct selftest *t)
{
    struct gpu_buffer b;
    uint64_t ns = 400000000, start; /* far above what a busy machine delays a call by */
    uint32_t n = 1, first = 7, got = 0;

    if (!selftest_open(t, 0) || !selftest_alloc(t, &b, "out", 4, GPU_FENCE_AFTER)) return;
    void *spin[] = {&b.address, &ns}, *iota[] = {&b.address, &n, &first};
    if (!selftest_need(t, selftest_run(t, "selftest_iota", 1, 0, iota), "the first launch")) return;
    defer(t, 0);
    start = selftest_now_ns();
    double launched = launch_ms(t, "selftest_spin", spin);
    if (!selftest_need(t, gpu_backend_cuda.finish(t->device, &t->report), "finish")) return;
    double finished = (double)(selftest_now_ns() - start) / 1e6;
    selftest_expect(t, launched < 300 && finished >= 350,
                    "400 ms: launched in %.1f, finished in %.1f", launched, finished);
    launch_ms(t, "selftest_spin", spin);
    double second = launch_ms(t, "selftest_iota", iota);
    if (!selftest_need(t, gpu_backend_cuda.download(t->device, &b, 0, &got, 4, &t->report),
                       "download"))
        return;
    selftest_expect(t, second >= 100 && got == first, "the next launch waited %.1f ms, then %u",
                    second, got);
    defer(t, 200);
    launch_ms(t, "selftest_spin", spin);
    enum gpu_status status = selftest_run(t, "selftest_iota", 1, 0, iota);
    if (selftest_expect(t, status == GPU_FINDING && !strcmp(t->report.rule, "hang") &&
                               strstr(t->report.text, "selftest_spin"),
                        "a hang, told by the next launch: status %d: %s", (int)status,
                        t->report.text))
        expect_lost(t, &b);
}

void selftest_deferred_fault(struct selftest *t)
{
    struct gpu_buffer b;

    if (!selftest_alloc(t, &b, "out", 4, GPU_FENCE_AFTER)) return;
    void *args[] = {&b.address};
    defer(t, 0);
    /* The fault may be known before the launch has come back. */
    enum gpu_status status = selftest_run(t, "selftest_trap", 1, 0, args);
    if (status == GPU_OK) status = gpu_backend_cuda.finish(t->device, &t->report);
    selftest_expect(t, strstr(t->report.text, "selftest_trap") != NULL, "the kernel is named: %s",
                    t->report.text);
    expect_fault(t, status, &b);
}
