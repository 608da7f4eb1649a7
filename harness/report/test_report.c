#include "harness/report/report.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/test_files.h"
#include "harness/cli/report_write.h"
#include "harness/report/agree.h"
#include "harness/report/html.h"
#include "harness/report/merge.h"
#include "harness/report/plot.h"
#include "harness/report/words.h"

static struct test_dir dir;

static void set_up(void)
{
    test_dir_make(&dir);
}

static void tear_down(void)
{
    test_dir_remove(&dir);
}

TestSuite(report, .init = set_up, .fini = tear_down, .timeout = 120);

#define DECODE "glm5next_dsa_mla_decode_fp8"
#define LINE(name, backend, verdict, check, ratio, rest)                      \
    "{\"case\":\"" name "\",\"op\":\"" DECODE "\",\"backend\":\"" backend     \
    "\",\"verdict\":\"" verdict "\",\"check\":\"" check "\",\"ratio\":" ratio \
    ",\"seconds\":0.5,\"seed\":\"1\","                                        \
    "\"tier\":\"quick\",\"date\":\"2024-07-01\"" rest "}\n"
#define BITS(digest)                                                                    \
    ",\"digest\":\"" digest "\",\"compared\":100,\"nearest\":90,\"ulp\":0.75,"          \
    "\"checks\":{\"contract\":1,\"guard\":2},\"ratios\":[60,40,0,0,0,0,0,0,0,0,0,0,0]," \
    "\"ulps\":[50,0,0,40,10,0,0,0,0,0,0,0],\"margins\":[1,0,0,0,0,0,2,3]"
#define A DECODE ":seqs=1,regime=normal,seed=0x1"
#define B DECODE ":seqs=2,regime=peaked,seed=0x2"
#define GOOD_A LINE(A, "simt", "pass", "", "0.25", BITS("00000000000000aa"))
#define GOOD_B LINE(B, "simt", "pass", "", "0.5", BITS("00000000000000bb"))
#define SWEEP                                                                                      \
    LINE(DECODE " (refusal sweep 0)", "simt", "pass", "", "null",                                  \
         ",\"geometries\":1000,\"refused\":400,\"rules\":{\"block_size_zero\":300,\"degenerate\":" \
         "100}")
#define BROKEN(name, verdict)                                                                  \
    LINE(A, "simt", verdict, "poison", "null",                                                 \
         ",\"kernel\":\"" name "\",\"kind\":\"PAGE\",\"bug\":\"a <bad> one\",\"like\":\"P1\"," \
         "\"cases\":7")

static const char *file(const char *name, const char *text)
{
    return test_file_write(&dir, name, text, strlen(text));
}

/* The report of one file's text; freed by the caller. */
static struct report read_text(const char *text)
{
    struct report r = {0};
    char error[400] = "";
    cr_assert(report_read(&r, file("in.jsonl", text), error, sizeof error), "%s", error);
    cr_assert(report_finish(&r, error, sizeof error), "%s", error);
    return r;
}

Test(report, sums_up_by_operation_and_regime)
{
    struct report r = read_text(GOOD_A GOOD_B SWEEP BROKEN("k", "fail"));
    cr_assert_eq(r.n_ops, 1);
    cr_assert_eq(r.ops[0].n_regimes, 2);
    cr_expect_str_eq(r.ops[0].regimes[0].name, "normal");
    cr_expect_str_eq(r.ops[0].regimes[1].name, "peaked");
    cr_expect_eq(r.ops[0].regimes[1].counts.worst_ratio, 0.5);
    cr_expect_eq(r.total.cases, 2);
    cr_expect_eq(r.total.compared, 200);
    cr_expect_eq(r.total.nearest, 180);
    cr_expect_eq(r.total.worst_ratio, 0.5);
    cr_expect_str_eq(r.total.worst_case, B);
    cr_expect_eq(r.total.max_ulp, 0.75);
    cr_expect_eq(r.total.spread.ratio[1], 80);
    cr_expect_eq(r.total.spread.ulp[4], 20);
    cr_expect_eq(r.total.spread.margin[7], 6);
    cr_expect_eq(r.total.checks[CHECK_GUARD], 4);
    cr_expect_eq(r.geometries, 1000);
    cr_expect_eq(r.geometries_refused, 400);
    cr_assert_eq(r.ops[0].n_rules, 2);
    cr_expect_eq(r.ops[0].rules[0].geometries, 300);
    cr_expect_eq(r.n_broken, 1);
    cr_expect_eq(r.n_caught, 1);
    cr_expect_eq(report_state(&r), REPORT_RIGHT);
    cr_expect_str_eq(report_date(&r, NULL), "2024-07-01");
    cr_expect_str_eq(report_date(&r, "today"), "today");
    report_free(&r);
}

Test(report, says_how_it_stands)
{
    static const struct {
        const char *text;
        enum report_state state;
    } all[] = {
        {GOOD_A LINE(B, "simt", "fail", "contract out", "7.5", ",\"text\":\"  wrong\\n\""),
         REPORT_WRONG},
        {GOOD_A LINE(B, "simt", "error", "memory", "null", ""), REPORT_UNCERTAIN},
        {LINE(A, "simt", "refused", "degenerate", "null", ""), REPORT_UNCERTAIN},
        {LINE(A, "simt", "pass", "", "null", ""), REPORT_UNCERTAIN},
        {GOOD_A BROKEN("k", "pass"), REPORT_BLIND},
        {GOOD_A BROKEN("k", "error"), REPORT_UNCERTAIN},
        {GOOD_A LINE("x (refusal sweep 0)", "simt", "fail", "refusal r", "null",
                     ",\"geometries\":3"),
         REPORT_WRONG},
        /* The same case again with other bits, and on another backend with other bits. */
        {GOOD_A LINE(A, "simt", "pass", "", "0.25", BITS("00000000000000ab")), REPORT_WRONG},
        {GOOD_A LINE(A, "cuda", "pass", "", "0.25", BITS("00000000000000ab")), REPORT_WRONG},
        {GOOD_A LINE(A, "cuda", "pass", "", "0.25", BITS("00000000000000aa")), REPORT_RIGHT},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct report r = read_text(all[i].text);
        struct report_words words;
        report_say(&r, &words);
        cr_expect_eq(report_state(&r), all[i].state, "%zu: %s", i, words.verdict);
        report_free(&r);
    }
}

Test(report, a_case_that_stands_twice_counts_once)
{
    struct report r =
        read_text(GOOD_A GOOD_A GOOD_B SWEEP SWEEP BROKEN("k", "fail") BROKEN("k", "fail"));
    cr_expect_eq(r.total.cases, 2);
    cr_expect_eq(r.repeats, 2);
    cr_expect_eq(r.geometries, 1000);
    cr_expect_eq(r.n_broken, 1);
    report_free(&r);
    /* Of two results for a broken kernel the worse one counts. */
    r = read_text(GOOD_A BROKEN("k", "fail") BROKEN("k", "pass") BROKEN("k", "fail"));
    cr_expect_eq(r.n_caught, 0);
    report_free(&r);
}

Test(report, hostile_lines_are_named_with_file_and_line)
{
    static const struct {
        const char *line, *expected;
    } all[] = {
        {"{\n", ":2:"},
        {"[]\n", ":2:"},
        {LINE(A, "simt", "pass", "", "0", ",\"compared\":-1"), "compared"},
        {LINE(A, "simt", "pass", "", "0", ",\"compared\":1.5"), "compared"},
        {LINE(A, "simt", "pass", "", "0", ",\"compared\":1e300"), "compared"},
        {LINE(A, "simt", "pass", "", "0", ",\"ratios\":[1,2]"), "ratios"},
        {LINE(A, "simt", "pass", "", "0", ",\"ulps\":{}"), "ulps"},
        {LINE(A, "simt", "pass", "", "0", ",\"checks\":{\"nonsense\":1}"), "nonsense"},
        {LINE(A, "simt", "pass", "", "0", ",\"checks\":3"), "checks"},
        {LINE(A, "simt", "pass", "", "0", ",\"digest\":\"xyz\""), "digest"},
        {LINE(A, "simt", "pass", "", "0", ",\"kernel_seconds\":\"no\""), "kernel_seconds"},
        {LINE(A, "simt", "fail", "x", "0", ",\"text\":3"), "text"},
        {LINE(A, "simt", "pass", "", "0", ",\"geometries\":true"), "geometries"},
        {LINE(A, "simt", "pass", "", "0", ",\"geometries\":1,\"rules\":[]"), "rules"},
        {LINE(A, "simt", "pass", "", "0", ",\"kernel\":\"k\""), "bug"},
        {"{\"case\":\"" A, "stops after"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char text[4000], error[400] = "";
        struct report r = {0};
        snprintf(text, sizeof text, "%s%s", GOOD_B, all[i].line);
        cr_expect_not(report_read(&r, file("in.jsonl", text), error, sizeof error), "%zu", i);
        cr_expect_not_null(strstr(error, "in.jsonl:2: "), "%zu: %s", i, error);
        cr_expect_not_null(strstr(error, all[i].expected), "%zu: %s", i, error);
        report_free(&r);
    }
}

/* Every prefix and many mutations of good input are taken or refused, and never crash. */
Test(report, survives_mutations)
{
    static const char good[] = GOOD_A SWEEP BROKEN("k", "fail") GOOD_B;
    uint64_t state = 7;
    char text[sizeof good];
    for (int i = 0; i < 3000; i++) {
        char error[400] = "";
        struct report r = {0};
        memcpy(text, good, sizeof good);
        for (int k = 0; k < 1 + i % 4; k++)
            text[test_random(&state) % (sizeof good - 1)] = (char)(1 + test_random(&state) % 255);
        if (i % 3 == 0) text[test_random(&state) % (sizeof good - 1)] = 0;
        bool fine = report_read(&r, file("in.jsonl", text), error, sizeof error) &&
                    report_finish(&r, error, sizeof error);
        cr_expect(fine || error[0]);
        report_free(&r);
    }
}

static int run(const char *const *arguments)
{
    char *argv[12];
    int argc = 0;
    argv[argc++] = (char *)(uintptr_t) "report";
    for (; *arguments; arguments++) argv[argc++] = (char *)(uintptr_t)*arguments;
    argv[argc] = NULL;
    return command_report_write(argc, argv);
}

static char *read_file(const char *name)
{
    size_t size;
    unsigned char *bytes = test_file_read(test_file_at(&dir, name), &size);
    bytes = realloc(bytes, size + 1);
    bytes[size] = 0;
    return (char *)bytes;
}

Test(report, bad_input_leaves_the_old_report_alone)
{
    char in[300];
    strcpy(in, file("in.jsonl", GOOD_A SWEEP));
    const char *const good[] = {"--out", dir.path, "--gnuplot", "/none", in, NULL};
    cr_assert_eq(run(good), 0);
    char *before = read_file("tolerance.json");
    size_t files = test_dir_count(&dir);
    file("in.jsonl", GOOD_A "{\"case\":");
    cr_expect_eq(run(good), 2);
    const char *const missing[] = {"--out", dir.path, "--coverage", "/none", in, NULL};
    cr_expect_eq(run(missing), 2);
    file("in.jsonl", "");
    cr_expect_eq(run(good), 2);
    char *after = read_file("tolerance.json");
    cr_expect_str_eq(before, after);
    cr_expect_eq(test_dir_count(&dir), files);
    free(before);
    free(after);
}

Test(report, equal_input_gives_equal_files_without_a_clock)
{
    static const char *const names[] = {"tolerance.json", "tolerance.md", "tolerance.html"};
    char in[300], *first[3];
    strcpy(in, file("in.jsonl", GOOD_A GOOD_B SWEEP BROKEN("k", "fail")));
    const char *const arguments[] = {"--out", dir.path, "--date", "2024-01-02", in, NULL};
    cr_assert_eq(run(arguments), 0);
    for (int i = 0; i < 3; i++) first[i] = read_file(names[i]);
    cr_assert_eq(run(arguments), 0);
    for (int i = 0; i < 3; i++) {
        char *again = read_file(names[i]);
        cr_expect_str_eq(first[i], again);
        cr_expect_not_null(strstr(again, "2024-01-02"), "%s", names[i]);
        free(again);
        free(first[i]);
    }
}

Test(report, the_page_needs_nothing_else_and_escapes_what_it_shows)
{
    struct report r = read_text(GOOD_A BROKEN("k", "fail") LINE(
        B "<script>", "simt", "fail", "contract \\\"out\\\"", "9", ",\"text\":\"a<b&c\""));
    struct report_plots plots;
    struct report_changes none = {0};
    report_plots_make(&r, "/no/such/gnuplot", &plots);
    cr_expect_not_null(strstr(plots.note, "No plots"));
    char *page = report_html(&r, &none, NULL, &plots);
    cr_expect_null(strstr(page, "<script"));
    cr_expect_null(strstr(page, "http"));
    cr_expect_null(strstr(page, "<link"));
    cr_expect_not_null(strstr(page, "a&lt;b&amp;c"));
    cr_expect_not_null(strstr(page, "a &lt;bad&gt; one"));
    cr_expect_not_null(strstr(page, "No plots: "));
    cr_expect_not_null(strstr(page, "Not right: 1 of 2 cases failed."));
    char *markdown = report_markdown(&r, &none, NULL);
    cr_expect_not_null(strstr(markdown, "Not right: 1 of 2 cases failed."));
    free(markdown);
    free(page);
    report_plots_free(&plots);
    report_free(&r);
}

Test(report, plots_take_their_colours_from_the_page)
{
    struct report r = read_text(GOOD_A GOOD_B BROKEN("k", "fail"));
    struct report_plots plots;
    report_plots_make(&r, "gnuplot", &plots);
    if (strstr(plots.note, "cannot be started")) cr_skip_test("gnuplot is not here");
    cr_assert_str_eq(plots.note, "");
    for (int k = 0; k < PLOT_KINDS; k++) {
        cr_assert_not_null(plots.ops[0][k]);
        cr_expect_not_null(strstr(plots.ops[0][k], "var(--accent)"), "%d", k);
        cr_expect_null(strstr(plots.ops[0][k], "rgb("), "%d", k);
        cr_expect_null(strstr(plots.ops[0][k], " id="), "%d", k);
        cr_expect_not_null(strstr(plots.ops[0][k], "</svg>"), "%d", k);
    }
    cr_expect_not_null(plots.kills);
    report_plots_free(&plots);
    report_free(&r);
}

/* What a change of the data does to the comparison with a baseline made of `before`. */
static size_t worse(const char *before, const char *now, const char *expected)
{
    struct report a = read_text(before), b = read_text(now);
    struct report_changes changes = {0};
    char error[300] = "";
    cJSON *baseline = report_json(&a, NULL), *current = report_json(&b, NULL);
    cr_assert(report_against(current, baseline, &changes, error, sizeof error), "%s", error);
    bool found = !expected;
    for (size_t i = 0; i < changes.count; i++)
        found |= expected && changes.items[i].worse && strstr(changes.items[i].what, expected);
    cr_expect(found, "nothing says '%s'", expected);
    size_t n = changes.n_worse;
    report_changes_free(&changes);
    cJSON_Delete(baseline);
    cJSON_Delete(current);
    report_free(&a);
    report_free(&b);
    return n;
}

Test(report, marks_what_got_worse)
{
    static const char same[] = GOOD_A GOOD_B SWEEP BROKEN("k", "fail");
    cr_expect_eq(worse(same, same, NULL), 0);
    worse(same, GOOD_A SWEEP BROKEN("k", "fail"), "fewer cases");
    worse(same, GOOD_A SWEEP BROKEN("k", "fail"), "regime verified");
    worse(same, GOOD_A GOOD_B BROKEN("k", "fail"), "fewer geometries");
    worse(same, GOOD_A GOOD_B BROKEN("k", "fail"), "refusal seen");
    worse(same, GOOD_A GOOD_B SWEEP BROKEN("k", "pass"), "no longer caught");
    worse(same, GOOD_A GOOD_B SWEEP, "broken kernel tried");
    worse(same, LINE(A, "cuda", "pass", "", "0.25", BITS("00000000000000aa")), "backend used");
    worse(same, BROKEN("k", "fail"), "operation verified");
    worse(GOOD_A, LINE(A, "simt", "pass", "", "0.26", BITS("00000000000000aa")),
          "larger worst err/E");
    worse(GOOD_A,
          LINE(A, "simt", "pass", "", "0.25",
               ",\"compared\":100,\"nearest\":89,\"checks\":"
               "{\"contract\":1,\"guard\":2}"),
          "smaller share correctly rounded");
    worse(GOOD_A, LINE(A, "simt", "pass", "", "0.25", ",\"compared\":100,\"nearest\":90"),
          "check guard made less often");
}

Test(report, figures_that_depend_on_the_draw_are_no_failure_with_other_seeds)
{
    char now[4000];
    snprintf(now, sizeof now, "%s", LINE(A, "simt", "pass", "", "0.9", BITS("00000000000000cc")));
    memcpy(strstr(now, "\"seed\":\"1\""), "\"seed\":\"2\"", 10);
    cr_expect_eq(worse(GOOD_A, now, NULL), 0);
}

Test(report, a_baseline_that_is_none_is_refused)
{
    char in[300];
    strcpy(in, file("in.jsonl", GOOD_A));
    char baseline[300];
    static const char *const texts[] = {"", "{", "[]", "{\"format\":\"other\"}", "{}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        strcpy(baseline, file("base.json", texts[i]));
        const char *const arguments[] = {"--out", dir.path, "--against", baseline, in, NULL};
        cr_expect_eq(run(arguments), 2, "%s", texts[i]);
    }
    cr_expect_eq(test_dir_count(&dir), 2);
}

Test(report, coverage_is_read_from_lcov)
{
    struct report r = {0};
    char error[300] = "";
    const char *path = file("c.info", "SF:kernels/a.cu\nDA:1,4\nDA:2,0\nDA:4,0\nDA:5,1\nDA:9,0\n"
                                      "end_of_record\nSF:kernels/b.cu\nDA:3,1\nBRDA:3,0,0,7\n"
                                      "BRDA:3,0,1,0\nBRDA:3,1,2,-\nend_of_record\n");
    cr_assert(report_read_coverage(&r, path, error, sizeof error), "%s", error);
    cr_assert_eq(r.n_files, 2);
    cr_expect_eq(r.files[0].lines, 5);
    cr_expect_eq(r.files[0].covered, 2);
    cr_expect_str_eq(r.files[0].open_lines, "2-4, 9");
    cr_expect_str_eq(r.files[1].open_lines, "");
    cr_expect_eq(r.files[0].branches, 0);
    cr_expect_eq(r.files[1].branches, 3);
    cr_expect_eq(r.files[1].taken, 1);
    report_free(&r);
    static const char *const bad[] = {"",
                                      "DA:1,1\n",
                                      "SF:a\nDA:1\nend_of_record\n",
                                      "SF:a\nDA:2,1\nDA:1,1\nend_of_record\n",
                                      "SF:a\nDA:1,1\n",
                                      "SF:a\nSF:b\n",
                                      "BRDA:1,0,0,1\n",
                                      "SF:a\nBRDA:1,0,0\nend_of_record\n",
                                      "SF:a\nBRDA:1,0,0,-1\nend_of_record\n",
                                      "end_of_record\n",
                                      "SF:a\nend_of_record\nSF:a\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_expect_not(report_read_coverage(&r, file("c.info", bad[i]), error, sizeof error), "%zu",
                      i);
        cr_expect_not_null(strstr(error, "c.info:"), "%s", error);
        report_free(&r);
    }
}

#define BENCH(rest)                                                                               \
    "{\"op\":\"" DECODE "\",\"case\":\"" A "\",\"backend\":\"cuda\",\"median_us\":12.5," rest "}" \
                                                                                              "\n"

Test(report, times_come_from_bench)
{
    struct report r = {0};
    char error[300] = "";
    const char *path =
        file("t.jsonl", BENCH("\"least_us\":12,\"most_us\":13,\"limit_us\":5,\"device\":\"H\"")
                            BENCH("\"least_us\":12,\"most_us\":13"));
    cr_assert(report_read_timings(&r, path, error, sizeof error), "%s", error);
    cr_assert_eq(r.n_timings, 2);
    cr_expect_eq(r.timings[0].median_us, 12.5);
    cr_expect_eq(r.timings[0].limit_us, 5);
    cr_expect_str_eq(r.timings[0].device, "H");
    cr_expect_eq(r.timings[1].limit_us, 0);
    report_free(&r);
    static const char *const bad[] = {"",
                                      "{}\n",
                                      "{",
                                      "[1]\n",
                                      BENCH("\"least_us\":-1"),
                                      BENCH("\"least_us\":1,\"most_us\":2,\"device\":3")};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_expect_not(report_read_timings(&r, file("t.jsonl", bad[i]), error, sizeof error), "%zu",
                      i);
        cr_expect_not_null(strstr(error, "t.jsonl:"), "%s", error);
        report_free(&r);
    }
}

Test(report, shards_join_to_the_whole)
{
    struct merge_result merged;
    char a[300], b[300], error[400] = "";
    strcpy(a, file("a.jsonl", GOOD_B SWEEP));
    strcpy(b, file("b.jsonl", GOOD_A SWEEP));
    const char *const paths[] = {a, b};
    cr_assert(report_merge(paths, 2, &merged, error, sizeof error), "%s", error);
    cr_expect_eq(merged.lines, 3);
    cr_expect_eq(merged.repeated, 1);
    const char *first = strstr(merged.text, A), *second = strstr(merged.text, B);
    cr_expect(first && second && first < second);
    free(merged.text);
    /* The other order gives the same text. */
    const char *const other[] = {b, a};
    struct merge_result again;
    cr_assert(report_merge(paths, 2, &merged, error, sizeof error));
    cr_assert(report_merge(other, 2, &again, error, sizeof error));
    cr_expect_str_eq(merged.text, again.text);
    free(merged.text);
    free(again.text);
    file("b.jsonl", LINE(B, "simt", "fail", "guard", "null", ""));
    cr_expect_not(report_merge(paths, 2, &merged, error, sizeof error));
    cr_expect_not_null(strstr(error, "another result"), "%s", error);
    char text[4000];
    snprintf(text, sizeof text, "%s", GOOD_A);
    memcpy(strstr(text, "\"seed\":\"1\""), "\"seed\":\"2\"", 10);
    file("b.jsonl", text);
    cr_expect_not(report_merge(paths, 2, &merged, error, sizeof error));
    cr_expect_not_null(strstr(error, "no shards of one run"), "%s", error);
}

Test(report, agreement_is_of_bits)
{
    struct agree_run a, b;
    struct agree_result r;
    char error[300] = "";
    char one[300], two[300];
    strcpy(one, file("a.jsonl", GOOD_A GOOD_B SWEEP BROKEN("k", "fail")
                                    LINE(A "1", "simt", "refused", "degenerate", "null",
                                         ",\"digest\":\"0000000000000000\"")));
    strcpy(two, file("b.jsonl",
                     LINE(B, "cuda", "pass", "", "0.5",
                          BITS("00000000000000bc")) LINE(A "1", "cuda", "refused", "degenerate",
                                                         "null", ",\"digest\":\"0000000000000000\"")
                         LINE(A, "cuda", "pass", "", "0.25", BITS("00000000000000aa"))
                             LINE(A "2", "cuda", "pass", "", "0.25", BITS("00000000000000aa"))));
    cr_assert(agree_read(one, &a, error, sizeof error), "%s", error);
    cr_assert(agree_read(two, &b, error, sizeof error), "%s", error);
    cr_assert(agree_compare(&a, &b, &r));
    cr_expect_eq(r.total.equal, 1);
    cr_expect_eq(r.total.different, 1);
    cr_expect_eq(r.total.refused, 1);
    cr_expect_eq(r.total.only_first, 0);
    cr_expect_eq(r.total.only_second, 1);
    cr_assert_eq(r.n_differences, 1);
    cr_expect_str_eq(r.differences[0].first->text, B);
    agree_result_free(&r);
    agree_run_free(&a);
    agree_run_free(&b);
    cr_expect_not(
        agree_read(file("a.jsonl", LINE(A, "simt", "pass", "", "0", "")), &a, error, sizeof error));
    cr_expect_not_null(strstr(error, "a.jsonl:1: digest"), "%s", error);
}

Test(report, failures_on_both_sides_are_no_agreement)
{
    struct agree_run a, b;
    struct agree_result r;
    char error[300];
    const char *text = LINE(A, "simt", "fail", "guard", "null", ",\"digest\":\"0000000000000001\"");
    cr_assert(agree_read(file("a.jsonl", text), &a, error, sizeof error));
    cr_assert(agree_read(file("b.jsonl", text), &b, error, sizeof error));
    cr_assert(agree_compare(&a, &b, &r));
    cr_expect_eq(r.total.different, 1);
    agree_result_free(&r);
    agree_run_free(&a);
    agree_run_free(&b);
}

Test(report, bins_have_their_edges)
{
    struct distribution d = {{0}, {0}, {0}};
    distribution_ratio(&d, 0);
    distribution_ratio(&d, 0x1p-11);
    distribution_ratio(&d, 0x1p-10);
    distribution_ratio(&d, nextafter(0x1p-10, 1));
    distribution_ratio(&d, 1);
    distribution_ratio(&d, nextafter(1, 2));
    distribution_ratio(&d, INFINITY);
    cr_expect_eq(d.ratio[0], 1);
    cr_expect_eq(d.ratio[1], 2);
    cr_expect_eq(d.ratio[2], 1);
    cr_expect_eq(d.ratio[RATIO_BINS - 2], 1);
    cr_expect_eq(d.ratio[RATIO_BINS - 1], 2);
    distribution_ulp(&d, 0.5);
    distribution_ulp(&d, 64);
    distribution_ulp(&d, 65);
    cr_expect_eq(d.ulp[3], 1);
    cr_expect_eq(d.ulp[ULP_BINS - 2], 1);
    cr_expect_eq(d.ulp[ULP_BINS - 1], 1);
    distribution_margin(&d, 0, 1);
    distribution_margin(&d, 0.1, 1);
    distribution_margin(&d, 2, 1);
    distribution_margin(&d, 1, 0);
    distribution_margin(&d, INFINITY, 1);
    cr_expect_eq(d.margin[0], 1);
    cr_expect_eq(d.margin[1], 1);
    cr_expect_eq(d.margin[3], 1);
    cr_expect_eq(d.margin[MARGIN_BINS - 2], 1);
    cr_expect_eq(d.margin[MARGIN_BINS - 1], 1);
}

Test(report, a_percentage_is_never_rounded_to_all_or_nothing)
{
    char text[32];
    cr_expect_str_eq(report_percent(999999, 1000000, text), "99.99 %");
    cr_expect_str_eq(report_percent(1, 1000000, text), "0.01 %");
    cr_expect_str_eq(report_percent(3, 3, text), "100 %");
    cr_expect_str_eq(report_percent(0, 3, text), "0 %");
    cr_expect_str_eq(report_percent(0, 0, text), "-");
    cr_expect_str_eq(report_grouped(1234567, text), "1,234,567");
    cr_expect_str_eq(report_grouped(999, text), "999");
}
