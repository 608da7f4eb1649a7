// Kernels that are wrong in one way each. The line at fault carries the kernel's name behind
// "BAD:"; the tests look it up there.
#include <cuda_runtime.h>

#define FULL 0xffffffffu

extern "C" {

__global__ void fine(int *out)
{
    __syncthreads();
    out[threadIdx.x] = threadIdx.x;
}

__global__ void read_at(const int *in, int *out, long long index)
{
    if (threadIdx.x == 17) out[0] = in[index]; // BAD: read_at
}

__global__ void write_at(int *out, long long index)
{
    if (threadIdx.x == 9) out[index] = 5; // BAD: write_at
}

__global__ void wrapped_index(int *out, int index)
{
    if (threadIdx.x == 3) out[threadIdx.x + index] = 1; // BAD: wrapped_index
}

__global__ void write_input(int *in)
{
    if (threadIdx.x == 4) in[2] = 1; // BAD: write_input
}

__global__ void unwritten_shared(int *out)
{
    __shared__ int values[64];

    if (threadIdx.x != 6) values[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = values[threadIdx.x]; // BAD: unwritten_shared
}

__global__ void unwritten_dynamic(int *out)
{
    extern __shared__ int dynamic[];

    if (threadIdx.x > 0) dynamic[threadIdx.x] = threadIdx.x;
    __syncthreads();
    if (threadIdx.x == 1) out[0] = dynamic[0]; // BAD: unwritten_dynamic
}

__global__ void unwritten_global(int *out, const int *scratch)
{
    out[threadIdx.x] = scratch[threadIdx.x]; // BAD: unwritten_global
}

__global__ void accumulates_unwritten(float *out)
{
    out[threadIdx.x] += 1.0f; // BAD: accumulates_unwritten
}

__global__ void no_barrier(int *out)
{
    __shared__ int values[64];

    values[threadIdx.x] = threadIdx.x;
    __syncthreads();
    values[threadIdx.x] = values[63 - threadIdx.x]; // BAD: no_barrier
    __syncthreads();
    out[threadIdx.x] = values[threadIdx.x];
}

__global__ void part_of_a_word(int *out)
{
    __shared__ unsigned words[32];
    unsigned short *halves = (unsigned short *)words;

    if (threadIdx.x < 32) words[threadIdx.x] = 0;
    if (threadIdx.x == 40) halves[7] = 1; // BAD: part_of_a_word
}

__global__ void byte_of_a_byte(int *out)
{
    unsigned char *bytes = (unsigned char *)out;

    if (threadIdx.x < 4) bytes[threadIdx.x] = 1;
    if (threadIdx.x == 34) bytes[3] = 2; // BAD: byte_of_a_byte
}

__global__ void no_syncwarp(int *out)
{
    __shared__ int values[32];

    values[threadIdx.x] = threadIdx.x;
    __syncwarp();
    int seen = values[threadIdx.x ^ 1];
    __syncwarp();
    values[threadIdx.x] = seen + 1, out[threadIdx.x] = values[threadIdx.x ^ 1]; // BAD: no_syncwarp
}

__global__ void shuffle_is_no_fence(int *out)
{
    __shared__ int values[32];

    values[threadIdx.x] = threadIdx.x;
    int lane = __shfl_xor_sync(FULL, threadIdx.x, 1);
    out[threadIdx.x] = values[lane]; // BAD: shuffle_is_no_fence
}

__global__ void blocks_write_the_same(int *out)
{
    if (threadIdx.x == 0) out[0] = blockIdx.x; // BAD: blocks_write_the_same
}

__global__ void block_reads_another(int *out)
{
    if (threadIdx.x == 0) out[blockIdx.x] = blockIdx.x;
    if (threadIdx.x == 1 && blockIdx.x > 0)
        out[gridDim.x] = out[blockIdx.x - 1]; // BAD: block_reads_another
}

__global__ void global_without_barrier(int *out)
{
    out[threadIdx.x] = 1;
    if (threadIdx.x == 33) out[64] = out[2]; // BAD: global_without_barrier
}

__global__ void plain_beside_atomic(int *out)
{
    if (threadIdx.x < 32)
        atomicAdd(&out[0], 1);
    else
        out[0] = 2; // BAD: plain_beside_atomic
}

__global__ void barrier_after_return(int *out)
{
    if (threadIdx.x >= 20) return;
    out[threadIdx.x] = 1;
    __syncthreads(); // BAD: barrier_after_return
}

__global__ void barrier_against_shuffle(int *out)
{
    if (threadIdx.x < 32)
        __syncthreads(); // BAD: barrier_against_shuffle
    else if (threadIdx.x < 48)
        out[threadIdx.x] = __shfl_sync(FULL, 1, 0);
}

__global__ void barriers_of_two_kinds(int *out)
{
    if (threadIdx.x < 32)
        __syncthreads();
    else
        out[0] = __syncthreads_count(1); // BAD: barriers_of_two_kinds
}

__global__ void shuffle_after_return(int *out)
{
    if (threadIdx.x == 5) return;
    out[threadIdx.x] = __shfl_down_sync(FULL, (int)threadIdx.x, 1); // BAD: shuffle_after_return
}

__global__ void two_collectives(int *out)
{
    if (threadIdx.x < 16)
        out[threadIdx.x] = __shfl_sync(FULL, 1, 0); // BAD: two_collectives
    else
        out[threadIdx.x] = __ballot_sync(FULL, 1);
}

__global__ void not_in_mask(int *out)
{
    out[threadIdx.x] = __shfl_sync(0x7fffffffu, 1, 0); // BAD: not_in_mask
}

__global__ void circle_of_masks(int *out)
{
    unsigned me = threadIdx.x, next = (me + 1) % 3;

    if (me < 3) __syncwarp(1u << me | 1u << next); // BAD: circle_of_masks
    out[me] = 1;
}

__global__ void endless(volatile int *flag)
{
    while (*flag == 0) // BAD: endless
        ;
}

__global__ void endless_barriers(volatile int *flag)
{
    while (*flag == 0) __syncthreads();
}

__global__ void overruns_static(int *out, int index)
{
    __shared__ int first[8];
    __shared__ int second[8];

    if (threadIdx.x < 8) first[threadIdx.x] = second[threadIdx.x] = 0;
    __syncthreads();
    if (threadIdx.x == 2) first[index] = 1; // BAD: overruns_static
    __syncthreads();
    if (threadIdx.x < 8) out[threadIdx.x] = first[threadIdx.x] + second[threadIdx.x];
}

__global__ void overruns_dynamic(int *out, int index)
{
    extern __shared__ int dynamic[];

    if (threadIdx.x == 2) dynamic[index] = 1; // BAD: overruns_dynamic
}

__global__ void divides(int *out, int by)
{
    out[threadIdx.x] = 100 / (by + (threadIdx.x != 11)); // BAD: divides
}

__global__ void traps(int *out)
{
    if (threadIdx.x == 1) __trap(); // BAD: traps
}

__global__ void asserts(int *out)
{
    assert(threadIdx.x < 2); // BAD: asserts
}

__global__ void misaligned(float4 *out)
{
    float4 *odd = (float4 *)((char *)out + 4);

    *odd = make_float4(1, 2, 3, threadIdx.x); // BAD: misaligned
}

__device__ __noinline__ int recurse(volatile int *values, int n)
{
    volatile int local[256];

    for (int i = 0; i < 256; i++) local[i] = values[0] + n;
    return n == 0 ? local[0] : recurse(local, n + 1) + local[n & 255];
}

__global__ void overflows_stack(int *out)
{
    out[0] = recurse(out, 1);
}

__global__ void copies_too_much(const uint4 *in, uint4 *out, int n)
{
    if (threadIdx.x == 0) out[n] = in[0]; // BAD: copies_too_much
}

} // extern "C"
