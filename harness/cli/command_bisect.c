/* bisect: which commit, or which of a row of modules, made a case fail. */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/cli/commands.h"
#include "harness/search/bisect_rows.h"
#include "harness/session/options.h"

enum { MODULES_MAX = 256 };

struct wishes {
    const char *good, *bad, *backend, *build, *repository;
    const char *modules[MODULES_MAX + 1];
    int n_modules;
    double timeout_s, build_timeout_s;
    bool any_check;
    const char *case_text;
};

static volatile bool interrupted;

static void on_interrupt(int signal_number)
{
    interrupted = true;
}

static void help(void)
{
    puts("attest bisect --good REV --bad REV [options] CASE\n"
         "    finds the commit that made a case fail: builds revisions in a worktree of its own,\n"
         "    outside this one, and replays the case with each\n\n"
         "attest bisect --module FILE --module FILE … [options] CASE\n"
         "    finds the first of these modules, in this order, with which it fails\n\n"
         "  --any-check        a failure of the same kind counts too (contract out, contract lse)\n"
         "  --backend NAME     simt or cuda\n"
         "  --build COMMAND    makes build/attest (default: make build, without GPU modules for "
         "simt)\n"
         "  --repo FOLDER      the repository (default: here)\n"
         "  --timeout S        seconds a replay may take (default 300)\n"
         "  --build-timeout S  seconds a build may take (default 3600)\n\n"
         "Exit: 0 found, 1 narrowed down only (some could not be judged), 2 bad input: no such\n"
         "revision, the bad one passes, the good one fails; 3 infrastructure.");
}

static bool seconds(const char *text, double *value)
{
    char *end;
    *value = strtod(text, &end);
    return end != text && !*end && *value > 0 && *value < 1e7;
}

static bool apply(struct wishes *w, int id)
{
    switch (id) {
    case 'g': w->good = optarg; return true;
    case 'b': w->bad = optarg; return true;
    case 'k': w->backend = optarg; return true;
    case 'c': w->build = optarg; return true;
    case 'r': w->repository = optarg; return true;
    case 'a': return w->any_check = true;
    case 't': return seconds(optarg, &w->timeout_s);
    case 'T': return seconds(optarg, &w->build_timeout_s);
    case 'm':
        if (w->n_modules == MODULES_MAX) return false;
        w->modules[w->n_modules++] = optarg;
        return true;
    default: return false;
    }
}

static bool parse(int argc, char **argv, struct wishes *w)
{
    static const struct option longs[] = {
        {"good", required_argument, NULL, 'g'},          {"bad", required_argument, NULL, 'b'},
        {"module", required_argument, NULL, 'm'},        {"any-check", no_argument, NULL, 'a'},
        {"backend", required_argument, NULL, 'k'},       {"build", required_argument, NULL, 'c'},
        {"repo", required_argument, NULL, 'r'},          {"timeout", required_argument, NULL, 't'},
        {"build-timeout", required_argument, NULL, 'T'}, {NULL, 0, NULL, 0}};
    *w = (struct wishes){.repository = ".", .timeout_s = 300, .build_timeout_s = 3600};
    optind = 1;
    opterr = 0;
    for (int at = 1, id; (id = getopt_long(argc, argv, ":", longs, NULL)) != -1; at = optind) {
        if (apply(w, id)) continue;
        fprintf(stderr,
                "attest: bisect: %s: not an option, or not with this value; see attest bisect "
                "--help\n",
                argv[at]);
        return false;
    }
    bool revisions = w->good && w->bad && !w->n_modules;
    bool modules = w->n_modules > 1 && !w->good && !w->bad;
    if (argc - optind == 1 && (revisions || modules)) {
        w->case_text = argv[optind];
        return true;
    }
    fprintf(stderr,
            "attest: bisect needs one case and --good and --bad, or two modules or more; see "
            "attest bisect --help\n");
    return false;
}

static const char *default_build(const char *backend)
{
    static char command[64];
    bool cuda = backend && !strcmp(backend, "cuda");
    snprintf(command, sizeof command, "make -j%ld build%s", sysconf(_SC_NPROCESSORS_ONLN),
             cuda ? "" : " NVCC=");
    return command;
}

static int print_end(const struct bisect_result *r, const char *what)
{
    switch (r->end) {
    case BISECT_FOUND:
        printf("\nfirst %s with this failure, after %u tried:\n", what, r->tried);
        return EXIT_PASS;
    case BISECT_RANGE:
        printf("\n%u could not be judged: the first %s with this failure is one of them, or the "
               "following one:\n",
               r->unjudged, what);
        return EXIT_WRONG;
    case BISECT_INPUT:
    case BISECT_FAILED: break;
    }
    fprintf(stderr, "attest: bisect: %s\n", r->error);
    return r->end == BISECT_INPUT ? EXIT_USAGE : EXIT_INFRA;
}

static void print_explained(const struct replay_request *q, const struct bisect_step *step)
{
    char *text = replay_explain(q, step->replay.case_text);
    printf("\n%s\n  case: %s\n", step->replay.why, step->replay.case_text);
    if (text) printf("\n%s", text);
    free(text);
}

static int over_revisions(const struct wishes *w, const struct bisect_case *replayed)
{
    static struct bisect_revisions r;
    static struct bisect_result result;
    struct bisect_row row;
    struct replay_request q;
    char error[600], program[PATH_MAX], directory[PATH_MAX];
    bool bad_input;
    r = (struct bisect_revisions){.replayed = *replayed,
                                  .repository = w->repository,
                                  .build = w->build ? w->build : default_build(w->backend),
                                  .build_timeout_s = w->build_timeout_s};
    if (!bisect_revisions_open(&r, &row, w->good, w->bad, &bad_input, error, sizeof error)) {
        fprintf(stderr, "attest: bisect: %s\n", error);
        return bad_input ? EXIT_USAGE : EXIT_INFRA;
    }
    bisect_search(&row, r.good_end, r.bad_end, w->any_check, &result);
    int code = print_end(&result, "commit");
    if (code == EXIT_PASS || code == EXIT_WRONG) {
        char *description = bisect_revisions_describe(&r, result.culprit);
        printf("%s", description ? description : result.culprit);
        free(description);
        /* The tree holds whichever revision came last. */
        if (bisect_revisions_rebuild(&r, result.culprit, error, sizeof error)) {
            bisect_revisions_request(&r, program, directory, &q);
            print_explained(&q, &result.bad);
        } else {
            printf("\n%s\n  (not built again to explain it: %s)\n", result.bad.text, error);
        }
    }
    bisect_revisions_close(&r);
    return code;
}

static int over_modules(const struct wishes *w, const struct bisect_case *replayed)
{
    static struct bisect_result result;
    struct bisect_row row;
    static char self[PATH_MAX];
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return EXIT_INFRA;
    struct bisect_modules m = {
        .replayed = *replayed, .program = self, .files = w->modules, .count = (size_t)w->n_modules};
    if (!bisect_modules_open(&m, &row)) return EXIT_INFRA;
    bisect_search(&row, w->modules[0], w->modules[w->n_modules - 1], w->any_check, &result);
    int code = print_end(&result, "module");
    if (code == EXIT_PASS || code == EXIT_WRONG) {
        struct replay_request q = {.program = self,
                                   .backend = w->backend,
                                   .module = result.culprit,
                                   .timeout_s = w->timeout_s};
        printf("%s\n", result.culprit);
        print_explained(&q, &result.bad);
    }
    bisect_modules_close(&m);
    return code;
}

int command_bisect(int argc, char **argv)
{
    struct wishes w;
    if (wants_help(argc, argv)) {
        help();
        return EXIT_PASS;
    }
    if (!parse(argc, argv, &w)) return EXIT_USAGE;
    /* What make tells its children is not meant for the makes that are started here. */
    unsetenv("MAKEFLAGS");
    unsetenv("MAKELEVEL");
    unsetenv("MFLAGS");
    signal(SIGINT, on_interrupt);
    signal(SIGTERM, on_interrupt);
    struct bisect_case replayed = {w.case_text, w.backend, w.timeout_s, &interrupted};
    return w.n_modules ? over_modules(&w, &replayed) : over_revisions(&w, &replayed);
}
