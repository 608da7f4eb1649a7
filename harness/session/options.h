/* The command line: one table for parsing, range checks and --help. */
#ifndef ATTEST_OPTIONS_H
#define ATTEST_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/case/op.h"
#include "ref/ref.h"

enum { EXIT_PASS = 0, EXIT_WRONG = 1, EXIT_USAGE = 2, EXIT_INFRA = 3, EXIT_UNAVAILABLE = 77 };

struct options {
    uint64_t cases, geometries, seed;
    uint32_t jobs, processes, repeats, shard, shards, watchdog_ms;
    double timeout_s, budget_s;
    enum tier tier;
    bool json, no_trace, no_relations, quiet, minimize, backend_given;
    const char *backend, *report, *state, *findings, *edits, *module, *source, *kernel_map;
    struct ref_error_model model;
    bool model_given;
    char **words; /* what is left: operations, cases, files */
    int n_words;
};

/* Fills the defaults and parses argv[1..]; argv[0] is the command. False after printing what is
 * wrong and how to get help (exit with EXIT_USAGE). */
bool options_parse(int argc, char **argv, struct options *o);
/* Prints the option table. */
void options_help(void);
/* Applies "key=value,..." to an error model. */
bool options_model(const char *text, struct ref_error_model *model, char *error, size_t error_size);
#endif
