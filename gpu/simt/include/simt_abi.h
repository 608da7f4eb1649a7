/* What a compiled kernel module and the runtime in the host program know of each other.
 *
 * A module is a shared object made by mk/simt-module.sh out of a .cu file. It exports one symbol,
 * `simt_module_table_v1`; everything else here is defined by the host program and found through the
 * dynamic linker (the host links with -rdynamic). C and C++. */
#ifndef ATTEST_SIMT_ABI_H
#define ATTEST_SIMT_ABI_H

#include <stdint.h>

/* Raised whenever anything in this file changes; the loader refuses other versions. */
#define SIMT_ABI_VERSION 1u
#define SIMT_WARP 32u
#define SIMT_MAX_BLOCK 1024u

struct simt_entry {
    const char *name;
    void (*thunk)(void **args); /* calls the kernel; args[i] points at the i-th value */
    uint32_t n_args;
    const uint32_t *arg_bytes; /* [n_args] */
};

struct simt_module_table {
    uint32_t abi_version;
    uint32_t n_entries;
    const struct simt_entry *entries;
    unsigned char *shared_begin, *shared_end; /* static __shared__ variables; equal when none */
    uint32_t traced;
    const char *source; /* the .cu file as named to the compiler */
};

/* Block-wide barriers. All threads of the block must come to one of the same kind. */
enum simt_barrier_kind {
    SIMT_BARRIER_PLAIN,
    SIMT_BARRIER_COUNT,
    SIMT_BARRIER_AND,
    SIMT_BARRIER_OR,
};

/* Warp collectives. All lanes of a mask must come to the same kind with the same mask. `value` and
 * the result are 64 bits wide; 32-bit operands sit in the low half. */
enum simt_collective_kind {
    SIMT_SYNCWARP,  /* the only one that orders memory between lanes */
    SIMT_SHUFFLE,   /* argument: the lane to read from, already worked out by the caller */
    SIMT_BALLOT,    /* value: predicate; result: mask */
    SIMT_ANY,       /* value: predicate */
    SIMT_ALL,       /* value: predicate */
    SIMT_MATCH_ANY, /* result: mask of the lanes with the same value */
    SIMT_MATCH_ALL, /* result: the whole mask if all values are equal, else 0 */
    SIMT_REDUCE_ADD,
    SIMT_REDUCE_MIN_U32,
    SIMT_REDUCE_MAX_U32,
    SIMT_REDUCE_MIN_S32,
    SIMT_REDUCE_MAX_S32,
    SIMT_REDUCE_AND,
    SIMT_REDUCE_OR,
    SIMT_REDUCE_XOR,
    SIMT_MMA_BF16_M16N8K16, /* value: address of a struct simt_mma_operands */
};

/* One lane's fragments of mma.sync m16n8k16, in PTX's layout. */
struct simt_mma_operands {
    float *d;          /* [4] */
    const uint32_t *a; /* [4], two bf16 each */
    const uint32_t *b; /* [2], two bf16 each */
    const float *c;    /* [4] */
};

#ifdef __cplusplus
extern "C" {
#endif

/* The running thread's lane and the block's dynamic shared memory, kept by the scheduler. The other
 * registers (threadIdx, ...) are declared where their types are: cuda_runtime.h, run.h. A thread
 * never sees its registers change, so to a module they are constants. */
#ifdef SIMT_MODULE
#define SIMT_REGISTER const
#else
#define SIMT_REGISTER
#endif
extern SIMT_REGISTER uint32_t simt_lane;
extern void *SIMT_REGISTER simt_dynamic_shared;

/* Calls on two lines stay two calls: a finding names the line. */
#ifdef SIMT_MODULE
#define SIMT_NOMERGE __attribute__((nomerge))
#else
#define SIMT_NOMERGE
#endif
SIMT_NOMERGE uint32_t simt_barrier(uint32_t kind, uint32_t predicate);
SIMT_NOMERGE uint64_t simt_collective(uint32_t kind, uint32_t mask, uint64_t value,
                                      uint32_t argument);
uint32_t simt_live_lanes(void); /* lanes of this warp that have not returned */
void simt_yield(void);          /* lets other threads of the block run */
/* Both end the launch with a finding and do not come back; not declared noreturn, which would make
 * the instrumentation of trace builds call functions that only its own runtime has. */
void simt_trap(void);
void simt_assert(const char *expression, const char *file, int line);
uint64_t simt_clock(void);

/* Trace builds only: an atomic operation is about to touch [address, address + bytes); the thread
 * has called __threadfence. */
void simt_trace_atomic(const volatile void *address, uint32_t bytes);
void simt_trace_fence(void);

#ifdef __cplusplus
}
#endif
#endif
