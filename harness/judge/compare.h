/* Judging one output tensor against what a right kernel must produce, and saying where it is wrong. */
#ifndef ATTEST_COMPARE_H
#define ATTEST_COMPARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/case/expected.h"
#include "harness/judge/distribution.h"
#include "ref/select.h"

struct comparison {
    uint64_t compared;   /* elements judged (SELECT: list entries) */
    uint64_t unjudged;   /* elements the arithmetic leaves open (bound infinite) */
    uint64_t wrong;
    uint64_t worst;      /* flat index of the worst wrong element */
    double worst_ratio;  /* BOUND: least error that explains an element, over its bound; over all */
    uint64_t nearest;    /* BOUND: elements equal to the correctly rounded exact value */
    double max_ulp;      /* largest distance in units of the output format's last place */
    uint32_t identical, equivalent; /* SELECT rows */
    struct distribution spread;     /* BOUND: errors; SELECT: margins */
    struct ref_select_result select; /* of the first wrong row */
    uint64_t select_row;
};

/* got: dense logical order. wrong_map: one byte per logical element, set to 1 where wrong; may be
 * NULL. NaN against a number is always wrong. */
void compare_tensor(const struct tensor *t, const uint8_t *got, const struct expected *e,
                    struct comparison *result, uint8_t *wrong_map);
/* Bitwise, NaN as a class for float formats. Returns the number of differing elements and the
 * first one. */
uint64_t compare_bits(const struct tensor *t, const uint8_t *a, const uint8_t *b, uint64_t elems,
                      uint64_t *first);
/* ref_bf16_from_f64 of any value, faster: nearest even, NaN 0x7fff. */
uint16_t compare_nearest_bf16(double value);
/* Value of element i of a dense array in the tensor's format. */
double element_value(enum dtype dtype, const uint8_t *data, uint64_t i);
/* "0x3f80 (1)" */
void element_print(enum dtype dtype, const uint8_t *data, uint64_t i, char *text, size_t size);
/* Appends to text: worst element, expected and got, where the wrong elements lie, a map, and what
 * the pattern suggests. Returns the pattern's short name ("zeros", "tail"), empty where none is
 * plain. */
const char *compare_explain(const struct tensor *t, const uint8_t *got, const struct expected *e,
                            const struct comparison *c, const uint8_t *wrong_map, char *text,
                            size_t size);
#endif
