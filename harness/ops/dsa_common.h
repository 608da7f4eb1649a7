/* What the descriptors of the DSA selector and of the decode pipeline share: keys of a sequence
 * with padding and invalid tokens, geometry vectors, rows of a batch. */
#ifndef ATTEST_OPS_DSA_COMMON_H
#define ATTEST_OPS_DSA_COMMON_H

#include "gpu/launch_dsa.h"
#include "harness/case/op.h"
#include "harness/case/values.h"
#include "ref/dsa.h"

/* Which of the tokens after the left padding are invalid. */
enum dsa_invalid {
    DSA_INVALID_NONE,
    DSA_INVALID_SCATTERED,  /* one in five */
    DSA_INVALID_FIRST_SLOT, /* the first token of every third pool */
    DSA_INVALID_LAST_SLOT,  /* the last token of every third pool */
    DSA_INVALID_POOL,       /* every token of every third pool */
    DSA_INVALID_END,        /* the last third of the sequence */
    DSA_INVALID_ALL
};
extern const char *const dsa_invalid_names[];

/* The keys of one sequence. Pools are counted from the first token after the padding. */
struct dsa_keys {
    uint32_t len, pad, kpool; /* len: tokens, the padding included */
    enum dsa_invalid invalid;
    uint64_t seed;
    int64_t change; /* tokens from here on have other data; -1: none */
    bool prefix;    /* and their validity changes only so that valid tokens stay one run */
};
/* As the keys of the case say. */
struct dsa_keys dsa_keys_of(const struct case_line *c);
bool dsa_key_valid(const struct dsa_keys *keys, uint32_t token);
/* Row of a field that holds the token's data: it does not depend on the padding. */
uint64_t dsa_key_row(const struct dsa_keys *keys, uint32_t token);
/* indices [pools, kpool], valid [pools] as compression gives them. */
void dsa_pool_tables(const struct dsa_keys *keys, uint32_t pools, int32_t *indices, uint8_t *valid);
/* The least power of two that is not below n, at least 1. */
uint64_t dsa_power_above(uint64_t n);

/* Geometry vectors: none; the scalars again; the scalars larger than what the vector says. */
extern const char *const dsa_geom_names[];

/* The regime a parameter names. */
enum regime dsa_regime(const struct case_line *c, const char *key);
/* A field row times 2^exponent, stored. */
void dsa_store_scaled(const struct field *f, uint64_t row, int exponent, enum dtype dtype,
                      void *out);

/* exact_int before a softmax: keys are equal in every channel that a query reads, so all scores are
 * equal and every weight is exactly 1; values are small integers. value [f->cols]. */
void dsa_exact_row(const struct field *f, uint64_t row, bool query, double *value);

/* A latent row or a query of the decode, of at most 1024 channels; in exact_int as above. */
void dsa_attend_store(const struct field *f, uint64_t row, bool query, enum dtype dtype, void *out);
/* For exact_int: every weight is 1 and every sum exact; with a power of two of ids and scales that
 * are powers of two the quotient is exact too, so nothing but the store rounds: such sequences'
 * bounds become 0. bound [num_seqs, num_q_heads, kv_lora_rank]. */
void dsa_decode_exact(const struct ref_dsa_decode *g, double *bound);
/* For exact_int: all weights of a pool are equal, the keys are small integers. With a power of two
 * of valid slots every weight, product, sum and quotient is exact: such pools' bounds become 0.
 * indices [pools, KP], bound [pools, D]. */
void dsa_pools_exact(const struct ref_dsa_kpool_compress *g, const int32_t *indices, double *bound);

/* Rows of a batch, for operations with the parameters rows, first and reverse: the key of a row
 * says which data it has, so that a batch can be reordered or cut. */
uint32_t dsa_row_key(const struct case_line *c, uint32_t row);
/* Element `row key` of a list that repeats; `empty` for an empty one. */
int64_t dsa_row_item(const struct case_line *c, const char *list, uint32_t row, int64_t empty);

/* The array "geom" with these five numbers, where the case has one. The numbers that it says go by
 * the names pools, complete, ...; what the scalars say by those of the interface: S, P, ... */
#define DSA_GEOM(numbers) "geom", ARRAY_IN, .when = "!geom.none", .values = numbers

/* Relations on the rows of a batch: keys rows, first, reverse; data keyed by first + row. */
#define DSA_ROWS_REVERSED \
    "rows-reversed", RELATION_SAME_BITS, "rows >= 2", "reverse = !reverse", "rows - 1 - row"
#define DSA_ROW_ALONE                                               \
    "row-alone", RELATION_SAME_BITS, "rows >= 2",                   \
        "first = first + draw(0, rows - 1), rows = 1, reverse = 0", \
        "reverse ? rows - 1 - (new.first - first) : new.first - first"
/* The position of row `row`. */
#define DSA_ROW_POS "item(pos, first + (reverse ? rows - 1 - row : row), len - 1)"
/* Other data from the token behind some row's position on, where there is one. */
#define DSA_CHANGE_LATER                                                    \
    "change = max(item(pos, first + draw(0, rows - 1), len - 1), -2) + 1, " \
    "change = new.change < len ? new.change : change"
#define DSA_LATER_TOKENS_CHANGED                                                        \
    "later-tokens-changed", RELATION_SAME_BITS, "change < 0 && rows", DSA_CHANGE_LATER, \
        DSA_ROW_POS " < new.change ? row : -1"
/* The scalars alone must give the same. */
#define DSA_GEOMETRY_DROPPED "geometry-dropped", RELATION_SAME_BITS, "!geom.none", "geom = none"

#endif
