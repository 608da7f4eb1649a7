/* Shared between the files of the fake driver. */
#ifndef ATTEST_GPU_CUDA_FAKE_INTERNAL_H
#define ATTEST_GPU_CUDA_FAKE_INTERNAL_H

#include <stdbool.h>

#include "test_fake_cuda.h"

extern cu_result fake_cuda_sticky; /* what every call gives after a fault */
extern bool fake_cuda_capturing;
extern bool fake_cuda_in_flight; /* work was given to the stream and no query has said it ended */

/* Whether this call is the one that a test wants to fail. */
bool fake_cuda_fails(const char *symbol, cu_result *result);
uint64_t fake_cuda_device_bytes(void);

/* Every call of a context starts so. */
#define ENTER()                                                    \
    do {                                                           \
        cu_result wanted;                                          \
        if (fake_cuda_sticky) return fake_cuda_sticky;             \
        if (fake_cuda_fails(__func__ + 5, &wanted)) return wanted; \
    } while (0)

#define FAKE_PROTOTYPE(field, symbol, parameters) cu_result fake_##symbol parameters;
GPU_CUDA_REQUIRED(FAKE_PROTOTYPE)
GPU_CUDA_OPTIONAL(FAKE_PROTOTYPE)
#undef FAKE_PROTOTYPE

#endif
