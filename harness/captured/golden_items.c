#include "harness/captured/golden_items.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/error_text.h"
#include "harness/captured/golden.h"
#include "harness/case/op.h"

enum { ITEMS_MAX = 64 };

struct captured_golden {
    bool is_dsa;
    struct golden_dsa dsa;
    struct golden_qsa qsa;
    struct captured_item items[ITEMS_MAX];
    uint32_t count;
};

static struct captured_item *add(struct captured_golden *g, const char *op)
{
    struct captured_item *item = &g->items[g->count++];
    memset(item, 0, sizeof *item);
    case_init(&item->c, op_find(op, strlen(op)));
    return item;
}

static void replace(struct captured_item *item, const char *name, const void *data,
                    uint64_t size_bytes)
{
    item->overrides[item->n_overrides++] = (struct override){name, data, size_bytes};
}

/* The FP8 decode of the file: one cache that every query row shares through equal tables. */
static void add_decode(struct captured_golden *g)
{
    const struct ref_dsa_decode *d = &g->dsa.decode;
    struct captured_item *item = add(g, "glm5next_dsa_mla_decode_fp8");
    int64_t lengths[CASE_LIST_MAX], longest = 0;
    for (uint32_t s = 0; s < d->num_seqs; s++) {
        lengths[s] = d->seq_lens[s];
        if (lengths[s] > longest) longest = lengths[s];
    }
    uint64_t blocks = ((uint64_t)longest + d->block_size - 1) / d->block_size;
    uint64_t dense = (uint64_t)d->block_size * d->kv_lora_rank;
    case_set_int(&item->c, "seqs", d->num_seqs);
    case_set_int(&item->c, "heads", d->num_q_heads);
    case_set_list(&item->c, "len", lengths, d->num_seqs);
    case_set_int(&item->c, "block", d->block_size);
    case_set_int(&item->c, "kpool", d->index_kpool);
    case_set_int(&item->c, "topk", (int64_t)d->width + 1 - d->index_kpool);
    case_set_int(&item->c, "pitch", (int64_t)(d->cache_stride_bytes - dense));
    case_set_int(&item->c, "spare", (int64_t)(d->max_blocks_per_seq - blocks));
    case_set_int(&item->c, "pool", d->num_pages);
    case_set_real(&item->c, "scale", d->scale);
    case_set_real(&item->c, "kscale", d->k_scale);
    case_set_real(&item->c, "vscale", d->v_scale);
    replace(item, "q", d->q, 2ull * d->num_seqs * d->num_q_heads * d->kv_lora_rank);
    replace(item, "k_cache", d->k_cache, d->num_pages * d->cache_stride_bytes);
    replace(item, "block_tables", d->block_tables, 4ull * d->num_seqs * d->max_blocks_per_seq);
    replace(item, "seq_lens", d->seq_lens, 4ull * d->num_seqs);
    replace(item, "sel_indices", d->sel_indices, 4ull * d->num_seqs * d->width);
    item->golden_name = "out";
    item->golden = g->dsa.attn_f64;
    item->golden_share = 1e-12;
    item->golden_scale = 1 / sqrt(d->kv_lora_rank);
}

/* Pools and scores of the file's data. Their outputs are given to the bit or, for keys, within a
 * bound; how they compare with the file's float64 is in the oracles' own tests. */
static void add_dsa_selector(struct captured_golden *g)
{
    const struct ref_dsa_kpool_compress *k = &g->dsa.compress;
    const struct ref_dsa_index_scores *s = &g->dsa.scores;
    struct captured_item *item = add(g, "dsa_kpool_compress");
    int64_t positions[CASE_LIST_MAX];
    case_set_int(&item->c, "len", k->S);
    case_set_int(&item->c, "dim", k->D);
    case_set_int(&item->c, "kpool", k->KP);
    case_set_int(&item->c, "pad", k->first_key);
    case_set_int(&item->c, "pools", k->pools);
    replace(item, "k", k->k, 2ull * k->S * k->D);
    replace(item, "gate", k->gate, 2ull * k->S * k->D);
    replace(item, "valid", k->valid, k->S);
    replace(item, "ape", k->ape, 4ull * k->KP * k->D);
    /* A widened key has another scale than the case would say. */
    if (s->Q > CASE_LIST_MAX || g->dsa.head_dim != s->D) return;
    item = add(g, "dsa_index_scores");
    for (uint32_t row = 0; row < s->Q; row++) positions[row] = s->q_pos[row];
    case_set_int(&item->c, "rows", s->Q);
    case_set_int(&item->c, "heads", s->H);
    case_set_int(&item->c, "dim", s->D);
    case_set_int(&item->c, "len", s->S);
    case_set_int(&item->c, "kpool", s->KP);
    case_set_int(&item->c, "pad", k->first_key);
    case_set_int(&item->c, "pools", s->P);
    case_set_list(&item->c, "pos", positions, s->Q);
    replace(item, "q", s->q, 4ull * s->Q * s->H * s->D);
    replace(item, "pool_keys", s->pool_keys, 4ull * s->P * s->D);
    replace(item, "weights", s->weights, 4ull * s->Q * s->H);
    replace(item, "pool_indices", s->pool_indices, 4ull * s->P * s->KP);
    replace(item, "pool_valid", s->pool_valid, s->P);
    replace(item, "valid_keys", s->valid_keys, s->S);
    replace(item, "q_pos", s->q_pos, 4ull * s->Q);
}

static void add_block_pool(struct captured_golden *g)
{
    const struct ref_qsa_block_pool *p = &g->qsa.pool;
    struct captured_item *item = add(g, "qsa_block_pool");
    case_set_int(&item->c, "new", p->n_new);
    case_set_int(&item->c, "first", p->first_block);
    case_set_int(&item->c, "ratio", p->ratio);
    case_set_int(&item->c, "hd", p->hd);
    case_set_int(&item->c, "rot", p->rot);
    case_set_real(&item->c, "theta", p->theta);
    case_set_real(&item->c, "eps", p->eps);
    case_set_int(&item->c, "more", 0);
    case_set_int(&item->c, "spare", 0);
    replace(item, "raw_keys", p->raw_keys, 2ull * p->n_new * p->ratio * p->hd);
    replace(item, "k_norm_w", p->k_norm_w, 2ull * p->hd);
}

/* Rows stand at positions of their own, so each is a case. */
static void add_qsa_attention(struct captured_golden *g, uint32_t row)
{
    struct ref_qsa_prefill_attn a = golden_qsa_attn(&g->qsa, row);
    struct captured_item *item = add(g, "qsa_prefill_attn");
    uint64_t elems = (uint64_t)a.nq * a.hd;
    uint64_t cache = 2ull * a.num_pages * a.block_size * a.nkv * a.hd;
    case_set_int(&item->c, "rows", 1);
    case_set_int(&item->c, "pos", a.first_pos);
    case_set_int(&item->c, "topk", a.topk);
    case_set_int(&item->c, "ratio", a.ratio);
    case_set_int(&item->c, "block", a.block_size);
    case_set_int(&item->c, "nq", a.nq);
    case_set_int(&item->c, "nkv", a.nkv);
    case_set_int(&item->c, "hd", a.hd);
    case_set_real(&item->c, "scale", a.inv_sqrt_d);
    uint32_t needed = (a.first_pos + a.block_size) / a.block_size; /* pages up to the row itself */
    case_set_int(&item->c, "spare", (int64_t)a.table_len - needed);
    case_set_int(&item->c, "pool", a.num_pages);
    replace(item, "k_cache", a.k_cache, cache);
    replace(item, "v_cache", a.v_cache, cache);
    replace(item, "block_table", a.block_table, 4ull * a.table_len);
    replace(item, "q", a.q, 2 * elems);
    replace(item, "lists", a.lists, 4ull * a.topk);
    item->golden_name = "attn_out";
    item->golden = g->qsa.attn_f64 + row * elems;
    item->golden_share = 1e-12;
    item->golden_scale = 1 / sqrt(a.hd);
}

static bool add_items(struct captured_golden *g, const char *path, char *error, size_t error_size)
{
    if (g->is_dsa) {
        if (g->dsa.decode.num_seqs) add_decode(g);
        add_dsa_selector(g);
        return true;
    }
    if (g->qsa.attn_rows > ITEMS_MAX - 1)
        return error_text(error, error_size, "%s: %u rows of attention are above %d", path,
                          g->qsa.attn_rows, ITEMS_MAX - 1);
    add_block_pool(g);
    for (uint32_t row = 0; row < g->qsa.attn_rows; row++) add_qsa_attention(g, row);
    return true;
}

bool captured_golden_open(const char *path, struct captured_golden **out, char *error,
                          size_t error_size)
{
    struct captured_golden *g = calloc(1, sizeof *g);
    struct st_file *file = NULL;
    const char *pipeline = NULL;
    *out = NULL;
    if (!g) return error_text(error, error_size, "no memory for %s", path);
    bool fine = st_open(path, &file, error, error_size) &&
                st_metadata_text(file, "pipeline", &pipeline, error, error_size);
    if (fine && strcmp(pipeline, "dsa") && strcmp(pipeline, "qsa"))
        fine = error_text(error, error_size, "%s: pipeline '%s' is neither dsa nor qsa", path,
                          pipeline);
    g->is_dsa = fine && !strcmp(pipeline, "dsa");
    st_close(file);
    fine = fine && (g->is_dsa ? golden_dsa_open(path, &g->dsa, error, error_size)
                              : golden_qsa_open(path, &g->qsa, error, error_size));
    if (!fine) {
        free(g);
        return false;
    }
    if (!add_items(g, path, error, error_size)) {
        captured_golden_close(g);
        return false;
    }
    *out = g;
    return true;
}

void captured_golden_close(struct captured_golden *g)
{
    if (g->is_dsa) golden_dsa_close(&g->dsa);
    else
        golden_qsa_close(&g->qsa);
    free(g);
}

uint32_t captured_golden_count(const struct captured_golden *g)
{
    return g->count;
}

const struct captured_item *captured_golden_item(const struct captured_golden *g, uint32_t index)
{
    return &g->items[index];
}
