/* Launcher of glm5next_dsa_mla_decode_fp8: sparse MLA decode over paged FP8 latents. */
#include "launch_dsa_rules.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static uint64_t token_stride_bytes(const struct gpu_dsa_decode *args)
{
    return (uint64_t)args->num_kv_heads * args->kv_lora_rank;
}

static enum gpu_status check_shape(const struct gpu_dsa_decode *args, struct gpu_report *report)
{
    if (args->num_seqs == 0 || args->num_q_heads == 0)
        return gpu_refuse(report, "degenerate",
                          "num_seqs %" PRIu32 " and num_q_heads %" PRIu32 " must not be 0",
                          args->num_seqs, args->num_q_heads);
    if (args->block_size == 0) return gpu_refuse(report, "block_size_zero", "block_size is 0");
    if (gpu_dsa_check_kpool(args->index_kpool, report) != GPU_OK) return GPU_REFUSED;
    if (args->block_size % args->index_kpool != 0)
        return gpu_refuse(report, "block_size_multiple_of_kpool",
                          "block_size %" PRIu32 " is not a multiple of index_kpool %" PRIu32
                          ": a pool would straddle a page boundary",
                          args->block_size, args->index_kpool);
    if (args->num_kv_heads != 1)
        return gpu_refuse(report, "num_kv_heads",
                          "num_kv_heads %" PRIu32 " is not 1: the latent is shared by all heads",
                          args->num_kv_heads);
    if (args->kv_lora_rank != GPU_DSA_LATENT)
        return gpu_refuse(report, "kv_lora_rank",
                          "kv_lora_rank %" PRIu32 " is not %d, the width the kernel is tiled for",
                          args->kv_lora_rank, GPU_DSA_LATENT);
    if (args->sel_rows != args->num_seqs)
        return gpu_refuse(report, "selection_rows",
                          "%" PRIu32 " selection rows for %" PRIu32
                          " sequences: the row stride would be wrong",
                          args->sel_rows, args->num_seqs);
    return gpu_dsa_check_grid(args->num_q_heads, args->num_seqs, report);
}

static enum gpu_status check_stride(const struct gpu_dsa_decode *args, struct gpu_report *report)
{
    gpu_wide page_bytes = (gpu_wide)args->block_size * token_stride_bytes(args);

    if (args->cache_stride_bytes < page_bytes)
        return gpu_refuse(report, "cache_stride_small",
                          "cache_stride_bytes %" PRIu64 " is below the %" PRIu64
                          " bytes of a page of %" PRIu32 " tokens",
                          args->cache_stride_bytes, (uint64_t)page_bytes, args->block_size);
    if (args->cache_stride_bytes % 16 != 0)
        return gpu_refuse(report, "cache_stride_align",
                          "cache_stride_bytes %" PRIu64
                          " is not a multiple of 16, the width of the kernel's loads",
                          args->cache_stride_bytes);
    return GPU_OK;
}

static enum gpu_status check_scales(const struct gpu_dsa_decode *args, struct gpu_report *report)
{
    if (gpu_dsa_check_scale("scale", args->scale, report) != GPU_OK ||
        gpu_dsa_check_scale("k_scale", args->k_scale, report) != GPU_OK)
        return GPU_REFUSED;
    return gpu_dsa_check_scale("v_scale", args->v_scale, report);
}

static enum gpu_status check_lengths(const struct gpu_dsa_decode *args, struct gpu_report *report)
{
    uint64_t capacity = (uint64_t)args->max_blocks_per_seq * args->block_size;

    for (uint32_t seq = 0; args->host_seq_lens != NULL && seq < args->num_seqs; seq++) {
        int32_t length = args->host_seq_lens[seq];

        if (length < 0 || (uint64_t)length > capacity)
            return gpu_refuse(report, "seq_len_range",
                              "seq_len %" PRId32 " of sequence %" PRIu32 " is outside 0..%" PRIu64
                              " (%" PRIu32 " blocks of %" PRIu32 " tokens)",
                              length, seq, capacity, args->max_blocks_per_seq, args->block_size);
    }
    return GPU_OK;
}

/* An open-addressing set of non-negative ids with at least twice as many slots as a row has ids. */
struct id_set {
    int32_t *slots;
    uint64_t mask;
};

static bool insert_new(struct id_set *set, int32_t id)
{
    uint64_t slot = (uint64_t)(uint32_t)id * 0x9e3779b97f4a7c15u >> 24 & set->mask;

    while (set->slots[slot] >= 0) {
        if (set->slots[slot] == id) return false;
        slot = (slot + 1) & set->mask;
    }
    set->slots[slot] = id;
    return true;
}

/* The ids of one row: none twice, and those attended on pages that exist. Without the lengths
 * nobody knows which are attended. */
static enum gpu_status check_row(const struct gpu_dsa_decode *args, uint32_t seq,
                                 struct id_set *set, struct gpu_report *report)
{
    const int32_t *row = args->host_sel_indices + (uint64_t)seq * args->width;
    const int32_t *table = args->host_block_tables;

    memset(set->slots, 0xff, (set->mask + 1) * sizeof(*set->slots));
    for (uint32_t i = 0; i < args->width; i++) {
        uint32_t page;

        if (row[i] < 0) continue;
        if (!insert_new(set, row[i]))
            return gpu_refuse(report, "duplicate_id",
                              "token %" PRId32 " is twice in selection row %" PRIu32
                              " (again at column %" PRIu32 "): it would count twice",
                              row[i], seq, i);
        if (table == NULL || args->host_seq_lens == NULL || row[i] >= args->host_seq_lens[seq])
            continue;
        page = (uint32_t)row[i] / args->block_size;
        int32_t entry = table[(uint64_t)seq * args->max_blocks_per_seq + page];
        if (entry < 0 || (uint32_t)entry >= args->num_pages)
            return gpu_refuse(report, "block_table_entry",
                              "block table entry %" PRId32 " of sequence %" PRIu32
                              ", block %" PRIu32 " is used and outside [0, %" PRIu32 ")",
                              entry, seq, page, args->num_pages);
    }
    return GPU_OK;
}

static enum gpu_status check_rows(const struct gpu_dsa_decode *args, struct gpu_report *report)
{
    enum gpu_status status = GPU_OK;
    struct id_set set = {NULL, 63};

    if (args->host_sel_indices == NULL || args->width == 0) return GPU_OK;
    while (set.mask + 1 < 2 * (uint64_t)args->width) set.mask = 2 * set.mask + 1;
    set.slots = malloc((set.mask + 1) * sizeof(*set.slots));
    if (set.slots == NULL) {
        gpu_refuse(report, "memory", "no memory for the set of a row's %" PRIu32 " ids",
                   args->width);
        return GPU_INFRA;
    }
    for (uint32_t seq = 0; status == GPU_OK && seq < args->num_seqs; seq++)
        status = check_row(args, seq, &set, report);
    free(set.slots);
    return status;
}

static enum gpu_status check_buffers(const struct gpu_dsa_decode *args, struct gpu_report *report)
{
    gpu_wide latents = (gpu_wide)args->num_seqs * args->num_q_heads * args->kv_lora_rank;
    gpu_wide page_bytes = (gpu_wide)args->block_size * token_stride_bytes(args);
    gpu_wide cache_bytes = 0;

    if (args->num_pages > 0)
        cache_bytes = (gpu_wide)(args->num_pages - 1) * args->cache_stride_bytes + page_bytes;
    const struct gpu_dsa_need needs[] = {
        {args->q, "q", 2 * latents, 16},
        {args->k_cache, "k_cache", cache_bytes, 16},
        {args->v_cache, "v_cache", cache_bytes, 16},
        {args->out, "out", 2 * latents, 4},
        {args->block_tables, "block_tables",
         (gpu_wide)4 * args->num_seqs * args->max_blocks_per_seq, 4},
        {args->seq_lens, "seq_lens", (gpu_wide)4 * args->num_seqs, 4},
        {args->sel_indices, "sel_indices", (gpu_wide)4 * args->sel_rows * args->width, 4},
    };
    return gpu_dsa_check_buffers(needs, sizeof(needs) / sizeof(needs[0]), report);
}

enum gpu_status gpu_dsa_decode_check(const struct gpu_dsa_decode *args, struct gpu_report *report)
{
    enum gpu_status (*const rules[])(const struct gpu_dsa_decode *, struct gpu_report *) = {
        check_shape, check_stride, check_scales, check_lengths, check_buffers, check_rows,
    };

    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        enum gpu_status status = rules[i](args, report);

        if (status != GPU_OK) return status;
    }
    return GPU_OK;
}

enum gpu_status gpu_dsa_decode(const struct gpu_target *target, const struct gpu_dsa_decode *args,
                               struct gpu_report *report)
{
    enum gpu_status status = gpu_dsa_decode_check(args, report);
    struct gpu_dsa_decode numbers = *args;
    uint64_t q = gpu_dsa_address(args->q), out = gpu_dsa_address(args->out);
    uint64_t k_cache = gpu_dsa_address(args->k_cache), v_cache = gpu_dsa_address(args->v_cache);
    uint64_t block_tables = gpu_dsa_address(args->block_tables);
    uint64_t seq_lens = gpu_dsa_address(args->seq_lens);
    uint64_t sel_indices = gpu_dsa_address(args->sel_indices);
    void *values[] = {
        &q,
        &k_cache,
        &v_cache,
        &out,
        &block_tables,
        &seq_lens,
        &sel_indices,
        &numbers.width,
        &numbers.max_blocks_per_seq,
        &numbers.num_q_heads,
        &numbers.num_kv_heads,
        &numbers.kv_lora_rank,
        &numbers.block_size,
        &numbers.scale,
        &numbers.k_scale,
        &numbers.v_scale,
        &numbers.cache_stride_bytes,
    };

    if (status != GPU_OK) return status;
    return gpu_run(target, "glm5next_dsa_mla_decode_fp8",
                   (struct gpu_dim){args->num_q_heads, args->num_seqs, 1},
                   (struct gpu_dim){256, 1, 1}, 0, values, report);
}
