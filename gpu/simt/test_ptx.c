/* Inline PTX: each instruction of testdata/ptx.cu against a value worked out by hand. */
#include "test_support.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define MAX_WORDS 64

/* Runs a kernel of one thread with `out` and, if not negative, n; compares what it wrote. */
static void check_words(const char *entry, int n, const uint32_t *want, uint32_t n_words)
{
    struct simt_test test;
    uint32_t got[MAX_WORDS], argument = (uint32_t)n;

    cr_assert_leq(n_words, MAX_WORDS);
    for (int trace = 0; trace < 2; trace++) {
        simt_test_open(&test, "ptx", trace);
        struct gpu_buffer out = simt_test_buffer(&test, "out", n_words, 4, NULL);
        void *args[] = {&out.address, &argument};
        cr_assert_eq(simt_test_run(&test, entry, 1, 1, 0, args), GPU_OK, "%s: %s", entry,
                     test.report.text);
        simt_test_read(&test, &out, got, n_words * sizeof *got);
        for (uint32_t i = 0; i < n_words; i++)
            cr_expect_eq(got[i], want[i], "%s, result %u: 0x%08x, not 0x%08x", entry, i, got[i],
                         want[i]);
        simt_test_close(&test);
    }
}
#define CHECK(entry, n, words) check_words(entry, n, words, sizeof words / sizeof *words)

Test(simt_ptx, integers)
{
    static const uint32_t want[] = {
        1,          0x7fffffff, 0xfffffffe, 0x00020001, 3,          0xfffffffd, 40, 0xfffffffd,
        0xffffffff, 0xffffffff, 1,          0x80000000, 0,          0xffffffff, 1,  0x23456788,
        0x12345678, 0x77225500, 0x000000ff, 0x00000456, 0xffffffff, 0xfffffff8, 16, 15,
        0xc0000000, 16,         0xffffffff, 0xffffff00, 5,
    };
    CHECK("integers", -1, want);
}

/* -3 * 5; (2^32 - 1)^2 + 0x123456789abcdef0 = 0xfffffffe00000001 + ... modulo 2^64. */
Test(simt_ptx, wide)
{
    static const uint32_t want[] = {
        0xfffffff1,
        0xffffffff,
        0x9abcdef1,
        0x12345676,
        0x9abcdef0,
        0x12345678,
        0x12345678,
        0x9abcdef0,
        0xbeefbeef,
        0xfffffabf,
        0xf000ff00 & 0xf0f00f00,
        0,
        0xffffffff,
        0x9abcdef0,
        0xffffff80,
    };
    CHECK("wide", -1, want);
}

Test(simt_ptx, statements)
{
    /* n = 3: q true, so t0 = 2 + 100; 3 + 2 + 1 = 6. */
    static const uint32_t three[] = {102, 0xffffffff, 6, 0, 0, 77};
    /* n = 20: q false, so t0 = 1 + 10 + 100. */
    static const uint32_t twenty[] = {111, 0x10, 210, 0, 0, 78};
    CHECK("statements", 3, three);
    CHECK("statements", 20, twenty);
}

Test(simt_ptx, floats)
{
    static const uint32_t want[] = {
        0x3e000000, /* 1/8 */
        0x00000000, /* 2^-130 flushed */
        0x00080000, /* 2^-130 */
        0x41200000, /* 10 */
        0xbe800000, /* -1/4 */
        0x40000000, /* 2 */
        0x3fb504f3, /* sqrt 2 */
        0x3fffffff, /* 2 - 2^-24, toward zero */
        0x3f800001, /* 1 + 2^-30, upward */
        0x80000000, /* -2^-130 flushed */
        0x3f800000, /* 1.25 saturated */
        0x00000000, /* max(-0, +0) */
        0x3f800000, /* max(NaN, 1) */
        0x7fffffff, /* max.NaN */
        0x80000000, /* min(-0, +0) */
        0x3eaaaaab, /* 1/3 */
        0x34800000, /* (1 + 2^-23)^2 - 1 = 2^-22 + 2^-46, rounded to 2^-22 */
        11,         /* 4 * 2.5 + 1 */
        1,          /* NaN is less or unordered */
        0,          /* NaN is not "ne", which is ordered */
    };
    CHECK("floats", -1, want);
}

Test(simt_ptx, conversions)
{
    static const uint32_t want[] = {
        0x3f80c000, /* the first operand is the upper half */
        0x3f800000, /* relu */
        0x38003c00,
        0x3f80 /* a tie, to even */,
        0x3f81 /* cut */,
        0xc0000000,
        0x33800000, /* half's 2^-24 */
        0x7eb8,     /* 448 above, -1 below */
        0x5f00bc00, /* 448 and -1 as halves */
        0xffffffff,
        2,
        0,
        0xcb800000,
        0xc0000000,
        0x408040c0, /* 1 * 3 + 1 above, 2 * 3 + 0 below */
        0x42004600, /* 1 * 3, 2 * 3 */
    };
    CHECK("conversions", -1, want);
}

/* A warp of ptx_warp.cu on `in` (may be empty), twice: plain and traced. */
static void run_warp(const char *entry, const uint32_t *in, uint32_t n_in, uint32_t *got,
                     uint32_t n_out, uint32_t n_zeroed)
{
    struct simt_test test;
    uint32_t zeros[512] = {0};

    for (int trace = 0; trace < 2; trace++) {
        simt_test_open(&test, "ptx_warp", trace);
        struct gpu_buffer input = simt_test_buffer(&test, "in", n_in ? n_in : 1, 4, in);
        struct gpu_buffer out = simt_test_buffer(&test, "out", n_out, 4, n_zeroed ? zeros : NULL);
        void *both[] = {&input.address, &out.address}, **args = n_in ? both : both + 1;
        cr_assert_eq(simt_test_run(&test, entry, 1, 32, 128, args), GPU_OK, "%s: %s", entry,
                     test.report.text);
        simt_test_read(&test, &out, got, n_out * sizeof *got);
        simt_test_close(&test);
    }
}

Test(simt_ptx, votes)
{
    uint32_t got[320];

    run_warp("votes", NULL, 0, got, 320, 0);
    for (uint32_t lane = 0; lane < 32; lane++) {
        /* The sum of lane - 20 is 496 - 640; lane ^ 21 reaches 31. */
        uint32_t in_eight = lane % 8, up = in_eight < 3 ? lane : lane - 3;
        uint32_t want[] = {0xffff0000,
                           1,
                           (uint32_t)-144,
                           31,
                           lane ^ 1,
                           up | (uint32_t)(in_eight >= 3) << 16,
                           0x11111111u << lane % 4,
                           lane == 0,
                           0xffffffff,
                           (uint32_t)(2ull << lane) - 1};
        for (int i = 0; i < 10; i++)
            cr_expect_eq(got[10 * lane + i], want[i], "lane %u, result %d: 0x%x, not 0x%x", lane, i,
                         got[10 * lane + i], want[i]);
    }
}

Test(simt_ptx, loads)
{
    uint32_t in[128], got[132]; /* a multiple of 16 bytes */

    for (uint32_t i = 0; i < 128; i++) in[i] = 1000 + i;
    run_warp("loads", in, 128, got, 132, 1);
    for (uint32_t lane = 0; lane < 32; lane++) {
        uint32_t other = (lane + 1) % 32;
        for (uint32_t i = 0; i < 4; i++)
            cr_expect_eq(got[4 * lane + i], i == 2 ? other : 1000 + 4 * other + i);
    }
    cr_expect_eq(got[128], 496);
    cr_expect_eq(got[129], 0); /* the larger of 0 and -9 */
}

Test(simt_ptx, copies)
{
    uint32_t in[256], got[256];

    for (uint32_t i = 0; i < 256; i++) in[i] = 7 * i + 1;
    run_warp("copies", in, 256, got, 256, 0);
    for (uint32_t i = 0; i < 256; i++) cr_expect_eq(got[i], i < 252 ? in[i] : 0, "word %u", i);
    /* Until it is waited for, a copy has not arrived. */
    run_warp("bad_no_wait", in, 256, got, 128, 0);
    for (uint32_t i = 0; i < 128; i++) cr_expect_eq(got[i], 0xffffffff, "word %u", i);
}

Test(simt_ptx, matrices)
{
    uint16_t in[256];
    uint32_t packed[128], got[256];

    for (uint32_t i = 0; i < 256; i++) in[i] = (uint16_t)(i * 257);
    memcpy(packed, in, sizeof packed);
    run_warp("matrices", packed, 128, got, 256, 0);
    for (uint32_t lane = 0; lane < 32; lane++) {
        uint32_t row = lane / 4, pair = 2 * (lane % 4);
        for (uint32_t m = 0; m < 4; m++) {
            const uint16_t *two = in + 64 * m + 8 * row + pair;
            const uint16_t *down = in + 64 * m + 8 * pair + row;
            cr_expect_eq(got[8 * lane + m], two[0] | (uint32_t)two[1] << 16);
            if (m < 2) cr_expect_eq(got[8 * lane + 4 + m], down[0] | (uint32_t)down[8] << 16);
        }
        cr_expect_eq(got[8 * lane + 6], got[8 * lane]);
        if (lane < 8) cr_expect_eq(got[8 * lane + 7], in[8 * 0 + lane]);
    }
}

/* Small integers: exact, whatever the order of the sum. */
Test(simt_ptx, multiply)
{
    struct simt_test test;
    uint16_t a[256], b[128];
    float c[128], want[128];

    for (int i = 0; i < 128; i++) c[i] = want[i] = (float)i;
    for (int i = 0; i < 256; i++) a[i] = i % 3 == 0 ? 0x3f80 : i % 3 == 1 ? 0x4000 : 0; /* 1 2 0 */
    for (int i = 0; i < 128; i++) b[i] = i % 5 == 0 ? 0xbf80 : 0x3f80;                  /* -1 1 */
    for (int i = 0; i < 128; i++)
        for (int k = 0; k < 16; k++) {
            int x = 16 * (i / 8) + k, y = 8 * k + i % 8;
            want[i] += (float)((x % 3 == 0 ? 1 : x % 3 == 1 ? 2 : 0) * (y % 5 == 0 ? -1 : 1));
        }
    simt_test_open(&test, "ptx_warp", false);
    struct gpu_buffer buffers[] = {simt_test_buffer(&test, "a", 256, 2, a),
                                   simt_test_buffer(&test, "b", 128, 2, b),
                                   simt_test_buffer(&test, "c", 128, 4, c)};
    void *args[] = {&buffers[0].address, &buffers[1].address, &buffers[2].address};
    cr_assert_eq(simt_test_run(&test, "multiply", 1, 32, 0, args), GPU_OK, "%s", test.report.text);
    simt_test_read(&test, &buffers[2], c, sizeof c);
    for (int i = 0; i < 128; i++) cr_expect_eq(c[i], want[i], "element %d", i);
    simt_test_close(&test);
}

/* The trace names the line of the instruction, not of the statement. */
static void expect_finding(const char *entry, const char *marker, bool with_input, const char *rule)
{
    struct simt_test test;
    char place[64];
    uint32_t in[128] = {0};

    simt_test_open(&test, "ptx_warp", true);
    struct gpu_buffer input = simt_test_buffer(&test, "in", 128, 4, in);
    struct gpu_buffer out = simt_test_buffer(&test, "out", 128, 4, NULL);
    void *both[] = {&input.address, &out.address}, **args = with_input ? both : both + 1;
    cr_assert_eq(simt_test_run(&test, entry, 1, 32, 0, args), GPU_FINDING);
    cr_expect_str_eq(test.report.rule, rule);
    snprintf(place, sizeof place, "ptx_warp.cu:%d", simt_test_line("ptx_warp.cu", marker));
    cr_expect(strstr(test.report.text, place) != NULL, "%s is not at %s", test.report.text, place);
    simt_test_close(&test);
}

Test(simt_ptx, findings)
{
    expect_finding("bad_bounds", "bounds", false, "out-of-bounds-read");
    expect_finding("bad_alignment", "alignment", true, "fault");
}
