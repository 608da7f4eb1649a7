#include "harness/session/separate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/text.h"
#include "harness/case/op.h"

/* What of a parameter is looked at: its value, or three numbers of a list. */
enum aspect { ASPECT_VALUE, ASPECT_LEAST, ASPECT_GREATEST, ASPECT_LENGTH };
enum { FEATURES_MAX = 3 * CASE_PARAMS_MAX };

struct feature {
    const struct param *param;
    uint32_t index; /* of the parameter */
    enum aspect aspect;
};

enum test { TEST_EQUAL, TEST_AT_MOST, TEST_AT_LEAST, TEST_MULTIPLE, TEST_NO_MULTIPLE, TEST_OTHER };

struct condition {
    uint32_t feature;
    enum test test;
    double value;
    uint32_t passing; /* cases that pass although it holds */
};

static uint32_t features_of(const struct op *op, struct feature *f)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < op->n_params; i++) {
        const struct param *p = &op->params[i];
        if (p->kind == PARAM_SEED) continue;
        if (p->kind != PARAM_LIST) {
            f[n++] = (struct feature){p, i, ASPECT_VALUE};
            continue;
        }
        f[n++] = (struct feature){p, i, ASPECT_LEAST};
        f[n++] = (struct feature){p, i, ASPECT_GREATEST};
        f[n++] = (struct feature){p, i, ASPECT_LENGTH};
    }
    return n;
}

/* NAN: the least of no numbers. Every test of it is false. */
static double measure(const struct case_line *c, const struct feature *f)
{
    const struct case_value *v = &c->v[f->index];
    if (f->param->kind == PARAM_REAL) return v->r;
    if (f->aspect == ASPECT_VALUE || f->aspect == ASPECT_LENGTH) return (double)v->i;
    double found = NAN;
    for (int64_t i = 0; i < v->i; i++) {
        double x = (double)c->list[v->list_start + i];
        if (isnan(found) || (f->aspect == ASPECT_LEAST ? x < found : x > found)) found = x;
    }
    return found;
}

bool separate_add(struct separate_cases *set, const struct case_line *c)
{
    struct feature f[FEATURES_MAX];
    uint32_t n = features_of(c->op, f);
    if (set->count == set->room) {
        uint32_t room = set->room ? 2 * set->room : 64;
        double *grown = realloc(set->values, (size_t)room * n * sizeof *grown);
        if (!grown) return false;
        set->values = grown;
        set->room = room;
    }
    for (uint32_t i = 0; i < n; i++) set->values[(size_t)set->count * n + i] = measure(c, &f[i]);
    set->count++;
    return true;
}

void separate_free(struct separate_cases *set)
{
    free(set->values);
    *set = (struct separate_cases){NULL, 0, 0};
}

static bool holds(const struct condition *c, double x)
{
    switch (c->test) {
    case TEST_EQUAL: return x == c->value;
    case TEST_AT_MOST: return x <= c->value;
    case TEST_AT_LEAST: return x >= c->value;
    case TEST_MULTIPLE: return fmod(x, c->value) == 0;
    case TEST_NO_MULTIPLE: return fmod(x, c->value) != 0;
    case TEST_OTHER: return x != c->value;
    }
    return false;
}

static uint32_t count_holding(const struct condition *c, const struct condition *given,
                              const struct separate_cases *set, uint32_t n)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < set->count; i++) {
        const double *row = set->values + (size_t)i * n;
        count += holds(c, row[c->feature]) && (!given || holds(given, row[given->feature]));
    }
    return count;
}

/* Takes the condition if all failing cases meet it and fewer passing ones do than of the best so
 * far. Simple tests are tried first, so they win where they are as good. */
static void try_condition(struct condition c, const struct condition *given,
                          const struct separate_cases *failing,
                          const struct separate_cases *passing, uint32_t n, struct condition *best)
{
    if (count_holding(&c, NULL, failing, n) != failing->count) return;
    c.passing = count_holding(&c, given, passing, n);
    if (c.passing < best->passing) *best = c;
}

static struct condition best_condition(const struct feature *f, uint32_t n,
                                       const struct condition *given,
                                       const struct separate_cases *failing,
                                       const struct separate_cases *passing)
{
    struct condition best = {.passing = given ? given->passing : passing->count};
    for (enum test test = TEST_EQUAL; test <= TEST_OTHER; test++) {
        for (uint32_t i = 0; i < n; i++) {
            double low = INFINITY, high = -INFINITY;
            bool named = f[i].param->kind == PARAM_ENUM, real = f[i].param->kind == PARAM_REAL;
            for (uint32_t k = 0; k < failing->count; k++) {
                low = fmin(low, failing->values[(size_t)k * n + i]);
                high = fmax(high, failing->values[(size_t)k * n + i]);
            }
            double values[8] = {test == TEST_AT_MOST ? high : low}; /* EQUAL: low = high or never */
            uint32_t count = 1;
            if (test == TEST_MULTIPLE || test == TEST_NO_MULTIPLE)
                for (count = 0; count < 8; count++) values[count] = 2u << count;
            if (test == TEST_OTHER)
                for (count = 0; count < 2; count++) values[count] = count;
            if ((named && test != TEST_EQUAL && test != TEST_OTHER) ||
                (real && test > TEST_AT_LEAST))
                continue;
            for (uint32_t k = 0; k < count; k++)
                try_condition((struct condition){i, test, values[k], 0}, given, failing, passing, n,
                              &best);
        }
    }
    return best;
}

static void say_condition(const struct feature *f, const struct condition *c, struct text *out)
{
    static const char *const words[] = {
        [TEST_EQUAL] = "=",           [TEST_AT_MOST] = "<=",
        [TEST_AT_LEAST] = ">=",       [TEST_MULTIPLE] = "a multiple of",
        [TEST_NO_MULTIPLE] = "no multiple of", [TEST_OTHER] = "other than"};
    const struct param *p = f->param;
    /* The least element decides what some element is at most, and what every one is at least. */
    bool bottom = f->aspect == ASPECT_LEAST && c->value <= 0 &&
                  (c->test == TEST_AT_MOST || c->test == TEST_EQUAL);
    bool some = bottom || (f->aspect == ASPECT_LEAST && c->test == TEST_AT_MOST) ||
                (f->aspect == ASPECT_GREATEST && c->test == TEST_AT_LEAST);
    const char *which[] = {[ASPECT_VALUE] = "", [ASPECT_LEAST] = "the least ",
                           [ASPECT_GREATEST] = "the greatest ", [ASPECT_LENGTH] = "the number of "};
    bool every = (f->aspect == ASPECT_LEAST && c->test == TEST_AT_LEAST) ||
                 (f->aspect == ASPECT_GREATEST && c->test == TEST_AT_MOST);
    text_add(out, "%s%s %s ", some ? "some " : every ? "every " : which[f->aspect], p->key,
             bottom ? "=" : words[c->test]);
    if (p->kind == PARAM_ENUM) text_add(out, "%s", p->names[(uint32_t)c->value]);
    else text_add(out, "%.9g", c->value);
}

void separate_say(const struct op *op, const struct separate_cases *failing,
                  const struct separate_cases *passing, char *text, size_t size)
{
    struct feature f[FEATURES_MAX];
    uint32_t n = features_of(op, f);
    text[0] = 0;
    struct text out = text_on(text, size);
    if (failing->count < SEPARATE_FAILING_MIN || passing->count < SEPARATE_PASSING_MIN) return;
    struct condition first = best_condition(f, n, NULL, failing, passing);
    if (first.passing == passing->count) return;
    struct condition second = {.passing = first.passing};
    if (first.passing) second = best_condition(f, n, &first, failing, passing);
    bool two = second.passing < first.passing;
    uint32_t others = two ? second.passing : first.passing;
    /* A condition that most failing and as large a part of the passing cases meet tells nothing. */
    if (others > passing->count / 2) return;
    text_add(&out, "%s ", others ? "only where" : "fails iff");
    say_condition(&f[first.feature], &first, &out);
    if (two) text_add(&out, " and ");
    if (two) say_condition(&f[second.feature], &second, &out);
    if (others)
        text_add(&out, " (%u of %u such cases fail)", failing->count, failing->count + others);
    else
        text_add(&out, " (%u failing, %u other cases)", failing->count, passing->count);
}
