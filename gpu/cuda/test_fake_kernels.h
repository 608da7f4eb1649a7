/* The kernels of the fake driver: what the PTX of the backend and of its self-test does, in C. */
#ifndef ATTEST_GPU_CUDA_FAKE_KERNELS_H
#define ATTEST_GPU_CUDA_FAKE_KERNELS_H

#include <stdint.h>

struct fake_launch {
    uint32_t grid_x, grid_y, block_x, shared_bytes;
    void **params;
};

struct fake_effect {
    int error;        /* a CUresult that the device would end with */
    uint64_t busy_ns; /* how long the stream stays busy */
};

struct fake_kernel {
    const char *name;
    void (*run)(const struct fake_launch *launch, struct fake_effect *effect);
    uint32_t n_params;
    uint8_t param_bytes[8];
};

/* The kernel whose name `text` starts with, up to a character that no name has; NULL: none. */
const struct fake_kernel *fake_kernel_find(const char *text);

#endif
