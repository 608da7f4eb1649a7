#include "harness/ops/qsa_common.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/case/random.h"
#include "ref/formats.h"

enum { COLUMNS_MAX = 4096, STREAM_BITS = 0xb175, STREAM_PAGES = 0x9a6e5 };

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

void qsa_store_rows(const struct qsa_data *d, uint64_t first, const struct tensor *t)
{
    uint64_t cols = t->shape[t->rank - 1], rows = cols ? tensor_logical_elems(t) / cols : 0;
    for (uint64_t row = 0; row < rows; row++)
        qsa_data_store(d, first + row, t->dtype, t->data + row * cols * dtype_bytes(t->dtype));
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

bool qsa_regime_of_signs(const struct case_line *c, const char *key)
{
    static const char *const names[] = {"relu_ties", "all_negative", "equal", "low_bits",
                                        "cancel",    "needle",       "noise", NULL};
    return is_one_of(enum_name(c, key), names);
}

/* random: in [-0.5, 1.5), so that a missing "1 +" shows and signs stay. signed: in [-2, 1). */
bool qsa_fill_norm(const struct filling *f)
{
    const struct case_line *c = f->c;
    for (uint64_t ch = 0; ch < f->t->elems; ch++) {
        double unit = random_u32(case_seed(c), f->stream, ch) * 0x1p-32, w = 2 * unit - 0.5;
        if (case_enum_is(c, "norm", "zero")) w = 0;
        if (case_enum_is(c, "norm", "minus_one")) w = ch % 3 ? -1 : w;
        if (case_enum_is(c, "norm", "signed")) w = 3 * unit - 2;
        ((uint16_t *)(void *)f->t->data)[ch] = ref_bf16_from_f32((float)w);
    }
    return true;
}

uint64_t qsa_complete(uint64_t position, uint32_t ratio)
{
    return ratio ? (position + 1) / ratio : 0;
}

bool qsa_lay_out(const struct case_line *c, struct instance *in)
{
    int64_t length = case_number_u32(c, "seq_len");
    uint64_t seed = case_seed(c) + (case_u32(c, "pageseed") ^ STREAM_PAGES);
    return cache_lay_out(c, in, &length, 1, case_number_u32(c, "table_len"),
                         (uint64_t)case_number(c, "block*nkv*hd"), seed);
}

static void store_token(const struct qsa_data *d, const struct instance *in, const char *cache,
                        uint32_t nkv, uint32_t token, int64_t change)
{
    uint64_t at = paging_token_offset(in->pages, 0, token, (uint64_t)nkv * d->f.cols);
    uint16_t *out = (uint16_t *)instance_data(in, cache) + at;
    for (uint32_t kv = 0; kv < nkv; kv++) {
        uint64_t row = (uint64_t)kv << 24 | token;
        if (change >= 0 && token >= change) row = qsa_changed_row(row);
        qsa_data_store_attention(d, row, out + (uint64_t)kv * d->f.cols);
    }
}

static void store_tokens(const struct case_line *c, const struct instance *in, uint32_t len,
                         const uint8_t *used)
{
    uint32_t nkv = case_u32(c, "nkv"), hd = case_u32(c, "hd");
    int64_t change = case_has(c, "change") ? case_int(c, "change") : -1;
    struct qsa_data k = qsa_data_make(c, "regime", 0x4b, FIELD_KEY, hd);
    struct qsa_data v = qsa_data_make(c, "regime", 0x56, FIELD_VALUE, hd);
    k.f.needle_row = v.f.needle_row = case_seed(c) % 8;
    v.exponent = case_has(c, "double") ? (int)case_int(c, "double") : 0;
    for (uint32_t token = 0; token < len; token++) {
        if (used && !used[token]) continue;
        store_token(&k, in, "k_cache", nkv, token, change);
        store_token(&v, in, "v_cache", nkv, token, change);
    }
}

bool qsa_cache_fill(const struct case_line *c, struct instance *in, const uint8_t *used,
                    bool broken)
{
    const struct paging *p = in->pages;
    uint32_t len = case_number_u32(c, "seq_len");
    int32_t *table = instance_data(in, "block_table");
    uint8_t *pages = calloc(p->num_pages - p->first_page + 1, 1);
    if (!pages) return false;
    for (uint32_t token = 0; token < len; token++) {
        uint32_t page = token / p->block_size;
        if (used && !used[token]) continue;
        pages[(uint32_t)p->table[page] - p->first_page] = 1;
        table[page] = broken ? (int32_t)p->num_pages : p->table[page];
    }
    bool fine = cache_poison(in, &in->tensors[instance_index(in, "k_cache")], pages) &&
                cache_poison(in, &in->tensors[instance_index(in, "v_cache")], pages);
    if (fine) store_tokens(c, in, len, used);
    free(pages);
    return fine;
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
