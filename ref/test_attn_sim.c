#include "test_attn_sim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats.h"

#define LOG2E 1.4426950408889634f

float sim_dot(const float *x, const float *y, size_t n, int order)
{
    float sum = 0, lane[32] = {0};
    switch (order) {
    case 0:
        for (size_t i = 0; i < n; i++) sum += x[i] * y[i];
        return sum;
    case 1:
        for (size_t i = n; i-- > 0;) sum += x[i] * y[i];
        return sum;
    case 2:
        for (size_t i = 0; i < n; i++) sum = fmaf(x[i], y[i], sum);
        return sum;
    case 3:
        for (size_t i = 0; i < n; i++) lane[i % 32] += x[i] * y[i];
        for (int half = 16; half; half /= 2)
            for (int l = 0; l < half; l++) lane[l] += lane[l + half];
        return lane[0];
    default:
        if (n == 0) return 0;
        if (n == 1) return x[0] * y[0];
        if (n == 2) return fmaf(x[0], y[0], x[1] * y[1]);
        return sim_dot(x, y, n / 2, 4) + sim_dot(x + n / 2, y + n / 2, n - n / 2, 4);
    }
}

float sim_mma_step(float c, const float *a, const float *b, size_t count)
{
    int emax = c != 0 ? ilogbf(c) : -133;
    for (size_t i = 0; i < count; i++)
        if (a[i] * b[i] != 0 && ilogbf(a[i]) + ilogbf(b[i]) > emax)
            emax = ilogbf(a[i]) + ilogbf(b[i]);
    double quantum = ldexp(1.0, emax - 25);
    double sum = trunc((double)c / quantum);
    for (size_t i = 0; i < count; i++) sum += trunc((double)a[i] * (double)b[i] / quantum);
    double exact = sum * quantum;
    return exact >= 0 ? ref_f32_below(exact) : ref_f32_above(exact);
}

float sim_tensor_dot(const float *x, const float *y, size_t n)
{
    if (n > 64) return sim_tensor_dot(x, y, n / 2) + sim_tensor_dot(x + n / 2, y + n / 2, n / 2);
    float sum = 0;
    for (size_t i = 0; i < n; i += 16) sum = sim_mma_step(sum, x + i, y + i, 16);
    return sum;
}

struct ref_error_model sim_model(const struct sim *sim)
{
    struct ref_error_model model = {.tensor_core = sim->tensor_core,
                                    .mma_k = 16,
                                    .exp_ulp = sim->exp_ulp,
                                    .div_ulp = sim->reciprocal ? 1.5 : 0.5,
                                    .p_bf16 = sim->p_bf16};
    if (sim->tile) model.rescales_per_key = 1.0 / (double)sim->tile;
    model.rescales_fixed = sim->splits > 1; /* the merge */
    return model;
}

/* e^x or 2^x to within exp_ulp; exactly 1 at 0. push: the sign of the error if it is not random. */
static float sim_exp(const struct sim *sim, struct test_random *rng, float x, double push)
{
    double exact = sim->log2_domain ? exp2((double)x) : exp((double)x);
    if (x == 0) return 1.0f;
    if (sim->flush && exact < 0x1p-126) return 0.0f;
    int exponent = exact > 0 ? ilogb(exact) : -126;
    double ulp = ldexp(1.0, (exponent < -126 ? -126 : exponent) - 23);
    double share = sim->exp_error == SIM_EXP_RANDOM ? test_uniform(rng) : push;
    float result = (float)(exact + share * (sim->exp_ulp - 0.5) * ulp);
    return result < 0 ? 0 : result;
}

static float sim_exponent(const struct sim *sim, float x, float max)
{
    if (!sim->log2_domain) return x - max;
    float shift = max * LOG2E;
    return sim->fma ? fmaf(x, LOG2E, -shift) : x * LOG2E - shift;
}

/* Rescales use the difference of the maxima, so that the factor is 1 where it does not move. */
static float sim_factor(const struct sim *sim, struct test_random *rng, float old, float new)
{
    if (old == -INFINITY) return 0.0f;
    return sim_exp(sim, rng, sim->log2_domain ? (old - new) * LOG2E : old - new, 1.0);
}

struct part {
    float max, sum;
    float *value; /* [channels] */
};

static float sim_value(const struct sim *sim, float v)
{
    return sim->dequantise ? v * sim->value_scale : v;
}

static double push_of(const struct sim *sim, size_t j, const float *v, const double *centre)
{
    if (sim->exp_error == SIM_EXP_ALTERNATE) return j & 1 ? 1.0 : -1.0;
    if (sim->exp_error == SIM_EXP_AGAINST && centre) return (double)v[0] > centre[0] ? 1.0 : -1.0;
    return 1.0;
}

/* Adds the keys of one tile to a part whose maximum they have already raised. */
static void add_tile(const struct sim *sim, struct test_random *rng, const float *score,
                     const float *values, const size_t *keys, size_t count, size_t channels,
                     size_t stride, const double *centre, struct part *part)
{
    float p[256], pv[256], low[256], column[256];
    for (size_t i = 0; i < count; i++) {
        const float *v = values + keys[i] * stride;
        p[i] = sim_exp(sim, rng, sim_exponent(sim, score[keys[i]], part->max),
                       push_of(sim, keys[i], v, centre));
        pv[i] = sim->p_bf16 ? ref_bf16_to_f32(ref_bf16_from_f32(p[i])) : p[i];
        low[i] = sim->p_bf16 > 1 ? ref_bf16_to_f32(ref_bf16_from_f32(p[i] - pv[i])) : 0;
        part->sum += sim->sum_bf16 ? pv[i] : p[i];
    }
    for (size_t c = 0; c < channels; c++) {
        for (size_t i = 0; i < count; i++) column[i] = sim_value(sim, values[keys[i] * stride + c]);
        if (sim->tensor_core) {
            for (size_t i = 0; i < count; i += 16) {
                size_t width = count - i < 16 ? count - i : 16;
                part->value[c] = sim_mma_step(part->value[c], pv + i, column + i, width);
                if (sim->p_bf16 > 1)
                    part->value[c] = sim_mma_step(part->value[c], low + i, column + i, width);
            }
        } else {
            for (size_t i = 0; i < count; i++) {
                part->value[c] = sim->fma ? fmaf(pv[i], column[i], part->value[c])
                                          : part->value[c] + pv[i] * column[i];
                if (sim->p_bf16 > 1) part->value[c] += low[i] * column[i];
            }
        }
    }
}

static size_t keys_of_part(const struct sim *sim, size_t n, size_t index, size_t *keys)
{
    size_t count = 0, run = (n + sim->splits - 1) / sim->splits;
    for (size_t i = 0; i < n; i++) {
        size_t j = sim->backwards ? n - 1 - i : i;
        if ((sim->strided ? j % sim->splits : j / run) == index) keys[count++] = j;
    }
    return count;
}

static void run_part(const struct sim *sim, struct test_random *rng, const float *score,
                     const float *values, const size_t *keys, size_t count, size_t channels,
                     size_t stride, const double *centre, struct part *part)
{
    size_t tile = sim->tile ? sim->tile : count;
    for (size_t from = 0; from < count; from += tile) {
        size_t width = count - from < tile ? count - from : tile;
        float max = part->max;
        for (size_t i = 0; i < width; i++) max = fmaxf(max, score[keys[from + i]]);
        if (max > part->max) {
            float factor = sim_factor(sim, rng, part->max, max);
            part->sum *= factor;
            for (size_t c = 0; c < channels; c++) part->value[c] *= factor;
            part->max = max;
        }
        for (size_t at = 0; at < width; at += 256)
            add_tile(sim, rng, score, values, keys + from + at, width - at < 256 ? width - at : 256,
                     channels, stride, centre, part);
    }
}

/* The weights divided by their sum first, then the value sum. */
static void run_normalised(const struct sim *sim, struct test_random *rng, const float *score,
                           const float *values, size_t n, size_t channels, size_t stride,
                           const double *centre, float *out)
{
    float *p = malloc(n * sizeof *p), max = -INFINITY, sum = 0;
    for (size_t j = 0; j < n; j++) max = fmaxf(max, score[j]);
    for (size_t j = 0; j < n; j++) {
        double push = push_of(sim, j, values + j * stride, centre);
        p[j] = sim_exp(sim, rng, sim_exponent(sim, score[j], max), push);
        sum += p[j];
    }
    for (size_t j = 0; j < n; j++) p[j] = sim->reciprocal ? p[j] * (1.0f / sum) : p[j] / sum;
    for (size_t c = 0; c < channels; c++) {
        float o = 0;
        for (size_t j = 0; j < n; j++) o += p[j] * sim_value(sim, values[j * stride + c]);
        out[c] = sim->dequantise ? o : o * sim->value_scale;
    }
    free(p);
}

/* Brings every part to the common maximum once, and adds them. */
static void merge_parts(const struct sim *sim, struct test_random *rng, const struct part *parts,
                        size_t channels, float *sum, float *total)
{
    float max = -INFINITY;
    for (size_t s = 0; s < sim->splits; s++) max = fmaxf(max, parts[s].max);
    for (size_t s = 0; s < sim->splits; s++) {
        if (parts[s].max == -INFINITY) continue;
        float factor = sim_factor(sim, rng, parts[s].max, max);
        *sum += parts[s].sum * factor;
        for (size_t c = 0; c < channels; c++) total[c] += parts[s].value[c] * factor;
    }
}

void sim_softmax(const struct sim *sim, struct test_random *rng, const float *score,
                 const float *values, size_t n, size_t channels, size_t stride,
                 const double *centre, float *out)
{
    if (sim->normalise_first) {
        run_normalised(sim, rng, score, values, n, channels, stride, centre, out);
        return;
    }
    float *space = calloc((sim->splits + 1) * channels, sizeof *space), *total = space, sum = 0;
    struct part *parts = malloc(sim->splits * sizeof *parts);
    size_t *keys = malloc((n + 1) * sizeof *keys);
    for (size_t s = 0; s < sim->splits; s++) {
        parts[s] = (struct part){-INFINITY, 0, space + (s + 1) * channels};
        size_t count = keys_of_part(sim, n, s, keys);
        run_part(sim, rng, score, values, keys, count, channels, stride, centre, &parts[s]);
    }
    merge_parts(sim, rng, parts, channels, &sum, total);
    for (size_t c = 0; c < channels; c++) {
        float o = sim->reciprocal ? total[c] * (1.0f / sum) : total[c] / sum;
        out[c] = sim->dequantise ? o : o * sim->value_scale;
    }
    free(space);
    free(parts);
    free(keys);
}
