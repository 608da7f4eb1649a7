/* What kernels use of CUDA's own headers beyond single functions (testdata/libraries.cu). */
#include "test_support.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void run(struct simt_test *test, const char *entry, uint32_t threads, void **args)
{
    cr_assert_eq(simt_test_run(test, entry, 1, threads, 0, args), GPU_OK, "%s: %s", entry,
                 test->report.text);
}

/* Small integers, whose products and sums are exact. */
Test(simt_libraries, wmma)
{
    struct simt_test test;
    uint16_t a[256], b[256];
    float c[256], want[256];

    for (int i = 0; i < 256; i++) {
        a[i] = i % 3 == 0 ? 0x3f80 : i % 3 == 1 ? 0x4000 : 0; /* 1, 2, 0 */
        b[i] = i % 5 == 0 ? 0xbf80 : 0x3f80;                  /* -1, 1 */
        c[i] = want[i] = (float)i;
    }
    for (int i = 0; i < 256; i++)
        for (int k = 0; k < 16; k++) {
            int x = i / 16 * 16 + k, y = i % 16 * 16 + k;
            want[i] += (float)((x % 3 == 0 ? 1 : x % 3 == 1 ? 2 : 0) * (y % 5 == 0 ? -1 : 1));
        }
    for (int trace = 0; trace < 2; trace++) {
        simt_test_open(&test, "libraries", trace);
        struct gpu_buffer buffers[] = {simt_test_buffer(&test, "a", 256, 2, a),
                                       simt_test_buffer(&test, "b", 256, 2, b),
                                       simt_test_buffer(&test, "c", 256, 4, c)};
        void *args[] = {&buffers[0].address, &buffers[1].address, &buffers[2].address};
        float got[256];
        run(&test, "multiply", 32, args);
        simt_test_read(&test, &buffers[2], got, sizeof got);
        for (int i = 0; i < 256; i++) cr_expect_eq(got[i], want[i], "element %d", i);
        simt_test_close(&test);
    }
}

Test(simt_libraries, group_reductions)
{
    struct simt_test test;
    float got[96];

    simt_test_open(&test, "libraries", false);
    struct gpu_buffer out = simt_test_buffer(&test, "out", 96, 4, NULL);
    void *args[] = {&out.address};
    run(&test, "reduce", 32, args);
    simt_test_read(&test, &out, got, sizeof got);
    for (int i = 0; i < 32; i++) {
        int first = i / 8 * 8;
        cr_expect_eq(got[3 * i], (float)(8 * first + 28));
        cr_expect_eq(got[3 * i + 1], (float)(first + 7)); /* ^5 permutes the eight */
        cr_expect_eq(got[3 * i + 2], (float)first);
    }
    simt_test_close(&test);
}

Test(simt_libraries, pipeline_copies)
{
    struct simt_test test;
    float in[128], got[128];

    for (int i = 0; i < 128; i++) in[i] = (float)(i + 1);
    simt_test_open(&test, "libraries", true);
    struct gpu_buffer from = simt_test_buffer(&test, "in", 128, 4, in);
    struct gpu_buffer out = simt_test_buffer(&test, "out", 128, 4, NULL);
    void *args[] = {&from.address, &out.address};
    run(&test, "pipeline", 32, args);
    simt_test_read(&test, &out, got, sizeof got);
    for (int i = 0; i < 128; i++) {
        int from_lane = 31 - i / 4, word = i % 4;
        bool filled = from_lane == 3 && word >= 2; /* the last 8 bytes become zeros */
        cr_expect_eq(got[i], filled ? 0.0f : in[4 * from_lane + word], "word %d", i);
    }
    simt_test_close(&test);
}

Test(simt_libraries, small_formats)
{
    struct simt_test test;
    uint32_t got[3];

    simt_test_open(&test, "libraries", false);
    struct gpu_buffer out = simt_test_buffer(&test, "out", 3, 4, NULL);
    void *args[] = {&out.address};
    run(&test, "small", 1, args);
    simt_test_read(&test, &out, got, sizeof got);
    cr_expect_eq(got[0], 0x7e7ec038); /* 1, -2, 448 and what saturates there */
    cr_expect_eq(got[1], 0x3830);
    cr_expect_eq(got[2], 0x41003e00); /* 1.5, 2.5 */
    simt_test_close(&test);
}

/* On standard error, and with the thread's name. */
Test(simt_libraries, print)
{
    struct simt_test test;
    char path[] = "build/simt-print-XXXXXX", text[256] = "";
    int file = mkstemp(path), old = dup(STDERR_FILENO);

    cr_assert(file >= 0 && old >= 0);
    simt_test_open(&test, "libraries", true);
    struct gpu_buffer out = simt_test_buffer(&test, "out", 2, 4, NULL);
    void *args[] = {&out.address};
    dup2(file, STDERR_FILENO);
    run(&test, "say", 2, args);
    fflush(stderr);
    dup2(old, STDERR_FILENO);
    cr_assert(pread(file, text, sizeof text - 1, 0) > 0);
    cr_expect_str_eq(text, "[block 0,0,0 thread 0,0,0] lane 0 of this warp\n"
                           "[block 0,0,0 thread 1,0,0] lane 1 of this warp\n");
    close(file);
    unlink(path);
    simt_test_close(&test);
}
