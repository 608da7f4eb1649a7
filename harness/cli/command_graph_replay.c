/* replay: launches captured once and replayed at other lengths. */
#include <stdio.h>
#include <string.h>

#include "harness/cli/commands.h"
#include "harness/session/session.h"
#include "harness/verify/graph_replay.h"

int command_replay(int argc, char **argv)
{
    static struct verify_context x;
    static struct result r;
    struct options o;
    struct gpu_report report = {{0}, {0}};
    uint32_t failed = 0, errors = 0;
    int code;
    if (wants_help(argc, argv)) {
        puts("attest replay [--backend NAME]\n\n"
             "The selector operations and the decode pipeline with a geometry vector: captured "
             "once\n"
             "(a CUDA graph on the GPU) and replayed at other lengths, against eager launches.\n");
        options_help("replay");
        return EXIT_PASS;
    }
    if (!options_parse(argc, argv, &o) || !options_no_words(&o, "replay")) return EXIT_USAGE;
    if (!session_context(&o, &x, &code)) return code;
    struct gpu_options options = {.watchdog_ms = x.watchdog_ms};
    enum gpu_status status = x.backend->open(&x.device, &options, &report);
    if (status != GPU_OK) {
        fprintf(stderr, "attest: backend %s: %s\n", x.backend->name, report.text);
        return status == GPU_UNAVAILABLE ? EXIT_UNAVAILABLE : EXIT_INFRA;
    }
    for (uint32_t i = 0; i < replay_shape_count; i++) {
        bool fine = replay_check(&x, &replay_shapes[i], &r);
        printf("%-5s %u lengths, %llu elements  %s\n%s", fine ? "ok" : "FAIL",
               replay_shapes[i].n_lengths, (unsigned long long)r.compared, replay_shapes[i].text,
               r.text);
        failed += !fine && r.verdict == VERDICT_FAIL;
        errors += !fine && r.verdict != VERDICT_FAIL;
    }
    printf("replay: %u right, %u wrong, %u not judged\n", replay_shape_count - failed - errors,
           failed, errors);
    verify_close(&x);
    return failed ? EXIT_WRONG : errors ? EXIT_INFRA : EXIT_PASS;
}
