/* The translator of inline PTX on small texts: what it takes for a statement, and what it says of
 * templates that are wrong. */
#include "ptx/ptx.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

struct outcome {
    char *text, *errors;
    int n_errors;
};

static struct outcome translated(const char *source)
{
    struct outcome result;
    size_t size;
    FILE *out = open_memstream(&result.text, &size);
    FILE *errors = open_memstream(&result.errors, &size);

    cr_assert(out && errors);
    result.n_errors = ptx_translate(source, strlen(source), out, errors);
    fclose(out);
    fclose(errors);
    return result;
}

static void release(struct outcome *o)
{
    free(o->text);
    free(o->errors);
}

static void expect_unchanged(const char *source)
{
    struct outcome o = translated(source);

    cr_expect_eq(o.n_errors, 0);
    cr_expect_str_eq(o.text, source);
    release(&o);
}

static void expect_error(const char *source, const char *error)
{
    struct outcome o = translated(source);

    cr_expect_eq(o.n_errors, 1, "%s: %d errors: %s", source, o.n_errors, o.errors);
    cr_expect_str_eq(o.errors, error);
    release(&o);
}

static void expect_text(const char *source, const char *wanted)
{
    struct outcome o = translated(source);

    cr_expect_eq(o.n_errors, 0, "%s", o.errors);
    cr_expect(strstr(o.text, wanted) != NULL, "%s\nis not in\n%s", wanted, o.text);
    release(&o);
}

Test(simt_ptx_translate, leaves_everything_else_alone)
{
    expect_unchanged("# 1 \"a.cu\"\nint f() { return '\"' + 1'000 + R\"x(asm(\"y\")x\"[0]; }\n");
    expect_unchanged(
        "# 1 \"a.cu\"\nextern int x asm(\"name\"); const char *s = \"asm(\\\"y\\\")\";\n");
    expect_unchanged("# 1 \"s.h\" 1 3\nvoid f() { asm(\"nop\"); }\n");
    expect_unchanged("int asm_ = 1, my_asm = 2;");
}

/* The line markers inside a statement are the translator's own; behind it counting goes on. */
Test(simt_ptx_translate, names_lines)
{
    const char *source =
        "# 7 \"a.cu\"\nvoid f(int x) {\n asm(\"trap;\\n\"\n\"brkpt;\"\n: : \"r\"(\nx));\n}\n";

    expect_text(source, "\n# 8 \"a.cu\"\nsimt_ptx::trap(); \n# 9 \"a.cu\"\nsimt_ptx::trap(); "
                        "\n# 11 \"a.cu\"\n} while (0);\n}\n");
    expect_text("# 3 \"u.h\" 3\n# 5 \"a.cu\"\nint f() { asm volatile(\"trap;\"); }",
                "# 5 \"a.cu\"\nsimt_ptx::trap();");
}

Test(simt_ptx_translate, statements_of_all_shapes)
{
    expect_text("void f() { if (a) asm(\"trap;\"); else __asm__ __volatile__(\"trap;\"); }",
                "else do { ");
    expect_text("void f() { asm volatile(\"\" ::: \"memory\"); }",
                "__asm__ volatile(\"\" ::: \"memory\");");
    expect_text(
        "void f() { asm(\"mov.b32 %[d], %[s];\" : [d] \"=r\"(g(a, \")\")) : [s] \"r\"(b[(1)])); }",
        "auto &simt_x0 = (g(a, \")\")); ");
    expect_text("void f() { asm(\"{ .reg .u32 t; mov.u32 t, %tid.x; }\"); }",
                "simt_ptx::as<uint32_t>(threadIdx.x)"); /* basic asm: one percent sign */
}

Test(simt_ptx_translate, errors)
{
    expect_error(
        "# 3 \"a.cu\"\nvoid f() { asm(\"mov.b32 %0, t;\" : \"=r\"(x)); }",
        "a.cu:3: t is neither a register of this asm statement nor a special register that "
        "is modelled on the CPU backend\n");
    expect_error(
        "# 3 \"a.cu\"\nvoid f() { asm(\"{ .reg .b32 t; } mov.b32 %0, t;\" : \"=r\"(x)); }",
        "a.cu:3: t is neither a register of this asm statement nor a special register that "
        "is modelled on the CPU backend\n");
    expect_error("# 3 \"a.cu\"\nvoid f() { asm(\"mov.b32 %0, %%pm0;\" : \"=r\"(x)); }",
                 "a.cu:3: %pm0 is neither a register of this asm statement nor a special register "
                 "that is modelled on the CPU backend\n");
    expect_error("# 3 \"a.cu\"\nvoid f() { asm(\n\"mov.b32 %0, %2;\" : \"=r\"(x) : \"r\"(y)); }",
                 "a.cu:4: the asm statement has no operand %2\n");
    expect_error(
        "# 3 \"a.cu\"\nvoid f() { asm(\"mov.b32 %0, 1;\" : \"=x\"(x)); }",
        "a.cu:3: the constraint \"x\" of operand 0 of the asm statement is not modelled on "
        "the CPU backend\n");
    expect_error("# 3 \"a.cu\"\nvoid f() { asm(\"{ trap;\"); }",
                 "a.cu:3: a brace in the PTX is not closed\n");
    expect_error("# 3 \"a.cu\"\nvoid f() { asm(\"mov.b32 %0, 1 2;\" : \"=r\"(x)); }",
                 "a.cu:3: this PTX is not understood: mov.b32 %0, 1 2\n");
    expect_error("# 3 \"a.cu\"\nvoid f() { asm(\"{ .reg .b128 t; }\"); }",
                 "a.cu:3: registers of the type .b128 are not modelled on the CPU backend\n");
    expect_error("# 3 \"a.cu\"\nvoid f() { asm(name : \"=r\"(x)); }",
                 "a.cu:3: this asm statement is not understood: string literals, then operands as "
                 "\"constraint\"(expression)\n");
}

/* Unfinished text of every length: no crash, no endless loop. */
Test(simt_ptx_translate, cut_off_anywhere)
{
    const char *source =
        "# 3 \"a.cu\"\nvoid f() { asm volatile(R\"({ .reg .pred p<2>; @!p1 "
        "ld.shared.v2.b32 {%0, %1}, [%[a]+0x10]; L: bra L; })\" \"/* x */ // y\\n\" "
        ": \"+r\"(x), \"=f\"('\\'') : [a] \"r\"(\"\\\"\") : \"memory\"); }";
    char *copy = strdup(source);

    for (size_t n = strlen(source); n > 0; n--) {
        copy[n - 1] = 0;
        struct outcome o = translated(copy);
        release(&o);
    }
    free(copy);
}
