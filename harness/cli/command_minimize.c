#include <stdio.h>
#include <string.h>

#include "harness/cli/commands.h"
#include "harness/search/minimize.h"
#include "harness/session/session.h"

int command_minimize(int argc, char **argv)
{
    static struct case_line c;
    static struct result failure;
    struct options o;
    struct verify_context x;
    char error[512], text[CASE_TEXT_MAX], flags[REPLAY_FLAGS_MAX];
    int code = EXIT_USAGE;
    uint64_t trials = 0;
    if (wants_help(argc, argv)) {
        puts("attest minimize CASE [options]\n\n"
             "Shrinks a failing case: geometry, then structure, then values, keeping the same kind\n"
             "of failure. Prints the smallest case found and its failure.\n");
        options_help("minimize");
        return EXIT_PASS;
    }
    if (!options_parse(argc, argv, &o)) return EXIT_USAGE;
    if (o.n_words != 1) {
        fprintf(stderr, "attest: minimize needs one case\n");
        return EXIT_USAGE;
    }
    if (!case_parse(o.words[0], &c, error, sizeof error)) {
        fprintf(stderr, "attest: %s\n", error);
        return EXIT_USAGE;
    }
    if (!session_context(&o, &x, &code)) return code;
    x.trace = !o.no_trace && x.backend == &gpu_backend_simt;
    struct minimize_options how = {o.budget_s, o.timeout_s, o.jobs, !o.quiet, NULL};
    if (!minimize_case(&x, &how, &c, &failure, &trials, error, sizeof error)) {
        fprintf(stderr, "attest: %s\n", error);
        return failure.verdict == VERDICT_PASS ? EXIT_USAGE : EXIT_INFRA;
    }
    case_print(&c, text, sizeof text);
    options_replay_flags(&o, flags, sizeof flags);
    printf("FAIL %s\n  check %s, smallest of %llu cases tried\n%s  replay: attest run '%s'%s\n", text,
           failure.check, (unsigned long long)trials, failure.text, text, flags);
    return EXIT_WRONG;
}
