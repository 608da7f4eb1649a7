#include "harness/case/case.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/case/op.h"

static bool fail(char *error, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static bool fail(char *error, size_t size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(error, size, format, args);
    va_end(args);
    return false;
}

static int find_param(const struct op *op, const char *key, size_t length)
{
    for (uint32_t i = 0; i < op->n_params; i++) {
        const char *name = op->params[i].key;
        if (name[0] == key[0] && strlen(name) == length && !memcmp(name, key, length))
            return (int)i;
    }
    return -1;
}

static uint32_t must_find(const struct case_line *c, const char *key)
{
    int i = find_param(c->op, key, strlen(key));
    if (i < 0) {
        fprintf(stderr, "internal error: operation %s has no parameter '%s'\n", c->op->name, key);
        abort();
    }
    return (uint32_t)i;
}

/* Reads an integer at *text (decimal or 0x), advancing it. */
static bool read_int(const char **text, int64_t *value)
{
    const char *start = *text;
    char *end;
    if (*start != '-' && *start != '+' && (*start < '0' || *start > '9')) return false;
    bool negative = *start == '-';
    if (*start == '-' || *start == '+') start++;
    if (*start < '0' || *start > '9') return false;
    int base = start[0] == '0' && (start[1] == 'x' || start[1] == 'X') ? 16 : 10;
    errno = 0;
    uint64_t magnitude = strtoull(start, &end, base);
    if (errno || end == start) return false;
    if (magnitude > (uint64_t)INT64_MAX) return false;
    *value = negative ? -(int64_t)magnitude : (int64_t)magnitude;
    *text = end;
    return true;
}

static bool set_list(struct case_line *c, const struct param *p, struct case_value *v,
                     const char *text, size_t length, char *error, size_t size)
{
    const char *at = text + 1, *end = text + length - 1;
    if (length < 2 || text[0] != '[' || *end != ']')
        return fail(error, size, "%s=%.*s: a list is written [1,2,3]", p->key, (int)length, text);
    uint32_t start = c->list_used, count = 0;
    while (at < end) {
        int64_t value;
        if (!read_int(&at, &value) || at > end || (at < end && *at != ','))
            return fail(error, size, "%s=%.*s: element %u is not an integer", p->key, (int)length,
                        text, count);
        if (value < p->min || value > p->max)
            return fail(error, size, "%s: element %u is %" PRId64 ", outside %" PRId64 "..%" PRId64,
                        p->key, count, value, p->min, p->max);
        if (start + count >= CASE_LIST_MAX)
            return fail(error, size, "%s: more than %d list elements in one case", p->key,
                        CASE_LIST_MAX);
        c->list[start + count++] = value;
        if (at < end && ++at == end)
            return fail(error, size, "%s=%.*s: the list ends in a comma", p->key, (int)length, text);
    }
    v->i = count;
    v->list_start = start;
    c->list_used = start + count;
    return true;
}

static bool set_enum(const struct param *p, struct case_value *v, const char *text, size_t length,
                     char *error, size_t size)
{
    for (int i = 0; p->names[i]; i++) {
        if (strlen(p->names[i]) == length && !memcmp(p->names[i], text, length)) {
            v->i = i;
            return true;
        }
    }
    int used = snprintf(error, size, "%s=%.*s: it is one of", p->key, (int)length, text);
    for (int i = 0; p->names[i] && used > 0 && (size_t)used < size; i++)
        used += snprintf(error + used, size - (size_t)used, " %s", p->names[i]);
    return false;
}

static bool set_number(const struct param *p, struct case_value *v, const char *text,
                       size_t length, char *error, size_t size)
{
    const char *at = text;
    if (p->kind == PARAM_REAL) {
        char copy[64], *end;
        if (length == 0 || length >= sizeof copy || strchr(" \t\n\v\f\r", text[0]))
            return fail(error, size, "%s=%.*s is not a number", p->key, (int)length, text);
        memcpy(copy, text, length);
        copy[length] = 0;
        float value = strtof(copy, &end);
        if (*end) return fail(error, size, "%s=%s is not a number", p->key, copy);
        v->r = isnan(value) ? (double)NAN : (double)value;
        return true;
    }
    if (p->kind == PARAM_SEED) {
        char copy[32], *end;
        if (length == 0 || length >= sizeof copy || *text < '0' || *text > '9')
            return fail(error, size, "%s=%.*s is not a seed", p->key, (int)length, text);
        memcpy(copy, text, length);
        copy[length] = 0;
        errno = 0;
        v->i = (int64_t)strtoull(copy, &end, copy[1] == 'x' ? 16 : 10);
        if (errno || *end) return fail(error, size, "%s=%s is not a 64-bit seed", p->key, copy);
        return true;
    }
    if (!read_int(&at, &v->i) || at != text + length)
        return fail(error, size, "%s=%.*s is not an integer", p->key, (int)length, text);
    if (v->i < p->min || v->i > p->max)
        return fail(error, size, "%s=%" PRId64 " is outside %" PRId64 "..%" PRId64, p->key, v->i,
                    p->min, p->max);
    return true;
}

static bool set_value(struct case_line *c, uint32_t index, const char *text, size_t length,
                      char *error, size_t size)
{
    const struct param *p = &c->op->params[index];
    struct case_value *v = &c->v[index];
    if (p->kind == PARAM_LIST) return set_list(c, p, v, text, length, error, size);
    if (p->kind == PARAM_ENUM) return set_enum(p, v, text, length, error, size);
    return set_number(p, v, text, length, error, size);
}

void case_init(struct case_line *c, const struct op *op)
{
    char error[256];
    memset(c, 0, sizeof *c);
    c->op = op;
    for (uint32_t i = 0; i < op->n_params; i++) {
        const char *text = op->params[i].initial;
        if (!set_value(c, i, text, strlen(text), error, sizeof error)) {
            fprintf(stderr, "internal error: %s: %s\n", op->name, error);
            abort();
        }
    }
}

/* The length of one value: up to a comma outside brackets. */
static size_t value_length(const char *text)
{
    size_t n = 0;
    bool inside = false;
    for (; text[n] && (inside || text[n] != ','); n++) {
        if (text[n] == '[') inside = true;
        if (text[n] == ']') inside = false;
    }
    return n;
}

static bool unknown_key(const struct op *op, const char *key, size_t length, char *error,
                        size_t size)
{
    int used = snprintf(error, size, "%s has no key '%.*s'; it has", op->name, (int)length, key);
    for (uint32_t i = 0; i < op->n_params && used > 0 && (size_t)used < size; i++)
        used += snprintf(error + used, size - (size_t)used, " %s", op->params[i].key);
    return false;
}

static bool apply_preset(struct case_line *c, const char *name, size_t length, char *error,
                         size_t size)
{
    for (const struct preset *p = c->op->presets; p && p->name; p++) {
        if (strlen(p->name) == length && !memcmp(p->name, name, length))
            return case_apply(c, p->assignments, error, size);
    }
    return fail(error, size, "%s has no preset '%.*s'; `attest list --ops` shows them",
                c->op->name, (int)length, name);
}

bool case_apply(struct case_line *c, const char *text, char *error, size_t size)
{
    bool seen[CASE_PARAMS_MAX] = {false};
    while (*text) {
        size_t key_length = strcspn(text, "=,");
        if (text[key_length] != '=')
            return fail(error, size, "'%.*s': expected key=value", (int)key_length, text);
        const char *value = text + key_length + 1;
        size_t length = value_length(value);
        int index = find_param(c->op, text, key_length);
        if (index < 0 && key_length == 5 && !memcmp(text, "model", 5)) {
            if (!apply_preset(c, value, length, error, size)) return false;
        } else if (index < 0) {
            return unknown_key(c->op, text, key_length, error, size);
        } else {
            if (seen[index])
                return fail(error, size, "key '%.*s' is given twice", (int)key_length, text);
            seen[index] = true;
            if (!set_value(c, (uint32_t)index, value, length, error, size)) return false;
        }
        text = value + length;
        if (*text == ',' && !*++text) return fail(error, size, "the case ends in a comma");
    }
    return true;
}

bool case_parse(const char *text, struct case_line *c, char *error, size_t size)
{
    size_t name_length = strcspn(text, ":");
    if (strlen(text) >= CASE_TEXT_MAX)
        return fail(error, size, "the case is longer than %d characters", CASE_TEXT_MAX - 1);
    const struct op *op = op_find(text, name_length);
    if (!op)
        return fail(error, size, "'%.*s' is no operation; `attest list --ops` shows them",
                    (int)(name_length > 80 ? 80 : name_length), text);
    case_init(c, op);
    if (!text[name_length]) return true;
    return case_apply(c, text + name_length + 1, error, size);
}

static size_t print_real(char *text, size_t size, double value)
{
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, size, "%.*g", digits, value);
        if (strtof(text, NULL) == (float)value) break;
    }
    return strlen(text);
}

static size_t print_value(const struct case_line *c, uint32_t index, char *text, size_t size)
{
    const struct param *p = &c->op->params[index];
    const struct case_value *v = &c->v[index];
    size_t used = 0;
    switch (p->kind) {
    case PARAM_INT: return (size_t)snprintf(text, size, "%" PRId64, v->i);
    case PARAM_OFFSET: return (size_t)snprintf(text, size, "%+" PRId64, v->i);
    case PARAM_SEED: return (size_t)snprintf(text, size, "0x%" PRIx64, (uint64_t)v->i);
    case PARAM_REAL: return print_real(text, size, v->r);
    case PARAM_ENUM: return (size_t)snprintf(text, size, "%s", p->names[v->i]);
    case PARAM_LIST: break;
    }
    used += (size_t)snprintf(text, size, "[");
    for (int64_t i = 0; i < v->i && used + 24 < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%" PRId64, i ? "," : "",
                                 c->list[v->list_start + i]);
    used += (size_t)snprintf(text + used, size - used, "]");
    return used;
}

size_t case_print(const struct case_line *c, char *text, size_t size)
{
    static _Thread_local char value[CASE_TEXT_MAX];
    size_t used = (size_t)snprintf(text, size, "%s", c->op->name);
    char separator = ':';
    for (uint32_t i = 0; i < c->op->n_params; i++) {
        const struct param *p = &c->op->params[i];
        size_t length = print_value(c, i, value, sizeof value);
        if (p->rare && !strcmp(value, p->initial)) continue;
        if (used + length + strlen(p->key) + 3 > size) break;
        used += (size_t)snprintf(text + used, size - used, "%c%s=%s", separator, p->key, value);
        separator = ',';
    }
    return used;
}

int64_t case_int(const struct case_line *c, const char *key)
{
    return c->v[must_find(c, key)].i;
}

uint32_t case_u32(const struct case_line *c, const char *key)
{
    return (uint32_t)c->v[must_find(c, key)].i;
}

double case_real(const struct case_line *c, const char *key)
{
    return c->v[must_find(c, key)].r;
}

uint64_t case_seed(const struct case_line *c)
{
    return (uint64_t)c->v[must_find(c, "seed")].i;
}

const int64_t *case_list(const struct case_line *c, const char *key, uint32_t *count)
{
    const struct case_value *v = &c->v[must_find(c, key)];
    *count = (uint32_t)v->i;
    return c->list + v->list_start;
}

bool case_enum_is(const struct case_line *c, const char *key, const char *name)
{
    uint32_t index = must_find(c, key);
    return !strcmp(c->op->params[index].names[c->v[index].i], name);
}

bool case_has(const struct case_line *c, const char *key)
{
    return find_param(c->op, key, strlen(key)) >= 0;
}

void case_set_int(struct case_line *c, const char *key, int64_t value)
{
    c->v[must_find(c, key)].i = value;
}

void case_set_real(struct case_line *c, const char *key, double value)
{
    c->v[must_find(c, key)].r = (double)(float)value;
}

void case_set_enum(struct case_line *c, const char *key, const char *name)
{
    char error[256];
    if (!set_value(c, must_find(c, key), name, strlen(name), error, sizeof error)) {
        fprintf(stderr, "internal error: %s\n", error);
        abort();
    }
}

void case_set_list(struct case_line *c, const char *key, const int64_t *values, uint32_t count)
{
    struct case_value *v = &c->v[must_find(c, key)];
    int64_t copy[CASE_LIST_MAX];
    if (count > CASE_LIST_MAX) abort();
    memcpy(copy, values, count * sizeof *values);
    /* Lists live one after another in the pool: rebuild it with this one replaced. */
    int64_t pool[CASE_LIST_MAX];
    uint32_t used = 0;
    for (uint32_t i = 0; i < c->op->n_params; i++) {
        struct case_value *other = &c->v[i];
        if (c->op->params[i].kind != PARAM_LIST) continue;
        const int64_t *source = other == v ? copy : c->list + other->list_start;
        uint32_t n = other == v ? count : (uint32_t)other->i;
        if (used + n > CASE_LIST_MAX) abort();
        memcpy(pool + used, source, n * sizeof *pool);
        other->list_start = used;
        other->i = n;
        used += n;
    }
    memcpy(c->list, pool, used * sizeof *pool);
    c->list_used = used;
}
