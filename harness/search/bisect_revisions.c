#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/base/error_text.h"
#include "harness/base/process.h"
#include "harness/search/bisect_rows.h"

enum { GIT_ARGUMENTS_MAX = 1024 };

/* Runs git in the repository; its standard output, or NULL with what it complained of. */
static char *git_list(const struct bisect_revisions *r, const char *const *arguments, char *error,
                      size_t size)
{
    const char *argv[GIT_ARGUMENTS_MAX + 4] = {"git", "-C", r->repository};
    struct process_options o = {.timeout_s = 600};
    struct process_result p;
    int n = 3;
    for (int i = 0; arguments[i] && n < GIT_ARGUMENTS_MAX + 3; i++) argv[n++] = arguments[i];
    argv[n] = NULL;
    if (!process_run(argv, &o, &p, error, size)) return NULL;
    char *output = p.output;
    if (p.exit_code != 0) {
        error_text(error, size, "git %s: %.300s", arguments[0], p.errors);
        output = NULL;
    } else {
        p.output = NULL;
    }
    process_result_free(&p);
    return output;
}

static char *git(const struct bisect_revisions *r, char *error, size_t size, ...)
{
    const char *arguments[16];
    int n = 0;
    va_list list;
    va_start(list, size);
    while (n < 15 && (arguments[n] = va_arg(list, const char *))) n++;
    va_end(list);
    arguments[n] = NULL;
    return git_list(r, arguments, error, size);
}

static bool resolve(const struct bisect_revisions *r, const char *name, char hash[64], char *error,
                    size_t size)
{
    char revision[300];
    snprintf(revision, sizeof revision, "%s^{commit}", name);
    char *text = git(r, error, size, "rev-parse", "--verify", "--end-of-options", revision, NULL);
    if (!text) return false;
    snprintf(hash, 64, "%.*s", (int)strcspn(text, "\n"), text);
    free(text);
    return true;
}

static struct revision *entry(struct bisect_revisions *r, const char *hash)
{
    char error[200];
    for (size_t i = 0; i < r->n_seen; i++) {
        if (!strcmp(r->seen[i].hash, hash)) return &r->seen[i];
    }
    struct revision *v = &r->seen[r->n_seen++];
    snprintf(v->hash, sizeof v->hash, "%s", hash);
    char *subject = git(r, error, sizeof error, "show", "-s", "--format=%s", hash, NULL);
    if (subject)
        error_text(v->subject, sizeof v->subject, "%.*s", (int)strcspn(subject, "\n"), subject);
    free(subject);
    return v;
}

/* git's list of what lies between, the best to try first, without the bad end. malloc'ed text of
 * "HASH (dist=N)" lines. */
static char *between(struct bisect_revisions *r)
{
    const char *arguments[GIT_ARGUMENTS_MAX];
    char error[300];
    int n = 0;
    arguments[n++] = "rev-list";
    arguments[n++] = "--bisect-all";
    arguments[n++] = r->bad;
    arguments[n++] = "--not";
    arguments[n++] = r->good;
    for (size_t i = 0; i < r->n_seen && n < GIT_ARGUMENTS_MAX - 1; i++) {
        if (r->seen[i].judged && r->seen[i].verdict == BISECT_GOOD)
            arguments[n++] = r->seen[i].hash;
    }
    arguments[n] = NULL;
    return git_list(r, arguments, error, sizeof error);
}

/* Walks the lines of `between`: the first untried one, and how many could not be judged. */
static struct revision *scan(struct bisect_revisions *r, size_t *unjudged)
{
    char *list = between(r);
    struct revision *found = NULL;
    *unjudged = 0;
    for (char *line = list, *end; line && *line; line = *end ? end + 1 : end) {
        end = line + strcspn(line, "\n");
        char hash[64];
        snprintf(hash, sizeof hash, "%.*s", (int)strcspn(line, " \n"), line);
        if (!strcmp(hash, r->bad)) continue;
        struct revision *v = entry(r, hash);
        *unjudged += v->judged;
        if (!v->judged && !found) found = v;
    }
    free(list);
    return found;
}

static const char *next(void *row)
{
    size_t unjudged;
    struct revision *v = scan(row, &unjudged);
    return v ? v->hash : NULL;
}

static size_t left(void *row)
{
    size_t unjudged;
    scan(row, &unjudged);
    return unjudged;
}

static bool learn(void *row, const char *name, enum bisect_verdict verdict, char *error,
                  size_t error_size)
{
    struct bisect_revisions *r = row;
    struct revision *v = entry(r, name);
    v->judged = true;
    v->verdict = verdict;
    if (verdict == BISECT_BAD) snprintf(r->bad, sizeof r->bad, "%s", name);
    return true;
}

/* A clean tree every time: what an older revision has left must not get into a newer one. */
static bool lay_tree(struct bisect_revisions *r, const char *hash, char *error, size_t size)
{
    char tree[PATH_MAX + 8];
    struct stat st;
    snprintf(tree, sizeof tree, "%s/tree", r->folder);
    char *text;
    if (stat(tree, &st) != 0) {
        text = git(r, error, size, "worktree", "add", "--detach", "--quiet", tree, hash, NULL);
    } else {
        text = git(r, error, size, "-C", tree, "checkout", "--detach", "--force", "--quiet", hash,
                   NULL);
        if (text) {
            free(text);
            text = git(r, error, size, "-C", tree, "clean", "-ffdxq", NULL);
        }
    }
    free(text);
    return text != NULL;
}

/* The last line that is not make's own, which only repeats that something failed. */
static void last_line(const char *text, char *line, size_t size)
{
    size_t start = strlen(text), end;
    do {
        for (end = start; end && text[end - 1] == '\n';) end--;
        for (start = end; start && text[start - 1] != '\n';) start--;
    } while (start && !strncmp(text + start, "make", 4));
    error_text(line, size, "%.*s", (int)(end - start), text + start);
}

static bool build(const struct bisect_revisions *r, char *why, size_t size)
{
    char tree[PATH_MAX + 8], program[PATH_MAX + 32], line[200], error[200];
    const char *argv[] = {"sh", "-c", r->build, NULL};
    struct process_options o = {tree, r->build_timeout_s, r->replayed.stop};
    struct process_result p;
    snprintf(tree, sizeof tree, "%s/tree", r->folder);
    snprintf(program, sizeof program, "%s/build/attest", tree);
    if (!process_run(argv, &o, &p, error, sizeof error)) return error_text(why, size, "%s", error);
    bool fine = p.exit_code == 0 && access(program, X_OK) == 0;
    if (p.timed_out) {
        error_text(why, size, "the build took too long");
    } else if (p.exit_code == 0) {
        error_text(why, size, "the build made no build/attest");
    } else {
        last_line(p.errors[0] ? p.errors : p.output, line, sizeof line);
        error_text(why, size, "the build failed: %s", line);
    }
    process_result_free(&p);
    return fine;
}

bool bisect_revisions_rebuild(struct bisect_revisions *r, const char *hash, char *why, size_t size)
{
    return lay_tree(r, hash, why, size) && build(r, why, size);
}

void bisect_revisions_request(const struct bisect_revisions *r, char program[PATH_MAX],
                              char directory[PATH_MAX], struct replay_request *q)
{
    snprintf(directory, PATH_MAX, "%.*s/tree", PATH_MAX - 32, r->folder);
    snprintf(program, PATH_MAX, "%.*s/tree/build/attest", PATH_MAX - 32, r->folder);
    *q = (struct replay_request){.program = program,
                                 .directory = directory,
                                 .backend = r->replayed.backend,
                                 .timeout_s = r->replayed.timeout_s,
                                 .stop = r->replayed.stop};
}

static bool test(void *row, const char *name, struct bisect_step *step)
{
    struct bisect_revisions *r = row;
    char program[PATH_MAX], directory[PATH_MAX];
    struct replay_request q;
    if (!lay_tree(r, name, step->text, sizeof step->text)) {
        step->verdict = BISECT_BROKE;
        return false;
    }
    if (!build(r, step->text, sizeof step->text)) {
        step->verdict = BISECT_NO_BUILD;
        return false;
    }
    bisect_revisions_request(r, program, directory, &q);
    replay_case(&q, r->replayed.text, &step->replay);
    return true;
}

static void tell(void *row, const char *name, const struct bisect_step *step)
{
    const struct revision *v = entry(row, name);
    printf("%.10s  %-14s %6.1f s  %s\n", name, bisect_verdict_name(step->verdict), step->seconds,
           v->subject);
    if (step->text[0]) printf("            %s\n", step->text);
    fflush(stdout);
}

/* How many commits there can be at most: an entry each, so that names stay where they are. */
static bool make_entries(struct bisect_revisions *r, char *error, size_t size)
{
    char range[140];
    snprintf(range, sizeof range, "%s..%s", r->good, r->bad);
    char *text = git(r, error, size, "rev-list", "--count", range, NULL);
    if (!text) return false;
    r->seen = calloc(strtoull(text, NULL, 10) + 2, sizeof *r->seen);
    free(text);
    return r->seen || error_text(error, size, "out of memory");
}

bool bisect_revisions_open(struct bisect_revisions *r, struct bisect_row *row, const char *good,
                           const char *bad, bool *bad_input, char *error, size_t size)
{
    const char *temporary = getenv("TMPDIR");
    *bad_input = true;
    *row = (struct bisect_row){r, next, test, learn, left, tell, r->replayed.stop};
    if (!resolve(r, good, r->good, error, size) || !resolve(r, bad, r->bad, error, size))
        return false;
    if (!strcmp(r->good, r->bad))
        return error_text(error, size, "the good and the bad revision are the same");
    char *text = git(r, error, size, "merge-base", "--is-ancestor", r->good, r->bad, NULL);
    if (!text) return error_text(error, size, "%s is no ancestor of %s", good, bad);
    free(text);
    *bad_input = false;
    if (!make_entries(r, error, size)) return false;
    snprintf(r->folder, sizeof r->folder, "%s/attest-bisect-XXXXXX",
             temporary && *temporary ? temporary : "/tmp");
    r->good_end = entry(r, r->good)->hash;
    r->bad_end = entry(r, r->bad)->hash;
    if (mkdtemp(r->folder)) return true;
    return error_text(error, size, "no temporary folder %s: %s", r->folder, strerror(errno));
}

char *bisect_revisions_describe(const struct bisect_revisions *r, const char *hash)
{
    char error[200];
    return git(r, error, sizeof error, "show", "-s", "--date=short",
               "--format=commit %H%n%an, %ad%n%n%w(0,4,4)%B", hash, NULL);
}

void bisect_revisions_close(struct bisect_revisions *r)
{
    char tree[PATH_MAX + 8], error[200];
    snprintf(tree, sizeof tree, "%s/tree", r->folder);
    if (access(tree, F_OK) == 0)
        free(git(r, error, sizeof error, "worktree", "remove", "--force", tree, NULL));
    rmdir(r->folder);
    free(r->seen);
    r->seen = NULL;
}
