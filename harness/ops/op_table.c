#include <string.h>

#include "harness/case/op.h"

extern const struct op op_dsa_decode;
extern const struct op op_dsa_kpool, op_dsa_index_scores, op_dsa_index_scores_tiled;
extern const struct op op_dsa_topk_pools, op_dsa_expand;
extern const struct op op_dsa_topk_to_mask, op_dsa_masked_attn, op_dsa_pipeline;
extern const struct op op_qsa_block_pool, op_qsa_qprep, op_qsa_qprep_rows, op_qsa_score;
extern const struct op op_qsa_score_rows, op_qsa_score_rows_tiled, op_qsa_score_rows_tc;
extern const struct op op_qsa_topk_rows, op_qsa_gather;
extern const struct op op_qsa_prefill_attn, op_paged_decode_attn;
extern const struct op op_qsa_decode_pipeline, op_qsa_prefill_pipeline;

const struct op *const op_table[] = {
    &op_dsa_decode,
    &op_dsa_kpool,
    &op_dsa_index_scores,
    &op_dsa_index_scores_tiled,
    &op_dsa_topk_pools,
    &op_dsa_expand,
    &op_dsa_topk_to_mask,
    &op_dsa_masked_attn,
    &op_dsa_pipeline,
    &op_qsa_block_pool,
    &op_qsa_qprep,
    &op_qsa_qprep_rows,
    &op_qsa_score,
    &op_qsa_score_rows,
    &op_qsa_score_rows_tiled,
    &op_qsa_score_rows_tc,
    &op_qsa_topk_rows,
    &op_qsa_gather,
    &op_qsa_prefill_attn,
    &op_paged_decode_attn,
    &op_qsa_decode_pipeline,
    &op_qsa_prefill_pipeline,
};
const uint32_t op_count = sizeof op_table / sizeof *op_table;

const struct op *op_find(const char *name, size_t length)
{
    for (uint32_t i = 0; i < op_count; i++) {
        if (strlen(op_table[i]->name) == length && !memcmp(op_table[i]->name, name, length))
            return op_table[i];
    }
    return NULL;
}
