/* What building and running the fuzz targets needs from the descriptors:
 *     tool dictionary [FAMILY]           a dictionary for the engine
 *     tool ops FAMILY                    the family's operations, one a line
 *     tool cases OPERATION               reads lines; prints its cases, as case_print does, but for those
 *                                        too large for the fuzz targets to run
 *     tool accepted FILE…                prints the files whose first line is a case that runs
 *     tool plant EDIT KERNELS FOLDER     writes a wrong kernel's source; prints OPERATION MODULE */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/case/case.h"
#include "harness/case/op.h"
#include "harness/files/broken.h"
#include "harness/fuzz/dictionary.h"
#include "harness/fuzz/work.h"

static int cases(const char *name)
{
    static struct case_line c;
    static struct work_limit limit;
    struct ref_refusal why;
    const struct op *op = op_find(name, strlen(name));
    char *line = NULL, error[512], text[CASE_TEXT_MAX];
    size_t room = 0;
    if (!op) return 2;
    work_learn(&limit, op, TIER_QUICK);
    while (getline(&line, &room, stdin) >= 0) {
        line[strcspn(line, "\n#")] = 0;
        if (!case_parse(line, &c, error, sizeof error) || c.op != op) continue;
        if (!work_fits(&limit, &c) && op_ref_accepts(&c, NULL, &why)) continue;
        case_print(&c, text, sizeof text);
        puts(text);
    }
    free(line);
    return 0;
}

static int accepted(int n, char **paths)
{
    static struct case_line c;
    char *line = NULL, error[512];
    size_t room = 0;
    struct ref_refusal why;
    for (int i = 0; i < n; i++) {
        FILE *f = fopen(paths[i], "r");
        bool read = f && getline(&line, &room, f) >= 0;
        if (f) fclose(f);
        if (!read) continue;
        line[strcspn(line, "\n")] = 0;
        if (case_parse(line, &c, error, sizeof error) && op_ref_accepts(&c, NULL, &why))
            puts(paths[i]);
    }
    free(line);
    return 0;
}

static int plant(char **argv)
{
    static struct broken b;
    char error[1024];
    if (!broken_load(argv[2], &b, error, sizeof error) ||
        !broken_write(&b, argv[3], argv[4], error, sizeof error)) {
        fprintf(stderr, "tool: %s\n", error);
        return 1;
    }
    const struct op *op = op_find(b.op, strlen(b.op));
    printf("%s %s\n", b.op, op ? op->modules[0] : b.module);
    broken_free(&b);
    return op == NULL;
}

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";
    if (!strcmp(word, "dictionary") && argc <= 3) {
        dictionary_print(stdout, argc > 2 ? argv[2] : NULL);
        return 0;
    }
    for (uint32_t i = 0; !strcmp(word, "ops") && argc == 3 && i < op_count; i++) {
        if (!strcmp(op_table[i]->family, argv[2])) puts(op_table[i]->name);
    }
    if (!strcmp(word, "ops") && argc == 3) return 0;
    if (!strcmp(word, "cases") && argc == 3) return cases(argv[2]);
    if (!strcmp(word, "accepted")) return accepted(argc - 2, argv + 2);
    if (!strcmp(word, "plant") && argc == 5) return plant(argv);
    fprintf(stderr, "usage: tool dictionary [FAMILY] | ops FAMILY | cases OPERATION | "
                    "accepted FILE… | plant EDIT KERNELS FOLDER\n");
    return 2;
}
