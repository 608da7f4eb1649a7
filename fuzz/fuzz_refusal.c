/* The predicates that refuse: launcher against oracle. The first line is a case, which may break any
 * rule; each line after it, NAME[INDEX]=VALUE, changes an element of an integer input. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "harness/fuzz/mutate.h"
#include "harness/fuzz/work.h"
#include "harness/verify/verify.h"

static const struct fuzz_mutation mutation = {.family = NULL, .raw_one_in = 10, .wild = true};

enum { EDITS_MAX = 64, NAMES_MAX = 16, OPS_MAX = 64 };

static struct work_limit limits[OPS_MAX];
/* The integer inputs of each operation. */
static const char *names[OPS_MAX][NAMES_MAX];
static uint32_t n_names[OPS_MAX];

static uint32_t index_of(const struct op *op)
{
    uint32_t i = 0;
    while (op_table[i] != op) i++;
    return i;
}

static void learn_names(uint32_t index)
{
    static struct case_line c;
    struct rng r = {index, 0x4a3e, 0};
    struct instance in;
    mutate_fresh(&c, op_table[index], &r, TIER_QUICK);
    instance_init(&in, POISON_NAN);
    if (!op_build(&c, &in)) fuzz_fail("no memory to build a case of %s", c.op->name);
    for (uint32_t i = 0; i < in.n_tensors && n_names[index] < NAMES_MAX; i++) {
        const struct tensor *t = &in.tensors[i];
        if (t->role == ROLE_IN && t->dtype == DTYPE_I32) names[index][n_names[index]++] = t->name;
    }
    instance_free(&in);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    if (op_count > OPS_MAX) fuzz_fail("more than %d operations", OPS_MAX);
    for (uint32_t i = 0; i < op_count; i++) {
        work_learn(&limits[i], op_table[i], TIER_QUICK);
        learn_names(i);
    }
    return 0;
}

static int64_t draw_value(const struct case_line *c, struct rng *r)
{
    static const int64_t odd[] = {-1, 0, 1, 2, INT32_MIN, INT32_MAX, -2, 1 << 20};
    uint32_t i = rng_u32(r) % c->op->n_params;
    if (rng_one_in(r, 2)) return rng_pick(r, odd, 8);
    if (c->op->params[i].kind == PARAM_INT && c->v[i].i) return c->v[i].i + rng_range(r, -1, 1);
    return rng_range(r, -4, 300);
}

/* Adds a line at the end, where the case is known and there is room. */
static size_t add_edit(uint8_t *data, size_t size, size_t max_size, struct rng *r)
{
    static struct case_line c;
    char text[CASE_TEXT_MAX], error[512], line[128];
    const uint8_t *rest;
    size_t rest_size;
    if (!fuzz_line(data, size, text, &rest, &rest_size) ||
        !case_parse(text, &c, error, sizeof error))
        return size;
    uint32_t op = index_of(c.op);
    if (!n_names[op]) return size;
    int length = snprintf(line, sizeof line, "\n%s[%d]=%d\n", names[op][rng_u32(r) % n_names[op]],
                          (int)rng_range(r, 0, rng_one_in(r, 2) ? 3 : 2000),
                          (int)draw_value(&c, r));
    const char *from = size && data[size - 1] == '\n' ? line + 1 : line;
    length -= (int)(from - line);
    if (size + (size_t)length > max_size) return size;
    memcpy(data + size, from, (size_t)length);
    return size + (size_t)length;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned int seed)
{
    struct rng r = {seed, 0xed17, 0};
    if (!rng_one_in(&r, 3)) size = fuzz_mutate(&mutation, data, size, max_size, seed);
    while (rng_one_in(&r, 2)) size = add_edit(data, size, max_size, &r);
    return size;
}

size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size,
                                 uint8_t *out, size_t max_out, unsigned int seed)
{
    return fuzz_cross(&mutation, a, a_size, b, b_size, out, max_out, seed);
}

static struct tensor *find_integers(struct instance *in, const char *name)
{
    for (uint32_t i = 0; i < in->n_tensors; i++) {
        struct tensor *t = &in->tensors[i];
        if (t->role == ROLE_IN && t->dtype == DTYPE_I32 && t->elems && !strcmp(t->name, name))
            return t;
    }
    return NULL;
}

/* An index past the end counts from the start again, so that few edits miss. */
static void apply(struct instance *in, char *line)
{
    char *bracket = strchr(line, '['), *end;
    if (!bracket) return;
    *bracket = 0;
    struct tensor *t = find_integers(in, line);
    unsigned long long index = strtoull(bracket + 1, &end, 10);
    if (!t || end[0] != ']' || end[1] != '=') return;
    long long value = strtoll(end + 2, NULL, 10);
    ((int32_t *)(void *)t->data)[index % t->elems] = (int32_t)value;
}

static void apply_all(struct instance *in, const uint8_t *rest, size_t size)
{
    char line[CASE_TEXT_MAX];
    for (int n = 0; size && n < EDITS_MAX; n++) {
        if (!fuzz_line(rest, size, line, &rest, &size)) return;
        apply(in, line);
    }
}

static void compare(const struct case_line *c, const struct instance *in, const char *text)
{
    struct ref_refusal why = {{0}, {0}};
    struct gpu_report report = {{0}, {0}};
    bool ref_refuses = !op_ref_accepts(c, in, &why);
    bool gpu_refuses = op_gpu_check(c, in, &report) == GPU_REFUSED;
    if (ref_refuses != gpu_refuses)
        fuzz_fail("FAIL %s\n  the oracle %s%s; the launcher %s%s", text,
                  ref_refuses ? "refuses: " : "accepts", why.text,
                  gpu_refuses ? "refuses: " : "accepts", report.text);
    if (ref_refuses && (!why.rule[0] || !why.text[0] || !report.rule[0] || !report.text[0]))
        fuzz_fail("FAIL %s\n  refused without a reason: '%s' '%s', '%s' '%s'", text, why.rule,
                  why.text, report.rule, report.text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct case_line c;
    char text[CASE_TEXT_MAX], error[512];
    const uint8_t *rest;
    size_t rest_size;
    struct ref_refusal why;
    struct instance in;
    if (!fuzz_line(data, size, text, &rest, &rest_size) ||
        !case_parse(text, &c, error, sizeof error) || !fuzz_admits(NULL, c.op))
        return 0;
    compare(&c, NULL, text);
    if (!rest_size || !op_ref_accepts(&c, NULL, &why) ||
        !work_fits(&limits[index_of(c.op)], &c))
        return 0;
    instance_init(&in, POISON_NAN);
    if (op_build(&c, &in)) {
        apply_all(&in, rest, rest_size);
        compare(&c, &in, text);
    }
    instance_free(&in);
    return 0;
}
