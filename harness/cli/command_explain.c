/* explain: what a case is, tensor by tensor, and where in its stages the first wrong value lies. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/captured/describe.h"
#include "harness/cli/commands.h"
#include "harness/judge/compare.h"
#include "harness/run/run.h"
#include "harness/session/session.h"

static void print_tensors(const struct instance *in)
{
    for (uint32_t i = 0; i < in->n_tensors; i++) {
        const struct tensor *t = &in->tensors[i];
        char shape[160] = "";
        size_t used = 0;
        for (uint32_t d = 0; d < t->rank; d++)
            used += (size_t)snprintf(shape + used, sizeof shape - used, "%s%s %" PRIu64,
                                     d ? ", " : "", t->dim[d], t->shape[d]);
        printf("  %-4s %-14s %-5s [%s]", t->role == ROLE_IN ? "in" : "out", t->name,
               dtype_name(t->dtype), shape);
        if (t->alias_of >= 0) printf(" same buffer as %s", in->tensors[t->alias_of].name);
        if (t->role == ROLE_OUT) printf(" %s", contract_name(t->contract));
        printf("\n");
    }
}

static void print_verdict(const struct tensor *t, const uint8_t *got, const struct expected *e,
                          bool *first_wrong)
{
    static char text[RESULT_TEXT_MAX];
    struct comparison c;
    uint8_t *map = calloc(tensor_logical_elems(t) + 1, 1);
    if (!map) return;
    compare_tensor(t, got, e, &c, map);
    text[0] = 0;
    if (c.wrong) {
        printf("%s is WRONG%s\n", t->name, *first_wrong ? ": the first wrong stage" : "");
        *first_wrong = false;
        compare_explain(t, got, e, &c, map, text, sizeof text);
        fputs(text, stdout);
    } else if (t->contract == CONTRACT_BOUND) {
        printf("%s is right: worst err/E %.4f, %.2f %% correctly rounded\n", t->name, c.worst_ratio,
               c.compared ? 100.0 * (double)c.nearest / (double)c.compared : 0.0);
    } else if (t->contract == CONTRACT_SELECT) {
        printf("%s is right: %u rows identical, %u equivalent\n", t->name, c.identical,
               c.equivalent);
    } else {
        printf("%s is right: every bit\n", t->name);
    }
    free(map);
}

static int explain_run(struct verify_context *x, const struct case_line *c, struct instance *in)
{
    static struct result r;
    static const struct run_options plain = {GPU_FENCE_AFTER, 0xa5, 0, false};
    struct expected e[INSTANCE_TENSORS_MAX];
    struct outputs out;
    bool first_wrong = true;
    memset(e, 0, sizeof e);
    if (!run_instance(x, c, in, &plain, &out, &r)) {
        printf("the launch itself went wrong: %s\n%s", r.check, r.text);
        return r.verdict == VERDICT_FAIL ? EXIT_WRONG : EXIT_INFRA;
    }
    if (expected_alloc(in, e)) {
        op_oracle(c, in, x->model ? x->model : c->op->model,
                      (const uint8_t *const *)out.dense, e);
        for (uint32_t i = 0; i < in->n_tensors; i++) {
            const struct tensor *t = &in->tensors[i];
            if (t->role == ROLE_OUT && t->contract != CONTRACT_ANY)
                print_verdict(t, out.dense[i], &e[i], &first_wrong);
        }
    }
    expected_free(e);
    outputs_free(&out);
    return first_wrong ? EXIT_PASS : EXIT_WRONG;
}

static int explain_case(struct verify_context *x, const struct case_line *c)
{
    struct instance in;
    char text[CASE_TEXT_MAX], rule[64];
    static char why[1400];
    bool refused;
    case_print(c, text, sizeof text);
    printf("%s\n%s: %s\n", text, c->op->name, c->op->summary);
    bool agrees = verify_refusal_agrees(c, &refused, rule, sizeof rule, why, sizeof why);
    if (!agrees || refused) {
        printf("refused (rule %s)%s\n%s", rule, agrees ? "" : ", but not by both sides", why);
        return agrees ? EXIT_USAGE : EXIT_WRONG;
    }
    instance_init(&in, POISON_NAN);
    int code = EXIT_INFRA;
    if (op_build(c, &in)) {
        print_tensors(&in);
        code = explain_run(x, c, &in);
    } else {
        fprintf(stderr, "attest: no memory to build the case\n");
    }
    instance_free(&in);
    return code;
}

int command_explain(int argc, char **argv)
{
    struct options o;
    struct verify_context x;
    static struct case_line c;
    char error[1024];
    int code = EXIT_USAGE;
    if (wants_help(argc, argv)) {
        puts("attest explain CASE|FILE.safetensors [options]\n\n"
             "Shows a case's tensors, runs it once and says, stage by stage, what is right and where\n"
             "the first wrong value lies. Of a file: what it holds, and which operation has such\n"
             "arguments.\n\n"
             "  attest explain 'qsa_score:blocks=9,heads=4,hd=128'\n"
             "  attest explain captured.safetensors\n");
        options_help("explain");
        return EXIT_PASS;
    }
    if (!options_parse(argc, argv, &o)) return EXIT_USAGE;
    if (o.n_words != 1) {
        fprintf(stderr, "attest: explain needs one case or one file\n");
        return EXIT_USAGE;
    }
    if (strlen(o.words[0]) > 12 && !strcmp(o.words[0] + strlen(o.words[0]) - 12, ".safetensors")) {
        if (captured_describe(o.words[0], stdout, error, sizeof error)) return EXIT_PASS;
        fprintf(stderr, "attest: %s\n", error);
        return EXIT_USAGE;
    }
    if (!case_parse(o.words[0], &c, error, sizeof error)) {
        fprintf(stderr, "attest: %s\n", error);
        return EXIT_USAGE;
    }
    if (!session_context(&o, &x, &code)) return code;
    code = explain_case(&x, &c);
    verify_close(&x);
    return code;
}
