/* The deterministic mathematics and the storage formats of the kernels, through the CPU backend. */
#include "test_launch_dsa_support.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void run_map(struct dsa_test *test, const char *entry, const void *in, uint32_t n,
                    uint32_t in_bytes, void *out, uint32_t out_bytes)
{
    const struct gpu_buffer *from = dsa_test_input(test, "in", in, n, in_bytes);
    const struct gpu_buffer *to = dsa_test_output(test, "out", n, out_bytes);
    uint64_t from_address = from->address, to_address = to->address;
    void *values[] = {&from_address, &to_address, &n};

    dsa_test_ran(test, gpu_run(&test->target, entry, (struct gpu_dim){(n + 255) / 256, 1, 1},
                               (struct gpu_dim){256, 1, 1}, 0, values, &test->report));
    dsa_test_read(test, to, out);
    dsa_test_clear(test);
}

/* Distance in ulps of the f32 grid at the true value, 2^-149 below the normal range. */
static double ulps(float got, long double truth)
{
    int exponent;

    frexpl(truth, &exponent);
    exponent = exponent - 24 < -149 ? -149 : exponent - 24;
    return (double)(fabsl((long double)got - truth) / ldexpl(1.0L, exponent));
}

enum { SAMPLES = 1 << 18 };

/* Every 2^31/SAMPLES-th float that is not above 0, shifted by an odd step so that mantissas vary.
 * The limit is the largest error found once over all of them. */
static void exp_is_close(struct dsa_test *test)
{
    float *in = malloc(SAMPLES * sizeof *in), *out = malloc(SAMPLES * sizeof *out);
    uint32_t checked = 0;

    for (uint32_t i = 0; i < SAMPLES; i++)
        in[i] = dsa_test_float((i * 8209u + 0x30000000u) | 0x80000000u);
    run_map(test, "det_exp_nonpos_f32", in, SAMPLES, 4, out, 4);
    for (uint32_t i = 0; i < SAMPLES; i++) {
        if (isnan(in[i])) {
            cr_assert(isnan(out[i]));
        } else if (in[i] < -104) {
            cr_assert_eq(out[i], 0.0f, "%a", in[i]);
        } else {
            checked++;
            cr_assert(ulps(out[i], expl((long double)in[i])) <= 0.89, "exp(%a) is %a", in[i],
                      out[i]);
        }
    }
    cr_assert_gt(checked, SAMPLES / 8);
    free(in);
    free(out);
}

static void exp_special_values(struct dsa_test *test)
{
    static const float in[] = {0.0f, -0.0f, -INFINITY, -104.0f, -0x1p-149f, -103.97f, -1.0f};
    static const uint32_t want[] = {0x3f800000, 0x3f800000, 0, 0, 0x3f800000, 1, 0x3ebc5ab2};
    float out[7];

    run_map(test, "det_exp_nonpos_f32", in, 7, 4, out, 4);
    for (int i = 0; i < 7; i++)
        cr_expect_eq(dsa_test_bits(out[i]), want[i], "exp(%a) is %a", in[i], out[i]);
}

/* All 256 codes, four a word, at each of the four places. */
static void e4m3_table(struct dsa_test *test)
{
    uint32_t words[256];
    float out[1024];

    for (uint32_t i = 0; i < 256; i++)
        words[i] = i | ((i + 1) & 255) << 8 | ((i + 2) & 255) << 16 | ((i + 3) & 255) << 24;
    run_map(test, "fmt_e4m3x4_f32", words, 256, 4, out, 16);
    for (uint32_t i = 0; i < 1024; i++) {
        uint8_t code = (uint8_t)(i / 4 + i % 4);
        float want = dsa_test_e4m3(code);

        if (isnan(want))
            cr_expect(isnan(out[i]), "code %02x", code);
        else
            cr_expect_eq(dsa_test_bits(out[i]), dsa_test_bits(want), "code %02x", code);
    }
}

static void bf16_rounding(struct dsa_test *test)
{
    static const uint32_t in[] = {0x3f800000, 0x3f807fff, 0x3f808000, 0x3f808001, 0x3f818000,
                                  0x7f7f7fff, 0x7f7f8000, 0x7f800000, 0x7f800001, 0xffffffff,
                                  0x00000001, 0x00008001, 0x80000000, 0xff7fffff};
    static const uint16_t want[] = {0x3f80, 0x3f80, 0x3f80, 0x3f81, 0x3f82, 0x7f7f, 0x7f80,
                                    0x7f80, 0x7fff, 0x7fff, 0x0000, 0x0001, 0x8000, 0xff80};
    uint16_t out[14];

    run_map(test, "fmt_f32_bf16", in, 14, 4, out, 2);
    for (int i = 0; i < 14; i++) cr_expect_eq(out[i], want[i], "%08x gives %04x", in[i], out[i]);
}

static float tree32(const float *x)
{
    float v[32];

    memcpy(v, x, sizeof v);
    for (int step = 16; step > 0; step /= 2)
        for (int i = 0; i < step; i++) v[i] = v[i] + v[i + step];
    return v[0];
}

static void trees(struct dsa_test *test)
{
    enum { BLOCKS = 8, ROWS = BLOCKS * 16 };
    float in[ROWS * 32], out[BLOCKS][2][16];
    uint64_t state = 7;
    const struct gpu_buffer *from, *to;

    for (uint32_t i = 0; i < ROWS * 32; i++) in[i] = dsa_test_f32(dsa_test_random_bf16(&state));
    from = dsa_test_input(test, "in", in, ROWS * 32, 4);
    to = dsa_test_output(test, "out", BLOCKS * 32, 4);
    uint64_t from_address = from->address, to_address = to->address;
    void *values[] = {&from_address, &to_address};

    dsa_test_ran(test, gpu_run(&test->target, "det_tree32_f32", (struct gpu_dim){BLOCKS, 1, 1},
                               (struct gpu_dim){32, 1, 1}, 0, values, &test->report));
    dsa_test_read(test, to, out);
    for (uint32_t i = 0; i < ROWS; i++) {
        uint32_t want = dsa_test_bits(tree32(in + i * 32));

        cr_expect_eq(dsa_test_bits(out[i / 16][0][i % 16]), want, "row %u", i);
        cr_expect_eq(dsa_test_bits(out[i / 16][1][i % 16]), want, "row %u of sixteen", i);
    }
    dsa_test_clear(test);
}

Test(selftest_math, exp_is_close)
{
    dsa_test_fast("selftest_math", exp_is_close);
}

Test(selftest_math, exp_special_values)
{
    dsa_test_every_way("selftest_math", exp_special_values);
}

Test(selftest_math, e4m3_table)
{
    dsa_test_every_way("selftest_math", e4m3_table);
}

Test(selftest_math, bf16_rounding)
{
    dsa_test_every_way("selftest_math", bf16_rounding);
}

Test(selftest_math, trees)
{
    dsa_test_every_way("selftest_math", trees);
}
