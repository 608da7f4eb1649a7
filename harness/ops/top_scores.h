/* Scores for the operations that select the best of a row. What matters is how they tie and
 * where they lie, so they have regimes of their own. */
#ifndef ATTEST_OPS_TOP_SCORES_H
#define ATTEST_OPS_TOP_SCORES_H

#include "harness/case/case.h"

enum score_regime {
    SCORES_NORMAL,
    SCORES_TIES,        /* a dozen different values */
    SCORES_EQUAL,       /* all the same */
    SCORES_LOWEST,      /* all -FLT_MAX, as of no candidates */
    SCORES_SOME_LOWEST, /* most -FLT_MAX, fewer others than wanted */
    SCORES_MINUS_INF,   /* -inf but for one in 8 */
    SCORES_RELU,        /* exactly 0 but for one in 16, above or below */
    SCORES_RELU_TIES,   /* exactly 0 but for one in 16, above */
    SCORES_ZEROS,       /* +0 and -0, which are equal, and the least subnormals */
    SCORES_LOW_BITS,    /* neighbours in the last bits */
    SCORES_TOP_BITS,    /* alike in the low bits, a few different exponents */
    SCORES_SOME_NAN,
    SCORES_ALL_NAN,  /* with different payloads */
    SCORES_INFINITE, /* both infinities beside numbers, -FLT_MAX and NaN */
    SCORES_NEGATIVE,
    SCORES_SUBNORMAL,
    SCORES_ASCENDING,
    SCORES_DESCENDING,
    SCORES_LAST_BEST, /* the best is the last one, the rest are equal */
    SCORES_CUT_TIE,   /* one value on both sides of the place where the list ends */
    SCORES_BITS       /* any bit pattern */
};

struct top_scores {
    enum score_regime regime;
    uint64_t seed;
    float factor;         /* multiplies every score */
    uint32_t select;      /* wanted of a row: for SCORES_SOME_LOWEST */
    uint32_t infinite_of; /* one period of SCORES_INFINITE: five specials, the rest numbers */
};
/* The regime that the key `regime` names, ("relu" and so on), seed, and the key `halve`. */
struct top_scores top_scores_of(const struct case_line *c);
/* The first `count` scores of the row with this key. */
void top_scores_row(const struct top_scores *s, uint64_t key, uint32_t count, float *out);

#endif
