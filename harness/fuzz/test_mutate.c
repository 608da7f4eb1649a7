/* Mutations, geometry classes and the estimate of work, over every operation. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/fuzz/dictionary.h"
#include "harness/fuzz/geometry.h"
#include "harness/fuzz/mutate.h"
#include "harness/fuzz/work.h"

/* What mutation makes is a case like any other: it prints to a text that parses to the same. */
static void check_printable(const struct case_line *c)
{
    static struct case_line again;
    char error[512], first[CASE_TEXT_MAX], second[CASE_TEXT_MAX];
    size_t length = case_print(c, first, sizeof first);
    cr_assert_eq(length, strlen(first));
    cr_assert(case_parse(first, &again, error, sizeof error), "%s\n  %s", error, first);
    case_print(&again, second, sizeof second);
    cr_assert_str_eq(first, second);
}

Test(mutate, every_mutation_is_a_case)
{
    static struct case_line c, other;
    for (uint32_t i = 0; i < op_count; i++) {
        struct rng r = {i + 1, 0x7e57, 0};
        mutate_fresh(&c, op_table[i], &r, TIER_QUICK);
        for (uint32_t n = 0; n < 300; n++) {
            if (n % 3 == 2) {
                mutate_fresh(&other, op_table[rng_u32(&r) % op_count], &r, TIER_QUICK);
                mutate_cross(&c, &other, &r);
            } else {
                mutate_case(&c, &r, TIER_QUICK);
            }
            check_printable(&c);
        }
    }
}

Test(mutate, the_same_stream_gives_the_same_case)
{
    static struct case_line a, b;
    char first[CASE_TEXT_MAX], second[CASE_TEXT_MAX];
    for (uint32_t i = 0; i < op_count; i++) {
        struct rng r = {7, 0x7e57, 0}, s = r;
        mutate_fresh(&a, op_table[i], &r, TIER_QUICK);
        mutate_fresh(&b, op_table[i], &s, TIER_QUICK);
        for (int n = 0; n < 20; n++) {
            mutate_case(&a, &r, TIER_QUICK);
            mutate_case(&b, &s, TIER_QUICK);
        }
        case_print(&a, first, sizeof first);
        case_print(&b, second, sizeof second);
        cr_assert_str_eq(first, second);
    }
}

/* Most mutations are accepted, so that kernels get run; some are refused, so that predicates are. */
Test(mutate, most_are_accepted_and_some_refused)
{
    static struct case_line c, base;
    struct ref_refusal why;
    uint32_t refused = 0, total = 400;
    for (uint32_t i = 0; i < op_count; i++) {
        struct rng r = {i, 0xacce, 0};
        uint32_t accepted = 0;
        for (uint32_t n = 0; n < total; n++) {
            if (n % 20 == 0) mutate_fresh(&base, op_table[i], &r, TIER_QUICK);
            c = base;
            mutate_case(&c, &r, TIER_QUICK);
            accepted += op_ref_accepts(&c, NULL, &why);
        }
        cr_assert(accepted > total / 2, "%s: %u of %u", op_table[i]->name, accepted, total);
        refused += total - accepted;
    }
    cr_assert_gt(refused, 10 * op_count);
}

static uint32_t new_classes(const struct case_line *c, uint8_t *seen)
{
    static uint32_t classes[GEOMETRY_CLASSES_MAX];
    uint32_t n = geometry_classes(c, classes), fresh = 0;
    cr_assert(n > 0 && n < GEOMETRY_CLASSES_MAX);
    for (uint32_t i = 0; i < n; i++) {
        cr_assert_lt(classes[i], 1u << GEOMETRY_CLASS_BITS);
        fresh += !seen[classes[i]];
        seen[classes[i]] = 1;
    }
    return fresh;
}

Test(geometry, a_class_is_new_once)
{
    static struct case_line c;
    uint8_t *seen = calloc(1u << GEOMETRY_CLASS_BITS, 1);
    cr_assert(seen);
    for (uint32_t i = 0; i < op_count; i++) {
        case_init(&c, op_table[i]);
        cr_assert_gt(new_classes(&c, seen), 0, "%s has no classes of its own", op_table[i]->name);
        cr_assert_eq(new_classes(&c, seen), 0);
        case_set_int(&c, "seed", 99); /* data are not geometry */
        cr_assert_eq(new_classes(&c, seen), 0);
    }
    free(seen);
}

/* 64 tokens in pages of 16; then one more and one less, a longer page, another order of pages. */
Test(geometry, edges_and_sizes_are_told_apart)
{
    static struct case_line c;
    static const char *const texts[] = {"len=[64]", "len=[65]", "len=[63]", "len=[64],block=64",
                                        "len=[64],pages=identity", "len=[64],kscale=nan", "len=[]"};
    char error[256];
    uint8_t *seen = calloc(1u << GEOMETRY_CLASS_BITS, 1);
    cr_assert(seen);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        case_init(&c, op_find("glm5next_dsa_mla_decode_fp8", 27));
        cr_assert(case_apply(&c, texts[i], error, sizeof error), "%s", error);
        cr_assert_gt(new_classes(&c, seen), 0, "%s", texts[i]);
    }
    case_init(&c, op_find("glm5next_dsa_mla_decode_fp8", 27));
    cr_assert_eq(new_classes(&c, seen), 0, "len=[64] is the initial value");
    free(seen);
}

Test(work, the_samplers_own_cases_fit_and_absurd_ones_do_not)
{
    static struct case_line c;
    static struct work_limit limit;
    for (uint32_t i = 0; i < op_count; i++) {
        uint32_t fit = 0, total = 200;
        struct rng r = {i, 0x3024, 0};
        work_learn(&limit, op_table[i], TIER_QUICK);
        for (uint32_t n = 0; n < total; n++) {
            mutate_fresh(&c, op_table[i], &r, TIER_QUICK);
            fit += work_fits(&limit, &c);
        }
        cr_assert(fit > total * 6 / 10 && fit <= total, "%s: %u of %u", op_table[i]->name, fit, total);
        for (uint32_t k = 0; k < op_table[i]->n_params; k++) {
            if (op_table[i]->params[k].kind != PARAM_INT || op_table[i]->params[k].max < 1 << 24)
                continue;
            case_init(&c, op_table[i]);
            case_set_int(&c, op_table[i]->params[k].key, 1 << 24);
            cr_assert(!work_fits(&limit, &c), "%s: %s", op_table[i]->name, op_table[i]->params[k].key);
        }
    }
}

/* Twice the typical size of one integer is one step of the logarithm more. */
Test(work, the_estimate_is_multilinear)
{
    static struct case_line c;
    static struct work_limit limit;
    work_learn(&limit, op_find("dsa_topk_pools", 14), TIER_QUICK);
    case_init(&c, limit.op);
    case_set_int(&c, "rows", 1);
    case_set_int(&c, "select", 1);
    case_set_int(&c, "pools", (int64_t)limit.typical[1]);
    double base = work_log2(&limit, &c);
    cr_assert_eq(base, 0);
    case_set_int(&c, "pools", 2 * (int64_t)limit.typical[1]);
    cr_assert_float_eq(work_log2(&limit, &c), 1, 1e-12);
    case_set_int(&c, "rows", 4);
    cr_assert_float_eq(work_log2(&limit, &c), 1 + log2(4 / limit.typical[0]), 1e-12);
}

Test(dictionary, has_each_word_once)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    cr_assert(f);
    dictionary_print(f, NULL);
    fclose(f);
    const char *block = strstr(text, "\"block=\"\n");
    cr_assert(strstr(text, "\"dsa_topk_pools:\"\n") && strstr(text, "\"shuffled\"\n") && block);
    cr_assert_null(strstr(block + 1, "\"block=\"\n"));
    free(text);
}
