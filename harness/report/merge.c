#include "harness/report/merge.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/error_text.h"
#include "harness/files/json_lines.h"

struct merged_line {
    char *key;  /* operation, case, backend, kernel */
    char *text; /* the line, without what may differ between repeats of it */
    char *line; /* as it stood */
    const char *path;
    uint64_t number;
};
struct merge {
    struct merged_line *lines;
    size_t count, room;
    char seed[32], tier[32]; /* of the first line that has them */
    bool any;
};

static const char *text_of(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsString(item) ? item->valuestring : "";
}

/* Only shards of one run make one run. */
static bool same_run(struct merge *m, const char *path, const struct jsonl_record *record,
                     char *error, size_t size)
{
    const char *seed = text_of(record->fields, "seed"), *tier = text_of(record->fields, "tier");
    if (!*seed && !*tier) return true; /* broken kernels name no run */
    if (!m->any) {
        snprintf(m->seed, sizeof m->seed, "%s", seed);
        snprintf(m->tier, sizeof m->tier, "%s", tier);
        m->any = true;
    }
    if (!strcmp(m->seed, seed) && !strcmp(m->tier, tier)) return true;
    return error_text(error, size,
                      "%s:%" PRIu64 ": seed %.31s, tier %.31s, but the lines before have seed %s, "
                      "tier %s: these are no shards of one run",
                      path, record->line, seed, tier, m->seed, m->tier);
}

/* Times and dates may differ between two runs of a case; what was found may not. */
static bool make_texts(const struct jsonl_record *record, struct merged_line *l)
{
    static const char *const loose[] = {"seconds", "kernel_seconds", "date"};
    cJSON *copy = cJSON_Duplicate(record->fields, true);
    if (!copy) return false;
    l->line = cJSON_PrintUnformatted(copy);
    for (size_t i = 0; i < sizeof loose / sizeof *loose; i++)
        cJSON_DeleteItemFromObjectCaseSensitive(copy, loose[i]);
    l->text = cJSON_PrintUnformatted(copy);
    cJSON_Delete(copy);
    return l->line && l->text &&
           asprintf(&l->key, "%s\n%s\n%s\n%s", record->op, record->case_text, record->backend,
                    text_of(record->fields, "kernel")) > 0;
}

static bool keep_line(struct merge *m, const char *path, const struct jsonl_record *record,
                      char *error, size_t size)
{
    if (!same_run(m, path, record, error, size)) return false;
    if (m->count == m->room) {
        size_t room = m->room ? 2 * m->room : 1024;
        struct merged_line *grown = realloc(m->lines, room * sizeof *grown);
        if (!grown) return error_text(error, size, "out of memory");
        m->lines = grown;
        m->room = room;
    }
    struct merged_line *l = &m->lines[m->count++];
    *l = (struct merged_line){.path = path, .number = record->line};
    return make_texts(record, l) || error_text(error, size, "out of memory");
}

static bool read_all(struct merge *m, const char *path, char *error, size_t size)
{
    struct jsonl_reader *reader;
    struct jsonl_record record;
    enum jsonl_status status;
    if (!jsonl_open(path, &reader, error, size)) return false;
    while ((status = jsonl_next(reader, &record, error, size)) == JSONL_RECORD) {
        if (!keep_line(m, path, &record, error, size)) break;
    }
    jsonl_close(reader);
    return status == JSONL_END;
}

static int by_key(const void *a, const void *b)
{
    const struct merged_line *x = a, *y = b;
    int order = strcmp(x->key, y->key);
    return order ? order : strcmp(x->line, y->line);
}

static bool join(const struct merge *m, struct merge_result *r, char *error, size_t size)
{
    FILE *f = open_memstream(&r->text, &r->size);
    const struct merged_line *last = NULL;
    if (!f) return error_text(error, size, "out of memory");
    for (size_t i = 0; i < m->count; i++) {
        const struct merged_line *l = &m->lines[i];
        if (last && !strcmp(last->key, l->key)) {
            if (!strcmp(last->text, l->text)) {
                r->repeated++;
                continue;
            }
            fclose(f);
            return error_text(error, size,
                              "%s:%" PRIu64 ": this case has another result at %s:%" PRIu64,
                              l->path, l->number, last->path, last->number);
        }
        fprintf(f, "%s\n", l->line);
        r->lines++;
        last = l;
    }
    return fclose(f) == 0 || error_text(error, size, "out of memory");
}

bool report_merge(const char *const *paths, size_t count, struct merge_result *r, char *error,
                  size_t size)
{
    struct merge m = {0};
    bool fine = true;
    memset(r, 0, sizeof *r);
    for (size_t i = 0; i < count && fine; i++) fine = read_all(&m, paths[i], error, size);
    if (fine && m.count) qsort(m.lines, m.count, sizeof *m.lines, by_key);
    fine = fine && join(&m, r, error, size);
    for (size_t i = 0; i < m.count; i++) {
        free(m.lines[i].key);
        cJSON_free(m.lines[i].text);
        cJSON_free(m.lines[i].line);
    }
    free(m.lines);
    if (fine) return true;
    free(r->text);
    memset(r, 0, sizeof *r);
    return false;
}
