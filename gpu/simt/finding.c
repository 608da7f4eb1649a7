/* How a launch is broken off and what is said about it. A thread only notes what it saw; place and
 * source line are looked up afterwards, on the launch's own stack. */
#include "run.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void append(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void append(const char *format, ...)
{
    size_t used = strlen(simt_run.report.text);
    va_list list;

    va_start(list, format);
    vsnprintf(simt_run.report.text + used, sizeof simt_run.report.text - used, format, list);
    va_end(list);
}

void simt_fail(const char *rule, uintptr_t site, const char *format, ...)
{
    va_list list;

    snprintf(simt_run.report.rule, sizeof simt_run.report.rule, "%s", rule);
    va_start(list, format);
    vsnprintf(simt_run.report.text, sizeof simt_run.report.text, format, list);
    va_end(list);
    simt_run.failure = SIMT_FOUND;
    simt_run.failure_site = site;
    simt_run.site_is_return = true;
    simt_break_off();
}

void simt_fail_expired(uintptr_t site)
{
    uint32_t limit = simt_run.device->options.watchdog_ms;

    simt_fail("hang", site, "not finished after %u ms of processor time", limit ? limit : 20000);
}

void simt_trap(void)
{
    simt_fail("fault", (uintptr_t)__builtin_return_address(0), "__trap()");
}

void simt_assert(const char *expression, const char *file, int line)
{
    simt_fail("fault", (uintptr_t)__builtin_return_address(0), "assertion failed: %s", expression);
}

static const char *collective_name(uint32_t kind)
{
    static const char *const names[] = {
        [SIMT_SYNCWARP] = "__syncwarp",
        [SIMT_SHUFFLE] = "a shuffle",
        [SIMT_BALLOT] = "__ballot_sync",
        [SIMT_ANY] = "__any_sync",
        [SIMT_ALL] = "__all_sync",
        [SIMT_MATCH_ANY] = "__match_any_sync",
        [SIMT_MATCH_ALL] = "__match_all_sync",
        [SIMT_REDUCE_ADD] = "__reduce_add_sync",
        [SIMT_REDUCE_MIN_U32] = "__reduce_min_sync",
        [SIMT_REDUCE_MAX_U32] = "__reduce_max_sync",
        [SIMT_REDUCE_MIN_S32] = "__reduce_min_sync",
        [SIMT_REDUCE_MAX_S32] = "__reduce_max_sync",
        [SIMT_REDUCE_AND] = "__reduce_and_sync",
        [SIMT_REDUCE_OR] = "__reduce_or_sync",
        [SIMT_REDUCE_XOR] = "__reduce_xor_sync",
        [SIMT_MMA_BF16_M16N8K16] = "an MMA",
    };

    return kind < sizeof names / sizeof *names ? names[kind] : "a collective";
}

/* What a thread that is not running does. */
static void state_of(uint32_t thread, char *text, size_t size)
{
    const struct simt_warp *warp = &simt_run.warps[thread / SIMT_WARP];
    uint32_t lane = thread % SIMT_WARP;
    struct simt_index index = simt_run.threads[thread].index;

    if (warp->returned >> lane & 1)
        snprintf(text, size, "thread (%u,%u,%u) has returned", index.x, index.y, index.z);
    else if (warp->at_barrier >> lane & 1)
        snprintf(text, size, "thread (%u,%u,%u) waits at __syncthreads", index.x, index.y, index.z);
    else
        snprintf(text, size, "thread (%u,%u,%u) waits in %s with mask 0x%08x", index.x, index.y,
                 index.z, collective_name((uint32_t)(warp->keys[lane] >> 32)),
                 (uint32_t)warp->keys[lane]);
}

/* Some threads wait at a barrier and others can never come: the finding stands at the barrier. */
static void fail_barrier(void)
{
    char other[160] = "";
    uint32_t waiting = simt_run.n_threads, n_returned = 0;

    for (uint32_t i = simt_run.n_threads; i-- > 0;) {
        const struct simt_warp *warp = &simt_run.warps[i / SIMT_WARP];
        uint32_t lane = i % SIMT_WARP;

        if (warp->at_barrier >> lane & 1)
            waiting = i;
        else
            state_of(i, other, sizeof other);
        n_returned += warp->returned >> lane & 1;
    }
    simt_run.current = waiting;
    simt_fail("partial-barrier", SIMT_SITE(simt_run.threads[waiting].stack),
              "a barrier reached by %u of the block's %u threads (%u have returned): %s",
              simt_run.n_at_barrier, simt_run.n_threads, n_returned, other);
}

/* The first lane that a waiting lane's mask names and that will not come: it has returned, or waits
 * in another kind of collective. */
static bool find_absent(const struct simt_warp *warp, uint32_t lane, uint32_t *absent)
{
    uint32_t named = (uint32_t)warp->keys[lane] & warp->exists;

    for (uint32_t i = 0; i < SIMT_WARP; i++) {
        if (!(named >> i & 1)) continue;
        if (!(warp->returned >> i & 1) && (warp->keys[i] >> 32) == (warp->keys[lane] >> 32))
            continue;
        *absent = i;
        return true;
    }
    return false;
}

void simt_fail_stuck(void)
{
    char other[160];

    if (simt_run.n_at_barrier > 0) fail_barrier();
    for (uint32_t i = 0; i < simt_run.n_threads; i++) {
        const struct simt_warp *warp = &simt_run.warps[i / SIMT_WARP];
        uint32_t lane = i % SIMT_WARP, absent;

        if (!(warp->waiting >> lane & 1) || !find_absent(warp, lane, &absent)) continue;
        state_of(i / SIMT_WARP * SIMT_WARP + absent, other, sizeof other);
        simt_run.current = i;
        simt_fail("partial-warp-collective", SIMT_SITE(simt_run.threads[i].stack),
                  "%s with mask 0x%08x waits for lane %u in vain: %s",
                  collective_name((uint32_t)(warp->keys[lane] >> 32)), (uint32_t)warp->keys[lane],
                  absent, other);
    }
    for (uint32_t i = 0; i < simt_run.n_threads; i++) {
        const struct simt_warp *warp = &simt_run.warps[i / SIMT_WARP];

        if (!(warp->waiting >> i % SIMT_WARP & 1)) continue;
        state_of(i, other, sizeof other);
        simt_run.current = i;
        simt_fail("deadlock", SIMT_SITE(simt_run.threads[i].stack),
                  "lanes wait for each other with different masks: %s", other);
    }
    simt_fail("deadlock", 0, "no thread of the block can go on");
}

/* A fault's own words, in the order of how much is known. */
static void describe_fault(void)
{
    const struct simt_fault *fault = &simt_run.fault;
    const char *rule = "fault";
    char place[200];

    if (fault->signal == SIGFPE) {
        append("integer division by zero or overflow in a division");
    } else if (fault->signal == SIGVTALRM) {
        uint32_t limit = simt_run.device->options.watchdog_ms;

        rule = "hang";
        append("not finished after %u ms of processor time", limit ? limit : 20000);
    } else if (fault->signal == SIGILL || fault->signal == SIGTRAP) {
        append(
            "an instruction that traps: __builtin_trap or code the compiler knows to be undefined");
    } else if (fault->code == SI_KERNEL) {
        append("a misaligned vector access or an impossible address");
    } else if (fault->address - simt_stacks_low < SIMT_STACKS_BYTES) {
        append("the thread's stack overflowed");
    } else {
        uint64_t distance;
        bool found = simt_describe(fault->address, 1, place, sizeof place);
        const struct simt_buffer *near =
            simt_arena_nearest(&simt_run.device->arena, fault->address, &distance);

        if (fault->write && near && near->read_only && distance == 0 &&
            simt_is_backed(near, fault->address - near->begin, 1))
            rule = "write-to-input";
        else if (found)
            rule = fault->write ? "out-of-bounds-write" : "out-of-bounds-read";
        append("%s of %s", fault->write ? "write" : "read", place);
    }
    snprintf(simt_run.report.rule, sizeof simt_run.report.rule, "%s", rule);
}

void simt_complete_report(void)
{
    struct simt_index thread = simt_run.threads[simt_run.current].index;
    char line[256];

    if (simt_run.failure == SIMT_SIGNAL) {
        simt_run.report.text[0] = 0;
        describe_fault();
    }
    append(", block (%u,%u,%u) thread (%u,%u,%u), kernel %s", simt_block_idx.x, simt_block_idx.y,
           simt_block_idx.z, thread.x, thread.y, thread.z, simt_run.kernel->entry->name);
    if (simt_run.failure_site == 0) return;
    simt_symbolise(simt_run.module, simt_run.failure_site, simt_run.site_is_return, line,
                   sizeof line);
    append(", %s", line);
}
