#include "harness/session/options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum option_id {
    OPT_CASES = 256, OPT_GEOMETRIES, OPT_SEED, OPT_JOBS, OPT_REPEATS, OPT_SHARD, OPT_TIER,
    OPT_TIMEOUT, OPT_WATCHDOG, OPT_JSON, OPT_NO_TRACE, OPT_NO_RELATIONS, OPT_QUIET, OPT_BACKEND,
    OPT_REPORT, OPT_MODULE, OPT_SOURCE, OPT_KERNEL, OPT_MODEL, OPT_MINIMIZE, OPT_BUDGET,
    OPT_STATE, OPT_FINDINGS, OPT_EDITS, OPT_PROCESSES, OPT_KNOWN,
    OPT_RANDOM, OPT_CHECKER, OPT_AGAINST
};

/* Groups of commands that take the same options. */
#define LAUNCHING "verify run fuzz minimize explain broken fences bench replay"
#define ONE_KERNEL "verify run fuzz minimize explain fences bench" /* that may be from elsewhere */
#define POOLED "verify run fuzz minimize broken fences"            /* worker processes */

static const struct {
    enum option_id id;
    const char *name, *argument;
    const char *commands; /* that take it, separated by blanks */
    const char *help;
} table[] = {
    {OPT_CASES, "cases", "N", "verify broken bench", "random cases an operation (default 500; decode twice that)"},
    {OPT_SEED, "seed", "S", "verify fuzz broken fences bench",
     "seed of the choice of cases and of their data (default 1)"},
    {OPT_JOBS, "jobs", "N", POOLED " bench", "cases in work at a time (default: one a core)"},
    {OPT_PROCESSES, "processes", "N", "verify run fuzz",
     "processes that share the cases in work on a GPU (default 1; CPU: always one each)"},
    {OPT_BACKEND, "backend", "NAME", LAUNCHING, "simt (on the CPU) or cuda"},
    {OPT_TIER, "tier", "NAME", "verify fuzz broken bench", "quick (default) or full: larger geometries"},
    {OPT_JSON, "json", NULL, "verify run broken fences bench",
     "one JSON object a line on standard output, no table"},
    {OPT_REPORT, "report", "FILE", "verify run", "write a Markdown report"},
    {OPT_REPEATS, "repeats", "N", "verify run fuzz minimize",
     "further launches of every case for determinism (default 0)"},
    {OPT_GEOMETRIES, "geometries", "N", "verify",
     "random geometries an operation for refusal agreement (default 10000)"},
    {OPT_SHARD, "shard", "I/N", "verify run", "do only the I-th of N parts of the run, I from 0"},
    {OPT_TIMEOUT, "timeout", "S", POOLED, "seconds a case may take (default 120)"},
    {OPT_WATCHDOG, "watchdog", "MS", LAUNCHING, "milliseconds a launch may take (default 20000)"},
    {OPT_NO_TRACE, "no-trace", NULL, "verify run fuzz minimize broken bench",
     "leave out the instrumented run of the CPU backend"},
    {OPT_NO_RELATIONS, "no-relations", NULL, "verify run fuzz minimize broken bench",
     "leave out the metamorphic relations"},
    {OPT_MODULE, "module", "FILE", ONE_KERNEL,
     "kernels from elsewhere: .so for simt; cubin, fatbin, PTX for cuda"},
    {OPT_SOURCE, "source", "FILE", ONE_KERNEL,
     "kernels from elsewhere as CUDA source, for the CPU backend"},
    {OPT_KERNEL, "kernel", "OP=ENTRY", ONE_KERNEL, "name of the entry point in that module"},
    {OPT_MODEL, "model", "KEY=VALUE,..", "verify run fuzz minimize explain judge",
     "its error model: exp_ulp, rsqrt_ulp, div_ulp, p_bf16, tensor_core, mma_k, rescales_per_key, "
     "rescales_fixed"},
    {OPT_KNOWN, "known", "FILE", "verify run",
     "departures of the kernel from the contract that its author declares, a name a line"},
    {OPT_MINIMIZE, "minimize", NULL, "broken", "shrink the case that catches each kernel"},
    {OPT_RANDOM, "random", "N", "broken",
     "count the random cases until each kernel is caught, with N seeds; no stored cases"},
    {OPT_BUDGET, "budget", "S", "fuzz minimize broken",
     "seconds that minimising or fuzzing may take (default 120)"},
    {OPT_STATE, "state", "FILE", "fuzz", "go on from FILE where there is one, and keep it up to date"},
    {OPT_FINDINGS, "findings", "DIR", "fuzz", "where findings are written (default findings)"},
    {OPT_EDITS, "edits", "DIR", "broken", "edits of this folder, their modules beside them"},
    {OPT_CHECKER, "checker", NULL, "bench",
     "where the time of checking a case goes, instead of the kernels' own"},
    {OPT_AGAINST, "against", "FILE", "bench",
     "compare with an earlier run's JSON lines; `torch`: with what PyTorch takes"},
    {OPT_QUIET, "quiet", NULL, POOLED, "no progress, only failures and the last lines"},
};
enum { TABLE_SIZE = sizeof table / sizeof *table };

/* Whether the command is one of the blank-separated words. */
static bool takes(const char *words, const char *command)
{
    size_t length = strlen(command);
    for (const char *word = words; *word; word += strspn(word, " ")) {
        size_t n = strcspn(word, " ");
        if (n == length && !memcmp(word, command, n)) return true;
        word += n;
    }
    return false;
}

void options_help(const char *command)
{
    puts("Options:");
    for (size_t i = 0; i < TABLE_SIZE; i++) {
        char left[64];
        if (!takes(table[i].commands, command)) continue;
        snprintf(left, sizeof left, "--%s%s%s", table[i].name, table[i].argument ? " " : "",
                 table[i].argument ? table[i].argument : "");
        printf("  %-26s %s\n", left, table[i].help);
    }
}

static bool number(const char *name, const char *text, uint64_t low, uint64_t high, uint64_t *value)
{
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 0);
    if (errno || end == text || *end || *text == '-' || v < low || v > high) {
        fprintf(stderr, "attest: --%s %s: a whole number from %llu to %llu is needed\n", name, text,
                (unsigned long long)low, (unsigned long long)high);
        return false;
    }
    *value = v;
    return true;
}

static bool seconds(const char *name, const char *text, double *value)
{
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end || !(v > 0) || v > 1e6) {
        fprintf(stderr, "attest: --%s %s: seconds above 0 are needed\n", name, text);
        return false;
    }
    *value = v;
    return true;
}

bool options_model(const char *text, struct ref_error_model *m, char *error, size_t size)
{
    while (*text) {
        char key[32], *end;
        double value;
        size_t length = strcspn(text, "=");
        if (length >= sizeof key || text[length] != '=') {
            snprintf(error, size, "'%s': expected key=value", text);
            return false;
        }
        memcpy(key, text, length);
        key[length] = 0;
        value = strtod(text + length + 1, &end);
        if (end == text + length + 1 || (*end && *end != ',') || !(value >= 0) || value > 1e6) {
            snprintf(error, size, "%s: a number from 0 to 1e6 is needed", key);
            return false;
        }
        if (!strcmp(key, "exp_ulp")) m->exp_ulp = value;
        else if (!strcmp(key, "rsqrt_ulp")) m->rsqrt_ulp = value;
        else if (!strcmp(key, "div_ulp")) m->div_ulp = value;
        else if (!strcmp(key, "p_bf16") && (value == 0 || value == 1 || value == 2))
            m->p_bf16 = (uint32_t)value;
        else if (!strcmp(key, "tensor_core")) m->tensor_core = value != 0;
        else if (!strcmp(key, "mma_k") && value >= 1) m->mma_k = (uint32_t)value;
        else if (!strcmp(key, "rescales_per_key")) m->rescales_per_key = value;
        else if (!strcmp(key, "rescales_fixed")) m->rescales_fixed = value;
        else {
            snprintf(error, size, "the error model has no '%s' (or not with %g)", key, value);
            return false;
        }
        text = *end ? end + 1 : end;
    }
    return true;
}

static bool shard(const char *text, struct options *o)
{
    unsigned i, n;
    char rest;
    if (sscanf(text, "%u/%u%c", &i, &n, &rest) != 2 || n == 0 || i >= n) {
        fprintf(stderr, "attest: --shard %s: I/N with I from 0 to N-1 is needed\n", text);
        return false;
    }
    o->shard = i;
    o->shards = n;
    return true;
}

static bool choice(const char *name, const char *text, const char *a, const char *b, bool *second)
{
    *second = !strcmp(text, b);
    if (*second || !strcmp(text, a)) return true;
    fprintf(stderr, "attest: --%s %s: it is %s or %s\n", name, text, a, b);
    return false;
}

static bool apply(enum option_id id, const char *text, struct options *o)
{
    uint64_t value = 0;
    bool second = false;
    char error[160];
    switch (id) {
    case OPT_CASES: return number("cases", text, 0, 100000000, &o->cases);
    case OPT_GEOMETRIES: return number("geometries", text, 0, 1000000000, &o->geometries);
    case OPT_SEED: return number("seed", text, 0, UINT64_MAX, &o->seed);
    case OPT_JOBS:
        if (!number("jobs", text, 1, 1024, &value)) return false;
        o->jobs = (uint32_t)value;
        return true;
    case OPT_PROCESSES:
        if (!number("processes", text, 1, 1024, &value)) return false;
        o->processes = (uint32_t)value;
        return true;
    case OPT_RANDOM:
        if (!number("random", text, 1, 1000, &value)) return false;
        o->random = (uint32_t)value;
        return true;
    case OPT_REPEATS:
        if (!number("repeats", text, 0, 10000, &value)) return false;
        o->repeats = (uint32_t)value;
        return true;
    case OPT_WATCHDOG:
        if (!number("watchdog", text, 1, 3600000, &value)) return false;
        o->watchdog_ms = (uint32_t)value;
        return true;
    case OPT_TIMEOUT: return seconds("timeout", text, &o->timeout_s);
    case OPT_SHARD: return shard(text, o);
    case OPT_TIER:
        if (!choice("tier", text, "quick", "full", &second)) return false;
        o->tier = second ? TIER_FULL : TIER_QUICK;
        return true;
    case OPT_BACKEND:
        o->backend = text;
        o->backend_given = true;
        return choice("backend", text, "simt", "cuda", &second);
    case OPT_JSON: return o->json = true;
    case OPT_NO_TRACE: return o->no_trace = true;
    case OPT_NO_RELATIONS: return o->no_relations = true;
    case OPT_QUIET: return o->quiet = true;
    case OPT_CHECKER: return o->checker = true;
    case OPT_AGAINST: o->against = text; return true;
    case OPT_MINIMIZE: return o->minimize = true;
    case OPT_BUDGET: return seconds("budget", text, &o->budget_s);
    case OPT_REPORT: o->report = text; return true;
    case OPT_STATE: o->state = text; return true;
    case OPT_FINDINGS: o->findings = text; return true;
    case OPT_EDITS: o->edits = text; return true;
    case OPT_MODULE: o->module = text; return true;
    case OPT_SOURCE: o->source = text; return true;
    case OPT_KNOWN: o->known = text; return true;
    case OPT_KERNEL: o->kernel_map = text; return true;
    case OPT_MODEL:
        o->model_given = true;
        o->model_text = text;
        if (options_model(text, &o->model, error, sizeof error)) return true;
        fprintf(stderr, "attest: --model %s: %s\n", text, error);
        return false;
    }
    return false;
}

static uint64_t given_bit(enum option_id id) { return UINT64_C(1) << (id - OPT_CASES); }

static void set_defaults(struct options *o)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    memset(o, 0, sizeof *o);
    o->cases = 500;
    o->geometries = 10000;
    o->seed = 1;
    o->jobs = cores > 0 && cores < 1024 ? (uint32_t)cores : 2;
    o->processes = 1;
    o->shards = 1;
    o->watchdog_ms = 20000;
    o->timeout_s = 120;
    o->budget_s = 120;
    o->backend = "simt";
    o->findings = "findings";
    o->model = REF_MODEL_DEFAULT;
}

/* What getopt_long could not take: argv[optind - 1], or the letter in optopt. */
static void print_unknown(int id, char **argv)
{
    const char *word = argv[optind - 1];
    if (id == ':')
        fprintf(stderr, "attest: %s needs a value", word);
    else if (optopt > 255)
        fprintf(stderr, "attest: %.*s takes no value", (int)strcspn(word, "="), word);
    else if (optopt)
        fprintf(stderr, "attest: -%c is not an option", optopt);
    else
        fprintf(stderr, "attest: %s is not an option", word);
    fprintf(stderr, "; `attest %s --help` lists the options\n", argv[0]);
}

static bool accepted(enum option_id id, const char *command)
{
    size_t i = 0;
    while (table[i].id != id) i++;
    if (takes(table[i].commands, command)) return true;
    fprintf(stderr, "attest: --%s is for %s, not for %s; `attest %s --help` lists its options\n",
            table[i].name, table[i].commands, command, command);
    return false;
}

bool options_parse(int argc, char **argv, struct options *o)
{
    struct option longs[TABLE_SIZE + 1];
    memset(longs, 0, sizeof longs);
    for (size_t i = 0; i < TABLE_SIZE; i++)
        longs[i] = (struct option){table[i].name, table[i].argument ? required_argument : no_argument,
                                   NULL, (int)table[i].id};
    set_defaults(o);
    optind = 1;
    opterr = 0;
    for (;;) {
        int id = getopt_long(argc, argv, ":", longs, NULL);
        if (id == -1) break;
        if (id == '?' || id == ':') {
            print_unknown(id, argv);
            return false;
        }
        if (!accepted((enum option_id)id, argv[0]) || !apply((enum option_id)id, optarg, o))
            return false;
        o->given |= given_bit((enum option_id)id);
    }
    o->words = argv + optind;
    o->n_words = argc - optind;
    return true;
}

static void add_flag(const char *name, const char *value, char *text, size_t size)
{
    size_t used = strlen(text);
    if (!value) return;
    used += (size_t)snprintf(text + used, size - used, " --%s '", name);
    for (; *value && used + 8 < size; value++)
        used += (size_t)snprintf(text + used, size - used, *value == '\'' ? "'\\''" : "%c", *value);
    if (used + 2 < size) snprintf(text + used, size - used, "'");
}

void options_replay_flags(const struct options *o, char *text, size_t size)
{
    text[0] = 0;
    if (strcmp(o->backend, "simt")) add_flag("backend", o->backend, text, size);
    add_flag("source", o->source, text, size);
    add_flag("module", o->module, text, size);
    add_flag("kernel", o->kernel_map, text, size);
    add_flag("model", o->model_text, text, size);
    add_flag("known", o->known, text, size);
}

/* What a file of cases may ask for. What the command line says, it cannot change; of several files
 * the most patient and the least parallel counts. */
static bool apply_wish(enum option_id id, const char *text, struct options *o)
{
    struct options wish = *o;
    if (!apply(id, text, &wish)) return false;
    if (o->given & given_bit(id)) return true;
    if (id == OPT_JOBS && wish.jobs < o->jobs) o->jobs = wish.jobs;
    if (id == OPT_TIMEOUT && wish.timeout_s > o->timeout_s) o->timeout_s = wish.timeout_s;
    if (id == OPT_WATCHDOG && wish.watchdog_ms > o->watchdog_ms) o->watchdog_ms = wish.watchdog_ms;
    o->no_trace = wish.no_trace;
    o->no_relations = wish.no_relations;
    return true;
}

bool options_wishes(const char *text, struct options *o, char *error, size_t size)
{
    static const enum option_id allowed[] = {OPT_JOBS, OPT_TIMEOUT, OPT_WATCHDOG, OPT_NO_TRACE,
                                             OPT_NO_RELATIONS};
    char copy[512], *rest = NULL;
    if ((size_t)snprintf(copy, sizeof copy, "%s", text) >= sizeof copy) {
        snprintf(error, size, "a line of options is longer than %zu characters", sizeof copy - 1);
        return false;
    }
    for (char *word = strtok_r(copy, " \t\r\n", &rest); word; word = strtok_r(NULL, " \t\r\n", &rest)) {
        size_t a = 0, t = 0, n_allowed = sizeof allowed / sizeof *allowed;
        while (t < TABLE_SIZE && (strncmp(word, "--", 2) || strcmp(word + 2, table[t].name))) t++;
        while (t < TABLE_SIZE && a < n_allowed && allowed[a] != table[t].id) a++;
        if (t == TABLE_SIZE || a == n_allowed) {
            snprintf(error, size, "'%s' is nothing a file can ask for; --jobs, --timeout, "
                                  "--watchdog, --no-trace and --no-relations are", word);
            return false;
        }
        const char *value = table[t].argument ? strtok_r(NULL, " \t\r\n", &rest) : NULL;
        if (table[t].argument && !value) {
            snprintf(error, size, "%s needs a value", word);
            return false;
        }
        if (!apply_wish(table[t].id, value, o)) {
            snprintf(error, size, "%s %s is not possible", word, value ? value : "");
            return false;
        }
    }
    return true;
}

bool options_given(const struct options *o, const char *name)
{
    size_t i = 0;
    while (strcmp(table[i].name, name)) i++;
    return o->given & given_bit(table[i].id);
}

bool options_no_words(const struct options *o, const char *command)
{
    if (!o->n_words) return true;
    fprintf(stderr, "attest: %s takes no argument, but here is '%s'; `attest %s --help`\n", command,
            o->words[0], command);
    return false;
}
