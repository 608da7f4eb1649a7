#include "harness/report/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *report_grow(void *array, size_t count, size_t size)
{
    /* The room is a power of two: it is used up when the count is one. */
    if (!(count & (count - 1))) {
        void *grown = realloc(array, (count ? 2 * count : 1) * size);
        if (!grown) return NULL;
        array = grown;
    }
    memset((char *)array + count * size, 0, size);
    return array;
}

struct report_op *report_op(struct report *r, const char *name)
{
    for (size_t i = 0; i < r->n_ops; i++) {
        if (!strcmp(r->ops[i].name, name)) return &r->ops[i];
    }
    struct report_op *grown = report_grow(r->ops, r->n_ops, sizeof *grown);
    if (!grown) return NULL;
    r->ops = grown;
    snprintf(grown[r->n_ops].name, sizeof grown->name, "%s", name);
    return &grown[r->n_ops++];
}

struct report_regime *report_regime(struct report_op *o, const char *name)
{
    for (size_t i = 0; i < o->n_regimes; i++) {
        if (!strcmp(o->regimes[i].name, name)) return &o->regimes[i];
    }
    struct report_regime *grown = report_grow(o->regimes, o->n_regimes, sizeof *grown);
    if (!grown) return NULL;
    o->regimes = grown;
    snprintf(grown[o->n_regimes].name, sizeof grown->name, "%s", name);
    return &grown[o->n_regimes++];
}

struct report_rule *report_rule(struct report_op *o, const char *name)
{
    for (size_t i = 0; i < o->n_rules; i++) {
        if (!strcmp(o->rules[i].name, name)) return &o->rules[i];
    }
    struct report_rule *grown = report_grow(o->rules, o->n_rules, sizeof *grown);
    if (!grown) return NULL;
    o->rules = grown;
    snprintf(grown[o->n_rules].name, sizeof grown->name, "%s", name);
    return &grown[o->n_rules++];
}

struct report_backend *report_backend(struct report *r, const char *name)
{
    for (size_t i = 0; i < r->n_backends; i++) {
        if (!strcmp(r->backends[i].name, name)) return &r->backends[i];
    }
    struct report_backend *grown = report_grow(r->backends, r->n_backends, sizeof *grown);
    if (!grown) return NULL;
    r->backends = grown;
    snprintf(grown[r->n_backends].name, sizeof grown->name, "%s", name);
    return &grown[r->n_backends++];
}

bool report_add_name(struct report_name **names, size_t *count, const char *text)
{
    for (size_t i = 0; i < *count; i++) {
        if (!strcmp((*names)[i].text, text)) return true;
    }
    struct report_name *grown = report_grow(*names, *count, sizeof *grown);
    if (!grown) return false;
    *names = grown;
    snprintf(grown[(*count)++].text, sizeof grown->text, "%s", text);
    return true;
}

static void keep_worst(struct report_counts *to, double ratio, const char *text)
{
    bool earlier = to->worst_case && text && strcmp(text, to->worst_case) < 0;
    if (!(ratio > to->worst_ratio || (ratio == to->worst_ratio && ratio > 0 && earlier))) return;
    to->worst_ratio = ratio;
    free(to->worst_case);
    to->worst_case = text ? strdup(text) : NULL;
}

void report_counts_add(struct report_counts *to, const struct report_counts *from)
{
    to->cases += from->cases;
    to->passed += from->passed;
    to->failed += from->failed;
    to->refused += from->refused;
    to->errors += from->errors;
    to->compared += from->compared;
    to->nearest += from->nearest;
    to->unjudged += from->unjudged;
    to->identical += from->identical;
    to->equivalent += from->equivalent;
    for (int k = 0; k < CHECK_COUNT; k++) to->checks[k] += from->checks[k];
    distribution_add(&to->spread, &from->spread);
    to->max_ulp = fmax(to->max_ulp, from->max_ulp);
    to->seconds += from->seconds;
    to->kernel_seconds += from->kernel_seconds;
    keep_worst(to, from->worst_ratio, from->worst_case);
}
