/* paged_decode_attn: one query over a whole paged cache (ops.md §1). */
#include <stdlib.h>
#include <string.h>

#include "harness/ops/qsa_attention.h"

static const char *const fault_names[] = {"none", "table", NULL};

static const struct param params[] = {
    {"len", PARAM_INT, false, "37", 0, UINT32_MAX, NULL, "tokens", 1},
    {"block", PARAM_INT, false, "16", 0, UINT32_MAX, NULL, "slots of a page", 1},
    {"nq", PARAM_INT, false, "4", 0, UINT32_MAX, NULL, "query heads", 1},
    {"nkv", PARAM_INT, false, "2", 0, UINT32_MAX, NULL, "heads of the cache", 1},
    {"hd", PARAM_INT, false, "32", 0, UINT32_MAX, NULL, "channels of a head", 32},
    {"scale", PARAM_REAL, false, "0.125", 0, 0, NULL, "softmax scale", 1},
    {"pages", PARAM_ENUM, false, "shuffled", 0, 0, qsa_page_names, "order of physical pages", 0},
    {"spare", PARAM_OFFSET, true, "+1", -4096, 4096, NULL, "table entries past the sequence", 0},
    {"pageseed", PARAM_INT, true, "0", 0, UINT32_MAX, NULL, "another order of pages", 0},
    {"fold", PARAM_OFFSET, true, "+0", -8, 8, NULL, "2^fold moved from the queries to the scale",
     0},
    {"double", PARAM_INT, true, "0", 0, 1, NULL, "values twice as large", 0},
    {"fault", PARAM_ENUM, true, "none", 0, 0, fault_names, "break a rule in the index tensors", 0},
    {"regime", PARAM_ENUM, false, "normal", 0, 0, qsa_attention_regimes, "values", 0},
    {"seed", PARAM_SEED, false, "0x1", 0, 0, NULL, "of every byte", 0},
};

static const struct preset presets[] = {
    {"qwen38", "len=2051,block=16,nq=24,nkv=2,hd=256,scale=0.0625"}, {NULL, NULL}};

static const char *const always[] = {
    "paged_decode_attn:model=qwen38,nq=2,regime=peaked,seed=0x38",
    "paged_decode_attn:model=qwen38,len=70,pages=high,seed=0x39",
    "paged_decode_attn:len=0,spare=+0,nq=3,nkv=1,hd=96,seed=0x3a",
    "paged_decode_attn:len=5000,block=7,nq=1,nkv=1,hd=32,regime=exact_int,seed=0x3b", NULL};

static void gpu_args(const struct case_line *c, const struct instance *in,
                     struct gpu_paged_decode_attn *a)
{
    *a = (struct gpu_paged_decode_attn){.table_len = qsa_table_len(c, case_u32(c, "len")),
                                        .seq_len = case_u32(c, "len"),
                                        .block_size = case_u32(c, "block"),
                                        .nq = case_u32(c, "nq"),
                                        .nkv = case_u32(c, "nkv"),
                                        .hd = case_u32(c, "hd"),
                                        .inv_sqrt_d = qsa_attention_scale(c)};
    if (!in) return;
    a->num_pages = qsa_num_pages(in);
    a->host_block_table = instance_data(in, "block_table");
}

static void ref_args(const struct case_line *c, const struct instance *in,
                     struct ref_paged_decode_attn *g)
{
    struct gpu_paged_decode_attn a;
    gpu_args(c, in, &a);
    *g = (struct ref_paged_decode_attn){.table_len = a.table_len,
                                        .num_pages = a.num_pages,
                                        .seq_len = a.seq_len,
                                        .block_size = a.block_size,
                                        .nq = a.nq,
                                        .nkv = a.nkv,
                                        .hd = a.hd,
                                        .inv_sqrt_d = a.inv_sqrt_d,
                                        .block_table = a.host_block_table};
    if (!in) return;
    g->q = instance_data(in, "q");
    g->k_cache = instance_data(in, "k_cache");
    g->v_cache = instance_data(in, "v_cache");
}

static bool ref_accepts(const struct case_line *c, const struct instance *in,
                        struct ref_refusal *why)
{
    struct ref_paged_decode_attn g;
    ref_args(c, in, &g);
    return ref_paged_decode_attn_accepts(&g, why);
}

static enum gpu_status gpu_check(const struct case_line *c, const struct instance *in,
                                 struct gpu_report *report)
{
    struct gpu_paged_decode_attn a;
    gpu_args(c, in, &a);
    return gpu_paged_decode_attn_check(&a, report);
}

static bool build(const struct case_line *c, struct instance *in)
{
    struct qsa_cache cache = {.len = 0};
    uint32_t len = case_u32(c, "len"), nq = case_u32(c, "nq"), hd = case_u32(c, "hd");
    uint64_t q_shape[] = {nq, hd};
    uint8_t *used = malloc((size_t)len + 1);
    bool fine =
        used && qsa_cache_make(&cache, c, in, len, case_u32(c, "nkv"), hd, "regime") &&
        instance_add(in, "q", DTYPE_BF16, ROLE_IN, CONTRACT_ANY, 2, q_shape, "head,dim") &&
        instance_add(in, "out", DTYPE_BF16, ROLE_OUT, CONTRACT_BOUND, 2, q_shape, "head,dim");
    if (fine) {
        memset(used, 1, len);
        fine = qsa_cache_fill(&cache, in, used, case_enum_is(c, "fault", "table"));
        qsa_attention_queries(c, "regime", 1, 0, nq, hd, instance_data(in, "q"));
    }
    free(used);
    qsa_cache_free(&cache);
    return fine;
}

static enum gpu_status launch(const struct gpu_target *targets, const struct case_line *c,
                              const struct instance *in, const struct gpu_buffer *buffers,
                              struct gpu_report *report)
{
    struct gpu_paged_decode_attn a;
    gpu_args(c, in, &a);
    a.q = &buffers[instance_index(in, "q")];
    a.k_cache = &buffers[instance_index(in, "k_cache")];
    a.v_cache = &buffers[instance_index(in, "v_cache")];
    a.block_table = &buffers[instance_index(in, "block_table")];
    a.out = &buffers[instance_index(in, "out")];
    return gpu_paged_decode_attn(&targets[0], &a, report);
}

static void oracle(const struct case_line *c, const struct instance *in,
                   const struct ref_error_model *model, const uint8_t *const *got,
                   struct expected *e)
{
    struct ref_paged_decode_attn g;
    struct expected *out = &e[instance_index(in, "out")];
    ref_args(c, in, &g);
    ref_paged_decode_attn(&g, model, out->value, out->bound);
    qsa_attention_exact(c, "regime", g.seq_len, (uint64_t)g.nq * g.hd, out->bound);
}

static void sample(struct case_line *c, struct rng *r, enum tier tier, uint64_t index)
{
    static const int64_t dims[] = {32, 32, 64, 96, 128, 160, 192, 224, 256};
    static const double scales[] = {0.125, 0.0625, 0.17677669, 0.37, 1};
    int64_t longest = tier == TIER_FULL ? 1500 : 130, block = rng_range(r, 1, 64);
    int64_t around[] = {block, 32, 4}, group = rng_range(r, 1, 3);
    case_set_int(c, "len", rng_edge(r, 0, longest, rng_pick(r, around, 3)));
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

static void sample_wild(struct case_line *c, struct rng *r)
{
    static const char *const keys[] = {"len", "block", "nq", "nkv", "hd"};
    sample(c, r, TIER_QUICK, rng_u32(r));
    for (uint32_t faults = (uint32_t)rng_range(r, 0, 2); faults; faults--) {
        switch (rng_u32(r) % 7) {
        case 0:
            case_set_real(c, "scale", qsa_absurd_real(r));
            break;
        case 1:
            case_set_int(c, "spare", rng_range(r, -3, 3));
            break;
        default:
            qsa_absurd_param(c, r, keys, 5);
        }
    }
}

static const struct relation relations[] = {
    {"pages-permuted", RELATION_SAME_BITS, qsa_edit_pages, NULL},
    {"block-size-changed", RELATION_SAME_BITS, qsa_edit_block, NULL},
    {"values-doubled", RELATION_DOUBLED, qsa_attention_edit_double, NULL},
    {"scale-folded", RELATION_SAME_BITS, qsa_attention_edit_fold, NULL},
    {NULL, RELATION_SAME_BITS, NULL, NULL}};

static const char *const modules[] = {"qsa_indexer", NULL};

const struct op op_paged_decode_attn = {
    .name = "paged_decode_attn",
    .modules = modules,
    .family = "qsa",
    .summary = "one query over a whole paged cache",
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
