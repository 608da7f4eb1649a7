/* The JSON-lines reader of reports: every record keeps the promises of its header, and one that is
 * written and read again stays the same. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "harness/files/json_lines.h"

enum { LINES_MAX = 10000 };

static void check_record(const struct jsonl_record *r)
{
    static const char *const verdicts[] = {"pass", "fail", "refused", "error"};
    bool known = false;
    for (int i = 0; i < 4; i++) known |= !strcmp(r->verdict, verdicts[i]);
    if (!known) fuzz_fail("verdict '%s'", r->verdict);
    if (!(r->seconds >= 0) || isinf(r->seconds)) fuzz_fail("seconds %g", r->seconds);
    if (!isnan(r->ratio) && !(r->ratio >= 0)) fuzz_fail("ratio %g", r->ratio);
    if (!r->case_text || !r->fields || !r->line) fuzz_fail("a record without case, fields or line");
    if (!memchr(r->op, 0, sizeof r->op) || !memchr(r->check, 0, sizeof r->check) ||
        !memchr(r->backend, 0, sizeof r->backend))
        fuzz_fail("a text without an end");
}

/* cJSON takes the shorter of two texts that are this close. */
static bool alike(double a, double b)
{
    return a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= DBL_EPSILON * fmax(a, b);
}

static void check_same(const struct jsonl_record *a, const struct jsonl_record *b)
{
    if (strcmp(a->op, b->op) || strcmp(a->backend, b->backend) || strcmp(a->verdict, b->verdict) ||
        strcmp(a->check, b->check) || strcmp(a->case_text, b->case_text) ||
        !alike(a->ratio, b->ratio) || !alike(a->seconds, b->seconds))
        fuzz_fail("a record changed when written and read again: ratio %.17g, %.17g; seconds %.17g, "
                  "%.17g", a->ratio, b->ratio, a->seconds, b->seconds);
}

/* The record without its further keys. */
static void write_again(const struct jsonl_record *record)
{
    char *text = NULL, error[1024];
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    struct jsonl_record plain = *record, again;
    struct jsonl_reader *reader;
    if (!stream) return;
    plain.fields = NULL;
    bool written = jsonl_write(stream, &plain, error, sizeof error);
    fclose(stream);
    if (!written && strlen(record->case_text) < JSONL_MAX_LINE / 8) fuzz_fail("%s", error);
    if (written) {
        const char *path = fuzz_file((const uint8_t *)text, size);
        if (!jsonl_open(path, &reader, error, sizeof error)) fuzz_fail("%s", error);
        if (jsonl_next(reader, &again, error, sizeof error) != JSONL_RECORD)
            fuzz_fail("written, but: %s\n%s", error, text);
        check_same(record, &again);
        jsonl_close(reader);
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct jsonl_reader *reader;
    struct jsonl_record record;
    char error[1024];
    uint64_t line = 0;
    if (!jsonl_open(fuzz_file(data, size), &reader, error, sizeof error)) fuzz_fail("%s", error);
    for (int n = 0; n < LINES_MAX; n++) {
        error[0] = 0;
        enum jsonl_status status = jsonl_next(reader, &record, error, sizeof error);
        if (status == JSONL_END) break;
        if (status == JSONL_IO) fuzz_fail("reading memory failed: %s", error);
        if (status != JSONL_RECORD) {
            if (!error[0]) fuzz_fail("refused without a reason");
            continue;
        }
        check_record(&record);
        if (record.line <= line) fuzz_fail("line %llu again", (unsigned long long)record.line);
        line = record.line;
        write_again(&record);
    }
    jsonl_close(reader);
    return 0;
}
