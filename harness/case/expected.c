#include "harness/case/expected.h"

#include <stdlib.h>
#include <string.h>

void outputs_free(struct outputs *out)
{
    for (uint32_t i = 0; i < INSTANCE_TENSORS_MAX; i++) free(out->dense[i]);
    memset(out, 0, sizeof *out);
}

bool expected_alloc(const struct instance *in, struct expected *e)
{
    for (uint32_t i = 0; i < in->n_tensors; i++) {
        const struct tensor *t = &in->tensors[i];
        uint64_t n = tensor_logical_elems(t);
        if (t->role != ROLE_OUT) continue;
        if (t->contract == CONTRACT_EXACT) {
            e[i].exact = calloc(n + 1, dtype_bytes(t->dtype));
            if (!e[i].exact) return false;
        }
        if (t->contract == CONTRACT_BOUND) {
            e[i].value = calloc(n + 1, sizeof *e[i].value);
            e[i].bound = calloc(n + 1, sizeof *e[i].bound);
            if (!e[i].value || !e[i].bound) return false;
        }
    }
    return true;
}

bool expected_alloc_select(struct expected *e, uint64_t rows, uint64_t stride)
{
    uint64_t cells = rows * stride + 1;
    e->select_stride = stride;
    e->select_value = calloc(cells, sizeof *e->select_value);
    e->select_bound = calloc(cells, sizeof *e->select_bound);
    e->select_n = calloc(rows + 1, sizeof *e->select_n);
    e->select_k = calloc(rows + 1, sizeof *e->select_k);
    return e->select_value && e->select_bound && e->select_n && e->select_k;
}

void expected_free(struct expected *e)
{
    for (uint32_t i = 0; i < INSTANCE_TENSORS_MAX; i++) {
        free(e[i].exact);
        free(e[i].value);
        free(e[i].bound);
        free(e[i].select_value);
        free(e[i].select_bound);
        free(e[i].select_n);
        free(e[i].select_k);
    }
}
