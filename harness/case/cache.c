#include "harness/case/cache.h"

#include <stdlib.h>

#include "harness/case/values.h"

/* Above this, pages without a used token are not backed. */
enum { DENSE_BYTES = 32 << 20 };

static enum page_order order_of(const struct case_line *c)
{
    int order = 0;
    while (!case_enum_is(c, "pages", page_order_names[order])) order++;
    return (enum page_order)order;
}

bool cache_lay_out(const struct case_line *c, struct instance *in, const int64_t *lengths,
                   uint32_t num_seqs, uint32_t max_blocks, uint64_t pitch, uint64_t seed)
{
    uint32_t least = case_has(c, "pool") ? case_u32(c, "pool") : 0;
    in->pages = calloc(1, sizeof *in->pages);
    return in->pages && paging_make(in->pages, lengths, num_seqs, max_blocks, case_u32(c, "block"),
                                    pitch, order_of(c), least, seed);
}

bool cache_poison(const struct instance *in, struct tensor *cache, const uint8_t *used)
{
    const struct paging *p = in->pages;
    uint64_t page_bytes = p->pitch_bytes * dtype_bytes(cache->dtype);
    bool dense = (p->num_pages - p->first_page) * page_bytes <= DENSE_BYTES;
    for (uint32_t page = p->first_page; page < p->num_pages; page++) {
        uint64_t at = page * page_bytes;
        if (!dense && !used[page - p->first_page]) continue;
        if ((!dense || p->first_page) && !tensor_add_extent(cache, at, page_bytes)) return false;
        poison_fill(cache->data + at, cache->dtype, p->pitch_bytes, in->poison);
    }
    return true;
}
