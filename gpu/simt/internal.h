/* The CPU backend's own structures: device, buffers, modules, and what a running launch knows.
 *
 * One launch runs at a time in a process, on the thread that called it. */
#ifndef ATTEST_SIMT_INTERNAL_H
#define ATTEST_SIMT_INTERNAL_H

#include "gpu/gpu.h"
#include "include/simt_abi.h"

#define SIMT_PAGE 4096u
/* The arena hands out whole granules, so the owner of an address is one table look-up away. */
#define SIMT_GRANULE_BITS 20u
#define SIMT_GRANULE (1ull << SIMT_GRANULE_BITS)
#define SIMT_ARENA_BYTES (1ull << 42)
#define SIMT_RED_ZONE_BYTE 0xc5
/* Shared memory before it is written: a NaN in f32, bf16, f16 and e4m3, and -1 as an integer. */
#define SIMT_POISON_BYTE 0xff
#define SIMT_STATIC_SHARED_NAME "static shared memory"
#define SIMT_DYNAMIC_SHARED_NAME "dynamic shared memory"

/* The last accesses to one word or byte, for finding races (trace.c). */
struct simt_cell {
    uint64_t write, read, other_read;
};
/* Cells of a region whose size is a multiple of 4. */
#define SIMT_CELLS(region_bytes) ((region_bytes) / 4 + (region_bytes))

/* A device allocation: accessible pages between unmapped ones, and the data flush against one end.
 * Owned by the arena, which keeps freed ones for reuse. */
struct simt_buffer {
    const char *name;
    uintptr_t begin; /* the data */
    uint64_t size;
    uint32_t elem_bytes;
    bool read_only;
    bool shared; /* a block's dynamic shared memory */
    bool live;
    bool writable; /* the pages' present protection */
    uintptr_t map; /* page-aligned span that holds the data; accessible unless extents say less */
    uint64_t map_bytes;
    struct gpu_extent *extents; /* [n_extents] or NULL: backed as a whole */
    uint32_t n_extents;
    uint8_t *written;        /* [map_bytes], 1 where written; NULL unless the device traces */
    struct simt_cell *cells; /* [SIMT_CELLS(map_bytes)]; NULL until a traced launch */
    struct simt_buffer *next, *previous; /* among the live; `next` alone in a pool */
};

struct simt_range {
    uint64_t first, count; /* granules */
};

struct simt_pool {
    uint64_t pages;
    struct simt_buffer *free;
};

struct simt_arena {
    uintptr_t begin;
    struct simt_buffer **owner; /* [SIMT_ARENA_BYTES / SIMT_GRANULE] */
    struct simt_range *ranges;  /* free granules, ascending, coalesced */
    uint32_t n_ranges, cap_ranges;
    struct simt_pool *pools; /* by number of pages */
    uint32_t n_pools, cap_pools;
    uint64_t pooled_bytes;
    struct simt_buffer *live;
};

/* A static __shared__ variable, from the module's symbol table. */
struct simt_variable {
    uintptr_t begin;
    uint64_t size;
    char name[64];
};

/* A source line that was looked up once. */
struct simt_line {
    uintptr_t offset; /* in the image */
    char text[192];
    struct simt_line *next;
};

struct gpu_kernel {
    struct gpu_module *module;
    const struct simt_entry *entry;
};

struct gpu_module {
    struct gpu_device *device;
    char *path; /* as opened */
    void *handle;
    const struct simt_module_table *table;
    struct gpu_kernel *kernels; /* [table->n_entries] */
    uintptr_t load_base;        /* what symbol tables and debug information call 0 */
    uintptr_t image_begin, image_end;
    struct simt_variable *variables; /* [n_variables], ascending */
    uint32_t n_variables;
    struct simt_line *lines; /* source lines looked up so far */
    uint8_t *written;        /* [simt_shared_region], traced modules only */
    struct simt_cell *cells; /* [SIMT_CELLS(simt_shared_region)], traced modules only */
    struct gpu_module *next;
};

struct gpu_device {
    struct gpu_options options;
    struct simt_arena arena;
    struct gpu_module *modules;
    struct gpu_buffer dynamic_shared;
    uint64_t dynamic_shared_bytes; /* what the buffer above was made for; 0 = none yet */
    bool tracing;                  /* buffers carry a map of their written bytes */
};

/* Bytes of the module's static shared section, rounded up to whole words. */
static inline uint64_t simt_shared_region(const struct gpu_module *module)
{
    return ((uint64_t)(module->table->shared_end - module->table->shared_begin) + 3) / 4 * 4;
}

/* Reports; each returns the status it stands for. */
enum gpu_status simt_infra(struct gpu_report *report, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* arena.c: spans of `pages` accessible pages with an unmapped page on both sides. NULL when memory
 * or address space is out. Extents are relative to `data_offset`, the data's place in the span. */
bool simt_arena_open(struct simt_arena *arena);
void simt_arena_close(struct simt_arena *arena);
struct simt_buffer *simt_arena_take(struct simt_arena *arena, uint64_t pages);
struct simt_buffer *simt_arena_take_sparse(struct simt_arena *arena, uint64_t pages,
                                           uint64_t data_offset, const struct gpu_extent *extents,
                                           uint32_t n_extents);
void simt_arena_give(struct simt_arena *arena, struct simt_buffer *buffer);
bool simt_arena_protect(struct simt_buffer *buffer, bool writable);
/* Forgets every buffer's accesses. */
void simt_arena_drop_cells(struct simt_arena *arena);
/* The live buffer closest to the address and how far it is, or NULL. */
struct simt_buffer *simt_arena_nearest(const struct simt_arena *arena, uintptr_t address,
                                       uint64_t *distance_bytes);
void *simt_map_zeroed(uint64_t bytes);
void simt_unmap(void *address, uint64_t bytes);

/* buffer.c: the backend's buffer functions. */
enum gpu_status simt_alloc(struct gpu_device *device, const struct gpu_buffer_desc *desc,
                           struct gpu_buffer *buffer, struct gpu_report *report);
void simt_free(struct gpu_device *device, struct gpu_buffer *buffer);
enum gpu_status simt_upload(struct gpu_device *device, struct gpu_buffer *buffer,
                            uint64_t offset_bytes, const void *source, uint64_t size_bytes,
                            struct gpu_report *report);
enum gpu_status simt_download(struct gpu_device *device, const struct gpu_buffer *buffer,
                              uint64_t offset_bytes, void *target, uint64_t size_bytes,
                              struct gpu_report *report);
void simt_mark_unwritten(struct gpu_device *device, struct gpu_buffer *buffer);
enum gpu_status simt_check_guards(struct gpu_device *device, const struct gpu_buffer *buffer,
                                  struct gpu_report *report);
/* Whether [offset, offset + bytes) of the buffer lies in backed memory. */
bool simt_is_backed(const struct simt_buffer *buffer, uint64_t offset, uint64_t bytes);

/* module.c */
enum gpu_status simt_load(struct gpu_device *device, const char *path, struct gpu_module **module,
                          struct gpu_report *report);
enum gpu_status simt_resolve(struct gpu_module *module, const char *entry,
                             struct gpu_kernel **kernel, struct gpu_report *report);
void simt_unload_all(struct gpu_device *device);
/* elf.c: fills module->variables with the sized symbols inside the shared section. A module without
 * a symbol table has none, and its section counts as one variable. */
bool simt_read_variables(struct gpu_module *module);

/* launch.c */
enum gpu_status simt_launch(struct gpu_device *device, struct gpu_kernel *kernel,
                            struct gpu_dim grid, struct gpu_dim block, uint32_t shared_bytes,
                            void **args, struct gpu_report *report);

/* symbol.c: "file:line" of a program counter inside the module, or its offset where no symboliser
 * can be run. `is_return` says that pc is a return address, i.e. just behind the call. */
void simt_symbolise(struct gpu_module *module, uintptr_t pc, bool is_return, char *text,
                    size_t size);

#endif
