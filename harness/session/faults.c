#include "harness/session/faults.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/session/separate.h"

enum { OUTCOME_NONE, OUTCOME_PASSED, OUTCOME_FAULT };
/* Of each side: more would only make the sentence slower to find. */
enum { COMPARED_MAX = 2000 };

/* A place in the source is one fault, whatever numbers came of it. */
void fault_key(const struct result *r, char *key, size_t size)
{
    if (r->place[0])
        snprintf(key, size, "%s; %s", r->cause[0] ? r->cause : r->check, r->place);
    else
        snprintf(key, size, "%s%s%s", r->check, r->pattern[0] ? "; " : "", r->pattern);
}

bool faults_init(struct faults *f, uint64_t jobs)
{
    memset(f, 0, sizeof *f);
    f->jobs = jobs;
    f->outcome = calloc(jobs + 1, sizeof *f->outcome);
    return f->outcome != NULL;
}

void faults_free(struct faults *f)
{
    for (uint32_t i = 0; i < f->count; i++) {
        free(f->items[i].smallest);
        free(f->items[i].text);
    }
    free(f->outcome);
    memset(f, 0, sizeof *f);
}

/* How much a person has to look at: the digits of every number of the geometry. */
static double fault_size(const struct case_line *c)
{
    double size = 0;
    if (!c) return INFINITY;
    for (uint32_t i = 0; i < c->op->n_params; i++) {
        const struct case_value *v = &c->v[i];
        enum param_kind kind = c->op->params[i].kind;
        if (kind == PARAM_INT || kind == PARAM_OFFSET) size += log2(1 + fabs((double)v->i));
        for (int64_t k = 0; kind == PARAM_LIST && k < v->i; k++)
            size += 1 + log2(1 + fabs((double)c->list[v->list_start + k]));
    }
    return size;
}

static struct fault *find(struct faults *f, const char *key, const struct op *op, bool *is_new)
{
    uint32_t i = 0;
    while (i < f->count && (strcmp(f->items[i].key, key) || f->items[i].op != op)) i++;
    *is_new = i == f->count;
    if (i < f->count) return &f->items[i];
    if (f->count == FAULTS_MAX) {
        /* So many faults are one: nothing is right. */
        *is_new = false;
        snprintf(f->items[FAULTS_MAX - 1].key, FAULT_KEY_MAX, "further faults of many kinds");
        return &f->items[FAULTS_MAX - 1];
    }
    f->items[i] = (struct fault){.op = op, .size = INFINITY};
    snprintf(f->items[i].key, FAULT_KEY_MAX, "%s", key);
    return &f->items[f->count++];
}

static void keep_smallest(struct fault *fault, double size, const char *case_text, const char *text)
{
    if (fault->smallest && size >= fault->size) return;
    char *line = strdup(case_text), *said = strdup(text);
    if (!line || !said) {
        free(line);
        free(said);
        return;
    }
    free(fault->smallest);
    free(fault->text);
    fault->smallest = line;
    fault->text = said;
    fault->size = size;
}

bool faults_add(struct faults *f, uint64_t job, const struct op *op, const struct case_line *c,
                const char *case_text, const struct result *r)
{
    char key[FAULT_KEY_MAX];
    bool is_new;
    if (r->verdict == VERDICT_PASS) f->outcome[job] = OUTCOME_PASSED;
    if (r->verdict != VERDICT_FAIL && r->verdict != VERDICT_ERROR) return false;
    fault_key(r, key, sizeof key);
    struct fault *fault = find(f, key, op, &is_new);
    fault->verdict = r->verdict;
    fault->cases++;
    keep_smallest(fault, fault_size(c), case_text, r->text);
    f->outcome[job] = (uint8_t)(OUTCOME_FAULT + (fault - f->items));
    return is_new;
}

/* Cases are functions of the plan and their number, so nothing but outcomes had to be kept. */
static void separate_fault(const struct faults *f, uint32_t index, const struct plan *plan,
                           char *text, size_t size)
{
    struct separate_cases failing = {NULL, 0, 0}, passing = {NULL, 0, 0};
    static struct case_line c;
    char error[512];
    bool fine = true;
    for (uint64_t i = 0; fine && i < f->jobs; i++) {
        bool failed = f->outcome[i] == OUTCOME_FAULT + index;
        struct separate_cases *side = failed ? &failing : &passing;
        if ((!failed && f->outcome[i] != OUTCOME_PASSED) || side->count >= COMPARED_MAX) continue;
        struct job job = plan_job(plan, i);
        if (job.kind != JOB_CASE || (job.op && job.op != f->items[index].op)) continue;
        if (!plan_case(plan, &job, &c, error, sizeof error) || c.op != f->items[index].op) continue;
        fine = separate_add(side, &c);
    }
    text[0] = 0;
    if (fine) separate_say(f->items[index].op, &failing, &passing, text, size);
    separate_free(&failing);
    separate_free(&passing);
}

void faults_print(const struct faults *f, const struct plan *plan, const char *flags, FILE *stream)
{
    uint64_t cases = 0;
    for (uint32_t i = 0; i < f->count; i++) cases += f->items[i].cases;
    if (!f->count) return;
    fprintf(stream, "\n%u fault%s in %" PRIu64 " failing cases:\n", f->count,
            f->count == 1 ? "" : "s", cases);
    for (uint32_t i = 0; i < f->count; i++) {
        const struct fault *fault = &f->items[i];
        char where[600];
        fprintf(stream, "\n%s %u  %s: %s\n  %" PRIu64 " case%s",
                fault->verdict == VERDICT_FAIL ? "FAULT" : "ERROR", i + 1,
                fault->op ? fault->op->name : "?", fault->key, fault->cases,
                fault->cases == 1 ? "" : "s");
        separate_fault(f, i, plan, where, sizeof where);
        fprintf(stream, "%s%s\n", where[0] ? "; " : "", where);
        if (!fault->smallest) continue;
        fprintf(stream, "  smallest:\n%s  replay: attest run '%s'%s\n", fault->text, fault->smallest,
                flags);
    }
    fprintf(stream, "\n");
}
