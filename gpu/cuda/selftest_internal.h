/* Shared between the files of the self-test. */
#ifndef ATTEST_GPU_CUDA_SELFTEST_INTERNAL_H
#define ATTEST_GPU_CUDA_SELFTEST_INTERNAL_H

#include "cuda_backend.h"
#include "cuda_time.h"

#include <stdbool.h>
#include <stdint.h>

/* What a check works with, in its own process, with a fresh device. */
struct selftest {
    const char *name;
    int out; /* pipe to the parent */
    struct gpu_device *device;
    struct gpu_module *module;
    struct gpu_report report;
};

struct selftest_check {
    const char *name;
    void (*run)(struct selftest *t);
    bool own_device; /* the check opens the device itself, as often as it likes */
};

extern const char gpu_cuda_selftest_ptx[];

/* selftest_tools.c
 *
 * One line to the parent. A check may write several; no FAIL and at least one ok is a pass. */
void selftest_say(struct selftest *t, const char *verdict, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* All of it, or as much as the parent still takes. */
void selftest_write_all(int fd, const char *text, size_t bytes);
/* ok or FAIL with the same detail; returns `good`. */
bool selftest_expect(struct selftest *t, bool good, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* FAIL with the report's text unless `status` is GPU_OK; returns whether it is. */
bool selftest_need(struct selftest *t, enum gpu_status status, const char *what);
/* Opens device and test kernels; FAIL lines on failure. */
bool selftest_open(struct selftest *t, uint32_t watchdog_ms);
/* Loads PTX text as if from a file, *status says how; false after a FAIL line for lack of a file.
 */
bool selftest_load(struct selftest *t, const char *ptx, struct gpu_module **module,
                   enum gpu_status *status);
uint64_t selftest_now_ns(void);

bool selftest_alloc(struct selftest *t, struct gpu_buffer *buffer, const char *name, uint64_t bytes,
                    enum gpu_fence fence);
/* Launches a test kernel over `threads` threads in blocks of 256. */
enum gpu_status selftest_run(struct selftest *t, const char *entry, uint32_t threads,
                             uint32_t shared_bytes, void **args);

/* Fills with values that depend on the seed. */
void selftest_noise(void *bytes, uint64_t n, uint32_t seed);

/* selftest_memory.c */
void selftest_info(struct selftest *t);
void selftest_round_trip(struct selftest *t);
void selftest_round_trip_plain(struct selftest *t);
void selftest_alignment(struct selftest *t);
void selftest_coherence(struct selftest *t);
void selftest_extents(struct selftest *t);
void selftest_pool(struct selftest *t);
void selftest_descriptors(struct selftest *t);
/* selftest_guard.c */
void selftest_red_zone(struct selftest *t);
void selftest_red_zone_plain(struct selftest *t);
void selftest_reuse(struct selftest *t);
/* selftest_fault.c */
void selftest_fault_read_after(struct selftest *t);
void selftest_fault_read_before(struct selftest *t);
void selftest_fault_write_after(struct selftest *t);
void selftest_fault_large(struct selftest *t);
void selftest_fault_hole(struct selftest *t);
void selftest_fault_far(struct selftest *t);
void selftest_fault_empty(struct selftest *t);
void selftest_fault_misaligned(struct selftest *t);
void selftest_fault_trap(struct selftest *t);
void selftest_hang(struct selftest *t);
void selftest_deferred(struct selftest *t);
void selftest_deferred_fault(struct selftest *t);
/* selftest_run.c */
void selftest_entries(struct selftest *t);
void selftest_bad_module(struct selftest *t);
void selftest_shared(struct selftest *t);
void selftest_geometry(struct selftest *t);
void selftest_replay(struct selftest *t);
void selftest_timing(struct selftest *t);
void selftest_reopen(struct selftest *t);
void selftest_fork(struct selftest *t);
/* selftest_rate.c */
void selftest_figures(struct selftest *t);
void selftest_rate(struct selftest *t);

#endif
