/* Choosing pools and turning the choice into tokens (ops.md §2): topk_pools, expand_selection,
 * topk_to_mask. */
#include "dsa.h"

#include <math.h>
#include <string.h>

/* The order of topk_pools: score descending, pool ascending, NaN after every number. */
static bool ranks_before(const float *scores, int32_t a, int32_t b)
{
    float x = scores[a], y = scores[b];
    if (isnan(x) != isnan(y)) return isnan(y);
    if (x != y && !isnan(x)) return x > y;
    return a < b;
}

/* heap[0] is the last in rank of `count` pools; restores that after heap[at] has changed. */
static void sift_down(const float *scores, int32_t *heap, size_t count, size_t at)
{
    for (;;) {
        size_t last = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < count; child++)
            if (ranks_before(scores, heap[last], heap[child])) last = child;
        if (last == at) return;
        int32_t moved = heap[at];
        heap[at] = heap[last];
        heap[last] = moved;
        at = last;
    }
}

static void best_pools(const float *scores, size_t pools, size_t k, int32_t *best)
{
    size_t held = k < pools ? k : pools;
    for (size_t i = 0; i < held; i++) best[i] = (int32_t)i;
    for (size_t i = held; i < k; i++) best[i] = -1;
    if (!held) return;
    for (size_t i = held; i-- > 0;) sift_down(scores, best, held, i);
    for (size_t pool = held; pool < pools; pool++) {
        if (!ranks_before(scores, (int32_t)pool, best[0])) continue;
        best[0] = (int32_t)pool;
        sift_down(scores, best, held, 0);
    }
    for (size_t left = held - 1; left > 0; left--) {
        int32_t last = best[0];
        best[0] = best[left];
        best[left] = last;
        sift_down(scores, best, left, 0);
    }
}

void ref_dsa_topk_pools(const struct ref_dsa_topk_pools *g, int32_t *selected)
{
    size_t pools = g->geom ? (size_t)g->geom[1] : g->P;
    size_t k = g->geom ? (size_t)g->geom[3] : g->select_k;
    for (size_t row = 0; row < g->Q; row++)
        best_pools(g->scores + row * g->P, pools, k, selected + row * g->select_k);
}

/* Geometry of an expansion after geom. */
struct extent {
    int64_t length, pools, select_k;
};

static struct extent extent_of(const struct ref_dsa_expand_selection *g)
{
    if (!g->geom) return (struct extent){g->S, g->P, g->select_k};
    return (struct extent){g->geom[0], g->geom[1], g->geom[3]};
}

/* The pools of the row, each as KP tokens; returns the slots they take. */
static size_t expand_pools(const struct ref_dsa_expand_selection *g, struct extent extent,
                           size_t row, int32_t *out)
{
    const int32_t *selected = g->selected + row * g->select_k;
    /* What a pass over this row alone would select: no more than the pools complete here. */
    int64_t complete = ((int64_t)g->q_pos[row] + 1 - g->first_key) / g->KP;
    int64_t count = complete < extent.select_k ? complete : extent.select_k;
    if (count < 0) count = 0;
    for (size_t i = 0; i < (size_t)count; i++) {
        int32_t pool = selected[i];
        if (pool < 0 || pool >= extent.pools || !g->valid_cand[row * g->P + (size_t)pool]) continue;
        for (size_t slot = 0; slot < g->KP; slot++) {
            int32_t token = g->pool_indices[(size_t)pool * g->KP + slot];
            out[i * g->KP + slot] = token >= 0 && token < extent.length ? token : -1;
        }
    }
    return (size_t)count * g->KP;
}

/* The tokens of the pool in progress. */
static void expand_tail(const struct ref_dsa_expand_selection *g, struct extent extent, size_t row,
                        size_t slot, int32_t *out)
{
    int64_t visible = 0;
    for (int64_t token = 0; token < extent.length && token <= g->q_pos[row]; token++)
        visible += g->valid_keys[token] != 0;
    int64_t count = visible % g->KP, start = g->first_key + visible - count;
    for (int64_t i = 0; i < count; i++)
        if (start + i < extent.length) out[slot + (size_t)i] = (int32_t)(start + i);
}

void ref_dsa_expand_selection(const struct ref_dsa_expand_selection *g, int32_t *out)
{
    struct extent extent = extent_of(g);
    for (size_t row = 0; row < g->Q; row++) {
        int32_t *slots = out + row * g->width;
        for (size_t i = 0; i < g->width; i++) slots[i] = -1;
        if (!g->q_mask[row]) continue;
        size_t used = expand_pools(g, extent, row, slots);
        if (g->always_tail) expand_tail(g, extent, row, used, slots);
    }
}

void ref_dsa_topk_to_mask(const struct ref_dsa_topk_to_mask *g, uint8_t *mask)
{
    for (size_t row = 0; row < g->Q; row++) {
        memset(mask + row * g->S, 0, g->S);
        for (size_t i = 0; i < g->width; i++) {
            int32_t token = g->topk[row * g->width + i];
            if (token >= 0 && (uint32_t)token < g->S) mask[row * g->S + (size_t)token] = 1;
        }
    }
}
