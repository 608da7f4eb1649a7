/* Pool scores of the DSA indexer (ops.md §2, index_scores): the canonical f32 arithmetic, and the
 * same scores as real numbers with the bound of any f32 order. */
#include "dsa.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "bound.h"

enum { LANES = 32 };

static uint32_t pools_of(const struct ref_dsa_index_scores *g)
{
    return g->geom ? (uint32_t)g->geom[1] : g->P;
}

static bool is_candidate(const struct ref_dsa_index_scores *g, size_t row, size_t pool)
{
    int64_t length = g->geom ? g->geom[0] : g->S;
    int32_t last = g->pool_indices[pool * g->KP + g->KP - 1];
    return g->pool_valid[pool] && last >= 0 && last < length && last <= g->q_pos[row] &&
           g->valid_keys[last];
}

static float relu(float x)
{
    return x > 0 || isnan(x) ? x : 0.0f;
}

/* Lane l adds the products of l, l+32, ... from +0, each rounded; then tree32. */
static float canonical_dot(const float *q, const float *k, size_t n)
{
    float lane[LANES] = {0};
    for (size_t i = 0; i < n; i += LANES)
        for (size_t l = 0; l < LANES; l++) lane[l] += q[i + l] * k[i + l];
    for (size_t half = LANES / 2; half; half /= 2)
        for (size_t l = 0; l < half; l++) lane[l] += lane[l + half];
    return lane[0];
}

static float canonical_score(const struct ref_dsa_index_scores *g, size_t row, size_t pool)
{
    float sum = 0;
    for (size_t h = 0; h < g->H; h++) {
        const float *q = g->q + (row * g->H + h) * g->D;
        float dot = canonical_dot(q, g->pool_keys + pool * g->D, g->D);
        sum += g->weights[row * g->H + h] * relu(g->scale * dot);
    }
    return sum;
}

void ref_dsa_index_scores(const struct ref_dsa_index_scores *g, float *scores, uint8_t *valid_cand)
{
    size_t pools = pools_of(g);
    for (size_t row = 0; row < g->Q; row++) {
        for (size_t pool = 0; pool < pools; pool++) {
            bool candidate = is_candidate(g, row, pool);
            scores[row * g->P + pool] = candidate ? canonical_score(g, row, pool) : -FLT_MAX;
            valid_cand[row * g->P + pool] = candidate;
        }
    }
}

/* What the heads of one pool add up to. */
struct head_sum {
    double value, size; /* sum w relu(t), sum |w| relu(t) */
    double error;       /* sum |w| e' */
    double lost;        /* underflow of the products w*relu(t) and of weights times scale */
    double peak;        /* the largest magnitude an f32 kernel may meet on the way */
};

/* t = scale*dot with error e, then relu: only what e can move relu(t) by counts (§5.4). */
static void add_head(double scale, double w, const struct ref_vec *q, const struct ref_vec *key,
                     struct head_sum *sum)
{
    static const struct ref_error_model any_order = {0};
    struct ref_dot dot = ref_dot(q, key);
    double t = scale * dot.value;
    if (isnan(t) || isinf(t)) {
        sum->value += w * (t > 0 || isnan(t) ? t : 0);
        return;
    }
    /* Two roundings beside the sum: the scale, and a scale folded into q or into the weight. */
    double relative = ref_dot_relative(&any_order, q->n, 2), up = fmax(1.0, scale);
    double lost = ((double)q->n + q->abs_sum + key->abs_sum + 2.0) * REF_F32_LEAST * up;
    if (dot.abs == 0) lost = 0; /* every product is an exact zero */
    double e = relative * scale * dot.abs + scale * dot.error + REF_U_F64 * fabs(t) + lost;
    double r = fmax(t, 0), moved = fmax(fmax(t + e, 0) - r, r - fmax(t - e, 0));
    sum->value += w * r;
    sum->size += fabs(w) * r;
    sum->error += fabs(w) * moved;
    if (r + moved > 0)
        sum->lost += (2.0 + r / fmin(1.0, scale)) * REF_F32_LEAST; /* a dead head costs nothing */
    double met = fmax(fmax(dot.abs, q->max_abs), key->max_abs) * up * (1.0 + relative);
    sum->peak = fmax(sum->peak, isfinite(w) ? met * fmax(1.0, fabs(w)) : met);
    if (isinf(w) && fabs(t) <= e) sum->peak = INFINITY; /* Inf*0 or Inf*something */
}

static void real_score(const struct ref_dsa_index_scores *g, size_t row, size_t pool,
                       const struct ref_vec *q, double *value, double *bound)
{
    struct ref_vec key = ref_vec_scan(g->pool_keys + pool * g->D, g->D);
    struct head_sum sum = {0};
    for (size_t h = 0; h < g->H; h++)
        add_head(g->scale, g->weights[row * g->H + h], &q[h], &key, &sum);
    *value = sum.value;
    if (!isfinite(sum.value)) {
        *bound = isinf(sum.peak) ? INFINITY : 0;
        return;
    }
    /* Sum over heads, any order, the weights' products included: gamma_H; one rounding more where
     * the scale is folded into the weights. */
    double heads = (double)g->H + 1.0;
    double relative = ref_gamma(heads, REF_U_F32) + ref_gamma(heads, REF_U_F64);
    double error = sum.error + relative * (sum.size + sum.error);
    error += sum.lost;
    bool overflow = fmax(sum.peak, 1.01 * (sum.size + sum.error)) > FLT_MAX;
    *bound = overflow ? INFINITY : error * REF_INFLATE;
}

void ref_dsa_index_scores_bound(const struct ref_dsa_index_scores *g, double *value, double *bound)
{
    size_t pools = pools_of(g);
    struct ref_vec *q = malloc(((size_t)g->H + 1) * sizeof *q);
    for (size_t row = 0; row < g->Q; row++) {
        for (size_t h = 0; h < g->H && q; h++)
            q[h] = ref_vec_scan(g->q + (row * g->H + h) * g->D, g->D);
        for (size_t pool = 0; pool < pools; pool++) {
            size_t at = row * g->P + pool;
            value[at] = q ? -FLT_MAX : NAN; /* out of memory: nothing may pass */
            bound[at] = 0;
            if (q && is_candidate(g, row, pool))
                real_score(g, row, pool, q, &value[at], &bound[at]);
        }
    }
    free(q);
}
