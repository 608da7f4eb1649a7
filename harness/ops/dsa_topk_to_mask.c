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
    {"rows", PARAM_INT, false, "1", 0, UINT32_MAX, NULL, "query rows", 1},
    {"width", PARAM_INT, false, "19", 0, UINT32_MAX, NULL, "ids of a row", 1},
    {"len", PARAM_INT, false, "37", 0, UINT32_MAX, NULL, "tokens", 1},
    {"ids", PARAM_ENUM, false, "unique", 0, 0, id_names, "what a row holds", 0},
    {"order", PARAM_INT, true, "0", 0, INT32_MAX, NULL, "another order of each row; 0: as drawn",
     0},
    {"repeat", PARAM_INT, true, "0", 0, 1, NULL, "every row twice over: twice as wide", 0},
    {"first", PARAM_INT, true, "0", 0, UINT32_MAX, NULL, "which row comes first", 0},
    {"reverse", PARAM_INT, true, "0", 0, 1, NULL, "rows in reverse order", 0},
    {"seed", PARAM_SEED, false, "0x1", 0, 0, NULL, "of every byte", 0},
};

static const struct preset presets[] = {{"glm53", "width=2051,len=2600"}, {NULL, NULL}};

static const char *const always[] = {"dsa_topk_to_mask:model=glm53,rows=2,seed=0x53",
                                     "dsa_topk_to_mask:width=2051,len=12289,ids=outside,seed=0x54",
                                     "dsa_topk_to_mask:rows=3,width=1,len=257,ids=edges,seed=0x55",
                                     "dsa_topk_to_mask:rows=2,width=0,len=5,seed=0x56", NULL};

static uint32_t width_of(const struct case_line *c)
{
    return case_u32(c, "width") << (case_int(c, "repeat") != 0);
}

static void gpu_args(const struct case_line *c, struct gpu_dsa_topk_to_mask *a)
{
    *a = (struct gpu_dsa_topk_to_mask){
        .Q = case_u32(c, "rows"), .width = width_of(c), .S = case_u32(c, "len")};
}

static void ref_args(const struct case_line *c, const struct instance *in,
                     struct ref_dsa_topk_to_mask *g)
{
    *g = (struct ref_dsa_topk_to_mask){
        .Q = case_u32(c, "rows"), .width = width_of(c), .S = case_u32(c, "len")};
    if (in) g->topk = instance_data(in, "topk");
}

static bool ref_accepts(const struct case_line *c, const struct instance *in,
                        struct ref_refusal *why)
{
    struct ref_dsa_topk_to_mask g;
    ref_args(c, in, &g);
    return ref_dsa_topk_to_mask_accepts(&g, why);
}

static enum gpu_status gpu_check(const struct case_line *c, const struct instance *in,
                                 struct gpu_report *report)
{
    struct gpu_dsa_topk_to_mask a;
    gpu_args(c, &a);
    return gpu_dsa_topk_to_mask_check(&a, report);
}

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
    if (case_int(c, "order")) shuffle(out, width_of(c), seed + case_u32(c, "order"), key, order);
}

static bool build(const struct case_line *c, struct instance *in)
{
    uint64_t rows = case_u32(c, "rows"), len = case_u32(c, "len"), width = width_of(c);
    uint64_t id_shape[] = {rows, width}, mask_shape[] = {rows, len};
    struct tensor *ids =
        instance_add(in, "topk", DTYPE_I32, ROLE_IN, CONTRACT_ANY, 2, id_shape, "query,slot");
    uint32_t *order = malloc(((len > width ? len : width) + 1) * sizeof *order);
    bool fine =
        ids && order &&
        instance_add(in, "mask", DTYPE_U8, ROLE_OUT, CONTRACT_EXACT, 2, mask_shape, "query,token");
    for (uint64_t row = 0; fine && row < rows; row++)
        fill_row(c, (uint32_t)row, (int32_t *)(void *)in->tensors[0].data + row * width, order);
    free(order);
    return fine;
}

static enum gpu_status launch(const struct gpu_target *targets, const struct case_line *c,
                              const struct instance *in, const struct gpu_buffer *buffers,
                              struct gpu_report *report)
{
    struct gpu_dsa_topk_to_mask a;
    gpu_args(c, &a);
    a.topk = &buffers[instance_index(in, "topk")];
    a.mask = &buffers[instance_index(in, "mask")];
    return gpu_dsa_topk_to_mask(&targets[0], &a, report);
}

static void oracle(const struct case_line *c, const struct instance *in,
                   const struct ref_error_model *model, const uint8_t *const *got,
                   struct expected *e)
{
    struct ref_dsa_topk_to_mask g;
    ref_args(c, in, &g);
    ref_dsa_topk_to_mask(&g, e[instance_index(in, "mask")].exact);
}

static void sample(struct case_line *c, struct rng *r, enum tier tier, uint64_t index)
{
    static const int64_t around[] = {32, 256, 512};
    uint32_t longest = tier == TIER_FULL ? 13000 : 1200;
    case_set_int(c, "rows", rng_range(r, 1, 4));
    case_set_int(c, "len", rng_edge(r, 1, longest, rng_pick(r, around, 3)));
    case_set_int(c, "width", rng_edge(r, 0, longest / 2, rng_pick(r, around, 3)));
    case_set_int(c, "ids", (int64_t)(index % IDS_KINDS));
}

static void sample_wild(struct case_line *c, struct rng *r)
{
    static const char *const keys[] = {"rows", "len", "width"};
    sample(c, r, TIER_QUICK, rng_u32(r));
    for (uint32_t faults = (uint32_t)rng_range(r, 0, 2); faults; faults--)
        dsa_absurd_param(c, r, keys, 3);
}

static bool edit_order(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    if (case_int(base, "width") < 2) return false;
    case_set_int(changed, "order", rng_range(r, 1, 1 << 20));
    return true;
}

static bool edit_repeat(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    if (!case_int(base, "width")) return false;
    case_set_int(changed, "repeat", 1);
    return true;
}

static const struct relation relations[] = {
    {"rows-reversed", RELATION_SAME_BITS, dsa_edit_reversed, dsa_row_reversed},
    {"row-alone", RELATION_SAME_BITS, dsa_edit_alone, dsa_row_alone},
    {"ids-permuted", RELATION_SAME_BITS, edit_order, NULL},
    {"ids-repeated", RELATION_SAME_BITS, edit_repeat, NULL},
    {NULL, RELATION_SAME_BITS, NULL, NULL}};

static const char *const modules[] = {"dsa_indexer", NULL};

const struct op op_dsa_topk_to_mask = {
    .name = "dsa_topk_to_mask",
    .modules = modules,
    .family = "dsa",
    .summary = "a selection as a mask: set membership",
    .contract = CONTRACT_EXACT,
    .params = params,
    .n_params = sizeof params / sizeof *params,
    .presets = presets,
    .always = always,
    .relations = relations,
    .sample = sample,
    .sample_wild = sample_wild,
    .ref_accepts = ref_accepts,
    .gpu_check = gpu_check,
    .build = build,
    .launch = launch,
    .oracle = oracle,
};
