/* CUDA's own headers: wmma, group reductions, pipeline copies, printf. */
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_pipeline.h>
#include <mma.h>
#include <stdio.h>

namespace cg = cooperative_groups;
using namespace nvcuda;

/* c += a b, all 16x16; a by rows, b by columns. */
extern "C" __global__ void multiply(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *c)
{
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::col_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum, product;
    wmma::fill_fragment(product, 0.0f);
    wmma::load_matrix_sync(left, a, 16);
    wmma::load_matrix_sync(right, b, 16);
    wmma::load_matrix_sync(sum, c, 16, wmma::mem_row_major);
    wmma::mma_sync(product, left, right, product);
    for (int i = 0; i < sum.num_elements; i++) sum.x[i] += product.x[i];
    wmma::store_matrix_sync(c, sum, 16, wmma::mem_row_major);
}

extern "C" __global__ void reduce(float *out)
{
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<8> tile = cg::tiled_partition<8>(block);
    int mine = (int)block.thread_rank();
    out[3 * mine] = cg::reduce(tile, (float)mine, cg::plus<float>());
    out[3 * mine + 1] = (float)cg::reduce(tile, mine ^ 5, cg::greater<int>());
    out[3 * mine + 2] = (float)cg::reduce(tile, mine, cg::less<int>());
}

extern "C" __global__ void pipeline(const float4 *in, float4 *out)
{
    __shared__ float4 tile[32];
    int lane = threadIdx.x;
    __pipeline_memcpy_async(&tile[lane], &in[lane], 16, lane == 3 ? 8 : 0);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    out[lane] = tile[31 - lane];
}

extern "C" __global__ void small(unsigned *out)
{
    out[0] = __nv_fp8x4_e4m3(make_half2(1.0f, -2.0f), make_half2(448.0f, 1000.0f)).__x;
    out[1] = __nv_fp8x2_e4m3(make_bfloat162(0.5f, 1.0f)).__x;
    __half2 sum = make_half2(1.0f, 2.0f);
    sum += make_half2(0.5f, 0.5f);
    out[2] = __half_as_ushort(sum.x) | (unsigned)__half_as_ushort(sum.y) << 16;
}

extern "C" __global__ void say(int *out)
{
    printf("lane %d of %s\n", (int)threadIdx.x, "this warp");
    out[threadIdx.x] = 0;
}
