/* The DSA decode pipeline, in four files: the case and its tables (dsa_pipeline.c), its data
 * (dsa_pipeline_data.c), its launches (dsa_pipeline_run.c), its oracle (dsa_pipeline_oracle.c).
 *
 * One sequence, Q query rows. The rows share keys and latents; for the decode each is a sequence of
 * its own, whose table row is that of the one sequence and whose length ends at the row. */
#ifndef ATTEST_OPS_DSA_PIPELINE_H
#define ATTEST_OPS_DSA_PIPELINE_H

#include "harness/case/cache.h"
#include "harness/ops/dsa_common.h"

enum { DSA_LATENT = 512 };

/* The steps, in the order in which they run. */
enum {
    DSA_STEP_COMPRESS,
    DSA_STEP_SCORES,
    DSA_STEP_TOPK,
    DSA_STEP_EXPAND,
    DSA_STEP_DECODE,
    DSA_STEPS
};

/* Numbers of a case that its data, launches and oracle use again and again. */
struct dsa_pipeline {
    uint32_t rows, heads, index_heads, dim, len, kpool, pad, block, max_blocks;
    uint32_t pools, selected_k;      /* that count; the scalars may say more */
    bool paged;                      /* pooled keys lie in pages; block/kpool pools to a page */
    uint32_t page_pools, pool_pages; /* paged: `pools` is their product */
    uint64_t key_pitch;              /* paged: elements from one page of pooled keys to the next */
    struct dsa_keys keys;
};
void dsa_pipeline_read(const struct case_line *c, struct dsa_pipeline *p);
int64_t dsa_pipeline_pos(const struct case_line *c, uint32_t row);
/* Physical page of a page of pooled keys. Owned by the caller; NULL: not paged or out of memory. */
uint32_t *dsa_pipeline_key_pages(const struct case_line *c, const struct dsa_pipeline *p);

bool dsa_pipeline_lay_out(const struct case_line *c, struct instance *in);
bool dsa_pipeline_fill(const struct case_line *c, struct instance *in);
enum gpu_status dsa_pipeline_launch(const struct gpu_target *targets, const struct case_line *c,
                                    const struct instance *in, const struct gpu_buffer *buffers,
                                    struct gpu_report *report);
void dsa_pipeline_oracle(const struct case_line *c, const struct instance *in,
                         const struct ref_error_model *model, const uint8_t *const *got,
                         struct expected *e);

#endif
