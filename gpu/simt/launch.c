/* A launch: protects inputs, lays out shared memory, runs the blocks one after another, and turns
 * what broke it off into a report. */
#include "run.h"

#include <immintrin.h>
#include <stdio.h>
#include <string.h>

#define DEFAULT_WATCHDOG_MS 20000u

/* Inputs become read-only pages and stay so until the next upload. */
static bool protect_inputs(struct simt_arena *arena)
{
    for (struct simt_buffer *b = arena->live; b; b = b->next)
        if (b->read_only && b->writable && !simt_arena_protect(b, false)) return false;
    return true;
}

/* The block's dynamic shared memory ends, as far as 16-byte alignment lets it, where its page does.
 */
static enum gpu_status prepare_dynamic_shared(struct gpu_device *device, uint32_t bytes,
                                              struct gpu_report *report)
{
    struct gpu_buffer_desc desc = {.name = SIMT_DYNAMIC_SHARED_NAME,
                                   .size_bytes = bytes,
                                   .elem_bytes = 1,
                                   .align_bytes = 16,
                                   .fence = GPU_FENCE_AFTER};
    enum gpu_status status;

    if (device->dynamic_shared.impl && device->dynamic_shared_bytes != bytes)
        simt_free(device, &device->dynamic_shared);
    if (!device->dynamic_shared.impl) {
        status = simt_alloc(device, &desc, &device->dynamic_shared, report);
        if (status != GPU_OK) return status;
        device->dynamic_shared_bytes = bytes;
        ((struct simt_buffer *)device->dynamic_shared.impl)->shared = true;
    }
    simt_dynamic_shared = (void *)device->dynamic_shared.address;
    return GPU_OK;
}

/* Everything in the static shared section that is no variable is red zone. */
static void fill_static_red_zones(const struct gpu_module *module)
{
    uintptr_t at = (uintptr_t)module->table->shared_begin;

    for (uint32_t i = 0; i < module->n_variables; i++) {
        const struct simt_variable *variable = &module->variables[i];

        if (variable->begin > at) memset((void *)at, SIMT_RED_ZONE_BYTE, variable->begin - at);
        at = variable->begin + variable->size;
    }
    if ((uintptr_t)module->table->shared_end > at)
        memset((void *)at, SIMT_RED_ZONE_BYTE, (uintptr_t)module->table->shared_end - at);
}

static void poison_shared(struct simt_run *run)
{
    for (uint32_t i = 0; i < run->module->n_variables; i++)
        memset((void *)run->module->variables[i].begin, SIMT_POISON_BYTE,
               run->module->variables[i].size);
    if (run->device->dynamic_shared_bytes > 0)
        memset(simt_dynamic_shared, SIMT_POISON_BYTE, run->device->dynamic_shared_bytes);
}

static bool zone_is_whole(uintptr_t begin, uintptr_t end)
{
    const unsigned char *bytes = (const unsigned char *)begin;

    if (begin >= end) return true;
    return bytes[0] == SIMT_RED_ZONE_BYTE && memcmp(bytes, bytes + 1, end - begin - 1) == 0;
}

/* After each block: a red zone behind a static shared variable that changed names the variable. */
static bool check_shared(struct simt_run *run)
{
    const struct gpu_module *module = run->module;
    const char *name = NULL;
    struct gpu_report report;

    for (uint32_t i = 0; i < module->n_variables && !name; i++) {
        const struct simt_variable *variable = &module->variables[i];
        uintptr_t end =
            i + 1 < module->n_variables ? variable[1].begin : (uintptr_t)module->table->shared_end;

        if (!zone_is_whole(variable->begin + variable->size, end)) name = variable->name;
    }
    if (!name && simt_check_guards(run->device, &run->device->dynamic_shared, &report) != GPU_OK)
        name = SIMT_DYNAMIC_SHARED_NAME;
    if (!name) return true;
    run->failure = SIMT_FOUND;
    run->failure_site = 0;
    snprintf(run->report.rule, sizeof run->report.rule, "red-zone");
    snprintf(run->report.text, sizeof run->report.text,
             "something in the block wrote past the end of %s", name);
    fill_static_red_zones(module);
    return false;
}

/* The i-th block to run. Seeded schedules visit them in the order of an affine permutation. */
static uint64_t block_at(uint64_t i, uint64_t n, uint64_t stride, uint64_t start)
{
    return (uint64_t)(((unsigned __int128)i * stride + start) % n);
}

static uint64_t greatest_common_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

static void run_blocks(struct simt_run *run)
{
    uint64_t n = (uint64_t)run->grid.x * run->grid.y * run->grid.z, stride = 1, start = 0;

    if (run->seeded) {
        start = simt_random() % n;
        do stride = simt_random() % n + 1;
        while (greatest_common_divisor(stride, n) != 1);
    }
    for (uint64_t i = 0; i < n; i++) {
        uint64_t block = run->seeded ? block_at(i, n, stride, start) : i;

        simt_block_idx.x = (uint32_t)(block % run->grid.x);
        simt_block_idx.y = (uint32_t)(block / run->grid.x % run->grid.y);
        simt_block_idx.z = (uint32_t)(block / run->grid.x / run->grid.y);
        poison_shared(run);
        simt_trace_block();
        if (!simt_block_run() || !check_shared(run)) return;
    }
}

static void prepare_run(struct gpu_device *device, struct gpu_kernel *kernel, struct gpu_dim grid,
                        struct gpu_dim block, void **args)
{
    simt_run.device = device;
    simt_run.module = kernel->module;
    simt_run.kernel = kernel;
    simt_run.args = args;
    simt_run.grid = grid;
    simt_run.block = block;
    simt_run.expired = 0;
    simt_run.failure = SIMT_FINE;
    simt_run.report = (struct gpu_report){"", ""};
    simt_block_dim = (struct simt_index){block.x, block.y, block.z};
    simt_grid_dim = (struct simt_index){grid.x, grid.y, grid.z};
    simt_block_prepare(block, device->options.schedule);
    fill_static_red_zones(kernel->module);
}

/* The launch that found a race, once more, for the place of the earlier access. What it leaves in
 * memory does not count: the outputs of a launch with a finding are not looked at. */
static void find_earlier_access(struct gpu_kernel *kernel, void **args)
{
    struct simt_run *run = &simt_run;
    struct gpu_report report = run->report;
    enum simt_failure failure = run->failure;
    uintptr_t site = run->failure_site, earlier;
    uint32_t current = run->current;
    struct simt_index block = simt_block_idx;
    bool is_return = run->site_is_return;
    char line[256];

    prepare_run(run->device, kernel, run->grid, run->block, args);
    if (simt_trace_launch()) run_blocks(run);
    simt_fibers_reset();
    earlier = simt_trace_watched();
    run->report = report;
    run->failure = failure;
    run->failure_site = site;
    run->site_is_return = is_return;
    run->current = current;
    simt_block_idx = block;
    if (earlier == 0) return;
    simt_symbolise(run->module, earlier, true, line, sizeof line);
    snprintf(run->report.text + strlen(run->report.text),
             sizeof run->report.text - strlen(run->report.text), " at %s", line);
}

enum gpu_status simt_launch(struct gpu_device *device, struct gpu_kernel *kernel,
                            struct gpu_dim grid, struct gpu_dim block, uint32_t shared_bytes,
                            void **args, struct gpu_report *report)
{
    uint32_t watchdog_ms = device->options.watchdog_ms;
    uint64_t xy = (uint64_t)block.x * block.y;
    enum gpu_status status;
    unsigned mxcsr;

    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return GPU_OK;
    if (xy == 0 || block.z == 0 || xy > SIMT_MAX_BLOCK || xy * block.z > SIMT_MAX_BLOCK)
        return gpu_refuse(report, "block_limit", "block (%u, %u, %u) is not 1 to %u threads",
                          block.x, block.y, block.z, SIMT_MAX_BLOCK);
    status = prepare_dynamic_shared(device, shared_bytes, report);
    if (status != GPU_OK) return status;
    if (!protect_inputs(&device->arena)) return simt_infra(report, "cannot protect the inputs");
    prepare_run(device, kernel, grid, block, args);
    if (!simt_trace_launch()) return simt_infra(report, "no memory for tracing");
    if (!simt_signals_arm(watchdog_ms ? watchdog_ms : DEFAULT_WATCHDOG_MS))
        return simt_infra(report, "cannot start the watchdog");
    mxcsr = _mm_getcsr();
    run_blocks(&simt_run);
    if (simt_run.failure != SIMT_FINE) simt_fibers_reset();
    if (simt_trace_wants_again()) find_earlier_access(kernel, args);
    simt_signals_disarm();
    _mm_setcsr(mxcsr); /* a thread broken off inside a directed rounding leaves its own */
    if (simt_run.failure == SIMT_FINE) return GPU_OK;
    simt_complete_report();
    if (report) *report = simt_run.report;
    return GPU_FINDING;
}
