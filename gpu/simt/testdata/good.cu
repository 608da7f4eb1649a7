// Kernels that use the language rightly, one feature or two each. The tests compute what they must
// write and demand the same bits under every schedule, with and without the trace.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include "good_helpers.cuh"

#define FULL 0xffffffffu

struct pair_argument {
    int a;
    double b;
};

__constant__ float table[4] = {1.5f, -2.0f, 0.25f, 8.0f};
__device__ int launches;
extern __shared__ __align__(16) unsigned file_scope[];

extern "C" __global__ void indices(uint32_t *out)
{
    unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    unsigned threads = blockDim.x * blockDim.y * blockDim.z;
    unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;

    out[block * threads + thread] = blockIdx.x << 28 | blockIdx.y << 24 | blockIdx.z << 20 |
                                    threadIdx.x << 8 | threadIdx.y << 4 | threadIdx.z;
}

extern "C" __global__ void __launch_bounds__(256)
block_sum(const float *__restrict__ in, float *__restrict__ out, int n)
{
    extern __shared__ float partial[];
    float sum = 0;

    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += in[i];
    for (int m = 16; m > 0; m >>= 1) sum += __shfl_xor_sync(FULL, sum, m);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        sum = 0;
        for (unsigned i = 0; i < blockDim.x / 32; i++) sum += partial[i];
        out[blockIdx.x] = sum;
    }
}

extern "C"
{
    __global__ void transpose(const int *in, int *out)
    {
        __shared__ int tile[32][33];

        for (int y = threadIdx.y; y < 32; y += blockDim.y)
            tile[y][threadIdx.x] = in[y * 32 + threadIdx.x];
        __syncthreads();
        for (int y = threadIdx.y; y < 32; y += blockDim.y)
            out[y * 32 + threadIdx.x] = tile[threadIdx.x][y];
    }

    /* out: [32][24] */
    __global__ void collectives(uint32_t *out)
    {
        unsigned lane = threadIdx.x;
        uint32_t *o = out + lane * 24;
        int all_same;

        /* Before the first collective no lane can have returned. */
        o[23] = __popc(__activemask());
        o[0] = __shfl_sync(FULL, lane * 3, 7);
        o[1] = __shfl_sync(FULL, lane * 3, lane + 5, 8);
        o[2] = __shfl_up_sync(FULL, lane, 3);
        o[3] = __shfl_up_sync(FULL, lane, 2, 16);
        o[4] = __shfl_down_sync(FULL, lane, 5);
        o[5] = __shfl_down_sync(FULL, lane, 1, 4);
        o[6] = __shfl_xor_sync(FULL, lane, 9);
        o[7] = __shfl_xor_sync(FULL, lane, 8, 8);
        o[8] = __ballot_sync(FULL, lane % 3 == 0);
        o[9] = __any_sync(FULL, lane == 31) + 2 * __any_sync(FULL, lane > 40);
        o[10] = __all_sync(FULL, lane < 32) + 2 * __all_sync(FULL, lane != 4);
        o[11] = __match_any_sync(FULL, lane % 5);
        o[12] = __match_all_sync(FULL, 17.0f, &all_same);
        o[13] = all_same;
        o[14] = __match_all_sync(FULL, (unsigned long long)lane, &all_same) + all_same;
        o[15] = __reduce_add_sync(FULL, lane);
        o[16] = __reduce_min_sync(FULL, lane ^ 21);
        o[17] = __reduce_max_sync(FULL, (int)lane - 40);
        o[18] = __reduce_and_sync(FULL, lane | 0x10);
        o[19] = __reduce_or_sync(FULL, 1u << lane);
        o[20] = __reduce_xor_sync(FULL, lane * lane);
        o[21] = (uint32_t)__shfl_sync(FULL, (double)lane + 0.5, 12);
        o[22] = (uint32_t)(__shfl_down_sync(FULL, (unsigned long long)lane << 33, 1) >> 33);
    }

    /* Halves of a warp that do different numbers of collectives, and a block of 45 threads whose
     * second warp is not whole. */
    __global__ void halves(uint32_t *out)
    {
        unsigned lane = threadIdx.x % 32, value = threadIdx.x;

        if (lane < 16) {
            for (int i = 0; i < 5; i++) value += __shfl_xor_sync(0x0000ffffu, value, 1 << i % 4);
        } else {
            for (int i = 0; i < 2; i++) value = __shfl_down_sync(0xffff0000u, value, 1) * 2;
        }
        __syncwarp();
        out[threadIdx.x] = value + __reduce_max_sync(FULL, lane);
    }

    __global__ void barrier_votes(int *out)
    {
        int count = __syncthreads_count(threadIdx.x % 3 == 0);
        int all = __syncthreads_and(threadIdx.x < 1000), none = __syncthreads_and(threadIdx.x < 5);
        int any = __syncthreads_or(threadIdx.x == 77), nobody = __syncthreads_or(0);

        out[threadIdx.x] = count * 100 + all + 2 * none + 4 * any + 8 * nobody;
    }

    /* counters: [10], zeroed; doubles at the end */
    __global__ void atomics(int *ints, unsigned long long *longs, float *floats)
    {
        __shared__ unsigned total, highest;
        unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

        if (threadIdx.x == 0) total = highest = 0;
        __syncthreads();
        atomicAdd(&total, 2u);
        atomicMax(&highest, threadIdx.x);
        __syncthreads();
        if (threadIdx.x == 0) atomicAdd(&ints[0], (int)(total + highest));
        atomicMin(&ints[1], -(int)i);
        atomicOr(&ints[2], 1 << i % 32);
        atomicAnd(&ints[3], ~(1 << i % 7));
        atomicXor(&ints[4], (int)i);
        atomicSub(&ints[5], 3);
        atomicInc((unsigned *)&ints[6], 9);
        atomicDec((unsigned *)&ints[7], 6);
        atomicCAS(&ints[8], 0, 55);
        atomicExch(&ints[9], 4);
        atomicAdd(&longs[0], 1ull << 33);
        atomicMax(&longs[1], (unsigned long long)i << 40);
        atomicAdd(&floats[0], 0.5f);
    }

    __global__ void copies(const uint4 *in, uint4 *out, unsigned char *bytes)
    {
        struct big {
            uint4 part[5];
        };
        big local = ((const big *)in)[0];

        out[threadIdx.x] = in[threadIdx.x];
        if (threadIdx.x == 0) ((big *)out)[1] = local;
        if (threadIdx.x == 1) memset(bytes, 0x5a, 100);
        if (threadIdx.x == 2) memcpy(bytes + 100, in, 77);
    }

    __global__ void arguments(bool flag, unsigned long long big, pair_argument pair, float *out,
                              short small)
    {
        out[0] = flag ? 1.0f : 0.0f;
        out[1] = (float)(big >> 32);
        out[2] = (float)(pair.a + pair.b);
        out[3] = table[threadIdx.x] + twice(3.0f) + (float)small;
        launches++;
        out[4] = (float)launches;
    }

    __global__ void reversed(const unsigned *in, unsigned *out)
    {
        file_scope[threadIdx.x] = in[threadIdx.x];
        __syncthreads();
        out[threadIdx.x] = reverse_of(file_scope, blockDim.x);
    }

    /* The last block to finish adds up what the others wrote. */
    __global__ void last_block(unsigned *partial, unsigned *counter, unsigned *out)
    {
        __shared__ bool last;

        if (threadIdx.x == 0) {
            partial[blockIdx.x] = blockIdx.x * blockIdx.x;
            __threadfence();
            last = atomicAdd(counter, 1u) == gridDim.x - 1;
        }
        __syncthreads();
        if (last && threadIdx.x == 0) {
            unsigned sum = 0;

            for (unsigned i = 0; i < gridDim.x; i++) sum += partial[i];
            *out = sum;
        }
    }

    /* Lanes hand values on through shared memory, ordered by __syncwarp alone. */
    __global__ void through_shared(unsigned *out)
    {
        __shared__ unsigned slots[64];
        unsigned value = threadIdx.x;

        for (int round = 0; round < 4; round++) {
            slots[threadIdx.x] = value;
            __syncwarp();
            value += slots[threadIdx.x ^ (1u << round)];
            __syncwarp();
        }
        out[threadIdx.x] = value;
    }

    /* Bytes and halves of one word by different threads and blocks, then the word as a whole. */
    __global__ void parts_of_words(uint16_t *out, unsigned *words)
    {
        __shared__ unsigned char bytes[64];

        out[2 * threadIdx.x + blockIdx.x] = (uint16_t)(100 * blockIdx.x + threadIdx.x);
        bytes[threadIdx.x] = (unsigned char)threadIdx.x;
        __syncthreads();
        unsigned word = ((const unsigned *)bytes)[threadIdx.x / 4];
        __syncthreads();
        if (threadIdx.x % 4 == 0) ((unsigned *)bytes)[threadIdx.x / 4] = word + 0x01010101u;
        __syncthreads();
        if (threadIdx.x % 2 == 0)
            bytes[threadIdx.x] += ((const uint16_t *)bytes)[threadIdx.x / 2] >> 8;
        __syncthreads();
        words[blockIdx.x * 64 + threadIdx.x] = bytes[threadIdx.x];
    }

    __global__ void waits_politely(volatile int *flag, int *out)
    {
        if (threadIdx.x == 0) {
            while (atomicAdd((int *)flag, 0) == 0) __nanosleep(100);
        } else if (threadIdx.x == 40) {
            atomicExch((int *)flag, 1);
        }
        out[threadIdx.x] = threadIdx.x;
    }

    __global__ void far_away(const unsigned char *in, unsigned long long offset, unsigned *out)
    {
        out[threadIdx.x] = in[offset + threadIdx.x];
    }

    __global__ void tiles(unsigned *out)
    {
        namespace cg = cooperative_groups;
        cg::thread_block block = cg::this_thread_block();
        auto tile = cg::tiled_partition<8>(block);
        unsigned value = block.thread_rank();

        for (int m = 4; m > 0; m /= 2) value += tile.shfl_xor(value, m);
        tile.sync();
        block.sync();
        out[block.thread_rank()] = value * 1000 + tile.meta_group_rank() * 10 +
                                   (tile.ballot(tile.thread_rank() == 2) == 4u);
    }
}
