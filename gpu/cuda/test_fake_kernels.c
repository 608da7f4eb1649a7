#include "test_fake_kernels.h"

#include "gpu/cuda/driver_api.h"

#include <string.h>

static uint64_t wide(const struct fake_launch *l, uint32_t i)
{
    uint64_t value;

    memcpy(&value, l->params[i], sizeof value);
    return value;
}

static uint32_t narrow(const struct fake_launch *l, uint32_t i)
{
    uint32_t value;

    memcpy(&value, l->params[i], sizeof value);
    return value;
}

static volatile uint32_t *word(uint64_t address)
{
    return (volatile uint32_t *)(uintptr_t)address;
}

static void transfer(const struct fake_launch *l, struct fake_effect *effect)
{
    const uint64_t(*op)[4] = (const uint64_t(*)[4])(uintptr_t)wide(l, 0);

    (void)effect;
    for (uint32_t b = 0; b < l->grid_x; b++)
        for (uint64_t at = 0; at < op[b][2] && at < 16ull * l->block_x; at += 4)
            *word(op[b][0] + at) = op[b][1] ? *word(op[b][1] + at) : 0x7fff7fffu;
}

static void verify(const struct fake_launch *l, struct fake_effect *effect)
{
    const uint64_t(*op)[4] = (const uint64_t(*)[4])(uintptr_t)wide(l, 0);

    (void)effect;
    for (uint32_t b = 0; b < l->grid_x; b++)
        for (uint64_t at = op[b][0]; at < op[b][1]; at += 4)
            if (*word(at) != 0x7fff7fffu) *(volatile uint64_t *)(uintptr_t)op[b][3] = at & ~15ull;
}

static void iota(const struct fake_launch *l, struct fake_effect *effect)
{
    (void)effect;
    for (uint32_t i = 0; i < narrow(l, 1) && i < l->grid_x * l->block_x; i++)
        *word(wide(l, 0) + 4ull * i) = narrow(l, 2) + i;
}

static void add(const struct fake_launch *l, struct fake_effect *effect)
{
    (void)effect;
    for (uint32_t i = 0; i < narrow(l, 1) && i < l->grid_x * l->block_x; i++)
        *word(wide(l, 0) + 4ull * i) += narrow(l, 2);
}

static void peek(const struct fake_launch *l, struct fake_effect *effect)
{
    (void)effect;
    *word(wide(l, 0)) = *word(wide(l, 1) + wide(l, 2));
}

static void poke(const struct fake_launch *l, struct fake_effect *effect)
{
    (void)effect;
    *word(wide(l, 0) + wide(l, 1)) = narrow(l, 2);
}

static void misaligned(const struct fake_launch *l, struct fake_effect *effect)
{
    (void)l;
    effect->error = CU_MISALIGNED_ADDRESS;
}

static void trap(const struct fake_launch *l, struct fake_effect *effect)
{
    (void)l;
    effect->error = CU_LAUNCH_FAILED;
}

static void spin(const struct fake_launch *l, struct fake_effect *effect)
{
    effect->busy_ns = wide(l, 1);
    *word(wide(l, 0)) = 1;
}

static void shared(const struct fake_launch *l, struct fake_effect *effect)
{
    if (4ull * narrow(l, 1) > l->shared_bytes) effect->error = CU_ILLEGAL_ADDRESS;
    *word(wide(l, 0)) = narrow(l, 1) - 1;
}

const struct fake_kernel *fake_kernel_find(const char *text)
{
    static const struct fake_kernel kernels[] = {
        {"gpu_cuda_transfer", transfer, 1, {8}},
        {"gpu_cuda_verify", verify, 1, {8}},
        {"selftest_iota", iota, 3, {8, 4, 4}},
        {"selftest_add", add, 3, {8, 4, 4}},
        {"selftest_peek", peek, 3, {8, 8, 8}},
        {"selftest_poke", poke, 3, {8, 8, 4}},
        {"selftest_misaligned", misaligned, 2, {8, 8}},
        {"selftest_trap", trap, 1, {8}},
        {"selftest_spin", spin, 2, {8, 8}},
        {"selftest_shared", shared, 2, {8, 4}},
    };
    size_t length = strcspn(text, "( \t\n");

    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (strlen(kernels[i].name) == length && !strncmp(kernels[i].name, text, length))
            return &kernels[i];
    return NULL;
}
