/* broken: the harness on trial. Every kernel of kernels/broken must be caught. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "harness/cli/broken_trials.h"
#include "harness/cli/commands.h"
#include "harness/files/broken.h"
#include "harness/files/json_lines.h"
#include "harness/run/pool.h"
#include "harness/search/minimize.h"
#include "harness/session/session.h"

enum { BROKEN_MAX = 2048 };

static bool try_kernel(void *shared, void **state, uint64_t index, struct result *r)
{
    struct trials *t = shared;
    struct trial *trial = &t->items[index];
    struct verify_context x = broken_context(t, trial);
    static struct case_line c;
    char error[512];
    double started = (double)clock() / CLOCKS_PER_SEC;
    bool simt = x.backend == &gpu_backend_simt;
    if (!trial->kernel.smallest[0] || t->options->minimize) {
        broken_search(t, trial, t->options->seed, 0, &x, r);
    } else if (!case_parse(trial->kernel.smallest, &c, error, sizeof error)) {
        snprintf(r->text, sizeof r->text, "\n  %s\n", error);
        r->verdict = VERDICT_ERROR;
    } else {
        verify_case(&x, &c, r);
        broken_note_case(r, &c, 1);
        /* The smallest case was found on the CPU backend; another may need a larger one. */
        if (!simt && broken_unseen(r)) broken_search(t, trial, t->options->seed, 0, &x, r);
    }
    r->seconds = (double)clock() / CLOCKS_PER_SEC - started;
    verify_close(&x);
    return simt;
}

/* Verdict fail: caught; the case is the one that caught it. */
static void print_json(const struct trials *t, const struct trial *trial)
{
    const struct broken *b = &trial->kernel;
    const struct result *r = &trial->result;
    char error[512];
    struct jsonl_record record = {
        .case_text = trial->caught_by, .ratio = NAN, .seconds = r->seconds};
    snprintf(record.op, sizeof record.op, "%s", b->op);
    snprintf(record.backend, sizeof record.backend, "%s", t->context.backend->name);
    snprintf(record.verdict, sizeof record.verdict, "%s", verdict_names[r->verdict]);
    snprintf(record.check, sizeof record.check, "%s", r->check);
    cJSON *fields = cJSON_CreateObject();
    cJSON_AddStringToObject(fields, "kernel", b->name);
    cJSON_AddStringToObject(fields, "kind", b->kind);
    cJSON_AddStringToObject(fields, "bug", b->bug);
    cJSON_AddStringToObject(fields, "like", b->like);
    cJSON_AddNumberToObject(fields, "cases", (double)trial->cases);
    record.fields = fields;
    if (!jsonl_write(stdout, &record, error, sizeof error)) fprintf(stderr, "attest: %s\n", error);
    cJSON_Delete(fields);
}

static void keep(void *shared, uint64_t index, const struct result *r)
{
    struct trials *t = shared;
    struct trial *trial = &t->items[index];
    size_t length = strcspn(r->text, "\n");
    trial->result = *r;
    trial->cases = r->compared;
    trial->caught = r->verdict == VERDICT_FAIL;
    if (length >= sizeof trial->caught_by) length = sizeof trial->caught_by - 1;
    memcpy(trial->caught_by, r->text, length);
    trial->caught_by[length] = 0;
    memmove(trial->result.text, trial->result.text + length + (r->text[length] == '\n'),
            sizeof trial->result.text - length - 1);
    if (t->options->json && !t->options->minimize) print_json(t, trial);
    if (t->options->quiet || t->options->json) return;
    printf("%-34s %-7s %-8s %-28s %6llu %7.2f\n", trial->kernel.name, trial->kernel.kind,
           trial->caught ? "caught" : "MISSED", trial->result.check,
           (unsigned long long)trial->cases, r->seconds);
    fflush(stdout);
}

static bool minimize_trial(struct trials *t, struct trial *trial)
{
    static struct case_line c;
    static struct result failure;
    char error[512];
    uint64_t tried;
    struct verify_context x = broken_context(t, trial);
    struct minimize_options how = {t->options->budget_s, t->options->timeout_s, t->options->jobs,
                                   false, NULL};
    if (!case_parse(trial->caught_by, &c, error, sizeof error) ||
        !minimize_case(&x, &how, &c, &failure, &tried, error, sizeof error)) {
        fprintf(stderr, "attest: %s: %s\n", trial->kernel.name, error);
        return false;
    }
    trial->result = failure;
    case_print(&c, trial->caught_by, sizeof trial->caught_by);
    fprintf(t->options->json ? stderr : stdout, "%s\n  case: %s\n  check: %s\n",
            trial->kernel.name, trial->caught_by, failure.check);
    fflush(stdout);
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct trial *)a)->kernel.name, ((const struct trial *)b)->kernel.name);
}

static bool wanted(const struct options *o, const struct broken *b)
{
    for (int i = 0; i < o->n_words; i++) {
        if (!strcmp(o->words[i], b->name) || !strcmp(o->words[i], b->op)) return true;
    }
    return o->n_words == 0;
}

static bool load_trials(struct trials *t, const char *folder)
{
    char path[PATH_MAX], dir[PATH_MAX], error[512];
    const char *backend = t->context.backend == &gpu_backend_simt ? "broken" : "broken-cuda";
    DIR *d = opendir(folder);
    if (!d) {
        fprintf(stderr, "attest: cannot read %s: %s; run from the project's folder\n", folder,
                strerror(errno));
        return false;
    }
    if (t->options->edits) snprintf(dir, sizeof dir, "%s", folder);
    else if (!session_module_dir(backend, dir, sizeof dir))
        return false;
    for (struct dirent *e; (e = readdir(d)) && t->count < BROKEN_MAX;) {
        struct trial *trial = &t->items[t->count];
        const char *dot = strrchr(e->d_name, '.');
        if (!dot || strcmp(dot, ".edit")) continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (!broken_load(path, &trial->kernel, error, sizeof error)) {
            fprintf(stderr, "attest: %s\n", error);
            closedir(d);
            return false;
        }
        if (!wanted(t->options, &trial->kernel)) continue;
        bool simt = t->context.backend == &gpu_backend_simt;
        if (!simt && trial->kernel.gpu_blind) continue;
        snprintf(trial->plain, sizeof trial->plain, "%s/%s.%s", dir, trial->kernel.name,
                 simt ? "so" : "fatbin");
        snprintf(trial->traced, sizeof trial->traced, "%s/%s.trace.so", dir, trial->kernel.name);
        t->count++;
    }
    closedir(d);
    qsort(t->items, t->count, sizeof *t->items, by_name);
    return true;
}

static int report(const struct trials *t)
{
    FILE *f = t->options->json ? stderr : stdout;
    uint32_t missed = 0;
    for (uint32_t i = 0; i < t->count; i++) {
        const struct trial *trial = &t->items[i];
        if (trial->caught) continue;
        missed++;
        fprintf(f, "MISSED %s: %s\n  %s %s\n%s", trial->kernel.name, trial->kernel.bug,
               verdict_names[trial->result.verdict], trial->result.check, trial->result.text);
    }
    fprintf(f, "broken kernels: %u caught, %u missed\n", t->count - missed, missed);
    if (!t->count) {
        fprintf(stderr, "attest: no broken kernel was run\n");
        return EXIT_INFRA;
    }
    return missed ? EXIT_WRONG : EXIT_PASS;
}

static void broken_trials_free(struct trials *t)
{
    for (uint32_t i = 0; i < t->count; i++) broken_free(&t->items[i].kernel);
    free(t->items);
}

static int write_source(int argc, char **argv)
{
    struct broken b;
    char error[512];
    if (argc != 5) {
        fprintf(stderr, "attest: broken --write FILE.edit KERNELS TARGET\n");
        return EXIT_USAGE;
    }
    if (!broken_load(argv[2], &b, error, sizeof error) ||
        !broken_write(&b, argv[3], argv[4], error, sizeof error)) {
        fprintf(stderr, "attest: %s\n", error);
        return EXIT_USAGE;
    }
    printf("%s/%s.cu\n", argv[4], b.module);
    broken_free(&b);
    return EXIT_PASS;
}

int command_broken(int argc, char **argv)
{
    static struct trials t;
    struct options o;
    char error[256];
    int code = EXIT_USAGE;
    if (wants_help(argc, argv)) {
        puts("attest broken [NAME|OPERATION…] [options]\n\n"
             "Runs the kernels of kernels/broken, each wrong in one way, and shows which check catches\n"
             "each after how many cases. Exit 0 when all are caught. Built by `make broken`.\n\n"
             "  attest broken --minimize decode_stride_576    the smallest case that shows it\n"
             "  attest broken --random 5                      without the stored cases: how many random\n"
             "                                                ones it takes, with five seeds\n"
             "  attest broken --edits DIR                     other edits, with their modules DIR/NAME.so\n"
             "  attest broken --write FILE.edit kernels DIR   the wrong kernel's source\n");
        options_help("broken");
        return EXIT_PASS;
    }
    if (argc > 1 && !strcmp(argv[1], "--write")) return write_source(argc, argv);
    if (!options_parse(argc, argv, &o)) return EXIT_USAGE;
    if (!session_context(&o, &t.context, &code)) return code;
    t.options = &o;
    t.context.model = NULL;
    if (t.context.watchdog_ms > 3000) t.context.watchdog_ms = 3000;
    t.items = calloc(BROKEN_MAX, sizeof *t.items);
    if (!t.items || !load_trials(&t, o.edits ? o.edits : "kernels/broken")) return EXIT_INFRA;
    if (o.random) {
        code = broken_random(&t);
        broken_trials_free(&t);
        return code;
    }
    if (!o.quiet && !o.json)
        printf("%-34s %-7s %-8s %-28s %6s %7s\n", "kernel", "kind", "", "check", "cases", "seconds");
    struct pool_config config = {.workers = o.jobs, .timeout_s = o.timeout_s, .work = try_kernel,
                                 .done = keep, .shared = &t};
    if (!pool_run(&config, t.count, error, sizeof error)) {
        fprintf(stderr, "attest: %s\n", error);
        return EXIT_INFRA;
    }
    for (uint32_t i = 0; i < t.count && o.minimize; i++) {
        if (t.items[i].caught) minimize_trial(&t, &t.items[i]);
        if (o.json) print_json(&t, &t.items[i]);
    }
    code = report(&t);
    broken_trials_free(&t);
    return code;
}
