/* The data of a dsa_decode_pipeline case. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/ops/dsa_pipeline.h"
#include "ref/formats.h"

enum {
    STREAM_K = 1,
    STREAM_GATE = 2,
    STREAM_APE = 3,
    STREAM_INDEX_Q = 4,
    STREAM_WEIGHT = 5,
    STREAM_Q = 6,
    STREAM_LATENT = 7,
    STREAM_VALUE = 8,
    STREAM_PLANT = 9
};
enum { DENSE_CACHE_BYTES = 64 << 20 }; /* above this, pages without a needed token are not backed */
enum { RELU_TIES_PERIOD = 16, RELU_TIES_HIT = 5 }; /* field rows with positive dots (values.h) */

struct build {
    const struct case_line *c;
    struct instance *in;
    struct dsa_pipeline p;
    struct paging paging;
    struct tensor *k_cache, *v_cache;
    uint8_t *needed;   /* [len] tokens some row may attend */
    uint8_t *complete; /* [pools] */
    int32_t *slots;    /* [pools, kpool] */
};

uint32_t *dsa_pipeline_key_pages(const struct case_line *c, const struct dsa_pipeline *p)
{
    if (!p->paged) return NULL;
    uint32_t *pages = malloc(((uint64_t)p->pool_pages + 1) * sizeof *pages);
    struct rng r = {case_seed(c) + case_u32(c, "pageseed"), 0x9001, 0};
    if (!pages) return NULL;
    rng_permutation(&r, pages, p->pool_pages);
    if (case_enum_is(c, "pages", "identity")) {
        for (uint32_t i = 0; i < p->pool_pages; i++) pages[i] = i;
    }
    return pages;
}

static struct tensor *add_in(struct build *b, const char *name, enum dtype dtype, uint32_t rank,
                             const uint64_t *shape, const char *dims)
{
    return instance_add(b->in, name, dtype, ROLE_IN, CONTRACT_ANY, rank, shape, dims);
}

/* Another name of a tensor: one buffer for two arguments. */
static struct tensor *add_alias(struct build *b, const char *name, const char *of)
{
    uint32_t index = instance_index(b->in, of);
    struct tensor *alias = &b->in->tensors[b->in->n_tensors++];
    *alias = b->in->tensors[index];
    alias->name = name;
    alias->alias_of = (int32_t)index;
    return alias;
}

static bool add_inputs(struct build *b)
{
    const struct dsa_pipeline *p = &b->p;
    uint64_t len = p->extent.scalar_len, rows = p->rows;
    uint64_t key[] = {len, p->dim}, valid[] = {len}, ape[] = {p->kpool, p->dim}, row[] = {rows};
    uint64_t index_q[] = {rows, p->index_heads, p->dim}, weight[] = {rows, p->index_heads};
    uint64_t q[] = {rows, p->heads, DSA_LATENT}, table[] = {rows, p->max_blocks};
    uint64_t cache[] = {(uint64_t)b->paging.num_pages * p->cache_pitch};
    if (!add_in(b, "k", DTYPE_BF16, 2, key, "token,dim") ||
        !(case_enum_is(b->c, "gates", "keys")
              ? add_alias(b, "gate", "k")
              : add_in(b, "gate", DTYPE_BF16, 2, key, "token,dim")) ||
        !add_in(b, "valid", DTYPE_U8, 1, valid, "token") ||
        !add_in(b, "ape", DTYPE_F32, 2, ape, "slot,dim") ||
        !add_in(b, "index_q", DTYPE_F32, 3, index_q, "query,head,dim") ||
        !add_in(b, "weights", DTYPE_F32, 2, weight, "query,head") ||
        !add_in(b, "q_pos", DTYPE_I32, 1, row, "query") ||
        !add_in(b, "q_mask", DTYPE_U8, 1, row, "query") ||
        !add_in(b, "q", DTYPE_BF16, 3, q, "query,head,dim") ||
        !add_in(b, "block_tables", DTYPE_I32, 2, table, "query,page") ||
        !add_in(b, "seq_lens", DTYPE_I32, 1, row, "query"))
        return false;
    b->k_cache = add_in(b, "k_cache", DTYPE_E4M3, 1, cache, "byte");
    if (!b->k_cache) return false;
    b->v_cache = case_enum_is(b->c, "kv", "one")
                     ? add_alias(b, "v_cache", "k_cache")
                     : add_in(b, "v_cache", DTYPE_E4M3, 1, cache, "byte");
    return b->v_cache != NULL;
}

static struct tensor *add_out(struct build *b, const char *name, enum dtype dtype,
                              enum contract contract, uint64_t rows, uint64_t cols, uint64_t stride,
                              const char *dims)
{
    uint64_t shape[] = {rows, cols}, strides[] = {stride, 1};
    return instance_add_strided(b->in, name, dtype, ROLE_OUT, contract, 2, shape, strides, 0,
                                rows * stride, dims);
}

/* Contiguous keys: [pools, dim]. Paged: every physical page, in the order in which they lie. */
static bool add_pool_keys(struct build *b)
{
    const struct dsa_pipeline *p = &b->p;
    uint64_t flat[] = {p->extent.pools, p->dim}, flat_stride[] = {p->dim, 1};
    uint64_t paged[] = {p->pool_pages, p->page_pools, p->dim};
    uint64_t paged_stride[] = {p->key_pitch, p->dim, 1};
    if (!p->paged)
        return instance_add_strided(b->in, "pool_keys", DTYPE_F32, ROLE_OUT, CONTRACT_BOUND, 2,
                                    flat, flat_stride, 0, (uint64_t)p->extent.scalar_pools * p->dim,
                                    "pool,dim");
    return instance_add_strided(b->in, "pool_keys", DTYPE_F32, ROLE_OUT, CONTRACT_BOUND, 3, paged,
                                paged_stride, 0, p->pool_pages * p->key_pitch, "page,pool,dim");
}

/* In the order of the stages, so that the first wrong one is the one reported. */
static bool add_outputs(struct build *b)
{
    const struct dsa_pipeline *p = &b->p;
    const struct dsa_extent *e = &p->extent;
    uint64_t flags[] = {e->pools}, one[] = {1}, out[] = {p->rows, p->heads, DSA_LATENT};
    if (!add_pool_keys(b)) return false;
    struct tensor *indices =
        instance_add_strided(b->in, "pool_indices", DTYPE_I32, ROLE_OUT, CONTRACT_EXACT, 2,
                             (uint64_t[]){e->pools, p->kpool}, (uint64_t[]){p->kpool, 1}, 0,
                             (uint64_t)e->scalar_pools * p->kpool, "pool,slot");
    struct tensor *valid =
        instance_add_strided(b->in, "pool_valid", DTYPE_U8, ROLE_OUT, CONTRACT_EXACT, 1, flags, one,
                             0, e->scalar_pools, "pool");
    if (!indices || !valid ||
        !add_out(b, "scores", DTYPE_F32, CONTRACT_EXACT, p->rows, e->pools, e->scalar_pools,
                 "query,pool") ||
        !add_out(b, "valid_cand", DTYPE_U8, CONTRACT_EXACT, p->rows, e->pools, e->scalar_pools,
                 "query,pool"))
        return false;
    struct tensor *selected = add_out(b, "selected", DTYPE_I32, CONTRACT_EXACT, p->rows,
                                      e->select_k, e->scalar_select_k, "query,item");
    struct tensor *certified = selected
                                   ? add_out(b, "certified", DTYPE_I32, CONTRACT_SELECT, p->rows,
                                             e->select_k, e->scalar_select_k, "query,item")
                                   : NULL;
    if (!certified) return false;
    certified->alias_of = (int32_t)instance_index(b->in, "selected");
    return add_out(b, "rows", DTYPE_I32, CONTRACT_EXACT, p->rows, p->width, p->width,
                   "query,slot") &&
           instance_add(b->in, "out", DTYPE_BF16, ROLE_OUT, CONTRACT_BOUND, 3, out,
                        "query,head,dim") &&
           dsa_add_geom(b->in, e);
}

static bool is_planted(const struct build *b, uint64_t pool)
{
    return random_u32(b->p.keys.seed, STREAM_PLANT, pool) % case_u32(b->c, "plant") == 0;
}

/* relu_ties: the keys of planted pools agree with the queries in every sign, all others disagree,
 * so that the score of every pool but the planted ones is exactly 0. */
static uint64_t index_key_row(const struct build *b, enum regime regime, uint32_t token)
{
    uint64_t row = dsa_key_row(&b->p.keys, token), pool = (token - b->p.pad) / b->p.kpool;
    if (regime != REGIME_RELU_TIES) return row;
    return row * RELU_TIES_PERIOD + (is_planted(b, pool) ? RELU_TIES_HIT : 0);
}

static struct field index_field(const struct build *b, uint32_t stream, enum field_kind kind,
                                enum dtype dtype)
{
    struct field f =
        field_make(b->p.keys.seed, stream, kind, dsa_regime(b->c, "regime"), dtype, b->p.dim);
    f.needle_row = b->p.kpool; /* a token of the second pool */
    return f;
}

static void fill_keys(struct build *b)
{
    const struct dsa_pipeline *p = &b->p;
    uint16_t *k = instance_data(b->in, "k"), *gate = instance_data(b->in, "gate");
    uint8_t *valid = instance_data(b->in, "valid");
    enum regime regime = dsa_regime(b->c, "regime");
    bool exact = regime == REGIME_EXACT_INT, same = case_enum_is(b->c, "gates", "keys");
    struct field kf = index_field(b, STREAM_K, FIELD_KEY, DTYPE_BF16);
    struct field gf = field_make(p->keys.seed, STREAM_GATE, FIELD_QUERY,
                                 exact ? REGIME_EXACT_INT : REGIME_NORMAL, DTYPE_BF16, p->dim);
    poison_fill(valid, DTYPE_U8, p->extent.scalar_len, b->in->poison);
    for (uint64_t t = 0; t < p->extent.scalar_len; t++) {
        bool good = t < p->len && dsa_key_valid(&p->keys, (uint32_t)t);
        if (t < p->len) valid[t] = good;
        if (!good) {
            poison_fill(k + t * p->dim, DTYPE_BF16, p->dim, b->in->poison);
            if (!same) poison_fill(gate + t * p->dim, DTYPE_BF16, p->dim, b->in->poison);
            continue;
        }
        uint64_t row = dsa_key_row(&p->keys, (uint32_t)t);
        field_row_store(&kf, index_key_row(b, regime, (uint32_t)t), DTYPE_BF16, k + t * p->dim);
        if (!same) dsa_store_scaled(&gf, exact ? 0 : row, 0, DTYPE_BF16, gate + t * p->dim);
    }
}

static void fill_ape(struct build *b)
{
    bool exact = dsa_regime(b->c, "regime") == REGIME_EXACT_INT;
    struct field f = field_make(b->p.keys.seed, STREAM_APE, FIELD_QUERY,
                                exact ? REGIME_EXACT_INT : REGIME_NORMAL, DTYPE_F32, b->p.dim);
    float *ape = instance_data(b->in, "ape");
    for (uint64_t s = 0; s < b->p.kpool; s++)
        dsa_store_scaled(&f, exact ? 0 : s, -1, DTYPE_F32, ape + s * b->p.dim);
}

static float weight_of(const struct build *b, uint64_t key)
{
    uint32_t word = random_u32(b->p.keys.seed, STREAM_WEIGHT, key);
    double size = fabs(random_normal_from(word)) + 0x1p-6;
    double unit = 1 / sqrt((double)b->p.index_heads);
    if (dsa_regime(b->c, "regime") == REGIME_EXACT_INT) {
        size = 1 + word % 3;
        unit = 1;
    }
    bool negative = case_enum_is(b->c, "weights", "negative") ||
                    (case_enum_is(b->c, "weights", "mixed") && word / 5 % 2);
    return (float)((negative ? -size : size) * unit);
}

static void fill_index_queries(struct build *b)
{
    const struct dsa_pipeline *p = &b->p;
    struct field f = index_field(b, STREAM_INDEX_Q, FIELD_QUERY, DTYPE_F32);
    float *q = instance_data(b->in, "index_q"), *weights = instance_data(b->in, "weights");
    for (uint32_t row = 0; row < p->rows; row++) {
        for (uint32_t h = 0; h < p->index_heads; h++) {
            uint64_t key = (uint64_t)dsa_row_key(b->c, row) * p->index_heads + h;
            uint64_t at = (uint64_t)row * p->index_heads + h;
            field_row_store(&f, key, DTYPE_F32, q + at * p->dim);
            weights[at] = weight_of(b, key);
        }
    }
}

/* A latent row or a query of the decode. */
static void store_attend(const struct field *f, uint64_t row, bool query, enum dtype dtype,
                         void *out)
{
    double value[DSA_LATENT];
    if (f->regime != REGIME_EXACT_INT) {
        field_row_store(f, row, dtype, out);
        return;
    }
    dsa_exact_row(f, row, query, value);
    for (uint32_t d = 0; d < DSA_LATENT; d++) {
        if (dtype == DTYPE_BF16) ((uint16_t *)out)[d] = ref_bf16_from_f32((float)value[d]);
        if (dtype == DTYPE_E4M3) ((uint8_t *)out)[d] = ref_e4m3_from_f32((float)value[d]);
    }
}

static void fill_rows(struct build *b)
{
    const struct dsa_pipeline *p = &b->p;
    struct field f = field_make(p->keys.seed, STREAM_Q, FIELD_QUERY, dsa_regime(b->c, "attend"),
                                DTYPE_BF16, DSA_LATENT);
    uint16_t *q = instance_data(b->in, "q");
    int32_t *q_pos = instance_data(b->in, "q_pos"), *lens = instance_data(b->in, "seq_lens");
    int32_t *tables = instance_data(b->in, "block_tables");
    uint8_t *q_mask = instance_data(b->in, "q_mask");
    poison_fill(tables, DTYPE_I32, (uint64_t)p->rows * p->max_blocks, b->in->poison);
    for (uint32_t row = 0; row < p->rows; row++) {
        int64_t pos = dsa_pipeline_pos(b->c, row), end = pos + 1;
        q_pos[row] = (int32_t)pos;
        q_mask[row] = (uint8_t)dsa_row_item(b->c, "mask", row, 1);
        lens[row] = (int32_t)(end < 0 ? 0 : end > p->len ? p->len : end);
        for (uint32_t h = 0; h < p->heads; h++)
            store_attend(&f, (uint64_t)dsa_row_key(b->c, row) * p->heads + h, true, DTYPE_BF16,
                         q + ((uint64_t)row * p->heads + h) * DSA_LATENT);
        for (uint32_t i = 0; i < p->max_blocks; i++) {
            if (b->paging.table[i] >= 0)
                tables[(uint64_t)row * p->max_blocks + i] = b->paging.table[i];
        }
    }
}

static void need_pool(struct build *b, uint32_t pool)
{
    for (uint32_t s = 0; s < b->p.kpool; s++)
        b->needed[b->slots[(uint64_t)pool * b->p.kpool + s]] = 1;
}

/* Planted pools outrank all others, which tie at 0 and are taken lowest first: what a row selects
 * is among the planted ones and the first select_k of the rest. */
static void need_planted(struct build *b, int64_t pos)
{
    uint32_t others = 0;
    for (uint32_t pool = 0; pool < b->p.extent.pools; pool++) {
        if (!b->complete[pool] || b->slots[(uint64_t)(pool + 1) * b->p.kpool - 1] > pos) continue;
        if (is_planted(b, pool) || others++ < b->p.extent.select_k) need_pool(b, pool);
    }
}

/* Latents of tokens that no right row holds are poison, as far as the case tells them by itself:
 * padding, invalid tokens, tokens after every position; where pools are planted, all the others. */
static void find_needed(struct build *b)
{
    const struct dsa_pipeline *p = &b->p;
    bool planted = dsa_regime(b->c, "regime") == REGIME_RELU_TIES && p->keys.change < 0 &&
                   case_enum_is(b->c, "weights", "positive");
    for (uint32_t row = 0; row < p->rows; row++) {
        int64_t pos = dsa_pipeline_pos(b->c, row), end = pos < p->len ? pos + 1 : p->len;
        if (!dsa_row_item(b->c, "mask", row, 1)) continue;
        if (planted) need_planted(b, pos);
        for (int64_t t = planted ? end - p->kpool : 0; t < end; t++) {
            if (t >= 0) b->needed[t] |= dsa_key_valid(&p->keys, (uint32_t)t);
        }
        /* The tail behind valid tokens that end earlier. */
        uint32_t kept = p->len - p->pad;
        if (planted && p->keys.invalid == DSA_INVALID_END) {
            kept -= kept / 3;
            for (uint32_t i = 1; i <= p->kpool && i <= kept; i++) b->needed[p->pad + kept - i] = 1;
        }
    }
}

/* Backs and poisons the cache: the whole pool when it is small, else only pages with a token that
 * is needed. */
static bool poison_cache(struct build *b, struct tensor *t, const uint8_t *used)
{
    const struct paging *g = &b->paging;
    bool dense = (g->num_pages - g->first_page) * g->pitch_bytes <= DENSE_CACHE_BYTES;
    for (uint32_t page = g->first_page; page < g->num_pages; page++) {
        if (!dense && !used[page - g->first_page]) continue;
        uint64_t at = page * g->pitch_bytes;
        if ((!dense || g->first_page) && !tensor_add_extent(t, at, g->pitch_bytes)) return false;
        poison_fill(t->data + at, DTYPE_E4M3, g->pitch_bytes, b->in->poison);
    }
    return true;
}

static void store_latents(struct build *b)
{
    enum regime regime = dsa_regime(b->c, "attend");
    uint64_t seed = b->p.keys.seed;
    struct field k = field_make(seed, STREAM_LATENT, FIELD_KEY, regime, DTYPE_E4M3, DSA_LATENT);
    struct field v = field_make(seed, STREAM_VALUE, FIELD_VALUE, regime, DTYPE_E4M3, DSA_LATENT);
    bool distinct = case_enum_is(b->c, "kv", "distinct") && regime != REGIME_EXACT_INT;
    for (uint32_t t = 0; t < b->p.len; t++) {
        if (!b->needed[t]) continue;
        uint64_t row = dsa_key_row(&b->p.keys, t);
        uint64_t at = paging_token_offset(&b->paging, 0, t, DSA_LATENT);
        store_attend(&k, row, false, DTYPE_E4M3, b->k_cache->data + at);
        if (b->v_cache->alias_of >= 0) continue;
        if (distinct)
            store_attend(&v, row, false, DTYPE_E4M3, b->v_cache->data + at);
        else
            memcpy(b->v_cache->data + at, b->k_cache->data + at, DSA_LATENT);
    }
}

static bool fill_cache(struct build *b)
{
    uint32_t pages = b->paging.num_pages - b->paging.first_page;
    uint8_t *used = calloc((uint64_t)pages + 1, 1);
    bool fine = used != NULL;
    for (uint32_t t = 0; fine && t < b->p.len; t++) {
        if (b->needed[t])
            used[(uint32_t)b->paging.table[t / b->p.block] - b->paging.first_page] = 1;
    }
    fine = fine && poison_cache(b, b->k_cache, used);
    if (fine && b->v_cache->alias_of < 0) fine = poison_cache(b, b->v_cache, used);
    if (fine && b->v_cache->alias_of >= 0) {
        b->v_cache->extents = b->k_cache->extents;
        b->v_cache->n_extents = b->k_cache->n_extents;
    }
    free(used);
    if (fine) store_latents(b);
    return fine;
}

static bool make_pages(struct build *b)
{
    static const enum page_order orders[] = {PAGES_IDENTITY, PAGES_SHUFFLED, PAGES_HIGH};
    int64_t length = b->p.len;
    return paging_make(&b->paging, &length, 1, b->p.max_blocks, b->p.block, b->p.cache_pitch,
                       orders[case_int(b->c, "pages")], 0,
                       case_seed(b->c) + case_u32(b->c, "pageseed"));
}

static bool build_all(struct build *b)
{
    const struct dsa_pipeline *p = &b->p;
    b->needed = calloc((uint64_t)p->len + 1, 1);
    b->complete = malloc((uint64_t)p->extent.pools + 1);
    b->slots = malloc(((uint64_t)p->extent.pools * p->kpool + 1) * sizeof *b->slots);
    b->in->extra = malloc(sizeof(uint32_t));
    if (!b->needed || !b->complete || !b->slots || !b->in->extra || !make_pages(b)) return false;
    *(uint32_t *)b->in->extra = b->paging.num_pages;
    dsa_pool_tables(&p->keys, p->extent.pools, b->slots, b->complete);
    if (!add_inputs(b) || !add_outputs(b)) return false;
    find_needed(b);
    fill_keys(b);
    fill_ape(b);
    fill_index_queries(b);
    fill_rows(b);
    return fill_cache(b);
}

bool dsa_pipeline_build(const struct case_line *c, struct instance *in)
{
    struct build b = {.c = c, .in = in};
    dsa_pipeline_read(c, &b.p);
    bool fine = build_all(&b);
    paging_free(&b.paging);
    free(b.needed);
    free(b.complete);
    free(b.slots);
    return fine;
}
