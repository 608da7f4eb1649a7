#include "refuse.h"

#include <stdarg.h>
#include <stdio.h>

bool ref_refuse(struct ref_refusal *why, const char *rule, const char *format, ...)
{
    if (!why) return false;
    snprintf(why->rule, sizeof why->rule, "%s", rule);
    va_list args;
    va_start(args, format);
    vsnprintf(why->text, sizeof why->text, format, args);
    va_end(args);
    return false;
}
