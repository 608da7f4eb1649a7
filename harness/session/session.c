#include "harness/session/session.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness/captured/captured.h"
#include "harness/run/pool.h"
#include "harness/run/run.h"
#include "harness/session/faults.h"
#include "harness/session/job_json.h"
#include "harness/session/summary.h"
#include "harness/verify/case_worker.h"


struct session {
    const struct plan *plan;
    const struct options *options;
    struct verify_context context; /* copied into each worker */
    struct summary summary;
    struct faults faults;
    uint64_t jobs, finished;
    double start;
    bool terminal, colour;
    uint32_t lines_up; /* lines of the live table now on the screen */
    char date[16];
    char flags[REPLAY_FLAGS_MAX]; /* that end every replay line */
};

static volatile bool interrupted;

static void on_interrupt(int signal_number)
{
    interrupted = true;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void sweep(const struct plan *plan, const struct job *job, struct result *r)
{
    struct case_line c;
    r->verdict = VERDICT_PASS;
    for (uint32_t n = 0; n < SWEEP_GEOMETRIES; n++) {
        bool refused;
        char rule[64], text[1200], line[CASE_TEXT_MAX];
        plan_wild(plan, job, n, &c);
        bool agrees = verify_refusal_agrees(&c, &refused, rule, sizeof rule, text, sizeof text);
        r->checks[CHECK_REFUSAL]++;
        r->compared += refused;
        if (agrees && refused) session_json_rule(r, rule);
        if (agrees) continue;
        case_print(&c, line, sizeof line);
        r->verdict = VERDICT_FAIL;
        snprintf(r->check, sizeof r->check, "refusal %s", rule);
        snprintf(r->text, sizeof r->text, "%s  case: %s\n", text, line);
        return;
    }
}

static bool work(void *shared, void **state, uint64_t index, struct result *r)
{
    const struct session *s = shared;
    struct job job = plan_job(s->plan, index);
    char error[512];
    if (job.kind == JOB_SWEEP) {
        sweep(s->plan, &job, r);
        return true;
    }
    struct case_worker *w = case_worker_get(state, &s->context, r);
    if (!w) return true;
    if (!plan_case(s->plan, &job, &w->c, error, sizeof error)) {
        result_fail(r, VERDICT_ERROR, "case", "  %s\n", error);
        return true;
    }
    w->context.trace = !s->options->no_trace && s->context.backend == &gpu_backend_simt &&
                       (s->plan->texts || job.index % VERIFY_TRACE_EVERY == 0);
    const struct captured_item *item =
        s->plan->items && !job.op ? s->plan->items[job.index] : NULL;
    if (item) captured_verify(&w->context, item, r);
    else
        verify_case(&w->context, &w->c, r);
    return case_worker_healthy(w, r);
}

static void case_text(const struct session *s, const struct job *job, char *text, size_t size)
{
    static struct case_line c;
    char error[512];
    if (job->kind == JOB_SWEEP)
        snprintf(text, size, "%s (refusal sweep %" PRIu64 ")", job->op->name, job->index);
    else if (!job->op && s->plan->items && s->plan->items[job->index])
        snprintf(text, size, "%s", s->plan->texts[job->index]);
    else if (plan_case(s->plan, job, &c, error, sizeof error))
        case_print(&c, text, size);
    else
        snprintf(text, size, "%s", s->plan->texts ? s->plan->texts[job->index] : "?");
}

static void clear_live(struct session *s)
{
    if (s->lines_up) fprintf(stderr, "\033[%uA\033[J", s->lines_up);
    s->lines_up = 0;
}

static void tick(void *shared)
{
    struct session *s = shared;
    static double next_plain;
    double time = now() - s->start;
    if (s->options->quiet || s->options->json) return;
    if (!s->terminal) {
        if (time < next_plain + 10) return;
        next_plain = time;
        fprintf(stderr, "%.0f s: %" PRIu64 " of %" PRIu64 " jobs\n", time, s->finished, s->jobs);
        return;
    }
    clear_live(s);
    summary_print(&s->summary, stderr, s->colour);
    fprintf(stderr, "%" PRIu64 " of %" PRIu64 " jobs, %.0f s, seed %" PRIu64 "\n", s->finished,
            s->jobs, time, s->plan->seed);
    s->lines_up = s->summary.n_ops + 2;
}

/* The first failure of its kind as soon as it is there; all kinds come once more at the end. */
static void print_failure(struct session *s, const char *text, const struct result *r)
{
    clear_live(s);
    FILE *f = s->options->json ? stderr : stdout;
    fprintf(f, "%s%s%s %s\n  backend %s, check %s\n%s", s->colour ? "\033[31m" : "",
            r->verdict == VERDICT_FAIL ? "FAIL" : "ERROR", s->colour ? "\033[0m" : "", text,
            s->context.backend->name, r->check, r->text);
    fprintf(f, "  replay: attest run '%s'%s\n", text, s->flags);
    fflush(f);
}

/* Why a case that was asked for by name did not run. Drawn cases are only counted. */
static void print_refusal(struct session *s, const char *text, const struct result *r)
{
    clear_live(s);
    fprintf(s->options->json ? stderr : stdout, "REFUSED %s\n  rule %s\n%s", text, r->check, r->text);
}

static void print_json(const struct session *s, const struct job *job, const char *text,
                       const struct result *r)
{
    char error[512];
    static struct case_line c;
    const char *name = job->op ? job->op->name : "?";
    struct json_origin origin = {
        .backend = s->context.backend->name,
        .tier = s->plan->texts ? "replay" : s->plan->tier == TIER_FULL ? "full" : "quick",
        .seed = s->plan->seed};
    memcpy(origin.date, s->date, sizeof origin.date);
    if (!job->op && plan_case(s->plan, job, &c, error, sizeof error)) name = c.op->name;
    if (!session_json(stdout, &origin, job, name, text, r, error, sizeof error))
        fprintf(stderr, "attest: %s\n", error);
}

static void done(void *shared, uint64_t index, const struct result *r)
{
    struct session *s = shared;
    struct job job = plan_job(s->plan, index);
    static char text[CASE_TEXT_MAX + 64];
    struct op_summary *o = &s->summary.ops[job.op_index];
    static struct case_line c;
    char error[512];
    const struct op *op = job.op;
    bool bad = r->verdict == VERDICT_FAIL || r->verdict == VERDICT_ERROR;
    bool has_case = (bad || !op) && job.kind == JOB_CASE &&
                    plan_case(s->plan, &job, &c, error, sizeof error);
    s->finished++;
    if (!op) {
        /* Explicit cases: group by the operation they name. */
        op = has_case ? c.op : op_table[0];
        for (uint32_t i = 0; i < s->summary.n_ops; i++) {
            if (s->summary.ops[i].op == op) o = &s->summary.ops[i];
        }
    }
    summary_add(o, &job, r);
    bool refused = r->verdict == VERDICT_REFUSED && s->plan->texts && !s->options->quiet;
    if (bad || refused || s->options->json) case_text(s, &job, text, sizeof text);
    if (s->options->json) print_json(s, &job, text, r);
    bool first = faults_add(&s->faults, index, op, has_case ? &c : NULL, text, r);
    if (first) print_failure(s, text, r);
    if (refused) print_refusal(s, text, r);
}

static void plan_summary(struct session *s)
{
    struct summary *m = &s->summary;
    struct case_line c;
    char error[512];
    for (uint32_t i = 0; i < s->plan->n_ops; i++) m->ops[m->n_ops++].op = s->plan->ops[i];
    s->jobs = plan_jobs(s->plan);
    for (uint64_t i = 0; i < s->jobs; i++) {
        struct job job = plan_job(s->plan, i);
        if (job.kind != JOB_CASE) continue;
        if (job.op) {
            m->ops[job.op_index].planned++;
            continue;
        }
        const struct op *op = plan_case(s->plan, &job, &c, error, sizeof error) ? c.op : op_table[0];
        uint32_t k = 0;
        while (k < m->n_ops && m->ops[k].op != op) k++;
        if (k == m->n_ops) m->ops[m->n_ops++].op = op;
        m->ops[k].planned++;
    }
}

/* A single failure was told already. */
static void print_faults(struct session *s, uint64_t failures, FILE *f)
{
    if (failures > 1) faults_print(&s->faults, s->plan, s->flags, f);
    faults_free(&s->faults);
}

/* Nothing is accepted silently. */
static void print_departures(const struct session *s, const struct op_summary *total, FILE *f)
{
    const struct departures *known = &s->context.known;
    for (int i = 0; i < DEPARTURE_COUNT; i++) {
        if (known->accepted[i])
            fprintf(f, "known departure %s: accepted in %" PRIu64 " cases\n", departure_names[i],
                    total->departed[i]);
    }
}

static int finish(struct session *s)
{
    struct op_summary t = summary_total(&s->summary);
    FILE *f = s->options->json ? stderr : stdout;
    double wall = now() - s->start;
    char error[4200];
    clear_live(s);
    if (!s->options->quiet) summary_print(&s->summary, f, s->colour && !s->options->json);
    print_faults(s, t.failed + t.errors, f);
    print_departures(s, &t, f);
    fprintf(f,
            "%" PRIu64 " cases: %" PRIu64 " passed, %" PRIu64 " failed, %" PRIu64
            " refused, %" PRIu64 " errors; %" PRIu64 " checks; refusals agreed on %" PRIu64
            " geometries; %.1f s; seed %" PRIu64 "\n",
            t.cases, t.passed, t.failed, t.refused, t.errors, t.checks_total, t.geometries, wall,
            s->plan->seed);
    if (s->options->report &&
        !summary_report(&s->summary, s->plan, s->context.backend->name, wall, s->options->report,
                        error, sizeof error)) {
        fprintf(stderr, "attest: %s\n", error);
        return EXIT_INFRA;
    }
    if (s->options->report) fprintf(f, "report: %s\n", s->options->report);
    if (t.failed) return EXIT_WRONG;
    if (t.errors || interrupted) return EXIT_INFRA;
    if (!t.cases && !t.geometries) {
        fprintf(stderr, "attest: no case was run\n");
        return EXIT_INFRA;
    }
    return t.cases == t.refused && t.cases ? EXIT_USAGE : EXIT_PASS;
}

int session_probe(const struct verify_context *context)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        struct gpu_report report = {{0}, {0}};
        struct gpu_device *device;
        struct gpu_options options = {.watchdog_ms = context->watchdog_ms};
        enum gpu_status status = context->backend->open(&device, &options, &report);
        if (status == GPU_OK) context->backend->close(device);
        else
            fprintf(stderr, "attest: backend %s: %s\n", context->backend->name, report.text);
        _exit(status == GPU_OK ? 0 : status == GPU_UNAVAILABLE ? EXIT_UNAVAILABLE : EXIT_INFRA);
    }
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) < 0 || !WIFEXITED(status)) return EXIT_INFRA;
    return WEXITSTATUS(status);
}

int session_run(const struct plan *plan, const struct options *o, const char *command)
{
    static struct session s;
    char error[256];
    int code = EXIT_INFRA;
    memset(&s, 0, sizeof s);
    s.plan = plan;
    s.options = o;
    if (!session_context(o, &s.context, &code)) return code;
    code = session_probe(&s.context);
    if (code) return code;
    s.context.diagnose = !o->no_trace && s.context.backend == &gpu_backend_simt;
    s.terminal = isatty(STDERR_FILENO) && !o->json;
    s.colour = isatty(STDOUT_FILENO) && !getenv("NO_COLOR");
    s.start = now();
    options_replay_flags(o, s.flags, sizeof s.flags);
    session_json_date(s.date, sizeof s.date);
    plan_summary(&s);
    if (!faults_init(&s.faults, s.jobs)) {
        fprintf(stderr, "attest: no memory for the outcomes of %" PRIu64 " jobs\n", s.jobs);
        return EXIT_INFRA;
    }
    signal(SIGINT, on_interrupt);
    struct pool_config config = {.workers = o->jobs, .timeout_s = o->timeout_s, .work = work,
                                 .done = done, .tick = tick, .shared = &s, .stop = &interrupted};
    if (s.context.backend == &gpu_backend_cuda) config.processes = o->processes;
    if (!pool_run(&config, s.jobs, error, sizeof error)) {
        fprintf(stderr, "attest: %s\n", error);
        return EXIT_INFRA;
    }
    return finish(&s);
}
