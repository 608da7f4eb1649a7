/* Broken kernels under trial: what the parts of `attest broken` share. */
#ifndef ATTEST_BROKEN_TRIALS_H
#define ATTEST_BROKEN_TRIALS_H

#include <limits.h>

#include "harness/files/broken.h"
#include "harness/session/session.h"

struct trial {
    struct broken kernel;
    char plain[PATH_MAX], traced[PATH_MAX];
    struct result result; /* of the case that caught it */
    uint64_t cases;
    char caught_by[CASE_TEXT_MAX];
    bool caught;
};

struct trials {
    const struct options *options;
    struct verify_context context;
    struct trial *items; /* owned */
    uint32_t count;
};

/* What a worker hands back travels in the result's text: the case, then the failure. */
void broken_note_case(struct result *r, const struct case_line *c, uint64_t cases);
/* The result shows nothing wrong with the kernel. */
bool broken_unseen(const struct result *r);
/* The context with that kernel's modules. Close its device with verify_close. */
struct verify_context broken_context(const struct trials *t, const struct trial *trial);
/* Verifies drawn cases from number `first` on, in a circle, until one fails or all passed; the fixed
 * ones come last, for they are there for their size, and a wrong kernel shows in small. Returns how
 * many it took; *r is of the last. */
uint64_t broken_search(const struct trials *t, const struct trial *trial, uint64_t seed,
                       uint64_t first, struct verify_context *x, struct result *r);
/* --random: how many random cases each kernel takes to be caught, over several seeds. The exit code:
 * wrong where one was never caught or takes more than the allowed number at the median. */
int broken_random(const struct trials *t);
#endif
