/* Named regimes of values (contracts.md §2) and the fields they generate.
 *
 * A field is a matrix of numbers keyed by (seed, stream, row, column): queries, keys, values. Regimes
 * shape queries and keys together, so that for example all their dots are negative. */
#ifndef ATTEST_VALUES_H
#define ATTEST_VALUES_H

#include <stdint.h>

#include "harness/case/instance.h"

enum regime {
    REGIME_NORMAL,
    REGIME_EXACT_INT,    /* small integers: sums are exact in any order and on any tensor core */
    REGIME_PEAKED,       /* softmax on one or a few keys */
    REGIME_FLAT,         /* softmax nearly uniform */
    REGIME_ALL_NEGATIVE, /* every query-key dot is negative */
    REGIME_RELU_TIES,    /* all but one key in 16 has only negative dots: scores exactly 0 */
    REGIME_LOW_BITS,     /* keys alike: scores equal in their top bits */
    REGIME_CANCEL,       /* dots cancel to a small remainder of large products */
    REGIME_OUTLIER_CHANNELS, /* two channels 50 times larger */
    REGIME_WALK,         /* neighbouring tokens alike */
    REGIME_NEEDLE,       /* one key aligned with the queries, the rest small */
    REGIME_SUBNORMAL,    /* keys among the subnormals of their format */
    REGIME_HUGE,         /* keys and values near the top of the range that stays finite */
    REGIME_OFFSET_MEAN,  /* a common offset on every element */
    REGIME_EQUAL,        /* every key the same: all scores equal */
    REGIME_SPECIALS,     /* some rows hold NaN or infinity */
    REGIME_COUNT
};
extern const char *const regime_names[]; /* REGIME_COUNT names, then NULL */

enum field_kind { FIELD_QUERY, FIELD_KEY, FIELD_VALUE };

struct field {
    uint64_t seed;
    uint32_t stream; /* distinguishes tensors; queries and keys of one case use different ones */
    enum field_kind kind;
    enum regime regime;
    uint32_t cols;
    uint64_t needle_row; /* REGIME_NEEDLE: which token; a row is sequence << 24 | token */
    double unit;         /* multiplies every value: the natural magnitude in the target format */
    double tiny, huge;   /* multipliers that reach the subnormals / the top of the target format */
};
/* A field with the multipliers that suit the dtype. */
struct field field_make(uint64_t seed, uint32_t stream, enum field_kind kind, enum regime regime,
                        enum dtype dtype, uint32_t cols);
/* Fills out[0..cols) with row `row`. */
void field_row(const struct field *f, uint64_t row, double *out);
/* Fills one row in the storage format. */
void field_row_store(const struct field *f, uint64_t row, enum dtype dtype, void *out);
/* ref_e4m3_from_f32, faster: the data of most cases is e4m3. */
uint8_t values_e4m3(float value);
/* Fills `elems` elements at `target` with what must not matter. */
void poison_fill(void *target, enum dtype dtype, uint64_t elems, enum poison poison);
#endif
