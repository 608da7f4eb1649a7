#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/case/op.h"
#include "harness/report/report.h"
#include "harness/report/words.h"

enum { FAILURES_SHOWN = 20 };

/* Text inside a table cell or a code span. */
static void plain(FILE *f, const char *text)
{
    for (; *text; text++) {
        if (*text == '|')
            fputs("\\|", f);
        else if (*text == '`')
            fputc('\'', f);
        else
            fputc((unsigned char)*text < 0x20 ? ' ' : *text, f);
    }
}

static void counted(FILE *f, uint64_t value)
{
    char text[32];
    fprintf(f, " %s |", report_grouped(value, text));
}

static void first_screen(FILE *f, const struct report *r, const char *date)
{
    static struct report_words w;
    char n[32], m[32];
    report_say(r, &w);
    fprintf(f, "# Tolerance report\n\n**%s**\n\n", w.verdict);
    for (int i = 0; i < w.n_sure; i++) fprintf(f, "- %s\n", w.sure[i]);
    fprintf(f, "\n%s cases, %s refused; ", report_grouped(r->total.cases, n),
            report_grouped(r->total.refused, m));
    fprintf(f, "%s checks; refusals agreed on ", report_grouped(report_checks(&r->total), n));
    fprintf(f, "%s random geometries.\n", report_grouped(r->geometries, n));
    for (size_t i = 0; i < r->n_backends; i++)
        fprintf(f, "%s%s", i ? ", " : "Backends: ", r->backends[i].name);
    for (size_t i = 0; i < r->n_seeds; i++)
        fprintf(f, "%s%s", i ? ", " : "; seeds: ", r->seeds[i].text);
    for (size_t i = 0; i < r->n_tiers; i++)
        fprintf(f, "%s%s", i ? ", " : "; tiers: ", r->tiers[i].text);
    if (*report_date(r, date)) fprintf(f, "; %s", report_date(r, date));
    fputs(".\n", f);
}

static void failures(FILE *f, const struct report *r)
{
    if (!r->n_failures) return;
    fprintf(f, "\n## Failures: %zu\n\n", r->n_failures);
    for (size_t i = 0; i < r->n_failures && i < FAILURES_SHOWN; i++) {
        fprintf(f, "- `");
        plain(f, r->failures[i].case_text);
        fprintf(f, "`\n  %s %s on %s\n", verdict_names[r->failures[i].verdict],
                r->failures[i].check, r->failures[i].backend);
    }
    if (r->n_failures > FAILURES_SHOWN)
        fprintf(f, "\n%zu more are not shown.\n", r->n_failures - FAILURES_SHOWN);
}

static void changes(FILE *f, const struct report_changes *c)
{
    if (!c->baseline) return;
    fprintf(f, "\n## Against the baseline\n\n`%s`: %zu worse, %zu only worth knowing.\n",
            c->baseline, c->n_worse, c->count - c->n_worse);
    if (!c->count) return;
    fputs("\n| | where | what | before | now |\n|---|---|---|---|---|\n", f);
    for (size_t i = 0; i < c->count; i++) {
        const struct report_change *x = &c->items[i];
        fprintf(f, "| %s | ", x->worse ? "**worse**" : "note");
        plain(f, x->where);
        fprintf(f, " | %s | ", x->what);
        plain(f, x->before);
        fputs(" | ", f);
        plain(f, x->now);
        fputs(" |\n", f);
    }
}

static void row(FILE *f, const struct report_counts *c, const char *ratio)
{
    char n[32], m[32];
    bool errors = report_has_errors(c), rows = report_has_rows(c);
    counted(f, c->cases);
    counted(f, c->failed + c->errors);
    counted(f, c->refused);
    counted(f, c->compared);
    fprintf(f, " %s | %s | %s |", ratio, errors ? report_small(c->max_ulp, n) : "-",
            errors ? report_percent(c->nearest, c->compared, m) : "-");
    if (rows)
        fprintf(f, " %" PRIu64 " / %" PRIu64 " |\n", c->identical, c->equivalent);
    else
        fputs(" - |\n", f);
}

static void operations(FILE *f, const struct report *r)
{
    char text[32];
    fputs("\n## Operations and regimes\n\n"
          "| operation | contract | cases | failed | refused | judged elements | worst err/E "
          "| worst ulp | correctly rounded | rows identical / equivalent |\n"
          "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
          f);
    for (size_t i = 0; i < r->n_ops; i++) {
        const struct report_op *o = &r->ops[i];
        const struct op *op = op_find(o->name, strlen(o->name));
        fprintf(f, "| `");
        plain(f, o->name);
        fprintf(f, "` | %s |", op ? contract_name(op->contract) : "unknown");
        row(f, &o->total, report_ratio(o, text));
        for (size_t k = 0; k < o->n_regimes; k++) {
            const struct report_counts *c = &o->regimes[k].counts;
            fputs("| · ", f);
            plain(f, o->regimes[k].name);
            fputs(" | |", f);
            row(f, c, report_has_errors(c) ? report_small(c->worst_ratio, text) : "-");
        }
    }
}

static void bins(FILE *f, const struct report *r, const char *title, size_t offset, int n,
                 const char *(*name)(int))
{
    bool any = false;
    for (size_t i = 0; i < r->n_ops; i++) {
        const uint64_t *counts =
            (const uint64_t *)(const void *)((const char *)&r->ops[i].total.spread + offset);
        uint64_t sum = 0;
        for (int k = 0; k < n; k++) sum += counts[k];
        if (!sum) continue;
        if (!any) {
            fprintf(f, "\n%s:\n\n| operation |", title);
            for (int k = 0; k < n; k++) fprintf(f, " %s |", name(k));
            fputs("\n|---|", f);
            for (int k = 0; k < n; k++) fputs("---:|", f);
            fputc('\n', f);
        }
        any = true;
        fputs("| `", f);
        plain(f, r->ops[i].name);
        fputs("` |", f);
        for (int k = 0; k < n; k++) counted(f, counts[k]);
        fputc('\n', f);
    }
}

static void refusals(FILE *f, const struct report *r)
{
    fputs("\n## Refusals by rule\n\n| operation | rule | geometries | cases |\n"
          "|---|---|---:|---:|\n",
          f);
    for (size_t i = 0; i < r->n_ops; i++) {
        for (size_t k = 0; k < r->ops[i].n_rules; k++) {
            fputs("| `", f);
            plain(f, r->ops[i].name);
            fputs("` | ", f);
            plain(f, r->ops[i].rules[k].name);
            fputs(" |", f);
            counted(f, r->ops[i].rules[k].geometries);
            counted(f, r->ops[i].rules[k].cases);
            fputc('\n', f);
        }
    }
}

static void checks(FILE *f, const struct report *r)
{
    fputs("\n## Checks made\n\n| operation |", f);
    for (int k = 0; k < CHECK_COUNT; k++) fprintf(f, " %s |", check_names[k]);
    fputs("\n|---|", f);
    for (int k = 0; k < CHECK_COUNT; k++) fputs("---:|", f);
    for (size_t i = 0; i < r->n_ops; i++) {
        fputs("\n| `", f);
        plain(f, r->ops[i].name);
        fputs("` |", f);
        for (int k = 0; k < CHECK_COUNT; k++) counted(f, r->ops[i].total.checks[k]);
    }
    fputc('\n', f);
}

static void broken(FILE *f, const struct report *r)
{
    if (!r->n_broken) return;
    fprintf(f,
            "\n## Broken kernels: %zu of %zu caught\n\n"
            "| kernel | kind | like | caught by | cases | seconds | backend | what is wrong |\n"
            "|---|---|---|---|---:|---:|---|---|\n",
            r->n_caught, r->n_broken);
    for (size_t i = 0; i < r->n_broken; i++) {
        const struct report_broken *b = &r->broken[i];
        fputs("| `", f);
        plain(f, b->name);
        fprintf(f, "` | %s | %s | ", b->kind, b->like);
        if (b->verdict == VERDICT_FAIL)
            plain(f, b->check);
        else
            fprintf(f, "**%s**", report_outcome(b));
        fputs(" |", f);
        counted(f, b->cases);
        fprintf(f, " %.2f | %s | ", b->seconds, b->backend);
        plain(f, b->bug);
        fputs(" |\n", f);
    }
}

static void coverage(FILE *f, const struct report *r)
{
    char text[32];
    if (!r->n_files) return;
    fputs("\n## Coverage of the kernels by the corpora\n\n"
          "| file | lines | covered | branches | taken | lines never reached |\n"
          "|---|---:|---:|---:|---:|---|\n",
          f);
    for (size_t i = 0; i < r->n_files; i++) {
        fputs("| `", f);
        plain(f, r->files[i].name);
        fputs("` |", f);
        counted(f, r->files[i].lines);
        fprintf(f, " %s |", report_percent(r->files[i].covered, r->files[i].lines, text));
        counted(f, r->files[i].branches);
        fprintf(f, " %s | %s |\n",
                r->files[i].branches
                    ? report_percent(r->files[i].taken, r->files[i].branches, text)
                    : "",
                r->files[i].open_lines[0] ? r->files[i].open_lines : "none");
    }
}

static void timings(FILE *f, const struct report *r)
{
    if (!r->n_timings) return;
    fputs("\n## Times against limits\n\n| operation | median us | least | most | limit us "
          "| times limit | device | case |\n|---|---:|---:|---:|---:|---:|---|---|\n",
          f);
    for (size_t i = 0; i < r->n_timings; i++) {
        const struct report_timing *t = &r->timings[i];
        fputs("| `", f);
        plain(f, t->op);
        fprintf(f, "` | %.2f | %.2f | %.2f |", t->median_us, t->least_us, t->most_us);
        if (t->limit_us > 0)
            fprintf(f, " %.2f | %.2f | ", t->limit_us, t->median_us / t->limit_us);
        else
            fputs(" - | - | ", f);
        plain(f, t->device[0] ? t->device : t->backend);
        fputs(" | `", f);
        plain(f, t->case_text);
        fputs("` |\n", f);
    }
}

char *report_markdown(const struct report *r, const struct report_changes *c, const char *date)
{
    char *page = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&page, &size);
    if (!f) return NULL;
    first_screen(f, r, date);
    failures(f, r);
    changes(f, c);
    operations(f, r);
    bins(f, r, "Elements by err/E", offsetof(struct distribution, ratio), RATIO_BINS,
         distribution_ratio_name);
    bins(f, r, "Elements by distance from the exact value in ulp",
         offsetof(struct distribution, ulp), ULP_BINS, distribution_ulp_name);
    bins(f, r, "Selected rows by boundary margin over 2E", offsetof(struct distribution, margin),
         MARGIN_BINS, distribution_margin_name);
    refusals(f, r);
    checks(f, r);
    broken(f, r);
    coverage(f, r);
    timings(f, r);
    if (fclose(f) == 0) return page;
    free(page);
    return NULL;
}
