#include "harness/case/values.h"

#include <math.h>
#include <string.h>

#include "harness/case/random.h"
#include "ref/formats.h"

const char *const regime_names[] = {
    "normal",   "exact_int", "peaked",  "flat",   "all_negative",     "relu_ties",
    "low_bits", "cancel",    "outlier", "walk",   "needle",           "subnormal",
    "huge",     "offset",    "equal",   "specials", NULL};

enum { STREAM_SIGN = 0x5147, STREAM_CHANNEL = 0xc4a7, WALK_PERIOD = 16 };

struct field field_make(uint64_t seed, uint32_t stream, enum field_kind kind, enum regime regime,
                        enum dtype dtype, uint32_t cols)
{
    struct field f = {.seed = seed, .stream = stream, .kind = kind, .regime = regime, .cols = cols};
    f.unit = 1;
    if (dtype == DTYPE_E4M3) {
        f.unit = 16; /* a latent quantised with scale 1/16 */
        f.tiny = 0x1p-12;
        f.huge = 12;
    } else {
        f.tiny = 0x1p-128; /* below the smallest normal bf16 and f32 */
        f.huge = 0x1p20;
    }
    return f;
}

enum { CHUNK_BLOCKS = 32 };

static void normal_row(const struct field *f, uint64_t row, double *out)
{
    uint32_t blocks = (f->cols + 3u) / 4u, words[4 * CHUNK_BLOCKS];
    for (uint32_t at = 0; at < blocks; at += CHUNK_BLOCKS) {
        uint32_t n = blocks - at < CHUNK_BLOCKS ? blocks - at : CHUNK_BLOCKS;
        uint32_t cols = f->cols - 4 * at < 4 * n ? f->cols - 4 * at : 4 * n;
        random_blocks(f->seed, f->stream, row * blocks + at, n, words);
        random_normals(words, cols, out + 4 * at);
    }
}

static void integer_row(const struct field *f, uint64_t row, double *out)
{
    uint64_t blocks = (f->cols + 3u) / 4u;
    uint32_t words[4];
    int32_t reach = f->kind == FIELD_QUERY ? 2 : 3;
    for (uint32_t c = 0; c < f->cols; c++) {
        if (c % 4 == 0) random_block(f->seed, f->stream, row * blocks + c / 4, words);
        out[c] = (int32_t)(words[c % 4] % (uint32_t)(2 * reach + 1)) - reach;
    }
}

static double sign_of_channel(const struct field *f, uint32_t c)
{
    return random_u32(f->seed, STREAM_SIGN, c) & 1 ? 1.0 : -1.0;
}

/* Queries carry a fixed sign per channel and keys the opposite one, so every product is negative;
 * with `flip` the products are positive. */
static void signed_row(const struct field *f, double *out, bool flip)
{
    for (uint32_t c = 0; c < f->cols; c++) {
        double sign = sign_of_channel(f, c);
        if (f->kind == FIELD_KEY) sign = flip ? sign : -sign;
        out[c] = sign * (fabs(out[c]) + 0.125);
    }
}

static void low_bits_row(const struct field *f, uint64_t row, double *out)
{
    if (f->kind == FIELD_QUERY) return;
    double base[4096];
    uint32_t cols = f->cols < 4096 ? f->cols : 4096;
    normal_row(f, UINT64_C(1) << 40, base);
    for (uint32_t c = 0; c < cols; c++)
        out[c] = (c + row) % 8 == 0 ? base[c] * (1 + 0x1p-7 * (out[c] > 0 ? 1 : -1)) : base[c];
}

static void cancel_row(const struct field *f, double *out)
{
    for (uint32_t c = 0; c + 1 < f->cols; c += 2) {
        double a = out[c] * 8, b = out[c + 1];
        if (f->kind == FIELD_QUERY) {
            out[c] = out[c + 1] = a;
        } else if (f->kind == FIELD_KEY) {
            out[c] = a;
            out[c + 1] = -a + b * 0x1p-5;
        }
    }
}

static void walk_row(const struct field *f, uint64_t row, double *out)
{
    if (f->kind == FIELD_QUERY) return;
    double next[4096];
    uint32_t cols = f->cols < 4096 ? f->cols : 4096;
    double weight = (double)(row % WALK_PERIOD) / WALK_PERIOD;
    uint64_t anchor = (UINT64_C(1) << 41) + row / WALK_PERIOD;
    normal_row(f, anchor, out);
    normal_row(f, anchor + 1, next);
    for (uint32_t c = 0; c < cols; c++) out[c] = out[c] * (1 - weight) + next[c] * weight;
}

static void scale_row(const struct field *f, double *out, double factor)
{
    for (uint32_t c = 0; c < f->cols; c++) out[c] *= factor;
}

static void needle_row(const struct field *f, uint64_t row, double *out)
{
    if (f->kind == FIELD_QUERY) {
        signed_row(f, out, false);
    } else if (f->kind == FIELD_KEY && (row & 0xffffff) == f->needle_row) {
        signed_row(f, out, true);
    } else {
        scale_row(f, out, 0x1p-4);
    }
}

static void specials_row(const struct field *f, uint64_t row, double *out)
{
    uint32_t word = random_u32(f->seed, f->stream ^ 0x80000000u, row);
    if (f->kind == FIELD_QUERY || word % 5) return;
    uint32_t c = (word >> 8) % f->cols;
    out[c] = word / 5 % 3 == 0 ? (double)NAN : word / 5 % 3 == 1 ? INFINITY : -INFINITY;
}

static void outlier_row(const struct field *f, double *out)
{
    for (uint32_t i = 0; i < 2; i++)
        out[random_u32(f->seed, STREAM_CHANNEL, i) % f->cols] *= f->kind == FIELD_QUERY ? 4 : 12;
}

void field_row(const struct field *f, uint64_t row, double *out)
{
    if (!f->cols) return;
    if (f->regime == REGIME_EXACT_INT) {
        integer_row(f, row, out);
        return;
    }
    bool equal = f->regime == REGIME_EQUAL && f->kind != FIELD_QUERY;
    normal_row(f, equal ? UINT64_C(1) << 42 : row, out);
    switch (f->regime) {
    case REGIME_PEAKED:
        if (f->kind == FIELD_QUERY) scale_row(f, out, 12);
        break;
    case REGIME_FLAT:
        if (f->kind == FIELD_QUERY) scale_row(f, out, 0x1p-7);
        break;
    case REGIME_ALL_NEGATIVE: signed_row(f, out, false); break;
    case REGIME_RELU_TIES: signed_row(f, out, row % 16 == 5); break;
    case REGIME_LOW_BITS: low_bits_row(f, row, out); break;
    case REGIME_CANCEL: cancel_row(f, out); break;
    case REGIME_OUTLIER_CHANNELS: outlier_row(f, out); break;
    case REGIME_WALK: walk_row(f, row, out); break;
    case REGIME_NEEDLE: needle_row(f, row, out); break;
    case REGIME_SUBNORMAL:
        if (f->kind != FIELD_QUERY) scale_row(f, out, f->tiny);
        break;
    case REGIME_HUGE:
        if (f->kind != FIELD_QUERY) scale_row(f, out, f->huge);
        break;
    case REGIME_OFFSET_MEAN:
        for (uint32_t c = 0; c < f->cols; c++) out[c] += 3;
        break;
    case REGIME_SPECIALS: specials_row(f, row, out); break;
    default: break;
    }
    if (f->unit != 1) scale_row(f, out, f->unit);
}

/* Round to nearest even, saturating to +-448, NaN 0x7f: as ref_e4m3_from_f32, without libm, and
 * without branches, so that the loop of store_row becomes vector code. */
static inline uint8_t e4m3_from(float value)
{
    enum { INFINITE = 0x7f800000, LARGEST = 0x43e00000, NORMAL = 0x3c800000 }; /* 448, 2^-6 */
    union {
        float f;
        uint32_t bits;
    } v = {.f = value}, size, small;
    uint32_t sign = v.bits >> 24 & 0x80;
    size.bits = v.bits & 0x7fffffff;
    small.f = size.f + 0x1p14f; /* multiples of 2^-9, which is the spacing of f32 at 2^14 */
    uint32_t code = ((size.bits + 0x7ffff + (size.bits >> 20 & 1)) >> 20) - ((127 - 7) << 3);
    code = code > 0x7e ? 0x7e : code;
    code = size.bits < NORMAL ? small.bits & 0xf : code;
    code = size.bits >= LARGEST ? 0x7e : code;
    return (uint8_t)(size.bits > INFINITE ? 0x7f : sign | code);
}

uint8_t values_e4m3(float value)
{
    return e4m3_from(value);
}

static void store_e4m3(const double *value, uint32_t n, uint8_t *out)
{
    for (uint32_t i = 0; i < n; i++) out[i] = e4m3_from((float)value[i]);
}

static void store_f32(const double *value, uint32_t n, float *out)
{
    for (uint32_t i = 0; i < n; i++) out[i] = (float)value[i];
}

static void store_bf16(const double *value, uint32_t n, uint16_t *out)
{
    for (uint32_t i = 0; i < n; i++) out[i] = ref_bf16_from_f32((float)value[i]);
}

static void store_row(const struct field *f, uint64_t row, enum dtype dtype, void *out)
{
    double value[4096];
    field_row(f, row, value);
    if (dtype == DTYPE_E4M3) store_e4m3(value, f->cols, out);
    if (dtype == DTYPE_F32) store_f32(value, f->cols, out);
    if (dtype == DTYPE_BF16) store_bf16(value, f->cols, out);
}

/* Rows made lately. A case is built at least twice (the poison differs), and once for every
 * relation, mostly with the same rows: a row is a function of its key alone. */
enum { KEPT_ROWS = 2048, KEPT_BYTES = 1024 };
struct kept_row {
    struct field f;
    uint64_t row;
    enum dtype dtype;
    uint8_t bytes[KEPT_BYTES];
};

static bool same_row(const struct kept_row *k, const struct field *f, uint64_t row,
                     enum dtype dtype)
{
    return k->row == row && k->f.seed == f->seed && k->f.stream == f->stream &&
           k->f.cols == f->cols && k->dtype == dtype && k->f.kind == f->kind &&
           k->f.regime == f->regime && k->f.needle_row == f->needle_row && k->f.unit == f->unit &&
           k->f.tiny == f->tiny && k->f.huge == f->huge;
}

void field_row_store(const struct field *f, uint64_t row, enum dtype dtype, void *out)
{
    static _Thread_local struct kept_row kept[KEPT_ROWS];
    uint64_t hash = (row * 0x9e3779b97f4a7c15u) ^ (f->stream * UINT64_C(0xc2b2ae3d27d4eb4f));
    struct kept_row *k = &kept[hash >> 53];
    size_t bytes = (size_t)f->cols * dtype_bytes(dtype);
    if (bytes > KEPT_BYTES) {
        store_row(f, row, dtype, out);
        return;
    }
    if (!same_row(k, f, row, dtype)) {
        store_row(f, row, dtype, k->bytes);
        k->f = *f;
        k->row = row;
        k->dtype = dtype;
    }
    memcpy(out, k->bytes, bytes);
}

void poison_fill(void *target, enum dtype dtype, uint64_t elems, enum poison poison)
{
    bool nan = poison == POISON_NAN;
    uint8_t *bytes = target;
    switch (dtype) {
    case DTYPE_E4M3: memset(bytes, nan ? 0x7f : 0x7e, elems); return;
    /* A mask byte that must not matter: neither 0 nor 1 in the first run, 1 in the second. */
    case DTYPE_U8: memset(bytes, nan ? 0xa5 : 0x01, elems); return;
    case DTYPE_BF16:
        for (uint64_t i = 0; i < elems; i++) ((uint16_t *)target)[i] = nan ? 0x7fc1 : 0x7f7f;
        return;
    case DTYPE_F32:
        for (uint64_t i = 0; i < elems; i++) ((uint32_t *)target)[i] = nan ? 0x7fc00001 : 0x7f7fffff;
        return;
    /* Indices: far outside in the first run, a valid-looking small number in the second. */
    case DTYPE_I32:
        for (uint64_t i = 0; i < elems; i++) ((int32_t *)target)[i] = nan ? 0x3fffffff : 0;
        return;
    }
}
