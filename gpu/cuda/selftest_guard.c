/* Self-test: red zones. */
#include "internal.h"
#include "selftest_internal.h"

#include <string.h>

static bool poke(struct selftest *t, const struct gpu_buffer *b, int64_t offset)
{
    uint32_t value = 0xffffffffu;
    uint64_t base = b->address;
    void *args[] = {&base, &offset, &value};

    return selftest_need(t, selftest_run(t, "selftest_poke", 1, 0, args), "poke");
}

/* A write at `offset` from the buffer's start must be found, and must not be found again in the
 * next buffer that gets the same place. */
static bool found(struct selftest *t, uint64_t bytes, enum gpu_fence fence, int64_t offset)
{
    struct gpu_buffer b;
    enum gpu_status status;

    if (!selftest_alloc(t, &b, "zone", bytes, fence) || !poke(t, &b, 0)) return false;
    if (!selftest_need(t, gpu_backend_cuda.check_guards(t->device, &b, &t->report), "clean"))
        return false;
    if (!poke(t, &b, offset)) return false;
    status = gpu_backend_cuda.check_guards(t->device, &b, &t->report);
    gpu_backend_cuda.free(t->device, &b);
    if (status != GPU_FINDING || strcmp(t->report.rule, "red-zone")) {
        selftest_say(t, "FAIL", "%llu bytes, write at %lld: status %d", (unsigned long long)bytes,
                     (long long)offset, (int)status);
        return false;
    }
    if (!selftest_alloc(t, &b, "next", bytes, fence) || !poke(t, &b, 0)) return false;
    status = gpu_backend_cuda.check_guards(t->device, &b, &t->report);
    gpu_backend_cuda.free(t->device, &b);
    return selftest_need(t, status, "the next buffer in the same place");
}

void selftest_red_zone(struct selftest *t)
{
    const uint64_t sizes[] = {4, 1000, 100000, 1000000};
    const int64_t before[] = {-4, -2000, -4100, -500000, -1000000};
    uint32_t good = 0, n = 0;

    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
            int64_t behind = (int64_t)sizes[s] - 4 - before[i];
            good += found(t, sizes[s], GPU_FENCE_AFTER, before[i]);
            good += found(t, sizes[s], GPU_FENCE_BEFORE, behind);
            n += 2;
        }
    }
    selftest_expect(t, good == n, "%u of %u writes around buffers found; last: %s", good, n,
                    t->report.text);
}

void selftest_red_zone_plain(struct selftest *t)
{
    gpu_cuda_helpers_disable(t->device);
    selftest_red_zone(t);
}

/* Buffers of all sizes and fences that take each other's place, with damage that nobody asks
 * about, must never be told of what others did. */
void selftest_reuse(struct selftest *t)
{
    enum { ROUNDS = 120 };
    uint32_t n_false = 0;

    for (uint32_t i = 0; i < ROUNDS; i++) {
        struct gpu_buffer b;
        uint32_t noise[64];
        uint64_t bytes = 256 + (uint64_t)(i * 48271) % 600000;
        enum gpu_fence fence = (enum gpu_fence)(i / 2 % 2);
        bytes -= bytes % 4;
        selftest_noise(noise, sizeof noise, i);
        if (!selftest_alloc(t, &b, "reuse", bytes, fence) ||
            !selftest_need(
                t, gpu_backend_cuda.upload(t->device, &b, bytes - 256, noise, 256, &t->report),
                "upload"))
            return;
        if (i % 3 != 2 && !poke(t, &b, 0)) return;
        n_false += gpu_backend_cuda.check_guards(t->device, &b, &t->report) != GPU_OK;
        if (i % 3 == 1 &&
            !poke(t, &b, fence == GPU_FENCE_AFTER ? -800000 : (int64_t)bytes + 800000))
            return;
        if (i % 5 == 1 && !poke(t, &b, fence == GPU_FENCE_AFTER ? -8 : (int64_t)bytes + 8)) return;
        gpu_backend_cuda.free(t->device, &b);
    }
    selftest_expect(t, n_false == 0, "%u of %u buffers blamed for an earlier one's damage (%s)",
                    n_false, ROUNDS, n_false ? t->report.text : "none");
}
