/* How long a launch takes: on the GPU by device events, over several sets of buffers in turn so
 * that it is the memory that is measured and not the L2 cache; on the CPU backend as CPU time. */
#ifndef ATTEST_BENCH_H
#define ATTEST_BENCH_H

#include "harness/bench/shapes.h"
#include "harness/judge/result.h"
#include "harness/verify/verify.h"

/* What this device can do, measured: 0 where it was not. */
struct bench_rates {
    double bytes;  /* a second, read plus written, by a copy of 512 MiB */
    double f32;    /* lane operations a second, by chains of fma */
    double matrix; /* multiply-adds a second, by m16n8k16 bf16 instructions */
};

struct bench_time {
    double median_us, least_us, most_us; /* a launch; the spread is from the least to the most */
    uint32_t samples, launches;          /* of a sample, back to back in one graph */
    uint32_t sets;                       /* of buffers that take turns */
    bool cold; /* the sets touch more than twice the L2: what a launch reads is not there */
};

/* CUDA backend only. False with verdict and text in *result. */
bool bench_measure_rates(struct verify_context *context, struct bench_rates *rates,
                         struct result *result);
/* Builds the case, counts its work and times it. False with verdict and text in *result:
 * VERDICT_REFUSED, a finding of the launch, or an error. */
bool bench_case(struct verify_context *context, const struct case_line *c, struct bench_work *work,
                struct bench_time *time, struct result *result);
/* What no implementation on this device can beat for the counted work, by the rates measured: the
 * longer of the two times binds. 0 if nothing was measured. */
struct bench_limit {
    double memory_us, arithmetic_us, us;
    const char *bound; /* "memory" or "arithmetic" */
};
struct bench_limit bench_limit_of(const struct bench_work *work, const struct bench_rates *rates);
#endif
