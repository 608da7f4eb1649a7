/* dsa_decode_pipeline: indexer keys and latents in, selection and decode out (ops.md §2). */
#include "harness/ops/dsa_pipeline.h"

#include <stdio.h>

enum { MODEL_ROWS = 4 };

static const char *const regimes[] = {
    "normal", "exact_int", "all_negative", "relu_ties", "low_bits", "cancel",   "outlier", "walk",
    "needle", "subnormal", "huge",         "offset",    "equal",    "specials", NULL};
enum { REGIMES = 14 };

static const char *const attend_regimes[] = {"normal",  "exact_int", "peaked", "flat",  "cancel",
                                             "outlier", "subnormal", "huge",   "equal", NULL};
enum { ATTEND_REGIMES = 9 };

static const char *const weight_names[] = {"positive", "mixed", "negative", NULL};
static const char *const key_names[] = {"contiguous", "paged", NULL};
static const char *const gate_names[] = {"own", "keys", NULL};
static const char *const kv_names[] = {"one", "two", "distinct", NULL};
static const char *const page_names[] = {"identity", "shuffled", "high", NULL};

static const struct param params[] = {
    COUNT_KEY("rows", "1", "query rows", 1),
    COUNT_KEY("heads", "2", "query heads", 1),
    COUNT_KEY("iheads", "2", "index heads", 1),
    {"dim", PARAM_INT, false, "32", 0, 4096, NULL, "channels of an index key", 32},
    COUNT_KEY("len", "37", "tokens, the padding included", 4),
    COUNT_KEY("kpool", "4", "tokens of a pool", 1),
    COUNT_KEY("topk", "16", "selected tokens, without the tail", 4),
    {"tail", PARAM_INT, false, "1", 0, 1, NULL, "always select the pool in progress", 0},
    COUNT_KEY("pad", "0", "left padding, tokens", 0),
    {"pos", PARAM_LIST, false, "[]", INT32_MIN, INT32_MAX, NULL,
     "position of each row; a shorter list repeats; empty: the last token", 0},
    {"mask", PARAM_LIST, true, "[]", 0, 1, NULL, "q_mask of each row, repeating; empty: all 1", 1},
    ENUM_KEY("invalid", "none", dsa_invalid_names, "which tokens are invalid", 0),
    ENUM_KEY("weights", "mixed", weight_names, "signs of the head weights", 0),
    {"plant", PARAM_INT, true, "4", 1, INT32_MAX, NULL,
     "regime relu_ties: one pool in so many scores above 0", 4},
    {"gates", PARAM_ENUM, true, "own", 0, 0, gate_names, "gates of their own, or the keys as gates",
     0},
    ENUM_KEY("keys", "contiguous", key_names, "where the pooled keys lie", 0),
    COUNT_KEY("block", "16", "slots of a page", 4),
    {"pitch", PARAM_OFFSET, false, "+0", -(INT64_C(1) << 40), INT64_C(1) << 40, NULL,
     "page pitch of the latents above the dense size, bytes", 0},
    ENUM_KEY("pages", "shuffled", page_names, "order of physical pages", 0),
    ENUM_KEY("kv", "one", kv_names,
             "K and V in one buffer, in two with the same bytes, or with different ones", 0),
    REAL_KEY("kscale", "0.0625", "FP8 scale of K", 0),
    REAL_KEY("vscale", "0.0625", "FP8 scale of V", 0),
    ENUM_KEY("geom", "none", dsa_geom_names, "geometry vector: one row, contiguous keys", 0),
    {"slack", PARAM_INT, true, "2", 0, 4096, NULL, "pools the scalars have more than the vector",
     1},
    RARE_FROM_KEY("change", "from this token on the data is other data"),
    RARE_COUNT_KEY("pageseed", "0", "another order of pages", 0),
    RARE_COUNT_KEY("first", "0", "which row comes first", 0),
    RARE_FLAG_KEY("reverse", "rows in reverse order"),
    ENUM_KEY("regime", "normal", regimes, "values of the indexer", 0),
    ENUM_KEY("attend", "normal", attend_regimes, "values of queries and latents", 0),
    SEED_KEY,
};

static const struct preset presets[] = {
    {"glm53", "heads=64,iheads=32,dim=128,len=2600,kpool=4,topk=2048,tail=1,block=64"},
    {NULL, NULL}};

static const char *const always[] = {
    "dsa_decode_pipeline:model=glm53,heads=4,iheads=8,rows=2,pos=[2598,2599],"
    "regime=relu_ties,weights=positive,seed=0x53",
    "dsa_decode_pipeline:rows=4,len=40,pos=[36,37,38,39],topk=12,keys=paged,kv=distinct,seed=0x54",
    "dsa_decode_pipeline:rows=5,len=90,pad=3,kpool=16,topk=32,block=32,"
    "pos=[2,3,18,19,89],mask=[1,1,1,1,0],seed=0x55",
    "dsa_decode_pipeline:rows=2,len=3,pos=[2,0],seed=0x56",
    "dsa_decode_pipeline:len=30,invalid=all,seed=0x57",
    NULL};

static const struct number numbers[] = {
    {"Q", "rows"},
    {"H", "iheads"},
    {"D", "dim"},
    {"KP", "kpool"},
    {"first_key", "pad"},
    {"index_topk", "topk"},
    {"always_tail", "tail"},
    {"most", "topk/kpool"},
    {"complete", "max(len - pad, 0)/kpool"},
    {"selected_k", "min(complete, most)"},
    /* Pages of pooled keys are whole: pools past the last token hold nothing. */
    {"page_pools", "block/kpool"},
    {"pool_pages", "keys.paged ? ceil(ceil(max(len - pad, 0)/kpool)/page_pools) : 0"},
    {"pools", "keys.paged && page_pools ? pool_pages*page_pools : ceil(max(len - pad, 0)/kpool)"},
    {"key_pitch", "page_pools*dim + 96"},
    /* A vector describes one launch over all pools, so pages and vectors exclude each other. */
    {"vector", "!geom.none && !keys.paged"},
    {"slack", "geom.shorter && vector ? slack : 0"},
    {"S", "len + slack*kpool"},
    {"P", "pools + slack"},
    {"select_k", "min(selected_k + slack, most)"},
    {"NP2", "pow2(selected_k + slack)"},
    {"width", "topk + (tail ? kpool - 1 : 0)"},
    {"index_scale", "1/sqrt(dim)"},
    {"max_blocks_per_seq", "ceil(len/block) + 1"},
    {"cache_stride_bytes", "max(block*512 + pitch, 0)"},
};

static const struct step steps[] = {
    [DSA_STEP_COMPRESS] = {&interface_dsa_kpool_compress, "block_size = (keys.paged ? block : 0)"},
    [DSA_STEP_SCORES] = {&interface_dsa_index_scores,
                         "q = index_q, valid_keys = valid, out = scores, scale = index_scale"},
    [DSA_STEP_TOPK] = {&interface_dsa_topk_pools},
    [DSA_STEP_EXPAND] = {&interface_dsa_expand_selection, "valid_keys = valid, out = rows"},
    [DSA_STEP_DECODE] = {&interface_dsa_decode,
                         "num_seqs = rows, sel_rows = rows, num_q_heads = heads, num_kv_heads = 1, "
                         "kv_lora_rank = 512, block_size = block, index_kpool = kpool, "
                         "scale = 1/sqrt(512), k_scale = kscale, v_scale = vscale, "
                         "sel_indices = rows",
                         .module = 1},
    [DSA_STEPS] = {0}};

/* Outputs in the order of the stages, so that the first wrong one is the one reported. */
static const struct array arrays[] = {
    {"k", ARRAY_IN},
    {"gate", ARRAY_IN, .when = "gates.own"},
    {"gate", ARRAY_IN, .when = "gates.keys", .alias_of = "k"},
    {"valid", ARRAY_POISONED},
    {"ape", ARRAY_IN},
    {"index_q", ARRAY_IN},
    {"weights", ARRAY_IN},
    {"q_pos", ARRAY_IN},
    {"q_mask", ARRAY_IN},
    {"q", ARRAY_IN},
    {"block_tables", ARRAY_POISONED},
    {"seq_lens", ARRAY_IN},
    {"k_cache", ARRAY_IN},
    {"v_cache", ARRAY_IN, .when = "!kv.one"},
    {"v_cache", ARRAY_IN, .when = "kv.one", .alias_of = "k_cache"},
    {"pool_keys", ARRAY_BOUND, .when = "keys.contiguous"},
    /* Every physical page, in the order in which they lie. */
    {"pool_keys", ARRAY_BOUND, .when = "keys.paged", .dtype = DTYPE_F32,
     .shape = "pool_pages, page_pools, dim", .dims = "page,pool,dim", .pitch = "key_pitch"},
    {"pool_indices", ARRAY_EXACT},
    {"pool_valid", ARRAY_EXACT},
    {"scores", ARRAY_EXACT},
    {"valid_cand", ARRAY_EXACT},
    {"selected", ARRAY_EXACT},
    {"certified", ARRAY_SELECT, .alias_of = "selected"},
    {"rows", ARRAY_EXACT},
    {"out", ARRAY_BOUND, .dims = "query,head,dim"},
    {"geom", ARRAY_IN, .when = "vector",
     .values = "len, pools, complete, selected_k, pow2(selected_k)"},
};

/* The tail is counted, not looked up: as many of the last positions as there are valid keys past
 * the last whole pool. With an invalid token between valid ones these are tokens of a pool that may
 * be selected too, and the row holds them twice. */
static bool tail_overlaps(const struct case_line *c)
{
    return case_number(c, "tail && kpool > 1 && !invalid.none && !invalid.end && !invalid.all");
}

static const char overlap_text[] = "always_tail with invalid tokens between valid ones: the tail "
                                   "would repeat tokens of a selected pool";

static bool ref_accepts(const struct case_line *c, const struct instance *in,
                        struct ref_refusal *why)
{
    if (!tail_overlaps(c)) return true;
    snprintf(why->rule, sizeof why->rule, "duplicate_id");
    snprintf(why->text, sizeof why->text, "%s", overlap_text);
    return false;
}

static enum gpu_status gpu_check(const struct case_line *c, const struct instance *in,
                                 struct gpu_report *report)
{
    return tail_overlaps(c) ? gpu_refuse(report, "duplicate_id", "%s", overlap_text) : GPU_OK;
}

/* Positions of the rows: at the end one after another, as in speculative verification, or anywhere.
 */
static void draw_positions(struct case_line *c, struct rng *r, uint32_t rows, uint32_t len,
                           uint32_t kpool, uint32_t topk)
{
    int64_t positions[MODEL_ROWS], mask[MODEL_ROWS], around[] = {kpool, topk, topk + kpool};
    bool verify = !rng_one_in(r, 3);
    for (uint32_t row = 0; row < rows; row++) {
        positions[row] =
            verify ? (int64_t)len - rows + row : rng_edge(r, 0, len - 1, rng_pick(r, around, 3));
        if (!verify && rng_one_in(r, 8)) positions[row] = rng_range(r, -2, 1);
        mask[row] = !rng_one_in(r, 5);
    }
    case_set_list(c, "pos", positions, rows);
    if (rng_one_in(r, 4)) case_set_list(c, "mask", mask, rows);
}

static void sample(struct case_line *c, struct rng *r, enum tier tier, uint64_t index)
{
    static const int64_t kpools[] = {1, 2, 3, 4, 4, 5, 8, 16}, heads[] = {1, 1, 2, 3, 5};
    static const int64_t dims[] = {32, 32, 64, 96, 128};
    static const double scales[] = {0.0625, 0.37, 0.25, 1, 0.011};
    uint32_t kpool = (uint32_t)rng_pick(r, kpools, 8), rows = (uint32_t)rng_range(r, 1, MODEL_ROWS);
    uint32_t longest = tier == TIER_FULL ? 500 : 110;
    uint32_t topk = kpool * (uint32_t)rng_edge(r, 1, 1 + longest / 2 / kpool, 1 + 32 / kpool);
    int64_t around[] = {kpool, topk, topk + kpool};
    uint32_t len = (uint32_t)rng_edge(r, 1, longest, rng_pick(r, around, 3));
    uint32_t pad = rng_one_in(r, 3) ? (uint32_t)rng_edge(r, 0, len - 1, kpool) : 0;
    case_set_int(c, "rows", rows);
    case_set_int(c, "heads", rng_pick(r, heads, 5));
    case_set_int(c, "iheads", rng_pick(r, heads, 5));
    case_set_int(c, "dim", rng_pick(r, dims, tier == TIER_FULL ? 5 : 3));
    case_set_int(c, "len", len);
    case_set_int(c, "kpool", kpool);
    case_set_int(c, "topk", topk);
    case_set_int(c, "tail", !rng_one_in(r, 4));
    case_set_int(c, "pad", pad);
    case_set_int(c, "block", kpool * rng_range(r, 1, 48 / kpool));
    case_set_int(c, "pitch", rng_one_in(r, 2) ? 0 : 16 * rng_range(r, 1, 40));
    case_set_int(c, "pages", rng_one_in(r, 12) ? 2 : rng_range(r, 0, 1));
    case_set_int(c, "kv", (int64_t)(rng_u32(r) % 3));
    case_set_real(c, "kscale", scales[rng_u32(r) % 5]);
    case_set_real(c, "vscale", scales[rng_u32(r) % 5]);
    case_set_int(c, "weights", rng_one_in(r, 2) ? 0 : rng_range(r, 1, 2));
    draw_positions(c, r, rows, len, kpool, topk);
    case_set_enum(c, "regime", regimes[index % REGIMES]);
    case_set_int(c, "attend", (int64_t)(index / REGIMES + index) % 11 % ATTEND_REGIMES);
    case_set_int(c, "invalid", (int64_t)(index / 5 + index) % 13 % 7);
    if (tail_overlaps(c)) case_set_enum(c, "invalid", "end");
    if (rng_one_in(r, 3)) case_set_enum(c, "keys", "paged");
    if (rng_one_in(r, 4)) {
        case_set_int(c, "rows", 1);
        case_set_int(c, "geom", rng_range(r, 1, 2));
        case_set_int(c, "slack", rng_range(r, 1, 5));
    }
}

/* NaN ranks after every number, so a candidate with a NaN score ranks after the -FLT_MAX of pools
 * that are no candidates, and whether it is among the first k_r hangs on how many of those there
 * are: with NaN scores a row may change with the context behind it. */
#define RANKS_BY_NUMBER "!regime.specials"
/* Pools are not rows, and what has a pool for a column changes shape with the context. */
#define BY_QUERY "scores, valid_cand, selected, certified, rows, out"
#define FROM_SELECTION "selected, rows, out"

static const struct relation relations[] = {
    {DSA_ROWS_REVERSED, .outputs = BY_QUERY},
    {DSA_ROW_ALONE, .outputs = BY_QUERY},
    {DSA_LATER_TOKENS_CHANGED, .outputs = BY_QUERY},
    /* A row of a batch against a pass of its own at its own length: the place of the tail in the
     * row included, and so the order in which the decode adds. Where the drawn row has no such
     * pass, nothing changes. */
    {"single-row-pass", RELATION_SAME_BITS, "rows && !invalid.end && " RANKS_BY_NUMBER,
     "first = first + draw(0, rows - 1), "
     "len = item(pos, new.first, len - 1) + 1, "
     "len = new.len > 0 && new.len >= pad && new.len <= len ? new.len : 0, "
     "rows = new.len ? 1 : rows, "
     "reverse = new.len ? 0 : reverse, "
     "geom = new.len ? none : geom, "
     "first = new.len ? new.first : first, "
     "len = new.len ? new.len : len",
     "reverse ? rows - 1 - (new.first - first) : new.first - first", .outputs = "rows, out"},
    {"context-grown", RELATION_SAME_BITS, "pos && !invalid.end && " RANKS_BY_NUMBER,
     "len = len + draw(1, 40)", DSA_ROW_POS " < len ? row : -1", .outputs = "rows, out"},
    /* Pages of pooled keys end with pools that hold nothing: more pools that are no candidates. */
    {"key-layout-changed", RELATION_SAME_BITS, RANKS_BY_NUMBER,
     "keys = keys.paged ? contiguous : paged, geom = none", .outputs = FROM_SELECTION},
    {"pages-permuted", RELATION_SAME_BITS, NULL,
     "pages = shuffled, pageseed = draw(1, 1048576), pitch = pitch + 16*draw(1, 9)",
     .outputs = "pool_indices, pool_valid, " BY_QUERY},
    {"block-size-changed", RELATION_SAME_BITS, "!keys.paged || " RANKS_BY_NUMBER,
     "block = block + kpool*draw(1, 3)", .outputs = FROM_SELECTION},
    {"kv-split", RELATION_SAME_BITS, "kv.one", "kv = two"},
    {"v-scale-doubled", RELATION_DOUBLED, NULL, "vscale = 2*vscale", .outputs = "out"},
    {DSA_GEOMETRY_DROPPED},
    {0}};

/* The decode kernel's, which also covers the pooling of keys. */
static const struct ref_error_model model = {.exp_ulp = 1.0,
                                             .div_ulp = 0.5,
                                             .tensor_core = true,
                                             .mma_k = 16,
                                             .p_bf16 = 2,
                                             .rescales_per_key = 1.0 / 16};

const struct op op_dsa_pipeline = {
    .name = "dsa_decode_pipeline",
    .modules = (const char *const[]){"dsa_indexer", "glm5next_dsa_mla_decode", NULL},
    .family = "dsa",
    .summary = "indexer, selection and sparse decode, stage after stage",
    .contract = CONTRACT_SELECT,
    USUAL_TABLES,
    .steps = steps,
    .model = &model,
    .wild = "rows heads iheads len kpool topk pad block dim kscale pitch invalid",
    .lay_out = dsa_pipeline_lay_out,
    .fill = dsa_pipeline_fill,
    .ref_accepts = ref_accepts,
    .gpu_check = gpu_check,
    .launch = dsa_pipeline_launch,
    .oracle = dsa_pipeline_oracle,
};
