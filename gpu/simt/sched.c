/* The scheduler of one block. Threads run until they wait; then the next one that can run is
 * switched to directly. A thread that never waits costs no switch: its fiber goes on with the next
 * thread. */
#include "run.h"

#include <immintrin.h>

uint64_t simt_clock(void)
{
    return __rdtsc();
}

#define NOBODY UINT32_MAX

/* splitmix64: each draw is a bijection of a counter. */
uint64_t simt_random(void)
{
    uint64_t z = simt_run.random += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void enter(uint32_t thread)
{
    simt_run.current = thread;
    simt_thread_idx = simt_run.threads[thread].index;
    simt_lane = thread % SIMT_WARP;
}

static uint32_t first_thread(uint32_t warp)
{
    return warp * SIMT_WARP + (uint32_t)__builtin_ctz(simt_run.warps[warp].runnable);
}

/* Ascending, beginning behind the running thread: its own warp first, around, then the next warp. A
 * thread that asked for others to run (`fair`) has its own warp's turn come last. */
static uint32_t pick_ascending(bool fair)
{
    uint32_t own = simt_run.current / SIMT_WARP, lane = simt_run.current % SIMT_WARP;
    uint32_t runnable = simt_run.warps[own].runnable;
    uint32_t behind = runnable & (uint32_t)(~0ull << (lane + 1)), warps;

    if (behind) return own * SIMT_WARP + (uint32_t)__builtin_ctz(behind);
    if (runnable && !fair) return first_thread(own);
    warps = simt_run.runnable_warps & (uint32_t)(~0ull << (own + 1));
    if (!warps) warps = simt_run.runnable_warps;
    return warps ? first_thread((uint32_t)__builtin_ctz(warps)) : NOBODY;
}

/* The n-th member of a set. */
static uint32_t nth_of(uint32_t set, uint32_t n)
{
#ifdef __BMI2__
    set = _pdep_u32(1u << n, set);
#else
    while (n-- > 0) set &= set - 1;
#endif
    return (uint32_t)__builtin_ctz(set);
}

/* A member of a set, by 32 random bits. */
static uint32_t draw_from(uint32_t set, uint32_t bits)
{
    return nth_of(set, (uint32_t)((uint64_t)bits * (uint32_t)__builtin_popcount(set) >> 32));
}

/* Any runnable thread, more often than not of the running thread's warp. Every thread that waits
 * drops out of the draw, so nobody starves. */
static uint32_t pick_seeded(void)
{
    uint64_t draw = simt_random();
    uint32_t chosen = simt_run.current / SIMT_WARP;

    if (!simt_run.warps[chosen].runnable || draw % 8 < SWITCH_OUT_OF_8) {
        if (!simt_run.runnable_warps) return NOBODY;
        chosen = draw_from(simt_run.runnable_warps, (uint32_t)(draw >> 3));
    }
    return chosen * SIMT_WARP + draw_from(simt_run.warps[chosen].runnable, (uint32_t)(draw >> 32));
}

static uint32_t pick(bool fair)
{
    return simt_run.seeded ? pick_seeded() : pick_ascending(fair);
}

static void set_runnable(uint32_t warp, uint32_t lanes)
{
    simt_run.warps[warp].runnable |= lanes;
    if (lanes) simt_run.runnable_warps |= 1u << warp;
}

static void take_from_runnable(uint32_t thread)
{
    struct simt_warp *warp = &simt_run.warps[thread / SIMT_WARP];

    warp->runnable &= ~(1u << thread % SIMT_WARP);
    if (!warp->runnable) simt_run.runnable_warps &= ~(1u << thread / SIMT_WARP);
}

static void run_threads(struct simt_fiber *self);

/* Where a runnable thread goes on. A thread stays on the fiber it started on. */
static struct simt_turn turn_of(uint32_t next)
{
    struct simt_thread *thread = &simt_run.threads[next];
    const struct simt_warp *warp = &simt_run.warps[next / SIMT_WARP];
    uint32_t lane = next % SIMT_WARP;
    struct simt_turn turn = {thread->stack, warp->results[lane]};

    take_from_runnable(next);
    if (warp->unstarted >> lane & 1) {
        thread->fiber = simt_fiber_take(run_threads);
        thread->fiber->thread = next;
        turn.stack = thread->fiber->context;
    } else {
        enter(next);
    }
    simt_fiber_depart(thread->fiber);
    return turn;
}

/* The running thread, suspended at `stack`, waits for its turn to come again. */
static struct simt_turn wait_turn(void **stack, bool fair)
{
    uint32_t next;

    simt_run.threads[simt_run.current].stack = stack;
    if (simt_run.expired) simt_fail_expired(SIMT_SITE(stack));
    next = pick(fair);
    if (next == NOBODY) simt_fail_stuck();
    if (next != simt_run.current) return turn_of(next);
    take_from_runnable(next);
    return (struct simt_turn){stack, simt_run.warps[next / SIMT_WARP].results[next % SIMT_WARP]};
}

static __attribute__((noinline)) struct simt_turn wait_for_any(void **stack)
{
    return wait_turn(stack, false);
}

/* What nearly every switch is: to the next lane, in ascending order. Done here without anything
 * that the general way needs, it takes half the time. The warp keeps a runnable lane, or goes the
 * general way. */
struct simt_turn simt_wait(void **stack)
{
    uint32_t me = simt_run.current, lane = me % SIMT_WARP, next;
    struct simt_warp *warp = &simt_run.warps[me / SIMT_WARP];
    uint32_t behind = warp->runnable & (uint32_t)(~0ull << (lane + 1));
    struct simt_thread *thread;

    if (simt_run.seeded || simt_run.expired || (behind & (behind - 1)) == 0 ||
        (behind & -behind & warp->unstarted))
        return wait_for_any(stack);
    next = (uint32_t)__builtin_ctz(behind);
    simt_run.threads[me].stack = stack;
    thread = &simt_run.threads[me - lane + next];
    warp->runnable &= ~(behind & -behind);
    enter(me - lane + next);
    simt_fiber_depart(thread->fiber);
    return (struct simt_turn){thread->stack, warp->results[next]};
}

static __attribute__((noinline)) struct simt_turn give_turn(void **stack)
{
    set_runnable(simt_run.current / SIMT_WARP, 1u << simt_run.current % SIMT_WARP);
    return wait_turn(stack, true);
}

/* A thread that made others runnable mostly goes on itself. */
struct simt_turn simt_release(uint32_t warp, uint32_t lanes, void **stack)
{
    uint32_t me = simt_run.current;

    set_runnable(warp, lanes);
    if (simt_run.seeded && simt_random() % 8 < SWITCH_OUT_OF_8) return give_turn(stack);
    return (struct simt_turn){stack, simt_run.warps[me / SIMT_WARP].results[me % SIMT_WARP]};
}

static void run_one(uint32_t thread)
{
    struct simt_warp *warp = &simt_run.warps[thread / SIMT_WARP];
    uint32_t bit = 1u << thread % SIMT_WARP;

    warp->unstarted &= ~bit;
    enter(thread);
    simt_run.kernel->entry->thunk(simt_run.args);
    warp->returned |= bit;
    simt_run.n_returned++;
}

/* A fiber's life: run a thread to its end, then go on with whoever can run. */
static void run_threads(struct simt_fiber *self)
{
    for (;;) {
        uint32_t next = self->thread;

        for (;;) {
            simt_run.threads[next].fiber = self;
            run_one(next);
            if (simt_run.expired) simt_fail_expired(0);
            next = pick(false);
            if (next == NOBODY ||
                !(simt_run.warps[next / SIMT_WARP].unstarted >> next % SIMT_WARP & 1))
                break;
            take_from_runnable(next);
        }
        if (next == NOBODY && simt_run.n_returned < simt_run.n_threads) simt_fail_stuck();
        simt_fiber_give(self);
        if (next == NOBODY)
            simt_fiber_switch(self, &simt_main_fiber);
        else
            simt_fiber_leave(self, turn_of(next));
    }
}

void simt_block_prepare(struct gpu_dim block, uint64_t seed)
{
    uint32_t n = 0;

    simt_run.n_threads = block.x * block.y * block.z;
    simt_run.n_warps = (simt_run.n_threads + SIMT_WARP - 1) / SIMT_WARP;
    simt_run.seeded = seed != 0;
    simt_run.random = seed;
    for (uint32_t z = 0; z < block.z; z++)
        for (uint32_t y = 0; y < block.y; y++)
            for (uint32_t x = 0; x < block.x; x++)
                simt_run.threads[n++].index = (struct simt_index){x, y, z};
}

static void reset_warps(void)
{
    for (uint32_t i = 0; i < simt_run.n_warps; i++) {
        struct simt_warp *warp = &simt_run.warps[i];
        uint32_t left = simt_run.n_threads - i * SIMT_WARP;

        warp->exists = left >= SIMT_WARP ? ~0u : (1u << left) - 1;
        warp->unstarted = warp->runnable = warp->exists;
        warp->waiting = warp->at_barrier = warp->returned = 0;
    }
    simt_run.runnable_warps = (uint32_t)((1ull << simt_run.n_warps) - 1);
    simt_run.n_returned = simt_run.n_at_barrier = 0;
    simt_run.current = 0;
}

bool simt_block_run(void)
{
    reset_warps();
    simt_run.in_fiber = true;
    simt_fiber_leave(&simt_main_fiber, turn_of(simt_run.seeded ? pick(false) : 0));
    simt_run.in_fiber = false;
    return simt_run.failure == SIMT_FINE;
}

/* The bodies of what threads call to wait: each gets where the caller is suspended. */
struct simt_turn simt_yield_body(void **stack)
{
    return give_turn(stack);
}
SIMT_SUSPENDING("simt_yield", "simt_yield_body", "rdi");

static uint32_t barrier_result(uint32_t kind)
{
    switch (kind) {
    case SIMT_BARRIER_COUNT:
        return simt_run.barrier_count;
    case SIMT_BARRIER_AND:
        return simt_run.barrier_all;
    case SIMT_BARRIER_OR:
        return simt_run.barrier_any;
    default:
        return 0;
    }
}

/* Lets everybody at the barrier go on; the caller is running and stays so. */
static void release_barrier(uint32_t kind)
{
    uint32_t result = barrier_result(kind);

    for (uint32_t i = 0; i < simt_run.n_warps; i++) {
        struct simt_warp *warp = &simt_run.warps[i];

        for (uint32_t lane = 0; lane < SIMT_WARP; lane++) warp->results[lane] = result;
        set_runnable(i, warp->at_barrier);
        warp->at_barrier = 0;
    }
    simt_run.n_at_barrier = 0;
    simt_trace_barrier();
}

struct simt_turn simt_barrier_body(uint32_t kind, uint32_t predicate, void **stack)
{
    uint32_t me = simt_run.current;

    if (simt_run.n_at_barrier == 0) {
        simt_run.barrier_kind = kind;
        simt_run.barrier_count = simt_run.barrier_any = 0;
        simt_run.barrier_all = 1;
    } else if (kind != simt_run.barrier_kind) {
        simt_fail("partial-barrier", SIMT_SITE(stack),
                  "a barrier of another kind: %u of the block's %u threads wait at a different "
                  "__syncthreads variant",
                  simt_run.n_at_barrier, simt_run.n_threads);
    }
    simt_run.barrier_count += predicate;
    simt_run.barrier_all &= predicate;
    simt_run.barrier_any |= predicate;
    simt_run.n_at_barrier++;
    if (simt_run.n_at_barrier == simt_run.n_threads) {
        release_barrier(kind);
        return simt_release(me / SIMT_WARP, 0, stack);
    }
    simt_run.warps[me / SIMT_WARP].at_barrier |= 1u << me % SIMT_WARP;
    return simt_wait(stack);
}
SIMT_SUSPENDING("simt_barrier", "simt_barrier_body", "rdx");
