/* Captured cases: safetensors files whose tensors replace the generated data of a case.
 *
 * A file with the metadata key `case` holds one case line and tensors named as the operation's
 * arguments; the line gives the geometry, the tensors the bytes. A golden file (docs/golden.md)
 * holds several stages and gives one item for each. Outputs under `got.NAME` were produced elsewhere
 * and are judged without a launch. */
#ifndef ATTEST_CAPTURED_H
#define ATTEST_CAPTURED_H

#include "harness/case/item.h"
#include "harness/files/safetensors.h"
#include "harness/judge/result.h"
#include "harness/verify/verify.h"

struct captured;
/* False with the reason. Owned by the caller. */
bool captured_open(const char *path, struct captured **out, char *error, size_t error_size);
void captured_close(struct captured *captured);
uint32_t captured_count(const struct captured *captured);
const struct captured_item *captured_item(const struct captured *captured, uint32_t index);

/* Every check on one item. */
void captured_verify(struct verify_context *context, const struct captured_item *item,
                     struct result *result);
/* Judges outputs that were produced elsewhere; nothing is launched. */
void captured_judge(const struct captured *captured, const struct ref_error_model *model,
                    struct result *result);
#endif
