#include "harness/report/html.h"

#include <stdlib.h>
#include <string.h>

#include "harness/report/words.h"

enum { FAILURES_OPEN = 4, FAILURES_SHOWN = 40 };

static void list_names(FILE *f, const char *label, const struct report_name *names, size_t count)
{
    fprintf(f, " · %s", label);
    for (size_t i = 0; i < count && i < 4; i++) {
        fputs(i ? ", " : " ", f);
        html_text(f, names[i].text);
    }
    if (count > 4) fprintf(f, " and %zu more", count - 4);
}

static void verdict(FILE *f, const struct report *r, const struct report_words *w, const char *date)
{
    static const char *const tones[] = {"right", "wrong", "blind", "uncertain"};
    static const char *const marks[] = {"✓", "✗", "!", "?"};
    enum report_state state = report_state(r);
    const char *day = report_date(r, date);
    fprintf(f,
            "<header class=\"verdict %s\"><p class=\"mark\" aria-hidden=\"true\">%s</p><div>"
            "<p class=\"kicker\">Tolerance report: are these kernels right?</p><h1>",
            tones[state], marks[state]);
    html_text(f, w->verdict);
    fputs("</h1><p class=\"muted\">", f);
    if (*day)
        html_text(f, day);
    else
        fputs("no date given", f);
    if (r->n_seeds) list_names(f, r->n_seeds > 1 ? "seeds" : "seed", r->seeds, r->n_seeds);
    if (r->n_tiers) list_names(f, r->n_tiers > 1 ? "tiers" : "tier", r->tiers, r->n_tiers);
    fputs("</p></div></header>\n", f);
}

static void figure(FILE *f, const char *name, const char *value, const char *tone,
                   const char *below)
{
    fprintf(f, "<div><dt>%s</dt><dd><span class=\"%s\">", name, tone);
    html_text(f, value);
    fputs("</span><small>", f);
    html_text(f, below);
    fputs("</small></dd></div>\n", f);
}

static void worst(FILE *f, const struct report *r)
{
    char value[32] = "-", below[128] = "no bound was needed";
    const struct report_op *op = NULL;
    for (size_t i = 0; i < r->n_ops; i++) {
        if (report_has_errors(&r->ops[i].total) &&
            (!op || r->ops[i].total.worst_ratio > op->total.worst_ratio))
            op = &r->ops[i];
    }
    if (op) {
        report_small(op->total.worst_ratio, value);
        snprintf(below, sizeof below, "of the bound E, in %s", op->name);
    }
    figure(f, "Worst error", value, "", below);
}

static void figures(FILE *f, const struct report *r)
{
    char n[32], m[32], below[160];
    fputs("<dl class=\"figures\">\n", f);
    snprintf(below, sizeof below, "%s passed, %s refused", report_grouped(r->total.passed, n),
             report_grouped(r->total.refused, m));
    figure(f, "Cases", report_grouped(r->total.cases, n), "", below);
    uint64_t flagged = r->total.failed + r->sweeps_failed + r->unsteady + r->pairs_different;
    figure(f, "Good kernels flagged", report_grouped(flagged, n), flagged ? "bad" : "good",
           flagged ? "times: bugs, or false alarms" : "no false alarm");
    if (r->n_broken) {
        snprintf(n, sizeof n, "%zu of %zu", r->n_caught, r->n_broken);
        figure(f, "Broken kernels caught", n, r->n_caught == r->n_broken ? "good" : "bad",
               "wrong on purpose");
    } else {
        figure(f, "Broken kernels caught", "not tried", "warn", "no such data");
    }
    worst(f, r);
    snprintf(below, sizeof below, "of %d kinds", CHECK_COUNT);
    figure(f, "Checks made", report_grouped(report_checks(&r->total), n), "", below);
    snprintf(below, sizeof below, "%s left open", report_grouped(r->total.unjudged, m));
    figure(f, "Elements judged", report_grouped(r->total.compared, n), "", below);
    snprintf(below, sizeof below, "of %s at random", report_grouped(r->geometries, m));
    figure(f, "Refusals agreed", report_grouped(r->geometries_refused, n), "", below);
    below[0] = 0;
    for (size_t i = 0; i < r->n_backends; i++) {
        size_t used = strlen(below);
        snprintf(below + used, sizeof below - used, "%s%s", i ? " = " : "", r->backends[i].name);
    }
    snprintf(n, sizeof n, "%zu", r->n_backends);
    if (r->n_backends > 1) snprintf(n, sizeof n, "%llu", (unsigned long long)r->pairs_equal);
    figure(f, r->n_backends > 1 ? "Cases equal bit by bit" : "Backends", n,
           r->pairs_different ? "bad" : "", below);
    fputs("</dl>\n", f);
}

static void sure(FILE *f, const struct report_words *w)
{
    fputs("<div class=\"sure\"><h2>How sure are we?</h2><ul>\n", f);
    for (int i = 0; i < w->n_sure; i++) {
        fputs("<li>", f);
        html_text(f, w->sure[i]);
        fputs("</li>\n", f);
    }
    fputs("</ul></div>\n", f);
}

static void links(FILE *f, const struct report *r, const struct report_changes *c)
{
    fputs("<nav aria-label=\"Sections\">", f);
    if (r->n_failures) fputs("<a href=\"#failures\">Failures</a>", f);
    if (c->baseline) fputs("<a href=\"#changes\">Against the baseline</a>", f);
    fputs("<a href=\"#operations\">Operations</a><a href=\"#errors\">Errors by regime</a>"
          "<a href=\"#refusals\">Refusals</a><a href=\"#checks\">Checks</a>",
          f);
    if (r->n_broken) fputs("<a href=\"#broken\">Broken kernels</a>", f);
    if (r->n_files) fputs("<a href=\"#coverage\">Coverage</a>", f);
    if (r->n_timings) fputs("<a href=\"#timings\">Timings</a>", f);
    fputs("<a href=\"#reading\">How to read this</a></nav>\n", f);
}

static void failure(FILE *f, const struct report_failure *x)
{
    fprintf(f, "<div class=\"failure\"><span class=\"bad\">%s</span> ",
            x->verdict == VERDICT_ERROR ? "ERROR" : "FAIL");
    html_text(f, x->check);
    fputs(" <span class=\"muted\">on ", f);
    html_text(f, x->backend);
    fputs("</span><br><code>", f);
    html_text(f, x->case_text);
    fputs("</code>", f);
    if (x->text[0]) {
        fputs("<pre>", f);
        html_text(f, x->text);
        fputs("</pre>", f);
    }
    fputs("</div>\n", f);
}

static void failures(FILE *f, const struct report *r)
{
    if (!r->n_failures) return;
    fprintf(f, "<section id=\"failures\"><h2>Failures: %zu</h2>\n", r->n_failures);
    for (size_t i = 0; i < r->n_failures && i < FAILURES_SHOWN; i++) {
        if (i == FAILURES_OPEN) fputs("<details><summary>More failures</summary>\n", f);
        failure(f, &r->failures[i]);
    }
    if (r->n_failures > FAILURES_OPEN) fputs("</details>\n", f);
    if (r->n_failures > FAILURES_SHOWN)
        fprintf(f, "<p>%zu more are not shown.</p>\n", r->n_failures - FAILURES_SHOWN);
    fputs("</section>\n", f);
}

static void changes(FILE *f, const struct report_changes *c)
{
    if (!c->baseline) return;
    fputs("<section id=\"changes\"><h2>Against the baseline</h2>\n<p>Compared with <code>", f);
    html_text(f, c->baseline);
    fprintf(f, "</code>: <span class=\"%s\">%zu worse</span>, %zu only worth knowing.</p>\n",
            c->n_worse ? "bad" : "good", c->n_worse, c->count - c->n_worse);
    if (c->count) {
        html_table(f, "Changes", "|where|what|#before|#now");
        for (size_t i = 0; i < c->count; i++) {
            const struct report_change *x = &c->items[i];
            fprintf(f, "<tr><td>%s</td><td>",
                    x->worse ? "<span class=\"bad\">worse</span>" : "note");
            html_text(f, x->where);
            fputs("</td><td>", f);
            html_text(f, x->what);
            fputs("</td><td class=\"n\">", f);
            html_text(f, x->before);
            fputs("</td><td class=\"n\">", f);
            html_text(f, x->now);
            fputs("</td></tr>\n", f);
        }
        html_table_end(f);
    }
    fputs("</section>\n", f);
}

static void reading(FILE *f, const struct report_plots *plots)
{
    fputs(
        "<section id=\"reading\"><h2>How to read this</h2>\n"
        "<p><b>EXACT</b> outputs must equal the oracle's in every bit. <b>BOUND</b> outputs must "
        "lie "
        "inside E, an error bound computed for each element from the arithmetic that the kernel "
        "may "
        "use; <b>err/E</b> is the least error before the final rounding that explains an element, "
        "over its bound: above 1 it is wrong. <b>ulp</b> is the distance from the exact value in "
        "units of the output format's last place; up to 1/2 is correctly rounded. <b>SELECT</b> "
        "rows "
        "are top-k sets: identical to the exact one, or equivalent, certified inside the scores' "
        "bounds. The <b>margin</b> is the gap between the last score taken and the first left out, "
        "in "
        "units of twice the row's largest E: from 1 on nothing but one set is right.</p>\n"
        "<p>Strips show a distribution from small to large in the bins of the plots, the darker "
        "the "
        "more, by powers of ten; a red cell is wrong.</p>\n",
        f);
    if (plots->note[0]) {
        fputs("<p class=\"warn\">", f);
        html_text(f, plots->note);
        fputs("</p>\n", f);
    }
    fputs("</section>\n", f);
}

char *report_html(const struct report *r, const struct report_changes *c, const char *date,
                  const struct report_plots *plots)
{
    static struct report_words words;
    char *page = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&page, &size);
    if (!f) return NULL;
    report_say(r, &words);
    fputs("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
          "<title>attest: tolerance report</title>\n<style>\n",
          f);
    fputs(report_style, f);
    fputs("</style></head>\n<body><main>\n", f);
    verdict(f, r, &words, date);
    figures(f, r);
    sure(f, &words);
    links(f, r, c);
    failures(f, r);
    changes(f, c);
    html_operations(f, r);
    html_errors(f, r, plots);
    html_refusals(f, r);
    html_checks(f, r);
    html_broken(f, r, plots);
    html_coverage(f, r);
    html_timings(f, r);
    reading(f, plots);
    fputs("</main></body></html>\n", f);
    if (fclose(f) == 0) return page;
    free(page);
    return NULL;
}
