/* Launchers behind the DSA selection: token ids of the chosen pools, the selection as a mask, and
 * dense attention under that mask. */
#include "launch_dsa_rules.h"

#include <inttypes.h>

enum { SELECT_THREADS = 256 };

static struct gpu_dsa_geometry expand_scalars(const struct gpu_dsa_expand_selection *args)
{
    return (struct gpu_dsa_geometry){
        .keys = args->S, .pools = args->P, .select_k = args->select_k, .np2 = UINT32_MAX};
}

static enum gpu_status check_width(const struct gpu_dsa_expand_selection *args,
                                   struct gpu_report *report)
{
    uint32_t tail = args->always_tail != 0 ? args->KP - 1 : 0;

    if (args->index_topk == 0 || args->index_topk % args->KP != 0)
        return gpu_refuse(report, "index_topk_multiple",
                          "index_topk %" PRIu32
                          " is not a positive multiple of index_kpool %" PRIu32,
                          args->index_topk, args->KP);
    if (args->width != (uint64_t)args->index_topk + tail)
        return gpu_refuse(report, "width",
                          "row width %" PRIu32 " is not index_topk %" PRIu32 " + %" PRIu32
                          " tail slots",
                          args->width, args->index_topk, tail);
    return GPU_OK;
}

static enum gpu_status check_select_k(const struct gpu_dsa_expand_selection *args,
                                      struct gpu_report *report)
{
    if (args->select_k > args->index_topk / args->KP)
        return gpu_refuse(report, "select_k_range",
                          "select_k %" PRIu32 " is above index_topk / index_kpool = %" PRIu32
                          ": the pools would not fit the row",
                          args->select_k, args->index_topk / args->KP);
    return GPU_OK;
}

static enum gpu_status check_expand_buffers(const struct gpu_dsa_expand_selection *args,
                                            struct gpu_report *report)
{
    struct gpu_dsa_geometry now = gpu_dsa_effective(args->host_geom, expand_scalars(args));
    const struct gpu_dsa_need needs[] = {
        {args->selected, "selected", (gpu_wide)4 * args->Q * now.select_k, 4},
        {args->pool_indices, "pool_indices", (gpu_wide)4 * now.pools * args->KP, 4},
        {args->valid_cand, "valid_cand", (gpu_wide)args->Q * now.pools, 1},
        {args->valid_keys, "valid_keys", now.keys, 1},
        {args->q_pos, "q_pos", (gpu_wide)4 * args->Q, 4},
        {args->q_mask, "q_mask", args->Q, 1},
        {args->out, "out", (gpu_wide)4 * args->Q * args->width, 4},
        {args->geom, "geom", 4 * GPU_DSA_GEOM_INTS, 4},
    };

    return gpu_dsa_check_buffers(needs, sizeof(needs) / sizeof(needs[0]), report);
}

/* first_key is the first valid token: the kernel counts the valid keys up to the query and lets the
 * tail end first_key + count, so a valid key before first_key yields ids behind the query. */
static enum gpu_status check_valid_keys(const struct gpu_dsa_expand_selection *args,
                                        struct gpu_report *report)
{
    uint32_t keys = gpu_dsa_effective(args->host_geom, expand_scalars(args)).keys, first = 0;

    if (args->always_tail == 0 || args->host_valid_keys == NULL || args->host_q_pos == NULL ||
        args->host_q_mask == NULL)
        return GPU_OK;
    while (first < keys && first < (uint32_t)args->first_key && args->host_valid_keys[first] == 0)
        first++;
    if (first == keys || first >= (uint32_t)args->first_key) return GPU_OK;
    for (uint32_t query = 0; query < args->Q; query++) {
        if (args->host_q_mask[query] != 0 && args->host_q_pos[query] >= (int64_t)first)
            return gpu_refuse(report, "first_key",
                              "first_key %" PRId32 " is not the first valid token: token %" PRIu32
                              " is valid, and query %" PRIu32 " at %" PRId32 " counts it",
                              args->first_key, first, query, args->host_q_pos[query]);
    }
    return GPU_OK;
}

enum gpu_status gpu_dsa_expand_selection_check(const struct gpu_dsa_expand_selection *args,
                                               struct gpu_report *report)
{
    if (gpu_dsa_check_kpool(args->KP, report) != GPU_OK || check_width(args, report) != GPU_OK ||
        check_select_k(args, report) != GPU_OK ||
        gpu_dsa_check_geom(args->host_geom, expand_scalars(args), report) != GPU_OK ||
        gpu_dsa_check_geom_rows(args->geom, args->host_geom, args->Q, report) != GPU_OK ||
        gpu_dsa_check_end("S", args->S, report) != GPU_OK ||
        gpu_dsa_check_first_key(args->first_key, args->S, report) != GPU_OK ||
        gpu_dsa_check_grid(args->Q, 1, report) != GPU_OK ||
        check_valid_keys(args, report) != GPU_OK)
        return GPU_REFUSED;
    return check_expand_buffers(args, report);
}

enum gpu_status gpu_dsa_expand_selection(const struct gpu_target *target,
                                         const struct gpu_dsa_expand_selection *args,
                                         struct gpu_report *report)
{
    enum gpu_status status = gpu_dsa_expand_selection_check(args, report);
    struct gpu_dsa_expand_selection numbers = *args;
    uint64_t selected = gpu_dsa_address(args->selected);
    uint64_t pool_indices = gpu_dsa_address(args->pool_indices);
    uint64_t valid_cand = gpu_dsa_address(args->valid_cand);
    uint64_t valid_keys = gpu_dsa_address(args->valid_keys), q_pos = gpu_dsa_address(args->q_pos);
    uint64_t q_mask = gpu_dsa_address(args->q_mask), out = gpu_dsa_address(args->out);
    uint64_t geom = gpu_dsa_address(args->geom);
    void *values[] = {&selected,
                      &pool_indices,
                      &valid_cand,
                      &valid_keys,
                      &q_pos,
                      &q_mask,
                      &out,
                      &numbers.Q,
                      &numbers.P,
                      &numbers.KP,
                      &numbers.S,
                      &numbers.select_k,
                      &numbers.width,
                      &numbers.first_key,
                      &numbers.always_tail,
                      &geom};

    if (status != GPU_OK) return status;
    return gpu_run(target, "dsa_expand_selection", (struct gpu_dim){args->Q, 1, 1},
                   (struct gpu_dim){SELECT_THREADS, 1, 1}, 0, values, report);
}

enum gpu_status gpu_dsa_topk_to_mask_check(const struct gpu_dsa_topk_to_mask *args,
                                           struct gpu_report *report)
{
    const struct gpu_dsa_need needs[] = {
        {args->topk, "topk", (gpu_wide)4 * args->Q * args->width, 4},
        {args->mask, "mask", (gpu_wide)args->Q * args->S, 1},
    };

    if (gpu_dsa_check_grid(args->Q, 1, report) != GPU_OK) return GPU_REFUSED;
    return gpu_dsa_check_buffers(needs, sizeof(needs) / sizeof(needs[0]), report);
}

enum gpu_status gpu_dsa_topk_to_mask(const struct gpu_target *target,
                                     const struct gpu_dsa_topk_to_mask *args,
                                     struct gpu_report *report)
{
    enum gpu_status status = gpu_dsa_topk_to_mask_check(args, report);
    struct gpu_dsa_topk_to_mask numbers = *args;
    uint64_t topk = gpu_dsa_address(args->topk), mask = gpu_dsa_address(args->mask);
    void *values[] = {&topk, &mask, &numbers.Q, &numbers.width, &numbers.S};

    if (status != GPU_OK) return status;
    return gpu_run(target, "dsa_topk_to_mask", (struct gpu_dim){args->Q, 1, 1},
                   (struct gpu_dim){SELECT_THREADS, 1, 1}, 0, values, report);
}

enum gpu_status gpu_dsa_mla_masked_attn_check(const struct gpu_dsa_mla_masked_attn *args,
                                              struct gpu_report *report)
{
    gpu_wide query_heads = (gpu_wide)args->Q * args->H, key_heads = (gpu_wide)args->S * args->H;
    const struct gpu_dsa_need needs[] = {
        {args->q, "q", 2 * query_heads * args->qd, 2},
        {args->k, "k", 2 * key_heads * args->qd, 2},
        {args->v, "v", 2 * key_heads * args->vd, 2},
        {args->mask, "mask", (gpu_wide)args->Q * args->S, 1},
        {args->out, "out", 4 * query_heads * args->vd, 4},
    };

    if (args->S > GPU_DSA_MAX_MASKED_KEYS)
        return gpu_refuse(report, "masked_attn_rows",
                          "S %" PRIu32
                          " is above %d: the score row must fit 48 KiB of shared memory",
                          args->S, GPU_DSA_MAX_MASKED_KEYS);
    if (gpu_dsa_check_scale("scale", args->scale, report) != GPU_OK ||
        gpu_dsa_check_grid(args->Q, args->H, report) != GPU_OK)
        return GPU_REFUSED;
    return gpu_dsa_check_buffers(needs, sizeof(needs) / sizeof(needs[0]), report);
}

enum gpu_status gpu_dsa_mla_masked_attn(const struct gpu_target *target,
                                        const struct gpu_dsa_mla_masked_attn *args,
                                        struct gpu_report *report)
{
    enum gpu_status status = gpu_dsa_mla_masked_attn_check(args, report);
    struct gpu_dsa_mla_masked_attn numbers = *args;
    uint64_t q = gpu_dsa_address(args->q), k = gpu_dsa_address(args->k);
    uint64_t v = gpu_dsa_address(args->v), mask = gpu_dsa_address(args->mask);
    uint64_t out = gpu_dsa_address(args->out);
    void *values[] = {&q,
                      &k,
                      &v,
                      &mask,
                      &out,
                      &numbers.Q,
                      &numbers.S,
                      &numbers.H,
                      &numbers.qd,
                      &numbers.vd,
                      &numbers.scale,
                      &numbers.round_scores_bf16};

    if (status != GPU_OK) return status;
    return gpu_run(target, "dsa_mla_masked_attn", (struct gpu_dim){args->Q, args->H, 1},
                   (struct gpu_dim){SELECT_THREADS, 1, 1}, 4 * args->S, values, report);
}
