/* Repeatable random numbers for the tests (splitmix64, from its published constants). */
#ifndef ATTEST_REF_TEST_RANDOM_H
#define ATTEST_REF_TEST_RANDOM_H

#include <math.h>
#include <stdint.h>

struct test_random {
    uint64_t state;
};

static inline uint64_t test_bits(struct test_random *rng)
{
    uint64_t x = rng->state += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

/* 0 .. n-1 */
static inline uint32_t test_below(struct test_random *rng, uint32_t n)
{
    return (uint32_t)((test_bits(rng) >> 32) * n >> 32);
}

/* [-1, 1) */
static inline double test_uniform(struct test_random *rng)
{
    return (double)(int64_t)test_bits(rng) * 0x1p-63;
}

static inline double test_normal(struct test_random *rng)
{
    double u = fabs(test_uniform(rng)) + 0x1p-60, angle = test_uniform(rng) * 0x1.921fb54442d18p1;
    return sqrt(-2.0 * log(u)) * cos(angle);
}
#endif
