#include "harness/bench/bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gpu/cuda/cuda_backend.h"
#include "gpu/cuda/cuda_time.h"
#include "harness/run/run.h"

enum { SETS_MAX = 32, SAMPLES_MAX = 31, SAMPLES_MIN = 5, LAUNCHES_MAX = 256 };
enum { RATE_BLOCKS_PER_SM = 16, RATE_THREADS = 256, RATE_CHAINS = 8, RATE_TRIES = 5 };
enum { MMA_MULTIPLY_ADDS = 16 * 8 * 16, COPY_BYTES = 512 << 20, COPIES = 10 };
static const double sample_ms = 2, case_ms = 500;

struct bench {
    struct verify_context *context;
    const struct case_line *c;
    const struct instance *in;
    struct gpu_target targets[OP_MODULES_MAX];
    struct gpu_buffer sets[SETS_MAX][INSTANCE_TENSORS_MAX];
    uint32_t n_sets;
    struct result *result;
};

/* True for GPU_OK; otherwise the verdict and what happened. */
static bool good(enum gpu_status status, const struct gpu_report *report, struct result *r)
{
    if (status == GPU_OK) return true;
    enum verdict verdict = status == GPU_FINDING ? VERDICT_FAIL : VERDICT_ERROR;
    return result_fail(r, verdict, report->rule, "  %s\n", report->text);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void summarise(double *us, uint32_t n, struct bench_time *time)
{
    qsort(us, n, sizeof *us, by_value);
    time->samples = n;
    time->median_us = n % 2 ? us[n / 2] : (us[n / 2 - 1] + us[n / 2]) / 2;
    time->least_us = us[0];
    time->most_us = us[n - 1];
}

static bool launch(struct bench *b, uint32_t set)
{
    struct gpu_report report = {{0}, {0}};
    return good(op_launch(b->targets, b->c, b->in, b->sets[set], &report), &report,
                b->result);
}

static bool make_sets(struct bench *b, uint32_t count)
{
    static const struct run_options plain = {GPU_FENCE_AFTER, 0xa5, 0, false};
    for (; b->n_sets < count; b->n_sets++) {
        if (!run_buffers_make(b->context, b->in, &plain, b->sets[b->n_sets], b->result))
            return false;
    }
    return true;
}

static uint32_t sets_for(double touched, double l2_bytes)
{
    double sets = touched > 0 ? ceil(2 * l2_bytes / touched) : SETS_MAX;
    return sets < 2 ? 2 : sets > SETS_MAX ? SETS_MAX : (uint32_t)sets;
}

/* One launch by itself, everything loaded and uploaded before. */
static bool estimate_ms(struct bench *b, double *ms)
{
    struct gpu_device *device = b->context->device;
    struct gpu_report report = {{0}, {0}};
    for (uint32_t i = 0; i < b->n_sets; i++) {
        if (!launch(b, i)) return false;
    }
    if (!good(gpu_cuda_time_begin(device, &report), &report, b->result)) return false;
    bool fine = launch(b, 0);
    return good(gpu_cuda_time_end(device, ms, &report), &report, b->result) && fine;
}

static bool record(struct bench *b, uint32_t launches, struct gpu_cuda_graph **graph)
{
    struct gpu_device *device = b->context->device;
    struct gpu_report report = {{0}, {0}};
    if (!good(gpu_cuda_capture_begin(device, &report), &report, b->result)) return false;
    bool fine = true;
    for (uint32_t i = 0; i < launches && fine; i++) fine = launch(b, i % b->n_sets);
    enum gpu_status status = gpu_cuda_capture_end(device, graph, &report);
    return fine && good(status, &report, b->result);
}

static bool time_graph(struct bench *b, struct gpu_cuda_graph *graph, uint32_t samples,
                       struct bench_time *time)
{
    double us[SAMPLES_MAX], ms;
    for (uint32_t i = 0; i <= samples; i++) { /* the first warms up */
        struct gpu_report report = {{0}, {0}};
        if (!good(gpu_cuda_time_replay(b->context->device, graph, 1, &ms, &report), &report,
                  b->result))
            return false;
        if (i) us[i - 1] = 1000 * ms / time->launches;
    }
    summarise(us, samples, time);
    return true;
}

static bool time_on_device(struct bench *b, const struct bench_work *work, struct bench_time *time)
{
    double l2 = (double)gpu_cuda_get_info(b->context->device)->l2_bytes, ms = 0;
    struct gpu_cuda_graph *graph = NULL;
    uint32_t sets = sets_for(work->bytes, l2);
    if (!make_sets(b, sets) || !estimate_ms(b, &ms)) return false;
    double wanted = sample_ms / fmax(ms, 1e-3);
    uint32_t launches = wanted > LAUNCHES_MAX ? LAUNCHES_MAX : (uint32_t)wanted;
    time->sets = sets;
    time->cold = sets * work->bytes >= 2 * l2;
    time->launches = launches < sets ? sets : launches / sets * sets;
    double samples = case_ms / (fmax(ms, 1e-3) * time->launches);
    uint32_t n = samples > SAMPLES_MAX   ? SAMPLES_MAX
                 : samples < SAMPLES_MIN ? SAMPLES_MIN
                                         : (uint32_t)samples;
    bool fine = record(b, time->launches, &graph) && time_graph(b, graph, n, time);
    if (graph) gpu_cuda_graph_free(b->context->device, graph);
    return fine;
}

static double cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static bool time_on_cpu(struct bench *b, struct bench_time *time)
{
    double us[SAMPLES_MIN];
    if (!make_sets(b, 1) || !launch(b, 0)) return false;
    for (uint32_t i = 0; i < SAMPLES_MIN; i++) {
        double start = cpu_us();
        if (!launch(b, 0)) return false;
        us[i] = cpu_us() - start;
    }
    time->sets = time->launches = 1;
    summarise(us, SAMPLES_MIN, time);
    return true;
}

static bool may_run(const struct case_line *c, const struct instance *in, struct result *r)
{
    struct gpu_report report = {{0}, {0}};
    struct ref_refusal why = {{0}, {0}};
    if (!in && !op_ref_accepts(c, NULL, &why)) /* before building: the geometry alone */
        return result_fail(r, VERDICT_REFUSED, why.rule, "  %s\n", why.text);
    if (op_gpu_check(c, in, &report) == GPU_REFUSED)
        return result_fail(r, VERDICT_REFUSED, report.rule, "  %s\n", report.text);
    return true;
}

bool bench_case(struct verify_context *x, const struct case_line *c, struct bench_work *work,
                struct bench_time *time, struct result *r)
{
    static const struct run_options plain = {GPU_FENCE_AFTER, 0xa5, 0, false};
    static struct bench b;
    struct instance in;
    memset(r, 0, sizeof *r);
    memset(time, 0, sizeof *time);
    memset(&b, 0, sizeof b);
    if (!may_run(c, NULL, r)) return false;
    instance_init(&in, POISON_NAN);
    b.context = x;
    b.c = c;
    b.in = &in;
    b.result = r;
    bool fine = run_build(x, c, &in, r) && may_run(c, &in, r) &&
                run_open(x, c->op, &plain, b.targets, r);
    if (fine) {
        bench_count(c, &in, work);
        fine = x->backend == &gpu_backend_cuda ? time_on_device(&b, work, time)
                                               : time_on_cpu(&b, time);
    }
    for (uint32_t i = 0; i < b.n_sets; i++) run_buffers_free(x, &in, b.sets[i]);
    instance_free(&in);
    return fine;
}

static bool make_plain(struct verify_context *x, uint64_t bytes, struct gpu_buffer *buffer,
                       struct result *r)
{
    struct gpu_report report = {{0}, {0}};
    struct gpu_buffer_desc desc = {
        .name = "rate", .size_bytes = bytes, .elem_bytes = 4, .align_bytes = 16};
    return good(x->backend->alloc(x->device, &desc, buffer, &report), &report, r);
}

static bool copy_rate(struct verify_context *x, double *bytes_a_second, struct result *r)
{
    struct gpu_buffer to = {0, 0, NULL}, from = {0, 0, NULL};
    struct gpu_report report = {{0}, {0}};
    double ms = 0;
    bool fine = make_plain(x, COPY_BYTES, &to, r) && make_plain(x, COPY_BYTES, &from, r) &&
                good(gpu_cuda_time_copy(x->device, &to, &from, COPY_BYTES, COPIES, &ms, &report),
                     &report, r);
    if (fine) *bytes_a_second = 2.0 * COPY_BYTES * COPIES / (ms * 1e-3);
    if (from.impl) x->backend->free(x->device, &from);
    if (to.impl) x->backend->free(x->device, &to);
    return fine;
}

/* The best of several: a rate is what the device can do. */
static bool kernel_ms(const struct gpu_target *target, const char *entry, struct gpu_dim grid,
                      void **args, double *best, struct result *r)
{
    struct gpu_report report = {{0}, {0}};
    struct gpu_dim block = {RATE_THREADS, 1, 1};
    *best = INFINITY;
    for (int i = 0; i <= RATE_TRIES; i++) {
        double ms = 0;
        if (!good(gpu_cuda_time_begin(target->device, &report), &report, r)) return false;
        bool fine = good(gpu_run(target, entry, grid, block, 0, args, &report), &report, r);
        if (!good(gpu_cuda_time_end(target->device, &ms, &report), &report, r) || !fine)
            return false;
        if (i && ms < *best) *best = ms;
    }
    return true;
}

static bool arithmetic_rates(struct verify_context *x, struct bench_rates *rates, struct result *r)
{
    char path[4096];
    struct gpu_report report = {{0}, {0}};
    struct gpu_target target = {x->backend, x->device, NULL, NULL};
    struct gpu_buffer out = {0, 0, NULL};
    uint32_t blocks = (uint32_t)gpu_cuda_get_info(x->device)->multiprocessors * RATE_BLOCKS_PER_SM;
    uint32_t fma_rounds = 10000, mma_rounds = 2000, ones = 0x3f803f80; /* two bf16 */
    float factor = 0.5f;
    double threads = (double)blocks * RATE_THREADS, ms;
    void *fma[] = {&out.address, &factor, &fma_rounds}, *mma[] = {&out.address, &ones, &mma_rounds};
    snprintf(path, sizeof path, "%s/selftest_rate.fatbin", x->module_dir);
    bool fine = good(x->backend->load(x->device, path, &target.module, &report), &report, r) &&
                make_plain(x, (uint64_t)threads * sizeof(float), &out, r);
    struct gpu_dim grid = {blocks, 1, 1};
    if (fine) fine = kernel_ms(&target, "rate_fma_f32", grid, fma, &ms, r);
    if (fine) rates->f32 = threads * RATE_CHAINS * fma_rounds / (ms * 1e-3);
    if (fine) fine = kernel_ms(&target, "rate_mma_bf16", grid, mma, &ms, r);
    if (fine)
        rates->matrix = threads / 32 * RATE_CHAINS * mma_rounds * MMA_MULTIPLY_ADDS / (ms * 1e-3);
    if (out.impl) x->backend->free(x->device, &out);
    return fine;
}

bool bench_measure_rates(struct verify_context *x, struct bench_rates *rates, struct result *r)
{
    struct gpu_options options = {.watchdog_ms = x->watchdog_ms};
    struct gpu_report report = {{0}, {0}};
    memset(rates, 0, sizeof *rates);
    memset(r, 0, sizeof *r);
    if (!x->device) {
        enum gpu_status status = x->backend->open(&x->device, &options, &report);
        if (!good(status, &report, r)) return false;
    }
    return copy_rate(x, &rates->bytes, r) && arithmetic_rates(x, rates, r);
}

struct bench_limit bench_limit_of(const struct bench_work *work, const struct bench_rates *rates)
{
    double rate = work->unit == BENCH_MATRIX ? rates->matrix : rates->f32;
    struct bench_limit limit = {0, 0, 0, "memory"};
    if (rates->bytes > 0) limit.memory_us = 1e6 * work->bytes / rates->bytes;
    if (work->operations > 0 && rate > 0) limit.arithmetic_us = 1e6 * work->operations / rate;
    if (limit.arithmetic_us > limit.memory_us) limit.bound = "arithmetic";
    limit.us = fmax(limit.memory_us, limit.arithmetic_us);
    return limit;
}
