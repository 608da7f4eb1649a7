#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/error_text.h"
#include "harness/files/json_lines.h"
#include "harness/report/report.h"
#include "harness/report/seen.h"

/* A line on its way into the report. */
struct line {
    struct report *report;
    const char *path;
    const struct jsonl_record *record;
    enum verdict verdict;
    char *error;
    size_t error_size;
};

#define FAIL(l, format, ...)                                                      \
    error_text((l)->error, (l)->error_size, "%s:%" PRIu64 ": " format, (l)->path, \
               (l)->record->line, ##__VA_ARGS__)

static const cJSON *field(const struct line *l, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(l->record->fields, key);
}

static bool is_count(const cJSON *item)
{
    double v = cJSON_IsNumber(item) ? item->valuedouble : -1;
    return v >= 0 && v <= 0x1p53 && v == floor(v);
}

/* A key that is not there counts as 0: the line may be from an older program. */
static bool read_count(const struct line *l, const char *key, uint64_t *value)
{
    const cJSON *item = field(l, key);
    *value = 0;
    if (!item) return true;
    if (!is_count(item)) return FAIL(l, "%s is no count", key);
    *value = (uint64_t)item->valuedouble;
    return true;
}

static bool read_real(const struct line *l, const char *key, double low, double *value)
{
    const cJSON *item = field(l, key);
    *value = 0;
    if (!item) return true;
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= low) || !isfinite(item->valuedouble))
        return FAIL(l, "%s is no number >= %g", key, low);
    *value = item->valuedouble;
    return true;
}

static bool read_text(const struct line *l, const char *key, char *text, size_t size)
{
    const cJSON *item = field(l, key);
    text[0] = 0;
    if (!item) return true;
    if (!cJSON_IsString(item) || strlen(item->valuestring) >= size)
        return FAIL(l, "%s is no text of at most %zu bytes", key, size - 1);
    memcpy(text, item->valuestring, strlen(item->valuestring) + 1);
    return true;
}

static bool read_bins(const struct line *l, const char *key, uint64_t *bins, int count)
{
    const cJSON *array = field(l, key), *item;
    int n = 0;
    if (!array) return true;
    if (!cJSON_IsArray(array) || cJSON_GetArraySize(array) != count)
        return FAIL(l, "%s is no list of %d counts", key, count);
    cJSON_ArrayForEach(item, array)
    {
        if (!is_count(item)) return FAIL(l, "%s holds something that is no count", key);
        bins[n++] = (uint64_t)item->valuedouble;
    }
    return true;
}

static bool read_checks(const struct line *l, uint64_t *checks)
{
    const cJSON *object = field(l, "checks"), *item;
    if (!object) return true;
    if (!cJSON_IsObject(object)) return FAIL(l, "checks is no object");
    cJSON_ArrayForEach(item, object)
    {
        int k = 0;
        while (k < CHECK_COUNT && strcmp(check_names[k], item->string)) k++;
        if (k == CHECK_COUNT || !is_count(item))
            return FAIL(l, "checks: %.40s is no check with a count", item->string);
        checks[k] = (uint64_t)item->valuedouble;
    }
    return true;
}

static bool read_digest(const struct line *l, uint64_t *digest)
{
    const cJSON *item = field(l, "digest");
    *digest = 0;
    if (!item) return true;
    if (!cJSON_IsString(item) || strlen(item->valuestring) != 16 ||
        strspn(item->valuestring, "0123456789abcdef") != 16)
        return FAIL(l, "digest is not 16 hexadecimal digits");
    *digest = strtoull(item->valuestring, NULL, 16);
    return true;
}

static bool read_counts(const struct line *l, struct report_counts *c)
{
    double ulp;
    memset(c, 0, sizeof *c);
    if (!read_count(l, "compared", &c->compared) || !read_count(l, "nearest", &c->nearest) ||
        !read_count(l, "unjudged", &c->unjudged) || !read_count(l, "identical", &c->identical) ||
        !read_count(l, "equivalent", &c->equivalent) || !read_checks(l, c->checks) ||
        !read_bins(l, "ratios", c->spread.ratio, RATIO_BINS) ||
        !read_bins(l, "ulps", c->spread.ulp, ULP_BINS) ||
        !read_bins(l, "margins", c->spread.margin, MARGIN_BINS) || !read_real(l, "ulp", -1, &ulp) ||
        !read_real(l, "kernel_seconds", 0, &c->kernel_seconds))
        return false;
    c->cases = 1;
    c->passed = l->verdict == VERDICT_PASS;
    c->failed = l->verdict == VERDICT_FAIL;
    c->refused = l->verdict == VERDICT_REFUSED;
    c->errors = l->verdict == VERDICT_ERROR;
    c->seconds = l->record->seconds;
    if (!c->passed) return true;
    c->max_ulp = fmax(ulp, 0);
    c->worst_ratio = isnan(l->record->ratio) ? 0 : l->record->ratio;
    c->worst_case = (char *)(uintptr_t)l->record->case_text; /* report_counts_add copies it */
    return true;
}

/* The value of `regime` in the case's line. */
static void regime_of(const char *text, char *name, size_t size)
{
    const char *colon = strchr(text, ':'), *at = colon;
    snprintf(name, size, "%s", colon ? "none" : "captured");
    while (at && *at) {
        if (!strncmp(++at, "regime=", 7)) {
            snprintf(name, size, "%.*s", (int)strcspn(at + 7, ","), at + 7);
            return;
        }
        at = strchr(at, ',');
    }
}

static bool add_names(const struct line *l)
{
    static const char *const keys[] = {"seed", "tier", "date"};
    struct report *r = l->report;
    struct report_name **lists[] = {&r->seeds, &r->tiers, &r->dates};
    size_t *counts[] = {&r->n_seeds, &r->n_tiers, &r->n_dates};
    for (int i = 0; i < 3; i++) {
        char text[sizeof(struct report_name)];
        if (!read_text(l, keys[i], text, sizeof text)) return false;
        if (text[0] && !report_add_name(lists[i], counts[i], text)) return FAIL(l, "out of memory");
    }
    return true;
}

static bool add_failure(const struct line *l, const char *check, const char *text)
{
    struct report *r = l->report;
    struct report_failure *grown = report_grow(r->failures, r->n_failures, sizeof *grown);
    if (!grown) return FAIL(l, "out of memory");
    r->failures = grown;
    struct report_failure *f = &grown[r->n_failures++];
    memcpy(f->op, l->record->op, sizeof f->op);
    memcpy(f->backend, l->record->backend, sizeof f->backend);
    snprintf(f->check, sizeof f->check, "%s", check);
    f->verdict = l->verdict;
    f->case_text = strdup(l->record->case_text);
    f->text = strdup(text);
    return f->case_text && f->text ? true : FAIL(l, "out of memory");
}

static bool add_own_failure(const struct line *l)
{
    const cJSON *text = field(l, "text");
    if (l->verdict != VERDICT_FAIL && l->verdict != VERDICT_ERROR) return true;
    if (text && !cJSON_IsString(text)) return FAIL(l, "text is no text");
    return add_failure(l, l->record->check, text ? text->valuestring : "");
}

static bool add_backend(const struct line *l, const struct report_counts *c)
{
    struct report_backend *b = report_backend(l->report, l->record->backend);
    if (!b) return FAIL(l, "out of memory");
    b->cases += c->cases;
    b->failed += c->failed;
    b->errors += c->errors;
    b->seconds += c->seconds;
    b->kernel_seconds += c->kernel_seconds;
    for (int k = 0; k < CHECK_COUNT; k++) b->checks += c->checks[k];
    return true;
}

static bool add_new_case(const struct line *l, const struct report_counts *c)
{
    struct report_op *o = report_op(l->report, l->record->op);
    char name[sizeof((struct report_regime *)0)->name];
    regime_of(l->record->case_text, name, sizeof name);
    struct report_regime *regime = o ? report_regime(o, name) : NULL;
    if (!regime) return FAIL(l, "out of memory");
    report_counts_add(&regime->counts, c);
    if (c->refused) {
        struct report_rule *rule = report_rule(o, l->record->check);
        if (!rule) return FAIL(l, "out of memory");
        rule->cases++;
    }
    const cJSON *tier = field(l, "tier");
    l->report->drawn += cJSON_IsString(tier) && strcmp(tier->valuestring, "replay") != 0;
    return add_backend(l, c) && add_own_failure(l) && add_names(l);
}

static bool add_case(const struct line *l)
{
    struct report_counts c;
    uint64_t digest;
    if (!read_counts(l, &c) || !read_digest(l, &digest)) return false;
    switch (report_seen_add(&l->report->seen, l->record->op, l->record->case_text,
                            l->record->backend, l->verdict, digest)) {
    case SEEN_NEW: return add_new_case(l, &c);
    case SEEN_SAME: l->report->repeats++; return true;
    case SEEN_OTHER:
        l->report->unsteady++;
        return add_failure(l, "repeated",
                           "  the same case gave another verdict or other bits in "
                           "another run\n");
    case SEEN_MEMORY: break;
    }
    return FAIL(l, "out of memory");
}

static bool add_rules(const struct line *l, struct report_op *o)
{
    const cJSON *object = field(l, "rules"), *item;
    if (!object) return true;
    if (!cJSON_IsObject(object)) return FAIL(l, "rules is no object");
    cJSON_ArrayForEach(item, object)
    {
        if (!is_count(item) || strlen(item->string) >= sizeof o->rules->name)
            return FAIL(l, "rules: %.40s is no rule with a count", item->string);
        struct report_rule *rule = report_rule(o, item->string);
        if (!rule) return FAIL(l, "out of memory");
        rule->geometries += (uint64_t)item->valuedouble;
    }
    return true;
}

/* A sweep runs no kernel: it is the same on every backend, but not for every seed. */
static enum seen see_sweep(const struct line *l, const char *seed, uint64_t refused)
{
    size_t size = strlen(l->record->case_text) + strlen(seed) + 2;
    char *text = malloc(size);
    if (!text) return SEEN_MEMORY;
    snprintf(text, size, "%s %s", l->record->case_text, seed);
    enum seen seen =
        report_seen_add(&l->report->seen, l->record->op, text, "sweep", l->verdict, refused);
    free(text);
    return seen;
}

static bool add_sweep(const struct line *l)
{
    uint64_t geometries, refused;
    char seed[32];
    struct report_op *o = report_op(l->report, l->record->op);
    if (!o) return FAIL(l, "out of memory");
    if (!read_count(l, "geometries", &geometries) || !read_count(l, "refused", &refused) ||
        !read_text(l, "seed", seed, sizeof seed))
        return false;
    switch (see_sweep(l, seed, refused)) {
    case SEEN_NEW: break;
    case SEEN_SAME: l->report->repeats++; return true;
    case SEEN_OTHER: return FAIL(l, "this sweep stands in the input twice, with different results");
    case SEEN_MEMORY: return FAIL(l, "out of memory");
    }
    o->total.checks[CHECK_REFUSAL] += geometries;
    o->sweeps_failed += l->verdict == VERDICT_FAIL;
    o->total.errors += l->verdict == VERDICT_ERROR;
    if (l->verdict == VERDICT_PASS) {
        o->geometries += geometries;
        o->geometries_refused += refused;
        if (!add_rules(l, o)) return false;
    }
    return add_own_failure(l) && add_names(l);
}

/* The entry for this kernel and backend; of two results for one the worse is kept. NULL with *fine
 * set: this one is not needed. */
static struct report_broken *broken_entry(const struct line *l, const char *name, bool *fine)
{
    struct report *r = l->report;
    *fine = true;
    for (size_t i = 0; i < r->n_broken; i++) {
        struct report_broken *b = &r->broken[i];
        if (strcmp(b->name, name) || strcmp(b->backend, l->record->backend)) continue;
        if (l->verdict == VERDICT_FAIL || b->verdict != VERDICT_FAIL) return NULL;
        free(b->bug);
        free(b->case_text);
        memset(b, 0, sizeof *b);
        return b;
    }
    struct report_broken *grown = report_grow(r->broken, r->n_broken, sizeof *grown);
    *fine = grown != NULL;
    if (!grown) return NULL;
    r->broken = grown;
    return &grown[r->n_broken++];
}

static bool add_broken(const struct line *l)
{
    const cJSON *bug = field(l, "bug");
    char name[sizeof((struct report_broken *)0)->name];
    bool fine;
    if (!cJSON_IsString(bug)) return FAIL(l, "bug is no text");
    if (!read_text(l, "kernel", name, sizeof name)) return false;
    struct report_broken *b = broken_entry(l, name, &fine);
    if (!b) return fine ? true : FAIL(l, "out of memory");
    memcpy(b->name, name, sizeof name);
    memcpy(b->op, l->record->op, sizeof b->op);
    memcpy(b->backend, l->record->backend, sizeof b->backend);
    memcpy(b->check, l->record->check, sizeof b->check);
    b->verdict = l->verdict;
    b->seconds = l->record->seconds;
    b->bug = strdup(bug->valuestring);
    b->case_text = strdup(l->record->case_text);
    if (!b->bug || !b->case_text) return FAIL(l, "out of memory");
    return read_text(l, "kind", b->kind, sizeof b->kind) &&
           read_text(l, "like", b->like, sizeof b->like) && read_count(l, "cases", &b->cases) &&
           add_names(l);
}

static bool add_line(struct line *l)
{
    for (l->verdict = VERDICT_PASS; strcmp(verdict_names[l->verdict], l->record->verdict);)
        l->verdict++; /* the reader allows no other text */
    if (field(l, "kernel")) return add_broken(l);
    return field(l, "geometries") ? add_sweep(l) : add_case(l);
}

bool report_read(struct report *r, const char *path, char *error, size_t size)
{
    struct jsonl_reader *reader;
    struct jsonl_record record;
    enum jsonl_status status;
    if (!jsonl_open(path, &reader, error, size)) return false;
    while ((status = jsonl_next(reader, &record, error, size)) == JSONL_RECORD) {
        struct line l = {r, path, &record, VERDICT_PASS, error, size};
        if (!add_line(&l)) break;
    }
    jsonl_close(reader);
    return status == JSONL_END;
}
