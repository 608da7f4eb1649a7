/* qsa_gather: selected tokens copied out of their pages (ops.md §1). */
#include <stdlib.h>

#include "harness/ops/qsa_common.h"

enum { STREAM_SELECT = 4 };

static const char *const regimes[] = {"normal", "bits", "walk", "subnormal", NULL};
enum { REGIMES = sizeof regimes / sizeof *regimes - 1 };

enum order { ORDER_BLOCKS, ORDER_ASCENDING, ORDER_RANDOM, ORDER_REVERSED, ORDER_REPEATED, ORDERS };
static const char *const order_names[] = {"blocks",   "ascending", "random",
                                          "reversed", "repeated",  NULL};
static const char *const fault_names[] = {"none", "table", "selection", NULL};

static const struct param params[] = {
    COUNT_KEY("len", "37", "tokens of the sequence", 1),
    COUNT_KEY("count", "9", "tokens to gather", 1),
    ENUM_KEY("order", "blocks", order_names,
             "which tokens: whole blocks in a random order, or single ones", 1),
    COUNT_KEY("ratio", "4", "tokens of a block", 1),
    COUNT_KEY("block", "16", "slots of a page", 1),
    COUNT_KEY("nkv", "2", "heads of a token", 1),
    COUNT_KEY("hd", "32", "channels of a head", 32),
    ENUM_KEY("pages", "shuffled", qsa_page_names, "order of physical pages", 0),
    {"spare", PARAM_OFFSET, true, "+1", -4096, 4096, NULL, "table entries past the sequence", 0},
    RARE_COUNT_KEY("pageseed", "0", "another order of pages", 0),
    RARE_COUNT_KEY("skip", "0", "the selection starts with this entry", 0),
    {"fault", PARAM_ENUM, true, "none", 0, 0, fault_names, "break a rule in the index tensors", 0},
    ENUM_KEY("regime", "normal", regimes, "values", 0),
    SEED_KEY,
};

static const struct preset presets[] = {
    {"qwen38", "len=2600,count=2049,ratio=4,block=16,nkv=2,hd=256"}, {NULL, NULL}};

static const char *const always[] = {
    "qsa_gather:model=qwen38,seed=0x38",
    "qsa_gather:model=qwen38,len=4096,count=70,order=random,pages=high,regime=bits,seed=0x39",
    "qsa_gather:len=1,count=1,ratio=1,block=1,nkv=1,hd=1024,spare=0,seed=0x3a", NULL};

static const struct number numbers[] = {
    {"n_sel", "count"},
    {"seq_len", "len"},
    {"block_size", "block"},
    {"table_len", QSA_TABLE_LEN},
};

static const struct array arrays[] = {
    {"k_cache", ARRAY_IN}, {"v_cache", ARRAY_IN},  {"block_table", ARRAY_POISONED},
    {"sel", ARRAY_IN},     {"k_out", ARRAY_EXACT}, {"v_out", ARRAY_EXACT},
};

/* The selection that a case names, before `skip`: entry i of an endless row. */
static int32_t token_at(const struct case_line *c, const uint32_t *blocks, uint64_t i)
{
    uint64_t len = case_u32(c, "len"), ratio = case_u32(c, "ratio"), complete = len / ratio;
    struct rng r = {case_seed(c), STREAM_SELECT, i * 4};
    switch ((enum order)case_int(c, "order")) {
    case ORDER_ASCENDING:
        return (int32_t)(i % len);
    case ORDER_RANDOM:
        return (int32_t)rng_range(&r, 0, (int64_t)len - 1);
    case ORDER_REVERSED:
        return (int32_t)(len - 1 - i % len);
    case ORDER_REPEATED:
        return (int32_t)(case_seed(c) % len);
    case ORDER_BLOCKS:
    case ORDERS:
        break;
    }
    if (i < complete * ratio) return (int32_t)(blocks[i / ratio] * ratio + i % ratio);
    return (int32_t)(i % len);
}

static bool fill_selection(const struct case_line *c, uint32_t count, int32_t *sel)
{
    uint32_t complete = case_u32(c, "len") / case_u32(c, "ratio");
    uint32_t *blocks = malloc((complete + 1) * sizeof *blocks);
    struct rng r = {case_seed(c), STREAM_SELECT, UINT64_C(1) << 40};
    if (!blocks) return false;
    rng_permutation(&r, blocks, complete);
    for (uint64_t i = 0; i < count; i++) sel[i] = token_at(c, blocks, case_u32(c, "skip") + i);
    free(blocks);
    return true;
}

static bool fill(const struct case_line *c, struct instance *in)
{
    uint32_t len = case_u32(c, "len"), count = case_u32(c, "count");
    int32_t *sel = instance_data(in, "sel");
    uint8_t *used = calloc((size_t)len + 1, 1);
    bool fine = used && (!len || fill_selection(c, count, sel));
    for (uint32_t i = 0; fine && i < count && len; i++) used[sel[i]] = 1;
    fine = fine && qsa_cache_fill(c, in, used, case_enum_is(c, "fault", "table"));
    if (case_enum_is(c, "fault", "selection") && count) sel[count - 1] = (int32_t)len;
    free(used);
    return fine;
}

static void sample(struct case_line *c, struct rng *r, enum tier tier, uint64_t index)
{
    static const int64_t dims[] = {32, 64, 96, 128, 256, 512, 1024};
    int64_t ratio = rng_range(r, 1, 8), block = ratio * rng_range(r, 1, 64 / ratio);
    int64_t longest = tier == TIER_FULL ? 2000 : 160;
    case_set_int(c, "ratio", ratio);
    case_set_int(c, "block", block);
    case_set_int(c, "len", rng_edge(r, 1, longest, block));
    case_set_int(c, "count", rng_edge(r, 1, longest / 4, ratio));
    case_set_int(c, "nkv", rng_range(r, 1, 3));
    case_set_int(c, "hd", rng_pick(r, dims, rng_one_in(r, 6) ? 7 : 4));
    /* Every regime meets every structure: the strides are coprime to each other's counts. */
    case_set_enum(c, "regime", regimes[index % REGIMES]);
    case_set_int(c, "order", (int64_t)(index % ORDERS));
    qsa_sample_pages(c, r, index);
}

static const struct relation relations[] = {
    {QSA_PAGES_PERMUTED},
    {QSA_BLOCK_SIZE_CHANGED},
    {"first-slots-dropped", RELATION_SAME_BITS, "count >= 2",
     "skip = skip + draw(1, count - 1), count = count + skip - new.skip", "row + new.skip - skip"},
    {0}};

const struct op op_qsa_gather = {
    .name = "qsa_gather",
    .modules = (const char *const[]){"qsa_indexer", NULL},
    .family = "qsa",
    .summary = "selected tokens copied out of their pages",
    .contract = CONTRACT_EXACT,
    USUAL_TABLES,
    .steps = (const struct step[]){{&interface_qsa_gather}, {0}},
    .wild = "len count ratio block nkv hd spare",
    .lay_out = qsa_lay_out,
    .fill = fill,
};
