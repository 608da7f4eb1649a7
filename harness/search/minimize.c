#include "harness/search/minimize.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "harness/case/op.h"
#include "harness/case/random.h"
#include "harness/run/pool.h"

enum { CANDIDATES_MAX = 1024, RANDOM_TRIALS = 256, RANDOM_ROUNDS = 4 };

struct search {
    struct verify_context context;
    struct case_line *candidates;
    struct result *results;
    uint32_t count, first; /* candidates; the first of those that are run now */
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

/* Values that a person can follow cost less than drawn ones: zeros, small integers, all alike. */
static double enum_cost(const struct param *p, int64_t value)
{
    static const char *const easy[] = {"zeros", "exact_int", "equal"};
    for (int i = 0; i < 3; i++)
        if (!strcmp(p->names[value], easy[i])) return 0.1 * i;
    return value == p->simplest ? 0.3 : 0.5;
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
    case PARAM_REAL:
        return v->r == 1.0 ? 0 : 1;
    case PARAM_SEED:
        return 0.01 * distance(v->i, 1);
    case PARAM_ENUM:
        return enum_cost(p, v->i);
    default:
        return 4 * distance(v->i, p->simplest);
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
        case PARAM_LIST:
            shrink_list(s, base, i);
            break;
        case PARAM_INT:
        case PARAM_OFFSET:
            shrink_integer(s, base, i);
            break;
        case PARAM_ENUM:
            for (int64_t value = 0; p->names[value]; value++)
                if (enum_cost(p, value) < enum_cost(p, base->v[i].i) && (c = add(s, base)))
                    c->v[i].i = value;
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

/* What one parameter alone cannot: two that depend on each other (a length and a position in it)
 * become smaller by the same amount. */
static void shrink_pair(struct search *s, const struct case_line *base, uint32_t i, uint32_t j)
{
    const struct param *p = base->op->params;
    int64_t gap_i = base->v[i].i - p[i].simplest, gap_j = base->v[j].i - p[j].simplest;
    if (gap_i <= 0 || gap_j <= 0) return;
    int64_t gap = gap_i < gap_j ? gap_i : gap_j;
    for (int64_t less = gap; less; less = less > 1 && less < 4 ? 1 : less / 4) {
        struct case_line *c = add(s, base);
        if (!c) return;
        c->v[i].i -= less;
        c->v[j].i -= less;
    }
}

static bool is_integer(const struct param *p)
{
    return p->kind == PARAM_INT || p->kind == PARAM_OFFSET;
}

static void make_pairs(struct search *s, const struct case_line *base)
{
    const struct param *p = base->op->params;
    s->count = 0;
    for (uint32_t i = 0; i < base->op->n_params; i++) {
        for (uint32_t j = i + 1; is_integer(&p[i]) && j < base->op->n_params; j++)
            if (is_integer(&p[j])) shrink_pair(s, base, i, j);
    }
}

/* Nearer to the simplest value, by a factor that is drawn. */
static int64_t draw_nearer(struct rng *r, int64_t value, int64_t simplest)
{
    int64_t gap = value - simplest;
    if (!gap || rng_one_in(r, 4)) return simplest;
    gap /= rng_range(r, 1, 1 << rng_range(r, 0, 6));
    return simplest + (gap > 1 && rng_one_in(r, 4) ? gap - 1 : gap);
}

static void draw_list(struct rng *r, struct case_line *c, uint32_t i)
{
    const struct param *p = &c->op->params[i];
    int64_t values[CASE_LIST_MAX];
    uint32_t n = (uint32_t)c->v[i].i, used = 0;
    const int64_t *old = c->list + c->v[i].list_start;
    bool shorten = rng_one_in(r, 2);
    for (uint32_t k = 0; k < n; k++) {
        if (shorten && used && rng_one_in(r, 2)) continue;
        values[used++] = rng_one_in(r, 2) ? old[k] : draw_nearer(r, old[k], p->simplest);
    }
    case_set_list(c, p->key, values, used);
}

/* What no single step reaches: several parameters smaller at once, as drawn. */
static void make_random(struct search *s, const struct case_line *base, uint32_t round)
{
    struct rng r = {case_seed(base) + round, 0x5a11, 0};
    s->count = 0;
    while (s->count < RANDOM_TRIALS) {
        struct case_line *c = add(s, base);
        for (uint32_t i = 0; i < c->op->n_params; i++) {
            const struct param *p = &c->op->params[i];
            if (rng_one_in(&r, 2)) continue;
            if (is_integer(p)) c->v[i].i = draw_nearer(&r, c->v[i].i, p->simplest);
            if (p->kind == PARAM_LIST && c->v[i].i) draw_list(&r, c, i);
            if (p->kind == PARAM_SEED) c->v[i].i = rng_range(&r, 1, 16);
        }
    }
}

static int compare_costs(const void *a, const void *b)
{
    double x = case_cost(a), y = case_cost(b);
    return (x > y) - (x < y);
}

/* The cheapest first; none that is no cheaper than the base. */
static void order_candidates(struct search *s, const struct case_line *base)
{
    double limit = case_cost(base);
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->count; i++)
        if (case_cost(&s->candidates[i]) < limit) s->candidates[n++] = s->candidates[i];
    s->count = n;
    qsort(s->candidates, n, sizeof *s->candidates, compare_costs);
}

static bool try_one(void *shared, void **state, uint64_t index, struct result *r)
{
    struct search *s = shared;
    const struct case_line *c = &s->candidates[s->first + index];
    struct ref_refusal why;
    /* Cheap first: most candidates at the edge of the rules are refused without running. */
    if (!op_ref_accepts(c, NULL, &why)) {
        r->verdict = VERDICT_REFUSED;
        return true;
    }
    verify_case(&s->context, c, r);
    return s->context.backend == &gpu_backend_simt || r->verdict == VERDICT_PASS;
}

static void keep(void *shared, uint64_t index, const struct result *r)
{
    struct search *s = shared;
    s->results[s->first + index] = *r;
}

static bool run_candidates(struct search *s, const struct minimize_options *o, uint32_t n,
                           char *error, uint32_t error_size)
{
    struct pool_config config = {.workers = o->jobs, .timeout_s = o->timeout_s, .work = try_one,
                                 .done = keep, .shared = s, .stop = o->stop};
    /* A trial that a stop leaves out must not count as one of the step before. */
    for (uint32_t i = 0; i < n; i++) s->results[s->first + i].verdict = VERDICT_ERROR;
    return pool_run(&config, n, error, error_size);
}

/* Goes through the ordered candidates, some at a time, as far as the first that fails in the same
 * way: at a released geometry a run takes seconds, and the largest step is as good as any. *found
 * is -1 if there is none. */
static bool first_failing(struct search *s, const struct minimize_options *o, double end,
                          const struct result *failure, uint64_t *trials, int *found, char *error,
                          uint32_t error_size)
{
    uint32_t batch = 4 * o->jobs;
    *found = -1;
    for (s->first = 0; s->first < s->count; s->first += batch) {
        uint32_t n = s->count - s->first < batch ? s->count - s->first : batch;
        if (now() >= end || (o->stop && *o->stop)) return true;
        if (!run_candidates(s, o, n, error, error_size)) return false;
        *trials += n;
        for (uint32_t i = s->first; i < s->first + n && *found < 0; i++)
            if (minimize_same_kind(&s->results[i], failure)) *found = (int)i;
        if (*found >= 0) return true;
    }
    return true;
}

/* One step down: a single parameter; where none will do, two together; then several at random. */
static bool step(struct search *s, const struct minimize_options *o, double end,
                 const struct case_line *c, const struct result *failure, uint64_t *trials,
                 int *found, char *error, uint32_t error_size)
{
    make_candidates(s, c);
    order_candidates(s, c);
    if (!first_failing(s, o, end, failure, trials, found, error, error_size)) return false;
    if (*found >= 0) return true;
    make_pairs(s, c);
    order_candidates(s, c);
    if (!first_failing(s, o, end, failure, trials, found, error, error_size)) return false;
    for (uint32_t round = 0; round < RANDOM_ROUNDS && *found < 0; round++) {
        make_random(s, c, round);
        order_candidates(s, c);
        if (!first_failing(s, o, end, failure, trials, found, error, error_size)) return false;
    }
    return true;
}

static bool descend(struct search *s, const struct minimize_options *o, struct case_line *c,
                    struct result *failure, uint64_t *trials, char *error, uint32_t error_size)
{
    double end = now() + o->budget_s;
    char text[CASE_TEXT_MAX];
    s->candidates[0] = *c;
    if (!run_candidates(s, o, 1, error, error_size)) return false;
    *failure = s->results[0];
    *trials = 1;
    if (failure->verdict != VERDICT_FAIL) {
        snprintf(error, error_size, "the case does not fail: %s %s %s",
                 verdict_names[failure->verdict], failure->check, failure->text);
        return false;
    }
    while (now() < end && !(o->stop && *o->stop)) {
        int found;
        if (!step(s, o, end, c, failure, trials, &found, error, error_size)) return false;
        if (found < 0) break;
        *c = s->candidates[found];
        *failure = s->results[found];
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
