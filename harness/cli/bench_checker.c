/* bench --checker: where the time of a case goes. */
#include "harness/bench/checker.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "harness/cli/bench.h"
#include "harness/session/session.h"

static double total(const struct checker_figures *f)
{
    double sum = 0;
    for (int i = 0; i < PHASE_COUNT; i++) sum += f->seconds[i];
    return sum;
}

static void print_head(const struct verify_context *x, const struct options *o)
{
    printf("%s backend, %u process%s; a case's milliseconds (%s) and their shares\n\n%-28s %6s %9s "
           "%9s %8s",
           x->backend->name, o->jobs, o->jobs == 1 ? "" : "es",
           x->backend == &gpu_backend_simt ? "processor time" : "time on the wall", "operation",
           "cases", "cases/s", "/process", "ms");
    for (int i = 0; i < PHASE_COUNT; i++) printf(" %9s", phase_names[i]);
    puts("");
}

static void print_row(const struct options *o, const char *name, const struct checker_figures *f)
{
    double sum = total(f), cases = (double)f->cases;
    printf("%-28s %6" PRIu64 " %9.1f %9.1f %8.3f", name, f->cases, cases / f->wall, cases / sum,
           1e3 * sum / cases);
    for (int i = 0; i < PHASE_COUNT; i++) printf(" %8.1f%%", 100 * f->seconds[i] / sum);
    puts("");
    fflush(stdout);
}

static void print_json(const struct verify_context *x, const struct options *o, const char *name,
                       const struct checker_figures *f)
{
    cJSON *j = cJSON_CreateObject(), *ms = cJSON_CreateObject();
    double cases = (double)f->cases;
    cJSON_AddStringToObject(j, "checker", name);
    cJSON_AddStringToObject(j, "backend", x->backend->name);
    cJSON_AddNumberToObject(j, "processes", o->jobs);
    cJSON_AddNumberToObject(j, "cases", cases);
    cJSON_AddNumberToObject(j, "cases_per_s", cases / f->wall);
    cJSON_AddNumberToObject(j, "cases_per_s_of_process", cases / total(f));
    cJSON_AddStringToObject(j, "clock",
                            x->backend == &gpu_backend_simt ? "CPU time" : "time on the wall");
    for (int i = 0; i < PHASE_COUNT; i++)
        cJSON_AddNumberToObject(ms, phase_names[i], 1e3 * f->seconds[i] / cases);
    cJSON_AddItemToObject(j, "ms_a_case", ms);
    char *text = cJSON_PrintUnformatted(j);
    if (text) puts(text);
    cJSON_free(text);
    cJSON_Delete(j);
    fflush(stdout);
}

int bench_checker(const struct options *o, struct verify_context *x)
{
    static struct plan plan;
    static struct result r;
    static const struct op *ops[sizeof plan.ops / sizeof *plan.ops];
    struct checker_figures f;
    uint32_t n_ops;
    if (!session_ops(o, ops, &n_ops)) return EXIT_USAGE;
    int code = session_probe(x);
    if (code) return code;
    plan =
        (struct plan){.seed = o->seed, .cases = o->cases, .tier = o->tier, .shards = 1, .n_ops = 1};
    x->trace = x->backend == &gpu_backend_simt && !o->no_trace;
    if (!o->json) print_head(x, o);
    for (uint32_t i = 0; i < n_ops; i++) {
        plan.ops[0] = ops[i];
        if (!checker_measure(x, &plan, o->jobs, &f, &r)) {
            fprintf(stderr, "attest: %s: %s %s\n%s", ops[i]->name, verdict_names[r.verdict],
                    r.check, r.text);
            return r.verdict == VERDICT_FAIL ? EXIT_WRONG : EXIT_INFRA;
        }
        if (!f.cases) continue; /* all of them refused */
        if (o->json)
            print_json(x, o, ops[i]->name, &f);
        else
            print_row(o, ops[i]->name, &f);
    }
    return EXIT_PASS;
}
