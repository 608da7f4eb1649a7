/* FP8 sparse decode of DSA (ops.md §2, decode): masked attention over all tokens of a sequence, the
 * mask being membership in the selection row. */
#include "dsa.h"

#include <math.h>
#include <stdlib.h>

#include "bound.h"
#include "formats.h"
#include "softmax.h"

struct sequence {
    float *keys, *values; /* [attended, kv_lora_rank]; values == keys if there is one cache */
    struct ref_vec *key;  /* [attended] */
    float *query;         /* [kv_lora_rank] */
    double *score, *score_error, *scratch;
    uint8_t *mask; /* [seq_len] */
    size_t attended, seq_len;
};

/* Marks the tokens of the set and counts them: duplicates collapse, ids outside the sequence drop.
 */
static void mark(const struct ref_dsa_decode *g, uint32_t seq, struct sequence *space)
{
    const int32_t *row = g->sel_indices + (size_t)seq * g->width;
    for (size_t i = 0; i < g->width; i++) {
        if (row[i] >= 0 && (size_t)row[i] < space->seq_len && !space->mask[row[i]]) {
            space->mask[row[i]] = 1;
            space->attended++;
        }
    }
}

static size_t token_offset(const struct ref_dsa_decode *g, uint32_t seq, size_t token)
{
    const int32_t *table = g->block_tables + (size_t)seq * g->max_blocks_per_seq;
    uint64_t page = (uint64_t)table[token / g->block_size];
    uint64_t token_stride = (uint64_t)g->num_kv_heads * g->kv_lora_rank;
    return page * g->cache_stride_bytes + token % g->block_size * token_stride;
}

static void decode_rows(const struct ref_dsa_decode *g, uint32_t seq, struct sequence *space)
{
    size_t rank = g->kv_lora_rank, at = 0;
    for (size_t token = 0; token < space->seq_len; token++) {
        if (!space->mask[token]) continue;
        size_t offset = token_offset(g, seq, token);
        float *key = space->keys + at * rank, *value = space->values + at * rank;
        ref_e4m3_to_f32_n(g->k_cache + offset, rank, key);
        if (value != key) ref_e4m3_to_f32_n(g->v_cache + offset, rank, value);
        space->key[at++] = ref_vec_scan(key, rank);
    }
}

static bool open_sequence(const struct ref_dsa_decode *g, uint32_t seq, struct sequence *space)
{
    size_t rank = g->kv_lora_rank;
    *space = (struct sequence){.seq_len = g->seq_lens[seq] > 0 ? (size_t)g->seq_lens[seq] : 0};
    space->mask = calloc(space->seq_len + 1, 1);
    if (!space->mask) return false;
    mark(g, seq, space);
    size_t n = space->attended;
    space->keys = malloc((n * rank + 1) * sizeof(float));
    space->values = g->v_cache == g->k_cache ? space->keys : malloc((n * rank + 1) * sizeof(float));
    space->key = malloc((n + 1) * sizeof *space->key);
    space->query = malloc((rank + 1) * sizeof(float));
    space->score = malloc((2 * n + REF_SOFTMAX_SCRATCH(n) + 1) * sizeof(double));
    if (!space->keys || !space->values || !space->key || !space->query || !space->score)
        return false;
    space->score_error = space->score + n;
    space->scratch = space->score_error + n;
    decode_rows(g, seq, space);
    return true;
}

static void close_sequence(struct sequence *space)
{
    free(space->mask);
    if (space->values != space->keys) free(space->values);
    free(space->keys);
    free(space->key);
    free(space->query);
    free(space->score);
}

static void decode_head(const struct ref_dsa_decode *g, const struct ref_error_model *model,
                        const struct sequence *space, size_t row, double *value, double *bound)
{
    size_t rank = g->kv_lora_rank;
    ref_bf16_to_f32_n(g->q + row * rank, rank, space->query);
    struct ref_vec query = ref_vec_scan(space->query, rank);
    double scale = g->scale, k_scale = g->k_scale;
    double peak = fmax(fmax(1.0, scale * k_scale), fmax(scale, k_scale));
    for (size_t j = 0; j < space->attended; j++) {
        struct ref_score score =
            ref_attn_score(model, &query, &space->key[j], scale * k_scale, peak);
        space->score[j] = score.value;
        space->score_error[j] = score.error;
    }
    struct ref_softmax softmax = {.score = space->score,
                                  .score_error = space->score_error,
                                  .values = space->values,
                                  .n = space->attended,
                                  .channels = rank,
                                  .value_stride = rank,
                                  .slots = g->width,
                                  .value_scale = g->v_scale,
                                  .value_roundings = 2};
    ref_softmax(&softmax, model, space->scratch, value + row * rank, bound + row * rank);
}

void ref_dsa_decode(const struct ref_dsa_decode *g, const struct ref_error_model *model,
                    double *value, double *bound)
{
    for (uint32_t seq = 0; seq < g->num_seqs; seq++) {
        struct sequence space;
        bool ready = open_sequence(g, seq, &space);
        size_t first = (size_t)seq * g->num_q_heads, end = first + g->num_q_heads;
        for (size_t row = first; row < end && ready; row++)
            decode_head(g, model, &space, row, value, bound);
        /* Out of memory: nothing may pass. */
        for (size_t i = first * g->kv_lora_rank; i < end * g->kv_lora_rank && !ready; i++) {
            value[i] = NAN;
            bound[i] = 0;
        }
        close_sequence(&space);
    }
}
