/* qsa_prefill_attn: attention over listed blocks and the tail (ops.md §1). */
#include <stdlib.h>

#include "harness/ops/qsa_attention.h"

enum { STREAM_LIST = 4, STREAM_HOLES = 5 };

enum ids { IDS_SCATTERED, IDS_PREFIX, IDS_RECENT, IDS_KINDS };
static const char *const id_names[] = {"scattered", "prefix", "recent", NULL};
enum holes { HOLES_END, HOLES_FRONT, HOLES_ALTERNATE, HOLES_INTERIOR, HOLES_ALL, HOLES_KINDS };
static const char *const hole_names[] = {"end", "front", "alternate", "interior", "all", NULL};
enum fault { FAULT_NONE, FAULT_TABLE, FAULT_LIST, FAULT_NEGATIVE, FAULT_DUPLICATE };
static const char *const fault_names[] = {"none", "table", "list", "negative", "duplicate", NULL};

static const struct param params[] = {
    COUNT_KEY("rows", "2", "query rows", 1),
    COUNT_KEY("pos", "37", "position of the first", 0),
    COUNT_KEY("topk", "8", "slots of a list", 1),
    COUNT_KEY("ratio", "4", "tokens of a block", 1),
    COUNT_KEY("block", "16", "slots of a page", 1),
    COUNT_KEY("nq", "4", "query heads", 1),
    COUNT_KEY("nkv", "2", "heads of the cache", 1),
    COUNT_KEY("hd", "32", "channels of a head", 32),
    REAL_KEY("scale", "0.125", "softmax scale", 1),
    ENUM_KEY("ids", "scattered", id_names, "which blocks are listed", 1),
    ENUM_KEY("holes", "end", hole_names, "where a list has its holes", 0),
    RARE_COUNT_KEY("count", "0", "blocks listed; 0: as many as fit", 1),
    ENUM_KEY("pages", "shuffled", qsa_page_names, "order of physical pages", 0),
    {"spare", PARAM_OFFSET, true, "+1", -4096, 4096, NULL, "table entries past the sequence", 0},
    RARE_COUNT_KEY("pageseed", "0", "another order of pages", 0),
    RARE_FROM_KEY("change", "from this token on the data is other data"),
    {"fold", PARAM_OFFSET, true, "+0", -8, 8, NULL, "2^fold moved from the queries to the scale",
     0},
    RARE_FLAG_KEY("double", "values twice as large"),
    {"pool", PARAM_INT, true, "0", 0, 1 << 22, NULL,
     "pages of the cache at least; pages=high: the last ones are used", 0},
    {"fault", PARAM_ENUM, true, "none", 0, 0, fault_names, "break a rule in the index tensors", 0},
    ENUM_KEY("regime", "normal", qsa_attention_regimes, "values", 0),
    SEED_KEY,
};

static const struct preset presets[] = {
    {"qwen38", "topk=512,ratio=4,block=16,nq=24,nkv=2,hd=256,scale=0.0625"}, {NULL, NULL}};

static const char *const always[] = {
    "qsa_prefill_attn:model=qwen38,rows=1,pos=2600,nq=2,regime=peaked,seed=0x38",
    "qsa_prefill_attn:model=qwen38,rows=1,pos=161,topk=30,seed=0x37",
    "qsa_prefill_attn:rows=10,pos=2046,topk=512,nq=1,nkv=1,hd=32,holes=alternate,seed=0x39",
    "qsa_prefill_attn:rows=3,pos=0,topk=1,ratio=64,block=64,nq=1,nkv=1,seed=0x3a",
    "qsa_prefill_attn:rows=4,pos=3,topk=300,ratio=1,block=1,nq=3,nkv=3,hd=96,holes=all,seed=0x3b",
    NULL};

static const struct number numbers[] = {
    {"first_pos", "pos"},    {"seq_len", "rows ? pos + rows : 0"}, /* tokens up to the last row's
                                                                      position */
    {"block_size", "block"}, {"table_len", QSA_TABLE_LEN},         {"inv_sqrt_d", QSA_SCALE},
};

static const struct array arrays[] = {
    {"k_cache", ARRAY_IN},
    {"v_cache", ARRAY_IN},
    {"block_table", ARRAY_POISONED},
    {"q", ARRAY_IN, qsa_attention_fill_queries},
    {"lists", ARRAY_IN},
    {"attn_out", ARRAY_BOUND},
};

/* The blocks that the row at a position lists, at most topk of those complete there. */
static uint32_t pick_blocks(const struct case_line *c, uint64_t pos, uint32_t *blocks)
{
    struct rng r = {case_seed(c), STREAM_LIST, pos << 20};
    uint32_t complete = (uint32_t)qsa_complete(pos, case_u32(c, "ratio"));
    uint32_t topk = case_u32(c, "topk"), want = case_u32(c, "count");
    uint32_t n = complete < topk ? complete : topk;
    if (want && want < n) n = want;
    if (case_enum_is(c, "holes", "all")) n = 0;
    if (case_int(c, "ids") == IDS_SCATTERED) {
        rng_permutation(&r, blocks, complete);
        return n;
    }
    uint32_t first = case_int(c, "ids") == IDS_RECENT ? complete - n : 0;
    for (uint32_t i = 0; i < n; i++) blocks[i] = first + i;
    return n;
}

/* Places n blocks in a list of topk slots with its holes where the case wants them. */
static void place_list(const struct case_line *c, uint64_t pos, const uint32_t *blocks, uint32_t n,
                       uint32_t topk, int32_t *list)
{
    struct rng r = {case_seed(c), STREAM_HOLES, pos << 20};
    uint32_t used = 0;
    for (uint32_t i = 0; i < topk; i++) {
        uint32_t left = topk - i, blocks_left = n - used;
        bool hole = blocks_left == 0, may = left > blocks_left;
        switch ((enum holes)case_int(c, "holes")) {
        case HOLES_FRONT:
            hole = hole || may;
            break;
        case HOLES_ALTERNATE:
            hole = hole || (may && i % 2 == 0);
            break;
        case HOLES_INTERIOR:
            hole = hole || (may && i > 0 && !rng_one_in(&r, 3));
            break;
        case HOLES_END:
        case HOLES_ALL:
        case HOLES_KINDS:
            break;
        }
        list[i] = hole ? -1 : (int32_t)blocks[used++];
    }
}

static void break_list(const struct case_line *c, uint64_t pos, uint32_t topk, int32_t *list)
{
    int32_t first = -1;
    switch ((enum fault)case_int(c, "fault")) {
    case FAULT_LIST:
        list[topk - 1] = (int32_t)qsa_complete(pos, case_u32(c, "ratio"));
        break;
    case FAULT_NEGATIVE:
        list[topk - 1] = -2;
        break;
    case FAULT_DUPLICATE:
        for (uint32_t i = 0; i < topk; i++) {
            if (list[i] < 0) continue;
            if (first < 0)
                first = list[i];
            else
                list[i] = first;
        }
        break;
    case FAULT_NONE:
    case FAULT_TABLE:
        break;
    }
}

/* Fills the lists and marks the tokens that some row attends. */
static bool fill_lists(const struct case_line *c, struct instance *in, uint8_t *used)
{
    uint32_t rows = case_u32(c, "rows"), topk = case_u32(c, "topk"), ratio = case_u32(c, "ratio");
    int32_t *lists = instance_data(in, "lists");
    uint32_t *blocks = malloc((case_number_u32(c, "seq_len") / ratio + 1) * sizeof *blocks);
    for (uint32_t row = 0; blocks && row < rows; row++) {
        uint64_t pos = (uint64_t)case_u32(c, "pos") + row;
        uint32_t n = pick_blocks(c, pos, blocks);
        int32_t *list = lists + (uint64_t)row * topk;
        place_list(c, pos, blocks, n, topk, list);
        for (uint32_t i = 0; i < n; i++) {
            for (uint32_t t = 0; t < ratio; t++) used[(uint64_t)blocks[i] * ratio + t] = 1;
        }
        for (uint64_t t = qsa_complete(pos, ratio) * ratio; t <= pos; t++) used[t] = 1;
        break_list(c, pos, topk, list);
    }
    free(blocks);
    return blocks != NULL;
}

static bool fill(const struct case_line *c, struct instance *in)
{
    uint8_t *used = calloc((size_t)case_number(c, "seq_len") + 1, 1);
    bool fine = used && fill_lists(c, in, used) &&
                qsa_cache_fill(c, in, used, case_enum_is(c, "fault", "table"));
    free(used);
    return fine;
}

static void sharpen(const struct case_line *c, const struct instance *in, struct expected *e)
{
    struct ref_qsa_prefill_attn g = {0};
    step_ref_arguments(c->op->steps, c, in, &g, NULL);
    qsa_attention_exact_rows(c, &g, e[instance_index(in, "attn_out")].bound);
}

/* exact_int wants powers of two of attended tokens: whole blocks without a tail in the first row.
 */
static void make_countable(struct case_line *c, struct rng *r)
{
    int64_t ratio = INT64_C(1) << rng_range(r, 0, 3), count = INT64_C(1) << rng_range(r, 0, 4);
    case_set_int(c, "ratio", ratio);
    case_set_int(c, "block", ratio * rng_range(r, 1, 8));
    case_set_int(c, "count", count);
    case_set_int(c, "topk", count + rng_range(r, 0, 9));
    case_set_int(c, "pos", ratio * (count + rng_range(r, 0, 20)) - 1);
    if (case_enum_is(c, "holes", "all")) case_set_enum(c, "holes", "front");
}

static void sample(struct case_line *c, struct rng *r, enum tier tier, uint64_t index)
{
    static const int64_t dims[] = {32, 32, 64, 96, 128, 160, 192, 224, 256};
    static const double scales[] = {0.125, 0.0625, 0.17677669, 0.37, 1};
    int64_t ratio = rng_one_in(r, 3) ? 4 : rng_range(r, 1, 9);
    int64_t longest = tier == TIER_FULL ? 1500 : 120, around[] = {ratio, 32, 8};
    /* One block does six heads: groups of several blocks, the last of them not full. */
    int64_t group = rng_one_in(r, 8) ? rng_range(r, 4, 8) : rng_range(r, 1, 3);
    case_set_int(c, "rows", rng_range(r, 1, 3));
    case_set_int(c, "ratio", ratio);
    case_set_int(c, "block", ratio * rng_range(r, 1, 64 / ratio));
    case_set_int(c, "pos", rng_edge(r, 0, longest, rng_pick(r, around, 3)));
    case_set_int(c, "topk", rng_edge(r, 1, longest / ratio / 2 + 2, 8));
    if (rng_one_in(r, 12)) case_set_int(c, "topk", rng_edge(r, 250, 800, 256));
    case_set_int(c, "nkv", rng_range(r, 1, 2));
    case_set_int(c, "nq", group * case_int(c, "nkv"));
    case_set_int(c, "hd", rng_pick(r, dims, rng_one_in(r, 3) ? 9 : 4));
    case_set_real(c, "scale", scales[rng_u32(r) % 5]);
    case_set_int(c, "ids", (int64_t)(rng_u32(r) % IDS_KINDS));
    if (rng_one_in(r, 3)) case_set_int(c, "count", rng_range(r, 1, 12));
    /* Every regime meets every structure: the strides are coprime to each other's counts. */
    case_set_enum(c, "regime", qsa_attention_regimes[index % QSA_ATTENTION_REGIMES]);
    case_set_int(c, "holes", (int64_t)(index / QSA_ATTENTION_REGIMES + index) % 11 % HOLES_KINDS);
    qsa_sample_pages(c, r, index);
    if (case_enum_is(c, "regime", "exact_int")) make_countable(c, r);
}

static const struct relation relations[] = {
    {QSA_PAGES_PERMUTED},
    {QSA_BLOCK_SIZE_CHANGED},
    {QSA_ROW_ALONE},
    {QSA_FIRST_ROWS_DROPPED},
    {QSA_LATER_TOKENS_CHANGED},
    {"holes-moved", RELATION_SAME_LIMITS, "!holes.all", "holes = holes.front ? alternate : front"},
    {QSA_VALUES_DOUBLED},
    {QSA_SCALE_FOLDED},
    {0}};

const struct op op_qsa_prefill_attn = {
    .name = "qsa_prefill_attn",
    .modules = (const char *const[]){"qsa_indexer", NULL},
    .family = "qsa",
    .summary = "attention over listed blocks and the tail",
    .contract = CONTRACT_BOUND,
    USUAL_TABLES,
    .steps = (const struct step[]){{&interface_qsa_prefill_attn}, {0}},
    .model = &qsa_attention_model,
    .wild = "rows pos topk ratio block nq nkv hd scale spare",
    .lay_out = qsa_lay_out,
    .fill = fill,
    .sharpen = sharpen,
};
