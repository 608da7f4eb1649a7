/* The command line: who takes which option, what a file of cases may ask for, replay flags. */
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <string.h>

#include "harness/session/options.h"

static bool parse(struct options *o, int argc, const char *const *words)
{
    static char *argv[8];
    for (int i = 0; i < argc; i++) argv[i] = (char *)(uintptr_t)words[i];
    argv[argc] = NULL;
    return options_parse(argc, argv, o);
}

static void fails_with(int argc, const char *const *words, const char *message)
{
    struct options o;
    cr_redirect_stderr();
    cr_expect_not(parse(&o, argc, words));
    fflush(stderr);
    cr_expect_stderr_eq_str(message);
}

Test(options, of_another_command_is_refused)
{
    const char *words[] = {"run", "qsa_score:hd=32", "--cases", "4"};
    fails_with(4, words,
               "attest: --cases is for verify broken bench, not for run; `attest run --help` "
               "lists its options\n");
}

Test(options, unknown_one_behind_a_case_is_named)
{
    const char *words[] = {"run", "qsa_score:hd=32", "--trace"};
    fails_with(3, words,
               "attest: --trace is not an option; `attest run --help` lists the options\n");
}

Test(options, unknown_letter_is_named)
{
    const char *words[] = {"verify", "-x"};
    fails_with(2, words, "attest: -x is not an option; `attest verify --help` lists the options\n");
}

Test(options, value_that_is_missing)
{
    const char *words[] = {"verify", "--jobs"};
    fails_with(2, words,
               "attest: --jobs needs a value; `attest verify --help` lists the options\n");
}

Test(options, value_that_none_takes)
{
    const char *words[] = {"verify", "--json=3"};
    fails_with(2, words,
               "attest: --json takes no value; `attest verify --help` lists the options\n");
}

Test(options, command_without_arguments)
{
    const char *words[] = {"replay", "x"};
    struct options o;
    cr_redirect_stderr();
    cr_assert(parse(&o, 2, words));
    cr_expect_not(options_no_words(&o, "replay"));
}

Test(options, help_shows_those_of_the_command_alone)
{
    char text[4096] = "";
    cr_redirect_stdout();
    options_help("judge");
    fflush(stdout);
    size_t n = fread(text, 1, sizeof text - 1, cr_get_redirected_stdout());
    text[n] = 0;
    cr_expect_not_null(strstr(text, "--model"));
    cr_expect_null(strstr(text, "--jobs"), "%s", text);
}

Test(options, a_file_may_ask_for_patience)
{
    const char *words[] = {"run", "f.txt", "--jobs", "7"};
    struct options o;
    char error[256];
    cr_assert(parse(&o, 4, words));
    cr_assert(options_wishes(" --timeout 600 --jobs 1 --no-trace\n", &o, error, sizeof error), "%s",
              error);
    cr_expect_eq(o.timeout_s, 600);
    cr_expect_eq(o.jobs, 7, "the command line decides");
    cr_expect(o.no_trace);
    /* A second file wants less time: the first still needs its own. */
    cr_assert(options_wishes("--timeout 200", &o, error, sizeof error), "%s", error);
    cr_expect_eq(o.timeout_s, 600);
}

Test(options, a_file_may_ask_for_nothing_else)
{
    static const char *const lines[] = {"--report x",     "timeout 600", "--timeout",
                                        "--timeout none", "--jobs 0",    "--nothing"};
    const char *words[] = {"run", "f.txt"};
    cr_redirect_stderr();
    for (int i = 0; i < 6; i++) {
        struct options o;
        char error[256] = "";
        cr_assert(parse(&o, 2, words));
        cr_expect_not(options_wishes(lines[i], &o, error, sizeof error), "%s", lines[i]);
        cr_expect_neq(error[0], 0);
        cr_expect_eq(o.timeout_s, 120);
    }
}

Test(options, a_replay_carries_what_names_the_kernel)
{
    const char *words[] = {"verify", "--source", "it's mine.cu", "--model", "exp_ulp=2"};
    struct options o;
    char text[200], small[16];
    cr_assert(parse(&o, 5, words));
    options_replay_flags(&o, text, sizeof text);
    cr_expect_str_eq(text, " --source 'it'\\''s mine.cu' --model 'exp_ulp=2'");
    options_replay_flags(&o, small, sizeof small);
    cr_expect_lt(strlen(small), sizeof small);
}
