#include "harness/fuzz/fuzz_run.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "harness/fuzz/draw.h"
#include "harness/run/pool.h"
#include "harness/run/run.h"
#include "harness/search/minimize.h"
#include "harness/verify/case_worker.h"

/* A round ends with the worker processes, and its cases are drawn before it begins. On the GPU a new
 * process costs a context, so rounds are longer there. */
enum { FIRST_ROUND = 64, LONGEST_ROUND = 256, LONGEST_ROUND_CUDA = 16384 };
enum { TRACE_EVERY = 3, MINIMIZE_SECONDS = 30 };

struct slot {
    char *text;
    bool finished;
    enum verdict verdict;
    struct result *failure; /* of a case that failed or could not be judged */
    double seconds;         /* when it was known, from the start of the run */
};

struct run {
    const struct fuzz_plan *plan;
    const struct options *options;
    struct fuzz_state *state;
    struct verify_context context; /* copied into each worker at fork */
    struct work_limit limits[64];
    struct slot slots[LONGEST_ROUND_CUDA];
    uint32_t n_slots, finished;
    uint64_t repeated, errors;
    double start, end, before; /* before: seconds of earlier runs */
    bool terminal, out_of_memory;
};

/* `interrupted`: the user wants an end; `enough`: hand out no more jobs. */
static volatile bool interrupted, enough;

static void on_interrupt(int signal_number)
{
    interrupted = enough = true;
}

static void on_alarm(int signal_number)
{
    enough = true;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool is_bad(enum verdict verdict)
{
    return verdict == VERDICT_FAIL || verdict == VERDICT_ERROR;
}

static bool work(void *shared, void **state, uint64_t index, struct result *r)
{
    const struct run *run = shared;
    struct case_worker *w = case_worker_get(state, &run->context, r);
    char error[512];
    if (!w) return true;
    if (!case_parse(run->slots[index].text, &w->c, error, sizeof error)) {
        result_fail(r, VERDICT_FAIL, "case", "  %s\n", error);
        return true;
    }
    w->context.trace = w->context.backend == &gpu_backend_simt && !run->options->no_trace &&
                       index % TRACE_EVERY == 0;
    verify_case(&w->context, &w->c, r);
    return case_worker_healthy(w, r);
}

static void done(void *shared, uint64_t index, const struct result *r)
{
    struct run *run = shared;
    struct slot *slot = &run->slots[index];
    run->finished++;
    slot->finished = true;
    slot->verdict = r->verdict;
    slot->seconds = now() - run->start;
    if (!is_bad(r->verdict)) return;
    slot->failure = malloc(sizeof *slot->failure);
    if (slot->failure) *slot->failure = *r;
    else
        run->out_of_memory = true;
}

static void print_line(const struct run *run)
{
    const struct fuzz_state *s = run->state;
    double seconds = now() - run->start;
    uint64_t cases = s->cases + run->finished;
    fprintf(stderr, "%.0f s: %" PRIu64 " cases (%.1f/s), %" PRIu64 " refused, %" PRIu64
                    " classes, %u kept, %u findings",
            run->before + seconds, cases, (double)cases / (run->before + seconds + 1e-9), s->refused,
            s->classes, s->n_kept, s->n_found);
}

static void tick(void *shared)
{
    struct run *run = shared;
    static double next_plain;
    double time = now();
    if (time >= run->end) enough = true;
    if (run->options->quiet) return;
    if (run->terminal) {
        fprintf(stderr, "\r\033[K");
        print_line(run);
        return;
    }
    if (time < next_plain) return;
    next_plain = time + 10;
    print_line(run);
    fputc('\n', stderr);
}

static bool draw_round(struct run *run)
{
    static struct case_line c;
    char text[CASE_TEXT_MAX];
    uint64_t longest = run->context.backend == &gpu_backend_simt ? LONGEST_ROUND
                                                                 : LONGEST_ROUND_CUDA;
    uint64_t round = run->state->round, size = round < 16 ? (uint64_t)FIRST_ROUND << round : longest;
    struct fuzz_draw d = {run->plan->ops, run->plan->n_ops, run->limits,
                          run->options->tier, run->state, {0, 0, 0}};
    run->n_slots = (uint32_t)(size < longest ? size : longest);
    run->finished = 0;
    fuzz_draw_start(&d);
    for (uint32_t i = 0; i < run->n_slots; i++) {
        fuzz_draw_case(&d, &c);
        case_print(&c, text, sizeof text);
        run->slots[i] = (struct slot){.text = strdup(text)};
        if (!run->slots[i].text) return false;
    }
    return true;
}

static void slug(const char *text, char *out, size_t size)
{
    size_t used = 0;
    for (; *text && used + 1 < size; text++) {
        bool plain = (*text >= 'a' && *text <= 'z') || (*text >= '0' && *text <= '9') || *text == '_';
        out[used++] = plain ? *text : '-';
    }
    out[used] = 0;
}

/* FOLDER/OPERATION-CHECK-HASH.txt with the case as its one line. */
static bool write_finding(const struct run *run, const struct case_line *c, const struct result *r,
                          const char *text, char *path, size_t size)
{
    char check[64], temporary[4200];
    uint32_t hash = 2166136261u;
    for (const char *p = text; *p; p++) hash = (hash ^ (uint8_t)*p) * 16777619u;
    slug(r->check, check, sizeof check);
    snprintf(path, size, "%s/%s-%s-%08x.txt", run->options->findings, c->op->name, check, hash);
    snprintf(temporary, sizeof temporary, "%s.part", path);
    if (mkdir(run->options->findings, 0777) && errno != EEXIST) return false;
    FILE *f = fopen(temporary, "we");
    if (!f) return false;
    bool fine = fprintf(f, "%s\n", text) > 0;
    fine &= !fclose(f);
    return fine && !rename(temporary, path);
}

/* Shrinks the case within MINIMIZE_SECONDS; what it is left with fails in the same way. */
static void shrink(const struct run *run, struct case_line *c, struct result *r)
{
    static struct case_line smaller;
    static struct result failure;
    struct minimize_options how = {MINIMIZE_SECONDS, run->options->timeout_s, run->options->jobs,
                                   false, &enough};
    struct verify_context x = run->context;
    char error[512];
    uint64_t trials;
    x.trace = x.backend == &gpu_backend_simt && !run->options->no_trace;
    smaller = *c;
    enough = interrupted;
    alarm(MINIMIZE_SECONDS);
    bool fine = minimize_case(&x, &how, &smaller, &failure, &trials, error, sizeof error);
    alarm(0);
    enough = interrupted;
    if (!fine || !minimize_same_kind(&failure, r)) return;
    *c = smaller;
    *r = failure;
}

static void report_finding(struct run *run, const struct slot *slot)
{
    static struct case_line c;
    static struct result r;
    char text[CASE_TEXT_MAX], path[4160], error[512], flags[REPLAY_FLAGS_MAX];
    bool known;
    r = *slot->failure;
    if (!case_parse(slot->text, &c, error, sizeof error)) return;
    if (!fuzz_state_find(run->state, c.op, r.check, &known)) run->out_of_memory = true;
    if (known) {
        run->repeated++;
        return;
    }
    if (run->terminal) fprintf(stderr, "\r\033[K");
    if (!run->options->quiet) fprintf(stderr, "shrinking a failure of %s: %s\n", c.op->name, r.check);
    shrink(run, &c, &r);
    case_print(&c, text, sizeof text);
    printf("FAIL %s\n  backend %s, check %s; found after %.1f s, in case %" PRIu64 "\n%s", text,
           run->context.backend->name, r.check, slot->seconds, run->state->cases, r.text);
    bool written = write_finding(run, &c, &r, text, path, sizeof path);
    int failed = errno;
    options_replay_flags(run->options, flags, sizeof flags);
    if (written) printf("  replay: attest run %s%s\n", path, flags);
    else
        printf("  replay: attest run '%s'%s\n  (%s: %s)\n", text, flags, path, strerror(failed));
    fflush(stdout);
}

static void settle(struct run *run, const struct slot *slot)
{
    static struct case_line c;
    char error[512];
    struct fuzz_state *s = run->state;
    s->cases++;
    s->refused += slot->verdict == VERDICT_REFUSED;
    if (slot->verdict == VERDICT_PASS && case_parse(slot->text, &c, error, sizeof error) &&
        !fuzz_state_note(s, &c))
        run->out_of_memory = true;
    if (!slot->failure) return;
    if (result_is_empty(slot->failure)) {
        s->empty++;
    } else if (slot->verdict == VERDICT_FAIL) {
        report_finding(run, slot);
    } else if (run->errors++ < 3) {
        printf("ERROR %s\n  check %s\n%s", slot->text, slot->failure->check, slot->failure->text);
    }
}

/* In the order in which the cases were drawn: what is kept does not depend on who was faster. */
static bool settle_round(struct run *run)
{
    char error[4400];
    uint32_t n = run->n_slots;
    for (uint32_t i = 0; i < n; i++) {
        if (run->slots[i].finished) settle(run, &run->slots[i]);
        free(run->slots[i].text);
        free(run->slots[i].failure);
    }
    run->finished = 0;
    run->state->round++;
    run->state->seconds = run->before + (now() - run->start);
    if (run->out_of_memory) fprintf(stderr, "attest: out of memory\n");
    if (!run->options->state) return !run->out_of_memory;
    if (fuzz_state_save(run->state, run->options->state, error, sizeof error))
        return !run->out_of_memory;
    fprintf(stderr, "attest: %s\n", error);
    return false;
}

static int finish(const struct run *run, bool fine)
{
    const struct fuzz_state *s = run->state;
    if (run->terminal) fprintf(stderr, "\r\033[K");
    printf("fuzz: %" PRIu64 " cases in %.1f s, %" PRIu64 " refused on both sides, %" PRIu64
           " empty, %" PRIu64 " errors; %" PRIu64 " geometry classes in %u kept cases; %u findings, "
           "seen %" PRIu64 " more times; seed %" PRIu64 "\n",
           s->cases, s->seconds, s->refused, s->empty, run->errors, s->classes, s->n_kept,
           s->n_found, run->repeated, s->seed);
    if (run->options->state) printf("state: %s\n", run->options->state);
    if (s->n_found) return EXIT_WRONG;
    return fine && !run->errors && s->cases ? EXIT_PASS : EXIT_INFRA;
}

static void watch_signals(void)
{
    struct sigaction action = {.sa_handler = on_interrupt};
    interrupted = enough = false;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    action.sa_handler = on_alarm;
    sigaction(SIGALRM, &action, NULL);
}

int fuzz_run(const struct fuzz_plan *plan, struct fuzz_state *state)
{
    static struct run run;
    const struct options *o = plan->options;
    char error[256] = "";
    bool fine = true;
    run = (struct run){.plan = plan, .options = o, .state = state, .context = plan->context};
    for (uint32_t i = 0; i < plan->n_ops; i++) work_learn(&run.limits[i], plan->ops[i], o->tier);
    run.start = now();
    run.end = run.start + o->budget_s;
    run.before = state->seconds;
    run.terminal = isatty(STDERR_FILENO) && !o->quiet;
    watch_signals();
    while (fine && !interrupted && now() < run.end) {
        enough = interrupted;
        fine = draw_round(&run);
        struct pool_config config = {.workers = o->jobs, .timeout_s = o->timeout_s, .work = work,
                                     .done = done, .tick = tick, .shared = &run, .stop = &enough};
        if (run.context.backend == &gpu_backend_cuda) config.processes = o->processes;
        if (!fine) snprintf(error, sizeof error, "out of memory");
        fine = fine && pool_run(&config, run.n_slots, error, sizeof error);
        if (!fine) fprintf(stderr, "attest: %s\n", error);
        fine = fine && settle_round(&run);
    }
    return finish(&run, fine);
}
