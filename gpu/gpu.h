/* The backends behind one table: modules, entry points, fenced buffers, launches.
 *
 * Nothing here knows the oracle or the harness. No function prints or exits; every failure comes
 * back as a gpu_status with a gpu_report that says what happened. */
#ifndef ATTEST_GPU_H
#define ATTEST_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gpu_status {
    GPU_OK = 0,
    GPU_REFUSED,     /* a launcher's rule was broken; nothing ran */
    GPU_NO_ENTRY,    /* the module has no such entry point; text lists those it has */
    GPU_FINDING,     /* the launch did something wrong: memory, race, barrier, hang; see report */
    GPU_UNAVAILABLE, /* this machine cannot run the backend (no driver, no device) */
    GPU_INFRA,       /* the backend itself failed: out of memory, a bad module file */
};

/* What went wrong. For GPU_REFUSED `rule` is the short stable name of the rule (the same vocabulary
 * as the oracle's). For GPU_FINDING `rule` is the kind of finding: "out-of-bounds-read",
 * "out-of-bounds-write", "uninitialised-read", "write-to-input", "shared-race", "global-race",
 * "partial-barrier", "partial-warp-collective", "hang", "fault", "red-zone". */
struct gpu_report {
    char rule[48];
    char text[720];
};

/* Which side of a buffer lies flush against an unmapped page. The other side gets a red zone. */
enum gpu_fence { GPU_FENCE_AFTER, GPU_FENCE_BEFORE };

/* A part of a buffer that is backed by memory. A buffer without extents is backed as a whole;
 * with extents, touching anything outside them faults, which is how a page at a very high id is
 * tested without the memory. Extents ascend and do not overlap. */
struct gpu_extent {
    uint64_t offset_bytes, size_bytes;
};

struct gpu_buffer_desc {
    const char *name;    /* as in the kernel's argument list; used in findings; not copied */
    uint64_t size_bytes; /* 0 is allowed and gives a valid address that must not be touched */
    uint32_t elem_bytes; /* for naming the element in a finding; also the buffer's alignment is
                          * never below max(elem_bytes, align_bytes) */
    uint32_t align_bytes;
    bool read_only; /* an input: a write is a finding where the backend can see it */
    enum gpu_fence fence;
    const struct gpu_extent *extents; /* copied */
    uint32_t n_extents;
};

/* A device allocation. `address` is what a kernel gets. Owned by the device that made it. */
struct gpu_buffer {
    uint64_t address;
    uint64_t size_bytes;
    void *impl;
};

struct gpu_dim {
    uint32_t x, y, z;
};

struct gpu_limits {
    uint32_t max_grid_x, max_grid_y, max_grid_z;
    uint32_t max_block_threads;
    uint32_t max_shared_bytes; /* per block, after opting in where the device needs that */
};

struct gpu_options {
    bool trace;           /* simt: use the instrumented module: every load and store is checked */
    uint64_t schedule;    /* simt: seed of the order in which threads of a block run; 0 = ascending */
    uint32_t watchdog_ms; /* a launch that takes longer is a "hang" finding; 0 = 20000 */
    uint32_t mma_arch;    /* simt: whose tensor core the MMA model imitates: 80, 90 or 120; 0 = 90 */
    int device_index;     /* cuda */
    bool deferred;        /* cuda: launch returns while the kernel runs; finish tells what came of it */
};

struct gpu_device; /* opaque, one a thread */
struct gpu_module;
struct gpu_kernel;

struct gpu_backend {
    const char *name; /* "simt" or "cuda" */
    /* Opens the backend. *device is owned by the caller, freed with close. */
    enum gpu_status (*open)(struct gpu_device **device, const struct gpu_options *options,
                            struct gpu_report *report);
    void (*close)(struct gpu_device *device);
    /* Changes options between launches (schedule, watchdog); trace affects modules loaded later. */
    void (*set_options)(struct gpu_device *device, const struct gpu_options *options);
    const struct gpu_limits *(*limits)(const struct gpu_device *device);
    /* Loads a module image: simt a shared object made by mk/simt-module, cuda a cubin, fatbin or
     * PTX. The device owns it and caches by path and trace flag. */
    enum gpu_status (*load)(struct gpu_device *device, const char *path,
                            struct gpu_module **module, struct gpu_report *report);
    /* Finds an entry point; never falls back. GPU_NO_ENTRY lists the names the module has. */
    enum gpu_status (*resolve)(struct gpu_module *module, const char *entry,
                               struct gpu_kernel **kernel, struct gpu_report *report);
    enum gpu_status (*alloc)(struct gpu_device *device, const struct gpu_buffer_desc *desc,
                             struct gpu_buffer *buffer, struct gpu_report *report);
    void (*free)(struct gpu_device *device, struct gpu_buffer *buffer);
    /* Copies between host and device; ranges must lie inside the buffer's backed extents. */
    enum gpu_status (*upload)(struct gpu_device *device, struct gpu_buffer *buffer,
                              uint64_t offset_bytes, const void *source, uint64_t size_bytes,
                              struct gpu_report *report);
    enum gpu_status (*download)(struct gpu_device *device, const struct gpu_buffer *buffer,
                                uint64_t offset_bytes, void *target, uint64_t size_bytes,
                                struct gpu_report *report);
    /* Marks a whole buffer as never written (after the caller uploaded its poison), so that a
     * traced kernel that reads it before writing is found. No-op where the backend cannot see. */
    void (*mark_unwritten)(struct gpu_device *device, struct gpu_buffer *buffer);
    /* Runs the kernel to completion, unless the options defer that. args[i] points at the i-th
     * argument's value, as with cuLaunchKernel. GPU_FINDING when the run itself showed something
     * wrong: of this kernel, or of one deferred before it. */
    enum gpu_status (*launch)(struct gpu_device *device, struct gpu_kernel *kernel,
                              struct gpu_dim grid, struct gpu_dim block, uint32_t shared_bytes,
                              void **args, struct gpu_report *report);
    /* Waits for a deferred launch. GPU_OK where there is none. */
    enum gpu_status (*finish)(struct gpu_device *device, struct gpu_report *report);
    /* GPU_FINDING "red-zone" if anything around the buffer changed since alloc. */
    enum gpu_status (*check_guards)(struct gpu_device *device, const struct gpu_buffer *buffer,
                                    struct gpu_report *report);
};

extern const struct gpu_backend gpu_backend_simt;
extern const struct gpu_backend gpu_backend_cuda;

/* A launcher's view of where it runs: the device, its backend and the loaded module that holds the
 * entry points. `entry` replaces the production name when not NULL (kernels from elsewhere). */
struct gpu_target {
    const struct gpu_backend *backend;
    struct gpu_device *device;
    struct gpu_module *module;
    const char *entry;
};

/* Fills a report and returns GPU_REFUSED; printf-style. */
enum gpu_status gpu_refuse(struct gpu_report *report, const char *rule, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Resolves `entry` (or target->entry) and launches it after checking grid, block and shared memory
 * against the device's limits (rules "grid_limit", "block_limit", "shared_limit"). A zero grid
 * dimension is a success without a launch. */
enum gpu_status gpu_run(const struct gpu_target *target, const char *entry, struct gpu_dim grid,
                        struct gpu_dim block, uint32_t shared_bytes, void **args,
                        struct gpu_report *report);

#endif
