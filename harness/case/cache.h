/* The paged cache of a case: its layout as the keys say, and its poison. */
#ifndef ATTEST_CACHE_H
#define ATTEST_CACHE_H

#include "harness/case/case.h"
#include "harness/case/instance.h"
#include "harness/case/paging.h"

/* Lays out the cache of a case as its keys say: block, pages (an order's name) and, where the
 * operation has it, pool: the least number of pages. in->pages is the instance's from then on.
 * False: out of memory. `pitch`: from one page to the next, in elements of the cache. */
bool cache_lay_out(const struct case_line *c, struct instance *in, const int64_t *lengths,
                    uint32_t num_seqs, uint32_t max_blocks, uint64_t pitch, uint64_t seed);
/* Poisons a cache with that layout: the whole pool when it is small, else only the pages with
 * used[page - first_page], and then only those are backed. False: out of memory. */
bool cache_poison(const struct instance *in, struct tensor *cache, const uint8_t *used);

#endif
