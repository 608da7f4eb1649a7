#include "harness/files/broken.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "harness/base/error_text.h"
#include "harness/case/op.h"

static char *read_file(const char *path, char *error, size_t error_size)
{
    FILE *f = fopen(path, "rb");
    char *text = NULL;
    long size = -1;
    if (f && fseek(f, 0, SEEK_END) == 0) size = ftell(f);
    if (size >= 0 && size < (1 << 24) && fseek(f, 0, SEEK_SET) == 0) text = malloc((size_t)size + 1);
    if (text && fread(text, 1, (size_t)size, f) != (size_t)size) {
        free(text);
        text = NULL;
    }
    if (text) text[size] = 0;
    if (!text) error_text(error, error_size, "cannot read %s: %s", path, strerror(errno));
    if (f) fclose(f);
    return text;
}

/* Cuts the text behind `mark` off at the line that is exactly `end`; returns where it starts. */
static char *cut_block(char **at, const char *end)
{
    char *start = *at, *line = start;
    size_t length = strlen(end);
    while (*line) {
        size_t n = strcspn(line, "\n");
        if (n == length && !memcmp(line, end, n)) {
            *at = line + n + (line[n] == '\n');
            *line = 0;
            return start;
        }
        line += n + (line[n] == '\n');
    }
    return NULL;
}

static bool header_line(struct broken *b, const char *key, const char *value, char *file)
{
    struct {
        const char *key;
        char *target;
        size_t size;
    } fields[] = {{"op", b->op, sizeof b->op},       {"kind", b->kind, sizeof b->kind},
                  {"bug", b->bug, sizeof b->bug},    {"like", b->like, sizeof b->like},
                  {"case", b->smallest, sizeof b->smallest},
                  {"check", b->check, sizeof b->check}, {"why", b->why, sizeof b->why},
                  {"only", b->only, sizeof b->only}, {"file", file, 64}};
    if (!strcmp(key, "blind") && !strcmp(value, "cuda")) return b->gpu_blind = true;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (strcmp(fields[i].key, key)) continue;
        return (size_t)snprintf(fields[i].target, fields[i].size, "%s", value) < fields[i].size;
    }
    return false;
}

static bool parse(struct broken *b, const char *path, char *error, size_t error_size)
{
    char file[64] = "", *at = b->text;
    while (*at) {
        size_t n = strcspn(at, "\n");
        bool last = at[n] == 0;
        at[n] = 0;
        char *line = at, *colon = strstr(line, ": ");
        at += n + !last;
        if (!*line || *line == '#') continue;
        if (!strcmp(line, "<<<<")) {
            if (b->n_replacements == BROKEN_REPLACEMENTS_MAX || !*file)
                return error_text(error, error_size, "%s: too many replacements or no file", path);
            uint32_t i = b->n_replacements++;
            snprintf(b->replacements[i].file, sizeof b->replacements[i].file, "%s", file);
            b->replacements[i].old_text = cut_block(&at, "====");
            b->replacements[i].new_text =
                b->replacements[i].old_text ? cut_block(&at, ">>>>") : NULL;
            if (!b->replacements[i].new_text)
                return error_text(error, error_size, "%s: replacement without ==== or >>>>", path);
            continue;
        }
        if (!colon) return error_text(error, error_size, "%s: '%s' is no 'key: value'", path, line);
        *colon = 0;
        if (!header_line(b, line, colon + 2, file))
            return error_text(error, error_size, "%s: unknown or too long '%s'", path, line);
    }
    const struct op *op = op_find(b->op, strlen(b->op));
    if (!op) return error_text(error, error_size, "%s: no operation '%s'", path, b->op);
    if (!b->n_replacements || !*b->bug || !*b->kind)
        return error_text(error, error_size, "%s: bug, kind and a replacement are needed", path);
    snprintf(b->module, sizeof b->module, "%s", op->modules[0]);
    return true;
}

bool broken_load(const char *path, struct broken *b, char *error, size_t error_size)
{
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    memset(b, 0, sizeof *b);
    size_t length = strcspn(name, ".");
    if (length >= sizeof b->name)
        return error_text(error, error_size, "%s: the name is too long", path);
    memcpy(b->name, name, length);
    b->text = read_file(path, error, error_size);
    if (b->text && parse(b, path, error, error_size)) return true;
    broken_free(b);
    return false;
}

void broken_free(struct broken *b)
{
    free(b->text);
    b->text = NULL;
}

/* A new string with the only occurrence of old_text replaced. */
static char *replace_once(const char *text, const char *old_text, const char *new_text)
{
    const char *found = strstr(text, old_text);
    if (!found || strstr(found + 1, old_text)) return NULL;
    size_t before = (size_t)(found - text);
    char *result = malloc(strlen(text) + strlen(new_text) + 1);
    if (!result) return NULL;
    memcpy(result, text, before);
    strcpy(result + before, new_text);
    strcat(result + before, found + strlen(old_text));
    return result;
}

static bool write_file(const char *path, const char *text, char *error, size_t error_size)
{
    FILE *f = fopen(path, "wb");
    if (f && fputs(text, f) >= 0 && fclose(f) == 0) return true;
    return error_text(error, error_size, "cannot write %s: %s", path, strerror(errno));
}

static bool copy_edited(const struct broken *b, const char *dir, const char *name,
                        const char *target, char *error, size_t error_size)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    char *text = read_file(path, error, error_size);
    bool fine = text != NULL;
    for (uint32_t i = 0; i < b->n_replacements && fine; i++) {
        if (strcmp(b->replacements[i].file, name)) continue;
        char *edited =
            replace_once(text, b->replacements[i].old_text, b->replacements[i].new_text);
        if (!edited)
            fine = error_text(error, error_size,
                              "%s: the text of replacement %u does not stand exactly once in %s",
                              b->name, i + 1, name);
        free(text);
        text = edited;
    }
    snprintf(path, sizeof path, "%s/%s", target, name);
    fine = fine && write_file(path, text, error, error_size);
    free(text);
    return fine;
}

/* Replaces the module by one that includes nothing but the part with the entry point. */
static bool write_part(const struct broken *b, const char *target, char *error, size_t error_size)
{
    char path[4096], text[160];
    snprintf(path, sizeof path, "%s/%s.cu", target, b->module);
    snprintf(text, sizeof text, "#include \"%s\"\n", b->only);
    return write_file(path, text, error, error_size);
}

bool broken_write(const struct broken *b, const char *kernels_dir, const char *target, char *error,
                  size_t error_size)
{
    DIR *d = opendir(kernels_dir);
    bool fine = true;
    if (!d) return error_text(error, error_size, "cannot read %s: %s", kernels_dir, strerror(errno));
    if (mkdir(target, 0777) && errno != EEXIST) {
        closedir(d);
        return error_text(error, error_size, "cannot make %s: %s", target, strerror(errno));
    }
    for (struct dirent *e; fine && (e = readdir(d));) {
        const char *dot = strrchr(e->d_name, '.');
        bool header = dot && !strcmp(dot, ".cuh");
        bool source = dot && !strcmp(dot, ".cu") && strlen(b->module) == (size_t)(dot - e->d_name) &&
                      !memcmp(e->d_name, b->module, (size_t)(dot - e->d_name));
        if (header || source) fine = copy_edited(b, kernels_dir, e->d_name, target, error, error_size);
    }
    closedir(d);
    return fine && (!b->only[0] || write_part(b, target, error, error_size));
}
