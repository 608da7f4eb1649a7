#include "harness/files/json_lines.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/error_text.h"

struct jsonl_reader {
    char *path;
    FILE *stream;
    char *line; /* JSONL_MAX_LINE + 1 bytes and a terminator */
    cJSON *object;
    uint64_t line_number;
    bool failed;
};

enum key { KEY_CASE, KEY_OP, KEY_BACKEND, KEY_VERDICT, KEY_CHECK, KEY_RATIO, KEY_SECONDS, KEYS };

static const char *const key_names[KEYS] = {"case",  "op",    "backend", "verdict",
                                            "check", "ratio", "seconds"};

static int find_key(const char *name)
{
    int k = 0;
    while (k < KEYS && strcmp(name, key_names[k]) != 0) k++;
    return k;
}

static bool verdict_is_known(const char *verdict)
{
    static const char *const verdicts[] = {"pass", "fail", "refused", "error"};
    for (size_t i = 0; i < sizeof verdicts / sizeof *verdicts; i++)
        if (strcmp(verdict, verdicts[i]) == 0) return true;
    return false;
}

bool jsonl_open(const char *path, struct jsonl_reader **out, char *error, size_t error_size)
{
    *out = NULL;
    struct jsonl_reader *reader = calloc(1, sizeof *reader);
    if (reader) {
        reader->path = strdup(path);
        reader->line = malloc((size_t)JSONL_MAX_LINE + 2);
    }
    if (!reader || !reader->path || !reader->line) {
        jsonl_close(reader);
        return error_text(error, error_size, "%s: out of memory", path);
    }
    reader->stream = strcmp(path, "-") == 0 ? stdin : fopen(path, "rbe");
    if (!reader->stream) {
        error_text(error, error_size, "%s: cannot be opened: %s", path, strerror(errno));
        jsonl_close(reader);
        return false;
    }
    *out = reader;
    return true;
}

void jsonl_close(struct jsonl_reader *reader)
{
    if (!reader) return;
    if (reader->stream && reader->stream != stdin) fclose(reader->stream);
    cJSON_Delete(reader->object);
    free(reader->line);
    free(reader->path);
    free(reader);
}

/* Where a line's failure is written. */
struct report {
    const struct jsonl_reader *reader;
    char *error;
    size_t size;
};

#define FAIL(report, format, ...)                                                                  \
    error_text((report)->error, (report)->size, "%s:%" PRIu64 ": " format, (report)->reader->path, \
               (report)->reader->line_number, ##__VA_ARGS__)

/* Reads up to the newline and says how many bytes the line has, of which at most JSONL_MAX_LINE + 1
 * are kept. */
static uint64_t read_line(struct jsonl_reader *reader, bool *newline)
{
    uint64_t length = 0;
    int c;
    while ((c = getc_unlocked(reader->stream)) != EOF && c != '\n') {
        if (length <= JSONL_MAX_LINE) reader->line[length] = (char)c;
        length++;
    }
    reader->line[length <= JSONL_MAX_LINE ? length : JSONL_MAX_LINE + 1] = '\0';
    *newline = c == '\n';
    return length;
}

static bool read_text(const cJSON *item, enum key key, char *text, size_t size,
                      const struct report *report)
{
    if (!cJSON_IsString(item)) return FAIL(report, "%s is no text", key_names[key]);
    size_t length = strlen(item->valuestring);
    if (length >= size)
        return FAIL(report, "%s has %zu bytes, more than %zu", key_names[key], length, size - 1);
    memcpy(text, item->valuestring, length + 1);
    return true;
}

static bool is_measure(const cJSON *item)
{
    return cJSON_IsNumber(item) && item->valuedouble >= 0.0 && isfinite(item->valuedouble);
}

static bool read_numbers(cJSON *const found[KEYS], struct jsonl_record *record,
                         const struct report *report)
{
    const cJSON *ratio = found[KEY_RATIO], *seconds = found[KEY_SECONDS];
    if (cJSON_IsNull(ratio))
        record->ratio = NAN;
    else if (cJSON_IsString(ratio) && strcmp(ratio->valuestring, "inf") == 0)
        record->ratio = INFINITY;
    else if (is_measure(ratio))
        record->ratio = ratio->valuedouble;
    else
        return FAIL(report, "ratio is neither a number >= 0 nor \"inf\" nor null");
    if (!is_measure(seconds)) return FAIL(report, "seconds is no number >= 0");
    record->seconds = seconds->valuedouble;
    return true;
}

static bool read_record(cJSON *object, struct jsonl_record *record, const struct report *report)
{
    cJSON *found[KEYS] = {NULL}, *member;
    if (!cJSON_IsObject(object)) return FAIL(report, "line is no JSON object");
    cJSON_ArrayForEach(member, object)
    {
        int k = find_key(member->string);
        if (k == KEYS) continue;
        if (found[k]) return FAIL(report, "two keys %s", key_names[k]);
        found[k] = member;
    }
    for (int k = 0; k < KEYS; k++)
        if (!found[k]) return FAIL(report, "key %s is missing", key_names[k]);
    if (!cJSON_IsString(found[KEY_CASE])) return FAIL(report, "case is no text");
    *record = (struct jsonl_record){.case_text = found[KEY_CASE]->valuestring,
                                    .fields = object,
                                    .line = report->reader->line_number};
    if (!read_text(found[KEY_OP], KEY_OP, record->op, sizeof record->op, report) ||
        !read_text(found[KEY_BACKEND], KEY_BACKEND, record->backend, sizeof record->backend,
                   report) ||
        !read_text(found[KEY_VERDICT], KEY_VERDICT, record->verdict, sizeof record->verdict,
                   report) ||
        !read_text(found[KEY_CHECK], KEY_CHECK, record->check, sizeof record->check, report) ||
        !read_numbers(found, record, report))
        return false;
    return verdict_is_known(record->verdict) ||
           FAIL(report, "verdict \"%s\" is none of pass, fail, refused, error", record->verdict);
}

static bool parse_line(struct jsonl_reader *reader, uint64_t length, const struct report *report)
{
    if (length > JSONL_MAX_LINE)
        return FAIL(report, "line has %" PRIu64 " bytes, more than %u", length, JSONL_MAX_LINE);
    if (memchr(reader->line, 0, length)) return FAIL(report, "line holds a zero byte");
    if (strstr(reader->line, "\\u0000"))
        return FAIL(report, "line holds an escaped zero character, which would cut a text short");
    const char *end = reader->line;
    reader->object = cJSON_ParseWithLengthOpts(reader->line, length + 1, &end, true);
    return reader->object || FAIL(report, "line is not JSON: stopped at its byte %td of %" PRIu64,
                                  end - reader->line, length);
}

enum jsonl_status jsonl_next(struct jsonl_reader *reader, struct jsonl_record *record, char *error,
                             size_t error_size)
{
    struct report report = {reader, error, error_size};
    cJSON_Delete(reader->object);
    reader->object = NULL;
    bool newline = false;
    uint64_t length = 0;
    reader->line_number++;
    if (!reader->failed) {
        errno = 0;
        length = read_line(reader, &newline);
        reader->failed = ferror(reader->stream) != 0;
    }
    if (reader->failed) {
        FAIL(&report, "cannot be read: %s", strerror(errno ? errno : EIO));
        return JSONL_IO;
    }
    if (!newline && length == 0) return JSONL_END;
    if (!parse_line(reader, length, &report)) {
        if (newline) return JSONL_BAD_LINE;
        FAIL(&report, "the last line stops after %" PRIu64 " bytes, before its end", length);
        return JSONL_TRUNCATED;
    }
    return read_record(reader->object, record, &report) ? JSONL_RECORD : JSONL_BAD_LINE;
}

/* cJSON prints 15 digits where it finds them close enough; these digits give the same double. */
static bool add_number(cJSON *object, const char *key, double number)
{
    char text[32];
    snprintf(text, sizeof text, "%.17g", number);
    return cJSON_AddRawToObject(object, key, text) != NULL;
}

static bool add_ratio(cJSON *object, double ratio)
{
    const char *key = key_names[KEY_RATIO];
    if (isnan(ratio)) return cJSON_AddNullToObject(object, key) != NULL;
    if (isinf(ratio)) return cJSON_AddStringToObject(object, key, "inf") != NULL;
    return add_number(object, key, ratio);
}

static cJSON *build(const struct jsonl_record *record)
{
    cJSON *object = cJSON_CreateObject();
    bool ok = object && cJSON_AddStringToObject(object, key_names[KEY_CASE], record->case_text) &&
              cJSON_AddStringToObject(object, key_names[KEY_OP], record->op) &&
              cJSON_AddStringToObject(object, key_names[KEY_BACKEND], record->backend) &&
              cJSON_AddStringToObject(object, key_names[KEY_VERDICT], record->verdict) &&
              cJSON_AddStringToObject(object, key_names[KEY_CHECK], record->check) &&
              add_ratio(object, record->ratio) &&
              add_number(object, key_names[KEY_SECONDS], record->seconds);
    cJSON *member;
    cJSON_ArrayForEach(member, record->fields)
    {
        ok = ok && cJSON_AddItemReferenceToObject(object, member->string, member);
    }
    if (ok) return object;
    cJSON_Delete(object);
    return NULL;
}

static bool check_record(const struct jsonl_record *record, char *error, size_t error_size)
{
    if (!verdict_is_known(record->verdict))
        return error_text(error, error_size, "verdict \"%s\" is none of pass, fail, refused, error",
                          record->verdict);
    if (!(record->seconds >= 0.0) || isinf(record->seconds))
        return error_text(error, error_size, "seconds %g is no number >= 0", record->seconds);
    if (record->ratio < 0.0)
        return error_text(error, error_size, "ratio %g is below 0", record->ratio);
    const cJSON *member;
    cJSON_ArrayForEach(member, record->fields)
    {
        if (find_key(member->string) != KEYS)
            return error_text(error, error_size, "key %s is given twice", member->string);
    }
    return true;
}

bool jsonl_write(FILE *stream, const struct jsonl_record *record, char *error, size_t error_size)
{
    if (!check_record(record, error, error_size)) return false;
    cJSON *object = build(record);
    char *text = object ? cJSON_PrintUnformatted(object) : NULL;
    cJSON_Delete(object);
    if (!text) return error_text(error, error_size, "out of memory for a result line");
    size_t length = strlen(text);
    bool ok = true;
    if (length > JSONL_MAX_LINE) {
        ok = error_text(error, error_size, "result line has %zu bytes, more than %u", length,
                        JSONL_MAX_LINE);
    } else {
        text[length] = '\n'; /* in the terminator's place */
        if (fwrite(text, 1, length + 1, stream) != length + 1 || fflush(stream) != 0)
            ok =
                error_text(error, error_size, "result line cannot be written: %s", strerror(errno));
    }
    cJSON_free(text);
    return ok;
}
