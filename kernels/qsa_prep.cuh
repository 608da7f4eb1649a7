/* Pooled block keys and prepared queries: mean or copy, RMS norm with weight 1 + w, rotation. */
#ifndef ATTEST_KERNELS_QSA_PREP_CUH
#define ATTEST_KERNELS_QSA_PREP_CUH

#include "qsa_common.cuh"
#include "rotation.cuh"

/* RN(RN(v rnorm(blocksum(v^2)/hd + eps)) RN(1 + w)) of element threadIdx.x. `partials` holds 32
 * floats and is free again only after the next barrier. */
static __device__ __forceinline__ float qsa_normed(float v, const uint16_t *norm_w, float *partials,
                                                   uint32_t hd, float eps)
{
    float square_sum = qsa_block_sum(v * v, partials, hd);
    float inverse = det_rnorm(square_sum / (float)hd + eps);

    return v * inverse * (1.0f + fmt_bf16_to_f32(norm_w[threadIdx.x]));
}

/* Element threadIdx.x of the rotated vector whose element threadIdx.x is `x`. `exchange` holds hd
 * floats. Pairs are (j, j + rot/2), j < rot/2; elements from rot on pass through. Thread j of a
 * pair works out the rotation and both results. */
static __device__ __forceinline__ float qsa_rotated(float x, float *exchange, uint32_t rot,
                                                    float theta, uint32_t pos)
{
    uint32_t half = rot / 2, d = threadIdx.x;

    exchange[d] = x;
    __syncthreads();
    if (d < half) {
        struct rot_angle angle = rot_cos_sin(theta, rot, d, pos);
        float low = exchange[d], high = exchange[d + half];

        exchange[d] = low * angle.cosine - high * angle.sine;
        exchange[d + half] = high * angle.cosine + low * angle.sine;
    }
    __syncthreads();
    return exchange[d];
}

/* Grid n_new, block hd, dynamic shared 4(hd + 32). Block b = first_block + blockIdx.x holds tokens
 * b*ratio ..., and is rotated at its first token's position. */
extern "C" __global__ void qsa_block_pool(const uint16_t *raw_keys, const uint16_t *k_norm_w,
                                          uint16_t *block_keys, uint32_t first_block,
                                          uint32_t ratio, uint32_t hd, uint32_t rot, float theta,
                                          float eps)
{
    extern __shared__ float qsa_shared[];
    uint64_t block = (uint64_t)first_block + blockIdx.x;
    const uint16_t *keys = raw_keys + block * ratio * hd + threadIdx.x;
    float sum = 0.0f, normed, out;

    for (uint32_t t = 0; t < ratio; t++) sum = sum + fmt_bf16_to_f32(keys[(uint64_t)t * hd]);
    normed = qsa_normed(sum / (float)ratio, k_norm_w, qsa_shared + hd, hd, eps);
    out = qsa_rotated(normed, qsa_shared, rot, theta, (uint32_t)(block * ratio));
    block_keys[block * hd + threadIdx.x] = fmt_f32_to_bf16(out);
}

/* One head of one query: block hd, dynamic shared 4(hd + 32). */
static __device__ __forceinline__ void qsa_qprep_head(float *out, const uint16_t *in,
                                                      const uint16_t *norm_w, uint32_t hd,
                                                      uint32_t rot, uint32_t pos, float theta,
                                                      float eps, float *shared)
{
    float x = fmt_bf16_to_f32(in[threadIdx.x]);
    float normed = qsa_normed(x, norm_w, shared + hd, hd, eps);

    out[threadIdx.x] = qsa_rotated(normed, shared, rot, theta, pos);
}

/* Grid n_heads. */
extern "C" __global__ void qsa_qprep(const uint16_t *q_in, const uint16_t *q_norm_w, float *q_out,
                                     uint32_t hd, uint32_t rot, uint32_t pos, float theta,
                                     float eps)
{
    extern __shared__ float qsa_shared[];
    uint64_t at = (uint64_t)blockIdx.x * hd;

    qsa_qprep_head(q_out + at, q_in + at, q_norm_w, hd, rot, pos, theta, eps, qsa_shared);
}

/* Grid (rows, n_heads). A row of qk is qkw wide, its queries first. */
extern "C" __global__ void qsa_qprep_rows(const uint16_t *qk, const uint16_t *q_norm_w,
                                          float *q_out, uint32_t first_pos, uint32_t qkw,
                                          uint32_t n_heads, uint32_t hd, uint32_t rot, float theta,
                                          float eps)
{
    extern __shared__ float qsa_shared[];
    uint64_t row = blockIdx.x, head = blockIdx.y;

    qsa_qprep_head(q_out + (row * n_heads + head) * hd, qk + row * qkw + head * hd, q_norm_w, hd,
                   rot, first_pos + (uint32_t)row, theta, eps, qsa_shared);
}

#endif
