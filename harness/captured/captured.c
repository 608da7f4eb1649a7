#include "harness/captured/captured.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/error_text.h"
#include "harness/captured/golden_items.h"
#include "harness/judge/judge.h"
#include "harness/run/run.h"

struct captured {
    struct st_file *file; /* a file with a case line */
    struct captured_golden *golden;
    struct captured_item item;
};

static enum st_dtype file_dtype(enum dtype dtype)
{
    static const enum st_dtype map[] = {[DTYPE_BF16] = ST_BF16,
                                        [DTYPE_E4M3] = ST_F8_E4M3,
                                        [DTYPE_F32] = ST_F32,
                                        [DTYPE_I32] = ST_I32,
                                        [DTYPE_U8] = ST_U8};
    return map[dtype];
}

/* A file's tensor may spell its bytes another way: FP8 as U8, masks as BOOL. */
static bool dtype_fits(enum dtype wanted, enum st_dtype have)
{
    return have == file_dtype(wanted) || (wanted == DTYPE_E4M3 && have == ST_U8) ||
           (wanted == DTYPE_U8 && have == ST_BOOL);
}

static const struct st_tensor *matching(const struct st_file *file, const char *name,
                                        const struct tensor *t, uint64_t elems, char *error,
                                        size_t error_size)
{
    const struct st_tensor *have = st_find(file, name);
    if (!have) {
        error_text(error, error_size, "%s: tensor %s is missing", st_path(file), name);
        return NULL;
    }
    if (!dtype_fits(t->dtype, have->dtype)) {
        error_text(error, error_size, "%s: tensor %s has dtype %s, the operation needs %s",
                   st_path(file), name, st_dtype_name(have->dtype), dtype_name(t->dtype));
        return NULL;
    }
    if (have->elems != elems) {
        error_text(error, error_size,
                   "%s: tensor %s has %" PRIu64 " elements, the case's geometry has %" PRIu64,
                   st_path(file), name, have->elems, elems);
        return NULL;
    }
    return have;
}

static bool collect_overrides(struct captured *c, char *error, size_t error_size)
{
    struct instance in;
    struct captured_item *item = &c->item;
    struct ref_refusal why;
    bool fine = true;
    if (!op_ref_accepts(&item->c, NULL, &why))
        return error_text(error, error_size, "%s: its case is refused: %s", st_path(c->file),
                          why.text);
    instance_init(&in, POISON_NAN);
    if (!op_build(&item->c, &in)) fine = error_text(error, error_size, "no memory");
    for (uint32_t i = 0; i < in.n_tensors && fine; i++) {
        const struct tensor *t = &in.tensors[i];
        if (t->role != ROLE_IN || t->alias_of >= 0) continue;
        const struct st_tensor *have = matching(c->file, t->name, t, t->elems, error, error_size);
        fine = have != NULL && item->n_overrides < CAPTURED_OVERRIDES_MAX;
        if (fine)
            item->overrides[item->n_overrides++] =
                (struct override){t->name, have->data, have->size_bytes};
    }
    instance_free(&in);
    return fine;
}

bool captured_open(const char *path, struct captured **out, char *error, size_t error_size)
{
    struct captured *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c) return error_text(error, error_size, "no memory for %s", path);
    if (!st_open(path, &c->file, error, error_size)) {
        captured_close(c);
        return false;
    }
    const char *line = st_metadata(c->file, "case");
    bool fine;
    if (line) {
        char why[512];
        fine = case_parse(line, &c->item.c, why, sizeof why) ||
               error_text(error, error_size, "%s: metadata case: %s", path, why);
        fine = fine && collect_overrides(c, error, error_size);
    } else if (st_metadata(c->file, "pipeline")) {
        st_close(c->file);
        c->file = NULL;
        fine = captured_golden_open(path, &c->golden, error, error_size);
    } else {
        fine = error_text(error, error_size,
                          "%s: neither a `case` nor a `pipeline` in its metadata", path);
    }
    if (!fine) {
        captured_close(c);
        return false;
    }
    *out = c;
    return true;
}

void captured_close(struct captured *c)
{
    if (!c) return;
    if (c->golden) captured_golden_close(c->golden);
    st_close(c->file);
    free(c);
}

uint32_t captured_count(const struct captured *c)
{
    return c->golden ? captured_golden_count(c->golden) : 1;
}

const struct captured_item *captured_item(const struct captured *c, uint32_t index)
{
    return c->golden ? captured_golden_item(c->golden, index) : &c->item;
}

/* The oracle against a public reference, per row of the last dimension. */
static bool oracle_agrees(const struct captured_item *item, const struct instance *in,
                          const struct expected *e, struct result *r)
{
    uint32_t index = instance_index(in, item->golden_name);
    const struct tensor *t = &in->tensors[index];
    uint64_t width = t->shape[t->rank - 1], n = tensor_logical_elems(t);
    double worst = 0;
    for (uint64_t row = 0; row < n; row += width) {
        double scale = 0;
        for (uint64_t i = row; i < row + width; i++) scale = fmax(scale, fabs(item->golden[i]));
        for (uint64_t i = row; i < row + width; i++) {
            double off = fabs(e[index].value[i] - item->golden[i]);
            worst = fmax(worst, scale > 0 ? off / scale : off);
            if (off <= item->golden_share * scale) continue;
            return result_fail(r, VERDICT_FAIL, "oracle against golden",
                               "  the oracle itself differs from the reference: element %" PRIu64
                               " of %s is %.17g, the reference has %.17g\n",
                               i, t->name, e[index].value[i], item->golden[i]);
        }
    }
    r->checks[CHECK_CONTRACT]++;
    return true;
}

static bool run_oracle(const struct verify_context *x, const struct case_line *c,
                       const struct instance *in, struct expected *e, struct result *r)
{
    const uint8_t *none[INSTANCE_TENSORS_MAX] = {NULL};
    if (!expected_alloc(in, e))
        return result_fail(r, VERDICT_ERROR, "memory", "  no memory for the oracle\n");
    op_oracle(c, in, x->model ? x->model : c->op->model, none, e);
    return true;
}

/* Moves the values from those at scale `low` to those at the real scale, given those at `high`:
 * over the 2^-24 between two floats the result is linear to about 2^-48. */
static void interpolate(const struct captured_item *item, const struct instance *in,
                        struct expected *low, const struct expected *high, float below, float above)
{
    uint32_t index = instance_index(in, item->golden_name);
    uint64_t n = tensor_logical_elems(&in->tensors[index]);
    double share = (item->golden_scale - below) / ((double)above - below);
    for (uint64_t i = 0; i < n; i++)
        low[index].value[i] += share * (high[index].value[i] - low[index].value[i]);
}

static bool oracle_at_golden(const struct verify_context *x, const struct captured_item *item,
                             const struct instance *in, struct expected *e, struct result *r)
{
    struct case_line c = item->c;
    struct expected high[INSTANCE_TENSORS_MAX];
    float below = (float)item->golden_scale, above;
    if (item->golden_scale == 0) return run_oracle(x, &item->c, in, e, r);
    if (below > item->golden_scale) below = nextafterf(below, 0);
    above = nextafterf(below, INFINITY);
    memset(high, 0, sizeof high);
    case_set_real(&c, "scale", below);
    bool fine = run_oracle(x, &c, in, e, r);
    case_set_real(&c, "scale", above);
    fine = fine && run_oracle(x, &c, in, high, r);
    if (fine) interpolate(item, in, e, high, below, above);
    expected_free(high);
    return fine;
}

static void check_golden(const struct verify_context *x, const struct captured_item *item,
                         struct result *r)
{
    struct instance in;
    struct expected e[INSTANCE_TENSORS_MAX];
    memset(e, 0, sizeof e);
    instance_init(&in, POISON_NAN);
    if (run_build(x, &item->c, &in, r) && oracle_at_golden(x, item, &in, e, r))
        oracle_agrees(item, &in, e, r);
    expected_free(e);
    instance_free(&in);
}

void captured_verify(struct verify_context *x, const struct captured_item *item, struct result *r)
{
    x->item = item;
    verify_case(x, &item->c, r);
    if (r->verdict == VERDICT_PASS && item->golden) check_golden(x, item, r);
    x->item = NULL;
}

static const struct tensor *output_named(const struct instance *in, const char *name)
{
    for (uint32_t i = 0; i < in->n_tensors; i++)
        if (in->tensors[i].role == ROLE_OUT && !strcmp(in->tensors[i].name, name))
            return &in->tensors[i];
    return NULL;
}

/* A scorer's file may hold, in place of the scores, what was selected from them: got.selected
 * [rows, k], pools or blocks with -1 for a slot left empty. */
static bool add_selection(const struct captured *c, struct instance *in, char *error,
                          size_t error_size)
{
    const struct st_tensor *have = st_find(c->file, "got.selected");
    if (!have || output_named(in, "selected")) return true;
    if (!c->item.c.op->certify)
        return error_text(error, error_size, "%s: %s has no scores to select from",
                          st_path(c->file), c->item.c.op->name);
    if (have->dtype != ST_I32 || have->rank != 2)
        return error_text(error, error_size,
                          "%s: got.selected is %s of rank %u, it must be I32 [rows, k]",
                          st_path(c->file), st_dtype_name(have->dtype), have->rank);
    return instance_add(in, "selected", DTYPE_I32, ROLE_OUT, CONTRACT_SELECT, 2, have->shape,
                        "row,item") ||
           error_text(error, error_size, "no memory");
}

static bool certify_selection(const struct captured *c, const struct instance *in,
                              struct expected *e, char *error, size_t error_size)
{
    const struct tensor *t = output_named(in, "selected");
    if (!t || t->contract != CONTRACT_SELECT || c->item.c.op->contract == CONTRACT_SELECT)
        return true;
    struct expected *selected = &e[instance_index(in, "selected")];
    uint32_t rows = c->item.c.op->certify(&c->item.c, in, selected);
    if (!rows) return error_text(error, error_size, "no memory");
    if (rows != t->shape[0])
        return error_text(error, error_size,
                          "%s: got.selected has %" PRIu64 " rows, the case's geometry has %" PRIu32,
                          st_path(c->file), t->shape[0], rows);
    for (uint32_t row = 0; row < rows; row++) selected->select_k[row] = (uint32_t)t->shape[1];
    return true;
}

/* Takes an output from the file. One that is not there is not judged; but a pipeline's stages are
 * judged from what the stage before really gave, so of these all are needed. */
static bool take_output(const struct captured *c, struct tensor *t, uint8_t **dense, char *error,
                        size_t error_size)
{
    char name[96];
    snprintf(name, sizeof name, "got.%s", t->name);
    if (t->contract == CONTRACT_ANY ||
        (!st_find(c->file, name) && c->item.c.op->contract != CONTRACT_SELECT)) {
        t->contract = CONTRACT_ANY;
        return true;
    }
    const struct st_tensor *have =
        matching(c->file, name, t, tensor_logical_elems(t), error, error_size);
    if (!have) return false;
    *dense = malloc(have->size_bytes + 1);
    if (!*dense) return error_text(error, error_size, "no memory");
    memcpy(*dense, have->data, have->size_bytes);
    return true;
}

/* A misspelt output must not pass for one that was left out. */
static bool known_outputs(const struct captured *c, const struct instance *in, char *error,
                          size_t error_size)
{
    for (size_t i = 0; i < st_count(c->file); i++) {
        const char *name = st_at(c->file, i)->name;
        if (strncmp(name, "got.", 4)) continue;
        if (!output_named(in, name + 4))
            return error_text(error, error_size, "%s: %s is no output of %s", st_path(c->file),
                              name, c->item.c.op->name);
    }
    return true;
}

static bool judge_file(const struct captured *c, struct instance *in,
                          const struct ref_error_model *model, struct result *r)
{
    struct outputs out;
    struct expected e[INSTANCE_TENSORS_MAX];
    char error[512];
    memset(&out, 0, sizeof out);
    memset(e, 0, sizeof e);
    bool fine = add_selection(c, in, error, sizeof error) &&
                known_outputs(c, in, error, sizeof error) &&
                (expected_alloc(in, e) || error_text(error, sizeof error, "no memory"));
    for (uint32_t i = 0; i < in->n_tensors && fine; i++) {
        if (in->tensors[i].role != ROLE_OUT) continue;
        fine = take_output(c, &in->tensors[i], &out.dense[i], error, sizeof error);
    }
    if (fine) {
        op_oracle(&c->item.c, in, model, (const uint8_t *const *)out.dense, e);
        fine = certify_selection(c, in, e, error, sizeof error);
    }
    if (!fine)
        result_fail(r, VERDICT_ERROR, "captured", "  %s\n", error);
    else if (judge_outputs(in, &out, e, "contract", r))
        r->verdict = VERDICT_PASS;
    expected_free(e);
    outputs_free(&out);
    return fine;
}

void captured_judge(const struct captured *c, const struct ref_error_model *model, struct result *r)
{
    struct instance in;
    struct verify_context x = {.item = &c->item};
    struct ref_refusal why;
    memset(r, 0, sizeof *r);
    r->verdict = VERDICT_ERROR;
    if (c->golden) {
        result_fail(r, VERDICT_ERROR, "captured", "  a golden file holds no outputs to judge\n");
        return;
    }
    instance_init(&in, POISON_NAN);
    if (run_build(&x, &c->item.c, &in, r)) {
        if (!op_ref_accepts(&c->item.c, &in, &why))
            result_fail(r, VERDICT_REFUSED, why.rule, "  %s\n", why.text);
        else
            judge_file(c, &in, model ? model : c->item.c.op->model, r);
    }
    if (r->verdict == VERDICT_PASS && !r->compared)
        result_fail(r, VERDICT_ERROR, "nothing-compared", "  nothing was judged\n");
    instance_free(&in);
}
