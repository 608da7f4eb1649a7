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

struct scan {
    int32_t lsb[LANES], msb[LANES];
    uint32_t special[LANES]; /* a NaN or infinity was seen */
    double max_abs[LANES], sum[LANES];
};

static inline uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* One element, without branches. */
static inline void scan_one(struct scan *s, int lane, float value)
{
    uint32_t bits = bits_of(value), field = bits >> 23 & 255, fraction = bits & 0x7fffff;
    uint32_t significand = field ? fraction | 0x800000 : fraction;
    int32_t unit = (int32_t)(field ? field : 1) - 150; /* of the significand's last bit */
    bool special = field == 255, counts = !special && significand;
    /* Both have at most 24 bits: the conversions are exact, and the exponents are the places. */
    uint32_t lowest = bits_of((float)(int32_t)(significand & (0 - significand))) >> 23;
    uint32_t highest = bits_of((float)(int32_t)significand) >> 23;
    int32_t lsb = counts ? unit + (int32_t)lowest - 127 : INT16_MAX;
    int32_t msb = counts ? unit + (int32_t)highest - 126 : INT16_MIN;
    double magnitude = special ? 0 : fabs((double)value);
    s->special[lane] |= special;
    s->lsb[lane] = lsb < s->lsb[lane] ? lsb : s->lsb[lane];
    s->msb[lane] = msb > s->msb[lane] ? msb : s->msb[lane];
    s->max_abs[lane] = magnitude > s->max_abs[lane] ? magnitude : s->max_abs[lane];
    s->sum[lane] += magnitude;
}

struct ref_vec ref_vec_scan(const float *at, size_t n)
{
    struct ref_vec vec = {.at = at, .n = n, .lsb = INT16_MAX, .msb = INT16_MIN, .finite = true};
    struct scan s = {0};
    double sum = 0;
    size_t i = 0;
    for (int lane = 0; lane < LANES; lane++) {
        s.lsb[lane] = INT16_MAX;
        s.msb[lane] = INT16_MIN;
    }
    for (; i + LANES <= n; i += LANES)
        for (int lane = 0; lane < LANES; lane++) scan_one(&s, lane, at[i + (size_t)lane]);
    for (int lane = 0; i < n; i++, lane++) scan_one(&s, lane, at[i]);
    for (int lane = 0; lane < LANES; lane++) {
        vec.lsb = s.lsb[lane] < vec.lsb ? s.lsb[lane] : vec.lsb;
        vec.msb = s.msb[lane] > vec.msb ? s.msb[lane] : vec.msb;
        vec.max_abs = s.max_abs[lane] > vec.max_abs ? s.max_abs[lane] : vec.max_abs;
        vec.finite = vec.finite && !s.special[lane];
        sum += s.sum[lane];
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
