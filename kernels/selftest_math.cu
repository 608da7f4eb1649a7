/* Entry points that expose the deterministic mathematics and the storage formats by themselves, so
 * that a device and the CPU can be compared bit by bit. One element a thread. */
#include "det_math.cuh"
#include "formats.cuh"

static __device__ __forceinline__ uint32_t selftest_index(void)
{
    return blockIdx.x * blockDim.x + threadIdx.x;
}

extern "C" __global__ void det_exp_nonpos_f32(const float *in, float *out, uint32_t n)
{
    uint32_t i = selftest_index();

    if (i < n) out[i] = det_exp_nonpos(in[i]);
}

/* The four values of each word. */
extern "C" __global__ void fmt_e4m3x4_f32(const uint32_t *in, float *out, uint32_t n)
{
    uint32_t i = selftest_index();
    float values[4];

    if (i >= n) return;
    fmt_e4m3x4_to_f32(in[i], values);
    for (int j = 0; j < 4; j++) out[4 * i + j] = values[j];
}

extern "C" __global__ void fmt_f32_bf16(const float *in, uint16_t *out, uint32_t n)
{
    uint32_t i = selftest_index();

    if (i < n) out[i] = fmt_f32_to_bf16(in[i]);
}

/* One block of 32 threads a group of 16 rows: out[n, 0, :] = tree32 of each row of in [n, 16, 32],
 * out[n, 1, :] the same from the form that takes sixteen at once; out is [n, 2, 16]. */
extern "C" __global__ void det_tree32_f32(const float *in, float *out)
{
    uint32_t lane = threadIdx.x;
    const float *rows = in + blockIdx.x * 16 * DET_WARP;
    float parts[16], sum;

    for (int j = 0; j < 16; j++) {
        parts[j] = rows[j * DET_WARP + lane];
        sum = det_tree32(parts[j]);
        if (lane == 0) out[blockIdx.x * 32 + j] = sum;
    }
    sum = det_tree32_many<16>(parts);
    if (lane % 2 == 0) out[blockIdx.x * 32 + 16 + lane / 2] = sum;
}
