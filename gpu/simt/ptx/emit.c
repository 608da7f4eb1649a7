/* Writes the C++ that stands for an instruction. */
#include "ptx.h"

#include <string.h>

/* The type of a product that keeps all bits. */
static const char *wide_type(const char *type)
{
    return strcmp(type, "int16_t") == 0    ? "int32_t"
           : strcmp(type, "uint16_t") == 0 ? "uint32_t"
           : strcmp(type, "int32_t") == 0  ? "int64_t"
                                           : "uint64_t";
}

/* The type that a letter of a rule's operand list stands for. */
static const char *letter_type(const struct ptx_match *m, char letter)
{
    switch (letter) {
    case 'T':
        return m->types[0];
    case 'S':
        return m->types[1];
    case 'W':
        return wide_type(m->types[0]);
    case 'h':
        return "uint16_t";
    case 'u':
        return "uint32_t";
    case 's':
        return "int32_t";
    case 'U':
        return "uint64_t";
    case 'f':
        return "float";
    case 'F':
        return "double";
    case 'p':
        return "bool";
    default:
        return "void";
    }
}

static void emit_value(FILE *out, const struct ptx_item *item, const char *type, bool may_be_wider)
{
    fputs(item->negated ? "!" : "", out);
    if (item->kind == PTX_CONSTANT)
        fprintf(out, "simt_ptx::constant<%s>(%s)", type, item->text);
    else
        fprintf(out, "simt_ptx::%s<%s>(%s)", may_be_wider ? "low" : "as", type,
                item->kind == PTX_SINK ? "0u" : item->text);
}

/* One operand that is read; spec is its place in the rule's list. */
static void emit_source(FILE *out, const struct ptx_match *m, const char *spec,
                        const struct ptx_arg *arg)
{
    const char *type = letter_type(m, *spec);

    if (*spec == 'A') {
        fprintf(out, "simt_ptx::at(%s)", arg->items[0].text);
        if (arg->n == 2)
            fprintf(out, " + (uint64_t)(%s%s)", arg->items[1].negated ? "!" : "",
                    arg->items[1].text);
    } else if (*spec == 'v') { /* halves of a register, whatever their size */
        for (int i = 0; i < arg->n; i++) fprintf(out, "%s%s", i ? ", " : "", arg->items[i].text);
    } else if (arg->shape == PTX_VECTOR || strpbrk(spec, "*#") == spec + 1) {
        fprintf(out, "simt_ptx::vec<%s, %d>{{", type, arg->n);
        for (int i = 0; i < arg->n; i++) {
            fputs(i ? ", " : "", out);
            emit_value(out, &arg->items[i], type, strchr(spec, '^') != NULL);
        }
        fputs("}}", out);
    } else {
        emit_value(out, &arg->items[0], type, spec[1] == '^');
    }
}

static void emit_set(FILE *out, const struct ptx_item *item, const char *value, bool may_be_wider)
{
    if (item->kind == PTX_SINK) return;
    fprintf(out, "simt_ptx::%s(%s, %s); ", may_be_wider ? "set_wide" : "set", item->text, value);
}

static void emit_results(FILE *out, const char *spec, const struct ptx_arg *arg)
{
    char value[64];

    if (arg->shape == PTX_PAIR) {
        emit_set(out, &arg->items[0], "simt_d.value", false);
        emit_set(out, &arg->items[1], "simt_d.flag", false);
    } else if (strchr(spec, '|')) {
        emit_set(out, &arg->items[0], "simt_d.value", false);
    } else if (*spec == 'v') {
        for (int i = 0; i < arg->n; i++) {
            snprintf(value, sizeof value, "simt_ptx::part<%d, %d>(simt_d)", i, arg->n);
            emit_set(out, &arg->items[i], value, false);
        }
    } else if (arg->shape == PTX_VECTOR || strchr(spec, '*') || strchr(spec, '#')) {
        for (int i = 0; i < arg->n; i++) {
            snprintf(value, sizeof value, "simt_d.x[%d]", i);
            emit_set(out, &arg->items[i], value, strchr(spec, '^') != NULL);
        }
    } else {
        emit_set(out, &arg->items[0], "simt_d", strchr(spec, '^') != NULL);
    }
}

static void emit_call(FILE *out, const struct ptx_instruction *instruction,
                      const struct ptx_match *m, const char *specs[], int n_specs)
{
    int given = 0;

    fprintf(out, "simt_ptx::%s", m->rule->function);
    for (int i = 0; i < m->n_types; i++) fprintf(out, "%s%s", given++ ? ", " : "<", m->types[i]);
    for (int i = 0; i < m->n_modifiers; i++)
        fprintf(out, "%ssimt_ptx::m_%s", given++ ? ", " : "<", m->modifiers[i]);
    if (strchr(m->rule->args, '*'))
        fprintf(out, "%s%d", given++ ? ", " : "<", m->vector ? m->vector : 1);
    fputs(given ? ">(" : "(", out);
    given = 0;
    for (int i = 0; i < n_specs && i < instruction->n_args; i++) {
        if (*specs[i] == '=') continue;
        fputs(given++ ? ", " : "", out);
        emit_source(out, m, specs[i], &instruction->args[i]);
    }
    fputs("); ", out);
}

static void emit_modelled(FILE *out, const struct ptx_instruction *instruction,
                          const struct ptx_match *m)
{
    char list[128];
    const char *specs[PTX_MAX_ARGS];
    int n_specs = 0;

    snprintf(list, sizeof list, "%s", m->rule->args);
    for (char *rest = list, *spec; (spec = strtok_r(rest, " ", &rest)) != NULL;)
        specs[n_specs++] = spec + (*spec == '?');
    if (n_specs > 0 && *specs[0] == '=') {
        fputs("{ auto simt_d = ", out);
        emit_call(out, instruction, m, specs, n_specs);
        emit_results(out, specs[0] + 1, &instruction->args[0]);
        fputs("} ", out);
    } else {
        emit_call(out, instruction, m, specs, n_specs);
    }
}

/* Code that is never reached may hold what is not modelled: the compiler complains of calls that
 * it cannot leave out. */
static void emit_refusal(struct ptx_parser *p, const struct ptx_instruction *instruction)
{
    const char *why = ptx_name_known(instruction->name) ? " with these operands" : "";
    int id = p->next_id++;

    fprintf(p->out,
            "extern void simt_not_modelled_%d_%d(void) __attribute__((error(\"PTX instruction '%s'"
            "%s is not modelled on the CPU backend\"))); simt_not_modelled_%d_%d(); ",
            p->statement->number, id, instruction->name, why, p->statement->number, id);
}

void ptx_emit_instruction(struct ptx_parser *p, const struct ptx_instruction *instruction)
{
    struct ptx_match match;

    if (instruction->guarded)
        fprintf(p->out, "if (%s%s) { ", instruction->guard.negated ? "!" : "",
                instruction->guard.text);
    if (ptx_match(instruction, &match))
        emit_modelled(p->out, instruction, &match);
    else
        emit_refusal(p, instruction);
    if (instruction->guarded) fputs("} ", p->out);
}
