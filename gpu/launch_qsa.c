/* Launchers of the QSA indexer: pooled keys, prepared queries, scores, top-k rows. */
#include "launch_qsa_rules.h"

#include <inttypes.h>

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

enum {
    THREADS = 256,
    TC_HEADS = 4,
    TC_HD = 128,
    TC_ROWS = 16,
    TC_BLOCKS = 64,
    SCORE_TILE = 64,          /* rows and blocks of a tile of qsa_score_rows_tiled */
    SCORE_SHARED_BYTES = 128, /* 32 partial sums */
    /* struct topk_scratch of kernels/topk_stream.cuh: 1024 counters, one a warp, twelve numbers,
     * and 16-bit places of 1024 + 32 entries; beside it room for a tile of 2048 and 256 to spare.
     */
    TOPK_SCRATCH_BYTES = 4 * (1024 + 8 + 12) + 2 * (1024 + 32),
    TOPK_ROOM = 2048 + 256,
};

/* hd floats of exchange and 32 partial sums. */
static uint32_t norm_shared_bytes(uint32_t hd)
{
    return 4 * (hd + 32);
}

enum gpu_status gpu_qsa_block_pool_check(const struct gpu_qsa_block_pool *args,
                                         struct gpu_report *report)
{
    uint64_t end_block = (uint64_t)args->first_block + args->n_new;
    gpu_qsa_wide end_token = (gpu_qsa_wide)end_block * args->ratio;
    const struct gpu_qsa_need needs[] = {
        {args->raw_keys, "raw_keys", (gpu_qsa_wide)2 * args->S * args->hd, 2},
        {args->k_norm_w, "k_norm_w", (gpu_qsa_wide)2 * args->hd, 2},
        {args->block_keys, "block_keys", (gpu_qsa_wide)2 * args->max_blocks * args->hd, 2},
    };

    if (gpu_qsa_check_hd(args->hd, GPU_QSA_MAX_HD, report) != GPU_OK ||
        gpu_qsa_check_ratio(args->ratio, report) != GPU_OK ||
        gpu_qsa_check_rotation(args->rot, args->hd, args->theta, args->eps, report) != GPU_OK)
        return GPU_REFUSED;
    if (args->block_size != 0 &&
        gpu_qsa_check_paging(args->block_size, args->ratio, report) != GPU_OK)
        return GPU_REFUSED;
    if (end_block > args->max_blocks)
        return gpu_refuse(report, "max_blocks",
                          "blocks %" PRIu32 " to %" PRIu64 " do not fit the %" PRIu32
                          " rows of block_keys",
                          args->first_block, end_block, args->max_blocks);
    if (end_token > args->S)
        return gpu_refuse(report, "pool_range",
                          "%" PRIu64 " blocks of %" PRIu32 " tokens need more than the %" PRIu32
                          " raw keys there are",
                          end_block, args->ratio, args->S);
    if (gpu_qsa_check_positions(0, (uint64_t)end_token, report) != GPU_OK ||
        gpu_qsa_check_grid(args->n_new, 1, report) != GPU_OK)
        return GPU_REFUSED;
    return gpu_qsa_check_buffers(needs, COUNT(needs), report);
}

enum gpu_status gpu_qsa_block_pool(const struct gpu_target *target,
                                   const struct gpu_qsa_block_pool *args, struct gpu_report *report)
{
    struct gpu_qsa_block_pool numbers = *args;
    uint64_t raw_keys = gpu_qsa_address(args->raw_keys);
    uint64_t k_norm_w = gpu_qsa_address(args->k_norm_w);
    uint64_t block_keys = gpu_qsa_address(args->block_keys);
    void *values[] = {&raw_keys,      &k_norm_w,   &block_keys,  &numbers.first_block,
                      &numbers.ratio, &numbers.hd, &numbers.rot, &numbers.theta,
                      &numbers.eps};
    enum gpu_status status = gpu_qsa_block_pool_check(args, report);

    if (status != GPU_OK) return status;
    return gpu_run(target, "qsa_block_pool", (struct gpu_dim){args->n_new, 1, 1},
                   (struct gpu_dim){args->hd, 1, 1}, norm_shared_bytes(args->hd), values, report);
}

enum gpu_status gpu_qsa_qprep_check(const struct gpu_qsa_qprep *args, struct gpu_report *report)
{
    gpu_qsa_wide values = (gpu_qsa_wide)args->n_heads * args->hd;
    const struct gpu_qsa_need needs[] = {
        {args->q_in, "q_in", 2 * values, 2},
        {args->q_norm_w, "q_norm_w", (gpu_qsa_wide)2 * args->hd, 2},
        {args->q_out, "q_out", 4 * values, 4},
    };

    if (gpu_qsa_check_hd(args->hd, GPU_QSA_MAX_HD, report) != GPU_OK ||
        gpu_qsa_check_rotation(args->rot, args->hd, args->theta, args->eps, report) != GPU_OK ||
        gpu_qsa_check_heads(args->n_heads, "n_heads", report) != GPU_OK ||
        gpu_qsa_check_positions(args->pos, 1, report) != GPU_OK ||
        gpu_qsa_check_grid(args->n_heads, 1, report) != GPU_OK)
        return GPU_REFUSED;
    return gpu_qsa_check_buffers(needs, COUNT(needs), report);
}

enum gpu_status gpu_qsa_qprep(const struct gpu_target *target, const struct gpu_qsa_qprep *args,
                              struct gpu_report *report)
{
    struct gpu_qsa_qprep numbers = *args;
    uint64_t q_in = gpu_qsa_address(args->q_in), q_norm_w = gpu_qsa_address(args->q_norm_w);
    uint64_t q_out = gpu_qsa_address(args->q_out);
    void *values[] = {&q_in,        &q_norm_w,    &q_out,         &numbers.hd,
                      &numbers.rot, &numbers.pos, &numbers.theta, &numbers.eps};
    enum gpu_status status = gpu_qsa_qprep_check(args, report);

    if (status != GPU_OK) return status;
    return gpu_run(target, "qsa_qprep", (struct gpu_dim){args->n_heads, 1, 1},
                   (struct gpu_dim){args->hd, 1, 1}, norm_shared_bytes(args->hd), values, report);
}

enum gpu_status gpu_qsa_qprep_rows_check(const struct gpu_qsa_qprep_rows *args,
                                         struct gpu_report *report)
{
    gpu_qsa_wide row_values = (gpu_qsa_wide)args->n_heads * args->hd;
    const struct gpu_qsa_need needs[] = {
        {args->qk, "qk", (gpu_qsa_wide)2 * args->rows * args->qkw, 2},
        {args->q_norm_w, "q_norm_w", (gpu_qsa_wide)2 * args->hd, 2},
        {args->q_out, "q_out", 4 * row_values * args->rows, 4},
    };

    if (gpu_qsa_check_hd(args->hd, GPU_QSA_MAX_HD, report) != GPU_OK ||
        gpu_qsa_check_rotation(args->rot, args->hd, args->theta, args->eps, report) != GPU_OK ||
        gpu_qsa_check_heads(args->n_heads, "n_heads", report) != GPU_OK)
        return GPU_REFUSED;
    if (args->qkw < row_values)
        return gpu_refuse(report, "qkw",
                          "row width qkw %" PRIu32 " is below n_heads %" PRIu32 " * hd %" PRIu32
                          ": the queries of a row do not fit",
                          args->qkw, args->n_heads, args->hd);
    if (gpu_qsa_check_positions(args->first_pos, args->rows, report) != GPU_OK ||
        gpu_qsa_check_grid(args->rows, args->n_heads, report) != GPU_OK)
        return GPU_REFUSED;
    return gpu_qsa_check_buffers(needs, COUNT(needs), report);
}

enum gpu_status gpu_qsa_qprep_rows(const struct gpu_target *target,
                                   const struct gpu_qsa_qprep_rows *args, struct gpu_report *report)
{
    struct gpu_qsa_qprep_rows numbers = *args;
    uint64_t qk = gpu_qsa_address(args->qk), q_norm_w = gpu_qsa_address(args->q_norm_w);
    uint64_t q_out = gpu_qsa_address(args->q_out);
    void *values[] = {&qk,
                      &q_norm_w,
                      &q_out,
                      &numbers.first_pos,
                      &numbers.qkw,
                      &numbers.n_heads,
                      &numbers.hd,
                      &numbers.rot,
                      &numbers.theta,
                      &numbers.eps};
    enum gpu_status status = gpu_qsa_qprep_rows_check(args, report);

    if (status != GPU_OK) return status;
    return gpu_run(target, "qsa_qprep_rows", (struct gpu_dim){args->rows, args->n_heads, 1},
                   (struct gpu_dim){args->hd, 1, 1}, norm_shared_bytes(args->hd), values, report);
}

enum gpu_status gpu_qsa_score_check(const struct gpu_qsa_score *args, struct gpu_report *report)
{
    const struct gpu_qsa_need needs[] = {
        {args->q, "q", (gpu_qsa_wide)4 * args->n_heads * args->hd, 4},
        {args->block_keys, "block_keys", (gpu_qsa_wide)2 * args->n_blocks * args->hd, 2},
        {args->scores, "scores", (gpu_qsa_wide)4 * args->n_blocks, 4},
    };

    if (gpu_qsa_check_hd(args->hd, GPU_QSA_MAX_HD, report) != GPU_OK ||
        gpu_qsa_check_heads(args->n_heads, "n_heads", report) != GPU_OK ||
        gpu_qsa_check_grid(args->n_blocks, 1, report) != GPU_OK)
        return GPU_REFUSED;
    return gpu_qsa_check_buffers(needs, COUNT(needs), report);
}

enum gpu_status gpu_qsa_score(const struct gpu_target *target, const struct gpu_qsa_score *args,
                              struct gpu_report *report)
{
    struct gpu_qsa_score numbers = *args;
    uint64_t q = gpu_qsa_address(args->q), block_keys = gpu_qsa_address(args->block_keys);
    uint64_t scores = gpu_qsa_address(args->scores);
    void *values[] = {&q, &block_keys, &scores, &numbers.n_heads, &numbers.hd};
    enum gpu_status status = gpu_qsa_score_check(args, report);

    if (status != GPU_OK) return status;
    return gpu_run(target, "qsa_score", (struct gpu_dim){args->n_blocks, 1, 1},
                   (struct gpu_dim){args->hd, 1, 1}, SCORE_SHARED_BYTES, values, report);
}

/* What both kernels ask, `buffer_rows` being the rows that q and scores are allocated for. */
static enum gpu_status check_score_rows(const struct gpu_qsa_score_rows *args, uint64_t buffer_rows,
                                        uint32_t align_bytes, struct gpu_report *report)
{
    const struct gpu_qsa_need needs[] = {
        {args->q, "q", (gpu_qsa_wide)4 * buffer_rows * args->n_heads * args->hd,
         align_bytes > 4 ? align_bytes : 4},
        {args->block_keys, "block_keys", (gpu_qsa_wide)2 * args->n_blocks_max * args->hd,
         align_bytes},
        {args->scores, "scores", (gpu_qsa_wide)4 * buffer_rows * args->score_stride, 4},
    };

    if (gpu_qsa_check_hd(args->hd, GPU_QSA_MAX_HD, report) != GPU_OK ||
        gpu_qsa_check_heads(args->n_heads, "n_heads", report) != GPU_OK ||
        gpu_qsa_check_ratio(args->ratio, report) != GPU_OK)
        return GPU_REFUSED;
    if (args->score_stride < args->n_blocks_max)
        return gpu_refuse(report, "score_stride",
                          "score_stride %" PRIu32 " is below n_blocks_max %" PRIu32
                          ": rows would overlap",
                          args->score_stride, args->n_blocks_max);
    if (gpu_qsa_check_positions(args->first_pos, args->rows, report) != GPU_OK) return GPU_REFUSED;
    return gpu_qsa_check_buffers(needs, COUNT(needs), report);
}

enum gpu_status gpu_qsa_score_rows_check(const struct gpu_qsa_score_rows *args,
                                         struct gpu_report *report)
{
    if (gpu_qsa_check_grid(args->rows, args->n_blocks_max, report) != GPU_OK) return GPU_REFUSED;
    return check_score_rows(args, args->rows, 2, report);
}

enum gpu_status gpu_qsa_score_rows(const struct gpu_target *target,
                                   const struct gpu_qsa_score_rows *args, struct gpu_report *report)
{
    struct gpu_qsa_score_rows numbers = *args;
    uint64_t q = gpu_qsa_address(args->q), block_keys = gpu_qsa_address(args->block_keys);
    uint64_t scores = gpu_qsa_address(args->scores);
    void *values[] = {&q,
                      &block_keys,
                      &scores,
                      &numbers.first_pos,
                      &numbers.score_stride,
                      &numbers.ratio,
                      &numbers.n_heads,
                      &numbers.hd};
    enum gpu_status status = gpu_qsa_score_rows_check(args, report);

    if (status != GPU_OK) return status;
    return gpu_run(target, "qsa_score_rows", (struct gpu_dim){args->rows, args->n_blocks_max, 1},
                   (struct gpu_dim){args->hd, 1, 1}, SCORE_SHARED_BYTES, values, report);
}

static struct gpu_dim tile_grid(const struct gpu_qsa_score_rows *args, uint32_t rows,
                                uint32_t blocks)
{
    return (struct gpu_dim){
        .x = args->rows / rows + (args->rows % rows != 0),
        .y = args->n_blocks_max / blocks + (args->n_blocks_max % blocks != 0),
        .z = 1,
    };
}

enum gpu_status gpu_qsa_score_rows_tiled_check(const struct gpu_qsa_score_rows *args,
                                               struct gpu_report *report)
{
    struct gpu_dim grid = tile_grid(args, SCORE_TILE, SCORE_TILE);

    if (gpu_qsa_check_grid(grid.x, grid.y, report) != GPU_OK) return GPU_REFUSED;
    return check_score_rows(args, args->rows, 2, report);
}

enum gpu_status gpu_qsa_score_rows_tiled(const struct gpu_target *target,
                                         const struct gpu_qsa_score_rows *args,
                                         struct gpu_report *report)
{
    struct gpu_qsa_score_rows numbers = *args;
    uint64_t q = gpu_qsa_address(args->q), block_keys = gpu_qsa_address(args->block_keys);
    uint64_t scores = gpu_qsa_address(args->scores);
    void *values[] = {&q,
                      &block_keys,
                      &scores,
                      &numbers.first_pos,
                      &numbers.score_stride,
                      &numbers.ratio,
                      &numbers.n_heads,
                      &numbers.hd,
                      &numbers.rows,
                      &numbers.n_blocks_max};
    enum gpu_status status = gpu_qsa_score_rows_tiled_check(args, report);

    if (status != GPU_OK) return status;
    return gpu_run(target, "qsa_score_rows_tiled", tile_grid(args, SCORE_TILE, SCORE_TILE),
                   (struct gpu_dim){THREADS, 1, 1}, 0, values, report);
}

enum gpu_status gpu_qsa_score_rows_tc_check(const struct gpu_qsa_score_rows *args,
                                            struct gpu_report *report)
{
    struct gpu_dim grid = tile_grid(args, TC_ROWS, TC_BLOCKS);

    if (args->n_heads != TC_HEADS || args->hd != TC_HD)
        return gpu_refuse(report, "tc_geometry",
                          "n_heads %" PRIu32 " and hd %" PRIu32
                          " are not %d and %d, the shape the tensor-core kernel is tiled for",
                          args->n_heads, args->hd, TC_HEADS, TC_HD);
    if (gpu_qsa_check_grid(grid.x, grid.y, report) != GPU_OK) return GPU_REFUSED;
    return check_score_rows(args, (uint64_t)grid.x * TC_ROWS, 16, report);
}

enum gpu_status gpu_qsa_score_rows_tc(const struct gpu_target *target,
                                      const struct gpu_qsa_score_rows *args,
                                      struct gpu_report *report)
{
    struct gpu_qsa_score_rows numbers = *args;
    uint64_t q = gpu_qsa_address(args->q), block_keys = gpu_qsa_address(args->block_keys);
    uint64_t scores = gpu_qsa_address(args->scores);
    void *values[] = {&q,
                      &block_keys,
                      &scores,
                      &numbers.first_pos,
                      &numbers.score_stride,
                      &numbers.ratio,
                      &numbers.n_blocks_max};
    enum gpu_status status = gpu_qsa_score_rows_tc_check(args, report);

    if (status != GPU_OK) return status;
    return gpu_run(target, "qsa_score_rows_tc", tile_grid(args, TC_ROWS, TC_BLOCKS),
                   (struct gpu_dim){THREADS, 1, 1}, 0, values, report);
}

uint32_t gpu_qsa_topk_shared_bytes(const struct gpu_qsa_topk_rows *args)
{
    uint32_t padded = 1;

    while (padded < args->topk && padded < GPU_QSA_MAX_TOPK) padded *= 2;
    return 8 * (padded + TOPK_ROOM) + TOPK_SCRATCH_BYTES;
}

enum gpu_status gpu_qsa_topk_rows_check(const struct gpu_qsa_topk_rows *args,
                                        struct gpu_report *report)
{
    const struct gpu_qsa_need needs[] = {
        {args->scores, "scores", (gpu_qsa_wide)4 * args->rows * args->score_stride, 4},
        {args->lists, "lists", (gpu_qsa_wide)4 * args->rows * args->topk, 4},
    };
    uint32_t most;

    if (gpu_qsa_check_ratio(args->ratio, report) != GPU_OK ||
        gpu_qsa_check_topk(args->topk, report) != GPU_OK ||
        gpu_qsa_check_positions(args->first_pos, args->rows, report) != GPU_OK ||
        gpu_qsa_check_grid(args->rows, 1, report) != GPU_OK)
        return GPU_REFUSED;
    most = args->rows == 0 ? 0 : gpu_qsa_complete(args->first_pos + args->rows - 1, args->ratio);
    if (args->score_stride < most)
        return gpu_refuse(report, "score_stride",
                          "score_stride %" PRIu32 " is below the %" PRIu32
                          " complete blocks of the last row",
                          args->score_stride, most);
    return gpu_qsa_check_buffers(needs, COUNT(needs), report);
}

enum gpu_status gpu_qsa_topk_rows(const struct gpu_target *target,
                                  const struct gpu_qsa_topk_rows *args, struct gpu_report *report)
{
    struct gpu_qsa_topk_rows numbers = *args;
    uint64_t scores = gpu_qsa_address(args->scores), lists = gpu_qsa_address(args->lists);
    void *values[] = {&scores,        &lists,       &numbers.first_pos, &numbers.score_stride,
                      &numbers.ratio, &numbers.topk};
    enum gpu_status status = gpu_qsa_topk_rows_check(args, report);

    if (status != GPU_OK) return status;
    return gpu_run(target, "qsa_topk_rows", (struct gpu_dim){args->rows, 1, 1},
                   (struct gpu_dim){THREADS, 1, 1}, gpu_qsa_topk_shared_bytes(args), values,
                   report);
}
