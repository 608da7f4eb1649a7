#include "harness/search/bisect_rows.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/base/process.h"

/* A project in a folder of its own whose `make` copies a shell script to build/attest. */
static char folder[64];

#define RESULT(verdict, check) "printf '{\"verdict\":\"" verdict "\",\"check\":\"" check "\"}\\n'\n"
#define RIGHT RESULT("pass", "")
#define BUG RESULT("fail", "contract out") "exit 1\n"
#define CASE "glm5next_dsa_mla_decode_fp8:seqs=1,len=[3,4],regime=normal,seed=0x1"

static char *shell(const char *command)
{
    const char *argv[] = {"sh", "-ec", command, NULL};
    struct process_options o = {.directory = folder, .timeout_s = 60};
    struct process_result p;
    char error[200] = "";
    cr_assert(process_run(argv, &o, &p, error, sizeof error), "%s", error);
    cr_assert_eq(p.exit_code, 0, "%s\n%s%s", command, p.output, p.errors);
    free(p.errors);
    p.output[strcspn(p.output, "\n")] = 0;
    return p.output;
}

static void write_file(const char *name, const char *text)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    cr_assert_not_null(f);
    fputs(text, f);
    cr_assert_eq(fclose(f), 0);
}

/* Commits a program of that body; returns the hash. */
static char *commit(const char *subject, const char *body)
{
    char script[2000], command[400];
    snprintf(
        script, sizeof script,
        "#!/bin/sh\n[ $1 = explain ] && { echo 'out is WRONG: the first wrong stage'; exit 1; }\n"
        "%s# %s\n",
        body, subject);
    write_file("attest.sh", script);
    snprintf(command, sizeof command,
             "git add -A && git -c user.name=a -c user.email=a@example.com commit -q -m '%s' && "
             "git rev-parse HEAD",
             subject);
    return shell(command);
}

static void set_up(void)
{
    strcpy(folder, "/tmp/attest-test-bisect-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    free(shell("git init -q ."));
    write_file("Makefile", "build:\n\t@mkdir -p build\n\t@sh -n attest.sh && cp attest.sh "
                           "build/attest && chmod +x build/attest\n.PHONY: build\n");
}

static void tear_down(void)
{
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    free(shell(command));
}

TestSuite(bisect, .init = set_up, .fini = tear_down, .timeout = 120);

static struct bisect_revisions revisions;
static struct bisect_result result;

/* Leaves `revisions` open. */
static void search(const char *good, const char *bad, const char *case_text)
{
    struct bisect_row row;
    bool bad_input;
    char error[600] = "";
    revisions = (struct bisect_revisions){.replayed = {.text = case_text, .timeout_s = 2},
                                          .repository = folder,
                                          .build = "make build",
                                          .build_timeout_s = 60};
    cr_assert(bisect_revisions_open(&revisions, &row, good, bad, &bad_input, error, sizeof error),
              "%s", error);
    bisect_search(&row, revisions.good_end, revisions.bad_end, false, &result);
}

/* The search leaves no worktree and no folder behind. */
static void close_search(void)
{
    char tree[PATH_MAX];
    snprintf(tree, sizeof tree, "%s", revisions.folder);
    bisect_revisions_close(&revisions);
    cr_expect_neq(access(tree, F_OK), 0, "%s is still there", tree);
    char *list = shell("git worktree list | wc -l");
    cr_expect_eq(atoi(list), 1);
    free(list);
}

Test(bisect, names_the_commit_among_broken_and_unrelated_ones)
{
    char *good = commit("start", RIGHT);
    free(commit("unrelated", RIGHT));
    free(commit("does not build", "if then\n"));
    free(commit("builds again", RIGHT));
    free(commit("unrelated again", RIGHT));
    char *culprit = commit("kernel: faster", BUG);
    free(commit("does not build either", "done\n"));
    free(commit("unrelated once more", BUG));
    char *bad = commit("last", BUG);
    search(good, bad, CASE);
    cr_expect_eq(result.end, BISECT_FOUND, "%s", result.error);
    cr_expect_str_eq(result.culprit, culprit);
    cr_expect_str_eq(result.bad.replay.check, "contract out");
    char *text = bisect_revisions_describe(&revisions, result.culprit);
    cr_expect_not_null(strstr(text, "kernel: faster"));
    struct replay_request q;
    char program[PATH_MAX], directory[PATH_MAX], why[200];
    cr_assert(bisect_revisions_rebuild(&revisions, result.culprit, why, sizeof why), "%s", why);
    bisect_revisions_request(&revisions, program, directory, &q);
    char *explained = replay_explain(&q, CASE);
    cr_expect_str_eq(explained, "out is WRONG: the first wrong stage\n");
    close_search();
    free(explained);
    free(text);
    free(culprit);
    free(good);
    free(bad);
}

Test(bisect, another_failure_is_not_this_one)
{
    char *good = commit("start", RIGHT);
    free(commit("other bug", RESULT("fail", "contract lse") "exit 1\n"));
    free(commit("fixed", RIGHT));
    char *culprit = commit("this bug", BUG);
    char *bad = commit("last", BUG);
    search(good, bad, CASE);
    cr_expect_eq(result.end, BISECT_FOUND, "%s", result.error);
    cr_expect_str_eq(result.culprit, culprit);
    close_search();
    free(culprit);
    free(good);
    free(bad);
}

Test(bisect, what_cannot_be_judged_beside_the_culprit_gives_a_range)
{
    char *good = commit("start", RIGHT);
    free(commit("other bug", RESULT("fail", "guard") "exit 1\n"));
    free(commit("no such case", "echo 'attest: no' >&2; exit 2\n"));
    free(commit("infrastructure", "exit 3\n"));
    free(commit("hangs", "sleep 60\n"));
    free(commit("does not build", "if then\n"));
    char *bad = commit("last", BUG);
    search(good, bad, CASE);
    cr_expect_eq(result.end, BISECT_RANGE, "%s", result.error);
    cr_expect_eq(result.unjudged, 5);
    cr_expect_str_eq(result.culprit, bad);
    close_search();
    free(good);
    free(bad);
}

Test(bisect, goes_through_merged_branches)
{
    char *good = commit("start", RIGHT);
    free(shell("git checkout -q -b side"));
    char *culprit = commit("on the side", BUG);
    free(commit("more on the side", BUG));
    free(shell("git checkout -q -"));
    write_file("other", "x");
    free(commit("meanwhile", RIGHT));
    free(shell("git -c user.name=a -c user.email=a@example.com merge -q -X theirs side -m merged"));
    char *bad = shell("git rev-parse HEAD");
    search(good, bad, CASE);
    cr_expect_eq(result.end, BISECT_FOUND, "%s", result.error);
    cr_expect_str_eq(result.culprit, culprit);
    close_search();
    free(culprit);
    free(good);
    free(bad);
}

/* An older build that has no key `spare`. */
#define OLDER(rest)                                                                            \
    "case \"$*\" in *spare=*) echo \"attest: glm5next has no key 'spare'; it has seqs\" >&2\n" \
    "exit 2;; esac\n" rest

Test(bisect, keys_that_an_older_revision_lacks_are_dropped_at_their_default)
{
    char *good = commit("start", OLDER(RIGHT));
    char *culprit = commit("bug", OLDER(BUG));
    free(commit("the key", BUG));
    char *bad = commit("last", BUG);
    search(good, bad, CASE ",spare=1");
    cr_expect_eq(result.end, BISECT_FOUND, "%s", result.error);
    cr_expect_str_eq(result.culprit, culprit);
    cr_expect_str_eq(result.bad.replay.case_text, CASE);
    close_search();
    /* With another value the older build would run another case. */
    search(culprit, bad, CASE ",spare=3");
    cr_expect_eq(result.end, BISECT_INPUT);
    cr_expect_not_null(strstr(result.error, "cannot say"), "%s", result.error);
    cr_expect_not_null(strstr(result.error, "spare"), "%s", result.error);
    close_search();
    free(culprit);
    free(good);
    free(bad);
}

Test(bisect, ends_that_are_not_what_they_should_be_are_named)
{
    char *first = commit("bug", BUG);
    char *fixed = commit("fixed", RIGHT);
    char *again = commit("bug again", BUG);
    search(first, again, CASE);
    cr_expect_eq(result.end, BISECT_INPUT);
    cr_expect_not_null(strstr(result.error, "not good: this failure"), "%s", result.error);
    close_search();
    search(first, fixed, CASE);
    cr_expect_eq(result.end, BISECT_INPUT);
    cr_expect_not_null(strstr(result.error, "passes at the bad end"), "%s", result.error);
    close_search();
    struct bisect_row row;
    bool bad_input = false;
    char error[600];
    cr_expect_not(
        bisect_revisions_open(&revisions, &row, again, first, &bad_input, error, sizeof error));
    cr_expect(bad_input);
    cr_expect_not(
        bisect_revisions_open(&revisions, &row, "no-such", first, &bad_input, error, sizeof error));
    cr_expect(bad_input);
    free(first);
    free(fixed);
    free(again);
}

Test(bisect, over_modules_in_their_order)
{
    static const char *const files[] = {"v1", "v2", "v3", "v4", "v5", "v6", "v7"};
    struct bisect_row row;
    write_file("attest.sh", "#!/bin/sh\ncase \"$*\" in\n*v3*) exit 3;;\n"
                            "*v5*|*v6*|*v7*) " BUG ";;\nesac\n" RIGHT);
    free(shell("make build"));
    char program[200];
    snprintf(program, sizeof program, "%s/build/attest", folder);
    struct bisect_modules m = {.replayed = {.text = CASE, .timeout_s = 10},
                               .program = program,
                               .files = files,
                               .count = 7};
    cr_assert(bisect_modules_open(&m, &row));
    bisect_search(&row, files[0], files[6], false, &result);
    cr_expect_eq(result.end, BISECT_FOUND, "%s", result.error);
    cr_expect_str_eq(result.culprit, "v5");
    bisect_modules_close(&m);
}

Test(bisect, a_key_is_cut_out_of_a_case_with_its_list)
{
    char without[200], value[100];
    cr_assert(replay_drop_key("op:a=1,len=[3,4],b=2", "len", without, sizeof without, value,
                              sizeof value));
    cr_expect_str_eq(without, "op:a=1,b=2");
    cr_expect_str_eq(value, "[3,4]");
    cr_assert(replay_drop_key("op:a=1,len=[3,4]", "len", without, sizeof without, value, 100));
    cr_expect_str_eq(without, "op:a=1");
    cr_assert(replay_drop_key("op:len=[]", "len", without, sizeof without, value, 100));
    cr_expect_str_eq(without, "op");
    cr_expect_not(replay_drop_key("op:lens=1", "len", without, sizeof without, value, 100));
    cr_expect_not(replay_drop_key("op", "len", without, sizeof without, value, 100));
}
