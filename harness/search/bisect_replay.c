#include "harness/search/bisect_replay.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/error_text.h"
#include "harness/base/process.h"
#include "harness/case/op.h"
#include "harness/session/options.h"

static void set(struct replay *r, enum replay_outcome outcome, const char *check,
                const char *before, const char *detail)
{
    char why[sizeof r->why];
    r->outcome = outcome;
    snprintf(r->check, sizeof r->check, "%s", check);
    snprintf(why, sizeof why, "%s%s", before, detail);
    why[strcspn(why, "\n")] = 0;
    error_text(r->why, sizeof r->why, "%s", why);
}

bool replay_drop_key(const char *text, const char *key, char *without, size_t size, char *value,
                     size_t value_size)
{
    const char *at = strchr(text, ':');
    size_t key_length = strlen(key);
    while (at) {
        const char *start = at + 1, *end = start + strcspn(start, "=");
        bool inside = false;
        for (; *end && (inside || *end != ','); end++)
            inside = *end == '[' || (inside && *end != ']');
        if (!strncmp(start, key, key_length) && start[key_length] == '=') {
            snprintf(value, value_size, "%.*s", (int)(end - start - (long)key_length - 1),
                     start + key_length + 1);
            /* With the separator behind it, or with the one before it if it is the last. */
            const char *rest = *end ? end + 1 : end;
            int kept = (int)((*end ? start : at) - text);
            snprintf(without, size, "%.*s%s", kept, text, rest);
            return true;
        }
        at = *end ? end : NULL;
    }
    return false;
}

/* Whether the operation's own default for this key is that value. */
static bool is_default(const char *case_text, const char *key, const char *value)
{
    static struct case_line given, initial;
    static char text[CASE_TEXT_MAX], a[CASE_TEXT_MAX], b[CASE_TEXT_MAX];
    char error[512];
    const struct op *op = op_find(case_text, strcspn(case_text, ":"));
    if (!op) return false;
    snprintf(text, sizeof text, "%s:%s=%s", op->name, key, value);
    if (!case_parse(text, &given, error, sizeof error)) return false;
    case_init(&initial, op);
    case_print(&given, a, sizeof a);
    case_print(&initial, b, sizeof b);
    return strcmp(a, b) == 0;
}

/* "OP has no key 'NAME'" in what the build said. */
static bool unknown_key(const char *errors, char *key, size_t size)
{
    static const char mark[] = "has no key '";
    const char *at = strstr(errors, mark);
    if (!at) return false;
    at += sizeof mark - 1;
    snprintf(key, size, "%.*s", (int)strcspn(at, "'\n"), at);
    return key[0] != 0;
}

static bool start(const struct replay_request *q, const char *command, bool json, const char *text,
                  struct process_result *p, char *error, size_t size)
{
    const char *argv[10];
    int n = 0;
    argv[n++] = q->program;
    argv[n++] = command;
    if (json) argv[n++] = "--json";
    if (q->backend) {
        argv[n++] = "--backend";
        argv[n++] = q->backend;
    }
    if (q->module) {
        argv[n++] = "--module";
        argv[n++] = q->module;
    }
    argv[n++] = text;
    argv[n] = NULL;
    struct process_options o = {q->directory, q->timeout_s, q->stop};
    return process_run(argv, &o, p, error, size);
}

/* The result line among what the build printed. */
static cJSON *find_result(const char *output)
{
    const char *end;
    for (const char *line = output; *line; line = *end ? end + 1 : end) {
        end = line + strcspn(line, "\n");
        cJSON *object = cJSON_ParseWithLength(line, (size_t)(end - line));
        if (cJSON_IsString(cJSON_GetObjectItemCaseSensitive(object, "verdict"))) return object;
        cJSON_Delete(object);
    }
    return NULL;
}

static const char *text_of(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsString(item) ? item->valuestring : "";
}

static void judge_result(const cJSON *object, struct replay *r)
{
    const char *verdict = text_of(object, "verdict"), *check = text_of(object, "check");
    if (!strcmp(verdict, "pass"))
        set(r, REPLAY_RIGHT, "", "", "");
    else if (!strcmp(verdict, "fail"))
        set(r, REPLAY_FAILS, check, "check ", check);
    else if (!strcmp(verdict, "refused"))
        set(r, REPLAY_CANNOT_SAY, check, "it refuses the case: rule ", check);
    else
        set(r, REPLAY_BROKE, check, "it gave an error: ", check);
}

static void judge_exit(const struct process_result *p, struct replay *r)
{
    char number[16];
    if (p->timed_out || p->stopped) {
        set(r, REPLAY_BROKE, "", "it ", p->stopped ? "was stopped" : "took too long");
    } else if (p->exit_code < 0) {
        snprintf(number, sizeof number, "%d", p->signal);
        set(r, REPLAY_BROKE, "", "it died of signal ", number);
    } else if (p->exit_code == EXIT_UNAVAILABLE) {
        set(r, REPLAY_BROKE, "", "the backend is not available here", "");
    } else if (p->exit_code == EXIT_USAGE) {
        set(r, REPLAY_CANNOT_SAY, "", "it does not take the case: ", p->errors);
    } else if (p->exit_code == EXIT_PASS || p->exit_code == EXIT_WRONG) {
        set(r, REPLAY_CANNOT_SAY, "", "it prints no result lines", "");
    } else {
        set(r, REPLAY_BROKE, "", "it ended with an error: ", p->errors);
    }
}

/* Takes a key that the build does not know out of the case, if that is allowed. */
static bool drop_unknown(const struct process_result *p, struct replay *r)
{
    static char without[CASE_TEXT_MAX], value[CASE_TEXT_MAX];
    char key[64];
    if (r->outcome != REPLAY_CANNOT_SAY || !unknown_key(p->errors, key, sizeof key) ||
        !replay_drop_key(r->case_text, key, without, sizeof without, value, sizeof value))
        return false;
    if (is_default(r->case_text, key, value)) {
        memcpy(r->case_text, without, sizeof without);
        return true;
    }
    set(r, REPLAY_CANNOT_SAY, "",
        "the case has a value other than the default for a key that it "
        "does not know: ",
        key);
    return false;
}

/* One run. True if it must run again, with r->case_text changed. */
static bool run_once(const struct replay_request *q, struct replay *r)
{
    struct process_result p;
    char error[300];
    bool again = false;
    if (!start(q, "run", true, r->case_text, &p, error, sizeof error)) {
        set(r, REPLAY_BROKE, "", "", error);
        return false;
    }
    cJSON *object = p.timed_out || p.stopped ? NULL : find_result(p.output);
    if (object) {
        judge_result(object, r);
    } else {
        judge_exit(&p, r);
        again = drop_unknown(&p, r);
    }
    cJSON_Delete(object);
    process_result_free(&p);
    return again;
}

void replay_case(const struct replay_request *q, const char *case_text, struct replay *r)
{
    memset(r, 0, sizeof *r);
    if (strlen(case_text) >= sizeof r->case_text) {
        set(r, REPLAY_CANNOT_SAY, "", "the case is too long", "");
        return;
    }
    snprintf(r->case_text, sizeof r->case_text, "%s", case_text);
    /* Every round drops a key, so this ends. */
    while (run_once(q, r)) continue;
}

char *replay_explain(const struct replay_request *q, const char *case_text)
{
    struct process_result p;
    char error[300];
    if (!start(q, "explain", false, case_text, &p, error, sizeof error)) return NULL;
    char *text = p.output;
    p.output = NULL;
    process_result_free(&p);
    if (text[0]) return text;
    free(text);
    return NULL;
}
