/* CUDA's language on the CPU: what a .cu file expects to find without including anything.
 * Included first into every module by mk/simt-module.sh. __CUDA_ARCH__ is defined for sources from
 * elsewhere only (--arch); the project's kernels test ATTEST_SIMT. */
#ifndef ATTEST_SIMT_CUDA_RUNTIME_H
#define ATTEST_SIMT_CUDA_RUNTIME_H

/* The standard headers come before the qualifiers: they use some of the same words. */
#include <assert.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <algorithm>
#include <limits>
#include <type_traits>
#include <utility>

#define SIMT_MODULE 1
#include "simt_abi.h"

/* A kernel's output goes to standard error, and says whose it is. */
#define printf(...) simt_printf(__VA_ARGS__)

#undef assert
#define assert(expression) ((expression) ? (void)0 : simt_assert(#expression, __FILE__, __LINE__))

#define __host__
#define __device__
#define __constant__
#define __managed__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __builtin_align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __maxnreg__(count)
/* Words that rewrite.awk turns into declarations. */
#define __global__ __simt_global__
#define __shared__ __simt_shared__

/* Shim functions leave no trace in the debug information: a finding inside one is reported at the
 * line that called it. */
#define SIMT_FN static inline __attribute__((always_inline, nodebug))
#define SIMT_MEMBER __attribute__((nodebug))

#include "simt_vector.h"

/* The scheduler writes these before a thread runs; a thread never sees its own change. */
extern "C" {
extern const uint3 threadIdx __asm__("simt_thread_idx");
extern const uint3 blockIdx __asm__("simt_block_idx");
extern const dim3 blockDim __asm__("simt_block_dim");
extern const dim3 gridDim __asm__("simt_grid_dim");
}
#define warpSize 32

#include "simt_module.h"
#include "simt_print.h"
#include "simt_window.h"
#include "simt_sync.h"
#include "simt_atomic.h"
#include "simt_int.h"
#include "simt_math.h"

#endif
