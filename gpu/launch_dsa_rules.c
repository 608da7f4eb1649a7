/* Rules that several DSA launchers share. */
#include "launch_dsa_rules.h"

#include <inttypes.h>
#include <math.h>

enum gpu_status gpu_dsa_check_buffers(const struct gpu_dsa_need *needs, uint32_t count,
                                      struct gpu_report *report)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct gpu_dsa_need *need = &needs[i];

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

enum gpu_status gpu_dsa_check_grid(uint64_t x, uint64_t y, struct gpu_report *report)
{
    if (x > INT32_MAX)
        return gpu_refuse(report, "grid_limit",
                          "grid x %" PRIu64 " is beyond the device limit %" PRId32, x, INT32_MAX);
    if (y > GPU_DSA_MAX_GRID_Y)
        return gpu_refuse(report, "grid_limit", "grid y %" PRIu64 " is beyond the device limit %d",
                          y, GPU_DSA_MAX_GRID_Y);
    return GPU_OK;
}

enum gpu_status gpu_dsa_check_kpool(uint32_t kpool, struct gpu_report *report)
{
    if (kpool == 0 || kpool > GPU_DSA_MAX_KPOOL)
        return gpu_refuse(report, "index_kpool_range", "index_kpool %" PRIu32 " is outside 1..%d",
                          kpool, GPU_DSA_MAX_KPOOL);
    return GPU_OK;
}

enum gpu_status gpu_dsa_check_end(const char *name, uint64_t end, struct gpu_report *report)
{
    if (end > (uint64_t)INT32_MAX + 1)
        return gpu_refuse(report, "position_range",
                          "%s reaches index %" PRIu64 ", beyond 2^31 - 1: indices are i32", name,
                          end - 1);
    return GPU_OK;
}

enum gpu_status gpu_dsa_check_scale(const char *name, float scale, struct gpu_report *report)
{
    if (!(scale > 0.0f) || !isfinite(scale))
        return gpu_refuse(report, "scale_positive", "%s %g is not positive and finite", name,
                          (double)scale);
    return GPU_OK;
}

enum gpu_status gpu_dsa_check_dim(uint32_t dim, struct gpu_report *report)
{
    if (dim == 0 || dim % 32 != 0)
        return gpu_refuse(report, "dim_multiple_of_32",
                          "index dimension D %" PRIu32 " is not a positive multiple of 32", dim);
    return GPU_OK;
}

enum gpu_status gpu_dsa_check_first_key(int32_t first_key, uint32_t keys, struct gpu_report *report)
{
    if (first_key < 0 || (uint32_t)first_key > keys)
        return gpu_refuse(report, "first_key",
                          "first_key %" PRId32 " is outside the %" PRIu32 " keys", first_key, keys);
    return GPU_OK;
}

struct gpu_dsa_geometry gpu_dsa_effective(const int32_t *host_geom, struct gpu_dsa_geometry scalars)
{
    if (host_geom == NULL) return scalars;
    return (struct gpu_dsa_geometry){
        .keys = (uint32_t)host_geom[0],
        .pools = (uint32_t)host_geom[1],
        .select_k = (uint32_t)host_geom[3],
        .np2 = (uint32_t)host_geom[4],
    };
}

enum gpu_status gpu_dsa_check_geom_rows(const struct gpu_buffer *geom, const int32_t *host_geom,
                                        uint32_t rows, struct gpu_report *report)
{
    if ((geom != NULL || host_geom != NULL) && rows > 1)
        return gpu_refuse(report, "geom_rows",
                          "a geometry vector is given for %" PRIu32
                          " query rows: its row strides are right for one row only",
                          rows);
    return GPU_OK;
}

/* Whether an entry lies in [0, limit]. */
static bool geom_inside(int32_t entry, uint32_t limit)
{
    return entry >= 0 && (uint32_t)entry <= limit;
}

enum gpu_status gpu_dsa_check_np2(int64_t np2, uint32_t select_k, struct gpu_report *report)
{
    if (np2 <= 0 || (np2 & (np2 - 1)) != 0)
        return gpu_refuse(report, "np2_power_of_two", "NP2 %" PRId64 " is not a power of two", np2);
    if (select_k > np2)
        return gpu_refuse(report, "select_k_np2",
                          "select_k %" PRIu32 " is above NP2 %" PRId64
                          ", the number of entries that are sorted",
                          select_k, np2);
    return GPU_OK;
}

enum gpu_status gpu_dsa_check_geom(const int32_t *host_geom, struct gpu_dsa_geometry scalars,
                                   struct gpu_report *report)
{
    if (host_geom == NULL) return GPU_OK;
    if (!geom_inside(host_geom[0], scalars.keys))
        return gpu_refuse(report, "pool_range",
                          "the geometry vector's S %" PRId32 " is outside 0..S %" PRIu32,
                          host_geom[0], scalars.keys);
    if (!geom_inside(host_geom[1], scalars.pools) ||
        !geom_inside(host_geom[2], (uint32_t)host_geom[1]))
        return gpu_refuse(report, "pool_range",
                          "the geometry vector's %" PRId32 " pools, %" PRId32
                          " of them complete, are outside 0..P %" PRIu32,
                          host_geom[1], host_geom[2], scalars.pools);
    if (!geom_inside(host_geom[3], scalars.select_k))
        return gpu_refuse(report, "select_k_range",
                          "the geometry vector's select_k %" PRId32
                          " is outside 0..select_k %" PRIu32,
                          host_geom[3], scalars.select_k);
    /* One vector serves the whole chain, so its NP2 must be right wherever it is passed. */
    return gpu_dsa_check_np2(host_geom[4], (uint32_t)host_geom[3], report);
}

uint64_t gpu_dsa_address(const struct gpu_buffer *buffer)
{
    return buffer == NULL ? 0 : buffer->address;
}
