/* Selecting the best blocks of a row and gathering tokens (ops.md §1). */
#include <math.h>
#include <string.h>

#include "formats.h"
#include "qsa.h"

enum { MAX_TOPK = 2048 };

/* Larger is better: by score, then by lower block. Equal exactly for equal blocks. -0 counts as +0,
 * NaN of either sign stands below -Inf. */
static uint64_t rank_of(float score, uint32_t block)
{
    uint32_t bits = ref_f32_bits(score == 0 ? 0 : score);
    uint32_t order = bits & 0x80000000 ? ~bits : bits | 0x80000000;
    if (isnan(score)) order = 0;
    return (uint64_t)order << 32 | (uint32_t)~block;
}

static uint32_t block_of(uint64_t rank)
{
    return ~(uint32_t)rank;
}

/* A heap with the worst rank on top. Sinks the entry at `at`. */
static void sink(uint64_t *heap, uint32_t count, uint32_t at)
{
    uint64_t moved = heap[at];
    for (uint32_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && heap[child + 1] < heap[child]) child++;
        if (moved <= heap[child]) break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

static void topk_row(const float *scores, uint64_t blocks, uint32_t topk, int32_t *list)
{
    uint64_t heap[MAX_TOPK];
    uint32_t count = blocks < topk ? (uint32_t)blocks : topk;
    for (uint32_t b = 0; b < count; b++) heap[b] = rank_of(scores[b], b);
    for (uint32_t at = count / 2; at-- > 0;) sink(heap, count, at);
    for (uint64_t b = count; b < blocks; b++) {
        uint64_t rank = rank_of(scores[b], (uint32_t)b);
        if (rank <= heap[0]) continue;
        heap[0] = rank;
        sink(heap, count, 0);
    }
    /* Take the worst away, last slot first. */
    for (uint32_t left = count; left > 0;) {
        list[left - 1] = (int32_t)block_of(heap[0]);
        heap[0] = heap[--left];
        sink(heap, left, 0);
    }
    for (uint32_t i = count; i < topk; i++) list[i] = -1;
}

void ref_qsa_topk_rows(const struct ref_qsa_topk_rows *g, int32_t *lists)
{
    for (uint32_t r = 0; r < g->rows; r++) {
        uint64_t complete = ((uint64_t)g->first_pos + r + 1) / g->ratio;
        topk_row(g->scores + (size_t)r * g->score_stride, complete, g->topk,
                 lists + (size_t)r * g->topk);
    }
}

void ref_qsa_gather(const struct ref_qsa_gather *g, uint16_t *k_out, uint16_t *v_out)
{
    size_t token_elems = (size_t)g->nkv * g->hd;
    for (uint32_t i = 0; i < g->n_sel; i++) {
        uint32_t token = (uint32_t)g->sel[i];
        size_t page = (size_t)g->block_table[token / g->block_size];
        size_t from = (page * g->block_size + token % g->block_size) * token_elems;
        memcpy(k_out + i * token_elems, g->k_cache + from, token_elems * sizeof *k_out);
        memcpy(v_out + i * token_elems, g->v_cache + from, token_elems * sizeof *v_out);
    }
}
