/* The parser of case lines: what it accepts prints to a text that parses to the same case. */
#include <string.h>

#include "fuzz/fuzz.h"

static const struct fuzz_mutation mutation = {.family = NULL, .raw_one_in = 2, .wild = true};
FUZZ_CASE_HOOKS(mutation)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct case_line c, again;
    static char text[CASE_TEXT_MAX], printed[CASE_TEXT_MAX], reprinted[CASE_TEXT_MAX];
    char error[512] = "";
    const uint8_t *rest;
    size_t rest_size;
    if (!fuzz_line(data, size, text, &rest, &rest_size)) return 0;
    if (!case_parse(text, &c, error, sizeof error)) {
        if (!error[0] || strlen(error) >= sizeof error) fuzz_fail("refused without a reason");
        return 0;
    }
    size_t length = case_print(&c, printed, sizeof printed);
    if (length != strlen(printed)) fuzz_fail("%zu characters printed, %zu said", strlen(printed), length);
    if (!case_parse(printed, &again, error, sizeof error))
        fuzz_fail("does not parse again: %s\n  %s", error, printed);
    case_print(&again, reprinted, sizeof reprinted);
    if (strcmp(printed, reprinted)) fuzz_fail("printed\n  %s\nthen\n  %s", printed, reprinted);
    for (uint32_t i = 0; i < c.op->n_params; i++) {
        bool list = c.op->params[i].kind == PARAM_LIST;
        if (c.v[i].i != again.v[i].i) fuzz_fail("%s changed", c.op->params[i].key);
        if (list && memcmp(c.list + c.v[i].list_start, again.list + again.v[i].list_start,
                           (size_t)c.v[i].i * sizeof *c.list))
            fuzz_fail("list %s changed", c.op->params[i].key);
        if (!list && memcmp(&c.v[i].r, &again.v[i].r, sizeof c.v[i].r))
            fuzz_fail("%s changed", c.op->params[i].key);
    }
    return 0;
}
