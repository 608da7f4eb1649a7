/* Fibers: stacks with a guard page below each, and the switch between them. */
#ifndef ATTEST_SIMT_FIBER_H
#define ATTEST_SIMT_FIBER_H

#include "include/simt_abi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__SANITIZE_ADDRESS__)
#define SIMT_WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIMT_WITH_ASAN 1
#endif
#endif
#ifndef SIMT_WITH_ASAN
#define SIMT_WITH_ASAN 0
#endif

/* For what runs on no stack that AddressSanitizer knows of. */
#define SIMT_NO_ASAN __attribute__((no_sanitize("address")))

/* One fiber's share of the reservation: a guard page and the stack above it. Pages that no kernel
 * ever touches cost nothing. */
#define SIMT_FIBER_BYTES (SIMT_WITH_ASAN ? 1u << 20 : 1u << 18)

struct simt_fiber {
    void *context;       /* where to go on; NULL before the first run and after an abandoned one */
    uint32_t thread;     /* the thread to start with when an idle fiber is switched to */
    void *fake_stack;    /* AddressSanitizer's */
    uintptr_t stack_low; /* above the guard page; 0 for the caller's own stack */
    size_t stack_bytes;
    struct simt_fiber *next_idle;
};

/* Reserves the stacks, once in a process. False when there is no memory. */
bool simt_fibers_open(void);

/* The stack of the thread that launches. */
extern struct simt_fiber simt_main_fiber;

/* An idle fiber or a new one; never fails for up to SIMT_MAX_BLOCK of them. Runs `body` when first
 * switched to; `body` never returns. */
struct simt_fiber *simt_fiber_take(void (*body)(struct simt_fiber *self));
/* Marks the running fiber idle; it must switch away next. */
void simt_fiber_give(struct simt_fiber *fiber);
void simt_fiber_switch(struct simt_fiber *from, struct simt_fiber *to);
/* Leaves the running fiber for good. */
void simt_fiber_abandon(struct simt_fiber *to) __attribute__((noreturn));
/* After a launch that was broken off: every fiber starts afresh. */
void simt_fibers_reset(void);

/* All stacks, guard pages included, begin here. */
extern uintptr_t simt_stacks_low;
#define SIMT_STACKS_BYTES ((uint64_t)SIMT_MAX_BLOCK * SIMT_FIBER_BYTES)

#endif
