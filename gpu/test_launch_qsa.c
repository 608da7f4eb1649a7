/* The refusals of the QSA launchers, one by one, and checks on absurd geometries. */
#include "launch_qsa.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static struct gpu_report report;

/* The check must refuse with this rule and with these words in its text. */
static void refuses(enum gpu_status status, const char *rule, const char *words)
{
    cr_expect_eq(status, GPU_REFUSED, "status %d instead of a refusal by %s", status, rule);
    cr_expect_str_eq(report.rule, rule);
    cr_expect(strstr(report.text, words) != NULL, "\"%s\" does not say \"%s\"", report.text, words);
    memset(&report, 0, sizeof report);
}

static void accepts(enum gpu_status status)
{
    cr_expect_eq(status, GPU_OK, "refused: %s: %s", report.rule, report.text);
}

/* One field broken in otherwise good arguments. */
#define REFUSES(op, field, value, rule, words)                    \
    do {                                                          \
        struct gpu_##op broken = op##_args();                     \
                                                                  \
        broken.field = value;                                     \
        refuses(gpu_##op##_check(&broken, &report), rule, words); \
    } while (0)

#define ACCEPTS(op, field, value)                     \
    do {                                              \
        struct gpu_##op changed = op##_args();        \
                                                      \
        changed.field = value;                        \
        accepts(gpu_##op##_check(&changed, &report)); \
    } while (0)

/* A buffer of exactly the bytes needed is accepted, one byte less refused, an odd address too. */
#define NEEDS_BYTES(op, field, bytes)                                                        \
    do {                                                                                     \
        struct gpu_buffer buffer = {.address = 4096, .size_bytes = bytes};                   \
        struct gpu_##op args = op##_args();                                                  \
        char words[80];                                                                      \
                                                                                             \
        args.field = &buffer;                                                                \
        accepts(gpu_##op##_check(&args, &report));                                           \
        buffer.address++;                                                                    \
        refuses(gpu_##op##_check(&args, &report), "buffer_align", #field " lies at 0x1001"); \
        buffer.address--;                                                                    \
        buffer.size_bytes--;                                                                 \
        snprintf(words, sizeof words, #field " has %" PRIu64 " bytes and needs %" PRIu64,    \
                 buffer.size_bytes, buffer.size_bytes + 1);                                  \
        refuses(gpu_##op##_check(&args, &report), "buffer_size", words);                     \
    } while (0)

static struct gpu_qsa_block_pool qsa_block_pool_args(void)
{
    return (struct gpu_qsa_block_pool){
        .n_new = 5,
        .S = 29,
        .max_blocks = 9,
        .first_block = 2,
        .ratio = 4,
        .hd = 64,
        .rot = 32,
        .block_size = 16,
        .theta = 1e7f,
        .eps = 1e-6f,
    };
}

Test(launch_qsa, block_pool)
{
    accepts(gpu_qsa_block_pool_check(&(struct gpu_qsa_block_pool){.hd = 32, .ratio = 1, .theta = 1},
                                     &report));
    ACCEPTS(qsa_block_pool, block_size, 0);
    ACCEPTS(qsa_block_pool, rot, 64);
    ACCEPTS(qsa_block_pool, eps, 0.0f);
    ACCEPTS(qsa_block_pool, S, 28);
    ACCEPTS(qsa_block_pool, max_blocks, 7);
    REFUSES(qsa_block_pool, hd, 48, "dim_multiple_of_32", "hd 48 is not a multiple of 32");
    REFUSES(qsa_block_pool, hd, 0, "hd_range", "hd 0 is outside 32..1024");
    REFUSES(qsa_block_pool, hd, 1056, "hd_range", "hd 1056 is outside 32..1024");
    REFUSES(qsa_block_pool, rot, 33, "rot", "rot 33 is odd or above hd 64");
    REFUSES(qsa_block_pool, rot, 66, "rot", "rot 66");
    REFUSES(qsa_block_pool, ratio, 0, "ratio_zero", "ratio 0");
    REFUSES(qsa_block_pool, block_size, 18, "block_size_multiple_of_ratio",
            "block_size 18 is not a multiple of ratio 4: a block would straddle a page boundary");
    REFUSES(qsa_block_pool, theta, 0.0f, "theta", "theta 0 is not positive and finite");
    REFUSES(qsa_block_pool, theta, -1.0f, "theta", "theta -1");
    REFUSES(qsa_block_pool, theta, NAN, "theta", "theta nan");
    REFUSES(qsa_block_pool, theta, INFINITY, "theta", "theta inf");
    REFUSES(qsa_block_pool, eps, -0x1p-149f, "eps", "negative or not finite");
    REFUSES(qsa_block_pool, eps, NAN, "eps", "eps nan");
    REFUSES(qsa_block_pool, eps, INFINITY, "eps", "eps inf");
    REFUSES(qsa_block_pool, max_blocks, 6, "max_blocks",
            "blocks 2 to 7 do not fit the 6 rows of block_keys");
    REFUSES(qsa_block_pool, first_block, UINT32_MAX, "max_blocks", "4294967295 to 4294967300");
    REFUSES(qsa_block_pool, S, 27, "pool_range", "7 blocks of 4 tokens need more than the 27");
    REFUSES(qsa_block_pool, ratio, UINT32_MAX / 7 + 1, "block_size_multiple_of_ratio", "16");
    NEEDS_BYTES(qsa_block_pool, raw_keys, 2 * 29 * 64);
    NEEDS_BYTES(qsa_block_pool, k_norm_w, 2 * 64);
    NEEDS_BYTES(qsa_block_pool, block_keys, 2 * 9 * 64);
}

Test(launch_qsa, block_pool_at_the_limits)
{
    struct gpu_qsa_block_pool args = qsa_block_pool_args();

    args.block_size = 0;
    args.S = args.max_blocks = UINT32_MAX;
    args.first_block = (1u << 29) - 5;
    accepts(gpu_qsa_block_pool_check(&args, &report)); /* the last token is at 2^31 - 1 */
    args.first_block++;
    refuses(gpu_qsa_block_pool_check(&args, &report), "position_range",
            "2147483652 positions from 0 on are not all below 2^31");
    args.first_block = 0;
    args.n_new = 1u << 31;
    refuses(gpu_qsa_block_pool_check(&args, &report), "pool_range", "2147483648 blocks");
    args.ratio = 1;
    refuses(gpu_qsa_block_pool_check(&args, &report), "grid_limit", "grid x 2147483648");
}

static struct gpu_qsa_qprep qsa_qprep_args(void)
{
    return (struct gpu_qsa_qprep){
        .n_heads = 3, .hd = 96, .rot = 32, .pos = 77, .theta = 1e4f, .eps = 1e-5f};
}

Test(launch_qsa, qprep)
{
    ACCEPTS(qsa_qprep, pos, INT32_MAX);
    ACCEPTS(qsa_qprep, rot, 0);
    REFUSES(qsa_qprep, hd, 33, "dim_multiple_of_32", "hd 33");
    REFUSES(qsa_qprep, hd, 0, "hd_range", "hd 0");
    REFUSES(qsa_qprep, rot, 31, "rot", "rot 31");
    REFUSES(qsa_qprep, rot, 98, "rot", "rot 98 is odd or above hd 96");
    REFUSES(qsa_qprep, theta, -0.0f, "theta", "theta -0");
    REFUSES(qsa_qprep, eps, -1.0f, "eps", "eps -1");
    REFUSES(qsa_qprep, pos, 1u << 31, "position_range", "1 positions from 2147483648");
    REFUSES(qsa_qprep, n_heads, 0, "degenerate", "n_heads is 0: there are no heads");
    REFUSES(qsa_qprep, n_heads, UINT32_MAX, "grid_limit", "grid x 4294967295");
    NEEDS_BYTES(qsa_qprep, q_in, 2 * 3 * 96);
    NEEDS_BYTES(qsa_qprep, q_norm_w, 2 * 96);
    NEEDS_BYTES(qsa_qprep, q_out, 4 * 3 * 96);
}

static struct gpu_qsa_qprep_rows qsa_qprep_rows_args(void)
{
    return (struct gpu_qsa_qprep_rows){.rows = 7,
                                       .first_pos = 11,
                                       .qkw = 200,
                                       .n_heads = 3,
                                       .hd = 64,
                                       .rot = 64,
                                       .theta = 1e7f,
                                       .eps = 1e-6f};
}

Test(launch_qsa, qprep_rows)
{
    ACCEPTS(qsa_qprep_rows, qkw, 192);
    ACCEPTS(qsa_qprep_rows, first_pos, INT32_MAX - 6);
    REFUSES(qsa_qprep_rows, n_heads, 0, "degenerate", "n_heads is 0");
    REFUSES(qsa_qprep_rows, qkw, 191, "qkw", "row width qkw 191 is below n_heads 3 * hd 64");
    REFUSES(qsa_qprep_rows, n_heads, UINT32_MAX, "qkw",
            "n_heads 4294967295"); /* wraps in 32 bits */
    REFUSES(qsa_qprep_rows, hd, 65, "dim_multiple_of_32", "hd 65");
    REFUSES(qsa_qprep_rows, hd, 2048, "hd_range", "hd 2048");
    REFUSES(qsa_qprep_rows, rot, 65, "rot", "rot 65");
    REFUSES(qsa_qprep_rows, theta, NAN, "theta", "theta nan");
    REFUSES(qsa_qprep_rows, eps, NAN, "eps", "eps nan");
    REFUSES(qsa_qprep_rows, first_pos, INT32_MAX - 5, "position_range", "7 positions from");
    REFUSES(qsa_qprep_rows, rows, UINT32_MAX, "position_range", "4294967295 positions from 11");
    NEEDS_BYTES(qsa_qprep_rows, qk, 2 * 7 * 200);
    NEEDS_BYTES(qsa_qprep_rows, q_norm_w, 2 * 64);
    NEEDS_BYTES(qsa_qprep_rows, q_out, 4 * 7 * 3 * 64);

    struct gpu_qsa_qprep_rows args = qsa_qprep_rows_args();
    args.n_heads = 65536;
    args.qkw = 65536 * 64;
    refuses(gpu_qsa_qprep_rows_check(&args, &report), "grid_limit", "grid y 65536");
}

static struct gpu_qsa_score qsa_score_args(void)
{
    return (struct gpu_qsa_score){.n_blocks = 19, .n_heads = 2, .hd = 128};
}

Test(launch_qsa, score)
{
    ACCEPTS(qsa_score, n_blocks, 0);
    REFUSES(qsa_score, hd, 130, "dim_multiple_of_32", "hd 130");
    REFUSES(qsa_score, n_heads, 0, "degenerate", "n_heads is 0");
    REFUSES(qsa_score, hd, 0, "hd_range", "hd 0");
    REFUSES(qsa_score, n_blocks, 1u << 31, "grid_limit", "grid x 2147483648");
    NEEDS_BYTES(qsa_score, q, 4 * 2 * 128);
    NEEDS_BYTES(qsa_score, block_keys, 2 * 19 * 128);
    NEEDS_BYTES(qsa_score, scores, 4 * 19);
}

static struct gpu_qsa_score_rows qsa_score_rows_args(void)
{
    return (struct gpu_qsa_score_rows){.rows = 21,
                                       .n_blocks_max = 70,
                                       .first_pos = 5,
                                       .score_stride = 71,
                                       .ratio = 4,
                                       .n_heads = 4,
                                       .hd = 128};
}

Test(launch_qsa, score_rows)
{
    ACCEPTS(qsa_score_rows, score_stride, 70);
    ACCEPTS(qsa_score_rows, n_heads, 9);
    REFUSES(qsa_score_rows, hd, 100, "dim_multiple_of_32", "hd 100");
    REFUSES(qsa_score_rows, hd, 4096, "hd_range", "hd 4096");
    REFUSES(qsa_score_rows, n_heads, 0, "degenerate", "n_heads is 0");
    REFUSES(qsa_score_rows, ratio, 0, "ratio_zero", "ratio 0");
    REFUSES(qsa_score_rows, score_stride, 69, "score_stride",
            "score_stride 69 is below n_blocks_max 70");
    REFUSES(qsa_score_rows, n_blocks_max, 65536, "grid_limit", "grid y 65536");
    REFUSES(qsa_score_rows, first_pos, 1u << 31, "position_range", "21 positions");
    REFUSES(qsa_score_rows, rows, 1u << 31, "grid_limit", "grid x 2147483648");
    NEEDS_BYTES(qsa_score_rows, q, 4 * 21 * 4 * 128);
    NEEDS_BYTES(qsa_score_rows, block_keys, 2 * 70 * 128);
    NEEDS_BYTES(qsa_score_rows, scores, 4 * 21 * 71);
}

static enum gpu_status gpu_tiled_check(const struct gpu_qsa_score_rows *args,
                                       struct gpu_report *out)
{
    return gpu_qsa_score_rows_tiled_check(args, out);
}

#define gpu_tiled gpu_qsa_score_rows
#define tiled_args qsa_score_rows_args

Test(launch_qsa, score_rows_tiled)
{
    ACCEPTS(tiled, score_stride, 70);
    ACCEPTS(tiled, n_heads, 9);
    REFUSES(tiled, hd, 100, "dim_multiple_of_32", "hd 100");
    REFUSES(tiled, n_heads, 0, "degenerate", "n_heads is 0");
    REFUSES(tiled, ratio, 0, "ratio_zero", "ratio 0");
    REFUSES(tiled, score_stride, 69, "score_stride", "score_stride 69");
    REFUSES(tiled, first_pos, 1u << 31, "position_range", "21 positions");
    NEEDS_BYTES(tiled, q, 4 * 21 * 4 * 128);
    NEEDS_BYTES(tiled, block_keys, 2 * 70 * 128);
    NEEDS_BYTES(tiled, scores, 4 * 21 * 71);

    struct gpu_qsa_score_rows args = qsa_score_rows_args();
    args.n_blocks_max = args.score_stride = 65535 * 64;
    accepts(gpu_qsa_score_rows_tiled_check(&args, &report));
    args.n_blocks_max = args.score_stride = 65535 * 64 + 1;
    refuses(gpu_qsa_score_rows_tiled_check(&args, &report), "grid_limit", "grid y 65536");
}

static enum gpu_status gpu_tc_check(const struct gpu_qsa_score_rows *args, struct gpu_report *out)
{
    return gpu_qsa_score_rows_tc_check(args, out);
}

#define gpu_tc gpu_qsa_score_rows
#define tc_args qsa_score_rows_args

Test(launch_qsa, score_rows_tc)
{
    ACCEPTS(tc, score_stride, 70);
    REFUSES(tc, n_heads, 3, "tc_geometry", "n_heads 3 and hd 128 are not 4 and 128");
    REFUSES(tc, hd, 64, "tc_geometry", "hd 64");
    REFUSES(tc, ratio, 0, "ratio_zero", "ratio 0");
    REFUSES(tc, score_stride, 69, "score_stride", "score_stride 69");
    REFUSES(tc, first_pos, 1u << 31, "position_range", "21 positions");
    /* 21 rows are two tiles of 16 */
    NEEDS_BYTES(tc, q, 4 * 32 * 4 * 128);
    NEEDS_BYTES(tc, block_keys, 2 * 70 * 128);
    NEEDS_BYTES(tc, scores, 4 * 32 * 71);

    struct gpu_qsa_score_rows args = qsa_score_rows_args();
    args.n_blocks_max = args.score_stride = 65535 * 64;
    accepts(gpu_qsa_score_rows_tc_check(&args, &report));
    args.n_blocks_max = args.score_stride = 65535 * 64 + 1;
    refuses(gpu_qsa_score_rows_tc_check(&args, &report), "grid_limit", "grid y 65536");
}

static struct gpu_qsa_topk_rows qsa_topk_rows_args(void)
{
    return (struct gpu_qsa_topk_rows){
        .rows = 3, .first_pos = 40, .score_stride = 12, .ratio = 4, .topk = 6};
}

Test(launch_qsa, topk_rows)
{
    ACCEPTS(qsa_topk_rows, topk, 1);
    ACCEPTS(qsa_topk_rows, topk, 2048);
    ACCEPTS(qsa_topk_rows, score_stride, 10); /* (42 + 1) / 4 */
    REFUSES(qsa_topk_rows, ratio, 0, "ratio_zero", "ratio 0");
    REFUSES(qsa_topk_rows, topk, 0, "topk_range", "topk 0 is outside 1..2048");
    REFUSES(qsa_topk_rows, topk, 2049, "topk_range", "topk 2049");
    REFUSES(qsa_topk_rows, score_stride, 9, "score_stride",
            "score_stride 9 is below the 10 complete blocks of the last row");
    REFUSES(qsa_topk_rows, first_pos, UINT32_MAX, "position_range", "3 positions from 4294967295");
    REFUSES(qsa_topk_rows, rows, UINT32_MAX, "position_range", "4294967295 positions");
    NEEDS_BYTES(qsa_topk_rows, scores, 4 * 3 * 12);
    NEEDS_BYTES(qsa_topk_rows, lists, 4 * 3 * 6);

    struct gpu_qsa_topk_rows args = qsa_topk_rows_args();
    args.rows = 0;
    args.first_pos = UINT32_MAX; /* no row is there */
    accepts(gpu_qsa_topk_rows_check(&args, &report));
    uint32_t scratch = 8 * 2304 + 6288; /* room beside the list, counters */
    cr_expect_eq(gpu_qsa_topk_shared_bytes(&args), 8 * 8 + scratch);
    args.topk = 1;
    cr_expect_eq(gpu_qsa_topk_shared_bytes(&args), 8 + scratch);
    args.topk = 1025;
    cr_expect_eq(gpu_qsa_topk_shared_bytes(&args), 8 * 2048 + scratch);
}

static const int32_t table[4] = {2, 0, -1, 3}, sel[5] = {7, 0, 31, 7, 9};

/* Logical pages of 8 tokens; page 2 is not mapped, and sel does not need it. */
static struct gpu_qsa_gather qsa_gather_args(void)
{
    return (struct gpu_qsa_gather){.host_block_table = table,
                                   .host_sel = sel,
                                   .n_sel = 5,
                                   .table_len = 4,
                                   .num_pages = 4,
                                   .seq_len = 32,
                                   .block_size = 8,
                                   .nkv = 2,
                                   .hd = 64,
                                   .ratio = 4};
}

Test(launch_qsa, gather)
{
    static const int32_t negative[5] = {7, -1}, unmapped[5] = {0, 16, 0, 0, 0};

    ACCEPTS(qsa_gather, n_sel, 0);
    ACCEPTS(qsa_gather, host_sel, NULL);
    ACCEPTS(qsa_gather, hd, 1024);
    REFUSES(qsa_gather, hd, 63, "dim_multiple_of_32", "hd 63");
    REFUSES(qsa_gather, hd, 1056, "hd_range", "hd 1056 is outside 32..1024");
    REFUSES(qsa_gather, block_size, 0, "block_size_zero", "block_size 0");
    REFUSES(qsa_gather, ratio, 0, "ratio_zero", "ratio 0");
    REFUSES(qsa_gather, ratio, 3, "block_size_multiple_of_ratio",
            "block_size 8 is not a multiple of ratio 3");
    REFUSES(qsa_gather, nkv, 0, "kv_head_groups", "nkv 0");
    REFUSES(qsa_gather, seq_len, 31, "sel_range",
            "selected token 31 (entry 2) is outside the sequence of 31 tokens");
    REFUSES(qsa_gather, host_sel, negative, "sel_range", "selected token -1 (entry 1)");
    REFUSES(qsa_gather, host_sel, unmapped, "block_table_entry",
            "block table entry -1 of logical page 2 is used and outside [0, 4)");
    REFUSES(qsa_gather, num_pages, 3, "block_table_entry", "entry 3 of logical page 3");
    REFUSES(qsa_gather, table_len, 3, "seq_len_range",
            "32 tokens need 4 pages of 8 slots and the block table has 3 entries");
    NEEDS_BYTES(qsa_gather, k_cache, 2 * 4 * 8 * 2 * 64);
    NEEDS_BYTES(qsa_gather, v_cache, 2 * 4 * 8 * 2 * 64);
    NEEDS_BYTES(qsa_gather, block_table, 4 * 4);
    NEEDS_BYTES(qsa_gather, sel, 4 * 5);
    NEEDS_BYTES(qsa_gather, k_out, 2 * 5 * 2 * 64);
    NEEDS_BYTES(qsa_gather, v_out, 2 * 5 * 2 * 64);

    struct gpu_qsa_gather args = qsa_gather_args();
    args.host_sel = NULL;
    args.n_sel = 1u << 31;
    refuses(gpu_qsa_gather_check(&args, &report), "grid_limit", "grid x 2147483648");
    args.n_sel = 1;
    args.num_pages = args.block_size = args.nkv = UINT32_MAX;
    args.ratio = 1;
    args.k_cache = &(struct gpu_buffer){.address = 4096, .size_bytes = UINT64_MAX};
    refuses(gpu_qsa_gather_check(&args, &report), "buffer_size", "more than 18446744073709551615");
}

static const int32_t lists[6] = {3, -1, 0, -1, 1, 4};

/* Rows at positions 18 and 19, 20 tokens in pages of 8; 18 has the tail [16, 18], 19 has none. */
static struct gpu_qsa_prefill_attn qsa_prefill_attn_args(void)
{
    static const int32_t full_table[3] = {2, 0, 1};

    return (struct gpu_qsa_prefill_attn){.host_block_table = full_table,
                                         .host_lists = lists,
                                         .rows = 2,
                                         .table_len = 3,
                                         .num_pages = 3,
                                         .first_pos = 18,
                                         .topk = 3,
                                         .ratio = 4,
                                         .block_size = 8,
                                         .nq = 6,
                                         .nkv = 2,
                                         .hd = 96,
                                         .inv_sqrt_d = 0.1f};
}

Test(launch_qsa, prefill_attn)
{
    static const int32_t twice[6] = {3, -1, 0, 4, 1, 4};
    static const int32_t incomplete[6] = {3, -1, 4, -1, 1, 4}, below[6] = {3, -2, 0, -1, 1, 4};
    static const int32_t bad_tail[3] = {2, 0, -1}, bad_block[3] = {3, 0, 1};

    ACCEPTS(qsa_prefill_attn, rows, 0);
    ACCEPTS(qsa_prefill_attn, host_lists, NULL);
    REFUSES(qsa_prefill_attn, inv_sqrt_d, NAN, "scale_positive", "inv_sqrt_d nan");
    REFUSES(qsa_prefill_attn, inv_sqrt_d, 0.0f, "scale_positive", "inv_sqrt_d 0");
    REFUSES(qsa_prefill_attn, nq, 0, "degenerate", "nq is 0");
    REFUSES(qsa_prefill_attn, hd, 97, "dim_multiple_of_32", "hd 97");
    REFUSES(qsa_prefill_attn, hd, 288, "hd_range", "hd 288 is outside 32..256");
    REFUSES(qsa_prefill_attn, block_size, 0, "block_size_zero", "block_size 0");
    REFUSES(qsa_prefill_attn, ratio, 0, "ratio_zero", "ratio 0");
    REFUSES(qsa_prefill_attn, block_size, 6, "block_size_multiple_of_ratio", "block_size 6");
    REFUSES(qsa_prefill_attn, nkv, 0, "kv_head_groups", "nkv 0");
    REFUSES(qsa_prefill_attn, nkv, 4, "kv_head_groups",
            "nq 6 query heads are not a multiple of nkv 4 cache heads");
    REFUSES(qsa_prefill_attn, topk, 0, "topk_range", "topk 0");
    REFUSES(qsa_prefill_attn, topk, 2049, "topk_range", "topk 2049");
    REFUSES(qsa_prefill_attn, first_pos, INT32_MAX, "position_range", "2 positions");
    REFUSES(qsa_prefill_attn, host_lists, incomplete, "listed_block",
            "block 4 in row 0, entry 2 is not one of the 4 complete blocks at position 18");
    REFUSES(qsa_prefill_attn, host_lists, below, "listed_block", "block -2 in row 0, entry 1");
    REFUSES(qsa_prefill_attn, host_lists, twice, "duplicate_id",
            "block 4 is listed twice in row 1: it would count twice");
    REFUSES(qsa_prefill_attn, host_block_table, bad_tail, "block_table_entry",
            "entry -1 of logical page 2");
    REFUSES(qsa_prefill_attn, host_block_table, bad_block, "block_table_entry",
            "entry 3 of logical page 0");
    REFUSES(qsa_prefill_attn, table_len, 2, "seq_len_range",
            "20 tokens need 3 pages of 8 slots and the block table has 2 entries");
    NEEDS_BYTES(qsa_prefill_attn, q, 2 * 2 * 6 * 96);
    NEEDS_BYTES(qsa_prefill_attn, k_cache, 2 * 3 * 8 * 2 * 96);
    NEEDS_BYTES(qsa_prefill_attn, v_cache, 2 * 3 * 8 * 2 * 96);
    NEEDS_BYTES(qsa_prefill_attn, block_table, 4 * 3);
    NEEDS_BYTES(qsa_prefill_attn, lists, 4 * 2 * 3);
    NEEDS_BYTES(qsa_prefill_attn, attn_out, 2 * 2 * 6 * 96);

    struct gpu_qsa_prefill_attn args = qsa_prefill_attn_args();
    args.nq = 65536;
    refuses(gpu_qsa_prefill_attn_check(&args, &report), "grid_limit", "grid y 65536");
}

/* Which pages tails need: only those of rows that have a tail. */
Test(launch_qsa, prefill_attn_tails)
{
    static const int32_t table_holes[4] = {0, -1, 0, -1};
    struct gpu_qsa_prefill_attn args = qsa_prefill_attn_args();

    args.host_lists = NULL;
    args.host_block_table = table_holes;
    args.table_len = 4;
    args.first_pos = 15; /* rows 15 (ends a block, on page 1) and 16 (page 2) */
    accepts(gpu_qsa_prefill_attn_check(&args, &report));
    args.first_pos = 14;
    refuses(gpu_qsa_prefill_attn_check(&args, &report), "block_table_entry", "logical page 1");
    args.first_pos = 22; /* rows 22 and 23, page 2 */
    accepts(gpu_qsa_prefill_attn_check(&args, &report));
    args.rows = 3; /* and 24, page 3 */
    refuses(gpu_qsa_prefill_attn_check(&args, &report), "block_table_entry", "logical page 3");
    args.rows = 1;
    args.first_pos = 31; /* its page is not mapped, but it has no tail */
    accepts(gpu_qsa_prefill_attn_check(&args, &report));
    args.ratio = 1;
    args.rows = 1u << 30;
    args.table_len = 1u << 28;
    accepts(gpu_qsa_prefill_attn_check(&args, &report));
}

static struct gpu_paged_decode_attn paged_decode_attn_args(void)
{
    static const int32_t full_table[3] = {2, 0, 9};

    return (struct gpu_paged_decode_attn){.host_block_table = full_table,
                                          .table_len = 3,
                                          .num_pages = 3,
                                          .seq_len = 10,
                                          .block_size = 5,
                                          .nq = 4,
                                          .nkv = 4,
                                          .hd = 32,
                                          .inv_sqrt_d = 0.2f};
}

Test(launch_qsa, decode_attn)
{
    ACCEPTS(paged_decode_attn, seq_len, 0);
    REFUSES(paged_decode_attn, hd, 31, "dim_multiple_of_32", "hd 31");
    REFUSES(paged_decode_attn, hd, 288, "hd_range", "hd 288");
    REFUSES(paged_decode_attn, block_size, 0, "block_size_zero", "block_size 0");
    REFUSES(paged_decode_attn, nkv, 0, "kv_head_groups", "nkv 0");
    REFUSES(paged_decode_attn, nkv, 3, "kv_head_groups", "nq 4");
    REFUSES(paged_decode_attn, seq_len, 11, "block_table_entry",
            "entry 9 of logical page 2 is used and outside [0, 3)");
    REFUSES(paged_decode_attn, seq_len, 16, "seq_len_range",
            "16 tokens need 4 pages of 5 slots and the block table has 3 entries");
    REFUSES(paged_decode_attn, inv_sqrt_d, -0.2f, "scale_positive", "inv_sqrt_d -0.2");
    REFUSES(paged_decode_attn, nq, 0, "degenerate", "nq is 0");
    REFUSES(paged_decode_attn, seq_len, (1u << 31) + 1, "position_range", "2147483649 positions");
    NEEDS_BYTES(paged_decode_attn, q, 2 * 4 * 32);
    NEEDS_BYTES(paged_decode_attn, k_cache, 2 * 3 * 5 * 4 * 32);
    NEEDS_BYTES(paged_decode_attn, v_cache, 2 * 3 * 5 * 4 * 32);
    NEEDS_BYTES(paged_decode_attn, block_table, 4 * 3);
    NEEDS_BYTES(paged_decode_attn, out, 2 * 4 * 32);

    struct gpu_paged_decode_attn args = paged_decode_attn_args();
    args.nq = 1u << 31;
    refuses(gpu_paged_decode_attn_check(&args, &report), "grid_limit", "grid x 2147483648");
}

static uint64_t random_state = 0x243f6a8885a308d3;

static uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static uint32_t absurd(void)
{
    static const uint32_t corners[] = {0,     1,     2,          3,          4,          31,
                                       32,    64,    128,        256,        1024,       2048,
                                       65535, 65536, 0x7fffffff, 0x80000000, UINT32_MAX, 16};

    return corners[next_random() % (sizeof(corners) / sizeof(corners[0]))];
}

static float absurd_float(void)
{
    static const float corners[] = {0.0f, -0.0f,    1.0f, -1.0f, 0x1p-149f,
                                    1e7f, INFINITY, NAN,  1e-6f};

    return corners[next_random() % (sizeof(corners) / sizeof(corners[0]))];
}

/* A check says yes, or no with a rule; nothing else, whatever the numbers. */
static uint32_t judged(enum gpu_status status)
{
    if (status == GPU_OK) return 1;
    cr_expect_eq(status, GPU_REFUSED);
    cr_expect(report.rule[0] != '\0' && report.text[0] != '\0');
    memset(&report, 0, sizeof report);
    return 0;
}

Test(launch_qsa, absurd_geometries)
{
    struct gpu_buffer buffer = {.address = 1 << 20, .size_bytes = 1 << 20};
    uint32_t accepted = 0;

    for (int i = 0; i < 200000; i++) {
        const struct gpu_buffer *some = next_random() % 2 ? &buffer : NULL;
        struct gpu_qsa_block_pool pool = {
            some,     some,     some,     absurd(), absurd(),       absurd(),      absurd(),
            absurd(), absurd(), absurd(), absurd(), absurd_float(), absurd_float()};
        struct gpu_qsa_qprep_rows prep = {some,     some,           some,          absurd(),
                                          absurd(), absurd(),       absurd(),      absurd(),
                                          absurd(), absurd_float(), absurd_float()};
        struct gpu_qsa_score_rows score = {some,     some,     some,     absurd(), absurd(),
                                           absurd(), absurd(), absurd(), absurd(), absurd()};
        struct gpu_qsa_topk_rows topk = {some,     some,     absurd(), absurd(),
                                         absurd(), absurd(), absurd()};
        struct gpu_qsa_gather gather = {some,     some,     some,     some,     some,     some,
                                        NULL,     NULL,     absurd(), absurd(), absurd(), absurd(),
                                        absurd(), absurd(), absurd(), absurd()};
        struct gpu_qsa_prefill_attn prefill = {some,     some,     some,     some,     some,
                                               some,     NULL,     NULL,     absurd(), absurd(),
                                               absurd(), absurd(), absurd(), absurd(), absurd(),
                                               absurd(), absurd(), absurd(), 0.1f};
        struct gpu_paged_decode_attn decode = {some,     some,     some,     some,     some,
                                               NULL,     absurd(), absurd(), absurd(), absurd(),
                                               absurd(), absurd(), absurd(), 0.1f};

        accepted += judged(gpu_qsa_block_pool_check(&pool, &report));
        accepted += judged(gpu_qsa_qprep_rows_check(&prep, &report));
        accepted += judged(gpu_qsa_score_rows_check(&score, &report));
        accepted += judged(gpu_qsa_score_rows_tc_check(&score, &report));
        accepted += judged(gpu_qsa_topk_rows_check(&topk, &report));
        accepted += judged(gpu_qsa_gather_check(&gather, &report));
        accepted += judged(gpu_qsa_prefill_attn_check(&prefill, &report));
        accepted += judged(gpu_paged_decode_attn_check(&decode, &report));
    }
    cr_expect_gt(accepted, 1000, "only %" PRIu32 " geometries were accepted", accepted);
}
