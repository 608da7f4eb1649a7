/* Which geometry do failing cases have in common that passing ones have not? A guess from the cases
 * at hand, for a person to read: "fails iff some len = 0". */
#ifndef ATTEST_SEPARATE_H
#define ATTEST_SEPARATE_H

#include <stddef.h>
#include <stdint.h>

#include "harness/case/case.h"

/* Fewer cases than these say nothing: with one failing case everything it has would be the reason. */
enum { SEPARATE_FAILING_MIN = 4, SEPARATE_PASSING_MIN = 20 };

/* Cases of one operation, by the numbers their parameters give. Owned; free with separate_free. */
struct separate_cases {
    double *values; /* [count, features] */
    uint32_t count, room;
};
/* Adds a case; false when memory is short. All cases of a set are of one operation. */
bool separate_add(struct separate_cases *set, const struct case_line *c);
void separate_free(struct separate_cases *set);
/* Writes "fails iff A", "fails iff A and B" or "only where A (fails in N of M such cases)" with the
 * numbers it rests on; an empty text where nothing separates them. Every condition holds for all
 * failing cases. */
void separate_say(const struct op *op, const struct separate_cases *failing,
                  const struct separate_cases *passing, char *text, size_t size);
#endif
