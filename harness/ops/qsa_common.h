/* What the descriptors of the QSA family share: rows of data in a regime, norm weights, a paged
 * cache of one sequence, rows of a chunk, absurd numbers for refusals. */
#ifndef ATTEST_OPS_QSA_COMMON_H
#define ATTEST_OPS_QSA_COMMON_H

#include "gpu/launch_qsa.h"
#include "harness/case/op.h"
#include "harness/case/paging.h"
#include "harness/case/values.h"
#include "ref/qsa.h"

/* Regimes beside those of values.h, by the same parameter. */
enum qsa_extra {
    QSA_FIELD,          /* a regime of values.h */
    QSA_ZEROS,          /* +0 and -0 */
    QSA_NEAR_EPS,       /* mean square near 1e-6: the norm's eps matters */
    QSA_OVERFLOW,       /* near the top of the format: squares and dots overflow */
    QSA_BITS,           /* any bit pattern */
    QSA_EXACT_SPLIT,    /* integers that need both halves of a split query; dots stay exact */
    QSA_QUERY_SPECIALS, /* NaN or infinity in the queries of every third position */
    QSA_NOISE,      /* dots are exactly 0, so that f32 scores are what rounding leaves of them */
    QSA_LOW_HALVES, /* dots come from below bf16's last place in the queries */
    QSA_EXTRAS
};

/* A matrix of numbers keyed by row; queries have `group` rows a position. */
struct qsa_data {
    struct field f;
    enum qsa_extra extra;
    uint32_t group;
    uint32_t mute; /* channels below hold 0, so that a rotation of them mixes nothing */
    int exponent;  /* every number times 2^exponent */
};
/* What the parameter `key` names, for a matrix of `cols` <= 4096 columns. */
struct qsa_data qsa_data_make(const struct case_line *c, const char *key, uint32_t stream,
                              enum field_kind kind, uint32_t cols);
/* out[0..cols) in DTYPE_BF16 or DTYPE_F32. */
void qsa_data_store(const struct qsa_data *d, uint64_t row, enum dtype dtype, void *out);
/* The data of an attention in bf16.
 *
 * exact_int: keys are equal in every channel that a query reads, so all scores are equal and every
 * weight is exactly 1; values are small integers. specials: an infinite key makes a score of
 * +infinity, for which there is one right answer, NaN; one of -infinity could not be judged, and a
 * case of few tokens would prove nothing. */
void qsa_data_store_attention(const struct qsa_data *d, uint64_t row, uint16_t *out);
/* A key for the row that differs from every other's: data from a change on. */
static inline uint64_t qsa_changed_row(uint64_t row)
{
    return row | UINT64_C(1) << 40;
}
/* Whether the case's numbers lie at the ends of the range, where doubling is not exact. */
bool qsa_ends_of_range(const struct case_line *c, const char *key);
/* Whether a case's regime lives on signs, which rotation would mix. */
bool qsa_regime_of_signs(const struct case_line *c, const char *key);

/* RMS-norm weights; the kernels multiply by 1 + w. */
extern const char *const qsa_norm_names[];
void qsa_norm_fill(const struct case_line *c, uint32_t stream, uint32_t hd, uint16_t *weights);

/* Page orders of a single sequence. */
extern const char *const qsa_page_names[];

/* The paged caches of one sequence of the case: parameters block, pages, pageseed, spare. */
struct qsa_cache {
    struct paging paging; /* in elements: pitch_bytes is the elements of a page */
    struct qsa_data k_data, v_data;
    struct tensor *k, *v;
    int32_t *table;
    uint32_t len, nkv, hd;
    int64_t change; /* tokens from here on hold other data; -1: none */
};
/* Lays out the pages and adds the tensors k_cache, v_cache, block_table; in->extra becomes the
 * number of pages. `regime` is the parameter that names the values. False: out of memory; call
 * qsa_cache_free in any case. */
bool qsa_cache_make(struct qsa_cache *cache, const struct case_line *c, struct instance *in,
                    uint32_t len, uint32_t nkv, uint32_t hd, const char *regime);
/* Fills the tokens with used[token] != 0 and poisons all else: other tokens, slots past the length,
 * spare pages, table entries of pages without a used token. Large pools are backed only where they
 * are used. `broken`: every used table entry is one page too large. */
bool qsa_cache_fill(struct qsa_cache *cache, struct instance *in, const uint8_t *used, bool broken);
void qsa_cache_free(struct qsa_cache *cache);
uint32_t qsa_table_len(const struct case_line *c, uint64_t len);
uint32_t qsa_num_pages(const struct instance *in);

/* Complete blocks at a position; 0 for ratio 0. */
uint64_t qsa_complete(uint64_t position, uint32_t ratio);
/* a + b as a 32-bit argument, cut to its range. */
uint32_t qsa_sum_u32(uint64_t a, int64_t b);

/* Relations on the rows of a chunk: parameters pos and rows, data keyed by position. */
bool qsa_edit_alone(const struct case_line *base, struct rng *r, struct case_line *changed);
bool qsa_edit_chunk(const struct case_line *base, struct rng *r, struct case_line *changed);
int64_t qsa_base_row(const struct case_line *base, const struct case_line *changed, int64_t row);
/* Relations on pages. */
bool qsa_edit_pages(const struct case_line *base, struct rng *r, struct case_line *changed);
bool qsa_edit_block(const struct case_line *base, struct rng *r, struct case_line *changed);

/* Draws an even rotated width, a base and an eps for heads of `hd`. */
void qsa_sample_norm(struct case_line *c, struct rng *r, uint32_t hd);
/* Draws the order of pages; high page ids once in a while, since they cost sparse mappings. */
void qsa_sample_pages(struct case_line *c, struct rng *r, uint64_t index);

/* Numbers for geometries that may break any rule. */
float qsa_absurd_real(struct rng *r);
void qsa_absurd_param(struct case_line *c, struct rng *r, const char *const *keys, uint32_t count);

#endif
