#include "harness/base/error_text.h"

#include <stdarg.h>
#include <stdio.h>

bool error_text(char *error, size_t error_size, const char *format, ...)
{
    if (!error || error_size == 0) return false;
    va_list arguments;
    va_start(arguments, format);
    if (vsnprintf(error, error_size, format, arguments) < 0) error[0] = '\0';
    va_end(arguments);
    for (char *c = error; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
    return false;
}
