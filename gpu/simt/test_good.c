/* Correct kernels give what the host computes, without a finding and with the same bits under every
 * schedule, with and without the trace. */
#include "test_support.h"

#include <criterion/criterion.h>
#include <string.h>

#define MAX_OUT 4096
#define SCHEDULES 8

/* Runs a kernel once and checks it; returns the words it wrote. */
typedef size_t (*good_case)(struct simt_test *test, uint32_t *out);

static void expect_ok(struct simt_test *test, enum gpu_status status)
{
    cr_assert_eq(status, GPU_OK, "%s: %s", test->report.rule, test->report.text);
}

static void read_and_free(struct simt_test *test, struct gpu_buffer *buffer, void *target,
                          uint64_t bytes)
{
    enum gpu_status status = gpu_backend_simt.check_guards(test->device, buffer, &test->report);

    cr_assert_eq(status, GPU_OK, "%s", test->report.text);
    simt_test_read(test, buffer, target, bytes);
    gpu_backend_simt.free(test->device, buffer);
}

static void run_everywhere(const char *module, good_case run)
{
    static uint32_t first[MAX_OUT], out[MAX_OUT];
    size_t n_first = 0;

    for (int trace = 0; trace < 2; trace++) {
        struct simt_test test;

        simt_test_open(&test, module, trace);
        for (uint64_t schedule = 0; schedule < SCHEDULES; schedule++) {
            size_t n;

            simt_test_schedule(&test, schedule);
            n = run(&test, out);
            cr_assert_gt(n, 0);
            cr_assert_leq(n, MAX_OUT);
            if (trace == 0 && schedule == 0) {
                memcpy(first, out, sizeof out);
                n_first = n;
            }
            cr_assert_eq(n, n_first);
            cr_assert_eq(memcmp(out, first, n * sizeof *out), 0, "trace %d schedule %llu differ",
                         trace, (unsigned long long)schedule);
        }
        simt_test_close(&test);
    }
}

static size_t run_indices(struct simt_test *test, uint32_t *out)
{
    struct gpu_dim grid = {2, 3, 2}, block = {5, 2, 4};
    uint32_t n = 12 * 40;
    struct gpu_buffer buffer = simt_test_buffer(test, "out", n, 4, NULL);
    struct gpu_target target = {&gpu_backend_simt, test->device, test->module, "indices"};
    void *args[] = {&buffer.address};

    /* The target's own entry replaces the name. */
    expect_ok(test, gpu_run(&target, "no_such_name", grid, block, 0, args, &test->report));
    read_and_free(test, &buffer, out, n * 4);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t b = i / 40, t = i % 40;

        cr_assert_eq(out[i], (b % 2) << 28 | (b / 2 % 3) << 24 | (b / 6) << 20 | (t % 5) << 8 |
                                 (t / 5 % 2) << 4 | t / 10);
    }
    return n;
}
Test(simt_good, indices)
{
    run_everywhere("good", run_indices);
}

static size_t run_block_sum(struct simt_test *test, uint32_t *out)
{
    float in[1000], sums[3];
    int n = 1000;
    struct gpu_buffer_desc desc = {
        .name = "in", .size_bytes = sizeof in, .elem_bytes = 4, .read_only = true};
    struct gpu_buffer input, output = simt_test_buffer(test, "out", 3, 4, NULL);
    void *args[] = {&input.address, &output.address, &n};

    for (int i = 0; i < n; i++) in[i] = (float)(i * 7 % 101); /* integers: exact in any order */
    input = simt_test_alloc(test, &desc, in);
    expect_ok(test, simt_test_run(test, "block_sum", 3, 256, 32, args));
    read_and_free(test, &output, sums, sizeof sums);
    gpu_backend_simt.free(test->device, &input);
    for (int b = 0; b < 3; b++) {
        float sum = 0;

        for (int i = 0; i < n; i++) sum += in[i];
        cr_assert_eq(sums[b], sum);
    }
    memcpy(out, sums, sizeof sums);
    return 3;
}
Test(simt_good, dynamic_shared_and_shuffles)
{
    run_everywhere("good", run_block_sum);
}

static size_t run_transpose(struct simt_test *test, uint32_t *out)
{
    int in[1024];
    struct gpu_dim grid = {1, 1, 1}, block = {32, 8, 1};
    struct gpu_target target = {&gpu_backend_simt, test->device, test->module, NULL};
    struct gpu_buffer input, output = simt_test_buffer(test, "out", 1024, 4, NULL);
    void *args[] = {&input.address, &output.address};

    for (int i = 0; i < 1024; i++) in[i] = i * i;
    input = simt_test_buffer(test, "in", 1024, 4, in);
    expect_ok(test, gpu_run(&target, "transpose", grid, block, 0, args, &test->report));
    read_and_free(test, &output, out, 4096);
    gpu_backend_simt.free(test->device, &input);
    for (int i = 0; i < 1024; i++) cr_assert_eq(out[i], (uint32_t)in[i % 32 * 32 + i / 32]);
    return 1024;
}
Test(simt_good, static_shared)
{
    run_everywhere("good", run_transpose);
}

/* What PTX defines the collectives of `collectives` to give for one lane. */
static void expected_collectives(uint32_t lane, uint32_t want[24])
{
    uint32_t thirds = 0, same = 0, xor_squares = 0, min = UINT32_MAX, and = UINT32_MAX;

    for (uint32_t i = 0; i < 32; i++) {
        thirds |= (uint32_t)(i % 3 == 0) << i;
        same |= (uint32_t)(i % 5 == lane % 5) << i;
        xor_squares ^= i * i;
        if ((i ^ 21) < min) min = i ^ 21;
        and &= i | 0x10;
    }
    want[0] = 21;
    want[1] = 3 * (lane / 8 * 8 + (lane + 5) % 8);
    want[2] = lane >= 3 ? lane - 3 : lane;
    want[3] = lane % 16 >= 2 ? lane - 2 : lane;
    want[4] = lane + 5 < 32 ? lane + 5 : lane;
    want[5] = lane % 4 < 3 ? lane + 1 : lane;
    want[6] = lane ^ 9;
    want[7] = (lane & 8) ? lane ^ 8 : lane; /* lane ^ 8 is in a later segment of 8, or an earlier */
    want[8] = thirds;
    want[9] = 1;
    want[10] = 1;
    want[11] = same;
    want[12] = UINT32_MAX;
    want[13] = 1;
    want[14] = 0;
    want[15] = 31 * 32 / 2;
    want[16] = min;
    want[17] = (uint32_t)-9;
    want[18] = and;
    want[19] = UINT32_MAX;
    want[20] = xor_squares;
    want[21] = 12;
    want[22] = lane < 31 ? lane + 1 : 31;
    want[23] = 32;
}

static size_t run_collectives(struct simt_test *test, uint32_t *out)
{
    struct gpu_buffer output = simt_test_buffer(test, "out", 32 * 24, 4, NULL);
    void *args[] = {&output.address};

    expect_ok(test, simt_test_run(test, "collectives", 1, 32, 0, args));
    read_and_free(test, &output, out, 32 * 24 * 4);
    for (uint32_t lane = 0; lane < 32; lane++) {
        uint32_t want[24];

        expected_collectives(lane, want);
        for (int i = 0; i < 24; i++)
            cr_assert_eq(out[lane * 24 + i], want[i], "lane %u value %d: %u, not %u", lane, i,
                         out[lane * 24 + i], want[i]);
    }
    return 32 * 24;
}
Test(simt_good, collectives)
{
    run_everywhere("good", run_collectives);
}

static size_t run_halves(struct simt_test *test, uint32_t *out)
{
    const uint32_t n = 45;
    struct gpu_buffer output = simt_test_buffer(test, "out", n, 4, NULL);
    void *args[] = {&output.address};
    uint32_t want[64], next[64];

    for (uint32_t i = 0; i < 64; i++) want[i] = i;
    for (int round = 0; round < 5; round++) {
        for (uint32_t i = 0; i < n; i++) {
            /* A lane that does not exist has no defined value: the runtime gives all ones. */
            uint32_t from = i ^ 1u << round % 4, down = i % 16 < 15 ? i + 1 : i;

            next[i] = want[i];
            if (i % 32 < 16)
                next[i] = want[i] + (from < n ? want[from] : UINT32_MAX);
            else if (round < 2)
                next[i] = want[down] * 2;
        }
        memcpy(want, next, sizeof want);
    }
    expect_ok(test, simt_test_run(test, "halves", 1, n, 0, args));
    read_and_free(test, &output, out, n * 4);
    for (uint32_t i = 0; i < n; i++)
        cr_assert_eq(out[i], want[i] + (i < 32 ? 31 : 12), "thread %u", i);
    return n;
}
Test(simt_good, masked_collectives)
{
    run_everywhere("good", run_halves);
}

static size_t run_barrier_votes(struct simt_test *test, uint32_t *out)
{
    struct gpu_buffer output = simt_test_buffer(test, "out", 100, 4, NULL);
    void *args[] = {&output.address};

    expect_ok(test, simt_test_run(test, "barrier_votes", 1, 100, 0, args));
    read_and_free(test, &output, out, 400);
    for (int i = 0; i < 100; i++) cr_assert_eq(out[i], 3405);
    return 100;
}
Test(simt_good, barrier_votes)
{
    run_everywhere("good", run_barrier_votes);
}

static size_t run_atomics(struct simt_test *test, uint32_t *out)
{
    const uint32_t blocks = 3, threads = 70, n = blocks * threads;
    int ints[10] = {0};
    unsigned long long longs[2] = {0};
    float sum = 0;
    uint32_t xor_all = 0;
    struct gpu_buffer a, b, c;
    void *args[] = {&a.address, &b.address, &c.address};

    ints[3] = -1;
    a = simt_test_buffer(test, "ints", 10, 4, ints);
    b = simt_test_buffer(test, "longs", 2, 8, longs);
    c = simt_test_buffer(test, "floats", 1, 4, &sum);
    expect_ok(test, simt_test_run(test, "atomics", blocks, threads, 0, args));
    read_and_free(test, &a, ints, sizeof ints);
    read_and_free(test, &b, longs, sizeof longs);
    read_and_free(test, &c, &sum, sizeof sum);
    for (uint32_t i = 0; i < n; i++) xor_all ^= i;
    cr_assert_eq(ints[0], (int)(blocks * (2 * threads + threads - 1)));
    cr_assert_eq(ints[1], -(int)(n - 1));
    cr_assert_eq(ints[2], -1);
    cr_assert_eq(ints[3], -128);
    cr_assert_eq((uint32_t)ints[4], xor_all);
    cr_assert_eq(ints[5], -3 * (int)n);
    cr_assert_eq(ints[6], (int)(n % 10));
    cr_assert_eq(ints[7], (int)((7 - n % 7) % 7)); /* 0 -> 6 -> 5 ... -> 0 */
    cr_assert_eq(ints[8], 55);
    cr_assert_eq(ints[9], 4);
    cr_assert_eq(longs[0], (uint64_t)n << 33);
    cr_assert_eq(longs[1], (uint64_t)(n - 1) << 40);
    cr_assert_eq(sum, 0.5f * (float)n);
    memcpy(out, ints, sizeof ints);
    memcpy(out + 10, longs, sizeof longs);
    return 14;
}
Test(simt_good, atomics)
{
    run_everywhere("good", run_atomics);
}

static size_t run_copies(struct simt_test *test, uint32_t *out)
{
    unsigned char in[160], got[177], copied[160];
    struct gpu_buffer a, b = simt_test_buffer(test, "out", 10, 16, NULL);
    struct gpu_buffer c = simt_test_buffer(test, "bytes", 177, 1, NULL);
    void *args[] = {&a.address, &b.address, &c.address};

    for (int i = 0; i < 160; i++) in[i] = (unsigned char)(i * 37);
    a = simt_test_buffer(test, "in", 10, 16, in);
    expect_ok(test, simt_test_run(test, "copies", 1, 5, 0, args));
    read_and_free(test, &b, copied, 160);
    read_and_free(test, &c, got, 177);
    gpu_backend_simt.free(test->device, &a);
    cr_assert_eq(memcmp(copied, in, 80), 0);
    cr_assert_eq(memcmp(copied + 80, in, 80), 0);
    for (int i = 0; i < 100; i++) cr_assert_eq(got[i], 0x5a);
    cr_assert_eq(memcmp(got + 100, in, 77), 0);
    memcpy(out, copied, 160);
    return 40;
}
Test(simt_good, vectors_and_block_copies)
{
    run_everywhere("good", run_copies);
}

static size_t run_arguments(struct simt_test *test, uint32_t *out)
{
    bool flag = true;
    unsigned long long big = 77ull << 32 | 5;
    struct {
        int a;
        double b;
    } pair = {3, 0.75};
    short small = -9;
    float got[5];
    struct gpu_buffer output = simt_test_buffer(test, "out", 5, 4, NULL);
    void *args[] = {&flag, &big, &pair, &output.address, &small};

    expect_ok(test, simt_test_run(test, "arguments", 1, 1, 0, args));
    read_and_free(test, &output, got, sizeof got);
    cr_assert_eq(got[0], 1.0f);
    cr_assert_eq(got[1], 77.0f);
    cr_assert_eq(got[2], 3.75f);
    cr_assert_eq(got[3], 1.5f + 6.0f - 9.0f);
    cr_assert_geq(got[4], 1.0f); /* a device variable lives from launch to launch */
    memcpy(out, got, 16);
    return 4;
}
Test(simt_good, arguments_and_device_variables)
{
    run_everywhere("good", run_arguments);
}

static size_t run_reversed(struct simt_test *test, uint32_t *out)
{
    uint32_t in[50];
    struct gpu_buffer a, b = simt_test_buffer(test, "out", 50, 4, NULL);
    void *args[] = {&a.address, &b.address};

    for (uint32_t i = 0; i < 50; i++) in[i] = i * 1000;
    a = simt_test_buffer(test, "in", 50, 4, in);
    expect_ok(test, simt_test_run(test, "reversed", 1, 50, 200, args));
    read_and_free(test, &b, out, 200);
    gpu_backend_simt.free(test->device, &a);
    for (uint32_t i = 0; i < 50; i++) cr_assert_eq(out[i], in[49 - i]);
    return 50;
}
Test(simt_good, dynamic_shared_at_file_scope)
{
    run_everywhere("good", run_reversed);
}

static size_t run_last_block(struct simt_test *test, uint32_t *out)
{
    uint32_t zero = 0, want = 0;
    struct gpu_buffer partial = simt_test_buffer(test, "partial", 20, 4, NULL);
    struct gpu_buffer counter = simt_test_buffer(test, "counter", 1, 4, &zero);
    struct gpu_buffer sum = simt_test_buffer(test, "sum", 1, 4, NULL);
    void *args[] = {&partial.address, &counter.address, &sum.address};

    for (uint32_t i = 0; i < 20; i++) want += i * i;
    expect_ok(test, simt_test_run(test, "last_block", 20, 64, 0, args));
    read_and_free(test, &sum, out, 4);
    read_and_free(test, &partial, out + 1, 80);
    gpu_backend_simt.free(test->device, &counter);
    cr_assert_eq(out[0], want);
    return 21;
}
Test(simt_good, blocks_ordered_by_fence_and_atomic)
{
    run_everywhere("good", run_last_block);
}

static size_t run_through_shared(struct simt_test *test, uint32_t *out)
{
    struct gpu_buffer output = simt_test_buffer(test, "out", 64, 4, NULL);
    void *args[] = {&output.address};

    expect_ok(test, simt_test_run(test, "through_shared", 1, 64, 0, args));
    read_and_free(test, &output, out, 256);
    for (uint32_t i = 0; i < 64; i++) {
        uint32_t first = i / 16 * 16;

        cr_assert_eq(out[i], 16 * first + 120); /* a butterfly adds up 16 neighbours */
    }
    return 64;
}
Test(simt_good, lanes_ordered_by_syncwarp)
{
    run_everywhere("good", run_through_shared);
}

static size_t run_parts_of_words(struct simt_test *test, uint32_t *out)
{
    struct gpu_buffer halves = simt_test_buffer(test, "halves", 128, 2, NULL);
    struct gpu_buffer words = simt_test_buffer(test, "words", 128, 4, NULL);
    void *args[] = {&halves.address, &words.address};
    uint16_t got[128];

    expect_ok(test, simt_test_run(test, "parts_of_words", 2, 64, 0, args));
    read_and_free(test, &halves, got, sizeof got);
    read_and_free(test, &words, out, 512);
    for (uint32_t i = 0; i < 128; i++) {
        uint32_t t = i % 64;

        cr_assert_eq(got[i], 100 * (i % 2) + i / 2);
        cr_assert_eq(out[i], t % 2 ? t + 1 : t + 1 + t + 2);
    }
    return 128;
}
Test(simt_good, parts_of_words)
{
    run_everywhere("good", run_parts_of_words);
}

static size_t run_waits_politely(struct simt_test *test, uint32_t *out)
{
    uint32_t zero = 0;
    struct gpu_buffer flag = simt_test_buffer(test, "flag", 1, 4, &zero);
    struct gpu_buffer output = simt_test_buffer(test, "out", 64, 4, NULL);
    void *args[] = {&flag.address, &output.address};

    expect_ok(test, simt_test_run(test, "waits_politely", 1, 64, 0, args));
    read_and_free(test, &output, out, 256);
    gpu_backend_simt.free(test->device, &flag);
    for (uint32_t i = 0; i < 64; i++) cr_assert_eq(out[i], i);
    return 64;
}
Test(simt_good, waiting_with_nanosleep)
{
    run_everywhere("good", run_waits_politely);
}

/* A page at a high id costs no more memory than any other. */
static size_t run_far_away(struct simt_test *test, uint32_t *out)
{
    const uint64_t far = 3ull << 32;
    struct gpu_extent extents[] = {{0, 4096}, {far, 64}};
    struct gpu_buffer_desc desc = {.name = "pages",
                                   .size_bytes = far + 64,
                                   .elem_bytes = 1,
                                   .read_only = true,
                                   .extents = extents,
                                   .n_extents = 2};
    unsigned char in[32];
    struct gpu_buffer pages = simt_test_alloc(test, &desc, NULL);
    struct gpu_buffer output = simt_test_buffer(test, "out", 32, 4, NULL);
    unsigned long long offset = far + 20;
    void *args[] = {&pages.address, &offset, &output.address};

    for (int i = 0; i < 32; i++) in[i] = (unsigned char)(i + 200);
    expect_ok(test, gpu_backend_simt.upload(test->device, &pages, far + 20, in, 32, &test->report));
    expect_ok(test, simt_test_run(test, "far_away", 1, 32, 0, args));
    read_and_free(test, &output, out, 128);
    expect_ok(test, gpu_backend_simt.check_guards(test->device, &pages, &test->report));
    gpu_backend_simt.free(test->device, &pages);
    for (uint32_t i = 0; i < 32; i++) cr_assert_eq(out[i], (uint32_t)in[i]);
    return 32;
}
Test(simt_good, page_beyond_4_gib)
{
    run_everywhere("good", run_far_away);
}

static size_t run_tiles(struct simt_test *test, uint32_t *out)
{
    struct gpu_buffer output = simt_test_buffer(test, "out", 64, 4, NULL);
    void *args[] = {&output.address};

    expect_ok(test, simt_test_run(test, "tiles", 1, 64, 0, args));
    read_and_free(test, &output, out, 256);
    for (uint32_t i = 0; i < 64; i++)
        cr_assert_eq(out[i], (8 * (i / 8 * 8) + 28) * 1000 + i / 8 * 10 + 1);
    return 64;
}
Test(simt_good, cooperative_groups)
{
    run_everywhere("good", run_tiles);
}
