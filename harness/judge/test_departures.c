#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "harness/judge/departures.h"

enum { N = 6, PATTERN = 0xa5 };

static struct tensor row(enum contract contract)
{
    return (struct tensor){.name = "out", .dtype = DTYPE_F32, .role = ROLE_OUT, .contract = contract,
                           .rank = 1, .shape = {N}, .stride = {1}, .dim = {"dim"}, .elems = N,
                           .free_from = N, .alias_of = -1};
}

static float unwritten(void)
{
    float x;
    memset(&x, PATTERN, sizeof x);
    return x;
}

/* 0 unwritten, 0 written as 1, -inf as -1e30, -inf as -1, NaN as 3, a number unwritten. */
static void mended(const struct departures *d, float *got, uint64_t *used)
{
    static double value[N] = {0, 0, -INFINITY, -INFINITY, NAN, 2}, bound[N] = {0, 0, 0, 0, 0, 0.5};
    struct tensor t = row(CONTRACT_BOUND);
    struct expected e = {.value = value, .bound = bound};
    const float start[N] = {unwritten(), 1, -1e30f, -1, 3, unwritten()};
    memcpy(got, start, sizeof start);
    departures_mend(d, &t, &e, PATTERN, (uint8_t *)got, used);
}

Test(departures, each_is_accepted_for_itself_alone)
{
    for (int which = 0; which <= DEPARTURE_COUNT; which++) {
        struct departures d = {{false}};
        uint64_t used[DEPARTURE_COUNT] = {0};
        float got[N];
        if (which < DEPARTURE_COUNT) d.accepted[which] = true;
        mended(&d, got, used);
        cr_expect_eq(got[0] == 0, which == DEPARTURE_EMPTY_UNWRITTEN);
        cr_expect_eq(got[1], 1);
        cr_expect_eq(isinf(got[2]) != 0, which == DEPARTURE_LOW_FOR_INFINITY);
        cr_expect_eq(got[3], -1);
        cr_expect_eq(isnan(got[4]) != 0, which == DEPARTURE_NAN_LOST);
        cr_expect_neq(got[5], 2, "a number that was not written is no departure");
        for (int i = 0; i < DEPARTURE_COUNT; i++) cr_expect_eq(used[i], i == which);
    }
}

Test(departures, what_neither_launch_wrote_is_counted_and_replaced)
{
    static double value[N] = {0, 1, 2, 3, 4, 5}, bound[N] = {0, 1, 1, 1, 1, 1};
    struct tensor t = row(CONTRACT_BOUND);
    struct expected e = {.value = value, .bound = bound};
    float a[N] = {7, 7, 7, 7, 7, 7}, b[N] = {7, 7, 7, 7, 7, 7};
    uint64_t first = 99;
    memset(&a[2], 0xa5, 8); /* elements 2 and 3 in the first launch */
    memset(&b[3], 0x5b, 8); /* 3 and 4 in the second */
    cr_expect_eq(departures_mend_unwritten(&t, &e, 0xa5, (uint8_t *)a, 0x5b, (uint8_t *)b, &first), 1);
    cr_expect_eq(first, 3);
    cr_expect_eq(a[3], 3);
    cr_expect_eq(b[3], 3);
    cr_expect_neq(a[2], 2, "written by the second launch");
}

Test(departures, names_are_read_and_others_refused)
{
    char path[] = "/tmp/attest-known-XXXXXX", error[300];
    struct departures d;
    int file = mkstemp(path);
    cr_assert_geq(file, 0);
    static const char text[] = "# ours\n\n  nan-lost   # see our docs\nlow-for-infinity\n";
    cr_assert_eq(write(file, text, 34), 34);
    cr_expect(departures_load(path, &d, error, sizeof error));
    cr_expect(d.accepted[DEPARTURE_NAN_LOST]);
    cr_expect_not(d.accepted[DEPARTURE_EMPTY_UNWRITTEN]);
    cr_assert_eq(write(file, text + 34, sizeof text - 35), (ssize_t)sizeof text - 35);
    cr_expect_not(departures_load(path, &d, error, sizeof error));
    cr_expect_not_null(strstr(error, ":4: 'low-for-infinity' is no known departure"), "%s", error);
    close(file);
    unlink(path);
    cr_expect_not(departures_load(path, &d, error, sizeof error));
}
