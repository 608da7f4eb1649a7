#include <math.h>

#include "harness/base/error_text.h"
#include "harness/captured/golden.h"
#include "harness/captured/golden_load.h"
#include "ref/formats.h"

/* The counts of a file. */
struct geometry {
    uint32_t S, rows, blocks, topk, ratio, hd, rot, heads, qkw, block_size, nq, nkv, attn_hd;
    float theta, eps;
};

static void read_geometry(struct golden_load *load, struct geometry *n)
{
    uint32_t budget = golden_u32(load, "budget");
    n->S = golden_u32(load, "S");
    n->ratio = golden_u32(load, "ratio");
    n->hd = golden_u32(load, "hd");
    n->rot = golden_u32(load, "rot");
    n->heads = golden_u32(load, "n_heads");
    n->block_size = golden_u32(load, "block_size");
    n->nq = golden_u32(load, "nq");
    n->nkv = golden_u32(load, "nkv");
    n->attn_hd = golden_u32(load, "attn_hd");
    n->theta = golden_f32(load, "theta");
    n->eps = golden_f32(load, "eps");
    n->rows = golden_count(load, "row_pos");
    const struct st_tensor *qk = st_find(load->file, "qk");
    golden_check(load, qk && qk->rank == 2 && qk->shape[1] <= 1u << 20, "tensor qk is no matrix");
    /* The bounds let the products below stay inside 32 bits; the shapes are checked against the
     * file. */
    golden_check(load, n->ratio > 0 && n->S <= 1u << 20 && n->hd > 0 && n->hd <= 1024,
                 "ratio, S or hd is out of range");
    golden_check(load, n->nkv <= 64 && n->attn_hd <= 256, "nkv or attn_hd is out of range");
    if (!load->ok) return;
    n->qkw = (uint32_t)qk->shape[1];
    n->blocks = n->S / n->ratio;
    n->topk = budget / n->ratio;
    golden_check(load, n->topk > 0 && n->topk <= 2048, "budget is out of range");
    if (n->block_size == 0) n->block_size = n->ratio; /* no cache in the file: any legal page */
}

/* The blocks a mask row selects, then -1. False if the mask at position p is anything but at most
 * topk whole blocks and the whole tail. */
static bool mask_to_list(const uint8_t *mask, const struct geometry *n, int32_t p, int32_t *list)
{
    if (p < 0 || (uint32_t)p >= n->S) return false;
    uint32_t complete = ((uint32_t)p + 1) / n->ratio, taken = 0;
    for (uint32_t b = 0; b < complete; b++) {
        uint32_t set = 0;
        for (uint32_t i = 0; i < n->ratio; i++) set += mask[b * n->ratio + i] != 0;
        if (set != 0 && (set != n->ratio || taken == n->topk)) return false;
        if (set != 0) list[taken++] = (int32_t)b;
    }
    while (taken < n->topk) list[taken++] = -1;
    for (uint32_t t = complete * n->ratio; t < n->S; t++)
        if ((mask[t] != 0) != (t <= (uint32_t)p)) return false;
    return true;
}

static const int32_t *masks_to_lists(struct golden_load *load, const struct geometry *n,
                                     const uint8_t *mask, const int32_t *pos, uint32_t rows)
{
    int32_t *lists = golden_alloc(load, (uint64_t)rows * n->topk, sizeof *lists);
    for (uint32_t r = 0; lists && r < rows; r++)
        if (!golden_check(
                load,
                mask_to_list(mask + (uint64_t)r * n->S, n, pos[r], lists + (uint64_t)r * n->topk),
                "a mask is not whole blocks and the tail"))
            return NULL;
    return lists;
}

static void load_keys(struct golden_load *load, const struct geometry *n, struct golden_qsa *out)
{
    out->pool = (struct ref_qsa_block_pool){
        .raw_keys = golden_need(load, "raw_keys", ST_BF16, ST_SHAPE(n->S, n->hd)),
        .k_norm_w = golden_need(load, "k_norm_w", ST_BF16, ST_SHAPE(n->hd)),
        .n_new = n->blocks,
        .S = n->S,
        .max_blocks = n->blocks,
        .ratio = n->ratio,
        .hd = n->hd,
        .rot = n->rot,
        .block_size = n->block_size,
        .theta = n->theta,
        .eps = n->eps};
    out->block_keys_f32 =
        golden_need(load, "expect.block_keys_f32", ST_F32, ST_SHAPE(n->blocks, n->hd));
}

static void load_rows(struct golden_load *load, const struct geometry *n, struct golden_qsa *out)
{
    out->rows = n->rows;
    out->blocks = n->blocks;
    out->topk = n->topk;
    out->row_pos = golden_need(load, "row_pos", ST_I32, ST_SHAPE(n->rows));
    out->q_post = golden_need(load, "expect.q_post", ST_F32, ST_SHAPE(n->rows, n->heads, n->hd));
    out->scores_f64 = golden_need(load, "expect.scores_f64", ST_F64, ST_SHAPE(n->rows, n->blocks));
    const uint8_t *mask = golden_need(load, "expect.selected_mask", ST_U8, ST_SHAPE(n->rows, n->S));
    out->lists = masks_to_lists(load, n, mask, out->row_pos, n->rows);
    out->qprep = (struct ref_qsa_qprep_rows){
        .qk = golden_need(load, "qk", ST_BF16, ST_SHAPE(n->rows, n->qkw)),
        .q_norm_w = golden_need(load, "q_norm_w", ST_BF16, ST_SHAPE(n->hd)),
        .rows = 1,
        .qkw = n->qkw,
        .n_heads = n->heads,
        .hd = n->hd,
        .rot = n->rot,
        .theta = n->theta,
        .eps = n->eps};
    uint16_t *keys = golden_alloc(load, (uint64_t)n->blocks * n->hd, sizeof *keys);
    for (uint64_t i = 0; keys && i < (uint64_t)n->blocks * n->hd; i++)
        keys[i] = ref_bf16_from_f32(out->block_keys_f32[i]);
    out->score = (struct ref_qsa_score_rows){.q = out->q_post,
                                             .block_keys = keys,
                                             .rows = 1,
                                             .n_blocks_max = n->blocks,
                                             .score_stride = n->blocks,
                                             .ratio = n->ratio,
                                             .n_heads = n->heads,
                                             .hd = n->hd};
}

static void load_attention(struct golden_load *load, const struct geometry *n,
                           struct golden_qsa *out)
{
    uint64_t token_elems = (uint64_t)n->nkv * n->attn_hd;
    struct golden_pages pages = {.table_len = golden_count(load, "block_table"),
                                 .block_size = n->block_size,
                                 .token_bytes = token_elems * sizeof(uint16_t)};
    pages.pitch_bytes = pages.block_size * pages.token_bytes;
    pages.table = golden_need(load, "block_table", ST_I32, ST_SHAPE(pages.table_len));
    golden_pages_check(load, &pages, n->S);
    out->attn_rows = golden_count(load, "attn_row_pos");
    out->attn_row_pos = golden_need(load, "attn_row_pos", ST_I32, ST_SHAPE(out->attn_rows));
    out->attn_mask = golden_need(load, "attn_mask", ST_U8, ST_SHAPE(out->attn_rows, n->S));
    out->attn_k = golden_need(load, "attn_k", ST_BF16, ST_SHAPE(n->S, token_elems));
    out->attn_v = golden_need(load, "attn_v", ST_BF16, ST_SHAPE(n->S, token_elems));
    uint64_t rows = out->attn_rows;
    out->attn_f64 = golden_need(load, "expect.attn_f64", ST_F64, ST_SHAPE(rows, n->nq, n->attn_hd));
    out->attn = (struct ref_qsa_prefill_attn){
        .q = golden_need(load, "attn_q", ST_BF16, ST_SHAPE(rows, n->nq, n->attn_hd)),
        .k_cache = golden_paged(load, &pages, out->attn_k, n->S),
        .v_cache = golden_paged(load, &pages, out->attn_v, n->S),
        .block_table = pages.table,
        .lists = masks_to_lists(load, n, out->attn_mask, out->attn_row_pos, out->attn_rows),
        .rows = 1,
        .table_len = pages.table_len,
        .num_pages = pages.num_pages,
        .topk = n->topk,
        .ratio = n->ratio,
        .block_size = n->block_size,
        .nq = n->nq,
        .nkv = n->nkv,
        .hd = n->attn_hd,
        .inv_sqrt_d = (float)(1.0 / sqrt(n->attn_hd))};
}

bool golden_qsa_open(const char *path, struct golden_qsa *out, char *error, size_t error_size)
{
    struct geometry n = {0};
    *out = (struct golden_qsa){0};
    struct golden_load load = golden_load_open(path, &out->owned, error, error_size);
    if (load.ok) read_geometry(&load, &n);
    if (load.ok) load_keys(&load, &n, out);
    if (load.ok) load_rows(&load, &n, out);
    if (load.ok && n.nq > 0) load_attention(&load, &n, out);
    if (!load.ok) golden_qsa_close(out);
    return load.ok;
}

void golden_qsa_close(struct golden_qsa *golden)
{
    golden_load_close(&golden->owned);
    *golden = (struct golden_qsa){0};
}

struct ref_qsa_qprep_rows golden_qsa_qprep(const struct golden_qsa *golden, uint32_t row)
{
    struct ref_qsa_qprep_rows g = golden->qprep;
    g.qk += (uint64_t)row * g.qkw;
    g.first_pos = (uint32_t)golden->row_pos[row];
    return g;
}

struct ref_qsa_score_rows golden_qsa_score(const struct golden_qsa *golden, uint32_t row)
{
    struct ref_qsa_score_rows g = golden->score;
    g.q += (uint64_t)row * g.n_heads * g.hd;
    g.first_pos = (uint32_t)golden->row_pos[row];
    return g;
}

struct ref_qsa_prefill_attn golden_qsa_attn(const struct golden_qsa *golden, uint32_t row)
{
    struct ref_qsa_prefill_attn g = golden->attn;
    g.q += (uint64_t)row * g.nq * g.hd;
    g.lists += (uint64_t)row * g.topk;
    g.first_pos = (uint32_t)golden->attn_row_pos[row];
    return g;
}

uint32_t golden_qsa_attended(const struct golden_qsa *golden, uint32_t row, int32_t *sel)
{
    const uint8_t *mask = golden->attn_mask + (uint64_t)row * golden->pool.S;
    uint32_t n = 0;
    for (uint32_t t = 0; t < golden->pool.S; t++)
        if (mask[t]) sel[n++] = (int32_t)t;
    return n;
}

struct ref_qsa_gather golden_qsa_gather(const struct golden_qsa *golden, const int32_t *sel,
                                        uint32_t n_sel)
{
    const struct ref_qsa_prefill_attn *g = &golden->attn;
    return (struct ref_qsa_gather){.k_cache = g->k_cache,
                                   .v_cache = g->v_cache,
                                   .block_table = g->block_table,
                                   .sel = sel,
                                   .n_sel = n_sel,
                                   .table_len = g->table_len,
                                   .num_pages = g->num_pages,
                                   .seq_len = golden->pool.S,
                                   .block_size = g->block_size,
                                   .nkv = g->nkv,
                                   .hd = g->hd,
                                   .ratio = g->ratio};
}
