#include "harness/verify/fences.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "harness/case/plan.h"
#include "harness/run/run.h"

/* A last element may be padding, a page nobody uses or a hole: not every case reads it. */
enum { CASES_MAX = 300, CASES_LISTED = 40, CUT_MAX = 16, ALIGN_BYTES = 16 };

static const struct run_options whole_run = {GPU_FENCE_AFTER, 0xa5, 0, false};

/* The n-th random case, which are small ones. */
static bool draw(const struct op *op, uint64_t seed, uint64_t n, struct case_line *c)
{
    struct plan plan = {.ops = {op}, .n_ops = 1, .seed = seed, .cases = CASES_MAX,
                        .tier = TIER_QUICK};
    uint64_t first = plan_fixed_cases(op);
    char error[512];
    if (first + n >= plan_jobs(&plan)) return false;
    struct job job = plan_job(&plan, first + n);
    return plan_case(&plan, &job, c, error, sizeof error);
}

static bool has_own_buffer(const struct tensor *t)
{
    return t->role == ROLE_IN && t->alias_of < 0;
}

static bool build(const struct case_line *c, struct instance *in)
{
    struct ref_refusal why;
    instance_init(in, POISON_NAN);
    return op_ref_accepts(c, NULL, &why) && op_build(c, in) &&
           op_ref_accepts(c, in, &why);
}

uint32_t fences_inputs(const struct op *op, uint64_t seed, const char **names)
{
    struct case_line c;
    uint32_t count = 0;
    for (uint64_t n = 0; n < CASES_LISTED && draw(op, seed, n, &c); n++) {
        struct instance in;
        bool fine = build(&c, &in);
        for (uint32_t i = 0; fine && i < in.n_tensors; i++) {
            uint32_t k = 0;
            if (!has_own_buffer(&in.tensors[i])) continue;
            while (k < count && strcmp(names[k], in.tensors[i].name)) k++;
            if (k == count && count < FENCE_INPUTS_MAX) names[count++] = in.tensors[i].name;
        }
        instance_free(&in);
    }
    return count;
}

/* The tensor, if this case can show anything about it. A sparse one has its end far from its fence. */
static struct tensor *find(struct instance *in, const char *name)
{
    for (uint32_t i = 0; i < in->n_tensors; i++) {
        struct tensor *t = &in->tensors[i];
        if (!strcmp(t->name, name) && has_own_buffer(t) && !t->n_extents && t->elems) return t;
    }
    return NULL;
}

/* Launches with the tensor's buffer `cut` elements short, which the launcher is not told: it would
 * refuse. */
static enum gpu_status launch_cut(struct verify_context *x, const struct case_line *c,
                                  struct instance *in, struct tensor *t, uint64_t cut,
                                  struct gpu_report *report, struct result *r)
{
    struct gpu_target targets[OP_MODULES_MAX];
    struct gpu_buffer buffers[INSTANCE_TENSORS_MAX];
    t->elems -= cut;
    bool made = run_open(x, c->op, &whole_run, targets, r) &&
                run_buffers_make(x, in, &whole_run, buffers, r);
    t->elems += cut;
    if (!made) return GPU_INFRA;
    for (uint32_t i = 0; i < in->n_tensors; i++)
        if (&in->tensors[i] == t || in->tensors[i].alias_of == t - in->tensors)
            buffers[i].size_bytes += cut * dtype_bytes(t->dtype);
    enum gpu_status status = op_launch(targets, c, in, buffers, report);
    run_buffers_free(x, in, buffers);
    return status;
}

/* One case, whole and then cut. True when that settles the matter, with the result set. */
static bool try_case(struct verify_context *x, const struct case_line *c, struct instance *in,
                     struct tensor *t, uint64_t cut, struct result *r)
{
    struct outputs out;
    struct gpu_report report = {{0}, {0}};
    memset(r, 0, sizeof *r);
    if (!run_instance(x, c, in, &whole_run, &out, r)) return true;
    outputs_free(&out);
    enum gpu_status status = launch_cut(x, c, in, t, cut, &report, r);
    uint64_t unit = ALIGN_BYTES / dtype_bytes(t->dtype);
    if (status == GPU_REFUSED && !strcmp(report.rule, "buffer_align") && t->elems >= cut * unit) {
        cut *= unit;
        status = launch_cut(x, c, in, t, cut, &report, r);
    }
    r->identical = (uint32_t)cut;
    if (status == GPU_OK) return false;
    if (r->verdict == VERDICT_PASS) /* unless a buffer could not be made */
        result_fail(r, status == GPU_FINDING ? VERDICT_PASS : VERDICT_ERROR, report.rule, "  %s\n",
                    report.text);
    return true;
}

void fences_try(struct verify_context *x, const struct op *op, const char *input, uint64_t seed,
                struct case_line *c, struct result *r)
{
    uint64_t ran = 0;
    bool settled = false;
    memset(r, 0, sizeof *r);
    for (uint64_t n = 0; n < CASES_MAX * CUT_MAX && !settled; n++) {
        struct instance in;
        uint64_t cut = 1 + n / CASES_MAX;
        if (!draw(op, seed, n % CASES_MAX, c)) continue;
        struct tensor *t = build(c, &in) ? find(&in, input) : NULL;
        if (t && t->elems >= cut) {
            settled = try_case(x, c, &in, t, cut, r);
            ran++;
        }
        instance_free(&in);
    }
    if (!settled)
        result_fail(r, VERDICT_FAIL, "not caught",
                    "  %" PRIu64 " runs with %s cut by 1 to %d elements, and none was stopped\n", ran,
                    input, CUT_MAX);
    r->compared = ran;
}
