/* What the backends share: refusals with their texts, limits, resolving before launching. */
#include "gpu/gpu.h"
#include "gpu/simt/test_support.h"

#include <criterion/criterion.h>
#include <string.h>

Test(gpu, refuse_fills_the_report)
{
    struct gpu_report report;

    memset(&report, 'x', sizeof report);
    cr_assert_eq(gpu_refuse(&report, "ratio_zero", "ratio is %d of %s", 0, "three"), GPU_REFUSED);
    cr_assert_str_eq(report.rule, "ratio_zero");
    cr_assert_str_eq(report.text, "ratio is 0 of three");
    cr_assert_eq(gpu_refuse(NULL, "ratio_zero", "nobody reads this"), GPU_REFUSED);
}

Test(gpu, refuse_cuts_what_does_not_fit)
{
    struct gpu_report report;
    char longer[2000];

    memset(longer, 'y', sizeof longer);
    longer[sizeof longer - 1] = 0;
    gpu_refuse(&report, longer, "%s", longer);
    cr_assert_eq(strlen(report.rule), sizeof report.rule - 1);
    cr_assert_eq(strlen(report.text), sizeof report.text - 1);
}

struct limit_case {
    struct gpu_dim grid, block;
    uint32_t shared_bytes;
    const char *rule; /* NULL: runs */
};

/* Products that wrap in 32 or 64 bits are as refused as any other. */
static const struct limit_case limit_cases[] = {
    {{1, 1, 1}, {64, 1, 1}, 0, NULL},
    {{1, 1, 1}, {64, 1, 1}, 232448, NULL},
    {{1, 1, 1}, {64, 1, 1}, 232449, "shared_limit"},
    {{1, 1, 1}, {64, 1, 1}, UINT32_MAX, "shared_limit"},
    {{1, 65536, 1}, {64, 1, 1}, 0, "grid_limit"},
    {{1, 1, 65536}, {64, 1, 1}, 0, "grid_limit"},
    {{0x80000000u, 1, 1}, {64, 1, 1}, 0, "grid_limit"},
    {{1, 1, 1}, {1025, 1, 1}, 0, "block_limit"},
    {{1, 1, 1}, {32, 32, 2}, 0, "block_limit"},
    {{1, 1, 1}, {0, 1, 1}, 0, "block_limit"},
    {{1, 1, 1}, {1, 1, 0}, 0, "block_limit"},
    {{1, 1, 1}, {0x10000, 0x10000, 1}, 0, "block_limit"},
    {{1, 1, 1}, {0x80000000u, 0x80000000u, 4}, 0, "block_limit"},
    {{1, 1, 1}, {1, 0x80000000u, 2}, 0, "block_limit"},
    {{0, 1, 1}, {64, 1, 1}, 0, NULL},
    {{1, 0, 1}, {64, 1, 1}, 0, NULL},
    {{0, 1, 1}, {2048, 1, 1}, 0, "block_limit"},
};

Test(gpu, run_keeps_to_the_limits)
{
    struct simt_test test;
    struct gpu_target target;
    struct gpu_buffer out;
    void *args[] = {&out.address};

    simt_test_open(&test, "bad", false);
    target = (struct gpu_target){&gpu_backend_simt, test.device, test.module, NULL};
    out = simt_test_buffer(&test, "out", 64, 4, NULL);
    for (size_t i = 0; i < sizeof limit_cases / sizeof *limit_cases; i++) {
        const struct limit_case *c = &limit_cases[i];
        enum gpu_status status =
            gpu_run(&target, "fine", c->grid, c->block, c->shared_bytes, args, &test.report);

        cr_assert_eq(status, c->rule ? GPU_REFUSED : GPU_OK, "case %zu: %d, %s", i, status,
                     test.report.text);
        if (c->rule) cr_assert_str_eq(test.report.rule, c->rule, "case %zu", i);
    }
    gpu_backend_simt.free(test.device, &out);
    simt_test_close(&test);
}

Test(gpu, run_names_what_the_module_has)
{
    struct simt_test test;
    struct gpu_target target;
    struct gpu_dim one = {1, 1, 1}, none = {0, 1, 1};

    simt_test_open(&test, "good", false);
    target = (struct gpu_target){&gpu_backend_simt, test.device, test.module, NULL};
    cr_assert_eq(gpu_run(&target, "qsa_score", one, one, 0, NULL, &test.report), GPU_NO_ENTRY);
    cr_assert(strstr(test.report.text, "no entry point qsa_score; it has") != NULL);
    cr_assert(strstr(test.report.text, " block_sum,") != NULL, "%s", test.report.text);
    cr_assert(strstr(test.report.text, " transpose,") != NULL);
    /* Nothing to do is no excuse for a kernel that is not there. */
    cr_assert_eq(gpu_run(&target, "qsa_score", none, one, 0, NULL, &test.report), GPU_NO_ENTRY);
    simt_test_close(&test);
}
