/* dsa_topk_to_mask: rows of token ids as a mask (ops.md §2). */
#include <stdlib.h>
#include <string.h>

#include "harness/ops/dsa_common.h"

enum { STREAM_IDS = 1, STREAM_KIND = 2, STREAM_ORDER = 3 };

enum ids {
    IDS_UNIQUE, /* a selector's row: unique ids, holes of -1 */
    IDS_DUPLICATES,
    IDS_OUTSIDE, /* ids beyond the sequence and below 0 between the others */
    IDS_NONE,    /* all holes */
    IDS_EDGES,   /* around 0, the length, and the ends of the integers */
    IDS_KINDS
};
static const char *const id_names[] = {"unique", "duplicates", "outside", "none", "edges", NULL};

static const struct param params[] = {
    COUNT_KEY("rows", "1", "query rows", 1),
    COUNT_KEY("width", "19", "ids of a row", 1),
    COUNT_KEY("len", "37", "tokens", 1),
    ENUM_KEY("ids", "unique", id_names, "what a row holds", 0),
    {"order", PARAM_INT, true, "0", 0, INT32_MAX, NULL, "another order of each row; 0: as drawn",
     0},
    RARE_FLAG_KEY("repeat", "every row twice over: twice as wide"),
    RARE_COUNT_KEY("first", "0", "which row comes first", 0),
    RARE_FLAG_KEY("reverse", "rows in reverse order"),
    SEED_KEY,
};

static const struct preset presets[] = {{"glm53", "width=2051,len=2600"}, {NULL, NULL}};

static const char *const always[] = {"dsa_topk_to_mask:model=glm53,rows=2,seed=0x53",
                                     "dsa_topk_to_mask:width=2051,len=12289,ids=outside,seed=0x54",
                                     "dsa_topk_to_mask:rows=3,width=1,len=257,ids=edges,seed=0x55",
                                     "dsa_topk_to_mask:rows=2,width=0,len=5,seed=0x56", NULL};

static const struct number numbers[] = {
    {"Q", "rows"},
    {"S", "len"},
    {"width", "repeat ? 2*width : width"},
};

static int32_t edge_id(uint32_t word, uint32_t len)
{
    const int64_t edges[] = {0,   1,   -1,  (int64_t)len - 1, len,           (int64_t)len + 1,
                             255, 256, 257, INT32_MIN,        INT32_MIN + 1, INT32_MAX};
    return (int32_t)edges[word % 12];
}

static int32_t outside_id(uint32_t word, uint32_t len)
{
    uint32_t size = word >> 1;
    if (word & 1) return -1 - (int32_t)(size % INT32_MAX);
    return (int32_t)(len + size % (INT32_MAX - len));
}

/* Id `i` of a row; `order` is a permutation of the tokens. */
static int32_t id_of(enum ids ids, uint64_t seed, uint64_t at, uint32_t i, uint32_t len,
                     const uint32_t *order)
{
    uint32_t kind = random_u32(seed, STREAM_KIND, at), word = random_u32(seed, STREAM_IDS, at);
    switch (ids) {
    case IDS_UNIQUE:
        return i < len && kind % 4 ? (int32_t)order[i] : -1;
    case IDS_DUPLICATES:
        return (int32_t)(word % (len / 3 + 1));
    case IDS_OUTSIDE:
        return i < len && kind % 2 ? (int32_t)order[i] : outside_id(word, len);
    case IDS_NONE:
        return -1;
    case IDS_EDGES:
        return edge_id(word, len);
    case IDS_KINDS:
        break;
    }
    return -1;
}

static void shuffle(int32_t *row, uint32_t width, uint64_t seed, uint64_t key, uint32_t *order)
{
    struct rng r = {seed, STREAM_ORDER, key << 32};
    rng_permutation(&r, order, width);
    for (uint32_t i = 0; i < width; i++) {
        int32_t moved = row[i];
        row[i] = row[order[i]];
        row[order[i]] = moved;
    }
}

static void fill_row(const struct case_line *c, uint32_t row, int32_t *out, uint32_t *order)
{
    uint32_t width = case_u32(c, "width"), len = case_u32(c, "len");
    uint64_t seed = case_seed(c), key = dsa_row_key(c, row);
    struct rng r = {seed, STREAM_ORDER, (key << 32) + (1u << 31)};
    rng_permutation(&r, order, len);
    for (uint32_t i = 0; i < width; i++)
        out[i] = id_of((enum ids)case_int(c, "ids"), seed, key << 32 | i, i, len, order);
    if (case_int(c, "repeat")) memcpy(out + width, out, width * sizeof *out);
    if (case_int(c, "order"))
        shuffle(out, case_number_u32(c, "width"), seed + case_u32(c, "order"), key, order);
}

static bool fill_ids(const struct filling *f)
{
    uint64_t len = case_u32(f->c, "len"), width = f->t->shape[1];
    uint32_t *order = malloc(((len > width ? len : width) + 1) * sizeof *order);
    for (uint64_t row = 0; order && row < f->t->shape[0]; row++)
        fill_row(f->c, (uint32_t)row, (int32_t *)(void *)f->t->data + row * width, order);
    free(order);
    return order != NULL;
}

static const struct array arrays[] = {{"topk", ARRAY_IN, fill_ids}, {"mask", ARRAY_EXACT}};

static void sample(struct case_line *c, struct rng *r, enum tier tier, uint64_t index)
{
    static const int64_t around[] = {32, 256, 512};
    uint32_t longest = tier == TIER_FULL ? 13000 : 1200;
    case_set_int(c, "rows", rng_range(r, 1, 4));
    case_set_int(c, "len", rng_edge(r, 1, longest, rng_pick(r, around, 3)));
    case_set_int(c, "width", rng_edge(r, 0, longest / 2, rng_pick(r, around, 3)));
    /* Kernels take long rows in stretches; a few ids, for a mask costs by its length. */
    if (rng_one_in(r, 12)) {
        case_set_int(c, "len", rng_range(r, 8000, 17000));
        case_set_int(c, "width", rng_range(r, 1, 300));
    }
    case_set_int(c, "ids", (int64_t)(index % IDS_KINDS));
}

static const struct relation relations[] = {
    {DSA_ROWS_REVERSED},
    {DSA_ROW_ALONE},
    {"ids-permuted", RELATION_SAME_BITS, "width >= 2", "order = draw(1, 1048576)"},
    {"ids-repeated", RELATION_SAME_BITS, "width", "repeat = 1"},
    {0}};

const struct op op_dsa_topk_to_mask = {
    .name = "dsa_topk_to_mask",
    .modules = (const char *const[]){"dsa_indexer", NULL},
    .family = "dsa",
    .summary = "a selection as a mask: set membership",
    .contract = CONTRACT_EXACT,
    USUAL_TABLES,
    .wild = "rows len width",
    .steps = (const struct step[]){{&interface_dsa_topk_to_mask}, {0}},
};
