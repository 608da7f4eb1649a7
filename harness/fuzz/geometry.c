#include "harness/fuzz/geometry.h"

#include <math.h>
#include <stdlib.h>

#include "harness/case/op.h"

enum { TERMS_MAX = 64, ELEMENTS_MAX = 4 };

/* An integer of the case under the number of its parameter; the length of a list has a number of its
 * own. */
struct term {
    uint32_t label;
    int64_t value;
};

struct classes {
    uint32_t *ids, count;
    uint64_t op_hash;
};

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

static void add(struct classes *k, uint32_t kind, uint32_t a, uint32_t b, uint64_t detail)
{
    uint64_t hash = mix(mix(k->op_hash, (uint64_t)kind << 32 | a << 16 | b), detail);
    if (k->count < GEOMETRY_CLASSES_MAX)
        k->ids[k->count++] = (uint32_t)(hash >> (64 - GEOMETRY_CLASS_BITS));
}

/* 0..4 and -1 apart, above that by the power of two, negative ones mirrored. */
static uint32_t magnitude(int64_t value)
{
    uint64_t size = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    uint32_t bucket = size < 5 ? (uint32_t)size : 2 + (64 - (uint32_t)__builtin_clzll(size));
    return bucket << 1 | (value < 0);
}

/* On a multiple of b, one beside it, or between; and below b, equal, or above, one beside apart. */
static uint32_t relation(int64_t a, int64_t b)
{
    int64_t rest = a % b, over = a - b;
    uint32_t residue = rest == 0 ? 0 : rest == 1 ? 1 : rest == b - 1 ? 2 : 3;
    uint32_t order = over < -1 ? 0 : over > 1 ? 4 : (uint32_t)(over + 2);
    return residue * 5 + order;
}

static uint32_t real_kind(double value)
{
    int exponent;
    if (isnan(value)) return 0;
    uint32_t kind = isinf(value) ? 1 : value == 0 ? 2 : fabs(value) < 0x1p-126 ? 3
                    : fabs(frexp(value, &exponent)) == 0.5 ? 4 : 5;
    return kind << 1 | (signbit(value) != 0);
}

static bool counts(const struct case_line *c, uint32_t i, const struct case_line *initial)
{
    const struct param *p = &c->op->params[i];
    if (p->kind == PARAM_SEED) return false;
    if (!p->rare) return true;
    if (p->kind == PARAM_REAL) return c->v[i].r != initial->v[i].r;
    return p->kind == PARAM_LIST || c->v[i].i != initial->v[i].i;
}

static uint32_t collect_terms(const struct case_line *c, const struct case_line *initial,
                              struct term *terms)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->op->n_params; i++) {
        const struct param *p = &c->op->params[i];
        if (!counts(c, i, initial)) continue;
        if (p->kind != PARAM_INT && p->kind != PARAM_OFFSET && p->kind != PARAM_LIST) continue;
        if (n + 1 + ELEMENTS_MAX > TERMS_MAX) break;
        terms[n++] = (struct term){i, c->v[i].i};
        if (p->kind != PARAM_LIST) continue;
        for (int64_t k = 0; k < c->v[i].i && k < ELEMENTS_MAX; k++)
            terms[n++] = (struct term){CASE_PARAMS_MAX + i, c->list[c->v[i].list_start + k]};
    }
    return n;
}

static void add_enums(struct classes *k, const struct case_line *c, const struct case_line *initial)
{
    for (uint32_t i = 0; i < c->op->n_params; i++) {
        if (!counts(c, i, initial)) continue;
        if (c->op->params[i].kind == PARAM_REAL) add(k, 0, i, 0, real_kind(c->v[i].r));
        if (c->op->params[i].kind != PARAM_ENUM) continue;
        add(k, 1, i, i, (uint64_t)c->v[i].i);
        for (uint32_t j = 0; j < i; j++) {
            if (c->op->params[j].kind == PARAM_ENUM && counts(c, j, initial))
                add(k, 2, i, j, (uint64_t)c->v[i].i << 16 | (uint64_t)c->v[j].i);
        }
    }
}

uint32_t geometry_classes(const struct case_line *c, uint32_t classes[GEOMETRY_CLASSES_MAX])
{
    struct classes k = {classes, 0, 0xcbf29ce484222325u};
    static _Thread_local struct case_line initial;
    struct term terms[TERMS_MAX];
    for (const char *p = c->op->name; *p; p++) k.op_hash = mix(k.op_hash, (uint8_t)*p);
    case_init(&initial, c->op);
    uint32_t n = collect_terms(c, &initial, terms);
    for (uint32_t i = 0; i < n; i++) {
        add(&k, 3, terms[i].label, 0, magnitude(terms[i].value));
        for (uint32_t j = 0; j < n; j++) {
            if (i == j || terms[i].value < 0 || terms[j].value < 2) continue;
            add(&k, 4, terms[i].label, terms[j].label, relation(terms[i].value, terms[j].value));
        }
    }
    add_enums(&k, c, &initial);
    return k.count;
}
