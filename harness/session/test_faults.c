/* Failures grouped by fault, and what separates failing from passing geometries. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "harness/session/faults.h"
#include "harness/session/separate.h"

static struct case_line parsed(const char *text)
{
    static struct case_line c;
    char error[512];
    cr_assert(case_parse(text, &c, error, sizeof error), "%s", error);
    return c;
}

static void add(struct separate_cases *set, const char *format, int a, int b)
{
    char text[256];
    snprintf(text, sizeof text, format, a, b);
    struct case_line c = parsed(text);
    cr_assert(separate_add(set, &c));
}

static const char *said(const struct separate_cases *failing, const struct separate_cases *passing,
                        const char *operation)
{
    static char text[600];
    separate_say(op_find(operation, strlen(operation)), failing, passing, text, sizeof text);
    return text;
}

static const char decode[] = "glm5next_dsa_mla_decode_fp8";
static const char lengths[] = "glm5next_dsa_mla_decode_fp8:seqs=2,len=[%d,%d]";
static const char heads[] = "glm5next_dsa_mla_decode_fp8:heads=%d,len=[%d]";

Test(separate, an_empty_sequence)
{
    struct separate_cases failing = {0}, passing = {0};
    for (int i = 0; i < 6; i++) add(&failing, lengths, i % 2 ? 0 : 5 + i, i % 2 ? 40 : 0);
    for (int i = 1; i < 40; i++) add(&passing, lengths, i, 70 - i);
    cr_expect_str_eq(said(&failing, &passing, decode),
                     "fails iff some len = 0 (6 failing, 39 other cases)");
    separate_free(&failing);
    separate_free(&passing);
}

Test(separate, two_conditions)
{
    struct separate_cases failing = {0}, passing = {0};
    for (int i = 0; i < 30; i++) {
        bool bad = i % 3 == 1 && i >= 15;
        add(bad ? &failing : &passing, heads, i % 3 + 1, 10 + i);
    }
    cr_expect_str_eq(said(&failing, &passing, decode),
                     "fails iff heads = 2 and every len >= 26 (5 failing, 25 other cases)");
    separate_free(&failing);
    separate_free(&passing);
}

Test(separate, nothing_in_common_is_not_said)
{
    struct separate_cases failing = {0}, passing = {0};
    for (int i = 0; i < 40; i++) add(i % 2 ? &failing : &passing, heads, 1 + i / 4 % 5, 10 + i / 2);
    cr_expect_str_eq(said(&failing, &passing, decode), "");
    separate_free(&failing);
    separate_free(&passing);
}

Test(separate, too_few_cases_say_nothing)
{
    struct separate_cases failing = {0}, passing = {0};
    add(&failing, lengths, 0, 1);
    for (int i = 1; i < 40; i++) add(&passing, lengths, i, i);
    cr_expect_str_eq(said(&failing, &passing, decode), "");
    separate_free(&failing);
    separate_free(&passing);
}

static struct result failure(const char *check, const char *place, const char *pattern)
{
    struct result r = {.verdict = VERDICT_FAIL};
    snprintf(r.check, sizeof r.check, "%s", check);
    snprintf(r.place, sizeof r.place, "%s", place);
    snprintf(r.pattern, sizeof r.pattern, "%s", pattern);
    snprintf(r.text, sizeof r.text, "  what was seen\n");
    return r;
}

Test(faults, one_for_each_check_place_and_pattern)
{
    static const char *const cases[] = {
        "glm5next_dsa_mla_decode_fp8:heads=8,len=[64]", "glm5next_dsa_mla_decode_fp8:heads=1,len=[3]",
        "glm5next_dsa_mla_decode_fp8:heads=4,len=[9]", "glm5next_dsa_mla_decode_fp8:heads=2,len=[9]"};
    struct plan plan = {.texts = cases, .n_texts = 4, .shards = 1};
    struct result r[] = {failure("contract out", "", "zeros"), failure("contract out", "", "zeros"),
                         failure("contract out", "a.cu:7", "zeros"), failure("contract out", "", "")};
    struct faults f;
    cr_assert(faults_init(&f, 4));
    for (int i = 0; i < 4; i++) {
        struct case_line c = parsed(cases[i]);
        cr_expect_eq(faults_add(&f, (uint64_t)i, c.op, &c, cases[i], &r[i]), i != 1);
    }
    cr_expect_eq(f.count, 3);
    cr_expect_eq(f.items[0].cases, 2);
    cr_expect_str_eq(f.items[0].key, "contract out; zeros");
    cr_expect_str_eq(f.items[0].smallest, cases[1], "the smaller of the two");
    cr_expect_str_eq(f.items[1].key, "contract out; a.cu:7");
    char *text;
    size_t size;
    FILE *stream = open_memstream(&text, &size);
    faults_print(&f, &plan, " --source 'x.cu'", stream);
    fclose(stream);
    cr_expect_not_null(strstr(text, "3 faults in 4 failing cases"), "%s", text);
    cr_expect_not_null(
        strstr(text, "attest run 'glm5next_dsa_mla_decode_fp8:heads=1,len=[3]' --source 'x.cu'"));
    free(text);
    faults_free(&f);
}

Test(faults, of_very_many_kinds_are_still_counted)
{
    struct faults f;
    uint64_t cases = 0;
    struct case_line c = parsed("glm5next_dsa_mla_decode_fp8:heads=1,len=[3]");
    cr_assert(faults_init(&f, 200));
    for (int i = 0; i < 200; i++) {
        char check[32];
        snprintf(check, sizeof check, "check %d", i);
        struct result r = failure(check, "", "");
        faults_add(&f, (uint64_t)i, c.op, &c, "case", &r);
    }
    for (uint32_t i = 0; i < f.count; i++) cases += f.items[i].cases;
    cr_expect_eq(f.count, FAULTS_MAX);
    cr_expect_eq(cases, 200);
    faults_free(&f);
}
