#include <stdio.h>
#include <stdlib.h>

#include "harness/search/bisect_rows.h"

/* The untried one nearest to the middle. */
static const char *next(void *row)
{
    const struct bisect_modules *m = row;
    size_t middle = (m->good + m->bad) / 2, best = m->count;
    for (size_t i = m->good + 1; i < m->bad; i++) {
        size_t distance = i > middle ? i - middle : middle - i;
        size_t least = best > middle ? best - middle : middle - best;
        if (!m->tried[i] && (best == m->count || distance < least)) best = i;
    }
    return best < m->count ? m->files[best] : NULL;
}

static size_t index_of(const struct bisect_modules *m, const char *name)
{
    size_t i = 0;
    while (m->files[i] != name) i++;
    return i;
}

static bool test(void *row, const char *name, struct bisect_step *step)
{
    const struct bisect_modules *m = row;
    struct replay_request q = {.program = m->program,
                               .backend = m->replayed.backend,
                               .module = name,
                               .timeout_s = m->replayed.timeout_s,
                               .stop = m->replayed.stop};
    replay_case(&q, m->replayed.text, &step->replay);
    return true;
}

static bool learn(void *row, const char *name, enum bisect_verdict verdict, char *error,
                  size_t error_size)
{
    struct bisect_modules *m = row;
    size_t i = index_of(m, name);
    if (verdict == BISECT_GOOD)
        m->good = i;
    else if (verdict == BISECT_BAD)
        m->bad = i;
    else
        m->tried[i] = true;
    return true;
}

static size_t left(void *row)
{
    const struct bisect_modules *m = row;
    return m->bad - m->good - 1;
}

static void tell(void *row, const char *name, const struct bisect_step *step)
{
    printf("%-14s %6.1f s  %s%s%s\n", bisect_verdict_name(step->verdict), step->seconds, name,
           step->text[0] ? ": " : "", step->text);
    fflush(stdout);
}

bool bisect_modules_open(struct bisect_modules *m, struct bisect_row *row)
{
    m->tried = calloc(m->count, sizeof *m->tried);
    m->good = 0;
    m->bad = m->count - 1;
    *row = (struct bisect_row){m, next, test, learn, left, tell, m->replayed.stop};
    return m->tried != NULL;
}

void bisect_modules_close(struct bisect_modules *m)
{
    free(m->tried);
    m->tried = NULL;
}
