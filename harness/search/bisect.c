#include "harness/search/bisect.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "harness/base/error_text.h"

const char *bisect_verdict_name(enum bisect_verdict verdict)
{
    static const char *const names[] = {[BISECT_GOOD] = "good",
                                        [BISECT_BAD] = "this failure",
                                        [BISECT_OTHER] = "other failure",
                                        [BISECT_NO_BUILD] = "cannot build",
                                        [BISECT_CANNOT_SAY] = "cannot say",
                                        [BISECT_BROKE] = "infrastructure"};
    return names[verdict];
}

static bool same_check(const char *a, const char *b, bool any_check)
{
    if (!any_check) return strcmp(a, b) == 0;
    size_t length = strcspn(a, " ");
    return strcspn(b, " ") == length && memcmp(a, b, length) == 0;
}

enum bisect_verdict bisect_judge(const struct replay *r, const char *failure, bool any_check)
{
    switch (r->outcome) {
    case REPLAY_RIGHT: return BISECT_GOOD;
    case REPLAY_FAILS:
        return !failure || same_check(r->check, failure, any_check) ? BISECT_BAD : BISECT_OTHER;
    case REPLAY_CANNOT_SAY: return BISECT_CANNOT_SAY;
    case REPLAY_BROKE: break;
    }
    return BISECT_BROKE;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool stopped(const struct bisect_row *row)
{
    return row->stop && *row->stop;
}

/* Infrastructure gets a second chance. */
static void try_one(const struct bisect_row *row, const char *name, const char *failure,
                    bool any_check, struct bisect_step *step)
{
    double start = now();
    for (int round = 0; round < 2; round++) {
        memset(step, 0, sizeof *step);
        if (row->test(row->row, name, step)) {
            step->verdict = bisect_judge(&step->replay, failure, any_check);
            snprintf(step->text, sizeof step->text, "%s", step->replay.why);
        }
        if (step->verdict != BISECT_BROKE || stopped(row)) break;
    }
    step->seconds = now() - start;
    row->tell(row->row, name, step);
}

static bool try_ends(const struct bisect_row *row, const char *good, const char *bad,
                     bool any_check, struct bisect_result *r)
{
    static struct bisect_step step;
    try_one(row, bad, NULL, any_check, &r->bad);
    r->end = BISECT_INPUT;
    r->tried = 2;
    r->culprit = bad;
    if (r->bad.verdict == BISECT_GOOD)
        return error_text(r->error, sizeof r->error, "the case passes at the bad end, %s", bad);
    if (r->bad.verdict != BISECT_BAD) {
        r->end = r->bad.verdict == BISECT_CANNOT_SAY ? BISECT_INPUT : BISECT_FAILED;
        return error_text(r->error, sizeof r->error, "the bad end, %s: %s: %s", bad,
                          bisect_verdict_name(r->bad.verdict), r->bad.text);
    }
    try_one(row, good, r->bad.replay.check, any_check, &step);
    if (step.verdict == BISECT_GOOD) return true;
    if (step.verdict == BISECT_NO_BUILD || step.verdict == BISECT_BROKE) r->end = BISECT_FAILED;
    return error_text(r->error, sizeof r->error, "the good end, %s, is not good: %s: %s", good,
                      bisect_verdict_name(step.verdict), step.text);
}

void bisect_search(const struct bisect_row *row, const char *good, const char *bad, bool any_check,
                   struct bisect_result *r)
{
    static struct bisect_step step;
    const char *name;
    char failure[sizeof r->bad.replay.check];
    memset(r, 0, sizeof *r);
    if (!try_ends(row, good, bad, any_check, r)) return;
    memcpy(failure, r->bad.replay.check, sizeof failure);
    r->end = BISECT_FAILED;
    while (!stopped(row) && (name = row->next(row->row))) {
        try_one(row, name, failure, any_check, &step);
        if (stopped(row)) break;
        r->tried++;
        if (!row->learn(row->row, name, step.verdict, r->error, sizeof r->error)) return;
        if (step.verdict != BISECT_BAD) continue;
        r->culprit = name;
        r->bad = step;
    }
    if (stopped(row)) {
        error_text(r->error, sizeof r->error, "stopped");
        return;
    }
    r->unjudged = (unsigned)row->left(row->row);
    r->end = r->unjudged ? BISECT_RANGE : BISECT_FOUND;
}
