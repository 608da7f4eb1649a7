#include "harness/report/seen.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/error_text.h"

struct seen_case {
    char *text;
    char op[64], backend[16];
    uint64_t hash, digest;
    enum verdict verdict;
};

struct report_seen {
    struct seen_case *slots; /* open addressing; text NULL: free */
    size_t room, used;       /* room is a power of two */
};

static uint64_t hash_text(uint64_t hash, const char *text)
{
    for (; *text; text++) hash = (hash ^ (uint8_t)*text) * 0x100000001b3u;
    return (hash ^ 0xff) * 0x100000001b3u;
}

/* The slot that holds the case, or the free one where it belongs. */
static struct seen_case *find(const struct report_seen *s, const struct seen_case *c)
{
    size_t i = c->hash & (s->room - 1);
    for (; s->slots[i].text; i = (i + 1) & (s->room - 1)) {
        const struct seen_case *at = &s->slots[i];
        if (at->hash == c->hash && !strcmp(at->text, c->text) && !strcmp(at->op, c->op) &&
            !strcmp(at->backend, c->backend))
            break;
    }
    return &s->slots[i];
}

static bool make_room(struct report_seen *s)
{
    if (2 * s->used < s->room) return true;
    struct report_seen grown = {.room = s->room ? 2 * s->room : 1024, .used = s->used};
    grown.slots = calloc(grown.room, sizeof *grown.slots);
    if (!grown.slots) return false;
    for (size_t i = 0; i < s->room; i++) {
        if (s->slots[i].text) *find(&grown, &s->slots[i]) = s->slots[i];
    }
    free(s->slots);
    *s = grown;
    return true;
}

enum seen report_seen_add(struct report_seen **seen, const char *op, const char *case_text,
                          const char *backend, enum verdict verdict, uint64_t digest)
{
    struct seen_case c = {.digest = digest, .verdict = verdict};
    if (!*seen) *seen = calloc(1, sizeof **seen);
    if (!*seen || !make_room(*seen)) return SEEN_MEMORY;
    c.text = strdup(case_text);
    if (!c.text) return SEEN_MEMORY;
    snprintf(c.op, sizeof c.op, "%s", op);
    snprintf(c.backend, sizeof c.backend, "%s", backend);
    c.hash = hash_text(hash_text(hash_text(0xcbf29ce484222325u, op), backend), case_text);
    struct seen_case *slot = find(*seen, &c);
    if (!slot->text) {
        *slot = c;
        (*seen)->used++;
        return SEEN_NEW;
    }
    free(c.text);
    return slot->verdict == verdict && slot->digest == digest ? SEEN_SAME : SEEN_OTHER;
}

static int by_case(const void *a, const void *b)
{
    const struct seen_case *x = a, *y = b;
    int order = strcmp(x->text, y->text);
    if (!order) order = strcmp(x->op, y->op);
    return order ? order : strcmp(x->backend, y->backend);
}

static bool add_pair(struct report *r, const struct seen_case *a, const struct seen_case *b)
{
    if (a->verdict != VERDICT_PASS || b->verdict != VERDICT_PASS) return true;
    if (a->digest == b->digest) {
        r->pairs_equal++;
        return true;
    }
    r->pairs_different++;
    struct report_failure *grown = report_grow(r->failures, r->n_failures, sizeof *grown);
    if (!grown) return false;
    r->failures = grown;
    struct report_failure *f = &grown[r->n_failures++];
    f->verdict = VERDICT_FAIL;
    snprintf(f->op, sizeof f->op, "%s", a->op);
    snprintf(f->backend, sizeof f->backend, "%s", b->backend);
    snprintf(f->check, sizeof f->check, "backends");
    f->case_text = strdup(a->text);
    f->text = malloc(160);
    if (!f->case_text || !f->text) return false;
    snprintf(f->text, 160,
             "  both backends pass, with other bits: %s gives digest %016" PRIx64
             ", %s gives %016" PRIx64 "\n",
             a->backend, a->digest, b->backend, b->digest);
    return true;
}

bool report_seen_finish(struct report *r, char *error, size_t size)
{
    struct report_seen *s = r->seen;
    size_t n = 0;
    bool fine = true;
    if (!s) return true;
    for (size_t i = 0; i < s->room; i++) {
        if (s->slots[i].text) s->slots[n++] = s->slots[i];
    }
    s->room = n;
    if (n) qsort(s->slots, n, sizeof *s->slots, by_case);
    /* Each backend against the first one that has the case. */
    for (size_t first = 0, i = 1; i < n && fine; i++) {
        bool same = !strcmp(s->slots[i].text, s->slots[first].text) &&
                    !strcmp(s->slots[i].op, s->slots[first].op);
        if (same)
            fine = add_pair(r, &s->slots[first], &s->slots[i]);
        else
            first = i;
    }
    report_seen_free(s);
    r->seen = NULL;
    return fine ? true : error_text(error, size, "out of memory");
}

void report_seen_free(struct report_seen *s)
{
    for (size_t i = 0; s && i < s->room; i++) free(s->slots[i].text);
    if (s) free(s->slots);
    free(s);
}
