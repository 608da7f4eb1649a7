#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/case/op.h"
#include "harness/cli/commands.h"
#include "harness/cli/list_interface.h"
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
    list_interface(op);
}

static const char *const kind_names[] = {
    [PARAM_INT] = "int",   [PARAM_LIST] = "list",     [PARAM_ENUM] = "enum",
    [PARAM_REAL] = "real", [PARAM_OFFSET] = "offset", [PARAM_SEED] = "seed"};

static void add_strings(cJSON *object, const char *key, const char *const *strings)
{
    cJSON *array = cJSON_AddArrayToObject(object, key);
    for (; strings && *strings; strings++)
        cJSON_AddItemToArray(array, cJSON_CreateString(*strings));
}

/* Limits are integers: as text, since a JSON number loses those above 2^53. */
static cJSON *key_json(const struct param *p)
{
    cJSON *key = cJSON_CreateObject();
    char number[24];
    cJSON_AddStringToObject(key, "key", p->key);
    cJSON_AddStringToObject(key, "kind", kind_names[p->kind]);
    cJSON_AddStringToObject(key, "default", p->initial);
    cJSON_AddStringToObject(key, "help", p->help);
    if (p->kind == PARAM_ENUM) add_strings(key, "values", p->names);
    if (p->min < p->max) {
        snprintf(number, sizeof number, "%lld", (long long)p->min);
        cJSON_AddStringToObject(key, "least", number);
        snprintf(number, sizeof number, "%lld", (long long)p->max);
        cJSON_AddStringToObject(key, "most", number);
    }
    return key;
}

static cJSON *op_json(const struct op *op)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "operation", op->name);
    cJSON_AddStringToObject(object, "family", op->family);
    cJSON_AddStringToObject(object, "contract", contract_name(op->contract));
    cJSON_AddStringToObject(object, "summary", op->summary);
    add_strings(object, "modules", op->modules);
    cJSON *keys = cJSON_AddArrayToObject(object, "keys");
    for (uint32_t i = 0; i < op->n_params; i++)
        cJSON_AddItemToArray(keys, key_json(&op->params[i]));
    cJSON *models = cJSON_AddObjectToObject(object, "models");
    for (const struct preset *p = op->presets; p && p->name; p++)
        cJSON_AddStringToObject(models, p->name, p->assignments);
    cJSON *relations = cJSON_AddArrayToObject(object, "relations");
    for (const struct relation *r = op->relations; r && r->name; r++)
        cJSON_AddItemToArray(relations, cJSON_CreateString(r->name));
    list_interface_json(op, object);
    return object;
}

/* One line an operation, like every other output for scripts. */
static int list_json(const char *const *names, int n_names)
{
    for (int i = 0; i < n_names; i++) {
        if (op_find(names[i], strlen(names[i]))) continue;
        fprintf(stderr, "attest: '%s' is no operation; `attest list --ops` shows them\n", names[i]);
        return EXIT_USAGE;
    }
    for (uint32_t i = 0; i < (n_names ? (uint32_t)n_names : op_count); i++) {
        cJSON *object = op_json(n_names ? op_find(names[i], strlen(names[i])) : op_table[i]);
        char *text = cJSON_PrintUnformatted(object);
        cJSON_Delete(object);
        if (!text) return EXIT_INFRA;
        puts(text);
        free(text);
    }
    return EXIT_PASS;
}

int command_list(int argc, char **argv)
{
    if (argc < 2 || !strcmp(argv[1], "--ops")) {
        list_ops();
        return EXIT_PASS;
    }
    if (wants_help(argc, argv)) {
        puts("attest list [--ops]                the operations\n"
             "attest list OPERATION…             keys of its cases, presets, relations, kernels\n"
             "attest list --json [OPERATION…]    all of it, one JSON object an operation and line\n"
             "attest list --dictionary [FAMILY]  their words, for fuzzers");
        return EXIT_PASS;
    }
    if (!strcmp(argv[1], "--json")) return list_json((const char *const *)argv + 2, argc - 2);
    if (!strcmp(argv[1], "--dictionary")) {
        dictionary_print(stdout, argc > 2 ? argv[2] : NULL);
        return EXIT_PASS;
    }
    for (int i = 1; i < argc; i++) {
        const struct op *op = op_find(argv[i], strlen(argv[i]));
        if (!op) {
            fprintf(stderr, "attest: '%s' is no operation; `attest list --ops` shows them\n",
                    argv[i]);
            return EXIT_USAGE;
        }
        list_keys(op);
    }
    return EXIT_PASS;
}
