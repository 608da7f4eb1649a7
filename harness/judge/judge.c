#include "harness/judge/judge.h"

#include <stdio.h>
#include <stdlib.h>

#include "harness/judge/compare.h"

static bool judge_tensor(const struct tensor *t, const uint8_t *got, const struct expected *e,
                         const char *label, struct result *r)
{
    struct comparison c;
    char check[64];
    uint64_t n = tensor_logical_elems(t);
    uint8_t *map = calloc(n + 1, 1);
    if (!map) return result_fail(r, VERDICT_ERROR, "memory", "  no memory to compare\n");
    compare_tensor(t, got, e, &c, map);
    r->checks[CHECK_CONTRACT]++;
    r->compared += c.compared;
    r->nearest += c.nearest;
    r->unjudged += c.unjudged;
    r->identical += c.identical;
    r->equivalent += c.equivalent;
    distribution_add(&r->spread, &c.spread);
    if (c.worst_ratio > r->worst_ratio) r->worst_ratio = c.worst_ratio;
    if (c.max_ulp > r->max_ulp) r->max_ulp = c.max_ulp;
    if (c.wrong) {
        snprintf(check, sizeof check, "%s %s", label, t->name);
        result_fail(r, VERDICT_FAIL, check, "%s", "");
        snprintf(r->pattern, sizeof r->pattern, "%s",
                 compare_explain(t, got, e, &c, map, r->text, sizeof r->text));
    }
    free(map);
    return !c.wrong;
}

bool judge_outputs(const struct instance *in, const struct outputs *out, const struct expected *e,
                   const char *label, struct result *r)
{
    for (uint32_t i = 0; i < in->n_tensors; i++) {
        const struct tensor *t = &in->tensors[i];
        if (t->role != ROLE_OUT || t->contract == CONTRACT_ANY) continue;
        if (!judge_tensor(t, out->dense[i], &e[i], label, r)) return false;
    }
    return true;
}
