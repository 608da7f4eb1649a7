/* The parts of `attest bench`. */
#ifndef ATTEST_CLI_BENCH_H
#define ATTEST_CLI_BENCH_H

#include "harness/bench/bench.h"
#include "harness/bench/earlier.h"
#include "harness/session/options.h"

enum { BENCH_CASES_MAX = 128 };

struct measured {
    const struct bench_shape *shape; /* NULL for a case of the command line */
    const struct op *op;
    char text[CASE_TEXT_MAX];
    struct bench_work work;
    struct bench_time time;
    bool fine;
};

struct bench_run {
    const struct options *options;
    struct verify_context context;
    struct bench_rates rates;
    struct measured items[BENCH_CASES_MAX];
    uint32_t count, failed;
    struct earlier earlier; /* of --against FILE */
};

bool bench_on_device(const struct bench_run *b);
/* How many times as long the operation took that the item is to be held against; 0: not measured.
 */
double bench_quotient(const struct bench_run *b, const struct measured *m);
/* What comes before all items, and an item; as a table or as JSON lines. */
void bench_print_head(const struct bench_run *b);
void bench_print(const struct bench_run *b, const struct measured *m);

/* bench --checker. Prints; returns the exit code. The context's device is not open. */
int bench_checker(const struct options *o, struct verify_context *context);
/* bench --against torch: whether PyTorch is there (EXIT_PASS), and, after the items were measured,
 * what it takes for the same work. Print why where the exit code is another. */
int bench_torch_probe(void);
int bench_torch(const struct bench_run *b);
#endif
