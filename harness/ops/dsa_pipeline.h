/* The DSA decode pipeline: the descriptor (dsa_pipeline.c), the numbers of a case
 * (dsa_pipeline_read.c), its data (dsa_pipeline_data.c), its launches (dsa_pipeline_run.c) and its
 * oracle (dsa_pipeline_oracle.c).
 *
 * One sequence, Q query rows. The rows share keys and latents; for the decode each is a sequence of
 * its own, whose table row is that of the one sequence and whose length ends at the row. */
#ifndef ATTEST_OPS_DSA_PIPELINE_H
#define ATTEST_OPS_DSA_PIPELINE_H

#include "harness/case/cache.h"
#include "harness/ops/dsa_common.h"

enum { DSA_LATENT = 512 };

/* The numbers of a case. */
struct dsa_pipeline {
    uint32_t rows, heads, index_heads, dim, len, kpool, topk, width, pad, block, max_blocks;
    bool tail;
    bool paged;                      /* pooled keys lie in pages; block/kpool pools to a page */
    uint32_t page_pools, pool_pages; /* paged: extent.pools is their product */
    uint64_t key_pitch;              /* paged: elements from one page of pooled keys to the next */
    uint64_t cache_pitch;            /* bytes from one page of latents to the next */
    struct dsa_extent extent;
    struct dsa_keys keys;
    float index_scale, scale, k_scale, v_scale;
};
void dsa_pipeline_read(const struct case_line *c, struct dsa_pipeline *p);
int64_t dsa_pipeline_pos(const struct case_line *c, uint32_t row);
/* Physical page of a page of pooled keys. Owned by the caller; NULL: not paged or out of memory. */
uint32_t *dsa_pipeline_key_pages(const struct case_line *c, const struct dsa_pipeline *p);

/* The arguments of each stage but for buffers; arrays of `in` (may be NULL) where the stage reads
 * inputs of the pipeline. Host copies of what a stage before makes are left NULL. */
void dsa_pipeline_gpu_decode(const struct dsa_pipeline *p, const struct instance *in,
                             struct gpu_dsa_decode *a);
void dsa_pipeline_ref_compress(const struct dsa_pipeline *p, const struct instance *in,
                               struct ref_dsa_kpool_compress *g);
void dsa_pipeline_ref_scores(const struct dsa_pipeline *p, const struct instance *in,
                             struct ref_dsa_index_scores *g);
void dsa_pipeline_ref_topk(const struct dsa_pipeline *p, struct ref_dsa_topk_pools *g);
void dsa_pipeline_ref_expand(const struct dsa_pipeline *p, const struct instance *in,
                             struct ref_dsa_expand_selection *g);
void dsa_pipeline_ref_decode(const struct dsa_pipeline *p, const struct instance *in,
                             struct ref_dsa_decode *g);

bool dsa_pipeline_build(const struct case_line *c, struct instance *in);
enum gpu_status dsa_pipeline_check(const struct case_line *c, const struct instance *in,
                                   struct gpu_report *report);
enum gpu_status dsa_pipeline_launch(const struct gpu_target *targets, const struct case_line *c,
                                    const struct instance *in, const struct gpu_buffer *buffers,
                                    struct gpu_report *report);
void dsa_pipeline_oracle(const struct case_line *c, const struct instance *in,
                         const struct ref_error_model *model, const uint8_t *const *got,
                         struct expected *e);

#endif
