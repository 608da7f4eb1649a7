#include "harness/session/job_json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "harness/base/text.h"
#include "harness/files/json_lines.h"
#include "harness/session/faults.h"

void session_json_date(char *date, size_t size)
{
    time_t seconds = time(NULL);
    struct tm day;
    if (!gmtime_r(&seconds, &day) || !strftime(date, size, "%Y-%m-%d", &day)) date[0] = 0;
}

/* The counts are fixed-width decimal, so that a line is found and raised in place. */
void session_json_rule(struct result *r, const char *rule)
{
    size_t length = strlen(rule);
    char count[16];
    for (char *at = r->text; *at; at += strcspn(at, "\n") + 1) {
        if (strncmp(at, rule, length) || at[length] != ' ') continue;
        snprintf(count, sizeof count, "%08lu", strtoul(at + length + 1, NULL, 10) + 1);
        memcpy(at + length + 1, count, 8);
        return;
    }
    struct text t = text_on(r->text, sizeof r->text);
    text_add(&t, "%s %08d\n", rule, 1);
}

static void add_rules(cJSON *fields, const char *text)
{
    cJSON *rules = cJSON_AddObjectToObject(fields, "rules");
    char rule[64];
    unsigned long count;
    int used;
    while (sscanf(text, "%63s %lu\n%n", rule, &count, &used) == 2) {
        cJSON_AddNumberToObject(rules, rule, (double)count);
        text += used;
    }
}

static void add_bins(cJSON *fields, const char *key, const uint64_t *bins, int count)
{
    uint64_t any = 0;
    for (int i = 0; i < count; i++) any |= bins[i];
    if (!any) return;
    cJSON *array = cJSON_AddArrayToObject(fields, key);
    for (int i = 0; i < count; i++)
        cJSON_AddItemToArray(array, cJSON_CreateNumber((double)bins[i]));
}

static void add_case(cJSON *fields, const struct result *r)
{
    char digest[24];
    cJSON_AddNumberToObject(fields, "compared", (double)r->compared);
    cJSON_AddNumberToObject(fields, "nearest", (double)r->nearest);
    cJSON_AddNumberToObject(fields, "unjudged", (double)r->unjudged);
    cJSON_AddNumberToObject(fields, "ulp", isfinite(r->max_ulp) ? r->max_ulp : -1);
    cJSON_AddNumberToObject(fields, "identical", r->identical);
    cJSON_AddNumberToObject(fields, "equivalent", r->equivalent);
    cJSON *known = NULL;
    for (int i = 0; i < DEPARTURE_COUNT; i++) {
        if (!r->departed[i]) continue;
        if (!known) known = cJSON_AddObjectToObject(fields, "known");
        cJSON_AddNumberToObject(known, departure_names[i], (double)r->departed[i]);
    }
    add_bins(fields, "ratios", r->spread.ratio, RATIO_BINS);
    add_bins(fields, "ulps", r->spread.ulp, ULP_BINS);
    add_bins(fields, "margins", r->spread.margin, MARGIN_BINS);
    cJSON_AddNumberToObject(fields, "kernel_seconds", r->kernel_seconds);
    snprintf(digest, sizeof digest, "%016" PRIx64, r->digest);
    cJSON_AddStringToObject(fields, "digest", digest);
}

bool session_json(FILE *stream, const struct json_origin *origin, const struct job *job,
                  const char *op, const char *text, const struct result *r, char *error,
                  size_t error_size)
{
    struct jsonl_record record = {.case_text = text, .seconds = r->seconds};
    bool swept = job->kind == JOB_SWEEP;
    char seed[24], key[FAULT_KEY_MAX];
    snprintf(record.op, sizeof record.op, "%s", op);
    snprintf(record.backend, sizeof record.backend, "%s", origin->backend);
    snprintf(record.verdict, sizeof record.verdict, "%s", verdict_names[r->verdict]);
    snprintf(record.check, sizeof record.check, "%s", r->check);
    record.ratio = r->compared && !swept ? r->worst_ratio : NAN;
    cJSON *fields = cJSON_CreateObject(), *checks = cJSON_AddObjectToObject(fields, "checks");
    for (int k = 0; k < CHECK_COUNT; k++) {
        if (r->checks[k]) cJSON_AddNumberToObject(checks, check_names[k], r->checks[k]);
    }
    /* 64 bits do not fit into a JSON number. */
    snprintf(seed, sizeof seed, "%" PRIu64, origin->seed);
    cJSON_AddStringToObject(fields, "seed", seed);
    cJSON_AddStringToObject(fields, "tier", origin->tier);
    cJSON_AddStringToObject(fields, "date", origin->date);
    if (swept) {
        cJSON_AddNumberToObject(fields, "geometries", r->checks[CHECK_REFUSAL]);
        cJSON_AddNumberToObject(fields, "refused", (double)r->compared);
        if (r->verdict == VERDICT_PASS) add_rules(fields, r->text);
    } else {
        add_case(fields, r);
    }
    if (r->text[0] && r->verdict != VERDICT_PASS) cJSON_AddStringToObject(fields, "text", r->text);
    if (r->verdict == VERDICT_FAIL || r->verdict == VERDICT_ERROR) {
        fault_key(r, key, sizeof key);
        cJSON_AddStringToObject(fields, "fault", key);
    }
    record.fields = fields;
    bool fine = jsonl_write(stream, &record, error, error_size);
    cJSON_Delete(fields);
    return fine;
}
