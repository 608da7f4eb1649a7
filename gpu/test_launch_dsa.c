/* The refusals of the DSA launchers, one by one, and checks on absurd geometries. */
#include "launch_dsa.h"

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

/* Two sequences of up to two pages of 8 tokens, three columns of selection. */
static const int32_t good_tables[4] = {2, 0, 1, -7}, good_lens[2] = {16, 3};
static const int32_t good_ids[6] = {15, -1, 0, 2, 77, -5};

static struct gpu_dsa_decode decode_args(void)
{
    return (struct gpu_dsa_decode){
        .host_block_tables = good_tables,
        .host_seq_lens = good_lens,
        .host_sel_indices = good_ids,
        .num_seqs = 2,
        .sel_rows = 2,
        .width = 3,
        .max_blocks_per_seq = 2,
        .num_q_heads = 8,
        .num_kv_heads = 1,
        .kv_lora_rank = 512,
        .block_size = 8,
        .index_kpool = 4,
        .num_pages = 3,
        .scale = 0.04f,
        .k_scale = 0.37f,
        .v_scale = 1.5f,
        .cache_stride_bytes = 4096 + 16,
    };
}

#define DECODE_REFUSES(field, value, rule, words)                     \
    do {                                                              \
        struct gpu_dsa_decode broken = decode_args();                 \
                                                                      \
        broken.field = value;                                         \
        refuses(gpu_dsa_decode_check(&broken, &report), rule, words); \
    } while (0)

Test(launch_dsa, decode_refuses_shapes)
{
    struct gpu_dsa_decode args = decode_args();

    accepts(gpu_dsa_decode_check(&args, &report));
    DECODE_REFUSES(num_seqs, 0, "degenerate", "num_seqs 0 and num_q_heads 8 must not be 0");
    DECODE_REFUSES(num_q_heads, 0, "degenerate", "num_seqs 2 and num_q_heads 0");
    DECODE_REFUSES(block_size, 0, "block_size_zero", "block_size is 0");
    DECODE_REFUSES(index_kpool, 0, "index_kpool_range", "index_kpool 0 is outside 1..16");
    DECODE_REFUSES(index_kpool, 17, "index_kpool_range", "index_kpool 17");
    DECODE_REFUSES(block_size, 6, "block_size_multiple_of_kpool",
                   "block_size 6 is not a multiple of index_kpool 4: a pool would straddle");
    DECODE_REFUSES(num_kv_heads, 2, "num_kv_heads", "num_kv_heads 2 is not 1");
    DECODE_REFUSES(num_kv_heads, 0, "num_kv_heads", "num_kv_heads 0 is not 1");
    DECODE_REFUSES(kv_lora_rank, 576, "kv_lora_rank", "kv_lora_rank 576 is not 512");
    DECODE_REFUSES(sel_rows, 1, "selection_rows", "1 selection rows for 2 sequences");
    DECODE_REFUSES(num_q_heads, 1u << 31, "grid_limit", "grid x 2147483648");
    args.num_seqs = args.sel_rows = 65536;
    refuses(gpu_dsa_decode_check(&args, &report), "grid_limit", "grid y 65536");
}

Test(launch_dsa, decode_refuses_strides_and_scales)
{
    struct gpu_dsa_decode args = decode_args();

    DECODE_REFUSES(cache_stride_bytes, 4080, "cache_stride_small",
                   "cache_stride_bytes 4080 is below the 4096 bytes of a page of 8 tokens");
    DECODE_REFUSES(cache_stride_bytes, 4104, "cache_stride_align", "4104 is not a multiple of 16");
    args.block_size = UINT32_MAX - 3; /* the page size needs more than 32 bits */
    refuses(gpu_dsa_decode_check(&args, &report), "cache_stride_small", "2199023253504 bytes");
    DECODE_REFUSES(scale, 0.0f, "scale_positive", "scale 0 is not positive and finite");
    DECODE_REFUSES(scale, NAN, "scale_positive", "scale nan");
    DECODE_REFUSES(k_scale, -0.5f, "scale_positive", "k_scale -0.5");
    DECODE_REFUSES(v_scale, INFINITY, "scale_positive", "v_scale inf");
    args = decode_args();
    args.v_scale = 0x1p-149f;
    accepts(gpu_dsa_decode_check(&args, &report));
}

Test(launch_dsa, decode_refuses_rows)
{
    static const int32_t negative[2] = {16, -1}, beyond[2] = {17, 3}, high[4] = {2, 3, 1, -7};
    static const int32_t below[4] = {-1, 0, 1, -7};
    static const int32_t twice[6] = {15, 0, 15, 2, 1, -5},
                         beyond_twice[6] = {15, -1, -1, 2, 77, 77};
    static const int32_t holes[6] = {15, -1, -1, 2, 77, -1};

    DECODE_REFUSES(host_seq_lens, negative, "seq_len_range",
                   "seq_len -1 of sequence 1 is outside 0..16 (2 blocks of 8 tokens)");
    DECODE_REFUSES(host_seq_lens, beyond, "seq_len_range", "seq_len 17 of sequence 0");
    DECODE_REFUSES(host_block_tables, high, "block_table_entry",
                   "entry 3 of sequence 0, block 1 is used and outside [0, 3)");
    DECODE_REFUSES(host_block_tables, below, "block_table_entry",
                   "entry -1 of sequence 0, block 0");
    DECODE_REFUSES(num_pages, 2, "block_table_entry", "entry 2 of sequence 0, block 0");
    DECODE_REFUSES(host_sel_indices, twice, "duplicate_id",
                   "token 15 is twice in selection row 0 (again at column 2)");
    DECODE_REFUSES(host_sel_indices, beyond_twice, "duplicate_id",
                   "token 77 is twice in selection row 1 (again at column 2)");

    struct gpu_dsa_decode args = decode_args();
    args.host_sel_indices = holes; /* these may repeat */
    accepts(gpu_dsa_decode_check(&args, &report));
    args.host_seq_lens = NULL; /* without lengths nobody knows which entries are used */
    args.host_block_tables = below;
    accepts(gpu_dsa_decode_check(&args, &report));
    args.host_sel_indices = twice;
    cr_assert_eq(gpu_dsa_decode_check(&args, &report), GPU_REFUSED);
}

Test(launch_dsa, decode_refuses_buffers)
{
    struct gpu_buffer buffer = {.address = 4096, .size_bytes = UINT64_MAX};
    struct gpu_dsa_decode args = decode_args();
    const struct gpu_buffer **fields[] = {&args.q,          &args.k_cache,      &args.v_cache,
                                          &args.out,        &args.block_tables, &args.seq_lens,
                                          &args.sel_indices};
    static const char *const names[] = {"q",        "k_cache",    "v_cache", "out", "block_tables",
                                        "seq_lens", "sel_indices"};
    /* 2*8*512 bf16; two pitches and a dense page; the i32 tables */
    static const uint64_t needs[] = {16384, 12320, 12320, 16384, 16, 8, 24};

    for (int i = 0; i < 7; i++) {
        char words[80];

        *fields[i] = &buffer;
        buffer.size_bytes = needs[i];
        accepts(gpu_dsa_decode_check(&args, &report));
        buffer.size_bytes--;
        snprintf(words, sizeof words, "%s has %" PRIu64 " bytes and needs %" PRIu64, names[i],
                 needs[i] - 1, needs[i]);
        refuses(gpu_dsa_decode_check(&args, &report), "buffer_size", words);
        *fields[i] = NULL;
    }
    buffer.size_bytes = UINT64_MAX;
    buffer.address = 4104;
    args.q = &buffer;
    refuses(gpu_dsa_decode_check(&args, &report), "buffer_align", "q lies at 0x1008");
    args.q = NULL;
    args.k_cache = &buffer;
    buffer.address = 4096;
    args.num_pages = UINT32_MAX;
    args.cache_stride_bytes = 1ull << 40;
    refuses(gpu_dsa_decode_check(&args, &report), "buffer_size", "more than 18446744073709551615");
}

static struct gpu_dsa_kpool_compress compress_args(void)
{
    return (struct gpu_dsa_kpool_compress){
        .pools = 10, .S = 37, .D = 64, .KP = 4, .block_size = 16, .first_key = 2};
}

#define COMPRESS_REFUSES(field, value, rule, words)                           \
    do {                                                                      \
        struct gpu_dsa_kpool_compress broken = compress_args();               \
                                                                              \
        broken.field = value;                                                 \
        refuses(gpu_dsa_kpool_compress_check(&broken, &report), rule, words); \
    } while (0)

Test(launch_dsa, compress_refusals)
{
    static const int32_t wide[5] = {37, 11, 8, 8, 8}, negative[5] = {-1, 1, 1, 1, 1};
    static const int32_t complete[5] = {37, 4, 5, 1, 1};
    struct gpu_dsa_kpool_compress args = compress_args();
    struct gpu_buffer small = {.address = 4096, .size_bytes = 2 * 37 * 64 - 1};

    accepts(gpu_dsa_kpool_compress_check(&args, &report));
    COMPRESS_REFUSES(KP, 0, "index_kpool_range", "index_kpool 0 is outside 1..16");
    COMPRESS_REFUSES(KP, 32, "index_kpool_range", "index_kpool 32");
    COMPRESS_REFUSES(D, 48, "dim_multiple_of_32", "D 48 is not a positive multiple of 32");
    COMPRESS_REFUSES(D, 0, "dim_multiple_of_32", "D 0");
    COMPRESS_REFUSES(block_size, 18, "block_size_multiple_of_kpool", "block_size 18");
    COMPRESS_REFUSES(S, (1u << 31) + 1, "position_range",
                     "S reaches index 2147483648, beyond 2^31 - 1");
    COMPRESS_REFUSES(pools, 0x20000000, "position_range", "the last pool reaches index 2147483649");
    COMPRESS_REFUSES(first_key, -1, "first_key", "first_key -1 is outside the 37 keys");
    COMPRESS_REFUSES(first_key, 38, "first_key", "first_key 38");
    COMPRESS_REFUSES(host_geom, wide, "pool_range",
                     "11 pools, 8 of them complete, are outside 0..P 10");
    COMPRESS_REFUSES(host_geom, negative, "pool_range", "S -1 is outside 0..S 37");
    COMPRESS_REFUSES(host_geom, complete, "pool_range", "4 pools, 5 of them complete");
    COMPRESS_REFUSES(k, &small, "buffer_size", "k has 4735 bytes and needs 4736");
    args.block_size = 0; /* keys that are not paged */
    args.first_key = 37; /* no key is valid */
    accepts(gpu_dsa_kpool_compress_check(&args, &report));
    args.S = 1u << 31;
    accepts(gpu_dsa_kpool_compress_check(&args, &report));
}

static const int32_t good_pools[6] = {0, 1, 2, 3, 4, -1};

static struct gpu_dsa_index_scores scores_args(void)
{
    return (struct gpu_dsa_index_scores){.host_pool_indices = good_pools,
                                         .Q = 5,
                                         .P = 3,
                                         .H = 3,
                                         .D = 96,
                                         .KP = 2,
                                         .S = 5,
                                         .scale = 0.1f};
}

#define SCORES_REFUSES(field, value, rule, words)                           \
    do {                                                                    \
        struct gpu_dsa_index_scores broken = scores_args();                 \
                                                                            \
        broken.field = value;                                               \
        refuses(gpu_dsa_index_scores_check(&broken, &report), rule, words); \
    } while (0)

Test(launch_dsa, index_scores_refusals)
{
    static const int32_t beyond[6] = {0, 1, 2, 3, 5, -1}, negative[6] = {0, 1, 2, -2, 4, -1};
    static const int32_t geom[5] = {5, 4, 2, 2, 2};
    struct gpu_dsa_index_scores args = scores_args();
    struct gpu_buffer small = {.address = 4096, .size_bytes = 14};

    accepts(gpu_dsa_index_scores_check(&args, &report));
    SCORES_REFUSES(KP, 20, "index_kpool_range", "index_kpool 20");
    SCORES_REFUSES(D, 100, "dim_multiple_of_32", "D 100");
    SCORES_REFUSES(H, 45825, "shared_limit", "45825 heads need 183300 bytes");
    SCORES_REFUSES(H, UINT32_MAX, "shared_limit", "4294967295 heads need 17179869180 bytes");
    SCORES_REFUSES(scale, -1.0f, "scale_positive", "scale -1");
    SCORES_REFUSES(host_geom, geom, "geom_rows", "5 query rows");
    SCORES_REFUSES(Q, 65536, "grid_limit", "grid y 65536");
    SCORES_REFUSES(P, 1u << 31, "grid_limit", "grid x 2147483648");
    SCORES_REFUSES(S, UINT32_MAX, "position_range", "S reaches index 4294967294");
    SCORES_REFUSES(host_pool_indices, beyond, "pool_range",
                   "token 5 of pool 2 is outside the 5 keys");
    SCORES_REFUSES(host_pool_indices, negative, "pool_range",
                   "token -2 of pool 1 is outside the 5 keys");
    SCORES_REFUSES(valid_cand, &small, "buffer_size", "valid_cand has 14 bytes and needs 15");
    args.Q = 1;
    args.host_geom = geom;
    refuses(gpu_dsa_index_scores_check(&args, &report), "pool_range",
            "4 pools, 2 of them complete, are outside 0..P 3");
    args.H = 45824;
    args.host_geom = NULL;
    accepts(gpu_dsa_index_scores_check(&args, &report));
    args.H = 0; /* an empty sum */
    accepts(gpu_dsa_index_scores_check(&args, &report));
}

static void topk_refuses(struct gpu_dsa_topk_pools args, const char *rule, const char *words)
{
    refuses(gpu_dsa_topk_pools_check(&args, &report), rule, words);
}

Test(launch_dsa, topk_refusals)
{
    static const int32_t geom[5] = {9, 3, 2, 2, 4}, odd[5] = {9, 3, 2, 2, 3};
    static const int32_t above[5] = {9, 3, 2, 5, 4};
    struct gpu_buffer small = {.address = 4096, .size_bytes = 31};
    struct gpu_dsa_topk_pools args = {.Q = 2, .P = 7, .NP2 = 8, .select_k = 4};

    accepts(gpu_dsa_topk_pools_check(&args, &report));
    topk_refuses((struct gpu_dsa_topk_pools){.Q = 2, .P = 7, .NP2 = 0}, "np2_power_of_two",
                 "NP2 0 is not a power of two");
    topk_refuses((struct gpu_dsa_topk_pools){.Q = 2, .P = 7, .NP2 = 12}, "np2_power_of_two",
                 "NP2 12");
    topk_refuses((struct gpu_dsa_topk_pools){.Q = 2, .P = 7, .NP2 = 8, .select_k = 9},
                 "select_k_np2", "select_k 9 is above NP2 8");
    topk_refuses(
        (struct gpu_dsa_topk_pools){.Q = 2, .P = 7, .NP2 = 8, .select_k = 4, .host_geom = geom},
        "geom_rows", "2 query rows");
    topk_refuses(
        (struct gpu_dsa_topk_pools){.Q = 1, .P = 7, .NP2 = 8, .select_k = 4, .host_geom = odd},
        "np2_power_of_two", "NP2 3");
    topk_refuses(
        (struct gpu_dsa_topk_pools){.Q = 1, .P = 7, .NP2 = 8, .select_k = 8, .host_geom = above},
        "select_k_np2", "select_k 5 is above NP2 4");
    topk_refuses(
        (struct gpu_dsa_topk_pools){.Q = 1, .P = 2, .NP2 = 8, .select_k = 4, .host_geom = geom},
        "pool_range", "3 pools, 2 of them complete, are outside 0..P 2");
    topk_refuses((struct gpu_dsa_topk_pools){.Q = 2, .P = UINT32_MAX, .NP2 = 8}, "position_range",
                 "P 4294967295 is not below 2^31");
    topk_refuses((struct gpu_dsa_topk_pools){.Q = 1u << 31, .P = 7, .NP2 = 8}, "grid_limit",
                 "grid x 2147483648");
    topk_refuses(
        (struct gpu_dsa_topk_pools){.Q = 2, .P = 7, .NP2 = 8, .select_k = 4, .selected = &small},
        "buffer_size", "selected has 31 bytes and needs 32");
    topk_refuses((struct gpu_dsa_topk_pools){.Q = 2, .P = 7, .NP2 = 16384}, "shared_limit",
                 "NP2 16384 needs 262144 bytes");
    topk_refuses(
        (struct gpu_dsa_topk_pools){.Q = 1, .P = 7, .NP2 = 8, .select_k = 1, .host_geom = geom},
        "select_k_range", "select_k 2 is outside 0..select_k 1");
    args.P = INT32_MAX;
    args.NP2 = 8192;
    accepts(gpu_dsa_topk_pools_check(&args, &report));
}

static struct gpu_dsa_expand_selection expand_args(void)
{
    return (struct gpu_dsa_expand_selection){.Q = 3,
                                             .P = 9,
                                             .KP = 4,
                                             .S = 37,
                                             .select_k = 8,
                                             .width = 35,
                                             .index_topk = 32,
                                             .first_key = 1,
                                             .always_tail = 1};
}

#define EXPAND_REFUSES(field, value, rule, words)                               \
    do {                                                                        \
        struct gpu_dsa_expand_selection broken = expand_args();                 \
                                                                                \
        broken.field = value;                                                   \
        refuses(gpu_dsa_expand_selection_check(&broken, &report), rule, words); \
    } while (0)

Test(launch_dsa, expand_refusals)
{
    static const int32_t geom[5] = {37, 9, 9, 9, 16};
    struct gpu_dsa_expand_selection args = expand_args();
    struct gpu_buffer small = {.address = 4096, .size_bytes = 4 * 3 * 35 - 1};

    accepts(gpu_dsa_expand_selection_check(&args, &report));
    EXPAND_REFUSES(KP, 0, "index_kpool_range", "index_kpool 0");
    EXPAND_REFUSES(index_topk, 0, "index_topk_multiple", "index_topk 0 is not a positive multiple");
    EXPAND_REFUSES(index_topk, 33, "index_topk_multiple", "index_topk 33");
    EXPAND_REFUSES(width, 32, "width", "row width 32 is not index_topk 32 + 3 tail slots");
    EXPAND_REFUSES(always_tail, 0, "width", "row width 35 is not index_topk 32 + 0 tail slots");
    EXPAND_REFUSES(select_k, 9, "select_k_range", "select_k 9 is above index_topk / index_kpool");
    EXPAND_REFUSES(host_geom, geom, "select_k_range", "select_k 9 is outside 0..select_k 8");
    EXPAND_REFUSES(S, (1u << 31) + 1, "position_range", "S reaches index 2147483648");
    EXPAND_REFUSES(first_key, -3, "first_key", "first_key -3");
    EXPAND_REFUSES(first_key, 38, "first_key", "first_key 38 is outside the 37 keys");
    EXPAND_REFUSES(Q, 1u << 31, "grid_limit", "grid x 2147483648");
    EXPAND_REFUSES(out, &small, "buffer_size", "out has 419 bytes and needs 420");
    args.host_geom = (const int32_t[5]){37, 9, 9, 8, 16};
    refuses(gpu_dsa_expand_selection_check(&args, &report), "geom_rows", "3 query rows");
    args.index_topk = UINT32_MAX - 3;
    args.host_geom = NULL;
    args.width = UINT32_MAX;
    accepts(gpu_dsa_expand_selection_check(&args, &report));
}

Test(launch_dsa, expand_refuses_a_valid_key_before_the_first)
{
    struct gpu_dsa_expand_selection args = expand_args();
    uint8_t valid[37] = {0}, mask[3] = {1, 1, 0};
    int32_t positions[3] = {2, 4, 36};

    args.first_key = 9;
    args.host_valid_keys = valid;
    args.host_q_pos = positions;
    args.host_q_mask = mask;
    valid[9] = valid[10] = 1;
    accepts(gpu_dsa_expand_selection_check(&args, &report));
    valid[5] = 1; /* only the masked query would count it */
    accepts(gpu_dsa_expand_selection_check(&args, &report));
    valid[4] = 1;
    refuses(gpu_dsa_expand_selection_check(&args, &report), "first_key",
            "first_key 9 is not the first valid token: token 4 is valid, and query 1 at 4");
    args.always_tail = 0;
    args.width = args.index_topk;
    accepts(gpu_dsa_expand_selection_check(&args, &report));
}

Test(launch_dsa, mask_and_masked_refusals)
{
    struct gpu_buffer small = {.address = 4096, .size_bytes = 73};
    struct gpu_dsa_topk_to_mask mask = {.Q = 2, .width = 3, .S = 37};
    struct gpu_dsa_mla_masked_attn attn = {
        .Q = 2, .S = 12288, .H = 3, .qd = 40, .vd = 24, .scale = 0.2f};

    accepts(gpu_dsa_topk_to_mask_check(&mask, &report));
    mask.mask = &small;
    refuses(gpu_dsa_topk_to_mask_check(&mask, &report), "buffer_size",
            "mask has 73 bytes and needs 74");
    mask = (struct gpu_dsa_topk_to_mask){.Q = UINT32_MAX, .width = 3, .S = 37};
    refuses(gpu_dsa_topk_to_mask_check(&mask, &report), "grid_limit", "grid x 4294967295");

    accepts(gpu_dsa_mla_masked_attn_check(&attn, &report));
    attn.mask = &small;
    refuses(gpu_dsa_mla_masked_attn_check(&attn, &report), "buffer_size",
            "mask has 73 bytes and needs 24576");
    attn.scale = 0.0f;
    refuses(gpu_dsa_mla_masked_attn_check(&attn, &report), "scale_positive", "scale 0");
    attn.scale = 1.0f;
    attn.H = 65536;
    refuses(gpu_dsa_mla_masked_attn_check(&attn, &report), "grid_limit", "grid y 65536");
    attn = (struct gpu_dsa_mla_masked_attn){.Q = 2, .S = 5, .scale = 1}; /* nothing to do */
    accepts(gpu_dsa_mla_masked_attn_check(&attn, &report));
    attn.S = 12289;
    refuses(gpu_dsa_mla_masked_attn_check(&attn, &report), "masked_attn_rows",
            "S 12289 is above 12288");
}

static uint64_t random_state = 0x9e3779b97f4a7c15u;

static uint32_t random_word(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 24);
}

/* Mostly the numbers that break things. */
static uint32_t odd_number(void)
{
    static const uint32_t edges[] = {0,         1,
                                     2,         3,
                                     4,         16,
                                     17,        31,
                                     32,        512,
                                     2048,      65535,
                                     65536,     12288,
                                     12289,     45824,
                                     45825,     232448,
                                     1u << 30,  INT32_MAX,
                                     1u << 31,  UINT32_MAX - 1,
                                     UINT32_MAX};
    uint32_t pick = random_word() % 40;

    return pick < sizeof edges / sizeof *edges ? edges[pick]
                                               : random_word() >> (random_word() % 32);
}

static float odd_scale(void)
{
    uint32_t bits = random_word();
    float value;

    memcpy(&value, &bits, sizeof value);
    return random_word() % 4 == 0 ? value : 0.25f;
}

/* A verdict is OK or a refusal that says why; what a verdict is does not matter here. */
static void is_verdict(enum gpu_status status)
{
    cr_assert(status == GPU_OK || (status == GPU_REFUSED && report.rule[0] && report.text[0]));
    memset(&report, 0, sizeof report);
}

Test(launch_dsa, absurd_geometries)
{
    struct gpu_buffer buffer = {.address = 1u << 20};

    for (int i = 0; i < 100000; i++) {
        int32_t geom[5];
        const int32_t *host_geom = random_word() % 2 ? geom : NULL;
        uint32_t n[10];

        for (int j = 0; j < 5; j++) geom[j] = (int32_t)odd_number();
        for (int j = 0; j < 10; j++) n[j] = odd_number();
        buffer.size_bytes = (uint64_t)odd_number() << random_word() % 33;
        const struct gpu_buffer *some = random_word() % 2 ? &buffer : NULL;
        is_verdict(gpu_dsa_decode_check(
            &(struct gpu_dsa_decode){
                some,        some,        some,
                some,        some,        some,
                some,        NULL,        NULL,
                NULL,        n[0],        n[1],
                n[2],        n[3],        n[4],
                n[5],        n[6],        n[7],
                n[8],        n[9],        odd_scale(),
                odd_scale(), odd_scale(), (uint64_t)odd_number() << random_word() % 33},
            &report));
        is_verdict(gpu_dsa_kpool_compress_check(
            &(struct gpu_dsa_kpool_compress){some, some, some, some, some, some, some, some,
                                             host_geom, n[0], n[1], n[2], n[3], n[4],
                                             (int32_t)n[5]},
            &report));
        is_verdict(gpu_dsa_index_scores_check(
            &(struct gpu_dsa_index_scores){some, some, some, some, some, some, some, some, some,
                                           some, host_geom, NULL, n[0], n[1], n[2], n[3], n[4],
                                           n[5], odd_scale()},
            &report));
        is_verdict(gpu_dsa_topk_pools_check(
            &(struct gpu_dsa_topk_pools){some, some, some, host_geom, n[0], n[1], n[2], n[3]},
            &report));
        is_verdict(gpu_dsa_expand_selection_check(
            &(struct gpu_dsa_expand_selection){
                some, some, some, some, some, some, some, some, host_geom,     NULL,         NULL,
                NULL, n[0], n[1], n[2], n[3], n[4], n[5], n[6], (int32_t)n[7], (int32_t)n[8]},
            &report));
        is_verdict(gpu_dsa_topk_to_mask_check(
            &(struct gpu_dsa_topk_to_mask){some, some, n[0], n[1], n[2]}, &report));
        is_verdict(gpu_dsa_mla_masked_attn_check(
            &(struct gpu_dsa_mla_masked_attn){some, some, some, some, some, n[0], n[1], n[2], n[3],
                                              n[4], odd_scale(), (int32_t)n[5]},
            &report));
    }
}
