/* PTX in which memory or the whole warp takes part. `bad_...` each hold one mistake. */
#include <cuda_bf16.h>
#include <stdint.h>

__device__ inline uint32_t shared_address(const void *pointer)
{
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

/* CUTLASS's way to the same address. */
__device__ inline uint32_t shared_address_by_ptx(const void *pointer)
{
    uint32_t address;
    asm("{ .reg .u64 smem; cvta.to.shared.u64 smem, %1; cvt.u32.u64 %0, smem; }"
        : "=r"(address)
        : "l"(pointer));
    return address;
}

extern "C" __global__ void votes(uint32_t *out)
{
    uint32_t lane = threadIdx.x, r, s, all = 0xffffffff;
    out += 10 * lane;
    asm volatile("{ .reg .pred p; setp.ge.u32 p, %1, 16; vote.sync.ballot.b32 %0, p, %2; }"
                 : "=r"(r) : "r"(lane), "r"(all));
    out[0] = r;
    asm volatile("{ .reg .pred p; setp.lt.u32 p, %1, 32; vote.sync.all.pred p, p, -1;"
                 " selp.u32 %0, 1, 0, p; }" : "=r"(r) : "r"(lane));
    out[1] = r;
    asm volatile("redux.sync.add.s32 %0, %1, 0xffffffff;" : "=r"(r) : "r"((int)lane - 20));
    out[2] = r;
    asm volatile("redux.sync.max.u32 %0, %1, %2;" : "=r"(r) : "r"(lane ^ 21), "r"(all));
    out[3] = r;
    asm volatile("shfl.sync.bfly.b32 %0, %1, 1, 0x1f, %2;" : "=r"(r) : "r"(lane), "r"(all));
    out[4] = r;
    asm volatile("{ .reg .pred p; shfl.sync.up.b32 %0|p, %2, 3, 0x1800, %3; selp.u32 %1, 1, 0, p; }"
                 : "=r"(r), "=r"(s) : "r"(lane), "r"(all));
    out[5] = r | s << 16; /* inside groups of 8 */
    asm volatile("match.any.sync.b32 %0, %1, %2;" : "=r"(r) : "r"(lane % 4), "r"(all));
    out[6] = r;
    asm volatile("{ .reg .pred p; elect.sync _|p, %1; selp.u32 %0, 1, 0, p; }" : "=r"(r) : "r"(all));
    out[7] = r;
    asm volatile("activemask.b32 %0;" : "=r"(r));
    out[8] = r;
    asm("mov.u32 %0, %%lanemask_le;" : "=r"(r));
    out[9] = r;
    __syncwarp(); /* everybody is still there for activemask */
}

/* Global and shared memory by all widths, static and dynamic. */
extern "C" __global__ void loads(const uint4 *in, uint32_t *out)
{
    extern __shared__ uint32_t dynamic[];
    __shared__ uint4 fixed[32];
    uint32_t lane = threadIdx.x, x, y, z, w;
    uint32_t to = shared_address(fixed + lane), also = shared_address_by_ptx(dynamic + lane);
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x), "=r"(y), "=r"(z), "=r"(w) : "l"(in + lane));
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(to), "r"(x), "r"(y) : "memory");
    asm volatile("st.shared.v2.b32 [%0 + 8], {%1, %2};" ::"r"(to), "r"(z), "r"(w) : "memory");
    asm volatile("st.shared.u16 [%0], %1;\n\tst.shared.u16 [%0+2], %1;"
                 ::"r"(also), "h"((unsigned short)lane) : "memory");
    asm volatile("bar.sync 0;" ::: "memory");
    uint32_t other = (lane + 1) % 32;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x), "=r"(y), "=r"(z), "=r"(w)
                 : "r"(shared_address(fixed) + 16 * other) : "memory");
    asm volatile("ld.shared.u8 %0, [%1+%2];" : "=r"(z)
                 : "r"(shared_address(dynamic) + 4 * other), "n"(2) : "memory");
    asm volatile("st.global.cs.v4.b32 [%0], {%1, %2, %3, %4};"
                 ::"l"(out + 4 * lane), "r"(x), "r"(y), "r"(z), "r"(w) : "memory");
    asm volatile("red.global.add.u32 [%0], %1;" ::"l"(out + 128), "r"(lane) : "memory");
    asm volatile("atom.acq_rel.gpu.global.max.s32 %0, [%1], %2;"
                 : "=r"(x) : "l"(out + 129), "r"((int)lane - 40) : "memory");
}

/* Two batches in flight; the last copy of the second is filled up with zeros. */
extern "C" __global__ void copies(const uint32_t *in, uint32_t *out)
{
    __shared__ __align__(16) uint32_t tile[2][128];
    uint32_t lane = threadIdx.x;
    uint32_t first = shared_address(tile[0] + 4 * lane), second = shared_address(tile[1] + 4 * lane);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(first), "l"(in + 4 * lane));
    asm volatile("cp.async.commit_group;");
    asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], %2, %3;" ::"r"(second),
                 "l"(in + 128 + 4 * lane), "n"(16), "r"(lane == 31 ? 0 : 16));
    asm volatile("cp.async.commit_group;");
    asm volatile("cp.async.wait_group %0;" ::"n"(1) : "memory");
    __syncthreads();
    for (int i = 0; i < 4; i++) out[32 * i + lane] = tile[0][32 * i + lane];
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    for (int i = 0; i < 4; i++) out[128 + 32 * i + lane] = tile[1][32 * i + lane];
}

/* As above without the wait. */
extern "C" __global__ void bad_no_wait(const uint32_t *in, uint32_t *out)
{
    __shared__ __align__(16) uint32_t tile[128];
    uint32_t lane = threadIdx.x;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 ::"r"(shared_address(tile + 4 * lane)), "l"(in + 4 * lane));
    asm volatile("cp.async.commit_group;");
    __syncthreads();
    for (int i = 0; i < 4; i++) out[32 * i + lane] = tile[32 * i + lane];
}

/* Copies the matrices of `in` through ldmatrix: out[lane][i] is register i. */
extern "C" __global__ void matrices(const uint16_t *in, uint32_t *out)
{
    __shared__ __align__(16) uint16_t tile[4][8][8];
    uint32_t lane = threadIdx.x, r[4], t[2], one;
    for (int i = 0; i < 8; i++) tile[lane / 8][lane % 8][i] = in[8 * lane + i];
    __syncthreads();
    uint32_t row = shared_address(tile[lane / 8][lane % 8]);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared::cta.b16 {%0, %1}, [%2];"
                 : "=r"(t[0]), "=r"(t[1]) : "r"(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(one) : "r"(row));
    for (int i = 0; i < 4; i++) out[8 * lane + i] = r[i];
    for (int i = 0; i < 2; i++) out[8 * lane + 4 + i] = t[i];
    out[8 * lane + 6] = one;
    __syncthreads();
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};"
                 ::"r"(row), "r"(r[0]), "r"(r[1]));
    __syncthreads();
    out[8 * lane + 7] = tile[0][lane % 8][lane / 8]; /* transposed */
}

/* out = a b + c with a[16][16], b[16][8] bf16, c[16][8]. */
extern "C" __global__ void multiply(const uint16_t *a, const uint16_t *b, float *c)
{
    uint32_t lane = threadIdx.x, group = lane / 4, pair = 2 * (lane % 4), fa[4], fb[2];
    float d[4];
    for (int i = 0; i < 4; i++) {
        const uint16_t *two = a + 16 * (group + i % 2 * 8) + pair + i / 2 * 8;
        fa[i] = two[0] | (uint32_t)two[1] << 16;
        d[i] = c[8 * (group + i / 2 * 8) + pair + i % 2];
    }
    for (int i = 0; i < 2; i++) {
        const uint16_t *two = b + 8 * (pair + 8 * i) + group;
        fb[i] = two[0] | (uint32_t)two[8] << 16;
    }
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]));
    for (int i = 0; i < 4; i++) c[8 * (group + i / 2 * 8) + pair + i % 2] = d[i];
}

extern "C" __global__ void bad_bounds(uint32_t *out)
{
    __shared__ uint32_t tile[32];
    tile[threadIdx.x] = 1;
    __syncthreads();
    uint32_t x;
    asm volatile("mov.u32 %0, 1;\n\t"
                 "ld.shared.u32 %0, [%1+4];" // BAD: bounds
                 : "=r"(x) : "r"(shared_address(tile + threadIdx.x)));
    out[threadIdx.x] = x;
}

extern "C" __global__ void bad_alignment(const uint32_t *in, uint32_t *out)
{
    uint32_t x, y, z, w;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" // BAD: alignment
                 : "=r"(x), "=r"(y), "=r"(z), "=r"(w) : "l"(in + 2));
    out[0] = x + y + z + w;
}
