/* The indexer's kernels on the CPU backend: answers worked out by hand, a second way to every
 * ordered list, rows against single launches, tensor-core scores against the model. */
#include "simt/mma_model.h"
#include "test_launch_qsa_support.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Blocks of two tokens around the means 1, 2 and 4: each normed element is 1, with 1 + w = 2 in
 * dimension 3. Two pairs rotate, at frequencies 1 and 4^(-1/2). */
static void pool_by_hand(struct qsa_test *test)
{
    enum { HD = 32, BLOCKS = 5 };
    uint16_t raw[2 * BLOCKS * HD], w[HD] = {0}, keys[BLOCKS * HD];
    static const float means[BLOCKS] = {9, 1, 2, 4, 9};

    for (int t = 0; t < 2 * BLOCKS; t++)
        for (int d = 0; d < HD; d++)
            raw[t * HD + d] = qsa_test_bf16(means[t / 2] + (t % 2 ? 0.5f : -0.5f));
    w[3] = qsa_test_bf16(1);
    struct gpu_qsa_block_pool args = {
        .raw_keys = qsa_test_input(test, "raw_keys", raw, 2 * BLOCKS * HD, 2),
        .k_norm_w = qsa_test_input(test, "k_norm_w", w, HD, 2),
        .block_keys = qsa_test_output(test, "block_keys", BLOCKS * HD, 2),
        .n_new = 3,
        .S = 2 * BLOCKS,
        .max_blocks = BLOCKS,
        .first_block = 1,
        .ratio = 2,
        .hd = HD,
        .rot = 4,
        .theta = 4,
    };
    qsa_test_ran(test, gpu_qsa_block_pool(&test->target, &args, &test->report));
    qsa_test_read(test, args.block_keys, keys);
    for (int b = 0; b < BLOCKS; b++) {
        float c0 = (float)cos(2.0 * b), s0 = (float)sin(2.0 * b);
        float c1 = (float)cos(1.0 * b), s1 = (float)sin(1.0 * b);
        const float rotated[4] = {c0 - s0, c1 - 2 * s1, c0 + s0, 2 * c1 + s1};

        for (int d = 0; d < HD; d++) {
            if (b == 0 || b == 4)
                cr_expect(qsa_test_untouched(&keys[b * HD + d], 2), "block %d dim %d", b, d);
            else
                cr_expect_eq(keys[b * HD + d], qsa_test_bf16(d < 4 ? rotated[d] : 1.0f),
                             "block %d dim %d: %04x", b, d, keys[b * HD + d]);
        }
    }
}

Test(launch_qsa_index, pool_by_hand)
{
    qsa_test_every_way(pool_by_hand);
}

/* Row r of qprep_rows equals qprep at its position; a constant vector at position 0 becomes ones.
 */
static void prepared_rows(struct qsa_test *test)
{
    enum { HD = 96, HEADS = 3, ROWS = 4, WIDTH = HEADS * HD + 7 };
    uint16_t qk[ROWS * WIDTH], w[HD];
    float rows[ROWS * HEADS * HD], one[HEADS * HD];
    uint64_t state = 5;

    for (int i = 0; i < ROWS * WIDTH; i++) qk[i] = qsa_test_random_bf16(&state);
    for (int i = 0; i < HD; i++) w[i] = qsa_test_random_bf16(&state);
    for (int d = 0; d < HD; d++) qk[d] = qsa_test_bf16(4);
    w[7] = 0;
    struct gpu_qsa_qprep_rows args = {
        .qk = qsa_test_input(test, "qk", qk, ROWS * WIDTH, 2),
        .q_norm_w = qsa_test_input(test, "q_norm_w", w, HD, 2),
        .q_out = qsa_test_output(test, "q_out", ROWS * HEADS * HD, 4),
        .rows = ROWS,
        .qkw = WIDTH,
        .n_heads = HEADS,
        .hd = HD,
        .rot = 64,
        .theta = 1e7f,
        .eps = 0,
    };
    qsa_test_ran(test, gpu_qsa_qprep_rows(&test->target, &args, &test->report));
    qsa_test_read(test, args.q_out, rows);
    cr_expect_eq(rows[7], 1.0f);
    for (uint32_t r = 0; r < ROWS; r++) {
        struct gpu_qsa_qprep single = {
            .q_in = qsa_test_input(test, "q_in", qk + r * WIDTH, HEADS * HD, 2),
            .q_norm_w = args.q_norm_w,
            .q_out = qsa_test_output(test, "q_out", HEADS * HD, 4),
            .n_heads = HEADS,
            .hd = HD,
            .rot = 64,
            .pos = r,
            .theta = 1e7f,
            .eps = 0,
        };
        qsa_test_ran(test, gpu_qsa_qprep(&test->target, &single, &test->report));
        qsa_test_read(test, single.q_out, one);
        cr_expect_arr_eq(one, rows + r * HEADS * HD, sizeof one, "row %u", r);
    }
}

Test(launch_qsa_index, prepared_rows)
{
    qsa_test_every_way(prepared_rows);
}

/* 40 heads +-(h+1) in every dimension, more than the 16 that share a barrier: key 1 finds the even
 * heads, sum 400, key -1 the odd ones, sum 420; times 64 / sqrt(64). */
static void score_by_hand(struct qsa_test *test)
{
    enum { HD = 64, HEADS = 40, BLOCKS = 4 };
    static float q[HEADS * HD];
    uint16_t keys[BLOCKS * HD];
    float scores[BLOCKS];

    for (int h = 0; h < HEADS; h++)
        for (int d = 0; d < HD; d++) q[h * HD + d] = (float)(h % 2 ? -(h + 1) : h + 1);
    for (int d = 0; d < HD; d++) {
        keys[d] = qsa_test_bf16(1);
        keys[HD + d] = qsa_test_bf16(-1);
        keys[2 * HD + d] = 0;
        keys[3 * HD + d] = d == 40 ? 0x7fff : 0;
    }
    struct gpu_qsa_score args = {
        .q = qsa_test_input(test, "q", q, HEADS * HD, 4),
        .block_keys = qsa_test_input(test, "block_keys", keys, BLOCKS * HD, 2),
        .scores = qsa_test_output(test, "scores", BLOCKS, 4),
        .n_blocks = BLOCKS,
        .n_heads = HEADS,
        .hd = HD,
    };
    qsa_test_ran(test, gpu_qsa_score(&test->target, &args, &test->report));
    qsa_test_read(test, args.scores, scores);
    cr_expect_eq(scores[0], 3200.0f);
    cr_expect_eq(scores[1], 3360.0f);
    cr_expect_eq(qsa_test_bits(scores[2]), 0);
    cr_expect(isnan(scores[3]), "a NaN became %g", (double)scores[3]);
}

Test(launch_qsa_index, score_by_hand)
{
    qsa_test_every_way(score_by_hand);
}

/* Random queries and keys for `rows` rows. */
static void random_scoring(float *q, uint64_t n_q, uint16_t *keys, uint64_t n_keys, uint64_t seed)
{
    for (uint64_t i = 0; i < n_q; i++)
        q[i] = qsa_test_f32(qsa_test_random_bf16(&seed)) * (1.0f + 0x1p-12f * (i % 7));
    for (uint64_t i = 0; i < n_keys; i++) keys[i] = qsa_test_random_bf16(&seed);
}

struct rows_shape {
    uint32_t rows, blocks, stride, first, ratio, heads, hd;
};

typedef enum gpu_status rows_launcher(const struct gpu_target *target,
                                      const struct gpu_qsa_score_rows *args,
                                      struct gpu_report *report);

/* Every element of row r is qsa_score's where the row sees the block, -inf where it does not, and
 * untouched from n_blocks_max on. q is the row's. */
static void expect_row(struct qsa_test *test, const struct rows_shape *s, uint32_t r,
                       const float *q, const uint16_t *keys, const float *row)
{
    uint32_t complete = (s->first + r + 1) / s->ratio;
    float *one = malloc(sizeof(float) * s->blocks);
    struct gpu_qsa_score single = {
        .q = qsa_test_input(test, "q", q, (uint64_t)s->heads * s->hd, 4),
        .block_keys = qsa_test_input(test, "block_keys", keys, (uint64_t)s->blocks * s->hd, 2),
        .scores = qsa_test_output(test, "scores", s->blocks, 4),
        .n_blocks = s->blocks,
        .n_heads = s->heads,
        .hd = s->hd,
    };

    cr_assert(one != NULL);
    qsa_test_ran(test, gpu_qsa_score(&test->target, &single, &test->report));
    qsa_test_read(test, single.scores, one);
    for (uint32_t b = 0; b < s->stride; b++) {
        if (b >= s->blocks)
            cr_expect(qsa_test_untouched(&row[b], 4), "row %u column %u", r, b);
        else
            cr_expect_eq(qsa_test_bits(row[b]), qsa_test_bits(b < complete ? one[b] : -INFINITY),
                         "row %u column %u", r, b);
    }
    free(one);
    qsa_test_clear(test);
}

static void rows_equal_scores(struct qsa_test *test, rows_launcher *launch,
                              const struct rows_shape *s)
{
    uint64_t width = (uint64_t)s->heads * s->hd, n_keys = (uint64_t)s->blocks * s->hd;
    float *q = malloc(sizeof(float) * s->rows * width);
    float *rows = malloc(sizeof(float) * s->rows * s->stride);
    uint16_t *keys = malloc(sizeof(uint16_t) * n_keys);

    cr_assert(q != NULL && rows != NULL && keys != NULL);
    random_scoring(q, s->rows * width, keys, n_keys, 11);
    struct gpu_qsa_score_rows args = {
        .q = qsa_test_input(test, "q", q, s->rows * width, 4),
        .block_keys = qsa_test_input(test, "block_keys", keys, n_keys, 2),
        .scores = qsa_test_output(test, "scores", (uint64_t)s->rows * s->stride, 4),
        .rows = s->rows,
        .n_blocks_max = s->blocks,
        .first_pos = s->first,
        .score_stride = s->stride,
        .ratio = s->ratio,
        .n_heads = s->heads,
        .hd = s->hd,
    };
    qsa_test_ran(test, launch(&test->target, &args, &test->report));
    qsa_test_read(test, args.scores, rows);
    qsa_test_clear(test);
    for (uint32_t r = 0; r < s->rows; r++)
        expect_row(test, s, r, q + r * width, keys, rows + (uint64_t)r * s->stride);
    free(q);
    free(rows);
    free(keys);
}

static void score_rows_equal_scores(struct qsa_test *test)
{
    static const struct rows_shape shape = {6, 7, 9, 13, 3, 5, 96};

    rows_equal_scores(test, gpu_qsa_score_rows, &shape);
}

Test(launch_qsa_index, score_rows_equal_scores)
{
    qsa_test_every_way(score_rows_equal_scores);
}

/* One tile and its neighbours; rows of 16-byte alignment and others; blocks that nobody sees. */
static void score_tiles_equal_scores(struct qsa_test *test)
{
    static const struct rows_shape shapes[] = {
        {6, 7, 9, 13, 3, 5, 96},     {1, 65, 68, 64, 1, 4, 128}, {65, 4, 4, 3, 1, 1, 32},
        {5, 130, 131, 60, 1, 2, 64}, {2, 9, 12, 35, 4, 3, 1024},
    };

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        rows_equal_scores(test, gpu_qsa_score_rows_tiled, &shapes[i]);
}

Test(launch_qsa_index, score_tiles_equal_scores)
{
    qsa_test_every_way(score_tiles_equal_scores);
}

/* The definition, element by element: 4 heads of 128, hi before lo in every k16 step. */
static float tc_score(const float *q, const uint16_t *key)
{
    float sum = 0, norm = 1.0f / sqrtf(128.0f);

    for (int h = 0; h < 4; h++) {
        float dot = 0;

        for (int k = 0; k < 128; k += 16) {
            uint16_t hi[16], lo[16];

            for (int i = 0; i < 16; i++) {
                float x = q[h * 128 + k + i];

                hi[i] = qsa_test_bf16(x);
                lo[i] = qsa_test_bf16(x - qsa_test_f32(hi[i]));
            }
            dot = simt_mma_dot(90, hi, key + k, 16, dot);
            dot = simt_mma_dot(90, lo, key + k, 16, dot);
        }
        sum = sum + (dot > 0 ? dot : 0.0f);
    }
    return sum * norm;
}

/* Launches with these numbers and judges every element, owned or not. */
static void tc_case(struct qsa_test *test, uint32_t rows, uint32_t blocks, uint32_t stride,
                    uint32_t first, uint32_t ratio)
{
    uint32_t padded = (rows + 15) / 16 * 16;
    float *q = malloc(sizeof(float) * padded * 512),
          *scores = malloc(sizeof(float) * padded * stride);
    uint16_t *keys = malloc(sizeof(uint16_t) * blocks * 128);

    cr_assert(q != NULL && scores != NULL && keys != NULL);
    random_scoring(q, (uint64_t)padded * 512, keys, (uint64_t)blocks * 128, rows + blocks);
    struct gpu_qsa_score_rows args = {
        .q = qsa_test_input(test, "q", q, (uint64_t)padded * 512, 4),
        .block_keys = qsa_test_input(test, "block_keys", keys, (uint64_t)blocks * 128, 2),
        .scores = qsa_test_output(test, "scores", (uint64_t)padded * stride, 4),
        .rows = rows,
        .n_blocks_max = blocks,
        .first_pos = first,
        .score_stride = stride,
        .ratio = ratio,
        .n_heads = 4,
        .hd = 128,
    };
    qsa_test_ran(test, gpu_qsa_score_rows_tc(&test->target, &args, &test->report));
    qsa_test_read(test, args.scores, scores);
    for (uint32_t r = 0; r < padded; r++) {
        for (uint32_t b = 0; b < stride; b++) {
            const float *got = &scores[(uint64_t)r * stride + b];
            bool seen = b < (first + r + 1) / ratio;

            if (b >= blocks)
                cr_expect(qsa_test_untouched(got, 4), "row %u column %u was written", r, b);
            else if (r < rows)
                cr_expect_eq(qsa_test_bits(*got),
                             qsa_test_bits(seen ? tc_score(q + (uint64_t)r * 512, keys + b * 128)
                                                : -INFINITY),
                             "row %u column %u: %a", r, b, (double)*got);
        }
    }
    free(q);
    free(scores);
    free(keys);
    qsa_test_clear(test);
}

static void tc_equals_model(struct qsa_test *test)
{
    tc_case(test, 1, 1, 1, 3, 4);
    tc_case(test, 17, 70, 71, 250, 4);   /* odd stride: single stores; everything seen in the end */
    tc_case(test, 16, 191, 200, 379, 2); /* three tiles, the last one short; wide stores */
    tc_case(test, 5, 130, 132, 60, 1);   /* rows that differ; a tile that nobody sees */
}

Test(launch_qsa_index, tc_equals_model)
{
    qsa_test_every_way(tc_equals_model);
}

/* 16 x 65 tiles: enough for CTAs to take the work of their neighbours. */
static void tc_spans(struct qsa_test *test)
{
    tc_case(test, 256, 65 * 64 - 3, 65 * 64, 0, 2);
}

Test(launch_qsa_index, tc_spans)
{
    qsa_test_every_way(tc_spans);
}

struct ranked {
    float score;
    int32_t block;
};

/* Score descending, NaN last, block ascending; -0 and +0 are equal. */
static int by_rank(const void *left, const void *right)
{
    const struct ranked *a = left, *b = right;

    if (isnan(a->score) != isnan(b->score)) return isnan(a->score) ? 1 : -1;
    if (a->score > b->score) return -1;
    if (a->score < b->score) return 1;
    return a->block < b->block ? -1 : 1;
}

/* Kinds of rows: few values with zeros of both signs, infinities and NaN; equal upper halves; wide
 * random; one value; mostly NaN. */
static float row_value(uint32_t kind, uint64_t *state)
{
    static const float few[] = {0.0f, -0.0f, 1.0f, -1.0f, INFINITY, -INFINITY, NAN, 0x1p-149f};
    uint32_t bits = qsa_test_random(state, UINT32_MAX);
    float value;

    if (kind == 0) return few[bits % 8];
    if (kind == 1) bits = 0x3f800000 | bits % 5;
    if (kind == 3) return 0.5f;
    if (kind == 4 && bits % 16) return NAN;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void topk_case(struct qsa_test *test, uint32_t rows, uint32_t first, uint32_t stride,
                      uint32_t ratio, uint32_t topk)
{
    float *scores = malloc(sizeof(float) * rows * stride);
    int32_t *lists = malloc(sizeof(int32_t) * rows * topk);
    struct ranked *order = malloc(sizeof(struct ranked) * (stride + 1));
    uint64_t state = stride + topk;

    cr_assert(scores != NULL && lists != NULL && order != NULL);
    for (uint32_t i = 0; i < rows * stride; i++) scores[i] = row_value(i / stride % 5, &state);
    struct gpu_qsa_topk_rows args = {
        .scores = qsa_test_input(test, "scores", scores, (uint64_t)rows * stride, 4),
        .lists = qsa_test_output(test, "lists", (uint64_t)rows * topk, 4),
        .rows = rows,
        .first_pos = first,
        .score_stride = stride,
        .ratio = ratio,
        .topk = topk,
    };
    qsa_test_ran(test, gpu_qsa_topk_rows(&test->target, &args, &test->report));
    qsa_test_read(test, args.lists, lists);
    for (uint32_t r = 0; r < rows; r++) {
        uint32_t complete = (first + r + 1) / ratio;

        for (uint32_t b = 0; b < complete; b++)
            order[b] = (struct ranked){scores[r * stride + b], (int32_t)b};
        qsort(order, complete, sizeof *order, by_rank);
        for (uint32_t i = 0; i < topk; i++)
            cr_expect_eq(lists[r * topk + i], i < complete ? order[i].block : -1,
                         "row %u of %u, topk %u, entry %u: %d", r, complete, topk, i,
                         lists[r * topk + i]);
    }
    free(scores);
    free(lists);
    free(order);
    qsa_test_clear(test);
}

static void topk_lists(struct qsa_test *test)
{
    topk_case(test, 10, 0, 10, 1, 1);
    topk_case(test, 10, 3, 40, 1, 5);
    topk_case(test, 5, 1300, 330, 4, 512); /* fewer blocks than topk */
    topk_case(test, 10, 596, 303, 2, 299); /* as many, and one more */
    topk_case(test, 5, 4000, 4005, 1, 2048);
    topk_case(test, 5, 2999, 3004, 1, 3);
    topk_case(test, 1, 69999, 70000, 1, 100);
}

Test(launch_qsa_index, topk_lists)
{
    qsa_test_every_way(topk_lists);
}
