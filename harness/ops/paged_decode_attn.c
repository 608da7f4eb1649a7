/* paged_decode_attn: one query over a whole paged cache (ops.md §1). */
#include "harness/ops/qsa_attention.h"

static const char *const fault_names[] = {"none", "table", NULL};

static const struct param params[] = {
    COUNT_KEY("len", "37", "tokens", 1),
    COUNT_KEY("block", "16", "slots of a page", 1),
    COUNT_KEY("nq", "4", "query heads", 1),
    COUNT_KEY("nkv", "2", "heads of the cache", 1),
    COUNT_KEY("hd", "32", "channels of a head", 32),
    REAL_KEY("scale", "0.125", "softmax scale", 1),
    ENUM_KEY("pages", "shuffled", qsa_page_names, "order of physical pages", 0),
    {"spare", PARAM_OFFSET, true, "+1", -4096, 4096, NULL, "table entries past the sequence", 0},
    RARE_COUNT_KEY("pageseed", "0", "another order of pages", 0),
    {"fold", PARAM_OFFSET, true, "+0", -8, 8, NULL, "2^fold moved from the queries to the scale",
     0},
    RARE_FLAG_KEY("double", "values twice as large"),
    {"fault", PARAM_ENUM, true, "none", 0, 0, fault_names, "break a rule in the index tensors", 0},
    ENUM_KEY("regime", "normal", qsa_attention_regimes, "values", 0),
    SEED_KEY,
};

static const struct preset presets[] = {
    {"qwen38", "len=2051,block=16,nq=24,nkv=2,hd=256,scale=0.0625"}, {NULL, NULL}};

static const char *const always[] = {
    "paged_decode_attn:model=qwen38,nq=2,regime=peaked,seed=0x38",
    "paged_decode_attn:model=qwen38,len=525,nq=4,seed=0x37",
    "paged_decode_attn:model=qwen38,len=70,pages=high,seed=0x39",
    "paged_decode_attn:len=0,spare=+0,nq=3,nkv=1,hd=96,seed=0x3a",
    "paged_decode_attn:len=5000,block=7,nq=1,nkv=1,hd=32,regime=exact_int,seed=0x3b",
    NULL};

static const struct number numbers[] = {
    {"seq_len", "len"},
    {"block_size", "block"},
    {"table_len", QSA_TABLE_LEN},
    {"inv_sqrt_d", QSA_SCALE},
};

static const struct array arrays[] = {
    {"k_cache", ARRAY_IN},
    {"v_cache", ARRAY_IN},
    {"block_table", ARRAY_POISONED},
    {"q", ARRAY_IN, qsa_attention_fill_queries},
    {"out", ARRAY_BOUND},
};

static bool fill(const struct case_line *c, struct instance *in)
{
    return qsa_cache_fill(c, in, NULL, case_enum_is(c, "fault", "table"));
}

static void sharpen(const struct case_line *c, const struct instance *in, struct expected *e)
{
    const struct tensor *out = instance_find(in, "out");
    qsa_attention_exact(c, case_u32(c, "len"), tensor_logical_elems(out),
                        e[out - in->tensors].bound);
}

static void sample(struct case_line *c, struct rng *r, enum tier tier, uint64_t index)
{
    static const int64_t dims[] = {32, 32, 64, 96, 128, 160, 192, 224, 256};
    static const double scales[] = {0.125, 0.0625, 0.17677669, 0.37, 1};
    int64_t longest = tier == TIER_FULL ? 1500 : 130, block = rng_range(r, 1, 64);
    int64_t around[] = {block, 32, 4}, group = rng_range(r, 1, 3);
    case_set_int(c, "len", rng_edge(r, 0, longest, rng_pick(r, around, 3)));
    /* A turn of all warps is 256 tokens. */
    if (rng_one_in(r, 10)) case_set_int(c, "len", rng_edge(r, 200, 800, 256));
    case_set_int(c, "block", block);
    case_set_int(c, "nkv", rng_range(r, 1, 2));
    case_set_int(c, "nq", group * case_int(c, "nkv"));
    case_set_int(c, "hd", rng_pick(r, dims, rng_one_in(r, 3) ? 9 : 4));
    case_set_real(c, "scale", scales[rng_u32(r) % 5]);
    case_set_enum(c, "regime", qsa_attention_regimes[index % QSA_ATTENTION_REGIMES]);
    qsa_sample_pages(c, r, index);
    if (case_enum_is(c, "regime", "exact_int"))
        case_set_int(c, "len", INT64_C(1) << rng_range(r, 0, 7));
}

static const struct relation relations[] = {
    {QSA_PAGES_PERMUTED},
    {"block-size-changed", RELATION_SAME_BITS, NULL, "block = block + draw(1, 3)"},
    {QSA_VALUES_DOUBLED},
    {QSA_SCALE_FOLDED},
    {0}};

const struct op op_paged_decode_attn = {
    .name = "paged_decode_attn",
    .modules = (const char *const[]){"qsa_indexer", NULL},
    .family = "qsa",
    .summary = "one query over a whole paged cache",
    .contract = CONTRACT_BOUND,
    USUAL_TABLES,
    .steps = (const struct step[]){{&interface_paged_decode_attn}, {0}},
    .model = &qsa_decode_model,
    .wild = "len block nq nkv hd scale spare",
    .lay_out = qsa_lay_out,
    .fill = fill,
    .sharpen = sharpen,
};
