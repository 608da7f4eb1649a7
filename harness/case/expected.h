/* What a kernel produced, and what a right one must produce. */
#ifndef ATTEST_EXPECTED_H
#define ATTEST_EXPECTED_H

#include "harness/case/instance.h"

/* Outputs in dense logical order, by tensor index; NULL for inputs. */
struct outputs {
    uint8_t *dense[INSTANCE_TENSORS_MAX];
};
void outputs_free(struct outputs *out);

/* What a right kernel must produce, per output tensor, in dense logical order. */
struct expected {
    uint8_t *exact;        /* CONTRACT_EXACT */
    double *value, *bound; /* CONTRACT_BOUND */
    /* CONTRACT_SELECT: row r chooses select_k[r] of the first select_n[r] of the `select_stride`
     * items with these exact values and bounds. The arrays are allocated by the oracle. */
    double *select_value, *select_bound;
    uint32_t *select_n, *select_k;
    uint64_t select_stride;
};

/* Arrays for what a right kernel must produce, by tensor (INSTANCE_TENSORS_MAX of them). */
bool expected_alloc(const struct instance *in, struct expected *e);
/* The arrays of a certificate (CONTRACT_SELECT), zeroed: `rows` rows of `stride` items. */
bool expected_alloc_select(struct expected *e, uint64_t rows, uint64_t stride);
void expected_free(struct expected *e);
#endif
