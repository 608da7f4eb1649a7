/* The indexer kernels on small cases whose answer follows by hand, and the exact top-k against a
 * plain sort. */
#include "test_launch_dsa_support.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char module[] = "dsa_indexer";

enum { D = 160, KP = 3, KEYS = 11, POOLS = 4 }; /* D above one turn of the 128 threads */

/* first_key 1: pools {1,2,3} {4,5,6} {7,8,9} {10,-,-}; key 5 is invalid, and so is no other. */
struct compress_data {
    uint16_t k[KEYS * D], gate[KEYS * D];
    uint8_t valid[KEYS];
    float ape[KP * D];
    float keys[POOLS * D];
    int32_t indices[POOLS * KP];
    uint8_t pool_valid[POOLS];
};

static void compress(struct dsa_test *test, struct compress_data *data, const int32_t *geom)
{
    struct gpu_dsa_kpool_compress args = {
        .k = dsa_test_input(test, "k", data->k, KEYS * D, 2),
        .gate = dsa_test_input(test, "gate", data->gate, KEYS * D, 2),
        .valid = dsa_test_input(test, "valid", data->valid, KEYS, 1),
        .ape = dsa_test_input(test, "ape", data->ape, KP * D, 4),
        .pool_keys = dsa_test_output(test, "pool_keys", POOLS * D, 4),
        .pool_indices = dsa_test_output(test, "pool_indices", POOLS * KP, 4),
        .pool_valid = dsa_test_output(test, "pool_valid", POOLS, 1),
        .host_geom = geom,
        .pools = POOLS,
        .S = KEYS,
        .D = D,
        .KP = KP,
        .first_key = 1,
    };

    if (geom) args.geom = dsa_test_input(test, "geom", geom, 5, 4);
    dsa_test_ran(test, gpu_dsa_kpool_compress(&test->target, &args, &test->report));
    dsa_test_read(test, args.pool_keys, data->keys);
    dsa_test_read(test, args.pool_indices, data->indices);
    dsa_test_read(test, args.pool_valid, data->pool_valid);
    dsa_test_clear(test);
}

static struct compress_data *new_compress_data(void)
{
    struct compress_data *data = calloc(1, sizeof *data);

    cr_assert_not_null(data);
    memset(data->valid, 1, sizeof data->valid);
    data->valid[5] = 0;
    for (uint32_t i = 0; i < KEYS * D; i++)
        data->k[i] = dsa_test_bf16((float)(i / D) + 0.5f * (float)(i % D % 4));
    for (uint32_t d = 0; d < D; d++) { /* neither the padding nor the invalid key may matter */
        data->k[d] = data->gate[d] = 0x7fff;
        data->k[5 * D + d] = data->gate[5 * D + d] = 0x7fff;
    }
    return data;
}

static void compress_equal_gates(struct dsa_test *test)
{
    static const int32_t want_indices[] = {1, 2, 3, 4, -1, 6, 7, 8, 9, 10, -1, -1};
    static const uint8_t want_valid[] = {1, 0, 1, 0};
    static const float base[] = {2, 5, 8, 10}; /* means of 1,2,3; 4,6; 7,8,9; 10 */
    struct compress_data *data = new_compress_data();

    for (uint32_t i = 0; i < KP * D; i++) data->ape[i] = 3;
    compress(test, data, NULL);
    cr_expect_arr_eq(data->indices, want_indices, sizeof want_indices);
    cr_expect_arr_eq(data->pool_valid, want_valid, sizeof want_valid);
    for (uint32_t i = 0; i < POOLS * D; i++)
        cr_assert_eq(data->keys[i], base[i / D] + 0.5f * (float)(i % D % 4), "element %u", i);
    free(data);
}

/* Gate ln 2 for one key and position weight -ln 4 for slot 2: weights 1, 2, 1/4. */
static void compress_weights(struct dsa_test *test)
{
    struct compress_data *data = new_compress_data();
    double w = exp((double)dsa_test_f32(dsa_test_bf16(0.6931f))), tail = exp(-1.386294);

    for (uint32_t d = 0; d < D; d++) {
        data->gate[8 * D + d] = dsa_test_bf16(0.6931f);
        data->ape[2 * D + d] = -1.386294f;
    }
    compress(test, data, NULL);
    for (uint32_t d = 0; d < D; d++) {
        double want = (7 + 8 * w + 9 * tail) / (1 + w + tail) + 0.5 * (d % 4);

        cr_assert(fabs(data->keys[2 * D + d] - want) < 20 * 0x1p-24 * want, "dim %u", d);
    }
    free(data);
}

static void compress_no_valid_slot(struct dsa_test *test)
{
    struct compress_data *data = new_compress_data();

    data->valid[4] = data->valid[6] = 0;
    compress(test, data, NULL);
    cr_expect_eq(data->pool_valid[1], 0);
    for (uint32_t s = 0; s < KP; s++) cr_expect_eq(data->indices[KP + s], -1);
    for (uint32_t d = 0; d < D; d++) cr_assert_eq(dsa_test_bits(data->keys[D + d]), 0);
    free(data);
}

/* Eight keys on the device: two complete pools and {7,-,-}; the fourth block has nothing to do. */
static void compress_geometry(struct dsa_test *test)
{
    static const int32_t geom[5] = {8, 3, 2, 2, 2}, want[] = {1, 2, 3, 4, -1, 6, 7, -1, -1};
    struct compress_data *data = new_compress_data();

    compress(test, data, geom);
    cr_expect_arr_eq(data->indices, want, sizeof want);
    cr_expect_eq(data->keys[2 * D], 7);
    cr_expect(dsa_test_untouched(data->indices + 9, 4 * KP));
    cr_expect(dsa_test_untouched(data->keys + 3 * D, 4 * D));
    cr_expect(dsa_test_untouched(data->pool_valid + 3, 1));
    free(data);
}

enum { SQ = 3, SP = 7, SH = 6, SD = 64, SKP = 2, SS = 14 };

struct score_data {
    float q[SQ * SH * SD], keys[SP * SD], weights[SQ * SH], out[SQ * SP];
    int32_t indices[SP * SKP], q_pos[SQ];
    uint8_t pool_valid[SP], valid[SS], cand[SQ * SP];
};

static void score(struct dsa_test *test, struct score_data *data, uint32_t rows,
                  const int32_t *geom)
{
    struct gpu_dsa_index_scores args = {
        .q = dsa_test_input(test, "q", data->q, rows * SH * SD, 4),
        .pool_keys = dsa_test_input(test, "pool_keys", data->keys, SP * SD, 4),
        .weights = dsa_test_input(test, "weights", data->weights, rows * SH, 4),
        .pool_indices = dsa_test_input(test, "pool_indices", data->indices, SP * SKP, 4),
        .pool_valid = dsa_test_input(test, "pool_valid", data->pool_valid, SP, 1),
        .valid_keys = dsa_test_input(test, "valid_keys", data->valid, SS, 1),
        .q_pos = dsa_test_input(test, "q_pos", data->q_pos, rows, 4),
        .out = dsa_test_output(test, "out", rows * SP, 4),
        .valid_cand = dsa_test_output(test, "valid_cand", rows * SP, 1),
        .host_geom = geom,
        .host_pool_indices = data->indices,
        .Q = rows,
        .P = SP,
        .H = SH,
        .D = SD,
        .KP = SKP,
        .S = SS,
        .scale = 0.3f,
    };

    if (geom) args.geom = dsa_test_input(test, "geom", geom, 5, 4);
    dsa_test_ran(test, gpu_dsa_index_scores(&test->target, &args, &test->report));
    dsa_test_read(test, args.out, data->out);
    dsa_test_read(test, args.valid_cand, data->cand);
    dsa_test_clear(test);
}

static struct score_data *new_score_data(void)
{
    struct score_data *data = calloc(1, sizeof *data);
    uint64_t state = 99;

    cr_assert_not_null(data);
    for (uint32_t i = 0; i < SQ * SH * SD; i++)
        data->q[i] = 0.731f * dsa_test_f32(dsa_test_random_bf16(&state));
    for (uint32_t i = 0; i < SP * SD; i++)
        data->keys[i] = 1.37f * dsa_test_f32(dsa_test_random_bf16(&state));
    for (uint32_t i = 0; i < SQ * SH; i++)
        data->weights[i] = dsa_test_f32(dsa_test_random_bf16(&state));
    for (int32_t i = 0; i < SP * SKP; i++) data->indices[i] = i;
    memset(data->pool_valid, 1, sizeof data->pool_valid);
    memset(data->valid, 1, sizeof data->valid);
    data->q_pos[0] = 13;
    data->q_pos[1] = 6;
    data->q_pos[2] = -1;
    return data;
}

/* The canonical arithmetic of one score, written down once more. */
static float score_by_hand(const struct score_data *data, uint32_t row, uint32_t pool)
{
    float sum = 0;

    for (uint32_t h = 0; h < SH; h++) {
        const float *q = data->q + (row * SH + h) * SD, *key = data->keys + pool * SD;
        float lanes[32] = {0}, head;

        for (uint32_t d = 0; d < SD; d++) lanes[d % 32] = lanes[d % 32] + q[d] * key[d];
        for (uint32_t step = 16; step > 0; step /= 2)
            for (uint32_t l = 0; l < step; l++) lanes[l] = lanes[l] + lanes[l + step];
        head = 0.3f * lanes[0];
        sum = sum + data->weights[row * SH + h] * (head > 0 ? head : isnan(head) ? head : 0.0f);
    }
    return sum;
}

/* Row 0 sees all seven pools but one invalid and one with an invalid last key; row 1, at position
 * 6, sees pools up to {4,5}; row 2 sees none. */
static void score_candidates(struct dsa_test *test)
{
    static const uint8_t want[SQ * SP] = {1, 1, 0, 1, 0, 1, 1, 1, 1, 0};
    struct score_data *data = new_score_data();
    uint32_t negative = 0;

    data->pool_valid[2] = 0;
    data->valid[9] = 0; /* last key of pool 4 */
    data->valid[6] = 0; /* first key of pool 3: its own validity is not asked */
    score(test, data, SQ, NULL);
    for (uint32_t i = 0; i < SQ * SP; i++) {
        float by_hand = want[i] ? score_by_hand(data, i / SP, i % SP) : -FLT_MAX;

        cr_assert_eq(data->cand[i], want[i], "cell %u", i);
        cr_assert_eq(dsa_test_bits(data->out[i]), dsa_test_bits(by_hand), "cell %u", i);
        negative += want[i] && by_hand < 0;
    }
    cr_assert_gt(negative, 0); /* weights of either sign took part */
    free(data);
}

static void score_keeps_nan(struct dsa_test *test)
{
    struct score_data *data = new_score_data();

    data->keys[3 * SD + 33] = NAN;
    data->indices[5 * SKP + 1] = -1;
    score(test, data, SQ, NULL);
    cr_expect(isnan(data->out[3]));
    cr_expect_eq(data->cand[3], 1);
    cr_expect_eq(data->cand[5], 0);
    cr_expect_eq(data->out[5], -FLT_MAX);
    for (uint32_t p = 0; p < 3; p++) cr_expect_eq(data->out[p], score_by_hand(data, 0, p));
    free(data);
}

/* Nine keys and five pools on the device: the last pool ends past the keys. */
static void score_geometry(struct dsa_test *test)
{
    static const int32_t geom[5] = {9, 5, 4, 4, 4};
    struct score_data *data = new_score_data();

    data->indices[4 * SKP + 1] = -1;
    score(test, data, 1, geom);
    for (uint32_t p = 0; p < 4; p++) cr_expect_eq(data->out[p], score_by_hand(data, 0, p));
    cr_expect_eq(data->out[4], -FLT_MAX);
    cr_expect(dsa_test_untouched(data->out + 5, 8));
    cr_expect(dsa_test_untouched(data->cand + 5, 2));
    free(data);
}

/* Whether pool a comes before pool b. */
static bool before(const float *scores, int32_t a, int32_t b)
{
    float x = scores[a], y = scores[b];

    if (isnan(x) || isnan(y)) return isnan(x) ? isnan(y) && a < b : true;
    return x != y ? x > y : a < b;
}

static const float *sorted_scores;

static int by_rank(const void *a, const void *b)
{
    return before(sorted_scores, *(const int32_t *)a, *(const int32_t *)b) ? -1 : 1;
}

/* Scores of one of six kinds: all different, many ties, all equal, low bits only, any bits (NaN and
 * infinities of both signs among them), all NaN. */
static float kind_of_score(int kind, uint64_t *state)
{
    static const float few[] = {0.0f, -0.0f, 1.0f, -1.0f, INFINITY, -INFINITY, -FLT_MAX, 0x1p-149f};
    uint32_t word = dsa_test_random(state);

    switch (kind) {
    case 0:
        return (float)(int32_t)word;
    case 1:
        return few[word % 8];
    case 2:
        return -FLT_MAX;
    case 3:
        return dsa_test_float(0x41234500u | (word & 0xff));
    case 4:
        return dsa_test_float(word);
    default:
        return dsa_test_float(word | 0x7fc00000u);
    }
}

static void topk(struct dsa_test *test, uint32_t rows, uint32_t pools, uint32_t select_k,
                 uint32_t np2, int kind)
{
    float *scores = malloc(4ul * rows * pools + 4);
    int32_t *got = malloc(4ul * rows * select_k + 4), *order = malloc(4ul * pools + 4);
    uint64_t state = pools * 7919u + select_k + (uint32_t)kind;

    for (uint32_t i = 0; i < rows * pools; i++) scores[i] = kind_of_score(kind, &state);
    struct gpu_dsa_topk_pools args = {
        .scores = dsa_test_input(test, "scores", scores, (uint64_t)rows * pools, 4),
        .selected = dsa_test_output(test, "selected", (uint64_t)rows * select_k, 4),
        .Q = rows,
        .P = pools,
        .NP2 = np2,
        .select_k = select_k,
    };
    dsa_test_ran(test, gpu_dsa_topk_pools(&test->target, &args, &test->report));
    dsa_test_read(test, args.selected, got);
    for (uint32_t r = 0; r < rows; r++) {
        for (uint32_t i = 0; i < pools; i++) order[i] = (int32_t)i;
        sorted_scores = scores + r * pools;
        qsort(order, pools, sizeof *order, by_rank);
        for (uint32_t i = 0; i < select_k; i++)
            cr_assert_eq(got[r * select_k + i], i < pools ? order[i] : -1,
                         "kind %d, %u of %u pools, row %u, place %u", kind, select_k, pools, r, i);
    }
    dsa_test_clear(test);
    free(scores);
    free(got);
    free(order);
}

static void topk_small(struct dsa_test *test)
{
    for (int kind = 0; kind < 6; kind++) {
        topk(test, 2, 37, 9, 16, kind);
        topk(test, 3, 1, 1, 1, kind);
        topk(test, 1, 300, 300, 512, kind);
        topk(test, 1, 5, 8, 8, kind); /* more places than pools */
    }
    topk(test, 2, 0, 3, 4, 0);
}

/* Around a turn of the block (256) and a batch of loads (2,048); many more pools than NP2. */
static void topk_large(struct dsa_test *test)
{
    for (int kind = 0; kind < 6; kind++) {
        topk(test, 1, 255 + (uint32_t)kind, 128, 512, kind);
        topk(test, 2, 2049, 700, 4096, kind);
        topk(test, 1, 16391, 4097, 8192, kind);
        topk(test, 1, 70001, 31, 32, kind);
    }
}

/* Six pools of the nine, three places of the five. */
static void topk_geometry(struct dsa_test *test)
{
    static const float scores[9] = {1, 5, 3, 5, 0, 4, 9, 9, 9};
    static const int32_t geom[5] = {18, 6, 6, 3, 8}, want[3] = {1, 3, 5};
    int32_t got[5];
    struct gpu_dsa_topk_pools args = {
        .scores = dsa_test_input(test, "scores", scores, 9, 4),
        .selected = dsa_test_output(test, "selected", 5, 4),
        .geom = dsa_test_input(test, "geom", geom, 5, 4),
        .host_geom = geom,
        .Q = 1,
        .P = 9,
        .NP2 = 16,
        .select_k = 5,
    };

    dsa_test_ran(test, gpu_dsa_topk_pools(&test->target, &args, &test->report));
    dsa_test_read(test, args.selected, got);
    cr_expect_arr_eq(got, want, sizeof want);
    cr_expect(dsa_test_untouched(got + 3, 8));
}

#define EVERY_WAY(name)                   \
    Test(dsa_index, name)                 \
    {                                     \
        dsa_test_every_way(module, name); \
    }

EVERY_WAY(compress_equal_gates)
EVERY_WAY(compress_weights)
EVERY_WAY(compress_no_valid_slot)
EVERY_WAY(compress_geometry)
EVERY_WAY(score_candidates)
EVERY_WAY(score_keeps_nan)
EVERY_WAY(score_geometry)
EVERY_WAY(topk_small)
EVERY_WAY(topk_geometry)

Test(dsa_index, topk_large)
{
    dsa_test_fast(module, topk_large);
}
