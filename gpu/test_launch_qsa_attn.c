/* The cache consumers on the CPU backend: answers worked out by hand, and prefill against decode
 * over gathered tokens, which add in different orders. */
#include "test_launch_qsa_support.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TOKENS = 1024, MAX_WIDTH = 512 };

/* Tokens of one sequence in order, [token][nkv][hd], and the same in pages. */
struct cache {
    uint16_t k[MAX_TOKENS * MAX_WIDTH], v[MAX_TOKENS * MAX_WIDTH];
    uint16_t k_pages[2 * MAX_TOKENS * MAX_WIDTH], v_pages[2 * MAX_TOKENS * MAX_WIDTH];
    int32_t table[MAX_TOKENS];
    uint32_t tokens, pages, block_size, nkv, hd;
};

static struct cache cache;

/* Random tokens on every other page, back to front; what belongs to no token is NaN. */
static void fill_cache(uint32_t tokens, uint32_t block_size, uint32_t nkv, uint32_t hd)
{
    uint32_t used = (tokens + block_size - 1) / block_size, width = nkv * hd;
    uint64_t state = tokens + hd;

    cache.tokens = tokens;
    cache.pages = 2 * used;
    cache.block_size = block_size;
    cache.nkv = nkv;
    cache.hd = hd;
    cr_assert(tokens <= MAX_TOKENS && width <= MAX_WIDTH &&
              cache.pages * block_size <= 2 * MAX_TOKENS);
    for (uint32_t i = 0; i < tokens * width; i++) {
        cache.k[i] = qsa_test_random_bf16(&state);
        cache.v[i] = qsa_test_random_bf16(&state);
    }
    for (uint32_t page = 0; page < used; page++)
        cache.table[page] = (int32_t)(2 * (used - page)) - 1;
}

static void page_cache(void)
{
    uint32_t width = cache.nkv * cache.hd;

    memset(cache.k_pages, 0xff, sizeof cache.k_pages);
    memset(cache.v_pages, 0xff, sizeof cache.v_pages);
    for (uint32_t t = 0; t < cache.tokens; t++) {
        uint32_t page = (uint32_t)cache.table[t / cache.block_size];
        uint32_t slot = page * cache.block_size + t % cache.block_size;

        memcpy(cache.k_pages + slot * width, cache.k + t * width, 2 * width);
        memcpy(cache.v_pages + slot * width, cache.v + t * width, 2 * width);
    }
}

/* Elements between the start of an allocation and the cache in it: 1 takes 16-byte loads away. */
static uint32_t shift;

static const struct gpu_buffer *page_buffer(struct qsa_test *test, const char *name,
                                            const uint16_t *pages)
{
    static uint16_t shifted[2 * MAX_TOKENS * MAX_WIDTH + 8];
    static struct gpu_buffer views[2];
    uint64_t n = (uint64_t)cache.pages * cache.block_size * cache.nkv * cache.hd;
    struct gpu_buffer *view = &views[name[0] == 'v'];

    memset(shifted, 0xff, shift * sizeof *shifted);
    memcpy(shifted + shift, pages, n * sizeof *pages);
    *view = *qsa_test_input(test, name, shifted, n + shift, 2);
    view->address += shift * sizeof *shifted;
    view->size_bytes -= shift * sizeof *shifted;
    return view;
}

/* Decode attention of nq heads over the first seq_len tokens. */
static void decode(struct qsa_test *test, uint16_t *out, const uint16_t *q, uint32_t nq,
                   uint32_t seq_len)
{
    uint32_t table_len = (cache.tokens + cache.block_size - 1) / cache.block_size;

    page_cache();
    struct gpu_paged_decode_attn args = {
        .q = qsa_test_input(test, "q", q, nq * cache.hd, 2),
        .k_cache = page_buffer(test, "k_cache", cache.k_pages),
        .v_cache = page_buffer(test, "v_cache", cache.v_pages),
        .block_table = qsa_test_input(test, "block_table", cache.table, table_len, 4),
        .out = qsa_test_output(test, "out", nq * cache.hd, 2),
        .host_block_table = cache.table,
        .table_len = table_len,
        .num_pages = cache.pages,
        .seq_len = seq_len,
        .block_size = cache.block_size,
        .nq = nq,
        .nkv = cache.nkv,
        .hd = cache.hd,
        .inv_sqrt_d = 0.125f,
    };
    qsa_test_ran(test, gpu_paged_decode_attn(&test->target, &args, &test->report));
    qsa_test_read(test, args.out, out);
    qsa_test_clear(test);
}

static bool is_nan(uint16_t bf16)
{
    return (bf16 & 0x7fff) > 0x7f80;
}

static void decode_by_hand(struct qsa_test *test)
{
    enum { HD = 96, NQ = 4, N = 64 };
    uint16_t q[NQ * HD], out[NQ * HD];
    uint64_t state = 1;

    fill_cache(N, 5, 2, HD);
    for (int i = 0; i < NQ * HD; i++) q[i] = qsa_test_random_bf16(&state);
    decode(test, out, q, NQ, 0); /* nothing attended */
    for (int i = 0; i < NQ * HD; i++) cr_expect_eq(out[i], 0);
    decode(test, out, q, NQ, 1); /* one token: its value, of head / 2 */
    for (int i = 0; i < NQ * HD; i++)
        cr_expect_eq(out[i], cache.v[i / HD / 2 * HD + i % HD], "head %d dim %d", i / HD, i % HD);
    /* A query of zeros: equal weights, here over the 64 values 0, 2, 0, 2, ... */
    memset(q, 0, sizeof q);
    for (int i = 0; i < N * 2 * HD; i++) cache.v[i] = qsa_test_bf16((float)(i / (2 * HD) % 2 * 2));
    decode(test, out, q, NQ, N);
    for (int i = 0; i < NQ * HD; i++) cr_expect_eq(out[i], qsa_test_bf16(1));
    /* One key that scores 96 * 16 / 8 = 192 above the others' 0: they weigh exactly nothing. */
    memset(cache.k, 0, sizeof cache.k);
    for (int i = 0; i < NQ * HD; i++) q[i] = qsa_test_bf16(4);
    for (int i = 0; i < 2 * HD; i++) cache.k[41 * 2 * HD + i] = qsa_test_bf16(4);
    for (int i = 0; i < 2 * HD; i++) cache.v[41 * 2 * HD + i] = qsa_test_bf16((float)(i + 1));
    decode(test, out, q, NQ, N);
    for (int i = 0; i < NQ * HD; i++)
        cr_expect_eq(out[i], qsa_test_bf16((float)(i / HD / 2 * HD + i % HD + 1)));
}

Test(launch_qsa_attn, decode_by_hand)
{
    qsa_test_every_way(decode_by_hand);
}

/* NaN and infinities behave as in the definition: nothing is dropped, nothing is invented. */
static void decode_special_values(struct qsa_test *test)
{
    enum { HD = 64, N = 40 };
    uint16_t q[HD], out[HD];

    fill_cache(N, 8, 1, HD);
    for (int i = 0; i < HD; i++) q[i] = qsa_test_bf16(1);
    cache.v[17 * HD + 5] = 0x7fff;
    decode(test, out, q, 1, N);
    for (int d = 0; d < HD; d++) cr_expect_eq(is_nan(out[d]), d == 5, "dim %d", d);
    cache.v[17 * HD + 5] = 0;
    cache.k[33 * HD] = 0x7fff; /* a NaN score makes every weight NaN */
    decode(test, out, q, 1, N);
    for (int d = 0; d < HD; d++) cr_expect(is_nan(out[d]), "dim %d", d);
    cache.k[33 * HD] = 0;
    /* Scores of -inf weigh nothing, even where a warp sees no other. */
    for (int t = 0; t < N; t++) cache.k[t * HD + 1] = t == 9 ? 0 : 0xff80;
    decode(test, out, q, 1, N);
    for (int d = 0; d < HD; d++) cr_expect_eq(out[d], cache.v[9 * HD + d], "dim %d", d);
    cache.k[9 * HD + 1] = 0xff80;
    decode(test, out, q, 1, N); /* all -inf: 0 / 0 */
    for (int d = 0; d < HD; d++) cr_expect(is_nan(out[d]), "dim %d", d);
}

Test(launch_qsa_attn, decode_special_values)
{
    qsa_test_every_way(decode_special_values);
}

/* What one row attends: its list's blocks in order, holes left out, then the tail. */
static uint32_t attended(int32_t *tokens, const int32_t *list, uint32_t topk, uint32_t position,
                         uint32_t ratio)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < topk; i++)
        for (uint32_t t = 0; list[i] >= 0 && t < ratio; t++)
            tokens[n++] = (int32_t)((uint32_t)list[i] * ratio + t);
    for (uint32_t t = (position + 1) / ratio * ratio; t <= position; t++) tokens[n++] = (int32_t)t;
    return n;
}

/* `tokens` gathered and attended by decode through an identity table of one-slot pages. */
static void decode_gathered(struct qsa_test *test, uint16_t *out, const uint16_t *q, uint32_t nq,
                            const int32_t *tokens, uint32_t n)
{
    static int32_t identity[MAX_TOKENS];
    static uint16_t gathered[MAX_TOKENS * MAX_WIDTH];
    uint32_t table_len = (cache.tokens + cache.block_size - 1) / cache.block_size;
    uint32_t width = cache.nkv * cache.hd;

    for (uint32_t i = 0; i < n; i++) identity[i] = (int32_t)i;
    struct gpu_qsa_gather gather = {
        .k_cache = page_buffer(test, "k_cache", cache.k_pages),
        .v_cache = page_buffer(test, "v_cache", cache.v_pages),
        .block_table = qsa_test_input(test, "block_table", cache.table, table_len, 4),
        .sel = qsa_test_input(test, "sel", tokens, n, 4),
        .k_out = qsa_test_output(test, "k_out", (uint64_t)n * width, 2),
        .v_out = qsa_test_output(test, "v_out", (uint64_t)n * width, 2),
        .host_block_table = cache.table,
        .host_sel = tokens,
        .n_sel = n,
        .table_len = table_len,
        .num_pages = cache.pages,
        .seq_len = cache.tokens,
        .block_size = cache.block_size,
        .nkv = cache.nkv,
        .hd = cache.hd,
        .ratio = 1,
    };
    qsa_test_ran(test, gpu_qsa_gather(&test->target, &gather, &test->report));
    qsa_test_read(test, gather.v_out, gathered);
    for (uint32_t i = 0; i < n; i++)
        cr_expect_arr_eq(gathered + i * width, cache.v + (uint32_t)tokens[i] * width, 2 * width);
    qsa_test_read(test, gather.k_out, gathered);
    for (uint32_t i = 0; i < n; i++)
        cr_expect_arr_eq(gathered + i * width, cache.k + (uint32_t)tokens[i] * width, 2 * width);
    struct gpu_paged_decode_attn args = {
        .q = qsa_test_input(test, "q", q, nq * cache.hd, 2),
        .k_cache = gather.k_out,
        .v_cache = gather.v_out,
        .block_table = qsa_test_input(test, "block_table", identity, n, 4),
        .out = qsa_test_output(test, "out", nq * cache.hd, 2),
        .table_len = n,
        .num_pages = n,
        .seq_len = n,
        .block_size = 1,
        .nq = nq,
        .nkv = cache.nkv,
        .hd = cache.hd,
        .inv_sqrt_d = 0.125f,
    };
    qsa_test_ran(test, gpu_paged_decode_attn(&test->target, &args, &test->report));
    qsa_test_read(test, args.out, out);
    qsa_test_clear(test);
}

/* A row's list: a random order of some of its complete blocks, holes at random places. */
static void random_list(int32_t *list, uint32_t topk, uint32_t complete, uint64_t *state)
{
    static int32_t order[MAX_TOKENS];
    uint32_t left = complete;

    for (uint32_t b = 0; b < complete; b++) order[b] = (int32_t)b;
    for (uint32_t i = 0; i < topk; i++) {
        list[i] = -1;
        if (left == 0 || qsa_test_random(state, 4) == 0) continue;
        uint32_t pick = qsa_test_random(state, left);
        list[i] = order[pick];
        order[pick] = order[--left];
    }
}

/* Whether two attentions over the same tokens differ by no more than their orders of summation may
 * make them, and one rounding to bf16 each. The values here are below 2 and at most 256 channels
 * long: a score's terms sum to at most 256 * 4 / 8 = 128, so 23 roundings (a chain of 16, a tree of
 * 5, the scale and the subtraction) move it by 23 * 2^-24 * 128 < 2^-12.4, a weight by as much
 * relatively and the sum of weights likewise: 2 * 2^-12.4 * 2 < 2^-10.4 of an output. Numbers of keys
 * and exponentials add less than 2^-13. Two of these, and half a step of bf16 each. */
static bool same_but_order(uint16_t a, uint16_t b)
{
    uint32_t bits_a = (uint32_t)a << 16, bits_b = (uint32_t)b << 16;
    float x, y;

    if (a == b) return true;
    memcpy(&x, &bits_a, sizeof x);
    memcpy(&y, &bits_b, sizeof y);
    float step = ldexpf(fmaxf(fabsf(x), fabsf(y)), -7);
    return fabsf(x - y) <= 2 * (0x1p-10f + 0x1p-13f) + step;
}

static void prefill_case(struct qsa_test *test, uint32_t hd, uint32_t nkv, uint32_t nq,
                         uint32_t ratio, uint32_t block_size, uint32_t first, uint32_t topk)
{
    enum { ROWS = 3 };
    static int32_t lists[ROWS * MAX_TOKENS], tokens[MAX_TOKENS];
    static uint16_t q[ROWS * 4 * 256], rows[ROWS * 4 * 256], one[4 * 256];
    uint64_t state = hd + ratio;
    uint32_t table_len, row_elems = nq * hd;

    fill_cache(first + ROWS, block_size, nkv, hd);
    page_cache();
    table_len = (cache.tokens + block_size - 1) / block_size;
    for (uint32_t i = 0; i < ROWS * row_elems; i++) q[i] = qsa_test_random_bf16(&state);
    for (uint32_t r = 0; r < ROWS; r++)
        random_list(lists + r * topk, topk, (first + r + 1) / ratio, &state);
    struct gpu_qsa_prefill_attn args = {
        .q = qsa_test_input(test, "q", q, ROWS * row_elems, 2),
        .k_cache = page_buffer(test, "k_cache", cache.k_pages),
        .v_cache = page_buffer(test, "v_cache", cache.v_pages),
        .block_table = qsa_test_input(test, "block_table", cache.table, table_len, 4),
        .lists = qsa_test_input(test, "lists", lists, ROWS * topk, 4),
        .attn_out = qsa_test_output(test, "attn_out", ROWS * row_elems, 2),
        .host_block_table = cache.table,
        .host_lists = lists,
        .rows = ROWS,
        .table_len = table_len,
        .num_pages = cache.pages,
        .first_pos = first,
        .topk = topk,
        .ratio = ratio,
        .block_size = block_size,
        .nq = nq,
        .nkv = nkv,
        .hd = hd,
        .inv_sqrt_d = 0.125f,
    };
    qsa_test_ran(test, gpu_qsa_prefill_attn(&test->target, &args, &test->report));
    qsa_test_read(test, args.attn_out, rows);
    qsa_test_clear(test);
    for (uint32_t r = 0; r < ROWS; r++) {
        uint32_t n = attended(tokens, lists + r * topk, topk, first + r, ratio);

        decode_gathered(test, one, q + r * row_elems, nq, tokens, n);
        for (uint32_t i = 0; i < row_elems; i++)
            cr_expect(same_but_order(one[i], rows[r * row_elems + i]),
                      "hd %u row %u, %u tokens: element %u is 0x%04x, prefill's 0x%04x", hd, r, n, i,
                      one[i], rows[r * row_elems + i]);
    }
}

/* Every number of channels a lane can have; lists longer than one, two and three reading steps. */
static void prefill_is_decode(struct qsa_test *test)
{
    prefill_case(test, 32, 2, 4, 1, 3, 900, 801);
    prefill_case(test, 64, 1, 2, 4, 8, 700, 300);
    prefill_case(test, 96, 1, 1, 2, 16, 90, 30);
    prefill_case(test, 128, 2, 2, 8, 8, 333, 17);
    prefill_case(test, 160, 1, 1, 3, 6, 60, 5);
    prefill_case(test, 192, 1, 3, 5, 5, 44, 7);
    prefill_case(test, 224, 1, 1, 4, 4, 30, 1);
    prefill_case(test, 256, 2, 4, 4, 16, 130, 32);
}

Test(launch_qsa_attn, prefill_is_decode)
{
    qsa_test_every_way(prefill_is_decode);
}

/* Caches inside larger allocations, at any address that bf16 may have. */
static void unaligned_caches(struct qsa_test *test)
{
    shift = 1;
    prefill_case(test, 64, 1, 2, 4, 8, 70, 11);
    prefill_case(test, 128, 2, 2, 8, 8, 60, 5);
    prefill_case(test, 256, 1, 2, 4, 16, 40, 6);
    shift = 0;
}

Test(launch_qsa_attn, unaligned_caches)
{
    qsa_test_every_way(unaligned_caches);
}

/* Rows without any token give zeros; a lone tail token gives its value. */
static void prefill_empty_rows(struct qsa_test *test)
{
    enum { HD = 32, ROWS = 2 };
    static const int32_t lists[ROWS * 2] = {-1, -1, -1, -1};
    uint16_t q[ROWS * HD], out[ROWS * HD];
    uint64_t state = 3;

    fill_cache(5, 4, 1, HD);
    page_cache();
    for (int i = 0; i < ROWS * HD; i++) q[i] = qsa_test_random_bf16(&state);
    struct gpu_qsa_prefill_attn args = {
        .q = qsa_test_input(test, "q", q, ROWS * HD, 2),
        .k_cache = page_buffer(test, "k_cache", cache.k_pages),
        .v_cache = page_buffer(test, "v_cache", cache.v_pages),
        .block_table = qsa_test_input(test, "block_table", cache.table, 2, 4),
        .lists = qsa_test_input(test, "lists", lists, ROWS * 2, 4),
        .attn_out = qsa_test_output(test, "attn_out", ROWS * HD, 2),
        .host_block_table = cache.table,
        .host_lists = lists,
        .rows = ROWS,
        .table_len = 2,
        .num_pages = cache.pages,
        .first_pos = 3,
        .topk = 2,
        .ratio = 4,
        .block_size = 4,
        .nq = 1,
        .nkv = 1,
        .hd = HD,
        .inv_sqrt_d = 1,
    };
    qsa_test_ran(test, gpu_qsa_prefill_attn(&test->target, &args, &test->report));
    qsa_test_read(test, args.attn_out, out);
    for (int d = 0; d < HD; d++) {
        cr_expect_eq(out[d], 0);
        cr_expect_eq(out[HD + d], cache.v[4 * HD + d]);
    }
}

Test(launch_qsa_attn, prefill_empty_rows)
{
    qsa_test_every_way(prefill_empty_rows);
}

/* Launches with nothing to do succeed and touch nothing. */
static void nothing_to_do(struct qsa_test *test)
{
    const struct gpu_target *target = &test->target;
    struct gpu_report *report = &test->report;
    const struct gpu_buffer *out = qsa_test_output(test, "out", 64, 4);
    unsigned char bytes[256];

    qsa_test_ran(test, gpu_qsa_block_pool(target,
                                          &(struct gpu_qsa_block_pool){
                                              .block_keys = out, .ratio = 4, .hd = 32, .theta = 1},
                                          report));
    qsa_test_ran(
        test, gpu_qsa_qprep_rows(target,
                                 &(struct gpu_qsa_qprep_rows){
                                     .q_out = out, .qkw = 32, .n_heads = 1, .hd = 32, .theta = 1},
                                 report));
    qsa_test_ran(test, gpu_qsa_score(target,
                                     &(struct gpu_qsa_score){.scores = out, .hd = 32, .n_heads = 1},
                                     report));
    struct gpu_qsa_score_rows score = {.scores = out, .ratio = 4, .n_heads = 4, .hd = 128};
    qsa_test_ran(test, gpu_qsa_score_rows(target, &score, report));
    qsa_test_ran(test, gpu_qsa_score_rows_tc(target, &score, report));
    qsa_test_ran(test, gpu_qsa_topk_rows(
                           target, &(struct gpu_qsa_topk_rows){.lists = out, .ratio = 4, .topk = 1},
                           report));
    qsa_test_ran(
        test, gpu_qsa_gather(
                  target,
                  &(struct gpu_qsa_gather){
                      .k_out = out, .v_out = out, .block_size = 4, .nkv = 1, .hd = 32, .ratio = 4},
                  report));
    qsa_test_ran(test, gpu_qsa_prefill_attn(target,
                                            &(struct gpu_qsa_prefill_attn){.attn_out = out,
                                                                           .topk = 1,
                                                                           .ratio = 4,
                                                                           .block_size = 4,
                                                                           .nq = 1,
                                                                           .nkv = 1,
                                                                           .hd = 32,
                                                                           .inv_sqrt_d = 1},
                                            report));
    qsa_test_read(test, out, bytes);
    cr_expect(qsa_test_untouched(bytes, sizeof bytes));
}

Test(launch_qsa_attn, nothing_to_do)
{
    qsa_test_every_way(nothing_to_do);
}
