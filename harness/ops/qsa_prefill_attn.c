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
    {"rows", PARAM_INT, false, "2", 0, UINT32_MAX, NULL, "query rows", 1},
    {"pos", PARAM_INT, false, "37", 0, UINT32_MAX, NULL, "position of the first", 0},
    {"topk", PARAM_INT, false, "8", 0, UINT32_MAX, NULL, "slots of a list", 1},
    {"ratio", PARAM_INT, false, "4", 0, UINT32_MAX, NULL, "tokens of a block", 1},
    {"block", PARAM_INT, false, "16", 0, UINT32_MAX, NULL, "slots of a page", 1},
    {"nq", PARAM_INT, false, "4", 0, UINT32_MAX, NULL, "query heads", 1},
    {"nkv", PARAM_INT, false, "2", 0, UINT32_MAX, NULL, "heads of the cache", 1},
    {"hd", PARAM_INT, false, "32", 0, UINT32_MAX, NULL, "channels of a head", 32},
    {"scale", PARAM_REAL, false, "0.125", 0, 0, NULL, "softmax scale", 1},
    {"ids", PARAM_ENUM, false, "scattered", 0, 0, id_names, "which blocks are listed", 1},
    {"holes", PARAM_ENUM, false, "end", 0, 0, hole_names, "where a list has its holes", 0},
    {"count", PARAM_INT, true, "0", 0, UINT32_MAX, NULL, "blocks listed; 0: as many as fit", 1},
    {"pages", PARAM_ENUM, false, "shuffled", 0, 0, qsa_page_names, "order of physical pages", 0},
    {"spare", PARAM_OFFSET, true, "+1", -4096, 4096, NULL, "table entries past the sequence", 0},
    {"pageseed", PARAM_INT, true, "0", 0, UINT32_MAX, NULL, "another order of pages", 0},
    {"change", PARAM_INT, true, "-1", -1, INT32_MAX, NULL,
     "from this token on the data is other data", -1},
    {"fold", PARAM_OFFSET, true, "+0", -8, 8, NULL, "2^fold moved from the queries to the scale",
     0},
    {"double", PARAM_INT, true, "0", 0, 1, NULL, "values twice as large", 0},
    {"pool", PARAM_INT, true, "0", 0, 1 << 22, NULL, "pages of the cache at least; pages=high: the last ones are used", 0},
    {"fault", PARAM_ENUM, true, "none", 0, 0, fault_names, "break a rule in the index tensors", 0},
    {"regime", PARAM_ENUM, false, "normal", 0, 0, qsa_attention_regimes, "values", 0},
    {"seed", PARAM_SEED, false, "0x1", 0, 0, NULL, "of every byte", 0},
};

static const struct preset presets[] = {
    {"qwen38", "topk=512,ratio=4,block=16,nq=24,nkv=2,hd=256,scale=0.0625"}, {NULL, NULL}};

static const char *const always[] = {
    "qsa_prefill_attn:model=qwen38,rows=1,pos=2600,nq=2,regime=peaked,seed=0x38",
    "qsa_prefill_attn:rows=10,pos=2046,topk=512,nq=1,nkv=1,hd=32,holes=alternate,seed=0x39",
    "qsa_prefill_attn:rows=3,pos=0,topk=1,ratio=64,block=64,nq=1,nkv=1,seed=0x3a",
    "qsa_prefill_attn:rows=4,pos=3,topk=300,ratio=1,block=1,nq=3,nkv=3,hd=96,holes=all,seed=0x3b",
    NULL};

/* Tokens up to the last row's position. */
static uint64_t sequence_length(const struct case_line *c)
{
    uint64_t rows = case_u32(c, "rows");
    return rows ? case_u32(c, "pos") + rows : 0;
}

static void gpu_args(const struct case_line *c, const struct instance *in,
                     struct gpu_qsa_prefill_attn *a)
{
    *a = (struct gpu_qsa_prefill_attn){.rows = case_u32(c, "rows"),
                                       .table_len = qsa_table_len(c, sequence_length(c)),
                                       .first_pos = case_u32(c, "pos"),
                                       .topk = case_u32(c, "topk"),
                                       .ratio = case_u32(c, "ratio"),
                                       .block_size = case_u32(c, "block"),
                                       .nq = case_u32(c, "nq"),
                                       .nkv = case_u32(c, "nkv"),
                                       .hd = case_u32(c, "hd"),
                                       .inv_sqrt_d = qsa_attention_scale(c)};
    if (!in) return;
    a->num_pages = qsa_num_pages(in);
    a->host_block_table = instance_data(in, "block_table");
    a->host_lists = instance_data(in, "lists");
}

static void ref_args(const struct case_line *c, const struct instance *in,
                     struct ref_qsa_prefill_attn *g)
{
    struct gpu_qsa_prefill_attn a;
    gpu_args(c, in, &a);
    *g = (struct ref_qsa_prefill_attn){.rows = a.rows,
                                       .table_len = a.table_len,
                                       .num_pages = a.num_pages,
                                       .first_pos = a.first_pos,
                                       .topk = a.topk,
                                       .ratio = a.ratio,
                                       .block_size = a.block_size,
                                       .nq = a.nq,
                                       .nkv = a.nkv,
                                       .hd = a.hd,
                                       .inv_sqrt_d = a.inv_sqrt_d,
                                       .block_table = a.host_block_table,
                                       .lists = a.host_lists};
    if (!in) return;
    g->q = instance_data(in, "q");
    g->k_cache = instance_data(in, "k_cache");
    g->v_cache = instance_data(in, "v_cache");
}

static bool ref_accepts(const struct case_line *c, const struct instance *in,
                        struct ref_refusal *why)
{
    struct ref_qsa_prefill_attn g;
    ref_args(c, in, &g);
    return ref_qsa_prefill_attn_accepts(&g, why);
}

static enum gpu_status gpu_check(const struct case_line *c, const struct instance *in,
                                 struct gpu_report *report)
{
    struct gpu_qsa_prefill_attn a;
    gpu_args(c, in, &a);
    return gpu_qsa_prefill_attn_check(&a, report);
}

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
    uint32_t *blocks = malloc((sequence_length(c) / ratio + 1) * sizeof *blocks);
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

static bool build(const struct case_line *c, struct instance *in)
{
    struct qsa_cache cache = {.len = 0};
    uint32_t rows = case_u32(c, "rows"), nq = case_u32(c, "nq"), hd = case_u32(c, "hd");
    uint64_t q_shape[] = {rows, nq, hd}, list_shape[] = {rows, case_u32(c, "topk")};
    uint64_t len = sequence_length(c);
    uint8_t *used = calloc(len + 1, 1);
    bool fine =
        used && qsa_cache_make(&cache, c, in, (uint32_t)len, case_u32(c, "nkv"), hd, "regime") &&
        instance_add(in, "q", DTYPE_BF16, ROLE_IN, CONTRACT_ANY, 3, q_shape, "row,head,dim") &&
        instance_add(in, "lists", DTYPE_I32, ROLE_IN, CONTRACT_ANY, 2, list_shape, "row,slot") &&
        instance_add(in, "attn_out", DTYPE_BF16, ROLE_OUT, CONTRACT_BOUND, 3, q_shape,
                     "row,head,dim") &&
        fill_lists(c, in, used) &&
        qsa_cache_fill(&cache, in, used, case_int(c, "fault") == FAULT_TABLE);
    if (fine)
        qsa_attention_queries(c, "regime", rows, case_u32(c, "pos"), nq, hd,
                              instance_data(in, "q"));
    free(used);
    qsa_cache_free(&cache);
    return fine;
}

static enum gpu_status launch(const struct gpu_target *targets, const struct case_line *c,
                              const struct instance *in, const struct gpu_buffer *buffers,
                              struct gpu_report *report)
{
    struct gpu_qsa_prefill_attn a;
    gpu_args(c, in, &a);
    a.q = &buffers[instance_index(in, "q")];
    a.k_cache = &buffers[instance_index(in, "k_cache")];
    a.v_cache = &buffers[instance_index(in, "v_cache")];
    a.block_table = &buffers[instance_index(in, "block_table")];
    a.lists = &buffers[instance_index(in, "lists")];
    a.attn_out = &buffers[instance_index(in, "attn_out")];
    return gpu_qsa_prefill_attn(&targets[0], &a, report);
}

static void oracle(const struct case_line *c, const struct instance *in,
                   const struct ref_error_model *model, const uint8_t *const *got,
                   struct expected *e)
{
    struct ref_qsa_prefill_attn g;
    struct expected *out = &e[instance_index(in, "attn_out")];
    ref_args(c, in, &g);
    ref_qsa_prefill_attn(&g, model, out->value, out->bound);
    for (uint32_t row = 0; row < g.rows; row++) {
        uint64_t attended = ((uint64_t)g.first_pos + row + 1) % g.ratio;
        uint64_t elems = (uint64_t)g.nq * g.hd;
        for (uint32_t i = 0; i < g.topk; i++)
            attended += g.lists[(uint64_t)row * g.topk + i] >= 0 ? g.ratio : 0;
        qsa_attention_exact(c, "regime", attended, elems, out->bound + row * elems);
    }
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
    int64_t group = rng_range(r, 1, 3);
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

static void sample_wild(struct case_line *c, struct rng *r)
{
    static const char *const keys[] = {"rows", "pos", "topk", "ratio", "block", "nq", "nkv", "hd"};
    sample(c, r, TIER_QUICK, rng_u32(r));
    for (uint32_t faults = (uint32_t)rng_range(r, 0, 2); faults; faults--) {
        if (rng_one_in(r, 6))
            case_set_real(c, "scale", qsa_absurd_real(r));
        else if (rng_one_in(r, 6))
            case_set_int(c, "spare", rng_range(r, -3, 3));
        else
            qsa_absurd_param(c, r, keys, 8);
    }
}

static bool edit_holes(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    if (case_enum_is(base, "holes", "all")) return false;
    case_set_enum(changed, "holes", case_enum_is(base, "holes", "front") ? "alternate" : "front");
    return true;
}

static bool edit_later(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    int64_t pos = case_int(base, "pos"), rows = case_int(base, "rows");
    if (case_int(base, "change") >= 0 || rows < 2) return false;
    case_set_int(changed, "change", rng_range(r, pos + 1, pos + rows - 1));
    return true;
}

static int64_t row_before_change(const struct case_line *base, const struct case_line *changed,
                                 int64_t row)
{
    return case_int(base, "pos") + row < case_int(changed, "change") ? row : -1;
}

static const struct relation relations[] = {
    {"pages-permuted", RELATION_SAME_BITS, qsa_edit_pages, NULL},
    {"block-size-changed", RELATION_SAME_BITS, qsa_edit_block, NULL},
    {"row-alone", RELATION_SAME_BITS, qsa_edit_alone, qsa_base_row},
    {"first-rows-dropped", RELATION_SAME_BITS, qsa_edit_chunk, qsa_base_row},
    {"later-tokens-changed", RELATION_SAME_BITS, edit_later, row_before_change},
    {"holes-moved", RELATION_SAME_LIMITS, edit_holes, NULL},
    {"values-doubled", RELATION_DOUBLED, qsa_attention_edit_double, NULL},
    {"scale-folded", RELATION_SAME_BITS, qsa_attention_edit_fold, NULL},
    {NULL, RELATION_SAME_BITS, NULL, NULL}};

static const char *const modules[] = {"qsa_indexer", NULL};

const struct op op_qsa_prefill_attn = {
    .name = "qsa_prefill_attn",
    .modules = modules,
    .family = "qsa",
    .summary = "attention over listed blocks and the tail",
    .contract = CONTRACT_BOUND,
    .params = params,
    .n_params = sizeof params / sizeof *params,
    .presets = presets,
    .always = always,
    .model = &qsa_attention_model,
    .relations = relations,
    .sample = sample,
    .sample_wild = sample_wild,
    .ref_accepts = ref_accepts,
    .gpu_check = gpu_check,
    .build = build,
    .launch = launch,
    .oracle = oracle,
};
