/* A case with data of its own, from a captured file, in place of what it would generate. */
#ifndef ATTEST_ITEM_H
#define ATTEST_ITEM_H

#include "harness/case/case.h"

enum { CAPTURED_OVERRIDES_MAX = 16 };

struct override {
    const char *name;
    const void *data;
    uint64_t size_bytes; /* bytes replaced from the start of the tensor's data */
};

/* One stage of a captured file, ready to verify. */
struct captured_item {
    struct case_line c;
    struct override overrides[CAPTURED_OVERRIDES_MAX];
    uint32_t n_overrides;
    /* What a public reference computed in float64 for the output `golden_name`, in dense logical
     * order; the oracle must agree within golden_share of the row's largest value. NULL: none. */
    const char *golden_name;
    const double *golden;
    double golden_share;
    /* The reference used this real softmax scale, of which the case's `scale` is the nearest float:
     * the oracle is taken between the two floats around it. 0: the case's own. */
    double golden_scale;
};
#endif
