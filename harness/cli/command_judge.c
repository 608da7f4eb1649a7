#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "gpu/cuda/selftest.h"
#include "harness/captured/captured.h"
#include "harness/cli/commands.h"
#include "harness/session/session.h"

static int judge_file(const char *path, const struct options *o)
{
    static struct result r;
    struct captured *file;
    char error[1024], line[CASE_TEXT_MAX];
    if (!captured_open(path, &file, error, sizeof error)) {
        fprintf(stderr, "attest: %s\n", error);
        return EXIT_USAGE;
    }
    captured_judge(file, &o->model, &r);
    case_print(&captured_item(file, 0)->c, line, sizeof line);
    captured_close(file);
    if (r.verdict == VERDICT_PASS) {
        printf("PASS %s\n  %s\n  %" PRIu64 " elements judged, worst err/E %.4f", path, line,
               r.compared, r.worst_ratio);
        if (r.identical || r.equivalent)
            printf(", %u selections identical, %u equivalent", r.identical, r.equivalent);
        printf("\n");
        return EXIT_PASS;
    }
    printf("%s %s\n  %s\n  check %s\n%s", r.verdict == VERDICT_FAIL ? "FAIL" : "ERROR", path, line,
           r.check, r.text);
    return r.verdict == VERDICT_FAIL ? EXIT_WRONG : EXIT_USAGE;
}

int command_judge(int argc, char **argv)
{
    struct options o;
    int worst = EXIT_PASS;
    if (wants_help(argc, argv)) {
        puts("attest judge FILE.safetensors… [--model KEY=VALUE,…]\n\n"
             "Judges outputs that were produced elsewhere (torch, Triton, MLX, HIP, …): the file "
             "holds\n"
             "the case line in its metadata under `case`, the inputs under the operation's "
             "argument\n"
             "names and the outputs as got.NAME; of a scorer also got.selected in place of its "
             "scores.\n"
             "Nothing is launched. docs/your-kernel.md shows how to\n"
             "write such a file from torch.\n");
        options_help("judge");
        return EXIT_PASS;
    }
    if (!options_parse(argc, argv, &o)) return EXIT_USAGE;
    if (!o.n_words) {
        fprintf(stderr, "attest: judge needs a file; `attest judge --help` says what it holds\n");
        return EXIT_USAGE;
    }
    for (int i = 0; i < o.n_words; i++) {
        int code = judge_file(o.words[i], &o);
        if (code > worst) worst = code;
    }
    return worst;
}

static void print_line(void *shared, const char *line)
{
    puts(line);
    fflush(stdout);
}

int command_selftest_cuda(int argc, char **argv)
{
    int failures = gpu_cuda_selftest(argc > 1 ? argv[1] : NULL, print_line, NULL);
    if (failures == -1) return EXIT_UNAVAILABLE;
    return failures < 0 ? EXIT_USAGE : failures ? EXIT_WRONG : EXIT_PASS;
}
