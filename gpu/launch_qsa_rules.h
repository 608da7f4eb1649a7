/* Rules that several QSA launchers share. Internal to gpu/launch_qsa*.c.
 *
 * Every function returns GPU_OK, or GPU_REFUSED with the rule's name and the numbers. Sizes are
 * computed in 128 bits: the largest product here has five factors of at most 32 bits, and four when
 * one of them is hd, which has been checked to be at most 1024. */
#ifndef ATTEST_GPU_LAUNCH_QSA_RULES_H
#define ATTEST_GPU_LAUNCH_QSA_RULES_H

#include "launch_qsa.h"

typedef unsigned __int128 gpu_qsa_wide;

enum {
    GPU_QSA_MAX_HD = 1024,          /* a block has hd threads */
    GPU_QSA_MAX_ATTENTION_HD = 256, /* channels the attention kernels keep in registers */
    GPU_QSA_MAX_TOPK = 2048,        /* entries the top-k kernel sorts in shared memory */
    GPU_QSA_MAX_GRID_Y = 65535,
};

/* What a launch needs of a buffer. A NULL buffer (a check-only call) needs nothing. */
struct gpu_qsa_need {
    const struct gpu_buffer *buffer;
    const char *name;
    gpu_qsa_wide bytes;
    uint32_t align_bytes; /* a power of two */
};

/* Rules "buffer_size" and "buffer_align", in the order of the table. */
enum gpu_status gpu_qsa_check_buffers(const struct gpu_qsa_need *needs, size_t count,
                                      struct gpu_report *report);

/* Rule "grid_limit" under the limits every supported device has. */
enum gpu_status gpu_qsa_check_grid(uint64_t x, uint64_t y, struct gpu_report *report);

/* Rules "dim_multiple_of_32" and "hd_range": a multiple of 32 in 32..max_hd. */
enum gpu_status gpu_qsa_check_hd(uint32_t hd, uint32_t max_hd, struct gpu_report *report);

/* Rule "ratio_zero". */
enum gpu_status gpu_qsa_check_ratio(uint32_t ratio, struct gpu_report *report);

/* Rules "rot", "theta" and "eps". */
enum gpu_status gpu_qsa_check_rotation(uint32_t rot, uint32_t hd, float theta, float eps,
                                       struct gpu_report *report);

/* Rule "position_range": positions first ... first+count-1 are below 2^31; without positions there
 * is nothing to refuse. */
enum gpu_status gpu_qsa_check_positions(uint64_t first, uint64_t count, struct gpu_report *report);

/* Rule "topk_range". */
enum gpu_status gpu_qsa_check_topk(uint32_t topk, struct gpu_report *report);

/* Rules "block_size_zero", "ratio_zero" and "block_size_multiple_of_ratio". */
enum gpu_status gpu_qsa_check_paging(uint32_t block_size, uint32_t ratio,
                                     struct gpu_report *report);

/* Rule "degenerate": there is a head. A launch without one is not a launch with nothing to do: rows
 * and blocks are there, and their results would mean nothing. */
enum gpu_status gpu_qsa_check_heads(uint32_t n, const char *name, struct gpu_report *report);

/* Rule "scale_positive". */
enum gpu_status gpu_qsa_check_scale(float inv_sqrt_d, struct gpu_report *report);

/* Rule "kv_head_groups" for a cache alone: it must have heads. */
enum gpu_status gpu_qsa_check_kv_heads(uint32_t nkv, struct gpu_report *report);

/* Rule "kv_head_groups": nq query heads share nkv cache heads evenly. */
enum gpu_status gpu_qsa_check_head_groups(uint32_t nq, uint32_t nkv, struct gpu_report *report);

/* A block table as a launcher sees it; host may be NULL. */
struct gpu_qsa_table {
    const int32_t *host;
    uint32_t length, num_pages;
};

/* Rule "block_table_entry" for logical page `page`, which some token lies on: the table has such an
 * entry and, where the host knows it, it names a page that exists. */
enum gpu_status gpu_qsa_check_page(const struct gpu_qsa_table *table, uint32_t page,
                                   struct gpu_report *report);

/* Rule "seq_len_range": the table has a page for each of the sequence's tokens. */
enum gpu_status gpu_qsa_check_length(uint64_t tokens, uint32_t table_len, uint32_t block_size,
                                     struct gpu_report *report);

/* Complete blocks of `ratio` tokens before or at a position below 2^31. */
uint32_t gpu_qsa_complete(uint32_t position, uint32_t ratio);

/* The address a kernel gets; 0 for no buffer. */
uint64_t gpu_qsa_address(const struct gpu_buffer *buffer);

#endif
