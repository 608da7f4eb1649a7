/* Random changes of a case, for fuzzing: geometry, structure and regime. The result is always a
 * printable case; whether its operation accepts it is another matter. */
#ifndef ATTEST_MUTATE_H
#define ATTEST_MUTATE_H

#include "harness/case/case.h"
#include "harness/case/op.h"
#include "harness/case/random.h"

/* A case of the operation as the sampler draws it, with a seed. */
void mutate_fresh(struct case_line *c, const struct op *op, struct rng *r, enum tier tier);
/* Changes one or a few parameters. Prefers changes that the operation accepts, but not always. */
void mutate_case(struct case_line *c, struct rng *r, enum tier tier);
/* Replaces some of the parameters by those that `other` has under the same names; lists may be
 * spliced. */
void mutate_cross(struct case_line *c, const struct case_line *other, struct rng *r);

#endif
