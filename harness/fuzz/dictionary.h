/* The words of case lines as a dictionary for fuzzers (AFL's and libFuzzer's format). */
#ifndef ATTEST_DICTIONARY_H
#define ATTEST_DICTIONARY_H

#include <stdio.h>

/* Names of the operations of a family (NULL: of all), keys, values of enums, presets; each once. */
void dictionary_print(FILE *stream, const char *family);

#endif
