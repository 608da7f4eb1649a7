#include "harness/ops/qsa_common.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/case/random.h"
#include "ref/formats.h"

enum { COLUMNS_MAX = 4096, STREAM_BITS = 0xb175, STREAM_PAGES = 0x9a6e5 };
enum { DENSE_ELEMS = 16 << 20 }; /* above this, pages without a used token are not backed */

static const char *const extra_names[QSA_EXTRAS] = {
    [QSA_FIELD] = "",
    [QSA_ZEROS] = "zeros",
    [QSA_NEAR_EPS] = "near_eps",
    [QSA_OVERFLOW] = "overflow",
    [QSA_BITS] = "bits",
    [QSA_EXACT_SPLIT] = "exact_split",
    [QSA_QUERY_SPECIALS] = "query_specials",
    [QSA_NOISE] = "noise",
    [QSA_LOW_HALVES] = "low_halves",
};
const char *const qsa_norm_names[] = {"random", "zero", "minus_one", "signed", NULL};
const char *const qsa_page_names[] = {"identity", "shuffled", "high", NULL};

static const char *enum_name(const struct case_line *c, const char *key)
{
    for (uint32_t i = 0; i < c->op->n_params; i++) {
        const struct param *p = &c->op->params[i];
        if (!strcmp(p->key, key)) return p->names[case_int(c, key)];
    }
    return "";
}

struct qsa_data qsa_data_make(const struct case_line *c, const char *key, uint32_t stream,
                              enum field_kind kind, uint32_t cols)
{
    const char *name = enum_name(c, key);
    struct qsa_data d = {.extra = QSA_FIELD, .group = 1};
    enum regime regime = REGIME_NORMAL;
    for (int i = 0; i < REGIME_COUNT; i++) {
        if (!strcmp(regime_names[i], name)) regime = (enum regime)i;
    }
    for (int i = 1; i < QSA_EXTRAS; i++) {
        if (!strcmp(extra_names[i], name)) d.extra = (enum qsa_extra)i;
    }
    d.f = field_make(case_seed(c), stream, kind, regime, DTYPE_BF16, cols);
    d.f.needle_row = 3;
    return d;
}

/* Integers whose products with keys up to 15 keep sums of 128 below 2^22, and of four heads below
 * 2^24: exact in f32 in any order and on any tensor core. */
static void split_integers(const struct qsa_data *d, uint64_t row, double *out)
{
    int32_t reach = d->f.kind == FIELD_QUERY ? 2047 : 15;
    for (uint32_t ch = 0; ch < d->f.cols; ch++) {
        uint32_t word = random_u32(d->f.seed, d->f.stream, row * d->f.cols + ch);
        out[ch] = (int32_t)(word % (uint32_t)(2 * reach + 1)) - reach;
    }
}

static void make_special(const struct qsa_data *d, uint64_t row, double *out)
{
    static const double specials[] = {NAN, INFINITY, -INFINITY};
    uint32_t word = random_u32(d->f.seed, d->f.stream ^ 0x80000000u, row);
    if (d->f.kind == FIELD_QUERY && row / d->group % 3 == 1 &&
        row % d->group == word / 7 % d->group)
        out[word % d->f.cols] = specials[word / 1024 % 3];
}

/* Channels three apart are partners: such pairs lie askew in every tree of sums, so that rounding
 * does not cancel with them. Those of a key are opposite; those of a query equal, or as near as
 * makes their difference one of low halves, about 2^-10 of a number that bf16 holds. */
static void pair_channels(const struct qsa_data *d, double *out)
{
    for (uint32_t ch = 0; ch < d->f.cols; ch++) {
        uint32_t slot = ch % 6, partner = ch + 3;
        if (slot >= 3) continue;
        if (partner >= d->f.cols) {
            out[ch] = 0;
            continue;
        }
        double high = ref_bf16_to_f32(ref_bf16_from_f32((float)out[ch])), low = out[partner];
        out[ch] = out[partner] = high;
        if (d->f.kind == FIELD_KEY) out[partner] = -high;
        if (d->f.kind == FIELD_QUERY && d->extra == QSA_LOW_HALVES) out[ch] += high * low * 0x1p-10;
    }
}

static void data_row(const struct qsa_data *d, uint64_t row, double *out)
{
    double factor = 1;
    bool paired = d->extra == QSA_NOISE || d->extra == QSA_LOW_HALVES;
    uint32_t mute = paired ? (d->mute + 5) / 6 * 6 : d->mute;
    if (d->extra == QSA_EXACT_SPLIT)
        split_integers(d, row, out);
    else
        field_row(&d->f, row, out);
    if (d->extra == QSA_NEAR_EPS) factor = 0x1p-10;
    if (d->extra == QSA_OVERFLOW) factor = d->f.kind == FIELD_QUERY ? 0x1p70 : 0x1p125;
    if (d->extra == QSA_QUERY_SPECIALS) make_special(d, row, out);
    if (paired) pair_channels(d, out);
    if (d->exponent) factor = ldexp(factor, d->exponent);
    for (uint32_t ch = 0; ch < d->f.cols && factor != 1; ch++) out[ch] *= factor;
    for (uint32_t ch = 0; ch < d->f.cols && d->extra == QSA_ZEROS; ch++)
        out[ch] = (row + ch) % 2 ? -0.0 : 0.0;
    for (uint32_t ch = 0; ch < mute && ch < d->f.cols; ch++) out[ch] = 0;
}

static void store_row(const double *value, uint32_t cols, enum dtype dtype, void *out)
{
    for (uint32_t ch = 0; ch < cols; ch++) {
        if (dtype == DTYPE_BF16) ((uint16_t *)out)[ch] = ref_bf16_from_f32((float)value[ch]);
        if (dtype == DTYPE_F32) ((float *)out)[ch] = (float)value[ch];
    }
}

static void store_bits(const struct qsa_data *d, uint64_t row, enum dtype dtype, void *out)
{
    for (uint32_t ch = 0; ch < d->f.cols; ch++) {
        uint32_t word = random_u32(d->f.seed, d->f.stream ^ STREAM_BITS, row * d->f.cols + ch);
        if (dtype == DTYPE_BF16) ((uint16_t *)out)[ch] = (uint16_t)word;
        if (dtype == DTYPE_F32) ((float *)out)[ch] = ref_f32_from_bits(word);
    }
}

void qsa_data_store(const struct qsa_data *d, uint64_t row, enum dtype dtype, void *out)
{
    double value[COLUMNS_MAX];
    if (d->extra == QSA_BITS) {
        store_bits(d, row, dtype, out);
        return;
    }
    data_row(d, row, value);
    store_row(value, d->f.cols, dtype, out);
}

void qsa_data_store_attention(const struct qsa_data *d, uint64_t row, uint16_t *out)
{
    double value[COLUMNS_MAX];
    bool exact = d->f.regime == REGIME_EXACT_INT, specials = d->f.regime == REGIME_SPECIALS;
    if ((!exact && !specials) || d->f.kind == FIELD_VALUE) {
        qsa_data_store(d, row, DTYPE_BF16, out);
        return;
    }
    data_row(d, row, value);
    for (uint32_t ch = 0; ch < d->f.cols; ch++) {
        if (exact && d->f.kind == FIELD_QUERY && ch % 4) value[ch] = 0;
        if (exact && d->f.kind == FIELD_KEY && ch % 4 == 0) value[ch] = 1 + ch / 4 % 3;
        if (specials && (d->f.kind == FIELD_QUERY || isinf(value[ch]))) value[ch] = fabs(value[ch]);
    }
    store_row(value, d->f.cols, DTYPE_BF16, out);
}

static bool is_one_of(const char *name, const char *const *names)
{
    for (; *names; names++) {
        if (!strcmp(name, *names)) return true;
    }
    return false;
}

bool qsa_ends_of_range(const struct case_line *c, const char *key)
{
    static const char *const names[] = {"subnormal", "huge", "specials",       "zeros",
                                        "overflow",  "bits", "query_specials", NULL};
    return is_one_of(enum_name(c, key), names);
}

bool qsa_regime_of_signs(const struct case_line *c, const char *key)
{
    static const char *const names[] = {"relu_ties", "all_negative", "equal", "low_bits",
                                        "cancel",    "needle",       "noise", NULL};
    return is_one_of(enum_name(c, key), names);
}

/* random: in [-0.5, 1.5), so that a missing "1 +" shows and signs stay. signed: in [-2, 1). */
void qsa_norm_fill(const struct case_line *c, uint32_t stream, uint32_t hd, uint16_t *weights)
{
    for (uint32_t ch = 0; ch < hd; ch++) {
        double unit = random_u32(case_seed(c), stream, ch) * 0x1p-32, w = 2 * unit - 0.5;
        if (case_enum_is(c, "norm", "zero")) w = 0;
        if (case_enum_is(c, "norm", "minus_one")) w = ch % 3 ? -1 : w;
        if (case_enum_is(c, "norm", "signed")) w = 3 * unit - 2;
        weights[ch] = ref_bf16_from_f32((float)w);
    }
}

uint64_t qsa_complete(uint64_t position, uint32_t ratio)
{
    return ratio ? (position + 1) / ratio : 0;
}

uint32_t qsa_sum_u32(uint64_t a, int64_t b)
{
    __int128 sum = (__int128)a + b;
    return sum < 0 ? 0 : sum > UINT32_MAX ? UINT32_MAX : (uint32_t)sum;
}

uint32_t qsa_table_len(const struct case_line *c, uint64_t len)
{
    uint32_t block = case_u32(c, "block");
    return block ? qsa_sum_u32((len + block - 1) / block, case_int(c, "spare")) : 0;
}

uint32_t qsa_num_pages(const struct instance *in)
{
    return *(const uint32_t *)in->extra;
}

bool qsa_cache_make(struct qsa_cache *cache, const struct case_line *c, struct instance *in,
                    uint32_t len, uint32_t nkv, uint32_t hd, const char *regime)
{
    static const enum page_order orders[] = {PAGES_IDENTITY, PAGES_SHUFFLED, PAGES_HIGH};
    int64_t length = len;
    uint32_t block = case_u32(c, "block"), table_len = qsa_table_len(c, len);
    uint64_t page_seed = case_seed(c) + (case_u32(c, "pageseed") ^ STREAM_PAGES);
    uint64_t page_elems = (uint64_t)block * nkv * hd;
    cache->len = len;
    cache->nkv = nkv;
    cache->hd = hd;
    cache->change = case_has(c, "change") ? case_int(c, "change") : -1;
    cache->k_data = qsa_data_make(c, regime, 0x4b, FIELD_KEY, hd);
    cache->v_data = qsa_data_make(c, regime, 0x56, FIELD_VALUE, hd);
    cache->k_data.f.needle_row = cache->v_data.f.needle_row = case_seed(c) % 8;
    cache->v_data.exponent = case_has(c, "double") ? (int)case_int(c, "double") : 0;
    if (!paging_make(&cache->paging, &length, 1, table_len, block, page_elems,
                     orders[case_int(c, "pages")], case_has(c, "pool") ? case_u32(c, "pool") : 0,
                     page_seed))
        return false;
    uint64_t cache_shape[] = {cache->paging.num_pages * page_elems}, table_shape[] = {table_len};
    cache->k =
        instance_add(in, "k_cache", DTYPE_BF16, ROLE_IN, CONTRACT_ANY, 1, cache_shape, "item");
    cache->v =
        instance_add(in, "v_cache", DTYPE_BF16, ROLE_IN, CONTRACT_ANY, 1, cache_shape, "item");
    if (!cache->k || !cache->v ||
        !instance_add(in, "block_table", DTYPE_I32, ROLE_IN, CONTRACT_ANY, 1, table_shape, "page"))
        return false;
    cache->table = instance_data(in, "block_table");
    in->extra = malloc(sizeof(uint32_t));
    if (in->extra) *(uint32_t *)in->extra = cache->paging.num_pages;
    return in->extra != NULL;
}

void qsa_cache_free(struct qsa_cache *cache)
{
    paging_free(&cache->paging);
}

static bool poison_pages(const struct qsa_cache *cache, struct tensor *t, const uint8_t *used,
                         enum poison poison)
{
    const struct paging *p = &cache->paging;
    bool dense = (p->num_pages - p->first_page) * p->pitch_bytes <= DENSE_ELEMS;
    for (uint32_t page = p->first_page; page < p->num_pages; page++) {
        uint64_t at = page * p->pitch_bytes;
        if (!dense && !used[page - p->first_page]) continue;
        if ((!dense || p->first_page) && !tensor_add_extent(t, 2 * at, 2 * p->pitch_bytes))
            return false;
        poison_fill(t->data + 2 * at, DTYPE_BF16, p->pitch_bytes, poison);
    }
    return true;
}

static void store_token(const struct qsa_cache *cache, uint32_t token)
{
    uint64_t at = paging_token_offset(&cache->paging, 0, token, (uint64_t)cache->nkv * cache->hd);
    for (uint32_t kv = 0; kv < cache->nkv; kv++) {
        uint64_t row = (uint64_t)kv << 24 | token, offset = 2 * (at + (uint64_t)kv * cache->hd);
        if (cache->change >= 0 && token >= cache->change) row = qsa_changed_row(row);
        qsa_data_store_attention(&cache->k_data, row,
                                 (uint16_t *)(void *)(cache->k->data + offset));
        qsa_data_store_attention(&cache->v_data, row,
                                 (uint16_t *)(void *)(cache->v->data + offset));
    }
}

bool qsa_cache_fill(struct qsa_cache *cache, struct instance *in, const uint8_t *used, bool broken)
{
    const struct paging *p = &cache->paging;
    uint8_t *pages = calloc(p->num_pages - p->first_page + 1, 1);
    if (!pages) return false;
    poison_fill(cache->table, DTYPE_I32, p->max_blocks, in->poison);
    for (uint32_t token = 0; token < cache->len; token++) {
        uint32_t page = token / p->block_size;
        if (!used[token]) continue;
        pages[(uint32_t)p->table[page] - p->first_page] = 1;
        cache->table[page] = broken ? (int32_t)p->num_pages : p->table[page];
    }
    bool fine = poison_pages(cache, cache->k, pages, in->poison) &&
                poison_pages(cache, cache->v, pages, in->poison);
    for (uint32_t token = 0; token < cache->len && fine; token++) {
        if (used[token]) store_token(cache, token);
    }
    free(pages);
    return fine;
}

bool qsa_edit_alone(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    if (case_int(base, "rows") < 2) return false;
    case_set_int(changed, "pos",
                 case_int(base, "pos") + rng_range(r, 0, case_int(base, "rows") - 1));
    case_set_int(changed, "rows", 1);
    return true;
}

bool qsa_edit_chunk(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    int64_t rows = case_int(base, "rows"), dropped = rng_range(r, 1, rows - 1);
    if (rows < 3) return false;
    case_set_int(changed, "pos", case_int(base, "pos") + dropped);
    case_set_int(changed, "rows", rows - dropped);
    return true;
}

int64_t qsa_base_row(const struct case_line *base, const struct case_line *changed, int64_t row)
{
    return row + case_int(changed, "pos") - case_int(base, "pos");
}

bool qsa_edit_pages(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    case_set_enum(changed, "pages", "shuffled");
    case_set_int(changed, "pageseed", rng_range(r, 1, 1 << 20));
    return true;
}

bool qsa_edit_block(const struct case_line *base, struct rng *r, struct case_line *changed)
{
    int64_t step = case_has(base, "ratio") ? case_int(base, "ratio") : 1;
    case_set_int(changed, "block", case_int(base, "block") + step * rng_range(r, 1, 3));
    return true;
}

void qsa_sample_norm(struct case_line *c, struct rng *r, uint32_t hd)
{
    static const double thetas[] = {1e7, 1e4, 5e5, 1e6, 1, 0.37, 3e30};
    static const double epsilons[] = {1e-6, 1e-6, 0, 1e-5, 1e-12, 0.5};
    int64_t rots[] = {hd / 2, hd / 2, hd, 0, 2, 2 * rng_range(r, 0, hd / 2)};
    case_set_int(c, "rot", rng_pick(r, rots, 6) & ~INT64_C(1));
    case_set_real(c, "theta", thetas[rng_one_in(r, 2) ? 0 : rng_u32(r) % 7]);
    case_set_real(c, "eps", epsilons[rng_u32(r) % 6]);
    case_set_int(c, "norm", rng_one_in(r, 2) ? 0 : rng_range(r, 0, 3));
}

void qsa_sample_pages(struct case_line *c, struct rng *r, uint64_t index)
{
    static const char *const order[] = {"shuffled", "identity", "shuffled", "high"};
    case_set_enum(c, "pages", order[index / 3 % 4]);
    case_set_int(c, "spare", rng_range(r, 0, 2));
}

float qsa_absurd_real(struct rng *r)
{
    static const float values[] = {0, -1, INFINITY, NAN, 1e-45f, 3e38f, -INFINITY};
    return values[rng_u32(r) % 7];
}

void qsa_absurd_param(struct case_line *c, struct rng *r, const char *const *keys, uint32_t count)
{
    static const int64_t values[] = {0,         1,          2,         3,    16,   65535,
                                     65536,     1 << 20,    INT32_MAX, 2048, 2049, 1LL << 31,
                                     1LL << 30, UINT32_MAX, 1024,      1056};
    const char *key = keys[rng_u32(r) % count];
    int64_t near = case_int(c, key) + rng_range(r, -1, 1);
    case_set_int(c, key, rng_one_in(r, 2) && near >= 0 ? near : rng_pick(r, values, 16));
}
