/* One descriptor an operation: everything generic code needs. From it follow the command line,
 * sampler, poison, comparison, relations, minimiser, fuzz target, dictionary and docs.
 * A pipeline is an operation whose launch runs several kernels. */
#ifndef ATTEST_OP_H
#define ATTEST_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/gpu.h"
#include "harness/case/case.h"
#include "harness/case/expected.h"
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
    /* Makes the changed case; false if this case has nothing to change. */
    bool (*edit)(const struct case_line *base, struct rng *r, struct case_line *changed);
    /* Which row (first output dimension) of the base run equals row `row` of the changed run; -1
     * for none. NULL: the same row. */
    int64_t (*base_row)(const struct case_line *base, const struct case_line *changed,
                        int64_t row);
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
    const struct preset *presets; /* ends with a NULL name; may be NULL */
    uint32_t weight; /* its share of random cases: 2 means twice as many; 0 counts as 1 */
    const char *const *always;    /* cases that every verify runs first; NULL-terminated */
    const struct ref_error_model *model; /* the project's kernel's; NULL for EXACT operations */
    const struct relation *relations;    /* ends with a NULL name; may be NULL */
    /* Whether a relation speaks about this output (not asked for RELATION_SAME_LIMITS); NULL: about
     * all of them. */
    bool (*relation_covers)(const struct relation *relation, const struct tensor *output);

    /* Draws the index-th random case. Values of c are initial on entry. `index` is for cycling
     * through regimes and structures so that all of them occur. Must give cases the operation
     * accepts; the seed is set by the caller. */
    void (*sample)(struct case_line *c, struct rng *r, enum tier tier, uint64_t index);
    /* Draws a geometry that may break any rule, for refusal agreement. */
    void (*sample_wild)(struct case_line *c, struct rng *r);
    /* The oracle's predicate on the case and, when `in` is not NULL, on its index tensors. */
    bool (*ref_accepts)(const struct case_line *c, const struct instance *in,
                        struct ref_refusal *why);
    /* The launcher's. */
    enum gpu_status (*gpu_check)(const struct case_line *c, const struct instance *in,
                                 struct gpu_report *report);
    /* Declares and fills the tensors (instance.h). Everything that must not matter is filled
     * according to in->poison. Only called on accepted geometries. False: out of memory. */
    bool (*build)(const struct case_line *c, struct instance *in);
    /* Runs the kernel or kernels; targets[i] is modules[i], buffers[i] belongs to tensors[i]. */
    enum gpu_status (*launch)(const struct gpu_target *targets, const struct case_line *c,
                              const struct instance *in, const struct gpu_buffer *buffers,
                              struct gpu_report *report);
    /* Fills e[t] for every output tensor t (arrays already allocated by contract). `got` are the
     * kernel's outputs in dense logical order: only pipelines read them, to judge a stage given what
     * the stage before it really produced. */
    void (*oracle)(const struct case_line *c, const struct instance *in,
                   const struct ref_error_model *model, const uint8_t *const *got,
                   struct expected *e);
    /* A scorer's, to judge a selection whose scores were not captured: fills e's select_value,
     * select_bound and select_n with what any right scorer of its kind may have
     * selected from. The number of rows; 0 when memory is short. NULL: no scorer. */
    uint32_t (*certify)(const struct case_line *c, const struct instance *in, struct expected *e);
};

enum { OP_MODULES_MAX = 4 };

extern const struct op *const op_table[];
extern const uint32_t op_count;
/* NULL if there is none. */
const struct op *op_find(const char *name, size_t length);

#endif
