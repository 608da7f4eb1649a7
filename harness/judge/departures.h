/* Known departures: where a kernel from elsewhere does something else than the operation asks, and
 * its author means it (docs/contracts.md §6). What is declared is accepted, counted and said; nothing
 * is ever accepted silently, and everything else about the case is judged on. */
#ifndef ATTEST_DEPARTURES_H
#define ATTEST_DEPARTURES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/case/expected.h"
#include "harness/case/instance.h"

enum departure {
    DEPARTURE_EMPTY_UNWRITTEN, /* an element that must be exactly 0 keeps what it held */
    DEPARTURE_LOW_FOR_INFINITY, /* a finite value of -1e30 or below for minus infinity */
    DEPARTURE_NAN_LOST,         /* anything for NaN */
    DEPARTURE_COUNT
};
extern const char *const departure_names[DEPARTURE_COUNT];

struct departures {
    bool accepted[DEPARTURE_COUNT];
};

/* Reads names, one a line, # starts a comment. False with a message naming file and line. */
bool departures_load(const char *path, struct departures *d, char *error, size_t error_size);

/* Replaces every element that departs in a declared way by what the contract expects, so that no
 * later check sees it, and counts it in used[DEPARTURE_COUNT]. `pattern` is what the outputs held
 * before the launch. */
void departures_mend(const struct departures *d, const struct tensor *t, const struct expected *e,
                     uint8_t pattern, uint8_t *dense, uint64_t *used);
/* The same with the outputs of another run, mended already, in place of the oracle's. */
void departures_mend_like(const struct departures *d, enum dtype dtype, const uint8_t *wanted,
                          uint64_t elems, uint8_t pattern, uint8_t *dense, uint64_t *used);

/* Elements that keep the pattern in both of two launches that began with different ones were never
 * written. Counts them, gives the first, and replaces each in both by what the contract expects
 * where it has one value. */
uint64_t departures_mend_unwritten(const struct tensor *t, const struct expected *e,
                                   uint8_t pattern_a, uint8_t *a, uint8_t pattern_b, uint8_t *b,
                                   uint64_t *first);
#endif
