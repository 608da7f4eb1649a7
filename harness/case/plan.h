/* What a verify run does: which cases of which operations, as numbered jobs. A job is a function of
 * (plan, index) alone, so worker processes need nothing but the number. */
#ifndef ATTEST_PLAN_H
#define ATTEST_PLAN_H

#include "harness/case/item.h"
#include "harness/case/op.h"

enum job_kind {
    JOB_CASE,
    JOB_SWEEP /* refusal agreement over SWEEP_GEOMETRIES random geometries */
};
enum { SWEEP_GEOMETRIES = 1000 };

struct plan {
    const struct op *ops[64];
    uint32_t n_ops;
    uint64_t seed;
    uint64_t cases;      /* random cases an operation, beside its fixed ones */
    uint64_t geometries; /* refusal geometries an operation */
    enum tier tier;
    uint32_t shard, shards; /* this run does jobs with index % shards == shard */
    const char *const *texts; /* explicit cases instead of everything above; n_texts of them */
    uint64_t n_texts;
    /* items[i] != NULL: the i-th explicit case is this captured one, texts[i] only names it. */
    const struct captured_item *const *items;
};

struct job {
    enum job_kind kind;
    const struct op *op;
    uint32_t op_index;
    uint64_t index; /* within the operation */
};

/* How many of an operation's first cases are its fixed ones. */
uint64_t plan_fixed_cases(const struct op *op);
uint64_t plan_jobs(const struct plan *plan);
struct job plan_job(const struct plan *plan, uint64_t index);
/* Makes the job's case. False with a message for an explicit text that does not parse. */
bool plan_case(const struct plan *plan, const struct job *job, struct case_line *c, char *error,
               size_t error_size);
/* The n-th random geometry of a sweep. */
void plan_wild(const struct plan *plan, const struct job *job, uint32_t n, struct case_line *c);
#endif
