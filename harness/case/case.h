/* A case: one line of text that is its identity everywhere (log, replay, corpus, minimiser, fuzz).
 *
 *     op:key=value,key=value,list=[1,2,3],seed=0x1f
 *
 * The operation's parameter table says which keys exist, their kind and range. Keys left out take
 * their initial value. case_print writes every key that matters in table order, so that
 * print(parse(x)) = x for every printed x. */
#ifndef ATTEST_CASE_H
#define ATTEST_CASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct op;

enum param_kind {
    PARAM_INT,    /* 64-bit integer, printed in decimal */
    PARAM_OFFSET, /* integer printed with its sign: +256 */
    PARAM_SEED,   /* unsigned 64-bit, printed in hexadecimal */
    PARAM_REAL,   /* a float; printed with the fewest digits that give it back */
    PARAM_ENUM,   /* one of `names` */
    PARAM_LIST    /* integers: [1,2,3]; may be empty */
};

struct param {
    const char *key;
    enum param_kind kind;
    bool rare;              /* printed only when it differs from `initial` */
    const char *initial;    /* text of the value when the key is left out */
    int64_t min, max;       /* what the parser accepts (of each element, for a list) */
    const char *const *names; /* PARAM_ENUM: NULL-terminated */
    const char *help;
    /* For the minimiser: the value it tries to reach, as an integer (index for an enum). */
    int64_t simplest;
};

/* Kinds of keys that most operations have. A rare one is printed only where it is not initial. */
#define COUNT_KEY(key, initial, help, simplest)                                                    \
    {key, PARAM_INT, false, initial, 0, UINT32_MAX, NULL, help, simplest}
#define RARE_COUNT_KEY(key, initial, help, simplest)                                               \
    {key, PARAM_INT, true, initial, 0, UINT32_MAX, NULL, help, simplest}
#define RARE_FLAG_KEY(key, help) {key, PARAM_INT, true, "0", 0, 1, NULL, help, 0}
#define REAL_KEY(key, initial, help, simplest)                                                     \
    {key, PARAM_REAL, false, initial, 0, 0, NULL, help, simplest}
#define ENUM_KEY(key, initial, names, help, simplest)                                              \
    {key, PARAM_ENUM, false, initial, 0, 0, names, help, simplest}
/* -1: derived from other keys; or none. */
#define RARE_OWN_KEY(key, help) {key, PARAM_INT, true, "-1", -1, UINT32_MAX, NULL, help, -1}
#define RARE_FROM_KEY(key, help) {key, PARAM_INT, true, "-1", -1, INT32_MAX, NULL, help, -1}
#define WIDE_OFFSET (INT64_C(1) << 32)
#define SEED_KEY {"seed", PARAM_SEED, false, "0x1", 0, 0, NULL, "of every byte", 0}

enum { CASE_PARAMS_MAX = 40, CASE_LIST_MAX = 512, CASE_TEXT_MAX = 6144 };

struct case_value {
    int64_t i; /* INT, OFFSET, ENUM index; SEED as two's complement; LIST: length */
    double r;  /* REAL */
    uint32_t list_start; /* LIST: first element in case_line.list */
};

struct case_line {
    const struct op *op;
    struct case_value v[CASE_PARAMS_MAX];
    int64_t list[CASE_LIST_MAX];
    uint32_t list_used;
};

/* All parameters at their initial values. */
void case_init(struct case_line *c, const struct op *op);
/* False with a message that names the key, the rule and the value. */
bool case_parse(const char *text, struct case_line *c, char *error, size_t error_size);
/* Writes the canonical text; returns its length (always < CASE_TEXT_MAX). */
size_t case_print(const struct case_line *c, char *text, size_t text_size);
/* Applies "key=value,key=value" to a case (presets, --set). */
bool case_apply(struct case_line *c, const char *assignments, char *error, size_t error_size);

/* Access by key. The key must exist in the operation's table: a wrong one aborts, for it is a
 * mistake in the program, not in its input. */
int64_t case_int(const struct case_line *c, const char *key);
uint32_t case_u32(const struct case_line *c, const char *key);
double case_real(const struct case_line *c, const char *key);
uint64_t case_seed(const struct case_line *c);
const int64_t *case_list(const struct case_line *c, const char *key, uint32_t *count);
bool case_enum_is(const struct case_line *c, const char *key, const char *name);
bool case_has(const struct case_line *c, const char *key);
void case_set_int(struct case_line *c, const char *key, int64_t value);
void case_set_real(struct case_line *c, const char *key, double value);
void case_set_enum(struct case_line *c, const char *key, const char *name);
void case_set_list(struct case_line *c, const char *key, const int64_t *values, uint32_t count);

#endif
