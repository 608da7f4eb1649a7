/* Masked attention of DSA over all tokens (ops.md §2, masked reference): bf16 keys and values, one
 * of each per head. */
#include "dsa.h"

#include <math.h>
#include <stdlib.h>

#include "bound.h"
#include "formats.h"
#include "softmax.h"

/* One head: all tokens, decoded once; and room for one row. */
struct head {
    float *keys, *values, *query; /* [S, qd] [S, vd] [qd], indexed by token */
    struct ref_vec *key;          /* [S] */
    float *row_values;            /* [S, vd]: the values of a row's tokens, packed */
    double *score, *score_error, *scratch;
};

static void close_head(struct head *head)
{
    free(head->keys);
    free(head->values);
    free(head->query);
    free(head->key);
    free(head->row_values);
    free(head->score);
}

static bool open_head(const struct ref_dsa_mla_masked_attn *g, struct head *head)
{
    size_t S = g->S;
    head->keys = malloc((S * g->qd + 1) * sizeof(float));
    head->values = malloc((S * g->vd + 1) * sizeof(float));
    head->query = malloc(((size_t)g->qd + 1) * sizeof(float));
    head->key = malloc((S + 1) * sizeof *head->key);
    head->row_values = malloc((S * g->vd + 1) * sizeof(float));
    head->score = malloc((2 * S + REF_SOFTMAX_SCRATCH(S) + 1) * sizeof(double));
    if (!head->keys || !head->values || !head->query || !head->key || !head->row_values ||
        !head->score) {
        close_head(head);
        return false;
    }
    head->score_error = head->score + S;
    head->scratch = head->score_error + S;
    return true;
}

static void decode_head(const struct ref_dsa_mla_masked_attn *g, size_t h, struct head *head)
{
    for (size_t token = 0; token < g->S; token++) {
        size_t at = token * g->H + h;
        float *key = head->keys + token * g->qd;
        ref_bf16_to_f32_n(g->k + at * g->qd, g->qd, key);
        ref_bf16_to_f32_n(g->v + at * g->vd, g->vd, head->values + token * g->vd);
        head->key[token] = ref_vec_scan(key, g->qd);
    }
}

/* A kernel's score is within error of the real one before it is rounded to bf16, so its rounded
 * score lies between the rounded ends (finite ones: a score that near overflow has error INFINITY);
 * seldom are these different (numerics §5.8, monotone rounding). */
static struct ref_score round_score(struct ref_score score)
{
    double value = ref_bf16_to_f32(ref_bf16_from_f64(score.value));
    if (!isfinite(score.value) || isinf(score.error)) {
        score.value = value;
        return score;
    }
    double low = ref_bf16_to_f32(ref_bf16_from_f64(score.value - score.error));
    double high = ref_bf16_to_f32(ref_bf16_from_f64(score.value + score.error));
    return (struct ref_score){value, fmax(high - value, value - low)};
}

static void attend(const struct ref_dsa_mla_masked_attn *g, const struct ref_error_model *model,
                   size_t row, size_t h, struct head *head, double *value, double *bound)
{
    ref_bf16_to_f32_n(g->q + (row * g->H + h) * g->qd, g->qd, head->query);
    struct ref_vec query = ref_vec_scan(head->query, g->qd);
    struct ref_softmax softmax = {.score = head->score,
                                  .score_error = head->score_error,
                                  .values = head->row_values,
                                  .channels = g->vd,
                                  .value_stride = g->vd,
                                  .slots = g->S,
                                  .value_scale = 1.0};
    double peak = fmax(1.0, g->scale);
    for (size_t token = 0; token < g->S; token++) {
        if (!g->mask[row * g->S + token]) continue;
        struct ref_score score = ref_attn_score(model, &query, &head->key[token], g->scale, peak);
        if (g->round_scores_bf16) score = round_score(score);
        float *packed = head->row_values + softmax.n * g->vd;
        for (size_t c = 0; c < g->vd; c++) packed[c] = head->values[token * g->vd + c];
        head->score[softmax.n] = score.value;
        head->score_error[softmax.n++] = score.error;
    }
    size_t at = (row * g->H + h) * g->vd;
    ref_softmax(&softmax, model, head->scratch, value + at, bound + at);
}

void ref_dsa_mla_masked_attn(const struct ref_dsa_mla_masked_attn *g,
                             const struct ref_error_model *model, double *value, double *bound)
{
    struct head head = {0};
    if (!open_head(g, &head)) { /* out of memory: nothing may pass */
        for (size_t i = 0; i < (size_t)g->Q * g->H * g->vd; i++) {
            value[i] = NAN;
            bound[i] = 0;
        }
        return;
    }
    for (size_t h = 0; h < g->H; h++) {
        decode_head(g, h, &head);
        for (size_t row = 0; row < g->Q; row++) attend(g, model, row, h, &head, value, bound);
    }
    close_head(&head);
}
