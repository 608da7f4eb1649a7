/* Storage formats: bf16, e4m3 (fn), f32 bits. Conversions follow ops.md §0 and numerics §7. */
#ifndef ATTEST_REF_FORMATS_H
#define ATTEST_REF_FORMATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Exact value of a bf16 / e4m3 code. NaN codes give a quiet NaN. */
float ref_bf16_to_f32(uint16_t bits);
float ref_e4m3_to_f32(uint8_t bits);
/* The same for n codes in a row. */
void ref_bf16_to_f32_n(const uint16_t *bits, size_t n, float *out);
void ref_e4m3_to_f32_n(const uint8_t *bits, size_t n, float *out);
/* Round to nearest even. Every NaN becomes 0x7fff. Overflow gives infinity. Subnormals kept. */
uint16_t ref_bf16_from_f32(float value);
/* Directly from double, rounded once. */
uint16_t ref_bf16_from_f64(double value);
/* Round to nearest even, saturating to +-448 (also from infinity); NaN becomes 0x7f. */
uint8_t ref_e4m3_from_f32(float value);
uint32_t ref_f32_bits(float value);
float ref_f32_from_bits(uint32_t bits);
/* The nearest f32 not above / not below a double. */
float ref_f32_below(double value);
float ref_f32_above(double value);
#endif
