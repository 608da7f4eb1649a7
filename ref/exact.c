#include "exact.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "bound.h"

/* Independent accumulators, so that the loops vectorise without reordering any sum. */
enum { LANES = 16 };

static int log2_ceil(size_t n)
{
    int bits = 0;
    while (((size_t)1 << bits) < n && bits < 63) bits++;
    return bits;
}

struct ref_vec ref_vec_scan(const float *at, size_t n)
{
    struct ref_vec vec = {.at = at, .n = n, .lsb = INT16_MAX, .msb = INT16_MIN, .finite = true};
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &at[i], sizeof bits);
        int exponent = (int)(bits >> 23 & 255);
        uint32_t significand = bits & 0x7fffff;
        if (exponent == 255) {
            vec.finite = false;
            continue;
        }
        if (exponent)
            significand |= 0x800000;
        else
            exponent = 1;
        if (!significand) continue;
        int unit = exponent - 150;
        int lsb = unit + __builtin_ctz(significand), msb = unit + 32 - __builtin_clz(significand);
        double magnitude = fabs((double)at[i]);
        vec.lsb = lsb < vec.lsb ? lsb : vec.lsb;
        vec.msb = msb > vec.msb ? msb : vec.msb;
        vec.max_abs = magnitude > vec.max_abs ? magnitude : vec.max_abs;
        sum += magnitude;
    }
    if (vec.lsb > vec.msb) vec.lsb = vec.msb = 0;
    vec.abs_sum = sum * (1.0 + 2.0 * ref_gamma((double)n + 1, REF_U_F64));
    if (!vec.finite) vec.abs_sum = vec.max_abs = INFINITY;
    return vec;
}

struct ref_dot ref_dot(const struct ref_vec *x, const struct ref_vec *y)
{
    double sum[LANES] = {0}, abs[LANES] = {0};
    size_t n = x->n, i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int lane = 0; lane < LANES; lane++) {
            double product = (double)x->at[i + lane] * (double)y->at[i + lane];
            sum[lane] += product;
            abs[lane] += fabs(product);
        }
    }
    for (int lane = 0; i < n; i++, lane++) {
        double product = (double)x->at[i] * (double)y->at[i];
        sum[lane] += product;
        abs[lane] += fabs(product);
    }
    for (int half = LANES / 2; half; half /= 2) {
        for (int lane = 0; lane < half; lane++) {
            sum[lane] += sum[lane + half];
            abs[lane] += abs[lane + half];
        }
    }
    /* A term passes at most one addition a stride and log2(LANES) in the tree (§5.1). */
    double gamma = ref_gamma((double)((n + LANES - 1) / LANES) + 4, REF_U_F64);
    struct ref_dot dot = {.value = sum[0], .abs = abs[0] * (1.0 + 2.0 * gamma)};
    /* Every partial sum is a multiple of 2^(lsb+lsb) below n*2^(msb+msb) (§4). */
    bool exact = x->msb - x->lsb + y->msb - y->lsb + log2_ceil(n) <= 53;
    dot.error = exact || !isfinite(dot.value) ? 0 : gamma * dot.abs;
    return dot;
}

/* A signed integer of 70 digits in base 2^32, in units of 2^-1074: any sum of doubles. */
enum { LIMBS = 70, LEAST_EXPONENT = -1074 };

struct accumulator {
    int64_t limb[LIMBS];
    uint32_t pending; /* additions since the last carry; a limb holds 2^30 of them */
};

static void carry(struct accumulator *acc)
{
    int64_t over = 0;
    for (int i = 0; i < LIMBS - 1; i++) {
        int64_t limb = acc->limb[i] + over;
        over = limb >> 32; /* floor */
        acc->limb[i] = limb - over * ((int64_t)1 << 32);
    }
    acc->limb[LIMBS - 1] += over;
    acc->pending = 0;
}

static void accumulate(struct accumulator *acc, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    int exponent = (int)(bits >> 52 & 0x7ff);
    uint64_t significand = bits & (((uint64_t)1 << 52) - 1);
    if (exponent)
        significand |= (uint64_t)1 << 52;
    else
        exponent = 1;
    int place = exponent - 1, index = place / 32;
    unsigned __int128 shifted = (unsigned __int128)significand << (place % 32);
    for (int i = 0; i < 3; i++) {
        int64_t digit = (int64_t)(uint32_t)(shifted >> (32 * i));
        acc->limb[index + i] += bits >> 63 ? -digit : digit;
    }
    if (++acc->pending == 1u << 30) carry(acc);
}

static double round_accumulator(struct accumulator *acc)
{
    carry(acc);
    bool negative = acc->limb[LIMBS - 1] < 0;
    if (negative) {
        for (int i = 0; i < LIMBS; i++) acc->limb[i] = -acc->limb[i];
        carry(acc);
    }
    int top = LIMBS - 1;
    while (top > 0 && !acc->limb[top]) top--;
    unsigned __int128 leading = 0;
    for (int i = top; i > top - 3; i--)
        leading = leading << 32 | (i >= 0 ? (uint64_t)acc->limb[i] : 0);
    bool sticky = false;
    for (int i = 0; i < top - 2; i++) sticky |= acc->limb[i] != 0;
    /* With sticky, leading has more than 64 bits: its last bit lies below the rounding point. A
     * result below 2^-1022 has no more bits than a subnormal holds. */
    double value = ldexp((double)(leading | sticky), 32 * (top - 2) + LEAST_EXPONENT);
    return negative ? -value : value;
}

double ref_sum_exact(const double *x, size_t n)
{
    struct accumulator acc = {0};
    double special = 0;
    for (size_t i = 0; i < n; i++) {
        if (isfinite(x[i]))
            accumulate(&acc, x[i]);
        else
            special += x[i];
    }
    return special == 0 ? round_accumulator(&acc) : special;
}

/* The sum as an integer in units of 2^(lsb+lsb), where 126 bits hold it. */
static double dot_int128(const struct ref_vec *x, const struct ref_vec *y)
{
    double x_unit = ldexp(1.0, -x->lsb), y_unit = ldexp(1.0, -y->lsb);
    __int128 sum = 0;
    for (size_t i = 0; i < x->n; i++)
        sum += (__int128)(int64_t)(x->at[i] * x_unit) * (int64_t)(y->at[i] * y_unit);
    return ldexp((double)sum, x->lsb + y->lsb);
}

double ref_dot_exact(const float *x, const float *y, size_t n)
{
    struct ref_vec a = ref_vec_scan(x, n), b = ref_vec_scan(y, n);
    int a_bits = a.msb - a.lsb, b_bits = b.msb - b.lsb, bits = a_bits + b_bits + log2_ceil(n);
    if (!a.finite || !b.finite || bits <= 53) return ref_dot(&a, &b).value + 0.0; /* no -0 */
    if (a_bits <= 62 && b_bits <= 62 && bits <= 126) return dot_int128(&a, &b);
    struct accumulator acc = {0};
    for (size_t i = 0; i < n; i++) accumulate(&acc, (double)x[i] * (double)y[i]);
    return round_accumulator(&acc);
}
