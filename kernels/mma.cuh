/* Tensor-core instructions and the copies that feed them, each in one small device function: inline
 * PTX on the GPU, plain code of the same meaning on the CPU (ATTEST_SIMT), where the multiply-add
 * is the project's bit-accurate model. Warp-collective functions need all 32 lanes. sm_80 or newer.
 */
#ifndef ATTEST_KERNELS_MMA_CUH
#define ATTEST_KERNELS_MMA_CUH

#include "det_math.cuh"
#include "formats.cuh"

#if defined(ATTEST_SIMT)
#include "simt_mma.h"
#endif

/* det_relu in one instruction: the larger of x and +0, NaN for NaN. */
static __device__ __forceinline__ float mma_relu(float x)
{
#if defined(ATTEST_SIMT)
    return det_relu(x);
#else
    float larger;

    asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(larger) : "f"(x));
    return larger;
#endif
}

/* acc += A B, m16n8k16, bf16 operands, f32 accumulator; fragments as in PTX's
 * mma.sync.aligned.m16n8k16.row.col. Warp-collective. */
static __device__ __forceinline__ void mma_bf16_m16n8k16(float acc[4], const uint32_t a[4],
                                                         const uint32_t b[2])
{
#if defined(ATTEST_SIMT)
    simt_mma_m16n8k16_bf16(acc, a, b, acc);
#else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

/* Four 8x8 matrices of 16-bit elements out of shared memory. Lane i names row i % 8 of matrix
 * i / 8, 16 bytes, 16-byte aligned; it receives elements 2(i % 4), +1 of row i / 4 of each matrix.
 * Warp-collective. */
static __device__ __forceinline__ void mma_load_matrices(uint32_t out[4], const void *shared_row)
{
#if defined(ATTEST_SIMT)
    uint32_t lane = threadIdx.x % DET_WARP;

    for (uint32_t m = 0; m < 4; m++) {
        uintptr_t row = __shfl_sync(DET_FULL_MASK, (uintptr_t)shared_row, (int)(8 * m + lane / 4));

        out[m] = ((const uint32_t *)row)[lane % 4];
    }
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(shared_row))
                 : "memory");
#endif
}

/* Begins copying 16 bytes from global to shared memory, both 16-byte aligned; where `wanted` is
 * false nothing is read and zeros are written. The bytes are there after mma_copy_wait and a
 * barrier. */
static __device__ __forceinline__ void mma_copy16(void *shared_to, const void *global_from,
                                                  bool wanted)
{
#if defined(ATTEST_SIMT)
    *(uint4 *)shared_to = wanted ? *(const uint4 *)global_from : make_uint4(0, 0, 0, 0);
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(shared_to)),
                 "l"(__cvta_generic_to_global(global_from)), "r"(wanted ? 16u : 0u)
                 : "memory");
#endif
}

/* Begins copying one float from global to shared memory; like mma_copy16, without its alignment. */
static __device__ __forceinline__ void mma_copy_float(float *shared_to, const float *global_from)
{
#if defined(ATTEST_SIMT)
    *shared_to = *global_from;
#else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(shared_to)),
                 "l"(__cvta_generic_to_global(global_from))
                 : "memory");
#endif
}

/* Closes the calling thread's current batch of copies. */
static __device__ __forceinline__ void mma_copy_commit(void)
{
#if !defined(ATTEST_SIMT)
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Waits until all but the calling thread's `PENDING` youngest batches have landed. */
template <int PENDING> static __device__ __forceinline__ void mma_copy_wait(void)
{
#if !defined(ATTEST_SIMT)
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}

/* Two floats to bf16, nearest even, every NaN 0x7fff; `low` goes to the low half. */
static __device__ __forceinline__ uint32_t mma_bf16x2(float low, float high)
{
#if defined(ATTEST_SIMT)
    return fmt_f32_to_bf16x2(low, high);
#else
    uint32_t pair;

    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#endif
}

#endif
