#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "harness/case/random.h"
#include "harness/judge/compare.h"
#include "ref/formats.h"

static struct tensor vector(enum dtype dtype, enum contract contract, uint64_t n)
{
    struct tensor t = {.name = "out", .dtype = dtype, .role = ROLE_OUT, .contract = contract,
                       .rank = 1, .shape = {n}, .stride = {1}, .elems = n, .free_from = n,
                       .alias_of = -1, .dim = {"dim"}};
    return t;
}

static bool judge_f32(float got, double value, double bound)
{
    struct tensor t = vector(DTYPE_F32, CONTRACT_BOUND, 1);
    struct expected e = {.value = &value, .bound = &bound};
    struct comparison c;
    compare_tensor(&t, (const uint8_t *)&got, &e, &c, NULL);
    return c.wrong == 0;
}

static bool judge_bf16(uint16_t got, double value, double bound)
{
    struct tensor t = vector(DTYPE_BF16, CONTRACT_BOUND, 1);
    struct expected e = {.value = &value, .bound = &bound};
    struct comparison c;
    compare_tensor(&t, (const uint8_t *)&got, &e, &c, NULL);
    return c.wrong == 0;
}

Test(compare, bound_f32)
{
    cr_assert(judge_f32(1.5f, 1.0, 0.5));
    cr_assert(!judge_f32(1.5001f, 1.0, 0.5));
    cr_assert(judge_f32(1.0f, 1.0, 0));
    cr_assert(!judge_f32(nextafterf(1.0f, 2), 1.0, 0));
}

Test(compare, nan_and_infinity_never_pass_as_numbers)
{
    cr_assert(!judge_f32(NAN, 1.0, 1e30));
    cr_assert(!judge_f32(INFINITY, 1e38, 1e300));
    cr_assert(!judge_f32(1.0f, NAN, 1));
    cr_assert(judge_f32(NAN, NAN, 0));
    cr_assert(judge_f32(-INFINITY, -INFINITY, 0));
    cr_assert(!judge_f32(INFINITY, -INFINITY, 0));
    cr_assert(!judge_bf16(0x7fc0, 1.0, 1e30));
    cr_assert(!judge_bf16(0x7f80, 1.0, 1.0));
}

/* 1.0 is 0x3f80; the next bf16 is 1 + 2^-7. */
Test(compare, bound_bf16_is_the_rounded_interval)
{
    cr_assert(judge_bf16(0x3f80, 1.0, 0));
    cr_assert(!judge_bf16(0x3f81, 1.0, 0));
    cr_assert(!judge_bf16(0x3f81, 1.0, 0x1p-9));           /* 1 + 2^-9 rounds to 1 */
    cr_assert(judge_bf16(0x3f81, 1.0, 0x1p-8 + 0x1p-20));  /* just past the half-way point */
    cr_assert(!judge_bf16(0x3f81, 1.0, 0x1p-8));           /* the tie itself goes to even: 1 */
    cr_assert(judge_bf16(0x8000, 0.0, 0));                 /* -0 is 0 */
}

Test(compare, ratio_reports_the_least_explaining_error)
{
    struct tensor t = vector(DTYPE_BF16, CONTRACT_BOUND, 1);
    double value = 1.0, bound = 0x1p-7;
    struct expected e = {.value = &value, .bound = &bound};
    struct comparison c;
    uint16_t got = 0x3f81;
    compare_tensor(&t, (const uint8_t *)&got, &e, &c, NULL);
    cr_assert_eq(c.wrong, 0);
    cr_assert_float_eq(c.worst_ratio, 0.5, 1e-12); /* half a step of 2^-7 over the bound 2^-7 */
    cr_assert_eq(c.nearest, 0);
}

Test(compare, every_bf16_code_passes_as_itself_and_fails_as_its_neighbour)
{
    uint32_t wrong = 0;
    for (uint32_t bits = 1; bits < 0x7f7f; bits++) {
        double value = ref_bf16_to_f32((uint16_t)bits);
        wrong += !judge_bf16((uint16_t)bits, value, 0);
        wrong += judge_bf16((uint16_t)(bits + 1), value, 0);
        wrong += judge_bf16((uint16_t)(bits | 0x8000), value, 0);
    }
    cr_assert_eq(wrong, 0);
}

Test(compare, exact_tells_signs_of_zero_apart_but_not_nan_payloads)
{
    struct tensor t = vector(DTYPE_F32, CONTRACT_EXACT, 3);
    uint32_t right[] = {0x00000000, 0x7fc00000, 0x3f800000}, got[] = {0x00000000, 0x7fffffff, 0x3f800000};
    struct expected e = {.exact = (uint8_t *)right};
    struct comparison c;
    compare_tensor(&t, (const uint8_t *)got, &e, &c, NULL);
    cr_assert_eq(c.wrong, 0);
    got[0] = 0x80000000;
    compare_tensor(&t, (const uint8_t *)got, &e, &c, NULL);
    cr_assert_eq(c.wrong, 1);
    cr_assert_eq(c.worst, 0);
}

Test(compare, integers_have_no_nan)
{
    struct tensor t = vector(DTYPE_I32, CONTRACT_EXACT, 1);
    int32_t right = 0x7fc00000, got = 0x7fc00001;
    struct expected e = {.exact = (uint8_t *)&right};
    struct comparison c;
    compare_tensor(&t, (const uint8_t *)&got, &e, &c, NULL);
    cr_assert_eq(c.wrong, 1);
}

Test(compare, an_infinite_bound_is_not_a_pass)
{
    struct tensor t = vector(DTYPE_F32, CONTRACT_BOUND, 1);
    double value = 1, bound = INFINITY;
    struct expected e = {.value = &value, .bound = &bound};
    struct comparison c;
    float got = 7;
    compare_tensor(&t, (const uint8_t *)&got, &e, &c, NULL);
    cr_assert_eq(c.compared, 0);
    cr_assert_eq(c.unjudged, 1);
}

Test(compare, explanation_names_place_and_pattern)
{
    struct tensor t = {.name = "out", .dtype = DTYPE_F32, .role = ROLE_OUT,
                       .contract = CONTRACT_EXACT, .rank = 2, .shape = {4, 8}, .stride = {8, 1},
                       .elems = 32, .free_from = 32, .alias_of = -1, .dim = {"seq", "dim"}};
    float right[32], got[32];
    uint8_t map[32] = {0};
    char text[4000] = "";
    for (int i = 0; i < 32; i++) right[i] = got[i] = (float)i + 1;
    for (int row = 0; row < 4; row++) got[row * 8 + 7] = 99;
    struct expected e = {.exact = (uint8_t *)right};
    struct comparison c;
    compare_tensor(&t, (const uint8_t *)got, &e, &c, map);
    compare_explain(&t, (const uint8_t *)got, &e, &c, map, text, sizeof text);
    cr_assert(strstr(text, "4 of 32 elements of out are wrong"), "%s", text);
    cr_assert(strstr(text, "seq 0, dim 7"), "%s", text);
    cr_assert(strstr(text, "only dim 7 of 8"), "%s", text);
    cr_assert(strstr(text, "|.......#|"), "%s", text);
    cr_assert(strstr(text, "only the last 1 of each dim"), "%s", text);
}

static uint64_t wrong_nearest; /* one assertion at the end: a runner keeps each */
static double first_wrong;

static void nearest_of(double value)
{
    if (compare_nearest_bf16(value) == ref_bf16_from_f64(value)) return;
    if (!wrong_nearest++) first_wrong = value;
}

/* Every bf16 number, the point half-way to its successor and their neighbours; then any bits. */
Test(compare, nearest_bf16_is_the_oracles)
{
    struct rng r = {1, 2, 3};
    for (uint32_t code = 0; code < 0xffff; code++) {
        double here = (double)ref_bf16_to_f32((uint16_t)code);
        double next = (double)ref_bf16_to_f32((uint16_t)(code + 1));
        double half = here + (next - here) / 2;
        for (int i = 0; i < 6; i++) {
            double middle = i < 3 ? here : half;
            nearest_of(i % 3 ? nextafter(middle, i % 3 == 1 ? INFINITY : -INFINITY) : middle);
        }
    }
    for (int i = 0; i < 1000000; i++) {
        uint64_t bits = (uint64_t)rng_range(&r, 0, UINT32_MAX) << 32 |
                        (uint64_t)rng_range(&r, 0, UINT32_MAX);
        double value;
        if (i % 2)
            bits = (bits & ~(UINT64_C(0x7ff) << 52)) | (uint64_t)rng_range(&r, 880, 1160) << 52;
        memcpy(&value, &bits, sizeof value);
        nearest_of(value);
    }
    cr_assert_eq(wrong_nearest, 0, "%lu, the first %a", (unsigned long)wrong_nearest, first_wrong);
}
