/* glm5next_dsa_mla_decode_fp8: sparse decode over FP8 latent pages (ops.md §2). */
#include <stdlib.h>
#include <string.h>

#include "harness/case/cache.h"
#include "harness/ops/dsa_common.h"

enum { STREAM_Q = 1, STREAM_K = 2, STREAM_V = 3, STREAM_SELECT = 4, STREAM_HOLES = 5 };

static const char *const hole_names[] = {"end", "front", "interior", "alternate", "all", NULL};
enum fill { FILL_MINUS1, FILL_NEGATIVE, FILL_BEYOND };
static const char *const fill_names[] = {"minus1", "negative", "beyond", NULL};
static const char *const id_names[] = {"pools", "scattered", "prefix", NULL};
static const char *const kv_names[] = {"one", "two", "distinct", NULL};
static const char *const fault_names[] = {"none", "table", "duplicate", "length", NULL};
static const char *const regimes[] = {"normal", "exact_int", "peaked", "flat",     "all_negative",
                                      "cancel", "outlier",   "walk",   "needle",   "subnormal",
                                      "huge",   "offset",    "equal",  "specials", NULL};

static const struct param params[] = {
    COUNT_KEY("seqs", "1", "sequences in the batch", 1),
    COUNT_KEY("heads", "8", "query heads", 1),
    {"len", PARAM_LIST, false, "[64]", INT32_MIN, INT32_MAX, NULL,
     "tokens of each sequence; a shorter list repeats", 1},
    COUNT_KEY("block", "16", "slots of a page", 4),
    COUNT_KEY("kpool", "4", "tokens of a pool", 1),
    COUNT_KEY("topk", "32", "selected tokens; a row is topk+kpool-1 wide", 4),
    {"pitch", PARAM_OFFSET, false, "+0", -(INT64_C(1) << 40), INT64_C(1) << 40, NULL,
     "page pitch above the dense size, bytes", 0},
    ENUM_KEY("pages", "shuffled", page_order_names, "order of physical pages", 0),
    ENUM_KEY("holes", "end", hole_names, "where a row has its holes", 0),
    {"fill", PARAM_ENUM, true, "minus1", 0, 0, fill_names, "what a hole holds", 0},
    ENUM_KEY("ids", "pools", id_names, "how tokens are picked", 2),
    RARE_COUNT_KEY("count", "0", "ids in a row; 0: as many as fit", 1),
    ENUM_KEY("kv", "one", kv_names,
             "K and V in one buffer, in two with the same bytes, or with different ones", 0),
    {"scale", PARAM_REAL, true, "0.044194173", 0, 0, NULL, "softmax scale; 512^-0.5", 0},
    REAL_KEY("kscale", "0.0625", "FP8 scale of K", 0),
    REAL_KEY("vscale", "0.0625", "FP8 scale of V", 0),
    RARE_COUNT_KEY("latent", "512", "kv_lora_rank", 512),
    RARE_COUNT_KEY("kvheads", "1", "num_kv_heads", 1),
    RARE_OWN_KEY("selrows", "selection rows; -1: seqs"),
    RARE_OWN_KEY("width", "row width; -1: topk+kpool-1"),
    {"spare", PARAM_INT, true, "1", 0, 4096, NULL, "table entries past the longest sequence", 0},
    {"pool", PARAM_INT, true, "0", 0, 1 << 22, NULL,
     "pages of the cache at least; pages=high: the last ones are used", 0},
    RARE_COUNT_KEY("pageseed", "0", "another order of pages", 0),
    RARE_COUNT_KEY("first", "0", "which sequence comes first", 0),
    RARE_FLAG_KEY("reverse", "batch in reverse order"),
    {"fault", PARAM_ENUM, true, "none", 0, 0, fault_names, "break a rule in the index tensors", 0},
    ENUM_KEY("regime", "normal", regimes, "values", 0),
    SEED_KEY,
};

static const struct preset presets[] = {
    {"glm53", "seqs=1,heads=64,len=[2600],block=64,kpool=4,topk=2048,ids=pools,scale=0.044194173"},
    {NULL, NULL}};

static const char *const always[] = {
    "glm5next_dsa_mla_decode_fp8:model=glm53,kscale=0.37,vscale=0.29,kv=distinct,regime=peaked,"
    "seed=0x53",
    "glm5next_dsa_mla_decode_fp8:seqs=3,heads=2,len=[37,0,64],pitch=+4096,pages=high,seed=0x1f",
    "glm5next_dsa_mla_decode_fp8:seqs=3,heads=46,len=[300,5,0],topk=252,kv=two,kscale=0.37,seed="
    "0x85",
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

/* Entries for the longest sequence, and spare ones. */
static int64_t table_width(const struct case_line *c)
{
    uint32_t n, block = case_u32(c, "block");
    const int64_t *lengths = case_list(c, "len", &n);
    uint64_t longest = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t blocks = block && lengths[i] > 0 ? ((uint64_t)lengths[i] + block - 1) / block : 0;
        if (blocks > longest) longest = blocks;
    }
    return (int64_t)longest + case_u32(c, "spare");
}

static const struct number numbers[] = {
    {"num_seqs", "seqs"},
    {"sel_rows", "selrows < 0 ? seqs : selrows"},
    {"width", "width < 0 ? topk + kpool - 1 : width"},
    {"max_blocks_per_seq", .compute = table_width},
    {"num_q_heads", "heads"},
    {"num_kv_heads", "kvheads"},
    {"kv_lora_rank", "latent"},
    {"block_size", "block"},
    {"index_kpool", "kpool"},
    {"k_scale", "kscale"},
    {"v_scale", "vscale"},
    {"cache_stride_bytes", "max(block*kvheads*latent + pitch, 0)"},
};

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

/* A negative length is for the predicates, which see it in seq_lens: no tokens to build. */
static uint32_t tokens_of(const struct case_line *c, uint32_t s)
{
    int64_t length = sequence_length(c, s);
    return length > 0 ? (uint32_t)length : 0;
}

static bool lay_out(const struct case_line *c, struct instance *in)
{
    uint32_t seqs = case_u32(c, "seqs");
    int64_t *lengths = malloc(((uint64_t)seqs + 1) * sizeof *lengths);
    if (!lengths) return false;
    for (uint32_t s = 0; s < seqs; s++) lengths[s] = tokens_of(c, s);
    bool fine = cache_lay_out(c, in, lengths, seqs, (uint32_t)table_width(c),
                              (uint64_t)case_number(c, "cache_stride_bytes"),
                              case_seed(c) + case_u32(c, "pageseed"));
    free(lengths);
    return fine;
}

static bool fill_queries(const struct filling *f)
{
    uint32_t latent = case_u32(f->c, "latent"), heads = case_u32(f->c, "heads");
    struct field q = field_make(case_seed(f->c), STREAM_Q, FIELD_QUERY, dsa_regime(f->c, "regime"),
                                DTYPE_BF16, latent);
    for (uint32_t s = 0; s < f->t->shape[0]; s++) {
        for (uint32_t h = 0; h < heads; h++)
            dsa_attend_store(&q, (uint64_t)sequence_key(f->c, s) * heads + h, true, DTYPE_BF16,
                             f->t->data + 2 * ((uint64_t)s * heads + h) * latent);
    }
    return true;
}

static bool fill_table(const struct filling *f)
{
    const struct paging *p = f->in->pages;
    int32_t *table = (int32_t *)(void *)f->t->data;
    bool broken = case_enum_is(f->c, "fault", "table");
    for (uint64_t i = 0; i < f->t->elems; i++) {
        if (p->table[i] >= 0) table[i] = p->table[i];
        if (broken) table[i] = (int32_t)p->num_pages;
    }
    return true;
}

static bool fill_lengths(const struct filling *f)
{
    const struct paging *p = f->in->pages;
    int32_t *lens = (int32_t *)(void *)f->t->data;
    for (uint32_t s = 0; s < f->t->elems; s++) lens[s] = (int32_t)sequence_length(f->c, s);
    if (case_enum_is(f->c, "fault", "length") && f->t->elems)
        lens[f->t->elems - 1] = (int32_t)((uint64_t)p->max_blocks * p->block_size) + 1;
    return true;
}

static const struct array arrays[] = {
    {"q", ARRAY_IN, fill_queries},
    {"k_cache", ARRAY_IN},
    {"v_cache", ARRAY_IN, .when = "!kv.one"},
    {"v_cache", ARRAY_IN, .when = "kv.one", .alias_of = "k_cache"},
    {"out", ARRAY_BOUND},
    {"block_tables", ARRAY_POISONED, fill_table},
    {"seq_lens", ARRAY_IN, fill_lengths},
    {"sel_indices", ARRAY_IN},
};

/* What the filling of caches and rows works on. */
struct build {
    const struct case_line *c;
    const struct paging *p;
    struct field k, v;
    struct tensor *k_cache, *v_cache; /* one and the same, where K and V share a buffer */
    bool same_bytes;                  /* V is a copy of K in a buffer of its own */
    uint32_t width;
    int32_t *tokens; /* [width] scratch */
    uint8_t *used;   /* by page */
};

static void store_token(const struct build *b, uint32_t seq, uint32_t token)
{
    uint32_t latent = b->k.cols;
    bool foreign = token / b->p->block_size < b->p->shared[seq]; /* a page of sequence 0 */
    uint64_t row = (uint64_t)sequence_key(b->c, foreign ? 0 : seq) << 24 | token;
    uint64_t offset = paging_token_offset(b->p, seq, token, latent);
    dsa_attend_store(&b->k, row, false, DTYPE_E4M3, b->k_cache->data + offset);
    if (b->v_cache == b->k_cache) return;
    if (b->same_bytes)
        memcpy(b->v_cache->data + offset, b->k_cache->data + offset, latent);
    else
        field_row_store(&b->v, row, DTYPE_E4M3, b->v_cache->data + offset);
}

/* The tokens of a sequence, into b->tokens; their number. */
static uint32_t select_tokens(const struct build *b, uint32_t s)
{
    uint32_t n = pick_tokens(b->c, sequence_key(b->c, s), tokens_of(b->c, s), b->width, b->tokens);
    return case_enum_is(b->c, "holes", "all") ? 0 : n;
}

static void mark_pages(const struct build *b, uint32_t s)
{
    uint32_t n = select_tokens(b, s);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t entry = (uint64_t)s * b->p->max_blocks + (uint32_t)b->tokens[i] / b->p->block_size;
        b->used[(uint32_t)b->p->table[entry] - b->p->first_page] = 1;
    }
}

static bool fill_all(const struct build *b, struct instance *in)
{
    int32_t *rows = instance_data(in, "sel_indices");
    uint32_t seqs = case_u32(b->c, "seqs");
    for (uint32_t s = 0; s < seqs; s++) mark_pages(b, s);
    if (!cache_poison(in, b->k_cache, b->used)) return false;
    if (b->v_cache != b->k_cache && !cache_poison(in, b->v_cache, b->used)) return false;
    for (uint32_t s = 0; s < seqs; s++) {
        uint32_t n = select_tokens(b, s);
        for (uint32_t i = 0; i < n; i++) store_token(b, s, (uint32_t)b->tokens[i]);
        place_row(b->c, sequence_key(b->c, s), tokens_of(b->c, s), b->tokens, n, b->width,
                  rows + (uint64_t)s * b->width);
    }
    return true;
}

static bool fill(const struct case_line *c, struct instance *in)
{
    enum regime regime = dsa_regime(c, "regime");
    uint32_t latent = case_u32(c, "latent");
    struct build b = {.c = c, .p = in->pages, .width = case_number_u32(c, "width")};
    b.k = field_make(case_seed(c), STREAM_K, FIELD_KEY, regime, DTYPE_E4M3, latent);
    b.v = field_make(case_seed(c), STREAM_V, FIELD_VALUE, regime, DTYPE_E4M3, latent);
    b.same_bytes = case_enum_is(c, "kv", "two") || regime == REGIME_EXACT_INT;
    b.k_cache = b.v_cache = &in->tensors[instance_index(in, "k_cache")];
    if (!case_enum_is(c, "kv", "one")) b.v_cache = &in->tensors[instance_index(in, "v_cache")];
    b.tokens = malloc(((uint64_t)b.width + 1) * sizeof *b.tokens);
    b.used = calloc(b.p->num_pages - b.p->first_page + 1, 1);
    bool fine = b.tokens && b.used && fill_all(&b, in);
    free(b.tokens);
    free(b.used);
    return fine;
}

static void sharpen(const struct case_line *c, const struct instance *in, struct expected *e)
{
    struct ref_dsa_decode g = {0};
    if (dsa_regime(c, "regime") != REGIME_EXACT_INT) return;
    step_ref_arguments(c->op->steps, c, in, &g, NULL);
    dsa_decode_exact(&g, e[instance_index(in, "out")].bound);
}

static uint32_t draw_length(struct rng *r, uint32_t block, uint32_t kpool, uint32_t topk,
                            uint32_t longest)
{
    int64_t around[] = {block, kpool, topk, topk + kpool - 1, 32, 8};
    if (rng_one_in(r, 9)) return (uint32_t)rng_range(r, 0, 1);
    return (uint32_t)rng_edge(r, 0, longest, rng_pick(r, around, 6));
}

/* A grid with more blocks than an H200 has multiprocessors, in two sizes: kernels that choose another
 * path by batch or grid size take it there, and the row-alone relation crosses back (bugs B4, B6).
 * Most sequences are empty, which is cheap. */
static void make_wide(struct case_line *c, struct rng *r)
{
    int64_t lengths[6] = {rng_range(r, 1, 40), 0, 0, 1, 0, rng_range(r, 17, 33)};
    case_set_int(c, "seqs", rng_one_in(r, 2) ? rng_range(r, 34, 36) : rng_range(r, 67, 70));
    case_set_int(c, "heads", rng_range(r, 49, 64));
    case_set_list(c, "len", lengths, 6);
    /* Whole rows: a path that goes wrong behind its first keys needs more than those. */
    int64_t kpool = case_int(c, "kpool");
    if (case_int(c, "topk") < 40) case_set_int(c, "topk", (40 + kpool - 1) / kpool * kpool);
    case_set_int(c, "count", 0);
}

/* Few heads and long rows, most of them holes: kernels that share one row out among blocks. */
static void make_narrow(struct case_line *c, struct rng *r)
{
    int64_t length = rng_range(r, 256, 600), kpool = case_int(c, "kpool");
    case_set_int(c, "seqs", rng_range(r, 1, 2));
    case_set_int(c, "heads", rng_one_in(r, 3) ? 17 : rng_range(r, 8, 9));
    case_set_list(c, "len", &length, 1);
    case_set_int(c, "topk", rng_range(r, 256, 400) / kpool * kpool + kpool);
    case_set_int(c, "count", rng_range(r, 1, 140));
}

/* exact_int needs a power of two of ids in every row. */
static void make_countable(struct case_line *c, struct rng *r)
{
    uint32_t n, width = case_number_u32(c, "width"), count = 1u << rng_range(r, 0, 6);
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
    if (rng_one_in(r, 40)) make_wide(c, r);
    if (rng_one_in(r, 40)) make_narrow(c, r);
    if (index % 61 == 7) make_long_row(c, r);
    if (case_enum_is(c, "regime", "exact_int")) make_countable(c, r);
}

#define OWN_PAGES "!pages.shared"
static const struct relation relations[] = {
    {"pages-permuted", RELATION_SAME_BITS, OWN_PAGES,
     "pages = shuffled, pageseed = draw(1, 1048576)"},
    {"pitch-changed", RELATION_SAME_BITS, NULL, "pitch = pitch + 16*draw(1, 9)"},
    {"block-size-changed", RELATION_SAME_BITS, OWN_PAGES, "block = block + kpool*draw(1, 3)"},
    {"kv-split", RELATION_SAME_BITS, "kv.one", "kv = two"},
    {"batch-reversed", RELATION_SAME_BITS, "seqs >= 2 && " OWN_PAGES, "reverse = !reverse",
     "seqs - 1 - row"},
    {"row-alone", RELATION_SAME_BITS, "seqs >= 2 && " OWN_PAGES,
     "first = first + draw(0, seqs - 1), seqs = 1, reverse = 0",
     "reverse ? seqs - 1 - (new.first - first) : new.first - first"},
    {"holes-moved", RELATION_SAME_LIMITS, "!holes.all", "holes = holes.front ? alternate : front"},
    {"v-scale-doubled", RELATION_DOUBLED, NULL, "vscale = 2*vscale"},
    {"scale-folded", RELATION_SAME_BITS, NULL, "kscale = 4*kscale, scale = scale/4"},
    {0}};

/* What the kernel declares at the top of its file. */
static const struct ref_error_model model = {.exp_ulp = 1.0,
                                             .div_ulp = 0.5,
                                             .tensor_core = true,
                                             .mma_k = 16,
                                             .p_bf16 = 2,
                                             .rescales_per_key = 1.0 / 16};

const struct op op_dsa_decode = {
    .name = "glm5next_dsa_mla_decode_fp8",
    .modules = (const char *const[]){"glm5next_dsa_mla_decode", NULL},
    .family = "dsa",
    .summary = "sparse decode over FP8 latent pages",
    .contract = CONTRACT_BOUND,
    .weight = 2,
    USUAL_TABLES,
    .steps = (const struct step[]){{&interface_dsa_decode}, {0}},
    .model = &model,
    .wild =
        "seqs heads block kpool topk latent kvheads kscale vscale scale selrows pitch len width",
    .lay_out = lay_out,
    .fill = fill,
    .sharpen = sharpen,
};
