/* What became of one case. Plain data: it crosses a pipe from a worker process. */
#ifndef ATTEST_RESULT_H
#define ATTEST_RESULT_H

#include <stdbool.h>
#include <stdint.h>

#include "harness/judge/departures.h"
#include "harness/judge/distribution.h"

enum verdict {
    VERDICT_PASS,
    VERDICT_FAIL,    /* the kernel or launcher is wrong */
    VERDICT_REFUSED, /* launcher and oracle agree that the case is invalid; nothing ran */
    VERDICT_ERROR    /* nothing could be said: infrastructure, or nothing was compared */
};

/* The checks of contracts.md §3. */
enum check {
    CHECK_REFUSAL,     /* launcher and oracle accept and refuse the same */
    CHECK_GUARD,       /* no access outside a buffer: fences, red zones, faults */
    CHECK_WRITTEN,     /* every owned element written */
    CHECK_UNTOUCHED,   /* nothing else written */
    CHECK_INPUTS,      /* inputs unchanged */
    CHECK_POISON,      /* what must not matter does not */
    CHECK_DETERMINISM, /* the same launch gives the same bits */
    CHECK_SCHEDULE,    /* any legal order of threads gives the same bits (simt) */
    CHECK_ACCESS,      /* traced: bounds, initialised, permission, races, barriers (simt) */
    CHECK_CONTRACT,    /* against the oracle */
    CHECK_RELATION,    /* metamorphic relations */
    CHECK_COUNT
};
extern const char *const check_names[CHECK_COUNT];
extern const char *const verdict_names[];

enum { RESULT_TEXT_MAX = 6000 };

struct result {
    enum verdict verdict;
    char check[64];          /* the check that failed: "contract out", "relation pages"; or a rule */
    char cause[32];          /* what the instrumented module found where numbers failed; else empty */
    char place[128];         /* source line of a finding, "file.cu:123"; empty where there is none */
    char pattern[32];        /* of the wrong elements, "all zero"; empty where none is plain */
    uint32_t checks[CHECK_COUNT]; /* how often each was made */
    uint64_t compared, nearest, unjudged;
    double worst_ratio, max_ulp;
    uint32_t identical, equivalent; /* SELECT rows */
    uint64_t departed[DEPARTURE_COUNT]; /* elements accepted as a known departure */
    struct distribution spread;     /* of the elements compared by bound and the SELECT rows */
    double seconds;          /* wall time of the whole case */
    double kernel_seconds;   /* of which in launches and waiting for them */
    uint64_t digest;         /* of the outputs of the first run: equal on every backend */
    char text[RESULT_TEXT_MAX]; /* the failure, in lines; empty on a pass */
};
/* Sets a failing or erroneous verdict with a printf-style text. Returns false. */
bool result_fail(struct result *result, enum verdict verdict, const char *check, const char *format,
                 ...) __attribute__((format(printf, 4, 5)));
#endif
