#include "harness/case/random.h"

#include <Random123/philox.h>

void random_block(uint64_t seed, uint32_t stream, uint64_t index, uint32_t out[4])
{
    philox4x32_ctr_t counter = {{(uint32_t)index, (uint32_t)(index >> 32), stream, 0}};
    philox4x32_key_t key = {{(uint32_t)seed, (uint32_t)(seed >> 32)}};
    philox4x32_ctr_t r = philox4x32(counter, key);
    for (int i = 0; i < 4; i++) out[i] = r.v[i];
}

enum { LANES = 8 };
/* 32-bit numbers in 64-bit lanes, where their products fit. */
typedef uint64_t lanes __attribute__((vector_size(8 * LANES)));

/* Philox4x32-10 on LANES consecutive counters side by side. */
static void philox_lanes(uint64_t seed, uint32_t stream, uint64_t first, uint32_t *out)
{
    const lanes low = (lanes){0} + UINT32_MAX;
    lanes c0, c1, c2 = (lanes){0} + stream, c3 = {0};
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int i = 0; i < LANES; i++) {
        c0[i] = (uint32_t)(first + (uint64_t)i);
        c1[i] = (first + (uint64_t)i) >> 32;
    }
    for (int round = 0; round < 10; round++) {
        lanes a = (c0 & low) * PHILOX_M4x32_0, b = (c2 & low) * PHILOX_M4x32_1;
        c0 = (b >> 32) ^ c1 ^ k0;
        c1 = b & low;
        c2 = (a >> 32) ^ c3 ^ k1;
        c3 = a & low;
        k0 += PHILOX_W32_0;
        k1 += PHILOX_W32_1;
    }
    for (int i = 0; i < LANES; i++) {
        out[4 * i] = (uint32_t)c0[i];
        out[4 * i + 1] = (uint32_t)c1[i];
        out[4 * i + 2] = (uint32_t)c2[i];
        out[4 * i + 3] = (uint32_t)c3[i];
    }
}

void random_blocks(uint64_t seed, uint32_t stream, uint64_t first, uint32_t count, uint32_t *out)
{
    uint32_t done = 0;
    for (; count - done >= LANES; done += LANES)
        philox_lanes(seed, stream, first + done, out + 4 * done);
    for (; done < count; done++) random_block(seed, stream, first + done, out + 4 * done);
}

uint32_t random_u32(uint64_t seed, uint32_t stream, uint64_t index)
{
    /* Words are mostly drawn in order: a block serves four of them. */
    static _Thread_local struct {
        uint64_t seed, block;
        uint32_t stream, words[4];
        bool made;
    } last;
    if (!last.made || last.block != index / 4 || last.seed != seed || last.stream != stream) {
        random_block(seed, stream, index / 4, last.words);
        last.seed = seed;
        last.stream = stream;
        last.block = index / 4;
        last.made = true;
    }
    return last.words[index % 4];
}

/* Without branches, and from signed integers only: the loop below becomes vector code. */
static inline double normal_from(uint32_t word)
{
    uint32_t pairs = (word & 0xff00ff) + (word >> 8 & 0xff00ff);
    int32_t sum = (int32_t)((pairs & 0xffff) + (pairs >> 16));
    /* (x - 2^31)*2^-32 is x*2^-32 - 1/2: the fraction, from -1/2. */
    double fraction = (double)(int32_t)(word * 2654435761u ^ 0x80000000u) * 0x1p-32;
    /* Variance of four uniform bytes: 4*(256^2-1)/12 = 21845; sqrt is 147.80... */
    return (sum - 510 + fraction) * (1.0 / 147.8);
}

double random_normal_from(uint32_t word)
{
    return normal_from(word);
}

void random_normals(const uint32_t *words, uint32_t n, double *out)
{
    for (uint32_t i = 0; i < n; i++) out[i] = normal_from(words[i]);
}

uint32_t rng_u32(struct rng *r)
{
    return random_u32(r->seed, r->stream, r->next++);
}

int64_t rng_range(struct rng *r, int64_t low, int64_t high)
{
    if (high <= low) return low;
    uint64_t span = (uint64_t)(high - low) + 1;
    uint64_t word = (uint64_t)rng_u32(r) << 32 | rng_u32(r);
    return low + (int64_t)(span ? word % span : word);
}

bool rng_one_in(struct rng *r, uint32_t n)
{
    return rng_u32(r) % n == 0;
}

int64_t rng_pick(struct rng *r, const int64_t *values, uint32_t count)
{
    return values[rng_u32(r) % count];
}

int64_t rng_edge(struct rng *r, int64_t low, int64_t high, int64_t around)
{
    int64_t value;
    switch (rng_u32(r) % 6) {
    case 0: value = low + rng_range(r, 0, 1); break;
    case 1: value = high - rng_range(r, 0, 1); break;
    case 2:
    case 3:
        if (around < 1) around = 1;
        value = around * rng_range(r, 0, high / around) + rng_range(r, -1, 1);
        break;
    default: value = rng_range(r, low, high);
    }
    return value < low ? low : value > high ? high : value;
}

void rng_permutation(struct rng *r, uint32_t *order, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) order[i] = i;
    for (uint32_t i = n; i > 1; i--) {
        uint32_t j = (uint32_t)rng_range(r, 0, i - 1), t = order[i - 1];
        order[i - 1] = order[j];
        order[j] = t;
    }
}
