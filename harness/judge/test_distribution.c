#include <criterion/criterion.h>
#include <float.h>
#include <math.h>

#include "harness/judge/distribution.h"

static int bin_of(double ratio)
{
    struct distribution d = {{0}, {0}, {0}};
    distribution_ratio(&d, ratio);
    for (int i = 0; i < RATIO_BINS; i++)
        if (d.ratio[i]) return i;
    return -1;
}

/* An edge belongs to the bin below it. */
Test(distribution, edges_of_the_bins)
{
    cr_assert_eq(bin_of(0), 0);
    cr_assert_eq(bin_of(DBL_TRUE_MIN), 1);
    cr_assert_eq(bin_of(DBL_MIN), 1);
    for (int power = -10; power <= 0; power++) {
        double edge = ldexp(1, power);
        cr_assert_eq(bin_of(edge), power + 11, "2^%d", power);
        cr_assert_eq(bin_of(nextafter(edge, 0)), power + 11, "below 2^%d", power);
        cr_assert_eq(bin_of(nextafter(edge, 2)), power + 12, "above 2^%d", power);
    }
    cr_assert_eq(bin_of(DBL_MAX), RATIO_BINS - 1);
    cr_assert_eq(bin_of(INFINITY), RATIO_BINS - 1);
}
