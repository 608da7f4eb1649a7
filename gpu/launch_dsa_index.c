/* Launchers of the DSA indexer: pooled keys, pool scores and the best pools. */
#include "launch_dsa_rules.h"

#include <inttypes.h>

enum {
    COMPRESS_THREADS = 128,
    SCORE_THREADS = 256,
    SCORE_TILE_POOLS = 128, /* of a CTA of dsa_index_scores_tiled */
    TOPK_THREADS = 256,
    STATIC_SHARED_BYTES = 49152, /* a kernel's static shared memory, at most */
};

/* The limits of a geometry vector; none on entries that the operation does not read. */
static struct gpu_dsa_geometry compress_scalars(const struct gpu_dsa_kpool_compress *args)
{
    return (struct gpu_dsa_geometry){
        .keys = args->S, .pools = args->pools, .select_k = UINT32_MAX, .np2 = UINT32_MAX};
}

static enum gpu_status check_compress_buffers(const struct gpu_dsa_kpool_compress *args,
                                              struct gpu_report *report)
{
    struct gpu_dsa_geometry now = gpu_dsa_effective(args->host_geom, compress_scalars(args));
    gpu_wide key_elems = (gpu_wide)now.keys * args->D;
    const struct gpu_dsa_need needs[] = {
        {args->k, "k", 2 * key_elems, 2},
        {args->gate, "gate", 2 * key_elems, 2},
        {args->valid, "valid", now.keys, 1},
        {args->ape, "ape", (gpu_wide)4 * args->KP * args->D, 4},
        {args->pool_keys, "pool_keys", (gpu_wide)4 * now.pools * args->D, 4},
        {args->pool_indices, "pool_indices", (gpu_wide)4 * now.pools * args->KP, 4},
        {args->pool_valid, "pool_valid", now.pools, 1},
        {args->geom, "geom", 4 * GPU_DSA_GEOM_INTS, 4},
    };

    return gpu_dsa_check_buffers(needs, sizeof(needs) / sizeof(needs[0]), report);
}

enum gpu_status gpu_dsa_kpool_compress_check(const struct gpu_dsa_kpool_compress *args,
                                             struct gpu_report *report)
{
    if (gpu_dsa_check_kpool(args->KP, report) != GPU_OK ||
        gpu_dsa_check_dim(args->D, report) != GPU_OK)
        return GPU_REFUSED;
    if (args->block_size % args->KP != 0)
        return gpu_refuse(report, "block_size_multiple_of_kpool",
                          "block_size %" PRIu32 " is not a multiple of index_kpool %" PRIu32
                          ": a pool would straddle a page boundary",
                          args->block_size, args->KP);
    if (gpu_dsa_check_first_key(args->first_key, args->S, report) != GPU_OK ||
        gpu_dsa_check_end("S", args->S, report) != GPU_OK ||
        gpu_dsa_check_end("the last pool",
                          (uint32_t)args->first_key + (uint64_t)args->pools * args->KP,
                          report) != GPU_OK ||
        gpu_dsa_check_grid(args->pools, 1, report) != GPU_OK ||
        gpu_dsa_check_geom(args->host_geom, compress_scalars(args), report) != GPU_OK)
        return GPU_REFUSED;
    return check_compress_buffers(args, report);
}

enum gpu_status gpu_dsa_kpool_compress(const struct gpu_target *target,
                                       const struct gpu_dsa_kpool_compress *args,
                                       struct gpu_report *report)
{
    enum gpu_status status = gpu_dsa_kpool_compress_check(args, report);
    struct gpu_dsa_kpool_compress numbers = *args;
    uint64_t k = gpu_dsa_address(args->k), gate = gpu_dsa_address(args->gate);
    uint64_t valid = gpu_dsa_address(args->valid), ape = gpu_dsa_address(args->ape);
    uint64_t pool_keys = gpu_dsa_address(args->pool_keys);
    uint64_t pool_indices = gpu_dsa_address(args->pool_indices);
    uint64_t pool_valid = gpu_dsa_address(args->pool_valid), geom = gpu_dsa_address(args->geom);
    void *values[] = {
        &k,          &gate,      &valid,     &ape,        &pool_keys,         &pool_indices,
        &pool_valid, &numbers.S, &numbers.D, &numbers.KP, &numbers.first_key, &geom};

    if (status != GPU_OK) return status;
    return gpu_run(target, "dsa_kpool_compress", (struct gpu_dim){args->pools, 1, 1},
                   (struct gpu_dim){COMPRESS_THREADS, 1, 1}, 0, values, report);
}

static struct gpu_dsa_geometry scores_scalars(const struct gpu_dsa_index_scores *args)
{
    return (struct gpu_dsa_geometry){
        .keys = args->S, .pools = args->P, .select_k = UINT32_MAX, .np2 = UINT32_MAX};
}

static enum gpu_status check_scores_buffers(const struct gpu_dsa_index_scores *args,
                                            struct gpu_report *report)
{
    struct gpu_dsa_geometry now = gpu_dsa_effective(args->host_geom, scores_scalars(args));
    gpu_wide cells = (gpu_wide)args->Q * now.pools;
    const struct gpu_dsa_need needs[] = {
        {args->q, "q", (gpu_wide)4 * args->Q * args->H * args->D, 4},
        {args->pool_keys, "pool_keys", (gpu_wide)4 * now.pools * args->D, 4},
        {args->weights, "weights", (gpu_wide)4 * args->Q * args->H, 4},
        {args->pool_indices, "pool_indices", (gpu_wide)4 * now.pools * args->KP, 4},
        {args->pool_valid, "pool_valid", now.pools, 1},
        {args->valid_keys, "valid_keys", now.keys, 1},
        {args->q_pos, "q_pos", (gpu_wide)4 * args->Q, 4},
        {args->out, "out", 4 * cells, 4},
        {args->valid_cand, "valid_cand", cells, 1},
        {args->geom, "geom", 4 * GPU_DSA_GEOM_INTS, 4},
    };

    return gpu_dsa_check_buffers(needs, sizeof(needs) / sizeof(needs[0]), report);
}

static enum gpu_status check_pool_indices(const struct gpu_dsa_index_scores *args,
                                          struct gpu_report *report)
{
    struct gpu_dsa_geometry now = gpu_dsa_effective(args->host_geom, scores_scalars(args));
    uint64_t count = (uint64_t)now.pools * args->KP;

    for (uint64_t i = 0; args->host_pool_indices != NULL && i < count; i++) {
        int32_t token = args->host_pool_indices[i];

        /* -1 stands for an invalid slot; no other negative number stands for anything. */
        if (token < -1 || (token >= 0 && (uint32_t)token >= now.keys))
            return gpu_refuse(report, "pool_range",
                              "token %" PRId32 " of pool %" PRIu64 " is outside the %" PRIu32
                              " keys",
                              token, i / args->KP, now.keys);
    }
    return GPU_OK;
}

static uint32_t score_shared_bytes(uint32_t heads)
{
    return heads > 256 ? 4 * heads : 1024;
}

static enum gpu_status check_heads(uint32_t heads, struct gpu_report *report)
{
    if (heads > (GPU_DSA_MAX_SHARED_BYTES - STATIC_SHARED_BYTES) / 4)
        return gpu_refuse(report, "shared_limit",
                          "%" PRIu32 " heads need %" PRIu64
                          " bytes of dynamic shared memory, beyond %d: the device limit less what "
                          "a kernel may have of static shared memory",
                          heads, (uint64_t)4 * heads,
                          GPU_DSA_MAX_SHARED_BYTES - STATIC_SHARED_BYTES);
    return GPU_OK;
}

enum gpu_status gpu_dsa_index_scores_check(const struct gpu_dsa_index_scores *args,
                                           struct gpu_report *report)
{
    if (gpu_dsa_check_kpool(args->KP, report) != GPU_OK ||
        gpu_dsa_check_dim(args->D, report) != GPU_OK || check_heads(args->H, report) != GPU_OK ||
        gpu_dsa_check_scale("scale", args->scale, report) != GPU_OK ||
        gpu_dsa_check_geom_rows(args->geom, args->host_geom, args->Q, report) != GPU_OK ||
        gpu_dsa_check_grid(args->P, args->Q, report) != GPU_OK ||
        gpu_dsa_check_geom(args->host_geom, scores_scalars(args), report) != GPU_OK ||
        gpu_dsa_check_end("S", args->S, report) != GPU_OK ||
        check_scores_buffers(args, report) != GPU_OK)
        return GPU_REFUSED;
    return check_pool_indices(args, report);
}

static enum gpu_status run_scores(const struct gpu_target *target, const char *entry,
                                  uint32_t grid_x, uint32_t shared_bytes,
                                  const struct gpu_dsa_index_scores *args,
                                  struct gpu_report *report)
{
    enum gpu_status status = gpu_dsa_index_scores_check(args, report);
    struct gpu_dsa_index_scores numbers = *args;
    uint64_t q = gpu_dsa_address(args->q), pool_keys = gpu_dsa_address(args->pool_keys);
    uint64_t weights = gpu_dsa_address(args->weights);
    uint64_t pool_indices = gpu_dsa_address(args->pool_indices);
    uint64_t pool_valid = gpu_dsa_address(args->pool_valid);
    uint64_t valid_keys = gpu_dsa_address(args->valid_keys), q_pos = gpu_dsa_address(args->q_pos);
    uint64_t out = gpu_dsa_address(args->out), valid_cand = gpu_dsa_address(args->valid_cand);
    uint64_t geom = gpu_dsa_address(args->geom);
    void *values[] = {
        &q,         &pool_keys,  &weights,    &pool_indices,  &pool_valid, &valid_keys,
        &q_pos,     &out,        &valid_cand, &numbers.Q,     &numbers.P,  &numbers.H,
        &numbers.D, &numbers.KP, &numbers.S,  &numbers.scale, &geom};

    if (status != GPU_OK) return status;
    return gpu_run(target, entry, (struct gpu_dim){grid_x, args->Q, 1},
                   (struct gpu_dim){SCORE_THREADS, 1, 1}, shared_bytes, values, report);
}

enum gpu_status gpu_dsa_index_scores(const struct gpu_target *target,
                                     const struct gpu_dsa_index_scores *args,
                                     struct gpu_report *report)
{
    return run_scores(target, "dsa_index_scores", args->P, score_shared_bytes(args->H), args,
                      report);
}

enum gpu_status gpu_dsa_index_scores_tiled(const struct gpu_target *target,
                                           const struct gpu_dsa_index_scores *args,
                                           struct gpu_report *report)
{
    return run_scores(target, "dsa_index_scores_tiled",
                      args->P / SCORE_TILE_POOLS + (args->P % SCORE_TILE_POOLS != 0), 0, args,
                      report);
}

static struct gpu_dsa_geometry topk_scalars(const struct gpu_dsa_topk_pools *args)
{
    return (struct gpu_dsa_geometry){
        .keys = UINT32_MAX, .pools = args->P, .select_k = args->select_k, .np2 = args->NP2};
}

static enum gpu_status check_pool_count(uint32_t pools, struct gpu_report *report)
{
    if (pools > INT32_MAX)
        return gpu_refuse(report, "position_range", "P %" PRIu32 " is not below 2^31: ids are i32",
                          pools);
    return GPU_OK;
}

static enum gpu_status check_topk_shared(uint32_t np2, struct gpu_report *report)
{
    uint64_t bytes = (uint64_t)16 * np2;

    if (bytes > GPU_DSA_MAX_SHARED_BYTES)
        return gpu_refuse(report, "shared_limit",
                          "NP2 %" PRIu32 " needs %" PRIu64
                          " bytes of shared memory, beyond the device limit %d",
                          np2, bytes, GPU_DSA_MAX_SHARED_BYTES);
    return GPU_OK;
}

enum gpu_status gpu_dsa_topk_pools_check(const struct gpu_dsa_topk_pools *args,
                                         struct gpu_report *report)
{
    struct gpu_dsa_geometry now = gpu_dsa_effective(args->host_geom, topk_scalars(args));
    const struct gpu_dsa_need needs[] = {
        {args->scores, "scores", (gpu_wide)4 * args->Q * now.pools, 4},
        {args->selected, "selected", (gpu_wide)4 * args->Q * now.select_k, 4},
        {args->geom, "geom", 4 * GPU_DSA_GEOM_INTS, 4},
    };

    if (gpu_dsa_check_np2(args->NP2, args->select_k, report) != GPU_OK ||
        gpu_dsa_check_geom(args->host_geom, topk_scalars(args), report) != GPU_OK ||
        gpu_dsa_check_geom_rows(args->geom, args->host_geom, args->Q, report) != GPU_OK ||
        check_pool_count(args->P, report) != GPU_OK ||
        check_topk_shared(args->NP2, report) != GPU_OK ||
        gpu_dsa_check_grid(args->Q, 1, report) != GPU_OK)
        return GPU_REFUSED;
    return gpu_dsa_check_buffers(needs, sizeof(needs) / sizeof(needs[0]), report);
}

enum gpu_status gpu_dsa_topk_pools(const struct gpu_target *target,
                                   const struct gpu_dsa_topk_pools *args, struct gpu_report *report)
{
    enum gpu_status status = gpu_dsa_topk_pools_check(args, report);
    struct gpu_dsa_topk_pools numbers = *args;
    uint64_t scores = gpu_dsa_address(args->scores), selected = gpu_dsa_address(args->selected);
    uint64_t geom = gpu_dsa_address(args->geom);
    void *values[] = {&scores,      &selected,         &numbers.Q, &numbers.P,
                      &numbers.NP2, &numbers.select_k, &geom};

    if (status != GPU_OK) return status;
    return gpu_run(target, "dsa_topk_pools", (struct gpu_dim){args->Q, 1, 1},
                   (struct gpu_dim){TOPK_THREADS, 1, 1}, 16 * args->NP2, values, report);
}
