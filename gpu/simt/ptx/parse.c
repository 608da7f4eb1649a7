/* Cuts the template of an asm statement into instructions: scopes, declarations of registers,
 * labels, guards, operands. */
#include "ptx.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void ptx_error(struct ptx_parser *parser, int line, const char *format, ...)
{
    const struct ptx_asm *a = parser->statement;
    va_list list;

    fprintf(parser->errors, "%.*s:%d: ", a->file_length, a->file, line);
    va_start(list, format);
    vfprintf(parser->errors, format, list);
    va_end(list);
    fputc('\n', parser->errors);
    parser->n_errors++;
}

static int peek(const struct ptx_parser *p)
{
    const struct ptx_asm *a = p->statement;

    return p->at < a->size ? (unsigned char)a->text[p->at] : EOF;
}

static int line_here(const struct ptx_parser *p)
{
    const struct ptx_asm *a = p->statement;

    if (a->size == 0) return a->first_line;
    return a->lines[p->at < a->size ? p->at : a->size - 1];
}

/* White space and comments. */
static void skip_space(struct ptx_parser *p)
{
    const struct ptx_asm *a = p->statement;

    while (p->at < a->size) {
        const char *here = a->text + p->at;
        if (isspace((unsigned char)*here)) {
            p->at++;
        } else if (strncmp(here, "//", 2) == 0) {
            while (p->at < a->size && peek(p) != '\n') p->at++;
        } else if (strncmp(here, "/*", 2) == 0) {
            const char *end = strstr(here + 2, "*/");
            p->at = end ? (size_t)(end + 2 - a->text) : a->size;
        } else {
            return;
        }
    }
}

static bool take(struct ptx_parser *p, char c)
{
    skip_space(p);
    if (peek(p) != c) return false;
    p->at++;
    skip_space(p);
    return true;
}

static bool is_name(int c)
{
    return isalnum(c) || c == '_' || c == '$';
}

/* A run of letters, digits and `extra`, "%=" replaced by the statement's number. */
static void read_name(struct ptx_parser *p, const char *extra, char *name, size_t size)
{
    size_t n = 0;

    while (p->at < p->statement->size && n + 12 < size) {
        int c = peek(p);
        if (c == '%' && p->statement->text[p->at + 1] == '=') {
            n += (size_t)snprintf(name + n, size - n, "%d", p->statement->number);
            p->at += 2;
        } else if (is_name(c) || strchr(extra, c)) {
            name[n++] = (char)c;
            p->at++;
        } else {
            break;
        }
    }
    name[n] = 0;
}

/* The innermost register of that name; "r3" may be one of "r<4>". */
static bool find_register(const struct ptx_parser *p, const char *name, int *id)
{
    for (int i = p->n_registers; i-- > 0;) {
        const struct ptx_register *r = &p->registers[i];
        size_t n = strlen(r->name);
        char *end;
        if (r->count == 0 && strcmp(r->name, name) == 0) {
            *id = r->id;
            return true;
        }
        if (r->count == 0 || strncmp(r->name, name, n) != 0 || !isdigit((unsigned char)name[n]))
            continue;
        long index = strtol(name + n, &end, 10);
        if (*end || index >= r->count) continue;
        *id = r->id + (int)index;
        return true;
    }
    return false;
}

static void set_item(struct ptx_item *item, enum ptx_kind kind, const char *text)
{
    item->kind = kind;
    snprintf(item->text, sizeof item->text, "%s", text);
}

/* "%3" or "%[name]", behind the percent sign. */
static bool read_operand(struct ptx_parser *p, struct ptx_item *item)
{
    const struct ptx_asm *a = p->statement;
    char name[64];
    int index = -1;

    if (peek(p) == '[') {
        p->at++;
        read_name(p, "", name, sizeof name);
        if (!take(p, ']')) return false;
        for (int i = 0; i < a->n_operands; i++)
            if (strcmp(a->operands[i].name, name) == 0) index = i;
    } else {
        read_name(p, "", name, sizeof name);
        index = atoi(name);
    }
    if (index < 0 || index >= a->n_operands) {
        ptx_error(p, line_here(p), "the asm statement has no operand %%%s", name);
        return false;
    }
    snprintf(name, sizeof name, "simt_o%d", index);
    set_item(item, a->operands[index].constraint == 'n' ? PTX_CONSTANT : PTX_REGISTER, name);
    return true;
}

/* 12, 0x1fU, -3, 1.5, 0f3f800000, 0d3ff0000000000000 */
static bool read_number(struct ptx_parser *p, struct ptx_item *item)
{
    char digits[64], text[96];
    bool negative = take(p, '-'), hex;
    size_t n;

    read_name(p, ".", digits, sizeof digits);
    n = strlen(digits);
    if (n == 0) return false;
    if (digits[0] == '0' && strchr("fFdD", digits[1]) && digits[1]) {
        bool wide = tolower(digits[1]) == 'd';
        if (negative || n != (wide ? 18 : 10)) return false;
        snprintf(text, sizeof text, "(uint%d_t)0x%sull", wide ? 64 : 32, digits + 2);
        set_item(item, PTX_BITS, text);
        return true;
    }
    if (digits[n - 1] == 'U') digits[n - 1] = 0;
    hex = digits[0] == '0' && tolower(digits[1]) == 'x';
    if (strspn(digits, hex ? "0123456789abcdefABCDEFxX" : "0123456789.eE") != strlen(digits))
        return false;
    snprintf(text, sizeof text, "(%s%s%s)", negative ? "-" : "", digits,
             strchr(digits, '.') ? "" : "ll");
    set_item(item, PTX_CONSTANT, text);
    return true;
}

/* A register, an operand, a number, a special register, "_". */
static bool read_item(struct ptx_parser *p, struct ptx_item *item)
{
    const struct ptx_asm *a = p->statement;
    char name[64], text[96];
    const char *special;
    int id;

    item->negated = take(p, '!');
    skip_space(p);
    if (isdigit(peek(p)) || peek(p) == '-') return read_number(p, item);
    if (peek(p) == '%' && a->extended && a->text[p->at + 1] != '%') {
        p->at++;
        return read_operand(p, item);
    }
    p->at += peek(p) == '%';
    if (a->extended) p->at += peek(p) == '%';
    bool percent = p->at > 0 && a->text[p->at - 1] == '%';
    read_name(p, "", name, sizeof name);
    if (strcmp(name, "_") == 0) {
        set_item(item, PTX_SINK, "");
        return true;
    }
    if (find_register(p, name, &id)) {
        snprintf(text, sizeof text, "simt_r%d", id);
        set_item(item, PTX_REGISTER, text);
        return true;
    }
    if (percent && peek(p) == '.') { /* %tid.x */
        size_t n = strlen(name);
        read_name(p, ".", name + n, sizeof name - n);
    }
    special = ptx_special(name);
    if (special) {
        set_item(item, PTX_REGISTER, special);
        return true;
    }
    if (name[0])
        ptx_error(p, line_here(p),
                  "%s%s is neither a register of this asm statement nor a special "
                  "register that is modelled on the CPU backend",
                  percent ? "%" : "", name);
    return false;
}

static bool read_list(struct ptx_parser *p, struct ptx_arg *arg, char close)
{
    do {
        if (arg->n == PTX_MAX_ITEMS || !read_item(p, &arg->items[arg->n++])) return false;
    } while (take(p, ','));
    return take(p, close);
}

static bool read_arg(struct ptx_parser *p, struct ptx_arg *arg)
{
    memset(arg, 0, sizeof *arg);
    if (take(p, '{')) {
        arg->shape = PTX_VECTOR;
        return read_list(p, arg, '}');
    }
    if (take(p, '[')) {
        arg->shape = PTX_ADDRESS;
        arg->n = 1;
        if (!read_item(p, &arg->items[0])) return false;
        if (take(p, '+')) {
            arg->n = 2;
            if (!read_item(p, &arg->items[1])) return false;
        } else if (skip_space(p), peek(p) == '-') {
            arg->n = 2;
            if (!read_number(p, &arg->items[1])) return false;
        }
        return take(p, ']');
    }
    arg->n = 1;
    if (!read_item(p, &arg->items[0])) return false;
    if (take(p, '|')) {
        arg->shape = PTX_PAIR;
        arg->n = 2;
        return read_item(p, &arg->items[1]);
    }
    return true;
}

/* The C++ type of a register, or NULL for a type that is not modelled. */
static const char *register_type(const char *type)
{
    static const struct {
        const char *type, *cxx;
    } types[] = {{"8", "uint8_t"}, {"16", "uint16_t"}, {"32", "uint32_t"}, {"64", "uint64_t"}};

    if (strcmp(type, ".pred") == 0) return "bool";
    if (strcmp(type, ".f16x2") == 0 || strcmp(type, ".bf16x2") == 0) return "uint32_t";
    if (strcmp(type, ".bf16") == 0) return "uint16_t";
    if (type[0] != '.' || !type[1] || !strchr("busf", type[1])) return NULL;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].type, type + 2) == 0) return types[i].cxx;
    return NULL;
}

/* .reg .b32 a, b<4>; */
static bool read_declaration(struct ptx_parser *p)
{
    const char *cxx;
    char type[64];

    read_name(p, ".", type, sizeof type);
    cxx = register_type(type);
    if (!cxx) {
        ptx_error(p, line_here(p), "registers of the type %s are not modelled on the CPU backend",
                  type);
        return false;
    }
    do {
        struct ptx_register *r = &p->registers[p->n_registers];
        if (p->n_registers == PTX_MAX_REGISTERS) return false;
        skip_space(p);
        if (peek(p) == '%') p->at += p->statement->extended ? 2 : 1;
        read_name(p, "", r->name, sizeof r->name);
        r->depth = p->depth;
        r->id = p->next_id;
        r->count = 0;
        if (take(p, '<')) {
            char count[64];
            read_name(p, "", count, sizeof count);
            r->count = atoi(count);
            if (r->count < 1 || !take(p, '>')) return false;
        }
        p->next_id += r->count ? r->count : 1;
        p->n_registers++;
        for (int id = r->id; id < p->next_id; id++) fprintf(p->out, "%s simt_r%d; ", cxx, id);
    } while (take(p, ','));
    return take(p, ';');
}

/* bra L; has no operand that a rule could describe. */
static bool read_branch(struct ptx_parser *p, const struct ptx_instruction *instruction)
{
    char label[64];

    skip_space(p);
    read_name(p, "", label, sizeof label);
    if (!label[0] || !take(p, ';')) return false;
    if (instruction->guarded)
        fprintf(p->out, "if (%s%s) ", instruction->guard.negated ? "!" : "",
                instruction->guard.text);
    fprintf(p->out, "goto simt_label%d_%s; ", p->statement->number, label);
    return true;
}

/* [@p] name operands; the name has been read unless there is a guard. */
static bool read_instruction(struct ptx_parser *p, struct ptx_instruction *instruction)
{
    if (take(p, '@')) {
        instruction->guarded = true;
        if (!read_item(p, &instruction->guard)) return false;
        skip_space(p);
    }
    instruction->line = line_here(p);
    if (!instruction->name[0]) read_name(p, ".:", instruction->name, sizeof instruction->name);
    if (!instruction->name[0]) return false;
    fprintf(p->out, "\n# %d \"%.*s\"\n", instruction->line, p->statement->file_length,
            p->statement->file);
    if (strcmp(instruction->name, "bra") == 0 || strcmp(instruction->name, "bra.uni") == 0)
        return read_branch(p, instruction);
    skip_space(p);
    if (peek(p) != ';' && peek(p) != EOF) {
        do {
            if (instruction->n_args == PTX_MAX_ARGS) return false;
            if (!read_arg(p, &instruction->args[instruction->n_args++])) return false;
        } while (take(p, ','));
    }
    if (!take(p, ';') && peek(p) != EOF) return false; /* the last semicolon is often left out */
    ptx_emit_instruction(p, instruction);
    return true;
}

/* A name may turn out to be a label. */
static bool read_statement(struct ptx_parser *p)
{
    struct ptx_instruction instruction = {.line = line_here(p)};
    size_t begin = p->at;

    if (peek(p) == '@') return read_instruction(p, &instruction);
    read_name(p, ".:", instruction.name, sizeof instruction.name);
    if (strcmp(instruction.name, ".reg") == 0) {
        skip_space(p);
        return read_declaration(p);
    }
    size_t n = strlen(instruction.name);
    if (n > 1 && instruction.name[n - 1] == ':') {
        instruction.name[n - 1] = 0;
        fprintf(p->out, "simt_label%d_%s: (void)0; ", p->statement->number, instruction.name);
        return true;
    }
    p->at = begin;
    instruction.name[0] = 0;
    return read_instruction(p, &instruction);
}

void ptx_parse_template(struct ptx_parser *p)
{
    skip_space(p);
    while (p->at < p->statement->size) {
        int errors = p->n_errors, line = line_here(p);
        size_t begin = p->at;
        if (take(p, ';')) continue;
        if (take(p, '{')) {
            p->depth++;
            fputs("{ ", p->out);
        } else if (p->depth > 0 && take(p, '}')) {
            while (p->n_registers && p->registers[p->n_registers - 1].depth == p->depth)
                p->n_registers--;
            p->depth--;
            fputs("} ", p->out);
        } else if (!read_statement(p)) {
            if (p->n_errors == errors)
                ptx_error(p, line, "this PTX is not understood: %.*s",
                          (int)strcspn(p->statement->text + begin, ";\n"),
                          p->statement->text + begin);
            return;
        }
        skip_space(p);
    }
    if (p->depth > 0) ptx_error(p, line_here(p), "a brace in the PTX is not closed");
}
