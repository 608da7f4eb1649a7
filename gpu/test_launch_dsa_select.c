/* Expansion, masks and masked attention on small cases whose answer follows by hand. */
#include "test_launch_dsa_support.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char module[] = "dsa_indexer";

/* 15 keys of which key 0 is padding, pools of 3 from key 1: {1,2,3} {4,5,6} {7,8,9} {10,11,12}
 * {13,14,-}; budget 6 tokens = 2 pools. */
enum { Q = 5, P = 5, KP = 3, S = 15, TOPK = 6, MAX_WIDTH = TOPK + KP - 1 };

static const int32_t pool_indices[P * KP] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, -1};

struct expand_data {
    int32_t selected[Q * 2], q_pos[Q], out[Q * MAX_WIDTH];
    uint8_t cand[Q * P], valid[S], q_mask[Q];
};

static void expand(struct dsa_test *test, struct expand_data *data, uint32_t rows, bool tail,
                   const int32_t *geom)
{
    uint32_t width = TOPK + (tail ? KP - 1 : 0);
    struct gpu_dsa_expand_selection args = {
        .selected = dsa_test_input(test, "selected", data->selected, rows * 2, 4),
        .pool_indices = dsa_test_input(test, "pool_indices", pool_indices, P * KP, 4),
        .valid_cand = dsa_test_input(test, "valid_cand", data->cand, rows * P, 1),
        .valid_keys = dsa_test_input(test, "valid_keys", data->valid, S, 1),
        .q_pos = dsa_test_input(test, "q_pos", data->q_pos, rows, 4),
        .q_mask = dsa_test_input(test, "q_mask", data->q_mask, rows, 1),
        .out = dsa_test_output(test, "out", rows * width, 4),
        .host_geom = geom,
        .Q = rows,
        .P = P,
        .KP = KP,
        .S = S,
        .select_k = 2,
        .width = width,
        .index_topk = TOPK,
        .first_key = 1,
        .always_tail = tail,
    };

    if (geom) args.geom = dsa_test_input(test, "geom", geom, 5, 4);
    dsa_test_ran(test, gpu_dsa_expand_selection(&test->target, &args, &test->report));
    dsa_test_read(test, args.out, data->out);
    dsa_test_clear(test);
}

static struct expand_data expand_data(void)
{
    struct expand_data data = {.selected = {3, 1, 2, 0, 0, -1, 4, 2, 1, 0},
                               .q_pos = {14, 11, 4, 14, 0}};

    memset(data.cand, 1, sizeof data.cand);
    memset(data.valid, 1, sizeof data.valid);
    memset(data.q_mask, 1, sizeof data.q_mask);
    data.valid[0] = 0;
    data.cand[3 * P + 4] = 0;
    data.q_mask[4] = 1;
    return data;
}

/* Row 0: pools 3 and 1, tail 13 14. Row 1 at 11: pools 2 and 0, tail 10 11. Row 2 at 4: one pool
 * only, tail right behind it. Row 3: a pool that is no candidate leaves holes. Row 4, on the
 * padding: nothing is visible. */
static void expand_rows(struct dsa_test *test)
{
    static const int32_t want[Q][MAX_WIDTH] = {{10, 11, 12, 4, 5, 6, 13, 14},
                                               {7, 8, 9, 1, 2, 3, 10, 11},
                                               {1, 2, 3, 4, -1, -1, -1, -1},
                                               {-1, -1, -1, 7, 8, 9, 13, 14},
                                               {-1, -1, -1, -1, -1, -1, -1, -1}};
    struct expand_data data = expand_data();

    expand(test, &data, Q, true, NULL);
    cr_expect_arr_eq(data.out, want, sizeof want);
    data.q_mask[1] = 0;
    expand(test, &data, Q, true, NULL);
    for (uint32_t i = 0; i < MAX_WIDTH; i++) {
        cr_expect_eq(data.out[i], want[0][i]);
        cr_expect_eq(data.out[MAX_WIDTH + i], -1, "a masked query has no ids");
    }
}

static void expand_without_tail(struct dsa_test *test)
{
    static const int32_t want[2][TOPK] = {{10, 11, 12, 4, 5, 6}, {7, 8, 9, 1, 2, 3}};
    struct expand_data data = expand_data();

    expand(test, &data, 2, false, NULL);
    cr_expect_arr_eq(data.out, want, sizeof want);
}

/* The device says 12 keys, 4 pools, one selected: the row of a pass at that length. */
static void expand_geometry(struct dsa_test *test)
{
    static const int32_t geom[5] = {12, 4, 3, 1, 1};
    static const int32_t want[MAX_WIDTH] = {10, 11, 12, 10, 11, -1, -1, -1};
    struct expand_data data = expand_data();

    expand(test, &data, 1, true, geom);
    cr_expect_arr_eq(data.out, want, sizeof want);
}

/* The valid keys are counted 16 at a time: every length and every offset to the boundary. */
static void expand_counts_valid(struct dsa_test *test)
{
    enum { KEYS = 77 };
    uint8_t valid[KEYS];
    static const uint8_t one = 1;
    static const int32_t none = -1;

    for (uint32_t i = 0; i < KEYS; i++)
        valid[i] = i % 3 == 0 ? 0 : (uint8_t)(i % 5 == 0 ? 0x80 : 1);
    for (int32_t pos = 0; pos < KEYS; pos++) {
        uint8_t moved[KEYS + 16] = {0};
        int32_t row[31], visible = 0;
        uint32_t shift = (uint32_t)pos % 16;
        struct gpu_buffer keys;

        for (int32_t i = 0; i <= pos; i++) visible += valid[i] != 0;
        memcpy(moved + shift, valid, KEYS);
        keys = *dsa_test_input(test, "valid_keys", moved, KEYS + 16, 1);
        keys.address += shift;
        keys.size_bytes -= shift;
        struct gpu_dsa_expand_selection args = {
            .selected = dsa_test_input(test, "selected", &none, 0, 4),
            .pool_indices = dsa_test_input(test, "pool_indices", &none, 0, 4),
            .valid_cand = dsa_test_input(test, "valid_cand", &one, 0, 1),
            .valid_keys = &keys,
            .q_pos = dsa_test_input(test, "q_pos", &pos, 1, 4),
            .q_mask = dsa_test_input(test, "q_mask", &one, 1, 1),
            .out = dsa_test_output(test, "out", 31, 4),
            .Q = 1,
            .KP = 16,
            .S = KEYS,
            .width = 31,
            .index_topk = 16,
            .always_tail = 1,
        };

        dsa_test_ran(test, gpu_dsa_expand_selection(&test->target, &args, &test->report));
        dsa_test_read(test, args.out, row);
        for (int32_t i = 0; i < 31; i++)
            cr_assert_eq(row[i], i < visible % 16 ? visible - visible % 16 + i : -1,
                         "position %d, place %d", pos, i);
        dsa_test_clear(test);
    }
}

static void masks(struct dsa_test *test)
{
    enum { ROWS = 3, WIDTH = 6, KEYS = 301 };
    static const int32_t ids[ROWS * WIDTH] = {0,  300, 300, -1,  7,   301,       -1, -1,        -1,
                                              -1, -1,  -1,  256, 255, INT32_MIN, 0,  INT32_MAX, 1};
    static const uint16_t want[ROWS][4] = {
        {0, 7, 300, 300}, {999, 999, 999, 999}, {0, 1, 255, 256}};
    uint8_t got[ROWS * KEYS];
    struct gpu_dsa_topk_to_mask args = {
        .topk = dsa_test_input(test, "topk", ids, ROWS * WIDTH, 4),
        .mask = dsa_test_output(test, "mask", ROWS * KEYS, 1),
        .Q = ROWS,
        .width = WIDTH,
        .S = KEYS,
    };

    dsa_test_ran(test, gpu_dsa_topk_to_mask(&test->target, &args, &test->report));
    dsa_test_read(test, args.mask, got);
    for (uint32_t i = 0; i < ROWS * KEYS; i++) {
        const uint16_t *row = want[i / KEYS];
        uint32_t s = i % KEYS;

        cr_assert_eq(got[i], s == row[0] || s == row[1] || s == row[2] || s == row[3], "byte %u",
                     i);
    }
}

enum { AQ = 2, AS = 37, AH = 3, QD = 40, VD = 300 };

struct attn_data {
    uint16_t q[AQ * AH * QD], k[AS * AH * QD], v[AS * AH * VD];
    uint8_t mask[AQ * AS];
    float out[AQ * AH * VD];
};

/* Everything NaN, zero or masked out until a test says otherwise. */
static struct attn_data *new_attn_data(void)
{
    struct attn_data *data = calloc(1, sizeof *data);

    cr_assert_not_null(data);
    memset(data->k, 0xff, sizeof data->k);
    memset(data->v, 0xff, sizeof data->v);
    return data;
}

static void attend(struct dsa_test *test, struct attn_data *data, float scale, int32_t round)
{
    struct gpu_dsa_mla_masked_attn args = {
        .q = dsa_test_input(test, "q", data->q, AQ * AH * QD, 2),
        .k = dsa_test_input(test, "k", data->k, AS * AH * QD, 2),
        .v = dsa_test_input(test, "v", data->v, AS * AH * VD, 2),
        .mask = dsa_test_input(test, "mask", data->mask, AQ * AS, 1),
        .out = dsa_test_output(test, "out", AQ * AH * VD, 4),
        .Q = AQ,
        .S = AS,
        .H = AH,
        .qd = QD,
        .vd = VD,
        .scale = scale,
        .round_scores_bf16 = round,
    };

    dsa_test_ran(test, gpu_dsa_mla_masked_attn(&test->target, &args, &test->report));
    dsa_test_read(test, args.out, data->out);
    dsa_test_clear(test);
}

/* Key s of the row with dim 35 = `key` and the value of channel d = base + d % 8, in every head. */
static void set_key(struct attn_data *data, uint32_t s, float key, float base)
{
    for (uint32_t h = 0; h < AH; h++) {
        for (uint32_t d = 0; d < QD; d++)
            data->k[(s * AH + h) * QD + d] = d == 35 ? dsa_test_bf16(key) : 0;
        for (uint32_t d = 0; d < VD; d++)
            data->v[(s * AH + h) * VD + d] = dsa_test_bf16(base + (float)(d % 8));
    }
}

/* Row 0 weighs keys 3 and 36 alike; row 1 is empty; a mask byte of 2 selects nothing. */
static void masked_mean(struct dsa_test *test)
{
    struct attn_data *data = new_attn_data();

    set_key(data, 3, 1, 2);
    set_key(data, 36, 4, 8);
    data->mask[3] = data->mask[36] = 1;
    data->mask[20] = data->mask[AS + 5] = 2;
    attend(test, data, 1, 0);
    for (uint32_t i = 0; i < AQ * AH * VD; i++) {
        float want = i < AH * VD ? 5 + (float)(i % VD % 8) : 0;

        cr_assert_eq(dsa_test_bits(data->out[i]), dsa_test_bits(want), "element %u", i);
    }
    free(data);
}

/* Scores 0.501 x 2 = 1.002 and 0: rounded to bf16 the first is exactly 1. */
static void masked_rounding(struct dsa_test *test)
{
    struct attn_data *data = new_attn_data();

    for (uint32_t i = 0; i < AQ * AH; i++) data->q[i * QD + 35] = dsa_test_bf16(1.0f);
    set_key(data, 0, 2, 16);
    set_key(data, 1, 0, 0);
    data->mask[0] = data->mask[1] = data->mask[AS] = data->mask[AS + 1] = 1;
    for (int32_t round = 0; round < 2; round++) {
        double score = round ? 1.0 : (double)(0.501f * 2), weight = 1 / (1 + exp(-score));

        attend(test, data, 0.501f, round);
        for (uint32_t i = 0; i < AQ * AH * VD; i++) {
            double want = 16 * weight + i % VD % 8;

            cr_assert(fabs(data->out[i] - want) < 16 * 0x1p-24 * want, "rounding %d, element %u",
                      round, i);
        }
    }
    free(data);
}

#define EVERY_WAY(name)                   \
    Test(dsa_select, name)                \
    {                                     \
        dsa_test_every_way(module, name); \
    }

EVERY_WAY(expand_rows)
EVERY_WAY(expand_without_tail)
EVERY_WAY(expand_geometry)
EVERY_WAY(expand_counts_valid)
EVERY_WAY(masks)
EVERY_WAY(masked_mean)
EVERY_WAY(masked_rounding)
