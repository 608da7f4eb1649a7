#include "harness/ops/dsa_common.h"

#include <math.h>
#include <string.h>

#include "harness/case/random.h"
#include "ref/formats.h"

enum { STREAM_INVALID = 0x1dead, FIELD_COLUMNS_MAX = 4096 };

const char *const dsa_invalid_names[] = {"none", "scattered", "first_slot", "last_slot",
                                         "pool", "end",       "all",        NULL};
const char *const dsa_geom_names[] = {"none", "same", "shorter", NULL};

static bool valid_by_structure(const struct dsa_keys *keys, uint32_t at)
{
    uint32_t pool = at / keys->kpool, slot = at % keys->kpool, count = keys->len - keys->pad;
    switch (keys->invalid) {
    case DSA_INVALID_NONE:
        return true;
    case DSA_INVALID_SCATTERED:
        return random_u32(keys->seed, STREAM_INVALID, at) % 5 != 0;
    case DSA_INVALID_FIRST_SLOT:
        return pool % 3 != 1 || slot != 0;
    case DSA_INVALID_LAST_SLOT:
        return pool % 3 != 1 || slot != keys->kpool - 1;
    case DSA_INVALID_POOL:
        return pool % 3 != 1;
    case DSA_INVALID_END:
        return at < count - count / 3;
    case DSA_INVALID_ALL:
        break;
    }
    return false;
}

struct dsa_keys dsa_keys_of(const struct case_line *c)
{
    return (struct dsa_keys){.len = case_u32(c, "len"),
                             .pad = case_u32(c, "pad"),
                             .kpool = case_u32(c, "kpool"),
                             .invalid = (enum dsa_invalid)case_int(c, "invalid"),
                             .seed = case_seed(c),
                             .change = case_int(c, "change")};
}

bool dsa_key_valid(const struct dsa_keys *keys, uint32_t token)
{
    if (token < keys->pad || token >= keys->len) return false;
    uint32_t at = token - keys->pad;
    bool valid = valid_by_structure(keys, at);
    /* The padding ends at the first valid token: that is what first_key means. */
    if (at == 0) return keys->invalid != DSA_INVALID_ALL;
    if (keys->change < 0 || token < keys->change) return valid;
    /* Where the data changes, validity does too. */
    if (keys->prefix) return valid && keys->seed % 2;
    return random_u32(keys->seed, STREAM_INVALID, (UINT64_C(1) << 32) + at) % 4 != 0;
}

uint64_t dsa_key_row(const struct dsa_keys *keys, uint32_t token)
{
    uint64_t at = token - keys->pad;
    return keys->change >= 0 && token >= keys->change ? (UINT64_C(1) << 32) + at : at;
}

void dsa_pool_tables(const struct dsa_keys *keys, uint32_t pools, int32_t *indices, uint8_t *valid)
{
    for (uint32_t pool = 0; pool < pools; pool++) {
        valid[pool] = 1;
        for (uint32_t slot = 0; slot < keys->kpool; slot++) {
            uint64_t token = keys->pad + (uint64_t)pool * keys->kpool + slot;
            bool good = token < keys->len && dsa_key_valid(keys, (uint32_t)token);
            indices[(uint64_t)pool * keys->kpool + slot] = good ? (int32_t)token : -1;
            valid[pool] &= good;
        }
    }
}

uint64_t dsa_power_above(uint64_t n)
{
    uint64_t power = 1;
    while (power < n) power *= 2;
    return power;
}

enum regime dsa_regime(const struct case_line *c, const char *key)
{
    for (int r = 0; r < REGIME_COUNT; r++) {
        if (case_enum_is(c, key, regime_names[r])) return (enum regime)r;
    }
    return REGIME_NORMAL;
}

void dsa_store_scaled(const struct field *f, uint64_t row, int exponent, enum dtype dtype,
                      void *out)
{
    struct field scaled = *f;
    if (f->regime != REGIME_EXACT_INT) {
        scaled.unit = ldexp(f->unit, exponent);
        field_row_store(&scaled, row, dtype, out);
        return;
    }
    double value[FIELD_COLUMNS_MAX]; /* integers come without the unit */
    field_row(f, row, value);
    for (uint32_t c = 0; c < f->cols; c++) {
        float v = (float)ldexp(value[c], exponent);
        if (dtype == DTYPE_BF16) ((uint16_t *)out)[c] = ref_bf16_from_f32(v);
        if (dtype == DTYPE_F32) ((float *)out)[c] = v;
    }
}

void dsa_exact_row(const struct field *f, uint64_t row, bool query, double *value)
{
    field_row(f, row, value);
    for (uint32_t d = 0; d < f->cols; d++) {
        if (query && d % 4) value[d] = 0;
        if (!query && d % 4 == 0) value[d] = 1 + d / 4 % 3;
    }
}

void dsa_attend_store(const struct field *f, uint64_t row, bool query, enum dtype dtype, void *out)
{
    double value[1024];
    if (f->regime != REGIME_EXACT_INT) {
        field_row_store(f, row, dtype, out);
        return;
    }
    dsa_exact_row(f, row, query, value);
    for (uint32_t d = 0; d < f->cols; d++) {
        if (dtype == DTYPE_BF16) ((uint16_t *)out)[d] = ref_bf16_from_f32((float)value[d]);
        if (dtype == DTYPE_E4M3) ((uint8_t *)out)[d] = ref_e4m3_from_f32((float)value[d]);
    }
}

static bool power_of_two(double x)
{
    int exponent;
    return frexp(x, &exponent) == 0.5;
}

void dsa_decode_exact(const struct ref_dsa_decode *g, double *bound)
{
    uint64_t row = (uint64_t)g->num_q_heads * g->kv_lora_rank;
    if (!power_of_two(g->k_scale) || !power_of_two(g->v_scale)) return;
    for (uint32_t s = 0; s < g->num_seqs; s++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < g->width; i++) {
            int32_t id = g->sel_indices[(uint64_t)s * g->width + i];
            n += id >= 0 && id < g->seq_lens[s];
        }
        if (n & (n - 1)) continue;
        /* Scores overflow under an absurd scale: the oracle then bounds nothing. */
        for (uint64_t i = s * row; i < (s + 1) * row; i++) {
            if (isfinite(bound[i])) bound[i] = 0;
        }
    }
}

void dsa_pools_exact(const struct ref_dsa_kpool_compress *g, const int32_t *indices, double *bound)
{
    for (uint64_t pool = 0; pool < g->pools; pool++) {
        uint32_t n = 0;
        for (uint32_t s = 0; s < g->KP; s++) n += indices[pool * g->KP + s] >= 0;
        for (uint64_t d = 0; d < g->D && !(n & (n - 1)); d++) bound[pool * g->D + d] = 0;
    }
}

uint32_t dsa_row_key(const struct case_line *c, uint32_t row)
{
    uint32_t rows = case_u32(c, "rows");
    return case_u32(c, "first") + (case_int(c, "reverse") ? rows - 1 - row : row);
}

int64_t dsa_row_item(const struct case_line *c, const char *list, uint32_t row, int64_t empty)
{
    uint32_t n;
    const int64_t *items = case_list(c, list, &n);
    return n ? items[dsa_row_key(c, row) % n] : empty;
}
