#include "harness/captured_golden.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/error_text.h"
#include "harness/golden.h"

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
    if (g->is_dsa && g->dsa.decode.num_seqs) add_decode(g);
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
