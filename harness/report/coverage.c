#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/error_text.h"
#include "harness/report/report.h"

/* lcov's format, of which four kinds of line are read: SF:FILE, DA:LINE,COUNT,
 * BRDA:LINE,BLOCK,BRANCH,COUNT and end_of_record. */
struct tracefile {
    struct report *report;
    const char *path;
    uint64_t number;                   /* of the line, from 1 */
    struct report_file *file;          /* NULL between records */
    uint64_t last, open_from, open_to; /* DA lines; open_from 0: the last one was covered */
    char *error;
    size_t error_size;
};

static bool bad(struct tracefile *t, const char *what)
{
    return error_text(t->error, t->error_size, "%s:%" PRIu64 ": %s", t->path, t->number, what);
}

/* Ends the run of uncovered lines, if there is one. */
static bool close_range(struct tracefile *t)
{
    char range[64], *old = t->file->open_lines;
    if (!t->open_from) return true;
    int n = t->open_from == t->open_to
                ? snprintf(range, sizeof range, "%" PRIu64, t->open_from)
                : snprintf(range, sizeof range, "%" PRIu64 "-%" PRIu64, t->open_from, t->open_to);
    size_t used = strlen(old);
    char *grown = realloc(old, used + (size_t)n + 3);
    if (!grown) return bad(t, "out of memory");
    sprintf(grown + used, "%s%s", used ? ", " : "", range);
    t->file->open_lines = grown;
    t->open_from = 0;
    return true;
}

static bool start_file(struct tracefile *t, const char *name)
{
    struct report *r = t->report;
    if (t->file) return bad(t, "SF inside a record");
    for (size_t i = 0; i < r->n_files; i++) {
        if (!strcmp(r->files[i].name, name)) return bad(t, "this file has a record already");
    }
    struct report_file *grown = report_grow(r->files, r->n_files, sizeof *grown);
    if (!grown) return bad(t, "out of memory");
    r->files = grown;
    t->file = &grown[r->n_files++];
    t->file->name = strdup(name);
    t->file->open_lines = strdup("");
    t->last = t->open_from = 0;
    return t->file->name && t->file->open_lines ? true : bad(t, "out of memory");
}

static bool add_line(struct tracefile *t, const char *text)
{
    uint64_t line, count;
    char rest;
    if (!t->file) return bad(t, "DA outside a record");
    if (sscanf(text, "%" SCNu64 ",%" SCNu64 "%c", &line, &count, &rest) != 2 || *text == '-')
        return bad(t, "DA is not LINE,COUNT");
    if (line <= t->last) return bad(t, "lines are not in ascending order");
    t->last = line;
    t->file->lines++;
    t->file->covered += count > 0;
    if (count) return close_range(t);
    if (!t->open_from) t->open_from = line;
    t->open_to = line;
    return true;
}

/* The count is "-" for a branch whose condition was never reached. */
static bool add_branch(struct tracefile *t, const char *text)
{
    uint64_t line, block, branch, count = 0;
    char rest;
    int used = 0;
    if (!t->file) return bad(t, "BRDA outside a record");
    if (sscanf(text, "%" SCNu64 ",%" SCNu64 ",%" SCNu64 ",%n", &line, &block, &branch, &used) != 3 ||
        !used)
        return bad(t, "BRDA is not LINE,BLOCK,BRANCH,COUNT");
    text += used;
    if (strcmp(text, "-") && (*text == '-' || sscanf(text, "%" SCNu64 "%c", &count, &rest) != 1))
        return bad(t, "the count of a BRDA is neither a number nor -");
    t->file->branches++;
    t->file->taken += count > 0;
    return true;
}

static bool take_line(struct tracefile *t, char *text)
{
    text[strcspn(text, "\r\n")] = 0;
    if (!strncmp(text, "SF:", 3)) return start_file(t, text + 3);
    if (!strncmp(text, "DA:", 3)) return add_line(t, text + 3);
    if (!strncmp(text, "BRDA:", 5)) return add_branch(t, text + 5);
    if (strcmp(text, "end_of_record")) return true;
    if (!t->file) return bad(t, "end_of_record outside a record");
    bool fine = close_range(t);
    t->file = NULL;
    return fine;
}

bool report_read_coverage(struct report *r, const char *path, char *error, size_t size)
{
    struct tracefile t = {.report = r, .path = path, .error = error, .error_size = size};
    FILE *f = fopen(path, "re");
    char *line = NULL;
    size_t room = 0;
    bool fine = true;
    if (!f) return error_text(error, size, "%s: cannot be opened: %s", path, strerror(errno));
    while (fine && getline(&line, &room, f) >= 0) {
        t.number++;
        fine = take_line(&t, line);
    }
    if (fine && ferror(f)) fine = bad(&t, strerror(errno));
    if (fine && t.file) fine = bad(&t, "the file stops inside a record");
    if (fine && !r->n_files) fine = bad(&t, "no record");
    free(line);
    fclose(f);
    return fine;
}
