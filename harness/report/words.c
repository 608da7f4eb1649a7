#include "harness/report/words.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/base/text.h"
#include "harness/case/op.h"

char *report_grouped(uint64_t value, char text[32])
{
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%" PRIu64, value), used = 0;
    for (int i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0) text[used++] = ',';
        text[used++] = digits[i];
    }
    text[used] = 0;
    return text;
}

char *report_percent(uint64_t part, uint64_t whole, char text[32])
{
    if (!whole) {
        snprintf(text, 32, "-");
    } else if (part == whole || part == 0) {
        snprintf(text, 32, part ? "100 %%" : "0 %%");
    } else {
        double share = 100.0 * (double)part / (double)whole;
        snprintf(text, 32, "%.2f %%", fmin(fmax(share, 0.01), 99.99));
    }
    return text;
}

char *report_small(double value, char text[32])
{
    if (value != 0 && fabs(value) < 0.0005)
        snprintf(text, 32, "%.1e", value);
    else if (value < 1000)
        snprintf(text, 32, value < 10 ? "%.3f" : "%.1f", value);
    else if (value < 1e12)
        report_grouped((uint64_t)value, text);
    else
        snprintf(text, 32, "%.1e", value);
    return text;
}

bool report_has_errors(const struct report_counts *c)
{
    for (int i = 0; i < RATIO_BINS; i++) {
        if (c->spread.ratio[i]) return true;
    }
    return false;
}

bool report_has_rows(const struct report_counts *c)
{
    for (int i = 0; i < MARGIN_BINS; i++) {
        if (c->spread.margin[i]) return true;
    }
    return c->identical || c->equivalent;
}

char *report_ratio(const struct report_op *o, char text[32])
{
    const struct op *op = op_find(o->name, strlen(o->name));
    if (report_has_errors(&o->total)) return report_small(o->total.worst_ratio, text);
    snprintf(text, 32,
             op && op->contract == CONTRACT_EXACT && o->total.compared ? "bit-exact" : "-");
    return text;
}

const char *report_outcome(const struct report_broken *b)
{
    return b->verdict == VERDICT_FAIL    ? "caught"
           : b->verdict == VERDICT_ERROR ? "not run"
                                         : "MISSED";
}

uint64_t report_checks(const struct report_counts *c)
{
    uint64_t n = 0;
    for (int k = 0; k < CHECK_COUNT; k++) n += c->checks[k];
    return n;
}

static void say_wrong(const struct report *r, struct text *t)
{
    char n[32], m[32];
    text_add(t, "Not right:");
    const char *comma = "";
    if (r->total.failed) {
        text_add(t, " %s of %s cases failed", report_grouped(r->total.failed, n),
                 report_grouped(r->total.cases, m));
        comma = ",";
    }
    if (r->pairs_different) {
        text_add(t, "%s %s cases give other bits on another backend", comma,
                 report_grouped(r->pairs_different, n));
        comma = ",";
    }
    if (r->sweeps_failed) {
        text_add(t, "%s launcher and oracle refuse different geometries (%s sweeps)", comma,
                 report_grouped(r->sweeps_failed, n));
        comma = ",";
    }
    if (r->unsteady) {
        text_add(t, "%s %s cases gave another result when they ran again", comma,
                 report_grouped(r->unsteady, n));
        comma = ",";
    }
    size_t missed = r->n_broken - r->n_caught - r->n_untried;
    if (missed) text_add(t, "%s %zu broken kernels went unseen", comma, missed);
    text_add(t, ".");
}

static void say_verdict(const struct report *r, struct text *t)
{
    char n[32], m[32];
    size_t judged = 0;
    for (size_t i = 0; i < r->n_ops; i++) judged += r->ops[i].total.compared > 0;
    switch (report_state(r)) {
    case REPORT_RIGHT:
        text_add(t, "Right: %s case%s of %zu operation%s passed, none failed.",
                 report_grouped(r->total.passed, n), r->total.passed == 1 ? "" : "s", judged,
                 judged == 1 ? "" : "s");
        break;
    case REPORT_WRONG: say_wrong(r, t); break;
    case REPORT_BLIND:
        text_add(t,
                 "Not proved: %s cases passed, but %zu of %zu kernels that are wrong on purpose "
                 "went unseen.",
                 report_grouped(r->total.passed, n), r->n_broken - r->n_caught - r->n_untried,
                 r->n_broken);
        break;
    case REPORT_UNCERTAIN:
        if (r->total.errors)
            text_add(t, "Cannot say: no case failed, but %s of %s ended in an error.",
                     report_grouped(r->total.errors, n), report_grouped(r->total.cases, m));
        else if (r->n_untried)
            text_add(t, "Cannot say: no case failed, but %zu of %zu broken kernels did not run.",
                     r->n_untried, r->n_broken);
        else
            text_add(t, "Cannot say: nothing was judged.");
        break;
    }
}

static struct text sentence(struct report_words *w)
{
    return text_on(w->sure[w->n_sure++], sizeof w->sure[0]);
}

static const struct report_op *worst_op(const struct report *r)
{
    const struct report_op *worst = NULL;
    for (size_t i = 0; i < r->n_ops; i++) {
        if (report_has_errors(&r->ops[i].total) &&
            (!worst || r->ops[i].total.worst_ratio > worst->total.worst_ratio))
            worst = &r->ops[i];
    }
    return worst;
}

static void say_errors(const struct report *r, struct report_words *w)
{
    char n[32], m[32], p[32];
    const struct report_op *worst = worst_op(r);
    struct text t = sentence(w);
    text_add(&t, "%s output elements were judged against exact results",
             report_grouped(r->total.compared, n));
    if (!worst) {
        text_add(&t, ", every bit.");
        return;
    }
    text_add(&t,
             ": bit by bit, or inside an error bound proved for the case. The worst error used "
             "%s of its bound E (%s).",
             report_small(worst->total.worst_ratio, m), worst->name);
    if (r->total.unjudged)
        text_add(&t, " %s elements are left open: their bound is infinite.",
                 report_grouped(r->total.unjudged, p));
}

/* If each drawn case failed with probability p, none of n would with (1-p)^n; that is 5 % at the p
 * given here. */
static void say_chance(const struct report *r, struct report_words *w)
{
    char n[32], m[32];
    if (r->total.failed || r->drawn < 20) return;
    double p = -expm1(log(0.05) / (double)r->drawn);
    struct text t = sentence(w);
    text_add(&t,
             "None of %s cases drawn at random failed: with 95 %% confidence fewer than one in %s "
             "cases so drawn does.",
             report_grouped(r->drawn, n), report_grouped((uint64_t)(1 / p), m));
}

static void say_broken(const struct report *r, struct report_words *w)
{
    struct text t = sentence(w);
    if (!r->n_broken)
        text_add(&t, "The checks themselves were not on trial: these data hold no broken kernels.");
    else if (r->n_caught == r->n_broken)
        text_add(&t, "The same checks caught all %zu kernels that are wrong on purpose.",
                 r->n_broken);
    else
        text_add(&t, "The same checks caught %zu of %zu kernels that are wrong on purpose.",
                 r->n_caught, r->n_broken);
    if (r->n_untried) text_add(&t, " %zu did not run.", r->n_untried);
}

static void say_backends(const struct report *r, struct report_words *w)
{
    char n[32];
    struct text t = sentence(w);
    if (r->n_backends == 1 && !strcmp(r->backends[0].name, "simt"))
        text_add(&t, "Only the CPU backend ran: nothing here was run on a GPU.");
    else if (r->n_backends == 1)
        text_add(&t, "Only the %s backend ran.", r->backends[0].name);
    else
        text_add(&t,
                 "%s cases ran on more than one backend with equal bits, %" PRIu64
                 " with different ones.",
                 report_grouped(r->pairs_equal, n), r->pairs_different);
}

static void say_left_out(const struct report *r, struct report_words *w)
{
    const char *comma = "";
    struct text t = {w->sure[w->n_sure], sizeof w->sure[0], 0};
    for (uint32_t i = 0; i < op_count; i++) {
        const struct report_op *found = NULL;
        for (size_t k = 0; k < r->n_ops; k++) {
            if (!strcmp(r->ops[k].name, op_table[i]->name)) found = &r->ops[k];
        }
        if (found && found->total.compared) continue;
        text_add(&t, "%s%s", *comma ? comma : "Not verified here: ", op_table[i]->name);
        comma = ", ";
    }
    if (!*comma) return;
    text_add(&t, ".");
    w->n_sure++;
}

static void say_coverage(const struct report *r, struct report_words *w)
{
    uint64_t lines = 0, covered = 0, branches = 0, taken = 0;
    char p[32];
    if (!r->n_files) return;
    for (size_t i = 0; i < r->n_files; i++) {
        lines += r->files[i].lines;
        covered += r->files[i].covered;
        branches += r->files[i].branches;
        taken += r->files[i].taken;
    }
    struct text t = sentence(w);
    text_add(&t, "The corpora reach %s of the kernels' %" PRIu64 " lines",
             report_percent(covered, lines, p), lines);
    if (branches)
        text_add(&t, " and %s of their %" PRIu64 " branches", report_percent(taken, branches, p),
                 branches);
    text_add(&t, ".");
}

void report_say(const struct report *r, struct report_words *w)
{
    memset(w, 0, sizeof *w);
    struct text t = text_on(w->verdict, sizeof w->verdict);
    say_verdict(r, &t);
    say_errors(r, w);
    say_chance(r, w);
    say_broken(r, w);
    if (r->n_backends) say_backends(r, w);
    say_coverage(r, w);
    say_left_out(r, w);
}
