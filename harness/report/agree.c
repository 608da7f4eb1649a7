#include "harness/report/agree.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/error_text.h"
#include "harness/files/json_lines.h"

static bool read_digest(const char *path, const struct jsonl_record *record, uint64_t *digest,
                        char *error, size_t size)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(record->fields, "digest");
    char *end;
    if (cJSON_IsString(item) && strlen(item->valuestring) == 16 &&
        strspn(item->valuestring, "0123456789abcdef") == 16) {
        *digest = strtoull(item->valuestring, &end, 16);
        return true;
    }
    return error_text(error, size, "%s:%" PRIu64 ": digest is not 16 hexadecimal digits", path,
                      record->line);
}

static bool keep_case(struct agree_run *run, size_t *room, const struct jsonl_record *record,
                      char *error, size_t size)
{
    uint64_t digest;
    /* A refusal sweep runs no kernel; a broken kernel's bits are nobody's claim. */
    if (cJSON_GetObjectItemCaseSensitive(record->fields, "geometries") ||
        cJSON_GetObjectItemCaseSensitive(record->fields, "kernel"))
        return true;
    if (!read_digest(run->path, record, &digest, error, size)) return false;
    if (run->count == *room) {
        *room = *room ? 2 * *room : 1024;
        struct agree_case *grown = realloc(run->cases, *room * sizeof *grown);
        if (!grown) return error_text(error, size, "%s: out of memory", run->path);
        run->cases = grown;
    }
    struct agree_case *c = &run->cases[run->count];
    *c = (struct agree_case){.digest = digest, .line = record->line};
    memcpy(c->op, record->op, sizeof c->op);
    memcpy(c->verdict, record->verdict, sizeof c->verdict);
    c->text = strdup(record->case_text);
    if (!c->text) return error_text(error, size, "%s: out of memory", run->path);
    if (!run->count) memcpy(run->backend, record->backend, sizeof run->backend);
    if (strcmp(run->backend, record->backend)) snprintf(run->backend, sizeof run->backend, "mixed");
    run->count++;
    return true;
}

static int by_op_and_text(const void *a, const void *b)
{
    const struct agree_case *x = a, *y = b;
    int order = strcmp(x->op, y->op);
    if (!order) order = strcmp(x->text, y->text);
    return order ? order : (x->line > y->line) - (x->line < y->line);
}

static int same_key(const struct agree_case *a, const struct agree_case *b)
{
    int order = strcmp(a->op, b->op);
    return order ? order : strcmp(a->text, b->text);
}

static void merge_repeated(struct agree_run *run)
{
    size_t kept = 0;
    qsort(run->cases, run->count, sizeof *run->cases, by_op_and_text);
    for (size_t i = 0; i < run->count; i++) {
        struct agree_case *c = &run->cases[i], *last = kept ? &run->cases[kept - 1] : NULL;
        if (last && !same_key(last, c)) {
            last->unsteady |= last->digest != c->digest || strcmp(last->verdict, c->verdict) != 0;
            free(c->text);
        } else {
            run->cases[kept++] = *c;
        }
    }
    run->count = kept;
}

bool agree_read(const char *path, struct agree_run *run, char *error, size_t size)
{
    struct jsonl_reader *reader;
    struct jsonl_record record;
    enum jsonl_status status;
    size_t room = 0;
    memset(run, 0, sizeof *run);
    run->path = path;
    if (!jsonl_open(path, &reader, error, size)) return false;
    while ((status = jsonl_next(reader, &record, error, size)) == JSONL_RECORD) {
        if (!keep_case(run, &room, &record, error, size)) break;
    }
    jsonl_close(reader);
    if (status != JSONL_END) {
        agree_run_free(run);
        return false;
    }
    if (run->count) merge_repeated(run);
    return true;
}

void agree_run_free(struct agree_run *run)
{
    for (size_t i = 0; i < run->count; i++) free(run->cases[i].text);
    free(run->cases);
    run->cases = NULL;
    run->count = 0;
}

static struct agree_op *op_entry(struct agree_result *r, const char *op)
{
    /* Both runs are walked in the order of operations, so the entry is the last one or a new one.
     */
    if (r->n_ops && !strcmp(r->ops[r->n_ops - 1].op, op)) return &r->ops[r->n_ops - 1];
    struct agree_op *grown = realloc(r->ops, (r->n_ops + 1) * sizeof *grown);
    if (!grown) return NULL;
    r->ops = grown;
    memset(&r->ops[r->n_ops], 0, sizeof *r->ops);
    snprintf(r->ops[r->n_ops].op, sizeof r->ops->op, "%s", op);
    return &r->ops[r->n_ops++];
}

static bool add_difference(struct agree_result *r, const struct agree_case *a,
                           const struct agree_case *b)
{
    if (!(r->n_differences & (r->n_differences + 1))) { /* 0, 1, 3, 7, …: full */
        struct agree_difference *grown =
            realloc(r->differences, (2 * r->n_differences + 1) * sizeof *grown);
        if (!grown) return false;
        r->differences = grown;
    }
    r->differences[r->n_differences++] = (struct agree_difference){a, b};
    return true;
}

static bool judge_pair(struct agree_result *r, struct agree_op *o, const struct agree_case *a,
                       const struct agree_case *b)
{
    bool steady = !a->unsteady && !b->unsteady, same = !strcmp(a->verdict, b->verdict);
    if (steady && same && !strcmp(a->verdict, "refused")) {
        o->refused++;
        return true;
    }
    if (steady && same && !strcmp(a->verdict, "pass") && a->digest == b->digest) {
        o->equal++;
        return true;
    }
    o->different++;
    return add_difference(r, a, b);
}

bool agree_compare(const struct agree_run *first, const struct agree_run *second,
                   struct agree_result *r)
{
    size_t i = 0, k = 0;
    memset(r, 0, sizeof *r);
    while (i < first->count || k < second->count) {
        const struct agree_case *a = i < first->count ? &first->cases[i] : NULL;
        const struct agree_case *b = k < second->count ? &second->cases[k] : NULL;
        int order = !a ? 1 : !b ? -1 : same_key(a, b);
        struct agree_op *o = op_entry(r, order <= 0 ? a->op : b->op);
        if (!o || (order == 0 && !judge_pair(r, o, a, b))) {
            agree_result_free(r);
            return false;
        }
        o->only_first += order < 0;
        o->only_second += order > 0;
        i += order <= 0;
        k += order >= 0;
    }
    for (size_t n = 0; n < r->n_ops; n++) {
        r->total.equal += r->ops[n].equal;
        r->total.refused += r->ops[n].refused;
        r->total.different += r->ops[n].different;
        r->total.only_first += r->ops[n].only_first;
        r->total.only_second += r->ops[n].only_second;
    }
    return true;
}

void agree_result_free(struct agree_result *r)
{
    free(r->ops);
    free(r->differences);
    memset(r, 0, sizeof *r);
}
