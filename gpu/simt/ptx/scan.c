/* Finds asm statements in preprocessed C++ and takes them apart. */
#include "ptx.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

struct scanner {
    const char *text;
    size_t size, at;
    const char *file;
    int file_length, line;
    bool system_header;
    FILE *out, *errors;
    int n_errors, n_statements;
    bool last_is_word, last_begins_statement; /* of the last thing that is no space */
};

static int peek(const struct scanner *s)
{
    return s->at < s->size ? (unsigned char)s->text[s->at] : EOF;
}

static bool is_word(int c)
{
    return isalnum(c) || c == '_' || c == '$';
}

/* "# 12 "file.cu" 3": the next line is line 12 of that file; 3 says it is a system header's. */
static void read_marker(struct scanner *s)
{
    const char *begin = s->text + s->at, *end = memchr(begin, '\n', s->size - s->at);
    const char *stop = end ? end : s->text + s->size, *open, *close;

    open = memchr(begin, '"', (size_t)(stop - begin));
    if (begin + 2 < stop && isdigit((unsigned char)begin[2]) && open) {
        close = stop;
        while (close > open + 1 && *--close != '"') continue;
        s->line = atoi(begin + 2) - 1;
        s->file = open + 1;
        s->file_length = (int)(close - open - 1);
        s->system_header = false;
        for (const char *p = close; p < stop; p++) s->system_header |= *p == '3';
    }
    s->at = (size_t)(stop - s->text);
}

static void scan_error(struct scanner *s, const char *what)
{
    fprintf(s->errors, "%.*s:%d: %s\n", s->file_length, s->file, s->line, what);
    s->n_errors++;
}

/* Steps over one character, keeping count of lines and obeying line markers. */
static void step(struct scanner *s)
{
    bool newline = s->text[s->at++] == '\n';

    if (!newline) return;
    s->line++;
    if (peek(s) == '#') read_marker(s);
}

static void skip_space(struct scanner *s)
{
    while (s->at < s->size && isspace(peek(s))) step(s);
}

static bool raw_string_ahead(const struct scanner *s)
{
    return s->at + 1 < s->size && s->text[s->at] == 'R' && s->text[s->at + 1] == '"';
}

/* The end of the literal that begins at `at`: behind the closing quote. */
static size_t literal_end(const struct scanner *s)
{
    size_t at = s->at;
    char quote = s->text[at++];

    while (at < s->size && s->text[at] != quote && s->text[at] != '\n')
        at += s->text[at] == '\\' ? 2 : 1;
    return at < s->size ? at + 1 : s->size;
}

static void append(struct ptx_asm *a, char c, int line)
{
    if (a->size % 256 == 0) {
        a->text = realloc(a->text, a->size + 256 + 1);
        a->lines = realloc(a->lines, (a->size + 256 + 1) * sizeof *a->lines);
        if (!a->text || !a->lines) abort();
    }
    a->text[a->size] = c;
    a->lines[a->size++] = line;
    a->text[a->size] = 0;
}

static char unescaped(char c)
{
    return c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
}

/* R"tag(...)tag": taken as it is. */
static bool read_raw_string(struct scanner *s, struct ptx_asm *a)
{
    char end[32] = ")";
    size_t n = 1;

    s->at += 2;
    while (s->at < s->size && peek(s) != '(' && n < sizeof end - 2) end[n++] = s->text[s->at++];
    end[n++] = '"';
    step(s);
    while (s->at + n <= s->size && memcmp(s->text + s->at, end, n) != 0) {
        append(a, s->text[s->at], s->line);
        if (s->text[s->at++] == '\n') s->line++;
    }
    if (s->at + n > s->size) return false;
    s->at += n;
    return true;
}

/* The string literals of the template, one behind the other. */
static bool read_template(struct scanner *s, struct ptx_asm *a)
{
    bool any = false;

    for (;; any = true) {
        skip_space(s);
        if (raw_string_ahead(s)) {
            if (!read_raw_string(s, a)) return false;
            continue;
        }
        if (peek(s) != '"') return any;
        size_t end = literal_end(s);
        for (s->at++; s->at + 1 < end; s->at++) {
            bool escaped = peek(s) == '\\';
            s->at += escaped;
            append(a, escaped ? unescaped(s->text[s->at]) : s->text[s->at], s->line);
        }
        s->at = end;
    }
}

/* The text up to the parenthesis that closes this one, on one line. */
static char *read_expression(struct scanner *s)
{
    size_t n = 0;
    int level = 1;
    char *text = malloc(s->size - s->at + 1);

    if (!text) abort();
    while (s->at < s->size) {
        int c = peek(s);
        if (c == '"' || c == '\'') {
            size_t end = literal_end(s);
            while (s->at < end) text[n++] = s->text[s->at++];
            continue;
        }
        level += c == '(' ? 1 : c == ')' ? -1 : 0;
        if (level == 0) break;
        text[n++] = c == '\n' ? ' ' : (char)c;
        step(s);
    }
    text[n] = 0;
    return text;
}

/* [name] "constraint" (expression) */
static bool read_operand(struct scanner *s, struct ptx_operand *operand, bool output)
{
    size_t n = 0;

    memset(operand, 0, sizeof *operand);
    skip_space(s);
    if (peek(s) == '[') {
        for (s->at++; s->at < s->size && peek(s) != ']'; s->at++)
            if (!isspace(peek(s)) && n < sizeof operand->name - 1)
                operand->name[n++] = s->text[s->at];
        s->at++;
        skip_space(s);
    }
    if (peek(s) != '"') return false;
    operand->written = output;
    operand->read = !output;
    for (s->at++; s->at < s->size && peek(s) != '"'; s->at++) {
        char c = s->text[s->at];
        if (c == '+')
            operand->read = true;
        else if (c != '=' && c != '&' && !operand->constraint)
            operand->constraint = c;
        else if (c != '=' && c != '&')
            operand->constraint = '?';
    }
    s->at++;
    skip_space(s);
    if (peek(s) != '(') return false;
    s->at++;
    operand->expression = read_expression(s);
    s->at++;
    return true;
}

static bool read_operands(struct scanner *s, struct ptx_asm *a, bool output)
{
    skip_space(s);
    while (peek(s) == '"' || peek(s) == '[') {
        if (a->n_operands == PTX_MAX_OPERANDS) return false;
        if (!read_operand(s, &a->operands[a->n_operands++], output)) return false;
        skip_space(s);
        if (peek(s) != ',') break;
        s->at++;
        skip_space(s);
    }
    return true;
}

/* What is between asm's parentheses; s is behind the opening one and comes to stand behind the
 * closing one. */
static bool read_statement(struct scanner *s, struct ptx_asm *a)
{
    if (!read_template(s, a)) return false;
    for (int section = 0; section < 3 && peek(s) == ':'; section++) {
        s->at++;
        a->extended = true;
        if (section < 2) {
            if (!read_operands(s, a, section == 0)) return false;
            continue;
        }
        for (skip_space(s); peek(s) == '"' || peek(s) == ','; skip_space(s))
            s->at = peek(s) == ',' ? s->at + 1 : literal_end(s);
    }
    if (peek(s) != ')') return false;
    s->at++;
    return true;
}

static bool take_word(struct scanner *s, const char *const *words)
{
    size_t end = s->at;

    while (end < s->size && is_word((unsigned char)s->text[end])) end++;
    for (; *words; words++) {
        size_t n = strlen(*words);
        if (n != end - s->at || memcmp(*words, s->text + s->at, n) != 0) continue;
        s->at = end;
        return true;
    }
    return false;
}

static void free_statement(struct ptx_asm *a)
{
    for (int i = 0; i < a->n_operands; i++) free(a->operands[i].expression);
    free(a->text);
    free(a->lines);
}

/* s is behind the word asm. When no statement follows, nothing is taken. */
static bool translate(struct scanner *s)
{
    static const char *const qualifiers[] = {"volatile", "__volatile__", "__volatile", "inline",
                                             NULL};
    struct ptx_asm a = {.file = s->file, .file_length = s->file_length, .first_line = s->line};
    struct scanner before = *s;

    skip_space(s);
    while (take_word(s, qualifiers)) skip_space(s);
    if (peek(s) != '(') {
        *s = before;
        return false;
    }
    s->at++;
    a.number = s->n_statements++;
    if (read_statement(s, &a)) {
        a.last_line = s->line;
        ptx_emit_statement(&a, s->out, s->errors, &s->n_errors);
    } else {
        scan_error(s, "this asm statement is not understood: string literals, then operands as "
                      "\"constraint\"(expression)");
    }
    free_statement(&a);
    return true;
}

/* The quote in 1'000. */
static bool separator_ahead(const struct scanner *s, size_t begin)
{
    return peek(s) == '\'' && isdigit((unsigned char)s->text[begin]) && s->at + 1 < s->size &&
           isalnum((unsigned char)s->text[s->at + 1]);
}

/* Copies a word or a number; asm that begins a statement is translated. `int x asm("name")` names a
 * symbol. */
static void scan_word(struct scanner *s)
{
    static const char *const words[] = {"asm", "__asm__", "__asm", NULL};
    static const char *const before_statement[] = {"else", "do", NULL};
    bool is_statement = !s->last_is_word || s->last_begins_statement;
    size_t begin = s->at;

    if (!s->system_header && is_statement && take_word(s, words)) {
        if (translate(s)) {
            s->last_is_word = s->last_begins_statement = false;
            return;
        }
        s->at = begin;
    }
    s->last_begins_statement = take_word(s, before_statement);
    s->at = begin;
    while (s->at < s->size && (is_word(peek(s)) || separator_ahead(s, begin))) s->at++;
    fwrite(s->text + begin, 1, s->at - begin, s->out);
    s->last_is_word = true;
}

/* Steps over what is no word: a literal whole, anything else one character. */
static void step_over(struct scanner *s)
{
    struct ptx_asm ignored = {0};
    int c = peek(s);

    if (raw_string_ahead(s))
        read_raw_string(s, &ignored);
    else if (c == '"' || c == '\'')
        s->at = literal_end(s);
    else
        step(s);
    free_statement(&ignored);
    if (isspace(c)) return;
    s->last_is_word = c == ']';
    s->last_begins_statement = false;
}

int ptx_translate(const char *text, size_t size, FILE *out, FILE *errors)
{
    struct scanner s = {
        .text = text, .size = size, .line = 1, .file = "", .out = out, .errors = errors};

    if (peek(&s) == '#') read_marker(&s);
    fwrite(text, 1, s.at, out);
    while (s.at < size) {
        size_t begin = s.at;
        if (is_word(peek(&s)) && !raw_string_ahead(&s)) {
            scan_word(&s);
            continue;
        }
        step_over(&s);
        fwrite(text + begin, 1, s.at - begin, out);
    }
    return s.n_errors;
}
