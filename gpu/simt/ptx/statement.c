/* Writes the C++ that stands for an asm statement: its operands around its instructions. */
#include "ptx.h"

static const char *register_type(char constraint)
{
    switch (constraint) {
    case 'h':
        return "uint16_t";
    case 'r':
    case 'f':
        return "uint32_t";
    case 'l':
    case 'd':
        return "uint64_t";
    default:
        return NULL;
    }
}

/* Reads what goes in, once and in order, and takes references to what comes out. */
static void emit_operands(struct ptx_parser *p)
{
    const struct ptx_asm *a = p->statement;

    for (int i = 0; i < a->n_operands; i++) {
        const struct ptx_operand *o = &a->operands[i];
        const char *type = register_type(o->constraint);

        if (o->constraint == 'n' && !o->written) {
            fprintf(p->out, "constexpr auto simt_o%d = (%s); ", i, o->expression);
            continue;
        }
        if (!type) {
            ptx_error(p, a->first_line,
                      "the constraint \"%c\" of operand %d of the asm statement "
                      "is not modelled on the CPU backend",
                      o->constraint ? o->constraint : ' ', i);
            continue;
        }
        if (o->written) fprintf(p->out, "auto &simt_x%d = (%s); ", i, o->expression);
        fprintf(p->out, "%s simt_o%d", type, i);
        if (o->read && o->written)
            fprintf(p->out, " = simt_ptx::in<'%c'>(simt_x%d)", o->constraint, i);
        else if (o->read)
            fprintf(p->out, " = simt_ptx::in<'%c'>(%s)", o->constraint, o->expression);
        fputs("; ", p->out);
    }
}

void ptx_emit_statement(struct ptx_asm *statement, FILE *out, FILE *errors, int *n_errors)
{
    struct ptx_parser parser = {.statement = statement, .out = out, .errors = errors};

    if (statement->size == 0) { /* holds the compiler, nothing else */
        fputs("__asm__ volatile(\"\" ::: \"memory\")", out);
        return;
    }
    fputs("do { ", out);
    emit_operands(&parser);
    if (parser.n_errors == 0) ptx_parse_template(&parser);
    fprintf(out, "\n# %d \"%.*s\"\n", statement->last_line, statement->file_length,
            statement->file);
    for (int i = 0; i < statement->n_operands; i++)
        if (statement->operands[i].written)
            fprintf(out, "simt_ptx::out<'%c'>(simt_x%d, simt_o%d); ",
                    statement->operands[i].constraint, i, i);
    fputs("} while (0)", out);
    *n_errors += parser.n_errors;
}
