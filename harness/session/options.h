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
    uint32_t jobs, processes, repeats, shard, shards, watchdog_ms, random;
    double timeout_s, budget_s;
    enum tier tier;
    bool json, no_trace, no_relations, quiet, minimize, checker, backend_given;
    const char *backend, *report, *state, *findings, *edits, *module, *source, *kernel_map, *known;
    const char *against;
    struct ref_error_model model;
    bool model_given;
    const char *model_text; /* as given; NULL without */
    uint64_t given; /* a bit for each option of the command line */
    char **words; /* what is left: operations, cases, files */
    int n_words;
};

/* Fills the defaults and parses argv[1..]; argv[0] is the command, whose options alone are taken. False after printing what is
 * wrong and how to get help (exit with EXIT_USAGE). */
bool options_parse(int argc, char **argv, struct options *o);
/* Applies a file's line of options (`--timeout 600 --jobs 1`) where the command line says nothing
 * else. False with a message for an option that a file may not set. */
bool options_wishes(const char *text, struct options *o, char *error, size_t error_size);
enum { REPLAY_FLAGS_MAX = 3 * 4096 }; /* three paths; what does not fit is cut */
/* The flags a replay needs to run the same kernel in the same way, each behind a blank, quoted for a
 * shell: backend, module or source, entry point, error model. */
void options_replay_flags(const struct options *o, char *text, size_t size);
/* Whether the command line gave the option of that name, which must be one. */
bool options_given(const struct options *o, const char *name);
/* False after printing that the command takes no argument, where there is one. */
bool options_no_words(const struct options *o, const char *command);
/* Prints the options that the command takes. */
void options_help(const char *command);
/* Applies "key=value,..." to an error model. */
bool options_model(const char *text, struct ref_error_model *model, char *error, size_t error_size);
#endif
