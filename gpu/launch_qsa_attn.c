/* Launchers of the QSA cache consumers: gather, prefill attention, decode attention. */
#include "launch_qsa_rules.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

enum { THREADS = 256, WARPS = 8 };

/* A warp's channel sums, its maximum and its denominator. */
static uint32_t attention_shared_bytes(uint32_t hd)
{
    return 4 * (WARPS * hd + 2 * WARPS);
}

static gpu_qsa_wide cache_bytes(uint32_t num_pages, uint32_t block_size, uint32_t nkv, uint32_t hd)
{
    return (gpu_qsa_wide)2 * num_pages * block_size * ((uint64_t)nkv * hd);
}

/* Every selected token lies in the sequence and on a page that exists. */
static enum gpu_status check_selected(const struct gpu_qsa_gather *args, struct gpu_report *report)
{
    const struct gpu_qsa_table table = {args->host_block_table, args->table_len, args->num_pages};

    for (uint32_t i = 0; args->host_sel != NULL && i < args->n_sel; i++) {
        int32_t token = args->host_sel[i];

        if (token < 0 || (uint32_t)token >= args->seq_len)
            return gpu_refuse(report, "sel_range",
                              "selected token %" PRId32 " (entry %" PRIu32
                              ") is outside the sequence of %" PRIu32 " tokens",
                              token, i, args->seq_len);
        if (gpu_qsa_check_page(&table, (uint32_t)token / args->block_size, report) != GPU_OK)
            return GPU_REFUSED;
    }
    return GPU_OK;
}

enum gpu_status gpu_qsa_gather_check(const struct gpu_qsa_gather *args, struct gpu_report *report)
{
    gpu_qsa_wide out_bytes = (gpu_qsa_wide)2 * args->n_sel * args->nkv * args->hd;
    gpu_qsa_wide in_bytes = cache_bytes(args->num_pages, args->block_size, args->nkv, args->hd);
    const struct gpu_qsa_need needs[] = {
        {args->k_cache, "k_cache", in_bytes, 2},
        {args->v_cache, "v_cache", in_bytes, 2},
        {args->block_table, "block_table", (gpu_qsa_wide)4 * args->table_len, 4},
        {args->sel, "sel", (gpu_qsa_wide)4 * args->n_sel, 4},
        {args->k_out, "k_out", out_bytes, 2},
        {args->v_out, "v_out", out_bytes, 2},
    };

    if (gpu_qsa_check_hd(args->hd, GPU_QSA_MAX_HD, report) != GPU_OK ||
        gpu_qsa_check_paging(args->block_size, args->ratio, report) != GPU_OK ||
        gpu_qsa_check_kv_heads(args->nkv, report) != GPU_OK ||
        gpu_qsa_check_length(args->seq_len, args->table_len, args->block_size, report) != GPU_OK ||
        gpu_qsa_check_grid(args->n_sel, 1, report) != GPU_OK ||
        gpu_qsa_check_buffers(needs, COUNT(needs), report) != GPU_OK)
        return GPU_REFUSED;
    return check_selected(args, report);
}

enum gpu_status gpu_qsa_gather(const struct gpu_target *target, const struct gpu_qsa_gather *args,
                               struct gpu_report *report)
{
    struct gpu_qsa_gather numbers = *args;
    uint64_t k_cache = gpu_qsa_address(args->k_cache), v_cache = gpu_qsa_address(args->v_cache);
    uint64_t block_table = gpu_qsa_address(args->block_table), sel = gpu_qsa_address(args->sel);
    uint64_t k_out = gpu_qsa_address(args->k_out), v_out = gpu_qsa_address(args->v_out);
    void *values[] = {&k_cache,   &v_cache, &block_table,        &sel,
                      &k_out,     &v_out,   &numbers.block_size, &numbers.nkv,
                      &numbers.hd};
    enum gpu_status status = gpu_qsa_gather_check(args, report);

    if (status != GPU_OK) return status;
    return gpu_run(target, "qsa_gather", (struct gpu_dim){args->n_sel, 1, 1},
                   (struct gpu_dim){THREADS, 1, 1}, 0, values, report);
}

static int compare_blocks(const void *a, const void *b)
{
    int32_t left = *(const int32_t *)a, right = *(const int32_t *)b;

    return (left > right) - (left < right);
}

/* No block is listed twice: it would count twice. Holes may repeat. */
static enum gpu_status check_distinct(const int32_t *list, uint32_t topk, uint32_t row,
                                      struct gpu_report *report)
{
    int32_t sorted[GPU_QSA_MAX_TOPK];

    memcpy(sorted, list, topk * sizeof *list);
    qsort(sorted, topk, sizeof *sorted, compare_blocks);
    for (uint32_t i = 1; i < topk; i++) {
        if (sorted[i] >= 0 && sorted[i] == sorted[i - 1])
            return gpu_refuse(report, "duplicate_id",
                              "block %" PRId32 " is listed twice in row %" PRIu32
                              ": it would count twice",
                              sorted[i], row);
    }
    return GPU_OK;
}

/* The blocks one row lists are distinct, complete at its position, and lie on pages that exist. */
static enum gpu_status check_row_list(const struct gpu_qsa_prefill_attn *args,
                                      const struct gpu_qsa_table *table, uint32_t row,
                                      struct gpu_report *report)
{
    const int32_t *list = args->host_lists + (uint64_t)row * args->topk;
    uint32_t complete = gpu_qsa_complete(args->first_pos + row, args->ratio);
    uint32_t blocks_a_page = args->block_size / args->ratio;

    for (uint32_t i = 0; i < args->topk; i++) {
        if (list[i] == -1) continue;
        if (list[i] < 0 || (uint32_t)list[i] >= complete)
            return gpu_refuse(report, "listed_block",
                              "block %" PRId32 " in row %" PRIu32 ", entry %" PRIu32
                              " is not one of the %" PRIu32 " complete blocks at position %" PRIu32,
                              list[i], row, i, complete, args->first_pos + row);
        if (gpu_qsa_check_page(table, (uint32_t)list[i] / blocks_a_page, report) != GPU_OK)
            return GPU_REFUSED;
    }
    return check_distinct(list, args->topk, row, report);
}

/* The rows' tails lie on pages that exist. A row has one unless its position ends a block, and a
 * page holds it whole; so with ratio 2 or more the pages from the first such row's to the last's
 * are all used. */
static enum gpu_status check_tails(const struct gpu_qsa_prefill_attn *args,
                                   const struct gpu_qsa_table *table, struct gpu_report *report)
{
    uint64_t first = args->first_pos, end = first + args->rows;

    if (args->ratio == 1) return GPU_OK;
    if ((first + 1) % args->ratio == 0) first++;
    if (end % args->ratio == 0) end--;
    if (first >= end) return GPU_OK;
    if (gpu_qsa_check_page(table, (uint32_t)((end - 1) / args->block_size), report) != GPU_OK)
        return GPU_REFUSED;
    if (table->host == NULL) return GPU_OK;
    for (uint64_t page = first / args->block_size; page < (end - 1) / args->block_size; page++) {
        if (gpu_qsa_check_page(table, (uint32_t)page, report) != GPU_OK) return GPU_REFUSED;
    }
    return GPU_OK;
}

/* Every attended token lies on a page that exists: those of the lists, and each row's tail. */
static enum gpu_status check_attended(const struct gpu_qsa_prefill_attn *args,
                                      struct gpu_report *report)
{
    const struct gpu_qsa_table table = {args->host_block_table, args->table_len, args->num_pages};

    if (args->rows == 0) return GPU_OK;
    if (gpu_qsa_check_length((uint64_t)args->first_pos + args->rows, args->table_len,
                             args->block_size, report) != GPU_OK)
        return GPU_REFUSED;
    if (check_tails(args, &table, report) != GPU_OK) return GPU_REFUSED;
    for (uint32_t row = 0; args->host_lists != NULL && row < args->rows; row++) {
        if (check_row_list(args, &table, row, report) != GPU_OK) return GPU_REFUSED;
    }
    return GPU_OK;
}

enum gpu_status gpu_qsa_prefill_attn_check(const struct gpu_qsa_prefill_attn *args,
                                           struct gpu_report *report)
{
    gpu_qsa_wide q_bytes = (gpu_qsa_wide)2 * args->rows * ((uint64_t)args->nq * args->hd);
    gpu_qsa_wide kv_bytes = cache_bytes(args->num_pages, args->block_size, args->nkv, args->hd);
    const struct gpu_qsa_need needs[] = {
        {args->q, "q", q_bytes, 2},
        {args->k_cache, "k_cache", kv_bytes, 2},
        {args->v_cache, "v_cache", kv_bytes, 2},
        {args->block_table, "block_table", (gpu_qsa_wide)4 * args->table_len, 4},
        {args->lists, "lists", (gpu_qsa_wide)4 * args->rows * args->topk, 4},
        {args->attn_out, "attn_out", q_bytes, 2},
    };

    if (gpu_qsa_check_hd(args->hd, GPU_QSA_MAX_ATTENTION_HD, report) != GPU_OK ||
        gpu_qsa_check_paging(args->block_size, args->ratio, report) != GPU_OK ||
        gpu_qsa_check_head_groups(args->nq, args->nkv, report) != GPU_OK ||
        gpu_qsa_check_topk(args->topk, report) != GPU_OK ||
        gpu_qsa_check_scale(args->inv_sqrt_d, report) != GPU_OK ||
        gpu_qsa_check_positions(args->first_pos, args->rows, report) != GPU_OK ||
        gpu_qsa_check_grid(args->rows, args->nq, report) != GPU_OK ||
        gpu_qsa_check_buffers(needs, COUNT(needs), report) != GPU_OK)
        return GPU_REFUSED;
    return check_attended(args, report);
}

enum gpu_status gpu_qsa_prefill_attn(const struct gpu_target *target,
                                     const struct gpu_qsa_prefill_attn *args,
                                     struct gpu_report *report)
{
    struct gpu_qsa_prefill_attn numbers = *args;
    uint64_t q = gpu_qsa_address(args->q), attn_out = gpu_qsa_address(args->attn_out);
    uint64_t k_cache = gpu_qsa_address(args->k_cache), v_cache = gpu_qsa_address(args->v_cache);
    uint64_t block_table = gpu_qsa_address(args->block_table), lists = gpu_qsa_address(args->lists);
    void *values[] = {
        &q,          &k_cache,           &v_cache,      &block_table,       &lists,
        &attn_out,   &numbers.first_pos, &numbers.topk, &numbers.ratio,     &numbers.block_size,
        &numbers.nq, &numbers.nkv,       &numbers.hd,   &numbers.inv_sqrt_d};
    enum gpu_status status = gpu_qsa_prefill_attn_check(args, report);

    if (status != GPU_OK) return status;
    return gpu_run(target, "qsa_prefill_attn", (struct gpu_dim){args->rows, args->nq, 1},
                   (struct gpu_dim){THREADS, 1, 1}, attention_shared_bytes(args->hd), values,
                   report);
}

/* Tokens [0, seq_len) lie on the table's pages, and those exist. */
static enum gpu_status check_sequence(const struct gpu_paged_decode_attn *args,
                                      struct gpu_report *report)
{
    const struct gpu_qsa_table table = {args->host_block_table, args->table_len, args->num_pages};
    uint32_t pages = args->seq_len / args->block_size + (args->seq_len % args->block_size != 0);

    if (gpu_qsa_check_length(args->seq_len, args->table_len, args->block_size, report) != GPU_OK)
        return GPU_REFUSED;
    for (uint32_t page = 0; args->host_block_table != NULL && page < pages; page++) {
        if (gpu_qsa_check_page(&table, page, report) != GPU_OK) return GPU_REFUSED;
    }
    return GPU_OK;
}

enum gpu_status gpu_paged_decode_attn_check(const struct gpu_paged_decode_attn *args,
                                            struct gpu_report *report)
{
    gpu_qsa_wide q_bytes = (gpu_qsa_wide)2 * args->nq * args->hd;
    gpu_qsa_wide kv_bytes = cache_bytes(args->num_pages, args->block_size, args->nkv, args->hd);
    const struct gpu_qsa_need needs[] = {
        {args->q, "q", q_bytes, 2},
        {args->k_cache, "k_cache", kv_bytes, 2},
        {args->v_cache, "v_cache", kv_bytes, 2},
        {args->block_table, "block_table", (gpu_qsa_wide)4 * args->table_len, 4},
        {args->out, "out", q_bytes, 2},
    };

    if (gpu_qsa_check_hd(args->hd, GPU_QSA_MAX_ATTENTION_HD, report) != GPU_OK) return GPU_REFUSED;
    if (args->block_size == 0)
        return gpu_refuse(report, "block_size_zero", "block_size 0: a page has no slots");
    if (gpu_qsa_check_head_groups(args->nq, args->nkv, report) != GPU_OK ||
        gpu_qsa_check_scale(args->inv_sqrt_d, report) != GPU_OK ||
        gpu_qsa_check_positions(0, args->seq_len, report) != GPU_OK ||
        gpu_qsa_check_grid(args->nq, 1, report) != GPU_OK ||
        gpu_qsa_check_buffers(needs, COUNT(needs), report) != GPU_OK)
        return GPU_REFUSED;
    return check_sequence(args, report);
}

enum gpu_status gpu_paged_decode_attn(const struct gpu_target *target,
                                      const struct gpu_paged_decode_attn *args,
                                      struct gpu_report *report)
{
    struct gpu_paged_decode_attn numbers = *args;
    uint64_t q = gpu_qsa_address(args->q), out = gpu_qsa_address(args->out);
    uint64_t k_cache = gpu_qsa_address(args->k_cache), v_cache = gpu_qsa_address(args->v_cache);
    uint64_t block_table = gpu_qsa_address(args->block_table);
    void *values[] = {&q,
                      &k_cache,
                      &v_cache,
                      &block_table,
                      &out,
                      &numbers.seq_len,
                      &numbers.block_size,
                      &numbers.nq,
                      &numbers.nkv,
                      &numbers.hd,
                      &numbers.inv_sqrt_d};
    enum gpu_status status = gpu_paged_decode_attn_check(args, report);

    if (status != GPU_OK) return status;
    return gpu_run(target, "paged_decode_attn", (struct gpu_dim){args->nq, 1, 1},
                   (struct gpu_dim){THREADS, 1, 1}, attention_shared_bytes(args->hd), values,
                   report);
}
