/* Which revision, or which of a row of modules, made a case fail. */
#ifndef ATTEST_BISECT_H
#define ATTEST_BISECT_H

#include <stdbool.h>
#include <stddef.h>

#include "harness/search/bisect_replay.h"

enum bisect_verdict {
    BISECT_GOOD,
    BISECT_BAD,   /* fails as the bad end does */
    BISECT_OTHER, /* fails in another way: says nothing about this failure */
    BISECT_NO_BUILD,
    BISECT_CANNOT_SAY, /* does not know such a case, or refuses it */
    BISECT_BROKE       /* infrastructure, twice in a row */
};
const char *bisect_verdict_name(enum bisect_verdict verdict);

struct bisect_step {
    enum bisect_verdict verdict;
    struct replay replay;
    char text[400]; /* one line on why it is not simply good */
    double seconds; /* build and replay */
};

/* A row of things to try, from the good end to the bad one, however it branches. */
struct bisect_row {
    void *row;
    /* The untried one that splits best what lies between, given what the steps so far have said;
     * NULL when none is left. The name stays valid for the whole search. */
    const char *(*next)(void *row);
    /* Tries it. True with the replay; false with the verdict BISECT_NO_BUILD or BISECT_BROKE. */
    bool (*test)(void *row, const char *name, struct bisect_step *step);
    /* Takes note of a verdict. */
    bool (*learn)(void *row, const char *name, enum bisect_verdict verdict, char *error,
                  size_t error_size);
    /* How many of those that could not be judged still lie between. */
    size_t (*left)(void *row);
    /* Called after every step, for the terminal. */
    void (*tell)(void *row, const char *name, const struct bisect_step *step);
    const volatile bool *stop;
};

enum bisect_end {
    BISECT_FOUND, /* `culprit` is the first that fails */
    BISECT_RANGE, /* it is `culprit` or one of those that could not be judged */
    BISECT_INPUT, /* the bad end does not fail, or the good one is not good */
    BISECT_FAILED /* infrastructure at an end, or stopped */
};
struct bisect_result {
    enum bisect_end end;
    const char *culprit;
    unsigned tried, unjudged;
    struct bisect_step bad; /* of the culprit */
    char error[600];
};

/* Tries the bad end, the good end, then between. */
void bisect_search(const struct bisect_row *row, const char *good, const char *bad, bool any_check,
                   struct bisect_result *result);
/* What a replay means, given the failure that is looked for (NULL: any). any_check: a failure of
 * the same kind counts, its check's first word. */
enum bisect_verdict bisect_judge(const struct replay *replay, const char *failure, bool any_check);
#endif
