/* How the errors of judged elements and the margins of judged selections are spread: counts in bins
 * whose edges are powers. Plain data: it crosses a pipe from a worker process. */
#ifndef ATTEST_DISTRIBUTION_H
#define ATTEST_DISTRIBUTION_H

#include <stdint.h>

enum {
    /* err/E: exactly 0; then up to 2^-10, 2^-9, ..., 1/2, 1; above 1, which is wrong */
    RATIO_BINS = 13,
    /* units in the last place: exactly 0; then up to 1/8, 1/4, ..., 64; more */
    ULP_BINS = 12,
    /* The boundary margin of a selected row, in units of twice the largest error bound among its
     * scores: exactly 0 (a tie); below 0.1, 1, 10, 100, 1000; more; no boundary (all are taken). A
     * margin of 1 or more means that no admissible rounding moves the boundary. */
    MARGIN_BINS = 8
};

struct distribution {
    uint64_t ratio[RATIO_BINS], ulp[ULP_BINS], margin[MARGIN_BINS];
};

/* ratio >= 0 or INFINITY; ulp >= 0; margin >= 0 or INFINITY, bound >= 0. */
void distribution_ratio(struct distribution *d, double ratio);
void distribution_ulp(struct distribution *d, double ulp);
void distribution_margin(struct distribution *d, double margin, double bound);
void distribution_add(struct distribution *to, const struct distribution *from);
/* What a bin holds, say "<= 1/8"; the bin exists. */
const char *distribution_ratio_name(int bin);
const char *distribution_ulp_name(int bin);
const char *distribution_margin_name(int bin);
#endif
