#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/case/op.h"
#include "harness/report/report.h"

enum { FAILURES_KEPT = 200 };

static void add_number(cJSON *to, const char *key, double value)
{
    cJSON_AddNumberToObject(to, key, value);
}

static void add_count(cJSON *to, const char *key, uint64_t value)
{
    add_number(to, key, (double)value);
}

/* Times are what they are to a millisecond. */
static void add_seconds(cJSON *to, const char *key, double value)
{
    cJSON_AddNumberToObject(to, key, round(1e3 * value) / 1e3);
}

static void add_bins(cJSON *to, const char *key, const uint64_t *bins, int count)
{
    cJSON *array = cJSON_AddArrayToObject(to, key);
    for (int i = 0; i < count; i++)
        cJSON_AddItemToArray(array, cJSON_CreateNumber((double)bins[i]));
}

static void add_counts(cJSON *to, const struct report_counts *c)
{
    add_count(to, "cases", c->cases);
    add_count(to, "passed", c->passed);
    add_count(to, "failed", c->failed);
    add_count(to, "refused", c->refused);
    add_count(to, "errors", c->errors);
    add_count(to, "compared", c->compared);
    add_count(to, "nearest", c->nearest);
    add_count(to, "unjudged", c->unjudged);
    add_count(to, "identical", c->identical);
    add_count(to, "equivalent", c->equivalent);
    if (isfinite(c->worst_ratio))
        add_number(to, "worst_ratio", c->worst_ratio);
    else
        cJSON_AddStringToObject(to, "worst_ratio", "inf");
    if (c->worst_case) cJSON_AddStringToObject(to, "worst_case", c->worst_case);
    add_number(to, "max_ulp", c->max_ulp);
    cJSON *checks = cJSON_AddObjectToObject(to, "checks");
    for (int k = 0; k < CHECK_COUNT; k++) add_count(checks, check_names[k], c->checks[k]);
    add_bins(to, "ratios", c->spread.ratio, RATIO_BINS);
    add_bins(to, "ulps", c->spread.ulp, ULP_BINS);
    add_bins(to, "margins", c->spread.margin, MARGIN_BINS);
    add_seconds(to, "seconds", c->seconds);
    add_seconds(to, "kernel_seconds", c->kernel_seconds);
}

static cJSON *append(cJSON *array)
{
    cJSON *item = cJSON_CreateObject();
    cJSON_AddItemToArray(array, item);
    return item;
}

static void add_op(cJSON *to, const struct report_op *o)
{
    const struct op *op = op_find(o->name, strlen(o->name));
    cJSON_AddStringToObject(to, "op", o->name);
    cJSON_AddStringToObject(to, "contract", op ? contract_name(op->contract) : "unknown");
    add_counts(cJSON_AddObjectToObject(to, "total"), &o->total);
    add_count(to, "geometries", o->geometries);
    add_count(to, "geometries_refused", o->geometries_refused);
    add_count(to, "sweeps_failed", o->sweeps_failed);
    cJSON *rules = cJSON_AddArrayToObject(to, "rules");
    for (size_t i = 0; i < o->n_rules; i++) {
        cJSON *rule = append(rules);
        cJSON_AddStringToObject(rule, "rule", o->rules[i].name);
        add_count(rule, "geometries", o->rules[i].geometries);
        add_count(rule, "cases", o->rules[i].cases);
    }
    cJSON *regimes = cJSON_AddArrayToObject(to, "regimes");
    for (size_t i = 0; i < o->n_regimes; i++) {
        cJSON *regime = append(regimes);
        cJSON_AddStringToObject(regime, "regime", o->regimes[i].name);
        add_counts(regime, &o->regimes[i].counts);
    }
}

static void add_names(cJSON *to, const char *key, const struct report_name *names, size_t count)
{
    cJSON *array = cJSON_AddArrayToObject(to, key);
    for (size_t i = 0; i < count; i++)
        cJSON_AddItemToArray(array, cJSON_CreateString(names[i].text));
}

static void add_backends(cJSON *to, const struct report *r)
{
    cJSON *array = cJSON_AddArrayToObject(to, "backends");
    for (size_t i = 0; i < r->n_backends; i++) {
        const struct report_backend *b = &r->backends[i];
        cJSON *item = append(array);
        cJSON_AddStringToObject(item, "backend", b->name);
        add_count(item, "cases", b->cases);
        add_count(item, "failed", b->failed);
        add_count(item, "errors", b->errors);
        add_count(item, "checks", b->checks);
        add_seconds(item, "seconds", b->seconds);
        add_seconds(item, "kernel_seconds", b->kernel_seconds);
    }
}

static void add_broken(cJSON *to, const struct report *r)
{
    cJSON *array = cJSON_AddArrayToObject(to, "broken");
    for (size_t i = 0; i < r->n_broken; i++) {
        const struct report_broken *b = &r->broken[i];
        cJSON *item = append(array);
        cJSON_AddStringToObject(item, "kernel", b->name);
        cJSON_AddStringToObject(item, "backend", b->backend);
        cJSON_AddStringToObject(item, "op", b->op);
        cJSON_AddStringToObject(item, "kind", b->kind);
        cJSON_AddStringToObject(item, "like", b->like);
        cJSON_AddStringToObject(item, "bug", b->bug);
        cJSON_AddBoolToObject(item, "caught", b->verdict == VERDICT_FAIL);
        cJSON_AddStringToObject(item, "verdict", verdict_names[b->verdict]);
        cJSON_AddStringToObject(item, "check", b->check);
        add_count(item, "cases", b->cases);
        add_seconds(item, "seconds", b->seconds);
        cJSON_AddStringToObject(item, "case", b->case_text);
    }
}

static void add_failures(cJSON *to, const struct report *r)
{
    cJSON *array = cJSON_AddArrayToObject(to, "failures");
    add_count(to, "n_failures", r->n_failures);
    for (size_t i = 0; i < r->n_failures && i < FAILURES_KEPT; i++) {
        const struct report_failure *f = &r->failures[i];
        cJSON *item = append(array);
        cJSON_AddStringToObject(item, "case", f->case_text);
        cJSON_AddStringToObject(item, "op", f->op);
        cJSON_AddStringToObject(item, "backend", f->backend);
        cJSON_AddStringToObject(item, "verdict", verdict_names[f->verdict]);
        cJSON_AddStringToObject(item, "check", f->check);
        cJSON_AddStringToObject(item, "text", f->text);
    }
}

static void add_rest(cJSON *to, const struct report *r)
{
    cJSON *timings = cJSON_AddArrayToObject(to, "timings");
    for (size_t i = 0; i < r->n_timings; i++) {
        cJSON *item = append(timings);
        cJSON_AddStringToObject(item, "case", r->timings[i].case_text);
        cJSON_AddStringToObject(item, "op", r->timings[i].op);
        cJSON_AddStringToObject(item, "backend", r->timings[i].backend);
        cJSON_AddStringToObject(item, "device", r->timings[i].device);
        add_number(item, "median_us", r->timings[i].median_us);
        add_number(item, "least_us", r->timings[i].least_us);
        add_number(item, "most_us", r->timings[i].most_us);
        if (r->timings[i].limit_us > 0) add_number(item, "limit_us", r->timings[i].limit_us);
    }
    cJSON *files = cJSON_AddArrayToObject(to, "coverage");
    for (size_t i = 0; i < r->n_files; i++) {
        cJSON *item = append(files);
        cJSON_AddStringToObject(item, "file", r->files[i].name);
        add_count(item, "lines", r->files[i].lines);
        add_count(item, "covered", r->files[i].covered);
        add_count(item, "branches", r->files[i].branches);
        add_count(item, "taken", r->files[i].taken);
        cJSON_AddStringToObject(item, "open", r->files[i].open_lines);
    }
}

cJSON *report_json(const struct report *r, const char *date)
{
    static const char *const states[] = {"right", "wrong", "blind", "uncertain"};
    cJSON *root = cJSON_CreateObject();
    if (!root) return NULL;
    cJSON_AddStringToObject(root, "format", "attest-tolerance-1");
    cJSON_AddStringToObject(root, "verdict", states[report_state(r)]);
    cJSON_AddStringToObject(root, "date", report_date(r, date));
    add_names(root, "seeds", r->seeds, r->n_seeds);
    add_names(root, "tiers", r->tiers, r->n_tiers);
    add_counts(cJSON_AddObjectToObject(root, "total"), &r->total);
    add_count(root, "geometries", r->geometries);
    add_count(root, "geometries_refused", r->geometries_refused);
    add_count(root, "sweeps_failed", r->sweeps_failed);
    add_count(root, "drawn", r->drawn);
    add_count(root, "unsteady", r->unsteady);
    add_count(root, "repeats", r->repeats);
    add_count(root, "pairs_equal", r->pairs_equal);
    add_count(root, "pairs_different", r->pairs_different);
    add_backends(root, r);
    cJSON *ops = cJSON_AddArrayToObject(root, "ops");
    for (size_t i = 0; i < r->n_ops; i++) add_op(append(ops), &r->ops[i]);
    add_broken(root, r);
    add_rest(root, r);
    add_failures(root, r);
    return root;
}
