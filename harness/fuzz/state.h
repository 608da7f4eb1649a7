/* What a fuzz run knows: the geometry classes it has seen, the cases that brought them, its findings.
 * Kept in a text file so that a run can stop and go on. */
#ifndef ATTEST_FUZZ_STATE_H
#define ATTEST_FUZZ_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "harness/case/case.h"
#include "harness/fuzz/geometry.h"

struct fuzz_state {
    char backend[16];
    uint64_t seed, round;
    uint64_t cases, refused, empty; /* run; of these refused, without anything to compare */
    double seconds;
    uint64_t classes; /* seen */
    uint8_t *seen;    /* [1 << GEOMETRY_CLASS_BITS], 1 where seen */
    char **kept;      /* case lines that brought a class, in order */
    uint32_t n_kept, room_kept;
    char **found;     /* "OPERATION CHECK" of each finding */
    uint32_t n_found, room_found;
};

/* False: out of memory. Freed with fuzz_state_free, opened or not. */
bool fuzz_state_open(struct fuzz_state *s, const char *backend, uint64_t seed);
void fuzz_state_free(struct fuzz_state *s);
/* Notes a case that passed; keeps it if it brought a class. False: out of memory. */
bool fuzz_state_note(struct fuzz_state *s, const struct case_line *c);
/* Notes a finding; *known says whether there was one like it. False: out of memory. */
bool fuzz_state_find(struct fuzz_state *s, const struct op *op, const char *check, bool *known);

/* Writes to a temporary file beside `path`, syncs it and renames it. */
bool fuzz_state_save(const struct fuzz_state *s, const char *path, char *error, uint32_t error_size);
/* Fills an opened state from a file. False, with file, line and reason, if it is none; the state is
 * then to be freed. The classes are those of the kept cases. */
bool fuzz_state_load(struct fuzz_state *s, const char *path, char *error, uint32_t error_size);

#endif
