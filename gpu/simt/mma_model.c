#include "mma_model.h"

#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

/* Below the smallest label that any term can have: that of a zero, which takes no part. Sums of two
 * stay far from wrapping. */
#define NO_LABEL (-4096)
#define LOWEST_LABEL (-133)

struct steps {
    int fraction_bits;
    uint32_t products; /* in one fused step */
};

static struct steps steps_of(uint32_t arch)
{
    return arch >= 80 && arch < 90 ? (struct steps){24, 8} : (struct steps){25, 16};
}

static uint32_t bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

/* A bf16 is the upper half of the f32 with its value. |x| = significand * 2^(label - 7). */
static void split_bf16(uint16_t x, int32_t *significand, int32_t *label)
{
    int32_t exponent = x >> 7 & 0xff;
    int32_t fraction = x & 0x7f;

    *significand = exponent ? fraction | 0x80 : fraction;
    *label = (exponent ? exponent : 1) - 127;
    if (*significand == 0) *label = NO_LABEL;
}

/* |c| = significand * 2^(label - 23). */
static void split_f32(float c, int32_t *significand, int32_t *label)
{
    uint32_t bits = bits_of(c);
    int32_t exponent = (int32_t)(bits >> 23 & 0xff);
    int32_t fraction = (int32_t)(bits & 0x7fffff);

    *significand = exponent ? fraction | 0x800000 : fraction;
    *label = (exponent ? exponent : 1) - 127;
    if (*significand == 0) *label = NO_LABEL;
}

/* sum * 2^exponent truncated toward zero to f32. |sum| < 2^53 and every exponent here keeps the
 * product inside double's normal range, so only the two truncations lose bits. */
static float truncate_to_f32(int64_t sum, int32_t exponent)
{
    uint64_t scale_bits = (uint64_t)(1023 + exponent) << 52, bits;
    double scale, value;

    memcpy(&scale, &scale_bits, sizeof scale);
    value = (double)sum * scale;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffffffffff) < 0x3810000000000000) { /* below 2^-126: a multiple of 2^-149 */
        int64_t units = (int64_t)(value * 0x1p149);
        uint32_t magnitude = (uint32_t)(units < 0 ? -units : units);

        return float_of(magnitude | (units < 0 ? 0x80000000u : 0));
    }
    bits &= ~(uint64_t)0x1fffffff; /* 52 - 23 bits */
    memcpy(&value, &bits, sizeof value);
    return (float)value;
}

static int32_t max_label(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

/* A significand with `spare` bits below it inside the quantum's grid, moved down to where its label
 * puts it. Dropped bits are simply gone, whatever the sign. */
static int64_t aligned(int64_t significand, int spare, int32_t down)
{
    return down > 62 ? 0 : (significand << spare) >> down;
}

static float fused_step(struct steps steps, const uint16_t *a, const uint16_t *b, uint32_t n,
                        float c)
{
    int32_t significands[16], labels[16], c_significand, c_label, top = LOWEST_LABEL;
    int64_t sum;

    split_f32(c, &c_significand, &c_label);
    top = max_label(top, c_label);
    for (uint32_t i = 0; i < n; i++) {
        int32_t sa, sb, la, lb;

        split_bf16(a[i], &sa, &la);
        split_bf16(b[i], &sb, &lb);
        significands[i] = sa * sb;
        labels[i] = la + lb;
        if (significands[i] != 0) top = max_label(top, labels[i]);
    }
    /* One quantum is 2^(top - F); c ends 23 bits below its label and a product 14 below its. */
    sum = aligned(c_significand, steps.fraction_bits - 23, top - c_label);
    if (bits_of(c) >> 31) sum = -sum;
    for (uint32_t i = 0; i < n; i++) {
        int64_t term = aligned(significands[i], steps.fraction_bits - 14, top - labels[i]);

        sum += (a[i] ^ b[i]) & 0x8000 ? -term : term;
    }
    return truncate_to_f32(sum, top - steps.fraction_bits);
}

/* Infinities and NaN decide the result before any arithmetic. False when there are none. */
static bool special_result(const uint16_t *a, const uint16_t *b, uint32_t k, float c, float *result)
{
    uint32_t c_bits = bits_of(c), magnitude = c_bits & 0x7fffffff;
    bool nan = magnitude > 0x7f800000, plus = c_bits == 0x7f800000, minus = c_bits == 0xff800000;

    for (uint32_t i = 0; i < k; i++) {
        uint32_t ma = a[i] & 0x7fff, mb = b[i] & 0x7fff;

        if (ma < 0x7f80 && mb < 0x7f80) continue;
        if (ma > 0x7f80 || mb > 0x7f80 || ma == 0 || mb == 0)
            nan = true;
        else if ((a[i] ^ b[i]) & 0x8000)
            minus = true;
        else
            plus = true;
    }
    if (nan || (plus && minus))
        *result = float_of(0x7fffffff);
    else if (plus)
        *result = float_of(0x7f800000);
    else if (minus)
        *result = float_of(0xff800000);
    return nan || plus || minus;
}

float simt_mma_dot(uint32_t arch, const uint16_t *a, const uint16_t *b, uint32_t k, float c)
{
    struct steps steps = steps_of(arch);
    uint32_t n;

    for (uint32_t at = 0; at < k; at += n) {
        n = k - at < steps.products ? k - at : steps.products;
        if (!special_result(a + at, b + at, n, c, &c)) c = fused_step(steps, a + at, b + at, n, c);
    }
    return c;
}

/* What follows does the 128 elements of an instruction eight columns at a time, in f32 arithmetic
 * that is exact where it matters, and hands what it cannot do to simt_mma_dot.
 *
 * With top the largest label of a column's terms, a term truncated to the quantum 2^(top - F) is
 * cvtt(x * 2^(F - top)). For x = c and x = a b that is exact if -98 <= top <= 120: a product with a
 * label above -127 is a normal f32 of 16 bits, one with a smaller label is less than 2^-125, and so
 * is what it rounds to: times 2^(F - top) <= 2^123 it is below 1 and counts as 0, as it should,
 * being below the quantum. Sixteen products of at most 255^2 * 2^11 stay below 2^31; c joins them
 * in double. No sum is below 2^-123, so the result needs no subnormals. */
enum { TOP_LEAST = (127 - 98) << 23, TOP_MOST = (127 + 120) << 23, EXPONENT = 0x7f800000 };

typedef float f32x8 __attribute__((vector_size(32)));
typedef int32_t i32x8 __attribute__((vector_size(32)));
typedef double f64x8 __attribute__((vector_size(64)));
typedef int64_t i64x8 __attribute__((vector_size(64)));

/* The operands of an instruction as f32, k in the order of words' lower and upper halves. A power
 * is 2^label of the element, 0 for a zero. */
struct operands {
    float a[SIMT_MMA_M][SIMT_MMA_K], a_power[SIMT_MMA_M][SIMT_MMA_K];
    f32x8 b[SIMT_MMA_K], b_power[SIMT_MMA_K];
    i32x8 special_column; /* -1 where a column has an infinity or NaN */
    bool special_row[SIMT_MMA_M];
};

static i32x8 powers_of(i32x8 bits)
{
    i32x8 exponent = bits & EXPONENT, least = exponent - exponent + 0x00800000;

    return __builtin_elementwise_max(exponent, least) & ((bits & 0x7fffffff) != 0);
}

static bool any(i32x8 mask)
{
    int32_t all = 0;

    for (int j = 0; j < SIMT_MMA_N; j++) all |= mask[j];
    return all != 0;
}

/* a and b in words of two bf16 with neighbouring k, the lower first. */
static void take_apart(struct operands *o, const uint32_t a[SIMT_MMA_M][SIMT_MMA_K / 2],
                       const uint32_t b[SIMT_MMA_K / 2][SIMT_MMA_N])
{
    o->special_column = (i32x8){0};
    for (int w = 0; w < SIMT_MMA_K / 2; w++) {
        i32x8 words, halves[2];

        memcpy(&words, b[w], sizeof words);
        halves[0] = words << 16;
        halves[1] = words & (int32_t)0xffff0000;
        for (int h = 0; h < 2; h++) {
            o->b[2 * w + h] = (f32x8)halves[h];
            o->b_power[2 * w + h] = (f32x8)powers_of(halves[h]);
            o->special_column |= (halves[h] & EXPONENT) == EXPONENT;
        }
    }
    for (int i = 0; i < SIMT_MMA_M; i++) {
        i32x8 words, lower, upper, lower_power, upper_power;

        memcpy(&words, a[i], sizeof words);
        lower = words << 16;
        upper = words & (int32_t)0xffff0000;
        lower_power = powers_of(lower);
        upper_power = powers_of(upper);
        memcpy(&o->a[i][0], &lower, sizeof lower);
        memcpy(&o->a[i][8], &upper, sizeof upper);
        memcpy(&o->a_power[i][0], &lower_power, sizeof lower);
        memcpy(&o->a_power[i][8], &upper_power, sizeof upper);
        o->special_row[i] = any((lower_power == EXPONENT) | (upper_power == EXPONENT));
    }
}

/* Truncates; what is no int32_t gives INT32_MIN. */
static i32x8 truncated(f32x8 x)
{
#ifdef __AVX__
    return (i32x8)_mm256_cvttps_epi32((__m256)x);
#else
    union {
        f32x8 x;
        __m128 half[2];
    } from = {x};
    union {
        __m128i half[2];
        i32x8 result;
    } to = {{_mm_cvttps_epi32(from.half[0]), _mm_cvttps_epi32(from.half[1])}};

    return to.result;
#endif
}

/* One fused step for the eight columns of row i, words [from, to). Returns -1 for columns that it
 * cannot do. */
static i32x8 fused_row(const struct operands *o, int fraction_bits, int i, int from, int to,
                       f32x8 *c)
{
    i32x8 top = (i32x8)*c & EXPONENT, sum = {0}, cannot;
    f32x8 scale, quantum;
    f64x8 value;

    for (int w = from; w < to; w++) {
        top = __builtin_elementwise_max(top, (i32x8)(o->a_power[i][w] * o->b_power[2 * w]));
        top = __builtin_elementwise_max(top, (i32x8)(o->a_power[i][8 + w] * o->b_power[2 * w + 1]));
    }
    cannot =
        ((top < TOP_LEAST) | (top > TOP_MOST)) & ~((top == 0) & (((i32x8)*c & 0x7fffffff) == 0));
    top = __builtin_elementwise_max(top, top - top + TOP_LEAST);
    scale = (f32x8)(((254 + fraction_bits) << 23) - top);
    quantum = (f32x8)(top - (fraction_bits << 23));
    for (int w = from; w < to; w++) {
        sum += truncated(o->a[i][w] * o->b[2 * w] * scale);
        sum += truncated(o->a[i][8 + w] * o->b[2 * w + 1] * scale);
    }
    value =
        __builtin_convertvector(sum, f64x8) + __builtin_convertvector(truncated(*c * scale), f64x8);
    value *= __builtin_convertvector(quantum, f64x8);
    value = (f64x8)((i64x8)value & ~(int64_t)0x1fffffff); /* 52 - 23 bits */
    *c = __builtin_convertvector(value, f32x8);
    return cannot;
}

/* The element in row i and column j the general way. */
static float element(uint32_t arch, const uint32_t a[SIMT_MMA_K / 2],
                     const uint32_t b[SIMT_MMA_K / 2][SIMT_MMA_N], int j, float c)
{
    uint32_t column[SIMT_MMA_K / 2];
    uint16_t a_halves[SIMT_MMA_K], b_halves[SIMT_MMA_K];

    for (int w = 0; w < SIMT_MMA_K / 2; w++) column[w] = b[w][j];
    memcpy(a_halves, a, sizeof a_halves); /* the lower half is the lower k */
    memcpy(b_halves, column, sizeof b_halves);
    return simt_mma_dot(arch, a_halves, b_halves, SIMT_MMA_K, c);
}

static void multiply(uint32_t arch, float *d, const uint32_t a[SIMT_MMA_M][SIMT_MMA_K / 2],
                     const uint32_t b[SIMT_MMA_K / 2][SIMT_MMA_N], const float *c)
{
    struct steps steps = steps_of(arch);
    int words = (int)steps.products / 2;
    struct operands o;

    take_apart(&o, a, b);
    for (int i = 0; i < SIMT_MMA_M; i++, c += SIMT_MMA_N, d += SIMT_MMA_N) {
        f32x8 before, after;
        i32x8 cannot;

        memcpy(&before, c, sizeof before);
        after = before;
        cannot = o.special_column - o.special_row[i];
        cannot |= ((i32x8)before & EXPONENT) == EXPONENT;
        for (int w = 0; w < SIMT_MMA_K / 2; w += words)
            cannot |= fused_row(&o, steps.fraction_bits, i, w, w + words, &after);
        memcpy(d, &after, sizeof after);
        if (!any(cannot)) continue;
        for (int j = 0; j < SIMT_MMA_N; j++)
            if (cannot[j]) d[j] = element(arch, a[i], b, j, before[j]);
    }
}

void simt_mma_tile(uint32_t arch, float *d, const uint16_t *a, const uint16_t *b, const float *c)
{
    uint32_t a_words[SIMT_MMA_M][SIMT_MMA_K / 2], b_words[SIMT_MMA_K / 2][SIMT_MMA_N];

    memcpy(a_words, a, sizeof a_words);
    for (int w = 0; w < SIMT_MMA_K / 2; w++)
        for (int j = 0; j < SIMT_MMA_N; j++)
            b_words[w][j] = b[2 * w * SIMT_MMA_N + j] | (uint32_t)b[(2 * w + 1) * SIMT_MMA_N + j]
                                                            << 16;
    multiply(arch, d, a_words, b_words, c);
}

void simt_mma_warp(uint32_t arch, const struct simt_mma_operands *const operands[SIMT_WARP])
{
    uint32_t a[SIMT_MMA_M][SIMT_MMA_K / 2], b[SIMT_MMA_K / 2][SIMT_MMA_N];
    float c[SIMT_MMA_M][SIMT_MMA_N];

    for (uint32_t lane = 0; lane < SIMT_WARP; lane++) {
        const struct simt_mma_operands *mine = operands[lane];
        uint32_t group = lane / 4, t = lane % 4;

        for (uint32_t r = 0; r < 4; r++) a[group + r % 2 * 8][t + r / 2 * 4] = mine->a[r];
        for (uint32_t r = 0; r < 2; r++) b[t + 4 * r][group] = mine->b[r];
        for (uint32_t r = 0; r < 2; r++) memcpy(&c[group + r * 8][2 * t], &mine->c[2 * r], 8);
    }
    multiply(arch, &c[0][0], a, b, &c[0][0]);
    for (uint32_t lane = 0; lane < SIMT_WARP; lane++)
        for (uint32_t r = 0; r < 2; r++)
            memcpy(&operands[lane]->d[2 * r], &c[lane / 4 + r * 8][2 * (lane % 4)], 8);
}
