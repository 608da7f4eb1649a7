#include "harness/verify/case_worker.h"

#include <stdlib.h>
#include <string.h>

#include "harness/run/run.h"

struct case_worker *case_worker_get(void **state, const struct verify_context *context,
                                    struct result *r)
{
    struct case_worker *w = *state;
    if (w) return w;
    *state = w = malloc(sizeof *w);
    if (w)
        w->context = *context;
    else
        result_fail(r, VERDICT_ERROR, "memory", "  no memory for a worker\n");
    return w;
}

bool result_is_empty(const struct result *r)
{
    return r->verdict == VERDICT_ERROR && !strcmp(r->check, "nothing-compared");
}

bool case_worker_healthy(const struct case_worker *w, const struct result *r)
{
    return w->context.backend != &gpu_backend_cuda || r->verdict == VERDICT_PASS ||
           r->verdict == VERDICT_REFUSED || result_is_empty(r);
}
