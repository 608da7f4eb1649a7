/* Refusals of the QSA operations (ops.md §1). Where several rules are broken, the first found is
 * reported. All products are formed in 64 bits, where they cannot wrap. Rules about numbers hold
 * whether or not there is anything to do; a position counts only if a row or token is at it. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "qsa.h"
#include "refuse.h"

enum {
    MAX_HD = 1024, /* one thread a channel */
    MAX_ATTN_HD = 256,
    MAX_TOPK = 2048,
    GRID_YZ_LIMIT = 65535,
    TC_HEADS = 4,
    TC_HD = 128,
    TC_ROWS = 16,   /* of a CTA */
    TC_BLOCKS = 64, /* of a CTA */
    TILE = 64       /* rows, and blocks, of a CTA of the tiled scorer */
};
#define GRID_X_LIMIT INT32_MAX

static bool hd_ok(uint32_t hd, uint32_t most, struct ref_refusal *why)
{
    if (hd % 32)
        return ref_refuse(why, "dim_multiple_of_32", "hd %" PRIu32 " is not a multiple of 32", hd);
    if (hd < 32 || hd > most)
        return ref_refuse(why, "hd_range", "hd %" PRIu32 " is outside 32..%" PRIu32, hd, most);
    return true;
}

static bool ratio_ok(uint32_t ratio, struct ref_refusal *why)
{
    return ratio ? true : ref_refuse(why, "ratio_zero", "ratio is 0: a block has no tokens");
}

static bool norm_ok(uint32_t hd, uint32_t rot, float theta, float eps, struct ref_refusal *why)
{
    if (!hd_ok(hd, MAX_HD, why)) return false;
    if (rot % 2 || rot > hd)
        return ref_refuse(why, "rot", "rot %" PRIu32 " is odd or above hd %" PRIu32, rot, hd);
    if (!(theta > 0) || !isfinite(theta))
        return ref_refuse(why, "theta", "theta %g is not positive and finite", (double)theta);
    if (!(eps >= 0) || !isfinite(eps))
        return ref_refuse(why, "eps", "eps %g is negative or not finite", (double)eps);
    return true;
}

static bool heads_ok(uint32_t heads, const char *name, struct ref_refusal *why)
{
    return heads ? true : ref_refuse(why, "degenerate", "%s is 0: nothing to compute", name);
}

static bool grid_ok(uint64_t x, uint64_t y, struct ref_refusal *why)
{
    if (x > GRID_X_LIMIT)
        return ref_refuse(why, "grid_limit", "grid x %" PRIu64 " is beyond %d", x, GRID_X_LIMIT);
    if (y > GRID_YZ_LIMIT)
        return ref_refuse(why, "grid_limit", "grid y %" PRIu64 " is beyond %d", y, GRID_YZ_LIMIT);
    return true;
}

/* `count` positions from `first` on. */
static bool positions_ok(uint64_t first, uint64_t count, struct ref_refusal *why)
{
    if (!count || first + count <= (uint64_t)INT32_MAX + 1) return true;
    return ref_refuse(why, "position_range",
                      "position %" PRIu64 " is reached; the last one is 2^31-1", first + count - 1);
}

static bool pages_ok(uint32_t block_size, uint32_t ratio, struct ref_refusal *why)
{
    if (block_size % ratio == 0) return true;
    return ref_refuse(why, "block_size_multiple_of_ratio",
                      "block_size %" PRIu32 " is not a multiple of ratio %" PRIu32
                      ": a block would straddle a page boundary",
                      block_size, ratio);
}

static bool block_size_ok(uint32_t block_size, struct ref_refusal *why)
{
    return block_size ? true
                      : ref_refuse(why, "block_size_zero", "block_size is 0: a page has no slots");
}

static bool table_length_ok(uint64_t tokens, uint32_t table_len, uint32_t block_size,
                            struct ref_refusal *why)
{
    uint64_t most = (uint64_t)table_len * block_size;
    if (tokens <= most) return true;
    return ref_refuse(why, "seq_len_range",
                      "%" PRIu64 " tokens do not fit a block table of %" PRIu32
                      " pages of %" PRIu32,
                      tokens, table_len, block_size);
}

static bool entry_ok(const int32_t *table, uint64_t page, uint32_t num_pages,
                     struct ref_refusal *why)
{
    if (table[page] >= 0 && (uint32_t)table[page] < num_pages) return true;
    return ref_refuse(why, "block_table_entry",
                      "block table entry %" PRIu64 " is %" PRId32 ", outside 0..num_pages %" PRIu32,
                      page, table[page], num_pages);
}

static bool groups_ok(uint32_t nq, uint32_t nkv, struct ref_refusal *why)
{
    if (!nkv) return ref_refuse(why, "kv_head_groups", "nkv is 0: there is no kv head");
    if (nq % nkv == 0) return true;
    return ref_refuse(why, "kv_head_groups", "nq %" PRIu32 " is not a multiple of nkv %" PRIu32, nq,
                      nkv);
}

static bool topk_ok(uint32_t topk, struct ref_refusal *why)
{
    if (topk && topk <= MAX_TOPK) return true;
    return ref_refuse(why, "topk_range", "topk %" PRIu32 " is outside 1..%d", topk, MAX_TOPK);
}

static bool scale_ok(float scale, struct ref_refusal *why)
{
    if (scale > 0 && isfinite(scale)) return true;
    return ref_refuse(why, "scale_positive", "inv_sqrt_d %g is not positive and finite",
                      (double)scale);
}

bool ref_qsa_block_pool_accepts(const struct ref_qsa_block_pool *g, struct ref_refusal *why)
{
    if (!norm_ok(g->hd, g->rot, g->theta, g->eps, why) || !ratio_ok(g->ratio, why) ||
        !pages_ok(g->block_size, g->ratio, why))
        return false;
    uint64_t end = (uint64_t)g->first_block + g->n_new;
    if (end > g->max_blocks)
        return ref_refuse(why, "max_blocks",
                          "blocks up to %" PRIu64 " do not fit block_keys of %" PRIu32 " rows", end,
                          g->max_blocks);
    if (end * g->ratio > g->S)
        return ref_refuse(why, "pool_range",
                          "blocks up to %" PRIu64 " of ratio %" PRIu32
                          " need more than the %" PRIu32 " tokens there are",
                          end, g->ratio, g->S);
    return positions_ok((uint64_t)g->first_block * g->ratio, (uint64_t)g->n_new * g->ratio, why) &&
           grid_ok(g->n_new, 1, why);
}

bool ref_qsa_qprep_accepts(const struct ref_qsa_qprep_rows *g, struct ref_refusal *why)
{
    return norm_ok(g->hd, g->rot, g->theta, g->eps, why) && heads_ok(g->n_heads, "n_heads", why) &&
           positions_ok(g->first_pos, 1, why) && grid_ok(g->n_heads, 1, why);
}

bool ref_qsa_qprep_rows_accepts(const struct ref_qsa_qprep_rows *g, struct ref_refusal *why)
{
    if (!norm_ok(g->hd, g->rot, g->theta, g->eps, why) || !heads_ok(g->n_heads, "n_heads", why))
        return false;
    if (g->qkw < (uint64_t)g->n_heads * g->hd)
        return ref_refuse(why, "qkw", "qkw %" PRIu32 " is below n_heads %" PRIu32 " * hd %" PRIu32,
                          g->qkw, g->n_heads, g->hd);
    return positions_ok(g->first_pos, g->rows, why) && grid_ok(g->rows, g->n_heads, why);
}

bool ref_qsa_score_accepts(const struct ref_qsa_score *g, struct ref_refusal *why)
{
    return hd_ok(g->hd, MAX_HD, why) && heads_ok(g->n_heads, "n_heads", why) &&
           grid_ok(g->n_blocks, 1, why);
}

static bool score_rows_ok(const struct ref_qsa_score_rows *g, struct ref_refusal *why)
{
    if (!hd_ok(g->hd, MAX_HD, why) || !heads_ok(g->n_heads, "n_heads", why) ||
        !ratio_ok(g->ratio, why))
        return false;
    if (g->score_stride < g->n_blocks_max)
        return ref_refuse(why, "score_stride",
                          "score_stride %" PRIu32 " is below n_blocks_max %" PRIu32,
                          g->score_stride, g->n_blocks_max);
    return positions_ok(g->first_pos, g->rows, why);
}

bool ref_qsa_score_rows_accepts(const struct ref_qsa_score_rows *g, struct ref_refusal *why)
{
    return score_rows_ok(g, why) && grid_ok(g->rows, g->n_blocks_max, why);
}

bool ref_qsa_score_rows_tiled_accepts(const struct ref_qsa_score_rows *g, struct ref_refusal *why)
{
    uint64_t x = ((uint64_t)g->rows + TILE - 1) / TILE;
    uint64_t y = ((uint64_t)g->n_blocks_max + TILE - 1) / TILE;
    return score_rows_ok(g, why) && grid_ok(x, y, why);
}

bool ref_qsa_score_rows_tc_accepts(const struct ref_qsa_score_rows *g, struct ref_refusal *why)
{
    if (g->n_heads != TC_HEADS || g->hd != TC_HD)
        return ref_refuse(why, "tc_geometry",
                          "n_heads %" PRIu32 ", hd %" PRIu32
                          ": the tensor-core scorer is for %d heads of %d",
                          g->n_heads, g->hd, TC_HEADS, TC_HD);
    uint64_t x = ((uint64_t)g->rows + TC_ROWS - 1) / TC_ROWS;
    uint64_t y = ((uint64_t)g->n_blocks_max + TC_BLOCKS - 1) / TC_BLOCKS;
    return score_rows_ok(g, why) && grid_ok(x, y, why);
}

bool ref_qsa_topk_rows_accepts(const struct ref_qsa_topk_rows *g, struct ref_refusal *why)
{
    if (!topk_ok(g->topk, why) || !ratio_ok(g->ratio, why) ||
        !positions_ok(g->first_pos, g->rows, why))
        return false;
    uint64_t complete = g->rows ? ((uint64_t)g->first_pos + g->rows) / g->ratio : 0;
    if (g->score_stride < complete)
        return ref_refuse(why, "score_stride",
                          "score_stride %" PRIu32 " is below the %" PRIu64
                          " complete blocks of the last row",
                          g->score_stride, complete);
    return grid_ok(g->rows, 1, why);
}

static bool gather_entries_ok(const struct ref_qsa_gather *g, struct ref_refusal *why)
{
    for (uint32_t i = 0; i < g->n_sel; i++) {
        int32_t token = g->sel[i];
        if (token < 0 || (uint32_t)token >= g->seq_len)
            return ref_refuse(why, "sel_range",
                              "sel[%" PRIu32 "] is %" PRId32 ", outside the sequence of %" PRIu32
                              " tokens",
                              i, token, g->seq_len);
        if (g->block_table &&
            !entry_ok(g->block_table, (uint32_t)token / g->block_size, g->num_pages, why))
            return false;
    }
    return true;
}

bool ref_qsa_gather_accepts(const struct ref_qsa_gather *g, struct ref_refusal *why)
{
    if (!hd_ok(g->hd, MAX_HD, why) || !groups_ok(0, g->nkv, why) ||
        !block_size_ok(g->block_size, why) || !ratio_ok(g->ratio, why) ||
        !pages_ok(g->block_size, g->ratio, why) ||
        !table_length_ok(g->seq_len, g->table_len, g->block_size, why) ||
        !grid_ok(g->n_sel, 1, why))
        return false;
    return !g->sel || gather_entries_ok(g, why);
}

static int compare_ids(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Holes may repeat. */
static bool list_is_unique(const int32_t *list, uint32_t topk, uint32_t row,
                           struct ref_refusal *why)
{
    int32_t sorted[MAX_TOPK];
    memcpy(sorted, list, topk * sizeof *list);
    qsort(sorted, topk, sizeof *sorted, compare_ids);
    for (uint32_t i = 1; i < topk; i++) {
        if (sorted[i] >= 0 && sorted[i] == sorted[i - 1])
            return ref_refuse(why, "duplicate_id",
                              "block %" PRId32 " is twice in the list of row %" PRIu32
                              ": it would count twice",
                              sorted[i], row);
    }
    return true;
}

static bool list_ok(const struct ref_qsa_prefill_attn *g, uint32_t row, struct ref_refusal *why)
{
    const int32_t *list = g->lists + (size_t)row * g->topk;
    uint64_t complete = ((uint64_t)g->first_pos + row + 1) / g->ratio;
    for (uint32_t i = 0; i < g->topk; i++) {
        if (list[i] == -1) continue;
        if (list[i] < -1 || (uint64_t)list[i] >= complete)
            return ref_refuse(why, "listed_block",
                              "row %" PRIu32 " lists block %" PRId32 ", outside the %" PRIu64
                              " complete ones",
                              row, list[i], complete);
        uint64_t page = (uint64_t)list[i] * g->ratio / g->block_size;
        if (g->block_table && !entry_ok(g->block_table, page, g->num_pages, why)) return false;
    }
    return list_is_unique(list, g->topk, row, why);
}

/* The page of the tokens behind the last complete block, if there are any. */
static bool tail_ok(const struct ref_qsa_prefill_attn *g, uint32_t row, struct ref_refusal *why)
{
    uint64_t visible = (uint64_t)g->first_pos + row + 1;
    if (visible % g->ratio == 0) return true;
    return entry_ok(g->block_table, (visible - 1) / g->block_size, g->num_pages, why);
}

bool ref_qsa_prefill_attn_accepts(const struct ref_qsa_prefill_attn *g, struct ref_refusal *why)
{
    if (!hd_ok(g->hd, MAX_ATTN_HD, why) || !heads_ok(g->nq, "nq", why) ||
        !groups_ok(g->nq, g->nkv, why) || !block_size_ok(g->block_size, why) ||
        !ratio_ok(g->ratio, why) || !pages_ok(g->block_size, g->ratio, why) ||
        !topk_ok(g->topk, why) || !scale_ok(g->inv_sqrt_d, why) ||
        !positions_ok(g->first_pos, g->rows, why) || !grid_ok(g->rows, g->nq, why))
        return false;
    uint64_t tokens = g->rows ? (uint64_t)g->first_pos + g->rows : 0;
    if (!table_length_ok(tokens, g->table_len, g->block_size, why)) return false;
    if (!g->lists && !g->block_table) return true; /* rows may be billions */
    for (uint32_t r = 0; r < g->rows; r++) {
        if (g->lists && !list_ok(g, r, why)) return false;
        if (g->block_table && !tail_ok(g, r, why)) return false;
    }
    return true;
}

bool ref_paged_decode_attn_accepts(const struct ref_paged_decode_attn *g, struct ref_refusal *why)
{
    if (!hd_ok(g->hd, MAX_ATTN_HD, why) || !heads_ok(g->nq, "nq", why) ||
        !groups_ok(g->nq, g->nkv, why) || !block_size_ok(g->block_size, why) ||
        !scale_ok(g->inv_sqrt_d, why) || !positions_ok(0, g->seq_len, why) ||
        !grid_ok(g->nq, 1, why) || !table_length_ok(g->seq_len, g->table_len, g->block_size, why))
        return false;
    uint64_t pages = ((uint64_t)g->seq_len + g->block_size - 1) / g->block_size;
    for (uint64_t page = 0; page < pages && g->block_table; page++)
        if (!entry_ok(g->block_table, page, g->num_pages, why)) return false;
    return true;
}
