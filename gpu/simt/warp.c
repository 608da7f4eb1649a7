/* Warp collectives: the last lane of a mask to arrive works out the results of all of them. */
#include "mma_model.h"
#include "run.h"

static void shuffle(struct simt_warp *warp, uint32_t lanes)
{
    for (uint32_t i = 0; i < SIMT_WARP; i++) {
        uint32_t source = warp->arguments[i] % SIMT_WARP;

        /* What a lane outside the mask would give is undefined: a value that shows itself. */
        if (lanes >> i & 1)
            warp->results[i] = lanes >> source & 1 ? warp->values[source] : UINT64_MAX;
    }
}

static uint32_t ballot(const struct simt_warp *warp, uint32_t lanes)
{
    uint32_t result = 0;

    for (uint32_t i = 0; i < SIMT_WARP; i++) result |= (uint32_t)(warp->values[i] != 0) << i;
    return result & lanes;
}

static void match_any(struct simt_warp *warp, uint32_t lanes)
{
    for (uint32_t i = 0; i < SIMT_WARP; i++) {
        uint32_t same = 0;

        for (uint32_t j = 0; j < SIMT_WARP; j++)
            same |= (uint32_t)(warp->values[j] == warp->values[i]) << j;
        if (lanes >> i & 1) warp->results[i] = same & lanes;
    }
}

static uint64_t match_all(const struct simt_warp *warp, uint32_t lanes)
{
    uint64_t first = warp->values[__builtin_ctz(lanes)];

    for (uint32_t i = 0; i < SIMT_WARP; i++)
        if ((lanes >> i & 1) && warp->values[i] != first) return 0;
    return lanes;
}

static uint32_t combine(uint32_t kind, uint32_t a, uint32_t b)
{
    switch (kind) {
    case SIMT_REDUCE_ADD:
        return a + b;
    case SIMT_REDUCE_MIN_U32:
        return a < b ? a : b;
    case SIMT_REDUCE_MAX_U32:
        return a > b ? a : b;
    case SIMT_REDUCE_MIN_S32:
        return (int32_t)a < (int32_t)b ? a : b;
    case SIMT_REDUCE_MAX_S32:
        return (int32_t)a > (int32_t)b ? a : b;
    case SIMT_REDUCE_AND:
        return a & b;
    case SIMT_REDUCE_OR:
        return a | b;
    default:
        return a ^ b;
    }
}

static uint32_t reduce(const struct simt_warp *warp, uint32_t kind, uint32_t lanes)
{
    uint32_t first = (uint32_t)__builtin_ctz(lanes), result = (uint32_t)warp->values[first];

    for (uint32_t i = first + 1; i < SIMT_WARP; i++)
        if (lanes >> i & 1) result = combine(kind, result, (uint32_t)warp->values[i]);
    return result;
}

static void mma(const struct simt_warp *warp)
{
    const struct simt_mma_operands *operands[SIMT_WARP];

    for (uint32_t i = 0; i < SIMT_WARP; i++)
        operands[i] = (const struct simt_mma_operands *)(uintptr_t)warp->values[i];
    simt_mma_warp(simt_run.device->options.mma_arch, operands);
}

/* Lanes outside the set may still have to read an earlier result. */
static void same_for_all(struct simt_warp *warp, uint32_t lanes, uint64_t result)
{
    for (uint32_t i = 0; i < SIMT_WARP; i++)
        if (lanes >> i & 1) warp->results[i] = result;
}

void simt_collective_compute(struct simt_warp *warp, uint32_t kind, uint32_t lanes)
{
    switch (kind) {
    case SIMT_SYNCWARP:
        simt_trace_syncwarp((uint32_t)(warp - simt_run.warps), lanes);
        break;
    case SIMT_SHUFFLE:
        shuffle(warp, lanes);
        break;
    case SIMT_BALLOT:
        same_for_all(warp, lanes, ballot(warp, lanes));
        break;
    case SIMT_ANY:
        same_for_all(warp, lanes, ballot(warp, lanes) != 0);
        break;
    case SIMT_ALL:
        same_for_all(warp, lanes, ballot(warp, lanes) == lanes);
        break;
    case SIMT_MATCH_ANY:
        match_any(warp, lanes);
        break;
    case SIMT_MATCH_ALL:
        same_for_all(warp, lanes, match_all(warp, lanes));
        break;
    case SIMT_MMA_BF16_M16N8K16:
        mma(warp);
        break;
    default:
        same_for_all(warp, lanes, reduce(warp, kind, lanes));
        break;
    }
}

/* Whether the lanes of the set, which all wait, wait in the same collective. */
static bool all_agree(const struct simt_warp *warp, uint32_t lanes, uint64_t key)
{
    uint64_t difference = 0;

    for (uint32_t i = 0; i < SIMT_WARP; i++)
        difference |= (warp->keys[i] ^ key) & (0 - (uint64_t)(lanes >> i & 1));
    return difference == 0;
}

/* The running lane is the last of its set to come. */
static __attribute__((noinline)) struct simt_turn complete(struct simt_warp *warp, uint64_t key,
                                                           void **stack)
{
    uint32_t lanes = (uint32_t)key & warp->exists, bit = 1u << simt_run.current % SIMT_WARP;

    if (!all_agree(warp, lanes, key)) return simt_wait(stack);
    simt_collective_compute(warp, (uint32_t)(key >> 32), lanes);
    warp->waiting &= ~lanes;
    return simt_release(simt_run.current / SIMT_WARP, lanes & ~bit, stack);
}

__attribute__((cold, noinline)) static struct simt_turn fail_mask(uint64_t key, void **stack)
{
    uint32_t lane = simt_run.current % SIMT_WARP, mask = (uint32_t)key;
    uint32_t exists = simt_run.warps[simt_run.current / SIMT_WARP].exists;

    if (!(mask >> lane & 1))
        simt_fail("partial-warp-collective", SIMT_SITE(stack),
                  "lane %u calls a warp collective with mask 0x%08x, which does not name it", lane,
                  mask);
    simt_fail("partial-warp-collective", SIMT_SITE(stack), "an MMA in a warp of %d threads",
              __builtin_popcount(mask & exists));
}

/* Everything rare is somewhere else, so that the common way needs no registers saved. */
struct simt_turn simt_collective_body(uint32_t kind, uint32_t mask, uint64_t value,
                                      uint32_t argument, void **stack)
{
    uint32_t lane = simt_run.current % SIMT_WARP, bit = 1u << lane;
    struct simt_warp *warp = &simt_run.warps[simt_run.current / SIMT_WARP];
    uint32_t lanes = mask & warp->exists;
    uint64_t key = (uint64_t)kind << 32 | mask;

    if (!(mask & bit) || (kind == SIMT_MMA_BF16_M16N8K16 && lanes != ~0u))
        return fail_mask(key, stack);
    warp->keys[lane] = key;
    warp->values[lane] = value;
    warp->arguments[lane] = argument;
    warp->waiting |= bit;
    if ((warp->waiting & lanes) == lanes) return complete(warp, key, stack);
    return simt_wait(stack);
}
SIMT_SUSPENDING("simt_collective", "simt_collective_body", "r8");

uint32_t simt_live_lanes(void)
{
    const struct simt_warp *warp = &simt_run.warps[simt_run.current / SIMT_WARP];

    return warp->exists & ~warp->returned;
}
