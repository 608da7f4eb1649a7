/* Cases of the DSA operations: the kernels against the oracle. */
#include "fuzz/fuzz.h"

static const struct fuzz_mutation mutation = {.family = "dsa", .raw_one_in = 10};
FUZZ_CASE_HOOKS(mutation)

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    return fuzz_family_open(mutation.family);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_family_run(mutation.family, data, size);
}
