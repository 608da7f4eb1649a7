#include <stdio.h>
#include <string.h>

#include "harness/case/op.h"
#include "harness/cli/commands.h"
#include "harness/fuzz/dictionary.h"
#include "harness/session/options.h"

static void list_ops(void)
{
    for (uint32_t i = 0; i < op_count; i++) {
        const struct op *op = op_table[i];
        printf("%-28s %-4s %-7s %s\n", op->name, op->family, contract_name(op->contract),
               op->summary);
    }
}

static void list_keys(const struct op *op)
{
    printf("%s: %s\n\n", op->name, op->summary);
    for (uint32_t i = 0; i < op->n_params; i++) {
        const struct param *p = &op->params[i];
        printf("  %-10s %s (default %s)\n", p->key, p->help, p->initial);
        if (p->kind == PARAM_ENUM) {
            printf("             one of");
            for (int k = 0; p->names[k]; k++) printf(" %s", p->names[k]);
            printf("\n");
        }
    }
    for (const struct preset *p = op->presets; p && p->name; p++)
        printf("\n  model=%s stands for %s\n", p->name, p->assignments);
    for (const struct relation *r = op->relations; r && r->name; r++)
        printf("%s%s", r == op->relations ? "\n  relations: " : ", ", r->name);
    if (op->relations && op->relations->name) printf("\n");
}

int command_list(int argc, char **argv)
{
    if (argc < 2 || !strcmp(argv[1], "--ops")) {
        list_ops();
        return EXIT_PASS;
    }
    if (!strcmp(argv[1], "--help")) {
        puts("attest list [--ops]     the operations\n"
             "attest list OPERATION   the keys of its cases, presets and relations\n"
             "attest list --dictionary [FAMILY]   their words, for fuzzers");
        return EXIT_PASS;
    }
    if (!strcmp(argv[1], "--dictionary")) {
        dictionary_print(stdout, argc > 2 ? argv[2] : NULL);
        return EXIT_PASS;
    }
    for (int i = 1; i < argc; i++) {
        const struct op *op = op_find(argv[i], strlen(argv[i]));
        if (!op) {
            fprintf(stderr, "attest: '%s' is no operation; `attest list --ops` shows them\n", argv[i]);
            return EXIT_USAGE;
        }
        list_keys(op);
    }
    return EXIT_PASS;
}
