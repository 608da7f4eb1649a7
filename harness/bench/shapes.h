/* What `attest bench` measures: the released geometries, and the least work each must do. */
#ifndef ATTEST_BENCH_SHAPES_H
#define ATTEST_BENCH_SHAPES_H

#include "harness/case/case.h"
#include "harness/case/instance.h"

enum bench_unit {
    BENCH_BYTES, /* only moves data */
    BENCH_F32,   /* f32 lane operations: an addition, a multiplication or an fma each */
    BENCH_MATRIX /* multiply-adds on the tensor core */
};
extern const char *const bench_unit_names[];

/* Bytes that must cross the memory bus at least once, and arithmetic that no algorithm of the
 * operation's contract can leave out: f32 products and sums for EXACT scores (their arithmetic is
 * not contracted), one fma a product for BOUND ones. Loads of the same byte by several thread
 * blocks, softmax, reductions and selection are not counted. */
struct bench_work {
    double bytes, operations;
    enum bench_unit unit;
};

struct bench_shape {
    const char *text;   /* the case */
    const char *versus; /* operation measured on the same shape, whose time is divided by this;
                           NULL: none. It must come earlier in the table */
    double required;    /* that quotient at least; 0: not required */
};
extern const struct bench_shape bench_shapes[];
extern const uint32_t bench_shape_count;

void bench_count(const struct case_line *c, const struct instance *in, struct bench_work *work);
#endif
