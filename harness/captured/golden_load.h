/* What loading any golden file needs: a sticky error, owned buffers, paged caches. */
#ifndef ATTEST_HARNESS_GOLDEN_LOAD_H
#define ATTEST_HARNESS_GOLDEN_LOAD_H

#include "harness/captured/golden.h"

/* One load. After the first failure every function does nothing and gives NULL, 0 or false, so a
 * loader asks for all it needs and looks at `ok` before it computes with what it got. */
struct golden_load {
    struct st_file *file;
    struct golden_owned *owned; /* the golden struct's */
    char *error;
    size_t error_size;
    bool ok;
};

/* Opens the file; a failure is the load's first. */
struct golden_load golden_load_open(const char *path, struct golden_owned *owned, char *error,
                                    size_t error_size);
void golden_load_close(struct golden_owned *owned);
const void *golden_need(struct golden_load *load, const char *name, enum st_dtype dtype,
                        uint32_t rank, const uint64_t *shape);
/* The first dimension of a tensor, which gives a count the metadata do not hold. */
uint32_t golden_count(struct golden_load *load, const char *name);
uint32_t golden_u32(struct golden_load *load, const char *key);
float golden_f32(struct golden_load *load, const char *key);
/* True, unless the load has failed, which `what` then says. */
bool golden_check(struct golden_load *load, bool right, const char *what);
/* Zeroed, freed with the golden struct. */
void *golden_alloc(struct golden_load *load, uint64_t count, size_t size);
/* [rows, from] elements as [rows, to], the new channels zero; the source itself if from == to. */
const void *golden_widen(struct golden_load *load, const void *source, uint64_t rows, uint32_t from,
                         uint32_t to, size_t size);

/* Where a cache's tokens lie. */
struct golden_pages {
    const int32_t *table; /* [table_len], distinct */
    uint32_t table_len, num_pages, block_size;
    uint64_t token_bytes, pitch_bytes;
};
/* Checks the table and finds num_pages, one more than it names, so that the last page is unused. */
void golden_pages_check(struct golden_load *load, struct golden_pages *pages, uint32_t tokens);
/* The tokens in their pages; every other byte 0xff, NaN as e4m3 and as bf16. */
void *golden_paged(struct golden_load *load, const struct golden_pages *pages, const void *tokens,
                   uint32_t n_tokens);
#endif
