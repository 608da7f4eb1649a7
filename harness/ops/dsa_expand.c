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
    {"rows", PARAM_INT, false, "1", 0, UINT32_MAX, NULL, "query rows", 1},
    {"len", PARAM_INT, false, "37", 0, UINT32_MAX, NULL, "tokens, the padding included", 4},
    {"kpool", PARAM_INT, false, "4", 0, UINT32_MAX, NULL, "tokens of a pool", 1},
    {"topk", PARAM_INT, false, "16", 0, UINT32_MAX, NULL, "selected tokens, without the tail", 4},
    {"tail", PARAM_INT, false, "1", 0, 1, NULL, "always select the pool in progress", 0},
    {"pad", PARAM_INT, false, "0", 0, UINT32_MAX, NULL, "left padding, tokens", 0},
    {"select", PARAM_INT, true, "-1", -1, UINT32_MAX, NULL,
     "select_k; -1: the lesser of topk/kpool and the complete pools", -1},
    {"pools", PARAM_INT, true, "-1", -1, UINT32_MAX, NULL,
     "pools there are; -1: up to the trailing partial one", -1},
    {"width", PARAM_INT, true, "-1", -1, UINT32_MAX, NULL, "row width; -1: topk and the tail", -1},
    {"firstkey", PARAM_INT, true, "-1", INT32_MIN, INT32_MAX, NULL,
     "first_key; -1: after the padding", -1},
    {"pos", PARAM_LIST, false, "[]", INT32_MIN, INT32_MAX, NULL,
     "position of each row; a shorter list repeats; empty: the last token", 0},
    {"mask", PARAM_LIST, true, "[]", 0, 1, NULL, "q_mask of each row, repeating; empty: all 1", 1},
    {"invalid", PARAM_ENUM, false, "none", 0, 0, dsa_invalid_names, "which tokens are invalid", 0},
    {"pick", PARAM_ENUM, false, "best", 0, 0, pick_names, "what the selection holds", 0},
    {"geom", PARAM_ENUM, false, "none", 0, 0, dsa_geom_names, "geometry vector, one row only", 0},
    {"slack", PARAM_INT, true, "2", 0, 4096, NULL, "pools the scalars have more than the vector",
     1},
    {"change", PARAM_INT, true, "-1", -1, INT32_MAX, NULL,
     "from this token on the data is other data", -1},
    {"first", PARAM_INT, true, "0", 0, UINT32_MAX, NULL, "which row comes first", 0},
    {"reverse", PARAM_INT, true, "0", 0, 1, NULL, "rows in reverse order", 0},
    {"seed", PARAM_SEED, false, "0x1", 0, 0, NULL, "of every byte", 0},
};

static const struct preset presets[] = {{"glm53", "len=2600,kpool=4,topk=2048,tail=1"},
                                        {NULL, NULL}};

static const char *const always[] = {
    "dsa_expand_selection:model=glm53,rows=3,pos=[2599,2598,2047],seed=0x53",
    "dsa_expand_selection:model=glm53,rows=4,pos=[2046,3,2,0],mask=[1,1,0,1],seed=0x54",
    "dsa_expand_selection:len=40,pad=3,kpool=16,topk=32,rows=3,pos=[2,18,39],seed=0x55",
    "dsa_expand_selection:len=33,kpool=8,topk=16,tail=0,invalid=all,seed=0x56", NULL};

static struct dsa_keys keys_of(const struct case_line *c)
{
    return (struct dsa_keys){.len = case_u32(c, "len"),
                             .pad = case_u32(c, "pad"),
                             .kpool = case_u32(c, "kpool"),
                             .invalid = (enum dsa_invalid)case_int(c, "invalid"),
                             .seed = case_seed(c),
                             .change = case_int(c, "change")};
}

static int64_t first_key(const struct case_line *c)
{
    int64_t first = case_int(c, "firstkey");
    return first != -1 ? first : case_int(c, "pad");
}

static struct dsa_extent extent_of(const struct case_line *c)
{
    uint32_t len = case_u32(c, "len"), kpool = case_u32(c, "kpool"), topk = case_u32(c, "topk");
    int64_t select = case_int(c, "select"), pools = case_int(c, "pools"), first = first_key(c);
    struct dsa_extent e = {.len = len,
                           .pools =
                               pools >= 0 ? (uint32_t)pools : dsa_pools(len, first, kpool, true),
                           .complete = dsa_pools(len, first, kpool, false)};
    uint32_t most = kpool ? topk / kpool : 0;
    if (e.complete > e.pools) e.complete = e.pools;
    e.select_k = select >= 0 ? (uint32_t)select : e.complete < most ? e.complete : most;
    e.np2 = (uint32_t)dsa_power_above(e.select_k);
    dsa_extent_close(&e, (enum dsa_geom)case_int(c, "geom"), case_u32(c, "slack"), kpool);
    /* The scalars' own select_k has the same limit. */
    if (select < 0 && e.scalar_select_k > most) e.scalar_select_k = most;
    return e;
}

static uint32_t width_of(const struct case_line *c)
{
    int64_t width = case_int(c, "width");
    if (width >= 0) return (uint32_t)width;
    return case_u32(c, "topk") + (case_int(c, "tail") ? case_u32(c, "kpool") - 1 : 0);
}

static void gpu_args(const struct case_line *c, const struct dsa_extent *e,
                     const struct instance *in, struct gpu_dsa_expand_selection *a)
{
    *a = (struct gpu_dsa_expand_selection){.Q = case_u32(c, "rows"),
                                           .P = e->scalar_pools,
                                           .KP = case_u32(c, "kpool"),
                                           .S = e->scalar_len,
                                           .select_k = e->scalar_select_k,
                                           .width = width_of(c),
                                           .index_topk = case_u32(c, "topk"),
                                           .first_key = (int32_t)first_key(c),
                                           .always_tail = (int32_t)case_int(c, "tail"),
                                           .host_geom = e->given ? e->numbers : NULL};
    if (!in) return;
    a->host_valid_keys = instance_data(in, "valid_keys");
    a->host_q_pos = instance_data(in, "q_pos");
    a->host_q_mask = instance_data(in, "q_mask");
}

static void ref_args(const struct case_line *c, const struct dsa_extent *e,
                     const struct instance *in, struct ref_dsa_expand_selection *g)
{
    *g = (struct ref_dsa_expand_selection){.Q = case_u32(c, "rows"),
                                           .P = e->scalar_pools,
                                           .KP = case_u32(c, "kpool"),
                                           .S = e->scalar_len,
                                           .select_k = e->scalar_select_k,
                                           .width = width_of(c),
                                           .index_topk = case_u32(c, "topk"),
                                           .first_key = (int32_t)first_key(c),
                                           .always_tail = (int32_t)case_int(c, "tail"),
                                           .geom = e->given ? e->numbers : NULL};
    if (!in) return;
    g->selected = instance_data(in, "selected");
    g->pool_indices = instance_data(in, "pool_indices");
    g->valid_cand = instance_data(in, "valid_cand");
    g->valid_keys = instance_data(in, "valid_keys");
    g->q_pos = instance_data(in, "q_pos");
    g->q_mask = instance_data(in, "q_mask");
}

static bool ref_accepts(const struct case_line *c, const struct instance *in,
                        struct ref_refusal *why)
{
    struct dsa_extent e = extent_of(c);
    struct ref_dsa_expand_selection g;
    ref_args(c, &e, in, &g);
    return ref_dsa_expand_selection_accepts(&g, why);
}

static enum gpu_status gpu_check(const struct case_line *c, const struct instance *in,
                                 struct gpu_report *report)
{
    struct dsa_extent e = extent_of(c);
    struct gpu_dsa_expand_selection a;
    gpu_args(c, &e, in, &a);
    return gpu_dsa_expand_selection_check(&a, report);
}

static bool add_tensors(const struct case_line *c, struct instance *in, const struct dsa_extent *e)
{
    uint64_t rows = case_u32(c, "rows"), kpool = case_u32(c, "kpool");
    uint64_t selected_shape[] = {rows, e->scalar_select_k}, slot_shape[] = {e->scalar_pools, kpool};
    uint64_t cand_shape[] = {rows, e->scalar_pools}, valid_shape[] = {e->scalar_len};
    uint64_t row_shape[] = {rows}, out_shape[] = {rows, width_of(c)};
    return instance_add(in, "selected", DTYPE_I32, ROLE_IN, CONTRACT_ANY, 2, selected_shape,
                        "query,item") &&
           instance_add(in, "pool_indices", DTYPE_I32, ROLE_IN, CONTRACT_ANY, 2, slot_shape,
                        "pool,slot") &&
           instance_add(in, "valid_cand", DTYPE_U8, ROLE_IN, CONTRACT_ANY, 2, cand_shape,
                        "query,pool") &&
           instance_add(in, "valid_keys", DTYPE_U8, ROLE_IN, CONTRACT_ANY, 1, valid_shape,
                        "token") &&
           instance_add(in, "q_pos", DTYPE_I32, ROLE_IN, CONTRACT_ANY, 1, row_shape, "query") &&
           instance_add(in, "q_mask", DTYPE_U8, ROLE_IN, CONTRACT_ANY, 1, row_shape, "query") &&
           instance_add(in, "out", DTYPE_I32, ROLE_OUT, CONTRACT_EXACT, 2, out_shape,
                        "query,slot") &&
           dsa_add_geom(in, e);
}

struct build {
    const struct case_line *c;
    const struct dsa_extent *e;
    struct dsa_keys keys;
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
    int64_t seen = (pos + 1 - first_key(b->c)) / b->keys.kpool;
    if (pos + 1 <= first_key(b->c)) return 0;
    return seen < b->e->select_k ? (uint32_t)seen : b->e->select_k;
}

static void select_pool(struct build *b, uint64_t row, uint32_t at, int32_t pool, int64_t pos)
{
    uint64_t kpool = b->keys.kpool;
    b->selected[row * b->e->scalar_select_k + at] = pool;
    if (pool < 0) return;
    bool candidate = is_candidate(b, (uint32_t)pool, pos);
    b->valid_cand[row * b->e->scalar_pools + (uint32_t)pool] = candidate;
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
    while (seen < b->e->pools &&
           (int64_t)b->keys.pad + (int64_t)(seen + 1) * b->keys.kpool <= pos + 1)
        seen++;
    rng_permutation(&r, b->order, seen);
    for (uint32_t i = 0, next = 0; i < count; i++) {
        bool hole = pick == PICK_NONE || (pick == PICK_HOLES && rng_one_in(&holes, 3));
        if (hole && (pick == PICK_NONE || rng_one_in(&holes, 2))) {
            select_pool(b, row, i, -1, pos);
            continue;
        }
        while (!hole && next < seen && !is_candidate(b, b->order[next], pos)) next++;
        while (others < b->e->pools && is_candidate(b, others, pos)) others++;
        if (!hole && next < seen)
            select_pool(b, row, i, (int32_t)b->order[next++], pos);
        else
            select_pool(b, row, i, others < b->e->pools ? (int32_t)others++ : -1, pos);
    }
}

static void fill_rows(struct build *b, struct instance *in)
{
    const struct case_line *c = b->c;
    int32_t *q_pos = instance_data(in, "q_pos");
    uint8_t *q_mask = instance_data(in, "q_mask"), *valid = instance_data(in, "valid_keys");
    uint32_t rows = case_u32(c, "rows");
    int64_t last = -1;
    poison_fill(q_pos, DTYPE_I32, rows, in->poison);
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

static bool build(const struct case_line *c, struct instance *in)
{
    struct dsa_extent e = extent_of(c);
    struct build b = {.c = c, .e = &e, .keys = keys_of(c)};
    if (!add_tensors(c, in, &e)) return false;
    b.tokens = malloc(((uint64_t)e.pools * b.keys.kpool + 1) * sizeof *b.tokens);
    b.complete = malloc((uint64_t)e.pools + 1);
    b.order = malloc(((uint64_t)e.pools + 1) * sizeof *b.order);
    bool fine = b.tokens && b.complete && b.order;
    if (fine) {
        for (uint32_t i = 0; i < in->n_tensors; i++) {
            struct tensor *t = &in->tensors[i];
            if (t->role == ROLE_IN && strcmp(t->name, "geom"))
                poison_fill(t->data, t->dtype, t->elems, in->poison);
        }
        b.selected = instance_data(in, "selected");
        b.pool_indices = instance_data(in, "pool_indices");
        b.valid_cand = instance_data(in, "valid_cand");
        dsa_pool_tables(&b.keys, e.pools, b.tokens, b.complete);
        fill_rows(&b, in);
    }
    free(b.tokens);
    free(b.complete);
    free(b.order);
    return fine;
}

static enum gpu_status launch(const struct gpu_target *targets, const struct case_line *c,
                              const struct instance *in, const struct gpu_buffer *buffers,
                              struct gpu_report *report)
{
    struct dsa_extent e = extent_of(c);
    struct gpu_dsa_expand_selection a;
    gpu_args(c, &e, in, &a);
    a.selected = &buffers[instance_index(in, "selected")];
    a.pool_indices = &buffers[instance_index(in, "pool_indices")];
    a.valid_cand = &buffers[instance_index(in, "valid_cand")];
    a.valid_keys = &buffers[instance_index(in, "valid_keys")];
    a.q_pos = &buffers[instance_index(in, "q_pos")];
    a.q_mask = &buffers[instance_index(in, "q_mask")];
    a.out = &buffers[instance_index(in, "out")];
    a.geom = dsa_geom_buffer(in, &e, buffers);
    return gpu_dsa_expand_selection(&targets[0], &a, report);
}

static void oracle(const struct case_line *c, const struct instance *in,
                   const struct ref_error_model *model, const uint8_t *const *got,
                   struct expected *e)
{
    struct dsa_extent extent = extent_of(c);
    struct ref_dsa_expand_selection g;
    ref_args(c, &extent, in, &g);
    ref_dsa_expand_selection(&g, (int32_t *)(void *)e[instance_index(in, "out")].exact);
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

static void sample_wild(struct case_line *c, struct rng *r)
{
    static const char *const keys[] = {"rows", "len",    "kpool", "topk",
                                       "pad",  "select", "pools", "width"};
    sample(c, r, TIER_QUICK, rng_u32(r));
    for (uint32_t faults = (uint32_t)rng_range(r, 0, 2); faults; faults--) {
        if (rng_one_in(r, 6))
            case_set_int(c, "firstkey", rng_range(r, -3, case_int(c, "len") + 3));
        else
            dsa_absurd_param(c, r, keys, 8);
    }
}

static bool edit_later(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    uint32_t row = (uint32_t)rng_range(r, 0, case_int(base, "rows") - 1);
    int64_t pos = dsa_row_item(base, "pos", row, case_int(base, "len") - 1);
    if (case_int(base, "change") >= 0 || pos < -1 || pos + 1 >= case_int(base, "len")) return false;
    /* Tokens that become valid must not lie before a first_key that was set by hand. */
    if (case_int(base, "firstkey") >= 0) return false;
    case_set_int(changed, "change", pos + 1);
    return true;
}

static int64_t row_before_change(const struct case_line *base, const struct case_line *changed,
                                 int64_t row)
{
    int64_t pos = dsa_row_item(base, "pos", (uint32_t)row, case_int(base, "len") - 1);
    return pos < case_int(changed, "change") ? row : -1;
}

/* A row does not depend on what comes after its position, and so not on how long the context is:
 * the place of its tail does not move when more pools are complete. */
static bool edit_longer(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    uint32_t n;
    case_list(base, "pos", &n);
    if (!n || case_int(base, "select") >= 0 || case_enum_is(base, "invalid", "end")) return false;
    case_set_int(changed, "len", case_int(base, "len") + rng_range(r, 1, 40));
    return true;
}

static int64_t row_inside(const struct case_line *base, const struct case_line *changed,
                          int64_t row)
{
    return dsa_row_item(base, "pos", (uint32_t)row, 0) < case_int(base, "len") ? row : -1;
}

static const struct relation relations[] = {
    {"rows-reversed", RELATION_SAME_BITS, .edit = dsa_edit_reversed, .base_row_of = dsa_row_reversed},
    {"row-alone", RELATION_SAME_BITS, .edit = dsa_edit_alone, .base_row_of = dsa_row_alone},
    {"later-tokens-changed", RELATION_SAME_BITS, .edit = edit_later, .base_row_of = row_before_change},
    {"context-grown", RELATION_SAME_BITS, .edit = edit_longer, .base_row_of = row_inside},
    {"geometry-dropped", RELATION_SAME_BITS, .edit = dsa_edit_no_geom},
    {0}};

static const char *const modules[] = {"dsa_indexer", NULL};

const struct op op_dsa_expand = {
    .name = "dsa_expand_selection",
    .modules = modules,
    .family = "dsa",
    .summary = "token ids of the selected pools and the tail",
    .contract = CONTRACT_EXACT,
    .params = params,
    .n_params = sizeof params / sizeof *params,
    .presets = presets,
    .always = always,
    .relations = relations,
    .sample = sample,
    .wild = "-",
    .sample_wild = sample_wild,
    .ref_accepts = ref_accepts,
    .gpu_check = gpu_check,
    .build = build,
    .launch = launch,
    .oracle = oracle,
};
