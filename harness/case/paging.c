#include "harness/case/paging.h"

#include <stdlib.h>
#include <string.h>

#include "harness/case/random.h"

const char *const page_order_names[] = {"identity", "shuffled", "shared", "high", NULL};

enum { SPARE_PAGES = 3 };

static uint64_t pages_of(int64_t length, uint32_t block_size)
{
    return length <= 0 ? 0 : ((uint64_t)length + block_size - 1) / block_size;
}

uint64_t paging_total_pages(const int64_t *lengths, uint32_t num_seqs, uint32_t block_size)
{
    uint64_t total = 0;
    for (uint32_t s = 0; s < num_seqs; s++) total += pages_of(lengths[s], block_size);
    return total;
}

void paging_free(struct paging *p)
{
    free(p->table);
    free(p->shared);
    memset(p, 0, sizeof *p);
}

/* Sequence s > 0 shares its leading full pages with sequence 0, all but its last page. */
static uint32_t shared_pages(const int64_t *lengths, uint32_t s, uint32_t block_size)
{
    uint64_t own = pages_of(lengths[s], block_size), first = pages_of(lengths[0], block_size);
    if (s == 0 || own == 0 || first == 0) return 0;
    return (uint32_t)(own - 1 < first - 1 ? own - 1 : first - 1);
}

bool paging_make(struct paging *p, const int64_t *lengths, uint32_t num_seqs, uint32_t max_blocks,
                 uint32_t block_size, uint64_t pitch_bytes, enum page_order order,
                 uint32_t least_pages, uint64_t seed)
{
    uint32_t total = (uint32_t)paging_total_pages(lengths, num_seqs, block_size);
    uint32_t pool = total + (order == PAGES_IDENTITY ? 0 : SPARE_PAGES);
    uint32_t *ids = malloc((pool + 1) * sizeof *ids);
    struct rng r = {seed, 0x9a6e, 0};
    memset(p, 0, sizeof *p);
    p->num_seqs = num_seqs;
    p->max_blocks = max_blocks;
    p->block_size = block_size;
    p->pitch_bytes = pitch_bytes;
    p->table = malloc(((size_t)num_seqs * max_blocks + 1) * sizeof *p->table);
    p->shared = calloc(num_seqs + 1, sizeof *p->shared);
    if (!ids || !p->table || !p->shared) {
        free(ids);
        paging_free(p);
        return false;
    }
    /* The first page whose byte offset no 32-bit number holds, and a bit beyond. */
    if (order == PAGES_HIGH) {
        p->first_page = (uint32_t)((UINT64_C(1) << 32) / pitch_bytes) + 5;
        if (least_pages > pool && least_pages - pool > p->first_page)
            p->first_page = least_pages - pool;
    }
    p->num_pages = p->first_page + (pool ? pool : 1);
    if (p->num_pages < least_pages) p->num_pages = least_pages;
    if (order == PAGES_IDENTITY)
        for (uint32_t i = 0; i < pool; i++) ids[i] = i;
    else
        rng_permutation(&r, ids, pool);
    uint32_t next = 0;
    for (uint32_t s = 0; s < num_seqs; s++) {
        uint32_t own = (uint32_t)pages_of(lengths[s], block_size);
        if (order == PAGES_SHARED) p->shared[s] = shared_pages(lengths, s, block_size);
        for (uint32_t b = 0; b < max_blocks; b++) {
            int32_t *entry = &p->table[(size_t)s * max_blocks + b];
            if (b >= own)
                *entry = -1;
            else if (b < p->shared[s])
                *entry = p->table[b];
            else
                *entry = (int32_t)(p->first_page + ids[next++]);
        }
    }
    free(ids);
    return true;
}

uint64_t paging_token_offset(const struct paging *p, uint32_t seq, uint64_t token,
                             uint64_t token_bytes)
{
    uint64_t page = (uint64_t)p->table[(size_t)seq * p->max_blocks + token / p->block_size];
    return page * p->pitch_bytes + token % p->block_size * token_bytes;
}
