#include <criterion/criterion.h>
#include <string.h>

#include "qsa.h"
#include "test_qsa.h"

/* Judges `base` with one change; rule null: accepted. A refusal must say something. */
#define JUDGE(accepts, base, rule_name, ...)                                                 \
    do {                                                                                     \
        __typeof__(base) g = (base);                                                         \
        struct ref_refusal why = {.rule = "none"};                                           \
        const char *want = (rule_name);                                                      \
        __VA_ARGS__;                                                                         \
        bool accepted = accepts(&g, &why);                                                   \
        cr_assert_eq(accepted, want == NULL, "%s: %s %s", #__VA_ARGS__, why.rule, why.text); \
        cr_assert_eq(accepts(&g, NULL), accepted);                                           \
        if (want) cr_assert_str_eq(why.rule, want, "%s", #__VA_ARGS__);                      \
        if (want) cr_assert(strlen(why.text) > 8 && strlen(why.text) < sizeof why.text - 1); \
    } while (0)

#define ALLOWED NULL

static struct ref_qsa_block_pool pool = {.n_new = 5,
                                         .S = 40,
                                         .max_blocks = 10,
                                         .first_block = 5,
                                         .ratio = 4,
                                         .hd = 128,
                                         .rot = 64,
                                         .block_size = 16,
                                         .theta = 1e7f,
                                         .eps = 1e-6f};
#define POOL(rule, ...) JUDGE(ref_qsa_block_pool_accepts, pool, rule, __VA_ARGS__)

Test(qsa_accepts, block_pool)
{
    POOL(ALLOWED, (void)0);
    POOL("dim_multiple_of_32", g.hd = 100, g.rot = 0);
    POOL("hd_range", g.hd = 0, g.rot = 0);
    POOL("hd_range", g.hd = 1056);
    POOL(ALLOWED, g.hd = 1024);
    POOL(ALLOWED, g.hd = 32, g.rot = 32);
    POOL("dim_multiple_of_32", g.hd = UINT32_MAX);
    POOL("hd_range", g.hd = 0xffffffe0);
    POOL("rot", g.rot = 63);
    POOL("rot", g.rot = 130);
    POOL("rot", g.rot = UINT32_MAX - 1);
    POOL(ALLOWED, g.rot = 0);
    POOL(ALLOWED, g.rot = 128);
    POOL("theta", g.theta = 0);
    POOL("theta", g.theta = -1);
    POOL("theta", g.theta = INFINITY);
    POOL("theta", g.theta = NAN);
    POOL(ALLOWED, g.theta = 1e-45f);
    POOL("eps", g.eps = -1e-45f);
    POOL("eps", g.eps = INFINITY);
    POOL("eps", g.eps = NAN);
    POOL(ALLOWED, g.eps = 0);
    POOL(ALLOWED, g.eps = -0.0f);
    POOL("ratio_zero", g.ratio = 0);
    POOL("block_size_multiple_of_ratio", g.block_size = 6);
    POOL("block_size_multiple_of_ratio", g.block_size = 2);
    POOL(ALLOWED, g.block_size = 0); /* not paged */
}

Test(qsa_accepts, block_pool_ranges)
{
    POOL("max_blocks", g.max_blocks = 9);
    POOL("max_blocks", g.first_block = UINT32_MAX, g.n_new = UINT32_MAX);
    POOL("max_blocks", g.n_new = UINT32_MAX); /* wraps to 4 in 32 bits */
    POOL("pool_range", g.S = 39);
    POOL("pool_range", g.ratio = 5, g.block_size = 0);
    /* 10 blocks of 2^31 wrap to 0 in 32 bits. */
    POOL("pool_range", g.ratio = 1u << 31, g.block_size = 0);
    POOL(ALLOWED, g.n_new = 0);
    POOL("max_blocks", g.n_new = 0, g.first_block = 11);
    /* The last token of the last block is the last position read. */
    POOL(ALLOWED, g.S = UINT32_MAX, g.max_blocks = UINT32_MAX, g.first_block = (1u << 29) - 5);
    POOL("position_range", g.S = UINT32_MAX, g.max_blocks = UINT32_MAX,
         g.first_block = (1u << 29) - 4);
    POOL(ALLOWED, g.S = UINT32_MAX, g.max_blocks = UINT32_MAX, g.first_block = 1u << 29,
         g.n_new = 0);
    POOL(ALLOWED, g.n_new = INT32_MAX, g.first_block = 0, g.ratio = 1, g.S = INT32_MAX,
         g.max_blocks = INT32_MAX);
    POOL("grid_limit", g.n_new = 1u << 31, g.first_block = 0, g.ratio = 1, g.S = 1u << 31,
         g.max_blocks = 1u << 31);
}

static struct ref_qsa_qprep_rows qprep = {.rows = 7,
                                          .first_pos = 100,
                                          .qkw = 640,
                                          .n_heads = 4,
                                          .hd = 128,
                                          .rot = 64,
                                          .theta = 1e7f,
                                          .eps = 1e-6f};
#define QPREP_ROWS(rule, ...) JUDGE(ref_qsa_qprep_rows_accepts, qprep, rule, __VA_ARGS__)
#define QPREP(rule, ...) JUDGE(ref_qsa_qprep_accepts, qprep, rule, __VA_ARGS__)

Test(qsa_accepts, qprep_rows)
{
    QPREP_ROWS(ALLOWED, (void)0);
    QPREP_ROWS("dim_multiple_of_32", g.hd = 96 + 16);
    QPREP_ROWS("hd_range", g.hd = 2048);
    QPREP_ROWS("rot", g.rot = 65);
    QPREP_ROWS("theta", g.theta = NAN);
    QPREP_ROWS("eps", g.eps = -1);
    QPREP_ROWS("degenerate", g.n_heads = 0);
    QPREP_ROWS(ALLOWED, g.qkw = 512);
    QPREP_ROWS("qkw", g.qkw = 511);
    /* 2^25 heads of 128 wrap to 0 in 32 bits. */
    QPREP_ROWS("qkw", g.n_heads = 1u << 25);
    QPREP_ROWS(ALLOWED, g.rows = 0);
    QPREP_ROWS(ALLOWED, g.rows = 0, g.first_pos = UINT32_MAX);
    QPREP_ROWS("qkw", g.rows = 0, g.qkw = 0);
    QPREP_ROWS(ALLOWED, g.first_pos = INT32_MAX - 6);
    QPREP_ROWS("position_range", g.first_pos = INT32_MAX - 5);
    QPREP_ROWS("position_range", g.first_pos = UINT32_MAX, g.rows = UINT32_MAX);
    QPREP_ROWS("grid_limit", g.first_pos = 0, g.rows = 1u << 31);
    QPREP_ROWS(ALLOWED, g.n_heads = 65535, g.hd = 32, g.rot = 0, g.qkw = UINT32_MAX);
    QPREP_ROWS("grid_limit", g.n_heads = 65536, g.hd = 32, g.rot = 0, g.qkw = UINT32_MAX);
}

Test(qsa_accepts, qprep)
{
    QPREP(ALLOWED, (void)0);
    QPREP(ALLOWED, g.qkw = 0, g.rows = 0);
    QPREP(ALLOWED, g.first_pos = INT32_MAX);
    QPREP("position_range", g.first_pos = 1u << 31);
    QPREP(ALLOWED, g.n_heads = INT32_MAX); /* along x */
    QPREP("grid_limit", g.n_heads = 1u << 31);
    QPREP("degenerate", g.n_heads = 0);
    QPREP("rot", g.rot = 130);
    QPREP("hd_range", g.hd = 0, g.rot = 0);
}

Test(qsa_accepts, score)
{
    static struct ref_qsa_score score = {.n_blocks = 9, .n_heads = 4, .hd = 128};
#define SCORE(rule, ...) JUDGE(ref_qsa_score_accepts, score, rule, __VA_ARGS__)
    SCORE(ALLOWED, (void)0);
    SCORE(ALLOWED, g.n_blocks = 0);
    SCORE(ALLOWED, g.n_blocks = INT32_MAX);
    SCORE("grid_limit", g.n_blocks = 1u << 31);
    SCORE("degenerate", g.n_heads = 0);
    SCORE("hd_range", g.hd = 0);
    SCORE("dim_multiple_of_32", g.hd = 33);
}

static struct ref_qsa_score_rows rows = {.rows = 20,
                                         .n_blocks_max = 30,
                                         .first_pos = 100,
                                         .score_stride = 32,
                                         .ratio = 4,
                                         .n_heads = 4,
                                         .hd = 128};
#define ROWS(rule, ...) JUDGE(ref_qsa_score_rows_accepts, rows, rule, __VA_ARGS__)
#define TC(rule, ...) JUDGE(ref_qsa_score_rows_tc_accepts, rows, rule, __VA_ARGS__)

Test(qsa_accepts, score_rows)
{
    ROWS(ALLOWED, (void)0);
    ROWS(ALLOWED, g.rows = 0, g.first_pos = UINT32_MAX);
    ROWS(ALLOWED, g.n_blocks_max = 0);
    ROWS(ALLOWED, g.n_blocks_max = 3); /* fewer columns than visible blocks */
    ROWS("ratio_zero", g.ratio = 0);
    ROWS("degenerate", g.n_heads = 0);
    ROWS("hd_range", g.hd = 1056);
    ROWS("score_stride", g.score_stride = 29);
    ROWS("score_stride", g.rows = 0, g.score_stride = 0);
    ROWS("position_range", g.first_pos = INT32_MAX - 18);
    ROWS(ALLOWED, g.first_pos = INT32_MAX - 19);
    ROWS(ALLOWED, g.n_blocks_max = g.score_stride = 65535);
    ROWS("grid_limit", g.n_blocks_max = g.score_stride = 65536);
    ROWS("grid_limit", g.first_pos = 0, g.rows = 1u << 31);
}

#define TILED(rule, ...) JUDGE(ref_qsa_score_rows_tiled_accepts, rows, rule, __VA_ARGS__)

Test(qsa_accepts, score_rows_tiled)
{
    TILED(ALLOWED, (void)0);
    TILED(ALLOWED, g.n_heads = 9, g.hd = 1024);
    TILED("ratio_zero", g.ratio = 0);
    TILED("degenerate", g.n_heads = 0);
    TILED("dim_multiple_of_32", g.hd = 100);
    TILED("score_stride", g.score_stride = 29);
    TILED("position_range", g.first_pos = INT32_MAX - 18);
    TILED(ALLOWED, g.n_blocks_max = g.score_stride = 64 * 65535);
    TILED("grid_limit", g.n_blocks_max = g.score_stride = 64 * 65535 + 1);
    TILED("grid_limit", g.n_blocks_max = g.score_stride = UINT32_MAX);
}

Test(qsa_accepts, score_rows_tc)
{
    TC(ALLOWED, (void)0);
    TC("tc_geometry", g.n_heads = 3);
    TC("tc_geometry", g.hd = 64);
    TC("tc_geometry", g.hd = 0, g.n_heads = 0);
    TC("ratio_zero", g.ratio = 0);
    TC("score_stride", g.score_stride = 29);
    TC("position_range", g.first_pos = UINT32_MAX);
    TC(ALLOWED, g.n_blocks_max = g.score_stride = 64 * 65535);
    TC("grid_limit", g.n_blocks_max = g.score_stride = 64 * 65535 + 1);
    TC("grid_limit", g.n_blocks_max = g.score_stride = UINT32_MAX);
    TC(ALLOWED, g.first_pos = 0, g.rows = 1u << 31);
}

Test(qsa_accepts, topk_rows)
{
    static struct ref_qsa_topk_rows topk = {
        .rows = 20, .first_pos = 100, .score_stride = 30, .ratio = 4, .topk = 512};
#define TOPK(rule, ...) JUDGE(ref_qsa_topk_rows_accepts, topk, rule, __VA_ARGS__)
    TOPK(ALLOWED, (void)0); /* the last row sees 120/4 blocks */
    TOPK("score_stride", g.score_stride = 29);
    TOPK(ALLOWED, g.rows = 0, g.score_stride = 0);
    TOPK("topk_range", g.topk = 0);
    TOPK("topk_range", g.topk = 2049);
    TOPK("topk_range", g.topk = UINT32_MAX, g.rows = 0);
    TOPK(ALLOWED, g.topk = 1);
    TOPK(ALLOWED, g.topk = 2048);
    TOPK("ratio_zero", g.ratio = 0);
    TOPK("position_range", g.first_pos = INT32_MAX, g.score_stride = UINT32_MAX);
    TOPK("grid_limit", g.first_pos = 0, g.rows = 1u << 31, g.score_stride = UINT32_MAX);
}

Test(qsa_accepts, gather)
{
    static const int32_t table[] = {3, 99, -1, 0};
    static const int32_t good[] = {0, 15, 63, 3}, beyond[] = {0, 64}, negative[] = {-1};
    static const int32_t bad_page[] = {16}, bad_hole[] = {47};
    static struct ref_qsa_gather gather = {.block_table = table,
                                           .sel = good,
                                           .n_sel = 4,
                                           .table_len = 4,
                                           .num_pages = 4,
                                           .seq_len = 64,
                                           .block_size = 16,
                                           .nkv = 2,
                                           .hd = 256,
                                           .ratio = 4};
#define GATHER(rule, ...) JUDGE(ref_qsa_gather_accepts, gather, rule, __VA_ARGS__)
    GATHER(ALLOWED, (void)0); /* unused entries may be anything */
    GATHER("sel_range", g.sel = beyond, g.n_sel = 2);
    GATHER(ALLOWED, g.sel = beyond, g.n_sel = 1);
    GATHER("sel_range", g.sel = negative, g.n_sel = 1);
    GATHER("sel_range", g.seq_len = 63);
    GATHER("block_table_entry", g.sel = bad_page, g.n_sel = 1);
    GATHER("block_table_entry", g.sel = bad_hole, g.n_sel = 1);
    GATHER("block_table_entry", g.num_pages = 3);
    GATHER("block_table_entry", g.num_pages = 0);
    GATHER(ALLOWED, g.num_pages = 0, g.n_sel = 0);
    GATHER(ALLOWED, g.sel = NULL, g.block_table = NULL);
    GATHER("sel_range", g.sel = beyond, g.n_sel = 2, g.block_table = NULL);
    GATHER("seq_len_range", g.seq_len = 65);
    GATHER("seq_len_range", g.seq_len = UINT32_MAX, g.n_sel = 0);
    GATHER("block_size_zero", g.block_size = 0);
    GATHER("ratio_zero", g.ratio = 0);
    GATHER("block_size_multiple_of_ratio", g.ratio = 5);
    GATHER("block_size_multiple_of_ratio", g.ratio = 32);
    GATHER("kv_head_groups", g.nkv = 0);
    GATHER("hd_range", g.hd = 2048);
    GATHER(ALLOWED, g.hd = 1024);
    GATHER("dim_multiple_of_32", g.hd = 1);
    GATHER("grid_limit", g.n_sel = 1u << 31, g.sel = NULL);
}

/* Rows 18 and 19 of ratio 4 see 4 and 5 blocks; pages of 8: blocks 0 1 | 2 3 | 4. */
static const int32_t prefill_table[] = {2, 0, 1};
static const int32_t prefill_lists[] = {3, -1, 0, 4, 0, -1};
static struct ref_qsa_prefill_attn prefill = {.block_table = prefill_table,
                                              .lists = prefill_lists,
                                              .rows = 2,
                                              .table_len = 3,
                                              .num_pages = 3,
                                              .first_pos = 18,
                                              .topk = 3,
                                              .ratio = 4,
                                              .block_size = 8,
                                              .nq = 24,
                                              .nkv = 2,
                                              .hd = 256,
                                              .inv_sqrt_d = 0.0625f};
#define PREFILL(rule, ...) JUDGE(ref_qsa_prefill_attn_accepts, prefill, rule, __VA_ARGS__)

Test(qsa_accepts, prefill_shapes)
{
    PREFILL(ALLOWED, (void)0);
    PREFILL("hd_range", g.hd = 288);
    PREFILL("hd_range", g.hd = 0);
    PREFILL("dim_multiple_of_32", g.hd = 80);
    PREFILL(ALLOWED, g.hd = 32);
    PREFILL("degenerate", g.nq = 0);
    PREFILL("kv_head_groups", g.nkv = 0);
    PREFILL("kv_head_groups", g.nkv = 5);
    PREFILL("kv_head_groups", g.nkv = 48);
    PREFILL("block_size_zero", g.block_size = 0);
    PREFILL("ratio_zero", g.ratio = 0);
    PREFILL("block_size_multiple_of_ratio", g.block_size = 10);
    PREFILL("topk_range", g.topk = 0);
    PREFILL("topk_range", g.topk = 2049);
    PREFILL("scale_positive", g.inv_sqrt_d = 0);
    PREFILL("scale_positive", g.inv_sqrt_d = -1);
    PREFILL("scale_positive", g.inv_sqrt_d = NAN);
    PREFILL("scale_positive", g.inv_sqrt_d = INFINITY);
    PREFILL("position_range", g.first_pos = INT32_MAX, g.lists = NULL);
    PREFILL("seq_len_range", g.table_len = 2);
    PREFILL("seq_len_range", g.first_pos = 23, g.lists = NULL);
    PREFILL(ALLOWED, g.first_pos = 22, g.lists = NULL);
    PREFILL(ALLOWED, g.rows = 0, g.table_len = 0, g.first_pos = UINT32_MAX);
    PREFILL(ALLOWED, g.nq = 65534, g.nkv = 1);
    PREFILL("grid_limit", g.nq = 65536);
    PREFILL("grid_limit", g.rows = 1u << 31, g.first_pos = 0, g.table_len = UINT32_MAX);
}

Test(qsa_accepts, prefill_entries)
{
    static const int32_t future[] = {4, -1, 0, 4, 0, -1}, below[] = {-2, -1, 0, 4, 0, -1};
    static const int32_t huge[] = {INT32_MAX, -1, 0, 4, 0, -1}, twice[] = {1, -1, 2, 4, 0, 4};
    static const int32_t empty[] = {-1, -1, -1, -1, -1, -1}, first[] = {0, 1, -1, -1, -1, -1};
    static const int32_t no_last[] = {2, 0, 3}, no_second[] = {2, -1, 1}, negative[] = {2, 0, -7};
    PREFILL("listed_block", g.lists = future);
    PREFILL("listed_block", g.lists = below);
    PREFILL("listed_block", g.lists = huge);
    PREFILL("duplicate_id", g.lists = twice);
    PREFILL(ALLOWED, g.lists = empty);
    /* Row 18 has its tail on page 2, and row 19, which has none, lists block 4 there. */
    PREFILL("block_table_entry", g.block_table = no_last);
    PREFILL("block_table_entry", g.block_table = negative);
    PREFILL("block_table_entry", g.block_table = no_last, g.rows = 1, g.lists = empty);
    PREFILL("block_table_entry", g.num_pages = 2);
    PREFILL(ALLOWED, g.num_pages = 2, g.lists = NULL); /* the tail's entry is 1 */
    PREFILL("block_table_entry", g.num_pages = 1, g.lists = NULL);
    /* Row 19 alone, without tail and without its last block, does not use page 2. */
    PREFILL(ALLOWED, g.block_table = no_last, g.rows = 1, g.first_pos = 19, g.lists = first);
    /* Blocks 2 and 3 are on page 1: used by block 3 in row 18, by nobody in `first`. */
    PREFILL("block_table_entry", g.block_table = no_second);
    PREFILL(ALLOWED, g.block_table = no_second, g.lists = first);
    PREFILL(ALLOWED, g.block_table = NULL);
    PREFILL("listed_block", g.block_table = NULL, g.lists = future);
}

Test(qsa_accepts, paged_decode)
{
    static const int32_t table[] = {1, 0, 5, -1};
    static struct ref_paged_decode_attn decode = {.block_table = table,
                                                  .table_len = 4,
                                                  .num_pages = 2,
                                                  .seq_len = 32,
                                                  .block_size = 16,
                                                  .nq = 24,
                                                  .nkv = 2,
                                                  .hd = 256,
                                                  .inv_sqrt_d = 0.0625f};
#define DECODE(rule, ...) JUDGE(ref_paged_decode_attn_accepts, decode, rule, __VA_ARGS__)
    DECODE(ALLOWED, (void)0);
    DECODE(ALLOWED, g.seq_len = 0);
    DECODE(ALLOWED, g.seq_len = 0, g.table_len = 0, g.num_pages = 0);
    DECODE("block_table_entry", g.seq_len = 33);
    DECODE("block_table_entry", g.seq_len = 64, g.num_pages = 6);
    DECODE("block_table_entry", g.num_pages = 1);
    DECODE("seq_len_range", g.seq_len = 65, g.num_pages = 6);
    DECODE("seq_len_range", g.seq_len = 1, g.table_len = 0);
    /* 2^28 pages of 16 wrap to 0 in 32 bits. */
    DECODE(ALLOWED, g.table_len = 1u << 28);
    DECODE(ALLOWED, g.block_table = NULL);
    DECODE("position_range", g.seq_len = (1u << 31) + 1, g.block_table = NULL,
           g.table_len = UINT32_MAX);
    DECODE(ALLOWED, g.seq_len = 1u << 31, g.block_table = NULL, g.table_len = UINT32_MAX);
    DECODE("block_size_zero", g.block_size = 0);
    DECODE("hd_range", g.hd = 512);
    DECODE("dim_multiple_of_32", g.hd = 250);
    DECODE("degenerate", g.nq = 0);
    DECODE("kv_head_groups", g.nkv = 0);
    DECODE("kv_head_groups", g.nkv = 7);
    DECODE("scale_positive", g.inv_sqrt_d = -0.0f);
    DECODE("scale_positive", g.inv_sqrt_d = NAN);
    DECODE(ALLOWED, g.nq = INT32_MAX, g.nkv = 1);
    DECODE("grid_limit", g.nq = 1u << 31);
}
