/* Refusals of the DSA operations (ops.md §2). Where several rules are broken, the first found is
 * reported. All products are formed in 64 bits, where they cannot wrap. */
#include "dsa.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "refuse.h"

enum {
    MAX_KPOOL = 16,
    LATENT = 512,
    MAX_MASKED_ROWS = 12288, /* a score row in 48 KiB of shared memory */
    SHARED_LIMIT = 232448,   /* bytes a block may have */
    STATIC_LIMIT = 49152,    /* of these, what the scorer may have besides the dynamic ones */
    GRID_YZ_LIMIT = 65535
};
#define GRID_X_LIMIT INT32_MAX

static bool power_of_two(uint64_t x)
{
    return x && !(x & (x - 1));
}

static bool kpool_ok(uint32_t kpool, const char *name, struct ref_refusal *why)
{
    if (kpool && kpool <= MAX_KPOOL) return true;
    return ref_refuse(why, "index_kpool_range", "%s %" PRIu32 " is outside 1..%d", name, kpool,
                      MAX_KPOOL);
}

static bool block_size_ok(uint32_t block_size, uint32_t kpool, struct ref_refusal *why)
{
    if (block_size % kpool == 0) return true;
    return ref_refuse(why, "block_size_multiple_of_kpool",
                      "block_size %" PRIu32 " is not a multiple of index_kpool %" PRIu32
                      ": a pool would straddle a page boundary",
                      block_size, kpool);
}

static bool scale_ok(float scale, const char *name, struct ref_refusal *why)
{
    if (scale > 0 && isfinite(scale)) return true;
    return ref_refuse(why, "scale_positive", "%s %g is not positive and finite", name,
                      (double)scale);
}

static bool grid_ok(uint64_t x, uint64_t y, struct ref_refusal *why)
{
    if (x > GRID_X_LIMIT)
        return ref_refuse(why, "grid_limit", "grid x %" PRIu64 " is beyond %d", x, GRID_X_LIMIT);
    if (y > GRID_YZ_LIMIT)
        return ref_refuse(why, "grid_limit", "grid y %" PRIu64 " is beyond %d", y, GRID_YZ_LIMIT);
    return true;
}

static bool shared_ok(uint64_t bytes, struct ref_refusal *why)
{
    if (bytes <= SHARED_LIMIT) return true;
    return ref_refuse(why, "shared_limit",
                      "%" PRIu64 " bytes of shared memory a block are beyond %d", bytes,
                      SHARED_LIMIT);
}

/* Token ids are i32. */
static bool positions_ok(uint64_t tokens, const char *name, struct ref_refusal *why)
{
    if (tokens <= (uint64_t)INT32_MAX + 1) return true;
    return ref_refuse(why, "position_range",
                      "%s reaches token %" PRIu64 ", beyond the last position 2^31-1", name,
                      tokens - 1);
}

static bool np2_ok(int64_t select_k, int64_t np2, struct ref_refusal *why)
{
    if (np2 < 0 || !power_of_two((uint64_t)np2))
        return ref_refuse(why, "np2_power_of_two", "NP2 %" PRId64 " is not a power of two", np2);
    if (select_k > np2)
        return ref_refuse(why, "select_k_np2", "select_k %" PRId64 " is above NP2 %" PRId64,
                          select_k, np2);
    return true;
}

/* The scalars are what buffers and launch are sized for; the numbers that override them must fit
 * in. INT32_MAX stands for a scalar the operation does not have. */
static bool geom_ok(const int32_t *geom, uint32_t rows, uint32_t S, uint32_t pools,
                    uint32_t select_k, uint32_t np2, struct ref_refusal *why)
{
    if (!geom) return true;
    if (rows > 1)
        return ref_refuse(why, "geom_rows",
                          "geom with %" PRIu32 " rows: the row stride depends on it", rows);
    if (geom[0] < 0 || (uint32_t)geom[0] > S)
        return ref_refuse(why, "pool_range", "geom length %" PRId32 " is outside 0..S %" PRIu32,
                          geom[0], S);
    if (geom[2] < 0 || geom[1] < geom[2] || (uint32_t)geom[1] > pools)
        return ref_refuse(why, "pool_range",
                          "geom pools %" PRId32 ", of them %" PRId32
                          " complete, are outside 0..P %" PRIu32,
                          geom[1], geom[2], pools);
    if (geom[3] < 0 || (uint32_t)geom[3] > select_k)
        return ref_refuse(why, "select_k_range",
                          "geom select_k %" PRId32 " is outside 0..select_k %" PRIu32, geom[3],
                          select_k);
    if (!np2_ok(geom[3], geom[4], why)) return false;
    if ((uint32_t)geom[4] > np2)
        return ref_refuse(why, "shared_limit",
                          "geom NP2 %" PRId32 " is above NP2 %" PRIu32
                          ", for which shared memory is sized",
                          geom[4], np2);
    return true;
}

static bool decode_shape_ok(const struct ref_dsa_decode *g, struct ref_refusal *why)
{
    if (!g->num_seqs || !g->num_q_heads)
        return ref_refuse(why, "degenerate",
                          "num_seqs %" PRIu32 ", num_q_heads %" PRIu32 ": nothing to attend",
                          g->num_seqs, g->num_q_heads);
    if (!g->block_size) return ref_refuse(why, "block_size_zero", "block_size is 0");
    if (!kpool_ok(g->index_kpool, "index_kpool", why) ||
        !block_size_ok(g->block_size, g->index_kpool, why))
        return false;
    if (g->num_kv_heads != 1)
        return ref_refuse(why, "num_kv_heads",
                          "num_kv_heads %" PRIu32 " is not 1: the latent is one head",
                          g->num_kv_heads);
    if (g->sel_rows != g->num_seqs)
        return ref_refuse(why, "selection_rows",
                          "%" PRIu32 " selection rows for num_seqs %" PRIu32
                          ": the row stride would be wrong",
                          g->sel_rows, g->num_seqs);
    if (g->kv_lora_rank != LATENT)
        return ref_refuse(why, "kv_lora_rank",
                          "kv_lora_rank %" PRIu32 " is not %d, the kernel's tiling",
                          g->kv_lora_rank, LATENT);
    return grid_ok(g->num_q_heads, g->num_seqs, why);
}

static bool decode_pages_ok(const struct ref_dsa_decode *g, struct ref_refusal *why)
{
    uint64_t dense = (uint64_t)g->block_size * LATENT; /* num_kv_heads is 1 by now */
    if (g->cache_stride_bytes < dense)
        return ref_refuse(why, "cache_stride_small",
                          "cache_stride_bytes %" PRIu64 " is below a page of %" PRIu64 " bytes",
                          g->cache_stride_bytes, dense);
    if (g->cache_stride_bytes % 16)
        return ref_refuse(why, "cache_stride_align",
                          "cache_stride_bytes %" PRIu64 " is not a multiple of 16",
                          g->cache_stride_bytes);
    return true;
}

static bool lengths_ok(const struct ref_dsa_decode *g, struct ref_refusal *why)
{
    uint64_t most = (uint64_t)g->max_blocks_per_seq * g->block_size;
    for (size_t seq = 0; seq < g->num_seqs; seq++) {
        int32_t length = g->seq_lens[seq];
        if (length < 0 || (uint64_t)length > most)
            return ref_refuse(why, "seq_len_range",
                              "seq_len %" PRId32 " of sequence %zu is outside 0..%" PRIu64, length,
                              seq, most);
    }
    return true;
}

/* The entries that selected tokens of the sequence go through. */
static bool table_ok(const struct ref_dsa_decode *g, struct ref_refusal *why)
{
    for (size_t seq = 0; seq < g->num_seqs; seq++) {
        const int32_t *row = g->sel_indices + seq * g->width;
        const int32_t *table = g->block_tables + seq * g->max_blocks_per_seq;
        for (size_t i = 0; i < g->width; i++) {
            if (row[i] < 0 || row[i] >= g->seq_lens[seq]) continue;
            uint32_t page = (uint32_t)row[i] / g->block_size;
            if (table[page] < 0 || (uint32_t)table[page] >= g->num_pages)
                return ref_refuse(why, "block_table_entry",
                                  "block table entry %" PRIu32 " of sequence %zu is %" PRId32
                                  ", outside 0..num_pages %" PRIu32,
                                  page, seq, table[page], g->num_pages);
        }
    }
    return true;
}

static int compare_ids(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Negative ids are holes and may repeat. */
static bool row_is_unique(int32_t *sorted, size_t width, struct ref_refusal *why)
{
    qsort(sorted, width, sizeof *sorted, compare_ids);
    for (size_t i = 1; i < width; i++)
        if (sorted[i] >= 0 && sorted[i] == sorted[i - 1])
            return ref_refuse(why, "duplicate_id",
                              "token %" PRId32 " is twice in a selection row: it would count twice",
                              sorted[i]);
    return true;
}

static bool selection_ok(const struct ref_dsa_decode *g, struct ref_refusal *why)
{
    size_t width = g->width;
    if (width < 2) return true;
    int32_t *sorted = malloc(width * sizeof *sorted);
    if (!sorted) return ref_refuse(why, "duplicate_id", "no memory to look for duplicate ids");
    bool ok = true;
    for (size_t seq = 0; seq < g->num_seqs && ok; seq++) {
        memcpy(sorted, g->sel_indices + seq * width, width * sizeof *sorted);
        ok = row_is_unique(sorted, width, why);
    }
    free(sorted);
    return ok;
}

bool ref_dsa_decode_accepts(const struct ref_dsa_decode *g, struct ref_refusal *why)
{
    if (!decode_shape_ok(g, why) || !decode_pages_ok(g, why) || !scale_ok(g->scale, "scale", why) ||
        !scale_ok(g->k_scale, "k_scale", why) || !scale_ok(g->v_scale, "v_scale", why))
        return false;
    if (g->seq_lens && !lengths_ok(g, why)) return false;
    if (g->sel_indices && !selection_ok(g, why)) return false;
    return !g->seq_lens || !g->sel_indices || !g->block_tables || table_ok(g, why);
}

static bool dim_ok(uint32_t D, struct ref_refusal *why)
{
    if (D && D % 32 == 0) return true;
    return ref_refuse(why, "dim_multiple_of_32", "D %" PRIu32 " is not a multiple of 32 above 0",
                      D);
}

static bool first_key_ok(int32_t first_key, uint32_t S, struct ref_refusal *why)
{
    if (first_key >= 0 && (uint32_t)first_key <= S) return true;
    return ref_refuse(why, "first_key", "first_key %" PRId32 " is outside 0..S %" PRIu32, first_key,
                      S);
}

bool ref_dsa_kpool_compress_accepts(const struct ref_dsa_kpool_compress *g, struct ref_refusal *why)
{
    if (!kpool_ok(g->KP, "KP", why) || !block_size_ok(g->block_size, g->KP, why) ||
        !dim_ok(g->D, why) || !first_key_ok(g->first_key, g->S, why))
        return false;
    uint64_t end = (uint64_t)g->first_key + (uint64_t)g->pools * g->KP;
    return positions_ok(g->S, "S", why) && positions_ok(end, "the last pool", why) &&
           grid_ok(g->pools, 1, why) &&
           geom_ok(g->geom, 1, g->S, g->pools, INT32_MAX, INT32_MAX, why);
}

/* A pool's slots are tokens of the sequence, or -1. */
static bool pool_indices_ok(const struct ref_dsa_index_scores *g, struct ref_refusal *why)
{
    int64_t length = g->geom ? g->geom[0] : g->S;
    size_t slots = (size_t)(g->geom ? (uint32_t)g->geom[1] : g->P) * g->KP;
    for (size_t i = 0; i < slots; i++)
        if (g->pool_indices[i] < -1 || g->pool_indices[i] >= length)
            return ref_refuse(why, "pool_range",
                              "slot %zu of pool %zu is token %" PRId32
                              ", neither -1 nor below S %" PRId64,
                              i % g->KP, i / g->KP, g->pool_indices[i], length);
    return true;
}

bool ref_dsa_index_scores_accepts(const struct ref_dsa_index_scores *g, struct ref_refusal *why)
{
    uint64_t shared = (uint64_t)g->H * 4 > 1024 ? (uint64_t)g->H * 4 : 1024;
    return kpool_ok(g->KP, "KP", why) && dim_ok(g->D, why) && positions_ok(g->S, "S", why) &&
           grid_ok(g->P, g->Q, why) && shared_ok(shared + STATIC_LIMIT, why) &&
           scale_ok(g->scale, "scale", why) &&
           geom_ok(g->geom, g->Q, g->S, g->P, INT32_MAX, INT32_MAX, why) &&
           (!g->pool_indices || pool_indices_ok(g, why));
}

bool ref_dsa_topk_pools_accepts(const struct ref_dsa_topk_pools *g, struct ref_refusal *why)
{
    if (!np2_ok(g->select_k, g->NP2, why) || !shared_ok((uint64_t)g->NP2 * 16, why) ||
        !grid_ok(g->Q, 1, why))
        return false;
    if (g->P > INT32_MAX)
        return ref_refuse(why, "pool_range", "P %" PRIu32 ": pool ids are 32 bits and signed",
                          g->P);
    return geom_ok(g->geom, g->Q, INT32_MAX, g->P, g->select_k, g->NP2, why);
}

/* Where the tail starts follows from the number of visible keys, so none may lie before first_key:
 * each would move the tail one token past the query's own position. */
static bool no_key_before_first(const struct ref_dsa_expand_selection *g, struct ref_refusal *why)
{
    int64_t length = g->geom ? g->geom[0] : g->S, end = 0;
    for (size_t row = 0; row < g->Q; row++)
        if (g->q_mask[row] && g->q_pos[row] >= end) end = (int64_t)g->q_pos[row] + 1;
    if (end > length) end = length;
    if (end > g->first_key) end = g->first_key;
    for (int64_t token = 0; token < end; token++)
        if (g->valid_keys[token])
            return ref_refuse(why, "first_key",
                              "token %" PRId64 " is valid and lies before first_key %" PRId32
                              ": the tail would start past the query",
                              token, g->first_key);
    return true;
}

bool ref_dsa_expand_selection_accepts(const struct ref_dsa_expand_selection *g,
                                      struct ref_refusal *why)
{
    if (!kpool_ok(g->KP, "KP", why)) return false;
    if (!g->index_topk || g->index_topk % g->KP)
        return ref_refuse(why, "index_topk_multiple",
                          "index_topk %" PRIu32 " is 0 or not a multiple of index_kpool %" PRIu32,
                          g->index_topk, g->KP);
    uint64_t width = (uint64_t)g->index_topk + (g->always_tail ? g->KP - 1 : 0);
    if (g->width != width)
        return ref_refuse(why, "width", "width %" PRIu32 " is not %" PRIu64 ", index_topk%s",
                          g->width, width, g->always_tail ? " and a tail of index_kpool-1" : "");
    if (g->select_k > g->index_topk / g->KP)
        return ref_refuse(why, "select_k_range",
                          "select_k %" PRIu32 " is above index_topk/index_kpool %" PRIu32,
                          g->select_k, g->index_topk / g->KP);
    return positions_ok(g->S, "S", why) && first_key_ok(g->first_key, g->S, why) &&
           grid_ok(g->Q, 1, why) &&
           geom_ok(g->geom, g->Q, g->S, g->P, g->select_k, INT32_MAX, why) &&
           (!g->always_tail || !g->valid_keys || !g->q_pos || !g->q_mask ||
            no_key_before_first(g, why));
}

bool ref_dsa_topk_to_mask_accepts(const struct ref_dsa_topk_to_mask *g, struct ref_refusal *why)
{
    return grid_ok(g->Q, 1, why);
}

bool ref_dsa_mla_masked_attn_accepts(const struct ref_dsa_mla_masked_attn *g,
                                     struct ref_refusal *why)
{
    if (g->S > MAX_MASKED_ROWS)
        return ref_refuse(why, "masked_attn_rows",
                          "S %" PRIu32 " is above %d: a score row lives in 48 KiB of shared memory",
                          g->S, MAX_MASKED_ROWS);
    return grid_ok(g->Q, g->H, why) && scale_ok(g->scale, "scale", why);
}
