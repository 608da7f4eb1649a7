#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "harness/case/case.h"
#include "harness/case/op.h"
#include "harness/case/plan.h"

static const char decode[] = "glm5next_dsa_mla_decode_fp8";

static void refuse(const char *text, const char *expected)
{
    struct case_line c;
    char error[512] = "";
    cr_assert(!case_parse(text, &c, error, sizeof error), "accepted: %s", text);
    cr_assert(strstr(error, expected), "'%s' does not mention '%s'", error, expected);
}

Test(case_line, print_of_parse_is_the_identity)
{
    struct case_line c;
    char error[512], first[CASE_TEXT_MAX], second[CASE_TEXT_MAX];
    cr_assert(case_parse("glm5next_dsa_mla_decode_fp8:seqs=3,heads=8,len=[37,0,64],block=16,kpool=4,"
                         "topk=32,pitch=+256,pages=shuffled,holes=front,kscale=0.37,vscale=0.37,"
                         "regime=peaked,seed=0x1f",
                         &c, error, sizeof error),
              "%s", error);
    case_print(&c, first, sizeof first);
    cr_assert(case_parse(first, &c, error, sizeof error), "%s", error);
    case_print(&c, second, sizeof second);
    cr_assert_str_eq(first, second);
    cr_assert(strstr(first, "len=[37,0,64]") && strstr(first, "pitch=+256") &&
              strstr(first, "kscale=0.37") && strstr(first, "seed=0x1f"));
}

Test(case_line, every_sampled_case_survives_print_and_parse)
{
    static struct case_line c, again;
    char error[512], first[CASE_TEXT_MAX], second[CASE_TEXT_MAX];
    for (uint32_t i = 0; i < op_count; i++) {
        struct plan plan = {.ops = {op_table[i]}, .n_ops = 1, .seed = 5, .cases = 200};
        for (uint64_t k = 0; k < plan_jobs(&plan); k++) {
            struct job job = plan_job(&plan, k);
            cr_assert(plan_case(&plan, &job, &c, error, sizeof error), "%s", error);
            case_print(&c, first, sizeof first);
            cr_assert(case_parse(first, &again, error, sizeof error), "%s: %s", first, error);
            case_print(&again, second, sizeof second);
            cr_assert_str_eq(first, second);
        }
    }
}

Test(case_line, every_sampled_case_is_accepted)
{
    static struct case_line c;
    char error[512], text[CASE_TEXT_MAX];
    for (uint32_t i = 0; i < op_count; i++) {
        struct plan plan = {.ops = {op_table[i]}, .n_ops = 1, .seed = 9, .cases = 300};
        for (uint64_t k = 0; k < plan_jobs(&plan); k++) {
            struct job job = plan_job(&plan, k);
            struct ref_refusal why = {{0}, {0}};
            cr_assert(plan_case(&plan, &job, &c, error, sizeof error), "%s", error);
            case_print(&c, text, sizeof text);
            cr_assert(op_ref_accepts(&c, NULL, &why), "%s: %s", text, why.text);
        }
    }
}

Test(case_line, bad_text_is_refused_with_the_reason)
{
    refuse("no_such_op:seed=1", "no operation");
    refuse("glm5next_dsa_mla_decode_fp8:heads", "expected key=value");
    refuse("glm5next_dsa_mla_decode_fp8:colour=3", "no key 'colour'");
    refuse("glm5next_dsa_mla_decode_fp8:heads=x", "not an integer");
    refuse("glm5next_dsa_mla_decode_fp8:heads=-1", "outside");
    refuse("glm5next_dsa_mla_decode_fp8:heads=99999999999999999999", "not an integer");
    refuse("glm5next_dsa_mla_decode_fp8:heads=2,heads=3", "twice");
    refuse("glm5next_dsa_mla_decode_fp8:len=[1,2", "list");
    refuse("glm5next_dsa_mla_decode_fp8:len=[1,,2]", "element 1");
    refuse("glm5next_dsa_mla_decode_fp8:len=[1,2,]", "comma");
    refuse("glm5next_dsa_mla_decode_fp8:regime=odd", "one of");
    refuse("glm5next_dsa_mla_decode_fp8:kscale=big", "not a number");
    refuse("glm5next_dsa_mla_decode_fp8:seed=-1", "seed");
    refuse("glm5next_dsa_mla_decode_fp8:model=gpt", "preset");
    refuse("glm5next_dsa_mla_decode_fp8:heads=2,", "comma");
}

Test(case_line, lists_can_be_replaced_in_any_order)
{
    struct case_line c;
    uint32_t n;
    case_init(&c, op_find(decode, strlen(decode)));
    case_set_list(&c, "len", (int64_t[]){1, 2, 3, 4, 5}, 5);
    case_set_list(&c, "len", (int64_t[]){7}, 1);
    const int64_t *lengths = case_list(&c, "len", &n);
    cr_assert_eq(n, 1);
    cr_assert_eq(lengths[0], 7);
}

/* No input, however mangled, may crash the parser or be accepted with a value out of range. */
Test(case_line, mangled_text_never_crashes)
{
    static struct case_line c;
    static const char base[] = "glm5next_dsa_mla_decode_fp8:seqs=3,len=[37,0,64],pitch=+256,"
                               "kscale=0.37,regime=peaked,seed=0x1f";
    char text[sizeof base], error[256];
    struct rng r = {7, 1, 0};
    for (int i = 0; i < 200000; i++) {
        memcpy(text, base, sizeof base);
        for (int k = (int)rng_range(&r, 1, 4); k > 0; k--)
            text[rng_range(&r, 0, (int64_t)sizeof base - 2)] =
                "0123456789[],=:+-.xe\x01\xff"[rng_range(&r, 0, 21)];
        case_parse(text, &c, error, sizeof error);
    }
}
