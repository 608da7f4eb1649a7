/* broken --random: the sampler on trial. A stored case proves that the checks can see a wrong kernel;
 * this shows that drawn cases find it, and how soon. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cli/broken_trials.h"
#include "harness/run/pool.h"
#include "harness/verify/verify.h"

/* A kernel that needs more at the median shows a gap in the generator. */
enum { MEDIAN_MAX = 200 };

/* Job k is kernel k / seeds with the (k % seeds)-th seed. */
struct attempts {
    const struct trials *trials;
    uint32_t seeds;
    uint64_t *cases; /* [kernels, seeds] that it took; 0: not caught */
};

static bool attempt(void *shared, void **state, uint64_t index, struct result *r)
{
    struct attempts *a = shared;
    const struct trial *trial = &a->trials->items[index / a->seeds];
    struct verify_context x = broken_context(a->trials, trial);
    uint64_t seed = a->trials->options->seed + 1000 + index % a->seeds;
    /* Another place in the circle of regimes and structures for each seed. */
    broken_search(a->trials, trial, seed, seed * 61, &x, r);
    verify_close(&x);
    return x.backend == &gpu_backend_simt;
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The number of cases that the given part of the attempts got by with; UINT64_MAX: some that count
 * were not caught. Sorts. */
static uint64_t quantile(uint64_t *cases, uint32_t n, double part)
{
    for (uint32_t i = 0; i < n; i++) cases[i] = cases[i] ? cases[i] : UINT64_MAX;
    qsort(cases, n, sizeof *cases, by_size);
    uint32_t index = (uint32_t)(part * (n - 1) + 0.5);
    return cases[index];
}

static void number(uint64_t value, char *text, size_t size)
{
    if (value == UINT64_MAX) snprintf(text, size, "never");
    else snprintf(text, size, "%" PRIu64, value);
}

static void print_kernel(const struct attempts *a, uint32_t index)
{
    const struct broken *b = &a->trials->items[index].kernel;
    uint64_t *cases = a->cases + (size_t)index * a->seeds;
    uint64_t median = quantile(cases, a->seeds, 0.5), most = quantile(cases, a->seeds, 0.95);
    char middle[24], high[24];
    number(median, middle, sizeof middle);
    number(most, high, sizeof high);
    if (a->trials->options->json)
        printf("{\"kernel\":\"%s\",\"kind\":\"%s\",\"seeds\":%u,\"median\":%" PRId64
               ",\"p95\":%" PRId64 "}\n",
               b->name, b->kind, a->seeds, (int64_t)median, (int64_t)most);
    else if (!a->trials->options->quiet || median > MEDIAN_MAX)
        printf("%-34s %-7s %8s %8s%s\n", b->name, b->kind, middle, high,
               median > MEDIAN_MAX ? "  TOO MANY" : "");
}

static void keep(void *shared, uint64_t index, const struct result *r)
{
    struct attempts *a = shared;
    /* The search leaves the number of cases there. */
    a->cases[index] = r->verdict == VERDICT_FAIL ? r->compared : 0;
}

int broken_random(const struct trials *t)
{
    struct attempts a = {t, t->options->random, NULL};
    uint64_t count = (uint64_t)t->count * a.seeds;
    uint32_t slow = 0, never = 0;
    char error[256];
    a.cases = calloc(count + 1, sizeof *a.cases);
    struct pool_config config = {.workers = t->options->jobs, .timeout_s = t->options->timeout_s,
                                 .work = attempt, .done = keep, .shared = &a};
    if (!a.cases || !pool_run(&config, count, error, sizeof error)) {
        fprintf(stderr, "attest: %s\n", a.cases ? error : "out of memory");
        free(a.cases);
        return EXIT_INFRA;
    }
    FILE *f = t->options->json ? stderr : stdout;
    if (!t->options->quiet && !t->options->json)
        printf("%-34s %-7s %8s %8s\n", "kernel", "kind", "median", "95 %");
    for (uint32_t i = 0; i < t->count; i++) {
        print_kernel(&a, i);
        slow += a.cases[(size_t)i * a.seeds + a.seeds / 2] > MEDIAN_MAX;
        for (uint32_t k = 0; k < a.seeds; k++)
            never += a.cases[(size_t)i * a.seeds + k] == UINT64_MAX;
    }
    fprintf(f, "broken kernels by random cases: %u of %u within %d cases at the median of %u seeds; "
               "%u of %" PRIu64 " searches found nothing in %" PRIu64 " cases an operation\n",
            t->count - slow, t->count, MEDIAN_MAX, a.seeds, never, count, t->options->cases);
    free(a.cases);
    if (!t->count) fprintf(stderr, "attest: no broken kernel was run\n");
    return !t->count ? EXIT_INFRA : slow ? EXIT_WRONG : EXIT_PASS;
}
