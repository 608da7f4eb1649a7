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
 * in double.
 *
 * a and c, and with them all labels, are first raised by 2^100. Then only labels of -133 and more
 * count, so top is never below -33, and the limit above is 20 before raising. Columns above it are
 * done once more without raising. */
enum { EXPONENT = 0x7f800000, MAGNITUDE = 0x7fffffff, RAISED_BY = 100 };
#define POWER(label) ((127 + (label)) << 23)

typedef float f32x8 __attribute__((vector_size(32)));
typedef int32_t i32x8 __attribute__((vector_size(32)));
typedef double f64x8 __attribute__((vector_size(64)));
typedef int64_t i64x8 __attribute__((vector_size(64)));

/* The operands of an instruction as f32. a: [lower or upper half of a word], k / 2; b in the order
 * of k. A power is 2^label of the element, 0 for a zero. */
struct operands {
    f32x8 a[SIMT_MMA_M][2], a_power[SIMT_MMA_M][2];
    f32x8 b[SIMT_MMA_K], b_power[SIMT_MMA_K];
    i32x8 special_column, nan_column; /* -1 where a column has an infinity or NaN, or a NaN */
};

static inline i32x8 larger(i32x8 a, i32x8 b)
{
    return __builtin_elementwise_max(a, b);
}

static inline i32x8 all(int32_t x)
{
    return (i32x8){x, x, x, x, x, x, x, x};
}

static inline i32x8 powers_of(i32x8 bits)
{
    return larger(bits & EXPONENT, all(POWER(-126))) & ((bits & MAGNITUDE) != 0);
}

static inline bool any(i32x8 mask)
{
    int32_t bits = 0;

    for (int j = 0; j < SIMT_MMA_N; j++) bits |= mask[j];
    return bits != 0;
}

static inline i32x8 choose(i32x8 mask, i32x8 yes, i32x8 no)
{
    return (mask & yes) | (~mask & no);
}

/* The lower (0) or upper (1) bf16 of words, as f32. */
static inline i32x8 half_of(const uint32_t words[8], int half)
{
    i32x8 all_words;

    memcpy(&all_words, words, sizeof all_words);
    return half ? all_words & (int32_t)0xffff0000 : all_words << 16;
}

/* a and b in words of two bf16 with neighbouring k, the lower first. */
static void take_apart(struct operands *o, const uint32_t a[SIMT_MMA_M][SIMT_MMA_K / 2],
                       const uint32_t b[SIMT_MMA_K / 2][SIMT_MMA_N])
{
    o->special_column = o->nan_column = all(0);
    for (int k = 0; k < SIMT_MMA_K; k++) {
        i32x8 bits = half_of(b[k / 2], k % 2);

        o->b[k] = (f32x8)bits;
        o->b_power[k] = (f32x8)powers_of(bits);
        o->special_column |= (bits & EXPONENT) == EXPONENT;
        o->nan_column |= (bits & MAGNITUDE) > EXPONENT;
    }
    for (int i = 0; i < SIMT_MMA_M; i++) {
        for (int half = 0; half < 2; half++) {
            i32x8 bits = half_of(a[i], half);

            o->a[i][half] = (f32x8)bits;
            o->a_power[i][half] = (f32x8)powers_of(bits);
        }
    }
}

/* Truncates; what is no int32_t gives INT32_MIN. */
static inline i32x8 truncated(f32x8 x)
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

/* Truncated to f32. A subnormal is a multiple of 2^-149. */
static inline f32x8 narrowed(const f64x8 *wide)
{
    f64x8 value = *wide;
    i64x8 bits = (i64x8)value;
    i64x8 small = (bits & INT64_MAX) < 0x3810000000000000; /* below 2^-126 */
    f64x8 normal = (f64x8)(bits & ~(int64_t)0x1fffffff);   /* 52 - 23 bits */

    if (any(__builtin_convertvector(small & (bits != 0), i32x8))) {
        f64x8 units = (f64x8)((i64x8)(value * 0x1p149) & small);

        units = __builtin_convertvector(__builtin_convertvector(units, i32x8), f64x8) * 0x1p-149;
        normal = (f64x8)((small & (i64x8)units) | (~small & (i64x8)normal));
    }
    return __builtin_convertvector(normal, f32x8);
}

/* A row of a and of its powers by word and half, raised by a power of two. */
struct row {
    float a[2][8], power[2][8], raise;
};

static void raise_row(const struct operands *o, int i, float raise, struct row *row)
{
    row->raise = raise;
    for (int half = 0; half < 2; half++) {
        f32x8 a = o->a[i][half] * raise, power = o->a_power[i][half] * raise;

        memcpy(row->a[half], &a, sizeof a);
        memcpy(row->power[half], &power, sizeof power);
    }
}

/* One fused step for the eight columns of a row, words [from, to). Returns -1 for columns that it
 * cannot do. */
static inline i32x8 fused_row(const struct operands *o, const struct row *row, int fraction_bits,
                              int from, int to, f32x8 *c)
{
    i32x8 top = (i32x8)((f32x8)powers_of((i32x8)*c) * row->raise), sum = all(0), cannot;
    f32x8 scale, quantum;
    f64x8 value;

    if (row->raise != 1) top = larger(top, all(POWER(LOWEST_LABEL + RAISED_BY)));
    for (int w = from; w < to; w++) {
        top = larger(top, (i32x8)(row->power[0][w] * o->b_power[2 * w]));
        top = larger(top, (i32x8)(row->power[1][w] * o->b_power[2 * w + 1]));
    }
    cannot = (top < POWER(-98)) | (top > POWER(120));
    top = choose(cannot, all(POWER(0)), top);
    scale = (f32x8)(POWER(fraction_bits) + POWER(0) - top);
    quantum = (f32x8)(top - (fraction_bits << 23));
    for (int w = from; w < to; w++) {
        sum += truncated(row->a[0][w] * o->b[2 * w] * scale);
        sum += truncated(row->a[1][w] * o->b[2 * w + 1] * scale);
    }
    value = __builtin_convertvector(sum, f64x8) +
            __builtin_convertvector(truncated(*c * row->raise * scale), f64x8);
    value *= __builtin_convertvector(quantum, f64x8) * (1 / (double)row->raise);
    *c = narrowed(&value);
    return cannot;
}

/* All steps of row i. A factor above 2^20 is not raised: it could become infinite. */
static inline i32x8 whole_row(const struct operands *o, struct steps steps, int i, f32x8 *c)
{
    int words = (int)steps.products / 2;
    i32x8 largest = larger((i32x8)o->a_power[i][0], (i32x8)o->a_power[i][1]);
    i32x8 cannot = largest > POWER(20), again = all(0);
    f32x8 plain = *c;
    struct row row;

    if (any(largest == EXPONENT)) return all(-1);
    if (!any(cannot)) {
        raise_row(o, i, 0x1p100f, &row);
        for (int w = 0; w < SIMT_MMA_K / 2; w += words)
            cannot |= fused_row(o, &row, steps.fraction_bits, w, w + words, c);
        if (!any(cannot)) return cannot;
    } else {
        cannot = all(-1);
    }
    raise_row(o, i, 1, &row);
    for (int w = 0; w < SIMT_MMA_K / 2; w += words)
        again |= fused_row(o, &row, steps.fraction_bits, w, w + words, &plain);
    *c = (f32x8)choose(cannot, (i32x8)plain, (i32x8)*c);
    return cannot & again;
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
    struct operands o;

    take_apart(&o, a, b);
    for (int i = 0; i < SIMT_MMA_M; i++, c += SIMT_MMA_N, d += SIMT_MMA_N) {
        f32x8 before, after;
        i32x8 cannot, nan;

        memcpy(&before, c, sizeof before);
        after = before;
        nan = o.nan_column | (((i32x8)before & MAGNITUDE) > EXPONENT);
        cannot = whole_row(&o, steps, i, &after) | o.special_column |
                 (((i32x8)before & EXPONENT) == EXPONENT);
        after = (f32x8)choose(nan, all(MAGNITUDE), (i32x8)after);
        cannot &= ~nan;
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
