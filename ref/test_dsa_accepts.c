#include "dsa.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* rule null: must be accepted. */
static void expect(bool accepted, const struct ref_refusal *why, const char *rule, const char *what)
{
    if (!rule) {
        cr_assert(accepted, "%s: refused, %s: %s", what, why->rule, why->text);
        return;
    }
    cr_assert(!accepted, "%s: accepted", what);
    cr_assert_str_eq(why->rule, rule, "%s: %s (%s)", what, why->rule, why->text);
    cr_assert(strlen(why->text) > 10 && strlen(why->text) < sizeof why->text - 1, "%s", why->text);
}

static int32_t tables[2 * 4], lens[2], sel[2 * 6];

/* Two sequences of 60 and 9 tokens in pages of 16. */
static struct ref_dsa_decode decode(void)
{
    static const int32_t table[8] = {3, 0, 2, 1, 5, -9, 99, -1};
    static const int32_t row[12] = {0, 59, -1, 17, -1, 60, 8, 0, 9, 500, 3, -1};
    memcpy(tables, table, sizeof table);
    memcpy(sel, row, sizeof row);
    lens[0] = 60;
    lens[1] = 9;
    return (struct ref_dsa_decode){.block_tables = tables,
                                   .seq_lens = lens,
                                   .sel_indices = sel,
                                   .num_seqs = 2,
                                   .sel_rows = 2,
                                   .width = 6,
                                   .max_blocks_per_seq = 4,
                                   .num_q_heads = 64,
                                   .num_kv_heads = 1,
                                   .kv_lora_rank = 512,
                                   .block_size = 16,
                                   .index_kpool = 4,
                                   .num_pages = 6,
                                   .scale = 0.044194174f,
                                   .k_scale = 1,
                                   .v_scale = 1,
                                   .cache_stride_bytes = 16 * 512};
}

#define DECODE(rule_name, change)                                 \
    do {                                                          \
        struct ref_dsa_decode g = decode();                       \
        struct ref_refusal why = {{0}, {0}};                      \
        change;                                                   \
        bool accepted = ref_dsa_decode_accepts(&g, &why);         \
        expect(accepted, &why, rule_name, #change);               \
        cr_assert_eq(ref_dsa_decode_accepts(&g, NULL), accepted); \
    } while (0)

Test(dsa_accepts, decode_shapes)
{
    DECODE(NULL, (void)0);
    DECODE("degenerate", g.num_seqs = g.sel_rows = 0);
    DECODE("degenerate", g.num_q_heads = 0);
    DECODE("block_size_zero", g.block_size = 0);
    DECODE("index_kpool_range", g.index_kpool = 0);
    DECODE("index_kpool_range", g.index_kpool = 17);
    DECODE("index_kpool_range", g.index_kpool = UINT32_MAX);
    DECODE(NULL, g.index_kpool = 16);
    DECODE("block_size_multiple_of_kpool", g.index_kpool = 3);
    DECODE("block_size_multiple_of_kpool", g.block_size = 18);
    DECODE("num_kv_heads", g.num_kv_heads = 2);
    DECODE("num_kv_heads", g.num_kv_heads = 0);
    DECODE("selection_rows", g.sel_rows = 1);
    DECODE("selection_rows", g.sel_rows = 3);
    DECODE("kv_lora_rank", g.kv_lora_rank = 576);
    DECODE("kv_lora_rank", g.kv_lora_rank = 0);
    DECODE("cache_stride_small", g.cache_stride_bytes = 16 * 512 - 16);
    DECODE("cache_stride_small", g.cache_stride_bytes = 0);
    DECODE("cache_stride_align", g.cache_stride_bytes = 16 * 512 + 8);
    DECODE(NULL, g.cache_stride_bytes = 16 * 512 + 16);
    DECODE(NULL, g.cache_stride_bytes = UINT64_MAX - 15);
    DECODE(NULL, g.num_q_heads = INT32_MAX);
    DECODE("grid_limit", g.num_q_heads = UINT32_MAX);
    DECODE("grid_limit", g.num_seqs = g.sel_rows = 65536);
    /* 2^23 slots * 512 bytes is 2^32, 0 in 32 bits. */
    DECODE("cache_stride_small", g.block_size = 1 << 23);
    DECODE("cache_stride_small", g.block_size = UINT32_MAX - 3);
    DECODE(NULL, (g.block_size = 1 << 23, g.cache_stride_bytes = (uint64_t)1 << 32));
    DECODE(NULL, (g.width = 0, g.sel_indices = NULL));
}

Test(dsa_accepts, decode_scales)
{
    static const float bad[] = {0, -1, -0.0f, NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 6; i++) {
        DECODE("scale_positive", g.scale = bad[i]);
        DECODE("scale_positive", g.k_scale = bad[i]);
        DECODE("scale_positive", g.v_scale = bad[i]);
    }
    DECODE(NULL, g.k_scale = 0x1p-149f);
    DECODE(NULL, g.v_scale = 3.4e38f);
}

Test(dsa_accepts, decode_index_tensors)
{
    DECODE("seq_len_range", lens[1] = -1);
    DECODE("seq_len_range", lens[0] = 65);
    DECODE(NULL, lens[1] = 0);
    DECODE("duplicate_id", sel[2] = 17);
    DECODE("duplicate_id", sel[11] = 500); /* beyond the sequence, but twice */
    DECODE(NULL, sel[0] = INT32_MIN);      /* holes may repeat */
    DECODE("block_table_entry", tables[3] = 6);
    DECODE("block_table_entry", tables[0] = -1);
    DECODE("block_table_entry", g.num_pages = 5); /* sequence 1 uses page 5 */
    DECODE(NULL, tables[2] = 77);                 /* no selected token is in it */
    DECODE("block_table_entry", (tables[2] = 77, sel[2] = 32));
    DECODE(NULL, (tables[2] = 77, sel[2] = 32, g.block_tables = NULL));
    DECODE(NULL, (lens[1] = -1, g.seq_lens = NULL));
    DECODE(NULL, (sel[2] = 17, g.sel_indices = NULL));
    /* 2^31 slots a row: lengths in 64 bits. */
    DECODE(NULL, (g.max_blocks_per_seq = 1u << 31, g.block_tables = NULL, lens[0] = INT32_MAX));
}

#define CHECK(op, base, rule_name, change)                        \
    do {                                                          \
        struct op g = base;                                       \
        struct ref_refusal why = {{0}, {0}};                      \
        change;                                                   \
        expect(op##_accepts(&g, &why), &why, rule_name, #change); \
    } while (0)

#define KPOOL(rule, change)                                                                 \
    CHECK(ref_dsa_kpool_compress,                                                           \
          ((struct ref_dsa_kpool_compress){.pools = 10, .S = 40, .D = 128, .KP = 4}), rule, \
          change)

Test(dsa_accepts, kpool_compress)
{
    int32_t geom[5] = {40, 10, 10, 10, 16};
    KPOOL(NULL, (void)0);
    KPOOL("index_kpool_range", g.KP = 0);
    KPOOL("index_kpool_range", g.KP = 17);
    KPOOL(NULL, g.block_size = 64);
    KPOOL("block_size_multiple_of_kpool", g.block_size = 6);
    KPOOL("dim_multiple_of_32", g.D = 16);
    KPOOL("dim_multiple_of_32", g.D = 0);
    KPOOL("dim_multiple_of_32", g.D = UINT32_MAX);
    KPOOL("first_key", g.first_key = -1);
    KPOOL("first_key", g.first_key = 41);
    KPOOL(NULL, g.first_key = 40);
    KPOOL(NULL, g.pools = 0);
    KPOOL("position_range", g.S = UINT32_MAX);
    KPOOL("position_range", g.pools = UINT32_MAX);
    KPOOL("position_range", g.pools = 1u << 30); /* 2^32 slots, 0 in 32 bits */
    KPOOL(NULL, (g.pools = 1u << 29, g.first_key = 0));
    KPOOL("position_range", (g.pools = 1u << 29, g.first_key = 1));
    KPOOL(NULL, g.geom = geom);
    KPOOL("pool_range", (g.geom = geom, geom[0] = 41));
    KPOOL("pool_range", (g.geom = geom, geom[0] = -1));
}

static struct ref_dsa_index_scores index_scores(void)
{
    return (struct ref_dsa_index_scores){
        .Q = 3, .P = 10, .H = 32, .D = 128, .KP = 4, .S = 40, .scale = 0.088388346f};
}
#define SCORES(rule, change) CHECK(ref_dsa_index_scores, index_scores(), rule, change)

Test(dsa_accepts, index_scores)
{
    int32_t geom[5] = {38, 10, 9, 8, 8}, indices[40];
    for (int i = 0; i < 40; i++) indices[i] = i < 38 ? i : -1;
    SCORES(NULL, (void)0);
    SCORES("index_kpool_range", g.KP = 0);
    SCORES("dim_multiple_of_32", g.D = 100);
    SCORES("dim_multiple_of_32", g.D = 0);
    SCORES("position_range", g.S = UINT32_MAX);
    SCORES("grid_limit", g.P = 1u << 31);
    SCORES("grid_limit", g.Q = 65536);
    SCORES("shared_limit", g.H = 45825); /* 4H beyond 232448 - 49152 */
    SCORES("shared_limit", g.H = 1u << 30);
    SCORES(NULL, g.H = 45824);
    SCORES("scale_positive", g.scale = 0);
    SCORES("scale_positive", g.scale = NAN);
    SCORES("geom_rows", g.geom = geom);
    SCORES(NULL, (g.geom = geom, g.Q = 1));
    SCORES(NULL, (g.geom = geom, g.Q = 0));
    SCORES(NULL, g.Q = 0);
    SCORES(NULL, g.P = 0);
    SCORES(NULL, g.pool_indices = indices);
    SCORES("pool_range", (g.pool_indices = indices, g.S = 37));
    SCORES("pool_range", (g.pool_indices = indices, indices[39] = -2));
    indices[39] = 38;
    SCORES(NULL, g.pool_indices = indices);
    SCORES("pool_range",
           (g.pool_indices = indices, g.Q = 1, g.geom = geom)); /* geom's length is 38 */
    SCORES(NULL, (g.pool_indices = indices, g.Q = 1, g.geom = geom, geom[1] = 9));
}

#define TOPK(rule, change)                                                                    \
    CHECK(ref_dsa_topk_pools,                                                                 \
          ((struct ref_dsa_topk_pools){.Q = 3, .P = 650, .NP2 = 512, .select_k = 512}), rule, \
          change)

Test(dsa_accepts, topk_pools)
{
    TOPK(NULL, (void)0);
    TOPK("np2_power_of_two", g.NP2 = 513);
    TOPK("np2_power_of_two", g.NP2 = 0);
    TOPK("np2_power_of_two", g.NP2 = UINT32_MAX);
    TOPK("select_k_np2", g.select_k = 513);
    TOPK("select_k_np2", g.select_k = UINT32_MAX);
    TOPK("shared_limit", g.NP2 = 16384);
    TOPK("shared_limit", g.NP2 = 1u << 31); /* 16 * 2^31 wraps to 0 in 32 bits */
    TOPK(NULL, g.NP2 = 8192);
    TOPK(NULL, g.select_k = 0);
    TOPK(NULL, g.P = 0);
    TOPK(NULL, g.Q = 0);
    TOPK("grid_limit", g.Q = 1u << 31);
    TOPK("pool_range", g.P = 1u << 31);
}

Test(dsa_accepts, geom_fits_the_scalars)
{
    static const struct {
        int32_t geom[5];
        uint32_t Q;
        const char *rule;
    } cases[] = {
        {{2600, 650, 650, 512, 512}, 1, NULL},
        {{0, 0, 0, 0, 1}, 1, NULL},
        {{2600, 650, 650, 512, 512}, 2, "geom_rows"},
        {{-1, 650, 650, 512, 512}, 1, "pool_range"},
        {{2600, 651, 650, 512, 512}, 1, "pool_range"},
        {{2600, 649, 650, 512, 512}, 1, "pool_range"},
        {{2600, 650, -1, 512, 512}, 1, "pool_range"},
        {{2600, INT32_MIN, INT32_MIN, 512, 512}, 1, "pool_range"},
        {{2600, 650, 650, -1, 512}, 1, "select_k_range"},
        {{2600, 650, 650, 513, 1024}, 1, "select_k_range"},
        {{2600, 650, 650, 300, 256}, 1, "select_k_np2"},
        {{2600, 650, 650, 300, 500}, 1, "np2_power_of_two"},
        {{2600, 650, 650, 300, -512}, 1, "np2_power_of_two"},
        {{2600, 650, 650, 300, 0}, 1, "np2_power_of_two"},
        {{2600, 650, 650, 300, 1024}, 1, "shared_limit"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        TOPK(cases[i].rule, (g.geom = cases[i].geom, g.Q = cases[i].Q));
}

#define EXPAND(rule, change)                                     \
    CHECK(ref_dsa_expand_selection,                              \
          ((struct ref_dsa_expand_selection){.Q = 3,             \
                                             .P = 650,           \
                                             .KP = 4,            \
                                             .S = 2600,          \
                                             .select_k = 512,    \
                                             .width = 2051,      \
                                             .index_topk = 2048, \
                                             .always_tail = 1}), \
          rule, change)

Test(dsa_accepts, expand_selection)
{
    int32_t geom[5] = {2600, 650, 650, 512, 512};
    EXPAND(NULL, (void)0);
    EXPAND("index_kpool_range", g.KP = 0);
    EXPAND("index_kpool_range", g.KP = 32);
    EXPAND("index_topk_multiple", g.index_topk = 0);
    EXPAND("index_topk_multiple", g.index_topk = 2050);
    EXPAND("width", g.width = 2048);
    EXPAND("width", g.always_tail = 0);
    EXPAND(NULL, (g.always_tail = 0, g.width = 2048));
    EXPAND("width", (g.index_topk = UINT32_MAX - 3, g.width = UINT32_MAX - 1)); /* 2^32-4+3 */
    EXPAND(NULL, (g.index_topk = UINT32_MAX - 3, g.width = UINT32_MAX));
    EXPAND("width", (g.KP = 3, g.index_topk = UINT32_MAX, g.width = 1)); /* 2^32+1 */
    EXPAND(NULL, (g.KP = 1, g.width = 2048));
    EXPAND("select_k_range", g.select_k = 513);
    EXPAND("position_range", g.S = UINT32_MAX);
    EXPAND("first_key", g.first_key = 2601);
    EXPAND("first_key", g.first_key = INT32_MIN);
    EXPAND("grid_limit", g.Q = UINT32_MAX);
    EXPAND("geom_rows", g.geom = geom);
    EXPAND(NULL, (g.geom = geom, g.Q = 1));
    EXPAND("pool_range", (g.geom = geom, g.Q = 1, geom[0] = 2601));
    EXPAND(NULL, (g.Q = 0, g.P = 0, g.S = 0));
}

#define MASKED(rule, change)                                                       \
    CHECK(ref_dsa_mla_masked_attn,                                                 \
          ((struct ref_dsa_mla_masked_attn){                                       \
              .Q = 3, .S = 12288, .H = 64, .qd = 512, .vd = 512, .scale = 0.04f}), \
          rule, change)

Test(dsa_accepts, mask_and_masked_attention)
{
    struct ref_dsa_topk_to_mask base = {.Q = 3, .width = 5, .S = 9};
    CHECK(ref_dsa_topk_to_mask, base, NULL, (void)0);
    CHECK(ref_dsa_topk_to_mask, base, NULL, g.Q = g.width = g.S = 0);
    CHECK(ref_dsa_topk_to_mask, base, "grid_limit", g.Q = 1u << 31);
    MASKED(NULL, (void)0);
    MASKED("masked_attn_rows", g.S = 12289);
    MASKED("masked_attn_rows", g.S = UINT32_MAX);
    MASKED("grid_limit", g.Q = 1u << 31);
    MASKED("grid_limit", g.H = 65536);
    MASKED("scale_positive", g.scale = -1);
    MASKED("scale_positive", g.scale = INFINITY);
    MASKED(NULL, g.S = 0);
    MASKED(NULL, g.Q = 0);
}

/* Random geometries from numbers at the edges, absurd ones among them: an answer, never a crash,
 * and rule and text if and only if refused. */
Test(dsa_accepts, absurd_geometries_get_an_answer)
{
    static const uint32_t numbers[] = {
        0,   1,    2,     3,     4,        16,       17,       32,         64,
        512, 4096, 65535, 65536, 1u << 23, 1u << 30, 1u << 31, UINT32_MAX, UINT32_MAX - 3};
    uint64_t state = 1;
    int accepted = 0, wrong = 0;
    for (int round = 0; round < 200000; round++) {
        uint32_t n[12];
        for (int i = 0; i < 12; i++) {
            state = state * 6364136223846793005 + 1442695040888963407;
            n[i] = numbers[(state >> 33) % (sizeof numbers / sizeof *numbers)];
        }
        struct ref_dsa_kpool_compress compress = {.pools = n[0],
                                                  .S = n[1],
                                                  .D = n[2],
                                                  .KP = n[3],
                                                  .block_size = n[4],
                                                  .first_key = (int32_t)n[5]};
        struct ref_dsa_expand_selection expand = {.Q = n[0],
                                                  .P = n[1],
                                                  .KP = n[2],
                                                  .S = n[3],
                                                  .select_k = n[4],
                                                  .width = n[5],
                                                  .index_topk = n[6],
                                                  .first_key = (int32_t)n[7],
                                                  .always_tail = (int32_t)n[8]};
        struct ref_dsa_topk_pools top = {.Q = n[0], .P = n[1], .NP2 = n[2], .select_k = n[3]};
        struct ref_refusal why[3];
        memset(why, 0, sizeof why);
        bool ok[3] = {ref_dsa_kpool_compress_accepts(&compress, &why[0]),
                      ref_dsa_expand_selection_accepts(&expand, &why[1]),
                      ref_dsa_topk_pools_accepts(&top, &why[2])};
        for (int i = 0; i < 3; i++) {
            /* Counted, not asserted one by one: every assertion is a message to the runner. */
            wrong += ok[i] != !why[i].rule[0] || ok[i] != !why[i].text[0];
            accepted += ok[i];
        }
    }
    cr_assert_eq(wrong, 0, "%d answers without or with a needless reason", wrong);
    cr_assert(accepted > 1000, "%d", accepted);
}
