#include "harness/fuzz/state.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/case/op.h"

static const char magic[] = "attest-fuzz 1";

bool fuzz_state_open(struct fuzz_state *s, const char *backend, uint64_t seed)
{
    *s = (struct fuzz_state){.seed = seed};
    snprintf(s->backend, sizeof s->backend, "%s", backend);
    s->seen = calloc(1u << GEOMETRY_CLASS_BITS, 1);
    return s->seen != NULL;
}

void fuzz_state_free(struct fuzz_state *s)
{
    for (uint32_t i = 0; i < s->n_kept; i++) free(s->kept[i]);
    for (uint32_t i = 0; i < s->n_found; i++) free(s->found[i]);
    free(s->kept);
    free(s->found);
    free(s->seen);
    *s = (struct fuzz_state){.seed = 0};
}

static bool append(char ***lines, uint32_t *n, uint32_t *room, const char *text)
{
    if (*n == *room) {
        uint32_t more = *room ? 2 * *room : 256;
        char **grown = realloc(*lines, more * sizeof *grown);
        if (!grown) return false;
        *lines = grown;
        *room = more;
    }
    (*lines)[*n] = strdup(text);
    return (*lines)[*n] && ++*n;
}

bool fuzz_state_note(struct fuzz_state *s, const struct case_line *c)
{
    static _Thread_local uint32_t classes[GEOMETRY_CLASSES_MAX];
    char text[CASE_TEXT_MAX];
    uint32_t n = geometry_classes(c, classes), fresh = 0;
    for (uint32_t i = 0; i < n; i++) {
        fresh += !s->seen[classes[i]];
        s->seen[classes[i]] = 1;
    }
    s->classes += fresh;
    if (!fresh) return true;
    case_print(c, text, sizeof text);
    return append(&s->kept, &s->n_kept, &s->room_kept, text);
}

bool fuzz_state_find(struct fuzz_state *s, const struct op *op, const char *check, bool *known)
{
    char key[160];
    snprintf(key, sizeof key, "%s %s", op->name, check);
    *known = false;
    for (uint32_t i = 0; i < s->n_found; i++) *known |= !strcmp(s->found[i], key);
    return *known || append(&s->found, &s->n_found, &s->room_found, key);
}

static void print(const struct fuzz_state *s, FILE *f)
{
    fprintf(f, "%s\nbackend %s\nseed %" PRIu64 "\nround %" PRIu64 "\ncases %" PRIu64 "\n", magic,
            s->backend, s->seed, s->round, s->cases);
    fprintf(f, "refused %" PRIu64 "\nempty %" PRIu64 "\nseconds %.3f\n", s->refused, s->empty,
            s->seconds);
    for (uint32_t i = 0; i < s->n_found; i++) fprintf(f, "found %s\n", s->found[i]);
    for (uint32_t i = 0; i < s->n_kept; i++) fprintf(f, "case %s\n", s->kept[i]);
}

bool fuzz_state_save(const struct fuzz_state *s, const char *path, char *error, uint32_t size)
{
    char temporary[PATH_MAX];
    if ((size_t)snprintf(temporary, sizeof temporary, "%s.%d.part", path, (int)getpid()) >=
        sizeof temporary) {
        snprintf(error, size, "%s: the path is too long", path);
        return false;
    }
    FILE *f = fopen(temporary, "we");
    bool fine = f != NULL;
    if (f) {
        print(s, f);
        fine = !ferror(f) && !fflush(f) && !fsync(fileno(f));
        fine &= !fclose(f);
    }
    fine = fine && !rename(temporary, path);
    if (fine) return true;
    snprintf(error, size, "%s: cannot be written: %s", path, strerror(errno));
    unlink(temporary);
    return false;
}

static bool read_count(const char *text, uint64_t *value)
{
    char *end;
    errno = 0;
    *value = strtoull(text, &end, 10);
    return !errno && end != text && !*end && *text != '-';
}

/* One line after the first; the reason in `error` if it is wrong. */
static bool read_line(struct fuzz_state *s, char *line, char *error, uint32_t size)
{
    static _Thread_local struct case_line c;
    char *value = strchr(line, ' '), *end;
    struct {
        const char *key;
        uint64_t *count;
    } counts[] = {{"seed", &s->seed},       {"round", &s->round}, {"cases", &s->cases},
                  {"refused", &s->refused}, {"empty", &s->empty}};
    snprintf(error, size, "'%.40s' is no line of a fuzz state", line);
    if (!value) return false;
    *value++ = 0;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        if (!strcmp(line, counts[i].key)) return read_count(value, counts[i].count);
    }
    if (!strcmp(line, "backend"))
        return (size_t)snprintf(s->backend, sizeof s->backend, "%s", value) < sizeof s->backend;
    if (!strcmp(line, "seconds")) {
        s->seconds = strtod(value, &end);
        return end != value && !*end && s->seconds >= 0 && s->seconds < 1e12;
    }
    if (!strcmp(line, "found")) return append(&s->found, &s->n_found, &s->room_found, value);
    if (strcmp(line, "case")) return false;
    return case_parse(value, &c, error, size) && fuzz_state_note(s, &c);
}

bool fuzz_state_load(struct fuzz_state *s, const char *path, char *error, uint32_t size)
{
    FILE *f = fopen(path, "re");
    char *line = NULL, reason[512] = "it is no fuzz state";
    size_t room = 0;
    ssize_t n;
    uint32_t number = 0;
    if (!f) {
        snprintf(error, size, "%s: %s", path, strerror(errno));
        return false;
    }
    bool fine = true, ended = false;
    while (fine && (n = getline(&line, &room, f)) >= 0) {
        ended = n > 0 && line[n - 1] == '\n';
        line[strcspn(line, "\n")] = 0;
        fine = number++ ? read_line(s, line, reason, sizeof reason) : !strcmp(line, magic);
    }
    if (fine && (!ended || ferror(f))) {
        fine = false;
        snprintf(reason, sizeof reason, "the file stops in the middle of a line");
    }
    if (!fine) snprintf(error, size, "%s:%u: %s", path, number, reason);
    free(line);
    fclose(f);
    return fine;
}
