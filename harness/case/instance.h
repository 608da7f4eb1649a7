/* The tensors of a case on the host: inputs with their bytes, outputs with the region the kernel
 * owns. */
#ifndef ATTEST_INSTANCE_H
#define ATTEST_INSTANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpu/gpu.h"

enum dtype { DTYPE_BF16, DTYPE_E4M3, DTYPE_F32, DTYPE_I32, DTYPE_U8 };
uint32_t dtype_bytes(enum dtype dtype);
const char *dtype_name(enum dtype dtype);

enum contract {
    CONTRACT_EXACT,     /* every bit */
    CONTRACT_BOUND,     /* |got - value| <= bound, per element */
    CONTRACT_SELECT,    /* i32 rows: certified top-k */
    CONTRACT_ANY        /* not judged (scratch), only guarded and checked for determinism */
};
const char *contract_name(enum contract contract);

enum role { ROLE_IN, ROLE_OUT };

/* What the parts of inputs that must not matter are filled with. */
enum poison { POISON_NAN, POISON_HUGE };

enum { TENSOR_RANK_MAX = 4, INSTANCE_TENSORS_MAX = 24 };

struct tensor {
    const char *name;
    enum dtype dtype;
    enum role role;
    enum contract contract; /* outputs */
    /* The logical tensor: element (i0, i1, ...) lies at origin + sum(i_k * stride_k), in elements.
     * For an output this is exactly the region the kernel owns. */
    uint32_t rank;
    uint64_t shape[TENSOR_RANK_MAX], stride[TENSOR_RANK_MAX];
    const char *dim[TENSOR_RANK_MAX]; /* what an index is called in a message: "seq", "head" */
    uint64_t origin;
    uint64_t elems;      /* of the allocation */
    uint64_t free_from;  /* outputs: from this element on anything may be written; else = elems */
    uint8_t *data;       /* elems * dtype_bytes, sparse; inputs only (NULL for outputs). Where there
                          * are extents, only they are written, unless the tensor is overridden */
    bool overridden;     /* with captured data, as a whole */
    uint32_t mapping_uses; /* tensors that had this memory before */
    struct gpu_extent *extents; /* backed parts; none: all of it. Owned by the instance */
    uint32_t n_extents;
    int32_t alias_of; /* index of the earlier tensor, of the same shape and role, whose buffer this
                       * one shares; -1: its own */
};

struct instance {
    struct tensor tensors[INSTANCE_TENSORS_MAX];
    uint32_t n_tensors;
    enum poison poison;
    struct paging *pages; /* of its cache; NULL: none. Owned by the instance */
};

void instance_init(struct instance *in, enum poison poison);
void instance_free(struct instance *in);
/* Adds a tensor with dense row-major strides; returns it, or NULL when memory is short. Inputs get
 * zeroed sparse memory. `dims` names the dimensions: "seq,head,dim". */
struct tensor *instance_add(struct instance *in, const char *name, enum dtype dtype, enum role role,
                            enum contract contract, uint32_t rank, const uint64_t *shape,
                            const char *dims);
/* The same with an allocation of `elems` elements in which the logical tensor has these strides
 * and origin. */
struct tensor *instance_add_strided(struct instance *in, const char *name, enum dtype dtype,
                                    enum role role, enum contract contract, uint32_t rank,
                                    const uint64_t *shape, const uint64_t *stride, uint64_t origin,
                                    uint64_t elems, const char *dims);
const struct tensor *instance_find(const struct instance *in, const char *name);
uint32_t instance_index(const struct instance *in, const char *name);
void *instance_data(const struct instance *in, const char *name);
/* Adds a backed part at the end, merging it with the last one where they touch. */
bool tensor_add_extent(struct tensor *t, uint64_t offset_bytes, uint64_t size_bytes);
/* The backed parts, *count of them; `whole` is room for the usual single one. */
const struct gpu_extent *tensor_backed(const struct tensor *t, struct gpu_extent *whole,
                                       uint32_t *count);
/* Bytes of memory behind all tensors. */
uint64_t instance_backed_bytes(const struct instance *in);
uint64_t tensor_logical_elems(const struct tensor *t);
/* Offset in elements of the flat-th logical element. */
uint64_t tensor_offset(const struct tensor *t, uint64_t flat);
/* "seq 2, head 5, dim 448" */
void tensor_describe_index(const struct tensor *t, uint64_t flat, char *text, size_t size);
#endif
