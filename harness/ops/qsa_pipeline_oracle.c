/* What the stages of the QSA pipelines must produce. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/ops/qsa_pipeline.h"

struct expected *qsa_judge_of(const struct qsa_judge *j, const char *name)
{
    return &j->e[instance_index(j->in, name)];
}

const void *qsa_judge_got(const struct qsa_judge *j, const char *name)
{
    return j->got[instance_index(j->in, name)];
}

/* The oracle's arguments of the step with that kernel; what a stage before makes is left NULL. */
static void arguments(const struct qsa_judge *j, const struct interface *kernel, void *g)
{
    int32_t values[ARRAY_VALUES_MAX];
    step_ref_arguments(qsa_pipeline_step(j->c, kernel), j->c, j->in, g, values);
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
    const struct tensor *t = instance_find(j->in, "lists");
    j->legal = malloc(t->elems * sizeof *j->legal + 1);
    if (!j->legal) fail_outputs(j);
    for (uint32_t row = 0; j->legal && row < t->shape[0]; row++)
        qsa_pipeline_legal_list(j->c, row, lists + row * t->shape[1], j->legal + row * t->shape[1]);
    return j->legal != NULL;
}

void qsa_judge_close(struct qsa_judge *j)
{
    free(j->legal);
}

void qsa_judge_keys_and_queries(const struct qsa_judge *j)
{
    struct ref_qsa_block_pool pool = {0};
    struct ref_qsa_qprep_rows qprep = {0};
    arguments(j, &interface_qsa_block_pool, &pool);
    arguments(j, &interface_qsa_qprep_rows, &qprep);
    qprep.qk = instance_data(j->in, "qk");
    ref_qsa_block_pool(&pool, (uint16_t *)(void *)qsa_judge_of(j, "block_keys")->exact);
    ref_qsa_qprep_rows(&qprep, (float *)(void *)qsa_judge_of(j, "q_index")->exact);
}

static bool tensor_core(const struct case_line *c)
{
    return case_has(c, "scorer") && case_enum_is(c, "scorer", "tc");
}

/* Of rows as wide as there are blocks, of these queries and keys. */
static struct ref_qsa_score_rows scorer(const struct qsa_judge *j, const void *q, const void *keys)
{
    struct ref_qsa_score_rows g = {0};
    arguments(j, tensor_core(j->c) ? &interface_qsa_score_rows_tc : &interface_qsa_score_rows, &g);
    g.q = q;
    g.block_keys = keys;
    g.score_stride = g.n_blocks_max;
    return g;
}

/* Scores given the kernels' own keys and queries. */
static void judge_scores(const struct qsa_judge *j)
{
    struct expected *scores = qsa_judge_of(j, "scores");
    struct ref_qsa_score_rows g =
        scorer(j, qsa_judge_got(j, "q_index"), qsa_judge_got(j, "block_keys"));
    if (tensor_core(j->c))
        ref_qsa_score_rows_bound(&g, REF_SCORER_SPLIT_Q, scores->value, scores->bound);
    else
        ref_qsa_score_rows(&g, (float *)(void *)scores->exact);
}

/* The certificate: scores of the oracle's keys and queries, with the scorer's bound. */
static void certify(const struct qsa_judge *j)
{
    struct ref_qsa_score_rows g =
        scorer(j, qsa_judge_of(j, "q_index")->exact, qsa_judge_of(j, "block_keys")->exact);
    struct expected *e = qsa_judge_of(j, "selection");
    if (!expected_alloc_select(e, g.rows, g.n_blocks_max)) {
        fail_outputs(j);
        return;
    }
    ref_qsa_score_rows_bound(&g, tensor_core(j->c) ? REF_SCORER_SPLIT_Q : REF_SCORER_F32,
                             e->select_value, e->select_bound);
    for (uint32_t row = 0; row < g.rows; row++) {
        e->select_n[row] = (uint32_t)qsa_complete((uint64_t)g.first_pos + row, g.ratio);
        e->select_k[row] = case_u32(j->c, "topk");
    }
}

void qsa_judge_lists(const struct qsa_judge *j)
{
    struct ref_qsa_topk_rows g = {0};
    judge_scores(j);
    arguments(j, &interface_qsa_topk_rows, &g);
    g.scores = qsa_judge_got(j, "scores");
    g.score_stride = case_number_u32(j->c, "blocks");
    ref_qsa_topk_rows(&g, (int32_t *)(void *)qsa_judge_of(j, "lists")->exact);
    certify(j);
}

/* Dense attention under the mask that the kernel's lists say, straight from the pages. */
void qsa_judge_attention(const struct qsa_judge *j, const char *name)
{
    struct ref_qsa_prefill_attn g = {0};
    struct expected *out = qsa_judge_of(j, name);
    arguments(j, &interface_qsa_prefill_attn, &g);
    g.lists = j->legal;
    ref_qsa_prefill_attn(&g, j->model, out->value, out->bound);
    qsa_attention_exact_rows(j->c, &g, out->bound);
}
