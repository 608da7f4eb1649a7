#include "harness/case/expression.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/case/instance.h"
#include "harness/case/op.h"
#include "harness/case/paging.h"

enum { NAME_MAX_BYTES = 48 };

struct parser {
    struct scope s;
    uint32_t visible; /* numbers of the operation that may be named */
    const char *start, *at;
    bool live;                /* false: the value is not needed, only names and grammar */
    bool inexact;             /* the last operation was a quotient with a remainder */
    bool quotient;            /* the last operation was a quotient */
    const struct param *into; /* the key that is assigned */
    char *error;
    size_t error_size;
};

static bool ternary(struct parser *p, struct value *v);

static bool fail(struct parser *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

static bool fail(struct parser *p, const char *format, ...)
{
    char what[160];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    snprintf(p->error, p->error_size, "'%s', character %d: %s", p->start,
             (int)(p->at - p->start) + 1, what);
    return false;
}

static struct value integer(int64_t i)
{
    return (struct value){false, i, (double)i};
}

static struct value real(double r)
{
    return (struct value){true, 0, r};
}

static void skip_space(struct parser *p)
{
    while (*p->at == ' ' || *p->at == '\n') p->at++;
}

/* Takes the token if it is next. */
static bool take(struct parser *p, const char *token)
{
    skip_space(p);
    size_t length = strlen(token);
    if (strncmp(p->at, token, length) != 0) return false;
    p->at += length;
    return true;
}

static bool need(struct parser *p, const char *token)
{
    return take(p, token) || fail(p, "expected '%s'", token);
}

static bool read_name(struct parser *p, char name[NAME_MAX_BYTES])
{
    size_t n = 0;
    skip_space(p);
    while (isalnum((unsigned char)p->at[n]) || p->at[n] == '_' || p->at[n] == '.') n++;
    if (n == 0 || n >= NAME_MAX_BYTES) return fail(p, "expected a name");
    memcpy(name, p->at, n);
    name[n] = 0;
    p->at += n;
    return true;
}

static const struct param *find_key(const struct op *op, const char *name)
{
    for (uint32_t i = 0; i < op->n_params; i++) {
        const char *key = op->params[i].key;
        if (key[0] == name[0] && !strcmp(key, name)) return &op->params[i];
    }
    return NULL;
}

static bool key_value(struct parser *p, const struct case_line *c, const char *name,
                      struct value *v)
{
    const struct param *key = find_key(c->op, name);
    if (!key) return fail(p, "operation %s has no key or number '%s'", c->op->name, name);
    const struct case_value *held = &c->v[key - c->op->params];
    *v = key->kind == PARAM_REAL ? real(held->r) : integer(held->i);
    return true;
}

/* Index of a value's name, -1 for none. */
static int value_index(const struct param *key, const char *name)
{
    for (int i = 0; key->kind == PARAM_ENUM && key->names[i]; i++) {
        if (!strcmp(key->names[i], name)) return i;
    }
    return -1;
}

static bool dotted_value(struct parser *p, char *name, struct value *v)
{
    const struct case_line *c = p->s.c;
    char *dot = strchr(name, '.');
    *dot = 0;
    if (!strcmp(name, "new")) {
        if (!p->s.changed) return fail(p, "there is no changed case here");
        return key_value(p, p->s.changed, dot + 1, v);
    }
    const struct param *key = find_key(c->op, name);
    int index = key ? value_index(key, dot + 1) : -1;
    if (index < 0)
        return fail(p, "operation %s has no enum key '%s' with a value '%s'", c->op->name, name,
                    dot + 1);
    *v = integer(c->v[key - c->op->params].i == index);
    return true;
}

static bool number_value(struct parser *p, uint32_t index, struct value *v)
{
    const struct number *number = &p->s.c->op->numbers[index];
    *v = integer(0);
    if (!p->live) return true;
    if (!number->text) {
        *v = integer(number->compute(p->s.c));
        return true;
    }
    struct parser inner = *p;
    inner.start = inner.at = number->text;
    inner.visible = index;
    inner.s.bindings = NULL;
    inner.into = NULL;
    if (!ternary(&inner, v)) return false;
    return !*inner.at || fail(&inner, "something follows the expression");
}

/* What a step's bindings give for a name; they are written in the operation's own names. */
static bool bound_value(struct parser *p, const char *text, struct value *v)
{
    struct parser inner = *p;
    inner.start = inner.at = text;
    inner.s.bindings = NULL;
    inner.into = NULL;
    if (!ternary(&inner, v)) return false;
    skip_space(&inner);
    return !*inner.at || *inner.at == ',' || fail(&inner, "something follows the expression");
}

static bool name_value(struct parser *p, char *name, struct value *v)
{
    const struct op *op = p->s.c->op;
    int index = p->into ? value_index(p->into, name) : -1;
    if (index >= 0) {
        *v = integer(index);
        return true;
    }
    if (p->s.row && !strcmp(name, "row")) {
        *v = integer(*p->s.row);
        return true;
    }
    if (strchr(name, '.')) return dotted_value(p, name, v);
    const char *bound = assignment_find(p->s.bindings, name);
    if (bound) return bound_value(p, bound, v);
    for (uint32_t i = p->visible; i-- > 0;) {
        const char *number = op->numbers[i].name;
        if (number[0] == name[0] && !strcmp(number, name)) return number_value(p, i, v);
    }
    if (!strcmp(name, "num_pages")) {
        *v = integer(p->s.in && p->s.in->pages ? p->s.in->pages->num_pages : 0);
        return true;
    }
    return key_value(p, p->s.c, name, v);
}

static int64_t saturated(__int128 x)
{
    return x > INT64_MAX ? INT64_MAX : x < INT64_MIN ? INT64_MIN : (int64_t)x;
}

static struct value combine(struct parser *p, char op, struct value a, struct value b)
{
    p->quotient = op == '/';
    p->inexact = false;
    if (a.real || b.real) {
        switch (op) {
        case '+':
            return real(a.r + b.r);
        case '-':
            return real(a.r - b.r);
        case '*':
            return real(a.r * b.r);
        default:
            return real(a.r / b.r);
        }
    }
    switch (op) {
    case '+':
        return integer(saturated((__int128)a.i + b.i));
    case '-':
        return integer(saturated((__int128)a.i - b.i));
    case '*':
        return integer(saturated((__int128)a.i * b.i));
    case '%':
        return integer(b.i ? (int64_t)((__int128)a.i % b.i) : 0);
    default:
        if (!b.i) return integer(0);
        p->inexact = (__int128)a.i % b.i != 0 && (a.i < 0) == (b.i < 0);
        return integer(saturated((__int128)a.i / b.i));
    }
}

static int64_t power_above(int64_t n)
{
    int64_t power = 1;
    while (power < n && power < INT64_C(1) << 62) power *= 2;
    return power;
}

enum { ARGUMENTS_MAX = 3 };

static bool random_function(struct parser *p, const char *name, const struct value *a,
                            struct value *v)
{
    struct rng *r = p->s.rng;
    if (!r) return fail(p, "%s: nothing is drawn here", name);
    *v = integer(0);
    if (!p->live) return true;
    if (!strcmp(name, "draw")) *v = integer(rng_range(r, a[0].i, a[1].i));
    if (!strcmp(name, "one_in")) *v = integer(rng_one_in(r, (uint32_t)a[0].i));
    if (!strcmp(name, "edge")) *v = integer(rng_edge(r, a[0].i, a[1].i, a[2].i));
    return true;
}

static struct value plain_function(const char *name, const struct value *a)
{
    bool first = a[0].r < a[1].r;
    if (!a[0].real && !a[1].real) first = a[0].i < a[1].i;
    if (!strcmp(name, "min")) return first ? a[0] : a[1];
    if (!strcmp(name, "max")) return first ? a[1] : a[0];
    if (!strcmp(name, "sqrt")) return real(sqrt(a[0].r));
    if (!strcmp(name, "ldexp")) return real(ldexp(a[0].r, (int)a[1].i));
    return integer(power_above(a[0].i));
}

/* item(LIST, i, otherwise) */
static bool item_function(struct parser *p, struct value *v)
{
    char name[NAME_MAX_BYTES];
    struct value i, otherwise;
    uint32_t n = 0;
    if (!read_name(p, name)) return false;
    const struct param *key = find_key(p->s.c->op, name);
    if (!key || key->kind != PARAM_LIST) return fail(p, "'%s' is no list of the case", name);
    if (!need(p, ",") || !ternary(p, &i) || !need(p, ",") || !ternary(p, &otherwise) ||
        !need(p, ")"))
        return false;
    const int64_t *items = case_list(p->s.c, name, &n);
    *v = n ? integer(items[(uint64_t)i.i % n]) : otherwise;
    return true;
}

static bool ceil_function(struct parser *p, struct value *v)
{
    if (!ternary(p, v)) return false;
    if (!p->quotient || v->real) return fail(p, "ceil wants a quotient of integers: ceil(a/b)");
    if (p->inexact) *v = integer(v->i + 1);
    return need(p, ")");
}

static bool function(struct parser *p, const char *name, struct value *v)
{
    static const struct {
        const char *name;
        uint32_t arguments;
        bool random;
    } known[] = {{"min", 2, false},  {"max", 2, false}, {"sqrt", 1, false},  {"ldexp", 2, false},
                 {"pow2", 1, false}, {"draw", 2, true}, {"one_in", 1, true}, {"edge", 3, true}};
    struct value a[ARGUMENTS_MAX] = {{0}};
    if (!strcmp(name, "item")) return item_function(p, v);
    if (!strcmp(name, "ceil")) return ceil_function(p, v);
    for (size_t f = 0; f < sizeof known / sizeof *known; f++) {
        if (strcmp(known[f].name, name) != 0) continue;
        for (uint32_t i = 0; i < known[f].arguments; i++) {
            if ((i && !need(p, ",")) || !ternary(p, &a[i])) return false;
        }
        if (!need(p, ")")) return false;
        if (known[f].random) return random_function(p, name, a, v);
        *v = plain_function(name, a);
        return true;
    }
    return fail(p, "there is no function '%s'", name);
}

static bool primary(struct parser *p, struct value *v)
{
    char name[NAME_MAX_BYTES], *end;
    skip_space(p);
    if (take(p, "(")) return ternary(p, v) && need(p, ")");
    if (isdigit((unsigned char)*p->at)) {
        *v = integer(strtoll(p->at, &end, 10));
        p->at = end;
        return true;
    }
    if (!read_name(p, name)) return false;
    bool fine = take(p, "(") ? function(p, name, v) : name_value(p, name, v);
    p->quotient = false;
    return fine;
}

static bool unary(struct parser *p, struct value *v)
{
    skip_space(p);
    if (*p->at == '!' && p->at[1] != '=') {
        p->at++;
        if (!unary(p, v)) return false;
        *v = integer(v->r == 0);
        return true;
    }
    if (!take(p, "-")) return primary(p, v);
    if (!unary(p, v)) return false;
    *v = combine(p, '-', integer(0), *v);
    return true;
}

static bool product(struct parser *p, struct value *v)
{
    if (!unary(p, v)) return false;
    for (skip_space(p); *p->at && strchr("*/%", *p->at); skip_space(p)) {
        char op = *p->at++;
        struct value b;
        if (!unary(p, &b)) return false;
        if (op == '%' && (v->real || b.real)) return fail(p, "%% wants integers");
        *v = combine(p, op, *v, b);
    }
    return true;
}

static bool sum(struct parser *p, struct value *v)
{
    if (!product(p, v)) return false;
    for (skip_space(p); *p->at == '+' || *p->at == '-'; skip_space(p)) {
        char op = *p->at++;
        struct value b;
        if (!product(p, &b)) return false;
        *v = combine(p, op, *v, b);
    }
    return true;
}

static bool comparison(struct parser *p, struct value *v)
{
    static const char *const operators[] = {"<=", ">=", "==", "!=", "<", ">"};
    struct value b;
    if (!sum(p, v)) return false;
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
        if (!take(p, operators[i])) continue;
        if (!sum(p, &b)) return false;
        bool exact = !v->real && !b.real;
        bool less = exact ? v->i < b.i : v->r < b.r, more = exact ? v->i > b.i : v->r > b.r;
        bool equal = exact ? v->i == b.i : v->r == b.r;
        const bool holds[] = {less || equal, more || equal, equal, !equal, less, more};
        *v = integer(holds[i]);
        return true;
    }
    return true;
}

/* A chain of && or, with `any`, of ||. */
static bool chain(struct parser *p, bool any, struct value *v)
{
    bool live = p->live;
    if (!(any ? chain(p, false, v) : comparison(p, v))) return false;
    while (take(p, any ? "||" : "&&")) {
        bool decided = (v->r != 0) == any;
        struct value b;
        p->live = live && !decided;
        if (!(any ? chain(p, false, &b) : comparison(p, &b))) return false;
        p->live = live;
        *v = integer(decided ? any : b.r != 0);
    }
    return true;
}

static bool ternary(struct parser *p, struct value *v)
{
    bool live = p->live;
    struct value yes, no;
    if (!chain(p, true, v)) return false;
    if (!take(p, "?")) return true;
    bool holds = v->r != 0;
    p->live = live && holds;
    if (!ternary(p, &yes) || !need(p, ":")) return false;
    p->live = live && !holds;
    if (!ternary(p, &no)) return false;
    p->live = live;
    *v = holds ? yes : no;
    return true;
}

static bool parse_one(struct parser *p, struct value *v)
{
    if (!ternary(p, v)) return false;
    skip_space(p);
    return !*p->at || *p->at == ',' || fail(p, "something follows the expression");
}

static struct parser parser_of(const struct scope *s, const char *text, char *error, size_t size)
{
    return (struct parser){.s = *s,
                           .visible = s->c->op->n_numbers,
                           .start = text,
                           .at = text,
                           .live = true,
                           .error = error,
                           .error_size = size};
}

bool expression_next(const struct scope *s, const char **text, struct value *v, char *error,
                     size_t size)
{
    struct parser p = parser_of(s, *text, error, size);
    if (!parse_one(&p, v)) return false;
    *text = p.at;
    return true;
}

int64_t expression_int(const struct scope *s, const char *text)
{
    char error[320];
    struct value v;
    const char *at = text;
    if (!expression_next(s, &at, &v, error, sizeof error)) {
        fprintf(stderr, "internal error: %s: %s\n", s->c->op->name, error);
        abort();
    }
    if (!v.real) return v.i;
    return v.r >= 0x1p63 ? INT64_MAX : v.r <= -0x1p63 ? INT64_MIN : (int64_t)v.r;
}

int64_t case_number(const struct case_line *c, const char *text)
{
    return expression_int(&(struct scope){.c = c}, text);
}

uint32_t case_number_u32(const struct case_line *c, const char *text)
{
    int64_t v = case_number(c, text);
    return v < 0 ? 0 : v > UINT32_MAX ? UINT32_MAX : (uint32_t)v;
}

bool expression_assign(const struct scope *s, const char *text, struct case_line *target,
                       char *error, size_t size)
{
    struct parser p = parser_of(s, text, error, size);
    struct scope *seen = &p.s;
    seen->changed = target;
    do {
        char name[NAME_MAX_BYTES];
        struct value v;
        if (!read_name(&p, name) || !need(&p, "=")) return false;
        p.into = find_key(s->c->op, name);
        if (!p.into || p.into->kind == PARAM_LIST)
            return fail(&p, "'%s' is no key that can be set", name);
        if (!parse_one(&p, &v)) return false;
        if (p.into->kind == PARAM_REAL)
            case_set_real(target, name, v.r);
        else
            case_set_int(target, name, v.i);
    } while (take(&p, ","));
    return true;
}

const char *assignment_find(const char *list, const char *name)
{
    size_t length = strlen(name);
    while (list && *list) {
        while (*list == ' ' || *list == ',') list++;
        const char *equals = list + strcspn(list, "= ");
        if ((size_t)(equals - list) == length && !memcmp(list, name, length)) {
            equals += strspn(equals, " =");
            return equals;
        }
        /* To the next comma outside parentheses. */
        for (int depth = 0; *list && (depth || *list != ','); list++)
            depth += (*list == '(') - (*list == ')');
    }
    return NULL;
}
