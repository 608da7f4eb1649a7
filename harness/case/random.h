/* Counter-based random numbers (Philox4x32-10 of Random123): a value depends only on its key and
 * counter, so a case means the same bytes on every machine and in any order of generation. */
#ifndef ATTEST_RANDOM_H
#define ATTEST_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

/* Four random words for (seed, stream, index). */
void random_block(uint64_t seed, uint32_t stream, uint64_t index, uint32_t out[4]);
/* One word for element `index`: word index%4 of block index/4. */
uint32_t random_u32(uint64_t seed, uint32_t stream, uint64_t index);
/* Blocks first .. first + count - 1 of that stream, out[4 * count]: the same words, sooner. */
void random_blocks(uint64_t seed, uint32_t stream, uint64_t first, uint32_t count, uint32_t *out);
/* A sum of four uniform bytes plus a uniform fraction, scaled to mean 0 and variance 1: close to
 * normal, exact in integers, so free of any libm. Range +-3.47. */
double random_normal_from(uint32_t word);
/* The same of n words. */
void random_normals(const uint32_t *words, uint32_t n, double *out);

/* A stream to draw choices from, for sampling geometries. */
struct rng {
    uint64_t seed;
    uint32_t stream;
    uint64_t next;
};
uint32_t rng_u32(struct rng *r);
/* Uniform in [low, high]. */
int64_t rng_range(struct rng *r, int64_t low, int64_t high);
/* True once in `n`. */
bool rng_one_in(struct rng *r, uint32_t n);
/* One of the listed integers. */
int64_t rng_pick(struct rng *r, const int64_t *values, uint32_t count);
/* A number in [low, high] biased to the ends and to 0, +-1 around multiples of `around`. */
int64_t rng_edge(struct rng *r, int64_t low, int64_t high, int64_t around);
/* A random permutation of 0..n-1. */
void rng_permutation(struct rng *r, uint32_t *order, uint32_t n);
#endif
