/* What the descriptors of the QSA family share: rows of data in a regime, norm weights, a paged
 * cache of one sequence, relations on the rows of a chunk. */
#ifndef ATTEST_OPS_QSA_COMMON_H
#define ATTEST_OPS_QSA_COMMON_H

#include "gpu/launch_qsa.h"
#include "harness/case/op.h"
#include "harness/case/cache.h"
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
/* Every row of an input, keyed from `first` on; a row is as long as the last dimension. */
void qsa_store_rows(const struct qsa_data *d, uint64_t first, const struct tensor *t);
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
/* Whether a case's regime lives on signs, which rotation would mix. */
bool qsa_regime_of_signs(const struct case_line *c, const char *key);

/* RMS-norm weights; the kernels multiply by 1 + w. */
extern const char *const qsa_norm_names[];

/* An array's filling: the weights that the key `norm` names. */
bool qsa_fill_norm(const struct filling *f);

/* Page orders of a single sequence. */
extern const char *const qsa_page_names[];

/* A descriptor's lay_out: the paged cache of one sequence. Keys block, pages, pageseed, nkv, hd;
 * numbers seq_len and table_len. */
bool qsa_lay_out(const struct case_line *c, struct instance *in);
/* Entries of the table of a sequence. */
#define QSA_TABLE_LEN "block ? ceil(seq_len/block) + spare : 0"
/* Fills k_cache, v_cache and block_table: the tokens with used[token] != 0 (NULL: all), in the
 * regime of the key `regime`; all else is poison: other tokens, slots past the length, spare pages,
 * table entries of pages without a used token. Large pools are backed only where they are used.
 * `broken`: every used table entry is one page too large. */
bool qsa_cache_fill(const struct case_line *c, struct instance *in, const uint8_t *used,
                    bool broken);

/* Complete blocks at a position; 0 for ratio 0. */
uint64_t qsa_complete(uint64_t position, uint32_t ratio);
/* Relations on the rows of a chunk: keys pos and rows, data keyed by position. */
#define QSA_ROW_ALONE                                                                        \
    "row-alone", RELATION_SAME_BITS, "rows >= 2", "pos = pos + draw(0, rows - 1), rows = 1", \
        "row + new.pos - pos"
#define QSA_FIRST_ROWS_DROPPED                             \
    "first-rows-dropped", RELATION_SAME_BITS, "rows >= 3", \
        "pos = pos + draw(1, rows - 1), rows = rows + pos - new.pos", "row + new.pos - pos"
/* Relations on pages. */
#define QSA_PAGES_PERMUTED \
    "pages-permuted", RELATION_SAME_BITS, NULL, "pages = shuffled, pageseed = draw(1, 1048576)"
#define QSA_BLOCK_SIZE_CHANGED \
    "block-size-changed", RELATION_SAME_BITS, NULL, "block = block + ratio * draw(1, 3)"

/* Draws an even rotated width, a base and an eps for heads of `hd`. */
void qsa_sample_norm(struct case_line *c, struct rng *r, uint32_t hd);
/* Draws the order of pages; high page ids once in a while, since they cost sparse mappings. */
void qsa_sample_pages(struct case_line *c, struct rng *r, uint64_t index);

#endif
