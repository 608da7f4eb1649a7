/* Outputs from elsewhere: files with inputs and outputs, judged without a launch. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/test_files.h"
#include "harness/captured/captured.h"
#include "harness/verify/verify.h"

static struct test_dir dir;
static struct case_line c;
static struct instance in;
static struct expected e[INSTANCE_TENSORS_MAX];
static struct result result;

static void set_up(void)
{
    test_dir_make(&dir);
    memset(e, 0, sizeof e);
}

static void tear_down(void)
{
    expected_free(e);
    instance_free(&in);
    test_dir_remove(&dir);
}

TestSuite(judge, .init = set_up, .fini = tear_down);

/* Builds the case and what a right kernel makes of it. */
static void make(const char *text)
{
    const uint8_t *none[INSTANCE_TENSORS_MAX] = {NULL};
    char error[512];
    cr_assert(case_parse(text, &c, error, sizeof error), "%s", error);
    instance_init(&in, POISON_NAN);
    cr_assert(op_build(&c, &in));
    cr_assert(expected_alloc(&in, e));
    op_oracle(&c, &in, c.op->model, none, e);
}

static uint8_t *exact(const char *name)
{
    return e[instance_index(&in, name)].exact;
}

struct given {
    const char *name; /* got.NAME */
    enum st_dtype dtype;
    uint32_t rank;
    uint64_t shape[2];
    const void *data;
};

/* Writes the inputs with these outputs (the list ends with a NULL name) and judges the file. */
static void judge(const struct given *given)
{
    static const enum st_dtype types[] = {[DTYPE_BF16] = ST_BF16,
                                          [DTYPE_E4M3] = ST_F8_E4M3,
                                          [DTYPE_F32] = ST_F32,
                                          [DTYPE_I32] = ST_I32,
                                          [DTYPE_U8] = ST_U8};
    struct st_writer *w = st_writer_new();
    struct captured *file;
    char error[512], line[CASE_TEXT_MAX];
    const char *path = test_file_at(&dir, "captured.safetensors");
    case_print(&c, line, sizeof line);
    cr_assert(st_writer_metadata(w, "case", line, error, sizeof error), "%s", error);
    for (uint32_t i = 0; i < in.n_tensors; i++) {
        const struct tensor *t = &in.tensors[i];
        if (t->role != ROLE_IN) continue;
        cr_assert(st_writer_tensor(w, t->name, types[t->dtype], 1, &t->elems, t->data, error,
                                   sizeof error),
                  "%s", error);
    }
    for (; given->name; given++)
        cr_assert(st_writer_tensor(w, given->name, given->dtype, given->rank, given->shape,
                                   given->data, error, sizeof error),
                  "%s", error);
    cr_assert(st_writer_save(w, path, error, sizeof error), "%s", error);
    st_writer_free(w);
    cr_assert(captured_open(path, &file, error, sizeof error), "%s", error);
    captured_judge(file, NULL, &result);
    captured_close(file);
}

static void expect_verdict(enum verdict verdict, const char *words)
{
    cr_expect_eq(result.verdict, verdict, "%s %s", verdict_names[result.verdict], result.text);
    if (words) cr_expect(strstr(result.text, words), "%s", result.text);
}

Test(judge, an_exact_output)
{
    make("dsa_topk_pools:rows=3,pools=20,select=6,seed=0x5");
    int32_t *selected = (int32_t *)(void *)exact("selected");
    struct given given[] = {{"got.selected", ST_I32, 2, {3, 6}, selected}, {NULL, 0, 0, {0}, NULL}};
    judge(given);
    expect_verdict(VERDICT_PASS, NULL);
    cr_expect_eq(result.compared, 18);
    selected[7]++;
    judge(given);
    expect_verdict(VERDICT_FAIL, "1 of 18 elements of selected are wrong");
}

Test(judge, outputs_may_be_left_out_but_not_misspelt)
{
    make("dsa_index_scores:rows=2,heads=2,dim=32,len=40,kpool=4,seed=0x6");
    uint64_t pools = in.tensors[instance_index(&in, "out")].shape[1];
    struct given flags[] = {{"got.valid_cand", ST_U8, 2, {2, pools}, exact("valid_cand")},
                            {NULL, 0, 0, {0}, NULL}};
    judge(flags);
    expect_verdict(VERDICT_PASS, NULL);
    cr_expect_eq(result.compared, 2 * pools);
    struct given misspelt[] = {
        flags[0], {"got.scores", ST_F32, 2, {2, pools}, exact("out")}, {NULL, 0, 0, {0}, NULL}};
    judge(misspelt);
    expect_verdict(VERDICT_ERROR, "got.scores is no output of dsa_index_scores");
    struct given nothing[] = {{NULL, 0, 0, {0}, NULL}};
    judge(nothing);
    expect_verdict(VERDICT_ERROR, "nothing was judged");
}

/* The best k of exact scores, which any scorer within the bounds must find but for ties. */
static void best_of(const double *value, uint32_t n, uint32_t k, int32_t *set)
{
    for (uint32_t i = 0; i < k; i++) {
        int32_t best = -1;
        for (uint32_t p = 0; p < n; p++) {
            bool taken = false;
            for (uint32_t j = 0; j < i; j++) taken |= set[j] == (int32_t)p;
            if (!taken && (best < 0 || value[p] > value[best])) best = (int32_t)p;
        }
        set[i] = best;
    }
}

static void judge_selection_of(const char *text, uint32_t k)
{
    struct expected all[INSTANCE_TENSORS_MAX], *s = all;
    int32_t sets[64];
    char words[100];
    memset(all, 0, sizeof all);
    make(text);
    uint32_t rows = c.op->certify(&c, &in, s);
    cr_assert(rows && rows * k <= 64);
    for (uint32_t row = 0; row < rows; row++)
        best_of(s->select_value + row * s->select_stride, s->select_n[row], k, sets + row * k);
    struct given given[] = {{"got.selected", ST_I32, 2, {rows, k}, sets}, {NULL, 0, 0, {0}, NULL}};
    judge(given);
    expect_verdict(VERDICT_PASS, NULL);
    cr_expect_eq(result.identical + result.equivalent, rows);
    /* The worst of all in place of the best. */
    uint32_t row = rows - 1, worst = 0;
    for (uint32_t p = 0; p < s->select_n[row]; p++)
        if (s->select_value[row * s->select_stride + p] <
            s->select_value[row * s->select_stride + worst])
            worst = p;
    sets[row * k] = (int32_t)worst;
    judge(given);
    snprintf(words, sizeof words, "%u", worst);
    expect_verdict(VERDICT_FAIL, words);
    cr_expect_str_eq(result.check, "contract selected");
    given[0].shape[0] = 1;
    judge(given);
    expect_verdict(VERDICT_ERROR, "got.selected has 1 rows");
    expected_free(all);
}

Test(judge, a_selection_without_its_scores_dsa)
{
    judge_selection_of("dsa_index_scores:rows=3,heads=4,dim=64,len=200,kpool=4,pos=[150,170,199],"
                       "seed=0x7",
                       8);
}

Test(judge, a_selection_without_its_scores_qsa)
{
    judge_selection_of("qsa_score_rows:rows=3,pos=200,ratio=4,blocks=60,heads=4,hd=64,seed=0x8", 8);
}

Test(judge, a_selection_without_its_scores_split_q)
{
    judge_selection_of("qsa_score_rows_tc:rows=3,pos=200,ratio=4,blocks=60,seed=0x9", 8);
}

Test(judge, a_selection_needs_a_scorer)
{
    make("dsa_topk_to_mask:rows=2,len=20,seed=0x1");
    int32_t set[2] = {0, 1};
    struct given given[] = {{"got.selected", ST_I32, 2, {2, 1}, set}, {NULL, 0, 0, {0}, NULL}};
    judge(given);
    expect_verdict(VERDICT_ERROR, "dsa_topk_to_mask has no scores to select from");
}
