#include "harness/judge/compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/formats.h"

/* ref_bf16_to_f32, where every element passes. */
static inline double bf16_value(uint16_t bits)
{
    uint32_t word = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &word, sizeof value);
    return (double)value;
}

double element_value(enum dtype dtype, const uint8_t *data, uint64_t i)
{
    uint16_t half;
    float single;
    int32_t integer;
    switch (dtype) {
    case DTYPE_BF16: memcpy(&half, data + 2 * i, 2); return bf16_value(half);
    case DTYPE_E4M3: return ref_e4m3_to_f32(data[i]);
    case DTYPE_F32: memcpy(&single, data + 4 * i, 4); return single;
    case DTYPE_I32: memcpy(&integer, data + 4 * i, 4); return integer;
    case DTYPE_U8: return data[i];
    }
    return NAN;
}

void element_print(enum dtype dtype, const uint8_t *data, uint64_t i, char *text, size_t size)
{
    uint32_t bytes = dtype_bytes(dtype), bits = 0;
    memcpy(&bits, data + bytes * i, bytes);
    if (dtype == DTYPE_I32)
        snprintf(text, size, "%d", (int32_t)bits);
    else
        snprintf(text, size, "0x%0*x (%.9g)", (int)(2 * bytes), bits,
                 element_value(dtype, data, i));
}

uint16_t compare_nearest_bf16(double value)
{
    enum { DROPPED = 52 - 7 }; /* fraction bits that bf16 does not have */
    uint64_t bits, size;
    memcpy(&bits, &value, sizeof bits);
    size = bits & INT64_MAX;
    if (size < (uint64_t)(1023 - 126) << 52 || size >= (uint64_t)(1023 + 127) << 52)
        return ref_bf16_from_f64(value); /* not a normal bf16, or near the end of them */
    /* A tie goes to even; a carry out of the fraction is the next power of two. */
    size += ((uint64_t)1 << (DROPPED - 1)) - 1 + (size >> DROPPED & 1);
    size -= (uint64_t)(1023 - 127) << 52;
    return (uint16_t)(bits >> 63 << 15 | size >> DROPPED);
}

static bool same_element(enum dtype dtype, const uint8_t *a, const uint8_t *b, uint64_t i)
{
    uint32_t bytes = dtype_bytes(dtype);
    if (!memcmp(a + bytes * i, b + bytes * i, bytes)) return true;
    if (dtype == DTYPE_I32 || dtype == DTYPE_U8) return false;
    return isnan(element_value(dtype, a, i)) && isnan(element_value(dtype, b, i));
}

uint64_t compare_bits(const struct tensor *t, const uint8_t *a, const uint8_t *b, uint64_t elems,
                      uint64_t *first)
{
    uint64_t differing = 0;
    if (!memcmp(a, b, elems * dtype_bytes(t->dtype))) return 0;
    for (uint64_t i = 0; i < elems; i++) {
        if (same_element(t->dtype, a, b, i)) continue;
        if (!differing++) *first = i;
    }
    return differing;
}

/* Units in the last place of the output format at |x|. */
static double ulp_at(enum dtype dtype, double x)
{
    int digits = dtype == DTYPE_BF16 ? 8 : 24;
    uint64_t bits;
    if (!isfinite(x)) return INFINITY;
    memcpy(&bits, &x, sizeof bits);
    int exponent = (int)(bits >> 52 & 0x7ff) - 1022; /* 2^(exponent-1) <= |x| < 2^exponent */
    if (x == 0) exponent = 0;                        /* as frexp has it */
    bits = (uint64_t)(1023 + (exponent < -125 ? -125 : exponent) - digits) << 52;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint16_t bf16_step(uint16_t bits, bool up)
{
    /* Neighbour in the order of values; +-0 count as one point. */
    bool negative = bits & 0x8000;
    if ((bits & 0x7fff) == 0) return up ? 0x0001 : 0x8001;
    return (uint16_t)(negative == up ? bits - 1 : bits + 1);
}

/* The least |v - value| over real v that round to this bf16 code: how far the kernel's result
 * before the store must at least have been off. A tie may round either way only to even, but the
 * half-way point itself is the infimum in both cases. */
static double bf16_distance(uint16_t got, uint16_t nearest, double value)
{
    double g = bf16_value(got);
    if (nearest == got || (((nearest | got) & 0x7fff) == 0)) return 0;
    if (isinf(g) || isinf(value)) return isinf(g) && isinf(value) && (g > 0) == (value > 0) ? 0 : INFINITY;
    double other = ref_bf16_to_f32(bf16_step(got, value > g));
    double edge = isinf(other) ? g : (g + other) / 2;
    double distance = value > g ? value - edge : edge - value;
    return distance > 0 ? distance : 0;
}

/* Whether a finite element lies inside its limits; *ratio is its least explaining error over the
 * bound. `nearest` is the value rounded to bf16. numerics §5.8, last paragraph: rounding is
 * monotone, so the rounded interval is exact. */
static bool within(const struct tensor *t, const uint8_t *got, uint64_t i, double value,
                   double bound, uint16_t nearest, double *ratio)
{
    double g = element_value(t->dtype, got, i), distance;
    *ratio = INFINITY;
    if (isnan(value)) return isnan(g) ? (*ratio = 0, true) : false;
    if (isnan(g)) return false;
    if (isinf(value)) return g == value ? (*ratio = 0, true) : false;
    if (t->dtype == DTYPE_BF16) {
        uint16_t bits;
        memcpy(&bits, got + 2 * i, 2);
        *ratio = 0;
        if (bits == nearest && bound >= 0) return true; /* inside every rounded interval */
        double low = ref_bf16_to_f32(ref_bf16_from_f64(value - bound));
        double high = ref_bf16_to_f32(ref_bf16_from_f64(value + bound));
        distance = bf16_distance(bits, nearest, value);
        *ratio = distance == 0 ? 0 : distance / bound;
        return g >= low && g <= high;
    }
    if (isinf(g)) return false;
    distance = fabs(g - value);
    *ratio = distance == 0 ? 0 : distance / bound;
    return distance <= bound;
}

static bool is_nearest(const struct tensor *t, double got, double value, uint16_t nearest)
{
    return got == (t->dtype == DTYPE_BF16 ? bf16_value(nearest) : (double)(float)value);
}

static void compare_bound(const struct tensor *t, const uint8_t *got, const struct expected *e,
                          struct comparison *r, uint8_t *map)
{
    uint64_t n = tensor_logical_elems(t);
    double worst_wrong = -1;
    for (uint64_t i = 0; i < n; i++) {
        double value = e->value[i], bound = e->bound[i], ratio;
        if (isinf(bound) || isnan(bound)) {
            r->unjudged++;
            continue;
        }
        uint16_t nearest = t->dtype == DTYPE_BF16 ? compare_nearest_bf16(value) : 0;
        bool right = within(t, got, i, value, bound, nearest, &ratio);
        double g = element_value(t->dtype, got, i);
        r->compared++;
        r->nearest += is_nearest(t, g, value, nearest);
        if (isfinite(g) && isfinite(value)) {
            double ulp = fabs(g - value) / ulp_at(t->dtype, value);
            r->max_ulp = fmax(r->max_ulp, ulp);
            distribution_ulp(&r->spread, ulp);
        }
        if (right && ratio > 1) ratio = 1; /* an interval edge met exactly */
        distribution_ratio(&r->spread, ratio);
        if (ratio > r->worst_ratio) r->worst_ratio = ratio;
        if (right) continue;
        r->wrong++;
        if (map) map[i] = 1;
        if (ratio > worst_wrong) {
            worst_wrong = ratio;
            r->worst = i;
        }
    }
}

static void compare_exact(const struct tensor *t, const uint8_t *got, const struct expected *e,
                          struct comparison *r, uint8_t *map)
{
    uint64_t n = tensor_logical_elems(t);
    r->compared = n;
    if (!memcmp(got, e->exact, n * dtype_bytes(t->dtype))) return;
    for (uint64_t i = 0; i < n; i++) {
        if (same_element(t->dtype, got, e->exact, i)) continue;
        if (!r->wrong++) r->worst = i;
        if (map) map[i] = 1;
    }
}

static double largest_bound(const double *bound, uint32_t n)
{
    double largest = 0;
    for (uint32_t i = 0; i < n; i++) largest = fmax(largest, bound[i]);
    return largest;
}

static void compare_select(const struct tensor *t, const uint8_t *got, const struct expected *e,
                           struct comparison *r, uint8_t *map)
{
    uint64_t slots = t->shape[t->rank - 1], rows = tensor_logical_elems(t) / (slots ? slots : 1);
    double *scratch = malloc((4 * e->select_stride + 1) * sizeof *scratch);
    if (!scratch) { /* what was not judged must not pass */
        r->wrong = rows;
        snprintf(r->select.text, sizeof r->select.text, "no memory to judge the selection");
    }
    for (uint64_t row = 0; scratch && row < rows; row++) {
        struct ref_select_result s;
        const int32_t *set = (const int32_t *)(const void *)got + row * slots;
        ref_select_judge(e->select_value + row * e->select_stride,
                         e->select_bound + row * e->select_stride, e->select_n[row],
                         e->select_k[row], set, (uint32_t)slots, scratch, &s);
        r->compared += slots;
        r->identical += s.verdict == REF_SELECT_IDENTICAL;
        r->equivalent += s.verdict == REF_SELECT_EQUIVALENT;
        distribution_margin(&r->spread, s.margin,
                            largest_bound(e->select_bound + row * e->select_stride,
                                          e->select_n[row]));
        if (s.verdict != REF_SELECT_WRONG) continue;
        if (!r->wrong++) {
            r->select = s;
            r->select_row = row;
            r->worst = row * slots;
        }
        if (map) memset(map + row * slots, 1, slots);
    }
    free(scratch);
}

void compare_tensor(const struct tensor *t, const uint8_t *got, const struct expected *e,
                    struct comparison *r, uint8_t *wrong_map)
{
    memset(r, 0, sizeof *r);
    switch (t->contract) {
    case CONTRACT_EXACT: compare_exact(t, got, e, r, wrong_map); break;
    case CONTRACT_BOUND: compare_bound(t, got, e, r, wrong_map); break;
    case CONTRACT_SELECT: compare_select(t, got, e, r, wrong_map); break;
    case CONTRACT_ANY: break;
    }
}
