/* The end of reading: everything in its order, and freed. */
#include "harness/report/report.h"

#include <stdlib.h>
#include <string.h>

#include "harness/case/op.h"
#include "harness/report/seen.h"

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
