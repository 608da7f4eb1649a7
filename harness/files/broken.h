/* Kernels that are wrong in one way each: kernels/broken/NAME.edit.
 *
 * An edit turns a production kernel into a wrong one, so a wrong kernel stays wrong in exactly one
 * way while the production kernel evolves. The file:
 *
 *     op: glm5next_dsa_mla_decode_fp8
 *     kind: PAGE
 *     bug: one sentence
 *     like: P12
 *     file: glm5next_dsa_mla_decode.cu
 *     <<<<
 *     text that stands exactly once in the file
 *     ====
 *     text to put there instead
 *     >>>>
 *
 * `file:` and the replacement may repeat. `like` names an entry of docs/bugs.md. Optional lines:
 * `case:` the smallest case known to show the bug, which is tried first; `check:` what catches it
 * there; `only: FILE.cuh` the part of a module that holds the entry point, so that the rest need not
 * be compiled; `blind: cuda` only the CPU backend can see it (`why:` says why). */
#ifndef ATTEST_BROKEN_H
#define ATTEST_BROKEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BROKEN_REPLACEMENTS_MAX = 8 };

struct broken {
    char name[64], op[64], kind[16], like[32], bug[256], module[64];
    char smallest[640], check[64], why[256], only[64];
    bool gpu_blind;
    struct {
        char file[64];
        char *old_text, *new_text;
    } replacements[BROKEN_REPLACEMENTS_MAX];
    uint32_t n_replacements;
    char *text; /* owns the strings above */
};

bool broken_load(const char *path, struct broken *b, char *error, size_t error_size);
void broken_free(struct broken *b);
/* Writes the edited kernel with everything it includes to the folder `target` (created). Fails if a
 * text does not stand exactly once in its file. */
bool broken_write(const struct broken *b, const char *kernels_dir, const char *target, char *error,
                  size_t error_size);
#endif
