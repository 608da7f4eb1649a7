#include "harness/captured/golden_load.h"

#include <stdlib.h>
#include <string.h>

#include "harness/base/error_text.h"

struct golden_load golden_load_open(const char *path, struct golden_owned *owned, char *error,
                                    size_t error_size)
{
    struct golden_load load = {.owned = owned, .error = error, .error_size = error_size};
    load.ok = st_open(path, &owned->file, error, error_size);
    load.file = owned->file;
    return load;
}

void golden_load_close(struct golden_owned *owned)
{
    for (uint32_t i = 0; i < owned->n_buffers; i++) free(owned->buffers[i]);
    st_close(owned->file);
    *owned = (struct golden_owned){0};
}

const void *golden_need(struct golden_load *load, const char *name, enum st_dtype dtype,
                        uint32_t rank, const uint64_t *shape)
{
    if (!load->ok) return NULL;
    const void *data =
        st_require(load->file, name, dtype, rank, shape, load->error, load->error_size);
    load->ok = data != NULL;
    return data;
}

uint32_t golden_count(struct golden_load *load, const char *name)
{
    if (!load->ok) return 0;
    const struct st_tensor *tensor = st_find(load->file, name);
    if (!tensor || tensor->rank == 0 || tensor->shape[0] > INT32_MAX) {
        load->ok = error_text(load->error, load->error_size, "%s: tensor %s gives no count",
                              st_path(load->file), name);
        return 0;
    }
    return (uint32_t)tensor->shape[0];
}

uint32_t golden_u32(struct golden_load *load, const char *key)
{
    uint32_t value = 0;
    load->ok = load->ok && st_metadata_u32(load->file, key, &value, load->error, load->error_size);
    return value;
}

float golden_f32(struct golden_load *load, const char *key)
{
    double value = 0.0;
    load->ok = load->ok && st_metadata_f64(load->file, key, &value, load->error, load->error_size);
    return (float)value;
}

bool golden_check(struct golden_load *load, bool right, const char *what)
{
    if (load->ok && !right)
        load->ok = error_text(load->error, load->error_size, "%s: %s", st_path(load->file), what);
    return load->ok;
}

void *golden_alloc(struct golden_load *load, uint64_t count, size_t size)
{
    if (!load->ok) return NULL;
    struct golden_owned *owned = load->owned;
    bool room = owned->n_buffers < sizeof owned->buffers / sizeof *owned->buffers;
    void *buffer = room ? calloc(count ? count : 1, size) : NULL;
    if (golden_check(load, buffer != NULL, "out of memory"))
        owned->buffers[owned->n_buffers++] = buffer;
    return buffer;
}

const void *golden_widen(struct golden_load *load, const void *source, uint64_t rows, uint32_t from,
                         uint32_t to, size_t size)
{
    if (!load->ok || from == to) return source;
    char *wide = golden_alloc(load, rows * to, size);
    for (uint64_t row = 0; wide && row < rows; row++)
        memcpy(wide + row * to * size, (const char *)source + row * from * size, from * size);
    return wide;
}

void golden_pages_check(struct golden_load *load, struct golden_pages *pages, uint32_t tokens)
{
    if (!golden_check(load, pages->block_size > 0, "block_size is 0") ||
        !golden_check(load, (uint64_t)pages->table_len * pages->block_size >= tokens,
                      "block_table is too short for the tokens"))
        return;
    /* The bound keeps a damaged table from asking for the memory of 2^31 pages. */
    uint64_t limit = 4 * (uint64_t)pages->table_len + 16;
    uint8_t *seen = golden_alloc(load, limit, 1);
    for (uint32_t i = 0; seen && i < pages->table_len; i++) {
        int32_t page = pages->table[i];
        bool right = page >= 0 && (uint64_t)page < limit && !seen[page];
        if (!golden_check(load, right, "block_table has a page twice, or one far out")) return;
        seen[page] = 1;
        if ((uint32_t)page + 2 > pages->num_pages) pages->num_pages = (uint32_t)page + 2;
    }
}

void *golden_paged(struct golden_load *load, const struct golden_pages *pages, const void *tokens,
                   uint32_t n_tokens)
{
    /* A damaged block size may ask for anything; the golden caches have a few MiB. */
    golden_check(load, pages->pitch_bytes < (1u << 30) / (pages->num_pages + 1),
                 "the paged cache has a GiB or more");
    unsigned char *cache = golden_alloc(load, pages->num_pages, pages->pitch_bytes);
    if (!cache) return NULL;
    memset(cache, 0xff, pages->num_pages * pages->pitch_bytes);
    for (uint32_t t = 0; t < n_tokens; t++) {
        uint64_t page = (uint64_t)pages->table[t / pages->block_size];
        uint64_t at = page * pages->pitch_bytes + t % pages->block_size * pages->token_bytes;
        memcpy(cache + at, (const char *)tokens + t * pages->token_bytes, pages->token_bytes);
    }
    return cache;
}
