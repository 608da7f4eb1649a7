/* Trace builds: every load and store of a kernel comes by here first.
 *
 * Checked are exact bounds, writes to inputs, reads of bytes never written, and races. Two accesses
 * to a byte, at least one a write and not both atomic, race when nothing orders them:
 *   - threads of one block are ordered by a block barrier between the accesses;
 *   - lanes of one warp also by __syncwarp. The other warp collectives order no memory;
 *   - blocks of one launch are ordered by nothing, except that an atomic on a word on which another
 *     block did an atomic after __threadfence comes after everything that block did before.
 * Time is kept as in a vector-clock detector cut down to what these rules need: a block has a tag,
 * a thread a clock that moves at barriers and __syncwarp, and a lane knows how far the other lanes
 * of its warp had come when they last met. A byte remembers its last write and two reads by
 * different threads; a third reader can hide one, so a race may be missed but none is invented. */
#include "trace.h"

#include <stdio.h>
#include <string.h>

/* One access in a cell: tag << 32 | clock << 16 | flags | thread; 0 is none. */
#define THREAD_BITS 0x3ffu
#define ATOMIC_BIT 0x400u
#define RELEASE_BIT 0x800u /* an atomic of a thread that had called __threadfence */
/* In place of a word's last write: its bytes have cells of their own. */
#define SPLIT UINT64_MAX
#define MAX_CLOCK 0xffffu
/* Tags never wrap inside a launch: there is room for this many blocks and generations. */
#define TAG_LIMIT 0x80000000u
#define N_LOGGED 4096u

enum access_kind { READ, WRITE, ATOMIC };

/* Written out once for each width that the compiler calls for: in a trace build these checks are
 * most of what a kernel does. */
#define FOR_EACH_WIDTH inline __attribute__((always_inline))

struct logged_block {
    uint32_t tag;
    struct simt_index index;
};

/* The earlier access of a race. A byte remembers who, not where: the launch runs again, by the same
 * schedule, and notes the place of the last such access. */
struct watch {
    uintptr_t address;
    uint64_t bytes; /* 0: nothing is watched */
    bool is_read;
    uint32_t thread;
    struct simt_index block;
    bool has_block; /* false: the block's number is no longer known */
    uintptr_t site; /* of the access; 0: not met */
};

static struct {
    bool on;
    uint32_t tag;        /* now; a block takes a new one when its clocks run out */
    uint32_t launch_tag; /* the launch's first */
    uint32_t block_tag;  /* the block's first */
    uint32_t acquired;   /* tags up to this one come before the running block */
    uint32_t base;       /* every thread's clock at the last barrier */
    uint32_t top;        /* the highest clock so far */
    uint16_t known[SIMT_MAX_WARPS][SIMT_WARP][SIMT_WARP]; /* [warp][lane][of lane] */
    bool fenced[SIMT_MAX_BLOCK];
    struct logged_block log[N_LOGGED]; /* by tag */
    struct watch watch;
} trace;

/* The registers' own section: modules read them like any memory. */
extern const char __start_simt_registers[], __stop_simt_registers[];

static void new_tag(void)
{
    trace.tag++;
    trace.log[trace.tag % N_LOGGED] = (struct logged_block){trace.tag, simt_block_idx};
}

static void set_clocks(uint32_t clock)
{
    trace.base = trace.top = clock;
    for (uint32_t w = 0; w < simt_run.n_warps; w++)
        for (uint32_t i = 0; i < SIMT_WARP; i++)
            for (uint32_t j = 0; j < SIMT_WARP; j++) trace.known[w][i][j] = (uint16_t)clock;
}

/* Drops what all cells remember, so that tags can start again. */
static void forget_all(void)
{
    for (struct gpu_module *m = simt_run.device->modules; m; m = m->next)
        if (m->cells) memset(m->cells, 0, SIMT_CELLS(simt_shared_region(m)) * sizeof *m->cells);
    simt_arena_drop_cells(&simt_run.device->arena);
    trace.tag = 0;
}

bool simt_trace_launch(void)
{
    trace.on = simt_run.module->table->traced;
    if (!trace.on) return true;
    if (trace.tag >= TAG_LIMIT) forget_all();
    trace.launch_tag = trace.tag + 1;
    for (struct simt_buffer *b = simt_run.device->arena.live; b; b = b->next) {
        if (b->read_only || b->cells) continue;
        b->cells = simt_map_zeroed(SIMT_CELLS(b->map_bytes) * sizeof *b->cells);
        if (!b->cells) return false;
    }
    return true;
}

void simt_trace_block(void)
{
    struct simt_buffer *dynamic = simt_run.device->dynamic_shared.impl;
    const struct gpu_module *module = simt_run.module;

    if (!trace.on) return;
    new_tag();
    trace.block_tag = trace.tag;
    trace.acquired = trace.launch_tag - 1;
    memset(trace.fenced, 0, sizeof trace.fenced);
    set_clocks(1);
    if (module->written) memset(module->written, 0, simt_shared_region(module));
    if (dynamic->written) memset(dynamic->written, 0, dynamic->map_bytes);
}

void simt_trace_barrier(void)
{
    if (!trace.on) return;
    if (trace.top + 1 < MAX_CLOCK) {
        set_clocks(trace.top + 1);
        return;
    }
    new_tag(); /* everything before counts as ordered, which after a barrier it is */
    set_clocks(1);
}

void simt_trace_syncwarp(uint32_t warp, uint32_t lanes)
{
    uint16_t joined[SIMT_WARP] = {0};

    if (!trace.on) return;
    if (trace.top + 1 >= MAX_CLOCK) {
        new_tag(); /* a race across this point is missed */
        set_clocks(1);
    }
    for (uint32_t i = 0; i < SIMT_WARP; i++) {
        uint16_t *known = trace.known[warp][i];

        if (!(lanes >> i & 1)) continue;
        known[i]++;
        if (known[i] > trace.top) trace.top = known[i];
        for (uint32_t j = 0; j < SIMT_WARP; j++)
            if (known[j] > joined[j]) joined[j] = known[j];
    }
    for (uint32_t i = 0; i < SIMT_WARP; i++)
        if (lanes >> i & 1) memcpy(trace.known[warp][i], joined, sizeof joined);
}

void simt_trace_fence(void)
{
    trace.fenced[simt_run.current] = true;
}

/* The running thread's access as a cell remembers it. */
static uint64_t stamp(enum access_kind kind)
{
    uint32_t me = simt_run.current, lane = me % SIMT_WARP;
    uint32_t flags = kind != ATOMIC ? 0 : trace.fenced[me] ? ATOMIC_BIT | RELEASE_BIT : ATOMIC_BIT;

    return (uint64_t)trace.tag << 32 | (uint64_t)trace.known[me / SIMT_WARP][lane][lane] << 16 |
           flags | me;
}

/* Whether the remembered access comes before whatever the running thread does now. */
static inline bool is_ordered(uint64_t then, bool shared)
{
    uint32_t tag = (uint32_t)(then >> 32), clock = (uint32_t)(then >> 16) & 0xffff;
    uint32_t other = (uint32_t)then & THREAD_BITS, me = simt_run.current;

    if (tag != trace.tag)
        return tag < trace.launch_tag || tag >= trace.block_tag || tag <= trace.acquired || shared;
    if (other == me || clock < trace.base) return true;
    return other / SIMT_WARP == me / SIMT_WARP &&
           trace.known[me / SIMT_WARP][me % SIMT_WARP][other % SIMT_WARP] > clock;
}

/* What the checks of one access have in common. */
struct access {
    uintptr_t address;
    uint64_t bytes;
    enum access_kind kind;
    bool shared;
    uintptr_t site;
};

static void watch_earlier(const struct access *a, uint64_t then, bool then_write)
{
    const struct logged_block *logged = &trace.log[(uint32_t)(then >> 32) % N_LOGGED];
    bool same = (uint32_t)(then >> 32) >= trace.block_tag;

    trace.watch = (struct watch){.address = a->address,
                                 .bytes = a->bytes,
                                 .is_read = !then_write,
                                 .thread = then & THREAD_BITS,
                                 .block = same ? simt_block_idx : logged->index,
                                 .has_block = same || logged->tag == (uint32_t)(then >> 32)};
}

static void fail_race(const struct access *a, uint64_t then, bool then_write)
{
    const struct logged_block *block = &trace.log[(uint32_t)(then >> 32) % N_LOGGED];
    struct simt_index thread = simt_run.threads[then & THREAD_BITS].index;
    const char *now = a->kind == READ ? "read" : a->kind == WRITE ? "write" : "atomic";
    const char *was = then & ATOMIC_BIT ? "atomic" : then_write ? "write" : "read";
    const char *step = "";
    char place[200], other[96] = "an earlier block";

    simt_describe(a->address, a->bytes, place, sizeof place);
    if ((uint32_t)(then >> 32) >= trace.block_tag)
        snprintf(other, sizeof other, "thread (%u,%u,%u)", thread.x, thread.y, thread.z);
    else if (block->tag == (uint32_t)(then >> 32))
        snprintf(other, sizeof other, "block (%u,%u,%u) thread (%u,%u,%u)", block->index.x,
                 block->index.y, block->index.z, thread.x, thread.y, thread.z);
    if ((uint32_t)(then >> 32) >= trace.block_tag &&
        (then & THREAD_BITS) / SIMT_WARP == simt_run.current / SIMT_WARP)
        step = " of the same warp, with no __syncwarp between";
    if (!trace.watch.bytes) watch_earlier(a, then, then_write);
    simt_fail(a->shared ? "shared-race" : "global-race", a->site,
              "%s of %s with nothing to order it after the %s by %s%s", now, place, was, other, step);
}

static inline bool same_block(struct simt_index a, struct simt_index b)
{
    return a.x == b.x && a.y == b.y && a.z == b.z;
}

static void note_watched(const struct access *a)
{
    struct watch *w = &trace.watch;

    if (a->address >= w->address + w->bytes || w->address >= a->address + a->bytes) return;
    if ((a->kind == READ) != w->is_read || simt_run.current != w->thread) return;
    if (w->has_block && same_block(simt_block_idx, w->block)) w->site = a->site;
}

bool simt_trace_wants_again(void)
{
    if (!trace.watch.has_block) trace.watch.bytes = 0;
    return trace.on && trace.watch.bytes;
}

uintptr_t simt_trace_watched(void)
{
    uintptr_t site = trace.watch.site;

    trace.watch = (struct watch){0};
    return site;
}

/* Keeps the newest read, and beside it one of another warp or block if there is one. */
static inline void note_read(struct simt_cell *cell, uint64_t now)
{
    uint64_t last = cell->read;
    bool same_thread = ((last ^ now) & (0xffffffff00000000 | THREAD_BITS)) == 0;
    bool same_warp = ((last ^ now) & (0xffffffff00000000 | (THREAD_BITS & ~31u))) == 0;

    if (last && !same_thread && (!same_warp || cell->other_read >> 32 != now >> 32))
        cell->other_read = last;
    cell->read = now;
}

static inline void check_cell(struct simt_cell *cell, uint64_t now, const struct access *a)
{
    uint64_t write = cell->write;

    if (a->kind == ATOMIC && (write & RELEASE_BIT) && (uint32_t)(write >> 32) < trace.block_tag &&
        (uint32_t)(write >> 32) > trace.acquired)
        trace.acquired = (uint32_t)(write >> 32);
    if (write && !is_ordered(write, a->shared) && !(a->kind == ATOMIC && (write & ATOMIC_BIT)))
        fail_race(a, write, true);
    if (a->kind == READ) {
        if (cell->read != now) note_read(cell, now);
        return;
    }
    if (cell->read && !is_ordered(cell->read, a->shared)) fail_race(a, cell->read, false);
    if (cell->other_read && !is_ordered(cell->other_read, a->shared))
        fail_race(a, cell->other_read, false);
    *cell = (struct simt_cell){now, 0, 0};
}

/* Gives the four bytes of a word cells of their own. */
static void split(struct simt_cell *word, struct simt_cell bytes[4])
{
    for (int i = 0; i < 4; i++) bytes[i] = *word;
    word->write = SPLIT;
}

/* The cells of a region: one for each word, then one for each byte, which count while the word is
 * split. A word is split when part of it is accessed, and made whole when all of it is written. */
static FOR_EACH_WIDTH void check_races(struct simt_cell *cells, uint64_t region_bytes, uint64_t at,
                                       const struct access *a)
{
    struct simt_cell *byte_cells = cells + region_bytes / 4;
    uint64_t now = stamp(a->kind), end = at + a->bytes;

    if (trace.watch.bytes) note_watched(a);
    while (at < end) {
        struct simt_cell *word = &cells[at / 4];
        bool whole = at % 4 == 0 && end - at >= 4;

        if (whole && word->write != SPLIT) {
            check_cell(word, now, a);
        } else if (whole) {
            for (int i = 0; i < 4; i++) check_cell(&byte_cells[at + i], now, a);
            if (a->kind != READ) *word = byte_cells[at];
        } else {
            if (word->write != SPLIT) split(word, &byte_cells[at / 4 * 4]);
            check_cell(&byte_cells[at], now, a);
        }
        at += whole ? 4 : 1;
    }
}

__attribute__((cold)) static void fail_bounds(uintptr_t address, uint64_t bytes,
                                              enum access_kind kind, uintptr_t site)
{
    char place[200];
    bool found = simt_describe(address, bytes, place, sizeof place);
    const char *rule = !found         ? "fault"
                       : kind == READ ? "out-of-bounds-read"
                                      : "out-of-bounds-write";

    simt_fail(rule, site, "%s of %llu bytes of %s",
              kind == READ    ? "read"
              : kind == WRITE ? "write"
                              : "atomic",
              (unsigned long long)bytes, place);
}

__attribute__((cold)) static void fail_unwritten(const uint8_t *written, uintptr_t address,
                                                 uintptr_t site)
{
    char place[200];

    while (*written) written++, address++;
    simt_describe(address, 1, place, sizeof place);
    simt_fail("uninitialised-read", site, "read of %s before anything wrote it", place);
}

/* Whether n bytes are all 1. */
static FOR_EACH_WIDTH bool all_ones(const uint8_t *bytes, uint64_t n)
{
    const uint64_t ones = 0x0101010101010101;
    uint64_t a = ones, b = ones;

    if (n > 16 || (n & (n - 1)) != 0) return memchr(bytes, 0, n) == NULL;
    memcpy(&a, bytes, n < 8 ? n : 8);
    if (n == 16) memcpy(&b, bytes + 8, 8);
    return ((a ^ ones) | (b ^ ones)) == 0;
}

/* Reads need every byte written; writes make it so. */
static FOR_EACH_WIDTH void check_written(uint8_t *written, uintptr_t address, uint64_t bytes,
                                         enum access_kind kind, uintptr_t site)
{
    if (kind != WRITE && !all_ones(written, bytes)) fail_unwritten(written, address, site);
    if (kind == WRITE) memset(written, 1, bytes);
}

static FOR_EACH_WIDTH void check_buffer(struct simt_buffer *buffer, uintptr_t address,
                                        uint64_t bytes, enum access_kind kind, uintptr_t site)
{
    uint64_t in_map = address - buffer->map;
    char place[200];

    if (!buffer->live || address < buffer->begin || address - buffer->begin > buffer->size ||
        bytes > buffer->size - (address - buffer->begin) ||
        (buffer->extents && !simt_is_backed(buffer, address - buffer->begin, bytes)))
        fail_bounds(address, bytes, kind, site);
    if (kind != READ && buffer->read_only) {
        simt_describe(address, bytes, place, sizeof place);
        simt_fail("write-to-input", site, "write of %s, an input", place);
    }
    if (buffer->written) check_written(buffer->written + in_map, address, bytes, kind, site);
    if (!buffer->read_only) {
        struct access access = {address, bytes, kind, buffer->shared, site};

        check_races(buffer->cells, buffer->map_bytes, in_map, &access);
    }
}

static void check_static_shared(uintptr_t address, uint64_t bytes, enum access_kind kind,
                                uintptr_t site)
{
    const struct gpu_module *module = simt_run.module;
    const struct simt_variable *variable = simt_find_variable(module, address);
    uint64_t at = address - (uintptr_t)module->table->shared_begin;
    struct access access = {address, bytes, kind, true, site};

    if (!variable || address < variable->begin || bytes > variable->size ||
        address - variable->begin > variable->size - bytes)
        fail_bounds(address, bytes, kind, site);
    check_written(module->written + at, address, bytes, kind, site);
    check_races(module->cells, simt_shared_region(module), at, &access);
}

/* Everything a kernel may touch: its stack, buffers, static shared memory, and unchecked the
 * module's own constants and device variables, and the registers. */
static FOR_EACH_WIDTH void check(uintptr_t address, uint64_t bytes, enum access_kind kind,
                                 uintptr_t site)
{
    const struct gpu_module *module = simt_run.module;
    const struct simt_module_table *table;
    uint64_t in_arena;

    if (address - simt_stacks_low < SIMT_STACKS_BYTES) return;
    if (!simt_run.in_fiber || bytes == 0) return; /* a constructor of the module */
    if (simt_run.expired) simt_fail_expired(site);
    in_arena = address - simt_run.device->arena.begin;
    if (in_arena < SIMT_ARENA_BYTES) {
        struct simt_buffer *owner = simt_run.device->arena.owner[in_arena >> SIMT_GRANULE_BITS];

        if (!owner) fail_bounds(address, bytes, kind, site);
        check_buffer(owner, address, bytes, kind, site);
        return;
    }
    table = module->table;
    if (address - (uintptr_t)table->shared_begin <
        (uintptr_t)table->shared_end - (uintptr_t)table->shared_begin) {
        check_static_shared(address, bytes, kind, site);
        return;
    }
    if (address - module->image_begin < module->image_end - module->image_begin) return;
    if (kind == READ && address >= (uintptr_t)__start_simt_registers &&
        address < (uintptr_t)__stop_simt_registers)
        return;
    fail_bounds(address, bytes, kind, site);
}

__attribute__((cold)) static void fail_alignment(uintptr_t address, uint64_t bytes,
                                                 enum access_kind kind, uintptr_t site)
{
    char place[200];

    simt_describe(address, bytes, place, sizeof place);
    simt_fail("fault", site,
              "misaligned %s of %llu bytes of %s: a GPU faults unless the address is "
              "a multiple of them",
              kind == READ ? "read" : "write", (unsigned long long)bytes, place);
}

/* The compiler calls these for accesses that promise their natural alignment, or at least 8 bytes;
 * for others, such as a packed structure's, it calls those with a size. */
static FOR_EACH_WIDTH void check_aligned(uintptr_t address, uint64_t bytes, enum access_kind kind,
                                         uintptr_t site)
{
    check(address, bytes, kind, site);
    if (address % (bytes < 8 ? bytes : 8) != 0 && simt_run.in_fiber)
        fail_alignment(address, bytes, kind, site);
}

#define SITE ((uintptr_t)__builtin_return_address(0))
#define CALLBACKS(bytes)                                \
    void simt_load##bytes##_noabort(uintptr_t address)  \
    {                                                   \
        check_aligned(address, bytes, READ, SITE);      \
    }                                                   \
    void simt_store##bytes##_noabort(uintptr_t address) \
    {                                                   \
        check_aligned(address, bytes, WRITE, SITE);     \
    }
CALLBACKS(1)
CALLBACKS(2)
CALLBACKS(4)
CALLBACKS(8)
CALLBACKS(16)

void simt_loadN_noabort(uintptr_t address, uint64_t bytes)
{
    check(address, bytes, READ, SITE);
}

void simt_storeN_noabort(uintptr_t address, uint64_t bytes)
{
    check(address, bytes, WRITE, SITE);
}

void simt_trace_atomic(const volatile void *address, uint32_t bytes)
{
    check((uintptr_t)address, bytes, ATOMIC, SITE);
}

void *__wrap_memcpy(void *target, const void *source, size_t bytes)
{
    check((uintptr_t)source, bytes, READ, SITE);
    check((uintptr_t)target, bytes, WRITE, SITE);
    return memmove(target, source, bytes);
}

void *__wrap_memmove(void *target, const void *source, size_t bytes)
{
    check((uintptr_t)source, bytes, READ, SITE);
    check((uintptr_t)target, bytes, WRITE, SITE);
    return memmove(target, source, bytes);
}

void *__wrap_memset(void *target, int value, size_t bytes)
{
    check((uintptr_t)target, bytes, WRITE, SITE);
    return memset(target, value, bytes);
}
