/* What bench says of a measured kernel. */
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "gpu/cuda/cuda_backend.h"
#include "harness/cli/bench.h"

bool bench_on_device(const struct bench_run *b)
{
    return b->context.backend == &gpu_backend_cuda;
}

static double operation_rate(const struct bench_run *b, const struct measured *m)
{
    return m->work.unit == BENCH_MATRIX ? b->rates.matrix : b->rates.f32;
}

double bench_quotient(const struct bench_run *b, const struct measured *m)
{
    const char *versus = m->shape ? m->shape->versus : NULL;
    for (uint32_t i = 0; versus && i < b->count; i++) {
        const struct measured *other = &b->items[i];
        if (other->fine && other->shape && !strcmp(other->op->name, versus))
            return other->time.median_us / m->time.median_us;
    }
    return 0;
}

void bench_print_head(const struct bench_run *b)
{
    if (!bench_on_device(b)) {
        printf("CPU backend: CPU seconds of one launch of the kernel as compiled for the CPU. They "
               "say nothing about a GPU.\n\n%-28s %14s %14s %14s\n",
               "operation", "median CPU s", "least", "most");
        return;
    }
    const struct gpu_cuda_info *info = gpu_cuda_get_info(b->context.device);
    printf("%s, %d multiprocessors, L2 %.0f MiB. Measured: copy %.2f TB/s, f32 %.1f T lane "
           "operations/s, m16n8k16 bf16 %.0f T multiply-adds/s. Median of a launch and spread from "
           "least to most.\n\n",
           info->name, info->multiprocessors, (double)info->l2_bytes / (1 << 20),
           b->rates.bytes * 1e-12, b->rates.f32 * 1e-12, b->rates.matrix * 1e-12);
    printf("%-28s %10s %10s %10s %9s %6s %6s %-6s %9s %7s %5s\n", "operation", "median us", "least",
           "most", "GB/s", "copy%", "rate%", "unit", "limit us", "x limit", "L2");
}

/* The roofline of the item: both times, and which of them binds. */
static void print_roofline(const struct bench_run *b, const struct measured *m)
{
    struct bench_limit limit = bench_limit_of(&m->work, &b->rates);
    printf("  %.4g MB at the copy rate: %.2f us;", 1e-6 * m->work.bytes, limit.memory_us);
    if (m->work.operations > 0)
        printf(" %.4g M %s at their rate: %.2f us;", 1e-6 * m->work.operations,
               m->work.unit == BENCH_MATRIX ? "multiply-adds of the tensor core"
                                            : "f32 lane operations",
               limit.arithmetic_us);
    printf(" %s binds; %.1f%% of the limit\n", limit.bound, 100 * limit.us / m->time.median_us);
}

static void print_row(const struct bench_run *b, const struct measured *m)
{
    double seconds = m->time.median_us * 1e-6, rate = operation_rate(b, m);
    double limit_us = bench_limit_of(&m->work, &b->rates).us, bytes = m->work.bytes / seconds;
    printf("%-28s %10.2f %10.2f %10.2f %9.1f %6.1f %6.1f %-6s %9.2f %7.2f %5s\n  %s\n", m->op->name,
           m->time.median_us, m->time.least_us, m->time.most_us, bytes * 1e-9,
           100 * bytes / b->rates.bytes,
           m->work.operations > 0 ? 100 * m->work.operations / seconds / rate : 0.0,
           bench_unit_names[m->work.unit], limit_us, m->time.median_us / limit_us,
           m->time.cold ? "cold" : "warm", m->text);
    print_roofline(b, m);
}

static void print_cpu_row(const struct measured *m)
{
    printf("%-28s %14.6f %14.6f %14.6f\n  %s\n", m->op->name, m->time.median_us * 1e-6,
           m->time.least_us * 1e-6, m->time.most_us * 1e-6, m->text);
}

static const struct earlier_time *earlier_of(const struct bench_run *b, const struct measured *m)
{
    return earlier_find(&b->earlier, m->text, b->context.backend->name);
}

static bool is_beyond(const struct earlier_time *e, const struct measured *m)
{
    return earlier_beyond_spreads(e, m->time.median_us, m->time.least_us, m->time.most_us);
}

static void print_earlier(const struct bench_run *b, const struct measured *m)
{
    const struct earlier_time *e = earlier_of(b, m);
    if (!b->earlier.count) return;
    if (!e) {
        puts("  earlier: not measured");
        return;
    }
    printf(
        "  earlier: %.2f us (%.2f to %.2f)%s%s; now %.3f of that, a difference %s both spreads\n",
        e->median_us, e->least_us, e->most_us, e->device[0] ? " on " : "", e->device,
        m->time.median_us / e->median_us, is_beyond(e, m) ? "beyond" : "not beyond");
}

static void add_limit(cJSON *j, const struct bench_run *b, const struct measured *m)
{
    struct bench_limit limit = bench_limit_of(&m->work, &b->rates);
    double seconds = m->time.median_us * 1e-6, rate = operation_rate(b, m);
    cJSON_AddStringToObject(j, "device", gpu_cuda_get_info(b->context.device)->name);
    cJSON_AddBoolToObject(j, "cold", m->time.cold);
    cJSON_AddNumberToObject(j, "bytes", m->work.bytes);
    cJSON_AddNumberToObject(j, "operations", m->work.operations);
    cJSON_AddStringToObject(j, "unit", bench_unit_names[m->work.unit]);
    cJSON_AddNumberToObject(j, "copy_bytes_per_s", b->rates.bytes);
    cJSON_AddNumberToObject(j, "operations_per_s", rate);
    cJSON_AddNumberToObject(j, "copy_share", m->work.bytes / seconds / b->rates.bytes);
    cJSON_AddNumberToObject(j, "rate_share", m->work.operations / seconds / rate);
    cJSON_AddNumberToObject(j, "memory_us", limit.memory_us);
    cJSON_AddNumberToObject(j, "arithmetic_us", limit.arithmetic_us);
    cJSON_AddStringToObject(j, "bound", limit.bound);
    cJSON_AddNumberToObject(j, "limit_us", limit.us);
    cJSON_AddNumberToObject(j, "limit_share", limit.us / m->time.median_us);
    cJSON_AddNumberToObject(j, "times_limit", m->time.median_us / limit.us);
    if (bench_quotient(b, m) > 0) cJSON_AddNumberToObject(j, "times_faster", bench_quotient(b, m));
}

static void print_json(const struct bench_run *b, const struct measured *m)
{
    const struct earlier_time *e = earlier_of(b, m);
    cJSON *j = cJSON_CreateObject();
    cJSON_AddStringToObject(j, "op", m->op->name);
    cJSON_AddStringToObject(j, "case", m->text);
    cJSON_AddStringToObject(j, "backend", b->context.backend->name);
    cJSON_AddStringToObject(j, "clock", bench_on_device(b) ? "device events" : "CPU time");
    cJSON_AddNumberToObject(j, "median_us", m->time.median_us);
    cJSON_AddNumberToObject(j, "least_us", m->time.least_us);
    cJSON_AddNumberToObject(j, "most_us", m->time.most_us);
    cJSON_AddStringToObject(j, "spread", "least to most");
    cJSON_AddNumberToObject(j, "samples", m->time.samples);
    cJSON_AddNumberToObject(j, "launches", m->time.launches);
    cJSON_AddNumberToObject(j, "sets", m->time.sets);
    if (bench_on_device(b)) add_limit(j, b, m);
    if (e) {
        cJSON_AddNumberToObject(j, "earlier_median_us", e->median_us);
        cJSON_AddNumberToObject(j, "earlier_least_us", e->least_us);
        cJSON_AddNumberToObject(j, "earlier_most_us", e->most_us);
        cJSON_AddNumberToObject(j, "of_earlier", m->time.median_us / e->median_us);
        cJSON_AddBoolToObject(j, "beyond_spreads", is_beyond(e, m));
    }
    char *text = cJSON_PrintUnformatted(j);
    if (text) puts(text);
    cJSON_free(text);
    cJSON_Delete(j);
}

void bench_print(const struct bench_run *b, const struct measured *m)
{
    if (b->options->json) {
        print_json(b, m);
        return;
    }
    if (bench_on_device(b))
        print_row(b, m);
    else
        print_cpu_row(m);
    print_earlier(b, m);
}
