/* Asynchronous copies from global to shared memory (cp.async, __pipeline_memcpy_async).
 *
 * A device may carry a copy out at any time until it is waited for. Here the source is read at the
 * start, the bytes of the target become 0xff, a NaN in every format, and what was read arrives at
 * the wait: a kernel that reads too early gets NaN, and one that starts a copy into memory that
 * others still read spoils it for them. Both writes are checked for races like any other. */
#ifndef ATTEST_SIMT_COPY_H
#define ATTEST_SIMT_COPY_H

#include "simt_thread.h"

SIMT_FN simt_thread_state *simt_my_copies(void)
{
    return &simt_states[simt_thread_number()];
}
SIMT_UNCHECKED void simt_copy_push(void *to, uint64_t low, uint64_t high, unsigned bytes)
{
    simt_thread_state *mine = simt_my_copies();
    if (mine->n == mine->capacity) {
        mine->capacity = mine->capacity ? 2 * mine->capacity : 16;
        mine->copies = (simt_copy *)realloc(mine->copies, mine->capacity * sizeof *mine->copies);
        if (!mine->copies) abort();
    }
    simt_copy *copy = &mine->copies[mine->n++];
    copy->to = to;
    copy->bytes = bytes;
    copy->batch = mine->closed;
    ((uint64_t *)copy->data)[0] = low;
    ((uint64_t *)copy->data)[1] = high;
}
/* The oldest copy that arrives when all but the `pending` youngest batches have to; NULL when there
 * is none. */
SIMT_UNCHECKED const simt_copy *simt_copy_pop(unsigned pending)
{
    simt_thread_state *mine = simt_my_copies();
    if (mine->first == mine->n) {
        mine->first = mine->n = 0;
        return NULL;
    }
    simt_copy *copy = &mine->copies[mine->first];
    if (copy->batch >= mine->closed || mine->closed - copy->batch <= pending) return NULL;
    mine->first++;
    return copy;
}
SIMT_UNCHECKED void *simt_copy_target(const simt_copy *copy)
{
    return copy->to;
}
SIMT_UNCHECKED unsigned simt_copy_bytes(const simt_copy *copy)
{
    return copy->bytes;
}
SIMT_UNCHECKED uint64_t simt_copy_half(const simt_copy *copy, int i)
{
    return ((const uint64_t *)copy->data)[i];
}
SIMT_UNCHECKED void simt_copy_commit(void)
{
    simt_my_copies()->closed++;
}
SIMT_FN void simt_copy_store(void *to, uint64_t low, uint64_t high, unsigned bytes)
{
    if (bytes == 4)
        *(unsigned *)to = (unsigned)low;
    else if (bytes == 8)
        *(uint64_t *)to = low;
    else
        *(ulonglong2 *)to = {low, high};
}
/* `bytes` is 4, 8 or 16; all but the first `wanted` of them become 0 and are not read. */
SIMT_FN void simt_copy_start(void *to, const void *from, unsigned bytes, unsigned wanted)
{
    if (bytes != 4 && bytes != 8 && bytes != 16)
        simt_assert("an asynchronous copy moves 4, 8 or 16 bytes", __FILE__, __LINE__);
    if ((((uintptr_t)to | (uintptr_t)from) & (bytes - 1)) != 0)
        simt_assert("an asynchronous copy has addresses that are multiples of its size", __FILE__,
                    __LINE__);
    if (wanted > bytes)
        simt_assert("an asynchronous copy reads no more than it writes", __FILE__, __LINE__);
    uint64_t words[2] = {0, 0};
    if (wanted == 16) {
        ulonglong2 both = *(const ulonglong2 *)from;
        words[0] = both.x, words[1] = both.y;
    } else if (wanted == 8) {
        words[0] = *(const uint64_t *)from;
    } else if (wanted == 4) {
        words[0] = *(const unsigned *)from;
    } else {
        for (unsigned i = 0; i < wanted; i++)
            words[i / 8] |= (uint64_t)((const unsigned char *)from)[i] << (i % 8 * 8);
    }
    simt_copy_store(to, ~0ull, ~0ull, bytes);
    simt_copy_push(to, words[0], words[1], bytes);
}
SIMT_FN void simt_copy_wait(unsigned pending)
{
    while (const simt_copy *copy = simt_copy_pop(pending))
        simt_copy_store(simt_copy_target(copy), simt_copy_half(copy, 0), simt_copy_half(copy, 1),
                        simt_copy_bytes(copy));
}
SIMT_FN void simt_copy_wait_all(void)
{
    simt_copy_commit();
    simt_copy_wait(0);
}

#endif
