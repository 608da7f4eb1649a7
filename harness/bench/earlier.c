#include "harness/bench/earlier.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

/* Far above what a run prints: a file that is no such run must not cost the machine's memory. */
enum { LINE_MAX_BYTES = 1 << 20, TIMES_MAX = 100000 };

static bool text_of(const cJSON *line, const char *key, char *text, size_t size)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(line, key);
    text[0] = 0;
    if (!item) return true;
    if (!cJSON_IsString(item) || strlen(item->valuestring) >= size) return false;
    strcpy(text, item->valuestring);
    return true;
}

static double number_of(const cJSON *line, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(line, key);
    return cJSON_IsNumber(item) ? item->valuedouble : NAN;
}

/* What is wrong with the line, or NULL. */
static const char *time_of(const cJSON *line, struct earlier_time *t)
{
    const cJSON *text = cJSON_GetObjectItemCaseSensitive(line, "case");
    if (!cJSON_IsString(text) || !text->valuestring[0]) return "no text in 'case'";
    if (!text_of(line, "backend", t->backend, sizeof t->backend)) return "'backend' is no name";
    if (!text_of(line, "peer", t->peer, sizeof t->peer)) return "'peer' is no name";
    if (!text_of(line, "device", t->device, sizeof t->device)) return "'device' is no name";
    if (!text_of(line, "skipped", t->skipped, sizeof t->skipped)) return "'skipped' is no text";
    if (!t->skipped[0]) {
        t->median_us = number_of(line, "median_us");
        t->least_us = number_of(line, "least_us");
        t->most_us = number_of(line, "most_us");
        if (!(t->least_us > 0 && t->least_us <= t->median_us && t->median_us <= t->most_us &&
              t->most_us < 1e15))
            return "no least_us, median_us and most_us above 0 and in this order";
    }
    t->text = strdup(text->valuestring);
    return t->text ? NULL : "no memory";
}

static bool add(struct earlier *e, const struct earlier_time *t, uint32_t *room)
{
    if (e->count == *room) {
        uint32_t wanted = *room ? 2 * *room : 32;
        struct earlier_time *grown = realloc(e->times, wanted * sizeof *grown);
        if (!grown) return false;
        e->times = grown;
        *room = wanted;
    }
    e->times[e->count++] = *t;
    return true;
}

/* One line without its end. What is wrong with it, or NULL. */
static const char *take_line(const char *text, struct earlier *e, uint32_t *room)
{
    struct earlier_time t;
    cJSON *line = cJSON_ParseWithOpts(text, NULL, true);
    memset(&t, 0, sizeof t);
    const char *wrong = !cJSON_IsObject(line) ? "no JSON object" : NULL;
    bool other = line && !cJSON_HasObjectItem(line, "case") && cJSON_HasObjectItem(line, "checker");
    if (!wrong && !other) wrong = time_of(line, &t);
    cJSON_Delete(line);
    if (wrong || other) return wrong;
    if (e->count < TIMES_MAX && add(e, &t, room)) return NULL;
    free(t.text);
    return e->count == TIMES_MAX ? "too many times" : "no memory";
}

bool earlier_read(FILE *stream, const char *name, struct earlier *e, char *error, size_t size)
{
    char *line = malloc(LINE_MAX_BYTES + 2);
    const char *wrong = line ? NULL : "no memory";
    uint32_t room = 0;
    uint64_t number = 0;
    *e = (struct earlier){NULL, 0};
    while (!wrong && fgets(line, LINE_MAX_BYTES + 2, stream)) {
        size_t length = strcspn(line, "\n");
        number++;
        /* fgets says nothing about a byte 0: the text then ends before the line does. */
        if (line[length] != '\n' && !feof(stream)) wrong = "a byte 0, or more than 1 MiB in a line";
        line[length] = 0;
        if (!wrong && strspn(line, " \t\r") < length) wrong = take_line(line, e, &room);
    }
    if (!wrong && ferror(stream)) {
        snprintf(error, size, "%s: %s", name, strerror(errno));
        free(line);
        return false;
    }
    free(line);
    if (!wrong && !e->count) {
        snprintf(error, size, "%s: there is no time in it", name);
        return false;
    }
    if (wrong) snprintf(error, size, "%s:%llu: %s", name, (unsigned long long)number, wrong);
    return !wrong;
}

void earlier_free(struct earlier *e)
{
    for (uint32_t i = 0; i < e->count; i++) free(e->times[i].text);
    free(e->times);
    *e = (struct earlier){NULL, 0};
}

const struct earlier_time *earlier_find(const struct earlier *e, const char *text,
                                        const char *backend)
{
    for (uint32_t i = e->count; i-- > 0;) {
        const struct earlier_time *t = &e->times[i];
        if (!t->peer[0] && !t->skipped[0] && !strcmp(t->backend, backend) && !strcmp(t->text, text))
            return t;
    }
    return NULL;
}

bool earlier_beyond_spreads(const struct earlier_time *e, double median_us, double least_us,
                            double most_us)
{
    double difference = fabs(median_us - e->median_us);
    return difference > most_us - least_us && difference > e->most_us - e->least_us;
}
