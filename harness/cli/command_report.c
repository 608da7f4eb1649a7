/* report: what runs have shown, from their JSON lines. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cli/commands.h"
#include "harness/cli/report_write.h"
#include "harness/report/agree.h"
#include "harness/report/merge.h"
#include "harness/report/report.h"
#include "harness/session/options.h"

enum { DIFFERENCES_SHOWN = 20 };

static void help(void)
{
    puts(
        "attest report [options] FILE.jsonl…\n"
        "    writes DIR/tolerance.html, .md and .json from what `verify --json`, `run --json` and\n"
        "    `broken --json` have written; \"-\" is standard input\n"
        "    --out DIR         where to (default reports)\n"
        "    --date TEXT       the date on the report (default: the data's last one)\n"
        "    --coverage FILE   line coverage in lcov's format (make coverage)\n"
        "    --timings FILE    lines of `bench --json`\n"
        "    --against FILE    a former tolerance.json: marks what got worse, and fails on it\n"
        "    --gnuplot PROGRAM draws the plots (default gnuplot)\n\n"
        "attest report merge [-o FILE] FILE.jsonl…\n"
        "    joins the JSON lines of a run's shards\n\n"
        "attest report agree A.jsonl B.jsonl [--complete] [--all]\n"
        "    whether two runs gave the same bits in every case they share, say\n"
        "      attest verify --json >cpu.jsonl\n"
        "      attest verify --json --backend cuda >gpu.jsonl\n"
        "    --complete  a case that stands in one file only is a difference too\n"
        "    --all       list every difference, not the first 20\n"
        "\nExit: 0 right, 1 wrong or worse than the baseline, 2 bad input (the old report stays), "
        "3 "
        "errors\nin the data or no report written.");
}

static void print_agreement(const struct agree_run *a, const struct agree_run *b,
                            const struct agree_result *r, bool all)
{
    printf("%-28s %10s %10s %10s %10s %10s\n", "operation", "equal", "different", "refused",
           "only first", "only second");
    for (size_t i = 0; i < r->n_ops; i++) {
        const struct agree_op *o = &r->ops[i];
        printf("%-28s %10" PRIu64 " %10" PRIu64 " %10" PRIu64 " %10" PRIu64 " %10" PRIu64 "\n",
               o->op, o->equal, o->different, o->refused, o->only_first, o->only_second);
    }
    for (size_t i = 0; i < r->n_differences && (all || i < DIFFERENCES_SHOWN); i++) {
        const struct agree_case *x = r->differences[i].first, *y = r->differences[i].second;
        printf("DIFFERS %s\n  %s:%" PRIu64 " %s %s %016" PRIx64 "%s\n  %s:%" PRIu64
               " %s %s %016" PRIx64 "%s\n",
               x->text, a->path, x->line, a->backend, x->verdict, x->digest,
               x->unsteady ? ", differs between its lines" : "", b->path, y->line, b->backend,
               y->verdict, y->digest, y->unsteady ? ", differs between its lines" : "");
    }
    if (!all && r->n_differences > DIFFERENCES_SHOWN)
        printf("%zu more differences not shown; --all lists them\n",
               r->n_differences - DIFFERENCES_SHOWN);
}

static int agree(const char *first, const char *second, bool complete, bool all)
{
    struct agree_run a, b;
    struct agree_result r;
    char error[1024];
    if (!agree_read(first, &a, error, sizeof error)) {
        fprintf(stderr, "attest: %s\n", error);
        return EXIT_USAGE;
    }
    if (!agree_read(second, &b, error, sizeof error)) {
        fprintf(stderr, "attest: %s\n", error);
        agree_run_free(&a);
        return EXIT_USAGE;
    }
    int code = EXIT_INFRA;
    if (agree_compare(&a, &b, &r)) {
        uint64_t only = r.total.only_first + r.total.only_second;
        print_agreement(&a, &b, &r, all);
        printf("%s = %s: %" PRIu64 " cases equal bit by bit, %" PRIu64 " different, %" PRIu64
               " refused by both, %" PRIu64 " in one file only\n",
               a.backend, b.backend, r.total.equal, r.total.different, r.total.refused, only);
        code = r.total.different || (complete && only) ? EXIT_WRONG : EXIT_PASS;
        if (!r.total.equal && !r.total.different) {
            fprintf(stderr, "attest: no case ran in both files: nothing was compared\n");
            code = EXIT_USAGE;
        }
        agree_result_free(&r);
    } else {
        fprintf(stderr, "attest: out of memory\n");
    }
    agree_run_free(&a);
    agree_run_free(&b);
    return code;
}

static int command_agree(int argc, char **argv)
{
    const char *files[2];
    int n_files = 0;
    bool complete = false, all = false;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--complete")) {
            complete = true;
        } else if (!strcmp(argv[i], "--all")) {
            all = true;
        } else if ((argv[i][0] == '-' && argv[i][1]) || n_files == 2) {
            fprintf(stderr,
                    "attest: report agree: '%s' is not expected; see attest report --help\n",
                    argv[i]);
            return EXIT_USAGE;
        } else {
            files[n_files++] = argv[i];
        }
    }
    if (n_files != 2) {
        fprintf(stderr, "attest: report agree needs two files of JSON lines\n");
        return EXIT_USAGE;
    }
    return agree(files[0], files[1], complete, all);
}

static int command_merge(int argc, char **argv)
{
    struct merge_result merged;
    const char *out = NULL;
    char error[1024];
    int first = 1;
    if (argc > 2 && !strcmp(argv[1], "-o")) {
        out = argv[2];
        first = 3;
    }
    if (argc <= first) {
        fprintf(stderr, "attest: report merge needs files of JSON lines\n");
        return EXIT_USAGE;
    }
    if (!report_merge((const char *const *)argv + first, (size_t)(argc - first), &merged, error,
                      sizeof error)) {
        fprintf(stderr, "attest: %s\n", error);
        return EXIT_USAGE;
    }
    bool fine = out ? report_write_file(out, merged.text, merged.size, error, sizeof error)
                    : fwrite(merged.text, 1, merged.size, stdout) == merged.size && !fflush(stdout);
    if (!fine)
        fprintf(stderr, "attest: %s\n", out ? error : "cannot write to standard output");
    else
        fprintf(stderr, "%" PRIu64 " lines from %d files, %" PRIu64 " repeated ones left out\n",
                merged.lines, argc - first, merged.repeated);
    free(merged.text);
    return fine ? EXIT_PASS : EXIT_INFRA;
}

int command_report(int argc, char **argv)
{
    if (wants_help(argc, argv)) {
        help();
        return EXIT_PASS;
    }
    if (argc > 1 && !strcmp(argv[1], "agree")) return command_agree(argc - 1, argv + 1);
    if (argc > 1 && !strcmp(argv[1], "merge")) return command_merge(argc - 1, argv + 1);
    return command_report_write(argc, argv);
}
