#include "harness/verify/verify.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "harness/base/text.h"
#include "harness/judge/compare.h"
#include "harness/judge/judge.h"
#include "harness/run/run.h"
#include "harness/verify/relations.h"

/* Two patterns no kernel writes everywhere by chance: an element that holds the first one after the
 * first run and the second one after the second was never written. */
enum { PATTERN_FIRST = 0xa5, PATTERN_SECOND = 0x5b };

static const struct run_options first_run = {GPU_FENCE_AFTER, PATTERN_FIRST, 0, false};

bool verify_refusal_agrees(const struct case_line *c, bool *refused, char *rule, size_t rule_size,
                           char *text, size_t text_size)
{
    struct ref_refusal why = {{0}, {0}};
    struct gpu_report report = {{0}, {0}};
    bool ref_refuses = !op_ref_accepts(c, NULL, &why);
    bool gpu_refuses = op_gpu_check(c, NULL, &report) == GPU_REFUSED;
    *refused = ref_refuses;
    snprintf(rule, rule_size, "%s", ref_refuses ? why.rule : report.rule);
    if (ref_refuses != gpu_refuses)
        snprintf(text, text_size, "  the oracle %s%s%s; the launcher %s%s%s\n",
                 ref_refuses ? "refuses: " : "accepts", ref_refuses ? why.text : "", "",
                 gpu_refuses ? "refuses: " : "accepts", gpu_refuses ? report.text : "", "");
    else
        snprintf(text, text_size, "  %s\n", ref_refuses ? report.text : "");
    return ref_refuses == gpu_refuses;
}

/* Refusal agreement with the index tensors at hand. Returns true if the case may run. */
static bool admitted(const struct case_line *c, const struct instance *in, struct result *r)
{
    struct ref_refusal why = {{0}, {0}};
    struct gpu_report report = {{0}, {0}};
    char check[96];
    bool ref_refuses = !op_ref_accepts(c, in, &why);
    bool gpu_refuses = op_gpu_check(c, in, &report) == GPU_REFUSED;
    r->checks[CHECK_REFUSAL]++;
    if (!ref_refuses && !gpu_refuses) return true;
    if (ref_refuses && gpu_refuses) {
        snprintf(check, sizeof check, "%s", why.rule);
        return result_fail(r, VERDICT_REFUSED, check, "  %s\n", report.text);
    }
    snprintf(check, sizeof check, "refusal %s", ref_refuses ? why.rule : report.rule);
    return result_fail(r, VERDICT_FAIL, check, "  the oracle %s%s; the launcher %s%s\n",
                       ref_refuses ? "refuses: " : "accepts", why.text,
                       gpu_refuses ? "refuses: " : "accepts", report.text);
}

static uint64_t digest_outputs(const struct instance *in, const struct outputs *out)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (uint32_t i = 0; i < in->n_tensors; i++) {
        const struct tensor *t = &in->tensors[i];
        uint32_t bytes = dtype_bytes(t->dtype);
        if (!out->dense[i]) continue;
        uint64_t n = tensor_logical_elems(t);
        /* A NaN is one value here, whatever its bits: those above this one without their sign. */
        uint32_t infinity = t->dtype == DTYPE_BF16  ? 0x7f80
                            : t->dtype == DTYPE_F32 ? 0x7f800000
                                                    : UINT32_MAX;
        for (uint64_t k = 0; k < n; k++) {
            uint32_t word = 0;
            memcpy(&word, out->dense[i] + k * bytes, bytes);
            if ((word & (infinity | (infinity - 1))) > infinity) word = 0x7fffffff;
            hash = (hash ^ word) * 0x100000001b3u;
        }
    }
    return hash;
}

/* First tensor with differing outputs, or -1; *count elements differ, the first at *first. */
static int32_t first_difference(const struct instance *in, const struct outputs *a,
                                const struct outputs *b, uint64_t *count, uint64_t *first)
{
    for (uint32_t i = 0; i < in->n_tensors; i++) {
        const struct tensor *t = &in->tensors[i];
        if (!a->dense[i]) continue;
        *count = compare_bits(t, a->dense[i], b->dense[i], tensor_logical_elems(t), first);
        if (*count) return (int32_t)i;
    }
    return -1;
}

static bool differ_fail(const struct instance *in, uint32_t t, const struct outputs *a,
                        const struct outputs *b, uint64_t count, uint64_t first,
                        const char *check, const char *what, struct result *r)
{
    char index[160], before[64], after[64];
    const struct tensor *tensor = &in->tensors[t];
    tensor_describe_index(tensor, first, index, sizeof index);
    element_print(tensor->dtype, a->dense[t], first, before, sizeof before);
    element_print(tensor->dtype, b->dense[t], first, after, sizeof after);
    return result_fail(r, VERDICT_FAIL, check,
                       "  %s: %" PRIu64 " elements of %s differ; the first is [%s]: %s, then %s\n",
                       what, count, tensor->name, index, before, after);
}

/* Known departures replaced by what the contract expects, so that no later check sees them. */
static void mend_outputs(const struct verify_context *x, const struct instance *in,
                         const struct expected *e, const struct run_options *o,
                         const struct outputs *out, struct result *r)
{
    for (uint32_t i = 0; i < in->n_tensors; i++) {
        if (out->dense[i])
            departures_mend(&x->known, &in->tensors[i], &e[i], o->pattern, out->dense[i],
                            r->departed);
    }
}

/* Runs the case once more with one thing changed; true if the outputs differ from `base`. */
static bool differs_with(struct verify_context *x, const struct case_line *c,
                         const struct instance *in, const struct run_options *o,
                         const struct expected *e, const struct outputs *base)
{
    struct outputs again;
    static _Thread_local struct result scratch;
    uint64_t count, first;
    memset(&scratch, 0, sizeof scratch);
    if (!run_instance(x, c, in, o, &again, &scratch)) return false;
    mend_outputs(x, in, e, o, &again, &scratch);
    bool differs = first_difference(in, base, &again, &count, &first) >= 0;
    outputs_free(&again);
    return differs;
}

/* Two runs that changed everything at once disagree: find out which change it was. */
static bool attribute_difference(struct verify_context *x, const struct case_line *c,
                                 const struct instance *nan_in, const struct instance *huge_in,
                                 const struct run_options *second, const struct expected *e,
                                 const struct outputs *a, const struct outputs *b,
                                 struct result *r)
{
    uint64_t count = 0, first = 0;
    int32_t t = first_difference(nan_in, a, b, &count, &first);
    struct run_options o = first_run;
    const char *check = check_names[CHECK_POISON];
    const char *what = "what the outputs held before the launch matters";
    if (differs_with(x, c, nan_in, &o, e, a)) {
        check = check_names[CHECK_DETERMINISM];
        what = "the same launch gave other bits";
    } else if (differs_with(x, c, huge_in, &o, e, a)) {
        what = "bytes that must not matter do: poison NaN against huge";
    } else {
        o.schedule = second->schedule;
        if (differs_with(x, c, nan_in, &o, e, a)) {
            check = check_names[CHECK_SCHEDULE];
            what = "another legal order of threads gave other bits";
        }
    }
    return differ_fail(nan_in, (uint32_t)t, a, b, count, first, check, what, r);
}

/* The instrumented module under another schedule: every access checked, and the same bits. */
static bool check_access(struct verify_context *x, const struct case_line *c,
                         const struct instance *in, const struct outputs *out,
                         const struct expected *e, struct result *r)
{
    struct run_options o = {GPU_FENCE_AFTER, PATTERN_FIRST, case_seed(c) | 2, true};
    struct outputs traced;
    uint64_t count, first;
    if (!run_instance(x, c, in, &o, &traced, r)) return false;
    r->checks[CHECK_ACCESS]++;
    r->checks[CHECK_SCHEDULE]++;
    mend_outputs(x, in, e, &o, &traced, r);
    int32_t t = first_difference(in, out, &traced, &count, &first);
    bool same = t < 0 || differ_fail(in, (uint32_t)t, out, &traced, count, first,
                                     check_names[CHECK_SCHEDULE],
                                     "another legal order of threads gave other bits", r);
    outputs_free(&traced);
    return same;
}

/* Launches repeated with everything the same. */
static bool check_repeats(struct verify_context *x, const struct case_line *c,
                          const struct instance *in, const struct outputs *out,
                          const struct expected *e, struct result *r)
{
    for (uint32_t k = 0; k < x->repeats; k++) {
        struct outputs again;
        uint64_t count, first;
        if (!run_instance(x, c, in, &first_run, &again, r)) return false;
        r->checks[CHECK_DETERMINISM]++;
        mend_outputs(x, in, e, &first_run, &again, r);
        int32_t t = first_difference(in, out, &again, &count, &first);
        bool same = t < 0 || differ_fail(in, (uint32_t)t, out, &again, count, first,
                                         check_names[CHECK_DETERMINISM],
                                         "the same launch gave other bits", r);
        outputs_free(&again);
        if (!same) return false;
    }
    return true;
}

/* What the second of the two launches differs in: everything that must not matter. Fence side,
 * poison, what the outputs held, order of threads. */
struct second_launch {
    struct instance in;
    struct run_options options;
    struct outputs out;
};

/* Elements that neither launch wrote. They are replaced by what is expected, so that the checks
 * behind this one can speak about the rest. */
static bool check_written(const struct instance *in, const struct outputs *a,
                          const struct outputs *b, const struct expected *e, struct result *r)
{
    char index[160];
    bool fine = true;
    r->checks[CHECK_WRITTEN]++;
    for (uint32_t i = 0; i < in->n_tensors; i++) {
        const struct tensor *t = &in->tensors[i];
        uint64_t first, count;
        if (!a->dense[i]) continue;
        count = departures_mend_unwritten(t, &e[i], PATTERN_FIRST, a->dense[i], PATTERN_SECOND,
                                          b->dense[i], &first);
        if (!count || !fine) continue;
        tensor_describe_index(t, first, index, sizeof index);
        fine = result_fail(r, VERDICT_FAIL, check_names[CHECK_WRITTEN],
                           "  %s[%s] was never written (first of %" PRIu64
                           " elements that kept what they held before the launch)\n",
                           t->name, index, count);
    }
    return fine;
}

/* Starts the second launch and asks the oracle while a GPU is at it. */
static bool launch_second(struct verify_context *x, const struct case_line *c,
                          const struct instance *in, const struct outputs *a,
                          struct second_launch *b, struct expected *e, struct result *r)
{
    struct started run;
    if (!run_start(x, c, &b->in, &b->options, &run, r)) return false;
    r->digest = digest_outputs(in, a);
    if (!expected_alloc(in, e)) {
        run_abandon(x, &run);
        return result_fail(r, VERDICT_ERROR, "memory", "  no memory for the oracle\n");
    }
    enum phase before = phase_begin(x->phases, PHASE_ORACLE);
    op_oracle(c, in, x->model ? x->model : c->op->model, (const uint8_t *const *)a->dense, e);
    phase_end(x->phases, before);
    return run_finish(x, &run, &b->out, r);
}

/* The two launches, which differ in everything that must not matter, against each other. */
static bool check_same(struct verify_context *x, const struct case_line *c,
                       const struct instance *in, const struct outputs *a,
                       struct second_launch *b, const struct expected *e, struct result *r)
{
    uint64_t count, first;
    r->checks[CHECK_POISON]++;
    r->checks[CHECK_DETERMINISM]++;
    r->checks[CHECK_SCHEDULE] += x->backend == &gpu_backend_simt;
    return first_difference(in, a, &b->out, &count, &first) < 0 ||
           attribute_difference(x, c, in, &b->in, &b->options, e, a, &b->out, r);
}

/* A check that follows a failed one reports into `later`, whose words then stand below the first
 * failure's: one fault must not hide another. */
static struct result *report_to(struct result *r, struct result *later)
{
    if (r->verdict != VERDICT_FAIL) return r;
    memset(later, 0, sizeof *later);
    later->verdict = VERDICT_ERROR;
    return later;
}

static void add_later(struct result *r, const struct result *later)
{
    if (r == later) return;
    struct text out = text_on(r->text, sizeof r->text);
    for (int i = 0; i < CHECK_COUNT; i++) r->checks[i] += later->checks[i];
    r->compared += later->compared;
    if (later->verdict == VERDICT_FAIL)
        text_add(&out, "  also, check %s:\n%s", later->check, later->text);
}

/* What the instrumented module says about a case that failed by its numbers stands first. */
static void diagnose(struct verify_context *x, const struct case_line *c, const struct instance *in,
                     const struct outputs *out, const struct expected *e, struct result *r)
{
    static _Thread_local struct result cause;
    static _Thread_local char effect[RESULT_TEXT_MAX];
    memset(&cause, 0, sizeof cause);
    if (check_access(x, c, in, out, e, &cause) || cause.verdict != VERDICT_FAIL || !cause.place[0])
        return;
    memcpy(effect, r->text, sizeof effect);
    snprintf(r->cause, sizeof r->cause, "%.31s", cause.check);
    snprintf(r->place, sizeof r->place, "%s", cause.place);
    snprintf(r->text, sizeof r->text, "  probable cause, %s:\n%.1500s%.4300s", cause.check,
             cause.text, effect);
}

static bool check_outputs(struct verify_context *x, const struct case_line *c,
                          const struct instance *in, const struct outputs *out,
                          struct second_launch *second, struct result *r)
{
    static _Thread_local struct result later;
    struct expected e[INSTANCE_TENSORS_MAX];
    struct result *to;
    memset(e, 0, sizeof e);
    bool fine = launch_second(x, c, in, out, second, e, r);
    enum phase before = phase_begin(x->phases, PHASE_COMPARE);
    if (fine) {
        mend_outputs(x, in, e, &first_run, out, r);
        mend_outputs(x, &second->in, e, &second->options, &second->out, r);
        fine = check_written(in, out, &second->out, e, r);
        fine = check_same(x, c, in, out, second, e, to = report_to(r, &later)) && fine;
        add_later(r, to);
        fine = check_repeats(x, c, in, out, e, to = report_to(r, &later)) && fine;
        add_later(r, to);
        fine = judge_outputs(in, out, e, check_names[CHECK_CONTRACT], to = report_to(r, &later)) && fine;
        add_later(r, to);
        if (!fine && x->diagnose) diagnose(x, c, in, out, e, r);
    }
    phase_end(x->phases, before);
    before = phase_begin(x->phases, PHASE_TRACED);
    if (fine && x->trace) fine = check_access(x, c, in, out, e, r);
    phase_end(x->phases, before);
    before = phase_begin(x->phases, PHASE_RELATIONS);
    if (fine && x->relations) fine = relations_hold(x, c, in, out, e, &first_run, r);
    phase_end(x->phases, before);
    expected_free(e);
    return fine;
}

/* All that launches. Builds the second instance while a GPU is at the first. */
static bool check_launches(struct verify_context *x, const struct case_line *c,
                           const struct instance *in, struct result *r)
{
    struct second_launch second = {
        .options = {GPU_FENCE_BEFORE, PATTERN_SECOND, case_seed(c) | 1, false}};
    struct started run;
    struct outputs out;
    if (!run_start(x, c, in, &first_run, &run, r)) return false;
    instance_init(&second.in, POISON_HUGE);
    bool built = run_build(x, c, &second.in, r), fine = false;
    if (!built) {
        run_abandon(x, &run);
    } else if (run_finish(x, &run, &out, r)) {
        fine = check_outputs(x, c, in, &out, &second, r);
        outputs_free(&out);
    }
    outputs_free(&second.out);
    instance_free(&second.in);
    return fine;
}

void verify_case(struct verify_context *x, const struct case_line *c, struct result *r)
{
    struct timespec start, end;
    struct instance in;
    memset(r, 0, sizeof *r);
    r->verdict = VERDICT_ERROR;
    clock_gettime(CLOCK_MONOTONIC, &start);
    phases_start(x->phases);
    instance_init(&in, POISON_NAN);
    if (admitted(c, NULL, r) && run_build(x, c, &in, r) && admitted(c, &in, r) &&
        check_launches(x, c, &in, r))
        r->verdict = VERDICT_PASS;
    if (r->verdict == VERDICT_PASS && !r->compared)
        result_fail(r, VERDICT_ERROR, "nothing-compared",
                    "  the case gave nothing to compare: it proves nothing\n");
    instance_free(&in);
    phases_stop(x->phases);
    clock_gettime(CLOCK_MONOTONIC, &end);
    r->seconds = (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
}

void verify_close(struct verify_context *x)
{
    if (x->device) x->backend->close(x->device);
    x->device = NULL;
}
