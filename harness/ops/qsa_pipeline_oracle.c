/* What the stages of the QSA pipelines must produce. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/ops/qsa_pipeline.h"

static void ref_pool(const struct qsa_pipeline *p, const struct instance *in,
                     struct ref_qsa_block_pool *g)
{
    *g = (struct ref_qsa_block_pool){.n_new = p->blocks,
                                     .S = p->len,
                                     .max_blocks = p->blocks,
                                     .ratio = p->ratio,
                                     .hd = p->ihd,
                                     .rot = p->rot,
                                     .block_size = p->block,
                                     .theta = p->theta,
                                     .eps = p->eps};
    if (!in) return;
    g->raw_keys = instance_data(in, "raw_keys");
    g->k_norm_w = instance_data(in, "k_norm_w");
}

static void ref_qprep(const struct qsa_pipeline *p, const struct instance *in,
                      struct ref_qsa_qprep_rows *g)
{
    *g = (struct ref_qsa_qprep_rows){.rows = p->rows,
                                     .first_pos = p->first_pos,
                                     .qkw = p->qkw,
                                     .n_heads = p->heads,
                                     .hd = p->ihd,
                                     .rot = p->rot,
                                     .theta = p->theta,
                                     .eps = p->eps};
    if (!in) return;
    g->qk = instance_data(in, "qk");
    g->q_norm_w = instance_data(in, "q_norm_w");
}

static void ref_scores(const struct qsa_pipeline *p, struct ref_qsa_score_rows *g)
{
    *g = (struct ref_qsa_score_rows){.rows = p->rows,
                                     .n_blocks_max = p->blocks,
                                     .first_pos = p->first_pos,
                                     .score_stride = p->score_stride,
                                     .ratio = p->ratio,
                                     .n_heads = p->heads,
                                     .hd = p->ihd};
}

static void ref_topk(const struct qsa_pipeline *p, struct ref_qsa_topk_rows *g)
{
    *g = (struct ref_qsa_topk_rows){.rows = p->rows,
                                    .first_pos = p->first_pos,
                                    .score_stride = p->score_stride,
                                    .ratio = p->ratio,
                                    .topk = p->topk};
}

static void ref_attn(const struct qsa_pipeline *p, const struct instance *in,
                     struct ref_qsa_prefill_attn *g)
{
    *g = (struct ref_qsa_prefill_attn){.rows = p->rows,
                                       .table_len = p->table_len,
                                       .first_pos = p->first_pos,
                                       .topk = p->topk,
                                       .ratio = p->ratio,
                                       .block_size = p->block,
                                       .nq = p->nq,
                                       .nkv = p->nkv,
                                       .hd = p->hd,
                                       .inv_sqrt_d = p->scale};
    if (!in) return;
    g->num_pages = qsa_num_pages(in);
    g->block_table = instance_data(in, "block_table");
    g->q = instance_data(in, "q");
    g->k_cache = instance_data(in, "k_cache");
    g->v_cache = instance_data(in, "v_cache");
}

bool qsa_pipeline_ref_accepts(const struct qsa_pipeline *p, const struct instance *in,
                              struct ref_refusal *why)
{
    struct ref_qsa_block_pool pool;
    struct ref_qsa_qprep_rows qprep;
    struct ref_qsa_score_rows scores;
    struct ref_qsa_topk_rows topk;
    struct ref_qsa_prefill_attn attn;
    ref_pool(p, NULL, &pool);
    ref_qprep(p, NULL, &qprep);
    ref_scores(p, &scores);
    ref_topk(p, &topk);
    ref_attn(p, in, &attn);
    return ref_qsa_block_pool_accepts(&pool, why) && ref_qsa_qprep_rows_accepts(&qprep, why) &&
           (p->tensor_core ? ref_qsa_score_rows_tc_accepts(&scores, why)
                           : ref_qsa_score_rows_accepts(&scores, why)) &&
           ref_qsa_topk_rows_accepts(&topk, why) && ref_qsa_prefill_attn_accepts(&attn, why);
}

void *qsa_judge_exact(const struct qsa_judge *j, const char *name)
{
    return j->e[instance_index(j->in, name)].exact;
}

const void *qsa_judge_got(const struct qsa_judge *j, const char *name)
{
    return j->got[instance_index(j->in, name)];
}

/* Where there is no memory nothing may pass: a NaN that must be NaN. */
static void fail_outputs(const struct qsa_judge *j)
{
    for (uint32_t i = 0; i < j->in->n_tensors; i++) {
        uint64_t n = tensor_logical_elems(&j->in->tensors[i]);
        for (uint64_t k = 0; k < n && j->e[i].value; k++) j->e[i].value[k] = NAN;
    }
}

bool qsa_judge_open(struct qsa_judge *j)
{
    const int32_t *lists = qsa_judge_got(j, "lists");
    uint32_t topk = j->p.topk;
    j->legal = malloc((uint64_t)j->p.rows * topk * sizeof *j->legal + 1);
    if (!j->legal) fail_outputs(j);
    for (uint32_t row = 0; j->legal && row < j->p.rows; row++)
        qsa_pipeline_legal_list(&j->p, row, lists + (uint64_t)row * topk,
                                j->legal + (uint64_t)row * topk);
    return j->legal != NULL;
}

void qsa_judge_close(struct qsa_judge *j)
{
    free(j->legal);
}

void qsa_judge_keys_and_queries(const struct qsa_judge *j)
{
    struct ref_qsa_block_pool pool;
    struct ref_qsa_qprep_rows qprep;
    ref_pool(&j->p, j->in, &pool);
    ref_qprep(&j->p, j->in, &qprep);
    ref_qsa_block_pool(&pool, qsa_judge_exact(j, "block_keys"));
    ref_qsa_qprep_rows(&qprep, qsa_judge_exact(j, "q_index"));
}

/* Scores given the kernels' own keys and queries. */
static void judge_scores(const struct qsa_judge *j)
{
    struct ref_qsa_score_rows g;
    struct expected *scores = &j->e[instance_index(j->in, "scores")];
    ref_scores(&j->p, &g);
    g.q = qsa_judge_got(j, "q_index");
    g.block_keys = qsa_judge_got(j, "block_keys");
    g.score_stride = g.n_blocks_max;
    if (j->p.tensor_core)
        ref_qsa_score_rows_bound(&g, REF_SCORER_SPLIT_Q, scores->value, scores->bound);
    else
        ref_qsa_score_rows(&g, (float *)(void *)scores->exact);
}

/* The certificate: scores of the oracle's keys and queries, with the scorer's bound. */
static void certify(const struct qsa_judge *j)
{
    struct ref_qsa_score_rows g;
    struct expected *e = &j->e[instance_index(j->in, "selection")];
    ref_scores(&j->p, &g);
    g.q = qsa_judge_exact(j, "q_index");
    g.block_keys = qsa_judge_exact(j, "block_keys");
    if (!expected_alloc_select(e, j->p.rows, j->p.blocks)) {
        fail_outputs(j);
        return;
    }
    ref_qsa_score_rows_bound(&g, j->p.tensor_core ? REF_SCORER_SPLIT_Q : REF_SCORER_F32,
                             e->select_value, e->select_bound);
    for (uint32_t row = 0; row < j->p.rows; row++) {
        e->select_n[row] = (uint32_t)qsa_complete((uint64_t)j->p.first_pos + row, j->p.ratio);
        e->select_k[row] = j->p.topk;
    }
}

void qsa_judge_lists(const struct qsa_judge *j)
{
    struct ref_qsa_topk_rows g;
    judge_scores(j);
    ref_topk(&j->p, &g);
    g.scores = qsa_judge_got(j, "scores");
    g.score_stride = j->p.blocks;
    ref_qsa_topk_rows(&g, qsa_judge_exact(j, "lists"));
    certify(j);
}

/* Dense attention under the mask that the kernel's lists say, straight from the pages. */
void qsa_judge_attention(const struct qsa_judge *j, const char *name)
{
    struct ref_qsa_prefill_attn g;
    struct expected *out = &j->e[instance_index(j->in, name)];
    uint64_t elems = (uint64_t)j->p.nq * j->p.hd;
    ref_attn(&j->p, j->in, &g);
    g.lists = j->legal;
    ref_qsa_prefill_attn(&g, j->model, out->value, out->bound);
    for (uint32_t row = 0; row < g.rows; row++) {
        uint64_t attended = ((uint64_t)g.first_pos + row + 1) % g.ratio;
        for (uint32_t i = 0; i < g.topk; i++)
            attended += j->legal[(uint64_t)row * g.topk + i] >= 0 ? g.ratio : 0;
        qsa_attention_exact(j->c, "regime", attended, elems, out->bound + row * elems);
    }
}
