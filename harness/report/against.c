#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/error_text.h"
#include "harness/report/report.h"

/* What may be compared: whether something is there at all, always; figures that depend on which
 * cases were drawn, only between runs of the same cases (seeds, tiers, backends and number). */
struct against {
    const cJSON *now, *baseline;
    struct report_changes *changes;
    bool same_cases, memory_lost;
};

static const cJSON *get(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

static double number(const cJSON *object, const char *key)
{
    const cJSON *item = get(object, key);
    if (cJSON_IsString(item) && !strcmp(item->valuestring, "inf")) return INFINITY;
    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

static const char *text(const cJSON *object, const char *key)
{
    const cJSON *item = get(object, key);
    return cJSON_IsString(item) ? item->valuestring : "";
}

/* The element of an array whose `key` (and `second`, if given) is as in `like`; NULL if none is. */
static const cJSON *find_like(const cJSON *array, const cJSON *like, const char *key,
                              const char *second)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, array)
    {
        if (!strcmp(text(item, key), text(like, key)) &&
            (!second || !strcmp(text(item, second), text(like, second))))
            return item;
    }
    return NULL;
}

static struct report_change *add(struct against *a, bool worse, const char *where, const char *what)
{
    struct report_changes *c = a->changes;
    struct report_change *grown = report_grow(c->items, c->count, sizeof *grown);
    static struct report_change lost;
    a->memory_lost |= !grown;
    if (!grown) return &lost;
    c->items = grown;
    c->n_worse += worse;
    struct report_change *change = &grown[c->count++];
    change->worse = worse;
    snprintf(change->where, sizeof change->where, "%s", where);
    snprintf(change->what, sizeof change->what, "%s", what);
    return change;
}

static void add_numbers(struct against *a, bool worse, const char *where, const char *what,
                        double before, double now)
{
    struct report_change *c = add(a, worse, where, what);
    snprintf(c->before, sizeof c->before, "%.6g", before);
    snprintf(c->now, sizeof c->now, "%.6g", now);
}

static void gone(struct against *a, const char *where, const char *what)
{
    struct report_change *c = add(a, true, where, what);
    snprintf(c->before, sizeof c->before, "there");
    snprintf(c->now, sizeof c->now, "missing");
}

static double share(const cJSON *counts, const char *part, const char *whole)
{
    double n = number(counts, whole);
    return n > 0 ? number(counts, part) / n : 0;
}

static void compare_checks(struct against *a, const char *where, const cJSON *before,
                           const cJSON *now)
{
    const cJSON *item;
    char what[96];
    cJSON_ArrayForEach(item, get(before, "checks"))
    {
        double was = number(get(before, "checks"), item->string);
        double is = number(get(now, "checks"), item->string);
        bool none = was > 0 && is == 0;
        if (!none && !(a->same_cases && is < was)) continue;
        snprintf(what, sizeof what, "check %.40s made less often", item->string);
        add_numbers(a, true, where, what, was, is);
    }
}

/* Figures of one operation or of one regime of it. */
static void compare_counts(struct against *a, const char *where, const cJSON *before,
                           const cJSON *now)
{
    double cases = number(before, "cases"), cases_now = number(now, "cases");
    if (cases_now < cases) add_numbers(a, true, where, "fewer cases", cases, cases_now);
    bool same = a->same_cases && cases == cases_now;
    double ratio = number(before, "worst_ratio"), ratio_now = number(now, "worst_ratio");
    if (ratio_now > ratio) add_numbers(a, same, where, "larger worst err/E", ratio, ratio_now);
    if (!same) return;
    double nearest = share(before, "nearest", "compared");
    double nearest_now = share(now, "nearest", "compared");
    if (nearest_now < nearest)
        add_numbers(a, true, where, "smaller share correctly rounded", nearest, nearest_now);
    double open = number(before, "unjudged"), open_now = number(now, "unjudged");
    if (open_now > open) add_numbers(a, true, where, "more elements left open", open, open_now);
    double moved = number(before, "equivalent"), moved_now = number(now, "equivalent");
    if (moved_now > moved)
        add_numbers(a, true, where, "more selections not identical", moved, moved_now);
}

static void compare_op(struct against *a, const cJSON *before)
{
    const cJSON *now = find_like(get(a->now, "ops"), before, "op", NULL), *item;
    const char *op = text(before, "op");
    char where[160];
    if (!now) {
        gone(a, op, "operation verified");
        return;
    }
    compare_counts(a, op, get(before, "total"), get(now, "total"));
    compare_checks(a, op, get(before, "total"), get(now, "total"));
    if (number(now, "geometries") < number(before, "geometries"))
        add_numbers(a, true, op, "fewer geometries in refusal sweeps", number(before, "geometries"),
                    number(now, "geometries"));
    cJSON_ArrayForEach(item, get(before, "rules"))
    {
        snprintf(where, sizeof where, "%s, rule %s", op, text(item, "rule"));
        if (a->same_cases && !find_like(get(now, "rules"), item, "rule", NULL))
            gone(a, where, "refusal seen");
    }
    cJSON_ArrayForEach(item, get(before, "regimes"))
    {
        const cJSON *regime = find_like(get(now, "regimes"), item, "regime", NULL);
        snprintf(where, sizeof where, "%s, %s", op, text(item, "regime"));
        if (regime)
            compare_counts(a, where, item, regime);
        else
            gone(a, where, "regime verified");
    }
}

static void compare_broken(struct against *a, const cJSON *before)
{
    const cJSON *now = find_like(get(a->now, "broken"), before, "kernel", "backend");
    const char *name = text(before, "kernel");
    if (!cJSON_IsTrue(get(before, "caught"))) return;
    if (!now) {
        gone(a, name, "broken kernel tried");
    } else if (!cJSON_IsTrue(get(now, "caught"))) {
        struct report_change *c = add(a, true, name, "broken kernel no longer caught");
        snprintf(c->before, sizeof c->before, "%s", text(before, "check"));
        snprintf(c->now, sizeof c->now, "missed");
    } else if (number(now, "cases") > number(before, "cases")) {
        add_numbers(a, false, name, "more cases until caught", number(before, "cases"),
                    number(now, "cases"));
    }
}

static void compare_share(struct against *a, const cJSON *before, const cJSON *now,
                          const char *part, const char *whole, const char *what)
{
    double was = share(before, part, whole), is = share(now, part, whole);
    if (is < was) add_numbers(a, true, text(before, "file"), what, was, is);
}

static void compare_file(struct against *a, const cJSON *before)
{
    const cJSON *now = find_like(get(a->now, "coverage"), before, "file", NULL);
    if (!now) {
        gone(a, text(before, "file"), "line coverage measured");
        return;
    }
    compare_share(a, before, now, "covered", "lines", "smaller share of lines covered");
    if (get(before, "branches"))
        compare_share(a, before, now, "taken", "branches", "smaller share of branches taken");
}

/* Times vary, so a longer one is worth knowing and no failure. */
static void compare_timing(struct against *a, const cJSON *before)
{
    const cJSON *now = find_like(get(a->now, "timings"), before, "case", "backend");
    double was = number(before, "median_us"), is = number(now, "median_us");
    if (!now)
        gone(a, text(before, "op"), "time measured");
    else if (is > was)
        add_numbers(a, false, text(before, "op"), "slower, microseconds", was, is);
}

static bool same_list(const cJSON *now, const cJSON *baseline, const char *key)
{
    return cJSON_Compare(get(now, key), get(baseline, key), true);
}

static bool same_backends(const cJSON *now, const cJSON *baseline)
{
    const cJSON *a = get(now, "backends"), *b = get(baseline, "backends"), *item;
    if (cJSON_GetArraySize(a) != cJSON_GetArraySize(b)) return false;
    cJSON_ArrayForEach(item, b)
    {
        if (!find_like(a, item, "backend", NULL)) return false;
    }
    return true;
}

bool report_against(const cJSON *now, const cJSON *baseline, struct report_changes *changes,
                    char *error, size_t size)
{
    struct against a = {.now = now, .baseline = baseline, .changes = changes};
    const cJSON *item;
    if (strcmp(text(baseline, "format"), text(now, "format")))
        return error_text(error, size, "this is no tolerance report (format \"%.40s\")",
                          text(baseline, "format"));
    a.same_cases = same_list(now, baseline, "seeds") && same_list(now, baseline, "tiers") &&
                   same_backends(now, baseline);
    cJSON_ArrayForEach(item, get(baseline, "backends"))
    {
        if (!find_like(get(now, "backends"), item, "backend", NULL))
            gone(&a, text(item, "backend"), "backend used");
    }
    if (number(baseline, "pairs_equal") > 0 && number(now, "pairs_equal") == 0)
        gone(&a, "", "backends compared with each other");
    cJSON_ArrayForEach(item, get(baseline, "ops")) compare_op(&a, item);
    cJSON_ArrayForEach(item, get(baseline, "broken")) compare_broken(&a, item);
    cJSON_ArrayForEach(item, get(baseline, "coverage")) compare_file(&a, item);
    cJSON_ArrayForEach(item, get(baseline, "timings")) compare_timing(&a, item);
    return !a.memory_lost || error_text(error, size, "out of memory");
}

void report_changes_free(struct report_changes *changes)
{
    free(changes->items);
    free(changes->baseline);
    memset(changes, 0, sizeof *changes);
}
