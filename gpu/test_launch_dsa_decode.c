/* The decode kernel on small cases whose answer follows by hand, and the bits it promises to keep.
 */
#include "test_launch_dsa_support.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LATENT = 512, PAGE = 8, PITCH = PAGE * LATENT + 48, NAN_CODE = 0x7f };

static const char module[] = "glm5next_dsa_mla_decode";

/* A case with everything that must not matter set to NaN: tokens come from `page_of` and `set`. */
struct decode_case {
    uint32_t seqs, heads, width, max_blocks, pages;
    uint16_t *q, *out;
    uint8_t *k, *v; /* v NULL: the same buffer */
    int32_t *tables, *lens, *sel;
    float scale, k_scale, v_scale;
};

static void *filled(size_t bytes, int byte)
{
    void *data = malloc(bytes);

    cr_assert_not_null(data);
    memset(data, byte, bytes);
    return data;
}

static struct decode_case new_case(uint32_t seqs, uint32_t heads, uint32_t width,
                                   uint32_t max_blocks)
{
    struct decode_case c = {.seqs = seqs,
                            .heads = heads,
                            .width = width,
                            .max_blocks = max_blocks,
                            .pages = seqs * max_blocks,
                            .scale = 1,
                            .k_scale = 1,
                            .v_scale = 1};
    size_t latents = (size_t)seqs * heads * LATENT;

    c.q = filled(2 * latents, 0);
    c.out = filled(2 * latents, 0);
    c.k = filled((size_t)c.pages * PITCH, NAN_CODE);
    c.tables = filled(4ul * seqs * max_blocks, 0xff);
    c.lens = filled(4ul * seqs, 0);
    c.sel = filled(4ul * seqs * width, 0xff);
    /* Pages in falling order, so that no table is the identity. */
    for (uint32_t i = 0; i < c.pages; i++) c.tables[i] = (int32_t)(c.pages - 1 - i);
    return c;
}

static void free_case(struct decode_case *c)
{
    free(c->q);
    free(c->out);
    free(c->k);
    free(c->v);
    free(c->tables);
    free(c->lens);
    free(c->sel);
}

static uint8_t *token(const struct decode_case *c, uint8_t *cache, uint32_t seq, uint32_t id)
{
    uint32_t page = (uint32_t)c->tables[seq * c->max_blocks + id / PAGE];

    return cache + (size_t)page * PITCH + (size_t)(id % PAGE) * LATENT;
}

static void run(struct dsa_test *test, struct decode_case *c)
{
    uint64_t latents = (uint64_t)c->seqs * c->heads * LATENT, cache = (uint64_t)c->pages * PITCH;
    struct gpu_dsa_decode args = {
        .q = dsa_test_input(test, "q", c->q, latents, 2),
        .k_cache = dsa_test_input(test, "k_cache", c->k, cache, 1),
        .out = dsa_test_output(test, "out", latents, 2),
        .block_tables =
            dsa_test_input(test, "block_tables", c->tables, (uint64_t)c->seqs * c->max_blocks, 4),
        .seq_lens = dsa_test_input(test, "seq_lens", c->lens, c->seqs, 4),
        .sel_indices = dsa_test_input(test, "sel_indices", c->sel, (uint64_t)c->seqs * c->width, 4),
        .host_block_tables = c->tables,
        .host_seq_lens = c->lens,
        .host_sel_indices = c->sel,
        .num_seqs = c->seqs,
        .sel_rows = c->seqs,
        .width = c->width,
        .max_blocks_per_seq = c->max_blocks,
        .num_q_heads = c->heads,
        .num_kv_heads = 1,
        .kv_lora_rank = LATENT,
        .block_size = PAGE,
        .index_kpool = 4,
        .num_pages = c->pages,
        .scale = c->scale,
        .k_scale = c->k_scale,
        .v_scale = c->v_scale,
        .cache_stride_bytes = PITCH,
    };

    args.v_cache = c->v ? dsa_test_input(test, "v_cache", c->v, cache, 1) : args.k_cache;
    dsa_test_ran(test, gpu_dsa_decode(&test->target, &args, &test->report));
    dsa_test_read(test, args.out, c->out);
    dsa_test_clear(test);
}

/* Random tokens for every id of the selection, random queries, lengths of the whole table. */
static void randomise(struct decode_case *c, uint64_t seed)
{
    for (uint32_t i = 0; i < c->seqs * c->heads * LATENT; i++)
        c->q[i] = dsa_test_random_bf16(&seed);
    for (uint32_t seq = 0; seq < c->seqs; seq++) {
        c->lens[seq] = (int32_t)(c->max_blocks * PAGE);
        for (uint32_t i = 0; i < c->width; i++) {
            int32_t id = c->sel[seq * c->width + i];

            for (uint32_t d = 0; id >= 0 && d < LATENT; d++) {
                uint8_t code = (uint8_t)dsa_test_random(&seed);

                token(c, c->k, seq, (uint32_t)id)[d] = code % 128 < 0x48 ? code : code & 0x87;
            }
        }
    }
    c->scale = 0.0441f;
    c->k_scale = 0.37f;
    c->v_scale = 1.3f;
}

/* `count` different ids of one row, spread over `ids` tokens and over the row with holes. */
static void spread(struct decode_case *c, uint32_t seq, uint32_t count, uint32_t gap)
{
    uint32_t ids = c->max_blocks * PAGE;

    for (uint32_t i = 0; i < count; i++)
        c->sel[seq * c->width + i * gap + gap / 2] = (int32_t)((i * 37 + seq) % ids);
}

/* One key: the softmax is 1, whatever the score, and the output is its value times v_scale; a value
 * of -0 joins a sum that starts at +0. */
static void one_key(struct dsa_test *test)
{
    struct decode_case c = new_case(2, 3, 5, 4);

    spread(&c, 0, 1, 5);
    c.sel[5 + 4] = 26;
    randomise(&c, 3);
    run(test, &c);
    for (uint32_t i = 0; i < 2 * 3 * LATENT; i++) {
        uint32_t seq = i / (3 * LATENT);
        uint8_t code = token(&c, c.k, seq, seq ? 26 : 0)[i % LATENT];

        cr_assert_eq(c.out[i], dsa_test_bf16((0.0f + dsa_test_e4m3(code)) * 1.3f), "element %u", i);
    }
    free_case(&c);
}

/* A query of zeros weighs all keys alike. Small integers, so sums are exact in any order. */
static void equal_weights(struct dsa_test *test)
{
    struct decode_case c = new_case(1, 2, 60, 8);
    float sum[LATENT] = {0};

    spread(&c, 0, 53, 1);
    c.lens[0] = 60; /* ids 60 .. 63 drop out */
    c.v_scale = 0.37f;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < 53; i++) {
        uint32_t id = (uint32_t)c.sel[i];

        if (id >= 60) continue;
        kept++;
        for (uint32_t d = 0; d < LATENT; d++) {
            uint8_t code = (uint8_t)(0x38 + (i + d) % 3 * 8); /* 1, 2 or 4 */

            token(&c, c.k, 0, id)[d] = code;
            sum[d] += dsa_test_e4m3(code);
        }
    }
    cr_assert(kept < 53 && kept > 40);
    run(test, &c);
    for (uint32_t i = 0; i < 2 * LATENT; i++)
        cr_assert_eq(c.out[i], dsa_test_bf16(sum[i % LATENT] / (float)kept * 0.37f), "dim %u", i);
    free_case(&c);
}

/* Scores 2.5 and 0.5: weights 1/(1+e^-2) and the rest. */
static void two_keys(struct dsa_test *test)
{
    struct decode_case c = new_case(1, 1, 3, 2);
    double weight = 1 / (1 + exp(-2.0));
    uint8_t *first, *second;

    c.sel[0] = 9;
    c.sel[2] = 4;
    c.lens[0] = 16;
    c.scale = 0.5f;
    c.k_scale = 2.0f;
    c.q[77] = dsa_test_bf16(0.5f);
    first = memset(token(&c, c.k, 0, 9), 0, LATENT);
    second = memset(token(&c, c.k, 0, 4), 0, LATENT);
    first[77] = 0x4a;   /* 5 */
    second[77] = 0x38;  /* 1 */
    first[511] = 0x50;  /* 8 */
    second[511] = 0xc8; /* -4 */
    run(test, &c);
    for (uint32_t d = 0; d < LATENT; d++) {
        double want = d == 77 ? 4 * weight + 1 : d == 511 ? 12 * weight - 4 : 0;

        cr_assert(fabs(dsa_test_f32(c.out[d]) - want) <= 0x1p-8 * want, "dim %u: %g not %g", d,
                  (double)dsa_test_f32(c.out[d]), want);
    }
    free_case(&c);
}

/* Scores that rise along the row from 1/8 to 14, so that every warp rescales again and again, or
 * fall; two heads that see them in opposite order. Values are positive, so the f32 error is below
 * 200 * 2^-24 of the output (dot and exp of arguments up to 14, 96 terms, 3 rescales), far below
 * the rounding to bf16, 2^-8. */
static void rising_scores(struct dsa_test *test)
{
    enum { N = 96, HEADS = 2 };
    struct decode_case c = new_case(1, HEADS, N, N / PAGE);
    double sum[HEADS] = {0}, out[HEADS][LATENT] = {{0}};

    spread(&c, 0, N, 1);
    c.lens[0] = N;
    c.v = filled((size_t)c.pages * PITCH, NAN_CODE);
    for (uint32_t h = 0; h < HEADS; h++) c.q[h * LATENT + 100 + h] = dsa_test_bf16(1);
    for (uint32_t i = 0; i < N; i++) {
        uint8_t *key = memset(token(&c, c.k, 0, (uint32_t)c.sel[i]), 0, LATENT);
        uint8_t *value = token(&c, c.v, 0, (uint32_t)c.sel[i]);

        for (uint32_t h = 0; h < HEADS; h++) {
            uint8_t code = (uint8_t)(0x20 + (h ? N - 1 - i : i) * 56 / N);
            double weight = exp((double)dsa_test_e4m3(code) - 14);

            key[100 + h] = code;
            sum[h] += weight;
            for (uint32_t d = 0; d < LATENT; d++) {
                value[d] = (uint8_t)(0x30 + (i * 7 + d) % 24);
                out[h][d] += weight * dsa_test_e4m3(value[d]);
            }
        }
    }
    run(test, &c);
    for (uint32_t i = 0; i < HEADS * LATENT; i++) {
        double want = out[i / LATENT][i % LATENT] / sum[i / LATENT];

        cr_assert(fabs(dsa_test_f32(c.out[i]) - want) <= (0x1p-8 + 200 * 0x1p-24) * want,
                  "element %u: %g not %g", i, (double)dsa_test_f32(c.out[i]), want);
    }
    free_case(&c);
}

static void empty_rows(struct dsa_test *test)
{
    struct decode_case c = new_case(3, 2, 4, 2);

    c.sel[0] = 1;              /* length 0 */
    c.lens[1] = 16;            /* only holes */
    c.sel[8] = c.lens[2] = 16; /* only ids past the length */
    c.sel[9] = 1 << 30;
    c.sel[11] = INT32_MIN;
    run(test, &c);
    for (uint32_t i = 0; i < 3 * 2 * LATENT; i++) cr_assert_eq(c.out[i], 0, "element %u", i);
    free_case(&c);
}

/* A NaN code in a selected key makes the row NaN, one in a selected value only its channel. */
static void nan_codes(struct dsa_test *test)
{
    struct decode_case c = new_case(2, 1, 3, 1);

    for (uint32_t i = 0; i < 6; i++) c.sel[i] = (int32_t)(i % 3);
    randomise(&c, 11);
    c.v = filled((size_t)c.pages * PITCH, NAN_CODE);
    memcpy(c.v, c.k, (size_t)c.pages * PITCH);
    token(&c, c.k, 0, 2)[300] = 0xff;
    token(&c, c.v, 1, 1)[41] = 0x7f;
    run(test, &c);
    for (uint32_t d = 0; d < LATENT; d++) {
        cr_assert(isnan(dsa_test_f32(c.out[d])), "dim %u", d);
        cr_assert_eq(isnan(dsa_test_f32(c.out[LATENT + d])), d == 41, "dim %u", d);
    }
    free_case(&c);
}

static void same_bits(const struct decode_case *a, const struct decode_case *b)
{
    cr_assert_arr_eq(a->out, b->out, 2ul * b->seqs * b->heads * LATENT);
}

/* Rows of 61 ids: dense, with holes at every other place, and through three chunks of the list. */
static void holes_do_not_show(struct dsa_test *test)
{
    static const uint32_t gaps[] = {1, 2, 83};
    struct decode_case dense = {0};

    for (int i = 0; i < 3; i++) {
        struct decode_case c = new_case(1, 2, 61 * gaps[i] + i, 11);

        spread(&c, 0, 61, gaps[i]);
        randomise(&c, 5);
        run(test, &c);
        if (i > 0) same_bits(&c, &dense);
        if (i == 0)
            dense = c;
        else
            free_case(&c);
    }
    free_case(&dense);
}

/* More ids than one chunk of the list holds, and as many again in the next one. */
static void long_row(struct dsa_test *test)
{
    struct decode_case c = new_case(1, 1, 4700, 590), one;

    spread(&c, 0, 4700, 1);
    randomise(&c, 8);
    one = c;
    one.out = filled(2 * LATENT, 0);
    one.width = 5000; /* the same ids with holes in front, so the chunks divide elsewhere */
    one.sel = filled(4 * 5000, 0xff);
    memcpy(one.sel + 300, c.sel, 4 * 4700);
    run(test, &c);
    run(test, &one);
    same_bits(&one, &c);
    free(one.out);
    free(one.sel);
    free_case(&c);
}

/* Enough blocks that four heads share one; the last block has a single head. Each row alone runs
 * without sharing and must give the same bits, with one cache and with two. */
static void batch_does_not_show(struct dsa_test *test)
{
    enum { SEQS = 27, HEADS = 5 };
    struct decode_case c = new_case(SEQS, HEADS, 39, 6);

    for (uint32_t seq = 0; seq < SEQS; seq++) spread(&c, seq, (seq * 5) % 40, 1);
    randomise(&c, 21);
    run(test, &c);
    for (uint32_t seq = 0; seq < SEQS; seq++) {
        struct decode_case row = c;

        row.seqs = 1;
        row.q += seq * HEADS * LATENT;
        row.tables += seq * c.max_blocks;
        row.lens += seq;
        row.sel += seq * c.width;
        row.out = filled(2 * HEADS * LATENT, 0);
        run(test, &row);
        cr_assert_arr_eq(row.out, c.out + seq * HEADS * LATENT, 2 * HEADS * LATENT, "row %u", seq);
        free(row.out);
    }
    struct decode_case split = c;
    split.out = filled(2ul * SEQS * HEADS * LATENT, 0);
    split.v = filled((size_t)c.pages * PITCH, 0);
    memcpy(split.v, c.k, (size_t)c.pages * PITCH);
    run(test, &split);
    same_bits(&split, &c);
    free(split.out);
    free(split.v);
    free_case(&c);
}

/* Page 1,048,577 of 4,144 bytes begins beyond 2^32; only that page has memory. */
static void high_page(struct dsa_test *test)
{
    enum { HIGH = 1048577 };
    const struct gpu_backend *simt = &gpu_backend_simt;
    struct gpu_extent extent = {(uint64_t)HIGH * PITCH / 4096 * 4096, 8192 + 4096};
    struct gpu_buffer_desc desc = {.name = "k_cache",
                                   .size_bytes = extent.offset_bytes + extent.size_bytes,
                                   .elem_bytes = 1,
                                   .align_bytes = 16,
                                   .read_only = true,
                                   .extents = &extent,
                                   .n_extents = 1};
    struct gpu_buffer cache;
    uint8_t latent[LATENT];
    uint16_t q[LATENT] = {0}, out[LATENT];
    static const int32_t table[2] = {-1, HIGH}, len = 16, id = 11;

    for (uint32_t d = 0; d < LATENT; d++) latent[d] = (uint8_t)(0x20 + d % 64);
    cr_assert_eq(simt->alloc(test->device, &desc, &cache, &test->report), GPU_OK, "%s",
                 test->report.text);
    cr_assert_eq(simt->upload(test->device, &cache, (uint64_t)HIGH * PITCH + 3 * LATENT, latent,
                              LATENT, &test->report),
                 GPU_OK, "%s", test->report.text);
    struct gpu_dsa_decode args = {
        .q = dsa_test_input(test, "q", q, LATENT, 2),
        .k_cache = &cache,
        .v_cache = &cache,
        .out = dsa_test_output(test, "out", LATENT, 2),
        .block_tables = dsa_test_input(test, "block_tables", table, 2, 4),
        .seq_lens = dsa_test_input(test, "seq_lens", &len, 1, 4),
        .sel_indices = dsa_test_input(test, "sel_indices", &id, 1, 4),
        .host_block_tables = table,
        .host_seq_lens = &len,
        .host_sel_indices = &id,
        .num_seqs = 1,
        .sel_rows = 1,
        .width = 1,
        .max_blocks_per_seq = 2,
        .num_q_heads = 1,
        .num_kv_heads = 1,
        .kv_lora_rank = LATENT,
        .block_size = PAGE,
        .index_kpool = 4,
        .num_pages = HIGH + 1,
        .scale = 1,
        .k_scale = 1,
        .v_scale = 1,
        .cache_stride_bytes = PITCH,
    };
    dsa_test_ran(test, gpu_dsa_decode(&test->target, &args, &test->report));
    dsa_test_read(test, args.out, out);
    for (uint32_t d = 0; d < LATENT; d++)
        cr_assert_eq(out[d], dsa_test_bf16(dsa_test_e4m3(latent[d])), "dim %u", d);
    simt->free(test->device, &cache);
}

Test(dsa_decode, one_key)
{
    dsa_test_every_way(module, one_key);
}

Test(dsa_decode, equal_weights)
{
    dsa_test_every_way(module, equal_weights);
}

Test(dsa_decode, two_keys)
{
    dsa_test_every_way(module, two_keys);
}

Test(dsa_decode, rising_scores)
{
    dsa_test_every_way(module, rising_scores);
}

Test(dsa_decode, empty_rows)
{
    dsa_test_every_way(module, empty_rows);
}

Test(dsa_decode, nan_codes)
{
    dsa_test_every_way(module, nan_codes);
}

Test(dsa_decode, holes_do_not_show)
{
    dsa_test_every_way(module, holes_do_not_show);
}

Test(dsa_decode, long_row)
{
    dsa_test_fast(module, long_row);
}

Test(dsa_decode, batch_does_not_show)
{
    dsa_test_fast(module, batch_does_not_show);
}

Test(dsa_decode, high_page)
{
    dsa_test_every_way(module, high_page);
}
