/* Block keys and prepared queries as real numbers, with the bound of any f32 kernel of the formula
 * (numerics §5.1, §5.5, §5.6).
 *
 * The value is that of the real formula: frequencies are real powers, the rotation is by the real
 * angle pos * theta^(-2j/rot). A kernel under the model
 *   - adds in any order, with or without FMA, and divides with div_ulp;
 *   - takes 1/sqrt with rsqrt_ulp, and multiplies v, 1/sqrt and 1+w in any association;
 *   - builds the angle in double: a frequency within one ulp, one product. Its table entries are
 *     within one ulp of f32 of the true ones for that angle. (A kernel that builds the angle in
 *     f32 is not in the model: at position 1e5 its table is off by 6e-3.)
 *
 * Steps, u = 2^-24, d = div_ulp*2^-23, rho = rsqrt_ulp*2^-23:
 *   v    |v' - v| <= dv = (g_{ratio-1}(1+d) + d) * sum|k| / ratio    (0 for a query)
 *   m    = sum v^2/hd + eps, all terms positive, hd+2 roundings and the division:
 *        m' in [(m - D)(1-g)(1-d), (m + D)(1+g)(1+d)],  g = g_{hd+2}, D = sum(2|v| dv + dv^2)/hd
 *   r    = m^-1/2, monotone:  r' in [hi(m)^-1/2 (1-rho), lo(m)^-1/2 (1+rho)],  dr the larger side
 *   n    = v r (1+w), three roundings:
 *        dn = |1+w| (dv r + |v| dr + dv dr + g_3 (|v|+dv)(r+dr))
 *   y    = n c -+ n' s, a product and a sum each, table error tau:
 *        dy = sum over both of (dn |c| + |n| tau + dn tau + g_2 (|n|+dn)(|c|+tau))
 *   tau  = 2^-24 (table) + |angle| (2^-52 + 2^-53) (angle)
 * Every step adds its underflow (2^-150 a product or quotient) and the oracle's own error. */
#include <float.h>

#include "bound.h"
#include "formats.h"
#include "qsa.h"
#include "qsa_canonical.h"
#include "rotation.h"

/* What every row of one call shares. */
struct norm {
    double gain[REF_QSA_MAX_HD];          /* 1 + w_d */
    double frequency[REF_QSA_MAX_HD / 2]; /* of the rotated pairs */
    uint32_t hd, rot;
    double eps, division, rsqrt; /* d and rho */
};

/* An element is a real number within its bound, or NaN with bound 0: NaN in every kernel; or has
 * bound INFINITY: not judged, because an f32 kernel may overflow or lose everything on the way. */
struct row {
    double value[REF_QSA_MAX_HD], bound[REF_QSA_MAX_HD];
    bool overflows; /* the whole row is not judged */
};

static void norm_prepare(struct norm *norm, const struct ref_error_model *model,
                         const uint16_t *weight, uint32_t hd, uint32_t rot, float theta, float eps)
{
    norm->hd = hd;
    norm->rot = rot;
    norm->eps = eps;
    norm->division = ref_ulp_relative(model->div_ulp);
    norm->rsqrt = ref_ulp_relative(model->rsqrt_ulp);
    for (uint32_t d = 0; d < hd; d++) norm->gain[d] = 1 + (double)ref_bf16_to_f32(weight[d]);
    for (uint32_t j = 0; j < rot / 2; j++)
        norm->frequency[j] = ref_rotation_frequency(theta, rot, j);
}

/* 1/sqrt of the mean square: its value and the largest distance of a kernel's. */
struct scale {
    double value, error;
    bool special; /* infinite elements, or a zero row without eps: IEEE arithmetic has one answer */
};

static struct scale norm_scale(const struct norm *norm, struct row *row)
{
    double square = 0, moved = 0, hd = norm->hd;
    for (uint32_t d = 0; d < norm->hd; d++) {
        double v = row->value[d], dv = row->bound[d];
        square += v * v;
        moved += 2 * fabs(v) * dv + dv * dv;
    }
    double mean = square / hd + norm->eps;
    struct scale scale = {.value = 1 / sqrt(mean)};
    scale.special = !isfinite(square) || (mean == 0 && moved == 0);
    if (scale.special) return scale;
    /* Own error of the sum of squares: one rounding a term and an addition. */
    double relative = ref_gamma(hd + 2, REF_U_F32) + ref_gamma(hd + 4, REF_U_F64);
    relative = (1 + relative) * (1 + norm->division) - 1;
    double sum = (square + moved) * (1 + relative);
    moved /= hd;
    double high = (mean + moved) * (1 + relative) + REF_F32_LEAST;
    double low = (mean - moved) * (1 - relative) - REF_F32_LEAST;
    if (fmax(sum, high) > FLT_MAX || !(low > 0)) {
        row->overflows = true;
        return scale;
    }
    double above = 1 / sqrt(low) * (1 + norm->rsqrt) - scale.value;
    double below = scale.value - 1 / sqrt(high) * (1 - norm->rsqrt);
    /* The differences are of doubles within a few roundings of exact. */
    scale.error = fmax(above, below) + 8 * REF_U_F64 * scale.value;
    return scale;
}

/* v to n = v r (1+w) in place. */
static void scale_row(const struct norm *norm, struct row *row)
{
    struct scale scale = norm_scale(norm, row);
    double rounded = ref_gamma(3, REF_U_F32) + ref_gamma(6, REF_U_F64);
    double r = scale.value, dr = scale.error;
    for (uint32_t d = 0; d < norm->hd; d++) {
        double v = row->value[d], dv = row->bound[d], g = fabs(norm->gain[d]);
        row->value[d] = v * r * norm->gain[d];
        if (scale.special || isnan(g)) {
            row->bound[d] = 0;
            continue;
        }
        double size = (fabs(v) + dv) * (r + dr);
        double moved = dv * r + fabs(v) * dr + dv * dr + rounded * size;
        row->bound[d] = g * moved + (1 + g + fabs(v) + dv) * REF_F32_LEAST;
        /* Any association: v r, r (1+w) or v (1+w) first. */
        double peak = fmax(size, fmax(r + dr, fabs(v) + dv) * g);
        if (!(fmax(peak, size * g) * 1.01 < FLT_MAX)) row->bound[d] = INFINITY;
    }
}

/* Bound of one product of the rotation: n off by dn, the table entry by tau. */
static double turned(double n, double dn, double entry, double tau)
{
    double rounded = ref_gamma(2, REF_U_F32) + ref_gamma(4, REF_U_F64);
    n = fabs(n);
    entry = fabs(entry);
    return dn * entry + n * tau + dn * tau + rounded * (n + dn) * (entry + tau) + REF_F32_LEAST;
}

/* a*c + b*s with the bound; the entries are off by tau. */
static void turn(double a, double da, double b, double db, double c, double s, double tau,
                 double *value, double *bound)
{
    *value = a * c + b * s;
    if ((isnan(a) && da == 0) || (isnan(b) && db == 0)) {
        *value = NAN;
        *bound = 0;
    } else if (isinf(da) || isinf(db)) {
        *bound = INFINITY;
    } else {
        *bound = turned(a, da, c, tau) + turned(b, db, s, tau);
    }
}

static void rotate_row(const struct norm *norm, uint64_t pos, struct row *row)
{
    uint32_t half = norm->rot / 2;
    for (uint32_t j = 0; j < half; j++) {
        double angle = (double)pos * norm->frequency[j], s, c;
        sincos(angle, &s, &c);
        /* The oracle's angle: nearest frequency and one product, 2^-53 each; its table 2^-52. */
        double tau = 0x1p-24 + angle * (0x1p-52 + 0x1p-53) + angle * 0x1p-52 + 0x1p-52;
        if (angle == 0) tau = 0;
        double a = row->value[j], b = row->value[j + half];
        double da = row->bound[j], db = row->bound[j + half];
        turn(a, da, b, db, c, -s, tau, &row->value[j], &row->bound[j]);
        turn(b, db, a, da, c, s, tau, &row->value[j + half], &row->bound[j + half]);
    }
}

static void norm_row(const struct norm *norm, uint64_t pos, struct row *row, double *value,
                     double *bound)
{
    scale_row(norm, row);
    rotate_row(norm, pos, row);
    for (uint32_t d = 0; d < norm->hd; d++) {
        double error = row->bound[d] * REF_INFLATE;
        value[d] = row->value[d];
        bound[d] = row->overflows || fabs(value[d]) + error > FLT_MAX ? INFINITY : error;
    }
}

static void pool_row(const struct ref_qsa_block_pool *g, const struct ref_error_model *model,
                     uint64_t first, struct row *row)
{
    double size[REF_QSA_MAX_HD] = {0}, division = ref_ulp_relative(model->div_ulp);
    double sum = ref_gamma(g->ratio - 1.0, REF_U_F32);
    double relative = sum * (1 + division) + division + ref_gamma(g->ratio + 1.0, REF_U_F64);
    row->overflows = false;
    for (uint32_t d = 0; d < g->hd; d++) row->value[d] = 0;
    for (uint32_t t = 0; t < g->ratio; t++) {
        const uint16_t *key = g->raw_keys + (first + t) * g->hd;
        for (uint32_t d = 0; d < g->hd; d++) {
            double k = ref_bf16_to_f32(key[d]);
            row->value[d] += k;
            size[d] += fabs(k);
        }
    }
    for (uint32_t d = 0; d < g->hd; d++) {
        row->value[d] /= g->ratio;
        row->bound[d] = size[d] > 0 ? relative * size[d] / g->ratio + REF_F32_LEAST : 0;
        if (isfinite(size[d]) && size[d] * 1.01 > FLT_MAX) row->overflows = true;
    }
}

void ref_qsa_block_pool_bound(const struct ref_qsa_block_pool *g,
                              const struct ref_error_model *model, double *value, double *bound)
{
    struct norm norm;
    struct row row;
    if (!g->n_new) return;
    norm_prepare(&norm, model, g->k_norm_w, g->hd, g->rot, g->theta, g->eps);
    for (uint32_t i = 0; i < g->n_new; i++) {
        uint64_t first = ((uint64_t)g->first_block + i) * g->ratio;
        pool_row(g, model, first, &row);
        norm_row(&norm, first, &row, value + (size_t)i * g->hd, bound + (size_t)i * g->hd);
    }
}

void ref_qsa_qprep_rows_bound(const struct ref_qsa_qprep_rows *g,
                              const struct ref_error_model *model, double *value, double *bound)
{
    struct norm norm;
    struct row row;
    if (!g->rows) return;
    norm_prepare(&norm, model, g->q_norm_w, g->hd, g->rot, g->theta, g->eps);
    for (uint32_t r = 0; r < g->rows; r++) {
        for (uint32_t h = 0; h < g->n_heads; h++) {
            const uint16_t *q = g->qk + (size_t)r * g->qkw + (size_t)h * g->hd;
            size_t at = ((size_t)r * g->n_heads + h) * g->hd;
            row.overflows = false;
            for (uint32_t d = 0; d < g->hd; d++) {
                row.value[d] = ref_bf16_to_f32(q[d]);
                row.bound[d] = 0;
            }
            norm_row(&norm, (uint64_t)g->first_pos + r, &row, value + at, bound + at);
        }
    }
}
