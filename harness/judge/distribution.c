#include "harness/judge/distribution.h"

#include <math.h>
#include <string.h>

/* The least e with x <= 2^e, for a finite x > 0: frexp, for the sake of speed without a call. */
static int power_above(double x)
{
    uint64_t bits;
    int e;
    memcpy(&bits, &x, sizeof bits);
    if (bits >> 52) return (int)(bits >> 52) - 1023 + ((bits & 0xfffffffffffff) != 0);
    return frexp(x, &e) == 0.5 ? e - 1 : e; /* subnormal */
}

/* Bin 0 holds zeros, bin 1 everything up to 2^first, the last one what is above all edges. */
static int power_bin(double x, int first, int bins)
{
    if (x == 0) return 0;
    if (isinf(x)) return bins - 1;
    int bin = power_above(x) - first + 1;
    return bin < 1 ? 1 : bin >= bins ? bins - 1 : bin;
}

void distribution_ratio(struct distribution *d, double ratio)
{
    d->ratio[power_bin(ratio, -10, RATIO_BINS)]++;
}

void distribution_ulp(struct distribution *d, double ulp)
{
    d->ulp[power_bin(ulp, -3, ULP_BINS)]++;
}

void distribution_margin(struct distribution *d, double margin, double bound)
{
    int bin = 1;
    if (margin == 0) {
        bin = 0;
    } else if (isinf(margin)) {
        bin = MARGIN_BINS - 1;
    } else {
        for (double edge = 0.1; bin < MARGIN_BINS - 2 && margin >= edge * 2 * bound; edge *= 10)
            bin++;
    }
    d->margin[bin]++;
}

void distribution_add(struct distribution *to, const struct distribution *from)
{
    for (int i = 0; i < RATIO_BINS; i++) to->ratio[i] += from->ratio[i];
    for (int i = 0; i < ULP_BINS; i++) to->ulp[i] += from->ulp[i];
    for (int i = 0; i < MARGIN_BINS; i++) to->margin[i] += from->margin[i];
}

const char *distribution_ratio_name(int bin)
{
    static const char *const names[RATIO_BINS] = {
        "0",       "<= 1/1024", "<= 1/512", "<= 1/256", "<= 1/128", "<= 1/64", "<= 1/32",
        "<= 1/16", "<= 1/8",    "<= 1/4",   "<= 1/2",   "<= 1",     "> 1"};
    return names[bin];
}

const char *distribution_ulp_name(int bin)
{
    static const char *const names[ULP_BINS] = {"0",     "<= 1/8", "<= 1/4", "<= 1/2",
                                                "<= 1",  "<= 2",   "<= 4",   "<= 8",
                                                "<= 16", "<= 32",  "<= 64",  "> 64"};
    return names[bin];
}

const char *distribution_margin_name(int bin)
{
    static const char *const names[MARGIN_BINS] = {"tie",   "< 0.1",  "< 1",     "< 10",
                                                   "< 100", "< 1000", ">= 1000", "no boundary"};
    return names[bin];
}
