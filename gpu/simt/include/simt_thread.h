/* What a thread keeps for asynchronous copies and matrix loads, empty when it begins. It is no
 * memory of the kernel's: accesses to it are not checked. */
#ifndef ATTEST_SIMT_THREAD_H
#define ATTEST_SIMT_THREAD_H

#include <cuda_runtime.h>

#ifdef SIMT_TRACE
#define SIMT_UNCHECKED static __attribute__((noinline, nodebug, no_sanitize("kernel-address")))
#else
#define SIMT_UNCHECKED static __attribute__((noinline, nodebug))
#endif

struct simt_copy {
    void *to;
    unsigned bytes, batch;
    unsigned char data[16];
};
struct simt_thread_state {
    /* Copies that have not arrived, [first, n), and how many batches have been closed. */
    simt_copy *copies;
    unsigned first, n, capacity, closed;
    /* Addresses that the warp's lanes give each other, by turns (simt_exchange). */
    unsigned turn;
    const void *given[2];
};
static simt_thread_state simt_states[SIMT_MAX_BLOCK];

SIMT_FN unsigned simt_thread_number(void)
{
    return (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
}
/* What an earlier thread of this number left behind is of no concern to this one. */
SIMT_UNCHECKED void simt_thread_reset(void)
{
    simt_thread_state *mine = &simt_states[simt_thread_number()];
    mine->first = mine->n = mine->closed = mine->turn = 0;
}
template <> struct simt_thread_hook<true> {
    SIMT_MEMBER static void begin()
    {
        simt_thread_reset();
    }
};

SIMT_UNCHECKED void simt_give(const void *pointer)
{
    simt_thread_state *mine = &simt_states[simt_thread_number()];
    mine->given[mine->turn++ % 2] = pointer;
}
SIMT_UNCHECKED const void *simt_given_by(unsigned lane)
{
    unsigned me = simt_thread_number();
    return simt_states[(me & ~31u) + lane].given[(simt_states[me].turn - 1) % 2];
}
/* Every lane of the whole warp gives a pointer; behind this, simt_given_by tells them. One lane may
 * be at the next exchange while another still reads this one's, but none can be past it: two places
 * a lane are enough. The vote orders no memory. */
SIMT_FN void simt_exchange(const void *pointer)
{
    simt_give(pointer);
    __ballot_sync(0xffffffffu, 1);
}

#endif
