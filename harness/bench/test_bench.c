#include <criterion/criterion.h>
#include <string.h>

#include "harness/bench/bench.h"

static void parse(const char *text, struct case_line *c)
{
    char error[512] = "";
    cr_assert(case_parse(text, c, error, sizeof error), "%s: %s", text, error);
}

Test(bench, shapes_are_accepted)
{
    static struct case_line c;
    cr_assert_gt(bench_shape_count, 15);
    for (uint32_t i = 0; i < bench_shape_count; i++) {
        struct ref_refusal why = {{0}, {0}};
        struct gpu_report report = {{0}, {0}};
        parse(bench_shapes[i].text, &c);
        cr_expect(op_ref_accepts(&c, NULL, &why), "%s: %s", bench_shapes[i].text, why.text);
        cr_expect_eq(op_gpu_check(&c, NULL, &report), GPU_OK, "%s: %s", bench_shapes[i].text,
                     report.text);
    }
}

Test(bench, every_kernel_has_a_shape)
{
    for (uint32_t i = 0; i < op_count; i++) {
        uint32_t shapes = 0;
        if (strstr(op_table[i]->name, "pipeline")) continue;
        for (uint32_t k = 0; k < bench_shape_count; k++) {
            size_t length = strcspn(bench_shapes[k].text, ":");
            shapes += op_find(bench_shapes[k].text, length) == op_table[i];
        }
        cr_expect_gt(shapes, 0, "%s", op_table[i]->name);
    }
}

Test(bench, quotients_are_against_earlier_shapes_of_the_same_size)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < bench_shape_count; i++) {
        const char *versus = bench_shapes[i].versus;
        for (uint32_t k = 0; versus && k < i; k++) {
            static struct case_line a, b;
            if (strncmp(bench_shapes[k].text, versus, strlen(versus)) ||
                bench_shapes[k].text[strlen(versus)] != ':')
                continue;
            parse(bench_shapes[i].text, &a);
            parse(bench_shapes[k].text, &b);
            cr_expect_eq(case_int(&a, "rows"), case_int(&b, "rows"));
            cr_expect_eq(case_int(&a, "blocks"), case_int(&b, "blocks"));
            cr_expect_eq(case_int(&a, "pos"), case_int(&b, "pos"));
            found++;
        }
        cr_expect(!versus || found, "%s is not measured before %s", versus, bench_shapes[i].text);
    }
    cr_expect_eq(found, 1);
}

static struct bench_work count(const char *text)
{
    static struct case_line c;
    struct instance in;
    struct bench_work work;
    parse(text, &c);
    instance_init(&in, POISON_NAN);
    cr_assert(op_build(&c, &in));
    bench_count(&c, &in, &work);
    instance_free(&in);
    return work;
}

/* 2 sequences of 9 and 5 tokens, all attended by 3 heads; one buffer for K and V, then two. */
Test(bench, work_of_decode)
{
    struct bench_work one = count("glm5next_dsa_mla_decode_fp8:seqs=2,heads=3,len=[9,5],block=4,"
                                  "kpool=4,topk=12,kv=one,seed=0x1");
    struct bench_work two = count("glm5next_dsa_mla_decode_fp8:seqs=2,heads=3,len=[9,5],block=4,"
                                  "kpool=4,topk=12,kv=two,seed=0x1");
    double tables = 2 * (3 + 1) * 4 + 2 * 4 + 2 * 15 * 4, rows = 2 * 3 * 512 * 2;
    cr_expect_eq(one.unit, BENCH_F32);
    cr_expect_eq(one.operations, 2.0 * 14 * 3 * 512);
    cr_expect_eq(one.bytes, 2 * rows + tables + 14 * 512, "%g", one.bytes);
    cr_expect_eq(two.bytes - one.bytes, 14 * 512);
    cr_expect_eq(two.operations, one.operations);
}

/* A row at position 10 with ratio 4: two blocks and the tail 8, 9, 10. */
Test(bench, work_of_prefill)
{
    struct bench_work w = count("qsa_prefill_attn:rows=1,pos=10,topk=8,ratio=4,block=16,nq=4,nkv=2,"
                                "hd=32,seed=0x1");
    cr_expect_eq(w.operations, 2.0 * 11 * 4 * 32, "%g", w.operations);
}

Test(bench, work_of_tensor_core_scores_is_matrix)
{
    struct bench_work w = count("qsa_score_rows_tc:rows=2,pos=17,blocks=5,seed=0x1");
    cr_expect_eq(w.unit, BENCH_MATRIX);
    cr_expect_eq(w.operations, 2.0 * 2 * 5 * 4 * 128);
}

Test(bench, limit_is_the_longer_of_both)
{
    struct bench_rates rates = {.bytes = 100, .f32 = 10, .matrix = 1000};
    struct bench_work moves = {300, 0, BENCH_BYTES}, f32 = {300, 70, BENCH_F32};
    struct bench_work matrix = {300, 70, BENCH_MATRIX};
    struct bench_limit limit = bench_limit_of(&moves, &rates);
    cr_expect_eq(limit.us, 3e6);
    cr_expect_str_eq(limit.bound, "memory");
    limit = bench_limit_of(&f32, &rates);
    cr_expect_eq(limit.us, 7e6);
    cr_expect_eq(limit.memory_us, 3e6);
    cr_expect_str_eq(limit.bound, "arithmetic");
    limit = bench_limit_of(&matrix, &rates);
    cr_expect_eq(limit.us, 3e6);
    cr_expect_eq(limit.arithmetic_us, 70e3);
    cr_expect_str_eq(limit.bound, "memory");
}
