#include <math.h>
#include <string.h>

#include "harness/base/error_text.h"
#include "harness/captured/golden.h"
#include "harness/captured/golden_load.h"

/* The counts of a file. */
struct geometry {
    uint32_t S, Q, P, KP, H, D, wide_D, index_topk, width, left, block_size, q_heads, rank;
    bool tail;
};

static void read_geometry(struct golden_load *load, struct geometry *n)
{
    const char *tail = "";
    n->S = golden_u32(load, "S");
    n->KP = golden_u32(load, "index_kpool");
    n->H = golden_u32(load, "index_heads");
    n->D = golden_u32(load, "index_head_dim");
    n->index_topk = golden_u32(load, "index_topk");
    n->left = golden_u32(load, "left_padding");
    n->block_size = golden_u32(load, "block_size");
    n->q_heads = golden_u32(load, "num_q_heads");
    n->rank = golden_u32(load, "kv_lora_rank");
    n->Q = golden_count(load, "q_pos");
    load->ok = load->ok && st_metadata_text(load->file, "always_select_tail", &tail, load->error,
                                            load->error_size);
    if (!load->ok) return;
    n->tail = strcmp(tail, "true") == 0;
    golden_check(load, n->tail || strcmp(tail, "false") == 0,
                 "always_select_tail is neither true nor false");
    /* The bounds let the products below stay inside 32 bits; the shapes are checked against the
     * file. */
    golden_check(load, n->KP > 0 && n->KP <= 16 && n->left <= n->S && n->S <= 1u << 20,
                 "index_kpool, left_padding or S is out of range");
    golden_check(load, n->D > 0 && n->D <= 1024 && n->index_topk <= 1u << 20,
                 "index_head_dim or index_topk is out of range");
    if (!load->ok) return;
    n->P = (n->S - n->left) / n->KP;
    n->wide_D = (n->D + 31) / 32 * 32;
    n->width = n->index_topk + (n->tail ? n->KP - 1 : 0);
    if (n->block_size == 0) n->block_size = n->KP; /* no cache in the file: any legal page */
}

static void load_compress(struct golden_load *load, const struct geometry *n,
                          struct golden_dsa *out)
{
    const void *k = golden_need(load, "k", ST_BF16, ST_SHAPE(n->S, n->D));
    const void *gate = golden_need(load, "gate", ST_BF16, ST_SHAPE(n->S, n->D));
    const void *ape = golden_need(load, "ape", ST_F32, ST_SHAPE(n->KP, n->D));
    out->compress = (struct ref_dsa_kpool_compress){
        .k = golden_widen(load, k, n->S, n->D, n->wide_D, sizeof(uint16_t)),
        .gate = golden_widen(load, gate, n->S, n->D, n->wide_D, sizeof(uint16_t)),
        .valid = golden_need(load, "valid", ST_U8, ST_SHAPE(n->S)),
        .ape = golden_widen(load, ape, n->KP, n->D, n->wide_D, sizeof(float)),
        .pools = n->P,
        .S = n->S,
        .D = n->wide_D,
        .KP = n->KP,
        .block_size = n->block_size,
        .first_key = (int32_t)n->left};
    out->pools = n->P;
    out->head_dim = n->D;
    out->pool_keys = golden_need(load, "expect.pool_keys", ST_F32, ST_SHAPE(n->P, n->D));
    out->pool_indices = golden_need(load, "expect.pool_indices", ST_I32, ST_SHAPE(n->P, n->KP));
    out->pool_valid = golden_need(load, "expect.pool_valid", ST_U8, ST_SHAPE(n->P));
}

static void load_selection(struct golden_load *load, const struct geometry *n,
                           struct golden_dsa *out)
{
    const void *q = golden_need(load, "q", ST_F32, ST_SHAPE(n->Q, n->H, n->D));
    const int32_t *q_pos = golden_need(load, "q_pos", ST_I32, ST_SHAPE(n->Q));
    uint32_t select_k = n->index_topk / n->KP < n->P ? n->index_topk / n->KP : n->P, np2 = 1;
    while (np2 < n->P) np2 *= 2;
    out->scores = (struct ref_dsa_index_scores){
        .q = golden_widen(load, q, (uint64_t)n->Q * n->H, n->D, n->wide_D, sizeof(float)),
        .pool_keys = golden_widen(load, out->pool_keys, n->P, n->D, n->wide_D, sizeof(float)),
        .weights = golden_need(load, "weights", ST_F32, ST_SHAPE(n->Q, n->H)),
        .pool_indices = out->pool_indices,
        .pool_valid = out->pool_valid,
        .valid_keys = out->compress.valid,
        .q_pos = q_pos,
        .Q = n->Q,
        .P = n->P,
        .H = n->H,
        .D = n->wide_D,
        .KP = n->KP,
        .S = n->S,
        .scale = (float)(1.0 / sqrt(n->D))};
    out->topk = (struct ref_dsa_topk_pools){.Q = n->Q, .P = n->P, .NP2 = np2, .select_k = select_k};
    out->expand = (struct ref_dsa_expand_selection){
        .pool_indices = out->pool_indices,
        .valid_keys = out->compress.valid,
        .q_pos = q_pos,
        .q_mask = golden_need(load, "q_mask", ST_U8, ST_SHAPE(n->Q)),
        .Q = n->Q,
        .P = n->P,
        .KP = n->KP,
        .S = n->S,
        .select_k = select_k,
        .width = n->width,
        .index_topk = n->index_topk,
        .first_key = (int32_t)n->left,
        .always_tail = n->tail};
    out->rows = n->Q;
    out->scores_f64 = golden_need(load, "expect.scores_f64", ST_F64, ST_SHAPE(n->Q, n->P));
    out->topk_indices = golden_need(load, "expect.topk_indices", ST_I32, ST_SHAPE(n->Q, n->width));
}

/* Every sequence has the file's one table; the entries it does not use are poison. */
static const int32_t *spread_table(struct golden_load *load, const struct golden_pages *pages,
                                   const int32_t *seq_lens, uint32_t num_seqs)
{
    int32_t *tables = golden_alloc(load, (uint64_t)num_seqs * pages->table_len, sizeof *tables);
    for (uint32_t s = 0; tables && s < num_seqs; s++)
        for (uint32_t i = 0; i < pages->table_len; i++)
            tables[(uint64_t)s * pages->table_len + i] =
                (int64_t)i * pages->block_size < seq_lens[s] ? pages->table[i] : INT32_MAX;
    return tables;
}

static void load_decode(struct golden_load *load, const struct geometry *n, struct golden_dsa *out)
{
    struct golden_pages pages = {.table_len = golden_count(load, "block_table"),
                                 .block_size = n->block_size,
                                 .token_bytes = n->rank,
                                 /* wider than the pages, so that the pitch matters */
                                 .pitch_bytes = (uint64_t)n->block_size * n->rank + 256};
    uint32_t num_seqs = golden_count(load, "seq_lens");
    float kv_scale = golden_f32(load, "kv_scale");
    out->latent = golden_need(load, "latent_fp8", ST_U8, ST_SHAPE(n->S, n->rank));
    pages.table = golden_need(load, "block_table", ST_I32, ST_SHAPE(pages.table_len));
    const int32_t *seq_lens = golden_need(load, "seq_lens", ST_I32, ST_SHAPE(num_seqs));
    golden_pages_check(load, &pages, n->S);
    const uint8_t *cache = golden_paged(load, &pages, out->latent, n->S);
    out->decode = (struct ref_dsa_decode){
        .q = golden_need(load, "q_absorbed", ST_BF16, ST_SHAPE(num_seqs, n->q_heads, n->rank)),
        .k_cache = cache,
        .v_cache = cache,
        .block_tables = spread_table(load, &pages, seq_lens, num_seqs),
        .seq_lens = seq_lens,
        .sel_indices = golden_need(load, "sel_indices", ST_I32, ST_SHAPE(num_seqs, n->width)),
        .num_seqs = num_seqs,
        .sel_rows = num_seqs,
        .width = n->width,
        .max_blocks_per_seq = pages.table_len,
        .num_q_heads = n->q_heads,
        .num_kv_heads = 1,
        .kv_lora_rank = n->rank,
        .block_size = n->block_size,
        .index_kpool = n->KP,
        .num_pages = pages.num_pages,
        .scale = (float)(1.0 / sqrt(n->rank)),
        .k_scale = kv_scale,
        .v_scale = kv_scale,
        .cache_stride_bytes = pages.pitch_bytes};
    out->attn_f64 =
        golden_need(load, "expect.attn_f64", ST_F64, ST_SHAPE(num_seqs, n->q_heads, n->rank));
}

bool golden_dsa_open(const char *path, struct golden_dsa *out, char *error, size_t error_size)
{
    struct geometry n = {0};
    *out = (struct golden_dsa){0};
    struct golden_load load = golden_load_open(path, &out->owned, error, error_size);
    if (load.ok) read_geometry(&load, &n);
    if (load.ok) load_compress(&load, &n, out);
    if (load.ok) load_selection(&load, &n, out);
    if (load.ok && n.q_heads > 0) load_decode(&load, &n, out);
    if (!load.ok) golden_dsa_close(out);
    return load.ok;
}

void golden_dsa_close(struct golden_dsa *golden)
{
    golden_load_close(&golden->owned);
    *golden = (struct golden_dsa){0};
}
