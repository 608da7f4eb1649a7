/* The data of a dsa_decode_pipeline case. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/ops/dsa_pipeline.h"

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
enum { RELU_TIES_PERIOD = 16, RELU_TIES_HIT = 5 }; /* field rows with positive dots (values.h) */

struct build {
    const struct case_line *c;
    struct instance *in;
    struct dsa_pipeline p;
    const struct paging *paging;
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
    uint64_t scalar_len = instance_find(b->in, "valid")->elems;
    for (uint64_t t = 0; t < scalar_len; t++) {
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

static void fill_rows(struct build *b)
{
    const struct dsa_pipeline *p = &b->p;
    struct field f = field_make(p->keys.seed, STREAM_Q, FIELD_QUERY, dsa_regime(b->c, "attend"),
                                DTYPE_BF16, DSA_LATENT);
    uint16_t *q = instance_data(b->in, "q");
    int32_t *q_pos = instance_data(b->in, "q_pos"), *lens = instance_data(b->in, "seq_lens");
    int32_t *tables = instance_data(b->in, "block_tables");
    uint8_t *q_mask = instance_data(b->in, "q_mask");
    for (uint32_t row = 0; row < p->rows; row++) {
        int64_t pos = dsa_pipeline_pos(b->c, row), end = pos + 1;
        q_pos[row] = (int32_t)pos;
        q_mask[row] = (uint8_t)dsa_row_item(b->c, "mask", row, 1);
        lens[row] = (int32_t)(end < 0 ? 0 : end > p->len ? p->len : end);
        for (uint32_t h = 0; h < p->heads; h++)
            dsa_attend_store(&f, (uint64_t)dsa_row_key(b->c, row) * p->heads + h, true, DTYPE_BF16,
                             q + ((uint64_t)row * p->heads + h) * DSA_LATENT);
        for (uint32_t i = 0; i < p->max_blocks; i++) {
            if (b->paging->table[i] >= 0)
                tables[(uint64_t)row * p->max_blocks + i] = b->paging->table[i];
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
    for (uint32_t pool = 0; pool < b->p.pools; pool++) {
        if (!b->complete[pool] || b->slots[(uint64_t)(pool + 1) * b->p.kpool - 1] > pos) continue;
        if (is_planted(b, pool) || others++ < b->p.selected_k) need_pool(b, pool);
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
        uint64_t at = paging_token_offset(b->paging, 0, t, DSA_LATENT);
        dsa_attend_store(&k, row, false, DTYPE_E4M3, b->k_cache->data + at);
        if (b->v_cache->alias_of >= 0) continue;
        if (distinct)
            dsa_attend_store(&v, row, false, DTYPE_E4M3, b->v_cache->data + at);
        else
            memcpy(b->v_cache->data + at, b->k_cache->data + at, DSA_LATENT);
    }
}

/* Large pools are backed only where a token is needed. */
static bool fill_cache(struct build *b)
{
    const struct paging *g = b->paging;
    uint8_t *used = calloc((uint64_t)(g->num_pages - g->first_page) + 1, 1);
    bool fine = used != NULL;
    for (uint32_t t = 0; fine && t < b->p.len; t++) {
        if (b->needed[t]) used[(uint32_t)g->table[t / b->p.block] - g->first_page] = 1;
    }
    fine = fine && cache_poison(b->in, b->k_cache, used);
    if (fine && b->v_cache->alias_of < 0) fine = cache_poison(b->in, b->v_cache, used);
    free(used);
    if (fine) store_latents(b);
    return fine;
}

bool dsa_pipeline_lay_out(const struct case_line *c, struct instance *in)
{
    int64_t length = case_u32(c, "len");
    return cache_lay_out(c, in, &length, 1, case_number_u32(c, "max_blocks_per_seq"),
                         (uint64_t)case_number(c, "cache_stride_bytes"),
                         case_seed(c) + case_u32(c, "pageseed"));
}

bool dsa_pipeline_fill(const struct case_line *c, struct instance *in)
{
    struct build b = {.c = c,
                      .in = in,
                      .paging = in->pages,
                      .k_cache = &in->tensors[instance_index(in, "k_cache")],
                      .v_cache = &in->tensors[instance_index(in, "v_cache")]};
    dsa_pipeline_read(c, &b.p);
    b.needed = calloc((uint64_t)b.p.len + 1, 1);
    b.complete = malloc((uint64_t)b.p.pools + 1);
    b.slots = malloc(((uint64_t)b.p.pools * b.p.kpool + 1) * sizeof *b.slots);
    bool fine = b.needed && b.complete && b.slots;
    if (fine) {
        dsa_pool_tables(&b.p.keys, b.p.pools, b.slots, b.complete);
        find_needed(&b);
        fill_keys(&b);
        fill_ape(&b);
        fill_index_queries(&b);
        fill_rows(&b);
        fine = fill_cache(&b);
    }
    free(b.needed);
    free(b.complete);
    free(b.slots);
    return fine;
}
