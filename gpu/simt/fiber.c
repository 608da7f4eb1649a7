#include "fiber.h"

#include "internal.h"

#include <sys/mman.h>

/* Leaves the top of the suspended stack in *from and goes on at `to`. */
void simt_switch_stacks(void ***from, void **to, uint64_t result);
__asm__(".text\n"
        ".globl simt_switch_stacks\n"
        ".type simt_switch_stacks, @function\n"
        "simt_switch_stacks:\n\t" SIMT_SAVE "movq %rsp, (%rdi)\n\t"
        "movq %rsi, %rax\n\t" SIMT_RESUME ".size simt_switch_stacks, .-simt_switch_stacks\n");

#if SIMT_WITH_ASAN
void __sanitizer_start_switch_fiber(void **fake_stack, const void *bottom, size_t bytes);
void __sanitizer_finish_switch_fiber(void *fake_stack, const void **bottom, size_t *bytes);
void __asan_unpoison_memory_region(const volatile void *address, size_t bytes);
#endif

struct simt_fiber simt_main_fiber;
static struct simt_fiber fibers[SIMT_MAX_BLOCK];
static uint32_t n_fibers;
static struct simt_fiber *idle;
uintptr_t simt_stacks_low;
static void (*fiber_body)(struct simt_fiber *self);
static struct simt_fiber *starting; /* the one built last, until it runs */
#if SIMT_WITH_ASAN
static struct simt_fiber *running = &simt_main_fiber, *leaving;
static bool departing;
#endif

bool simt_fibers_open(void)
{
    void *address;

    if (simt_stacks_low) return true;
    address = mmap(NULL, SIMT_STACKS_BYTES, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED) return false;
    simt_stacks_low = (uintptr_t)address;
    return true;
}

#if SIMT_WITH_ASAN
SIMT_NO_ASAN void simt_fiber_depart(struct simt_fiber *to)
{
    leaving = running;
    running = to;
    departing = true;
    __sanitizer_start_switch_fiber(leaving ? &leaving->fake_stack : NULL, (void *)to->stack_low,
                                   to->stack_bytes);
}

/* What a switch ends with, on the new stack. Nothing where nobody departed. */
SIMT_NO_ASAN void simt_fiber_arrive(void)
{
    const void *bottom;
    size_t bytes;

    if (!departing) return;
    departing = false;
    __sanitizer_finish_switch_fiber(running->fake_stack, &bottom, &bytes);
    if (leaving == &simt_main_fiber) {
        simt_main_fiber.stack_low = (uintptr_t)bottom;
        simt_main_fiber.stack_bytes = bytes;
    }
}
#endif

static void entry(void)
{
    fiber_body(starting);
}

/* A stack as simt_switch_stacks leaves it, about to return into `entry`. Stack tops are staggered
 * from fiber to fiber: were they all alike modulo a page, the lanes of a warp would fight for the
 * same sets of the cache. */
static void build(struct simt_fiber *fiber)
{
    uintptr_t top = fiber->stack_low + fiber->stack_bytes - (fiber - fibers) % 8 * 512;
    void **slot = (void **)top;

#if SIMT_WITH_ASAN
    __asan_unpoison_memory_region((void *)fiber->stack_low, fiber->stack_bytes);
    fiber->fake_stack = NULL;
#endif
    *--slot = NULL; /* where `entry` would return to, and what aligns its stack */
    *--slot = (void *)(uintptr_t)entry;
    for (int i = 0; i < SIMT_SAVED_REGISTERS; i++) *--slot = NULL;
    fiber->context = slot;
    starting = fiber;
}

struct simt_fiber *simt_fiber_take(void (*body)(struct simt_fiber *self))
{
    struct simt_fiber *fiber = idle;

    fiber_body = body;
    if (fiber) {
        idle = fiber->next_idle;
        if (!fiber->context) build(fiber);
        return fiber;
    }
    fiber = &fibers[n_fibers];
    fiber->stack_low = simt_stacks_low + (uint64_t)n_fibers * SIMT_FIBER_BYTES + SIMT_PAGE;
    fiber->stack_bytes = SIMT_FIBER_BYTES - SIMT_PAGE;
    mprotect((void *)(fiber->stack_low - SIMT_PAGE), SIMT_PAGE, PROT_NONE);
    n_fibers++;
    build(fiber);
    return fiber;
}

void simt_fiber_give(struct simt_fiber *fiber)
{
    fiber->next_idle = idle;
    idle = fiber;
}

void simt_fiber_leave(struct simt_fiber *from, struct simt_turn turn)
{
    simt_switch_stacks(&from->context, turn.stack, turn.result);
}

void simt_fiber_switch(struct simt_fiber *from, struct simt_fiber *to)
{
    simt_fiber_depart(to);
    simt_fiber_leave(from, (struct simt_turn){to->context, 0});
}

SIMT_NO_ASAN void simt_fiber_abandon(struct simt_fiber *to)
{
    void **nowhere;

#if SIMT_WITH_ASAN
    running = NULL;
    simt_fiber_depart(to);
#endif
    simt_switch_stacks(&nowhere, to->context, 0);
    __builtin_unreachable();
}

/* The last fiber comes first again, so that a launch sees the same stacks as the first one did. */
void simt_fibers_reset(void)
{
    idle = NULL;
    for (uint32_t i = n_fibers; i-- > 0;) {
        fibers[i].context = NULL;
        simt_fiber_give(&fibers[i]);
    }
}
