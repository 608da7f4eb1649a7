/* fences: is a read of one element past an input seen? */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/cli/commands.h"
#include "harness/files/json_lines.h"
#include "harness/run/pool.h"
#include "harness/session/session.h"
#include "harness/verify/fences.h"

struct input {
    const struct op *op;
    const char *name;
    struct result result;
    char line[CASE_TEXT_MAX];
};

struct trials {
    const struct options *options;
    struct verify_context context;
    struct input *inputs;
    uint32_t count;
};

/* The case travels in front of the result's text. */
static void put_case(struct result *r, const struct case_line *c)
{
    char line[CASE_TEXT_MAX], text[RESULT_TEXT_MAX];
    case_print(c, line, sizeof line);
    memcpy(text, r->text, sizeof text);
    snprintf(r->text, sizeof r->text, "%s\n%s", line, text);
}

static bool try_input(void *shared, void **state, uint64_t index, struct result *r)
{
    struct trials *t = shared;
    struct case_line c;
    fences_try(&t->context, t->inputs[index].op, t->inputs[index].name, t->options->seed, &c, r);
    put_case(r, &c);
    return t->context.backend == &gpu_backend_simt; /* a fault costs a device's context */
}

static void keep(void *shared, uint64_t index, const struct result *r)
{
    struct trials *t = shared;
    struct input *input = &t->inputs[index];
    const char *rest = strchr(r->text, '\n');
    size_t line = rest ? (size_t)(rest - r->text) : 0;
    input->result = *r;
    if (!rest) return; /* the worker was lost: no case came with it */
    snprintf(input->line, sizeof input->line, "%.*s", (int)line, r->text);
    snprintf(input->result.text, sizeof input->result.text, "%s", rest + 1);
}

static void print_json(const struct input *i, bool caught, const char *backend)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "op", i->op->name);
    cJSON_AddStringToObject(object, "input", i->name);
    cJSON_AddStringToObject(object, "backend", backend);
    cJSON_AddBoolToObject(object, "caught", caught);
    cJSON_AddStringToObject(object, "check", i->result.check);
    cJSON_AddNumberToObject(object, "short_by", i->result.identical);
    cJSON_AddNumberToObject(object, "cases", (double)i->result.compared);
    cJSON_AddStringToObject(object, "case", i->line);
    cJSON_AddStringToObject(object, "text", i->result.text);
    char *text = cJSON_PrintUnformatted(object);
    if (text) puts(text);
    cJSON_free(text);
    cJSON_Delete(object);
}

static int report(const struct trials *t)
{
    const struct options *o = t->options;
    FILE *f = o->json ? stderr : stdout;
    uint32_t caught = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        const struct input *input = &t->inputs[i];
        bool good = input->result.verdict == VERDICT_PASS;
        caught += good;
        if (o->json) print_json(input, good, t->context.backend->name);
        if (good && (o->quiet || o->json)) continue;
        fprintf(f, "%-6s %-28s %-14s %8u  %-20s %5" PRIu64 "\n", good ? "caught" : "MISSED",
                input->op->name, input->name, input->result.identical, input->result.check,
                input->result.compared);
        if (!good) fprintf(f, "%s  case: %s\n", input->result.text, input->line);
    }
    fprintf(f, "reads of one element past an input: %u caught, %u missed\n", caught,
            t->count - caught);
    if (!t->count) {
        fprintf(stderr, "attest: no input was tried\n");
        return EXIT_INFRA;
    }
    return caught == t->count ? EXIT_PASS : EXIT_WRONG;
}

static bool list_inputs(struct trials *t, const struct op **ops, uint32_t n_ops)
{
    const char *names[FENCE_INPUTS_MAX];
    t->inputs = calloc((size_t)n_ops * FENCE_INPUTS_MAX, sizeof *t->inputs);
    if (!t->inputs) return false;
    for (uint32_t i = 0; i < n_ops; i++) {
        uint32_t n = fences_inputs(ops[i], t->options->seed, names);
        for (uint32_t k = 0; k < n; k++)
            t->inputs[t->count++] = (struct input){.op = ops[i], .name = names[k]};
    }
    return true;
}

int command_fences(int argc, char **argv)
{
    static struct trials t;
    struct options o;
    const struct op *ops[64];
    uint32_t n_ops;
    char error[256];
    int code = EXIT_USAGE;
    if (wants_help(argc, argv)) {
        puts("attest fences [OPERATION…] [--backend NAME]\n\n"
             "Makes every input of every operation shorter than the kernel expects, by one element (or\n"
             "one aligned unit, or more where the last elements are never read), and shows that the\n"
             "read past its end is caught. Exit 0 when every one is.\n\n"
             "  attest fences --backend cuda --jobs 16\n"
             "  attest fences qsa_gather --module my.fatbin --backend cuda   of a kernel of yours\n");
        options_help("fences");
        return EXIT_PASS;
    }
    if (!options_parse(argc, argv, &o) || !session_ops(&o, ops, &n_ops)) return EXIT_USAGE;
    if (!session_context(&o, &t.context, &code)) return code;
    code = session_probe(&t.context);
    if (code) return code;
    t.options = &o;
    if (!list_inputs(&t, ops, n_ops)) {
        fprintf(stderr, "attest: no memory for the inputs of %u operations\n", n_ops);
        return EXIT_INFRA;
    }
    if (!o.quiet && !o.json)
        printf("%-6s %-28s %-14s %8s  %-20s %5s\n", "", "operation", "input", "short by", "check",
               "cases");
    struct pool_config config = {.workers = o.jobs, .timeout_s = o.timeout_s, .work = try_input,
                                 .done = keep, .shared = &t};
    if (!pool_run(&config, t.count, error, sizeof error)) {
        fprintf(stderr, "attest: %s\n", error);
        free(t.inputs);
        return EXIT_INFRA;
    }
    code = report(&t);
    free(t.inputs);
    return code;
}
