/* The golden files of corpora/golden as captured items, one for each stage the file holds. */
#ifndef ATTEST_CAPTURED_GOLDEN_H
#define ATTEST_CAPTURED_GOLDEN_H

#include "harness/case/item.h"

struct captured_golden;
bool captured_golden_open(const char *path, struct captured_golden **out, char *error,
                          size_t error_size);
void captured_golden_close(struct captured_golden *golden);
uint32_t captured_golden_count(const struct captured_golden *golden);
const struct captured_item *captured_golden_item(const struct captured_golden *golden,
                                                 uint32_t index);
#endif
