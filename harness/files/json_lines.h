/* The results of `attest verify --json`: one JSON object a line, read and written.
 *
 * Every line has the keys case, op, backend, verdict, check (texts), ratio and seconds; others may
 * follow and are kept. verdict is one of pass, fail, refused, error. ratio is the worst error over
 * its bound: a number >= 0, "inf" where no bound allows the error, null where nothing was measured.
 * seconds is a number >= 0. */
#ifndef ATTEST_HARNESS_JSON_LINES_H
#define ATTEST_HARNESS_JSON_LINES_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define JSONL_MAX_LINE (1u << 20) /* bytes, without the newline */

struct jsonl_record {
    char op[64], backend[16], verdict[16], check[64];
    const char *case_text;
    double ratio; /* INFINITY for "inf", NAN for null */
    double seconds;
    const cJSON *fields; /* reading: the whole object; writing: more keys to add, or NULL */
    uint64_t line;       /* reading: from 1 */
};

struct jsonl_reader;

enum jsonl_status {
    JSONL_RECORD,
    JSONL_END,       /* after the last line */
    JSONL_BAD_LINE,  /* the line breaks a rule; the next call goes on behind it */
    JSONL_TRUNCATED, /* the last line stops short: its writer died. The next call gives JSONL_END */
    JSONL_IO         /* reading failed; further calls give JSONL_IO again */
};

/* "-" reads standard input. *out is owned by the caller; NULL on failure. */
bool jsonl_open(const char *path, struct jsonl_reader **out, char *error, size_t error_size);
void jsonl_close(struct jsonl_reader *reader); /* NULL is allowed */
/* The next line. The record's pointers live until the next call or jsonl_close. For anything but
 * JSONL_RECORD and JSONL_END `error` says "FILE:LINE: what is wrong". */
enum jsonl_status jsonl_next(struct jsonl_reader *reader, struct jsonl_record *record, char *error,
                             size_t error_size);

/* Writes one line and flushes it. Refused: an unknown verdict, a negative, infinite or NaN time, a
 * ratio below 0, fields that hold one of the required keys, a line above JSONL_MAX_LINE. */
bool jsonl_write(FILE *stream, const struct jsonl_record *record, char *error, size_t error_size);
#endif
