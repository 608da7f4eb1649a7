/* Expressions over a case, in which descriptors say shapes, arguments, conditions and edits.
 *
 *     heads + dead        ceil(rows/16)*16        width < 0 ? topk + kpool - 1 : width
 *
 * C's operators on 64-bit integers, which saturate instead of overflowing; a quotient by 0 is 0
 * (the predicates refuse what divides by it). A real key makes the expression real. What a name
 * means, the first of these that there is:
 *   a name that the step at hand binds (op.h): the expression behind it, in the operation's names
 *   row            the row that a relation asks about
 *   new.KEY        a key of the changed case of a relation
 *   KEY.VALUE      1 where the enum key has that value, else 0
 *   a number of the operation's table (op.h), declared before the one that names it
 *   num_pages      pages of the cache; 0 before there is an instance
 *   KEY            a key of the case; an enum's index, a list's length
 * Functions: min, max, sqrt, ldexp(x, n), pow2(n): the least power of two not below n;
 * ceil(a/b); item(LIST, i, otherwise): element i of a list that repeats, of an empty one the
 * third argument; where there is a random stream draw(low, high), one_in(n) and edge(low, high,
 * around). Only what decides the value is drawn: the branch of ?: that is taken, && and || from
 * the left. */
#ifndef ATTEST_EXPRESSION_H
#define ATTEST_EXPRESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/case/case.h"
#include "harness/case/random.h"

struct instance;

/* A number that an operation's expressions may name. */
struct number {
    const char *name, *text;
    /* What no expression says, where there is no text. */
    int64_t (*compute)(const struct case_line *c);
};

/* What an expression can see. */
struct scope {
    const struct case_line *c;
    const struct instance *in;       /* may be NULL */
    const struct case_line *changed; /* of a relation; NULL: new.KEY is an error */
    struct rng *rng;                 /* NULL: drawing is an error */
    const int64_t *row;              /* NULL: `row` is no name */
    const char *bindings;            /* of a step: "name = expression, ..."; may be NULL */
};

struct value {
    bool real;
    int64_t i; /* not real */
    double r;  /* always */
};

/* Evaluates the expression at *text up to a comma outside parentheses or the end, and leaves *text
 * there. False with a message that names the place. */
bool expression_next(const struct scope *s, const char **text, struct value *v, char *error,
                     size_t error_size);
/* The value of a whole expression, rounded towards 0 if real. A broken one ends the program: the
 * descriptors' own check (described.h) comes first. */
int64_t expression_int(const struct scope *s, const char *text);
/* The value in a case and nothing else. */
int64_t case_number(const struct case_line *c, const char *text);
uint32_t case_number_u32(const struct case_line *c, const char *text); /* cut to its range */
/* Carries out "key = expression, key = expression, ..." on `target`, a copy of s->c. Right sides
 * see s->c; for an enum key the names of its values, too. */
bool expression_assign(const struct scope *s, const char *text, struct case_line *target,
                       char *error, size_t error_size);
/* The text behind "name =" in a list of assignments; NULL: none. */
const char *assignment_find(const char *list, const char *name);

#endif
