/* The descriptors' tables: they fit each other, a wrong one is found, and what they say of a launch
 * is what the launcher does. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/case/op.h"

Test(tables, of_every_operation_fit)
{
    for (uint32_t i = 0; i < op_count; i++) {
        char error[512] = "";
        cr_expect(op_check_tables(op_table[i], error, sizeof error), "%s", error);
    }
}

static const struct op *find(const char *name)
{
    return op_find(name, strlen(name));
}

static void expect_found(const struct op *op, const char *part)
{
    char error[512] = "";
    cr_expect_not(op_check_tables(op, error, sizeof error), "%s is not found", part);
    cr_expect(strstr(error, part), "%s", error);
}

Test(tables, wrong_numbers_and_steps_are_found)
{
    struct op op = *find("qsa_score");
    const struct number numbers[] = {{"n_blocks", "blocks"}, {"n_heads", "heads + late"}};
    op.numbers = numbers;
    op.n_numbers = 2;
    expect_found(&op, "'late'");
    op.n_numbers = 1; /* without n_heads, which the kernel has and no key is */
    expect_found(&op, "'n_heads'");
    op = *find("qsa_score");
    op.steps = (const struct step[]){{&interface_qsa_score, "n_head = heads"}, {0}};
    expect_found(&op, "no argument 'n_head'");
    op.steps = (const struct step[]){{&interface_qsa_score, "q = queries"}, {0}};
    expect_found(&op, "'q' is bound to no array");
    op.steps = (const struct step[]){{&interface_qsa_score, "scores = q"}, {0}};
    expect_found(&op, "writes the input 'q'");
    op.steps = (const struct step[]){{&interface_qsa_score, .module = 1}, {0}};
    expect_found(&op, "no such module");
}

Test(tables, wrong_arrays_relations_and_keys_are_found)
{
    struct op op = *find("qsa_score");
    const struct array arrays[] = {op.arrays[0], op.arrays[1], op.arrays[2], {"extra", ARRAY_IN}};
    op.arrays = arrays;
    op.n_arrays = 4;
    expect_found(&op, "'extra' is no kernel's");
    op = *find("qsa_score");
    op.wild = "blocks head";
    expect_found(&op, "no key 'head'");
    op = *find("qsa_score");
    op.relations = (const struct relation[]){{"a", RELATION_SAME_BITS, "head"}, {0}};
    expect_found(&op, "'head'");
    op.relations = (const struct relation[]){{"a", RELATION_SAME_BITS, NULL, "head = 1"}, {0}};
    expect_found(&op, "'head' is no key");
    op.relations =
        (const struct relation[]){{"a", RELATION_SAME_BITS, NULL, "heads = 1", "rows"}, {0}};
    expect_found(&op, "'rows'");
    op.relations = (const struct relation[]){
        {"a", RELATION_SAME_BITS, NULL, "heads = 1", .outputs = "q"}, {0}};
    expect_found(&op, "'q' is no output");
}

/* A backend that runs nothing and remembers the launch. */
static struct {
    char entry[64];
    struct gpu_dim grid, block;
    uint32_t shared;
} seen;

static const struct gpu_limits *no_limits(const struct gpu_device *device)
{
    static const struct gpu_limits limits = {INT32_MAX, 65535, 65535, 1024, 227 << 10};
    return &limits;
}

static enum gpu_status remember_entry(struct gpu_module *module, const char *entry,
                                      struct gpu_kernel **kernel, struct gpu_report *report)
{
    snprintf(seen.entry, sizeof seen.entry, "%s", entry);
    return GPU_OK;
}

static enum gpu_status remember_launch(struct gpu_device *device, struct gpu_kernel *kernel,
                                       struct gpu_dim grid, struct gpu_dim block,
                                       uint32_t shared_bytes, void **args,
                                       struct gpu_report *report)
{
    seen.grid = grid;
    seen.block = block;
    seen.shared = shared_bytes;
    return GPU_OK;
}

static const struct gpu_backend recorder = {
    .name = "recorder", .limits = no_limits, .resolve = remember_entry, .launch = remember_launch};

static void launch(const struct case_line *c, const struct instance *in)
{
    struct gpu_target target = {&recorder, NULL, NULL, NULL};
    struct gpu_buffer buffers[INSTANCE_TENSORS_MAX];
    struct gpu_report report = {{0}, {0}};
    char text[CASE_TEXT_MAX];
    for (uint32_t i = 0; i < in->n_tensors; i++)
        buffers[i] =
            (struct gpu_buffer){(i + UINT64_C(1)) << 40,
                                in->tensors[i].elems * dtype_bytes(in->tensors[i].dtype), NULL};
    memset(&seen, 0, sizeof seen);
    case_print(c, text, sizeof text);
    cr_assert_eq(op_launch(&target, c, in, buffers, &report), GPU_OK, "%s: %s", text, report.text);
}

static void expect_dims(const struct case_line *c, const char *text, struct gpu_dim is)
{
    const uint32_t numbers[] = {is.x, is.y, is.z};
    const struct scope s = {.c = c, .bindings = c->op->steps[0].bindings};
    char error[320];
    uint32_t i = 0;
    for (const char *at = text;; at++) {
        struct value v;
        cr_assert(expression_next(&s, &at, &v, error, sizeof error), "%s", error);
        cr_expect_eq(numbers[i], v.i, "%s: %s is %u", c->op->name, text, numbers[i]);
        i++;
        if (!*at) break;
    }
    for (; i < 3; i++) cr_expect_eq(numbers[i], 1, "%s: %s", c->op->name, text);
}

/* Entry point, grid, block and shared memory of every kernel, in cases drawn at random. */
Test(tables, say_what_the_launcher_does)
{
    for (uint32_t i = 0; i < op_count; i++) {
        const struct op *op = op_table[i];
        if (op->steps[1].kernel) continue; /* a pipeline: its kernels are operations, too */
        for (uint64_t n = 0; n < 12; n++) {
            struct rng r = {i + 77, 1, n << 32};
            struct ref_refusal why;
            struct instance in;
            struct case_line c;
            case_init(&c, op);
            op->sample(&c, &r, TIER_QUICK, n);
            if (!op_ref_accepts(&c, NULL, &why)) continue;
            instance_init(&in, POISON_NAN);
            cr_assert(op_build(&c, &in));
            if (op_ref_accepts(&c, &in, &why)) launch(&c, &in);
            instance_free(&in);
            if (!seen.block.x) continue;
            const struct interface *kernel = op->steps[0].kernel;
            cr_expect_str_eq(seen.entry, kernel->entry);
            expect_dims(&c, kernel->grid, seen.grid);
            expect_dims(&c, kernel->block, seen.block);
            if (kernel->shared)
                cr_expect_eq(seen.shared, case_number(&c, kernel->shared), "%s", op->name);
            seen.block.x = 0;
        }
    }
}

/* The row of ops.md that begins with the entry point, and its cells. */
static bool row_of(const char *entry, char *row, size_t size, char *cells[5])
{
    FILE *file = fopen("docs/ops.md", "r");
    char start[80];
    bool found = false;
    cr_assert(file, "docs/ops.md");
    snprintf(start, sizeof start, "| `%s` |", entry);
    while (!found && fgets(row, (int)size, file)) found = !strncmp(row, start, strlen(start));
    fclose(file);
    for (int i = 0; found && i < 5; i++) cells[i] = strtok(i ? NULL : row, "|");
    return found;
}

/* Copies without spaces and emphasis. */
static void squeeze(const char *from, char *to, size_t size)
{
    size_t n = 0;
    for (; *from && n + 1 < size; from++) {
        if (!strchr(" *\n", *from)) to[n++] = *from;
    }
    to[n] = 0;
}

/* "q f32[n_heads, hd]" of the page against an argument: name, and type and shape where given. */
static void expect_item(const char *entry, const char *item, const struct argument *a)
{
    char name[48], rest[160] = "", shape[96], want[160];
    int used = 0;
    sscanf(item, " %47[A-Za-z0-9_]%n", name, &used);
    cr_expect_str_eq(name, a->name, "%s: ops.md has %s where the table has %s", entry, name,
                     a->name);
    squeeze(item + used, rest, sizeof rest);
    char *open = strchr(rest, '['), *close = open ? strchr(open, ']') : NULL;
    if (!a->shape || !rest[0] || strchr(rest, ' ')) return;
    size_t type = strlen(dtype_name(a->dtype));
    if (!strncmp(rest, "out", 3)) return;
    cr_expect(!strncmp(rest, dtype_name(a->dtype), type), "%s: %s is %s", entry, name, rest);
    if (!close || (size_t)(open - rest) != type) return;
    squeeze(a->shape, shape, sizeof shape);
    snprintf(want, sizeof want, "[%s]", shape);
    close[1] = 0;
    cr_expect_str_eq(open, want, "%s: shape of %s", entry, name);
}

/* Next item of a cell: up to a comma outside brackets. */
static char *next_item(char **at)
{
    char *start = *at, *end = start;
    for (int depth = 0; *end && (depth || *end != ','); end++)
        depth += (*end == '[') - (*end == ']');
    *at = *end ? end + 1 : end;
    *end = 0;
    return start;
}

Test(tables, agree_with_the_page_of_operations)
{
    for (uint32_t i = 0; i < op_count; i++) {
        const struct interface *k = op_table[i]->steps[0].kernel;
        char row[2048], *cells[5], page[160], table[160], want[160];
        if (op_table[i]->steps[1].kernel) continue;
        cr_assert(row_of(k->entry, row, sizeof row, cells), "ops.md has no row for %s", k->entry);
        char *at = cells[1];
        uint32_t n = 0;
        for (; n < k->n_arguments && k->arguments[n].kind != ARGUMENT_HOST; n++) {
            cr_assert(*at, "%s: ops.md lacks %s", k->entry, k->arguments[n].name);
            expect_item(k->entry, next_item(&at), &k->arguments[n]);
        }
        cr_expect_not(*at, "%s: ops.md has more arguments:%s", k->entry, at);
        squeeze(cells[2], page, sizeof page);
        bool flat = !strchr(k->grid, ',');
        snprintf(table, sizeof table, flat ? "%s;%s" : "(%s);%s", k->grid, k->block);
        squeeze(table, want, sizeof want);
        size_t length = strlen(want);
        cr_expect(!strncmp(page, want, length), "%s: ops.md says %s, the table %s", k->entry, page,
                  want);
        if (page[length] != ';' || !k->shared) continue;
        squeeze(k->shared, want, sizeof want);
        cr_expect_str_eq(page + length + 1, want, "%s: shared memory", k->entry);
    }
}
