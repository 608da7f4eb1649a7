/* Every way of being wrong is found, named, and placed at the right line, block and thread; and the
 * device is fit for use afterwards. */
#include "test_support.h"

#include "fiber.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum build { FAST = 1, TRACED = 2, BOTH = 3 };

/* Runs `fine` on the same device. */
static void expect_usable(struct simt_test *test)
{
    struct gpu_buffer out = simt_test_buffer(test, "out", 64, 4, NULL);
    void *args[] = {&out.address};
    uint32_t got[64];

    cr_assert_eq(simt_test_run(test, "fine", 1, 64, 64, args), GPU_OK, "after a finding: %s",
                 test->report.text);
    simt_test_read(test, &out, got, sizeof got);
    for (uint32_t i = 0; i < 64; i++) cr_assert_eq(got[i], i);
    gpu_backend_simt.free(test->device, &out);
}

static void expect_text(const struct simt_test *test, const char *part)
{
    cr_assert(strstr(test->report.text, part) != NULL, "\"%s\" does not say \"%s\"",
              test->report.text, part);
}

/* The finding of a kernel: its rule, what its text says, and the line marked with `marker`. */
static void expect_finding(struct simt_test *test, enum gpu_status status, const char *rule,
                           const char *part, const char *thread, const char *marker)
{
    char line[64];

    cr_assert_eq(status, GPU_FINDING, "status %d: %s", status, test->report.text);
    cr_assert_str_eq(test->report.rule, rule, "%s: %s", test->report.rule, test->report.text);
    expect_text(test, part);
    expect_text(test, thread);
    if (!marker) return;
    snprintf(line, sizeof line, "testdata/bad.cu:%d", simt_test_line("bad.cu", marker));
    expect_text(test, line);
}

/* A kernel that takes one buffer of 64 + 4 ints, filled with zeros. */
struct simple_case {
    const char *entry;
    enum build build;
    uint32_t grid, block, shared_bytes;
    const char *rule, *part, *thread;
};

static void run_simple(const struct simple_case *c, bool trace, uint64_t schedule)
{
    struct simt_test test;
    struct gpu_buffer out;
    int zeros[68] = {0}, by = 0;
    void *args[] = {&out.address, &by};
    enum gpu_status status;
    bool has_line = strcmp(c->entry, "endless_barriers") && strcmp(c->entry, "overflows_stack");

    simt_test_open(&test, "bad", trace);
    test.options.watchdog_ms = 100;
    simt_test_schedule(&test, schedule);
    out = simt_test_buffer(&test, "out", 68, 4, zeros);
    status = simt_test_run(&test, c->entry, c->grid, c->block, c->shared_bytes, args);
    expect_finding(&test, status, c->rule, c->part, c->thread, has_line ? c->entry : NULL);
    expect_text(&test, c->entry);
    gpu_backend_simt.free(test.device, &out);
    expect_usable(&test);
    simt_test_close(&test);
}

static const struct simple_case simple_cases[] = {
    {"unwritten_shared", TRACED, 1, 64, 0, "uninitialised-read", "values, element 24",
     "thread (6,0,0)"},
    {"unwritten_dynamic", TRACED, 1, 64, 256, "uninitialised-read",
     "dynamic shared memory, element 0", "thread (1,0,0)"},
    {"no_barrier", TRACED, 1, 64, 0, "shared-race", "of values, element", "by thread ("},
    {"part_of_a_word", TRACED, 1, 64, 0, "shared-race", "of words, element 14", "thread (40,0,0)"},
    {"byte_of_a_byte", TRACED, 1, 64, 0, "global-race", "of out, element 0 (byte 3)",
     "thread (34,0,0)"},
    {"no_syncwarp", TRACED, 1, 32, 0, "shared-race", "of values, element", "by thread ("},
    {"shuffle_is_no_fence", TRACED, 1, 32, 0, "shared-race", "of values, element", "by thread ("},
    {"blocks_write_the_same", TRACED, 3, 32, 0, "global-race", "write of out, element 0",
     "by block ("},
    {"block_reads_another", TRACED, 3, 32, 0, "global-race", "of out, element", "by block ("},
    {"global_without_barrier", TRACED, 1, 64, 0, "global-race", "of out, element 2", "by thread ("},
    {"plain_beside_atomic", TRACED, 1, 64, 0, "global-race", "of out, element 0", "by thread ("},
    {"barrier_after_return", BOTH, 1, 64, 0, "partial-barrier",
     "reached by 20 of the block's 64 threads (44 have returned)", "thread (0,0,0)"},
    {"barrier_against_shuffle", BOTH, 1, 64, 0, "partial-barrier", "waits in a shuffle",
     "thread (0,0,0)"},
    {"barriers_of_two_kinds", BOTH, 1, 64, 0, "partial-barrier", "of another kind",
     "thread (32,0,0)"},
    {"shuffle_after_return", BOTH, 1, 32, 0, "partial-warp-collective",
     "waits for lane 5 in vain: thread (5,0,0) has returned", "thread (0,0,0)"},
    {"two_collectives", BOTH, 1, 32, 0, "partial-warp-collective",
     "thread (16,0,0) waits in __ballot_sync", "thread (0,0,0)"},
    {"not_in_mask", BOTH, 1, 32, 0, "partial-warp-collective", "does not name it",
     "thread (31,0,0)"},
    {"circle_of_masks", BOTH, 1, 32, 0, "deadlock", "wait for each other", "thread (0,0,0)"},
    {"endless", BOTH, 1, 32, 0, "hang", "not finished after 100 ms", "thread (0,0,0)"},
    {"endless_barriers", BOTH, 1, 32, 0, "hang", "not finished after 100 ms", "block (0,0,0)"},
    {"divides", BOTH, 1, 32, 0, "fault", "division by zero", "thread (11,0,0)"},
    {"traps", BOTH, 2, 32, 0, "fault", "__trap()", "block (0,0,0) thread (1,0,0)"},
    {"asserts", BOTH, 1, 32, 0, "fault", "assertion failed: threadIdx.x < 2", "thread (2,0,0)"},
    {"misaligned", BOTH, 1, 1, 0, "fault", "misaligned", "thread (0,0,0)"},
    {"overflows_stack", FAST, 1, 1, 0, "fault", "stack overflowed", "thread (0,0,0)"},
};

/* Builds with UndefinedBehaviorSanitizer trap where the others fault or run on. */
static bool traps_first(const char *entry)
{
    return SIMT_WITH_ASAN && (strcmp(entry, "divides") == 0 || strcmp(entry, "misaligned") == 0);
}

static const struct simple_case *find_case(const char *entry)
{
    for (size_t i = 0; i < sizeof simple_cases / sizeof *simple_cases; i++)
        if (strcmp(simple_cases[i].entry, entry) == 0) return &simple_cases[i];
    cr_assert_fail("no case %s", entry);
    return NULL;
}

#define SIMPLE(name)                                                           \
    Test(simt_findings, name)                                                  \
    {                                                                          \
        const struct simple_case *c = find_case(#name);                        \
                                                                               \
        if ((c->build & FAST) && !traps_first(#name)) run_simple(c, false, 0); \
        if (c->build & TRACED) run_simple(c, true, 0);                         \
    }
SIMPLE(unwritten_shared)
SIMPLE(unwritten_dynamic)
SIMPLE(no_barrier)
SIMPLE(part_of_a_word)
SIMPLE(byte_of_a_byte)
SIMPLE(no_syncwarp)
SIMPLE(shuffle_is_no_fence)
SIMPLE(blocks_write_the_same)
SIMPLE(block_reads_another)
SIMPLE(global_without_barrier)
SIMPLE(plain_beside_atomic)
SIMPLE(barrier_after_return)
SIMPLE(barrier_against_shuffle)
SIMPLE(barriers_of_two_kinds)
SIMPLE(shuffle_after_return)
SIMPLE(two_collectives)
SIMPLE(not_in_mask)
SIMPLE(circle_of_masks)
SIMPLE(endless)
SIMPLE(endless_barriers)
SIMPLE(divides)
SIMPLE(traps)
SIMPLE(asserts)
SIMPLE(misaligned)
SIMPLE(overflows_stack)

/* A finding does not depend on the luck of the schedule. */
/* Both places of a race: the launch runs again for the earlier one. */
Test(simt_findings, race_names_the_earlier_access_too)
{
    struct simt_test test;
    struct gpu_buffer out;
    int zeros[68] = {0}, by = 0;
    void *args[] = {&out.address, &by};

    simt_test_open(&test, "bad", true);
    out = simt_test_buffer(&test, "out", 68, 4, zeros);
    cr_assert_eq(simt_test_run(&test, "part_of_a_word", 1, 64, 0, args), GPU_FINDING);
    expect_text(&test, "after the write by thread (3,0,0) at ");
    expect_text(&test, "testdata/bad.cu:79, block (0,0,0) thread (40,0,0)");
    cr_assert_eq(simt_test_run(&test, "no_syncwarp", 1, 32, 0, args), GPU_FINDING);
    expect_text(&test, "of the same warp, with no __syncwarp between at ");
    gpu_backend_simt.free(test.device, &out);
    expect_usable(&test);
    simt_test_close(&test);
}

Test(simt_findings, races_under_every_schedule)
{
    static const char *const races[] = {"no_barrier", "no_syncwarp", "blocks_write_the_same",
                                        "global_without_barrier"};

    for (size_t i = 0; i < sizeof races / sizeof *races; i++) {
        for (uint64_t schedule = 1; schedule < 8; schedule++) {
            struct simt_test test;
            struct gpu_buffer out;
            int zeros[68] = {0};
            void *args[] = {&out.address};

            simt_test_open(&test, "bad", true);
            simt_test_schedule(&test, schedule);
            out = simt_test_buffer(&test, "out", 68, 4, zeros);
            cr_assert_eq(simt_test_run(&test, races[i], 2, find_case(races[i])->block, 0, args),
                         GPU_FINDING, "%s under schedule %llu", races[i],
                         (unsigned long long)schedule);
            cr_assert(strstr(test.report.rule, "-race") != NULL);
            gpu_backend_simt.free(test.device, &out);
            simt_test_close(&test);
        }
    }
}

/* A buffer of n ints with a fence on the given side, an input of the kernel or not. */
static struct gpu_buffer fenced(struct simt_test *test, const char *name, uint32_t n,
                                enum gpu_fence fence, bool read_only)
{
    static const int zeros[1024];
    struct gpu_buffer_desc desc = {
        .name = name, .size_bytes = n * 4, .elem_bytes = 4, .read_only = read_only, .fence = fence};

    return simt_test_alloc(test, &desc, zeros);
}

static void read_outside(bool trace, enum gpu_fence fence, long long index, const char *part)
{
    struct simt_test test;
    struct gpu_buffer in, out;
    void *args[] = {&in.address, &out.address, &index};
    enum gpu_status status;

    simt_test_open(&test, "bad", trace);
    in = fenced(&test, "in", 100, fence, true);
    out = fenced(&test, "out", 100, fence, false);
    status = simt_test_run(&test, "read_at", 1, 32, 0, args);
    expect_finding(&test, status, "out-of-bounds-read", part,
                   "block (0,0,0) thread (17,0,0), kernel read_at", "read_at");
    gpu_backend_simt.free(test.device, &in);
    gpu_backend_simt.free(test.device, &out);
    expect_usable(&test);
    simt_test_close(&test);
}

Test(simt_findings, read_past_the_end)
{
    read_outside(false, GPU_FENCE_AFTER, 100, "in, 0 bytes past its end (element 100)");
    read_outside(true, GPU_FENCE_AFTER, 104, "in, 16 bytes past its end (element 104)");
    /* The trace does not need the fence on that side. */
    read_outside(true, GPU_FENCE_BEFORE, 100, "in, 0 bytes past its end (element 100)");
}

Test(simt_findings, read_before_the_start)
{
    read_outside(false, GPU_FENCE_BEFORE, -1, "in, 4 bytes before its start");
    read_outside(true, GPU_FENCE_BEFORE, -1, "in, 4 bytes before its start");
    read_outside(true, GPU_FENCE_AFTER, -1, "in, 4 bytes before its start");
}

static void write_outside(bool trace, long long index, const char *part)
{
    struct simt_test test;
    struct gpu_buffer out;
    void *args[] = {&out.address, &index};
    enum gpu_status status;

    simt_test_open(&test, "bad", trace);
    out = fenced(&test, "out", 64, GPU_FENCE_AFTER, false);
    status = simt_test_run(&test, "write_at", 1, 32, 0, args);
    expect_finding(&test, status, "out-of-bounds-write", part, "thread (9,0,0), kernel write_at",
                   "write_at");
    gpu_backend_simt.free(test.device, &out);
    expect_usable(&test);
    simt_test_close(&test);
}

Test(simt_findings, write_past_the_end)
{
    write_outside(false, 65, "out, 4 bytes past its end (element 65)");
    write_outside(true, 65, "out, 4 bytes past its end (element 65)");
    /* Far outside, where another buffer could have been. */
    write_outside(false, 1 << 20, "out, 4194048 bytes past its end");
}

/* What the fence does not stop the red zone shows afterwards. */
Test(simt_findings, write_into_the_red_zone)
{
    struct simt_test test;
    struct gpu_buffer out;
    long long index = -3;
    void *args[] = {&out.address, &index};

    simt_test_open(&test, "bad", false);
    out = fenced(&test, "out", 64, GPU_FENCE_AFTER, false);
    cr_assert_eq(gpu_backend_simt.check_guards(test.device, &out, &test.report), GPU_OK);
    cr_assert_eq(simt_test_run(&test, "write_at", 1, 32, 0, args), GPU_OK);
    cr_assert_eq(gpu_backend_simt.check_guards(test.device, &out, &test.report), GPU_FINDING);
    cr_assert_str_eq(test.report.rule, "red-zone");
    expect_text(&test, "12 bytes before the start of out");
    gpu_backend_simt.free(test.device, &out);
    simt_test_close(&test);
}

static void wrapped_index(bool trace)
{
    struct simt_test test;
    struct gpu_buffer out;
    int index = -10;
    void *args[] = {&out.address, &index};
    enum gpu_status status;

    simt_test_open(&test, "bad", trace);
    out = fenced(&test, "out", 64, GPU_FENCE_AFTER, false);
    status = simt_test_run(&test, "wrapped_index", 1, 32, 0, args);
    expect_finding(&test, status, "out-of-bounds-write",
                   "out, element 4294967289: element -7 as an unsigned 32-bit index",
                   "thread (3,0,0)", "wrapped_index");
    gpu_backend_simt.free(test.device, &out);
    simt_test_close(&test);
}
Test(simt_findings, index_that_wrapped)
{
    wrapped_index(false);
    wrapped_index(true);
}

static void write_input(bool trace)
{
    struct simt_test test;
    struct gpu_buffer in;
    void *args[] = {&in.address};
    int value = 3, got = 0;
    enum gpu_status status;

    simt_test_open(&test, "bad", trace);
    in = fenced(&test, "in", 64, GPU_FENCE_AFTER, true);
    for (int round = 0; round < 2; round++) {
        status = simt_test_run(&test, "write_input", 1, 32, 0, args);
        expect_finding(&test, status, "write-to-input", "in, element 2", "thread (4,0,0)",
                       "write_input");
        /* The host may go on writing to it. */
        status = gpu_backend_simt.upload(test.device, &in, 8, &value, 4, &test.report);
        cr_assert_eq(status, GPU_OK);
        simt_test_read(&test, &in, &got, 4);
    }
    gpu_backend_simt.free(test.device, &in);
    expect_usable(&test);
    simt_test_close(&test);
}
Test(simt_findings, write_to_an_input)
{
    write_input(false);
    write_input(true);
}

Test(simt_findings, read_of_unwritten_global)
{
    struct simt_test test;
    struct gpu_buffer out, scratch;
    int poison[32];
    void *args[] = {&out.address, &scratch.address};
    enum gpu_status status;

    memset(poison, 0x7f, sizeof poison);
    simt_test_open(&test, "bad", true);
    out = fenced(&test, "out", 32, GPU_FENCE_AFTER, false);
    scratch = simt_test_buffer(&test, "scratch", 32, 4, poison);
    cr_assert_eq(simt_test_run(&test, "unwritten_global", 1, 32, 0, args), GPU_OK, "%s",
                 test.report.text);
    gpu_backend_simt.mark_unwritten(test.device, &scratch);
    status = gpu_backend_simt.upload(test.device, &scratch, 0, poison, 40, &test.report);
    cr_assert_eq(status, GPU_OK);
    status = simt_test_run(&test, "unwritten_global", 1, 32, 0, args);
    expect_finding(&test, status, "uninitialised-read", "scratch, element 10", "thread (10,0,0)",
                   "unwritten_global");
    /* A read and a write in one statement is still a read. */
    gpu_backend_simt.mark_unwritten(test.device, &out);
    status = simt_test_run(&test, "accumulates_unwritten", 1, 32, 0, args);
    expect_finding(&test, status, "uninitialised-read", "out, element 0", "thread (0,0,0)",
                   "accumulates_unwritten");
    gpu_backend_simt.free(test.device, &out);
    gpu_backend_simt.free(test.device, &scratch);
    simt_test_close(&test);
}

static void unmapped_extent(bool trace)
{
    const long long far = 1ll << 31;
    struct simt_test test;
    struct gpu_extent extents[] = {{0, 4096}, {4 * far, 4096}};
    struct gpu_buffer_desc desc = {.name = "pages",
                                   .size_bytes = 4 * far + 4096,
                                   .elem_bytes = 4,
                                   .read_only = true,
                                   .extents = extents,
                                   .n_extents = 2};
    struct gpu_buffer pages, out;
    long long index = far - 5;
    int zeros[1024] = {0};
    void *args[] = {&pages.address, &out.address, &index};
    enum gpu_status status;

    simt_test_open(&test, "bad", trace);
    pages = simt_test_alloc(&test, &desc, NULL);
    out = fenced(&test, "out", 32, GPU_FENCE_AFTER, false);
    status = gpu_backend_simt.upload(test.device, &pages, 4 * far, zeros, 4096, &test.report);
    cr_assert_eq(status, GPU_OK);
    status = simt_test_run(&test, "read_at", 1, 32, 0, args);
    expect_finding(&test, status, "out-of-bounds-read",
                   "pages, element 2147483643 (byte 8589934572), which no extent backs",
                   "thread (17,0,0)", "read_at");
    index = far + 3;
    cr_assert_eq(simt_test_run(&test, "read_at", 1, 32, 0, args), GPU_OK, "%s", test.report.text);
    /* Uploads outside the extents are the caller's mistake. */
    cr_assert_eq(gpu_backend_simt.upload(test.device, &pages, 4000, zeros, 200, &test.report),
                 GPU_INFRA);
    gpu_backend_simt.free(test.device, &pages);
    gpu_backend_simt.free(test.device, &out);
    simt_test_close(&test);
}
Test(simt_findings, outside_the_extents)
{
    unmapped_extent(false);
    unmapped_extent(true);
}

static void overrun_shared(bool trace, const char *entry, int index, const char *rule,
                           const char *part)
{
    struct simt_test test;
    struct gpu_buffer out;
    void *args[] = {&out.address, &index};
    enum gpu_status status;
    bool is_dynamic = strcmp(entry, "overruns_dynamic") == 0;
    /* Without the trace an overrun that meets no unmapped page is only seen after the block. */
    bool at_once = trace || (is_dynamic ? index % 4 == 0 : SIMT_WITH_ASAN);

    simt_test_open(&test, "bad", trace);
    out = fenced(&test, "out", 64, GPU_FENCE_AFTER, false);
    status = simt_test_run(&test, entry, 1, 32, is_dynamic ? (uint32_t)index * 4 : 64, args);
    expect_finding(&test, status, rule, part, at_once ? "thread (2,0,0)" : "block (0,0,0)",
                   at_once && !(SIMT_WITH_ASAN && !trace) ? entry : NULL);
    gpu_backend_simt.free(test.device, &out);
    expect_usable(&test);
    simt_test_close(&test);
}
Test(simt_findings, shared_overruns)
{
    if (SIMT_WITH_ASAN)
        overrun_shared(false, "overruns_static", 8, "fault", "trap");
    else
        overrun_shared(false, "overruns_static", 8, "red-zone", "past the end of first");
    overrun_shared(true, "overruns_static", 8, "out-of-bounds-write",
                   "first, 0 bytes past its end");
    overrun_shared(false, "overruns_dynamic", 16, "out-of-bounds-write",
                   "dynamic shared memory, 0 bytes past its end");
    overrun_shared(true, "overruns_dynamic", 16, "out-of-bounds-write",
                   "dynamic shared memory, 0 bytes past its end");
    /* 68 bytes end in the middle of 16. */
    overrun_shared(false, "overruns_dynamic", 17, "red-zone",
                   "past the end of dynamic shared memory");
    overrun_shared(true, "overruns_dynamic", 17, "out-of-bounds-write",
                   "dynamic shared memory, 0 bytes past its end");
}

/* A struct copy is one wide access or a memcpy: both are checked as a whole. */
Test(simt_findings, copies_across_the_end)
{
    struct simt_test test;
    struct gpu_buffer in, out;
    int data[8] = {0}, n = 1;
    struct gpu_buffer_desc desc = {
        .name = "out", .size_bytes = 24, .elem_bytes = 4, .align_bytes = 16};
    void *args[] = {&in.address, &out.address, &n};
    enum gpu_status status;

    simt_test_open(&test, "bad", true);
    in = simt_test_buffer(&test, "in", 2, 16, data);
    out = simt_test_alloc(&test, &desc, data);
    status = simt_test_run(&test, "copies_too_much", 1, 32, 0, args);
    expect_finding(&test, status, "out-of-bounds-write", "out, 16 bytes across its end (element 4)",
                   "thread (0,0,0)", "copies_too_much");
    gpu_backend_simt.free(test.device, &in);
    gpu_backend_simt.free(test.device, &out);
    simt_test_close(&test);
}

static void null_pointer(bool trace)
{
    struct simt_test test;
    uint64_t null = 0;
    long long index = 0;
    void *args[] = {&null, &index};
    enum gpu_status status;

    simt_test_open(&test, "bad", trace);
    status = simt_test_run(&test, "write_at", 1, 32, 0, args);
    expect_finding(&test, status, "fault", "address 0x0, which is in no buffer", "thread (9,0,0)",
                   "write_at");
    expect_usable(&test);
    simt_test_close(&test);
}
Test(simt_findings, null_pointer)
{
    if (!SIMT_WITH_ASAN) null_pointer(false);
    null_pointer(true);
}

Test(simt_findings, freed_buffer)
{
    struct simt_test test;
    struct gpu_buffer out;
    uint64_t address;
    long long index = 0;
    void *args[] = {&address, &index};

    simt_test_open(&test, "bad", true);
    out = fenced(&test, "out", 64, GPU_FENCE_AFTER, false);
    address = out.address;
    gpu_backend_simt.free(test.device, &out);
    cr_assert_eq(simt_test_run(&test, "write_at", 1, 32, 0, args), GPU_FINDING);
    simt_test_close(&test);
}
