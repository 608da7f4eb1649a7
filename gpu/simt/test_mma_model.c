/* The tensor-core model against the vectors that tell architectures apart, and against a second
 * formulation in whole numbers that shares nothing with it. */
#include "mma_model.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

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

/* Exact: only powers of two and short significands come in. */
static uint16_t bf16(double x)
{
    uint32_t bits = bits_of((float)x);

    cr_assert((bits & 0xffff) == 0 && (double)float_of(bits) == x, "%a is no bf16", x);
    return (uint16_t)(bits >> 16);
}

struct vector {
    const char *what;
    float c;
    int n; /* products set; the rest are 0 */
    struct {
        int k;
        double a, b;
    } products[16];
    double rest; /* value of both factors of every other product */
    uint32_t sm90, sm80;
};

#define P12 0x1p-12
static const struct vector vectors[] = {
    {"two quarter ulps", 1, 2, {{0, P12, P12}, {1, P12, P12}}, 0, 0x3f800001, 0x3f800001},
    {"four eighths",
     1,
     4,
     {{0, P12, 0x1p-13}, {1, P12, 0x1p-13}, {2, P12, 0x1p-13}, {3, P12, 0x1p-13}},
     0,
     0x3f800001,
     0x3f800000},
    {"sixteen sixteenths", 1, 0, {{0, 0, 0}}, 0x1p-13, 0x3f800000, 0x3f800000},
    {"toward zero, not down", -1, 1, {{0, -P12, P12}}, 0, 0xbf800000, 0xbf800000},
    {"sixteen in one step",
     0,
     2,
     {{0, 0x1p15, 0x1p15}, {7, -0x1p15, 0x1p15}},
     1,
     0x00000000,
     0x41000000},
    {"labels of products as they are",
     0,
     3,
     {{0, 1.9921875, 1.9921875}, {1, -1.9921875, 1.9921875}, {2, 0x1p-13, P12}},
     0,
     0x33000000,
     0x00000000},
};

static void fill(const struct vector *v, uint16_t a[16], uint16_t b[16])
{
    for (int k = 0; k < 16; k++) a[k] = b[k] = bf16(v->rest);
    for (int i = 0; i < v->n; i++) {
        a[v->products[i].k] = bf16(v->products[i].a);
        b[v->products[i].k] = bf16(v->products[i].b);
    }
}

Test(simt_mma, discriminating_vectors)
{
    static const uint32_t archs[] = {80, 86, 89, 90, 100, 120, 121, 0};

    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        uint16_t a[16], b[16];

        fill(&vectors[i], a, b);
        for (size_t j = 0; j < sizeof archs / sizeof *archs; j++) {
            uint32_t want = archs[j] >= 80 && archs[j] < 90 ? vectors[i].sm80 : vectors[i].sm90;
            uint32_t got = bits_of(simt_mma_dot(archs[j], a, b, 16, vectors[i].c));

            cr_assert_eq(got, want, "%s on %u: %08x, not %08x", vectors[i].what, archs[j], got,
                         want);
        }
    }
}

/* The published output in the subnormal range that fixes the lowest label (numerics 1.1): a sum of
 * terms that the quantum 2^-158 keeps and that a label of -126 for zero would cut. */
Test(simt_mma, lowest_label)
{
    uint16_t a[16] = {0}, b[16] = {0};

    /* 4 * 2^-151 = 2^-149. With the quantum at 2^-(126+25) = 2^-151 these stay, at 2^-149 they
     * would not; 4 * 2^-153 = 2^-151 tells -133 from -126: below a unit either way, so 16 * 2^-153.
     */
    for (int k = 0; k < 16; k++) {
        a[k] = bf16(0x1p-100);
        b[k] = bf16(0x1p-53);
    }
    cr_assert_eq(bits_of(simt_mma_dot(90, a, b, 16, 0.0f)), 1);
    /* At the label's limit: 16 * 2^-158 is under half a unit of 2^-149 but not lost before the sum,
     * and 2^-159 is below the quantum. */
    for (int k = 0; k < 16; k++) b[k] = bf16(0x1p-58);
    a[0] = bf16(0x1.fep-100); /* 1.9921875 * 2^-49 */
    b[0] = bf16(0x1p-49);
    /* 1.9921875 units and 15/512 of one: 2.02, truncated to 2. */
    cr_assert_eq(bits_of(simt_mma_dot(90, a, b, 16, 0.0f)), 2);
    for (int k = 1; k < 16; k++) b[k] = bf16(0x1p-59);
    cr_assert_eq(bits_of(simt_mma_dot(90, a, b, 16, 0.0f)), 1);
}

Test(simt_mma, specials)
{
    const uint32_t nan = 0x7fffffff, inf = 0x7f800000;
    uint16_t a[16] = {0}, b[16] = {0};

    a[3] = 0x7fc0;
    b[3] = 0x3f80;
    cr_assert_eq(bits_of(simt_mma_dot(90, a, b, 16, 1)), nan);
    a[3] = 0x7f80;
    cr_assert_eq(bits_of(simt_mma_dot(90, a, b, 16, 1)), inf);
    b[3] = 0xbf80;
    cr_assert_eq(bits_of(simt_mma_dot(90, a, b, 16, 1)), inf | 0x80000000);
    cr_assert_eq(bits_of(simt_mma_dot(90, a, b, 16, INFINITY)), nan);
    cr_assert_eq(bits_of(simt_mma_dot(90, a, b, 16, -INFINITY)), inf | 0x80000000);
    b[3] = 0;
    cr_assert_eq(bits_of(simt_mma_dot(80, a, b, 16, 1)), nan);
    a[3] = 0x3f80;
    cr_assert_eq(bits_of(simt_mma_dot(80, a, b, 16, INFINITY)), inf);
    cr_assert_eq(bits_of(simt_mma_dot(80, a, b, 16, -NAN)), nan);
    /* Overflow goes to infinity although the sum is truncated. */
    for (int k = 0; k < 16; k++) a[k] = b[k] = 0x5f80; /* 2^64 */
    cr_assert_eq(bits_of(simt_mma_dot(90, a, b, 16, 0)), inf);
    a[0] = 0xdf80;
    for (int k = 2; k < 16; k++) a[k] = 0;
    cr_assert_eq(bits_of(simt_mma_dot(90, a, b, 16, 1)), bits_of(0.0f));
}

/* xorshift64: any generator that covers the exponents will do. */
static uint64_t state = 88172645463325252u;

static uint64_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* The other formulation. Every term is a whole number of units of 2^-330, far below any quantum
 * that matters; what lies below the quantum is taken off with a remainder, on numbers of 768 bits
 * held as 24 words of 32. */
#define WORDS 24
#define UNIT 330

struct whole {
    uint32_t words[WORDS];
};

/* significand * 2^exponent in units. */
static struct whole whole_of(uint32_t significand, int exponent)
{
    struct whole result = {{0}};
    int at = exponent + UNIT;
    uint64_t shifted = (uint64_t)significand << at % 32;

    cr_assert(at >= 0 && at / 32 + 1 < WORDS);
    result.words[at / 32] = (uint32_t)shifted;
    result.words[at / 32 + 1] = (uint32_t)(shifted >> 32);
    return result;
}

/* Clears everything below 2^exponent. */
static void cut_below(struct whole *x, int exponent)
{
    int at = exponent + UNIT;

    for (int i = 0; i < WORDS; i++) {
        if (i < at / 32)
            x->words[i] = 0;
        else if (i == at / 32)
            x->words[i] &= ~0u << at % 32;
    }
}

static int compare(const struct whole *x, const struct whole *y)
{
    for (int i = WORDS - 1; i >= 0; i--)
        if (x->words[i] != y->words[i]) return x->words[i] < y->words[i] ? -1 : 1;
    return 0;
}

static void add(struct whole *x, const struct whole *y)
{
    uint64_t carry = 0;

    for (int i = 0; i < WORDS; i++) {
        carry += (uint64_t)x->words[i] + y->words[i];
        x->words[i] = (uint32_t)carry;
        carry >>= 32;
    }
}

static void subtract(struct whole *x, const struct whole *y)
{
    uint64_t borrow = 0;

    for (int i = 0; i < WORDS; i++) {
        uint64_t difference = (uint64_t)x->words[i] - y->words[i] - borrow;

        x->words[i] = (uint32_t)difference;
        borrow = difference >> 32 & 1;
    }
}

/* The exponent of the highest bit, or INT32_MIN. */
static int top_bit(const struct whole *x)
{
    for (int i = WORDS - 1; i >= 0; i--)
        if (x->words[i]) return 32 * i + 31 - __builtin_clz(x->words[i]) - UNIT;
    return INT32_MIN;
}

/* A bf16's or f32's magnitude as significand * 2^exponent, and its label. */
static uint32_t take_apart(float x, int *exponent, int *label)
{
    int e;
    double fraction = frexp(fabs((double)x), &e); /* in [1/2, 1) */

    *label = e - 1 > -126 ? e - 1 : -126;
    *exponent = e - 24;
    return (uint32_t)ldexp(fraction, 24);
}

static float widen(uint16_t x)
{
    return float_of((uint32_t)x << 16);
}

static float slow_step(int fraction_bits, const uint16_t *a, const uint16_t *b, int n, float c)
{
    struct whole plus = {{0}}, minus = {{0}}, terms[17];
    bool negative[17], result_negative;
    int labels[17], top = -133, e1, e2, l1, l2, high;
    uint32_t bits = 0;

    for (int i = 0; i < n; i++) {
        uint32_t s1 = take_apart(widen(a[i]), &e1, &l1), s2 = take_apart(widen(b[i]), &e2, &l2);

        /* Both have at most 8 significant bits, at the top of 24. */
        terms[i] = whole_of((s1 >> 16) * (s2 >> 16), s1 && s2 ? e1 + e2 + 32 : 0);
        negative[i] = signbit(widen(a[i])) != signbit(widen(b[i]));
        labels[i] = s1 && s2 ? l1 + l2 : INT32_MIN;
    }
    terms[n] = whole_of(take_apart(c, &e1, &l1), c != 0 ? e1 : 0);
    negative[n] = signbit(c);
    labels[n] = c != 0 ? l1 : INT32_MIN;
    for (int i = 0; i <= n; i++) top = labels[i] > top ? labels[i] : top;
    for (int i = 0; i <= n; i++) {
        cut_below(&terms[i], top - fraction_bits);
        add(negative[i] ? &minus : &plus, &terms[i]);
    }
    result_negative = compare(&plus, &minus) < 0;
    if (result_negative) {
        subtract(&minus, &plus);
        plus = minus;
    } else {
        subtract(&plus, &minus);
    }
    high = top_bit(&plus);
    if (high == INT32_MIN) return 0.0f;
    if (high > 127) return result_negative ? -INFINITY : INFINITY;
    cut_below(&plus, high - 23 > -149 ? high - 23 : -149);
    for (int i = 23; i >= 0; i--) {
        int at = (high - 23 > -149 ? high - 23 : -149) + i + UNIT;

        bits = bits << 1 | (plus.words[at / 32] >> at % 32 & 1);
    }
    if (bits == 0) return 0.0f; /* the hardware's zeros have no sign */
    return (float)ldexp(result_negative ? -(double)bits : (double)bits,
                        high - 23 > -149 ? high - 23 : -149);
}

static float slow_dot(uint32_t arch, const uint16_t *a, const uint16_t *b, float c)
{
    float half;

    if (arch != 80) return slow_step(25, a, b, 16, c);
    half = slow_step(24, a, b, 8, c);
    return isinf(half) ? half : slow_step(24, a + 8, b + 8, 8, half);
}

/* A finite bf16 with any sign and significand and an exponent within `spread` of `centre`; now and
 * then 0. */
static uint16_t random_bf16(int centre, int spread)
{
    uint64_t r = draw();
    int exponent = centre + (int)(r >> 40) % (2 * spread + 1) - spread;

    if (r >> 32 & 15)
        exponent = exponent < 0 ? 0 : exponent > 254 ? 254 : exponent;
    else
        return (uint16_t)(r & 0x8000);
    return (uint16_t)((r & 0x807f) | (uint64_t)exponent << 7);
}

struct random_case {
    uint16_t a[16], b[16];
    float c;
};

/* Exponents near each other and far apart, at the bottom and the top of the range, pairs that
 * cancel, and every kind of c. */
static void draw_case(struct random_case *r, int i)
{
    static const int spreads[] = {1, 4, 14, 30, 127};
    static const int centres[] = {127, 127, 127, 70, 64, 20, 0, 185, 200, 254};
    int spread = spreads[i % 5], centre = centres[i / 5 % 10];

    for (int k = 0; k < 16; k++) {
        r->a[k] = random_bf16(centre, spread);
        r->b[k] = random_bf16(centre, spread);
    }
    if (i % 3 == 0) {
        for (int k = 0; k < 8; k++) {
            r->a[15 - k] = r->a[k] ^ 0x8000;
            r->b[15 - k] = r->b[k];
        }
        r->a[4] = random_bf16(centre - 10 > 0 ? centre - 10 : 0, spread);
    }
    r->c = widen(random_bf16(2 * centre - 127, spread));
    if (i % 7) r->c = float_of(bits_of(r->c) | (uint32_t)(draw() & 0xffff));
    if (i % 11 == 0) r->c = 0;
}

Test(simt_mma, agrees_with_whole_numbers)
{
    struct random_case r;

    for (int i = 0; i < 100000; i++) {
        draw_case(&r, i);
        for (uint32_t arch = 80; arch <= 90; arch += 10) {
            uint32_t got = bits_of(simt_mma_dot(arch, r.a, r.b, 16, r.c));
            uint32_t want = bits_of(slow_dot(arch, r.a, r.b, r.c));

            cr_assert_eq(got, want, "case %d on %u: %08x, not %08x", i, arch, got, want);
        }
    }
}

/* On sm_90 any order inside an instruction gives the same bits, on sm_80 any order inside a half.
 */
Test(simt_mma, order_of_k_does_not_matter)
{
    struct random_case r, shuffled;

    for (int i = 0; i < 20000; i++) {
        for (uint32_t arch = 80; arch <= 90; arch += 10) {
            int part = arch == 80 ? 8 : 16;

            draw_case(&r, i);
            shuffled = r;
            for (int k = part - 1; k > 0; k--) {
                int j = (int)(draw() % (uint64_t)(k + 1));
                uint16_t a = shuffled.a[k], b = shuffled.b[k];

                shuffled.a[k] = shuffled.a[j];
                shuffled.b[k] = shuffled.b[j];
                shuffled.a[j] = a;
                shuffled.b[j] = b;
            }
            cr_assert_eq(bits_of(simt_mma_dot(arch, r.a, r.b, 16, r.c)),
                         bits_of(simt_mma_dot(arch, shuffled.a, shuffled.b, 16, r.c)));
        }
    }
}

/* Whole numbers whose sum stays below 2^24 are exact on every architecture and in every order. */
Test(simt_mma, small_integers_are_exact)
{
    for (int i = 0; i < 20000; i++) {
        uint16_t a[128], b[128];
        double sum = (double)(draw() % 1000);
        float c = (float)sum;

        for (int k = 0; k < 128; k++) {
            int x = (int)(draw() % 511) - 255, y = (int)(draw() % 31) - 15;

            a[k] = bf16(x);
            b[k] = bf16(y);
            sum += (double)x * y;
        }
        cr_assert_eq((double)simt_mma_dot(80, a, b, 128, c), sum);
        cr_assert_eq((double)simt_mma_dot(90, a, b, 128, c), sum);
    }
}

/* The whole instruction is its elements, specials among them, and the lanes' fragments are PTX's.
 */
Test(simt_mma, tile_and_warp_are_the_elements)
{
    for (int i = 0; i < 3000; i++) {
        uint16_t a[16][16], b[16][8], column[16];
        uint32_t arch = i % 2 ? 80 : 90, fa[32][4], fb[32][2];
        float c[16][8], d[16][8], fc[32][4], fd[32][4];
        struct simt_mma_operands operands[32];
        const struct simt_mma_operands *pointers[32];

        for (int m = 0; m < 16; m++)
            for (int k = 0; k < 16; k++) a[m][k] = random_bf16(127, 20);
        for (int k = 0; k < 16; k++)
            for (int n = 0; n < 8; n++) b[k][n] = random_bf16(127, 20);
        for (int m = 0; m < 16; m++)
            for (int n = 0; n < 8; n++) c[m][n] = widen(random_bf16(127, 30));
        if (i % 3 == 0) { /* a row of zeros of both signs, and zeros to add them to */
            int m = (int)(draw() % 16);

            for (int k = 0; k < 16; k++) a[m][k] = draw() % 2 ? 0x8000 : 0;
            c[m][draw() % 8] = -0.0f;
            c[m][draw() % 8] = float_of(1);
        }
        if (i % 5 == 0) a[draw() % 16][draw() % 16] = 0x7f80;
        if (i % 5 == 1) b[draw() % 16][draw() % 8] = 0xff80;
        if (i % 5 == 2) c[draw() % 16][draw() % 8] = NAN;
        if (i % 7 == 0) a[draw() % 16][draw() % 16] = 0x7fc0;
        if (i % 7 == 1) b[draw() % 16][draw() % 8] = 0xffff;
        if (i % 7 == 2) c[draw() % 16][draw() % 8] = -INFINITY;
        simt_mma_tile(arch, &d[0][0], &a[0][0], &b[0][0], &c[0][0]);
        for (int lane = 0; lane < 32; lane++) {
            int g = lane / 4, t = lane % 4;

            for (int r = 0; r < 4; r++) {
                int row = g + (r % 2) * 8, k = 2 * t + (r / 2) * 8;

                fa[lane][r] = a[row][k] | (uint32_t)a[row][k + 1] << 16;
                fc[lane][r] = c[g + r / 2 * 8][2 * t + r % 2];
            }
            for (int r = 0; r < 2; r++)
                fb[lane][r] = b[2 * t + 8 * r][g] | (uint32_t)b[2 * t + 8 * r + 1][g] << 16;
            operands[lane] = (struct simt_mma_operands){fd[lane], fa[lane], fb[lane], fc[lane]};
            pointers[lane] = &operands[lane];
        }
        simt_mma_warp(arch, pointers);
        for (int m = 0; m < 16; m++) {
            for (int n = 0; n < 8; n++) {
                int lane = m % 8 * 4 + n / 2;
                uint32_t want;

                for (int k = 0; k < 16; k++) column[k] = b[k][n];
                want = bits_of(simt_mma_dot(arch, a[m], column, 16, c[m][n]));
                cr_assert_eq(bits_of(d[m][n]), want);
                cr_assert_eq(bits_of(fd[lane][m / 8 * 2 + n % 2]), want);
            }
        }
    }
}

/* Where the vector arithmetic of the whole instruction ends and each element is asked for by
 * itself: labels of products around -133, -98 and 120, subnormal factors, c of every size beside
 * them. */
Test(simt_mma, tile_at_the_ends_of_its_arithmetic)
{
    static const struct {
        int a, b, c, spread;
    } centres[] = {{78, 78, 29, 3},    {78, 78, 29, 14},   {64, 64, 10, 6},    {60, 61, 0, 3},
                   {187, 187, 247, 3}, {187, 187, 127, 9}, {2, 240, 110, 4},   {0, 155, 29, 3},
                   {127, 1, 1, 2},     {127, 127, 127, 9}, {127, 127, 29, 60}, {127, 127, 127, 127},
                   {54, 54, -1, 1}};

    for (int i = 0; i < 12000; i++) {
        int at = i % (int)(sizeof centres / sizeof *centres), spread = centres[at].spread;
        uint32_t arch = i / 100 % 2 ? 80 : 90;
        uint16_t a[16][16], b[16][8], column[16];
        float c[16][8], d[16][8];

        for (int m = 0; m < 16; m++)
            for (int k = 0; k < 16; k++) a[m][k] = random_bf16(centres[at].a, spread);
        for (int k = 0; k < 16; k++)
            for (int n = 0; n < 8; n++) b[k][n] = random_bf16(centres[at].b, spread);
        for (int m = 0; m < 16; m++)
            for (int k = 0; k < 5 && i % 3 == 0; k++) a[m][15 - k] = a[m][k] ^ 0x8000;
        for (int k = 0; k < 5 && i % 3 == 0; k++) memcpy(b[15 - k], b[k], sizeof b[k]);
        if (i % 6 == 1) { /* a large factor of nothing */
            for (int m = 0; m < 16; m++) a[m][3] = bf16(0x1p30);
            memset(b[3], 0, sizeof b[3]);
        }
        for (int m = 0; m < 16; m++)
            for (int n = 0; n < 8; n++)
                c[m][n] = centres[at].c < -999
                              ? 0
                              : float_of(bits_of(widen(random_bf16(centres[at].c, spread))) |
                                         (i % 4 ? (uint32_t)(draw() & 0xffff) : 0));
        simt_mma_tile(arch, &d[0][0], &a[0][0], &b[0][0], &c[0][0]);
        for (int m = 0; m < 16; m++) {
            for (int n = 0; n < 8; n++) {
                for (int k = 0; k < 16; k++) column[k] = b[k][n];
                cr_assert_eq(bits_of(d[m][n]),
                             bits_of(simt_mma_dot(arch, a[m], column, 16, c[m][n])),
                             "case %d, element %d, %d", i, m, n);
            }
        }
    }
}
