#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "harness/cli/commands.h"
#include "harness/fuzz/fuzz_run.h"
#include "harness/session/session.h"

static void help(void)
{
    puts("attest fuzz [OPERATION…] [options]\n\n"
         "Searches for failing cases of the named operations (all of them without a name) until the\n"
         "budget is spent: changes cases at random, keeps those that bring new geometry classes, and\n"
         "changes these again. Every case gets every check, on either backend. Ctrl-C ends it in good\n"
         "order. Each finding is shrunk and written to the findings folder as a file of one line.\n\n"
         "  attest fuzz --budget 600\n"
         "  attest fuzz dsa_topk_pools --backend cuda --budget 3600 --state topk.fuzz\n"
         "  attest run findings/*.txt                      replays what was found\n");
    options_help("fuzz");
    puts("\nExit: 0 nothing found, 1 a kernel is wrong, 2 usage, 3 infrastructure, 77 no such backend "
         "here.");
}

/* A state file goes on with its own seed; one of the other backend is refused. */
static bool resume(const struct options *o, const struct fuzz_plan *plan, struct fuzz_state *state,
                   int *code)
{
    char error[4800];
    *code = EXIT_INFRA;
    if (!fuzz_state_open(state, plan->context.backend->name, o->seed)) {
        fprintf(stderr, "attest: out of memory\n");
        return false;
    }
    if (!o->state || access(o->state, F_OK)) return true;
    *code = EXIT_USAGE;
    if (!fuzz_state_load(state, o->state, error, sizeof error)) {
        fprintf(stderr, "attest: --state %s\n", error);
        return false;
    }
    if (strcmp(state->backend, plan->context.backend->name)) {
        fprintf(stderr, "attest: --state %s: it is of backend %s\n", o->state, state->backend);
        return false;
    }
    if (!o->quiet)
        fprintf(stderr, "going on from %s: %" PRIu64 " cases, %" PRIu64 " classes, seed %" PRIu64 "\n",
                o->state, state->cases, state->classes, state->seed);
    return true;
}

int command_fuzz(int argc, char **argv)
{
    static struct fuzz_plan plan;
    struct fuzz_state state;
    struct options o;
    int code = EXIT_USAGE;
    if (wants_help(argc, argv)) {
        help();
        return EXIT_PASS;
    }
    if (!options_parse(argc, argv, &o) || !session_ops(&o, plan.ops, &plan.n_ops))
        return EXIT_USAGE;
    if ((o.source || o.module) && plan.n_ops != 1) {
        fprintf(stderr, "attest: name the one operation that %s implements\n",
                o.source ? o.source : o.module);
        return EXIT_USAGE;
    }
    plan.options = &o;
    if (!session_context(&o, &plan.context, &code)) return code;
    code = session_probe(&plan.context);
    if (code) return code;
    if (resume(&o, &plan, &state, &code)) code = fuzz_run(&plan, &state);
    fuzz_state_free(&state);
    return code;
}
