#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/case/op.h"
#include "harness/report/html.h"
#include "harness/report/words.h"

static void number(FILE *f, const char *text)
{
    fprintf(f, "<td class=\"n\">%s</td>", text);
}

static void count(FILE *f, uint64_t value)
{
    char text[32];
    number(f, report_grouped(value, text));
}

static void code(FILE *f, const char *text)
{
    fputs("<td><code>", f);
    html_text(f, text);
    fputs("</code></td>", f);
}

/* A distribution in a line: a cell a bin, its shade by the count's power of ten below the largest.
 */
static void strip(FILE *f, const uint64_t *bins, int n, int n_bad, const char *(*name)(int))
{
    uint64_t largest = 0;
    for (int i = 0; i < n; i++) largest = bins[i] > largest ? bins[i] : largest;
    if (!largest) {
        fputs("<td>-</td>", f);
        return;
    }
    fputs("<td><span class=\"strip\" title=\"", f);
    for (int i = 0; i < n; i++) {
        if (!bins[i]) continue;
        html_text(f, name(i));
        fprintf(f, ": %" PRIu64 "; ", bins[i]);
    }
    fputs("\">", f);
    for (int i = 0; i < n; i++) {
        int shade = bins[i] ? 6 - (int)fmin(log10((double)largest / (double)bins[i]), 5) : 0;
        if (bins[i] && i >= n - n_bad)
            fputs("<i class=\"x\"></i>", f);
        else if (shade == 6)
            fputs("<i></i>", f);
        else
            fprintf(f, "<i class=\"c%d\"></i>", shade);
    }
    fputs("</span></td>", f);
}

static const char *contract_of(const struct report_op *o)
{
    const struct op *op = op_find(o->name, strlen(o->name));
    return op ? contract_name(op->contract) : "unknown";
}

static void status(FILE *f, const struct report_counts *c, uint64_t sweeps_failed)
{
    if (c->failed || sweeps_failed)
        fprintf(f, "<td><span class=\"bad\">%" PRIu64 " failed</span></td>",
                c->failed + sweeps_failed);
    else if (c->errors)
        fprintf(f, "<td><span class=\"warn\">%" PRIu64 " errors</span></td>", c->errors);
    else if (!c->compared)
        fputs("<td><span class=\"warn\">nothing judged</span></td>", f);
    else
        fputs("<td><span class=\"good\">right</span></td>", f);
}

static void error_cells(FILE *f, const struct report_counts *c)
{
    char text[32];
    if (!report_has_errors(c)) {
        fputs("<td class=\"n\">-</td><td class=\"n\">-</td>", f);
        return;
    }
    number(f, report_small(c->max_ulp, text));
    number(f, report_percent(c->nearest, c->compared, text));
}

void html_operations(FILE *f, const struct report *r)
{
    char text[32];
    fputs("<section id=\"operations\"><h2>Operations</h2>\n", f);
    html_table(f, "Operations",
               "operation|contract|verdict|#cases|#refused|#judged elements|"
               "#worst err/E|err/E|#worst ulp|#correctly rounded|refusals agreed");
    for (size_t i = 0; i < r->n_ops; i++) {
        const struct report_op *o = &r->ops[i];
        fputs("<tr>", f);
        code(f, o->name);
        fprintf(f, "<td>%s</td>", contract_of(o));
        status(f, &o->total, o->sweeps_failed);
        count(f, o->total.cases);
        count(f, o->total.refused);
        count(f, o->total.compared);
        number(f, report_ratio(o, text));
        strip(f, o->total.spread.ratio, RATIO_BINS, 1, distribution_ratio_name);
        error_cells(f, &o->total);
        fprintf(f, "<td>%s of ", report_grouped(o->geometries_refused, text));
        fprintf(f, "%s</td></tr>\n", report_grouped(o->geometries, text));
    }
    html_table_end(f);
    fputs("</section>\n", f);
}

static void plot(FILE *f, const char *svg, const char *caption, const char *style)
{
    if (!svg) return;
    fprintf(f, "<figure%s role=\"img\" aria-label=\"%s\">%s<figcaption>%s</figcaption></figure>\n",
            style, caption, svg, caption);
}

static void op_plots(FILE *f, char *const *svg)
{
    static const char *const captions[PLOT_KINDS] = {
        [PLOT_RATIO] = "Elements by share of the error bound",
        [PLOT_ULP] = "Elements by distance from the exact value",
        [PLOT_MARGIN] = "Selected rows by boundary margin"};
    bool any = false;
    for (int k = 0; k < PLOT_KINDS; k++) {
        if (!svg[k]) continue;
        if (!any) fputs("<div class=\"plots\">\n", f);
        any = true;
        plot(f, svg[k], captions[k], "");
    }
    if (any) fputs("</div>\n", f);
}

static void regime_row(FILE *f, const struct report_regime *g, bool errors, bool rows)
{
    const struct report_counts *c = &g->counts;
    char text[32];
    fputs("<tr><td>", f);
    html_text(f, g->name);
    fputs("</td>", f);
    status(f, c, 0);
    count(f, c->cases);
    count(f, c->compared);
    if (errors) {
        number(f, report_has_errors(c) ? report_small(c->worst_ratio, text) : "-");
        strip(f, c->spread.ratio, RATIO_BINS, 1, distribution_ratio_name);
        error_cells(f, c);
        strip(f, c->spread.ulp, ULP_BINS, 0, distribution_ulp_name);
        count(f, c->unjudged);
    }
    if (rows) {
        count(f, c->identical);
        count(f, c->equivalent);
        strip(f, c->spread.margin, MARGIN_BINS, 0, distribution_margin_name);
    }
    fputs("</tr>\n", f);
}

static void regimes(FILE *f, const struct report_op *o)
{
    bool errors = report_has_errors(&o->total), rows = report_has_rows(&o->total);
    char columns[256];
    snprintf(columns, sizeof columns, "regime|verdict|#cases|#judged%s%s",
             errors ? "|#worst err/E|err/E|#worst ulp|#correctly rounded|ulp|#left open" : "",
             rows ? "|#rows identical|#equivalent|margin" : "");
    fprintf(f, "<details><summary>%zu regime%s</summary>\n", o->n_regimes,
            o->n_regimes == 1 ? "" : "s");
    html_table(f, o->name, columns);
    for (size_t i = 0; i < o->n_regimes; i++) regime_row(f, &o->regimes[i], errors, rows);
    html_table_end(f);
    if (o->total.worst_case) {
        fputs("<p class=\"muted\">Worst err/E: <code>", f);
        html_text(f, o->total.worst_case);
        fputs("</code></p>\n", f);
    }
    fputs("</details>\n", f);
}

void html_errors(FILE *f, const struct report *r, const struct report_plots *plots)
{
    fputs("<section id=\"errors\"><h2>Errors and margins</h2>\n", f);
    if (plots->note[0]) {
        fputs("<p class=\"warn\">", f);
        html_text(f, plots->note);
        fputs("</p>\n", f);
    }
    for (size_t i = 0; i < r->n_ops; i++) {
        const struct report_op *o = &r->ops[i];
        fputs("<article class=\"op\"><h3><code>", f);
        html_text(f, o->name);
        fprintf(f, "</code><span class=\"contract\">%s</span></h3>\n", contract_of(o));
        if (plots->ops) op_plots(f, plots->ops[i]);
        regimes(f, o);
        fputs("</article>\n", f);
    }
    fputs("</section>\n", f);
}

static const struct report_rule *rule_of(const struct report_op *o, const char *name)
{
    for (size_t i = 0; i < o->n_rules; i++) {
        if (!strcmp(o->rules[i].name, name)) return &o->rules[i];
    }
    return NULL;
}

/* One rule with all operations from `first` on, which is the first that has it. */
static void rule_row(FILE *f, const struct report *r, size_t first, const char *name)
{
    uint64_t geometries = 0, cases = 0;
    for (size_t i = first; i < r->n_ops; i++) {
        const struct report_rule *rule = rule_of(&r->ops[i], name);
        geometries += rule ? rule->geometries : 0;
        cases += rule ? rule->cases : 0;
    }
    fputs("<tr>", f);
    code(f, name);
    count(f, geometries);
    count(f, cases);
    fputs("<td class=\"wide\">", f);
    for (size_t i = first; i < r->n_ops; i++) {
        const struct report_rule *rule = rule_of(&r->ops[i], name);
        if (!rule) continue;
        fputs(i > first ? ", " : "", f);
        html_text(f, r->ops[i].name);
        fprintf(f, " <span class=\"muted\">%" PRIu64 "</span>", rule->geometries + rule->cases);
    }
    fputs("</td></tr>\n", f);
}

void html_refusals(FILE *f, const struct report *r)
{
    fputs("<section id=\"refusals\"><h2>Refusals by rule</h2>\n"
          "<p>Geometries, drawn at random, that launcher and oracle refuse alike, each by a "
          "predicate of its own; and cases refused for what their tensors hold.</p>\n",
          f);
    html_table(f, "Refusals by rule", "rule|#geometries|#cases|by operation");
    for (size_t i = 0; i < r->n_ops; i++) {
        for (size_t k = 0; k < r->ops[i].n_rules; k++) {
            bool earlier = false;
            for (size_t j = 0; j < i; j++)
                earlier |= rule_of(&r->ops[j], r->ops[i].rules[k].name) != NULL;
            if (!earlier) rule_row(f, r, i, r->ops[i].rules[k].name);
        }
    }
    html_table_end(f);
    fputs("</section>\n", f);
}

void html_checks(FILE *f, const struct report *r)
{
    char columns[320] = "operation";
    for (int k = 0; k < CHECK_COUNT; k++) {
        size_t used = strlen(columns);
        snprintf(columns + used, sizeof columns - used, "|#%s", check_names[k]);
    }
    fputs("<section id=\"checks\"><h2>Checks made</h2>\n", f);
    html_table(f, "Checks made", columns);
    for (size_t i = 0; i < r->n_ops; i++) {
        fputs("<tr>", f);
        code(f, r->ops[i].name);
        for (int k = 0; k < CHECK_COUNT; k++) count(f, r->ops[i].total.checks[k]);
        fputs("</tr>\n", f);
    }
    html_table_end(f);
    fputs("</section>\n", f);
}

static void broken_row(FILE *f, const struct report_broken *b)
{
    const char *tone = b->verdict == VERDICT_FAIL ? "good" : "bad";
    fputs("<tr>", f);
    code(f, b->name);
    fputs("<td>", f);
    html_text(f, b->kind);
    fprintf(f, "</td><td><span class=\"%s\">%s</span></td><td>", tone, report_outcome(b));
    html_text(f, b->check);
    fputs("</td>", f);
    count(f, b->cases);
    fprintf(f, "<td class=\"n\">%.2f</td><td>", b->seconds);
    html_text(f, b->backend);
    fputs("</td><td class=\"wide\">", f);
    html_text(f, b->bug);
    fputs("</td><td>", f);
    html_text(f, b->like);
    fputs("</td></tr>\n", f);
}

/* Which checks caught how many: the first word of what each kernel was caught by. */
static void kills_by_check(FILE *f, const struct report *r)
{
    fputs("<p>Caught by", f);
    const char *comma = " ";
    for (int k = 0; k < CHECK_COUNT; k++) {
        size_t n = 0, length = strlen(check_names[k]);
        for (size_t i = 0; i < r->n_broken; i++)
            n += r->broken[i].verdict == VERDICT_FAIL &&
                 !strncmp(r->broken[i].check, check_names[k], length) &&
                 (!r->broken[i].check[length] || r->broken[i].check[length] == ' ');
        if (!n) continue;
        fprintf(f, "%s%s: %zu", comma, check_names[k], n);
        comma = ", ";
    }
    fputs(".</p>\n", f);
}

void html_broken(FILE *f, const struct report *r, const struct report_plots *plots)
{
    if (!r->n_broken) return;
    fprintf(f,
            "<section id=\"broken\"><h2>Broken kernels: %zu of %zu caught</h2>\n"
            "<p>Each is a good kernel with one mistake of a kind that has really happened.</p>\n",
            r->n_caught, r->n_broken);
    kills_by_check(f, r);
    plot(f, plots->kills, "Kernels caught against cases tried; the dashed line is all of them",
         " class=\"wide\"");
    html_table(f, "Broken kernels",
               "kernel|kind||check|#cases|#seconds|backend|what is wrong|like");
    for (size_t i = 0; i < r->n_broken; i++) {
        if (r->broken[i].verdict != VERDICT_FAIL) broken_row(f, &r->broken[i]);
    }
    for (size_t i = 0; i < r->n_broken; i++) {
        if (r->broken[i].verdict == VERDICT_FAIL) broken_row(f, &r->broken[i]);
    }
    html_table_end(f);
    fputs("</section>\n", f);
}

void html_coverage(FILE *f, const struct report *r)
{
    char text[32];
    if (!r->n_files) return;
    fputs("<section id=\"coverage\"><h2>Coverage of the kernels by the corpora</h2>\n", f);
    html_table(f, "Coverage", "file|#lines|#covered||#branches|#taken|lines never reached");
    for (size_t i = 0; i < r->n_files; i++) {
        const struct report_file *x = &r->files[i];
        fputs("<tr>", f);
        code(f, x->name);
        count(f, x->lines);
        number(f, report_percent(x->covered, x->lines, text));
        fprintf(f, "<td><span class=\"meter\"><b style=\"width:%.1f%%\"></b></span></td>",
                x->lines ? 100.0 * (double)x->covered / (double)x->lines : 0.0);
        count(f, x->branches);
        number(f, x->branches ? report_percent(x->taken, x->branches, text) : "");
        fputs("<td class=\"wide\">", f);
        html_text(f, x->open_lines[0] ? x->open_lines : "none");
        fputs("</td></tr>\n", f);
    }
    html_table_end(f);
    fputs("</section>\n", f);
}

void html_timings(FILE *f, const struct report *r)
{
    if (!r->n_timings) return;
    fputs(
        "<section id=\"timings\"><h2>Times against limits</h2>\n"
        "<p>The limit is what the device needs at least for the bytes and operations of the case, "
        "by rates measured on it.</p>\n",
        f);
    html_table(f, "Times", "operation|#median us|#least|#most|#limit us|#times limit|device|case");
    for (size_t i = 0; i < r->n_timings; i++) {
        const struct report_timing *t = &r->timings[i];
        fputs("<tr>", f);
        code(f, t->op);
        fprintf(f, "<td class=\"n\">%.2f</td><td class=\"n\">%.2f</td><td class=\"n\">%.2f</td>",
                t->median_us, t->least_us, t->most_us);
        if (t->limit_us > 0)
            fprintf(f, "<td class=\"n\">%.2f</td><td class=\"n\">%.2f</td><td>", t->limit_us,
                    t->median_us / t->limit_us);
        else
            fputs("<td class=\"n\">-</td><td class=\"n\">-</td><td>", f);
        html_text(f, t->device[0] ? t->device : t->backend);
        fputs("</td>", f);
        code(f, t->case_text);
        fputs("</tr>\n", f);
    }
    html_table_end(f);
    fputs("</section>\n", f);
}
