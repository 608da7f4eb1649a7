/* A running launch: its threads and warps, the scheduler between them, and how it is broken off. */
#ifndef ATTEST_SIMT_RUN_H
#define ATTEST_SIMT_RUN_H

#include "fiber.h"
#include "internal.h"

#include <signal.h>

#define SIMT_MAX_WARPS (SIMT_MAX_BLOCK / SIMT_WARP)

/* How often, out of 8, a seeded schedule leaves a warp that could go on, or takes the turn of the
 * thread that completed a barrier or collective. */
#define SWITCH_OUT_OF_8 2

struct simt_index {
    uint32_t x, y, z;
};

/* A thread of the block is named by its linear index, warp * 32 + lane. */
struct simt_thread {
    struct simt_index index;
    void **stack;             /* where it is suspended while it waits */
    struct simt_fiber *fiber; /* what it runs on */
};

/* Lane sets; a lane that exists and is in none of them is running. What is read at every switch
 * comes first. */
struct simt_warp {
    uint32_t exists;
    uint32_t runnable;  /* can go on, or start */
    uint32_t unstarted; /* of those */
    uint32_t waiting;   /* in a collective */
    uint32_t at_barrier;
    uint32_t returned;
    uint64_t keys[SIMT_WARP];    /* of waiting lanes: kind << 32 | mask */
    uint64_t values[SIMT_WARP];  /* operands */
    uint64_t results[SIMT_WARP]; /* read by the lane when it goes on */
    uint32_t arguments[SIMT_WARP];
};

/* How a launch was broken off, noted on whatever stack it happened. */
enum simt_failure {
    SIMT_FINE,
    SIMT_FOUND,  /* report.rule is set, report.text says what happened but not yet where */
    SIMT_SIGNAL, /* signal, address, ... of a fault */
};

struct simt_fault {
    int signal, code;
    uintptr_t address;
    bool write;
};

struct simt_run {
    struct gpu_device *device;
    struct gpu_module *module;
    const struct gpu_kernel *kernel;
    void **args;
    struct gpu_dim grid, block;

    uint32_t n_threads, n_warps;
    uint32_t current;        /* the running thread */
    uint32_t runnable_warps; /* those with a runnable lane */
    bool in_fiber;           /* a thread runs, rather than the launch's own code */
    uint32_t n_returned, n_at_barrier;
    uint32_t barrier_kind; /* of those that wait */
    uint32_t barrier_count, barrier_all, barrier_any;
    bool seeded;
    uint64_t random;
    struct simt_thread threads[SIMT_MAX_BLOCK];
    struct simt_warp warps[SIMT_MAX_WARPS];

    volatile sig_atomic_t expired; /* the watchdog went off */
    enum simt_failure failure;
    uintptr_t failure_site;
    bool site_is_return;
    struct simt_fault fault;
    struct gpu_report report;
};

extern struct simt_run simt_run;

/* The registers of abi.h and cuda_runtime.h. */
extern struct simt_index simt_thread_idx, simt_block_idx, simt_block_dim, simt_grid_dim;

/* sched.c. Runs one block to its end; false when the launch was broken off. */
void simt_block_prepare(struct gpu_dim block, uint64_t seed);
bool simt_block_run(void);
/* The running thread, suspended at `stack`, waits until another makes it runnable. */
struct simt_turn simt_wait(void **stack);
/* The running thread makes lanes of a warp runnable and, as a rule, goes on. */
struct simt_turn simt_release(uint32_t warp, uint32_t lanes, void **stack);
uint64_t simt_random(void);

/* finding.c. Break the launch off from inside a thread. `site` is the return address of the call
 * that found it. */
void simt_fail(const char *rule, uintptr_t site, const char *format, ...)
    __attribute__((format(printf, 3, 4), noreturn));
void simt_fail_stuck(void) __attribute__((noreturn));
void simt_fail_expired(uintptr_t site) __attribute__((noreturn));
/* Leaves for the launch's own stack once run.failure is set. */
void simt_break_off(void) __attribute__((noreturn));
/* On the launch's own stack: completes run.report with place and thread. */
void simt_complete_report(void);

/* place.c. Names what is at [address, address + bytes): "k_cache, 16 bytes past its end (element
 * 4096)". False when nothing is near; the text then says so. */
bool simt_describe(uintptr_t address, uint64_t bytes, char *text, size_t size);
const struct simt_variable *simt_find_variable(const struct gpu_module *module, uintptr_t address);

/* signals.c. Between arm and disarm faults of the kernel and the watchdog end in simt_break_off. */
bool simt_signals_arm(uint32_t watchdog_ms);
void simt_signals_disarm(void);

/* sched.c and warp.c. What threads call in order to wait, once they are suspended at `stack`. */
struct simt_turn simt_yield_body(void **stack);
struct simt_turn simt_barrier_body(uint32_t kind, uint32_t predicate, void **stack);
struct simt_turn simt_collective_body(uint32_t kind, uint32_t mask, uint64_t value,
                                      uint32_t argument, void **stack);

/* warp.c. Results of a complete collective for all lanes of `lanes`. */
void simt_collective_compute(struct simt_warp *warp, uint32_t kind, uint32_t lanes);

/* trace.c. What the race detector must know; no-ops unless the module is traced. */
bool simt_trace_launch(void);
void simt_trace_block(void);
void simt_trace_barrier(void);
void simt_trace_syncwarp(uint32_t warp, uint32_t lanes);
/* After a launch that ended in a race: whether running it again would tell where the earlier access
 * of the two was, and then its return address, 0 if it was not met. Asking ends the watch. */
bool simt_trace_wants_again(void);
uintptr_t simt_trace_watched(void);

#endif
