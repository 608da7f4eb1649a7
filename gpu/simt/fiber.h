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
    void **context;      /* where to go on; NULL before the first run and after an abandoned one */
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

/* Where the processor goes on: a suspended thread's stack, and what the call it was suspended in
 * returns there. */
struct simt_turn {
    void **stack;
    uint64_t result;
};

/* Leaves `from`, to come back when it is switched to. */
void simt_fiber_leave(struct simt_fiber *from, struct simt_turn turn);
#if SIMT_WITH_ASAN
/* Says that the next switch goes to `to`. */
void simt_fiber_depart(struct simt_fiber *to);
/* The registers that it uses are popped next. A stack about to start is aligned like one that was
 * just entered, another like one that called. */
#define SIMT_ARRIVE                                             \
    "movq %rdx, %rbx\n\tmovq %rsp, %rbp\n\tandq $-16, %rsp\n\t" \
    "call simt_fiber_arrive\n\tmovq %rbp, %rsp\n\tmovq %rbx, %rdx\n\t"
#else
static inline void simt_fiber_depart(struct simt_fiber *to)
{
}
#define SIMT_ARRIVE ""
#endif

/* A suspended stack holds the registers that a call keeps, then the return address. */
#define SIMT_SAVED_REGISTERS 6
#define SIMT_SITE(stack) ((uintptr_t)(stack)[SIMT_SAVED_REGISTERS])
#define SIMT_SAVE                                                            \
    "pushq %rbp\n\tpushq %rbx\n\tpushq %r12\n\tpushq %r13\n\tpushq %r14\n\t" \
    "pushq %r15\n\t"
/* From the stack in rax, returning what is in rdx. It goes on with a return, not a jump: the
 * processor predicts returns by pairing them with calls, and a switch that breaks the pairs makes
 * every return of the resumed thread a misprediction (Boost.Context's jump_fcontext does, and a
 * shuffle of a warp took three times as long with it). MXCSR and the x87 control word are the same
 * for all threads. */
#define SIMT_RESUME                                                     \
    "movq %rax, %rsp\n\t" SIMT_ARRIVE "movq %rdx, %rax\n\t"             \
    "popq %r15\n\tpopq %r14\n\tpopq %r13\n\tpopq %r12\n\tpopq %rbx\n\t" \
    "popq %rbp\n\tret\n"
/* Defines the function `name`, which suspends its caller, asks `body` who goes on and goes on
 * there. `body` gets the arguments and, in register `last`, the suspended stack; it returns a
 * simt_turn. One set of registers is saved for all that happens until another thread runs. */
#define SIMT_SUSPENDING(name, body, last)                                                \
    __asm__(".text\n.globl " name "\n.type " name ", @function\n" name ":\n\t" SIMT_SAVE \
            "movq %rsp, %" last "\n\tsubq $8, %rsp\n\t"                                  \
            "call " body "\n\t" SIMT_RESUME ".size " name ", .-" name "\n")
/* Leaves the running fiber for good. */
void simt_fiber_abandon(struct simt_fiber *to) __attribute__((noreturn));
/* After a launch that was broken off: every fiber starts afresh. */
void simt_fibers_reset(void);

/* All stacks, guard pages included, begin here. */
extern uintptr_t simt_stacks_low;
#define SIMT_STACKS_BYTES ((uint64_t)SIMT_MAX_BLOCK * SIMT_FIBER_BYTES)

#endif
