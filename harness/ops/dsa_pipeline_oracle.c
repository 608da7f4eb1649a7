/* What the stages of dsa_decode_pipeline must produce. Each stage is judged given what the stage
 * before it really produced; the selection also given nothing but the inputs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/ops/dsa_pipeline.h"

/* What the oracle of one case works on. Pool keys are in the order of the pools here, wherever
 * their pages lie: contiguous ones are used where they are, for a long context has many. */
struct judge {
    struct dsa_pipeline p;
    const struct case_line *c;
    const struct instance *in;
    const uint8_t *const *got;
    struct expected *e;
    uint32_t *pages;               /* NULL: contiguous keys */
    double *key_value, *key_bound; /* [pools, dim] */
    const float *got_keys;         /* what the kernel made */
    float *near_keys;              /* the floats nearest to key_value */
    double *own_value, *own_bound; /* paged: the memory of the arrays above */
    float *own_got;
    int32_t values[ARRAY_VALUES_MAX]; /* of the geometry vector */
};

/* The oracle's arguments of a step; what a stage before makes is left NULL. */
static void arguments_of(struct judge *j, uint32_t step, void *g)
{
    step_ref_arguments(&j->c->op->steps[step], j->c, j->in, g, j->values);
}

static void *expected_of(const struct judge *j, const char *name)
{
    return j->e[instance_index(j->in, name)].exact;
}

static const void *got_of(const struct judge *j, const char *name)
{
    return j->got[instance_index(j->in, name)];
}

/* The keys of paged pools, page after page as they lie, against the order of the pools. */
static void judge_paged_keys(struct judge *j)
{
    struct expected *keys = &j->e[instance_index(j->in, "pool_keys")];
    const float *got = got_of(j, "pool_keys");
    uint64_t dim = j->p.dim;
    for (uint64_t pool = 0; pool < j->p.pools; pool++) {
        uint64_t page = pool / j->p.page_pools, slot = pool % j->p.page_pools;
        uint64_t place = (j->pages[page] * (uint64_t)j->p.page_pools + slot) * dim;
        memcpy(keys->value + place, j->key_value + pool * dim, dim * sizeof(double));
        memcpy(keys->bound + place, j->key_bound + pool * dim, dim * sizeof(double));
        memcpy(j->own_got + pool * dim, got + place, dim * sizeof(float));
    }
}

static void judge_keys(struct judge *j, const struct ref_error_model *model, bool exact)
{
    struct ref_dsa_kpool_compress g = {0};
    int32_t *indices = expected_of(j, "pool_indices");
    arguments_of(j, DSA_STEP_COMPRESS, &g);
    g.pools = j->p.pools;
    ref_dsa_kpool_compress(&g, model, j->key_value, j->key_bound, indices,
                           expected_of(j, "pool_valid"));
    if (exact) dsa_pools_exact(&g, indices, j->key_bound);
    for (uint64_t i = 0; i < (uint64_t)g.pools * g.D; i++) j->near_keys[i] = (float)j->key_value[i];
    if (j->pages) judge_paged_keys(j);
}

static void judge_scores(struct judge *j, struct ref_dsa_index_scores *g)
{
    arguments_of(j, DSA_STEP_SCORES, g);
    g->pool_indices = expected_of(j, "pool_indices");
    g->pool_valid = expected_of(j, "pool_valid");
    g->pool_keys = j->got_keys;
    ref_dsa_index_scores(g, expected_of(j, "scores"), expected_of(j, "valid_cand"));
}

/* How far key errors move what a kernel computes for a head: see certify. c [dim]. */
static void key_sensitivity(const struct ref_dsa_index_scores *g, uint32_t row, double *c)
{
    double tiny = 0x1p-149 * fmax(1, 1 / (double)g->scale);
    for (uint32_t d = 0; d < g->D; d++) c[d] = 0;
    for (uint32_t h = 0; h < g->H; h++) {
        const float *q = g->q + ((uint64_t)row * g->H + h) * g->D;
        double w = fabs((double)g->weights[(uint64_t)row * g->H + h]) * g->scale;
        for (uint32_t d = 0; d < g->D; d++) c[d] += w * (fabs((double)q[d]) + tiny);
    }
    /* (1 + gamma_{D+2})(1 + gamma_{H+1}) with gamma_n <= 2n*2^-24, and the sums here. */
    for (uint32_t d = 0; d < g->D; d++) c[d] *= 1 + ((double)g->D + g->H + 8) * 0x1p-23;
}

/* sum_d c_d * delta_d, delta_d how far a right kernel's key may be from near_keys. */
static double moved_by_keys(const struct judge *j, const double *c, uint64_t pool)
{
    double sum = 0;
    for (uint64_t d = 0; d < j->p.dim; d++) {
        uint64_t i = pool * j->p.dim + d;
        double delta = j->key_bound[i];
        if (isfinite(j->key_value[i])) delta += fabs(j->key_value[i] - (double)j->near_keys[i]);
        if (delta > 0) sum += c[d] * delta;
    }
    return isnan(sum) ? INFINITY : sum;
}

/* The selection against real scores of the exact keys K, by intervals around s(k~), k~ = near_keys.
 *
 * ref_dsa_index_scores_bound gives s(k~) and E(k~), within which every f32 order of the sums stays
 * when the keys are k~ (numerics §5.4). A right kernel has keys k with |k - K| <= key_bound, hence
 * |k - k~| <= delta = key_bound + |K - k~|. For head h, its dot moves by at most
 * scale*sum_d |q_d|*delta_d, and its rounding error, relative to sum |q_d||k_d|, by at most
 * gamma_{D+2} of the same; relu is 1-Lipschitz and the sum over heads loses at most gamma_{H+1} of
 * what it is given. So the kernel's score is within E(k~) + (1+gamma_{H+1})(1+gamma_{D+2}) * sum_h
 * |w_h|*scale*sum_d |q_hd|*delta_d, and so is s(K). The underflow term of E, 2^-149 * sum |k_d|,
 * moves by 2^-149 * sum delta_d. */
static bool certify(struct judge *j, const struct ref_dsa_index_scores *judged)
{
    struct ref_dsa_index_scores g = *judged;
    struct expected *e = &j->e[instance_index(j->in, "certified")];
    uint64_t pools = j->p.pools, stride = g.P;
    const uint8_t *candidate = expected_of(j, "valid_cand");
    double *c = malloc(((uint64_t)g.D + 1) * sizeof *c);
    bool fine = expected_alloc_select(e, g.Q, stride) && c;
    if (fine) {
        g.pool_keys = j->near_keys;
        ref_dsa_index_scores_bound(&g, e->select_value, e->select_bound);
    }
    for (uint32_t row = 0; fine && row < g.Q; row++) {
        e->select_n[row] = (uint32_t)pools;
        e->select_k[row] = j->p.selected_k;
        key_sensitivity(&g, row, c);
        for (uint64_t pool = 0; pool < pools; pool++) {
            if (candidate[row * pools + pool])
                e->select_bound[row * stride + pool] += moved_by_keys(j, c, pool);
        }
    }
    free(c);
    return fine;
}

static void judge_selection(struct judge *j)
{
    struct ref_dsa_topk_pools topk = {0};
    struct ref_dsa_expand_selection expand = {0};
    arguments_of(j, DSA_STEP_TOPK, &topk);
    topk.scores = got_of(j, "scores");
    ref_dsa_topk_pools(&topk, expected_of(j, "selected"));
    arguments_of(j, DSA_STEP_EXPAND, &expand);
    expand.selected = got_of(j, "selected");
    expand.pool_indices = expected_of(j, "pool_indices");
    expand.valid_cand = expected_of(j, "valid_cand");
    ref_dsa_expand_selection(&expand, expected_of(j, "rows"));
}

static void judge_decode(struct judge *j, const struct ref_error_model *model, bool exact)
{
    struct ref_dsa_decode g = {0};
    struct expected *out = &j->e[instance_index(j->in, "out")];
    arguments_of(j, DSA_STEP_DECODE, &g);
    g.sel_indices = got_of(j, "rows");
    ref_dsa_decode(&g, model, out->value, out->bound);
    if (exact) dsa_decode_exact(&g, out->bound);
}

/* Memory ran out: nothing may pass. */
static void fail_all(struct judge *j)
{
    struct expected *out = &j->e[instance_index(j->in, "out")];
    for (uint64_t i = 0; i < (uint64_t)j->p.rows * j->p.heads * DSA_LATENT; i++)
        out->value[i] = NAN;
}

static bool judge_open(struct judge *j, const struct case_line *c)
{
    struct expected *keys = &j->e[instance_index(j->in, "pool_keys")];
    uint64_t n = (uint64_t)j->p.pools * j->p.dim + 1;
    j->near_keys = malloc(n * sizeof *j->near_keys);
    j->key_value = keys->value;
    j->key_bound = keys->bound;
    j->got_keys = got_of(j, "pool_keys");
    if (!j->p.paged) return j->near_keys != NULL;
    j->pages = dsa_pipeline_key_pages(c, &j->p);
    j->key_value = j->own_value = malloc(n * sizeof *j->own_value);
    j->key_bound = j->own_bound = malloc(n * sizeof *j->own_bound);
    j->got_keys = j->own_got = malloc(n * sizeof *j->own_got);
    return j->near_keys && j->pages && j->own_value && j->own_bound && j->own_got;
}

static void judge_close(struct judge *j)
{
    free(j->pages);
    free(j->near_keys);
    free(j->own_value);
    free(j->own_bound);
    free(j->own_got);
}

void dsa_pipeline_oracle(const struct case_line *c, const struct instance *in,
                         const struct ref_error_model *model, const uint8_t *const *got,
                         struct expected *e)
{
    struct judge j = {.c = c, .in = in, .got = got, .e = e};
    struct ref_dsa_index_scores scores = {0};
    dsa_pipeline_read(c, &j.p);
    bool fine = judge_open(&j, c);
    if (fine) {
        judge_keys(&j, model, dsa_regime(c, "regime") == REGIME_EXACT_INT);
        judge_scores(&j, &scores);
        fine = certify(&j, &scores);
    }
    if (fine) {
        judge_selection(&j);
        judge_decode(&j, model, dsa_regime(c, "attend") == REGIME_EXACT_INT);
    } else {
        fail_all(&j);
    }
    judge_close(&j);
}
