/* Which cases a report has read: a case that ran again must have given the same, and on another
 * backend the same bits. */
#ifndef ATTEST_REPORT_SEEN_H
#define ATTEST_REPORT_SEEN_H

#include "harness/report/report.h"

enum seen {
    SEEN_NEW,
    SEEN_SAME,  /* read before with the same verdict and bits */
    SEEN_OTHER, /* read before with another verdict or other bits */
    SEEN_MEMORY
};

/* *seen may be NULL: it is made. digest: of the outputs; 0 where nothing ran. */
enum seen report_seen_add(struct report_seen **seen, const char *op, const char *case_text,
                          const char *backend, enum verdict verdict, uint64_t digest);
/* Counts the pairs of backends in report->pairs_equal and pairs_different, makes a failure (check
 * "backends") of each that differs, and frees report->seen. False when out of memory. */
bool report_seen_finish(struct report *report, char *error, size_t error_size);
void report_seen_free(struct report_seen *seen); /* NULL is allowed */
#endif
