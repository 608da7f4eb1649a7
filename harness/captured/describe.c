#include "harness/captured/describe.h"

#include <inttypes.h>
#include <string.h>

#include "harness/captured/captured.h"
#include "harness/case/instance.h"
#include "harness/case/op.h"
#include "harness/files/safetensors.h"

enum { SHOWN = 3, VALUE_SHOWN = 300 };

/* How the file's tensors answer to an operation's arguments, by name, type and rank. */
struct fit {
    const struct op *op;
    uint32_t right, of; /* tensors that fit, of those the operation has */
    char wrong[400];    /* what does not: "q is F32, not BF16"; "no seq_lens" */
};

static const enum st_dtype stored_as[] = {[DTYPE_BF16] = ST_BF16, [DTYPE_E4M3] = ST_F8_E4M3,
                                          [DTYPE_F32] = ST_F32, [DTYPE_I32] = ST_I32,
                                          [DTYPE_U8] = ST_U8};

static void note(struct fit *fit, const char *text)
{
    size_t used = strlen(fit->wrong);
    snprintf(fit->wrong + used, sizeof fit->wrong - used, "%s%s", used ? "; " : "", text);
}

static void fit_tensor(const struct st_file *file, const struct tensor *t, struct fit *fit)
{
    char name[80], text[200];
    snprintf(name, sizeof name, "%s%s", t->role == ROLE_OUT ? "got." : "", t->name);
    const struct st_tensor *found = st_find(file, name);
    bool bytes = found && t->dtype == DTYPE_U8 && found->dtype == ST_BOOL;
    fit->of++;
    if (found && (found->dtype == stored_as[t->dtype] || bytes)) {
        fit->right++;
        return;
    }
    if (found)
        snprintf(text, sizeof text, "%s is %s, not %s", name, st_dtype_name(found->dtype),
                 st_dtype_name(stored_as[t->dtype]));
    else
        snprintf(text, sizeof text, "no %s", name);
    note(fit, text);
}

/* The arguments of an operation are those of its simplest case. */
static struct fit fit_of(const struct st_file *file, const struct op *op)
{
    static struct case_line c;
    struct fit fit = {.op = op};
    struct instance in;
    struct ref_refusal why;
    case_init(&c, op);
    instance_init(&in, POISON_NAN);
    if (op_ref_accepts(&c, NULL, &why) && op_build(&c, &in)) {
        for (uint32_t i = 0; i < in.n_tensors; i++) {
            if (in.tensors[i].contract == CONTRACT_ANY && in.tensors[i].role == ROLE_OUT) continue;
            if (in.tensors[i].alias_of < 0) fit_tensor(file, &in.tensors[i], &fit);
        }
    }
    instance_free(&in);
    return fit;
}

static bool better(const struct fit *a, const struct fit *b)
{
    uint64_t left = (uint64_t)a->right * b->of, right = (uint64_t)b->right * a->of;
    return left > right || (left == right && a->right > b->right);
}

static void print_fits(const struct st_file *file, FILE *f)
{
    struct fit best[SHOWN] = {{0}};
    for (uint32_t i = 0; i < op_count; i++) {
        struct fit fit = fit_of(file, op_table[i]);
        for (uint32_t k = 0; k < SHOWN && fit.right; k++) {
            if (best[k].op && !better(&fit, &best[k])) continue;
            struct fit displaced = best[k];
            best[k] = fit;
            fit = displaced;
        }
    }
    if (!best[0].right) {
        fprintf(f, "no operation has arguments of these names; `attest explain CASE` shows those of an "
                   "operation\n");
        return;
    }
    fprintf(f, "operations that have arguments of these names:\n");
    for (uint32_t k = 0; k < SHOWN && best[k].right; k++)
        fprintf(f, "  %-28s %u of %u%s%s\n", best[k].op->name, best[k].right, best[k].of,
                best[k].wrong[0] ? ": " : "", best[k].wrong);
}

/* A golden file has no case line of its own but stages that are cases. True if it has any. */
static bool print_stages(const char *path, FILE *f)
{
    struct captured *stages;
    char error[1024];
    if (!captured_open(path, &stages, error, sizeof error)) return false;
    for (uint32_t i = 0; i < captured_count(stages); i++)
        fprintf(f, "%s%s", i ? ", " : "a golden file with cases of ",
                captured_item(stages, i)->c.op->name);
    fprintf(f, ": `attest run` launches them\n");
    captured_close(stages);
    return true;
}

static void print_case(const struct st_file *file, FILE *f)
{
    const char *line = st_metadata(file, "case");
    static struct case_line c;
    char error[512];
    if (!line && print_stages(st_path(file), f)) return;
    if (!line)
        fprintf(f, "no metadata key `case`: the geometry is not told, so it cannot be judged yet\n");
    else if (case_parse(line, &c, error, sizeof error))
        fprintf(f, "a case of %s: `attest judge` compares its outputs, `attest run` launches it\n",
                c.op->name);
    else
        fprintf(f, "its case is not right: %s\n", error);
}

bool captured_describe(const char *path, FILE *f, char *error, size_t size)
{
    struct st_file *file;
    if (!st_open(path, &file, error, size)) return false;
    fprintf(f, "%s: %zu tensors\n", path, st_count(file));
    for (size_t i = 0; i < st_metadata_count(file); i++) {
        const char *key, *value;
        st_metadata_at(file, i, &key, &value);
        fprintf(f, "  %s = %.*s%s\n", key, VALUE_SHOWN, value,
                strlen(value) > VALUE_SHOWN ? " …" : "");
    }
    for (size_t i = 0; i < st_count(file); i++) {
        const struct st_tensor *t = st_at(file, i);
        fprintf(f, "  %-24s %-7s [", t->name, st_dtype_name(t->dtype));
        for (uint32_t d = 0; d < t->rank; d++) fprintf(f, "%s%" PRIu64, d ? ", " : "", t->shape[d]);
        fprintf(f, "]\n");
    }
    print_case(file, f);
    print_fits(file, f);
    st_close(file);
    return true;
}
