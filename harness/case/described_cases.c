/* What follows from an operation's tables for its cases: geometries that may break any rule, and
 * the changed cases of relations. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/case/op.h"

/* The index-th word of a text; its length, 0 past the end. */
static size_t word_at(const char *text, uint32_t index, const char **word)
{
    for (;;) {
        text += strspn(text, " ");
        size_t length = strcspn(text, " ");
        *word = text;
        if (!length || index-- == 0) return length;
        text += length;
    }
}

static const struct param *wild_param(const struct op *op, struct rng *r)
{
    const char *word;
    uint32_t n = 0;
    while (word_at(op->wild, n, &word)) n++;
    size_t length = word_at(op->wild, rng_u32(r) % n, &word);
    for (uint32_t i = 0; i < op->n_params; i++) {
        const struct param *p = &op->params[i];
        if (strlen(p->key) == length && !memcmp(p->key, word, length)) return p;
    }
    fprintf(stderr, "internal error: %s has no key '%.*s'\n", op->name, (int)length, word);
    abort();
}

static int64_t absurd_integer(const struct param *p, struct rng *r, int64_t usual)
{
    static const int64_t values[] = {0,         1,         2,         3,          16,
                                     17,        1024,      1056,      2048,       2049,
                                     12288,     12289,     65535,     65536,      1 << 20,
                                     1LL << 30, INT32_MAX, 1LL << 31, UINT32_MAX, INT32_MIN};
    int64_t value = rng_one_in(r, 2) ? usual + rng_range(r, -3, 3) : rng_pick(r, values, 20);
    /* An offset from what is usual breaks a rule on either side; near 0, and by whole sixteens. */
    if (p->kind == PARAM_OFFSET)
        value =
            rng_one_in(r, 2) ? rng_range(r, -9, 9) : rng_range(r, -40, 40) * rng_range(r, 1, 16);
    return value < p->min ? p->min : value > p->max ? p->max : value;
}

static void make_absurd(struct case_line *c, const struct param *p, struct rng *r)
{
    static const float reals[] = {0, -1, INFINITY, NAN, 1e-45f, 3e38f, -INFINITY};
    int64_t element = rng_range(r, p->min, p->max);
    uint32_t names = 0;
    switch (p->kind) {
    case PARAM_REAL:
        case_set_real(c, p->key, reals[rng_u32(r) % 7]);
        break;
    case PARAM_LIST:
        case_set_list(c, p->key, &element, 1);
        break;
    case PARAM_ENUM:
        while (p->names[names]) names++;
        case_set_int(c, p->key, rng_u32(r) % names);
        break;
    default:
        case_set_int(c, p->key, absurd_integer(p, r, case_int(c, p->key)));
    }
}

void op_sample_wild(struct case_line *c, struct rng *r)
{
    c->op->sample(c, r, TIER_QUICK, rng_u32(r));
    for (uint32_t faults = (uint32_t)rng_range(r, 0, 2); faults; faults--)
        make_absurd(c, wild_param(c->op, r), r);
}

bool relation_edit(const struct relation *relation, const struct case_line *base, struct rng *r,
                   struct case_line *changed)
{
    const struct scope s = {.c = base, .rng = r};
    char error[320];
    if (relation->when && !expression_int(&s, relation->when)) return false;
    if (expression_assign(&s, relation->change, changed, error, sizeof error)) return true;
    fprintf(stderr, "internal error: %s, relation %s: %s\n", base->op->name, relation->name, error);
    abort();
}

int64_t relation_base_row(const struct relation *relation, const struct case_line *base,
                          const struct case_line *changed, int64_t row)
{
    const struct scope s = {.c = base, .changed = changed, .row = &row};
    return relation->base_row ? expression_int(&s, relation->base_row) : row;
}

bool relation_covers(const struct relation *relation, const char *output)
{
    size_t length = strlen(output);
    if (!relation->outputs) return true;
    for (const char *at = relation->outputs; *at;) {
        at += strspn(at, " ,");
        size_t word = strcspn(at, " ,");
        if (word == length && !memcmp(at, output, length)) return true;
        at += word;
    }
    return false;
}
