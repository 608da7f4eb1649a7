#include "fiber.h"

#include "internal.h"

#include <sys/mman.h>

/* Boost.Context's C interface (its headers are C++ only). */
struct transfer {
    void *context, *data;
};
extern void *make_fcontext(void *stack_top, size_t bytes, void (*entry)(struct transfer));
extern struct transfer jump_fcontext(void *context, void *data);

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

/* What every switch ends with, on the new stack: note where the old one stopped. */
static void arrive(struct transfer transfer, struct simt_fiber *self)
{
    struct simt_fiber *from = transfer.data;

#if SIMT_WITH_ASAN
    const void *bottom;
    size_t bytes;

    __sanitizer_finish_switch_fiber(self->fake_stack, &bottom, &bytes);
    if (from == &simt_main_fiber) {
        simt_main_fiber.stack_low = (uintptr_t)bottom;
        simt_main_fiber.stack_bytes = bytes;
    }
#endif
    if (from) from->context = transfer.context;
}

static struct simt_fiber *starting;

static void entry(struct transfer transfer)
{
    struct simt_fiber *self = starting;

    arrive(transfer, self);
    fiber_body(self);
}

/* Stack tops are staggered by a cache line from fiber to fiber: were they all alike modulo a page,
 * the 32 lanes of a warp would fight for the same sets of the cache. */
static void build(struct simt_fiber *fiber)
{
    uint32_t index = (uint32_t)(fiber - fibers);
    uintptr_t top = fiber->stack_low + fiber->stack_bytes - index % 61 * 64;

#if SIMT_WITH_ASAN
    __asan_unpoison_memory_region((void *)fiber->stack_low, fiber->stack_bytes);
    fiber->fake_stack = NULL;
#endif
    fiber->context = make_fcontext((void *)top, top - fiber->stack_low, entry);
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

void simt_fiber_switch(struct simt_fiber *from, struct simt_fiber *to)
{
#if SIMT_WITH_ASAN
    __sanitizer_start_switch_fiber(&from->fake_stack, (void *)to->stack_low, to->stack_bytes);
#endif
    arrive(jump_fcontext(to->context, from), from);
}

SIMT_NO_ASAN void simt_fiber_abandon(struct simt_fiber *to)
{
#if SIMT_WITH_ASAN
    __sanitizer_start_switch_fiber(NULL, (void *)to->stack_low, to->stack_bytes);
#endif
    jump_fcontext(to->context, NULL);
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
