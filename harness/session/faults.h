/* The failures of a run, grouped by fault: operation, and place in the source where one is known, else
 * check and pattern of the wrong elements. A run that fails in hundreds of cases has a handful of faults, and each is told
 * once: how many cases, the smallest of them, and which geometries it needs. */
#ifndef ATTEST_FAULTS_H
#define ATTEST_FAULTS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "harness/case/plan.h"
#include "harness/judge/result.h"

enum { FAULTS_MAX = 64, FAULT_KEY_MAX = 256 };

struct fault {
    char key[FAULT_KEY_MAX]; /* as in the JSON lines */
    const struct op *op;
    enum verdict verdict;
    uint64_t cases;
    char *smallest, *text; /* its case line and what was said about it; owned */
    double size;           /* of the smallest, see fault_size */
};

struct faults {
    struct fault items[FAULTS_MAX]; /* the last one takes what no longer fits */
    uint32_t count;
    uint8_t *outcome; /* by job: 0 neither, 1 passed, 2 + index of the fault */
    uint64_t jobs;
};

/* What makes two failures one fault: "shared-race; file.cu:12", or "contract out; zeros". */
void fault_key(const struct result *r, char *key, size_t size);
bool faults_init(struct faults *f, uint64_t jobs);
void faults_free(struct faults *f);
/* Notes what became of a job. `c` is its case, NULL if it has none. Returns true for the first
 * failure of its kind, which is then worth showing in full. */
bool faults_add(struct faults *f, uint64_t job, const struct op *op, const struct case_line *c,
                const char *case_text, const struct result *r);
/* One block a fault. `flags` end each replay line. */
void faults_print(const struct faults *f, const struct plan *plan, const char *flags, FILE *stream);
#endif
