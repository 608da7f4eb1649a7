/* Block scores in canonical arithmetic (ops.md §1). */
#include "formats.h"
#include "qsa.h"
#include "qsa_canonical.h"

/* Keys decoded at a time: one of the largest, or as many smaller ones as fill the same room. */
enum { TILE_ELEMS = 16384 };

static float score_one(const float *q, const float *key, uint32_t n_heads, uint32_t hd)
{
    float sum = 0;
    for (uint32_t h = 0; h < n_heads; h++)
        sum += ref_qsa_relu(ref_qsa_dot(q + (size_t)h * hd, key, hd));
    return sum * ref_qsa_rnorm((float)hd);
}

void ref_qsa_score_rows(const struct ref_qsa_score_rows *g, float *scores)
{
    float keys[TILE_ELEMS];
    uint32_t tile = TILE_ELEMS / g->hd;
    for (uint64_t from = 0; from < g->n_blocks_max; from += tile) {
        uint64_t to = from + tile < g->n_blocks_max ? from + tile : g->n_blocks_max;
        ref_bf16_to_f32_n(g->block_keys + from * g->hd, (to - from) * g->hd, keys);
        for (uint32_t r = 0; r < g->rows; r++) {
            uint64_t complete = ((uint64_t)g->first_pos + r + 1) / g->ratio;
            const float *q = g->q + (size_t)r * g->n_heads * g->hd;
            float *row = scores + (size_t)r * g->score_stride;
            for (uint64_t b = from; b < to; b++) {
                const float *key = keys + (b - from) * g->hd;
                row[b] = b < complete ? score_one(q, key, g->n_heads, g->hd) : -INFINITY;
            }
        }
    }
}

void ref_qsa_score(const struct ref_qsa_score *g, float *scores)
{
    /* One row at a position from which every block is complete. */
    struct ref_qsa_score_rows row = {.q = g->q,
                                     .block_keys = g->block_keys,
                                     .rows = 1,
                                     .n_blocks_max = g->n_blocks,
                                     .first_pos = g->n_blocks,
                                     .score_stride = g->n_blocks,
                                     .ratio = 1,
                                     .n_heads = g->n_heads,
                                     .hd = g->hd};
    ref_qsa_score_rows(&row, scores);
}
