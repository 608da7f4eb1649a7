/* The JSON lines of the shards of a run, joined to what one process would have written. */
#ifndef ATTEST_REPORT_MERGE_H
#define ATTEST_REPORT_MERGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct merge_result {
    char *text; /* the lines, in a fixed order; owned by the caller */
    size_t size;
    uint64_t lines, repeated; /* written; left out because they stand in two files word for word */
};
/* False with "FILE:LINE: what is wrong", also where a case stands in two files with different
 * verdicts or bits, and where the files are of runs with different seeds or tiers. */
bool report_merge(const char *const *paths, size_t count, struct merge_result *result, char *error,
                  size_t error_size);
#endif
