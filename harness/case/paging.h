/* Paged caches of a case: which physical page holds which logical page, in every structure of
 * contracts.md §2, and which parts of the pool are backed by memory. */
#ifndef ATTEST_PAGING_H
#define ATTEST_PAGING_H

#include <stdbool.h>
#include <stdint.h>

enum page_order { PAGES_IDENTITY, PAGES_SHUFFLED, PAGES_SHARED, PAGES_HIGH };
extern const char *const page_order_names[];

struct paging {
    uint32_t num_seqs, max_blocks; /* table [num_seqs, max_blocks] */
    uint32_t block_size, num_pages;
    uint64_t pitch_bytes; /* or elements, where a token's offset is in elements */
    uint32_t first_page;  /* pages below are not backed (PAGES_HIGH) */
    int32_t *table;       /* entries past a sequence's last page are -1 here */
    uint32_t *shared;     /* per sequence: leading pages that belong to sequence 0 */
};
/* lengths: tokens per sequence. Spare pages that nobody uses are added except for identity, and as
 * many as make least_pages: behind the others, for PAGES_HIGH before them. Owned by the caller:
 * paging_free. False: out of memory. */
bool paging_make(struct paging *p, const int64_t *lengths, uint32_t num_seqs, uint32_t max_blocks,
                 uint32_t block_size, uint64_t pitch_bytes, enum page_order order,
                 uint32_t least_pages, uint64_t seed);
/* The pages a case touches at all, without making the table. */
uint64_t paging_total_pages(const int64_t *lengths, uint32_t num_seqs, uint32_t block_size);
uint64_t paging_token_offset(const struct paging *p, uint32_t seq, uint64_t token,
                             uint64_t token_bytes);
void paging_free(struct paging *p);
#endif
