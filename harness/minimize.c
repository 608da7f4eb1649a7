#include "harness/minimize.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "harness/op.h"
#include "harness/pool.h"

enum { CANDIDATES_MAX = 256 };

struct search {
    struct verify_context context;
    struct case_line *candidates;
    struct result *results;
    uint32_t count;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The first word names the check; the rest the tensor or relation. Where a relation or a contract
 * breaks first may move as the case shrinks, so only the kind must stay. */
bool minimize_same_kind(const struct result *a, const struct result *b)
{
    size_t length = strcspn(a->check, " ");
    return a->verdict == b->verdict && strcspn(b->check, " ") == length &&
           !memcmp(a->check, b->check, length);
}

static double distance(int64_t value, int64_t simplest)
{
    return log2(1.0 + fabs((double)value - (double)simplest));
}

static double value_cost(const struct case_line *c, uint32_t i)
{
    const struct param *p = &c->op->params[i];
    const struct case_value *v = &c->v[i];
    double cost = 0;
    switch (p->kind) {
    case PARAM_LIST:
        for (int64_t k = 0; k < v->i; k++)
            cost += 1 + distance(c->list[v->list_start + k], p->simplest);
        return 4 * cost;
    case PARAM_REAL: return v->r == 1.0 ? 0 : 1;
    case PARAM_SEED: return 0.01 * distance(v->i, 1);
    case PARAM_ENUM: return v->i == p->simplest ? 0 : 0.5;
    default: return 4 * distance(v->i, p->simplest);
    }
}

static double case_cost(const struct case_line *c)
{
    double cost = 0;
    for (uint32_t i = 0; i < c->op->n_params; i++) cost += value_cost(c, i);
    return cost;
}

static struct case_line *add(struct search *s, const struct case_line *base)
{
    if (s->count == CANDIDATES_MAX) return NULL;
    s->candidates[s->count] = *base;
    return &s->candidates[s->count++];
}

static void shrink_integer(struct search *s, const struct case_line *base, uint32_t i)
{
    const struct param *p = &base->op->params[i];
    int64_t value = base->v[i].i, gap = value - p->simplest;
    int64_t tries[] = {p->simplest, p->simplest + gap / 4, p->simplest + gap / 2,
                       value - (gap > 0 ? gap / 8 : -(-gap / 8)), value - (gap > 0) + (gap < 0)};
    for (int k = 0; k < 5; k++) {
        bool repeated = tries[k] == value;
        for (int j = 0; j < k; j++) repeated |= tries[j] == tries[k];
        if (repeated || tries[k] < p->min || tries[k] > p->max) continue;
        struct case_line *c = add(s, base);
        if (c) c->v[i].i = tries[k];
    }
}

static void shrink_list(struct search *s, const struct case_line *base, uint32_t i)
{
    const struct param *p = &base->op->params[i];
    int64_t values[CASE_LIST_MAX];
    uint32_t n = (uint32_t)base->v[i].i;
    const int64_t *old = base->list + base->v[i].list_start;
    for (uint32_t drop = 0; drop < n && drop < 8 && n > 1; drop++) {
        struct case_line *c = add(s, base);
        uint32_t used = 0;
        for (uint32_t k = 0; k < n; k++) {
            if (k != drop) values[used++] = old[k];
        }
        if (c) case_set_list(c, p->key, values, used);
    }
    for (uint32_t k = 0; k < n && k < 8; k++) {
        int64_t tries[] = {p->simplest, old[k] / 4, old[k] / 2, old[k] - old[k] / 8, old[k] - 1};
        for (int t = 0; t < 5; t++) {
            if (tries[t] == old[k] || tries[t] < 0) continue;
            struct case_line *c = add(s, base);
            memcpy(values, old, n * sizeof *values);
            values[k] = tries[t];
            if (c) case_set_list(c, p->key, values, n);
        }
    }
}

static void make_candidates(struct search *s, const struct case_line *base)
{
    s->count = 0;
    for (uint32_t i = 0; i < base->op->n_params; i++) {
        const struct param *p = &base->op->params[i];
        struct case_line *c;
        switch (p->kind) {
        case PARAM_LIST: shrink_list(s, base, i); break;
        case PARAM_INT:
        case PARAM_OFFSET: shrink_integer(s, base, i); break;
        case PARAM_ENUM:
            if (base->v[i].i != p->simplest && (c = add(s, base))) c->v[i].i = p->simplest;
            break;
        case PARAM_REAL:
            if (base->v[i].r != 1.0 && (c = add(s, base))) c->v[i].r = 1.0;
            break;
        case PARAM_SEED:
            if (base->v[i].i != 1 && (c = add(s, base))) c->v[i].i = 1;
            break;
        }
    }
}

static bool try_one(void *shared, void **state, uint64_t index, struct result *r)
{
    struct search *s = shared;
    struct ref_refusal why;
    /* Cheap first: most candidates at the edge of the rules are refused without running. */
    if (!s->candidates[index].op->ref_accepts(&s->candidates[index], NULL, &why)) {
        r->verdict = VERDICT_REFUSED;
        return true;
    }
    verify_case(&s->context, &s->candidates[index], r);
    return s->context.backend == &gpu_backend_simt || r->verdict == VERDICT_PASS;
}

static void keep(void *shared, uint64_t index, const struct result *r)
{
    struct search *s = shared;
    s->results[index] = *r;
}

static bool run_candidates(struct search *s, const struct minimize_options *o, char *error,
                           uint32_t error_size)
{
    struct pool_config config = {o->jobs, o->timeout_s, try_one, keep, NULL, s, o->stop};
    /* A trial that a stop leaves out must not count as one of the step before. */
    for (uint32_t i = 0; i < s->count; i++) s->results[i].verdict = VERDICT_ERROR;
    return pool_run(&config, s->count, error, error_size);
}

/* The cheapest candidate that fails in the same way; -1 if none is cheaper than the base. */
static int best_candidate(const struct search *s, const struct case_line *base,
                          const struct result *failure)
{
    int best = -1;
    double cost = case_cost(base);
    for (uint32_t i = 0; i < s->count; i++) {
        double candidate = case_cost(&s->candidates[i]);
        if (candidate >= cost || !minimize_same_kind(&s->results[i], failure)) continue;
        cost = candidate;
        best = (int)i;
    }
    return best;
}

static bool descend(struct search *s, const struct minimize_options *o, struct case_line *c,
                    struct result *failure, uint64_t *trials, char *error, uint32_t error_size)
{
    double end = now() + o->budget_s;
    char text[CASE_TEXT_MAX];
    s->candidates[0] = *c;
    s->count = 1;
    if (!run_candidates(s, o, error, error_size)) return false;
    *failure = s->results[0];
    *trials = 1;
    if (failure->verdict != VERDICT_FAIL) {
        snprintf(error, error_size, "the case does not fail: %s %s",
                 verdict_names[failure->verdict], failure->check);
        return false;
    }
    while (now() < end && !(o->stop && *o->stop)) {
        make_candidates(s, c);
        if (!s->count) break;
        if (!run_candidates(s, o, error, error_size)) return false;
        *trials += s->count;
        int best = best_candidate(s, c, failure);
        if (best < 0) break;
        *c = s->candidates[best];
        *failure = s->results[best];
        if (!o->progress) continue;
        case_print(c, text, sizeof text);
        fprintf(stderr, "  %s\n", text);
    }
    return true;
}

bool minimize_case(const struct verify_context *context, const struct minimize_options *o,
                   struct case_line *c, struct result *failure, uint64_t *trials, char *error,
                   uint32_t error_size)
{
    struct search s = {.context = *context};
    s.candidates = malloc(CANDIDATES_MAX * sizeof *s.candidates);
    s.results = malloc(CANDIDATES_MAX * sizeof *s.results);
    bool fine = s.candidates && s.results;
    if (!fine) snprintf(error, error_size, "no memory for %d candidates", CANDIDATES_MAX);
    fine = fine && descend(&s, o, c, failure, trials, error, error_size);
    free(s.candidates);
    free(s.results);
    return fine;
}
