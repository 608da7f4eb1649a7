/* What a safetensors file holds, and which operation it could be a captured case of. */
#ifndef ATTEST_DESCRIBE_H
#define ATTEST_DESCRIBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Prints metadata, tensors, and the operations whose arguments they resemble, the best first, with
 * what is missing or of another type. False with the reason when the file cannot be read. */
bool captured_describe(const char *path, FILE *stream, char *error, size_t error_size);
#endif
