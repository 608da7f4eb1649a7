/* Turns the inline PTX of a preprocessed CUDA source into C++ for the CPU backend.
 *
 * scan.c finds the asm statements and takes them apart, statement.c passes their operands in and
 * out, parse.c cuts a template into instructions, rules.c knows which ones are modelled, emit.c
 * writes the calls of include/simt_ptx.h. */
#ifndef ATTEST_SIMT_PTX_H
#define ATTEST_SIMT_PTX_H

#include <stdbool.h>
#include <stdio.h>

#define PTX_MAX_OPERANDS 64 /* of an asm statement */
#define PTX_MAX_ARGS 8      /* of an instruction */
#define PTX_MAX_ITEMS 8     /* of a braced vector */
#define PTX_MAX_REGISTERS 256
#define PTX_NAME 160

/* Translates the text; the rest is copied. Returns the number of errors, which are written to
 * `errors` as "file:line: what". The result cannot be used when there are any. */
int ptx_translate(const char *text, size_t size, FILE *out, FILE *errors);

/* "%0", "%[name]": constraint letter as in "=r"; the C++ expression behind it. */
struct ptx_operand {
    char name[64];
    char constraint;
    bool read, written;
    char *expression;
};

/* An asm statement. The template's escapes are resolved; lines[i] is the line of text[i]. */
struct ptx_asm {
    const char *file; /* not terminated */
    int file_length, first_line, last_line;
    int number; /* of the statement in the source */
    bool extended;
    char *text;
    int *lines;
    size_t size;
    struct ptx_operand operands[PTX_MAX_OPERANDS];
    int n_operands;
};

enum ptx_kind {
    PTX_REGISTER, /* text: the C++ variable of its bits */
    PTX_CONSTANT, /* text: a C++ constant, converted where it is used */
    PTX_BITS,     /* text: a C++ constant with the bits of a float or double */
    PTX_SINK,     /* "_" */
};
struct ptx_item {
    enum ptx_kind kind;
    bool negated; /* "!p" */
    char text[96];
};
enum ptx_shape { PTX_SCALAR, PTX_VECTOR, PTX_ADDRESS, PTX_PAIR };
/* Vector: n items. Address: base and, if n is 2, offset. Pair "d|p": two items. */
struct ptx_arg {
    enum ptx_shape shape;
    int n;
    struct ptx_item items[PTX_MAX_ITEMS];
};
struct ptx_instruction {
    char name[PTX_NAME]; /* "ld.global.v4.u32" */
    int line;
    bool guarded;
    struct ptx_item guard;
    int n_args;
    struct ptx_arg args[PTX_MAX_ARGS];
};

/* A variable of the register file, visible from its declaration to the brace that ends its scope.
 */
struct ptx_register {
    char name[64];
    int depth, id, count; /* count: "r<4>" declares r0 to r3 with ids id to id + 3; 0 = one */
};

struct ptx_parser {
    struct ptx_asm *statement;
    FILE *out, *errors;
    int n_errors;
    size_t at;
    int depth, next_id;
    struct ptx_register registers[PTX_MAX_REGISTERS];
    int n_registers;
};

/* parse.c: writes the C++ of all instructions of the statement's template. */
void ptx_parse_template(struct ptx_parser *parser);
void ptx_error(struct ptx_parser *parser, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* statement.c */
void ptx_emit_statement(struct ptx_asm *statement, FILE *out, FILE *errors, int *n_errors);

/* emit.c */
void ptx_emit_instruction(struct ptx_parser *parser, const struct ptx_instruction *instruction);

/* rules.c. One way to write an instruction: see there. */
struct ptx_rule {
    const char *pattern, *args, *function;
};
/* What a rule made of an instruction's name. */
struct ptx_match {
    const struct ptx_rule *rule;
    const char *types[4]; /* C++ types, in the order of the name */
    int n_types;
    char modifiers[8][32]; /* what the function has to know, "none" for an absent one */
    int n_modifiers;
    int vector; /* of .v2, .x4, ...; 0 = not named */
};
/* The first rule that fits name and operands. */
bool ptx_match(const struct ptx_instruction *instruction, struct ptx_match *match);
/* Whether some rule fits the name, with whatever operands. */
bool ptx_name_known(const char *name);
/* The C++ expression of a special register such as "%laneid", or NULL. */
const char *ptx_special(const char *name);

#endif
