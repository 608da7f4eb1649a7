/* Appending formatted text to a fixed buffer; what does not fit is cut. */
#ifndef ATTEST_TEXT_H
#define ATTEST_TEXT_H

#include <stddef.h>

struct text {
    char *buffer;
    size_t size, used;
};
/* Starts behind whatever NUL-terminated text the buffer already holds. */
struct text text_on(char *buffer, size_t size);
void text_add(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
#endif
