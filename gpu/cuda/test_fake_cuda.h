/* A small CUDA driver on host memory, for tests on machines without a device. Addresses are real:
 * an access where nothing is mapped raises SIGSEGV, which the fake turns into error 700, so fences,
 * extents and pooling are tested for what they are. Kernels are C functions found by the entry
 * names in PTX text. */
#ifndef ATTEST_GPU_CUDA_FAKE_H
#define ATTEST_GPU_CUDA_FAKE_H

#include "gpu/cuda/driver_api.h"

/* What gpu_cuda_driver_override takes. */
void *fake_cuda_lookup(const char *symbol);

/* Set before opening; inherited by children. */
struct fake_cuda_faults {
    const char *missing;      /* this symbol is not found */
    cu_result init;           /* result of cuInit */
    int devices;              /* -1: none */
    uint64_t memory_bytes;    /* device memory; 0: 8 GiB */
    const char *reject_entry; /* PTX with this entry does not load */
    const char *fail_symbol;  /* this call ... */
    uint32_t fail_after;      /* ... succeeds so many times, then gives ... */
    cu_result fail_result;    /* ... this */
};
extern struct fake_cuda_faults fake_cuda_faults;

/* What is held now. */
struct fake_cuda_held {
    uint64_t reservations, handles, mappings, host_blocks, modules, contexts, streams, events,
        graphs, execs;
};
extern struct fake_cuda_held fake_cuda_held;

#endif
