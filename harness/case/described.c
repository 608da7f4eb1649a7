/* What follows from an operation's tables: refusals, tensors, launches, the oracle's arguments. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/case/op.h"
#include "harness/case/paging.h"
#include "harness/case/values.h"

static bool holds(const struct case_line *c, const char *when)
{
    return !when || case_number(c, when) != 0;
}

static const struct array *find_array(const struct op *op, const char *name)
{
    for (uint32_t i = 0; i < op->n_arrays; i++) {
        if (!strcmp(op->arrays[i].name, name)) return &op->arrays[i];
    }
    return NULL;
}

const struct array *step_array(const struct op *op, const struct step *step,
                               const struct argument *argument, char *name, size_t size)
{
    const char *bound = assignment_find(step->bindings, argument->name);
    if (bound)
        snprintf(name, size, "%.*s", (int)strcspn(bound, ", "), bound);
    else
        snprintf(name, size, "%s", argument->name);
    return find_array(op, name);
}

bool step_runs(const struct step *step, const struct case_line *c)
{
    return holds(c, step->when);
}

/* Index of the tensor; -1 where the case has none of that name. */
static int tensor_index(const struct instance *in, const char *name)
{
    for (uint32_t i = 0; i < in->n_tensors; i++) {
        if (!strcmp(in->tensors[i].name, name)) return (int)i;
    }
    return -1;
}

static void put_number(const struct place *place, struct value v, void *arguments)
{
    uint8_t *at = (uint8_t *)arguments + place->offset;
    /* A number that no integer holds is 0 there: a real one goes to a real field. */
    int64_t i = !v.real ? v.i : fabs(v.r) < 0x1p63 ? (int64_t)v.r : 0;
    float f = (float)v.r;
    uint32_t u = i < 0 ? 0 : i > UINT32_MAX ? UINT32_MAX : (uint32_t)i;
    /* Signed ones are cast, as a caller would: so a predicate meets vectors with negative
     * numbers. */
    int32_t s = (int32_t)i;
    uint64_t wide = i < 0 ? 0 : (uint64_t)i;
    if (place->type == PLACE_U32) memcpy(at, &u, sizeof u);
    if (place->type == PLACE_I32) memcpy(at, &s, sizeof s);
    if (place->type == PLACE_U64) memcpy(at, &wide, sizeof wide);
    if (place->type == PLACE_F32) memcpy(at, &f, sizeof f);
}

static void put_pointer(const struct place *place, const void *pointer, void *arguments)
{
    if (place->type == PLACE_BUFFER || place->type == PLACE_DATA)
        memcpy((uint8_t *)arguments + place->offset, &pointer, sizeof pointer);
}

static struct value number_of(const struct step *step, const struct case_line *c,
                              const struct instance *in, const char *text)
{
    const struct scope s = {.c = c, .in = in, .bindings = step->bindings};
    struct value v;
    char error[320];
    if (!expression_next(&s, &text, &v, error, sizeof error)) {
        fprintf(stderr, "internal error: %s, %s: %s\n", c->op->name, step->kernel->entry, error);
        abort();
    }
    return v;
}

/* The contents of an array of expressions; NULL where the case does not have the array. */
static const int32_t *fill_values(const struct case_line *c, const struct array *array,
                                  int32_t values[ARRAY_VALUES_MAX])
{
    const struct scope s = {.c = c};
    const char *at = array->values;
    char error[320];
    if (!holds(c, array->when)) return NULL;
    for (uint32_t i = 0; i < ARRAY_VALUES_MAX; i++, at++) {
        struct value v;
        if (!expression_next(&s, &at, &v, error, sizeof error)) {
            fprintf(stderr, "internal error: %s, %s: %s\n", c->op->name, array->name, error);
            abort();
        }
        put_number(&(struct place){PLACE_I32, 0}, v, &values[i]);
        if (!*at) break;
    }
    return values;
}

void step_gpu_arguments(const struct step *step, const struct case_line *c,
                        const struct instance *in, const struct gpu_buffer *buffers,
                        void *arguments, int32_t values[ARRAY_VALUES_MAX])
{
    for (uint32_t i = 0; i < step->kernel->n_arguments; i++) {
        const struct argument *a = &step->kernel->arguments[i];
        char name[48];
        if (a->kind == ARGUMENT_NUMBER || a->kind == ARGUMENT_HOST) {
            put_number(&a->gpu, number_of(step, c, in, a->name), arguments);
            continue;
        }
        const struct array *array = step_array(c->op, step, a, name, sizeof name);
        int t = in ? tensor_index(in, name) : -1;
        if (buffers && t >= 0) put_pointer(&a->gpu, &buffers[t], arguments);
        const void *host = t >= 0 ? in->tensors[t].data : NULL;
        if (array && array->values) host = fill_values(c, array, values);
        put_pointer(&a->host, host, arguments);
    }
}

void step_ref_arguments(const struct step *step, const struct case_line *c,
                        const struct instance *in, void *arguments,
                        int32_t values[ARRAY_VALUES_MAX])
{
    for (uint32_t i = 0; i < step->kernel->n_arguments; i++) {
        const struct argument *a = &step->kernel->arguments[i];
        char name[48];
        if (a->kind == ARGUMENT_NUMBER || a->kind == ARGUMENT_HOST) {
            put_number(&a->ref, number_of(step, c, in, a->name), arguments);
            continue;
        }
        const struct array *array = step_array(c->op, step, a, name, sizeof name);
        int t = in ? tensor_index(in, name) : -1;
        const void *data = t >= 0 ? in->tensors[t].data : NULL;
        if (array && array->values) data = fill_values(c, array, values);
        put_pointer(&a->ref, data, arguments);
    }
}

bool op_ref_accepts(const struct case_line *c, const struct instance *in, struct ref_refusal *why)
{
    if (c->op->ref_accepts && !c->op->ref_accepts(c, in, why)) return false;
    for (const struct step *step = c->op->steps; step && step->kernel; step++) {
        int32_t values[ARRAY_VALUES_MAX];
        union arguments arguments = {0};
        if (!step_runs(step, c)) continue;
        step_ref_arguments(step, c, in, &arguments, values);
        if (!step->kernel->accepts(&arguments, why)) return false;
    }
    return true;
}

enum gpu_status op_gpu_check(const struct case_line *c, const struct instance *in,
                             struct gpu_report *report)
{
    enum gpu_status status = c->op->gpu_check ? c->op->gpu_check(c, in, report) : GPU_OK;
    for (const struct step *step = c->op->steps; step && step->kernel && status == GPU_OK; step++) {
        int32_t values[ARRAY_VALUES_MAX];
        union arguments arguments = {0};
        if (!step_runs(step, c)) continue;
        step_gpu_arguments(step, c, in, NULL, &arguments, values);
        status = step->kernel->check(&arguments, report);
    }
    return status;
}

enum gpu_status op_launch(const struct gpu_target *targets, const struct case_line *c,
                          const struct instance *in, const struct gpu_buffer *buffers,
                          struct gpu_report *report)
{
    enum gpu_status status = GPU_OK;
    if (c->op->launch) return c->op->launch(targets, c, in, buffers, report);
    for (const struct step *step = c->op->steps; step->kernel && status == GPU_OK; step++) {
        int32_t values[ARRAY_VALUES_MAX];
        union arguments arguments = {0};
        if (!step_runs(step, c)) continue;
        step_gpu_arguments(step, c, in, buffers, &arguments, values);
        status = step->kernel->launch(&targets[step->module], &arguments, report);
    }
    return status;
}

/* The oracle of an operation with one kernel. */
static void reference(const struct case_line *c, const struct instance *in,
                      const struct ref_error_model *model, struct expected *e)
{
    const struct step *step = c->op->steps;
    struct expected *out[INSTANCE_TENSORS_MAX];
    uint32_t n = 0;
    int32_t values[ARRAY_VALUES_MAX];
    union arguments arguments = {0};
    char name[48];
    for (uint32_t i = 0; i < step->kernel->n_arguments; i++) {
        const struct argument *a = &step->kernel->arguments[i];
        if (a->kind != ARGUMENT_OUT) continue;
        step_array(c->op, step, a, name, sizeof name);
        out[n++] = &e[instance_index(in, name)];
    }
    step_ref_arguments(step, c, in, &arguments, values);
    step->kernel->reference(&arguments, model, out);
}

void op_oracle(const struct case_line *c, const struct instance *in,
               const struct ref_error_model *model, const uint8_t *const *got, struct expected *e)
{
    if (c->op->oracle)
        c->op->oracle(c, in, model, got, e);
    else
        reference(c, in, model, e);
    if (c->op->sharpen) c->op->sharpen(c, in, e);
}

/* What an array is by the first argument that it is bound to. */
struct layout {
    const struct step *step; /* in whose names the shape is written */
    enum dtype dtype;
    const char *shape, *dims, *owned, *first, *pitch;
    bool loose;
};

static struct layout layout_of(const struct case_line *c, const struct array *array)
{
    static const struct step none;
    const char *name_of = array->alias_of && !array->shape ? array->alias_of : array->name;
    if (array->shape)
        return (struct layout){&none,        array->dtype, array->shape, array->dims,
                               array->owned, NULL,         array->pitch, array->loose};
    for (const struct step *step = c->op->steps; step->kernel; step++) {
        if (!step_runs(step, c)) continue;
        for (uint32_t i = 0; i < step->kernel->n_arguments; i++) {
            const struct argument *a = &step->kernel->arguments[i];
            char name[48];
            if (!a->shape) continue;
            step_array(c->op, step, a, name, sizeof name);
            if (strcmp(name, array->name) != 0 && strcmp(name, name_of) != 0) continue;
            return (struct layout){
                step,     a->dtype, a->shape, array->dims ? array->dims : a->dims,
                a->owned, a->first, NULL,     a->loose};
        }
    }
    fprintf(stderr, "internal error: %s: array '%s' is no kernel's and has no shape\n", c->op->name,
            array->name);
    abort();
}

/* The dimensions that a list of expressions says; their number. */
static uint32_t dimensions(const struct layout *l, const struct case_line *c,
                           const struct instance *in, const char *text,
                           uint64_t shape[TENSOR_RANK_MAX])
{
    const struct scope s = {.c = c, .in = in, .bindings = l->step->bindings};
    char error[320];
    for (uint32_t rank = 0; rank < TENSOR_RANK_MAX; text++) {
        struct value v;
        if (!expression_next(&s, &text, &v, error, sizeof error)) {
            fprintf(stderr, "internal error: %s: %s\n", c->op->name, error);
            abort();
        }
        shape[rank++] = v.i < 0 ? 0 : (uint64_t)v.i;
        if (!*text) return rank;
    }
    fprintf(stderr, "internal error: %s: more than %d dimensions\n", c->op->name, TENSOR_RANK_MAX);
    abort();
}

static struct tensor *add_array(const struct case_line *c, struct instance *in,
                                const struct array *array)
{
    static const enum contract contracts[] = {
        [ARRAY_IN] = CONTRACT_ANY,        [ARRAY_POISONED] = CONTRACT_ANY,
        [ARRAY_EXACT] = CONTRACT_EXACT,   [ARRAY_BOUND] = CONTRACT_BOUND,
        [ARRAY_SELECT] = CONTRACT_SELECT, [ARRAY_SCRATCH] = CONTRACT_ANY};
    struct layout l = layout_of(c, array);
    uint64_t whole[TENSOR_RANK_MAX], owned[TENSOR_RANK_MAX], stride[TENSOR_RANK_MAX], elems = 1;
    uint64_t origin = 0;
    uint32_t rank = dimensions(&l, c, in, l.shape, whole);
    dimensions(&l, c, in, l.owned ? l.owned : l.shape, owned);
    for (uint32_t i = rank; i-- > 0;) {
        stride[i] = elems;
        elems *= whole[i];
    }
    if (l.pitch) {
        stride[0] = case_number_u32(c, l.pitch);
        elems = whole[0] * stride[0];
    }
    if (l.first) origin = (uint64_t)number_of(l.step, c, in, l.first).i * stride[0];
    struct tensor *t = instance_add_strided(
        in, array->name, l.dtype, array->kind <= ARRAY_POISONED ? ROLE_IN : ROLE_OUT,
        contracts[array->kind], rank, owned, stride, origin, elems, l.dims);
    if (t && l.loose) t->free_from = owned[0] * stride[0];
    return t;
}

/* One more name of a tensor's buffer, with a contract of its own. */
static void add_alias(struct instance *in, const struct array *array)
{
    struct tensor *t = &in->tensors[in->n_tensors];
    uint32_t of = instance_index(in, array->alias_of);
    *t = in->tensors[of];
    t->name = array->name;
    t->alias_of = (int32_t)of;
    if (array->kind == ARRAY_SELECT) t->contract = CONTRACT_SELECT;
    in->n_tensors++;
}

static bool fill_array(const struct case_line *c, struct instance *in, const struct array *array)
{
    struct tensor *t = &in->tensors[instance_index(in, array->name)];
    int32_t values[ARRAY_VALUES_MAX];
    if (array->kind == ARRAY_POISONED) poison_fill(t->data, t->dtype, t->elems, in->poison);
    if (array->values) memcpy(t->data, fill_values(c, array, values), t->elems * sizeof *values);
    return !array->fill || array->fill(&(struct filling){c, in, t, array->stream});
}

bool op_build(const struct case_line *c, struct instance *in)
{
    const struct op *op = c->op;
    bool fine = !op->lay_out || op->lay_out(c, in);
    for (uint32_t i = 0; fine && i < op->n_arrays; i++) {
        if (!holds(c, op->arrays[i].when)) continue;
        if (in->n_tensors == INSTANCE_TENSORS_MAX) return false;
        if (op->arrays[i].alias_of)
            add_alias(in, &op->arrays[i]);
        else
            fine = add_array(c, in, &op->arrays[i]) != NULL;
    }
    for (uint32_t i = 0; fine && i < op->n_arrays; i++) {
        const struct array *array = &op->arrays[i];
        if (array->kind > ARRAY_POISONED || array->alias_of || !holds(c, array->when)) continue;
        fine = fill_array(c, in, array);
    }
    fine = fine && (!op->fill || op->fill(c, in));
    for (uint32_t i = 0; fine && i < in->n_tensors; i++) {
        struct tensor *t = &in->tensors[i];
        if (t->alias_of < 0) continue;
        t->extents = in->tensors[t->alias_of].extents;
        t->n_extents = in->tensors[t->alias_of].n_extents;
    }
    return fine;
}
