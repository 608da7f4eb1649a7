/* The shim headers' number formats and intrinsics, against tables built from the formats'
 * definitions, MPFR, and the C library's rounding modes. */
#include "test_support.h"

#include <criterion/criterion.h>
#include <fenv.h>
#include <math.h>
#include <mpfr.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct format {
    const char *name;
    int significand_bits, exponent_bits, bias;
    uint32_t largest; /* code of the largest finite value */
    uint32_t beyond;  /* code of overflow without saturation */
    uint32_t nan, sign;
};

static const struct format formats[] = {
    {"bf16", 7, 8, 127, 0x7f7f, 0x7f80, 0x7fff, 0x8000},
    {"half", 10, 5, 15, 0x7bff, 0x7c00, 0x7fff, 0x8000},
    {"e4m3", 3, 4, 7, 0x7e, 0x7f, 0x7f, 0x80},
    {"e5m2", 2, 5, 15, 0x7b, 0x7c, 0x7f, 0x80},
};

/* The value of a positive finite code, from the definition. */
static double value_of(const struct format *f, uint32_t code)
{
    uint32_t exponent = code >> f->significand_bits;
    uint32_t fraction = code & ((1u << f->significand_bits) - 1);

    if (exponent == 0) return ldexp(fraction, 1 - f->bias - f->significand_bits);
    return ldexp(fraction | 1u << f->significand_bits,
                 (int)exponent - f->bias - f->significand_bits);
}

/* The code that follows the largest names a value too, for the purpose of rounding. */
static double midpoint(const struct format *f, uint32_t code)
{
    return (value_of(f, code) + value_of(f, code + 1)) / 2;
}

static float widen(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static void check_decode(struct simt_test *test, int index)
{
    const struct format *f = &formats[index];
    uint32_t n = 2 * f->sign;
    struct gpu_buffer out = simt_test_buffer(test, "out", n, 4, NULL);
    uint32_t *got = malloc(n * sizeof *got);
    void *args[] = {&out.address, &index};

    cr_assert_eq(simt_test_run(test, "decode", n / 256, 256, 0, args), GPU_OK, "%s",
                 test->report.text);
    simt_test_read(test, &out, got, n * sizeof *got);
    for (uint32_t code = 0; code < n; code++) {
        uint32_t magnitude = code & (f->sign - 1);
        float x = widen(got[code]);

        if (magnitude <= f->largest) {
            cr_assert_eq((double)fabsf(x), value_of(f, magnitude), "%s %04x", f->name, code);
            cr_assert_eq(signbit(x) != 0, (code & f->sign) != 0);
        } else if (magnitude == f->beyond && f->beyond != f->nan) {
            cr_assert(isinf(x) && (x < 0) == ((code & f->sign) != 0), "%s %04x", f->name, code);
        } else {
            cr_assert(isnan(x), "%s %04x", f->name, code);
        }
    }
    gpu_backend_simt.free(test->device, &out);
    free(got);
}
Test(simt_numbers, every_code_decodes)
{
    struct simt_test test;

    simt_test_open(&test, "numbers", false);
    for (int i = 0; i < 4; i++) check_decode(&test, i);
    simt_test_close(&test);
}

struct encoding {
    double in;
    uint32_t want;
};

/* Every value, every midpoint and its neighbours in the input's type, with both signs; and what
 * lies beyond the range. */
static size_t list_encodings(const struct format *f, bool from_double, bool saturate,
                             struct encoding *list)
{
    uint32_t beyond = saturate ? f->largest : f->beyond;
    size_t n = 0;

    for (uint32_t code = 0; code <= f->largest; code++) {
        uint32_t up = code < f->largest ? code + 1 : beyond;
        double m = midpoint(f, code);
        double above =
            from_double ? nextafter(m, INFINITY) : (double)nextafterf((float)m, INFINITY);
        double below = from_double ? nextafter(m, 0) : (double)nextafterf((float)m, 0);

        list[n++] = (struct encoding){value_of(f, code), code};
        list[n++] = (struct encoding){below, code};
        list[n++] = (struct encoding){m, code % 2 == 0 ? code : up};
        list[n++] = (struct encoding){above, up};
    }
    list[n++] = (struct encoding){0x1p127, f->bias == 127 ? 0x7f00 : beyond};
    list[n++] = (struct encoding){INFINITY, beyond};
    for (size_t i = n; i-- > 0;) {
        list[n + i].in = -list[i].in;
        list[n + i].want = list[i].want | f->sign;
    }
    n *= 2;
    list[n++] = (struct encoding){NAN, f->nan};
    return n;
}

static void check_encode(struct simt_test *test, int index, int from_double, int saturate)
{
    const struct format *f = &formats[index];
    struct encoding *list = malloc((8 * (size_t)f->sign + 16) * sizeof *list);
    int n = (int)list_encodings(f, from_double, saturate, list);
    double *in = malloc((size_t)n * sizeof *in);
    uint32_t *got = malloc((size_t)n * sizeof *got);
    struct gpu_buffer input, out = simt_test_buffer(test, "out", (uint64_t)n, 4, NULL);
    void *args[] = {&input.address, &out.address, &n, &index, &from_double, &saturate};

    for (int i = 0; i < n; i++) in[i] = list[i].in;
    input = simt_test_buffer(test, "in", (uint64_t)n, 8, in);
    cr_assert_eq(simt_test_run(test, "encode", (uint32_t)n / 128 + 1, 128, 0, args), GPU_OK, "%s",
                 test->report.text);
    simt_test_read(test, &out, got, (uint64_t)n * 4);
    for (int i = 0; i < n; i++)
        cr_assert_eq(got[i], list[i].want, "%s(%a): %04x, not %04x", f->name, in[i], got[i],
                     list[i].want);
    gpu_backend_simt.free(test->device, &input);
    gpu_backend_simt.free(test->device, &out);
    free(list);
    free(in);
    free(got);
}
Test(simt_numbers, every_rounding_decision)
{
    struct simt_test test;

    simt_test_open(&test, "numbers", false);
    for (int i = 0; i < 4; i++) {
        for (int from_double = 0; from_double < 2; from_double++) {
            check_encode(&test, i, from_double, 0);
            if (i >= 2) check_encode(&test, i, from_double, 1);
        }
    }
    simt_test_close(&test);
}

Test(simt_numbers, pairs)
{
    float in[4] = {1.0f, -2.0f, 0.5f, 1e9f};
    uint32_t got[7];
    struct simt_test test;
    struct gpu_buffer input, out;
    void *args[] = {&input.address, &out.address};

    simt_test_open(&test, "numbers", true);
    input = simt_test_buffer(&test, "in", 2, 8, in);
    out = simt_test_buffer(&test, "out", 7, 4, NULL);
    cr_assert_eq(simt_test_run(&test, "pairs", 1, 1, 0, args), GPU_OK, "%s", test.report.text);
    simt_test_read(&test, &out, got, sizeof got);
    cr_assert_eq(got[0], 0xc0003f80);
    cr_assert_eq(got[1], 0xc0003c00);
    cr_assert_eq(got[2], 0x7e30c038);
    cr_assert_eq(got[3], 0x7e30);
    for (int i = 4; i < 7; i++) cr_assert_eq(got[i], 1, "%d", i);
    gpu_backend_simt.free(test.device, &input);
    gpu_backend_simt.free(test.device, &out);
    simt_test_close(&test);
}

/* The nearest code to an exact value, ties to even, by looking at the neighbours. */
static uint32_t nearest_code(const struct format *f, mpfr_t exact)
{
    uint32_t low = 0, high = f->largest, sign = mpfr_signbit(exact) ? f->sign : 0;
    int side;

    if (mpfr_nan_p(exact)) return f->nan;
    mpfr_abs(exact, exact, MPFR_RNDN);
    while (low < high) { /* the largest code not above it */
        uint32_t middle = (low + high + 1) / 2;

        if (mpfr_cmp_d(exact, value_of(f, middle)) >= 0)
            low = middle;
        else
            high = middle - 1;
    }
    side = mpfr_cmp_d(exact, midpoint(f, low));
    if (side > 0 || (side == 0 && low % 2)) low++;
    return (low > f->largest ? f->beyond : low) | sign;
}

static void check_fused(struct simt_test *test, int index)
{
    enum { N = 20000 };
    static uint16_t operands[3][N], got[N];
    const struct format *f = &formats[index];
    struct gpu_buffer buffers[4];
    int n = N;
    void *args[] = {&buffers[0].address,
                    &buffers[1].address,
                    &buffers[2].address,
                    &buffers[3].address,
                    &n,
                    &index};
    uint64_t state = 99;
    mpfr_t exact;

    for (int i = 0; i < 3 * N; i++) {
        uint32_t code;

        do {
            state = state * 6364136223846793005u + 1442695040888963407u;
            code = (uint32_t)(state >> 40) & 0xffff;
        } while ((code & 0x7fff) > f->largest);
        operands[i / N][i % N] = (uint16_t)code;
    }
    for (int i = 0; i < N; i += 2) { /* near each other, so that c decides roundings */
        operands[0][i] = (uint16_t)((operands[0][i] & 0x83ff) | 0x3800);
        operands[1][i] = (uint16_t)((operands[1][i] & 0x83ff) | 0x3800);
        operands[2][i] = (uint16_t)((operands[2][i] & 0x8fff) | 0x2000);
    }
    for (int i = 0; i < 3; i++) buffers[i] = simt_test_buffer(test, "in", N, 2, operands[i]);
    buffers[3] = simt_test_buffer(test, "out", N, 2, NULL);
    cr_assert_eq(simt_test_run(test, "fused", N / 128 + 1, 128, 0, args), GPU_OK, "%s",
                 test->report.text);
    simt_test_read(test, &buffers[3], got, sizeof got);
    mpfr_init2(exact, 1200); /* holds every sum of a product and c exactly */
    for (int i = 0; i < N; i++) {
        double x[3];
        uint32_t want;

        for (int j = 0; j < 3; j++) {
            x[j] = value_of(f, operands[j][i] & 0x7fff);
            if (operands[j][i] & 0x8000) x[j] = -x[j];
        }
        mpfr_set_d(exact, x[0], MPFR_RNDN);
        mpfr_mul_d(exact, exact, x[1], MPFR_RNDN);
        mpfr_add_d(exact, exact, x[2], MPFR_RNDN);
        want = nearest_code(f, exact);
        cr_assert_eq(got[i], want, "%s fma(%a, %a, %a): %04x, not %04x", f->name, x[0], x[1], x[2],
                     got[i], want);
    }
    mpfr_clear(exact);
    for (int i = 0; i < 4; i++) gpu_backend_simt.free(test->device, &buffers[i]);
}
Test(simt_numbers, fused_multiply_add_rounds_once)
{
    struct simt_test test;

    simt_test_open(&test, "numbers", false);
    check_fused(&test, 0);
    check_fused(&test, 1);
    simt_test_close(&test);
}

/* The same five operations on the host, whose rounding mode the caller has set. */
__attribute__((noinline)) static void five(float a, float b, float c, volatile float out[5])
{
    volatile float x = a, y = b, z = c;

    out[0] = x + y;
    out[1] = x * y;
    out[2] = x / y;
    out[3] = sqrtf(fabsf(x));
    out[4] = fmaf(x, y, z);
}

Test(simt_numbers, directed_rounding)
{
    enum { N = 2000 };
    static const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_UPWARD, FE_DOWNWARD};
    static float in[3][N], got[N][20];
    struct simt_test test;
    struct gpu_buffer buffers[4];
    int n = N;
    void *args[] = {&buffers[0].address, &buffers[1].address, &buffers[2].address,
                    &buffers[3].address, &n};
    uint32_t state = 7;

    for (int i = 0; i < 3 * N; i++) {
        state = state * 1664525u + 1013904223u;
        in[i / N][i % N] = ldexpf((float)(int32_t)state, (int)(state >> 8) % 40 - 50);
    }
    simt_test_open(&test, "numbers", false);
    for (int i = 0; i < 3; i++) buffers[i] = simt_test_buffer(&test, "in", N, 4, in[i]);
    buffers[3] = simt_test_buffer(&test, "out", N * 20, 4, NULL);
    cr_assert_eq(simt_test_run(&test, "directed", N / 100, 100, 0, args), GPU_OK, "%s",
                 test.report.text);
    simt_test_read(&test, &buffers[3], got, sizeof got);
    for (int m = 0; m < 4; m++) {
        for (int i = 0; i < N; i++) {
            volatile float want[5];

            fesetround(modes[m]);
            five(in[0][i], in[1][i], in[2][i], want);
            fesetround(FE_TONEAREST);
            for (int k = 0; k < 5; k++)
                cr_assert_eq(bits_of(got[i][5 * m + k]), bits_of(want[k]), "mode %d operation %d",
                             m, k);
        }
    }
    simt_test_close(&test);
}

Test(simt_numbers, conversions_to_integers_saturate)
{
    static const float in[] = {0.5f,  1.5f,          -0.5f,          -1.5f,    2.5f,
                               1e10f, -1e10f,        3e9f,           INFINITY, -INFINITY,
                               NAN,   2147483648.0f, -2147483648.0f, 1e30f,    -1.0f};
    static const long long want[][8] = {
        {0, 0, 1, 0, 0, 0, 0, 0},
        {2, 1, 2, 1, 2, 1, 2, 1},
        {0, 0, 0, -1, 0, 0, 0, 0},
        {-2, -1, -1, -2, 0, 0, -2, 0},
        {2, 2, 3, 2, 2, 2, 2, 2},
        {INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX, UINT32_MAX, UINT32_MAX, 10000000000,
         10000000000},
        {INT32_MIN, INT32_MIN, INT32_MIN, INT32_MIN, 0, 0, -10000000000, 0},
        {INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX, 3000000000, 3000000000, 3000000000,
         3000000000},
        {INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX, UINT32_MAX, UINT32_MAX, INT64_MAX, -1},
        {INT32_MIN, INT32_MIN, INT32_MIN, INT32_MIN, 0, 0, INT64_MIN, 0},
        {0, 0, 0, 0, 0, 0, 0, 0},
        {INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX, 2147483648, 2147483648, 2147483648,
         2147483648},
        {INT32_MIN, INT32_MIN, INT32_MIN, INT32_MIN, 0, 0, -2147483648LL, 0},
        {INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX, UINT32_MAX, UINT32_MAX, INT64_MAX, -1},
        {-1, -1, -1, -1, 0, 0, -1, 0},
    };
    enum { N = sizeof in / sizeof *in };
    long long got[N][8];
    struct simt_test test;
    struct gpu_buffer input, out;
    int n = N;
    void *args[] = {&input.address, &out.address, &n};

    simt_test_open(&test, "numbers", false);
    input = simt_test_buffer(&test, "in", N, 4, in);
    out = simt_test_buffer(&test, "out", N * 8, 8, NULL);
    cr_assert_eq(simt_test_run(&test, "to_integers", 1, 32, 0, args), GPU_OK, "%s",
                 test.report.text);
    simt_test_read(&test, &out, got, sizeof got);
    for (int i = 0; i < N; i++)
        for (int k = 0; k < 8; k++)
            cr_assert_eq(got[i][k], want[i][k], "%g, conversion %d: %lld, not %lld", (double)in[i],
                         k, got[i][k], want[i][k]);
    simt_test_close(&test);
}

Test(simt_numbers, integer_and_bit_intrinsics)
{
    static const uint32_t want[] = {
        32,         31,         0,  5, 0x80000001, 0x77004400, 0x34567880, 0x78800000, 5,
        0xfffffffe, 0xffffffff, 6,  0, 0,          0x80000000, 0x80000000, 0x40400000, 0x40400000,
        3,          1,          64, 0, 0x3f800000, 18,         13,         0x3f000000, 0x7f800000,
        0x3ff00000, 0x3f7fffff,
    };
    enum { N = sizeof want / sizeof *want };
    uint32_t got[N];
    struct simt_test test;
    struct gpu_buffer out;
    void *args[] = {&out.address};

    simt_test_open(&test, "numbers", false);
    out = simt_test_buffer(&test, "out", N, 4, NULL);
    cr_assert_eq(simt_test_run(&test, "integers", 1, 1, 0, args), GPU_OK, "%s", test.report.text);
    simt_test_read(&test, &out, got, sizeof got);
    for (int i = 0; i < N; i++)
        cr_assert_eq(got[i], want[i], "value %d: %08x, not %08x", i, got[i], want[i]);
    simt_test_close(&test);
}
