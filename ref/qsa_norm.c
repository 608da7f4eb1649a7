/* Block keys and prepared queries: RMS norm and rotation in canonical arithmetic (ops.md §1). */
#include "formats.h"
#include "qsa.h"
#include "qsa_canonical.h"
#include "rotation.h"

void ref_qsa_rotation(float theta, uint32_t rot, uint32_t j, uint32_t pos, float *cosine,
                      float *sine)
{
    ref_rotation_sincos((double)pos * ref_rotation_frequency(theta, rot, j), cosine, sine);
}

/* What every row of one call shares. */
struct norm {
    float gain[REF_QSA_MAX_HD];           /* RN(1 + w_d) */
    double frequency[REF_QSA_MAX_HD / 2]; /* of the rotated pairs */
    uint32_t hd, rot;
    float eps;
};

static void norm_prepare(struct norm *norm, const uint16_t *weight, uint32_t hd, uint32_t rot,
                         float theta, float eps)
{
    norm->hd = hd;
    norm->rot = rot;
    norm->eps = eps;
    for (uint32_t d = 0; d < hd; d++) norm->gain[d] = 1 + ref_bf16_to_f32(weight[d]);
    for (uint32_t j = 0; j < rot / 2; j++)
        norm->frequency[j] = ref_rotation_frequency(theta, rot, j);
}

static void rotate(const struct norm *norm, uint32_t pos, float *x)
{
    uint32_t half = norm->rot / 2;
    for (uint32_t j = 0; j < half; j++) {
        float c, s;
        ref_rotation_sincos((double)pos * norm->frequency[j], &c, &s);
        float low = x[j], high = x[j + half];
        x[j] = low * c - high * s;
        x[j + half] = high * c + low * s;
    }
}

/* In place: x becomes the normed, weighted and rotated row. */
static void norm_row(const struct norm *norm, uint32_t pos, float *x)
{
    float square = ref_qsa_dot(x, x, norm->hd);
    float scale = ref_qsa_rnorm(square / (float)norm->hd + norm->eps);
    for (uint32_t d = 0; d < norm->hd; d++) x[d] = x[d] * scale * norm->gain[d];
    rotate(norm, pos, x);
}

void ref_qsa_block_pool(const struct ref_qsa_block_pool *g, uint16_t *block_keys)
{
    struct norm norm;
    if (!g->n_new) return;
    norm_prepare(&norm, g->k_norm_w, g->hd, g->rot, g->theta, g->eps);
    for (uint32_t i = 0; i < g->n_new; i++) {
        float x[REF_QSA_MAX_HD] = {0};
        uint64_t first = ((uint64_t)g->first_block + i) * g->ratio;
        for (uint32_t t = 0; t < g->ratio; t++) {
            const uint16_t *key = g->raw_keys + (first + t) * g->hd;
            for (uint32_t d = 0; d < g->hd; d++) x[d] += ref_bf16_to_f32(key[d]);
        }
        for (uint32_t d = 0; d < g->hd; d++) x[d] /= (float)g->ratio;
        norm_row(&norm, (uint32_t)first, x);
        uint16_t *out = block_keys + (size_t)i * g->hd;
        for (uint32_t d = 0; d < g->hd; d++) out[d] = ref_bf16_from_f32(x[d]);
    }
}

void ref_qsa_qprep_rows(const struct ref_qsa_qprep_rows *g, float *q_out)
{
    struct norm norm;
    if (!g->rows) return;
    norm_prepare(&norm, g->q_norm_w, g->hd, g->rot, g->theta, g->eps);
    for (uint32_t r = 0; r < g->rows; r++) {
        for (uint32_t h = 0; h < g->n_heads; h++) {
            const uint16_t *q = g->qk + (size_t)r * g->qkw + (size_t)h * g->hd;
            float *out = q_out + ((size_t)r * g->n_heads + h) * g->hd;
            for (uint32_t d = 0; d < g->hd; d++) out[d] = ref_bf16_to_f32(q[d]);
            norm_row(&norm, g->first_pos + r, out);
        }
    }
}
