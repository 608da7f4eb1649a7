/* Certified top-k (contracts.md §1, numerics.md §6): is a set the top k of some scores inside the
 * intervals [value-bound, value+bound]? */
#ifndef ATTEST_REF_SELECT_H
#define ATTEST_REF_SELECT_H

#include "ref.h"

enum ref_select_verdict {
    REF_SELECT_IDENTICAL,  /* the exact set (ties by lowest index) */
    REF_SELECT_EQUIVALENT, /* another set, certified */
    REF_SELECT_WRONG
};

struct ref_select_result {
    enum ref_select_verdict verdict;
    uint32_t forced_in, forced_out, free; /* items that every / no / some admissible answer holds */
    double margin; /* boundary: k-th exact value minus the (k+1)-th; +inf when k >= n */
    /* The pair nearest to a contradiction, for WRONG the proof; UINT32_MAX for IDENTICAL and for a
     * malformed set. */
    uint32_t taken, left_out;
    double gap;       /* value[left_out] - value[taken] */
    double allowance; /* bound[taken] + bound[left_out] */
    char text[200];   /* one sentence for WRONG: also duplicates, range, size, sentinels */
};

/* Items 0..n-1; -inf and NaN values may be given (NaN ranks after every number, with bound 0).
 * `set` holds `slots` entries; a right answer has min(k, n) distinct items in range, in any order,
 * and every remaining slot -1 (slots >= k allowed). An item of bound INFINITY may have any score,
 * NaN too. An interval without an f32 member stands for its exact value. scratch: 4*n doubles. */
void ref_select_judge(const double *value, const double *bound, uint32_t n, uint32_t k,
                      const int32_t *set, uint32_t slots, double *scratch,
                      struct ref_select_result *result);
#endif
