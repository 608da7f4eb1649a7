#include "harness/cli/report_write.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "harness/base/error_text.h"
#include "harness/report/plot.h"
#include "harness/report/report.h"
#include "harness/report/words.h"
#include "harness/session/options.h"

enum { BASELINE_BYTES_MAX = 256 << 20, CHANGES_SHOWN = 30 };

struct wishes {
    const char *out, *date, *coverage, *timings, *against, *gnuplot;
    char **files;
    int n_files;
};

static bool parse(int argc, char **argv, struct wishes *w)
{
    static const struct option longs[] = {{"out", required_argument, NULL, 'o'},
                                          {"date", required_argument, NULL, 'd'},
                                          {"coverage", required_argument, NULL, 'c'},
                                          {"against", required_argument, NULL, 'a'},
                                          {"gnuplot", required_argument, NULL, 'g'},
                                          {"timings", required_argument, NULL, 't'},
                                          {NULL, 0, NULL, 0}};
    *w = (struct wishes){.out = "reports", .gnuplot = "gnuplot"};
    optind = 1;
    opterr = 0;
    for (;;) {
        int at = optind, id = getopt_long(argc, argv, ":", longs, NULL);
        if (id == -1) break;
        switch (id) {
        case 'o': w->out = optarg; break;
        case 'd': w->date = optarg; break;
        case 'c': w->coverage = optarg; break;
        case 't': w->timings = optarg; break;
        case 'a': w->against = optarg; break;
        case 'g': w->gnuplot = optarg; break;
        default:
            fprintf(stderr, "attest: report: %s %s; see attest report --help\n", argv[at],
                    id == ':' ? "needs a value" : "is not an option");
            return false;
        }
    }
    w->files = argv + optind;
    w->n_files = argc - optind;
    if (w->n_files) return true;
    fprintf(stderr, "attest: report needs files of JSON lines; see attest report --help\n");
    return false;
}

static bool read_input(const struct wishes *w, struct report *r, char *error, size_t size)
{
    for (int i = 0; i < w->n_files; i++) {
        if (!report_read(r, w->files[i], error, size)) return false;
    }
    if (w->coverage && !report_read_coverage(r, w->coverage, error, size)) return false;
    if (w->timings && !report_read_timings(r, w->timings, error, size)) return false;
    if (!report_finish(r, error, size)) return false;
    return r->n_ops || r->n_broken || error_text(error, size, "the files hold no result");
}

static cJSON *read_json(const char *path, char *error, size_t size)
{
    FILE *f = fopen(path, "re");
    struct stat st;
    cJSON *json = NULL;
    char *text = NULL;
    if (!f || fstat(fileno(f), &st) != 0) {
        error_text(error, size, "%s: cannot be opened: %s", path, strerror(errno));
    } else if (st.st_size > BASELINE_BYTES_MAX) {
        error_text(error, size, "%s: larger than %d bytes", path, BASELINE_BYTES_MAX);
    } else if (!(text = malloc((size_t)st.st_size + 1)) ||
               fread(text, 1, (size_t)st.st_size, f) != (size_t)st.st_size) {
        error_text(error, size, "%s: cannot be read", path);
    } else {
        json = cJSON_ParseWithLength(text, (size_t)st.st_size);
        if (!cJSON_IsObject(json)) {
            error_text(error, size, "%s: this is no JSON object, or not all of one", path);
            cJSON_Delete(json);
            json = NULL;
        }
    }
    free(text);
    if (f) fclose(f);
    return json;
}

/* The report's own numbers are read back too, so that both sides went through the same rounding. */
static bool compare(const struct wishes *w, const char *data, struct report_changes *changes,
                    char *error, size_t size)
{
    char why[200] = "out of memory";
    if (!w->against) return true;
    cJSON *baseline = read_json(w->against, error, size);
    if (!baseline) return false;
    cJSON *now = cJSON_Parse(data);
    changes->baseline = strdup(w->against);
    bool fine = now && changes->baseline && report_against(now, baseline, changes, why, sizeof why);
    if (!fine) error_text(error, size, "%s: %s", w->against, why);
    cJSON_Delete(now);
    cJSON_Delete(baseline);
    return fine;
}

/* The text of tolerance.json; freed with cJSON_free. */
static char *make_data(const struct wishes *w, const struct report *r, char *error, size_t size)
{
    cJSON *json = report_json(r, w->date);
    char *data = json ? cJSON_Print(json) : NULL;
    cJSON_Delete(json);
    if (!data) error_text(error, size, "out of memory");
    return data;
}

static bool write_one(const char *folder, const char *name, const char *text, char *error,
                      size_t size)
{
    char path[PATH_MAX];
    if (!text) return error_text(error, size, "out of memory");
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return error_text(error, size, "cannot make %s: %s", folder, strerror(errno));
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return error_text(error, size, "%.200s…: the path is too long", folder);
    return report_write_file(path, text, strlen(text), error, size);
}

static bool write_all(const struct wishes *w, const struct report *r, const char *data,
                      const struct report_changes *changes, char *error, size_t size)
{
    struct report_plots plots;
    report_plots_make(r, w->gnuplot, &plots);
    if (plots.note[0]) fprintf(stderr, "attest: report: %s\n", plots.note);
    char *markdown = report_markdown(r, changes, w->date);
    char *html = report_html(r, changes, w->date, &plots);
    bool fine = write_one(w->out, "tolerance.json", data, error, size) &&
                write_one(w->out, "tolerance.md", markdown, error, size) &&
                write_one(w->out, "tolerance.html", html, error, size);
    free(markdown);
    free(html);
    report_plots_free(&plots);
    return fine;
}

static int say(const struct wishes *w, const struct report *r, const struct report_changes *c)
{
    static struct report_words words;
    static const int codes[] = {EXIT_PASS, EXIT_WRONG, EXIT_WRONG, EXIT_INFRA};
    report_say(r, &words);
    printf("%s\n", words.verdict);
    for (int i = 0; i < words.n_sure; i++) printf("  %s\n", words.sure[i]);
    size_t shown = 0;
    for (size_t i = 0; i < c->count; i++) {
        const struct report_change *x = &c->items[i];
        if (!x->worse || shown++ >= CHANGES_SHOWN) continue;
        printf("WORSE %s: %s, %s before, %s now\n", x->where, x->what, x->before, x->now);
    }
    if (shown > CHANGES_SHOWN) printf("and %zu more\n", shown - CHANGES_SHOWN);
    if (c->baseline)
        printf("against %s: %zu worse, %zu only worth knowing\n", c->baseline, c->n_worse,
               c->count - c->n_worse);
    printf("report: %s/tolerance.html\n", w->out);
    return c->n_worse ? EXIT_WRONG : codes[report_state(r)];
}

int command_report_write(int argc, char **argv)
{
    struct wishes w;
    struct report r = {0};
    struct report_changes changes = {0};
    char error[1024];
    int code = EXIT_USAGE;
    char *data = NULL;
    if (!parse(argc, argv, &w)) return EXIT_USAGE;
    bool fine = read_input(&w, &r, error, sizeof error) &&
                (data = make_data(&w, &r, error, sizeof error)) &&
                compare(&w, data, &changes, error, sizeof error);
    if (fine) {
        fine = write_all(&w, &r, data, &changes, error, sizeof error);
        code = fine ? say(&w, &r, &changes) : EXIT_INFRA;
    }
    if (!fine) fprintf(stderr, "attest: %s\n", error);
    cJSON_free(data);
    report_changes_free(&changes);
    report_free(&r);
    return code;
}
