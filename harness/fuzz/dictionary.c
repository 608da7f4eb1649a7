#include "harness/fuzz/dictionary.h"

#include <stdbool.h>
#include <string.h>

#include "harness/case/op.h"

enum { WORDS_MAX = 4096 };

struct words {
    FILE *stream;
    const char *seen[WORDS_MAX];
    uint32_t n;
};

static void put(struct words *w, const char *word, const char *suffix)
{
    for (uint32_t i = 0; i < w->n; i++) {
        if (!strcmp(w->seen[i], word)) return;
    }
    if (w->n < WORDS_MAX) w->seen[w->n++] = word;
    fprintf(w->stream, "\"%s%s\"\n", word, suffix);
}

static void put_op(struct words *w, const struct op *op)
{
    put(w, op->name, ":");
    for (uint32_t i = 0; i < op->n_params; i++) {
        const struct param *p = &op->params[i];
        put(w, p->key, "=");
        for (int k = 0; p->kind == PARAM_ENUM && p->names[k]; k++) put(w, p->names[k], "");
    }
    for (const struct preset *p = op->presets; p && p->name; p++) put(w, p->name, "");
}

void dictionary_print(FILE *stream, const char *family)
{
    static struct words w;
    w.stream = stream;
    w.n = 0;
    fputs("# Written by: attest list --dictionary\n", stream);
    for (uint32_t i = 0; i < op_count; i++) {
        if (!family || !strcmp(family, op_table[i]->family)) put_op(&w, op_table[i]);
    }
    fputs("\"model=\"\n\"nan\"\n\"inf\"\n\"-1\"\n\"4294967295\"\n\"0x\"\n\"[]\"\n", stream);
}
