/* dsa_expand_selection: selected pools and the tail as a row of token ids (ops.md §2). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/ops/dsa_common.h"

enum { STREAM_PICK = 1, STREAM_HOLE = 2 };

enum pick {
    PICK_BEST,  /* candidates in some order, then the other pools, as a selector lists them */
    PICK_HOLES, /* between them -1 and pools that are no candidates */
    PICK_NONE   /* nothing selected */
};
static const char *const pick_names[] = {"best", "holes", "none", NULL};

static const struct param params[] = {
    COUNT_KEY("rows", "1", "query rows", 1),
    COUNT_KEY("len", "37", "tokens, the padding included", 4),
    COUNT_KEY("kpool", "4", "tokens of a pool", 1),
    COUNT_KEY("topk", "16", "selected tokens, without the tail", 4),
    {"tail", PARAM_INT, false, "1", 0, 1, NULL, "always select the pool in progress", 0},
    COUNT_KEY("pad", "0", "left padding, tokens", 0),
    RARE_OWN_KEY("select", "select_k; -1: the lesser of topk/kpool and the complete pools"),
    RARE_OWN_KEY("pools", "pools there are; -1: up to the trailing partial one"),
    RARE_OWN_KEY("width", "row width; -1: topk and the tail"),
    {"firstkey", PARAM_INT, true, "-1", INT32_MIN, INT32_MAX, NULL,
     "first_key; -1: after the padding", -1},
    {"pos", PARAM_LIST, false, "[]", INT32_MIN, INT32_MAX, NULL,
     "position of each row; a shorter list repeats; empty: the last token", 0},
    {"mask", PARAM_LIST, true, "[]", 0, 1, NULL, "q_mask of each row, repeating; empty: all 1", 1},
    ENUM_KEY("invalid", "none", dsa_invalid_names, "which tokens are invalid", 0),
    ENUM_KEY("pick", "best", pick_names, "what the selection holds", 0),
    ENUM_KEY("geom", "none", dsa_geom_names, "geometry vector, one row only", 0),
    {"slack", PARAM_INT, true, "2", 0, 4096, NULL, "pools the scalars have more than the vector",
     1},
    RARE_FROM_KEY("change", "from this token on the data is other data"),
    RARE_COUNT_KEY("first", "0", "which row comes first", 0),
    RARE_FLAG_KEY("reverse", "rows in reverse order"),
    SEED_KEY,
};

static const struct preset presets[] = {{"glm53", "len=2600,kpool=4,topk=2048,tail=1"},
                                        {NULL, NULL}};

static const char *const always[] = {
    "dsa_expand_selection:model=glm53,rows=3,pos=[2599,2598,2047],seed=0x53",
    "dsa_expand_selection:model=glm53,rows=4,pos=[2046,3,2,0],mask=[1,1,0,1],seed=0x54",
    "dsa_expand_selection:len=40,pad=3,kpool=16,topk=32,rows=3,pos=[2,18,39],seed=0x55",
    "dsa_expand_selection:len=33,kpool=8,topk=16,tail=0,invalid=all,seed=0x56", NULL};

static const struct number numbers[] = {
    {"Q", "rows"},
    {"KP", "kpool"},
    {"index_topk", "topk"},
    {"always_tail", "tail"},
    {"first_key", "firstkey == -1 ? pad : firstkey"},
    {"most", "topk/kpool"},
    {"pools", "pools < 0 ? ceil(max(len - first_key, 0)/kpool) : pools"},
    {"complete", "min(max(len - first_key, 0)/kpool, pools)"},
    {"selected_k", "select < 0 ? min(complete, most) : select"},
    {"slack", "geom.shorter ? slack : 0"},
    {"S", "len + slack*kpool"},
    {"P", "pools + slack"},
    {"select_k", "select < 0 ? min(selected_k + slack, most) : selected_k + slack"},
    {"width", "width < 0 ? topk + tail*(kpool - 1) : width"},
};

static const struct array arrays[] = {
    {"selected", ARRAY_POISONED},
    {"pool_indices", ARRAY_POISONED},
    {"valid_cand", ARRAY_POISONED},
    {"valid_keys", ARRAY_POISONED},
    {"q_pos", ARRAY_POISONED},
    {"q_mask", ARRAY_POISONED},
    {"out", ARRAY_EXACT},
    {DSA_GEOM("len, pools, complete, selected_k, pow2(selected_k)")},
};

struct build {
    const struct case_line *c;
    struct dsa_keys keys;
    uint32_t pools, selected_k; /* that count */
    uint64_t selected_width, pool_width;
    int64_t first_key;
    int32_t *tokens;   /* [pools, kpool] */
    uint8_t *complete; /* [pools] */
    uint32_t *order;   /* [pools] */
    int32_t *selected, *pool_indices;
    uint8_t *valid_cand;
};

static bool is_candidate(const struct build *b, uint32_t pool, int64_t pos)
{
    uint32_t kpool = b->keys.kpool;
    return b->complete[pool] && b->tokens[(uint64_t)pool * kpool + kpool - 1] <= pos;
}

/* How many entries of the row count: what a pass over this row alone would select. */
static uint32_t row_count(const struct build *b, int64_t pos)
{
    int64_t seen = (pos + 1 - b->first_key) / b->keys.kpool;
    if (pos + 1 <= b->first_key) return 0;
    return seen < b->selected_k ? (uint32_t)seen : b->selected_k;
}

static void select_pool(struct build *b, uint64_t row, uint32_t at, int32_t pool, int64_t pos)
{
    uint64_t kpool = b->keys.kpool;
    b->selected[row * b->selected_width + at] = pool;
    if (pool < 0) return;
    bool candidate = is_candidate(b, (uint32_t)pool, pos);
    b->valid_cand[row * b->pool_width + (uint32_t)pool] = candidate;
    /* Only candidates are expanded: the tokens of other pools must not matter. */
    if (!candidate) return;
    memcpy(b->pool_indices + (uint64_t)pool * kpool, b->tokens + (uint64_t)pool * kpool,
           kpool * sizeof(int32_t));
}

/* The candidates of a row in an order that only depends on the row and its position, each pool at
 * most once; what is left over goes to the pools that are no candidates, then to -1. */
static void fill_row(struct build *b, uint32_t row, int64_t pos)
{
    uint64_t key = dsa_row_key(b->c, row);
    struct rng r = {b->keys.seed, STREAM_PICK, key << 32};
    struct rng holes = {b->keys.seed, STREAM_HOLE, key << 32};
    uint32_t count = row_count(b, pos), seen = 0, others = 0;
    enum pick pick = (enum pick)case_int(b->c, "pick");
    while (seen < b->pools && (int64_t)b->keys.pad + (int64_t)(seen + 1) * b->keys.kpool <= pos + 1)
        seen++;
    rng_permutation(&r, b->order, seen);
    for (uint32_t i = 0, next = 0; i < count; i++) {
        bool hole = pick == PICK_NONE || (pick == PICK_HOLES && rng_one_in(&holes, 3));
        if (hole && (pick == PICK_NONE || rng_one_in(&holes, 2))) {
            select_pool(b, row, i, -1, pos);
            continue;
        }
        while (!hole && next < seen && !is_candidate(b, b->order[next], pos)) next++;
        while (others < b->pools && is_candidate(b, others, pos)) others++;
        if (!hole && next < seen)
            select_pool(b, row, i, (int32_t)b->order[next++], pos);
        else
            select_pool(b, row, i, others < b->pools ? (int32_t)others++ : -1, pos);
    }
}

static void fill_rows(struct build *b, struct instance *in)
{
    const struct case_line *c = b->c;
    int32_t *q_pos = instance_data(in, "q_pos");
    uint8_t *q_mask = instance_data(in, "q_mask"), *valid = instance_data(in, "valid_keys");
    uint32_t rows = case_u32(c, "rows");
    int64_t last = -1;
    for (uint32_t row = 0; row < rows; row++) {
        int64_t pos = dsa_row_item(c, "pos", row, case_int(c, "len") - 1);
        q_mask[row] = (uint8_t)dsa_row_item(c, "mask", row, 1);
        /* Nothing else of a masked row matters: poison in one run, a row like any other in the
         * next. */
        if (!q_mask[row] && in->poison == POISON_NAN) continue;
        q_pos[row] = (int32_t)pos;
        fill_row(b, row, pos);
        if (pos > last) last = pos;
    }
    /* Only the tail counts keys, and none after the position. */
    for (int64_t t = 0; case_int(c, "tail") && t <= last && t < b->keys.len; t++)
        valid[t] = dsa_key_valid(&b->keys, (uint32_t)t);
}

static bool fill(const struct case_line *c, struct instance *in)
{
    struct build b = {.c = c,
                      .keys = dsa_keys_of(c),
                      .pools = case_number_u32(c, "pools"),
                      .selected_k = case_number_u32(c, "selected_k"),
                      .selected_width = instance_find(in, "selected")->shape[1],
                      .pool_width = instance_find(in, "valid_cand")->shape[1],
                      .first_key = case_number(c, "first_key"),
                      .selected = instance_data(in, "selected"),
                      .pool_indices = instance_data(in, "pool_indices"),
                      .valid_cand = instance_data(in, "valid_cand")};
    b.tokens = malloc(((uint64_t)b.pools * b.keys.kpool + 1) * sizeof *b.tokens);
    b.complete = malloc((uint64_t)b.pools + 1);
    b.order = malloc(((uint64_t)b.pools + 1) * sizeof *b.order);
    bool fine = b.tokens && b.complete && b.order;
    if (fine) {
        dsa_pool_tables(&b.keys, b.pools, b.tokens, b.complete);
        fill_rows(&b, in);
    }
    free(b.tokens);
    free(b.complete);
    free(b.order);
    return fine;
}

static void sample(struct case_line *c, struct rng *r, enum tier tier, uint64_t index)
{
    uint32_t kpool = (uint32_t)rng_range(r, 1, 16), rows = (uint32_t)rng_range(r, 1, 4);
    uint32_t longest = tier == TIER_FULL ? 3000 : 400;
    uint32_t topk = kpool * (uint32_t)rng_edge(r, 1, 1 + longest / kpool / 2, 1 + 256 / kpool);
    int64_t around[] = {kpool, topk, topk + kpool, 256};
    uint32_t len = (uint32_t)rng_edge(r, 1, longest, rng_pick(r, around, 4));
    uint32_t pad = rng_one_in(r, 3) ? (uint32_t)rng_edge(r, 0, len - 1, kpool) : 0;
    int64_t positions[4], mask[4];
    for (uint32_t row = 0; row < rows; row++) {
        positions[row] = rng_one_in(r, 8) ? rng_range(r, -2, 1)
                                          : rng_edge(r, 0, len + 2, rng_pick(r, around, 4));
        mask[row] = !rng_one_in(r, 5);
    }
    /* Consecutive positions at the end, as in speculative verification. */
    if (rng_one_in(r, 3)) {
        for (uint32_t row = 0; row < rows; row++) positions[row] = (int64_t)len - rows + row;
    }
    case_set_int(c, "rows", rows);
    case_set_int(c, "len", len);
    case_set_int(c, "kpool", kpool);
    case_set_int(c, "topk", topk);
    case_set_int(c, "tail", !rng_one_in(r, 4));
    case_set_int(c, "pad", pad);
    case_set_list(c, "pos", positions, rows);
    if (rng_one_in(r, 3)) case_set_list(c, "mask", mask, rows);
    case_set_int(c, "invalid", (int64_t)(index / 3 + index) % 11 % 7);
    case_set_int(c, "pick", (int64_t)index % 5 % 3);
    if (rng_one_in(r, 6)) case_set_int(c, "select", rng_range(r, 0, topk / kpool));
    /* Without a valid token there is no first one: any number up to the length may stand for it. */
    if (case_enum_is(c, "invalid", "all") && rng_one_in(r, 2))
        case_set_int(c, "firstkey", rng_range(r, 0, len));
    /* One behind the first valid token is refused wherever a query sees that token. */
    else if (case_int(c, "tail") && rng_one_in(r, 40))
        case_set_int(c, "firstkey", rng_range(r, pad < len ? pad + 1 : len, len));
    if (rng_one_in(r, 3)) {
        case_set_int(c, "rows", 1);
        case_set_int(c, "geom", rng_range(r, 1, 2));
        case_set_int(c, "slack", rng_range(r, 1, 5));
        case_set_int(c, "select", -1);
    }
}

static const struct relation relations[] = {
    {DSA_ROWS_REVERSED},
    {DSA_ROW_ALONE},
    /* Tokens that become valid must not lie before a first_key that was set by hand. */
    {"later-tokens-changed", RELATION_SAME_BITS, "change < 0 && firstkey < 0 && rows",
     DSA_CHANGE_LATER, DSA_ROW_POS " < new.change ? row : -1"},
    /* A row does not depend on what comes after its position, and so not on how long the context
     * is: the place of its tail does not move when more pools are complete. */
    {"context-grown", RELATION_SAME_BITS, "pos && select < 0 && !invalid.end",
     "len = len + draw(1, 40)", DSA_ROW_POS " < len ? row : -1"},
    {DSA_GEOMETRY_DROPPED},
    {0}};

const struct op op_dsa_expand = {
    .name = "dsa_expand_selection",
    .modules = (const char *const[]){"dsa_indexer", NULL},
    .family = "dsa",
    .summary = "token ids of the selected pools and the tail",
    .contract = CONTRACT_EXACT,
    USUAL_TABLES,
    .wild = "rows len kpool topk pad select pools width firstkey",
    .steps = (const struct step[]){{&interface_dsa_expand_selection}, {0}},
    .fill = fill,
};
