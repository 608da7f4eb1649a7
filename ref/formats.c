#include "formats.h"

#include <float.h>
#include <math.h>
#include <string.h>

uint32_t ref_f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

float ref_f32_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

float ref_bf16_to_f32(uint16_t bits)
{
    return ref_f32_from_bits((uint32_t)bits << 16);
}

float ref_e4m3_to_f32(uint8_t bits)
{
    /* Value times 2^9 is an integer below 2^18 (numerics §4). */
    uint32_t exponent = bits >> 3 & 15, fraction = bits & 7;
    if (exponent == 15 && fraction == 7) return NAN;
    uint32_t scaled = exponent ? (8 + fraction) << (exponent - 1) : fraction;
    float magnitude = (float)scaled * 0x1p-9f;
    return bits & 0x80 ? -magnitude : magnitude;
}

void ref_bf16_to_f32_n(const uint16_t *bits, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) out[i] = ref_bf16_to_f32(bits[i]);
}

enum { E4M3_ONE = 0x38 }; /* the code of 1.0 */

void ref_e4m3_to_f32_n(const uint8_t *bits, size_t n, float *out)
{
    static _Thread_local float table[256];
    if (table[E4M3_ONE] == 0)
        for (unsigned code = 0; code < 256; code++) table[code] = ref_e4m3_to_f32((uint8_t)code);
    for (size_t i = 0; i < n; i++) out[i] = table[bits[i]];
}

uint16_t ref_bf16_from_f32(float value)
{
    if (isnan(value)) return 0x7fff;
    uint32_t bits = ref_f32_bits(value);
    /* Below half an ulp away from zero falls, above rises, a tie follows the last kept bit. */
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* 2^exponent for exponents of normal doubles. */
static double power_of_two(int exponent)
{
    uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* |value| rounded to nearest even with `fraction_bits` bits behind the leading one, and on the
 * fixed grid of the least exponent below it. value finite. */
static double round_to_grid(double value, int fraction_bits, int least_exponent)
{
    double magnitude = fabs(value);
    int exponent = magnitude < power_of_two(least_exponent) ? least_exponent : ilogb(magnitude);
    double steps = magnitude * power_of_two(fraction_bits - exponent); /* exact, or far below 1/2 */
    return rint(steps) * power_of_two(exponent - fraction_bits);
}

uint16_t ref_bf16_from_f64(double value)
{
    if (isnan(value)) return 0x7fff;
    double rounded = isinf(value) ? INFINITY : round_to_grid(value, 7, -126);
    /* Values on the bf16 grid are floats; 2^128 and above convert to infinity. */
    uint32_t bits = ref_f32_bits((float)rounded);
    return (uint16_t)(bits >> 16 | (signbit(value) ? 0x8000 : 0));
}

uint8_t ref_e4m3_from_f32(float value)
{
    if (isnan(value)) return 0x7f;
    uint8_t sign = signbit(value) ? 0x80 : 0;
    double rounded = isinf(value) ? 448.0 : round_to_grid((double)value, 3, -6);
    if (rounded >= 448.0) return sign | 0x7e;
    if (rounded < 0x1p-6) return sign | (uint8_t)(rounded * 0x1p9);
    int exponent = ilogb(rounded);
    unsigned fraction = (unsigned)(rounded * power_of_two(3 - exponent)) & 7;
    return sign | (uint8_t)((unsigned)(exponent + 7) << 3 | fraction);
}

float ref_f32_below(double value)
{
    float nearest = (float)value;
    return (double)nearest > value ? nextafterf(nearest, -INFINITY) : nearest;
}

float ref_f32_above(double value)
{
    float nearest = (float)value;
    return (double)nearest < value ? nextafterf(nearest, INFINITY) : nearest;
}
