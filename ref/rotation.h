/* The tables of the rotary embedding (ops.md §0), each the nearest representable number of a real
 * one, so that every right implementation has the same bits whatever its algorithm. */
#ifndef ATTEST_REF_ROTATION_H
#define ATTEST_REF_ROTATION_H

#include <stdint.h>

/* The double nearest theta^(-2j/rot). theta positive and finite, rot even, 2..1024, j < rot/2. The
 * rounding is decided by exact integer arithmetic wherever an approximation leaves it open. */
double ref_rotation_frequency(float theta, uint32_t rot, uint32_t j);

/* The floats nearest the true cosine and sine of a double angle, 0 <= angle < 2^190. */
void ref_rotation_sincos(double angle, float *cosine, float *sine);

/* The same by 512-bit fixed point alone: what ref_rotation_sincos falls back to where the double
 * functions leave the rounding open, about one value in 2^24. The angle is 0 or at least 2^-150. */
void ref_rotation_sincos_wide(double angle, float *cosine, float *sine);
#endif
