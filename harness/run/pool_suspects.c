#include "harness/run/pool_suspects.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum state { WAITING, RUNNING, SETTLED, REPORTED };

struct suspect {
    uint64_t job;
    uint32_t process;
    bool closed; /* its process has ended */
    enum state state;
    struct result *together, *alone; /* alone: from SETTLED on */
};

static void add_note(struct result *r, const char *note)
{
    size_t used = strlen(r->text);
    snprintf(r->text + used, sizeof r->text - used, "%s", note);
}

static bool grow(struct suspects *s)
{
    uint32_t room = s->room ? 2 * s->room : 16;
    struct suspect *list = realloc(s->list, room * sizeof *list);
    if (!list) return false;
    s->list = list;
    s->room = room;
    return true;
}

void suspects_add(struct suspects *s, uint64_t job, uint32_t number, const struct result *together)
{
    struct result *copies = NULL;
    if (s->n < s->room || grow(s)) copies = malloc(2 * sizeof *copies);
    if (!copies) {
        s->report(s->context, job, together);
        return;
    }
    copies[0] = *together;
    s->list[s->n++] = (struct suspect){
        .job = job, .process = number, .together = &copies[0], .alone = &copies[1]};
}

bool suspects_take(struct suspects *s, uint64_t *job)
{
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->list[i].state != WAITING) continue;
        s->list[i].state = RUNNING;
        *job = s->list[i].job;
        return true;
    }
    return false;
}

bool suspects_waiting(const struct suspects *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->list[i].state == WAITING) return true;
    return false;
}

static void report(struct suspects *s, struct suspect *one, const struct result *r)
{
    one->state = REPORTED;
    s->report(s->context, one->job, r);
    free(one->together);
    one->together = one->alone = NULL;
}

static bool failed(const struct result *r)
{
    return r->verdict == VERDICT_FAIL || r->verdict == VERDICT_ERROR;
}

/* Reports the suspects of a process when the last of them has run. */
static void conclude(struct suspects *s, uint32_t number)
{
    bool explained = false;
    for (uint32_t i = 0; i < s->n; i++) {
        const struct suspect *one = &s->list[i];
        if (one->process != number || one->state == REPORTED) continue;
        if (!one->closed || one->state != SETTLED) return;
        explained = explained || failed(one->alone);
    }
    for (uint32_t i = 0; i < s->n; i++) {
        struct suspect *one = &s->list[i];
        if (one->process != number || one->state == REPORTED) continue;
        if (!explained)
            add_note(one->together,
                     "  it passed when it ran alone, and so did every case that failed beside it: "
                     "the kernel is not deterministic, or a case wrote into another's memory\n");
        report(s, one, explained ? one->alone : one->together);
    }
}

void suspects_settle(struct suspects *s, uint64_t job, const struct result *alone)
{
    for (uint32_t i = 0; i < s->n; i++) {
        struct suspect *one = &s->list[i];
        if (one->job != job || one->state != RUNNING) continue;
        *one->alone = *alone;
        one->state = SETTLED;
        conclude(s, one->process);
        return;
    }
}

void suspects_close(struct suspects *s, uint32_t number)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->list[i].process == number) s->list[i].closed = true;
    conclude(s, number);
}

void suspects_finish(struct suspects *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        struct suspect *one = &s->list[i];
        if (one->state == REPORTED) continue;
        if (one->state == SETTLED && failed(one->alone)) {
            report(s, one, one->alone);
            continue;
        }
        add_note(one->together, "  the run ended before every case that failed beside it had run "
                                "alone\n");
        report(s, one, one->together);
    }
    free(s->list);
    *s = (struct suspects){.report = s->report, .context = s->context};
}
