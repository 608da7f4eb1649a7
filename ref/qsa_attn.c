/* Attention of the QSA family over paged bf16 caches (ops.md §1): prefill over listed blocks and
 * the tail, decode over a whole sequence. Only attended tokens are read. */
#include <math.h>
#include <stdlib.h>

#include "bound.h"
#include "formats.h"
#include "qsa.h"
#include "softmax.h"

struct pages {
    const uint16_t *k_cache, *v_cache;
    const int32_t *block_table;
    uint32_t block_size, nkv, hd;
};

/* Room for the attended tokens of one query row. */
struct space {
    uint32_t *token;
    float *keys, *values; /* [attended, hd] of one kv head */
    struct ref_vec *key;  /* [attended] */
    float *query;         /* [hd] */
    double *score, *score_error, *scratch;
    size_t attended;
};

static bool space_open(struct space *space, size_t capacity, size_t hd)
{
    *space = (struct space){0};
    space->token = malloc((capacity + 1) * sizeof *space->token);
    space->keys = malloc((capacity * hd + 1) * sizeof(float));
    space->values = malloc((capacity * hd + 1) * sizeof(float));
    space->key = malloc((capacity + 1) * sizeof *space->key);
    space->query = malloc((hd + 1) * sizeof(float));
    space->score = malloc((2 * capacity + REF_SOFTMAX_SCRATCH(capacity) + 1) * sizeof(double));
    if (!space->token || !space->keys || !space->values || !space->key || !space->query ||
        !space->score)
        return false;
    space->score_error = space->score + capacity;
    space->scratch = space->score_error + capacity;
    return true;
}

static void space_close(struct space *space)
{
    free(space->token);
    free(space->keys);
    free(space->values);
    free(space->key);
    free(space->query);
    free(space->score);
}

/* The attended keys and values of one kv head. */
static void load_head(const struct pages *pages, uint32_t head, struct space *space)
{
    size_t hd = pages->hd;
    for (size_t j = 0; j < space->attended; j++) {
        uint32_t token = space->token[j];
        size_t page = (size_t)pages->block_table[token / pages->block_size];
        size_t slot = page * pages->block_size + token % pages->block_size;
        size_t from = (slot * pages->nkv + head) * hd;
        ref_bf16_to_f32_n(pages->k_cache + from, hd, space->keys + j * hd);
        ref_bf16_to_f32_n(pages->v_cache + from, hd, space->values + j * hd);
        space->key[j] = ref_vec_scan(space->keys + j * hd, hd);
    }
}

/* One query head over the loaded kv head. */
static void attend(const struct ref_error_model *model, const struct space *space,
                   const uint16_t *q, size_t hd, float inv_sqrt_d, size_t slots, double *value,
                   double *bound)
{
    ref_bf16_to_f32_n(q, hd, space->query);
    struct ref_vec query = ref_vec_scan(space->query, hd);
    double factor = inv_sqrt_d;
    for (size_t j = 0; j < space->attended; j++) {
        struct ref_score score =
            ref_attn_score(model, &query, &space->key[j], factor, fmax(1, factor));
        space->score[j] = score.value;
        space->score_error[j] = score.error;
    }
    struct ref_softmax row = {.score = space->score,
                              .score_error = space->score_error,
                              .values = space->values,
                              .n = space->attended,
                              .channels = hd,
                              .value_stride = hd,
                              .slots = slots,
                              .value_scale = 1};
    ref_softmax(&row, model, space->scratch, value, bound);
}

/* All heads of one query row. q, value, bound: [nq, hd]. */
static void attend_heads(const struct ref_error_model *model, const struct pages *pages,
                         struct space *space, const uint16_t *q, uint32_t nq, float inv_sqrt_d,
                         size_t slots, double *value, double *bound)
{
    size_t group = nq / pages->nkv, hd = pages->hd;
    for (uint32_t kv = 0; kv < pages->nkv; kv++) {
        load_head(pages, kv, space);
        for (size_t h = kv * group; h < (kv + 1) * group; h++)
            attend(model, space, q + h * hd, hd, inv_sqrt_d, slots, value + h * hd, bound + h * hd);
    }
}

/* Out of memory: nothing may pass. */
static void fail_all(size_t count, double *value, double *bound)
{
    for (size_t i = 0; i < count; i++) {
        value[i] = NAN;
        bound[i] = 0;
    }
}

/* The tokens of the listed blocks, then the tail [complete*ratio, pos]. */
static void list_tokens(const struct ref_qsa_prefill_attn *g, uint32_t row, struct space *space)
{
    const int32_t *list = g->lists + (size_t)row * g->topk;
    uint64_t visible = (uint64_t)g->first_pos + row + 1;
    space->attended = 0;
    for (uint32_t i = 0; i < g->topk; i++) {
        if (list[i] < 0) continue;
        for (uint32_t t = 0; t < g->ratio; t++)
            space->token[space->attended++] = (uint32_t)list[i] * g->ratio + t;
    }
    for (uint64_t t = visible - visible % g->ratio; t < visible; t++)
        space->token[space->attended++] = (uint32_t)t;
}

void ref_qsa_prefill_attn(const struct ref_qsa_prefill_attn *g, const struct ref_error_model *model,
                          double *value, double *bound)
{
    struct pages pages = {g->k_cache, g->v_cache, g->block_table, g->block_size, g->nkv, g->hd};
    struct space space;
    /* Listed blocks are distinct and visible, so a row attends no more than its own length. */
    uint64_t slots = ((uint64_t)g->topk + 1) * g->ratio, length = (uint64_t)g->first_pos + g->rows;
    size_t row_elems = (size_t)g->nq * g->hd;
    if (!g->rows) return;
    if (space_open(&space, slots < length ? slots : length, g->hd)) {
        for (uint32_t r = 0; r < g->rows; r++) {
            list_tokens(g, r, &space);
            attend_heads(model, &pages, &space, g->q + r * row_elems, g->nq, g->inv_sqrt_d, slots,
                         value + r * row_elems, bound + r * row_elems);
        }
    } else {
        fail_all(g->rows * row_elems, value, bound);
    }
    space_close(&space);
}

void ref_paged_decode_attn(const struct ref_paged_decode_attn *g,
                           const struct ref_error_model *model, double *value, double *bound)
{
    struct pages pages = {g->k_cache, g->v_cache, g->block_table, g->block_size, g->nkv, g->hd};
    struct space space;
    if (space_open(&space, g->seq_len, g->hd)) {
        for (uint32_t t = 0; t < g->seq_len; t++) space.token[t] = t;
        space.attended = g->seq_len;
        attend_heads(model, &pages, &space, g->q, g->nq, g->inv_sqrt_d, g->seq_len, value, bound);
    } else {
        fail_all((size_t)g->nq * g->hd, value, bound);
    }
    space_close(&space);
}
