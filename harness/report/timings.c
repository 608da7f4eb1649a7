#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/error_text.h"
#include "harness/report/report.h"

static bool read_text(const cJSON *object, const char *key, bool needed, char *text, size_t size)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    text[0] = 0;
    if (!item) return !needed;
    if (!cJSON_IsString(item) || strlen(item->valuestring) >= size) return false;
    memcpy(text, item->valuestring, strlen(item->valuestring) + 1);
    return true;
}

static bool read_time(const cJSON *object, const char *key, bool needed, double *value)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    *value = 0;
    if (!item) return !needed;
    *value = item->valuedouble;
    return cJSON_IsNumber(item) && *value >= 0 && isfinite(*value);
}

/* What is wrong with the line; NULL if nothing is. */
static const char *add_line(struct report *r, const cJSON *object)
{
    const cJSON *text = cJSON_GetObjectItemCaseSensitive(object, "case");
    if (!cJSON_IsObject(object)) return "this is no JSON object, or not all of one";
    if (!cJSON_IsString(text)) return "case is no text";
    struct report_timing *grown = report_grow(r->timings, r->n_timings, sizeof *grown);
    if (!grown) return "out of memory";
    r->timings = grown;
    struct report_timing *t = &grown[r->n_timings++];
    t->case_text = strdup(text->valuestring);
    if (!t->case_text) return "out of memory";
    if (!read_text(object, "op", true, t->op, sizeof t->op)) return "op is no short text";
    if (!read_text(object, "backend", true, t->backend, sizeof t->backend))
        return "backend is no short text";
    if (!read_text(object, "device", false, t->device, sizeof t->device))
        return "device is no short text";
    bool fine = read_time(object, "median_us", true, &t->median_us) &&
                read_time(object, "least_us", true, &t->least_us) &&
                read_time(object, "most_us", true, &t->most_us) &&
                read_time(object, "limit_us", false, &t->limit_us);
    return fine ? NULL : "median_us, least_us, most_us or limit_us is no time";
}

bool report_read_timings(struct report *r, const char *path, char *error, size_t size)
{
    FILE *f = fopen(path, "re");
    char *line = NULL;
    const char *wrong = NULL;
    size_t room = 0;
    uint64_t number = 0;
    ssize_t n;
    if (!f) return error_text(error, size, "%s: cannot be opened: %s", path, strerror(errno));
    while (!wrong && (n = getline(&line, &room, f)) >= 0) {
        number++;
        cJSON *object = cJSON_ParseWithLength(line, (size_t)n);
        wrong = add_line(r, object);
        cJSON_Delete(object);
    }
    if (!wrong && ferror(f)) wrong = strerror(errno);
    if (!wrong && !number) wrong = "no time";
    free(line);
    fclose(f);
    return !wrong || error_text(error, size, "%s:%" PRIu64 ": %s", path, number, wrong);
}
