#include "harness/fuzz/work.h"

#include <math.h>
#include <stdlib.h>

#include "harness/case/random.h"

enum { SAMPLES = 400, ALL_BUT_ONE_IN = 5 };
/* What a parameter that the sampler leaves alone may be: rare ones (spare table entries, pages of the
 * pool, appended items) that cost little each. */
enum { UNSAMPLED_LARGEST = 256 };

static double size_of(const struct case_line *c, uint32_t i)
{
    double sum = 0;
    if (c->op->params[i].kind != PARAM_LIST) return fabs((double)c->v[i].i);
    for (int64_t k = 0; k < c->v[i].i; k++) sum += fabs((double)c->list[c->v[i].list_start + k]);
    return sum;
}

static double largest_of(const struct case_line *c, uint32_t i)
{
    double largest = 0;
    if (c->op->params[i].kind != PARAM_LIST) return fabs((double)c->v[i].i);
    for (int64_t k = 0; k < c->v[i].i; k++)
        largest = fmax(largest, fabs((double)c->list[c->v[i].list_start + k]));
    return largest;
}

static bool is_extent(const struct param *p)
{
    return p->kind == PARAM_INT || p->kind == PARAM_OFFSET || p->kind == PARAM_LIST;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void draw(struct case_line *c, const struct op *op, enum tier tier, uint32_t n)
{
    struct rng r = {0x3779b97f4a7c15u + n, 0x3061, 0};
    case_init(c, op);
    op->sample(c, &r, tier, n);
}

static void learn_param(struct work_limit *limit, uint32_t i, double *sizes)
{
    qsort(sizes, SAMPLES, sizeof *sizes, ascending);
    limit->typical[i] = fmax(1, sizes[SAMPLES / 2]);
    limit->elements[i] *= 2;
    limit->largest[i] *= 2;
    if (sizes[0] < sizes[SAMPLES - 1]) return;
    limit->largest[i] = fmax(limit->largest[i] / 2, UNSAMPLED_LARGEST);
    limit->typical[i] = limit->largest[i];
}

void work_learn(struct work_limit *limit, const struct op *op, enum tier tier)
{
    static _Thread_local struct case_line c;
    static _Thread_local double sizes[CASE_PARAMS_MAX][SAMPLES], logs[SAMPLES];
    *limit = (struct work_limit){.op = op};
    for (uint32_t n = 0; n < SAMPLES; n++) {
        draw(&c, op, tier, n);
        for (uint32_t i = 0; i < op->n_params; i++) {
            sizes[i][n] = size_of(&c, i);
            limit->largest[i] = fmax(limit->largest[i], largest_of(&c, i));
            limit->elements[i] = fmax(limit->elements[i], (double)c.v[i].i);
        }
    }
    for (uint32_t i = 0; i < op->n_params; i++) learn_param(limit, i, sizes[i]);
    for (uint32_t n = 0; n < SAMPLES; n++) {
        draw(&c, op, tier, n);
        logs[n] = work_log2(limit, &c);
    }
    qsort(logs, SAMPLES, sizeof *logs, ascending);
    limit->log2_limit = logs[SAMPLES - 1 - SAMPLES / ALL_BUT_ONE_IN];
}

double work_log2(const struct work_limit *limit, const struct case_line *c)
{
    double log = 0;
    for (uint32_t i = 0; i < c->op->n_params; i++) {
        const struct param *p = &c->op->params[i];
        if (!is_extent(p)) continue;
        if (largest_of(c, i) > limit->largest[i]) return INFINITY;
        if (p->kind == PARAM_LIST && (double)c->v[i].i > limit->elements[i]) return INFINITY;
        log += log2(fmax(1, size_of(c, i) / limit->typical[i]));
    }
    return log;
}

bool work_fits(const struct work_limit *limit, const struct case_line *c)
{
    return work_log2(limit, c) <= limit->log2_limit;
}
