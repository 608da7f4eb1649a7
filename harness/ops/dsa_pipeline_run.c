/* The stages of dsa_decode_pipeline: arguments, launches, and what a right kernel must produce
 * given what the stage before it really produced. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/ops/dsa_pipeline.h"

static const int32_t *geom_of(const struct dsa_pipeline *p)
{
    return p->extent.given ? p->extent.numbers : NULL;
}

void dsa_pipeline_gpu_decode(const struct dsa_pipeline *p, const struct instance *in,
                             struct gpu_dsa_decode *a)
{
    *a = (struct gpu_dsa_decode){.num_seqs = p->rows,
                                 .sel_rows = p->rows,
                                 .width = p->width,
                                 .max_blocks_per_seq = p->max_blocks,
                                 .num_q_heads = p->heads,
                                 .num_kv_heads = 1,
                                 .kv_lora_rank = DSA_LATENT,
                                 .block_size = p->block,
                                 .index_kpool = p->kpool,
                                 .scale = p->scale,
                                 .k_scale = p->k_scale,
                                 .v_scale = p->v_scale,
                                 .cache_stride_bytes = p->cache_pitch};
    if (!in) return;
    a->num_pages = *(const uint32_t *)in->extra;
    a->host_block_tables = instance_data(in, "block_tables");
    a->host_seq_lens = instance_data(in, "seq_lens");
}

static void gpu_compress(const struct dsa_pipeline *p, struct gpu_dsa_kpool_compress *a)
{
    *a = (struct gpu_dsa_kpool_compress){.pools = p->extent.scalar_pools,
                                         .S = p->extent.scalar_len,
                                         .D = p->dim,
                                         .KP = p->kpool,
                                         .block_size = p->paged ? p->block : 0,
                                         .first_key = (int32_t)p->pad,
                                         .host_geom = geom_of(p)};
}

static void gpu_scores(const struct dsa_pipeline *p, struct gpu_dsa_index_scores *a)
{
    *a = (struct gpu_dsa_index_scores){.Q = p->rows,
                                       .P = p->extent.scalar_pools,
                                       .H = p->index_heads,
                                       .D = p->dim,
                                       .KP = p->kpool,
                                       .S = p->extent.scalar_len,
                                       .scale = p->index_scale,
                                       .host_geom = geom_of(p)};
}

static void gpu_topk(const struct dsa_pipeline *p, struct gpu_dsa_topk_pools *a)
{
    *a = (struct gpu_dsa_topk_pools){.Q = p->rows,
                                     .P = p->extent.scalar_pools,
                                     .NP2 = p->extent.scalar_np2,
                                     .select_k = p->extent.scalar_select_k,
                                     .host_geom = geom_of(p)};
}

static void gpu_expand(const struct dsa_pipeline *p, struct gpu_dsa_expand_selection *a)
{
    *a = (struct gpu_dsa_expand_selection){.Q = p->rows,
                                           .P = p->extent.scalar_pools,
                                           .KP = p->kpool,
                                           .S = p->extent.scalar_len,
                                           .select_k = p->extent.scalar_select_k,
                                           .width = p->width,
                                           .index_topk = p->topk,
                                           .first_key = (int32_t)p->pad,
                                           .always_tail = p->tail,
                                           .host_geom = geom_of(p)};
}

enum gpu_status dsa_pipeline_check(const struct case_line *c, const struct instance *in,
                                   struct gpu_report *report)
{
    struct dsa_pipeline p;
    struct gpu_dsa_kpool_compress compress;
    struct gpu_dsa_index_scores scores;
    struct gpu_dsa_topk_pools topk;
    struct gpu_dsa_expand_selection expand;
    struct gpu_dsa_decode decode;
    dsa_pipeline_read(c, &p);
    dsa_pipeline_gpu_decode(&p, in, &decode);
    gpu_compress(&p, &compress);
    gpu_scores(&p, &scores);
    gpu_topk(&p, &topk);
    gpu_expand(&p, &expand);
    enum gpu_status status = gpu_dsa_decode_check(&decode, report);
    if (status == GPU_OK) status = gpu_dsa_kpool_compress_check(&compress, report);
    if (status == GPU_OK) status = gpu_dsa_index_scores_check(&scores, report);
    if (status == GPU_OK) status = gpu_dsa_topk_pools_check(&topk, report);
    if (status == GPU_OK) status = gpu_dsa_expand_selection_check(&expand, report);
    return status;
}

/* One run of the stages. */
struct run {
    const struct dsa_pipeline *p;
    const struct instance *in;
    const struct gpu_buffer *buffers;
    const struct gpu_target *indexer, *decoder;
    struct gpu_report *report;
};

static const struct gpu_buffer *at(const struct run *r, const char *name)
{
    return &r->buffers[instance_index(r->in, name)];
}

/* The rest of a buffer from an element on. */
static struct gpu_buffer from(const struct run *r, const char *name, uint64_t elem)
{
    const struct tensor *t = instance_find(r->in, name);
    struct gpu_buffer part = *at(r, name);
    part.address += elem * dtype_bytes(t->dtype);
    part.size_bytes -= elem * dtype_bytes(t->dtype);
    return part;
}

static enum gpu_status run_compress(const struct run *r)
{
    const struct dsa_pipeline *p = r->p;
    struct gpu_dsa_kpool_compress a;
    gpu_compress(p, &a);
    a.k = at(r, "k");
    a.gate = at(r, "gate");
    a.valid = at(r, "valid");
    a.ape = at(r, "ape");
    a.pool_keys = at(r, "pool_keys");
    a.pool_indices = at(r, "pool_indices");
    a.pool_valid = at(r, "pool_valid");
    a.geom = dsa_geom_buffer(r->in, &p->extent, r->buffers);
    return gpu_dsa_kpool_compress(r->indexer, &a, r->report);
}

static enum gpu_status run_scores(const struct run *r)
{
    struct gpu_dsa_index_scores a;
    gpu_scores(r->p, &a);
    a.q = at(r, "index_q");
    a.pool_keys = at(r, "pool_keys");
    a.weights = at(r, "weights");
    a.pool_indices = at(r, "pool_indices");
    a.pool_valid = at(r, "pool_valid");
    a.valid_keys = at(r, "valid");
    a.q_pos = at(r, "q_pos");
    a.out = at(r, "scores");
    a.valid_cand = at(r, "valid_cand");
    a.geom = dsa_geom_buffer(r->in, &r->p->extent, r->buffers);
    return gpu_dsa_index_scores(r->indexer, &a, r->report);
}

/* Paged keys: a launch fills or reads the pools of one page, which lie together. */
static enum gpu_status run_compress_page(const struct run *r, uint32_t page, uint32_t physical)
{
    const struct dsa_pipeline *p = r->p;
    uint64_t pool = (uint64_t)page * p->page_pools;
    struct gpu_buffer keys = from(r, "pool_keys", physical * p->key_pitch);
    struct gpu_buffer indices = from(r, "pool_indices", pool * p->kpool);
    struct gpu_buffer valid = from(r, "pool_valid", pool);
    struct gpu_dsa_kpool_compress a;
    gpu_compress(p, &a);
    a.k = at(r, "k");
    a.gate = at(r, "gate");
    a.valid = at(r, "valid");
    a.ape = at(r, "ape");
    a.pool_keys = &keys;
    a.pool_indices = &indices;
    a.pool_valid = &valid;
    a.pools = p->page_pools;
    a.first_key = (int32_t)(p->pad + pool * p->kpool);
    return gpu_dsa_kpool_compress(r->indexer, &a, r->report);
}

static enum gpu_status run_scores_page(const struct run *r, uint32_t row, uint32_t page,
                                       uint32_t physical)
{
    const struct dsa_pipeline *p = r->p;
    uint64_t pool = (uint64_t)page * p->page_pools;
    struct gpu_buffer q = from(r, "index_q", (uint64_t)row * p->index_heads * p->dim);
    struct gpu_buffer keys = from(r, "pool_keys", physical * p->key_pitch);
    struct gpu_buffer weights = from(r, "weights", (uint64_t)row * p->index_heads);
    struct gpu_buffer indices = from(r, "pool_indices", pool * p->kpool);
    struct gpu_buffer valid = from(r, "pool_valid", pool), q_pos = from(r, "q_pos", row);
    struct gpu_buffer out = from(r, "scores", (uint64_t)row * p->extent.pools + pool);
    struct gpu_buffer cand = from(r, "valid_cand", (uint64_t)row * p->extent.pools + pool);
    struct gpu_dsa_index_scores a;
    gpu_scores(p, &a);
    a.Q = 1;
    a.P = p->page_pools;
    a.q = &q;
    a.pool_keys = &keys;
    a.weights = &weights;
    a.pool_indices = &indices;
    a.pool_valid = &valid;
    a.valid_keys = at(r, "valid");
    a.q_pos = &q_pos;
    a.out = &out;
    a.valid_cand = &cand;
    return gpu_dsa_index_scores(r->indexer, &a, r->report);
}

static enum gpu_status run_paged(const struct run *r, const uint32_t *pages)
{
    enum gpu_status status = GPU_OK;
    for (uint32_t i = 0; i < r->p->pool_pages && status == GPU_OK; i++)
        status = run_compress_page(r, i, pages[i]);
    for (uint32_t row = 0; row < r->p->rows; row++) {
        for (uint32_t i = 0; i < r->p->pool_pages && status == GPU_OK; i++)
            status = run_scores_page(r, row, i, pages[i]);
    }
    return status;
}

static enum gpu_status run_select(const struct run *r)
{
    struct gpu_dsa_topk_pools topk;
    struct gpu_dsa_expand_selection expand;
    gpu_topk(r->p, &topk);
    topk.scores = at(r, "scores");
    topk.selected = at(r, "selected");
    topk.geom = dsa_geom_buffer(r->in, &r->p->extent, r->buffers);
    gpu_expand(r->p, &expand);
    expand.selected = at(r, "selected");
    expand.pool_indices = at(r, "pool_indices");
    expand.valid_cand = at(r, "valid_cand");
    expand.valid_keys = at(r, "valid");
    expand.q_pos = at(r, "q_pos");
    expand.q_mask = at(r, "q_mask");
    expand.out = at(r, "rows");
    expand.geom = topk.geom;
    enum gpu_status status = gpu_dsa_topk_pools(r->indexer, &topk, r->report);
    return status == GPU_OK ? gpu_dsa_expand_selection(r->indexer, &expand, r->report) : status;
}

static enum gpu_status run_decode(const struct run *r)
{
    struct gpu_dsa_decode a;
    dsa_pipeline_gpu_decode(r->p, r->in, &a);
    a.q = at(r, "q");
    a.k_cache = at(r, "k_cache");
    a.v_cache = at(r, "v_cache");
    a.out = at(r, "out");
    a.block_tables = at(r, "block_tables");
    a.seq_lens = at(r, "seq_lens");
    a.sel_indices = at(r, "rows");
    return gpu_dsa_decode(r->decoder, &a, r->report);
}

enum gpu_status dsa_pipeline_launch(const struct gpu_target *targets, const struct case_line *c,
                                    const struct instance *in, const struct gpu_buffer *buffers,
                                    struct gpu_report *report)
{
    struct dsa_pipeline p;
    struct run r = {&p, in, buffers, &targets[0], &targets[1], report};
    enum gpu_status status;
    dsa_pipeline_read(c, &p);
    if (p.paged) {
        uint32_t *pages = dsa_pipeline_key_pages(c, &p);
        if (!pages) return GPU_INFRA;
        status = run_paged(&r, pages);
        free(pages);
    } else {
        status = run_compress(&r);
        if (status == GPU_OK) status = run_scores(&r);
    }
    if (status == GPU_OK) status = run_select(&r);
    return status == GPU_OK ? run_decode(&r) : status;
}
