#include "harness/judge/result.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *const check_names[CHECK_COUNT] = {
    [CHECK_REFUSAL] = "refusal",         [CHECK_GUARD] = "guard",       [CHECK_WRITTEN] = "written",
    [CHECK_UNTOUCHED] = "untouched",     [CHECK_INPUTS] = "inputs",     [CHECK_POISON] = "poison",
    [CHECK_DETERMINISM] = "determinism", [CHECK_SCHEDULE] = "schedule", [CHECK_ACCESS] = "access",
    [CHECK_CONTRACT] = "contract",       [CHECK_RELATION] = "relation"};
const char *const verdict_names[] = {[VERDICT_PASS] = "pass",
                                     [VERDICT_FAIL] = "fail",
                                     [VERDICT_REFUSED] = "refused",
                                     [VERDICT_ERROR] = "error"};

bool result_fail(struct result *r, enum verdict verdict, const char *check, const char *format, ...)
{
    va_list args;
    r->verdict = verdict;
    snprintf(r->check, sizeof r->check, "%s", check);
    size_t used = strlen(r->text);
    va_start(args, format);
    vsnprintf(r->text + used, sizeof r->text - used, format, args);
    va_end(args);
    return false;
}
