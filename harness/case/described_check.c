/* A descriptor's tables against each other: what is misspelt or does not fit fails here, not in the
 * middle of a run. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "harness/case/op.h"

struct check {
    const struct op *op;
    struct case_line c;
    char *error;
    size_t size;
};

static bool fail(struct check *k, const char *format, ...) __attribute__((format(printf, 2, 3)));

static bool fail(struct check *k, const char *format, ...)
{
    va_list args;
    int used = snprintf(k->error, k->size, "%s: ", k->op->name);
    va_start(args, format);
    vsnprintf(k->error + used, k->size - (size_t)used, format, args);
    va_end(args);
    return false;
}

/* Every expression of a list; how many there are in *count. */
static bool evaluates(struct check *k, const struct scope *s, const char *what, const char *list,
                      uint32_t *count)
{
    char error[320];
    struct value v;
    const char *at = list;
    *count = 0;
    for (;; at++) {
        if (!expression_next(s, &at, &v, error, sizeof error))
            return fail(k, "%s: %s", what, error);
        ++*count;
        if (!*at) return true;
    }
}

static bool check_numbers(struct check *k)
{
    const struct scope s = {.c = &k->c};
    uint32_t count;
    for (uint32_t i = 0; i < k->op->n_numbers; i++) {
        const struct number *n = &k->op->numbers[i];
        /* A number sees those before it: evaluated by name, its own text sees just them. */
        if (!evaluates(k, &s, n->name, n->name, &count)) return false;
        if (!n->text == !n->compute) return fail(k, "number '%s' needs a text or code", n->name);
    }
    return true;
}

static bool is_argument(const struct interface *kernel, const char *name, size_t length)
{
    for (uint32_t i = 0; i < kernel->n_arguments; i++) {
        const char *known = kernel->arguments[i].name;
        if (strlen(known) == length && !memcmp(known, name, length)) return true;
    }
    return false;
}

/* Every bound name is one of the kernel's. */
static bool check_bindings(struct check *k, const struct step *step)
{
    const char *at = step->bindings;
    while (at && *at) {
        at += strspn(at, " ,");
        size_t length = strcspn(at, " =");
        if (!is_argument(step->kernel, at, length))
            return fail(k, "%s has no argument '%.*s' to bind", step->kernel->entry, (int)length,
                        at);
        for (int depth = 0; *at && (depth || *at != ','); at++)
            depth += (*at == '(') - (*at == ')');
    }
    return true;
}

static uint32_t names_in(const char *list)
{
    uint32_t n = 1;
    for (; *list; list++) n += *list == ',';
    return n;
}

static bool check_argument(struct check *k, const struct step *step, const struct argument *a)
{
    const struct scope s = {.c = &k->c, .bindings = step->bindings};
    char name[48];
    uint32_t count, owned;
    if (a->kind == ARGUMENT_NUMBER || a->kind == ARGUMENT_HOST) {
        if (a->gpu.type != a->ref.type && a->ref.type != NO_PLACE)
            return fail(k, "%s: '%s' has two types", step->kernel->entry, a->name);
        return evaluates(k, &s, step->kernel->entry, a->name, &count);
    }
    const struct array *array = step_array(k->op, step, a, name, sizeof name);
    if (!array) return fail(k, "%s: '%s' is bound to no array", step->kernel->entry, a->name);
    if (a->kind == ARGUMENT_OUT && array->kind <= ARRAY_POISONED)
        return fail(k, "%s writes the input '%s'", step->kernel->entry, name);
    if (a->gpu.type != PLACE_BUFFER)
        return fail(k, "%s: '%s' is no buffer of the launcher", step->kernel->entry, a->name);
    if (!evaluates(k, &s, a->name, a->shape, &count) ||
        !evaluates(k, &s, a->name, a->owned ? a->owned : a->shape, &owned))
        return false;
    if (count != owned || count != names_in(a->dims))
        return fail(k, "%s: shape, owned part and names of '%s' differ in number",
                    step->kernel->entry, a->name);
    return true;
}

static bool check_steps(struct check *k)
{
    const struct scope s = {.c = &k->c};
    uint32_t count, modules = 0;
    while (k->op->modules[modules]) modules++;
    for (const struct step *step = k->op->steps; step->kernel; step++) {
        if (step->module >= modules) return fail(k, "%s: no such module", step->kernel->entry);
        if (step->when && !evaluates(k, &s, step->kernel->entry, step->when, &count)) return false;
        if (!check_bindings(k, step)) return false;
        for (uint32_t i = 0; i < step->kernel->n_arguments; i++) {
            if (!check_argument(k, step, &step->kernel->arguments[i])) return false;
        }
    }
    return true;
}

/* Whether a step has an argument for it. */
static bool is_bound(const struct op *op, const char *array)
{
    for (const struct step *step = op->steps; step->kernel; step++) {
        for (uint32_t i = 0; i < step->kernel->n_arguments; i++) {
            char name[48];
            if (!step->kernel->arguments[i].shape) continue;
            step_array(op, step, &step->kernel->arguments[i], name, sizeof name);
            if (!strcmp(name, array)) return true;
        }
    }
    return false;
}

static bool check_arrays(struct check *k)
{
    const struct scope s = {.c = &k->c};
    uint32_t count;
    for (uint32_t i = 0; i < k->op->n_arrays; i++) {
        const struct array *a = &k->op->arrays[i];
        const char *const texts[] = {a->when, a->shape, a->owned, a->pitch, a->values};
        for (size_t t = 0; t < sizeof texts / sizeof *texts; t++) {
            if (texts[t] && !evaluates(k, &s, a->name, texts[t], &count)) return false;
            if (texts[t] == a->values && a->values && count > ARRAY_VALUES_MAX)
                return fail(k, "array '%s' has more than %d values", a->name, ARRAY_VALUES_MAX);
        }
        if (!a->shape && !is_bound(k->op, a->alias_of ? a->alias_of : a->name))
            return fail(k, "array '%s' is no kernel's and has no shape", a->name);
        if (a->fill && a->kind > ARRAY_POISONED)
            return fail(k, "the output '%s' has a filling", a->name);
    }
    return true;
}

static bool check_relation(struct check *k, const struct relation *r)
{
    struct rng rng = {1, 2, 0};
    struct case_line changed = k->c;
    int64_t row = 0;
    const struct scope choose = {.c = &k->c, .rng = &rng};
    const struct scope rows = {.c = &k->c, .changed = &k->c, .row = &row};
    char error[320];
    uint32_t count;
    if (r->when && !evaluates(k, &choose, r->name, r->when, &count)) return false;
    if (!expression_assign(&choose, r->change, &changed, error, sizeof error))
        return fail(k, "relation %s: %s", r->name, error);
    if (r->base_row && !evaluates(k, &rows, r->name, r->base_row, &count)) return false;
    for (const char *at = r->outputs; at && *at;) {
        char name[48];
        at += strspn(at, " ,");
        size_t length = strcspn(at, " ,");
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        bool known = false;
        for (uint32_t i = 0; i < k->op->n_arrays; i++)
            known |= !strcmp(k->op->arrays[i].name, name) && k->op->arrays[i].kind > ARRAY_POISONED;
        if (!known) return fail(k, "relation %s: '%s' is no output", r->name, name);
        at += length;
    }
    return true;
}

static bool check_wild(struct check *k)
{
    for (const char *at = k->op->wild; *at;) {
        at += strspn(at, " ");
        size_t length = strcspn(at, " ");
        bool known = false;
        for (uint32_t i = 0; i < k->op->n_params; i++)
            known |=
                strlen(k->op->params[i].key) == length && !memcmp(k->op->params[i].key, at, length);
        if (!known) return fail(k, "wild: there is no key '%.*s'", (int)length, at);
        at += length;
    }
    return true;
}

bool op_check_tables(const struct op *op, char *error, size_t size)
{
    struct check k = {.op = op, .error = error, .size = size};
    case_init(&k.c, op);
    if (!check_numbers(&k) || !check_steps(&k) || !check_arrays(&k) || !check_wild(&k))
        return false;
    for (const struct relation *r = op->relations; r && r->name; r++) {
        if (!check_relation(&k, r)) return false;
    }
    return true;
}
