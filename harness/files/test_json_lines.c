#include "harness/files/json_lines.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/base/test_files.h"

static struct test_dir dir;

static void set_up(void)
{
    test_dir_make(&dir);
}

static void tear_down(void)
{
    test_dir_remove(&dir);
}

TestSuite(json_lines, .init = set_up, .fini = tear_down, .timeout = 60);

#define GOOD                                                                                      \
    "{\"case\":\"qsa_score:n=1\",\"op\":\"qsa_score\",\"backend\":\"simt\",\"verdict\":\"pass\"," \
    "\"check\":\"\",\"ratio\":0.25,\"seconds\":1e-3}"

static struct jsonl_reader *open_text(const char *text, size_t size)
{
    struct jsonl_reader *reader;
    char error[300] = "";
    test_file_write(&dir, "results", text, size);
    cr_assert(jsonl_open(dir.file, &reader, error, sizeof error), "%s", error);
    return reader;
}

/* GOOD with one part of it exchanged, as a line. */
static const char *changed(const char *from, const char *to)
{
    static char line[1000];
    const char *at = strstr(GOOD, from);
    cr_assert_not_null(at, "%s", from);
    snprintf(line, sizeof line, "%.*s%s%s\n", (int)(at - GOOD), GOOD, to, at + strlen(from));
    return line;
}

Test(json_lines, a_record_is_read_with_every_key)
{
    const char *text = changed("\"op\"", "\"select\":{\"rows\":[1,2]},\"op\"");
    struct jsonl_reader *reader = open_text(text, strlen(text));
    struct jsonl_record record;
    char error[300] = "";
    cr_assert_eq(jsonl_next(reader, &record, error, sizeof error), JSONL_RECORD, "%s", error);
    cr_expect_str_eq(record.case_text, "qsa_score:n=1");
    cr_expect_str_eq(record.op, "qsa_score");
    cr_expect_str_eq(record.backend, "simt");
    cr_expect_str_eq(record.verdict, "pass");
    cr_expect_str_eq(record.check, "");
    cr_expect_eq(record.ratio, 0.25);
    cr_expect_eq(record.seconds, 1e-3);
    cr_expect_eq(record.line, 1);
    const cJSON *select = cJSON_GetObjectItemCaseSensitive(record.fields, "select");
    cr_expect_eq(cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(select, "rows")), 2);
    cr_expect_eq(jsonl_next(reader, &record, error, sizeof error), JSONL_END);
    cr_expect_eq(jsonl_next(reader, &record, error, sizeof error), JSONL_END);
    jsonl_close(reader);
}

static const struct {
    const char *from, *to, *reason;
} bad[] = {
    {GOOD, "", "line is not JSON: stopped at its byte 0 of 0"},
    {GOOD, "[1]", "line is no JSON object"},
    {GOOD, "7", "line is no JSON object"},
    {GOOD, GOOD GOOD, "line is not JSON"},
    {"\"op\":\"qsa_score\",", "", "key op is missing"},
    {"\"case\"", "\"Case\"", "key case is missing"},
    {",\"seconds\":1e-3", "", "key seconds is missing"},
    {"\"seconds\"", "\"ratio\":1,\"seconds\"", "two keys ratio"},
    {"\"qsa_score:n=1\"", "12", "case is no text"},
    {"\"simt\"", "null", "backend is no text"},
    {"\"simt\"", "\"sixteen bytes...\"", "backend has 16 bytes, more than 15"},
    {"\"pass\"", "\"passed\"", "verdict \"passed\" is none of pass, fail, refused, error"},
    {"\"pass\"", "\"PASS\"", "verdict \"PASS\" is none of"},
    {"\"pass\"", "\"\"", "verdict \"\" is none of"},
    {"\"pass\"", "true", "verdict is no text"},
    {"\"pass\"", "\"pa\\u0000ss\"", "escaped zero character"},
    {"0.25", "-0.25", "ratio is neither"},
    {"0.25", "1e999", "ratio is neither"},
    {"0.25", "\"nan\"", "ratio is neither"},
    {"0.25", "NaN", "line is not JSON"},
    {"0.25", "[0.25]", "ratio is neither"},
    {"1e-3", "-1", "seconds is no number >= 0"},
    {"1e-3", "null", "seconds is no number >= 0"},
    {"1e-3", "1e400", "seconds is no number >= 0"},
};

/* Each bad line sits between two good ones: the reader names it and goes on. */
Test(json_lines, bad_lines_are_named_and_passed_over)
{
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[2000], where[400], error[300] = "";
        struct jsonl_record record;
        snprintf(text, sizeof text, GOOD "\n%s" GOOD "\n", changed(bad[i].from, bad[i].to));
        struct jsonl_reader *reader = open_text(text, strlen(text));
        cr_expect_eq(jsonl_next(reader, &record, error, sizeof error), JSONL_RECORD);
        cr_expect_eq(jsonl_next(reader, &record, error, sizeof error), JSONL_BAD_LINE, "%s",
                     bad[i].reason);
        snprintf(where, sizeof where, "%s:2: ", dir.file);
        cr_expect_eq(strncmp(error, where, strlen(where)), 0, "%s", error);
        cr_expect_not_null(strstr(error, bad[i].reason), "got: %s\nwanted: %s", error,
                           bad[i].reason);
        cr_expect_eq(jsonl_next(reader, &record, error, sizeof error), JSONL_RECORD);
        cr_expect_eq(record.line, 3);
        cr_expect_eq(jsonl_next(reader, &record, error, sizeof error), JSONL_END);
        jsonl_close(reader);
    }
}

/* A line of `length` bytes that is a good record, its case text stretched. */
static char *long_line(size_t length)
{
    const char *line = changed("n=1", "n=");
    size_t short_length = strlen(line) - 1, head = (size_t)(strstr(line, "n=") + 2 - line);
    char *text = malloc(length + 2);
    cr_assert(text && length >= short_length);
    memcpy(text, line, head);
    memset(text + head, '1', length - short_length);
    strcpy(text + head + (length - short_length), line + head);
    return text;
}

Test(json_lines, lines_are_bounded)
{
    struct jsonl_record record;
    char error[300] = "";
    char *fits = long_line(JSONL_MAX_LINE), *exceeds = long_line(JSONL_MAX_LINE + 1);
    char *far = long_line(3 * (size_t)JSONL_MAX_LINE);
    size_t size = strlen(fits) + strlen(exceeds) + strlen(far) + sizeof GOOD;
    char *text = malloc(size + 1);
    cr_assert_not_null(text);
    sprintf(text, "%s%s%s%s", exceeds, far, fits, GOOD);
    struct jsonl_reader *reader = open_text(text, strlen(text));
    cr_expect_eq(jsonl_next(reader, &record, error, sizeof error), JSONL_BAD_LINE);
    cr_expect_not_null(strstr(error, ":1: line has 1048577 bytes, more than 1048576"), "%s", error);
    cr_expect_eq(jsonl_next(reader, &record, error, sizeof error), JSONL_BAD_LINE);
    cr_expect_not_null(strstr(error, ":2: line has 3145728 bytes"), "%s", error);
    cr_expect_eq(jsonl_next(reader, &record, error, sizeof error), JSONL_RECORD);
    cr_expect_eq(record.line, 3);
    cr_expect_gt(strlen(record.case_text), (size_t)JSONL_MAX_LINE - 300);
    cr_expect_eq(jsonl_next(reader, &record, error, sizeof error), JSONL_RECORD);
    cr_expect_eq(jsonl_next(reader, &record, error, sizeof error), JSONL_END);
    jsonl_close(reader);
    free(text);
    free(fits);
    free(exceeds);
    free(far);
}

/* A writer that died leaves a prefix; every proper one is seen, a whole object never is one. */
Test(json_lines, a_truncated_last_line_is_reported_at_every_length)
{
    const char text[] = GOOD "\n" GOOD "\n";
    const size_t first = sizeof GOOD; /* with its newline */
    for (size_t size = 0; size < sizeof text; size++) {
        struct jsonl_reader *reader = open_text(text, size);
        struct jsonl_record record;
        char error[300] = "";
        size_t whole = (size + 1) / first,
               over = size - (size < whole * first ? size : whole * first);
        for (size_t i = 0; i < whole; i++)
            cr_assert_eq(jsonl_next(reader, &record, error, sizeof error), JSONL_RECORD,
                         "size %zu: %s", size, error);
        if (over) {
            cr_assert_eq(jsonl_next(reader, &record, error, sizeof error), JSONL_TRUNCATED,
                         "size %zu", size);
            cr_expect_not_null(strstr(error, "the last line stops after"), "%s", error);
        }
        cr_assert_eq(jsonl_next(reader, &record, error, sizeof error), JSONL_END, "size %zu", size);
        jsonl_close(reader);
    }
}

Test(json_lines, nesting_zero_bytes_and_flipped_bits_do_no_harm)
{
    enum { DEPTH = 100000 };
    struct jsonl_record record;
    char error[300] = "";
    char *deep = malloc(DEPTH + 1);
    cr_assert_not_null(deep);
    memset(deep, '[', DEPTH);
    deep[DEPTH] = '\n';
    struct jsonl_reader *reader = open_text(deep, DEPTH + 1);
    cr_expect_eq(jsonl_next(reader, &record, error, sizeof error), JSONL_BAD_LINE);
    jsonl_close(reader);
    free(deep);
    reader = open_text("{}\0\n", 4);
    cr_expect_eq(jsonl_next(reader, &record, error, sizeof error), JSONL_BAD_LINE);
    cr_expect_not_null(strstr(error, "zero byte"), "%s", error);
    jsonl_close(reader);

    uint64_t state = 12345;
    unsigned counts[JSONL_IO + 1] = {0};
    for (unsigned round = 0; round < 5000; round++) {
        char text[] = GOOD "\n" GOOD "\n";
        for (unsigned i = 0; i < 3; i++)
            text[test_random(&state) % (sizeof text - 1)] ^= (char)(1u << test_random(&state) % 8);
        reader = open_text(text, sizeof text - 1);
        enum jsonl_status status;
        do {
            error[0] = '\0';
            status = jsonl_next(reader, &record, error, sizeof error);
            if (status == JSONL_RECORD)
                cr_assert_lt(strlen(record.case_text), sizeof text);
            else if (status != JSONL_END)
                cr_assert_neq(error[0], '\0');
            counts[status]++;
        } while (status != JSONL_END);
        jsonl_close(reader);
    }
    cr_expect(counts[JSONL_RECORD] > 0 && counts[JSONL_BAD_LINE] > 0 &&
              counts[JSONL_TRUNCATED] > 0);
    cr_expect_eq(counts[JSONL_IO], 0);
}

Test(json_lines, files_that_cannot_be_read_are_reported)
{
    struct jsonl_reader *reader = (struct jsonl_reader *)&dir;
    struct jsonl_record record;
    char error[300] = "";
    cr_expect_not(jsonl_open(test_file_at(&dir, "missing"), &reader, error, sizeof error));
    cr_expect_null(reader);
    cr_expect_not_null(strstr(error, "missing: cannot be opened: No such file"), "%s", error);
    cr_assert(jsonl_open(dir.path, &reader, error, sizeof error));
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(jsonl_next(reader, &record, error, sizeof error), JSONL_IO);
        cr_expect_not_null(strstr(error, "cannot be read: "), "%s", error);
    }
    jsonl_close(reader);
    jsonl_close(NULL);
}

/* ---- writer ---- */

static struct jsonl_record sample(double ratio, const cJSON *fields)
{
    return (struct jsonl_record){.op = "qsa_score",
                                 .backend = "cuda",
                                 .verdict = "fail",
                                 .check = "contract out",
                                 .case_text = "qsa_score:n=1,odd=\"\\\n\x01",
                                 .ratio = ratio,
                                 .seconds = 0.1,
                                 .fields = fields};
}

Test(json_lines, what_is_written_is_read_back)
{
    static const double ratios[] = {0.0,      0.1, 1.0 / 3.0, 5e-324, 1.7976931348623157e308,
                                    INFINITY, NAN};
    enum { N = sizeof ratios / sizeof *ratios };
    char error[300] = "";
    cJSON *fields = cJSON_CreateObject();
    cJSON_AddNumberToObject(fields, "identical", 12);
    cJSON_AddStringToObject(cJSON_AddArrayToObject(fields, "worst"), "", "seq 2, head 5");
    FILE *stream = fopen(test_file_at(&dir, "results"), "wb");
    cr_assert_not_null(stream);
    for (int i = 0; i < N; i++) {
        struct jsonl_record record = sample(ratios[i], i % 2 ? fields : NULL);
        cr_assert(jsonl_write(stream, &record, error, sizeof error), "%s", error);
    }
    fclose(stream);
    struct jsonl_reader *reader;
    cr_assert(jsonl_open(dir.file, &reader, error, sizeof error));
    for (int i = 0; i < N; i++) {
        struct jsonl_record record, want = sample(ratios[i], NULL);
        cr_assert_eq(jsonl_next(reader, &record, error, sizeof error), JSONL_RECORD, "%s", error);
        cr_expect(record.ratio == ratios[i] || (isnan(ratios[i]) && isnan(record.ratio)));
        cr_expect_eq(record.seconds, 0.1);
        cr_expect_str_eq(record.case_text, want.case_text);
        cr_expect_str_eq(record.op, want.op);
        cr_expect_str_eq(record.backend, want.backend);
        cr_expect_str_eq(record.verdict, want.verdict);
        cr_expect_str_eq(record.check, want.check);
        const cJSON *worst = cJSON_GetObjectItemCaseSensitive(record.fields, "worst");
        cr_expect_eq(worst != NULL, i % 2);
        if (worst) cr_expect_str_eq(worst->child->valuestring, "seq 2, head 5");
    }
    struct jsonl_record record;
    cr_expect_eq(jsonl_next(reader, &record, error, sizeof error), JSONL_END);
    jsonl_close(reader);
    cJSON_Delete(fields);
}

static void expect_unwritten(struct jsonl_record record, const char *reason)
{
    char error[300] = "";
    FILE *stream = fopen(test_file_at(&dir, "none"), "wb");
    cr_assert_not_null(stream);
    cr_expect_not(jsonl_write(stream, &record, error, sizeof error), "%s", reason);
    cr_expect_not_null(strstr(error, reason), "got: %s\nwanted: %s", error, reason);
    cr_expect_eq(ftell(stream), 0);
    fclose(stream);
}

Test(json_lines, writer_refuses_what_the_reader_would)
{
    struct jsonl_record record = sample(1.0, NULL);
    strcpy(record.verdict, "maybe");
    expect_unwritten(record, "verdict \"maybe\" is none of");
    record = sample(-1.0, NULL);
    expect_unwritten(record, "ratio -1 is below 0");
    record = sample(-INFINITY, NULL);
    expect_unwritten(record, "ratio -inf is below 0");
    record = sample(1.0, NULL);
    record.seconds = NAN;
    expect_unwritten(record, "seconds nan is no number");
    record.seconds = INFINITY;
    expect_unwritten(record, "seconds inf is no number");
    cJSON *fields = cJSON_CreateObject();
    cJSON_AddNumberToObject(fields, "ratio", 1);
    expect_unwritten(sample(1.0, fields), "key ratio is given twice");
    cJSON_Delete(fields);
    char *text = long_line(JSONL_MAX_LINE);
    record = sample(1.0, NULL);
    record.case_text = text;
    expect_unwritten(record, "more than 1048576");
    free(text);
}

Test(json_lines, a_full_disk_is_an_error)
{
    char error[300] = "";
    FILE *stream = fopen("/dev/full", "wb");
    if (!stream) cr_skip_test("no /dev/full here");
    struct jsonl_record record = sample(1.0, NULL);
    cr_expect_not(jsonl_write(stream, &record, error, sizeof error));
    cr_expect_not_null(strstr(error, "No space left"), "%s", error);
    fclose(stream);
}
