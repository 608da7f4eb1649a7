/* Module qsa_indexer: the block indexer of Qwen3.8-Flash-Next and the attention over its selection.
 *
 * Entry points by part; argument order, grid and block are the production interface.
 *   qsa_prep.cuh       qsa_block_pool, qsa_qprep, qsa_qprep_rows
 *   qsa_score.cuh      qsa_score, qsa_score_rows
 *   qsa_score_tile.cuh qsa_score_rows_tiled
 *   qsa_score_tc.cuh   qsa_score_rows_tc
 *   qsa_topk.cuh       qsa_topk_rows
 *   qsa_gather.cuh     qsa_gather
 *   qsa_attention.cuh  qsa_prefill_attn
 *   qsa_paged_decode.cuh
 *                      paged_decode_attn
 *
 * Compile with contraction off (-fmad=false): an fma happens only where one is written. */
#include "qsa_attention.cuh"
#include "qsa_gather.cuh"
#include "qsa_paged_decode.cuh"
#include "qsa_prep.cuh"
#include "qsa_score.cuh"
#include "qsa_score_tc.cuh"
#include "qsa_score_tile.cuh"
#include "qsa_topk.cuh"
