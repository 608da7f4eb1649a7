/* bench: how fast the kernels are on the released geometries, against what the device can do. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "gpu/cuda/cuda_backend.h"
#include "harness/bench/bench.h"
#include "harness/cli/commands.h"
#include "harness/session/session.h"

enum { SHAPES_MAX = 128 };

struct measured {
    const struct bench_shape *shape; /* NULL for a case of the command line */
    const struct op *op;
    char text[CASE_TEXT_MAX];
    struct bench_work work;
    struct bench_time time;
    bool fine;
};

struct bench_run {
    const struct options *options;
    struct verify_context context;
    struct bench_rates rates;
    struct measured items[SHAPES_MAX];
    uint32_t count, failed;
};

static bool on_device(const struct bench_run *b)
{
    return b->context.backend == &gpu_backend_cuda;
}

static bool add(struct bench_run *b, const char *text, const struct bench_shape *shape)
{
    static struct case_line c;
    char error[512];
    struct measured *m = &b->items[b->count];
    if (b->count == SHAPES_MAX || !case_parse(text, &c, error, sizeof error)) {
        fprintf(stderr, "attest: %s: %s\n", text, b->count == SHAPES_MAX ? "too many" : error);
        return false;
    }
    m->op = c.op;
    m->shape = shape;
    case_print(&c, m->text, sizeof m->text);
    b->count++;
    return true;
}

/* On the CPU backend the released shapes would take hours: the operation's first fixed case. */
static bool add_op(struct bench_run *b, const struct op *op)
{
    if (!on_device(b)) return !op->always || !op->always[0] || add(b, op->always[0], NULL);
    for (uint32_t i = 0; i < bench_shape_count; i++) {
        size_t length = strcspn(bench_shapes[i].text, ":");
        if (op_find(bench_shapes[i].text, length) != op) continue;
        if (!add(b, bench_shapes[i].text, &bench_shapes[i])) return false;
    }
    return true;
}

static bool choose(struct bench_run *b)
{
    const struct options *o = b->options;
    for (uint32_t i = 0; i < op_count && !o->n_words; i++) {
        if (!add_op(b, op_table[i])) return false;
    }
    for (int w = 0; w < o->n_words; w++) {
        uint32_t before = b->count;
        if (strchr(o->words[w], ':')) {
            if (!add(b, o->words[w], NULL)) return false;
            continue;
        }
        for (uint32_t i = 0; i < op_count; i++) {
            if (strcmp(op_table[i]->name, o->words[w]) && strcmp(op_table[i]->family, o->words[w]))
                continue;
            if (!add_op(b, op_table[i])) return false;
        }
        if (b->count == before) {
            fprintf(stderr,
                    "attest: '%s' is no operation with a shape to measure, no family and no "
                    "case\n",
                    o->words[w]);
            return false;
        }
    }
    return true;
}

static double operation_rate(const struct bench_run *b, const struct measured *m)
{
    return m->work.unit == BENCH_MATRIX ? b->rates.matrix : b->rates.f32;
}

/* The item's quotient against the operation it is to be held against; 0 if not measured. */
static double quotient(const struct bench_run *b, const struct measured *m)
{
    const char *versus = m->shape ? m->shape->versus : NULL;
    for (uint32_t i = 0; versus && i < b->count; i++) {
        const struct measured *other = &b->items[i];
        if (other->fine && other->shape && !strcmp(other->op->name, versus))
            return other->time.median_us / m->time.median_us;
    }
    return 0;
}

static void print_rates(const struct bench_run *b)
{
    const struct gpu_cuda_info *info = gpu_cuda_get_info(b->context.device);
    printf("%s, %d multiprocessors, L2 %.0f MiB. Measured: copy %.2f TB/s, f32 %.1f T lane "
           "operations/s, m16n8k16 bf16 %.0f T multiply-adds/s\n\n",
           info->name, info->multiprocessors, (double)info->l2_bytes / (1 << 20),
           b->rates.bytes * 1e-12, b->rates.f32 * 1e-12, b->rates.matrix * 1e-12);
    printf("%-28s %10s %10s %10s %9s %6s %6s %-6s %9s %7s %5s\n", "operation", "median us", "least",
           "most", "GB/s", "copy%", "rate%", "unit", "limit us", "x limit", "L2");
}

static void print_row(const struct bench_run *b, const struct measured *m)
{
    double seconds = m->time.median_us * 1e-6, rate = operation_rate(b, m);
    double limit = bench_limit_seconds(&m->work, &b->rates), bytes = m->work.bytes / seconds;
    printf("%-28s %10.2f %10.2f %10.2f %9.1f %6.1f %6.1f %-6s %9.2f %7.2f %5s\n  %s\n", m->op->name,
           m->time.median_us, m->time.least_us, m->time.most_us, bytes * 1e-9,
           100 * bytes / b->rates.bytes,
           m->work.operations > 0 ? 100 * m->work.operations / seconds / rate : 0.0,
           bench_unit_names[m->work.unit], 1e6 * limit, seconds / limit,
           m->time.cold ? "cold" : "warm", m->text);
}

static void print_cpu_row(const struct measured *m)
{
    printf("%-28s %14.6f %14.6f\n  %s\n", m->op->name, m->time.median_us * 1e-6,
           m->time.least_us * 1e-6, m->text);
}

static void print_json(const struct bench_run *b, const struct measured *m)
{
    double seconds = m->time.median_us * 1e-6;
    cJSON *j = cJSON_CreateObject();
    cJSON_AddStringToObject(j, "op", m->op->name);
    cJSON_AddStringToObject(j, "case", m->text);
    cJSON_AddStringToObject(j, "backend", b->context.backend->name);
    cJSON_AddStringToObject(j, "clock", on_device(b) ? "device events" : "CPU time");
    cJSON_AddNumberToObject(j, "median_us", m->time.median_us);
    cJSON_AddNumberToObject(j, "least_us", m->time.least_us);
    cJSON_AddNumberToObject(j, "most_us", m->time.most_us);
    cJSON_AddNumberToObject(j, "samples", m->time.samples);
    cJSON_AddNumberToObject(j, "launches", m->time.launches);
    cJSON_AddNumberToObject(j, "sets", m->time.sets);
    if (on_device(b)) {
        double limit = bench_limit_seconds(&m->work, &b->rates), rate = operation_rate(b, m);
        cJSON_AddStringToObject(j, "device", gpu_cuda_get_info(b->context.device)->name);
        cJSON_AddBoolToObject(j, "cold", m->time.cold);
        cJSON_AddNumberToObject(j, "bytes", m->work.bytes);
        cJSON_AddNumberToObject(j, "operations", m->work.operations);
        cJSON_AddStringToObject(j, "unit", bench_unit_names[m->work.unit]);
        cJSON_AddNumberToObject(j, "copy_bytes_per_s", b->rates.bytes);
        cJSON_AddNumberToObject(j, "operations_per_s", rate);
        cJSON_AddNumberToObject(j, "copy_share", m->work.bytes / seconds / b->rates.bytes);
        cJSON_AddNumberToObject(j, "rate_share", m->work.operations / seconds / rate);
        cJSON_AddNumberToObject(j, "limit_us", 1e6 * limit);
        cJSON_AddNumberToObject(j, "times_limit", seconds / limit);
        if (quotient(b, m) > 0) cJSON_AddNumberToObject(j, "times_faster", quotient(b, m));
    }
    char *text = cJSON_PrintUnformatted(j);
    if (text) puts(text);
    cJSON_free(text);
    cJSON_Delete(j);
}

static void measure(struct bench_run *b, struct measured *m)
{
    static struct case_line c;
    static struct result r;
    char error[512];
    if (!case_parse(m->text, &c, error, sizeof error)) return;
    m->fine = bench_case(&b->context, &c, &m->work, &m->time, &r);
    if (!m->fine) {
        b->failed++;
        fprintf(stderr, "attest: %s %s: %s\n%s", verdict_names[r.verdict], r.check, m->text,
                r.text);
    } else if (b->options->json) {
        print_json(b, m);
    } else if (on_device(b)) {
        print_row(b, m);
    } else {
        print_cpu_row(m);
    }
    fflush(stdout);
}

/* False if a required quotient was missed. */
static bool print_quotients(const struct bench_run *b)
{
    bool all = true;
    for (uint32_t i = 0; i < b->count; i++) {
        const struct measured *m = &b->items[i];
        double times = m->fine ? quotient(b, m) : 0;
        if (times <= 0) continue;
        bool enough = times >= m->shape->required;
        fprintf(b->options->json ? stderr : stdout,
                "%s takes 1/%.1f of %s (1/%.0f is required%s)\n", m->op->name, times,
                m->shape->versus, m->shape->required, enough ? "" : ": MISSED");
        all = all && enough;
    }
    return all;
}

static int open_backend(struct bench_run *b)
{
    struct gpu_options options = {.watchdog_ms = b->context.watchdog_ms};
    struct gpu_report report = {{0}, {0}};
    static struct result r;
    enum gpu_status status = b->context.backend->open(&b->context.device, &options, &report);
    if (status != GPU_OK) {
        fprintf(stderr, "attest: the %s backend is not available: %s\n", b->context.backend->name,
                report.text);
        return status == GPU_UNAVAILABLE ? EXIT_UNAVAILABLE : EXIT_INFRA;
    }
    if (!on_device(b)) {
        if (!b->options->json)
            printf("CPU backend: CPU seconds of one launch of the kernel as compiled for the CPU. "
                   "They say nothing about a GPU.\n\n%-28s %14s %14s\n",
                   "operation", "median CPU s", "least CPU s");
        return EXIT_PASS;
    }
    if (!bench_measure_rates(&b->context, &b->rates, &r)) {
        fprintf(stderr, "attest: measuring the device's rates: %s\n%s", r.check, r.text);
        return EXIT_INFRA;
    }
    if (!b->options->json) print_rates(b);
    return EXIT_PASS;
}

static void bench_help(void)
{
    puts("attest bench [OPERATION|FAMILY|CASE…] [--json] [--backend simt] [options]\n\n"
         "Times the kernels on the released geometries on the GPU: device events around many "
         "launches\n"
         "in one graph, several sets of buffers in turn, the median of the samples. The limit is "
         "the\n"
         "longer of: the bytes that must move at the copy rate measured on this device, and the\n"
         "arithmetic that must be done at the rate measured. 'warm' in the last column: all sets\n"
         "together fit in the L2. With --backend simt: CPU seconds a launch of a small case.\n"
         "A case is not checked here; `attest run CASE` does.\n");
    options_help("bench");
    puts("\nExit: 0 measured, 1 a launch went wrong or a required quotient was missed, 2 usage, "
         "3 infrastructure, 77 no GPU here.");
}

int command_bench(int argc, char **argv)
{
    static struct bench_run b;
    struct options o;
    int code;
    if (wants_help(argc, argv)) {
        bench_help();
        return EXIT_PASS;
    }
    if (!options_parse(argc, argv, &o)) return EXIT_USAGE;
    if (!o.backend_given) o.backend = "cuda";
    b.options = &o;
    if (!session_context(&o, &b.context, &code)) return code;
    if (!choose(&b)) return EXIT_USAGE;
    code = open_backend(&b);
    for (uint32_t i = 0; i < b.count && code == EXIT_PASS; i++) measure(&b, &b.items[i]);
    if (code == EXIT_PASS && (b.failed || !print_quotients(&b))) code = EXIT_WRONG;
    verify_close(&b.context);
    return code;
}
