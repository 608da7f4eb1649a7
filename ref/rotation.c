#include "rotation.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>

__extension__ typedef unsigned __int128 uint128_t;

/* ---- frequencies ---- */

/* A natural number, least significant word first; `used` words are in use. Room for the largest
 * power compared below: 54-bit significands to the power 512 times 24-bit ones to the power 511. */
struct natural {
    uint64_t word[640];
    uint32_t used;
};

static void natural_multiply(struct natural *n, uint64_t factor)
{
    uint64_t carry = 0;
    for (uint32_t i = 0; i < n->used; i++) {
        uint128_t product = (uint128_t)n->word[i] * factor + carry;
        n->word[i] = (uint64_t)product;
        carry = (uint64_t)(product >> 64);
    }
    if (carry) n->word[n->used++] = carry;
}

static int64_t natural_bits(const struct natural *n)
{
    return 64 * (int64_t)n->used - __builtin_clzll(n->word[n->used - 1]);
}

/* The odd integer and the exponent of a positive finite value: value = odd * 2^exponent. */
static uint64_t odd_part(double value, int *exponent)
{
    uint64_t integer = (uint64_t)ldexp(frexp(value, exponent), 53);
    int zeros = __builtin_ctzll(integer);
    *exponent += zeros - 53;
    return integer >> zeros;
}

/* Is base^(-p/q) above odd * 2^exponent? With base = M 2^E that is: M^p odd^q < 2^-(pE + q
 * exponent), and an integer is below a power of two exactly when it has too few bits. */
static bool power_above(float base, uint32_t p, uint32_t q, uint64_t odd, int exponent)
{
    int base_exponent;
    uint64_t base_odd = odd_part(base, &base_exponent);
    struct natural product = {.word = {1}, .used = 1};
    for (uint32_t i = 0; i < p; i++) natural_multiply(&product, base_odd);
    for (uint32_t i = 0; i < q; i++) natural_multiply(&product, odd);
    return natural_bits(&product) <= -((int64_t)p * base_exponent + (int64_t)q * exponent);
}

static uint32_t common_divisor(uint32_t a, uint32_t b)
{
    while (b) {
        uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* base^(-p/q) with a relative error below 2^-61: powl is good to one unit of 2^-63, and the second
 * factor takes out the rounding of the exponent (its residue is exact, found with one fused step).
 */
_Static_assert(LDBL_MANT_DIG >= 64, "the frequency filter needs 64-bit significands");
static long double power_approximate(float base, uint32_t p, uint32_t q)
{
    long double exponent = -(long double)p / q;
    long double residue = -fmal(exponent, q, p) / q;
    return powl(base, exponent) * (1 + residue * logl(base));
}

double ref_rotation_frequency(float theta, uint32_t rot, uint32_t j)
{
    if (j == 0) return 1;
    uint32_t divisor = common_divisor(j, rot / 2);
    uint32_t p = j / divisor, q = rot / 2 / divisor;
    long double power = power_approximate(theta, p, q);
    double low = (double)(power * (1 - 0x1p-60L)), high = (double)(power * (1 + 0x1p-60L));
    if (low == high) return low;
    /* Neighbours. The midpoint has 54 bits: exact as a long double, odd in units of its last bit.
     * A power is never a midpoint: for theta not a power of two it is no dyadic number at all. */
    int low_exponent;
    uint64_t integer = (uint64_t)ldexp(frexp(low, &low_exponent), 53);
    return power_above(theta, p, q, 2 * integer + 1, low_exponent - 54) ? high : low;
}

/* ---- cosine and sine ---- */

/* A fixed-point number modulo 2^192: sum of word[i] * 2^(64 (i - 8)). */
enum { WIDE_FRACTION = 8, WIDE_WORDS = 11 };
struct wide {
    uint64_t word[WIDE_WORDS];
};

/* pi/2, truncated to 512 fraction bits. */
static const struct wide half_pi = {{0x9fc26adadaa3848b, 0x605614dbe4be286e, 0xdf2a33679a748636,
                                     0xa29410f31c6809bb, 0x04177d4c76273644, 0x52049c1114cf98e8,
                                     0x898cc51701b839a2, 0x921fb54442d18469, 1, 0, 0}};

static struct wide wide_add(struct wide a, const struct wide *b)
{
    uint64_t carry = 0;
    for (int i = 0; i < WIDE_WORDS; i++) {
        uint128_t sum = (uint128_t)a.word[i] + b->word[i] + carry;
        a.word[i] = (uint64_t)sum;
        carry = (uint64_t)(sum >> 64);
    }
    return a;
}

static struct wide wide_subtract(struct wide a, const struct wide *b)
{
    uint64_t borrow = 0;
    for (int i = 0; i < WIDE_WORDS; i++) {
        uint128_t difference = (uint128_t)a.word[i] - b->word[i] - borrow;
        a.word[i] = (uint64_t)difference;
        borrow = (uint64_t)(difference >> 64) & 1;
    }
    return a;
}

static bool wide_at_least(const struct wide *a, const struct wide *b)
{
    for (int i = WIDE_WORDS; i-- > 0;) {
        if (a->word[i] != b->word[i]) return a->word[i] > b->word[i];
    }
    return true;
}

static struct wide wide_shift_left(const struct wide *a, uint32_t bits)
{
    struct wide result = {{0}};
    uint32_t words = bits / 64, rest = bits % 64;
    for (uint32_t i = words; i < WIDE_WORDS; i++) {
        result.word[i] = a->word[i - words] << rest;
        if (rest && i > words) result.word[i] |= a->word[i - words - 1] >> (64 - rest);
    }
    return result;
}

/* Product of two numbers below 2^96, truncated. */
static struct wide wide_multiply(const struct wide *a, const struct wide *b)
{
    uint64_t product[2 * WIDE_WORDS] = {0};
    for (int i = 0; i < WIDE_WORDS; i++) {
        uint64_t carry = 0;
        for (int j = 0; j < WIDE_WORDS; j++) {
            uint128_t sum = (uint128_t)a->word[i] * b->word[j] + product[i + j] + carry;
            product[i + j] = (uint64_t)sum;
            carry = (uint64_t)(sum >> 64);
        }
        product[i + WIDE_WORDS] = carry;
    }
    struct wide result;
    for (int i = 0; i < WIDE_WORDS; i++) result.word[i] = product[i + WIDE_FRACTION];
    return result;
}

/* Quotient, truncated; returns whether anything is left. */
static bool wide_divide(struct wide *a, uint64_t divisor)
{
    uint64_t rest = 0, any = 0;
    for (int i = WIDE_WORDS; i-- > 0;) {
        uint128_t dividend = (uint128_t)rest << 64 | a->word[i];
        a->word[i] = (uint64_t)(dividend / divisor);
        rest = (uint64_t)(dividend % divisor);
        any |= a->word[i];
    }
    return any != 0;
}

/* Exact for values that are multiples of 2^-512 below 2^192. */
static struct wide wide_from_double(double value)
{
    struct wide result = {{0}};
    if (value == 0) return result;
    int exponent;
    result.word[0] = odd_part(value, &exponent);
    return wide_shift_left(&result, (uint32_t)(exponent + 64 * WIDE_FRACTION));
}

/* The nearest float of a number in [0, 2): 53 bits with every lower bit gathered into the last one
 * (round to odd) keep enough for the second rounding to be the only one. */
static float wide_to_float(const struct wide *a)
{
    int top = WIDE_WORDS - 1;
    while (top > 0 && a->word[top] == 0) top--;
    if (a->word[top] == 0) return 0;
    int bits = 64 * top + 64 - __builtin_clzll(a->word[top]);
    int drop = bits > 53 ? bits - 53 : 0;
    uint64_t kept = a->word[drop / 64] >> (drop % 64);
    if (drop % 64 && drop / 64 + 1 < WIDE_WORDS) kept |= a->word[drop / 64 + 1] << (64 - drop % 64);
    kept &= ((uint64_t)1 << 53) - 1;
    bool lost = (a->word[drop / 64] & (((uint64_t)1 << (drop % 64)) - 1)) != 0;
    for (int i = 0; i < drop / 64; i++) lost |= a->word[i] != 0;
    return (float)ldexp((double)(kept | lost), drop - 64 * WIDE_FRACTION);
}

/* The angle less the largest multiple of pi/2 in it, which is counted modulo 4. The constant is
 * short by less than 2^-512, so after at most 2^191 subtractions the rest is long by less than
 * 2^-321. */
static uint32_t wide_reduce(struct wide *angle)
{
    uint32_t quadrant = 0;
    for (uint32_t shift = 191; shift-- > 0;) {
        struct wide multiple = wide_shift_left(&half_pi, shift);
        if (!wide_at_least(angle, &multiple)) continue;
        *angle = wide_subtract(*angle, &multiple);
        if (shift < 2) quadrant |= 1u << shift;
    }
    return quadrant;
}

/* Taylor series from the given first term: term n+1 is term n * -x^2 / ((step+1)(step+2)). Every
 * operation truncates by less than one unit of 2^-512 and there are fewer than 2^8 of them. */
static struct wide wide_series(struct wide term, const struct wide *square, uint64_t step)
{
    struct wide sum = term;
    bool negative = true;
    for (;; step += 2, negative = !negative) {
        term = wide_multiply(&term, square);
        if (!wide_divide(&term, (step + 1) * (step + 2))) return sum;
        sum = negative ? wide_subtract(sum, &term) : wide_add(sum, &term);
    }
}

void ref_rotation_sincos_wide(double angle, float *cosine, float *sine)
{
    struct wide x = wide_from_double(angle);
    uint32_t quadrant = wide_reduce(&x);
    struct wide square = wide_multiply(&x, &x);
    struct wide one = {.word[WIDE_FRACTION] = 1};
    struct wide cosine_wide = wide_series(one, &square, 0);
    struct wide sine_wide = wide_series(x, &square, 1);
    float c = wide_to_float(&cosine_wide), s = wide_to_float(&sine_wide);
    *cosine = quadrant & 1 ? s : c;
    *sine = quadrant & 1 ? c : s;
    if (quadrant == 1 || quadrant == 2) *cosine = -*cosine;
    if (quadrant >= 2) *sine = -*sine;
}

/* The float nearest a value known to a relative error of 2^-51, unless that leaves it open. glibc
 * keeps double sin and cos below one unit in the last place (2^-52); the margin is four of them. */
static bool settled(double value, float *nearest)
{
    float low = (float)(value * (1 - 0x1p-50)), high = (float)(value * (1 + 0x1p-50));
    *nearest = low;
    return low == high;
}

void ref_rotation_sincos(double angle, float *cosine, float *sine)
{
    double s, c;
    sincos(angle, &s, &c);
    bool cosine_settled = settled(c, cosine), sine_settled = settled(s, sine);
    if (!cosine_settled || !sine_settled) ref_rotation_sincos_wide(angle, cosine, sine);
}
