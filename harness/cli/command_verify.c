#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "harness/captured/captured.h"
#include "harness/cli/commands.h"
#include "harness/session/session.h"

static void verify_help(void)
{
    puts("attest verify [OPERATION…] [options]\n\n"
         "Runs random cases of the named operations (all of them without a name) through the "
         "kernel\n"
         "and the oracle, with every check. `attest list --ops` shows the operations; a family "
         "name\n"
         "(dsa, qsa) stands for all of its operations.\n\n"
         "  attest verify                                  everything, CPU backend\n"
         "  attest verify qsa_topk_rows --cases 5000 --seed 7\n"
         "  attest verify dsa --backend cuda --jobs 16\n"
         "  attest verify --json > results.jsonl           one line a case\n"
         "  attest verify glm5next_dsa_mla_decode_fp8 --source mine.cu --model exp_ulp=2.5\n");
    options_help("verify");
    puts("\nExit: 0 right, 1 a kernel is wrong, 2 usage or refused, 3 infrastructure, 77 no such "
         "backend here.");
}

static void run_help(void)
{
    puts("attest run CASE|FILE… [options]\n\n"
         "Replays cases. A FILE is a text file with one case a line (# starts a comment; a line\n"
         "`#: --timeout 600` says which of --timeout, --watchdog, --jobs, --no-trace and\n"
         "--no-relations its cases need) or a captured case (.safetensors).\n\n"
         "  attest run 'glm5next_dsa_mla_decode_fp8:seqs=1,heads=2,len=[9],seed=0x1f'\n"
         "  attest run corpora/dsa.txt --backend cuda\n");
    options_help("run");
}

bool wants_help(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return true;
    }
    return false;
}

int command_verify(int argc, char **argv)
{
    static struct plan plan;
    struct options o;
    if (wants_help(argc, argv)) {
        verify_help();
        return EXIT_PASS;
    }
    if (!options_parse(argc, argv, &o) || !session_ops(&o, plan.ops, &plan.n_ops))
        return EXIT_USAGE;
    if ((o.source || o.module) && plan.n_ops != 1) {
        fprintf(stderr, "attest: name the one operation that %s implements\n",
                o.source ? o.source : o.module);
        return EXIT_USAGE;
    }
    plan.seed = o.seed;
    plan.cases = o.cases;
    plan.geometries = o.geometries;
    plan.tier = o.tier;
    plan.shard = o.shard;
    plan.shards = o.shards;
    return session_run(&plan, &o, "verify");
}

/* Explicit cases: texts, and for captured ones the item beside its name. */
struct texts {
    char **items;
    const struct captured_item **captured;
    uint64_t count, room;
    struct captured *files[256];
    uint32_t n_files;
};

static bool texts_add(struct texts *t, const char *text, size_t length,
                      const struct captured_item *item)
{
    if (t->count == t->room) {
        t->room = t->room ? 2 * t->room : 64;
        char **grown = realloc(t->items, t->room * sizeof *grown);
        if (grown) t->items = grown;
        const struct captured_item **grown_items =
            realloc(t->captured, t->room * sizeof *grown_items);
        if (grown_items) t->captured = grown_items;
        if (!grown || !grown_items) return false;
    }
    t->captured[t->count] = item;
    t->items[t->count] = strndup(text, length);
    return t->items[t->count++] != NULL;
}

/* FILE.safetensors, or FILE.safetensors#OPERATION.N for one of the cases it holds. */
static bool names_captured(const char *word)
{
    static const char suffix[] = ".safetensors";
    size_t length = strcspn(word, "#"), n = sizeof suffix - 1;
    return length >= n && !memcmp(word + length - n, suffix, n);
}

static bool texts_from_captured(struct texts *t, const char *word)
{
    struct captured *file;
    char error[1024], name[4400], path[4200];
    uint64_t before = t->count;
    snprintf(path, sizeof path, "%.*s", (int)strcspn(word, "#"), word);
    if (t->n_files == sizeof t->files / sizeof *t->files) {
        fprintf(stderr, "attest: more than %u captured files in one run\n", t->n_files);
        return false;
    }
    if (!captured_open(path, &file, error, sizeof error)) {
        fprintf(stderr, "attest: %s\n", error);
        return false;
    }
    t->files[t->n_files++] = file;
    for (uint32_t i = 0; i < captured_count(file); i++) {
        const struct captured_item *item = captured_item(file, i);
        snprintf(name, sizeof name, "%s#%s.%u", path, item->c.op->name, i);
        if (strchr(word, '#') && strcmp(word, name)) continue;
        if (!texts_add(t, name, strlen(name), item)) return false;
    }
    if (t->count > before) return true;
    fprintf(stderr, "attest: %s: the file holds no such case\n", word);
    return false;
}

/* A line `#: --timeout 600`: what the file's cases need. */
static bool wishes(const char *path, const char *line, struct options *o)
{
    char error[700];
    if (!options_wishes(line + 2, o, error, sizeof error)) {
        fprintf(stderr, "attest: %s: %s\n", path, error);
        return false;
    }
    if (!o->quiet && !o->json)
        fprintf(stderr, "%s asks for%.*s\n", path, (int)strcspn(line + 2, "\r\n"), line + 2);
    return true;
}

static bool texts_from_file(struct texts *t, const char *path, struct options *o)
{
    FILE *f = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    bool fine = f != NULL;
    if (!f) {
        perror(path);
        return false;
    }
    while (fine && (n = getline(&line, &room, f)) >= 0) {
        size_t length = strcspn(line, "\r\n#"), start = strspn(line, " \t");
        while (length > start && (line[length - 1] == ' ' || line[length - 1] == '\t')) length--;
        if (!strncmp(line, "#:", 2)) fine = wishes(path, line, o);
        if (length > start) fine = texts_add(t, line + start, length - start, NULL);
    }
    free(line);
    fclose(f);
    return fine;
}

/* Every text must parse before anything runs: a typo in a corpus must not pass as a short run. */
static bool texts_parse(const struct texts *t)
{
    static struct case_line c;
    char error[512];
    for (uint64_t i = 0; i < t->count; i++) {
        if (t->captured[i] || case_parse(t->items[i], &c, error, sizeof error)) continue;
        fprintf(stderr, "attest: %s\n  in case: %s\n", error, t->items[i]);
        return false;
    }
    return true;
}

int command_run(int argc, char **argv)
{
    static struct plan plan;
    struct options o;
    static struct texts texts;
    if (wants_help(argc, argv)) {
        run_help();
        return EXIT_PASS;
    }
    if (!options_parse(argc, argv, &o)) return EXIT_USAGE;
    if (!o.n_words) {
        fprintf(stderr, "attest: run needs a case or a file; `attest run --help` shows examples\n");
        return EXIT_USAGE;
    }
    for (int i = 0; i < o.n_words; i++) {
        struct stat st;
        const char *word = o.words[i];
        bool fine = names_captured(word) ? texts_from_captured(&texts, word)
                    : !stat(word, &st)   ? texts_from_file(&texts, word, &o)
                                         : texts_add(&texts, word, strlen(word), NULL);
        if (!fine) return EXIT_USAGE;
    }
    if (!texts_parse(&texts)) return EXIT_USAGE;
    plan.texts = (const char *const *)texts.items;
    plan.n_texts = texts.count;
    plan.items = texts.captured;
    plan.seed = o.seed;
    plan.shard = o.shard;
    plan.shards = o.shards;
    int code = session_run(&plan, &o, "run");
    for (uint64_t i = 0; i < texts.count; i++) free(texts.items[i]);
    free(texts.items);
    free(texts.captured);
    for (uint32_t i = 0; i < texts.n_files; i++) captured_close(texts.files[i]);
    return code;
}
