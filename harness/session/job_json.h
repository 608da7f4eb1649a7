/* One finished job as a JSON line (json_lines.h): the keys beside the required ones.
 *
 * A case has: seed, tier and date of its run, checks {name: count}, compared, nearest, unjudged,
 * ulp (largest, -1 where there is no such distance), identical and equivalent (selected rows), the
 * spreads ratios, ulps and margins (arrays as in distribution.h, left out where all zero),
 * kernel_seconds, digest (16 hexadecimal digits) and, unless it passed, text.
 * A sweep of random geometries has, beside seed, tier, date, checks and text: geometries, refused
 * and rules {name: how many geometries were refused by it}. */
#ifndef ATTEST_SESSION_JSON_H
#define ATTEST_SESSION_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "harness/case/plan.h"
#include "harness/judge/result.h"

struct json_origin {
    const char *backend, *tier;
    uint64_t seed;
    char date[16]; /* "2024-07-01", in UTC */
};

/* `text` is the case's line, or what names the sweep. A passed sweep's result carries its rules in
 * result->text as "rule count" lines (session_json_rule). */
bool session_json(FILE *stream, const struct json_origin *origin, const struct job *job,
                  const char *op, const char *text, const struct result *result, char *error,
                  size_t error_size);
/* Counts one geometry refused by a rule in a sweep's result. */
void session_json_rule(struct result *result, const char *rule);
/* Today. */
void session_json_date(char *date, size_t size);
#endif
