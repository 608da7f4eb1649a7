#include "harness/report/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/case/op.h"
#include "harness/report/seen.h"

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

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b); /* the name is the first member, an array */
}

static uint32_t table_place(const char *name)
{
    uint32_t i = 0;
    while (i < op_count && strcmp(op_table[i]->name, name)) i++;
    return i;
}

static int by_table(const void *a, const void *b)
{
    const struct report_op *x = a, *y = b;
    uint32_t i = table_place(x->name), k = table_place(y->name);
    return i != k ? (i > k) - (i < k) : strcmp(x->name, y->name);
}

static int broken_order(const void *a, const void *b)
{
    const struct report_broken *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : strcmp(x->backend, y->backend);
}

static int failure_order(const void *a, const void *b)
{
    const struct report_failure *x = a, *y = b;
    int order = strcmp(x->case_text, y->case_text);
    if (!order) order = strcmp(x->backend, y->backend);
    return order ? order : strcmp(x->check, y->check);
}

static int timing_order(const void *a, const void *b)
{
    const struct report_timing *x = a, *y = b;
    int order = strcmp(x->case_text, y->case_text);
    if (!order) order = strcmp(x->backend, y->backend);
    return order ? order : (x->median_us > y->median_us) - (x->median_us < y->median_us);
}

static int file_order(const void *a, const void *b)
{
    return strcmp(((const struct report_file *)a)->name, ((const struct report_file *)b)->name);
}

static void sort(void *array, size_t count, size_t size, int (*order)(const void *, const void *))
{
    if (count) qsort(array, count, size, order);
}

static void sort_all(struct report *r)
{
    sort(r->ops, r->n_ops, sizeof *r->ops, by_table);
    for (size_t i = 0; i < r->n_ops; i++) {
        sort(r->ops[i].regimes, r->ops[i].n_regimes, sizeof *r->ops[i].regimes, by_name);
        sort(r->ops[i].rules, r->ops[i].n_rules, sizeof *r->ops[i].rules, by_name);
    }
    sort(r->backends, r->n_backends, sizeof *r->backends, by_name);
    sort(r->broken, r->n_broken, sizeof *r->broken, broken_order);
    sort(r->failures, r->n_failures, sizeof *r->failures, failure_order);
    sort(r->timings, r->n_timings, sizeof *r->timings, timing_order);
    sort(r->files, r->n_files, sizeof *r->files, file_order);
    sort(r->seeds, r->n_seeds, sizeof *r->seeds, by_name);
    sort(r->tiers, r->n_tiers, sizeof *r->tiers, by_name);
    sort(r->dates, r->n_dates, sizeof *r->dates, by_name);
}

bool report_finish(struct report *r, char *error, size_t size)
{
    if (!report_seen_finish(r, error, size)) return false;
    sort_all(r);
    for (size_t i = 0; i < r->n_ops; i++) {
        struct report_op *o = &r->ops[i];
        for (size_t k = 0; k < o->n_regimes; k++)
            report_counts_add(&o->total, &o->regimes[k].counts);
        report_counts_add(&r->total, &o->total);
        r->geometries += o->geometries;
        r->geometries_refused += o->geometries_refused;
        r->sweeps_failed += o->sweeps_failed;
    }
    for (size_t i = 0; i < r->n_broken; i++) {
        r->n_caught += r->broken[i].verdict == VERDICT_FAIL;
        r->n_untried += r->broken[i].verdict == VERDICT_ERROR;
    }
    return true;
}

enum report_state report_state(const struct report *r)
{
    if (r->total.failed || r->sweeps_failed || r->unsteady || r->pairs_different)
        return REPORT_WRONG;
    if (r->n_caught + r->n_untried < r->n_broken) return REPORT_BLIND;
    bool judged = r->total.passed && r->total.compared;
    return r->total.errors || r->n_untried || !judged ? REPORT_UNCERTAIN : REPORT_RIGHT;
}

const char *report_date(const struct report *r, const char *date)
{
    return date ? date : r->n_dates ? r->dates[r->n_dates - 1].text : "";
}

static void free_op(struct report_op *o)
{
    for (size_t i = 0; i < o->n_regimes; i++) free(o->regimes[i].counts.worst_case);
    free(o->total.worst_case);
    free(o->regimes);
    free(o->rules);
}

void report_free(struct report *r)
{
    for (size_t i = 0; i < r->n_ops; i++) free_op(&r->ops[i]);
    for (size_t i = 0; i < r->n_broken; i++) {
        free(r->broken[i].bug);
        free(r->broken[i].case_text);
    }
    for (size_t i = 0; i < r->n_failures; i++) {
        free(r->failures[i].case_text);
        free(r->failures[i].text);
    }
    for (size_t i = 0; i < r->n_timings; i++) free(r->timings[i].case_text);
    for (size_t i = 0; i < r->n_files; i++) {
        free(r->files[i].name);
        free(r->files[i].open_lines);
    }
    free(r->total.worst_case);
    free(r->ops);
    free(r->backends);
    free(r->broken);
    free(r->failures);
    free(r->timings);
    free(r->files);
    free(r->seeds);
    free(r->tiers);
    free(r->dates);
    report_seen_free(r->seen);
    memset(r, 0, sizeof *r);
}
