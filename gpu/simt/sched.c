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

/* Ascending, beginning behind the running thread: its own warp first, around, then the next warp. A
 * thread that asked for others to run (`fair`) has its own warp's turn come last. */
static uint32_t pick_ascending(bool fair)
{
    uint32_t first = simt_run.current / SIMT_WARP, lane = simt_run.current % SIMT_WARP;
    const struct simt_warp *warp = &simt_run.warps[first];
    uint32_t runnable = warp->ready | warp->unstarted;
    uint32_t behind = runnable & (uint32_t)(~0ull << (lane + 1));

    if (behind) return first * SIMT_WARP + (uint32_t)__builtin_ctz(behind);
    for (uint32_t i = fair; i < simt_run.n_warps + fair; i++) {
        uint32_t at = first + i < simt_run.n_warps ? first + i : first + i - simt_run.n_warps;

        runnable = simt_run.warps[at].ready | simt_run.warps[at].unstarted;
        if (runnable) return at * SIMT_WARP + (uint32_t)__builtin_ctz(runnable);
    }
    return NOBODY;
}

/* The n-th lane of a set. */
static uint32_t nth_lane(uint32_t lanes, uint32_t n)
{
#ifdef __BMI2__
    lanes = _pdep_u32(1u << n, lanes);
#else
    while (n-- > 0) lanes &= lanes - 1;
#endif
    return (uint32_t)__builtin_ctz(lanes);
}

/* Any runnable thread, more often than not of the running thread's warp. Every thread that waits
 * drops out of the draw, so nobody starves. */
static uint32_t pick_seeded(void)
{
    uint64_t draw = simt_random();
    uint32_t warps[SIMT_MAX_WARPS], n = 0, chosen = simt_run.current / SIMT_WARP, runnable;

    runnable = simt_run.warps[chosen].ready | simt_run.warps[chosen].unstarted;
    if (!runnable || draw % 8 < SWITCH_OUT_OF_8) {
        for (uint32_t i = 0; i < simt_run.n_warps; i++)
            if (simt_run.warps[i].ready | simt_run.warps[i].unstarted) warps[n++] = i;
        if (n == 0) return NOBODY;
        chosen = warps[(draw >> 8) % n];
        runnable = simt_run.warps[chosen].ready | simt_run.warps[chosen].unstarted;
    }
    return chosen * SIMT_WARP +
           nth_lane(runnable, (uint32_t)(draw >> 32) % (uint32_t)__builtin_popcount(runnable));
}

static uint32_t pick(bool fair)
{
    return simt_run.seeded ? pick_seeded() : pick_ascending(fair);
}

static void run_threads(struct simt_fiber *self);

/* Switches from the fiber `self` to a runnable thread. */
static void go_to(struct simt_fiber *self, uint32_t thread)
{
    struct simt_warp *warp = &simt_run.warps[thread / SIMT_WARP];
    uint32_t bit = 1u << thread % SIMT_WARP;
    struct simt_fiber *fiber;

    if (warp->unstarted & bit) {
        fiber = simt_fiber_take(run_threads);
        fiber->thread = thread;
    } else {
        fiber = simt_run.threads[thread].fiber;
    }
    warp->ready &= ~bit;
    simt_fiber_switch(self, fiber);
}

/* The running fiber; a thread stays on the one it started on. */
static struct simt_fiber *running;

static void wait_turn(uintptr_t site, bool fair)
{
    uint32_t me = simt_run.current, next;
    struct simt_fiber *self = running;

    simt_run.threads[me].site = site;
    if (simt_run.expired) simt_fail_expired(site);
    next = pick(fair);
    if (next == NOBODY) simt_fail_stuck();
    if (next != me) {
        simt_run.threads[me].fiber = self;
        go_to(self, next);
        running = self;
        enter(me);
    } else {
        simt_run.warps[me / SIMT_WARP].ready &= ~(1u << me % SIMT_WARP);
    }
}

void simt_wait(uintptr_t site)
{
    wait_turn(site, false);
}

void simt_give_turn(uintptr_t site)
{
    simt_run.warps[simt_run.current / SIMT_WARP].ready |= 1u << simt_run.current % SIMT_WARP;
    wait_turn(site, true);
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

        do {
            running = self;
            run_one(next);
            if (simt_run.expired) simt_fail_expired(0);
            next = pick(false);
        } while (next != NOBODY &&
                 (simt_run.warps[next / SIMT_WARP].unstarted >> next % SIMT_WARP & 1));
        if (next == NOBODY && simt_run.n_returned < simt_run.n_threads) simt_fail_stuck();
        simt_fiber_give(self);
        if (next == NOBODY)
            simt_fiber_switch(self, &simt_main_fiber);
        else
            go_to(self, next);
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
        warp->unstarted = warp->exists;
        warp->ready = warp->waiting = warp->at_barrier = warp->returned = 0;
    }
    simt_run.n_returned = simt_run.n_at_barrier = 0;
    simt_run.current = 0;
}

bool simt_block_run(void)
{
    reset_warps();
    simt_run.in_fiber = true;
    go_to(&simt_main_fiber, simt_run.seeded ? pick(false) : 0);
    simt_run.in_fiber = false;
    return simt_run.failure == SIMT_FINE;
}

void simt_yield(void)
{
    simt_give_turn((uintptr_t)__builtin_return_address(0));
}

/* Lets everybody at the barrier go on; the caller is running and stays so. */
static void release_barrier(uint32_t kind)
{
    switch (kind) {
    case SIMT_BARRIER_COUNT:
        simt_run.barrier_result = simt_run.barrier_count;
        break;
    case SIMT_BARRIER_AND:
        simt_run.barrier_result = simt_run.barrier_all;
        break;
    case SIMT_BARRIER_OR:
        simt_run.barrier_result = simt_run.barrier_any;
        break;
    default:
        simt_run.barrier_result = 0;
        break;
    }
    for (uint32_t i = 0; i < simt_run.n_warps; i++) {
        simt_run.warps[i].ready |= simt_run.warps[i].at_barrier;
        simt_run.warps[i].at_barrier = 0;
    }
    simt_run.n_at_barrier = 0;
    simt_trace_barrier();
}

uint32_t simt_barrier(uint32_t kind, uint32_t predicate)
{
    uintptr_t site = (uintptr_t)__builtin_return_address(0);
    uint32_t me = simt_run.current, bit = 1u << me % SIMT_WARP;
    struct simt_warp *warp = &simt_run.warps[me / SIMT_WARP];

    if (simt_run.n_at_barrier == 0) {
        simt_run.barrier_kind = kind;
        simt_run.barrier_count = simt_run.barrier_any = 0;
        simt_run.barrier_all = 1;
    } else if (kind != simt_run.barrier_kind) {
        simt_fail("partial-barrier", site,
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
        if (simt_run.seeded && simt_random() % 8 < SWITCH_OUT_OF_8) simt_give_turn(site);
    } else {
        warp->at_barrier |= bit;
        simt_wait(site);
    }
    return simt_run.barrier_result;
}
