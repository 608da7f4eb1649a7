/* Module selftest_rotation: the rotation's cosines and sines as the kernels compute them, for the
 * exhaustive comparison with the true values. */
#include "rotation.cuh"

/* out is [n_pos, rot/2, 2]: cosine, then sine, of every pair at positions first_pos... Any grid and
 * block: the threads share the work. */
extern "C" __global__ void selftest_rotation(float *out, uint32_t first_pos, uint32_t n_pos,
                                             uint32_t rot, float theta)
{
    uint64_t pairs = rot / 2, total = n_pos * pairs, step = (uint64_t)gridDim.x * blockDim.x;

    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += step) {
        struct rot_angle angle =
            rot_cos_sin(theta, rot, (uint32_t)(i % pairs), first_pos + (uint32_t)(i / pairs));

        out[2 * i] = angle.cosine;
        out[2 * i + 1] = angle.sine;
    }
}
