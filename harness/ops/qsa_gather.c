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
    {"len", PARAM_INT, false, "37", 0, UINT32_MAX, NULL, "tokens of the sequence", 1},
    {"count", PARAM_INT, false, "9", 0, UINT32_MAX, NULL, "tokens to gather", 1},
    {"order", PARAM_ENUM, false, "blocks", 0, 0, order_names,
     "which tokens: whole blocks in a random order, or single ones", 1},
    {"ratio", PARAM_INT, false, "4", 0, UINT32_MAX, NULL, "tokens of a block", 1},
    {"block", PARAM_INT, false, "16", 0, UINT32_MAX, NULL, "slots of a page", 1},
    {"nkv", PARAM_INT, false, "2", 0, UINT32_MAX, NULL, "heads of a token", 1},
    {"hd", PARAM_INT, false, "32", 0, UINT32_MAX, NULL, "channels of a head", 32},
    {"pages", PARAM_ENUM, false, "shuffled", 0, 0, qsa_page_names, "order of physical pages", 0},
    {"spare", PARAM_OFFSET, true, "+1", -4096, 4096, NULL, "table entries past the sequence", 0},
    {"pageseed", PARAM_INT, true, "0", 0, UINT32_MAX, NULL, "another order of pages", 0},
    {"skip", PARAM_INT, true, "0", 0, UINT32_MAX, NULL, "the selection starts with this entry", 0},
    {"fault", PARAM_ENUM, true, "none", 0, 0, fault_names, "break a rule in the index tensors", 0},
    {"regime", PARAM_ENUM, false, "normal", 0, 0, regimes, "values", 0},
    {"seed", PARAM_SEED, false, "0x1", 0, 0, NULL, "of every byte", 0},
};

static const struct preset presets[] = {
    {"qwen38", "len=2600,count=2049,ratio=4,block=16,nkv=2,hd=256"}, {NULL, NULL}};

static const char *const always[] = {
    "qsa_gather:model=qwen38,seed=0x38",
    "qsa_gather:model=qwen38,len=4096,count=70,order=random,pages=high,regime=bits,seed=0x39",
    "qsa_gather:len=1,count=1,ratio=1,block=1,nkv=1,hd=1024,spare=0,seed=0x3a", NULL};

static void gpu_args(const struct case_line *c, const struct instance *in, struct gpu_qsa_gather *a)
{
    *a = (struct gpu_qsa_gather){.n_sel = case_u32(c, "count"),
                                 .table_len = qsa_table_len(c, case_u32(c, "len")),
                                 .seq_len = case_u32(c, "len"),
                                 .block_size = case_u32(c, "block"),
                                 .nkv = case_u32(c, "nkv"),
                                 .hd = case_u32(c, "hd"),
                                 .ratio = case_u32(c, "ratio")};
    if (!in) return;
    a->num_pages = qsa_num_pages(in);
    a->host_block_table = instance_data(in, "block_table");
    a->host_sel = instance_data(in, "sel");
}

static void ref_args(const struct case_line *c, const struct instance *in, struct ref_qsa_gather *g)
{
    struct gpu_qsa_gather a;
    gpu_args(c, in, &a);
    *g = (struct ref_qsa_gather){.n_sel = a.n_sel,
                                 .table_len = a.table_len,
                                 .num_pages = a.num_pages,
                                 .seq_len = a.seq_len,
                                 .block_size = a.block_size,
                                 .nkv = a.nkv,
                                 .hd = a.hd,
                                 .ratio = a.ratio,
                                 .block_table = a.host_block_table,
                                 .sel = a.host_sel};
    if (!in) return;
    g->k_cache = instance_data(in, "k_cache");
    g->v_cache = instance_data(in, "v_cache");
}

static bool ref_accepts(const struct case_line *c, const struct instance *in,
                        struct ref_refusal *why)
{
    struct ref_qsa_gather g;
    ref_args(c, in, &g);
    return ref_qsa_gather_accepts(&g, why);
}

static enum gpu_status gpu_check(const struct case_line *c, const struct instance *in,
                                 struct gpu_report *report)
{
    struct gpu_qsa_gather a;
    gpu_args(c, in, &a);
    return gpu_qsa_gather_check(&a, report);
}

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

static bool fill(const struct case_line *c, struct instance *in, struct qsa_cache *cache)
{
    uint32_t len = case_u32(c, "len"), count = case_u32(c, "count");
    int32_t *sel = instance_data(in, "sel");
    uint8_t *used = calloc((size_t)len + 1, 1);
    bool fine = used && (!len || fill_selection(c, count, sel));
    for (uint32_t i = 0; fine && i < count && len; i++) used[sel[i]] = 1;
    fine = fine && qsa_cache_fill(cache, in, used, case_enum_is(c, "fault", "table"));
    if (case_enum_is(c, "fault", "selection") && count) sel[count - 1] = (int32_t)len;
    free(used);
    return fine;
}

static bool build(const struct case_line *c, struct instance *in)
{
    struct qsa_cache cache;
    uint64_t count = case_u32(c, "count"), nkv = case_u32(c, "nkv"), hd = case_u32(c, "hd");
    uint64_t sel_shape[] = {count}, out_shape[] = {count, nkv, hd};
    bool fine =
        qsa_cache_make(&cache, c, in, case_u32(c, "len"), (uint32_t)nkv, (uint32_t)hd, "regime") &&
        instance_add(in, "sel", DTYPE_I32, ROLE_IN, CONTRACT_ANY, 1, sel_shape, "slot") &&
        instance_add(in, "k_out", DTYPE_BF16, ROLE_OUT, CONTRACT_EXACT, 3, out_shape,
                     "slot,head,dim") &&
        instance_add(in, "v_out", DTYPE_BF16, ROLE_OUT, CONTRACT_EXACT, 3, out_shape,
                     "slot,head,dim") &&
        fill(c, in, &cache);
    qsa_cache_free(&cache);
    return fine;
}

static enum gpu_status launch(const struct gpu_target *targets, const struct case_line *c,
                              const struct instance *in, const struct gpu_buffer *buffers,
                              struct gpu_report *report)
{
    struct gpu_qsa_gather a;
    gpu_args(c, in, &a);
    a.k_cache = &buffers[instance_index(in, "k_cache")];
    a.v_cache = &buffers[instance_index(in, "v_cache")];
    a.block_table = &buffers[instance_index(in, "block_table")];
    a.sel = &buffers[instance_index(in, "sel")];
    a.k_out = &buffers[instance_index(in, "k_out")];
    a.v_out = &buffers[instance_index(in, "v_out")];
    return gpu_qsa_gather(&targets[0], &a, report);
}

static void oracle(const struct case_line *c, const struct instance *in,
                   const struct ref_error_model *model, const uint8_t *const *got,
                   struct expected *e)
{
    struct ref_qsa_gather g;
    ref_args(c, in, &g);
    ref_qsa_gather(&g, (uint16_t *)(void *)e[instance_index(in, "k_out")].exact,
                   (uint16_t *)(void *)e[instance_index(in, "v_out")].exact);
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

static void sample_wild(struct case_line *c, struct rng *r)
{
    static const char *const keys[] = {"len", "count", "ratio", "block", "nkv", "hd"};
    sample(c, r, TIER_QUICK, rng_u32(r));
    for (uint32_t faults = (uint32_t)rng_range(r, 0, 2); faults; faults--) {
        if (rng_one_in(r, 6))
            case_set_int(c, "spare", rng_range(r, -3, 3));
        else
            qsa_absurd_param(c, r, keys, 6);
    }
}

static bool edit_skip(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    int64_t count = case_int(base, "count"), skipped = rng_range(r, 1, count - 1);
    if (count < 2) return false;
    case_set_int(changed, "skip", case_int(base, "skip") + skipped);
    case_set_int(changed, "count", count - skipped);
    return true;
}

static int64_t skipped_slot(const struct case_line *base, const struct case_line *changed,
                            int64_t row)
{
    return row + case_int(changed, "skip") - case_int(base, "skip");
}

static const struct relation relations[] = {
    {"pages-permuted", RELATION_SAME_BITS, qsa_edit_pages, NULL},
    {"block-size-changed", RELATION_SAME_BITS, qsa_edit_block, NULL},
    {"first-slots-dropped", RELATION_SAME_BITS, edit_skip, skipped_slot},
    {NULL, RELATION_SAME_BITS, NULL, NULL}};

static const char *const modules[] = {"qsa_indexer", NULL};

const struct op op_qsa_gather = {
    .name = "qsa_gather",
    .modules = modules,
    .family = "qsa",
    .summary = "selected tokens copied out of their pages",
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
