#include <criterion/criterion.h>
#include <string.h>

#include "harness/case/instance.h"

enum { PART = 3000 };
static const uint64_t far = UINT64_C(5) << 30;

/* A tensor of 5 GiB, backed at its end; its part is filled with `byte`. */
static struct tensor *far_tensor(struct instance *in, uint8_t byte)
{
    uint64_t shape = far + PART;
    instance_init(in, POISON_NAN);
    struct tensor *t =
        instance_add(in, "cache", DTYPE_E4M3, ROLE_IN, CONTRACT_ANY, 1, &shape, "byte");
    cr_assert(t && tensor_add_extent(t, far, PART));
    uint64_t nonzero = 0;
    for (uint64_t i = 0; i < PART; i++) nonzero += t->data[far + i] != 0;
    cr_assert_eq(nonzero, 0);
    memset(t->data + far, byte, PART);
    return t;
}

/* Memory of an earlier tensor is zero again, and is used for so long only. */
Test(instance, kept_memory_is_zero)
{
    struct instance in;
    uint8_t *first = far_tensor(&in, 1)->data;
    uint32_t most = 0;
    instance_free(&in);
    for (int i = 0; i < 600; i++) {
        const struct tensor *t = far_tensor(&in, (uint8_t)(i + 2));
        if (i == 0) cr_assert_eq(t->data, first);
        most = t->mapping_uses > most ? t->mapping_uses : most;
        instance_free(&in);
    }
    cr_assert(most > 100 && most < 600, "%u", most);
}

/* What captured data was written to is not trusted to be zero outside the parts. */
Test(instance, overridden_memory_is_not_kept)
{
    struct instance in;
    struct tensor *t = far_tensor(&in, 1);
    t->data[7] = 1;
    t->overridden = true;
    instance_free(&in);
    t = far_tensor(&in, 2);
    cr_assert_eq(t->mapping_uses, 0);
    cr_assert_eq(t->data[7], 0);
    instance_free(&in);
}
