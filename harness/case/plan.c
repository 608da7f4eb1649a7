#include "harness/case/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t plan_fixed_cases(const struct op *op)
{
    uint64_t n = 0;
    while (op->always && op->always[n]) n++;
    return n;
}

static uint64_t random_cases(const struct plan *plan, const struct op *op)
{
    return plan->cases * (op->weight ? op->weight : 1);
}

static uint64_t sweeps(const struct plan *plan, const struct op *op)
{
    return op->wild ? (plan->geometries + SWEEP_GEOMETRIES - 1) / SWEEP_GEOMETRIES : 0;
}

static uint64_t op_jobs(const struct plan *plan, const struct op *op)
{
    return plan_fixed_cases(op) + random_cases(plan, op) + sweeps(plan, op);
}

static uint64_t all_jobs(const struct plan *plan)
{
    uint64_t n = 0;
    if (plan->texts) return plan->n_texts;
    for (uint32_t i = 0; i < plan->n_ops; i++) n += op_jobs(plan, plan->ops[i]);
    return n;
}

uint64_t plan_jobs(const struct plan *plan)
{
    uint64_t n = all_jobs(plan);
    if (plan->shards < 2) return n;
    return n / plan->shards + (n % plan->shards > plan->shard);
}

struct job plan_job(const struct plan *plan, uint64_t index)
{
    if (plan->shards > 1) index = index * plan->shards + plan->shard;
    if (plan->texts) return (struct job){JOB_CASE, NULL, 0, index};
    uint32_t i = 0;
    while (index >= op_jobs(plan, plan->ops[i])) index -= op_jobs(plan, plan->ops[i++]);
    const struct op *op = plan->ops[i];
    uint64_t cases = plan_fixed_cases(op) + random_cases(plan, op);
    if (index < cases) return (struct job){JOB_CASE, op, i, index};
    return (struct job){JOB_SWEEP, op, i, index - cases};
}

static uint32_t op_stream(const struct op *op)
{
    uint32_t hash = 2166136261u;
    for (const char *p = op->name; *p; p++) hash = (hash ^ (uint8_t)*p) * 16777619u;
    return hash;
}

bool plan_case(const struct plan *plan, const struct job *job, struct case_line *c, char *error,
               size_t error_size)
{
    if (!job->op && plan->items && plan->items[job->index]) {
        *c = plan->items[job->index]->c;
        return true;
    }
    if (!job->op) return case_parse(plan->texts[job->index], c, error, error_size);
    uint64_t fixed = plan_fixed_cases(job->op);
    if (job->index < fixed) return case_parse(job->op->always[job->index], c, error, error_size);
    uint64_t index = job->index - fixed;
    struct rng r = {plan->seed + index * 0x9e3779b97f4a7c15u, op_stream(job->op), 0};
    case_init(c, job->op);
    job->op->sample(c, &r, plan->tier, index);
    case_set_int(c, "seed", (int64_t)((uint64_t)rng_u32(&r) << 16 | (rng_u32(&r) & 0xffff)));
    return true;
}

void plan_wild(const struct plan *plan, const struct job *job, uint32_t n, struct case_line *c)
{
    uint64_t index = job->index * SWEEP_GEOMETRIES + n;
    struct rng r = {plan->seed + index * 0x9e3779b97f4a7c15u, ~op_stream(job->op), 0};
    case_init(c, job->op);
    op_sample_wild(c, &r);
}
