/* Geometry classes: what kinds of geometry a case belongs to, so that fuzzing can tell a new one.
 *
 * A class is a statement about one parameter or a pair of them: an integer's size (by powers of two,
 * small values apart), how one integer lies to a multiple of another (on it, one beside it) and which
 * of them is larger, two enum values together, what kind of number a real is. A case has a few
 * hundred; an operation has a few thousand, so runs of minutes see most of them. The tuple of all
 * buckets at once would be new for nearly every case and would steer nothing. */
#ifndef ATTEST_GEOMETRY_H
#define ATTEST_GEOMETRY_H

#include "harness/case/case.h"

enum {
    GEOMETRY_CLASS_BITS = 20, /* a class is named by this many bits of a hash */
    GEOMETRY_CLASSES_MAX = 4096 /* of one case */
};

/* Writes the case's classes, some of them more than once; returns how many (at most
 * GEOMETRY_CLASSES_MAX). Rare parameters count only where they differ from their initial value. */
uint32_t geometry_classes(const struct case_line *c, uint32_t classes[GEOMETRY_CLASSES_MAX]);

#endif
