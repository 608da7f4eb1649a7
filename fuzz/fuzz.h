/* What the fuzz targets share. A target is a file fuzz_NAME.c with LLVMFuzzerTestOneInput; it links
 * with any engine that calls that function, and replays the files given as arguments. */
#ifndef ATTEST_FUZZ_FUZZ_H
#define ATTEST_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/case/case.h"
#include "harness/case/op.h"

/* The engine's interface. */
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed);
size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size,
                                 uint8_t *out, size_t max_out, unsigned int seed);

/* Something is wrong: says so and ends the process, so that the engine keeps the input. */
void fuzz_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* The input's first line as a string; false if it holds a NUL or is longer than any case. *rest is
 * what follows the line. */
bool fuzz_line(const uint8_t *data, size_t size, char text[CASE_TEXT_MAX], const uint8_t **rest,
               size_t *rest_size);

/* Which operations a target draws: those of a family (NULL: all), and of these only the one that
 * ATTEST_FUZZ_OP names, where it is set. */
bool fuzz_admits(const char *family, const struct op *op);

/* Mutator and crossover for inputs whose first line is a case: geometry, structure and regime change
 * in the parsed case, which is printed back. One in `raw_one_in` is a change of raw bytes instead.
 * `wild`: half of the cases may break any rule. What follows the first line is kept. */
struct fuzz_mutation {
    const char *family;
    uint32_t raw_one_in;
    bool wild;
};
size_t fuzz_mutate(const struct fuzz_mutation *m, uint8_t *data, size_t size, size_t max_size,
                   unsigned int seed);
size_t fuzz_cross(const struct fuzz_mutation *m, const uint8_t *a, size_t a_size, const uint8_t *b,
                  size_t b_size, uint8_t *out, size_t max_out, unsigned int seed);

/* Both hooks of a target whose inputs are cases. */
#define FUZZ_CASE_HOOKS(mutation)                                                                  \
    size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed) \
    {                                                                                              \
        return fuzz_mutate(&(mutation), data, size, max_size, seed);                               \
    }                                                                                              \
    size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t a_size, const uint8_t *b,            \
                                     size_t b_size, uint8_t *out, size_t max_out,                  \
                                     unsigned int seed)                                            \
    {                                                                                              \
        return fuzz_cross(&(mutation), a, a_size, b, b_size, out, max_out, seed);                  \
    }

/* The body of a target that runs the cases of a family: opens the CPU backend and loads the modules
 * of every operation, so that their coverage counters are known from the start. */
int fuzz_family_open(const char *family);
int fuzz_family_run(const char *family, const uint8_t *data, size_t size);

/* The bytes as a file that has a path, until the next call. */
const char *fuzz_file(const uint8_t *data, size_t size);

#endif
