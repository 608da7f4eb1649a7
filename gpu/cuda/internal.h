/* Shared between the files of the CUDA backend; nobody else includes this.
 *
 * region    a reserved address range with the granules mapped in it (region.c, pooled)
 * buffer    what lies in a region (place.c): extents, the segments that travel as its mirror (memory.c)
 * transfer  the pinned tables and the two helper kernels that move mirrors (transfer.c)
 * launch    running (launch.c), waiting with a deadline (wait.c), what the driver's results mean
 *           (status.c) */
#ifndef ATTEST_GPU_CUDA_INTERNAL_H
#define ATTEST_GPU_CUDA_INTERNAL_H

#include "cuda_backend.h"
#include "driver.h"

#define GPU_CUDA_RED_WORD 0x7fff7fffu
#define GPU_CUDA_PAGE 4096u                 /* segments are whole pages, with a page of margin */
#define GPU_CUDA_GUARD_BYTES (256ull << 20) /* unmapped addresses on each side of a region */
#define GPU_CUDA_WIDE_BYTES (16ull << 30)   /* ... and below a wide one */
#define GPU_CUDA_MIRROR_MAX (4u << 20)      /* a buffer whose segments exceed this has no mirror */
#define GPU_CUDA_EAGER_BYTES (16u << 20)    /* mirrors up to this in all come back with a launch */
#define GPU_CUDA_OP_BYTES 8192u             /* what one block of the transfer kernel moves */
#define GPU_CUDA_TABLE_OPS 8192u
#define GPU_CUDA_STAGE_BYTES (8u << 20) /* pinned staging of buffers without a mirror */
#define GPU_CUDA_SMALLEST_PINNED 8192u
#define GPU_CUDA_PINNED_CLASSES 10u /* 8 KiB << 0..9: up to GPU_CUDA_MIRROR_MAX */

struct gpu_cuda_range {
    uint64_t lo, hi; /* device addresses, [lo, hi) */
};

struct gpu_cuda_region {
    uint64_t reserved, reserved_bytes;
    uint64_t base;               /* behind the guard below: here mapping may begin */
    struct gpu_cuda_range *runs; /* mapped, ascending, not adjacent */
    uint32_t n_runs;
    uint32_t granules;  /* of a pooled region; 0: sparse, with handles of its own */
    bool wide;          /* pooled, for a buffer that is backed at its far end only */
    cu_handle *handles; /* sparse: one a granule */
    uint64_t n_handles;
    struct gpu_cuda_range dirty; /* pooled: the part that may differ from the red-zone pattern */
    struct gpu_cuda_region *next;
};

struct gpu_cuda_buffer {
    struct gpu_cuda_region *region; /* NULL for an empty buffer */
    const char *name;
    uint64_t address, size_bytes;
    struct gpu_cuda_range *extents; /* ascending */
    uint32_t n_extents;
    struct gpu_cuda_range *segments; /* pages around the extents, clipped to the runs, merged */
    uint32_t n_segments;
    struct gpu_cuda_range *far; /* runs less segments: red zone that only the device sees */
    uint32_t n_far;
    uint8_t *mirror;       /* pinned: the segments one after another; NULL: none */
    uint64_t mirror_bytes; /* sum of the segments */
    bool dirty;            /* the mirror is newer than the device */
    bool settled;          /* its red zone is on the device: flushed at least once */
    bool far_checked;      /* far_hit is of the last pull */
    uint64_t far_hit;      /* an address in `far` that changed, or 0 */
    uint32_t check_at;     /* first of its results in the pull under way; UINT32_MAX: none */
    struct gpu_cuda_buffer *previous, *next;
};

struct gpu_cuda_op { /* as the helper kernels read it */
    uint64_t target; /* transfer: to; verify: low end */
    uint64_t source; /* transfer: from, or 0 to fill with the pattern; verify: high end */
    uint64_t bytes;  /* transfer: at most GPU_CUDA_OP_BYTES, a multiple of 16 */
    uint64_t result; /* verify: host address that gets the address of a changed word */
};

struct gpu_cuda_table {
    struct gpu_cuda_op *ops; /* pinned */
    uint32_t start, n;       /* [start, n) is not launched yet */
};

struct gpu_cuda_kernel {
    char *name;
    cu_function function;
    uint32_t static_shared, dynamic_shared_set;
    struct gpu_cuda_kernel *next;
};

/* The compiler's log of one module. The driver may compile as late as the first use of an entry,
 * so this lives as long as the module. */
struct gpu_cuda_log {
    char text[2048];
    cu_jit_option options[2];
    void *values[2];
};

/* A module in the context, for the devices of all threads. */
struct gpu_cuda_image {
    char *label; /* its path */
    struct gpu_cuda_log log;
    cu_module module;
    uint32_t users;
    struct gpu_cuda_image *next;
};

struct gpu_cuda_module {
    char *path;
    struct gpu_cuda_device *device;
    struct gpu_cuda_image *image;
    struct gpu_cuda_kernel *kernels;
    struct gpu_cuda_module *next;
};

enum gpu_cuda_mode { GPU_CUDA_RUNNING, GPU_CUDA_TIMING, GPU_CUDA_CAPTURING };

struct gpu_cuda_pinned_block {
    struct gpu_cuda_pinned_block *next;
};

struct gpu_cuda_device {
    struct gpu_cuda_driver api;
    cu_device ordinal;
    cu_context context;
    cu_stream stream;
    cu_event events[2];
    struct gpu_limits limits;
    struct gpu_cuda_info info;
    struct gpu_options options;
    enum gpu_cuda_mode mode;
    uint32_t captured; /* launches recorded since capture_begin */
    bool retained, has_virtual_memory;
    bool lost;
    char lost_text[512];
    char running[200]; /* kernel and geometry of launches not waited for yet; "" when idle */

    struct cu_allocation_prop prop;
    struct cu_access_desc access;
    uint64_t granule;
    struct gpu_cuda_region *pool;   /* free pooled regions */
    struct gpu_cuda_region *doomed; /* to be unmapped by the next alloc: free cannot wait */
    uint64_t pool_limit_bytes;
    cu_handle *spare_handles; /* free single granules for sparse regions */
    uint64_t n_spare, spare_capacity;
    uint64_t empty_address; /* what an empty buffer gets: the middle of unmapped addresses */
    struct gpu_cuda_usage usage;

    void **chunks; /* pinned memory carved into mirrors */
    uint32_t n_chunks, chunk_capacity;
    uint8_t *carve; /* the chunk being carved, and how much of it is */
    uint64_t chunk_used;
    struct gpu_cuda_pinned_block *free_pinned[GPU_CUDA_PINNED_CLASSES];

    struct gpu_cuda_buffer *live;
    uint64_t mirrored_bytes; /* of live buffers */
    uint64_t launch_epoch, pulled_epoch;
    struct gpu_cuda_image *helpers;
    cu_function transfer, verify;
    struct gpu_cuda_table copies, fills, checks;
    uint64_t *results; /* pinned, one a check */
    bool in_flight;    /* something was enqueued since the last wait */
    bool pulling;      /* a pull is under way: the next wait ends it */
    /* Pinned: the last wait that the stream has reached, written by the device. To look at it takes
     * no lock of the driver, which threads that share a context would fight over. */
    volatile uint32_t *reached;
    uint32_t waits;
    uint8_t *stage;    /* pinned */
    uint64_t stage_used;

    struct gpu_cuda_module *modules;
};

static inline struct gpu_cuda_device *gpu_cuda_of(struct gpu_device *device)
{
    return (struct gpu_cuda_device *)device;
}

static inline uint64_t gpu_cuda_down(uint64_t value, uint64_t power_of_two)
{
    return value & ~(power_of_two - 1);
}

static inline uint64_t gpu_cuda_up(uint64_t value, uint64_t power_of_two)
{
    return gpu_cuda_down(value + power_of_two - 1, power_of_two);
}

/* status.c. gpu_cuda_fail is GPU_INFRA; printf-style. */
enum gpu_status gpu_cuda_fail(struct gpu_report *report, const char *rule, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* GPU_INFRA when the context is lost. */
enum gpu_status gpu_cuda_alive(struct gpu_cuda_device *d, const char *call,
                               struct gpu_report *report);
/* ... or the mode is not GPU_CUDA_RUNNING. */
enum gpu_status gpu_cuda_ready(struct gpu_cuda_device *d, const char *call,
                               struct gpu_report *report);

/* What a driver result means: GPU_OK for CU_OK; GPU_FINDING where it shows that a
 * launched kernel went wrong; otherwise GPU_INFRA naming `call`. Notes a lost context. */
enum gpu_status gpu_cuda_result(struct gpu_cuda_device *d, cu_result result, const char *call,
                                struct gpu_report *report);
/* Notes a lost context: the first text stays. */
void gpu_cuda_lose(struct gpu_cuda_device *d, const char *text);
/* GPU_FINDING by that rule; the text is the caller's. */
enum gpu_status gpu_cuda_finding(struct gpu_report *report, const char *rule);

/* wait.c */
/* Waits for the stream with the watchdog's deadline; on success tables and stage are free again. */
enum gpu_status gpu_cuda_wait(struct gpu_cuda_device *d, struct gpu_report *report);
enum gpu_status gpu_cuda_finish(struct gpu_device *device, struct gpu_report *report);

/* launch.c */
enum gpu_status gpu_cuda_launch(struct gpu_device *device, struct gpu_kernel *kernel,
                                struct gpu_dim grid, struct gpu_dim block, uint32_t shared_bytes,
                                void **args, struct gpu_report *report);
/* Behind anything that may have changed buffers: has mirrors brought back, and waits unless that is
 * deferred. */
enum gpu_status gpu_cuda_behind(struct gpu_cuda_device *d, struct gpu_report *report);

/* region.c. `granules` is rounded up to a size class unless the region is to be wide. */
enum gpu_status gpu_cuda_region_take(struct gpu_cuda_device *d, uint64_t granules, bool wide,
                                     struct gpu_cuda_region **region, struct gpu_report *report);
/* Gives a region of either kind back; makes no driver call. */
void gpu_cuda_region_put(struct gpu_cuda_device *d, struct gpu_cuda_region *region);
/* Unmaps what is doomed; waits first where work is in flight. */
enum gpu_status gpu_cuda_region_bury(struct gpu_cuda_device *d, struct gpu_report *report);
/* Reserves `bytes` without mapping anything, `before` below them and a guard above. */
enum gpu_status gpu_cuda_region_reserve(struct gpu_cuda_device *d, uint64_t before, uint64_t bytes,
                                        struct gpu_cuda_region **region, struct gpu_report *report);
enum gpu_status gpu_cuda_region_map_sparse(struct gpu_cuda_device *d,
                                           struct gpu_cuda_region *region,
                                           const struct gpu_cuda_range *runs, uint32_t n_runs,
                                           struct gpu_report *report);
void gpu_cuda_region_drop_all(struct gpu_cuda_device *d);

/* pinned.c. Blocks of a size class; NULL when the driver has none. */
void *gpu_cuda_pinned_take(struct gpu_cuda_device *d, uint64_t bytes);
void gpu_cuda_pinned_put(struct gpu_cuda_device *d, void *block, uint64_t bytes);
void *gpu_cuda_pinned_make(struct gpu_cuda_device *d, uint64_t bytes);
void gpu_cuda_pinned_drop_all(struct gpu_cuda_device *d);

/* transfer.c */
void gpu_cuda_helpers_load(struct gpu_cuda_device *d);
/* Tests: as if the helper kernels had not loaded. Before the first alloc. */
void gpu_cuda_helpers_disable(struct gpu_device *device);
enum gpu_status gpu_cuda_flush(struct gpu_cuda_device *d, struct gpu_report *report);
enum gpu_status gpu_cuda_pull(struct gpu_cuda_device *d, struct gpu_report *report);
/* Flushes, pulls and waits where launches have run since the last pull. */
enum gpu_status gpu_cuda_refresh(struct gpu_cuda_device *d, struct gpu_report *report);
enum gpu_status gpu_cuda_stage_in(struct gpu_cuda_device *d, uint64_t address, const void *source,
                                  uint64_t bytes, struct gpu_report *report);
enum gpu_status gpu_cuda_stage_out(struct gpu_cuda_device *d, void *target, uint64_t address,
                                   uint64_t bytes, struct gpu_report *report);
/* Fills a range with the red-zone word before the next launch; both ends multiples of 16. */
enum gpu_status gpu_cuda_fill(struct gpu_cuda_device *d, struct gpu_cuda_range range,
                              struct gpu_report *report);
/* Launches fills that are still pending. */
enum gpu_status gpu_cuda_run_fills(struct gpu_cuda_device *d, struct gpu_report *report);
extern const char gpu_cuda_helper_ptx[];

/* place.c. A power of two. */
uint64_t gpu_cuda_alignment(const struct gpu_buffer_desc *desc);
/* Takes a region for the buffer and sets address and extents. */
enum gpu_status gpu_cuda_place(struct gpu_cuda_device *d, const struct gpu_buffer_desc *desc,
                               struct gpu_cuda_buffer *b, struct gpu_report *report);
/* Appends a range, merging it into the last one where they touch. */
void gpu_cuda_range_append(struct gpu_cuda_range *list, uint32_t *n, uint64_t lo, uint64_t hi);

/* memory.c, guard.c: the table's entries. */
enum gpu_status gpu_cuda_alloc(struct gpu_device *device, const struct gpu_buffer_desc *desc,
                               struct gpu_buffer *buffer, struct gpu_report *report);
void gpu_cuda_free(struct gpu_device *device, struct gpu_buffer *buffer);
void gpu_cuda_buffers_drop_all(struct gpu_cuda_device *d);
enum gpu_status gpu_cuda_upload(struct gpu_device *device, struct gpu_buffer *buffer,
                                uint64_t offset_bytes, const void *source, uint64_t size_bytes,
                                struct gpu_report *report);
enum gpu_status gpu_cuda_download(struct gpu_device *device, const struct gpu_buffer *buffer,
                                  uint64_t offset_bytes, void *target, uint64_t size_bytes,
                                  struct gpu_report *report);
enum gpu_status gpu_cuda_check_guards(struct gpu_device *device, const struct gpu_buffer *buffer,
                                      struct gpu_report *report);
bool gpu_cuda_backed(const struct gpu_cuda_buffer *buffer, uint64_t offset, uint64_t bytes);

/* image.c. The image of that label, loaded from `text` or, where that is NULL, from the file of that
 * name unless a device of this process has it already. Given back once for every take. */
enum gpu_status gpu_cuda_image_take(struct gpu_cuda_device *d, const char *label, const void *text,
                                    struct gpu_cuda_image **image, struct gpu_report *report);
void gpu_cuda_image_give(struct gpu_cuda_device *d, struct gpu_cuda_image *image);
/* A module, or an entry of it, that the driver does not take. GPU_OK for CU_OK. */
enum gpu_status gpu_cuda_reject(struct gpu_cuda_device *d, const char *label, cu_result result,
                                struct gpu_cuda_log *log, struct gpu_report *report);

/* module.c */
enum gpu_status gpu_cuda_load(struct gpu_device *device, const char *path,
                              struct gpu_module **module, struct gpu_report *report);
enum gpu_status gpu_cuda_resolve(struct gpu_module *module, const char *entry,
                                 struct gpu_kernel **kernel, struct gpu_report *report);
void gpu_cuda_modules_drop_all(struct gpu_cuda_device *d);

#endif
