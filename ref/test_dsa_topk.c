/* topk_pools, expand_selection and topk_to_mask. */
#include "dsa.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "test_random.h"

enum { MAX_POOLS = 200 };

static void expect_row(const int32_t *got, const int32_t *want, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        cr_assert_eq(got[i], want[i], "%s: slot %zu is %d, not %d", what, i, got[i], want[i]);
}

/* By hand: 5, 3, 3, then the zeros by pool (-0 equals +0), then -Inf, then NaN by pool. */
Test(dsa_topk, order_by_hand)
{
    float scores[10] = {NAN, 0.0f, 3, -0.0f, 5, 0.0f, -INFINITY, 3, NAN, -0.0f};
    static const int32_t order[12] = {4, 2, 7, 1, 3, 5, 9, 6, 0, 8, -1, -1};
    for (uint32_t k = 0; k <= 12; k++) {
        int32_t got[13];
        struct ref_dsa_topk_pools g = {.scores = scores, .Q = 1, .P = 10, .NP2 = 16, .select_k = k};
        got[k] = 77;
        cr_assert(ref_dsa_topk_pools_accepts(&g, NULL));
        ref_dsa_topk_pools(&g, got);
        expect_row(got, order, k, "order");
        cr_assert_eq(got[k], 77);
    }
}

/* The place of a pool is the number of pools that come before it. */
static int32_t place(const float *s, uint32_t n, uint32_t pool)
{
    int32_t before = 0;
    for (uint32_t other = 0; other < n; other++) {
        bool equal = s[other] == s[pool] || (isnan(s[other]) && isnan(s[pool]));
        bool better = s[other] > s[pool] || (isnan(s[pool]) && !isnan(s[other]));
        before += better || (equal && other < pool);
    }
    return before;
}

Test(dsa_topk, rows_by_counting)
{
    static float scores[3 * MAX_POOLS];
    static int32_t got[3 * MAX_POOLS], want[MAX_POOLS];
    struct test_random rng = {1};
    for (int round = 0; round < 300; round++) {
        uint32_t P = 1 + test_below(&rng, MAX_POOLS), k = test_below(&rng, MAX_POOLS);
        for (uint32_t i = 0; i < 3 * P; i++) {
            uint32_t kind = test_below(&rng, 20);
            scores[i] = kind == 0   ? NAN
                        : kind == 1 ? -FLT_MAX
                        : round & 1 ? (float)test_below(&rng, 5) - 2
                                    : (float)test_normal(&rng);
        }
        struct ref_dsa_topk_pools g = {.scores = scores, .Q = 3, .P = P, .NP2 = 256, .select_k = k};
        ref_dsa_topk_pools(&g, got);
        for (uint32_t r = 0; r < 3; r++) {
            for (uint32_t i = 0; i < k; i++) want[i] = -1;
            for (uint32_t p = 0; p < P; p++) {
                int32_t at = place(scores + r * P, P, p);
                if ((uint32_t)at < k) want[at] = (int32_t)p;
            }
            expect_row(got + r * k, want, k, "random");
        }
    }
}

Test(dsa_topk, geom_cuts_pools_and_k)
{
    float scores[6] = {1, 2, 3, 4, 5, 6};
    int32_t geom[5] = {12, 3, 3, 2, 2}, got[4] = {9, 9, 9, 9};
    struct ref_dsa_topk_pools g = {scores, geom, 1, 6, 4, 4};
    cr_assert(ref_dsa_topk_pools_accepts(&g, NULL));
    ref_dsa_topk_pools(&g, got);
    expect_row(got, (int32_t[]){2, 1, 9, 9}, 4, "geom");
}

enum { S = 21, KP = 4, P = 6, TOPK = 8, K = 2, WIDTH = TOPK + KP - 1, Q = 6 };

struct expansion {
    int32_t selected[Q * K], indices[(P + 1) * KP], q_pos[Q], out[Q * WIDTH + 1];
    uint8_t cand[Q * P], valid[S], q_mask[Q];
    struct ref_dsa_expand_selection g;
};

/* first_key 2: pools {2..5} {6..9} {10..13} {14..17} {18..20, -}. */
static void open_expansion(struct expansion *t)
{
    memset(t, 0, sizeof *t);
    for (int i = 0; i < P * KP; i++) t->indices[i] = i + 2 < S ? i + 2 : -1;
    for (int i = 0; i < S; i++) t->valid[i] = i >= 2;
    for (int r = 0; r < Q; r++) {
        t->q_mask[r] = 1;
        t->q_pos[r] = S - 1;
    }
    memset(t->cand, 1, sizeof t->cand);
    t->out[Q * WIDTH] = 77;
    t->g = (struct ref_dsa_expand_selection){.selected = t->selected,
                                             .pool_indices = t->indices,
                                             .valid_cand = t->cand,
                                             .valid_keys = t->valid,
                                             .q_pos = t->q_pos,
                                             .q_mask = t->q_mask,
                                             .Q = Q,
                                             .P = P,
                                             .KP = KP,
                                             .S = S,
                                             .select_k = K,
                                             .width = WIDTH,
                                             .index_topk = TOPK,
                                             .first_key = 2,
                                             .always_tail = 1};
}

static void run_expansion(struct expansion *t)
{
    struct ref_refusal why;
    cr_assert(ref_dsa_expand_selection_accepts(&t->g, &why), "%s", why.text);
    ref_dsa_expand_selection(&t->g, t->out);
    cr_assert_eq(t->out[Q * WIDTH], 77);
}

Test(dsa_topk, expand_refuses_a_valid_key_before_the_first)
{
    struct expansion t;
    struct ref_refusal why;
    open_expansion(&t);
    memset(t.valid, 0, sizeof t.valid);
    for (int r = 0; r < Q; r++) t.q_pos[r] = 1;
    t.g.first_key = 4;
    t.valid[4] = t.valid[2] = 1; /* no query sees token 2 */
    cr_assert(ref_dsa_expand_selection_accepts(&t.g, &why), "%s", why.text);
    t.q_pos[Q - 1] = 2;
    cr_assert(!ref_dsa_expand_selection_accepts(&t.g, &why));
    cr_assert_str_eq(why.rule, "first_key");
    cr_assert(strstr(why.text, "token 2 is valid and lies before first_key 4"), "%s", why.text);
    t.q_mask[Q - 1] = 0;
    cr_assert(ref_dsa_expand_selection_accepts(&t.g, &why), "%s", why.text);
}

/* By hand, row by row. */
Test(dsa_topk, expand_by_hand)
{
    static struct expansion t;
    open_expansion(&t);
    static const struct {
        int32_t selected[K], q_pos;
        uint8_t mask, not_candidate; /* pool + 1 */
        int32_t want[WIDTH];
    } rows[Q] = {
        /* 20 sees 2..20: 19 keys, tail 19 mod 4 = 3 from 2+16 = 18 */
        {{3, 1}, 20, 1, 0, {14, 15, 16, 17, 6, 7, 8, 9, 18, 19, 20}},
        /* pool 3 is no candidate: four holes, the rest stays where it was */
        {{3, 1}, 20, 1, 4, {-1, -1, -1, -1, 6, 7, 8, 9, 18, 19, 20}},
        /* masked */
        {{3, 1}, 20, 0, 0, {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}},
        /* 7 sees 2..7: one complete pool, so one entry counts; 6 mod 4 = 2 from 6 */
        {{0, 3}, 7, 1, 0, {2, 3, 4, 5, 6, 7, -1, -1, -1, -1, -1}},
        /* 4 sees 2..4: no complete pool; the tail stands first */
        {{0, 1}, 4, 1, 0, {2, 3, 4, -1, -1, -1, -1, -1, -1, -1, -1}},
        /* 9: two complete pools and no tail; one entry empty */
        {{-1, 0}, 9, 1, 0, {-1, -1, -1, -1, 2, 3, 4, 5, -1, -1, -1}},
    };
    for (int r = 0; r < Q; r++) {
        memcpy(t.selected + r * K, rows[r].selected, sizeof rows[r].selected);
        t.q_pos[r] = rows[r].q_pos;
        t.q_mask[r] = rows[r].mask;
        if (rows[r].not_candidate) t.cand[r * P + rows[r].not_candidate - 1] = 0;
    }
    run_expansion(&t);
    for (int r = 0; r < Q; r++) expect_row(t.out + r * WIDTH, rows[r].want, WIDTH, "row");
}

Test(dsa_topk, expand_before_the_first_key_and_without_tail)
{
    static struct expansion t;
    open_expansion(&t);
    for (int r = 0; r < Q; r++) {
        t.selected[r * K] = r & 1;
        t.selected[r * K + 1] = 3;
        t.q_pos[r] = r; /* 0 and 1 are padding: nothing is visible */
    }
    run_expansion(&t);
    for (int r = 0; r < 2; r++)
        for (int i = 0; i < WIDTH; i++) cr_assert_eq(t.out[r * WIDTH + i], -1);
    expect_row(t.out + 2 * WIDTH, (int32_t[]){2, -1}, 2, "the first key alone");
    t.g.always_tail = 0;
    t.g.width = TOPK;
    memset(t.out, 0x55, sizeof t.out);
    t.out[Q * WIDTH] = 77;
    t.q_pos[5] = 20;
    run_expansion(&t);
    for (int i = 0; i < 5 * TOPK; i++) {
        if (i >= 4 * TOPK || i < 3 * TOPK) cr_assert_eq(t.out[i], -1, "slot %d", i);
    }
    expect_row(t.out + 5 * TOPK, (int32_t[]){6, 7, 8, 9, 14, 15, 16, 17}, TOPK, "no tail");
}

/* Whatever the rows say, ids are below S: pools that do not exist, tokens beyond the length, a
 * first_key behind the first valid token, which the predicate refuses once it sees the data. */
Test(dsa_topk, expand_drops_what_is_not_there)
{
    static struct expansion t;
    open_expansion(&t);
    t.selected[0] = P; /* what stands behind the last pool must not be taken for one */
    for (int slot = 0; slot < KP; slot++) t.indices[P * KP + slot] = 3;
    t.selected[1] = 4; /* 18, 19, 20 and a slot that says 21 */
    t.indices[4 * KP + 3] = S;
    for (int i = 0; i < S; i++) t.valid[i] = 1;
    t.q_pos[0] = 20; /* 21 keys are visible: a tail of one, which would be token 2 + 20 */
    t.selected[K] = t.selected[K + 1] = -1;
    t.q_pos[1] = 19; /* 20: no tail */
    t.q_pos[2] = 0;
    ref_dsa_expand_selection(&t.g, t.out);
    expect_row(t.out, (int32_t[]){-1, -1, -1, -1, 18, 19, 20, -1, -1, -1, -1}, WIDTH, "row 0");
    for (int i = 0; i < WIDTH; i++) cr_assert_eq(t.out[WIDTH + i], -1);
    t.g.first_key = 20; /* (0+1-20)/4 is below 0: no pool counts */
    t.valid[0] = 0;
    ref_dsa_expand_selection(&t.g, t.out);
    for (int i = 0; i < WIDTH; i++) cr_assert_eq(t.out[2 * WIDTH + i], -1);
    cr_assert_eq(t.out[Q * WIDTH], 77);
}

Test(dsa_topk, expand_with_geom)
{
    static struct expansion t;
    int32_t geom[5] = {13, 3, 2, 1, 1}; /* tokens 2..12: two complete pools, three tokens of tail */
    open_expansion(&t);
    t.g.Q = 1;
    t.g.geom = geom;
    t.selected[0] = 1;
    t.selected[1] = 0; /* beyond geom's select_k */
    run_expansion(&t);
    expect_row(t.out, (int32_t[]){6, 7, 8, 9, 10, 11, 12, -1, -1, -1, -1}, WIDTH, "geom");
}

/* The three operations in a chain, every row of a random sequence, against what they mean: the best
 * complete pools at that position, and the tail. Ids are unique and below S. */
Test(dsa_topk, chain_means_the_best_pools_and_the_tail)
{
    enum { TOKENS = 60, POOLS = 15 };
    struct test_random rng = {2};
    static float scores[TOKENS * POOLS];
    static int32_t selected[TOKENS * 4], indices[POOLS * KP], positions[TOKENS], out[TOKENS * 19];
    static uint8_t cand[TOKENS * POOLS], valid[TOKENS], mask[TOKENS], sets[TOKENS * TOKENS];
    for (int first = 0; first < 7; first++) {
        uint32_t pools = (uint32_t)(TOKENS - first) / KP, want_k = 4;
        for (int i = 0; i < TOKENS; i++) valid[i] = mask[i] = i >= first, positions[i] = i;
        for (uint32_t i = 0; i < pools * KP; i++) indices[i] = first + (int32_t)i;
        for (int r = 0; r < TOKENS; r++) {
            for (uint32_t p = 0; p < pools; p++) {
                size_t at = (size_t)r * pools + p;
                cand[at] = first + (int)(p * KP + KP - 1) <= r;
                scores[at] = cand[at] ? (float)test_below(&rng, 9) - 4 : -FLT_MAX;
            }
        }
        struct ref_dsa_topk_pools top = {scores, NULL, TOKENS, pools, 4, want_k};
        ref_dsa_topk_pools(&top, selected);
        struct ref_dsa_expand_selection expand = {
            selected, indices, cand,   valid,  positions,  mask,   NULL,  TOKENS,
            pools,    KP,      TOKENS, want_k, 4 * KP + 3, 4 * KP, first, 1};
        cr_assert(ref_dsa_expand_selection_accepts(&expand, NULL));
        ref_dsa_expand_selection(&expand, out);
        struct ref_dsa_topk_to_mask to_mask = {out, TOKENS, 4 * KP + 3, TOKENS};
        cr_assert(ref_dsa_topk_to_mask_accepts(&to_mask, NULL));
        ref_dsa_topk_to_mask(&to_mask, sets);
        for (int r = 0; r < TOKENS; r++) {
            int complete = r < first ? 0 : (r + 1 - first) / KP, held = 0, marked = 0;
            for (int t = 0; t < TOKENS; t++) {
                int pool = t < first ? -1 : (t - first) / KP;
                bool in_pool = t >= first && pool < complete &&
                               place(scores + (size_t)r * pools, pools, (uint32_t)pool) < 4;
                bool want = t >= first && t <= r && (in_pool || pool == complete);
                cr_assert_eq(sets[r * TOKENS + t], want, "first %d row %d token %d", first, r, t);
                marked += want;
            }
            for (int i = 0; i < 19; i++) held += out[r * 19 + i] >= 0;
            cr_assert_eq(held, marked, "ids are unique");
        }
    }
}

Test(dsa_topk, mask_by_hand)
{
    int32_t topk[2 * 5] = {3, -1, 0, 3, 4, INT32_MIN, 5, INT32_MAX, -1, 2};
    uint8_t mask[11], want[11] = {1, 0, 0, 1, 1, 0, 0, 1, 0, 0, 9};
    memset(mask, 9, sizeof mask);
    struct ref_dsa_topk_to_mask g = {topk, 2, 5, 5};
    ref_dsa_topk_to_mask(&g, mask);
    cr_assert(!memcmp(mask, want, sizeof want));
    g.width = 0;
    ref_dsa_topk_to_mask(&g, mask);
    for (int i = 0; i < 10; i++) cr_assert_eq(mask[i], 0);
}
