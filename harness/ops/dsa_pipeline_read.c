/* The numbers of a case of dsa_decode_pipeline, from its keys. */
#include <math.h>

#include "harness/ops/dsa_pipeline.h"

int64_t dsa_pipeline_pos(const struct case_line *c, uint32_t row)
{
    return dsa_row_item(c, "pos", row, case_int(c, "len") - 1);
}

static void read_pools(const struct case_line *c, struct dsa_pipeline *p)
{
    struct dsa_extent *e = &p->extent;
    uint32_t most = p->kpool ? p->topk / p->kpool : 0;
    e->len = p->len;
    e->pools = dsa_pools(p->len, p->pad, p->kpool, true);
    e->complete = dsa_pools(p->len, p->pad, p->kpool, false);
    e->select_k = e->complete < most ? e->complete : most;
    e->np2 = (uint32_t)dsa_power_above(e->select_k);
    p->page_pools = p->kpool ? p->block / p->kpool : 0;
    if (p->paged && p->page_pools) {
        p->pool_pages = (uint32_t)(((uint64_t)e->pools + p->page_pools - 1) / p->page_pools);
        e->pools = p->pool_pages * p->page_pools; /* those past the last token hold nothing */
        p->key_pitch = (uint64_t)p->page_pools * p->dim + 96;
    }
    /* A vector describes one launch over all pools, so pages and vectors exclude each other. */
    dsa_extent_close(e, p->paged ? DSA_GEOM_NONE : (enum dsa_geom)case_int(c, "geom"),
                     case_u32(c, "slack"), p->kpool);
    if (e->scalar_select_k > most) e->scalar_select_k = most;
}

void dsa_pipeline_read(const struct case_line *c, struct dsa_pipeline *p)
{
    *p = (struct dsa_pipeline){.rows = case_u32(c, "rows"),
                               .heads = case_u32(c, "heads"),
                               .index_heads = case_u32(c, "iheads"),
                               .dim = case_u32(c, "dim"),
                               .len = case_u32(c, "len"),
                               .kpool = case_u32(c, "kpool"),
                               .topk = case_u32(c, "topk"),
                               .pad = case_u32(c, "pad"),
                               .block = case_u32(c, "block"),
                               .tail = case_int(c, "tail") != 0,
                               .paged = case_enum_is(c, "keys", "paged"),
                               .k_scale = (float)case_real(c, "kscale"),
                               .v_scale = (float)case_real(c, "vscale")};
    int64_t pitch = (int64_t)((uint64_t)p->block * DSA_LATENT) + case_int(c, "pitch");
    p->width = p->topk + (p->tail ? p->kpool - 1 : 0);
    p->cache_pitch = pitch > 0 ? (uint64_t)pitch : 0;
    p->max_blocks = p->block ? (uint32_t)(((uint64_t)p->len + p->block - 1) / p->block) + 1 : 1;
    p->index_scale = (float)(1 / sqrt((double)p->dim));
    p->scale = (float)(1 / sqrt((double)DSA_LATENT));
    p->keys = (struct dsa_keys){.len = p->len,
                                .pad = p->pad,
                                .kpool = p->kpool,
                                .invalid = (enum dsa_invalid)case_int(c, "invalid"),
                                .seed = case_seed(c),
                                .change = case_int(c, "change"),
                                .prefix = p->tail};
    read_pools(c, p);
}
