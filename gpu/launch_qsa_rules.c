/* Rules that several QSA launchers share. */
#include "launch_qsa_rules.h"

#include <inttypes.h>
#include <math.h>

enum gpu_status gpu_qsa_check_buffers(const struct gpu_qsa_need *needs, size_t count,
                                      struct gpu_report *report)
{
    for (size_t i = 0; i < count; i++) {
        const struct gpu_qsa_need *need = &needs[i];

        if (need->buffer == NULL) continue;
        if (need->buffer->size_bytes < need->bytes) {
            bool huge = need->bytes > UINT64_MAX;

            return gpu_refuse(report, "buffer_size",
                              "%s has %" PRIu64 " bytes and needs %s%" PRIu64, need->name,
                              need->buffer->size_bytes, huge ? "more than " : "",
                              huge ? UINT64_MAX : (uint64_t)need->bytes);
        }
        if (need->bytes > 0 && need->buffer->address % need->align_bytes != 0)
            return gpu_refuse(report, "buffer_align",
                              "%s lies at 0x%" PRIx64 ", not at a multiple of %" PRIu32 " bytes",
                              need->name, need->buffer->address, need->align_bytes);
    }
    return GPU_OK;
}

enum gpu_status gpu_qsa_check_grid(uint64_t x, uint64_t y, struct gpu_report *report)
{
    if (x > INT32_MAX)
        return gpu_refuse(report, "grid_limit",
                          "grid x %" PRIu64 " is beyond the device limit %" PRId32, x, INT32_MAX);
    if (y > GPU_QSA_MAX_GRID_Y)
        return gpu_refuse(report, "grid_limit", "grid y %" PRIu64 " is beyond the device limit %d",
                          y, GPU_QSA_MAX_GRID_Y);
    return GPU_OK;
}

enum gpu_status gpu_qsa_check_hd(uint32_t hd, uint32_t max_hd, struct gpu_report *report)
{
    if (hd % 32 != 0)
        return gpu_refuse(report, "dim_multiple_of_32",
                          "head dimension hd %" PRIu32 " is not a multiple of 32", hd);
    if (hd == 0 || hd > max_hd)
        return gpu_refuse(report, "hd_range",
                          "head dimension hd %" PRIu32 " is outside 32..%" PRIu32, hd, max_hd);
    return GPU_OK;
}

enum gpu_status gpu_qsa_check_ratio(uint32_t ratio, struct gpu_report *report)
{
    if (ratio == 0) return gpu_refuse(report, "ratio_zero", "ratio 0: a block has no tokens");
    return GPU_OK;
}

enum gpu_status gpu_qsa_check_rotation(uint32_t rot, uint32_t hd, float theta, float eps,
                                       struct gpu_report *report)
{
    if (rot % 2 != 0 || rot > hd)
        return gpu_refuse(report, "rot",
                          "rot %" PRIu32 " is odd or above hd %" PRIu32
                          ": rotated dimensions are pairs within a head",
                          rot, hd);
    if (!(theta > 0.0f) || !isfinite(theta))
        return gpu_refuse(report, "theta", "theta %g is not positive and finite", (double)theta);
    if (!(eps >= 0.0f) || !isfinite(eps))
        return gpu_refuse(report, "eps", "eps %g is negative or not finite", (double)eps);
    return GPU_OK;
}

enum gpu_status gpu_qsa_check_positions(uint64_t first, uint64_t count, struct gpu_report *report)
{
    const uint64_t end = (uint64_t)1 << 31;

    if (count > 0 && (first > end || count > end - first))
        return gpu_refuse(report, "position_range",
                          "%" PRIu64 " positions from %" PRIu64
                          " on are not all below 2^31 = %" PRIu64,
                          count, first, end);
    return GPU_OK;
}

enum gpu_status gpu_qsa_check_topk(uint32_t topk, struct gpu_report *report)
{
    if (topk == 0 || topk > GPU_QSA_MAX_TOPK)
        return gpu_refuse(report, "topk_range", "topk %" PRIu32 " is outside 1..%d", topk,
                          GPU_QSA_MAX_TOPK);
    return GPU_OK;
}

enum gpu_status gpu_qsa_check_paging(uint32_t block_size, uint32_t ratio, struct gpu_report *report)
{
    if (block_size == 0)
        return gpu_refuse(report, "block_size_zero", "block_size 0: a page has no slots");
    if (gpu_qsa_check_ratio(ratio, report) != GPU_OK) return GPU_REFUSED;
    if (block_size % ratio != 0)
        return gpu_refuse(report, "block_size_multiple_of_ratio",
                          "block_size %" PRIu32 " is not a multiple of ratio %" PRIu32
                          ": a block would straddle a page boundary",
                          block_size, ratio);
    return GPU_OK;
}

enum gpu_status gpu_qsa_check_heads(uint32_t n, const char *name, struct gpu_report *report)
{
    if (n == 0) return gpu_refuse(report, "degenerate", "%s is 0: there are no heads", name);
    return GPU_OK;
}

enum gpu_status gpu_qsa_check_scale(float inv_sqrt_d, struct gpu_report *report)
{
    if (!(inv_sqrt_d > 0.0f) || !isfinite(inv_sqrt_d))
        return gpu_refuse(report, "scale_positive", "inv_sqrt_d %g is not positive and finite",
                          (double)inv_sqrt_d);
    return GPU_OK;
}

enum gpu_status gpu_qsa_check_kv_heads(uint32_t nkv, struct gpu_report *report)
{
    if (nkv == 0) return gpu_refuse(report, "kv_head_groups", "nkv 0: the cache has no heads");
    return GPU_OK;
}

enum gpu_status gpu_qsa_check_head_groups(uint32_t nq, uint32_t nkv, struct gpu_report *report)
{
    if (gpu_qsa_check_heads(nq, "nq", report) != GPU_OK ||
        gpu_qsa_check_kv_heads(nkv, report) != GPU_OK)
        return GPU_REFUSED;
    if (nq % nkv != 0)
        return gpu_refuse(report, "kv_head_groups",
                          "nq %" PRIu32 " query heads are not a multiple of nkv %" PRIu32
                          " cache heads",
                          nq, nkv);
    return GPU_OK;
}

enum gpu_status gpu_qsa_check_page(const struct gpu_qsa_table *table, uint32_t page,
                                   struct gpu_report *report)
{
    if (page >= table->length)
        return gpu_refuse(report, "block_table_entry",
                          "logical page %" PRIu32 " is used and the block table has %" PRIu32
                          " entries",
                          page, table->length);
    if (table->host == NULL) return GPU_OK;
    if (table->host[page] < 0 || (uint32_t)table->host[page] >= table->num_pages)
        return gpu_refuse(report, "block_table_entry",
                          "block table entry %" PRId32 " of logical page %" PRIu32
                          " is used and outside [0, %" PRIu32 ")",
                          table->host[page], page, table->num_pages);
    return GPU_OK;
}

enum gpu_status gpu_qsa_check_length(uint64_t tokens, uint32_t table_len, uint32_t block_size,
                                     struct gpu_report *report)
{
    uint64_t pages = tokens / block_size + (tokens % block_size != 0);

    if (pages > table_len)
        return gpu_refuse(report, "seq_len_range",
                          "%" PRIu64 " tokens need %" PRIu64 " pages of %" PRIu32
                          " slots and the block table has %" PRIu32 " entries",
                          tokens, pages, block_size, table_len);
    return GPU_OK;
}

uint32_t gpu_qsa_complete(uint32_t position, uint32_t ratio)
{
    return (position + 1) / ratio;
}

uint64_t gpu_qsa_address(const struct gpu_buffer *buffer)
{
    return buffer == NULL ? 0 : buffer->address;
}
