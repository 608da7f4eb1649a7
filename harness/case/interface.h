/* The interface of every kernel as data: its arguments in order, what the host knows besides, grid,
 * block and shared memory, and where each number and array lies in the launcher's and in the
 * oracle's argument struct. The two structs stay apart, and so do the two predicates over them.
 *
 * Shapes and launch numbers are expressions (expression.h) in the names of the interface. */
#ifndef ATTEST_INTERFACE_H
#define ATTEST_INTERFACE_H

#include "gpu/launch_dsa.h"
#include "gpu/launch_qsa.h"
#include "harness/case/expected.h"
#include "ref/dsa.h"
#include "ref/qsa.h"

/* A field of an argument struct. */
enum place_type { NO_PLACE, PLACE_U32, PLACE_I32, PLACE_U64, PLACE_F32, PLACE_BUFFER, PLACE_DATA };
struct place {
    enum place_type type;
    uint32_t offset;
};

enum argument_kind {
    ARGUMENT_IN,     /* an array that the kernel reads */
    ARGUMENT_OUT,    /* an array that it writes */
    ARGUMENT_NUMBER, /* a number that it gets */
    ARGUMENT_HOST /* a number that only the launcher has: it is in the grid, or bounds an array */
};

struct argument {
    const char *name;
    enum argument_kind kind;
    struct place gpu, ref; /* number, or buffer in the one and data in the other */
    struct place host;     /* arrays: host copy in the launcher's struct */
    /* Arrays: */
    enum dtype dtype;
    const char *shape; /* as allocated, in elements: "rows, n_heads, hd" */
    const char *dims;  /* what an index is called in a message: "row,head,dim" */
    const char *owned; /* outputs: the part of it that the kernel owns; NULL: all */
    const char *first; /* and the first of its rows; NULL: 0 */
    bool loose;        /* rows behind the owned ones may be written */
};

/* Room for the argument struct of any kernel, the launcher's or the oracle's. */
enum { ARGUMENT_BYTES_MAX = 256 };
union arguments {
    uint64_t align;
    unsigned char bytes[ARGUMENT_BYTES_MAX];
};

struct interface {
    const char *entry;
    const struct argument *arguments;
    uint32_t n_arguments;
    const char *grid, *block, *shared; /* "rows, n_heads"; "hd"; bytes of dynamic shared memory */
    bool (*accepts)(const void *ref, struct ref_refusal *why);
    enum gpu_status (*check)(const void *gpu, struct gpu_report *report);
    enum gpu_status (*launch)(const struct gpu_target *target, const void *gpu,
                              struct gpu_report *report);
    /* out[i]: arrays for the i-th output, allocated by contract. */
    void (*reference)(const void *ref, const struct ref_error_model *model,
                      struct expected *const *out);
};

extern const struct interface interface_dsa_decode, interface_dsa_kpool_compress;
extern const struct interface interface_dsa_index_scores, interface_dsa_index_scores_tiled;
extern const struct interface interface_dsa_topk_pools;
extern const struct interface interface_dsa_expand_selection, interface_dsa_topk_to_mask;
extern const struct interface interface_dsa_mla_masked_attn;
extern const struct interface interface_qsa_block_pool, interface_qsa_qprep;
extern const struct interface interface_qsa_qprep_rows, interface_qsa_score;
extern const struct interface interface_qsa_score_rows, interface_qsa_score_rows_tiled;
extern const struct interface interface_qsa_score_rows_tc;
extern const struct interface interface_qsa_topk_rows, interface_qsa_gather;
extern const struct interface interface_qsa_prefill_attn, interface_paged_decode_attn;

/* For the tables: fields by name, with their type as the compiler sees it. */
#define PLACE_TYPE(field) \
    _Generic((field), uint32_t: PLACE_U32, int32_t: PLACE_I32, uint64_t: PLACE_U64,                \
             float: PLACE_F32, const struct gpu_buffer *: PLACE_BUFFER, default: PLACE_DATA)
#define PLACE(type, field)                                    \
    {                                                         \
        PLACE_TYPE(((type *)0)->field), offsetof(type, field) \
    }
#define IN_GPU(kernel, field) PLACE(struct gpu_##kernel, field)
#define IN_REF(kernel, field) PLACE(struct ref_##kernel, field)

/* An input; one whose host copy the launcher reads too; an output; a number that the kernel gets;
 * one that only the host has. What an array is follows as designated initialisers. */
#define INPUT(kernel, field, ...)                                          \
    {                                                                      \
        .name = #field, .kind = ARGUMENT_IN, .gpu = IN_GPU(kernel, field), \
        .ref = IN_REF(kernel, field), __VA_ARGS__                          \
    }
#define INPUT_KNOWN(kernel, field, ...) \
    INPUT(kernel, field, .host = IN_GPU(kernel, host_##field), __VA_ARGS__)
#define OUTPUT(kernel, field, ...)                                                      \
    {                                                                                   \
        .name = #field, .kind = ARGUMENT_OUT, .gpu = IN_GPU(kernel, field), __VA_ARGS__ \
    }
#define NUMBER(kernel, field)                                                  \
    {                                                                          \
        .name = #field, .kind = ARGUMENT_NUMBER, .gpu = IN_GPU(kernel, field), \
        .ref = IN_REF(kernel, field)                                           \
    }
#define HOST(kernel, field)                                                  \
    {                                                                        \
        .name = #field, .kind = ARGUMENT_HOST, .gpu = IN_GPU(kernel, field), \
        .ref = IN_REF(kernel, field)                                         \
    }
#define ARGUMENTS(table) .arguments = table, .n_arguments = sizeof table / sizeof *table

/* The launcher and the predicates of a kernel as functions of untyped arguments. */
#define LAUNCHER(kernel)                                                                     \
    static enum gpu_status kernel##_check(const void *gpu, struct gpu_report *report)        \
    {                                                                                        \
        return gpu_##kernel##_check(gpu, report);                                            \
    }                                                                                        \
    static enum gpu_status kernel##_launch(const struct gpu_target *target, const void *gpu, \
                                           struct gpu_report *report)                        \
    {                                                                                        \
        return gpu_##kernel(target, gpu, report);                                            \
    }
#define PREDICATE(kernel)                                                  \
    static bool kernel##_accepts(const void *ref, struct ref_refusal *why) \
    {                                                                      \
        return ref_##kernel##_accepts(ref, why);                           \
    }
#define FUNCTIONS(kernel)                                                            \
    .accepts = kernel##_accepts, .check = kernel##_check, .launch = kernel##_launch, \
    .reference = kernel##_reference

#endif
