#include "formats.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <float.h>
#include <math.h>

#include "test_random.h"

/* The formats' definitions, written apart from the code: sign * significand * 2^exponent. */
static double bf16_by_definition(unsigned code)
{
    unsigned exponent = code >> 7 & 255, fraction = code & 127;
    double sign = code & 0x8000 ? -1.0 : 1.0;
    if (exponent == 255) return fraction ? NAN : sign * INFINITY;
    if (!exponent) return sign * ldexp(fraction, -133);
    return sign * ldexp(1.0 + fraction / 128.0, (int)exponent - 127);
}

static double e4m3_by_definition(unsigned code)
{
    unsigned exponent = code >> 3 & 15, fraction = code & 7;
    double sign = code & 0x80 ? -1.0 : 1.0;
    if (exponent == 15 && fraction == 7) return NAN;
    if (!exponent) return sign * ldexp(fraction, -9);
    return sign * ldexp(1.0 + fraction / 8.0, (int)exponent - 7);
}

static bool same(double a, double b)
{
    return isnan(a) ? isnan(b) : a == b && !signbit(a) == !signbit(b);
}

Test(formats, every_bf16_code)
{
    for (unsigned code = 0; code < 65536; code++) {
        double value = bf16_by_definition(code);
        float decoded = ref_bf16_to_f32((uint16_t)code);
        unsigned back = isnan(value) ? 0x7fff : code;
        cr_assert(same(decoded, value), "code %04x is %a, not %a", code, (double)decoded, value);
        cr_assert_eq(ref_bf16_from_f32(decoded), back, "code %04x", code);
        cr_assert_eq(ref_bf16_from_f64(decoded), back, "code %04x", code);
    }
}

Test(formats, every_e4m3_code)
{
    for (unsigned code = 0; code < 256; code++) {
        double value = e4m3_by_definition(code);
        float decoded = ref_e4m3_to_f32((uint8_t)code);
        cr_assert(same(decoded, value), "code %02x is %a, not %a", code, (double)decoded, value);
        cr_assert_eq(ref_e4m3_from_f32(decoded), isnan(value) ? 0x7f : code, "code %02x", code);
    }
    cr_assert_eq(ref_e4m3_to_f32(0x7e), 448.0f);
    cr_assert_eq(ref_e4m3_to_f32(0x01), 0x1p-9f);
    cr_assert_eq(ref_e4m3_to_f32(0x08), 0x1p-6f);
}

Test(formats, rows_decode_as_codes_do)
{
    enum { N = 700 };
    uint16_t wide[N];
    uint8_t narrow[N];
    float out[N + 1];
    struct test_random rng = {1};
    for (int i = 0; i < N; i++) {
        wide[i] = (uint16_t)test_bits(&rng);
        narrow[i] = (uint8_t)test_bits(&rng);
    }
    static const size_t lengths[] = {0, 1, 255, 256, N};
    for (int k = 0; k < 5; k++) {
        size_t n = lengths[k];
        out[n] = 7.0f;
        ref_bf16_to_f32_n(wide, n, out);
        for (size_t i = 0; i < n; i++) cr_assert(same(out[i], ref_bf16_to_f32(wide[i])));
        ref_e4m3_to_f32_n(narrow, n, out);
        for (size_t i = 0; i < n; i++) cr_assert(same(out[i], ref_e4m3_to_f32(narrow[i])));
        cr_assert_eq(out[n], 7.0f);
    }
}

static void check_bf16(float value, unsigned want)
{
    cr_assert_eq(ref_bf16_from_f32(value), want, "%a", (double)value);
    cr_assert_eq(ref_bf16_from_f64(value), want, "%a", (double)value);
    cr_assert_eq(ref_bf16_from_f32(-value), want | 0x8000, "-%a", (double)value);
    cr_assert_eq(ref_bf16_from_f64(-(double)value), want | 0x8000, "-%a", (double)value);
}

/* Between every two neighbours: the middle goes to the even code, a float next to it to the nearer.
 * The last pair is 0x7f7f, the largest, and infinity, whose place is 2^128. */
Test(formats, bf16_rounds_to_nearest_even)
{
    for (unsigned low = 0; low < 0x7f80; low++) {
        double below = bf16_by_definition(low);
        double above = low + 1 == 0x7f80 ? 0x1p128 : bf16_by_definition(low + 1);
        float middle = (float)((below + above) / 2);
        cr_assert_eq((double)middle, (below + above) / 2);
        check_bf16(middle, low & 1 ? low + 1 : low);
        check_bf16(nextafterf(middle, 0), low);
        check_bf16(nextafterf(middle, INFINITY), low + 1);
        /* Nearer to the middle than any float: through f32 these would round twice. */
        cr_assert_eq(ref_bf16_from_f64(nextafter(middle, 0)), low);
        cr_assert_eq(ref_bf16_from_f64(nextafter(middle, INFINITY)), low + 1);
    }
    check_bf16(INFINITY, 0x7f80);
    check_bf16(FLT_MAX, 0x7f80);
    check_bf16(0x1p-149f, 0);
    cr_assert_eq(ref_bf16_from_f64(1e300), 0x7f80);
    cr_assert_eq(ref_bf16_from_f64(-1e-300), 0x8000);
    cr_assert_eq(ref_bf16_from_f64(-DBL_TRUE_MIN), 0x8000);
}

Test(formats, every_nan_becomes_one)
{
    static const uint32_t nans[] = {0x7f800001, 0x7fffffff, 0xffc00000, 0xff800001, 0x7fc00000};
    for (int i = 0; i < 5; i++) {
        float nan = ref_f32_from_bits(nans[i]);
        cr_assert_eq(ref_f32_bits(nan), nans[i]);
        cr_assert_eq(ref_bf16_from_f32(nan), 0x7fff);
        cr_assert_eq(ref_bf16_from_f64(nan), 0x7fff);
        cr_assert_eq(ref_e4m3_from_f32(nan), 0x7f);
    }
}

/* By search among all codes: the nearest, of two equally near the even one. */
static unsigned e4m3_by_search(double magnitude)
{
    unsigned best = 0;
    for (unsigned code = 1; code < 0x7f; code++) {
        double here = fabs(e4m3_by_definition(code) - magnitude);
        double there = fabs(e4m3_by_definition(best) - magnitude);
        if (here < there || (here == there && !(code & 1))) best = code;
    }
    return best;
}

Test(formats, e4m3_rounds_to_nearest_even_and_saturates)
{
    for (unsigned code = 0; code < 0x7f80; code++) { /* every positive bf16 */
        float value = (float)bf16_by_definition(code);
        unsigned want = value > 464 ? 0x7e : e4m3_by_search(value);
        cr_assert_eq(ref_e4m3_from_f32(value), want, "%a", (double)value);
        cr_assert_eq(ref_e4m3_from_f32(-value), want | 0x80, "-%a", (double)value);
    }
    for (unsigned low = 0; low < 0x7e; low++) {
        float middle = (float)((e4m3_by_definition(low) + e4m3_by_definition(low + 1)) / 2);
        cr_assert_eq(ref_e4m3_from_f32(middle), low & 1 ? low + 1 : low, "%a", (double)middle);
        cr_assert_eq(ref_e4m3_from_f32(nextafterf(middle, 0)), low, "%a", (double)middle);
        cr_assert_eq(ref_e4m3_from_f32(nextafterf(middle, 500)), low + 1, "%a", (double)middle);
    }
    static const float saturated[] = {448, 449, 463.9f, 464, 464.1f, 480, 1e6f, FLT_MAX, INFINITY};
    for (int i = 0; i < 9; i++) {
        cr_assert_eq(ref_e4m3_from_f32(saturated[i]), 0x7e);
        cr_assert_eq(ref_e4m3_from_f32(-saturated[i]), 0xfe);
    }
    cr_assert_eq(ref_e4m3_from_f32(-0.0f), 0x80);
    cr_assert_eq(ref_e4m3_from_f32(0x1p-10f), 0);
    cr_assert_eq(ref_e4m3_from_f32(0x1.8p-9f), 2);
}

Test(formats, floats_around_a_double)
{
    struct {
        double value;
        float below, above;
    } cases[] = {
        {1.0, 1.0f, 1.0f},
        {1.0 + 0x1p-40, 1.0f, 1.0f + 0x1p-23f},
        {1.0 - 0x1p-40, 1.0f - 0x1p-24f, 1.0f},
        {-(1.0 + 0x1p-40), -1.0f - 0x1p-23f, -1.0f},
        {1e300, FLT_MAX, INFINITY},
        {-1e300, -INFINITY, -FLT_MAX},
        {1e-60, 0.0f, 0x1p-149f},
        {-1e-60, -0x1p-149f, -0.0f},
        {INFINITY, INFINITY, INFINITY},
        {-INFINITY, -INFINITY, -INFINITY},
        {FLT_MAX, FLT_MAX, FLT_MAX},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_assert_eq(ref_f32_below(cases[i].value), cases[i].below, "below %a", cases[i].value);
        cr_assert_eq(ref_f32_above(cases[i].value), cases[i].above, "above %a", cases[i].value);
    }
    cr_assert(isnan(ref_f32_below(NAN)) && isnan(ref_f32_above(NAN)));
}
