/* The text of a failure, where only a sentence is handed back. */
#ifndef ATTEST_HARNESS_ERROR_TEXT_H
#define ATTEST_HARNESS_ERROR_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Writes the formatted text, cut to error_size, with control characters (a hostile file's names may
 * hold them) replaced by '?'. `error` may be NULL. Returns false, so that a caller can return it.
 */
bool error_text(char *error, size_t error_size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#endif
