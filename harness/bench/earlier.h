/* Times measured before, or by somebody else: JSON lines, one object each. */
#ifndef ATTEST_BENCH_EARLIER_H
#define ATTEST_BENCH_EARLIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct earlier_time {
    char *text;        /* the case */
    char backend[16];  /* empty for a peer */
    char peer[48];     /* who was measured; empty for attest's own kernels */
    char device[96];   /* empty where the line names none */
    char skipped[160]; /* a peer that was not measured, and why; the times are 0 then */
    double median_us, least_us, most_us;
};

struct earlier {
    struct earlier_time *times;
    uint32_t count;
};

/* Reads what `attest bench --json` or a peer printed. A line must be an object with `case`, and
 * `median_us`, `least_us` and `most_us` above 0 and in order, or `skipped`. Other keys may be
 * there; lines without `case` that have `checker` are passed over. False with what is wrong, and
 * where; a file without a time is wrong. earlier_free in any case. */
bool earlier_read(FILE *stream, const char *name, struct earlier *e, char *error, size_t size);
void earlier_free(struct earlier *e);
/* The time of attest's own kernel for a case on a backend; the last one if there are several. NULL:
 * none. */
const struct earlier_time *earlier_find(const struct earlier *e, const char *text,
                                        const char *backend);
/* Whether two medians differ by more than either spread, least to most. */
bool earlier_beyond_spreads(const struct earlier_time *e, double median_us, double least_us,
                            double most_us);
#endif
