#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "harness/fuzz/geometry.h"
#include "harness/fuzz/work.h"
#include "harness/session/session.h"

/* Processor time a launch may take; sanitizers and coverage make one about ten times slower. */
enum { WATCHDOG_MS = 10000 };
/* Relations run a case again and again: every so many seeds. */
enum { RELATIONS_EVERY = 8 };

/* The engine adds what these count to its coverage. */
enum { COUNTERS = 1 << 16 };
__attribute__((section("__libfuzzer_extra_counters"))) static uint8_t counters[COUNTERS];

static struct verify_context context;
static bool with_classes; /* ATTEST_FUZZ_CLASSES=0: coverage of code alone, for small corpora */
static struct work_limit limits[64];

static void load_module(const char *name)
{
    char path[PATH_MAX];
    struct gpu_module *module;
    struct gpu_report report = {{0}, {0}};
    snprintf(path, sizeof path, "%s/%s.so", context.module_dir, name);
    if (context.backend->load(context.device, path, &module, &report) != GPU_OK)
        fuzz_fail("%s", report.text);
}

int fuzz_family_open(const char *family)
{
    static char folder[PATH_MAX];
    const char *given = getenv("ATTEST_FUZZ_MODULES"), *classes = getenv("ATTEST_FUZZ_CLASSES");
    struct gpu_options options = {.watchdog_ms = WATCHDOG_MS};
    struct gpu_report report = {{0}, {0}};
    if (given) snprintf(folder, sizeof folder, "%s", given);
    else if (!session_module_dir("simt", folder, sizeof folder))
        fuzz_fail("cannot tell where this program lies");
    with_classes = !classes || strcmp(classes, "0");
    context = (struct verify_context){.backend = &gpu_backend_simt,
                                      .module_dir = folder,
                                      .watchdog_ms = WATCHDOG_MS};
    if (context.backend->open(&context.device, &options, &report) != GPU_OK)
        fuzz_fail("%s", report.text);
    uint32_t admitted = 0;
    for (uint32_t i = 0; i < op_count; i++) {
        if (!fuzz_admits(family, op_table[i])) continue;
        admitted++;
        work_learn(&limits[i], op_table[i], TIER_QUICK);
        for (uint32_t m = 0; op_table[i]->modules[m]; m++) load_module(op_table[i]->modules[m]);
    }
    if (!admitted) fuzz_fail("ATTEST_FUZZ_OP names no operation of family %s", family);
    return 0;
}

static void count_classes(const struct case_line *c)
{
    static uint32_t classes[GEOMETRY_CLASSES_MAX];
    uint32_t n = geometry_classes(c, classes);
    for (uint32_t i = 0; i < n; i++) counters[classes[i] % COUNTERS] = 1;
}

static const struct work_limit *limit_of(const struct op *op)
{
    uint32_t i = 0;
    while (op_table[i] != op) i++;
    return &limits[i];
}

static void check(const struct case_line *c)
{
    static struct result result;
    char text[CASE_TEXT_MAX];
    context.relations = case_seed(c) % RELATIONS_EVERY == 0;
    verify_case(&context, c, &result);
    if (result.verdict == VERDICT_PASS || result.verdict == VERDICT_REFUSED) return;
    /* An empty case, or one that this machine has no room for, says nothing. */
    if (!strcmp(result.check, "nothing-compared") || !strcmp(result.check, "memory")) return;
    case_print(c, text, sizeof text);
    fuzz_fail("%s %s\n  check %s\n%s", result.verdict == VERDICT_FAIL ? "FAIL" : "ERROR", text,
              result.check, result.text);
}

int fuzz_family_run(const char *family, const uint8_t *data, size_t size)
{
    static struct case_line c;
    char text[CASE_TEXT_MAX], error[512], rule[64], explanation[1200];
    const uint8_t *rest;
    size_t rest_size;
    bool refused;
    if (!fuzz_line(data, size, text, &rest, &rest_size) ||
        !case_parse(text, &c, error, sizeof error) || !fuzz_admits(family, c.op))
        return 0;
    if (!verify_refusal_agrees(&c, &refused, rule, sizeof rule, explanation, sizeof explanation))
        fuzz_fail("FAIL %s\n  check refusal %s\n%s", text, rule, explanation);
    if (refused || !work_fits(limit_of(c.op), &c)) return 0;
    if (with_classes) count_classes(&c);
    check(&c);
    return 0;
}
