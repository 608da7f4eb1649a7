/* The language of descriptors. */
#include <criterion/criterion.h>
#include <string.h>

#include "harness/case/op.h"

static const char *const colours[] = {"red", "green", NULL};
static const struct param keys[] = {
    {"a", PARAM_INT, false, "7", INT64_MIN, INT64_MAX, NULL, "", 0},
    {"b", PARAM_INT, false, "0", INT64_MIN, INT64_MAX, NULL, "", 0},
    {"x", PARAM_REAL, false, "0.5", 0, 0, NULL, "", 0},
    {"colour", PARAM_ENUM, false, "green", 0, 0, colours, "", 0},
    {"list", PARAM_LIST, false, "[4,5,6]", -9, 9, NULL, "", 0},
    {"none", PARAM_LIST, false, "[]", -9, 9, NULL, "", 0},
    {"seed", PARAM_SEED, false, "0x1", 0, 0, NULL, "", 0},
};
static int64_t squared(const struct case_line *c)
{
    return case_int(c, "a") * case_int(c, "a");
}
static const struct number numbers[] = {
    {"b", "a + 1"}, /* hides the key of its name */
    {"c", "b*b"},
    {"square", .compute = squared},
    {"half", "x/2"},
};
static const struct op op = {
    .name = "expressions", .params = keys, .n_params = sizeof keys / sizeof *keys, TABLE(numbers)};

#define EXPECT(text, expected) \
    cr_expect_eq(case_number(&c, text), expected, "%s is %ld", text, (long)case_number(&c, text))

static struct case_line start(void)
{
    struct case_line c;
    case_init(&c, &op);
    return c;
}

Test(expression, operators_bind_as_in_c)
{
    struct case_line c = start();
    EXPECT("1 + 2*3 - 4/2", 5);
    EXPECT("(1 + 2)*3 % 5", 4);
    EXPECT("-3 + 1", -2);
    EXPECT("-7/2", -3);
    EXPECT("1 < 2 && 2 <= 2 && 3 > 2 && 2 >= 2 && 1 == 1 && 1 != 2", 1);
    EXPECT("0 || 0 && 1 || 0", 0);
    EXPECT("!0 + !5", 1);
    EXPECT("a > 6 ? 1 ? 2 : 3 : 4", 2);
    EXPECT("a > 7 ? 1 : a > 6 ? 2 : 3", 2);
}

Test(expression, quotients_and_overflow)
{
    struct case_line c = start();
    EXPECT("ceil(a/2)", 4);
    EXPECT("ceil(6/2)", 3);
    EXPECT("ceil(0/16)*16", 0);
    EXPECT("ceil(17/16)*16", 32);
    EXPECT("ceil(ceil(a/2)/3)", 2);
    EXPECT("ceil((a + 9)/16)", 1);
    EXPECT("a/0", 0);
    EXPECT("a % 0", 0);
    EXPECT("ceil(a/0)", 0);
    EXPECT("9223372036854775807 + 1", INT64_MAX);
    EXPECT("-9223372036854775807 - 9", INT64_MIN);
    EXPECT("4294967296*4294967296", INT64_MAX);
}

Test(expression, names)
{
    struct case_line c = start();
    EXPECT("a", 7);
    EXPECT("b", 8);
    EXPECT("c", 64);
    EXPECT("square", 49);
    EXPECT("colour", 1);
    EXPECT("colour.green + 2*colour.red", 1);
    EXPECT("list", 3);
    EXPECT("item(list, 4, 9) + 10*item(none, 4, 9)", 95);
    EXPECT("4*(x + half)", 3);
    EXPECT("num_pages", 0);
    EXPECT("min(a, 3) + max(a, 3) + pow2(a) + pow2(0)", 3 + 7 + 8 + 1);
    EXPECT("1000*ldexp(x, 2)", 2000);
    EXPECT("sqrt(a*a) == a", 1);
}

Test(expression, bindings_are_in_the_operations_names)
{
    struct case_line c = start();
    const struct scope s = {.c = &c, .bindings = "a = c, width = max(a, 2) + 1, other = list"};
    cr_expect_eq(expression_int(&s, "a + width"), 64 + 8);
    cr_expect_str_eq(assignment_find(s.bindings, "other"), "list");
    cr_expect_null(assignment_find(s.bindings, "idth"));
    cr_expect_null(assignment_find(NULL, "a"));
}

static void expect_error(const char *text, const char *part)
{
    struct case_line c = start();
    const struct scope s = {.c = &c};
    char error[320] = "";
    struct value v;
    const char *at = text;
    cr_expect_not(expression_next(&s, &at, &v, error, sizeof error), "%s", text);
    cr_expect(strstr(error, part), "%s: %s", text, error);
}

Test(expression, errors_name_the_place)
{
    expect_error("a + ", "character 5: expected a name");
    expect_error("a + heads", "no key or number 'heads'");
    expect_error("(a", "expected ')'");
    expect_error("a ? 1", "expected ':'");
    expect_error("ceil(a + 1)", "ceil wants a quotient");
    expect_error("ceil(a/2 + 1)", "ceil wants a quotient");
    expect_error("colour.blue", "a value 'blue'");
    expect_error("a.b", "no enum key 'a'");
    expect_error("item(a, 0, 0)", "'a' is no list");
    expect_error("floor(a)", "no function 'floor'");
    expect_error("draw(1, 2)", "nothing is drawn here");
    expect_error("new.a", "no changed case");
    expect_error("a a", "something follows");
    /* Where the value is not needed, too. */
    expect_error("1 ? a : heads", "'heads'");
    expect_error("0 && heads", "'heads'");
}

Test(expression, only_what_decides_is_drawn)
{
    struct case_line c = start();
    struct rng r = {3, 4, 0}, same = r;
    const struct scope s = {.c = &c, .rng = &r};
    expression_int(&s, "1 || draw(1, 9)");
    expression_int(&s, "0 && one_in(3)");
    expression_int(&s, "1 ? 5 : edge(1, 9, 4)");
    cr_expect_eq(r.next, same.next);
    int64_t drawn = expression_int(&s, "draw(10, 1000000)");
    cr_expect_eq(drawn, rng_range(&same, 10, 1000000));
    cr_expect_eq(r.next, same.next);
}

Test(expression, assignments)
{
    struct case_line c = start(), changed = c;
    const struct scope s = {.c = &c};
    char error[320];
    cr_assert(expression_assign(&s,
                                "a = a + 1, b = new.a*10, colour = colour.green ? red : green, "
                                "x = 2*x",
                                &changed, error, sizeof error),
              "%s", error);
    cr_expect_eq(case_int(&changed, "a"), 8);
    cr_expect_eq(case_int(&changed, "b"), 80);
    cr_expect_eq(case_int(&changed, "colour"), 0);
    cr_expect_eq(case_real(&changed, "x"), 1.0);
    cr_expect_eq(case_int(&c, "a"), 7);
    cr_expect_not(expression_assign(&s, "heads = 1", &changed, error, sizeof error));
    cr_expect(strstr(error, "'heads' is no key"), "%s", error);
    cr_expect_not(expression_assign(&s, "a = 1; b = 2", &changed, error, sizeof error));
    cr_expect_not(expression_assign(&s, "colour = blue", &changed, error, sizeof error));
    cr_expect_not(expression_assign(&s, "list = 1", &changed, error, sizeof error));
}
