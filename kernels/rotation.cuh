/* The rotation of ops "rotation": f_j = RN64(theta^(-2j/rot)), angle = RN64(pos f_j), and the
 * floats nearest the true cosine and sine of that double.
 *
 * Nearest values are reached by computing far past them. Sums of two doubles ("dd": hi + lo, hi the
 * double nearest the sum, about 2^-104 relative error an operation) carry the power to a relative
 * error of 2^-95, so that its double is wrong with a chance of 2^-41 a value, and never where the
 * power is itself a double (theta a power of two). The angle is reduced by integer multiplication
 * with enough digits of 2/pi for every angle this file can form; cosine and sine then have a
 * relative error below 2^-66, and rounding to 24 bits goes wrong with a chance of about 2^-41 a
 * value. For the released theta and rot agreement at every position below 2^20 is shown by
 * exhaustion.
 *
 * Only + - * / fma in double and integer operations: one possible result everywhere. */
#ifndef ATTEST_KERNELS_ROTATION_CUH
#define ATTEST_KERNELS_ROTATION_CUH

#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>

struct rot_dd {
    double hi, lo;
};

struct rot_angle {
    float cosine, sine;
};

/* a + b exactly, |a| >= |b| or a = 0. */
static __device__ __forceinline__ struct rot_dd rot_ordered_sum(double a, double b)
{
    double sum = a + b;

    return {sum, b - (sum - a)};
}

/* a + b exactly. */
static __device__ __forceinline__ struct rot_dd rot_two_sum(double a, double b)
{
    double sum = a + b, b_part = sum - a;

    return {sum, (a - (sum - b_part)) + (b - b_part)};
}

static __device__ __forceinline__ struct rot_dd rot_add(struct rot_dd a, struct rot_dd b)
{
    struct rot_dd high = rot_two_sum(a.hi, b.hi), low = rot_two_sum(a.lo, b.lo);

    high = rot_ordered_sum(high.hi, high.lo + low.hi);
    return rot_ordered_sum(high.hi, high.lo + low.lo);
}

static __device__ __forceinline__ struct rot_dd rot_mul(struct rot_dd a, struct rot_dd b)
{
    double product = a.hi * b.hi;
    double rest = fma(a.hi, b.hi, -product);

    return rot_ordered_sum(product, fma(a.hi, b.lo, fma(a.lo, b.hi, rest)));
}

/* 2^n for -1022 <= n <= 1023. */
static __device__ __forceinline__ double rot_power_of_two(int n)
{
    return __longlong_as_double((long long)(1023 + n) << 52);
}

/* exp(x), |x| <= 700. x = k ln2 + 256 s with |s| <= 2^-9.5; p = exp(s) - 1 by its Taylor series to
 * s^9 (what follows is below 2^-106 of it), in double from s^5 on; then p -> 2p + p^2 eight times,
 * which squares 1 + p. */
static __device__ __forceinline__ struct rot_dd rot_exp(struct rot_dd x)
{
    double k = rint(x.hi * 0x1.71547652b82fep+0);
    struct rot_dd minus_ln2 = {-0x1.62e42fefa39efp-1, -0x1.abc9e3b39803fp-56};
    struct rot_dd third = {0x1.5555555555555p-3, 0x1.5555555555555p-57};
    struct rot_dd fourth = {0x1.5555555555555p-5, 0x1.5555555555555p-59};
    struct rot_dd s = rot_add(x, rot_mul({k, 0.0}, minus_ln2)), p, square;
    double tail = 0x1.71de3a556c734p-19;

    s = {s.hi * 0x1p-8, s.lo * 0x1p-8};
    tail = fma(tail, s.hi, 0x1.a01a01a01a01ap-16);
    tail = fma(tail, s.hi, 0x1.a01a01a01a01ap-13);
    tail = fma(tail, s.hi, 0x1.6c16c16c16c17p-10);
    tail = fma(tail, s.hi, 0x1.1111111111111p-7);
    p = rot_add(fourth, {tail * s.hi, 0.0});
    p = rot_add(third, rot_mul(p, s));
    p = rot_add({0.5, 0.0}, rot_mul(p, s));
    p = rot_add({1.0, 0.0}, rot_mul(p, s));
    p = rot_mul(p, s);
    for (int i = 0; i < 8; i++) {
        square = rot_mul(p, p);
        p = rot_add({2.0 * p.hi, 2.0 * p.lo}, square);
    }
    p = rot_add({1.0, 0.0}, p);
    return {p.hi * rot_power_of_two((int)k), p.lo * rot_power_of_two((int)k)};
}

/* ln(theta) for a positive finite float. A first value of error 2^-33 from the series of
 * 2 atanh((m-1)/(m+1)), m in [0.7, 1.42]; then ln(theta) = first + ln(1 + d), where
 * d = theta exp(-first) - 1 is so small that three terms of the series suffice. */
static __device__ __forceinline__ struct rot_dd rot_log(float theta)
{
    double m = theta, first, u, z, series;
    int exponent = (int)(__double_as_longlong(m) >> 52) - 1023;
    struct rot_dd d;

    m = m * rot_power_of_two(-exponent);
    if (m > 1.41) {
        m = 0.5 * m;
        exponent++;
    }
    u = (m - 1.0) / (m + 1.0);
    z = u * u;
    series = fma(z, 1.0 / 11, 1.0 / 9);
    series = fma(z, series, 1.0 / 7);
    series = fma(z, series, 1.0 / 5);
    series = fma(z, series, 1.0 / 3);
    first = fma((double)exponent, 0x1.62e42fefa39efp-1, 2.0 * fma(u * z, series, u));
    d = rot_add(rot_mul({theta, 0.0}, rot_exp({-first, 0.0})), {-1.0, 0.0});
    series = d.hi * d.hi * fma(d.hi, 1.0 / 3, -0.5);
    return rot_add({first, 0.0}, rot_add(d, {series, 0.0}));
}

/* f_j, the double nearest theta^(-2j/rot). */
static __device__ __forceinline__ double rot_frequency(float theta, uint32_t rot, uint32_t pair)
{
    double numerator = -2.0 * pair, quotient = numerator / rot;
    struct rot_dd exponent = {quotient, fma(-quotient, (double)rot, numerator) / rot};

    return rot_exp(rot_mul(exponent, rot_log(theta))).hi;
}

/* 64 zero bits, then 2/pi from its first bit on. The largest angle is below 2^180 (pos < 2^31 and
 * theta a subnormal float), which asks for bits to 126 + 256 after the point. */
#define ROT_TWO_OVER_PI_WORDS 15
static __constant__ uint32_t rot_two_over_pi[ROT_TWO_OVER_PI_WORDS] = {
    0x00000000, 0x00000000, 0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041,
    0xfe5163ab, 0xdebbc561, 0xb7246e3a, 0x424dd2e0, 0x06492eea, 0x09d1921c, 0xfe1deb1c};

#define ROT_WINDOW_WORDS 8

/* Bits of angle * 2/pi from weight 2 down to 2^-254, most significant word first: the window of
 * 2/pi whose product with the angle's 53-bit integer starts there. What lies above is a multiple of
 * 4, what is cut off below is less than 2^-201. The angle is at least 1/2. */
static __device__ __forceinline__ void rot_turns(double angle, uint32_t turns[ROT_WINDOW_WORDS])
{
    uint64_t bits = (uint64_t)__double_as_longlong(angle), sum = 0;
    uint32_t start = (uint32_t)(bits >> 52) - 1023 - 52 + 62, shift = start % 32;
    uint32_t low = (uint32_t)bits, high = (uint32_t)(bits >> 32 & 0xfffff) | 0x100000;
    uint32_t window[ROT_WINDOW_WORDS];

    for (int i = 0; i < ROT_WINDOW_WORDS; i++) {
        const uint32_t *word = rot_two_over_pi + start / 32 + i;

        window[i] = (uint32_t)(((uint64_t)word[0] << 32 | word[1]) >> (32 - shift));
    }
    for (int i = ROT_WINDOW_WORDS - 1; i >= 0; i--) {
        sum = (uint64_t)low * window[i] + (sum >> 32);
        turns[i] = (uint32_t)sum;
    }
    sum = 0;
    for (int i = ROT_WINDOW_WORDS - 2; i >= 0; i--) {
        sum = (uint64_t)high * window[i + 1] + turns[i] + (sum >> 32);
        turns[i] = (uint32_t)sum;
    }
}

/* angle = quadrant pi/2 + rest with |rest| <= pi/4 (1 + 2^-100); returns the quadrant modulo 4. The
 * six words kept reach 2^-192, and no angle of this range comes nearer to a multiple of pi/2 than
 * 2^-61.2 quarter turns (by continued fractions), so the rest keeps all 106 bits. */
static __device__ __forceinline__ uint32_t rot_reduce(double angle, struct rot_dd *rest)
{
    struct rot_dd half_pi = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54}, part = {0.0, 0.0};
    uint32_t turns[ROT_WINDOW_WORDS], quadrant, flip;
    double weight = 0x1p-32;

    if (angle < 0.5) {
        *rest = {angle, 0.0};
        return 0;
    }
    rot_turns(angle, turns);
    quadrant = turns[0] >> 30;
    flip = turns[0] >> 29 & 1; /* a fraction of 1/2 or more counts down from the next quadrant */
    for (int i = 0; i < 6; i++) {
        uint32_t word = (turns[i] << 2 | turns[i + 1] >> 30) ^ (0u - flip);

        part = rot_add(part, {word * weight, 0.0});
        weight = weight * 0x1p-32;
    }
    if (flip) part = {-part.hi, -part.lo};
    *rest = rot_mul(part, half_pi);
    return quadrant + flip;
}

/* Taylor series on |x| <= pi/4: to x^21 for the sine, to x^22 for the cosine (what follows is below
 * 2^-77), the leading terms in dd, the others in double: relative error below 2^-66. */
static __device__ __forceinline__ struct rot_dd rot_sin_series(struct rot_dd x,
                                                               struct rot_dd square)
{
    struct rot_dd third = {-0x1.5555555555555p-3, -0x1.5555555555555p-57}, sum;
    struct rot_dd fifth = {0x1.1111111111111p-7, 0x1.1111111111111p-63};
    double z = square.hi, tail = 0x1.71b8ef6dcf572p-66;

    tail = fma(tail, z, -0x1.2f49b46814157p-57);
    tail = fma(tail, z, 0x1.952c77030ad4ap-49);
    tail = fma(tail, z, -0x1.ae7f3e733b81fp-41);
    tail = fma(tail, z, 0x1.6124613a86d09p-33);
    tail = fma(tail, z, -0x1.ae64567f544e4p-26);
    tail = fma(tail, z, 0x1.71de3a556c734p-19);
    tail = fma(tail, z, -0x1.a01a01a01a01ap-13);
    sum = rot_add(fifth, {tail * z, 0.0});
    sum = rot_add(third, rot_mul(sum, square));
    return rot_add(x, rot_mul(x, rot_mul(sum, square)));
}

static __device__ __forceinline__ struct rot_dd rot_cos_series(struct rot_dd square)
{
    struct rot_dd fourth = {0x1.5555555555555p-5, 0x1.5555555555555p-59}, sum;
    struct rot_dd sixth = {-0x1.6c16c16c16c17p-10, 0x1.f49f49f49f49fp-65};
    double z = square.hi, tail = -0x1.0ce396db7f853p-70;

    tail = fma(tail, z, 0x1.e542ba4020225p-62);
    tail = fma(tail, z, -0x1.6827863b97d97p-53);
    tail = fma(tail, z, 0x1.ae7f3e733b81fp-45);
    tail = fma(tail, z, -0x1.93974a8c07c9dp-37);
    tail = fma(tail, z, 0x1.1eed8eff8d898p-29);
    tail = fma(tail, z, -0x1.27e4fb7789f5cp-22);
    tail = fma(tail, z, 0x1.a01a01a01a01ap-16);
    sum = rot_add(sixth, {tail * z, 0.0});
    sum = rot_add(fourth, rot_mul(sum, square));
    sum = rot_add({-0.5, 0.0}, rot_mul(sum, square));
    return rot_add({1.0, 0.0}, rot_mul(sum, square));
}

/* The float nearest hi + lo. With a lower part, hi is moved to the neighbour with an odd last bit
 * (rounding to odd), which settles what would look like a tie to the conversion. */
static __device__ __forceinline__ float rot_to_f32(struct rot_dd x)
{
    long long bits = __double_as_longlong(x.hi);

    if (x.lo != 0.0 && (bits & 1) == 0) bits += (x.lo > 0.0) == (x.hi > 0.0) ? 1 : -1;
    return (float)__longlong_as_double(bits);
}

/* Cosine and sine of pair j at a position; pos < 2^31, j < rot/2, theta positive and finite. */
static __device__ __forceinline__ struct rot_angle rot_cos_sin(float theta, uint32_t rot,
                                                               uint32_t pair, uint32_t pos)
{
    struct rot_dd rest, square, c, s;
    uint32_t quadrant = rot_reduce((double)pos * rot_frequency(theta, rot, pair), &rest);
    struct rot_angle angle;

    square = rot_mul(rest, rest);
    c = rot_cos_series(square);
    s = rot_sin_series(rest, square);
    angle.cosine = rot_to_f32(quadrant & 1 ? s : c);
    angle.sine = rot_to_f32(quadrant & 1 ? c : s);
    if ((quadrant + 1) & 2) angle.cosine = -angle.cosine;
    if (quadrant & 2) angle.sine = -angle.sine;
    return angle;
}

#endif
