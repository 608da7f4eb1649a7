#include "harness/base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct text text_on(char *buffer, size_t size)
{
    return (struct text){buffer, size, strlen(buffer)};
}

void text_add(struct text *t, const char *format, ...)
{
    va_list args;
    if (t->used + 1 >= t->size) return;
    va_start(args, format);
    int n = vsnprintf(t->buffer + t->used, t->size - t->used, format, args);
    va_end(args);
    if (n > 0) t->used += (size_t)n < t->size - t->used ? (size_t)n : t->size - t->used - 1;
}
