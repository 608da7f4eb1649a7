/* Data for the tests of the QSA oracle. */
#ifndef ATTEST_REF_TEST_QSA_H
#define ATTEST_REF_TEST_QSA_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "formats.h"

static inline uint64_t test_random(uint64_t *state)
{
    *state += 0x9e3779b97f4a7c15;
    uint64_t z = *state;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static inline uint32_t test_below(uint64_t *state, uint32_t limit)
{
    return (uint32_t)(test_random(state) % limit);
}

/* In (-1, 1). */
static inline double test_uniform(uint64_t *state)
{
    return ldexp((double)(int64_t)test_random(state), -63);
}

/* About normal, of the given size. */
static inline double test_normal(uint64_t *state, double size)
{
    double sum = 0;
    for (int i = 0; i < 3; i++) sum += test_uniform(state);
    return sum * size;
}

static inline void test_fill_bf16(uint64_t *state, double size, size_t n, uint16_t *out)
{
    for (size_t i = 0; i < n; i++) out[i] = ref_bf16_from_f64(test_normal(state, size));
}

static inline void test_fill_f32(uint64_t *state, double size, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) out[i] = (float)test_normal(state, size);
}

static inline void *test_alloc(size_t n, size_t size)
{
    void *memory = calloc(n ? n : 1, size);
    if (!memory) abort();
    return memory;
}

enum { TEST_BF16_NAN = 0x7fff, TEST_BF16_ONE = 0x3f80 };
#endif
