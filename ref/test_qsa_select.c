#include <criterion/criterion.h>
#include <string.h>

#include "qsa.h"
#include "test_qsa.h"

/* Seven blocks: +Inf, then the two ones by block, -0 and +0 as equals by block, -Inf, NaN. */
Test(qsa_select, order_worked_by_hand)
{
    static const float scores[7] = {1, NAN, -0.0f, 0, INFINITY, -INFINITY, 1};
    static const int32_t order[10] = {4, 0, 6, 2, 3, 5, 1, -1, -1, -1};
    for (uint32_t topk = 1; topk <= 10; topk++) {
        int32_t list[10] = {9, 9, 9, 9, 9, 9, 9, 9, 9, 9};
        struct ref_qsa_topk_rows g = {.scores = scores,
                                      .rows = 1,
                                      .first_pos = 27,
                                      .score_stride = 7,
                                      .ratio = 4,
                                      .topk = topk};
        ref_qsa_topk_rows(&g, list);
        cr_assert_arr_eq(list, order, topk * sizeof *list);
        for (uint32_t i = topk; i < 10; i++) cr_assert_eq(list[i], 9);
    }
}

Test(qsa_select, nan_of_either_sign_ranks_last_by_block)
{
    float scores[4];
    scores[0] = ref_f32_from_bits(0xffc00001), scores[1] = ref_f32_from_bits(0x7fffffff);
    scores[2] = -INFINITY, scores[3] = ref_f32_from_bits(0x7f800001);
    int32_t list[4];
    struct ref_qsa_topk_rows g = {
        .scores = scores, .rows = 1, .first_pos = 3, .score_stride = 4, .ratio = 1, .topk = 4};
    ref_qsa_topk_rows(&g, list);
    static const int32_t want[4] = {2, 0, 1, 3};
    cr_assert_arr_eq(list, want, sizeof list);
}

/* Does block a come before block b? Straight from the words of ops.md. */
static bool before(const float *scores, uint32_t a, uint32_t b)
{
    bool a_nan = isnan(scores[a]), b_nan = isnan(scores[b]);
    if (a_nan != b_nan) return b_nan;
    if (!a_nan && scores[a] != scores[b]) return scores[a] > scores[b];
    return a < b;
}

/* Each row against counting how many blocks come before each one. Few distinct scores make many
 * ties; rows of one launch see different numbers of blocks, and what lies beyond is NaN or huge. */
Test(qsa_select, every_place_is_the_count_of_better_blocks)
{
    enum { ROWS = 40, STRIDE = 90 };
    static const uint32_t topks[] = {1, 2, 7, 31, 64, 100};
    static const float values[] = {0, -0.0f, 1, -1, 0.5f, NAN, INFINITY, 1e-45f, -1e-45f};
    uint64_t state = 1;
    float scores[ROWS * STRIDE];
    int32_t lists[ROWS * 100];
    for (int run = 0; run < 60; run++) {
        uint32_t ratio = 1 + test_below(&state, 8), topk = topks[run % 6];
        uint32_t first_pos = test_below(&state, 50 * ratio);
        for (uint32_t r = 0; r < ROWS; r++) {
            for (uint32_t b = 0; b < STRIDE; b++) {
                bool hidden = b >= (first_pos + r + 1) / ratio;
                scores[r * STRIDE + b] = hidden ? (b % 2 ? NAN : 3e38f)
                                                : (run % 2 ? values[test_below(&state, 9)]
                                                           : (float)test_uniform(&state));
            }
        }
        struct ref_qsa_topk_rows g = {.scores = scores,
                                      .rows = ROWS,
                                      .first_pos = first_pos,
                                      .score_stride = STRIDE,
                                      .ratio = ratio,
                                      .topk = topk};
        ref_qsa_topk_rows(&g, lists);
        for (uint32_t r = 0; r < ROWS; r++) {
            uint32_t complete = (first_pos + r + 1) / ratio;
            int32_t want[100];
            for (uint32_t i = 0; i < topk; i++) want[i] = -1;
            for (uint32_t b = 0; b < complete; b++) {
                uint32_t place = 0;
                for (uint32_t o = 0; o < complete; o++) place += before(scores + r * STRIDE, o, b);
                if (place < topk) want[place] = (int32_t)b;
            }
            cr_assert_arr_eq(lists + r * topk, want, topk * sizeof *want, "run %d row %u", run, r);
        }
    }
}

/* The released geometry, every position to 4200: ratio 4, 512 blocks. A row sees its visible tokens
 * less the blocks that do not fit: none is masked up to 2051 visible tokens (512 blocks and a tail
 * of 3), four at 2052, one block more with every further block. */
Test(qsa_select, nothing_is_masked_before_the_budget)
{
    enum { ROWS = 4201, STRIDE = 1051, TOPK = 512 };
    uint64_t state = 5;
    float *scores = test_alloc((size_t)ROWS * STRIDE, sizeof *scores);
    int32_t *lists = test_alloc((size_t)ROWS * TOPK, sizeof *lists);
    test_fill_f32(&state, 1, (size_t)ROWS * STRIDE, scores);
    struct ref_qsa_topk_rows g = {
        .scores = scores, .rows = ROWS, .score_stride = STRIDE, .ratio = 4, .topk = TOPK};
    cr_assert(ref_qsa_topk_rows_accepts(&g, NULL));
    ref_qsa_topk_rows(&g, lists);
    for (uint32_t p = 0; p < ROWS; p++) {
        uint32_t visible = p + 1, complete = visible / 4, attended = visible % 4;
        uint8_t seen[STRIDE] = {0};
        for (uint32_t i = 0; i < TOPK; i++) {
            int32_t block = lists[(size_t)p * TOPK + i];
            if (block < 0) continue;
            cr_assert((uint32_t)block < complete && !seen[block]);
            seen[block] = 1;
            attended += 4;
        }
        uint32_t masked = visible - attended;
        if (visible <= 2051) cr_assert_eq(masked, 0, "position %u", p);
        if (visible == 2052) cr_assert_eq(masked, 4);
        cr_assert_eq(masked, complete > TOPK ? 4 * (complete - TOPK) : 0, "position %u", p);
    }
    free(scores);
    free(lists);
}

/* A long row: 262,144 blocks of descending, then of ascending scores. */
Test(qsa_select, long_rows)
{
    enum { BLOCKS = 262144, TOPK = 2048 };
    float *scores = test_alloc(BLOCKS, sizeof *scores);
    int32_t *list = test_alloc(TOPK, sizeof *list);
    struct ref_qsa_topk_rows g = {.scores = scores,
                                  .rows = 1,
                                  .first_pos = 4 * BLOCKS - 1,
                                  .score_stride = BLOCKS,
                                  .ratio = 4,
                                  .topk = TOPK};
    for (int ascending = 0; ascending < 2; ascending++) {
        for (int b = 0; b < BLOCKS; b++) scores[b] = (float)(ascending ? b : -b);
        ref_qsa_topk_rows(&g, list);
        for (int i = 0; i < TOPK; i++) cr_assert_eq(list[i], ascending ? BLOCKS - 1 - i : i);
    }
    free(scores);
    free(list);
}

/* Pages in any order, a page used twice, tokens in any order and repeated. Token t of the cache
 * holds 1000 + its slot in every element, plus the head; V holds the negative of it. */
Test(qsa_select, gather_follows_the_block_table)
{
    enum { PAGES = 5, BLOCK = 4, NKV = 2, HD = 32, TOKEN = NKV * HD };
    static const int32_t table[] = {3, 0, 4, 0}, sel[] = {15, 0, 4, 9, 9, 7, 3};
    uint16_t k[PAGES * BLOCK * TOKEN], v[PAGES * BLOCK * TOKEN], k_out[7 * TOKEN], v_out[7 * TOKEN];
    for (int slot = 0; slot < PAGES * BLOCK; slot++) {
        for (int e = 0; e < TOKEN; e++) {
            k[slot * TOKEN + e] = (uint16_t)(1000 * slot + e);
            v[slot * TOKEN + e] = (uint16_t)(1000 * slot + e + 500);
        }
    }
    struct ref_qsa_gather g = {.k_cache = k,
                               .v_cache = v,
                               .block_table = table,
                               .sel = sel,
                               .n_sel = 7,
                               .table_len = 4,
                               .num_pages = PAGES,
                               .seq_len = 16,
                               .block_size = BLOCK,
                               .nkv = NKV,
                               .hd = HD,
                               .ratio = 4};
    cr_assert(ref_qsa_gather_accepts(&g, NULL));
    ref_qsa_gather(&g, k_out, v_out);
    /* Token 15: page 3 of the sequence is page 0, slot 3. Token 0: page 3, slot 12. Token 4: page
     * 0, slot 0. Token 9: page 4, slot 17. Token 7: slot 3. Token 3: slot 15. */
    static const int slots[] = {3, 12, 0, 17, 17, 3, 15};
    for (int i = 0; i < 7; i++) {
        cr_assert_arr_eq(k_out + i * TOKEN, k + slots[i] * TOKEN, TOKEN * sizeof *k);
        cr_assert_arr_eq(v_out + i * TOKEN, v + slots[i] * TOKEN, TOKEN * sizeof *v);
    }
}
