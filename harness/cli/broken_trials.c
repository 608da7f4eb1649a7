#include "harness/cli/broken_trials.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "harness/verify/verify.h"

void broken_note_case(struct result *r, const struct case_line *c, uint64_t cases)
{
    static char line[CASE_TEXT_MAX], old[RESULT_TEXT_MAX];
    case_print(c, line, sizeof line);
    snprintf(old, sizeof old, "%s", r->text);
    snprintf(r->text, sizeof r->text, "%s\n%s", line, old);
    r->compared = cases;
}

bool broken_unseen(const struct result *r)
{
    return r->verdict == VERDICT_PASS || r->verdict == VERDICT_REFUSED;
}

uint64_t broken_search(const struct trials *t, const struct trial *trial, uint64_t seed,
                       uint64_t first, struct verify_context *x, struct result *r)
{
    static struct case_line c;
    const struct op *op = op_find(trial->kernel.op, strlen(trial->kernel.op));
    struct plan plan = {.ops = {op}, .n_ops = 1, .seed = seed,
                        .cases = t->options->cases, .tier = t->options->tier};
    uint64_t jobs = plan_jobs(&plan), fixed = plan_fixed_cases(op), cases = 0;
    char error[512];
    for (uint64_t i = 0; i < jobs && (!cases || broken_unseen(r)); i++) {
        struct job job = plan_job(&plan, (i + fixed + first) % jobs);
        if (!plan_case(&plan, &job, &c, error, sizeof error)) continue;
        memset(r, 0, sizeof *r);
        verify_case(x, &c, r);
        broken_note_case(r, &c, ++cases);
    }
    return cases;
}

struct verify_context broken_context(const struct trials *t, const struct trial *trial)
{
    struct verify_context x = t->context;
    bool simt = x.backend == &gpu_backend_simt;
    x.module_file = trial->plain;
    x.module_trace = trial->traced;
    x.trace = simt && !t->options->no_trace && access(trial->traced, R_OK) == 0;
    return x;
}
