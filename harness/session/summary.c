#include "harness/session/summary.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void summary_add(struct op_summary *s, const struct job *job, const struct result *r)
{
    for (int i = 0; i < CHECK_COUNT; i++) {
        s->checks[i] += r->checks[i];
        s->checks_total += r->checks[i];
    }
    if (job->kind == JOB_SWEEP) {
        s->geometries += r->checks[CHECK_REFUSAL];
        s->geometries_refused += r->compared;
        s->failed += r->verdict == VERDICT_FAIL;
        s->errors += r->verdict == VERDICT_ERROR;
        return;
    }
    s->cases++;
    s->passed += r->verdict == VERDICT_PASS;
    s->failed += r->verdict == VERDICT_FAIL;
    s->refused += r->verdict == VERDICT_REFUSED;
    s->errors += r->verdict == VERDICT_ERROR;
    s->compared += r->compared;
    s->nearest += r->nearest;
    s->unjudged += r->unjudged;
    s->identical += r->identical;
    s->equivalent += r->equivalent;
    if (r->verdict == VERDICT_PASS && r->worst_ratio > s->worst_ratio)
        s->worst_ratio = r->worst_ratio;
    if (r->verdict == VERDICT_PASS && r->max_ulp > s->max_ulp) s->max_ulp = r->max_ulp;
    for (int i = 0; i < DEPARTURE_COUNT; i++) s->departed[i] += r->departed[i] != 0;
    s->seconds += r->seconds;
    s->kernel_seconds += r->kernel_seconds;
}

struct op_summary summary_total(const struct summary *s)
{
    struct op_summary t;
    memset(&t, 0, sizeof t);
    for (uint32_t i = 0; i < s->n_ops; i++) {
        const struct op_summary *o = &s->ops[i];
        t.planned += o->planned;
        t.cases += o->cases;
        t.passed += o->passed;
        t.failed += o->failed;
        t.refused += o->refused;
        t.errors += o->errors;
        t.checks_total += o->checks_total;
        t.geometries += o->geometries;
        t.geometries_refused += o->geometries_refused;
        t.compared += o->compared;
        for (int k = 0; k < CHECK_COUNT; k++) t.checks[k] += o->checks[k];
        for (int k = 0; k < DEPARTURE_COUNT; k++) t.departed[k] += o->departed[k];
    }
    return t;
}

static void ratio_text(const struct op_summary *s, char *text, size_t size)
{
    if (s->op->contract == CONTRACT_EXACT)
        snprintf(text, size, "bit-exact");
    else if (!s->compared)
        snprintf(text, size, "-");
    else
        snprintf(text, size, "%.3f", s->worst_ratio);
}

static const char *good_verdict(const struct op_summary *o)
{
    if (o->cases < o->planned) return "...";
    if (!o->cases) return "no cases";
    return o->cases == o->refused ? "refused" : "ok";
}

void summary_print(const struct summary *s, FILE *stream, bool colour)
{
    fprintf(stream, "%-28s %-7s %13s %10s %10s %14s  %s\n", "operation", "claim", "cases", "checks",
            "err/E", "refusals", "verdict");
    for (uint32_t i = 0; i < s->n_ops; i++) {
        const struct op_summary *o = &s->ops[i];
        char ratio[32], cases[48], refusals[48];
        bool bad = o->failed || o->errors;
        ratio_text(o, ratio, sizeof ratio);
        snprintf(cases, sizeof cases, "%" PRIu64 "/%" PRIu64, o->cases, o->planned);
        snprintf(refusals, sizeof refusals, "%" PRIu64 "/%" PRIu64, o->geometries_refused,
                 o->geometries);
        fprintf(stream, "%-28s %-7s %13s %10" PRIu64 " %10s %14s  ", o->op->name,
                contract_name(o->op->contract), cases, o->checks_total, ratio, refusals);
        if (bad)
            fprintf(stream, "%s%" PRIu64 " FAILED%s\n", colour ? "\033[31m" : "",
                    o->failed + o->errors, colour ? "\033[0m" : "");
        else
            fprintf(stream, "%s%s%s\n", colour ? "\033[32m" : "", good_verdict(o),
                    colour ? "\033[0m" : "");
    }
}

static void report_body(const struct summary *s, const struct plan *plan, const char *backend,
                        double wall, FILE *f)
{
    struct op_summary t = summary_total(s);
    fprintf(f, "# Verification report\n\n");
    fprintf(f,
            "%s: %" PRIu64 " cases on the %s backend, %" PRIu64 " passed, %" PRIu64
            " failed, %" PRIu64 " refused by both sides, %" PRIu64 " errors.\n"
            "%" PRIu64 " checks; %" PRIu64 " output elements judged; refusals agreed on %" PRIu64
            " random geometries (%" PRIu64 " of them refused).\n"
            "Seed %" PRIu64 ", %s tier, %.0f s.\n\n",
            t.failed || t.errors ? "**Not right**" : "**Right**", t.cases, backend, t.passed,
            t.failed, t.refused, t.errors, t.checks_total, t.compared, t.geometries,
            t.geometries_refused, plan->seed, plan->tier == TIER_FULL ? "full" : "quick", wall);
    fprintf(f, "| operation | contract | cases | failed | judged elements | worst err/E | worst ulp "
               "| correctly rounded | refusals agreed |\n|---|---|---|---|---|---|---|---|---|\n");
    for (uint32_t i = 0; i < s->n_ops; i++) {
        const struct op_summary *o = &s->ops[i];
        char ratio[32], ulp[32] = "0", nearest[32] = "all";
        ratio_text(o, ratio, sizeof ratio);
        if (o->op->contract != CONTRACT_EXACT && o->compared) {
            snprintf(ulp, sizeof ulp, "%.2f", o->max_ulp);
            snprintf(nearest, sizeof nearest, "%.2f %%",
                     100.0 * (double)o->nearest / (double)o->compared);
        }
        fprintf(f, "| `%s` | %s | %" PRIu64 " | %" PRIu64 " | %" PRIu64 " | %s | %s | %s | %" PRIu64
                   " of %" PRIu64 " |\n",
                o->op->name, contract_name(o->op->contract), o->cases, o->failed + o->errors,
                o->compared, ratio, ulp, nearest, o->geometries, o->geometries);
    }
    fprintf(f, "\nChecks made:\n\n| operation |");
    for (int k = 0; k < CHECK_COUNT; k++) fprintf(f, " %s |", check_names[k]);
    fprintf(f, "\n|---|");
    for (int k = 0; k < CHECK_COUNT; k++) fprintf(f, "---|");
    for (uint32_t i = 0; i < s->n_ops; i++) {
        fprintf(f, "\n| `%s` |", s->ops[i].op->name);
        for (int k = 0; k < CHECK_COUNT; k++) fprintf(f, " %" PRIu64 " |", s->ops[i].checks[k]);
    }
    fprintf(f, "\n");
}

bool summary_report(const struct summary *s, const struct plan *plan, const char *backend,
                    double wall, const char *path, char *error, uint32_t error_size)
{
    char temporary[4096];
    snprintf(temporary, sizeof temporary, "%s.tmp.%ld", path, (long)getpid());
    FILE *f = fopen(temporary, "w");
    if (!f) {
        snprintf(error, error_size, "cannot write %s: %s", temporary, strerror(errno));
        return false;
    }
    report_body(s, plan, backend, wall, f);
    bool fine = !ferror(f) && fflush(f) == 0 && fsync(fileno(f)) == 0;
    fine = fclose(f) == 0 && fine;
    if (fine && rename(temporary, path) == 0) return true;
    snprintf(error, error_size, "cannot write %s: %s", path, strerror(errno));
    unlink(temporary);
    return false;
}
