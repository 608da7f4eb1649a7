/* Pool compression of the DSA indexer (ops.md §2, kpool_compress): per channel, a softmax over the
 * pool's valid slots of gate + ape, weighting the keys. */
#include "dsa.h"

#include <float.h>
#include <math.h>

#include "bound.h"
#include "formats.h"
#include "softmax.h"

enum { MAX_KPOOL = 16 };

/* gate + ape, rounded once in f32 by a kernel (the sum never underflows inexactly) and once in
 * double here. */
static struct ref_score gate_score(float gate, float ape)
{
    struct ref_score score = {.value = (double)gate + (double)ape};
    double size = fabs(score.value);
    if (isfinite(score.value))
        score.error = size > FLT_MAX ? INFINITY : (REF_U_F32 + REF_U_F64) * size * REF_INFLATE;
    else
        score.error = score.value < 0 ? INFINITY : 0;
    return score;
}

static void compress_channel(const struct ref_dsa_kpool_compress *g,
                             const struct ref_error_model *model, const int32_t *tokens, size_t d,
                             double *value, double *bound)
{
    double score[MAX_KPOOL], error[MAX_KPOOL], scratch[REF_SOFTMAX_SCRATCH(MAX_KPOOL)];
    float key[MAX_KPOOL];
    struct ref_softmax row = {.score = score,
                              .score_error = error,
                              .values = key,
                              .channels = 1,
                              .value_stride = 1,
                              .slots = g->KP,
                              .value_scale = 1.0};
    for (size_t slot = 0; slot < g->KP; slot++) {
        if (tokens[slot] < 0) continue;
        size_t at = (size_t)tokens[slot] * g->D + d;
        struct ref_score x = gate_score(ref_bf16_to_f32(g->gate[at]), g->ape[slot * g->D + d]);
        score[row.n] = x.value;
        error[row.n] = x.error;
        key[row.n++] = ref_bf16_to_f32(g->k[at]);
    }
    ref_softmax(&row, model, scratch, value, bound);
}

void ref_dsa_kpool_compress(const struct ref_dsa_kpool_compress *g,
                            const struct ref_error_model *model, double *key_value,
                            double *key_bound, int32_t *indices, uint8_t *pool_valid)
{
    struct ref_error_model scalar = *model; /* nothing here is a matrix product */
    scalar.tensor_core = false;
    scalar.p_bf16 = 0;
    int64_t length = g->geom ? g->geom[0] : g->S;
    for (size_t pool = 0; pool < g->pools; pool++) {
        int32_t *tokens = indices + pool * g->KP;
        pool_valid[pool] = 1;
        for (size_t slot = 0; slot < g->KP; slot++) {
            int64_t token = g->first_key + (int64_t)(pool * g->KP + slot);
            bool valid = token >= 0 && token < length && g->valid[token];
            tokens[slot] = valid ? (int32_t)token : -1;
            pool_valid[pool] &= valid;
        }
        for (size_t d = 0; d < g->D; d++) {
            size_t at = pool * g->D + d;
            compress_channel(g, &scalar, tokens, d, &key_value[at], &key_bound[at]);
        }
    }
}
