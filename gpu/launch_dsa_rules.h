/* Rules that several DSA launchers share. Internal to gpu/launch_dsa*.c.
 *
 * Sizes are computed in 128 bits: the largest product here has four 32-bit factors. */
#ifndef ATTEST_GPU_LAUNCH_DSA_RULES_H
#define ATTEST_GPU_LAUNCH_DSA_RULES_H

#include "launch_dsa.h"

typedef unsigned __int128 gpu_wide;

enum {
    GPU_DSA_MAX_KPOOL = 16,
    GPU_DSA_LATENT = 512,              /* the decode kernel's tiling */
    GPU_DSA_MAX_MASKED_KEYS = 12288,   /* a score row in 48 KiB of shared memory */
    GPU_DSA_MAX_SHARED_BYTES = 232448, /* 227 KiB, where no device is at hand */
    GPU_DSA_MAX_GRID_Y = 65535,
};

/* What a launch needs of a buffer. A NULL buffer (a check-only call) needs nothing. */
struct gpu_dsa_need {
    const struct gpu_buffer *buffer;
    const char *name;
    gpu_wide bytes;
    uint32_t align_bytes; /* a power of two */
};

/* Rules "buffer_size" and "buffer_align", in the order of the table. */
enum gpu_status gpu_dsa_check_buffers(const struct gpu_dsa_need *needs, uint32_t count,
                                      struct gpu_report *report);

/* Rule "grid_limit" under the limits every supported device has. */
enum gpu_status gpu_dsa_check_grid(uint64_t x, uint64_t y, struct gpu_report *report);

/* Rule "index_kpool_range". */
enum gpu_status gpu_dsa_check_kpool(uint32_t kpool, struct gpu_report *report);

/* Rule "position_range": `end` (one past the last token or pool of `name`) is at most 2^31, so that
 * every index is an i32. */
enum gpu_status gpu_dsa_check_end(const char *name, uint64_t end, struct gpu_report *report);

/* Rule "scale_positive": positive and finite. */
enum gpu_status gpu_dsa_check_scale(const char *name, float scale, struct gpu_report *report);

/* Rule "dim_multiple_of_32"; a width of 0 is refused too. */
enum gpu_status gpu_dsa_check_dim(uint32_t dim, struct gpu_report *report);

/* Rule "first_key": inside [0, keys], with the scalar S; keys itself means that none is valid. A
 * geometry vector may end before first_key, which leaves every slot invalid. */
/* Of the scalars or of a geometry vector, where it may be negative. */
enum gpu_status gpu_dsa_check_np2(int64_t np2, uint32_t select_k, struct gpu_report *report);
enum gpu_status gpu_dsa_check_first_key(int32_t first_key, uint32_t keys,
                                        struct gpu_report *report);

/* The numbers a launch runs under: those of host_geom where there is one, else the scalars. */
struct gpu_dsa_geometry {
    uint32_t keys, pools, select_k, np2;
};
struct gpu_dsa_geometry gpu_dsa_effective(const int32_t *host_geom,
                                          struct gpu_dsa_geometry scalars);

/* Rules "pool_range" and "select_k_range": a geometry vector stays inside the scalars, which size
 * the grid, the buffers and the shared memory. */
enum gpu_status gpu_dsa_check_geom(const int32_t *host_geom, struct gpu_dsa_geometry scalars,
                                   struct gpu_report *report);

/* Rule "geom_rows": output rows are strided by the scalars, so a geometry vector allows one row. */
enum gpu_status gpu_dsa_check_geom_rows(const struct gpu_buffer *geom, const int32_t *host_geom,
                                        uint32_t rows, struct gpu_report *report);

/* The address a kernel gets for an optional buffer. */
uint64_t gpu_dsa_address(const struct gpu_buffer *buffer);

#endif
