/* Why block_size must be a multiple of index_kpool: a page holds block_size/index_kpool pools, and
 * where that does not come out even, a pool lies on two pages. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gpu/test_launch_dsa_support.h"
#include "ref/dsa.h"

TestSuite(dsa_pages, .timeout = 60);

enum { TOKENS = 24, DIM = 32, KPOOL = 4, POOLS = TOKENS / KPOOL, PAGES_MAX = 4, STORE = 40 };

/* Keys of a sequence: in one piece, and in pages that lie in another order, poison around them. */
struct keys {
    uint16_t whole[TOKENS * DIM], paged[STORE * DIM];
    uint8_t valid[STORE];
    float ape[KPOOL * DIM];
    uint32_t block;
};

static const uint32_t table[PAGES_MAX] = {2, 0, 3, 1};

static uint32_t place(const struct keys *keys, uint32_t token)
{
    return table[token / keys->block] * keys->block + token % keys->block;
}

static void fill(struct keys *keys, uint32_t block)
{
    uint64_t state = 99;
    keys->block = block;
    for (uint32_t i = 0; i < KPOOL * DIM; i++) keys->ape[i] = 0.125f * (float)(i % 5);
    for (uint32_t i = 0; i < STORE * DIM; i++) keys->paged[i] = 0x7fc1;
    memset(keys->valid, 1, sizeof keys->valid);
    for (uint32_t t = 0; t < TOKENS; t++) {
        for (uint32_t d = 0; d < DIM; d++) keys->whole[t * DIM + d] = dsa_test_random_bf16(&state);
        memcpy(keys->paged + place(keys, t) * DIM, keys->whole + t * DIM, DIM * sizeof(uint16_t));
    }
}

/* `pools` pools from `first_key` on, the gates being the keys themselves. The kernel itself is told
 * nothing of pages: block 0 is what a caller without the rule would pass. */
static void compress(struct dsa_test *test, const struct keys *keys, const uint16_t *k,
                     uint32_t tokens, uint32_t first_key, uint32_t pools, float *out,
                     int32_t *indices)
{
    struct gpu_dsa_kpool_compress args = {
        .pools = pools, .S = tokens, .D = DIM, .KP = KPOOL, .first_key = (int32_t)first_key};
    args.k = dsa_test_input(test, "k", k, (uint64_t)tokens * DIM, 2);
    args.gate = dsa_test_input(test, "gate", k, (uint64_t)tokens * DIM, 2);
    args.valid = dsa_test_input(test, "valid", keys->valid, tokens, 1);
    args.ape = dsa_test_input(test, "ape", keys->ape, KPOOL * DIM, 4);
    args.pool_keys = dsa_test_output(test, "pool_keys", (uint64_t)pools * DIM, 4);
    args.pool_indices = dsa_test_output(test, "pool_indices", (uint64_t)pools * KPOOL, 4);
    args.pool_valid = dsa_test_output(test, "pool_valid", pools, 1);
    dsa_test_ran(test, gpu_dsa_kpool_compress(&test->target, &args, &test->report));
    dsa_test_read(test, args.pool_keys, out);
    dsa_test_read(test, args.pool_indices, indices);
    dsa_test_clear(test);
}

/* Pools read as a page table of pools gives them, KPOOL slots from the place of the first token on,
 * against pools of the whole. Returns one bit for each that differs; in *straddling one for each
 * whose tokens lie on two pages. */
static uint32_t pools_lost(struct dsa_test *test, uint32_t block, uint32_t *straddling)
{
    static struct keys keys;
    float whole[POOLS * DIM], paged[DIM];
    int32_t indices[POOLS * KPOOL], own[KPOOL];
    uint32_t lost = 0;
    fill(&keys, block);
    compress(test, &keys, keys.whole, TOKENS, 0, POOLS, whole, indices);
    *straddling = 0;
    for (uint32_t pool = 0; pool < POOLS; pool++) {
        const int32_t *slots = indices + pool * KPOOL;
        uint32_t first = (uint32_t)slots[0] / block, last = (uint32_t)slots[KPOOL - 1] / block;
        *straddling |= (uint32_t)(first != last) << pool;
        compress(test, &keys, keys.paged, STORE, place(&keys, (uint32_t)slots[0]), 1, paged, own);
        lost |= (uint32_t)(memcmp(paged, whole + pool * DIM, sizeof paged) != 0) << pool;
    }
    return lost;
}

static void straddle(struct dsa_test *test)
{
    uint32_t straddling;
    cr_assert_eq(pools_lost(test, 8, &straddling), 0);
    cr_assert_eq(straddling, 0);
    /* 6 slots: pool 1 is tokens 4..7 on pages 0 and 1, pool 4 is tokens 16..19 on pages 2 and 3. */
    cr_assert_eq(pools_lost(test, 6, &straddling), 0x12);
    cr_assert_eq(straddling, 0x12);
}

Test(dsa_pages, without_the_rule_a_pool_straddles_two_pages)
{
    dsa_test_every_way("dsa_indexer", straddle);
}

Test(dsa_pages, the_rule_is_refused_and_named)
{
    for (uint32_t block = 1; block <= 20; block++) {
        struct gpu_dsa_kpool_compress a = {
            .pools = 6, .S = 24, .D = 32, .KP = 4, .block_size = block};
        struct ref_dsa_kpool_compress g = {
            .pools = 6, .S = 24, .D = 32, .KP = 4, .block_size = block};
        struct gpu_report report = {{0}, {0}};
        struct ref_refusal why = {{0}, {0}};
        char numbers[80];
        bool legal = block % 4 == 0;
        cr_assert_eq(gpu_dsa_kpool_compress_check(&a, &report) == GPU_OK, legal);
        cr_assert_eq(ref_dsa_kpool_compress_accepts(&g, &why), legal);
        if (legal) continue;
        snprintf(numbers, sizeof numbers, "block_size %u is not a multiple of index_kpool 4",
                 block);
        cr_assert_str_eq(report.rule, "block_size_multiple_of_kpool");
        cr_assert_str_eq(why.rule, "block_size_multiple_of_kpool");
        cr_assert_not_null(strstr(report.text, numbers), "%s", report.text);
        cr_assert_not_null(strstr(why.text, numbers), "%s", why.text);
        cr_assert_not_null(strstr(report.text, "straddle"), "%s", report.text);
    }
}
