/* Block scores as real numbers, with the bound of a scorer (numerics §5.1 to §5.4).
 *
 * score = c * sum_h relu(t_h), t_h = q_h . k, c = 1/sqrt(hd). A scorer computes t_h from the vector
 * q~ that it holds: q itself in f32, hi + lo after the split, hi alone for plain bf16. So its t'_h
 * lies within e_h of q~_h . k, and q~ - q is known exactly: no bound is spent on it.
 *
 *   f32, any order     e_h = sum_i g_hd |q_i||k_i| + hd 2^-150
 *   tensor core        e_h = sum_i s 5 2^-23 (|hi_i| + |lo_i|)|k_i| + s 2^-146
 *
 * with s fused steps of 16 products: hd/16 for every part of q~. One chain, or one accumulator for
 * each part and an addition in f32: the sum of the two is an error of 2^-24, the shorter chains
 * save more. The labels that align a step's terms take a subnormal operand for one of 2^-126
 * (§5.2): so do the magnitudes here. A subnormal accumulator aligns at 2^-126 too: 16 terms lose
 * 2^-151 each, and 2^-149 goes with the result, in all below 2^-146 a step.
 *
 * relu is monotone: relu(t'_h) is in [relu(a - e_h), relu(a + e_h)], a = q~_h . k, and e'_h is its
 * larger distance from r_h = relu(t_h). A head that is dead in the whole interval costs nothing.
 * With S = sum r_h, c' = rnorm(hd), u = 2^-24:
 *   E = c'(1+u)(sum e'_h + g_{H-1}(S + sum e'_h)) + S(|c'-c|(1+u) + u c) + 2^-150
 * The oracle's sums in double add g_hd(2^-53) of the absolute sum, g_H(2^-53) of S. */
#include <float.h>

#include "bound.h"
#include "formats.h"
#include "qsa.h"
#include "qsa_canonical.h"

enum { TILE_ELEMS = 8192, LANES = 8 };

/* One head of a query as the scorer holds it. */
struct head {
    double q[REF_QSA_MAX_HD], held[REF_QSA_MAX_HD];
    double weight[REF_QSA_MAX_HD]; /* e_h = sum weight_i |k_i| + lost */
    double lost;
    double relative; /* e_h is at least this share of the sum of |products| */
    bool exact_copy; /* held equals q */
    bool unjudged;   /* an element overflows bf16 */
};

struct tile {
    double keys[TILE_ELEMS];
    uint64_t from, to;
};

static double operand(float x)
{
    return x == 0 ? 0 : fmax(fabs((double)x), REF_F32_LEAST_NORMAL);
}

static void hold_f32(struct head *head, uint32_t hd)
{
    double own = ref_gamma(hd, REF_U_F64);
    head->relative = ref_gamma(hd, REF_U_F32);
    head->lost = hd * 0.5 * REF_F32_LEAST;
    head->exact_copy = true;
    for (uint32_t i = 0; i < hd; i++) head->weight[i] = (head->relative + own) * fabs(head->q[i]);
}

static void hold_bf16(struct head *head, uint32_t hd, bool split)
{
    double steps = (split ? 2 : 1) * (hd / 16.0), chain = steps * 5.0 * 0x1p-23;
    double own = ref_gamma(hd, REF_U_F64), sum = 0;
    head->relative = chain;
    head->exact_copy = false;
    for (uint32_t i = 0; i < hd; i++) {
        float q = (float)head->q[i];
        float hi = ref_bf16_to_f32(ref_bf16_from_f32(q)), lo = 0;
        if (split) lo = ref_bf16_to_f32(ref_bf16_from_f32(q - hi));
        if (isfinite(q) && isinf(hi)) head->unjudged = true;
        head->held[i] = (double)hi + lo;
        head->weight[i] = chain * (operand(hi) + operand(lo)) + own * fabs(head->held[i]);
        sum += head->weight[i];
    }
    /* Subnormal keys: each weight meets at most 2^-126 instead of its key. */
    head->lost = steps * 0x1p-146 + sum * REF_F32_LEAST_NORMAL;
}

static void hold(struct head *head, enum ref_qsa_scorer scorer, const float *q, uint32_t hd)
{
    head->unjudged = false;
    for (uint32_t i = 0; i < hd; i++) head->q[i] = q[i];
    if (scorer == REF_SCORER_F32)
        hold_f32(head, hd);
    else
        hold_bf16(head, hd, scorer == REF_SCORER_SPLIT_Q);
}

static double lanes_sum(const double lanes[LANES])
{
    return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
           ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

struct sums {
    double exact, held, error; /* q . k, q~ . k, sum weight |k| */
};

/* The products are exact; every term passes at most hd/8 + 3 additions. */
static struct sums sums_of(const struct head *head, const double *key, uint32_t hd)
{
    double exact[LANES] = {0}, held[LANES] = {0}, error[LANES] = {0};
    if (head->exact_copy) {
        for (uint32_t i = 0; i < hd; i += LANES) {
            for (int l = 0; l < LANES; l++) {
                exact[l] += head->q[i + l] * key[i + l];
                error[l] += head->weight[i + l] * fabs(key[i + l]);
            }
        }
        double sum = lanes_sum(exact);
        return (struct sums){sum, sum, lanes_sum(error)};
    }
    for (uint32_t i = 0; i < hd; i += LANES) {
        for (int l = 0; l < LANES; l++) {
            exact[l] += head->q[i + l] * key[i + l];
            held[l] += head->held[i + l] * key[i + l];
            error[l] += head->weight[i + l] * fabs(key[i + l]);
        }
    }
    return (struct sums){lanes_sum(exact), lanes_sum(held), lanes_sum(error)};
}

static double relu(double x)
{
    return x > 0 || isnan(x) ? x : 0;
}

/* Adds r_h to *sum and e'_h to *error. */
static void add_head(const struct head *head, const double *key, uint32_t hd, double *sum,
                     double *error)
{
    struct sums t = sums_of(head, key, hd);
    double r = relu(t.exact), e = t.error * REF_INFLATE + head->lost;
    *sum += r;
    if (!isfinite(t.exact)) {
        /* f32 has one answer. A split has others: hi*Inf + lo*Inf may be NaN. */
        if (!head->exact_copy) *error = INFINITY;
    } else if (head->unjudged || t.error > FLT_MAX * 0.99 * head->relative) {
        *error = INFINITY;
    } else {
        *error += fmax(relu(t.held + e) - r, r - relu(t.held - e));
    }
}

/* From the sums over heads to a score and its bound. */
static void finish(uint32_t n_heads, uint32_t hd, double *value, double *bound)
{
    double sum = *value, error = *bound, c = 1 / sqrt((double)hd);
    double rounded = (double)ref_qsa_rnorm((float)hd), u = REF_U_F32;
    *value = sum * c;
    if (!isfinite(sum)) {
        *bound = isinf(sum) && isinf(error) ? INFINITY : 0;
        return;
    }
    if ((sum + error) * 1.01 > FLT_MAX) {
        *bound = INFINITY;
        return;
    }
    if (sum + error == 0) return; /* every head dead in every order: exactly 0 */
    error += ref_gamma(n_heads - 1.0, u) * (sum + error) + ref_gamma(n_heads, REF_U_F64) * sum;
    error = rounded * (1 + u) * error + sum * (fabs(rounded - c) * (1 + u) + u * c);
    error += sum * c * 4 * REF_U_F64 + REF_F32_LEAST;
    *bound = error * REF_INFLATE;
}

static void score_row(const struct ref_qsa_score_rows *g, enum ref_qsa_scorer scorer,
                      const struct tile *tile, uint32_t r, double *value, double *bound)
{
    struct head head;
    uint64_t complete = ((uint64_t)g->first_pos + r + 1) / g->ratio;
    uint64_t seen = complete < tile->to ? complete : tile->to;
    for (uint64_t b = tile->from; b < tile->to; b++) {
        value[b] = b < seen ? 0 : -INFINITY;
        bound[b] = 0;
    }
    if (seen <= tile->from) return;
    for (uint32_t h = 0; h < g->n_heads; h++) {
        hold(&head, scorer, g->q + ((size_t)r * g->n_heads + h) * g->hd, g->hd);
        for (uint64_t b = tile->from; b < seen; b++)
            add_head(&head, tile->keys + (b - tile->from) * g->hd, g->hd, &value[b], &bound[b]);
    }
    for (uint64_t b = tile->from; b < seen; b++) finish(g->n_heads, g->hd, &value[b], &bound[b]);
}

void ref_qsa_score_rows_bound(const struct ref_qsa_score_rows *g, enum ref_qsa_scorer scorer,
                              double *value, double *bound)
{
    struct tile tile;
    uint32_t width = TILE_ELEMS / g->hd;
    for (tile.from = 0; tile.from < g->n_blocks_max; tile.from = tile.to) {
        tile.to = tile.from + width < g->n_blocks_max ? tile.from + width : g->n_blocks_max;
        const uint16_t *keys = g->block_keys + tile.from * g->hd;
        for (size_t i = 0; i < (tile.to - tile.from) * g->hd; i++)
            tile.keys[i] = ref_bf16_to_f32(keys[i]);
        for (uint32_t r = 0; r < g->rows; r++) {
            size_t at = (size_t)r * g->n_blocks_max;
            score_row(g, scorer, &tile, r, value + at, bound + at);
        }
    }
}
