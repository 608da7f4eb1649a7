/* Shrinking: from a released geometry to a case that a person can work by hand. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "harness/cli/commands.h"
#include "harness/search/minimize.h"
#include "harness/session/session.h"

static struct case_line small;

/* Shrinks the case on a broken kernel; false where these were not built (`make broken`). */
static bool shrink(const char *kernel, const char *text, struct result *failure)
{
    char folder[4096], module[4200], error[512];
    struct verify_context x = {.backend = &gpu_backend_simt, .watchdog_ms = 20000};
    struct minimize_options how = {.budget_s = 100, .timeout_s = 60, .jobs = 2};
    uint64_t trials;
    cr_assert(session_module_dir("broken", folder, sizeof folder));
    snprintf(module, sizeof module, "%s/%s.so", folder, kernel);
    if (access(module, R_OK)) return false;
    x.module_file = module;
    cr_assert(case_parse(text, &small, error, sizeof error), "%s", error);
    cr_assert(minimize_case(&x, &how, &small, failure, &trials, error, sizeof error), "%s", error);
    return true;
}

static int64_t total(const char *key)
{
    uint32_t n;
    const int64_t *list = case_list(&small, key, &n);
    int64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += list[i];
    return sum;
}

Test(minimize, released_decode_comes_down_to_a_few_tokens, .timeout = 120)
{
    static struct result failure;
    if (!shrink("decode_query_of_first_head",
                "glm5next_dsa_mla_decode_fp8:model=glm53,regime=walk,seed=0x9", &failure))
        cr_skip_test("broken kernels are not built");
    cr_assert_eq(failure.verdict, VERDICT_FAIL);
    cr_assert_eq(case_int(&small, "heads"), 2); /* one head would be the first */
    cr_assert_leq(total("len"), 8);
}

/* A length and the position in it only come down together. */
Test(minimize, two_parameters_together, .timeout = 120)
{
    static struct result failure;
    if (!shrink("expand_tail_ignores_first_key",
                "dsa_expand_selection:len=700,pad=80,kpool=4,topk=8,pos=[86],seed=0x77", &failure))
        cr_skip_test("broken kernels are not built");
    cr_assert_eq(failure.verdict, VERDICT_FAIL);
    cr_assert_leq(case_int(&small, "len"), 8);
    cr_assert_leq(case_int(&small, "pad"), 2);
}

Test(minimize, a_case_that_passes_is_no_failure)
{
    char folder[4096], error[512];
    struct verify_context x = {.backend = &gpu_backend_simt, .watchdog_ms = 20000};
    struct minimize_options how = {.budget_s = 10, .timeout_s = 60, .jobs = 1};
    static struct result failure;
    uint64_t trials;
    cr_assert(session_module_dir("simt", folder, sizeof folder));
    x.module_dir = folder;
    cr_assert(case_parse("dsa_topk_to_mask:", &small, error, sizeof error), "%s", error);
    cr_assert(!minimize_case(&x, &how, &small, &failure, &trials, error, sizeof error));
    cr_assert(strstr(error, "does not fail"), "%s", error);
    cr_assert_eq(failure.verdict, VERDICT_PASS);
}
