#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "harness/case/paging.h"
#include "harness/case/random.h"
#include "harness/case/values.h"
#include "ref/formats.h"

static double dot(const double *a, const double *b, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static struct field make(enum field_kind kind, enum regime regime)
{
    return field_make(42, kind == FIELD_QUERY ? 1 : 2, kind, regime, DTYPE_BF16, 64);
}

Test(values, a_row_depends_on_nothing_but_its_key)
{
    double a[64], b[64];
    struct field f = make(FIELD_KEY, REGIME_NORMAL);
    field_row(&f, 1000000, a);
    field_row(&f, 3, b);
    field_row(&f, 1000000, b);
    cr_assert_arr_eq(a, b, sizeof a);
    f.seed++;
    field_row(&f, 1000000, b);
    cr_assert(memcmp(a, b, sizeof a));
}

/* Bytes of a case are part of its identity: these numbers may never change. */
Test(values, generated_bytes_are_pinned)
{
    uint32_t words[4];
    uint16_t row[64];
    random_block(1, 2, 3, words);
    struct field f = make(FIELD_KEY, REGIME_NORMAL);
    field_row_store(&f, 5, DTYPE_BF16, row);
    uint32_t hash = 2166136261u;
    for (int i = 0; i < 64; i++) hash = (hash ^ row[i]) * 16777619u;
    for (int i = 0; i < 4; i++) hash = (hash ^ words[i]) * 16777619u;
    cr_assert_eq(hash, 0x44f53bdbu, "the hash is 0x%08x", hash);
}

Test(values, normal_has_mean_0_and_variance_1)
{
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < 100000; i++) {
        double x = random_normal_from(random_u32(9, 9, i));
        sum += x;
        squares += x * x;
    }
    cr_assert_float_eq(sum / 1e5, 0, 0.02);
    cr_assert_float_eq(squares / 1e5, 1, 0.02);
}

Test(values, all_negative_and_relu_ties_do_what_they_say)
{
    double q[64], k[64];
    uint32_t positive = 0;
    struct field fq = make(FIELD_QUERY, REGIME_ALL_NEGATIVE), fk = make(FIELD_KEY, REGIME_ALL_NEGATIVE);
    struct field tq = make(FIELD_QUERY, REGIME_RELU_TIES), tk = make(FIELD_KEY, REGIME_RELU_TIES);
    for (uint64_t row = 0; row < 160; row++) {
        field_row(&fq, row % 7, q);
        field_row(&fk, row, k);
        cr_assert_lt(dot(q, k, 64), 0);
        field_row(&tq, row % 7, q);
        field_row(&tk, row, k);
        positive += dot(q, k, 64) > 0;
    }
    cr_assert_eq(positive, 10);
}

Test(values, exact_int_is_exact_in_f32_in_any_order)
{
    double q[64], k[64];
    struct field fq = make(FIELD_QUERY, REGIME_EXACT_INT), fk = make(FIELD_KEY, REGIME_EXACT_INT);
    for (uint64_t row = 0; row < 100; row++) {
        field_row(&fq, row, q);
        field_row(&fk, row, k);
        for (int i = 0; i < 64; i++)
            cr_assert(q[i] == rint(q[i]) && fabs(q[i]) <= 2 && k[i] == rint(k[i]) && fabs(k[i]) <= 3);
    }
}

Test(values, subnormal_reaches_the_subnormals_of_each_format)
{
    uint16_t half[64];
    uint8_t byte[64];
    int half_subnormal = 0, byte_subnormal = 0;
    struct field f = make(FIELD_KEY, REGIME_SUBNORMAL);
    field_row_store(&f, 1, DTYPE_BF16, half);
    f = field_make(42, 2, FIELD_KEY, REGIME_SUBNORMAL, DTYPE_E4M3, 64);
    field_row_store(&f, 1, DTYPE_E4M3, byte);
    for (int i = 0; i < 64; i++) {
        half_subnormal += (half[i] & 0x7f80) == 0 && (half[i] & 0x7f);
        byte_subnormal += (byte[i] & 0x78) == 0 && (byte[i] & 7);
    }
    cr_assert_gt(half_subnormal, 32);
    cr_assert_gt(byte_subnormal, 32);
}

Test(values, poison_is_nan_then_huge)
{
    float f[4];
    uint16_t h[4];
    uint8_t b[4];
    poison_fill(f, DTYPE_F32, 4, POISON_NAN);
    poison_fill(h, DTYPE_BF16, 4, POISON_NAN);
    poison_fill(b, DTYPE_E4M3, 4, POISON_NAN);
    cr_assert(isnan(f[3]) && isnan(ref_bf16_to_f32(h[3])) && isnan(ref_e4m3_to_f32(b[3])));
    poison_fill(f, DTYPE_F32, 4, POISON_HUGE);
    poison_fill(h, DTYPE_BF16, 4, POISON_HUGE);
    poison_fill(b, DTYPE_E4M3, 4, POISON_HUGE);
    cr_assert(f[3] > 1e38f && ref_bf16_to_f32(h[3]) > 1e38f && ref_e4m3_to_f32(b[3]) == 448);
}

/* Every page that is used is used once, except the shared ones. */
Test(paging, pages_are_distinct_and_in_the_pool)
{
    int64_t lengths[] = {37, 0, 64, 1, 16};
    for (int order = PAGES_IDENTITY; order <= PAGES_HIGH; order++) {
        struct paging p;
        uint8_t seen[64] = {0};
        cr_assert(paging_make(&p, lengths, 5, 6, 16, 16 * 64, (enum page_order)order, 0, 77));
        for (uint32_t s = 0; s < 5; s++) {
            for (uint32_t b = 0; b < 6; b++) {
                int32_t page = p.table[s * 6 + b];
                bool used = b * 16 < (uint64_t)lengths[s];
                cr_assert_eq(page >= 0, used);
                if (!used) continue;
                cr_assert(page >= (int32_t)p.first_page && page < (int32_t)p.num_pages);
                if (b < p.shared[s])
                    cr_assert_eq(page, p.table[b]);
                else
                    cr_assert_eq(seen[page - (int32_t)p.first_page]++, 0);
            }
        }
        if (order == PAGES_HIGH)
            cr_assert_gt(paging_token_offset(&p, 0, 0, 64), UINT64_C(1) << 32);
        if (order == PAGES_SHARED) cr_assert_eq(p.shared[2], 2);
        paging_free(&p);
    }
}

/* A pool of a given size has that size; high pages are its last, never below 2^32 bytes. */
Test(paging, a_pool_of_at_least_so_many_pages)
{
    int64_t lengths[] = {37, 64};
    struct paging p;
    cr_assert(paging_make(&p, lengths, 2, 6, 16, 1 << 15, PAGES_SHUFFLED, 500, 77));
    cr_assert_eq(p.num_pages, 500);
    cr_assert_eq(p.first_page, 0);
    paging_free(&p);
    cr_assert(paging_make(&p, lengths, 2, 6, 16, 1 << 15, PAGES_HIGH, 200100, 77));
    cr_assert_eq(p.num_pages, 200100);
    for (uint32_t i = 0; i < 12; i++) cr_assert(p.table[i] == -1 || p.table[i] >= 200090);
    paging_free(&p);
    cr_assert(paging_make(&p, lengths, 2, 6, 16, 1 << 15, PAGES_HIGH, 500, 77));
    cr_assert_geq(p.first_page, 1 << 17);
    cr_assert_gt(p.num_pages, p.first_page);
    paging_free(&p);
}

Test(values, e4m3_is_the_oracles)
{
    for (uint64_t bits = 0; bits < UINT64_C(1) << 32; bits += 4093) {
        float value = ref_f32_from_bits((uint32_t)bits);
        cr_assert_eq(values_e4m3(value), ref_e4m3_from_f32(value), "%08x", (uint32_t)bits);
    }
    /* Every code, the half-way points above and below it, and their neighbours. */
    for (int code = 0; code < 256; code++) {
        float here = ref_e4m3_to_f32((uint8_t)code), next = ref_e4m3_to_f32((uint8_t)(code + 1));
        float half = (here + next) / 2;
        float near[] = {here, half, nextafterf(half, -1000), nextafterf(half, 1000)};
        for (int i = 0; i < 4; i++)
            cr_assert_eq(values_e4m3(near[i]), ref_e4m3_from_f32(near[i]), "%a", near[i]);
    }
}

Test(values, blocks_side_by_side_are_single_blocks)
{
    static const uint64_t firsts[] = {0, UINT64_C(0xfffffffa), UINT64_MAX - 9};
    uint32_t many[4 * 21], one[4];
    for (int f = 0; f < 3; f++) {
        random_blocks(0x123456789abcdef0u, 0x80000007u, firsts[f], 21, many);
        for (uint32_t i = 0; i < 21; i++) {
            random_block(0x123456789abcdef0u, 0x80000007u, firsts[f] + i, one);
            cr_assert_arr_eq(many + 4 * i, one, sizeof one);
        }
    }
}

/* A row kept from before must not stand in for another one. */
Test(values, stored_rows_follow_every_part_of_their_key)
{
    struct field f = field_make(1, 2, FIELD_KEY, REGIME_NORMAL, DTYPE_BF16, 64), g;
    uint16_t row[64], other[64];
    double value[64];
    for (int round = 0; round < 2; round++) {
        for (int part = 0; part < 8; part++) {
            uint64_t r = 5 + (part == 7);
            g = f;
            if (part == 1) g.seed = 2;
            if (part == 2) g.stream = 3;
            if (part == 3) g.regime = REGIME_SUBNORMAL;
            if (part == 4) g.unit = 2;
            if (part == 5) g.regime = REGIME_NEEDLE;
            if (part == 6) g.regime = REGIME_NEEDLE, g.needle_row = 5;
            field_row_store(&g, r, DTYPE_BF16, row);
            field_row(&g, r, value);
            for (int c = 0; c < 64; c++) other[c] = ref_bf16_from_f32((float)value[c]);
            cr_assert_arr_eq(row, other, sizeof row, "part %d", part);
        }
    }
}
