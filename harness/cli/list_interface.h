/* The interface of an operation's kernels, from the descriptor's tables. */
#ifndef ATTEST_LIST_INTERFACE_H
#define ATTEST_LIST_INTERFACE_H

#include <cjson/cJSON.h>

#include "harness/case/op.h"

/* Kernels with their arguments in order, and what their names mean in keys of a case. */
void list_interface(const struct op *op);
/* The same as "kernels" and "numbers" of an object. */
void list_interface_json(const struct op *op, cJSON *object);
#endif
