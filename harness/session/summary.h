/* What a run has seen so far, per operation. */
#ifndef ATTEST_SUMMARY_H
#define ATTEST_SUMMARY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "harness/case/plan.h"
#include "harness/judge/result.h"

struct op_summary {
    const struct op *op;
    uint64_t planned, cases, passed, failed, refused, errors;
    uint64_t checks[CHECK_COUNT], checks_total;
    uint64_t geometries, geometries_refused; /* refusal sweeps */
    uint64_t compared, nearest, unjudged;
    uint64_t identical, equivalent;
    uint64_t departed[DEPARTURE_COUNT]; /* cases in which a known departure was accepted */
    double worst_ratio, max_ulp, seconds, kernel_seconds;
};

struct summary {
    struct op_summary ops[64];
    uint32_t n_ops;
};

void summary_add(struct op_summary *s, const struct job *job, const struct result *r);
struct op_summary summary_total(const struct summary *s);
/* Writes the table to a stream: one line an operation. */
void summary_print(const struct summary *s, FILE *stream, bool colour);
/* The same as Markdown, with the checks made, to a temporary file renamed to `path`. */
bool summary_report(const struct summary *s, const struct plan *plan, const char *backend,
                    double wall_seconds, const char *path, char *error, uint32_t error_size);
#endif
