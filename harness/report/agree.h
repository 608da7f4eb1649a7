/* Whether two runs of the same cases gave the same bits: the outputs' digests, case by case. The
 * kernels claim equal bits on every backend, so one run is usually the CPU's and one the GPU's. */
#ifndef ATTEST_REPORT_AGREE_H
#define ATTEST_REPORT_AGREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The cases of one file of JSON lines, by case text. A case that stands in the file more than once
 * is one entry; `unsteady` if its outcomes differ. */
struct agree_case {
    char *text;
    char op[64], verdict[16];
    uint64_t digest; /* of its outputs; 0 if nothing ran (refused) or the run broke off */
    uint64_t line;
    bool unsteady;
};
struct agree_run {
    const char *path; /* the caller's */
    char backend[16]; /* of the first record; "mixed" if not all have it */
    struct agree_case *cases;
    size_t count;
};

struct agree_op {
    char op[64];
    uint64_t equal, refused, different, only_first, only_second;
};
struct agree_result {
    struct agree_op *ops; /* by name */
    size_t n_ops;
    struct agree_op total;
    struct agree_difference {
        const struct agree_case *first, *second; /* both in their runs */
    } * differences;
    size_t n_differences;
};

/* Reads a whole file ("-": standard input). False with "FILE:LINE: what is wrong" for a line that
 * is no result or has no digest; nothing is kept then. */
bool agree_read(const char *path, struct agree_run *run, char *error, size_t error_size);
void agree_run_free(struct agree_run *run);
/* Equal: both passed with one digest, steadily. Refused: refused by both under the same rule or
 * not. Everything else that stands in both is a difference, a failure on both sides included: it
 * says nothing about agreement. False when out of memory. */
bool agree_compare(const struct agree_run *first, const struct agree_run *second,
                   struct agree_result *result);
void agree_result_free(struct agree_result *result);
#endif
