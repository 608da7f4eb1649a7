/* glm5next_dsa_mla_decode_fp8: sparse decode over FP8 latent pages (ops.md §2). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/launch_dsa.h"
#include "harness/case/op.h"
#include "harness/case/paging.h"
#include "harness/case/values.h"
#include "ref/dsa.h"
#include "ref/formats.h"

enum { STREAM_Q = 1, STREAM_K = 2, STREAM_V = 3, STREAM_SELECT = 4, STREAM_HOLES = 5 };
enum { DENSE_CACHE_BYTES = 64 << 20 }; /* above this, pages without a selected token are not backed */

static const char *const hole_names[] = {"end", "front", "interior", "alternate", "all", NULL};
enum fill { FILL_MINUS1, FILL_NEGATIVE, FILL_BEYOND };
static const char *const fill_names[] = {"minus1", "negative", "beyond", NULL};
static const char *const id_names[] = {"pools", "scattered", "prefix", NULL};
static const char *const kv_names[] = {"one", "two", "distinct", NULL};
static const char *const fault_names[] = {"none", "table", "duplicate", "length", NULL};
static const char *const regimes[] = {"normal",    "exact_int", "peaked", "flat",   "all_negative",
                                      "cancel",    "outlier",   "walk",   "needle", "subnormal",
                                      "huge",      "offset",    "equal",  "specials", NULL};

static const struct param params[] = {
    {"seqs", PARAM_INT, false, "1", 0, UINT32_MAX, NULL, "sequences in the batch", 1},
    {"heads", PARAM_INT, false, "8", 0, UINT32_MAX, NULL, "query heads", 1},
    {"len", PARAM_LIST, false, "[64]", INT32_MIN, INT32_MAX, NULL,
     "tokens of each sequence; a shorter list repeats", 1},
    {"block", PARAM_INT, false, "16", 0, UINT32_MAX, NULL, "slots of a page", 4},
    {"kpool", PARAM_INT, false, "4", 0, UINT32_MAX, NULL, "tokens of a pool", 1},
    {"topk", PARAM_INT, false, "32", 0, UINT32_MAX, NULL,
     "selected tokens; a row is topk+kpool-1 wide", 4},
    {"pitch", PARAM_OFFSET, false, "+0", -(INT64_C(1) << 40), INT64_C(1) << 40, NULL,
     "page pitch above the dense size, bytes", 0},
    {"pages", PARAM_ENUM, false, "shuffled", 0, 0, page_order_names, "order of physical pages", 0},
    {"holes", PARAM_ENUM, false, "end", 0, 0, hole_names, "where a row has its holes", 0},
    {"fill", PARAM_ENUM, true, "minus1", 0, 0, fill_names, "what a hole holds", 0},
    {"ids", PARAM_ENUM, false, "pools", 0, 0, id_names, "how tokens are picked", 2},
    {"count", PARAM_INT, true, "0", 0, UINT32_MAX, NULL, "ids in a row; 0: as many as fit", 1},
    {"kv", PARAM_ENUM, false, "one", 0, 0, kv_names,
     "K and V in one buffer, in two with the same bytes, or with different ones", 0},
    {"scale", PARAM_REAL, true, "0.044194173", 0, 0, NULL, "softmax scale; 512^-0.5", 0},
    {"kscale", PARAM_REAL, false, "0.0625", 0, 0, NULL, "FP8 scale of K", 0},
    {"vscale", PARAM_REAL, false, "0.0625", 0, 0, NULL, "FP8 scale of V", 0},
    {"latent", PARAM_INT, true, "512", 0, UINT32_MAX, NULL, "kv_lora_rank", 512},
    {"kvheads", PARAM_INT, true, "1", 0, UINT32_MAX, NULL, "num_kv_heads", 1},
    {"selrows", PARAM_INT, true, "-1", -1, UINT32_MAX, NULL, "selection rows; -1: seqs", -1},
    {"width", PARAM_INT, true, "-1", -1, UINT32_MAX, NULL, "row width; -1: topk+kpool-1", -1},
    {"spare", PARAM_INT, true, "1", 0, 4096, NULL, "table entries past the longest sequence", 0},
    {"pool", PARAM_INT, true, "0", 0, 1 << 22, NULL, "pages of the cache at least; pages=high: the last ones are used", 0},
    {"pageseed", PARAM_INT, true, "0", 0, UINT32_MAX, NULL, "another order of pages", 0},
    {"first", PARAM_INT, true, "0", 0, UINT32_MAX, NULL, "which sequence comes first", 0},
    {"reverse", PARAM_INT, true, "0", 0, 1, NULL, "batch in reverse order", 0},
    {"fault", PARAM_ENUM, true, "none", 0, 0, fault_names, "break a rule in the index tensors", 0},
    {"regime", PARAM_ENUM, false, "normal", 0, 0, regimes, "values", 0},
    {"seed", PARAM_SEED, false, "0x1", 0, 0, NULL, "of every byte", 0},
};

static const struct preset presets[] = {
    {"glm53", "seqs=1,heads=64,len=[2600],block=64,kpool=4,topk=2048,ids=pools,scale=0.044194173"},
    {NULL, NULL}};

static const char *const always[] = {
    "glm5next_dsa_mla_decode_fp8:model=glm53,kscale=0.37,vscale=0.29,kv=distinct,regime=peaked,seed=0x53",
    "glm5next_dsa_mla_decode_fp8:seqs=3,heads=2,len=[37,0,64],pitch=+4096,pages=high,seed=0x1f",
    "glm5next_dsa_mla_decode_fp8:seqs=3,heads=46,len=[300,5,0],topk=252,kv=two,kscale=0.37,seed=0x85",
    NULL};

/* Which sequence's data the s-th of the batch has: the batch can be reordered or cut. */
static uint32_t sequence_key(const struct case_line *c, uint32_t s)
{
    uint32_t seqs = case_u32(c, "seqs");
    return case_u32(c, "first") + (case_int(c, "reverse") ? seqs - 1 - s : s);
}

static int64_t sequence_length(const struct case_line *c, uint32_t s)
{
    uint32_t n;
    const int64_t *lengths = case_list(c, "len", &n);
    return n ? lengths[sequence_key(c, s) % n] : 0;
}

static uint32_t row_width(const struct case_line *c)
{
    int64_t width = case_int(c, "width");
    return width >= 0 ? (uint32_t)width : case_u32(c, "topk") + case_u32(c, "kpool") - 1;
}

static uint32_t table_width(const struct case_line *c)
{
    uint32_t n, block = case_u32(c, "block");
    const int64_t *lengths = case_list(c, "len", &n);
    uint64_t longest = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t blocks = block && lengths[i] > 0 ? ((uint64_t)lengths[i] + block - 1) / block : 0;
        if (blocks > longest) longest = blocks;
    }
    return (uint32_t)(longest + case_u32(c, "spare"));
}

static uint64_t page_pitch(const struct case_line *c)
{
    int64_t dense = (int64_t)((uint64_t)case_u32(c, "block") * case_u32(c, "kvheads") *
                              case_u32(c, "latent") & INT64_MAX);
    int64_t pitch = dense + case_int(c, "pitch");
    return pitch > 0 ? (uint64_t)pitch : 0;
}

static void gpu_args(const struct case_line *c, const struct instance *in,
                     struct gpu_dsa_decode *a)
{
    memset(a, 0, sizeof *a);
    a->num_seqs = case_u32(c, "seqs");
    a->sel_rows = case_int(c, "selrows") < 0 ? a->num_seqs : case_u32(c, "selrows");
    a->width = row_width(c);
    a->max_blocks_per_seq = table_width(c);
    a->num_q_heads = case_u32(c, "heads");
    a->num_kv_heads = case_u32(c, "kvheads");
    a->kv_lora_rank = case_u32(c, "latent");
    a->block_size = case_u32(c, "block");
    a->index_kpool = case_u32(c, "kpool");
    a->scale = (float)case_real(c, "scale");
    a->k_scale = (float)case_real(c, "kscale");
    a->v_scale = (float)case_real(c, "vscale");
    a->cache_stride_bytes = page_pitch(c);
    if (!in) return;
    a->num_pages = *(const uint32_t *)in->extra;
    a->host_block_tables = instance_data(in, "block_tables");
    a->host_seq_lens = instance_data(in, "seq_lens");
    a->host_sel_indices = instance_data(in, "sel_indices");
}

static void ref_args(const struct case_line *c, const struct instance *in,
                     struct ref_dsa_decode *g)
{
    struct gpu_dsa_decode a;
    gpu_args(c, in, &a);
    *g = (struct ref_dsa_decode){.num_seqs = a.num_seqs,
                                 .sel_rows = a.sel_rows,
                                 .width = a.width,
                                 .max_blocks_per_seq = a.max_blocks_per_seq,
                                 .num_q_heads = a.num_q_heads,
                                 .num_kv_heads = a.num_kv_heads,
                                 .kv_lora_rank = a.kv_lora_rank,
                                 .block_size = a.block_size,
                                 .index_kpool = a.index_kpool,
                                 .num_pages = a.num_pages,
                                 .scale = a.scale,
                                 .k_scale = a.k_scale,
                                 .v_scale = a.v_scale,
                                 .cache_stride_bytes = a.cache_stride_bytes,
                                 .block_tables = a.host_block_tables,
                                 .seq_lens = a.host_seq_lens,
                                 .sel_indices = a.host_sel_indices};
    if (!in) return;
    g->q = instance_data(in, "q");
    g->k_cache = instance_data(in, "k_cache");
    g->v_cache = instance_data(in, "v_cache");
}

static bool ref_accepts(const struct case_line *c, const struct instance *in,
                        struct ref_refusal *why)
{
    struct ref_dsa_decode g;
    ref_args(c, in, &g);
    return ref_dsa_decode_accepts(&g, why);
}

static enum gpu_status gpu_check(const struct case_line *c, const struct instance *in,
                                 struct gpu_report *report)
{
    struct gpu_dsa_decode a;
    gpu_args(c, in, &a);
    return gpu_dsa_decode_check(&a, report);
}

/* The tokens a sequence selects, ascending in pools mode as a selector's row would list them. */
static uint32_t pick_tokens(const struct case_line *c, uint32_t key, uint32_t length,
                            uint32_t width, int32_t *tokens)
{
    struct rng r = {case_seed(c), STREAM_SELECT, (uint64_t)key << 32};
    uint32_t want = case_u32(c, "count"), n = length < width ? length : width;
    uint32_t kpool = case_enum_is(c, "ids", "pools") ? case_u32(c, "kpool") : 1;
    if (want && want < n) n = want;
    if (case_enum_is(c, "ids", "prefix")) {
        for (uint32_t i = 0; i < n; i++) tokens[i] = (int32_t)i;
        return n;
    }
    /* Whole pools in a random order, then the tokens of the pool in progress. */
    uint32_t pools = length / kpool, used = 0;
    uint32_t *order = malloc((pools + 1) * sizeof *order);
    if (!order) return 0;
    rng_permutation(&r, order, pools);
    uint32_t tail = length - pools * kpool, tail_taken = tail < n ? tail : n;
    for (uint32_t p = 0; p < pools && used < n - tail_taken; p++) {
        for (uint32_t s = 0; s < kpool && used < n - tail_taken; s++)
            tokens[used++] = (int32_t)(order[p] * kpool + s);
    }
    for (uint32_t s = 0; s < tail_taken; s++) tokens[used++] = (int32_t)(pools * kpool + s);
    free(order);
    return used;
}

/* The first hole of a row that holds ids beyond the sequence holds its length exactly: the one an
 * off-by-one would read. Only the first, for an id may not stand twice. */
static int32_t hole_value(enum fill fill, struct rng *r, uint32_t length, bool first)
{
    if (fill == FILL_NEGATIVE) return (int32_t)rng_range(r, INT32_MIN, -1);
    if (fill == FILL_BEYOND)
        return first ? (int32_t)length : (int32_t)rng_range(r, (int64_t)length + 1, INT32_MAX);
    return -1;
}

/* Places `n` tokens in a row of `width` with its holes where the case wants them. */
static void place_row(const struct case_line *c, uint32_t key, uint32_t length,
                      const int32_t *tokens, uint32_t n, uint32_t width, int32_t *row)
{
    struct rng r = {case_seed(c), STREAM_HOLES, (uint64_t)key << 32};
    uint32_t holes = width - n, used = 0;
    enum fill fill = (enum fill)case_int(c, "fill");
    bool front = case_enum_is(c, "holes", "front");
    bool alternate = case_enum_is(c, "holes", "alternate");
    bool interior = case_enum_is(c, "holes", "interior");
    if (case_enum_is(c, "holes", "all")) {
        holes = width;
        n = 0;
    }
    for (uint32_t i = 0; i < width; i++) {
        bool hole = i >= n;
        uint32_t left = width - i, tokens_left = n - used;
        if (front) hole = i < holes;
        if (alternate) hole = tokens_left == 0 || (i % 2 == 0 && left > tokens_left);
        if (interior)
            hole = tokens_left == 0 || (i > 0 && left > tokens_left && !rng_one_in(&r, 3));
        row[i] = hole ? hole_value(fill, &r, length, i == used) : tokens[used++];
    }
    if (case_enum_is(c, "fault", "duplicate") && n >= 2 && width >= 2) {
        for (uint32_t i = 0; i < width; i++) {
            if (row[i] >= 0 && (uint32_t)row[i] < length && row[i] != tokens[0]) row[i] = tokens[0];
        }
    }
}

struct build {
    const struct case_line *c;
    struct instance *in;
    struct paging paging;
    struct field q, k, v;
    int64_t *lengths;
    uint32_t seqs, heads, latent, width;
    uint64_t first_key; /* of sequence 0, whose data shared pages hold */
    uint64_t cache_bytes;
    struct tensor *k_cache, *v_cache;
    bool same_bytes; /* V is a copy of K in a buffer of its own */
};

/* exact_int for a softmax: keys equal in every channel the query reads, so all scores are equal and
 * every weight is exactly 1; values are small integers. */
static void exact_row(struct build *b, bool query, uint64_t row, double *out)
{
    field_row(query ? &b->q : &b->k, row, out);
    for (uint32_t ch = 0; ch < b->latent; ch++) {
        if (query && ch % 4) out[ch] = 0;
        if (!query && ch % 4 == 0) out[ch] = 1 + ch / 4 % 3;
    }
}

static void store_token(struct build *b, uint32_t seq, uint64_t key, uint32_t token)
{
    bool foreign = token / b->paging.block_size < b->paging.shared[seq];
    uint64_t row = (foreign ? b->first_key : key) << 24 | token;
    uint64_t offset = paging_token_offset(&b->paging, seq, token, b->latent);
    if (b->k.regime == REGIME_EXACT_INT) {
        double values[1024];
        exact_row(b, false, row, values);
        for (uint32_t ch = 0; ch < b->latent; ch++)
            b->k_cache->data[offset + ch] = ref_e4m3_from_f32((float)values[ch]);
    } else {
        field_row_store(&b->k, row, DTYPE_E4M3, b->k_cache->data + offset);
    }
    if (b->v_cache == b->k_cache) return;
    if (b->same_bytes)
        memcpy(b->v_cache->data + offset, b->k_cache->data + offset, b->latent);
    else
        field_row_store(&b->v, row, DTYPE_E4M3, b->v_cache->data + offset);
}

static bool add_tensors(struct build *b)
{
    const struct case_line *c = b->c;
    uint64_t q_shape[] = {b->seqs, b->heads, b->latent};
    uint64_t cache_shape[] = {b->cache_bytes};
    uint64_t table_shape[] = {b->seqs, b->paging.max_blocks}, row_shape[] = {b->seqs, b->width};
    uint64_t len_shape[] = {b->seqs};
    bool one = case_enum_is(c, "kv", "one");
    struct instance *in = b->in;
    if (!instance_add(in, "q", DTYPE_BF16, ROLE_IN, CONTRACT_ANY, 3, q_shape, "seq,head,dim"))
        return false;
    b->k_cache = instance_add(in, "k_cache", DTYPE_E4M3, ROLE_IN, CONTRACT_ANY, 1, cache_shape,
                              "byte");
    if (!b->k_cache) return false;
    if (one) {
        struct tensor *alias = &in->tensors[in->n_tensors++];
        *alias = *b->k_cache;
        alias->name = "v_cache";
        alias->alias_of = (int32_t)instance_index(in, "k_cache");
        b->v_cache = b->k_cache;
    } else {
        b->v_cache = instance_add(in, "v_cache", DTYPE_E4M3, ROLE_IN, CONTRACT_ANY, 1, cache_shape,
                                  "byte");
    }
    return b->v_cache &&
           instance_add(in, "out", DTYPE_BF16, ROLE_OUT, CONTRACT_BOUND, 3, q_shape,
                        "seq,head,dim") &&
           instance_add(in, "block_tables", DTYPE_I32, ROLE_IN, CONTRACT_ANY, 2, table_shape,
                        "seq,page") &&
           instance_add(in, "seq_lens", DTYPE_I32, ROLE_IN, CONTRACT_ANY, 1, len_shape, "seq") &&
           instance_add(in, "sel_indices", DTYPE_I32, ROLE_IN, CONTRACT_ANY, 2, row_shape,
                        "seq,slot");
}

/* Backs and poisons the cache: the whole pool when it is small, else only the pages in use. */
static bool poison_cache(struct build *b, struct tensor *t, const uint8_t *used_pages)
{
    const struct paging *p = &b->paging;
    bool dense = (p->num_pages - p->first_page) * p->pitch_bytes <= DENSE_CACHE_BYTES;
    for (uint32_t page = p->first_page; page < p->num_pages; page++) {
        if (!dense && !used_pages[page - p->first_page]) continue;
        uint64_t at = page * p->pitch_bytes;
        if ((!dense || p->first_page) && !tensor_add_extent(t, at, p->pitch_bytes)) return false;
        poison_fill(t->data + at, DTYPE_E4M3, p->pitch_bytes, b->in->poison);
    }
    return true;
}

static void fill_tables(struct build *b)
{
    const struct paging *p = &b->paging;
    int32_t *table = instance_data(b->in, "block_tables");
    int32_t *lens = instance_data(b->in, "seq_lens");
    uint64_t entries = (uint64_t)p->num_seqs * p->max_blocks;
    poison_fill(table, DTYPE_I32, entries, b->in->poison);
    for (uint64_t i = 0; i < entries; i++) {
        if (p->table[i] >= 0) table[i] = p->table[i];
    }
    for (uint32_t s = 0; s < b->seqs; s++) lens[s] = (int32_t)sequence_length(b->c, s);
    if (case_enum_is(b->c, "fault", "length") && b->seqs)
        lens[b->seqs - 1] = (int32_t)((uint64_t)p->max_blocks * p->block_size) + 1;
    if (case_enum_is(b->c, "fault", "table")) {
        for (uint64_t i = 0; i < entries; i++) table[i] = (int32_t)p->num_pages;
    }
}

static bool fill_selection(struct build *b)
{
    const struct paging *p = &b->paging;
    int32_t *rows = instance_data(b->in, "sel_indices");
    int32_t *tokens = malloc((b->width + 1) * sizeof *tokens);
    uint8_t *used = calloc(p->num_pages - p->first_page + 1, 1);
    bool fine = tokens && used;
    for (int pass = 0; pass < 2 && fine; pass++) {
        for (uint32_t s = 0; s < b->seqs; s++) {
            uint32_t length = (uint32_t)b->lengths[s], key = sequence_key(b->c, s);
            uint32_t n = pick_tokens(b->c, key, length, b->width, tokens);
            if (case_enum_is(b->c, "holes", "all")) n = 0;
            for (uint32_t i = 0; i < n && pass == 1; i++) store_token(b, s, key, (uint32_t)tokens[i]);
            for (uint32_t i = 0; i < n && pass == 0; i++) {
                uint64_t entry = (uint64_t)s * p->max_blocks + (uint32_t)tokens[i] / p->block_size;
                used[(uint32_t)p->table[entry] - p->first_page] = 1;
            }
            if (pass == 1)
                place_row(b->c, key, length, tokens, n, b->width, rows + (uint64_t)s * b->width);
        }
        if (pass == 0) fine = poison_cache(b, b->k_cache, used);
        if (pass == 0 && fine && b->v_cache != b->k_cache)
            fine = poison_cache(b, b->v_cache, used);
    }
    free(tokens);
    free(used);
    return fine;
}

static void fill_queries(struct build *b)
{
    uint16_t *q = instance_data(b->in, "q");
    for (uint32_t s = 0; s < b->seqs; s++) {
        for (uint32_t h = 0; h < b->heads; h++) {
            uint16_t *row = q + ((uint64_t)s * b->heads + h) * b->latent;
            uint64_t key = (uint64_t)sequence_key(b->c, s) * b->heads + h;
            if (b->q.regime != REGIME_EXACT_INT) {
                field_row_store(&b->q, key, DTYPE_BF16, row);
                continue;
            }
            double values[1024];
            exact_row(b, true, key, values);
            for (uint32_t ch = 0; ch < b->latent; ch++) row[ch] = ref_bf16_from_f32((float)values[ch]);
        }
    }
}

static enum regime regime_of(const struct case_line *c)
{
    for (int r = 0; r < REGIME_COUNT; r++) {
        if (case_enum_is(c, "regime", regime_names[r])) return (enum regime)r;
    }
    return REGIME_NORMAL;
}

static bool build_all(struct build *b)
{
    const struct case_line *c = b->c;
    uint64_t seed = case_seed(c), page_seed = seed + case_u32(c, "pageseed");
    enum regime regime = regime_of(c);
    enum page_order order = (enum page_order)case_int(c, "pages");
    b->lengths = malloc((b->seqs + 1) * sizeof *b->lengths);
    if (!b->lengths) return false;
    /* A negative length is for the predicates, which see it in seq_lens: no tokens to build. */
    for (uint32_t s = 0; s < b->seqs; s++)
        b->lengths[s] = sequence_length(c, s) > 0 ? sequence_length(c, s) : 0;
    if (!paging_make(&b->paging, b->lengths, b->seqs, table_width(c), case_u32(c, "block"),
                     page_pitch(c), order, case_u32(c, "pool"), page_seed))
        return false;
    b->cache_bytes = (uint64_t)b->paging.num_pages * b->paging.pitch_bytes;
    b->q = field_make(seed, STREAM_Q, FIELD_QUERY, regime, DTYPE_BF16, b->latent);
    b->same_bytes = case_enum_is(c, "kv", "two") || regime == REGIME_EXACT_INT;
    b->k = field_make(seed, STREAM_K, FIELD_KEY, regime, DTYPE_E4M3, b->latent);
    b->v = field_make(seed, STREAM_V, FIELD_VALUE, regime, DTYPE_E4M3, b->latent);

    b->in->extra = malloc(sizeof(uint32_t));
    if (!b->in->extra || !add_tensors(b)) return false;
    *(uint32_t *)b->in->extra = b->paging.num_pages;
    fill_tables(b);
    fill_queries(b);
    if (!fill_selection(b)) return false;
    if (b->v_cache == b->k_cache) {
        struct tensor *alias = &b->in->tensors[instance_index(b->in, "v_cache")];
        alias->extents = b->k_cache->extents;
        alias->n_extents = b->k_cache->n_extents;
    }
    return true;
}

static bool build(const struct case_line *c, struct instance *in)
{
    struct build b = {.c = c,
                      .in = in,
                      .seqs = case_u32(c, "seqs"),
                      .heads = case_u32(c, "heads"),
                      .latent = case_u32(c, "latent"),
                      .width = row_width(c),
                      .first_key = sequence_key(c, 0)};
    bool fine = build_all(&b);
    paging_free(&b.paging);
    free(b.lengths);
    return fine;
}

static enum gpu_status launch(const struct gpu_target *targets, const struct case_line *c,
                              const struct instance *in, const struct gpu_buffer *buffers,
                              struct gpu_report *report)
{
    struct gpu_dsa_decode a;
    gpu_args(c, in, &a);
    a.q = &buffers[instance_index(in, "q")];
    a.k_cache = &buffers[instance_index(in, "k_cache")];
    a.v_cache = &buffers[instance_index(in, "v_cache")];
    a.out = &buffers[instance_index(in, "out")];
    a.block_tables = &buffers[instance_index(in, "block_tables")];
    a.seq_lens = &buffers[instance_index(in, "seq_lens")];
    a.sel_indices = &buffers[instance_index(in, "sel_indices")];
    return gpu_dsa_decode(&targets[0], &a, report);
}

static bool power_of_two(double x)
{
    int exponent;
    return frexp(x, &exponent) == 0.5;
}

/* In exact_int every weight is 1 and every sum exact; with a power of two of ids and scales that are
 * powers of two the quotient is exact too, so nothing but the store rounds and the bound is 0. */
static bool exactly_computable(const struct case_line *c, const struct ref_dsa_decode *g,
                               uint32_t seq)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->width; i++) {
        int32_t id = g->sel_indices[(uint64_t)seq * g->width + i];
        n += id >= 0 && id < g->seq_lens[seq];
    }
    return regime_of(c) == REGIME_EXACT_INT && (n & (n - 1)) == 0 && power_of_two(g->k_scale) &&
           power_of_two(g->v_scale);
}

static void oracle(const struct case_line *c, const struct instance *in,
                   const struct ref_error_model *model, const uint8_t *const *got,
                   struct expected *e)
{
    struct ref_dsa_decode g;
    struct expected *out = &e[instance_index(in, "out")];
    ref_args(c, in, &g);
    ref_dsa_decode(&g, model, out->value, out->bound);
    for (uint32_t s = 0; s < g.num_seqs; s++) {
        uint64_t row = (uint64_t)g.num_q_heads * g.kv_lora_rank;
        if (!exactly_computable(c, &g, s)) continue;
        /* Scores overflow under an absurd scale: the oracle then bounds nothing. */
        for (uint64_t i = s * row; i < (s + 1) * row; i++) {
            if (isfinite(out->bound[i])) out->bound[i] = 0;
        }
    }
}

static uint32_t draw_length(struct rng *r, uint32_t block, uint32_t kpool, uint32_t topk,
                            uint32_t longest)
{
    int64_t around[] = {block, kpool, topk, topk + kpool - 1, 32, 8};
    if (rng_one_in(r, 9)) return (uint32_t)rng_range(r, 0, 1);
    return (uint32_t)rng_edge(r, 0, longest, rng_pick(r, around, 6));
}

/* A grid with more blocks than an H200 has multiprocessors: kernels that choose another path by batch
 * or grid size take it there, and the row-alone relation crosses back (bugs B4, B6). */
static void make_wide(struct case_line *c, struct rng *r)
{
    uint32_t n, seqs = case_u32(c, "seqs");
    const int64_t *old = case_list(c, "len", &n);
    int64_t lengths[CASE_LIST_MAX];
    for (uint32_t i = 0; i < n; i++) lengths[i] = old[i] > 70 ? old[i] % 70 : old[i];
    case_set_list(c, "len", lengths, n);
    case_set_int(c, "heads", (133 + seqs - 1) / seqs + rng_range(r, 0, 3));
}

/* exact_int needs a power of two of ids in every row. */
static void make_countable(struct case_line *c, struct rng *r)
{
    uint32_t n, width = row_width(c), count = 1u << rng_range(r, 0, 6);
    while (count > width) count /= 2;
    const int64_t *old = case_list(c, "len", &n);
    int64_t lengths[CASE_LIST_MAX];
    for (uint32_t i = 0; i < n; i++) lengths[i] = old[i] < count ? count + old[i] : old[i];
    case_set_list(c, "len", lengths, n);
    case_set_int(c, "count", count);
    case_set_real(c, "kscale", 0.0625);
    case_set_real(c, "vscale", 0.125);
    if (case_enum_is(c, "kv", "distinct")) case_set_enum(c, "kv", "two");
}

/* More ids than the released row has: more than a kernel may list at a time. */
static void make_long_row(struct case_line *c, struct rng *r)
{
    int64_t kpool = case_int(c, "kpool"), topk = rng_range(r, 2051, 5000) / kpool * kpool;
    /* Lists are taken by blocks of threads: rows that end with one, and beside it. */
    if (rng_one_in(r, 2)) {
        kpool = 1;
        topk = 256 * rng_range(r, 9, 18) + rng_range(r, -1, 1);
        case_set_int(c, "kpool", 1);
    }
    int64_t length = rng_range(r, topk * 3 / 4, topk * 5 / 4);
    case_set_int(c, "seqs", 1);
    case_set_int(c, "heads", rng_range(r, 1, 2));
    case_set_list(c, "len", &length, 1);
    case_set_int(c, "topk", topk);
    case_set_int(c, "count", 0);
    case_set_int(c, "fill", 0);
}

static void sample(struct case_line *c, struct rng *r, enum tier tier, uint64_t index)
{
    static const int64_t heads[] = {1, 1, 2, 3, 4, 5, 8, 17}, kpools[] = {1, 2, 3, 4, 4, 8, 16};
    static const double scales[] = {0.0625, 0.37, 0.25, 1, 0.011, 3.7};
    uint32_t kpool = (uint32_t)rng_pick(r, kpools, 7), seqs = (uint32_t)rng_range(r, 1, 3);
    uint32_t longest = tier == TIER_FULL ? 1500 : 200;
    uint32_t topk = kpool * (uint32_t)rng_edge(r, 1, longest / 2 / kpool, 32 / kpool + 1);
    uint32_t block = kpool * (uint32_t)rng_range(r, 1, 64 / kpool);
    int64_t lengths[4];
    for (uint32_t s = 0; s < seqs; s++) lengths[s] = draw_length(r, block, kpool, topk, longest);
    case_set_int(c, "seqs", seqs);
    case_set_int(c, "heads", rng_pick(r, heads, tier == TIER_FULL ? 8 : 7));
    case_set_list(c, "len", lengths, seqs);
    case_set_int(c, "block", block);
    case_set_int(c, "kpool", kpool);
    case_set_int(c, "topk", topk);
    case_set_int(c, "pitch", rng_one_in(r, 2) ? 0 : 16 * rng_range(r, 1, 40));
    case_set_real(c, "kscale", scales[rng_u32(r) % 6]);
    case_set_real(c, "vscale", scales[rng_u32(r) % 6]);
    case_set_int(c, "spare", rng_range(r, 0, 2));
    /* Every regime meets every structure: the strides are coprime to each other's counts. */
    case_set_enum(c, "regime", regimes[index % 14]);
    case_set_int(c, "pages", (int64_t)(index / 14 + index) % 4);
    case_set_int(c, "holes", (int64_t)(index / 14 + index) % 11 % 5);
    case_set_int(c, "ids", (int64_t)(rng_u32(r) % 3));
    case_set_int(c, "kv", (int64_t)(rng_u32(r) % 3));
    case_set_int(c, "fill", rng_one_in(r, 3) ? rng_range(r, 1, 2) : 0);
    if (rng_one_in(r, 4)) case_set_int(c, "count", rng_range(r, 1, 20));
    if (rng_one_in(r, 12)) make_wide(c, r);
    if (index % 61 == 7) make_long_row(c, r);
    if (case_enum_is(c, "regime", "exact_int")) make_countable(c, r);
}

static uint32_t absurd_u32(struct rng *r, int64_t usual)
{
    static const int64_t values[] = {0, 1, 2, 3, 65535, 65536, 1 << 20, INT32_MAX, UINT32_MAX};
    return (uint32_t)(rng_one_in(r, 2) ? usual + rng_range(r, -1, 1) : rng_pick(r, values, 9));
}

static void sample_wild(struct case_line *c, struct rng *r)
{
    static const float scales[] = {0, -1, INFINITY, NAN, 1e-45f, 3e38f};
    static const char *const u32_keys[] = {"seqs",  "heads", "block", "kpool",
                                           "topk", "latent", "kvheads"};
    sample(c, r, TIER_QUICK, rng_u32(r));
    uint32_t faults = (uint32_t)rng_range(r, 0, 2);
    for (uint32_t i = 0; i < faults; i++) {
        uint32_t which = rng_u32(r) % 13;
        int64_t length = rng_range(r, INT32_MIN, INT32_MAX);
        if (which < 7) {
            uint32_t value = absurd_u32(r, case_int(c, u32_keys[which]));
            /* Lists per sequence are read by index, so the batch must stay addressable. */
            case_set_int(c, u32_keys[which], value);
        } else if (which == 7) {
            case_set_real(c, rng_one_in(r, 2) ? "kscale" : "vscale", scales[rng_u32(r) % 6]);
        } else if (which == 8) {
            case_set_real(c, "scale", scales[rng_u32(r) % 6]);
        } else if (which == 9) {
            case_set_int(c, "selrows", rng_range(r, 0, 5));
        } else if (which == 10) {
            case_set_int(c, "pitch", rng_range(r, -40, 40) * rng_range(r, 1, 16));
        } else if (which == 11) {
            case_set_list(c, "len", &length, 1);
        } else {
            case_set_int(c, "width", absurd_u32(r, row_width(c)));
        }
    }
}

static bool edit_pages(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    if (case_enum_is(base, "pages", "shared")) return false;
    case_set_enum(changed, "pages", "shuffled");
    case_set_int(changed, "pageseed", rng_range(r, 1, 1 << 20));
    return true;
}

static bool edit_pitch(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    case_set_int(changed, "pitch", case_int(base, "pitch") + 16 * rng_range(r, 1, 9));
    return true;
}

static bool edit_block(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    if (case_enum_is(base, "pages", "shared")) return false;
    case_set_int(changed, "block",
                 case_int(base, "block") + case_int(base, "kpool") * rng_range(r, 1, 3));
    return true;
}

static bool edit_split(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    if (!case_enum_is(base, "kv", "one")) return false;
    case_set_enum(changed, "kv", "two");
    return true;
}

static bool edit_order(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    if (case_int(base, "seqs") < 2 || case_enum_is(base, "pages", "shared")) return false;
    case_set_int(changed, "reverse", !case_int(base, "reverse"));
    return true;
}

static int64_t row_reversed(const struct case_line *base, const struct case_line *changed,
                            int64_t row)
{
    return case_int(base, "seqs") - 1 - row;
}

static bool edit_alone(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    if (case_int(base, "seqs") < 2 || case_enum_is(base, "pages", "shared")) return false;
    uint32_t row = (uint32_t)rng_range(r, 0, case_int(base, "seqs") - 1);
    case_set_int(changed, "first", sequence_key(base, row));
    case_set_int(changed, "seqs", 1);
    case_set_int(changed, "reverse", 0);
    return true;
}

static int64_t row_alone(const struct case_line *base, const struct case_line *changed, int64_t row)
{
    for (uint32_t s = 0; s < case_u32(base, "seqs"); s++) {
        if (sequence_key(base, s) == sequence_key(changed, 0)) return s;
    }
    return -1;
}

static bool edit_holes(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    if (case_enum_is(base, "holes", "all")) return false;
    case_set_enum(changed, "holes", case_enum_is(base, "holes", "front") ? "alternate" : "front");
    return true;
}

static bool edit_vscale(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    case_set_real(changed, "vscale", 2 * case_real(base, "vscale"));
    return true;
}

static bool edit_scales(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    case_set_real(changed, "kscale", 4 * case_real(base, "kscale"));
    case_set_real(changed, "scale", case_real(base, "scale") / 4);
    return true;
}

static const struct relation relations[] = {
    {"pages-permuted", RELATION_SAME_BITS, .edit = edit_pages},
    {"pitch-changed", RELATION_SAME_BITS, .edit = edit_pitch},
    {"block-size-changed", RELATION_SAME_BITS, .edit = edit_block},
    {"kv-split", RELATION_SAME_BITS, .edit = edit_split},
    {"batch-reversed", RELATION_SAME_BITS, .edit = edit_order, .base_row_of = row_reversed},
    {"row-alone", RELATION_SAME_BITS, .edit = edit_alone, .base_row_of = row_alone},
    {"holes-moved", RELATION_SAME_LIMITS, .edit = edit_holes},
    {"v-scale-doubled", RELATION_DOUBLED, .edit = edit_vscale},
    {"scale-folded", RELATION_SAME_BITS, .edit = edit_scales},
    {0}};

static const char *const modules[] = {"glm5next_dsa_mla_decode", NULL};

/* What the kernel declares at the top of its file. */
static const struct ref_error_model model = {.exp_ulp = 1.0,
                                             .div_ulp = 0.5,
                                             .mma_k = 16,
                                             .rescales_per_key = 1.0 / 32,
                                             .rescales_fixed = 1};

const struct op op_dsa_decode = {
    .name = "glm5next_dsa_mla_decode_fp8",
    .modules = modules,
    .family = "dsa",
    .summary = "sparse decode over FP8 latent pages",
    .contract = CONTRACT_BOUND,
    .weight = 2,
    .params = params,
    .n_params = sizeof params / sizeof *params,
    .presets = presets,
    .always = always,
    .model = &model,
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
