/* The CUDA backend: its self-test on the device where there is one, the same self-test and what no
 * device can be asked to do (running out of memory, missing functions) on a fake driver. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#include "cuda_backend.h"
#include "driver.h"
#include "selftest.h"
#include "test_fake_cuda.h"

struct lines {
    char fails[4000];
};

static void keep(void *context, const char *text)
{
    struct lines *l = context;
    size_t used = strlen(l->fails);

    if (strncmp(text, "ok ", 3) && strncmp(text, "note ", 5))
        snprintf(l->fails + used, sizeof l->fails - used, "%s\n", text);
}

Test(cuda, device, .timeout = 300)
{
    struct lines l = {""};
    int failed = gpu_cuda_selftest(NULL, keep, &l);

    if (failed == -1) cr_skip_test("no CUDA device: %s", l.fails);
    cr_assert_eq(failed, 0, "%d checks failed:\n%s", failed, l.fails);
}

static void fake_selftest(const char *filter)
{
    struct lines l = {""};

    gpu_cuda_driver_override(fake_cuda_lookup);
    int failed = gpu_cuda_selftest(filter, keep, &l);
    cr_assert_eq(failed, 0, "%d checks failed:\n%s", failed, l.fails);
}

/* One test a group of checks, so that Criterion names what broke; "rate" measures machines only. */
#define FAKE(name, filter)                \
    Test(cuda_fake, name, .timeout = 120) \
    {                                     \
        fake_selftest(filter);            \
    }
FAKE(info, "info")
FAKE(round_trip, "round-trip")
FAKE(alignment, "alignment")
FAKE(coherence, "coherence")
FAKE(extents, "extents")
FAKE(red_zone, "red-zone")
FAKE(reuse, "reuse")
FAKE(pool, "pool")
FAKE(descriptors, "descriptors")
FAKE(fault, "fault")
FAKE(hang, "hang")
FAKE(deferred, "deferred")
FAKE(entries, "entries")
FAKE(bad_module, "bad-module")
FAKE(shared, "shared")
FAKE(geometry, "geometry")
FAKE(replay, "replay")
FAKE(timing, "timing")
FAKE(reopen, "reopen")
FAKE(fork, "fork")

Test(cuda_fake, unknown_check)
{
    struct lines l = {""};

    gpu_cuda_driver_override(fake_cuda_lookup);
    cr_assert_eq(gpu_cuda_selftest("no-such-check", keep, &l), -2);
}

/* --- what only a fake can do --- */

static const struct gpu_backend *const cuda = &gpu_backend_cuda;
static struct gpu_device *device;
static struct gpu_report report;

/* Nothing of the driver's may be held any more. */
static void expect_none_held(const char *when)
{
    const struct fake_cuda_held *h = &fake_cuda_held, none = {0};

    cr_assert_eq(memcmp(h, &none, sizeof none), 0,
                 "%s: %lu reservations, %lu handles, %lu mappings, %lu host blocks, %lu modules, "
                 "%lu contexts, %lu streams, %lu events, %lu graphs, %lu execs",
                 when, h->reservations, h->handles, h->mappings, h->host_blocks, h->modules,
                 h->contexts, h->streams, h->events, h->graphs, h->execs);
}

static enum gpu_status open_fake(void)
{
    struct gpu_options options = {0};

    gpu_cuda_driver_override(fake_cuda_lookup);
    return cuda->open(&device, &options, &report);
}

static enum gpu_status alloc(struct gpu_buffer *b, uint64_t bytes)
{
    struct gpu_buffer_desc desc = {.name = "b", .size_bytes = bytes, .elem_bytes = 4};

    return cuda->alloc(device, &desc, b, &report);
}

Test(cuda_unavailable, no_device)
{
    fake_cuda_faults.devices = -1;
    cr_assert_eq(open_fake(), GPU_UNAVAILABLE);
    cr_assert(strstr(report.text, "none is visible"), "%s", report.text);
    cr_assert_null(device);
}

Test(cuda_unavailable, init_fails)
{
    fake_cuda_faults.init = CU_NO_DEVICE;
    cr_assert_eq(open_fake(), GPU_UNAVAILABLE);
    cr_assert(strstr(report.text, "100"), "%s", report.text);
}

Test(cuda_unavailable, selftest_skips)
{
    struct lines l = {""};

    fake_cuda_faults.devices = -1;
    gpu_cuda_driver_override(fake_cuda_lookup);
    cr_assert_eq(gpu_cuda_selftest(NULL, keep, &l), -1);
    cr_assert(!strncmp(l.fails, "skip device ", 12) && !strstr(l.fails, "FAIL"), "%s", l.fails);
}

Test(cuda_unavailable, old_driver)
{
    fake_cuda_faults.missing = "cuGraphInstantiateWithFlags";
    cr_assert_eq(open_fake(), GPU_UNAVAILABLE);
    cr_assert(strstr(report.text, "cuGraphInstantiateWithFlags"), "%s", report.text);
}

Test(cuda_unavailable, optional_function)
{
    struct lines l = {""};

    fake_cuda_faults.missing = "cuModuleEnumerateFunctions";
    gpu_cuda_driver_override(fake_cuda_lookup);
    /* The check wants names, so exactly it fails, and says that they cannot be listed. */
    cr_assert_eq(gpu_cuda_selftest("entries", keep, &l), 1);
    cr_assert(strstr(l.fails, "cannot list"), "%s", l.fails);
}

Test(cuda_memory, close_gives_all_back)
{
    struct gpu_extent far[] = {{0, 64}, {1ull << 32, 64}};
    struct gpu_buffer_desc desc = {.name = "far",
                                   .size_bytes = (1ull << 32) + 64,
                                   .elem_bytes = 4,
                                   .extents = far,
                                   .n_extents = 2};
    struct gpu_buffer small, large, sparse, left;

    cr_assert_eq(open_fake(), GPU_OK, "%s", report.text);
    cr_assert_eq(alloc(&small, 100), GPU_OK);
    cr_assert_eq(alloc(&large, 40 << 20), GPU_OK);
    cr_assert_eq(alloc(&left, 3000), GPU_OK);
    cr_assert_eq(cuda->alloc(device, &desc, &sparse, &report), GPU_OK, "%s", report.text);
    cuda->free(device, &small);
    cuda->free(device, &large);
    cuda->free(device, &sparse);
    cuda->free(device, &sparse); /* twice does nothing */
    cuda->close(device);         /* with one buffer still live: the device owns it */
    expect_none_held("closed");
}

Test(cuda_memory, reopen_keeps_nothing)
{
    for (int i = 0; i < 3; i++) {
        struct gpu_buffer b[4];
        cr_assert_eq(open_fake(), GPU_OK, "%s", report.text);
        for (int k = 0; k < 4; k++) cr_assert_eq(alloc(&b[k], 1000u << (4 * k)), GPU_OK);
        for (int k = 0; k < 4; k++) cuda->free(device, &b[k]);
        cuda->close(device);
        expect_none_held("closed");
    }
}

Test(cuda_memory, a_full_device_empties_the_pool)
{
    struct gpu_buffer b[16], big;
    struct gpu_cuda_usage usage;

    fake_cuda_faults.memory_bytes = 64u << 20;
    cr_assert_eq(open_fake(), GPU_OK, "%s", report.text);
    for (int i = 0; i < 16; i++) cr_assert_eq(alloc(&b[i], 2u << 20), GPU_OK, "%s", report.text);
    for (int i = 0; i < 16; i++) cuda->free(device, &b[i]);
    cr_assert_eq(alloc(&big, 56u << 20), GPU_OK, "%s", report.text);
    gpu_cuda_get_usage(device, &usage);
    cr_assert_eq(usage.pooled_bytes, 0);
    cr_assert_eq(alloc(&b[0], 32u << 20), GPU_INFRA);
    cr_assert_str_eq(report.rule, "out-of-memory");
    cuda->free(device, &big);
    cr_assert_eq(alloc(&b[0], 32u << 20), GPU_OK, "%s", report.text);
    cuda->close(device);
}

/* Nothing may be unmapped under work that is still going on. */
Test(cuda_memory, unmaps_only_when_idle)
{
    static uint8_t bytes[1 << 20];
    struct gpu_extent parts[] = {{0, 64}, {1ull << 32, sizeof bytes}};
    struct gpu_buffer_desc sparse = {.name = "sparse",
                                     .size_bytes = (1ull << 32) + sizeof bytes,
                                     .elem_bytes = 4,
                                     .extents = parts,
                                     .n_extents = 2};
    struct gpu_cuda_usage before, after;
    struct gpu_buffer b, next;

    cr_assert_eq(open_fake(), GPU_OK, "%s", report.text);
    gpu_cuda_get_usage(device, &before);
    cr_assert_eq(cuda->alloc(device, &sparse, &b, &report), GPU_OK, "%s", report.text);
    cr_assert_eq(
        cuda->upload(device, &b, parts[1].offset_bytes, bytes, sizeof bytes, &report), GPU_OK);
    cuda->free(device, &b);
    cr_assert_eq(alloc(&next, 0), GPU_OK, "%s", report.text);
    gpu_cuda_get_usage(device, &after);
    cr_assert_eq(after.mapped_bytes, before.mapped_bytes);
    cr_assert_eq(fake_cuda_held.mappings, 0);
    cr_assert_eq(alloc(&b, 64 << 20), GPU_OK, "%s", report.text);
    cr_assert_eq(cuda->upload(device, &b, 0, bytes, sizeof bytes, &report), GPU_OK);
    cuda->free(device, &b);
    cuda->free(device, &next);
    cuda->close(device);
    expect_none_held("closed");
}

/* Every call of an alloc fails once; nothing may be left behind, and the next alloc works. */
Test(cuda_memory, failures_leave_nothing)
{
    static const char *const symbols[] = {"cuMemAddressReserve", "cuMemCreate", "cuMemMap",
                                          "cuMemSetAccess"};
    struct gpu_extent parts[] = {{0, 64}, {5u << 20, 64}, {64u << 20, 64}};
    struct gpu_buffer_desc sparse = {.name = "sparse",
                                     .size_bytes = (64u << 20) + 64,
                                     .elem_bytes = 4,
                                     .extents = parts,
                                     .n_extents = 3};

    for (size_t s = 0; s < sizeof symbols / sizeof *symbols; s++) {
        for (uint32_t after = 0; after < 3; after++) {
            struct gpu_buffer b;
            cr_assert_eq(open_fake(), GPU_OK, "%s", report.text);
            fake_cuda_faults.fail_symbol = symbols[s];
            fake_cuda_faults.fail_after = after;
            fake_cuda_faults.fail_result = CU_INVALID_VALUE;
            bool failed = cuda->alloc(device, &sparse, &b, &report) != GPU_OK;
            if (after == 0) cr_assert(failed && strstr(report.text, symbols[s]), "%s", report.text);
            fake_cuda_faults.fail_after = 0;
            cr_assert_eq(alloc(&b, 100u << 20), GPU_INFRA);
            fake_cuda_faults.fail_symbol = NULL;
            cr_assert_eq(alloc(&b, 100), GPU_OK, "%s", report.text);
            cuda->close(device);
            expect_none_held(symbols[s]);
        }
    }
}

Test(cuda_memory, helper_kernels_are_optional)
{
    struct lines l = {""};

    fake_cuda_faults.reject_entry = "gpu_cuda_verify";
    gpu_cuda_driver_override(fake_cuda_lookup);
    cr_assert_eq(gpu_cuda_selftest("red-zone", keep, &l), 0, "%s", l.fails);
    cr_assert_eq(gpu_cuda_selftest("info", keep, &l), 1);
    cr_assert(strstr(l.fails, "no such op"), "%s", l.fails);
}
