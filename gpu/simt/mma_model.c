#include "mma_model.h"

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

/* The operands of an instruction taken apart once: every element of a and b is used many times. */
struct split_tile {
    int32_t a_significand[SIMT_MMA_M][SIMT_MMA_K], a_label[SIMT_MMA_M][SIMT_MMA_K];
    int32_t b_significand[SIMT_MMA_K][SIMT_MMA_N], b_label[SIMT_MMA_K][SIMT_MMA_N];
    int32_t a_sign[SIMT_MMA_M][SIMT_MMA_K], b_sign[SIMT_MMA_K][SIMT_MMA_N]; /* 0 or -1 */
    uint8_t a_kind[SIMT_MMA_M], b_kind[SIMT_MMA_N]; /* of a row and of a column: bits of kind_of */
};

enum { SPECIAL = 1, IS_NAN = 2 };

static uint8_t kind_of(uint16_t x)
{
    uint32_t magnitude = x & 0x7fff;

    return magnitude < 0x7f80 ? 0 : magnitude == 0x7f80 ? SPECIAL : SPECIAL | IS_NAN;
}

static void split_operands(struct split_tile *tile, const uint16_t *a, const uint16_t *b)
{
    memset(tile->a_kind, 0, sizeof tile->a_kind);
    memset(tile->b_kind, 0, sizeof tile->b_kind);
    for (int i = 0; i < SIMT_MMA_M; i++) {
        for (int k = 0; k < SIMT_MMA_K; k++) {
            uint16_t x = a[i * SIMT_MMA_K + k];

            split_bf16(x, &tile->a_significand[i][k], &tile->a_label[i][k]);
            tile->a_sign[i][k] = -(x >> 15);
            tile->a_kind[i] |= kind_of(x);
        }
    }
    for (int k = 0; k < SIMT_MMA_K; k++) {
        for (int j = 0; j < SIMT_MMA_N; j++) {
            uint16_t x = b[k * SIMT_MMA_N + j];

            split_bf16(x, &tile->b_significand[k][j], &tile->b_label[k][j]);
            tile->b_sign[k][j] = -(x >> 15);
            tile->b_kind[j] |= kind_of(x);
        }
    }
}

/* One fused step for the eight columns of row i, products [from, to). The loops over j become
 * vector instructions. Sixteen products of at most 255^2 * 2^11 stay below 2^31. */
static void fused_row(const struct split_tile *tile, struct steps steps, int i, int from, int to,
                      float *d, const float *c)
{
    int32_t top[SIMT_MMA_N], sum[SIMT_MMA_N] = {0};
    int32_t c_significand[SIMT_MMA_N], c_label[SIMT_MMA_N];

    for (int j = 0; j < SIMT_MMA_N; j++) {
        split_f32(c[j], &c_significand[j], &c_label[j]);
        top[j] = max_label(LOWEST_LABEL, c_label[j]);
    }
    for (int k = from; k < to; k++)
        for (int j = 0; j < SIMT_MMA_N; j++)
            top[j] = max_label(top[j], tile->a_label[i][k] + tile->b_label[k][j]);
    for (int k = from; k < to; k++) {
        for (int j = 0; j < SIMT_MMA_N; j++) {
            int32_t down = top[j] - (tile->a_label[i][k] + tile->b_label[k][j]);
            int32_t sign = tile->a_sign[i][k] ^ tile->b_sign[k][j];
            uint32_t product = (uint32_t)(tile->a_significand[i][k] * tile->b_significand[k][j]);
            int32_t term =
                (int32_t)(product << (steps.fraction_bits - 14) >> (down > 31 ? 31 : down));

            sum[j] += (term ^ sign) - sign;
        }
    }
    for (int j = 0; j < SIMT_MMA_N; j++) {
        int64_t term = aligned(c_significand[j], steps.fraction_bits - 23, top[j] - c_label[j]);

        d[j] = truncate_to_f32(sum[j] + (bits_of(c[j]) >> 31 ? -term : term),
                               top[j] - steps.fraction_bits);
    }
}

/* Rows and columns with a NaN in them are NaN; those with an infinity go the slow way, element by
 * element. */
static void special_row(const struct split_tile *tile, uint32_t arch, int i, float *d,
                        const uint16_t *a, const uint16_t *b, const float *c)
{
    uint16_t column[SIMT_MMA_K];

    for (int j = 0; j < SIMT_MMA_N; j++) {
        uint8_t kind = tile->a_kind[i] | tile->b_kind[j];

        if (kind == 0 && (bits_of(c[j]) & 0x7f800000) < 0x7f800000) continue;
        if ((kind & IS_NAN) || (bits_of(c[j]) & 0x7fffffff) > 0x7f800000) {
            d[j] = float_of(0x7fffffff);
            continue;
        }
        for (int k = 0; k < SIMT_MMA_K; k++) column[k] = b[k * SIMT_MMA_N + j];
        d[j] = simt_mma_dot(arch, a + i * SIMT_MMA_K, column, SIMT_MMA_K, c[j]);
    }
}

void simt_mma_tile(uint32_t arch, float *d, const uint16_t *a, const uint16_t *b, const float *c)
{
    struct steps steps = steps_of(arch);
    struct split_tile tile;
    float row[SIMT_MMA_N], result[SIMT_MMA_N];

    split_operands(&tile, a, b);
    for (int i = 0; i < SIMT_MMA_M; i++) {
        memcpy(row, c + i * SIMT_MMA_N, sizeof row);
        memcpy(result, row, sizeof row);
        for (int k = 0; k < SIMT_MMA_K && !(tile.a_kind[i] & IS_NAN); k += (int)steps.products)
            fused_row(&tile, steps, i, k, k + (int)steps.products, result, result);
        special_row(&tile, arch, i, result, a, b, row);
        memcpy(d + i * SIMT_MMA_N, result, sizeof result);
    }
}

void simt_mma_warp(uint32_t arch, const struct simt_mma_operands *const operands[SIMT_WARP])
{
    uint32_t a[SIMT_MMA_M][SIMT_MMA_K / 2];
    uint16_t b[SIMT_MMA_K][SIMT_MMA_N], a_halves[SIMT_MMA_M * SIMT_MMA_K];
    float c[SIMT_MMA_M][SIMT_MMA_N];

    for (uint32_t lane = 0; lane < SIMT_WARP; lane++) {
        const struct simt_mma_operands *mine = operands[lane];
        uint32_t group = lane / 4, t = lane % 4;

        for (uint32_t r = 0; r < 4; r++) a[group + r % 2 * 8][t + r / 2 * 4] = mine->a[r];
        for (uint32_t r = 0; r < 2; r++) {
            b[2 * t + 8 * r][group] = (uint16_t)mine->b[r];
            b[2 * t + 8 * r + 1][group] = (uint16_t)(mine->b[r] >> 16);
        }
        for (uint32_t r = 0; r < 4; r++) c[group + r / 2 * 8][2 * t + r % 2] = mine->c[r];
    }
    memcpy(a_halves, a, sizeof a_halves); /* the lower half is the lower column */
    simt_mma_tile(arch, &c[0][0], a_halves, &b[0][0], &c[0][0]);
    for (uint32_t lane = 0; lane < SIMT_WARP; lane++)
        for (uint32_t r = 0; r < 4; r++)
            operands[lane]->d[r] = c[lane / 4 + r / 2 * 8][2 * (lane % 4) + r % 2];
}
