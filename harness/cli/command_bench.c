/* bench: how fast the kernels are on the released geometries, against what the device can do. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "gpu/cuda/cuda_backend.h"
#include "harness/cli/bench.h"
#include "harness/cli/commands.h"
#include "harness/session/session.h"

static bool add(struct bench_run *b, const char *text, const struct bench_shape *shape)
{
    static struct case_line c;
    char error[512];
    struct measured *m = &b->items[b->count];
    if (b->count == BENCH_CASES_MAX || !case_parse(text, &c, error, sizeof error)) {
        fprintf(stderr, "attest: %s: %s\n", text, b->count == BENCH_CASES_MAX ? "too many" : error);
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
    if (!bench_on_device(b)) return !op->always || !op->always[0] || add(b, op->always[0], NULL);
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
    } else {
        bench_print(b, m);
    }
    fflush(stdout);
}

/* False if a required quotient was missed. */
static bool print_quotients(const struct bench_run *b)
{
    bool all = true;
    for (uint32_t i = 0; i < b->count; i++) {
        const struct measured *m = &b->items[i];
        double times = m->fine ? bench_quotient(b, m) : 0;
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
    if (bench_on_device(b) && !bench_measure_rates(&b->context, &b->rates, &r)) {
        fprintf(stderr, "attest: measuring the device's rates: %s\n%s", r.check, r.text);
        return EXIT_INFRA;
    }
    if (!b->options->json) bench_print_head(b);
    return EXIT_PASS;
}

static void bench_help(void)
{
    puts("attest bench [OPERATION|FAMILY|CASE…] [--json] [--backend simt] [options]\n"
         "attest bench --against FILE|torch [OPERATION|FAMILY|CASE…] [options]\n"
         "attest bench --checker [OPERATION|FAMILY…] [--backend cuda] [options]\n\n"
         "Times the kernels on the released geometries on the GPU: device events around many "
         "launches\n"
         "in one graph, several sets of buffers in turn; the median of at least 5 samples, and "
         "their\n"
         "spread from the least to the most. The limit is the longer of: the bytes that must move "
         "at\n"
         "the copy rate measured on this device, and the arithmetic that must be done at the rate\n"
         "measured. 'warm' in the last column: all sets together fit in the L2. With --backend "
         "simt:\n"
         "CPU seconds a launch of a small case. A case is not checked here; `attest run CASE` "
         "does.\n\n"
         "--against FILE compares with the lines of an earlier `bench --json`, --against torch "
         "with\n"
         "PyTorch doing the same work on the same shapes. These are figures, not tests: they do "
         "not\n"
         "change the exit code. --checker measures the checker itself: cases a second, and where "
         "the\n"
         "time of a case goes.\n");
    options_help("bench");
    puts("\nExit: 0 measured, 1 a launch went wrong or a required quotient was missed, 2 usage, "
         "3 infrastructure, 77 no GPU, or no PyTorch, here.");
}

/* Options that only one of the two kinds of measurement knows. */
static bool options_fit(const struct options *o)
{
    static const char *const of_checker[] = {"cases", "seed",     "jobs",
                                             "tier",  "no-trace", "no-relations"};
    for (size_t i = 0; i < sizeof of_checker / sizeof *of_checker; i++) {
        if (o->checker || !options_given(o, of_checker[i])) continue;
        fprintf(stderr, "attest: --%s is for bench --checker: kernels are timed on given shapes\n",
                of_checker[i]);
        return false;
    }
    if (!o->checker || !o->against) return true;
    fprintf(stderr, "attest: --against compares times of kernels, not of --checker\n");
    return false;
}

static bool against_torch(const struct bench_run *b)
{
    return b->options->against && !strcmp(b->options->against, "torch");
}

static bool read_earlier(struct bench_run *b)
{
    const char *path = b->options->against;
    char error[512];
    if (against_torch(b) && !bench_on_device(b)) {
        fprintf(stderr, "attest: --against torch compares kernels on a GPU\n");
        return false;
    }
    if (!path || against_torch(b)) return true;
    FILE *f = fopen(path, "r");
    if (!f) {
        fprintf(stderr, "attest: %s: %s\n", path, strerror(errno));
        return false;
    }
    bool fine = earlier_read(f, path, &b->earlier, error, sizeof error);
    fclose(f);
    if (!fine) fprintf(stderr, "attest: %s\n", error);
    return fine;
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
    if (!options_parse(argc, argv, &o) || !options_fit(&o)) return EXIT_USAGE;
    if (!o.backend_given && !o.checker) o.backend = "cuda";
    b.options = &o;
    if (!session_context(&o, &b.context, &code)) return code;
    if (o.checker) return bench_checker(&o, &b.context);
    if (!choose(&b) || !read_earlier(&b)) return EXIT_USAGE;
    code = against_torch(&b) ? bench_torch_probe() : EXIT_PASS;
    if (code == EXIT_PASS) code = open_backend(&b);
    for (uint32_t i = 0; i < b.count && code == EXIT_PASS; i++) measure(&b, &b.items[i]);
    if (code == EXIT_PASS && (b.failed || !print_quotients(&b))) code = EXIT_WRONG;
    verify_close(&b.context);
    if (code == EXIT_PASS && against_torch(&b)) code = bench_torch(&b);
    earlier_free(&b.earlier);
    return code;
}
