#include <stdio.h>
#include <string.h>

#include "harness/cli/commands.h"
#include "harness/session/options.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
} commands[] = {
    {"verify", command_verify, "check kernels on random cases"},
    {"run", command_run, "replay cases or captured files"},
    {"explain", command_explain, "show what a case is and where it goes wrong"},
    {"judge", command_judge, "judge outputs produced elsewhere, without a launch"},
    {"minimize", command_minimize, "shrink a failing case"},
    {"fuzz", command_fuzz, "search for failing cases until the time is up"},
    {"broken", command_broken, "show that kernels known to be wrong are caught"},
    {"fences", command_fences, "show that a read past any input is caught"},
    {"bench", command_bench, "how fast the kernels are, against what the device can do"},
    {"bisect", command_bisect, "find the commit that made a case fail"},
    {"replay", command_replay, "captured launches replayed at other lengths"},
    {"report", command_report, "what runs have shown, from their JSON lines"},
    {"selftest-cuda", command_selftest_cuda, "try the GPU backend itself on this machine"},
    {"list", command_list, "operations and the keys of their cases"},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static int help(FILE *f)
{
    fputs("attest: is this sparse-attention kernel right?\n\nattest COMMAND [arguments]\n", f);
    for (int i = 0; i < COMMANDS; i++) fprintf(f, "  %-14s %s\n", commands[i].name, commands[i].help);
    fputs("\n  attest verify                 everything, without a GPU\n"
          "  attest verify --help          all options\n"
          "\nExit: 0 right, 1 a kernel is wrong, 2 usage, 3 infrastructure, 77 backend not "
          "available.\n", f);
    return f == stdout ? EXIT_PASS : EXIT_USAGE;
}

int main(int argc, char **argv)
{
    if (argc < 2) return help(stderr);
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))
        return help(stdout);
    for (int i = 0; i < COMMANDS; i++) {
        if (!strcmp(argv[1], commands[i].name)) return commands[i].run(argc - 1, argv + 1);
    }
    fprintf(stderr, "attest: '%s' is no command; `attest --help` lists them\n", argv[1]);
    return EXIT_USAGE;
}
