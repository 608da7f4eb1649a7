/* One descriptor an operation, as data where data can say it: keys of a case, numbers, arrays,
 * the kernels it runs and what their arguments are, relations. From it follow the command line,
 * allocation, poison, launch, refusals, comparison, minimiser, fuzz target, dictionary and docs.
 * What is particular is code: how arrays are filled, which cases are drawn. A pipeline is an
 * operation with several kernels. */
#ifndef ATTEST_OP_H
#define ATTEST_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/gpu.h"
#include "harness/case/case.h"
#include "harness/case/expression.h"
#include "harness/case/expected.h"
#include "harness/case/interface.h"
#include "harness/case/random.h"
#include "ref/ref.h"

struct preset {
    const char *name;        /* model=NAME in a case */
    const char *assignments; /* "key=value,..." */
};

enum relation_kind {
    RELATION_SAME_BITS,   /* the changed case gives the same output bits */
    RELATION_SAME_LIMITS, /* the changed case's outputs lie inside the base case's limits */
    RELATION_DOUBLED      /* every output is exactly twice the base's (barring the range's ends) */
};

/* A metamorphic check that needs no oracle: edit the case, run again, compare the outputs. */
struct relation {
    const char *name;
    enum relation_kind kind;
    const char *when;   /* expression: to which cases it applies; NULL: to all */
    const char *change; /* "key = expression, ...": the changed case; may draw */
    /* Expression: which row (first output dimension) of the base run equals row `row` of the
     * changed run; negative for none. NULL: the same row. */
    const char *base_row;
    const char *outputs; /* "out, lists": those it speaks about; NULL: all */
};

/* The tensors of an operation. Type, shape and what the kernel owns of it are those of the first
 * argument that it is bound to; the fields below the line are for arrays that are no kernel's. */
enum array_kind {
    ARRAY_IN,
    ARRAY_POISONED, /* an input: what its filling leaves out must not matter and is poison */
    ARRAY_EXACT,    /* outputs, by contract */
    ARRAY_BOUND,
    ARRAY_SELECT,
    ARRAY_SCRATCH /* written, not judged */
};

struct filling {
    const struct case_line *c;
    struct instance *in;
    struct tensor *t;
    uint32_t stream; /* of its random numbers */
};

struct array {
    const char *name;
    enum array_kind kind;
    bool (*fill)(const struct filling *f); /* an input's; false: out of memory */
    uint32_t stream;
    const char *when;     /* expression: only where it is not 0; NULL: always */
    const char *alias_of; /* shares the buffer of an earlier array */
    const char *values;   /* the contents, an expression an element; known without an instance */
    /* ---- */
    enum dtype dtype;
    const char *shape, *dims, *owned; /* as in interface.h; NULL: the argument's */
    const char *pitch;                /* elements from one row to the next; NULL: dense */
    bool loose;
};

/* A kernel that an operation runs. Names of the interface mean what `bindings` say ("n_heads =
 * heads + dead, q_out = q_index"), else the number, key or array of the same name. */
struct step {
    const struct interface *kernel;
    const char *bindings;
    const char *when; /* expression; NULL: always */
    uint32_t module;  /* index in the operation's modules */
};

enum tier { TIER_QUICK, TIER_FULL };

struct op {
    const char *name;
    const char *const *modules; /* that hold its entry points; NULL-terminated. One for a kernel */
    const char *family;  /* "dsa" or "qsa" */
    const char *summary; /* one line */
    enum contract contract; /* the strictest claim, for the table */
    const struct param *params;
    uint32_t n_params;
    const struct number *numbers; /* what expressions may name beside the keys */
    uint32_t n_numbers;
    const struct array *arrays; /* in the order in which they are compared */
    uint32_t n_arrays;
    const struct step *steps; /* in the order in which they run; ends with a NULL kernel */
    const struct preset *presets; /* ends with a NULL name; may be NULL */
    uint32_t weight; /* its share of random cases: 2 means twice as many; 0 counts as 1 */
    const char *const *always;    /* cases that every verify runs first; NULL-terminated */
    const struct ref_error_model *model; /* the project's kernel's; NULL for EXACT operations */
    const struct relation *relations;    /* ends with a NULL name; may be NULL */
    const char *wild; /* keys that a geometry for refusal agreement may have absurd, "heads hd" */

    /* Draws the index-th random case. Values of c are initial on entry. `index` is for cycling
     * through regimes and structures so that all of them occur. Must give cases the operation
     * accepts; the seed is set by the caller. */
    void (*sample)(struct case_line *c, struct rng *r, enum tier tier, uint64_t index);
    /* Sets in->pages, before the arrays are made. False: out of memory. NULL: no paged cache. */
    bool (*lay_out)(const struct case_line *c, struct instance *in);
    /* Fills what no single array's `fill` can. Everything that must not matter is filled
     * according to in->poison. False: out of memory. NULL: nothing is left. */
    bool (*fill)(const struct case_line *c, struct instance *in);
    /* After the oracle: bounds of a case whose result is known better, say exactly. */
    void (*sharpen)(const struct case_line *c, const struct instance *in, struct expected *e);

    /* What it refuses besides what its kernels do; the two are written apart. */
    bool (*ref_accepts)(const struct case_line *c, const struct instance *in,
                        struct ref_refusal *why);
    enum gpu_status (*gpu_check)(const struct case_line *c, const struct instance *in,
                                 struct gpu_report *report);
    /* In place of what follows from the steps (op_launch and op_oracle below). */
    enum gpu_status (*launch)(const struct gpu_target *targets, const struct case_line *c,
                              const struct instance *in, const struct gpu_buffer *buffers,
                              struct gpu_report *report);
    void (*oracle)(const struct case_line *c, const struct instance *in,
                   const struct ref_error_model *model, const uint8_t *const *got,
                   struct expected *e);
    /* A scorer's, to judge a selection whose scores were not captured: fills e's select_value,
     * select_bound and select_n with what any right scorer of its kind may have
     * selected from. The number of rows; 0 when memory is short. NULL: no scorer. */
    uint32_t (*certify)(const struct case_line *c, const struct instance *in, struct expected *e);
};

/* The oracle's predicate on the case and, when `in` is not NULL, on its index tensors. */
bool op_ref_accepts(const struct case_line *c, const struct instance *in, struct ref_refusal *why);
/* The launcher's. */
enum gpu_status op_gpu_check(const struct case_line *c, const struct instance *in,
                             struct gpu_report *report);
/* Declares and fills the tensors (instance.h). Only called on accepted geometries. False: out of
 * memory. */
bool op_build(const struct case_line *c, struct instance *in);
/* Runs the kernel or kernels; targets[i] is modules[i], buffers[i] belongs to tensors[i]. */
enum gpu_status op_launch(const struct gpu_target *targets, const struct case_line *c,
                          const struct instance *in, const struct gpu_buffer *buffers,
                          struct gpu_report *report);
/* Fills e[t] for every output tensor t (arrays already allocated by contract). `got` are the
 * kernel's outputs in dense logical order: only pipelines read them, to judge a stage given what
 * the stage before it really produced. */
void op_oracle(const struct case_line *c, const struct instance *in,
               const struct ref_error_model *model, const uint8_t *const *got, struct expected *e);
/* Draws a geometry that may break any rule, for refusal agreement: a random case with up to two
 * keys of `wild` absurd. */
void op_sample_wild(struct case_line *c, struct rng *r);
/* The changed case of a relation; false if this case has nothing to change. */
bool relation_edit(const struct relation *relation, const struct case_line *base, struct rng *r,
                   struct case_line *changed);
int64_t relation_base_row(const struct relation *relation, const struct case_line *base,
                          const struct case_line *changed, int64_t row);
bool relation_covers(const struct relation *relation, const char *output);

/* Whether the tables fit each other: every name is known, every argument bound, every shape
 * complete. False with what does not. */
bool op_check_tables(const struct op *op, char *error, size_t error_size);

/* Room for the values of an array that has them. */
enum { ARRAY_VALUES_MAX = 8 };
/* The arguments of one step, with every buffer or data that there is: `in`, `buffers` may be NULL.
 * `arguments` is the kernel's struct of launch_*.h or of ref/, `values` lives as long. */
void step_gpu_arguments(const struct step *step, const struct case_line *c,
                        const struct instance *in, const struct gpu_buffer *buffers,
                        void *arguments, int32_t values[ARRAY_VALUES_MAX]);
void step_ref_arguments(const struct step *step, const struct case_line *c,
                        const struct instance *in, void *arguments,
                        int32_t values[ARRAY_VALUES_MAX]);
bool step_runs(const struct step *step, const struct case_line *c);
/* The array that an argument is bound to; writes its name. */
const struct array *step_array(const struct op *op, const struct step *step,
                               const struct argument *argument, char *name, size_t name_size);

/* A table of the descriptor and its length, as initialisers. */
#define TABLE(field) .field = field, .n_##field = sizeof field / sizeof *field

/* All of them under their usual names. */
#define USUAL_TABLES                                                                               \
    TABLE(params), TABLE(numbers), TABLE(arrays), .presets = presets, .always = always,            \
        .relations = relations, .sample = sample

enum { OP_MODULES_MAX = 4 };

extern const struct op *const op_table[];
extern const uint32_t op_count;
/* NULL if there is none. */
const struct op *op_find(const char *name, size_t length);

#endif
