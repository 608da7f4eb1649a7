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

/* The array with an item of that name, new or not, at place *at. Items begin with their name, of
 * name_bytes. NULL: out of memory, and the array is as it was. */
static void *with_name(void *array, size_t *count, size_t size, size_t name_bytes, const char *name,
                       size_t *at)
{
    char *items = array;
    for (*at = 0; *at < *count; ++*at) {
        if (!strcmp(items + *at * size, name)) return array;
    }
    items = report_grow(array, *count, size);
    if (items) snprintf(items + (*count)++ * size, name_bytes, "%s", name);
    return items;
}

struct report_op *report_op(struct report *r, const char *name)
{
    size_t at;
    struct report_op *ops = with_name(r->ops, &r->n_ops, sizeof *ops, sizeof ops->name, name, &at);
    if (!ops) return NULL;
    r->ops = ops;
    return &ops[at];
}

struct report_regime *report_regime(struct report_op *o, const char *name)
{
    size_t at;
    struct report_regime *regimes =
        with_name(o->regimes, &o->n_regimes, sizeof *regimes, sizeof regimes->name, name, &at);
    if (!regimes) return NULL;
    o->regimes = regimes;
    return &regimes[at];
}

struct report_rule *report_rule(struct report_op *o, const char *name)
{
    size_t at;
    struct report_rule *rules =
        with_name(o->rules, &o->n_rules, sizeof *rules, sizeof rules->name, name, &at);
    if (!rules) return NULL;
    o->rules = rules;
    return &rules[at];
}

struct report_backend *report_backend(struct report *r, const char *name)
{
    size_t at;
    struct report_backend *backends =
        with_name(r->backends, &r->n_backends, sizeof *backends, sizeof backends->name, name, &at);
    if (!backends) return NULL;
    r->backends = backends;
    return &backends[at];
}

bool report_add_name(struct report_name **names, size_t *count, const char *text)
{
    size_t at;
    struct report_name *grown =
        with_name(*names, count, sizeof *grown, sizeof grown->text, text, &at);
    if (!grown) return false;
    *names = grown;
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
