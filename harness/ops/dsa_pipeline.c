/* dsa_decode_pipeline: indexer keys and latents in, selection and decode out (ops.md §2). */
#include "harness/ops/dsa_pipeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    {"rows", PARAM_INT, false, "1", 0, UINT32_MAX, NULL, "query rows", 1},
    {"heads", PARAM_INT, false, "2", 0, UINT32_MAX, NULL, "query heads", 1},
    {"iheads", PARAM_INT, false, "2", 0, UINT32_MAX, NULL, "index heads", 1},
    {"dim", PARAM_INT, false, "32", 0, 4096, NULL, "channels of an index key", 32},
    {"len", PARAM_INT, false, "37", 0, UINT32_MAX, NULL, "tokens, the padding included", 4},
    {"kpool", PARAM_INT, false, "4", 0, UINT32_MAX, NULL, "tokens of a pool", 1},
    {"topk", PARAM_INT, false, "16", 0, UINT32_MAX, NULL, "selected tokens, without the tail", 4},
    {"tail", PARAM_INT, false, "1", 0, 1, NULL, "always select the pool in progress", 0},
    {"pad", PARAM_INT, false, "0", 0, UINT32_MAX, NULL, "left padding, tokens", 0},
    {"pos", PARAM_LIST, false, "[]", INT32_MIN, INT32_MAX, NULL,
     "position of each row; a shorter list repeats; empty: the last token", 0},
    {"mask", PARAM_LIST, true, "[]", 0, 1, NULL, "q_mask of each row, repeating; empty: all 1", 1},
    {"invalid", PARAM_ENUM, false, "none", 0, 0, dsa_invalid_names, "which tokens are invalid", 0},
    {"weights", PARAM_ENUM, false, "mixed", 0, 0, weight_names, "signs of the head weights", 0},
    {"plant", PARAM_INT, true, "4", 1, INT32_MAX, NULL,
     "regime relu_ties: one pool in so many scores above 0", 4},
    {"gates", PARAM_ENUM, true, "own", 0, 0, gate_names, "gates of their own, or the keys as gates",
     0},
    {"keys", PARAM_ENUM, false, "contiguous", 0, 0, key_names, "where the pooled keys lie", 0},
    {"block", PARAM_INT, false, "16", 0, UINT32_MAX, NULL, "slots of a page", 4},
    {"pitch", PARAM_OFFSET, false, "+0", -(INT64_C(1) << 40), INT64_C(1) << 40, NULL,
     "page pitch of the latents above the dense size, bytes", 0},
    {"pages", PARAM_ENUM, false, "shuffled", 0, 0, page_names, "order of physical pages", 0},
    {"kv", PARAM_ENUM, false, "one", 0, 0, kv_names,
     "K and V in one buffer, in two with the same bytes, or with different ones", 0},
    {"kscale", PARAM_REAL, false, "0.0625", 0, 0, NULL, "FP8 scale of K", 0},
    {"vscale", PARAM_REAL, false, "0.0625", 0, 0, NULL, "FP8 scale of V", 0},
    {"geom", PARAM_ENUM, false, "none", 0, 0, dsa_geom_names,
     "geometry vector: one row, contiguous keys", 0},
    {"slack", PARAM_INT, true, "2", 0, 4096, NULL, "pools the scalars have more than the vector",
     1},
    {"change", PARAM_INT, true, "-1", -1, INT32_MAX, NULL,
     "from this token on the data is other data", -1},
    {"pageseed", PARAM_INT, true, "0", 0, UINT32_MAX, NULL, "another order of pages", 0},
    {"first", PARAM_INT, true, "0", 0, UINT32_MAX, NULL, "which row comes first", 0},
    {"reverse", PARAM_INT, true, "0", 0, 1, NULL, "rows in reverse order", 0},
    {"regime", PARAM_ENUM, false, "normal", 0, 0, regimes, "values of the indexer", 0},
    {"attend", PARAM_ENUM, false, "normal", 0, 0, attend_regimes, "values of queries and latents",
     0},
    {"seed", PARAM_SEED, false, "0x1", 0, 0, NULL, "of every byte", 0},
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

/* The tail is counted, not looked up: as many of the last positions as there are valid keys past
 * the last whole pool. With an invalid token between valid ones these are tokens of a pool that may
 * be selected too, and the row holds them twice. */
static bool tail_overlaps(const struct dsa_pipeline *p)
{
    return p->tail && p->kpool > 1 && p->keys.invalid != DSA_INVALID_NONE &&
           p->keys.invalid != DSA_INVALID_END && p->keys.invalid != DSA_INVALID_ALL;
}

static const char overlap_text[] = "always_tail with invalid tokens between valid ones: the tail "
                                   "would repeat tokens of a selected pool";

static bool ref_accepts(const struct case_line *c, const struct instance *in,
                        struct ref_refusal *why)
{
    struct dsa_pipeline p;
    struct ref_dsa_kpool_compress compress;
    struct ref_dsa_index_scores scores;
    struct ref_dsa_topk_pools topk;
    struct ref_dsa_expand_selection expand;
    struct ref_dsa_decode decode;
    dsa_pipeline_read(c, &p);
    if (tail_overlaps(&p)) {
        snprintf(why->rule, sizeof why->rule, "duplicate_id");
        snprintf(why->text, sizeof why->text, "%s", overlap_text);
        return false;
    }
    dsa_pipeline_ref_compress(&p, in, &compress);
    dsa_pipeline_ref_scores(&p, in, &scores);
    dsa_pipeline_ref_topk(&p, &topk);
    dsa_pipeline_ref_expand(&p, in, &expand);
    dsa_pipeline_ref_decode(&p, in, &decode);
    scores.pool_indices = NULL; /* made by the stage before */
    decode.sel_indices = NULL;
    return ref_dsa_decode_accepts(&decode, why) && ref_dsa_kpool_compress_accepts(&compress, why) &&
           ref_dsa_index_scores_accepts(&scores, why) && ref_dsa_topk_pools_accepts(&topk, why) &&
           ref_dsa_expand_selection_accepts(&expand, why);
}

static enum gpu_status gpu_check(const struct case_line *c, const struct instance *in,
                                 struct gpu_report *report)
{
    struct dsa_pipeline p;
    dsa_pipeline_read(c, &p);
    if (tail_overlaps(&p)) return gpu_refuse(report, "duplicate_id", "%s", overlap_text);
    return dsa_pipeline_check(c, in, report);
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
    struct dsa_pipeline p;
    dsa_pipeline_read(c, &p);
    if (tail_overlaps(&p)) case_set_enum(c, "invalid", "end");
    if (rng_one_in(r, 3)) case_set_enum(c, "keys", "paged");
    if (rng_one_in(r, 4)) {
        case_set_int(c, "rows", 1);
        case_set_int(c, "geom", rng_range(r, 1, 2));
        case_set_int(c, "slack", rng_range(r, 1, 5));
    }
}

static void sample_wild(struct case_line *c, struct rng *r)
{
    static const char *const keys[] = {"rows",  "heads", "iheads", "len",
                                       "kpool", "topk",  "pad",    "block"};
    sample(c, r, TIER_QUICK, rng_u32(r));
    for (uint32_t faults = (uint32_t)rng_range(r, 0, 2); faults; faults--) {
        uint32_t which = rng_u32(r) % 12;
        if (which == 0)
            case_set_int(c, "dim", rng_range(r, 0, 200));
        else if (which == 1)
            case_set_real(c, "kscale", dsa_absurd_real(r));
        else if (which == 2)
            case_set_int(c, "pitch", rng_range(r, -40, 40) * rng_range(r, 1, 16));
        else if (which == 3)
            case_set_int(c, "invalid", rng_range(r, 0, 6));
        else
            dsa_absurd_param(c, r, keys, 8);
    }
}

static bool edit_later(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    uint32_t row = (uint32_t)rng_range(r, 0, case_int(base, "rows") - 1);
    int64_t pos = dsa_pipeline_pos(base, row);
    if (case_int(base, "change") >= 0 || pos < -1 || pos + 1 >= case_int(base, "len")) return false;
    case_set_int(changed, "change", pos + 1);
    return true;
}

static int64_t row_before_change(const struct case_line *base, const struct case_line *changed,
                                 int64_t row)
{
    return dsa_pipeline_pos(base, (uint32_t)row) < case_int(changed, "change") ? row : -1;
}

/* NaN ranks after every number, so a candidate with a NaN score ranks after the -FLT_MAX of pools
 * that are no candidates, and whether it is among the first k_r hangs on how many of those there
 * are: with NaN scores a row may change with the context behind it. */
static bool ranks_by_number(const struct case_line *c)
{
    return !case_enum_is(c, "regime", "specials");
}

/* A row of a batch against a pass of its own at its own length: the place of the tail in the row
 * included, and so the order in which the decode adds. */
static bool edit_single(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    uint32_t row = (uint32_t)rng_range(r, 0, case_int(base, "rows") - 1);
    int64_t pos = dsa_pipeline_pos(base, row), len = case_int(base, "len");
    if (pos < 0 || pos >= len || case_enum_is(base, "invalid", "end") || !ranks_by_number(base))
        return false;
    if (pos == len - 1 && case_int(base, "rows") == 1) return false;
    if (case_int(base, "pad") > pos + 1) return false;
    case_set_int(changed, "first", dsa_row_key(base, row));
    case_set_int(changed, "rows", 1);
    case_set_int(changed, "reverse", 0);
    case_set_int(changed, "len", pos + 1);
    case_set_enum(changed, "geom", "none");
    return true;
}

static bool edit_longer(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    uint32_t n;
    case_list(base, "pos", &n);
    if (!n || case_enum_is(base, "invalid", "end") || !ranks_by_number(base)) return false;
    case_set_int(changed, "len", case_int(base, "len") + rng_range(r, 1, 40));
    return true;
}

static int64_t row_inside(const struct case_line *base, const struct case_line *changed,
                          int64_t row)
{
    return dsa_pipeline_pos(base, (uint32_t)row) < case_int(base, "len") ? row : -1;
}

/* Pages of pooled keys end with pools that hold nothing: more pools that are no candidates. */
static bool edit_keys(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    if (!ranks_by_number(base)) return false;
    case_set_enum(changed, "keys", case_enum_is(base, "keys", "paged") ? "contiguous" : "paged");
    case_set_enum(changed, "geom", "none");
    return true;
}

static bool edit_pages(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    case_set_enum(changed, "pages", "shuffled");
    case_set_int(changed, "pageseed", rng_range(r, 1, 1 << 20));
    case_set_int(changed, "pitch", case_int(base, "pitch") + 16 * rng_range(r, 1, 9));
    return true;
}

static bool edit_block(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    if (case_enum_is(base, "keys", "paged") && !ranks_by_number(base)) return false;
    case_set_int(changed, "block",
                 case_int(base, "block") + case_int(base, "kpool") * rng_range(r, 1, 3));
    return true;
}

static bool edit_split(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    if (!case_enum_is(base, "kv", "one")) return false;
    case_set_enum(changed, "kv", "two");
    return true;
}

static bool edit_vscale(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    case_set_real(changed, "vscale", 2 * case_real(base, "vscale"));
    return true;
}

enum {
    RELATION_REVERSED,
    RELATION_ALONE,
    RELATION_LATER,
    RELATION_SINGLE,
    RELATION_LONGER,
    RELATION_KEYS,
    RELATION_PAGES,
    RELATION_BLOCK,
    RELATION_SPLIT,
    RELATION_VSCALE,
    RELATION_GEOM
};

static const struct relation relations[] = {
    [RELATION_REVERSED] = {"rows-reversed", RELATION_SAME_BITS, .edit = dsa_edit_reversed, .base_row_of = dsa_row_reversed},
    [RELATION_ALONE] = {"row-alone", RELATION_SAME_BITS, .edit = dsa_edit_alone, .base_row_of = dsa_row_alone},
    [RELATION_LATER] = {"later-tokens-changed", RELATION_SAME_BITS, .edit = edit_later, .base_row_of = row_before_change},
    [RELATION_SINGLE] = {"single-row-pass", RELATION_SAME_BITS, .edit = edit_single, .base_row_of = dsa_row_alone},
    [RELATION_LONGER] = {"context-grown", RELATION_SAME_BITS, .edit = edit_longer, .base_row_of = row_inside},
    [RELATION_KEYS] = {"key-layout-changed", RELATION_SAME_BITS, .edit = edit_keys},
    [RELATION_PAGES] = {"pages-permuted", RELATION_SAME_BITS, .edit = edit_pages},
    [RELATION_BLOCK] = {"block-size-changed", RELATION_SAME_BITS, .edit = edit_block},
    [RELATION_SPLIT] = {"kv-split", RELATION_SAME_BITS, .edit = edit_split},
    [RELATION_VSCALE] = {"v-scale-doubled", RELATION_DOUBLED, .edit = edit_vscale},
    [RELATION_GEOM] = {"geometry-dropped", RELATION_SAME_BITS, .edit = dsa_edit_no_geom},
    {0}};

/* Pools are not rows, and what has a pool for a column changes shape with the context. */
static bool covers(const struct relation *relation, const struct tensor *output)
{
    bool out = !strcmp(output->name, "out"), rows = out || !strcmp(output->name, "rows");
    bool by_query = !strcmp(output->dim[0], "query") || out;
    switch (relation - relations) {
    case RELATION_REVERSED:
    case RELATION_ALONE:
    case RELATION_LATER:
        return by_query;
    case RELATION_KEYS:
    case RELATION_BLOCK:
        return rows || !strcmp(output->name, "selected");
    case RELATION_PAGES:
        return strcmp(output->name, "pool_keys") != 0;
    case RELATION_SINGLE:
    case RELATION_LONGER:
        return rows;
    case RELATION_VSCALE:
        return out;
    default:
        return true;
    }
}

static const char *const modules[] = {"dsa_indexer", "glm5next_dsa_mla_decode", NULL};

/* The decode kernel's, which also covers the pooling of keys. */
static const struct ref_error_model model = {
    .exp_ulp = 1.0, .div_ulp = 0.5, .mma_k = 16, .rescales_per_key = 0.125, .rescales_fixed = 2};

const struct op op_dsa_pipeline = {
    .name = "dsa_decode_pipeline",
    .modules = modules,
    .family = "dsa",
    .summary = "indexer, selection and sparse decode, stage after stage",
    .contract = CONTRACT_SELECT,
    .params = params,
    .n_params = sizeof params / sizeof *params,
    .presets = presets,
    .always = always,
    .model = &model,
    .relations = relations,
    .relation_covers = covers,
    .sample = sample,
    .wild = "-",
    .sample_wild = sample_wild,
    .ref_accepts = ref_accepts,
    .gpu_check = gpu_check,
    .build = dsa_pipeline_build,
    .launch = dsa_pipeline_launch,
    .oracle = dsa_pipeline_oracle,
};
