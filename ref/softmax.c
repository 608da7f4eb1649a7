#include "softmax.h"

#include <float.h>
#include <stdint.h>
#include <string.h>

#include "bound.h"

/* The derivation, with w_j = e^(x_j - max x), a kernel's weights w'_j = w_j e^(t_j) + f_j and
 * |t_j| <= theta_j (numerics §5.8):
 *
 *   theta_j = eps_j + kappa*(D_j + 2 max eps + max(|x_j|, |max x|)) + eta + R(eta + 2u) + own
 *
 * eps_j    error of the score; kappa = 3u: subtraction, log2(e), its product.
 * D_j      max x - x_j. The shifts a key meets rise from its own score to the final maximum, so
 *          they add up to D_j, give or take two score errors. The last part covers a maximum that
 *          is rounded after scaling.
 * eta      -ln(1 - exp_ulp*2^-23), once for the weight and once a rescale; R rescales.
 * own      (D_j + 2)*2^-52 + ..., the oracle's e^x in double.
 * f_j      |f_j| <= (R+1)*2^-126, flushed exponentials. The kernel's own maximum has weight 1 but
 *          for roundings, so its weights sum to at least `least` and these stay absolute.
 *
 * With p = w/sum w and d_j = e^theta_j - 1, the exact quotient of the perturbed weights differs
 * from o by at most  tanh(max theta/2)*(max v - min v)  and by at most sum p_j d_j |v_j - o| / sum
 * p_j e^(-theta_j)  (the §5.8 form with each key's own theta).
 *
 * Arithmetic, relative to B = sum p_j e^theta_j |v_j| / sum p_j e^(-theta_j) <= max|v|:
 *   (1 + g1)(1 + g2)/(1 - g3) - 1,  g1: products, sum, rescales, value scale; g2: division;
 *   g3: the sum of weights with its rescales.
 *
 * bf16 weights, b = 2^-8: b*B if the sum of weights keeps f32 weights, else a perturbation by
 * another factor 1+-b: b/(1-b) * sum p'_j |v_j - o'|. The larger counts. Split in hi and lo
 * (numerics §5.3): b = 2^-17, and the value sum has twice as many products, the sizes of a weight's
 * two adding to (1 + 2^-8)^2 of it at most. What both parts lose below 2^-126 is less than a
 * flushed exponential. */

/* Tile of channels; keys an inner accumulator takes; channels in a register's or two's lanes. */
enum { CHANNELS = 64, KEYS = 64, LANES = 8 };

typedef float floats __attribute__((vector_size(32)));
typedef int32_t ints __attribute__((vector_size(32)));
typedef double doubles __attribute__((vector_size(64)));
typedef int64_t longs __attribute__((vector_size(64)));

struct weights {
    const double *w, *wide, *part; /* w_j, w_j e^theta_j, w_j d_j */
    double sum, low_sum, part_sum; /* sum w_j, sum w_j e^(-theta_j), sum w_j d_j */
    double least;                  /* a kernel's sum of weights is not below */
    double theta;                  /* max theta_j */
    double moved;                  /* tanh(theta / 2) */
    double own;                    /* relative error of a weighted sum in double */
};

struct limits {
    double arithmetic;            /* (1 + g1)(1 + g2)/(1 - g3) - 1 */
    double weight_lost, sum_lost; /* underflow: times max|v|; absolute, before the division */
};

struct tile {
    double sum[CHANNELS], abs[CHANNELS]; /* sum w_j v_j, sum w_j e^theta_j |v_j| */
    float min[CHANNELS], max[CHANNELS];
    double spread[CHANNELS], part[CHANNELS]; /* sum w_j |v_j - o|, sum w_j d_j |v_j - o| */
};

static double part_error(const struct ref_error_model *model)
{
    return model->p_bf16 == 0 ? 0.0 : model->p_bf16 == 1 ? REF_U_BF16 : 0x1p-17;
}

static double rescales(const struct ref_softmax *row, const struct ref_error_model *model)
{
    return model->rescales_per_key * (double)row->n + model->rescales_fixed;
}

static double sum_in_blocks(const double *x, size_t n)
{
    double total = 0;
    for (size_t from = 0; from < n; from += KEYS) {
        double block = 0;
        for (size_t j = from; j < n && j < from + KEYS; j++) block += x[j];
        total += block;
    }
    return total;
}

static double max_of(const double *x, size_t n)
{
    double most = -INFINITY;
    for (size_t j = 0; j < n; j++) most = x[j] > most ? x[j] : most;
    return most;
}

static struct weights weigh(const struct ref_softmax *row, const struct ref_error_model *model,
                            double *scratch)
{
    double *w = scratch, *wide = w + row->n, *part = wide + row->n;
    double max = max_of(row->score, row->n), max_error = max_of(row->score_error, row->n);
    double eta = -log1p(-ref_ulp_relative(model->exp_ulp)), kappa = 3.0 * REF_U_F32;
    double fixed = eta + rescales(row, model) * (eta + 2.0 * REF_U_F32);
    struct weights out = {.w = w, .wide = wide, .part = part};
    for (size_t j = 0; j < row->n; j++) {
        double x = row->score[j], depth = max - x;
        double size = fmax(fabs(x), fabs(max));
        double theta = row->score_error[j] + kappa * (depth + 2.0 * max_error + size) + fixed +
                       (depth + 2.0) * 0x1p-52;
        theta *= REF_INFLATE;
        out.theta = theta > out.theta ? theta : out.theta;
        w[j] = exp(-depth);
        /* Beyond 700 the sums below are infinite or NaN, and the other form decides. */
        part[j] = w[j] * (theta > 700.0 ? INFINITY : expm1(theta));
        wide[j] = w[j] + part[j];
        out.low_sum += w[j] > 0 ? w[j] * (w[j] / wide[j]) : 0; /* e^(-theta) = 1/(1 + d) */
    }
    out.moved = tanh(0.5 * out.theta);
    out.sum = sum_in_blocks(w, row->n);
    out.part_sum = sum_in_blocks(part, row->n);
    out.least = exp(-fixed - fmin(kappa * fabs(max), 1.0));
    /* A term passes one product, KEYS additions inside, one a block outside; so do the weights;
     * then quotient and value scale. */
    double depth = fmin((double)row->n, KEYS) + (double)(row->n / KEYS) + 2.0;
    out.own = ref_gamma(2.0 * depth + 4.0, REF_U_F64);
    return out;
}

static struct limits limit(const struct ref_softmax *row, const struct ref_error_model *model)
{
    double n = (double)row->n, passed = rescales(row, model);
    size_t parts = model->p_bf16 > 1 ? model->p_bf16 : 1;
    double products, steps_lost = 0;
    if (model->tensor_core) {
        /* Keys may lie in any step of the slots; empty steps lose nothing. */
        size_t width = model->mma_k ? model->mma_k : 1, steps = row->slots / width + 1;
        size_t length = (steps < row->n ? steps : row->n) * width * parts;
        steps_lost = (double)(length / width) * REF_STEP_LOST;
        double chain = ref_dot_relative(model, length, row->value_roundings);
        double scaled = ref_gamma(passed, REF_U_F32);
        products = chain + scaled + chain * scaled;
    } else {
        products = ref_gamma(n * (double)parts + passed + row->value_roundings, REF_U_F32);
    }
    double weights = ref_gamma(n - 1.0 + passed, REF_U_F32);
    double division = ref_ulp_relative(model->div_ulp);
    struct limits out;
    out.arithmetic =
        weights < 1.0 ? (1.0 + products) * (1.0 + division) / (1.0 - weights) - 1.0 : INFINITY;
    for (uint32_t i = 0; i < model->p_bf16; i++) out.arithmetic *= 1.0 + REF_U_BF16; /* the sizes */
    /* Each flushed weight also enters the sum of weights: |v_j - o| <= 2 max|v|. */
    out.weight_lost = 2.0 * n * (passed + 1.0) * REF_F32_LEAST_NORMAL;
    out.sum_lost = (n + passed + 2.0) * 2.0 * REF_F32_LEAST + steps_lost;
    return out;
}

/* Eight channels of one key; 0 beyond the last. */
static inline floats load(const float *v, size_t left)
{
    floats x = {0};
    if (left >= LANES)
        memcpy(&x, v, sizeof x);
    else
        for (size_t i = 0; i < left; i++) x[i] = v[i];
    return x;
}

#define ABSOLUTE(x) ((doubles)((longs)(x)&INT64_MAX))

static inline floats choose(ints mask, floats yes, floats no)
{
    return (floats)((mask & (ints)yes) | (~mask & (ints)no));
}

/* Eight channels at a time, so that their sums stay in registers over all keys of the block. */
static void sum_block(const struct ref_softmax *row, const struct weights *weights, size_t channel,
                      size_t width, size_t from, size_t to, struct tile *tile)
{
    for (size_t c = 0; c < width; c += LANES) {
        const float *v = row->values + from * row->value_stride + channel + c;
        doubles sum = {0}, abs = {0};
        floats min, max;
        memcpy(&min, tile->min + c, sizeof min);
        memcpy(&max, tile->max + c, sizeof max);
        for (size_t j = from; j < to; j++, v += row->value_stride) {
            floats x = load(v, width - c);
            doubles wide = __builtin_convertvector(x, doubles);
            sum += weights->w[j] * wide;
            abs += weights->wide[j] * ABSOLUTE(wide);
            min = choose(x < min, x, min);
            max = choose(x > max, x, max);
        }
        memcpy(tile->min + c, &min, sizeof min);
        memcpy(tile->max + c, &max, sizeof max);
        for (size_t i = 0; i < LANES; i++) {
            tile->sum[c + i] += sum[i];
            tile->abs[c + i] += abs[i];
        }
    }
}

static void spread_block(const struct ref_softmax *row, const struct weights *weights,
                         size_t channel, size_t width, const double *centre, struct tile *tile)
{
    for (size_t c = 0; c < width; c += LANES) {
        const float *v = row->values + channel + c;
        doubles spread = {0}, part = {0}, middle;
        memcpy(&middle, centre + c, sizeof middle);
        for (size_t j = 0; j < row->n; j++, v += row->value_stride) {
            floats x = load(v, width - c);
            doubles distance = ABSOLUTE(__builtin_convertvector(x, doubles) - middle);
            spread += weights->w[j] * distance;
            part += weights->part[j] * distance;
        }
        memcpy(tile->spread + c, &spread, sizeof spread);
        memcpy(tile->part + c, &part, sizeof part);
    }
}

/* a, or b where that is a number below it. */
static double lesser(double a, double b)
{
    return b < a ? b : a;
}

/* The bound of one channel, before the value scale. */
static double channel_bound(const struct ref_error_model *model, const struct weights *weights,
                            const struct limits *limits, const struct tile *tile, size_t c)
{
    double low = weights->low_sum;
    double range = (double)tile->max[c] - (double)tile->min[c];
    double max_abs = fmax(fabs((double)tile->max[c]), fabs((double)tile->min[c]));
    double average = lesser(max_abs, tile->abs[c] / low), own = weights->own * average;
    /* The distances are taken from the computed o, off by `own` at most. */
    double part = tile->part[c] + own * weights->part_sum;
    double moved = lesser(weights->moved * range, part / low);
    double bound =
        moved + limits->arithmetic * average + own + limits->weight_lost * max_abs / weights->least;
    if (model->p_bf16) {
        double rounded = part_error(model), kept = rounded * average;
        double both = (tile->spread[c] + part + own * weights->sum) / low + moved;
        both = lesser(range, both) * rounded / (1.0 - rounded);
        bound += fmax(kept, both);
    }
    return bound;
}

/* The bound where value or f32 sums are not finite, else the one given. */
static double special_bound(const struct ref_softmax *row, const struct tile *tile, size_t c,
                            double max_error, double value, double bound)
{
    if (isnan(value)) return 0;
    double max_abs = fmax(fabs((double)tile->max[c]), fabs((double)tile->min[c]));
    double peak = (double)row->n * max_abs * fmax(1.0, row->value_scale) * 1.01;
    if (isinf(max_error) || isinf(value) || !(peak <= FLT_MAX)) return INFINITY;
    return bound;
}

static void tile_rows(const struct ref_softmax *row, const struct ref_error_model *model,
                      const struct weights *weights, const struct limits *limits, size_t channel,
                      double *value, double *bound)
{
    size_t width = row->channels - channel < CHANNELS ? row->channels - channel : CHANNELS;
    double max_error = max_of(row->score_error, row->n), centre[CHANNELS] = {0};
    struct tile tile = {0};
    for (size_t c = 0; c < width; c++) {
        tile.min[c] = INFINITY;
        tile.max[c] = -INFINITY;
    }
    for (size_t from = 0; from < row->n; from += KEYS) {
        size_t to = row->n - from < KEYS ? row->n : from + KEYS;
        sum_block(row, weights, channel, width, from, to, &tile);
    }
    for (size_t c = 0; c < width; c++) centre[c] = tile.sum[c] / weights->sum;
    spread_block(row, weights, channel, width, centre, &tile);
    double scale = row->value_scale;
    for (size_t c = 0; c < width; c++) {
        double limit_c = channel_bound(model, weights, limits, &tile, c);
        double lost = limits->sum_lost / weights->least * fmax(1.0, scale) + REF_F32_LEAST;
        limit_c = (limit_c * scale + lost) * REF_INFLATE;
        value[channel + c] = centre[c] * scale;
        bound[channel + c] = special_bound(row, &tile, c, max_error, value[channel + c], limit_c);
    }
}

void ref_softmax(const struct ref_softmax *row, const struct ref_error_model *model,
                 double *scratch, double *value, double *bound)
{
    if (!row->n) {
        for (size_t c = 0; c < row->channels; c++) value[c] = bound[c] = 0;
        return;
    }
    bool undefined = false, unjudged = true;
    for (size_t j = 0; j < row->n; j++) {
        undefined |= isnan(row->score[j]) || row->score[j] == INFINITY;
        unjudged &= row->score[j] == -INFINITY;
    }
    if (undefined || unjudged) {
        for (size_t c = 0; c < row->channels; c++) {
            value[c] = NAN;
            bound[c] = undefined ? 0 : INFINITY;
        }
        return;
    }
    struct weights weights = weigh(row, model, scratch);
    struct limits limits = limit(row, model);
    for (size_t c = 0; c < row->channels; c += CHANNELS)
        tile_rows(row, model, &weights, &limits, c, value, bound);
}
