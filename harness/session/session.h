/* A run of a plan in worker processes, with its progress, failures and summary on the terminal or as
 * JSON lines: what `verify` and `run` have in common. */
#ifndef ATTEST_SESSION_H
#define ATTEST_SESSION_H

#include "harness/case/plan.h"
#include "harness/session/options.h"
#include "harness/verify/verify.h"

/* Runs the plan; prints; returns the exit code. `command` is the name for the replay hint. */
int session_run(const struct plan *plan, const struct options *o, const char *command);
/* The operations that the words name, of any family too; all of them without a word. ops has room for
 * every operation. False after printing which word names none. */
bool session_ops(const struct options *o, const struct op **ops, uint32_t *n_ops);
/* Where the modules built with this program lie: the folder "simt" or "cuda" beside it. */
bool session_module_dir(const char *backend, char *path, size_t size);
/* Opens the backend in a process of its own, so that this one never holds a device. The exit code,
 * after printing why it is not EXIT_PASS. */
int session_probe(const struct verify_context *context);
/* Fills a verify_context from the options; compiles --source. False after printing why. */
bool session_context(const struct options *o, struct verify_context *context, int *exit_code);
#endif
