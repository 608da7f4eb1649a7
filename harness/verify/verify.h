/* Every check of contracts.md §3 on one case and one backend. */
#ifndef ATTEST_VERIFY_H
#define ATTEST_VERIFY_H

#include "harness/judge/result.h"
#include "harness/run/context.h"

/* Of a run's drawn cases every third has the instrumented run too. */
enum { VERIFY_TRACE_EVERY = 3 };

/* Runs one case. Never exits; a crash of the process is the caller's to handle. */
void verify_case(struct verify_context *context, const struct case_line *c, struct result *result);
void verify_close(struct verify_context *context);
/* The refusal check alone, without building anything: for very many geometries. */
bool verify_refusal_agrees(const struct case_line *c, bool *refused, char *rule, size_t rule_size,
                           char *text, size_t text_size);
#endif
