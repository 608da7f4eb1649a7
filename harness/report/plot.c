#include "harness/report/plot.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/base/error_text.h"
#include "harness/base/process.h"

/* Colours that no plot would choose stand for the page's variables. */
static const struct {
    const char *drawn, *meant;
} colours[] = {
    {"rgb(  1,   2,   3)", "var(--muted)"},  {"rgb(1,2,3)", "var(--muted)"},
    {"rgb(  4,   5,   6)", "var(--line)"},   {"rgb(4,5,6)", "var(--line)"},
    {"rgb(  7,   8,   9)", "var(--accent)"}, {"rgb(7,8,9)", "var(--accent)"},
    {"rgb( 10,  11,  12)", "var(--bad)"},    {"rgb(10,11,12)", "var(--bad)"},
};

struct sketch {
    FILE *script;
    const char *folder;
    unsigned count; /* of outputs so far: FOLDER/0.svg, ... */
};

static void start_plot(struct sketch *s, int width, int height)
{
    fprintf(s->script,
            "reset\nset terminal svg size %d,%d dynamic font 'sans-serif,12'\n"
            "set output '%s/%u.svg'\nunset key\nset border 3 lc rgb '#010203'\n"
            "set tics nomirror textcolor rgb '#010203'\nset grid y lc rgb '#040506'\n"
            "set style fill solid 1 noborder\n",
            width, height, s->folder, s->count++);
}

static bool any(const uint64_t *bins, int count)
{
    uint64_t sum = 0;
    for (int i = 0; i < count; i++) sum |= bins[i];
    return sum != 0;
}

/* Counts on a logarithmic scale, down to half a one, so that a single element shows. The last
 * `n_bad` bins hold what must not be. */
static void draw_bins(struct sketch *s, const uint64_t *bins, int count, int n_bad,
                      const char *(*name)(int), const char *label)
{
    FILE *f = s->script;
    start_plot(s, 420, 230);
    fprintf(f,
            "set logscale y\nset yrange [0.5:]\nset format y '10^{%%L}'\nset boxwidth 0.84\n"
            "set xrange [-0.6:%d.6]\nset xtics rotate by -45 scale 0 font ',11'\n"
            "set xtics (",
            count - 1);
    for (int i = 0; i < count; i++) fprintf(f, "%s\"%s\" %d", i ? ", " : "", name(i), i);
    fprintf(f, ")\nset xlabel '%s' textcolor rgb '#010203' offset 0,0.4\n$d << EOD\n", label);
    /* An empty bin lies on the axis: gnuplot calls a plot of nothing but undefined points an error.
     */
    for (int i = 0; i < count; i++)
        fprintf(f, "%d %.1f %d\n", i, bins[i] ? (double)bins[i] : 0.5,
                i >= count - n_bad ? 0x0a0b0c : 0x070809);
    fputs("EOD\nplot $d using 1:2:3 with boxes lc rgb variable\n", f);
}

static int by_count(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void draw_kills(struct sketch *s, const struct report *r)
{
    FILE *f = s->script;
    uint64_t *cases = calloc(r->n_broken + 1, sizeof *cases);
    size_t n = 0;
    if (!cases) return;
    for (size_t i = 0; i < r->n_broken; i++) {
        if (r->broken[i].verdict == VERDICT_FAIL) cases[n++] = r->broken[i].cases;
    }
    qsort(cases, n, sizeof *cases, by_count);
    start_plot(s, 640, 240);
    fprintf(f,
            "set logscale x\nset xrange [0.9:%llu]\nset yrange [0:%zu]\n"
            "set xlabel 'cases tried' textcolor rgb '#010203'\n"
            "set ylabel 'kernels caught' textcolor rgb '#010203'\n"
            "set arrow from 0.9,%zu to %llu,%zu nohead lc rgb '#040506' dt 2\n$d << EOD\n0.9 0\n",
            (unsigned long long)(n ? 2 * cases[n - 1] + 8 : 10), r->n_broken + r->n_broken / 10 + 1,
            r->n_broken, (unsigned long long)(n ? 2 * cases[n - 1] + 8 : 10), r->n_broken);
    for (size_t i = 0; i < n; i++) fprintf(f, "%llu %zu\n", (unsigned long long)cases[i], i + 1);
    fprintf(f, "%llu %zu\nEOD\nplot $d with steps lw 2 lc rgb '#070809'\n",
            (unsigned long long)(n ? 2 * cases[n - 1] + 8 : 10), n);
    free(cases);
}

/* Cuts every piece from `start` to the next `end`, both included. */
static void cut_all(char *text, const char *start, const char *end)
{
    char *from = text, *at, *stop;
    while ((at = strstr(from, start)) && (stop = strstr(at + strlen(start), end))) {
        stop += strlen(end);
        memmove(at, stop, strlen(stop) + 1);
        from = at;
    }
}

/* gnuplot opens many groups that stay empty. */
static void cut_empty_groups(char *text)
{
    char *from = text, *at;
    while ((at = strstr(from, "<g "))) {
        char *close = strchr(at, '>'),
             *rest = close ? close + 1 + strspn(close + 1, " \t\n") : NULL;
        from = at + 3;
        if (!rest || strncmp(rest, "</g>", 4)) continue;
        memmove(at, rest + 4, strlen(rest + 4) + 1);
        from = text == at ? at : at - 1;
    }
}

static char *with_colours(const char *text)
{
    char *out = malloc(strlen(text) + 1); /* every name that is put in is shorter */
    size_t used = 0;
    while (out && *text) {
        size_t k = 0, n = sizeof colours / sizeof *colours;
        while (k < n && strncmp(text, colours[k].drawn, strlen(colours[k].drawn))) k++;
        if (k == n) {
            out[used++] = *text++;
            continue;
        }
        memcpy(out + used, colours[k].meant, strlen(colours[k].meant));
        used += strlen(colours[k].meant);
        text += strlen(colours[k].drawn);
    }
    if (out) out[used] = 0;
    return out;
}

static char *read_plot(const char *folder, unsigned number)
{
    char path[PATH_MAX], *text = NULL, *svg = NULL;
    size_t room = 0;
    snprintf(path, sizeof path, "%s/%u.svg", folder, number);
    FILE *f = fopen(path, "re");
    if (f && getdelim(&text, &room, 0, f) > 0) svg = strstr(text, "<svg");
    if (f) fclose(f);
    if (svg) {
        cut_all(svg, "<title>", "</title>");
        cut_all(svg, "<desc>", "</desc>");
        cut_all(svg, "<defs>", "</defs>");
        cut_all(svg, " id=\"", "\"");
        cut_empty_groups(svg);
        svg = with_colours(svg);
    }
    free(text);
    return svg;
}

static void draw_all(struct sketch *s, const struct report *r)
{
    for (size_t i = 0; i < r->n_ops; i++) {
        const struct distribution *d = &r->ops[i].total.spread;
        draw_bins(s, d->ratio, RATIO_BINS, 1, distribution_ratio_name, "err/E");
        draw_bins(s, d->ulp, ULP_BINS, 0, distribution_ulp_name, "ulp");
        draw_bins(s, d->margin, MARGIN_BINS, 0, distribution_margin_name, "margin / 2E");
    }
    draw_kills(s, r);
}

static bool collect(const char *folder, const struct report *r, struct report_plots *p)
{
    bool fine = true;
    for (unsigned i = 0; i < p->n_ops; i++) {
        const struct distribution *d = &r->ops[i].total.spread;
        bool wanted[PLOT_KINDS] = {any(d->ratio, RATIO_BINS), any(d->ulp, ULP_BINS),
                                   any(d->margin, MARGIN_BINS)};
        for (unsigned k = 0; k < PLOT_KINDS; k++) {
            if (wanted[k]) p->ops[i][k] = read_plot(folder, PLOT_KINDS * i + k);
            fine &= !wanted[k] || p->ops[i][k];
        }
    }
    if (!r->n_broken) return fine;
    p->kills = read_plot(folder, PLOT_KINDS * (unsigned)p->n_ops);
    return fine && p->kills;
}

static bool run_gnuplot(const char *program, const char *path, struct report_plots *p)
{
    const char *const argv[] = {program, path, NULL};
    struct process_options options = {.timeout_s = 120};
    struct process_result result;
    char error[200];
    if (!process_run(argv, &options, &result, error, sizeof error)) {
        error_text(p->note, sizeof p->note, "No plots: %s.", error);
        return false;
    }
    bool fine = result.exit_code == 0;
    if (!fine)
        error_text(p->note, sizeof p->note, "No plots: %s ended with exit code %d: %.120s", program,
                   result.exit_code, result.errors);
    process_result_free(&result);
    return fine;
}

static void remove_folder(const char *folder, unsigned count)
{
    char path[PATH_MAX];
    for (unsigned i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/%u.svg", folder, i);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/script", folder);
    unlink(path);
    rmdir(folder);
}

void report_plots_make(const struct report *r, const char *program, struct report_plots *p)
{
    const char *temporary = getenv("TMPDIR");
    char folder[PATH_MAX - 64], path[PATH_MAX];
    memset(p, 0, sizeof *p);
    p->n_ops = r->n_ops;
    p->ops = calloc(r->n_ops + 1, sizeof *p->ops);
    snprintf(folder, sizeof folder, "%s/attest-plots-XXXXXX",
             temporary && *temporary && !strchr(temporary, '\'') ? temporary : "/tmp");
    if (!p->ops || !mkdtemp(folder)) {
        error_text(p->note, sizeof p->note, "No plots: no temporary folder: %s.", strerror(errno));
        return;
    }
    struct sketch s = {.folder = folder};
    snprintf(path, sizeof path, "%s/script", folder);
    s.script = fopen(path, "we");
    if (s.script) draw_all(&s, r);
    if (!s.script || fclose(s.script) != 0)
        error_text(p->note, sizeof p->note, "No plots: cannot write %.120s: %s.", path,
                   strerror(errno));
    else if (run_gnuplot(program, path, p) && !collect(folder, r, p))
        error_text(p->note, sizeof p->note, "Some plots are missing: %s wrote none.", program);
    remove_folder(folder, s.count);
}

void report_plots_free(struct report_plots *p)
{
    for (size_t i = 0; p->ops && i < p->n_ops; i++) {
        for (int k = 0; k < PLOT_KINDS; k++) free(p->ops[i][k]);
    }
    free(p->ops);
    free(p->kills);
    memset(p, 0, sizeof *p);
}
