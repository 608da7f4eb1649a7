/* Names for addresses: the buffer or shared variable at or near one, and the element in it. */
#include "run.h"

#include <stdio.h>

/* An address further than this from every buffer is not blamed on one. */
#define NEAR_BYTES (64ull << 30)

const struct simt_variable *simt_find_variable(const struct gpu_module *module, uintptr_t address)
{
    const struct simt_variable *last = NULL;

    for (uint32_t i = 0; i < module->n_variables && module->variables[i].begin <= address; i++)
        last = &module->variables[i];
    return last ? last : module->variables;
}

static void describe_at(const char *name, uintptr_t begin, uint64_t size, uint32_t elem_bytes,
                        uintptr_t address, uint64_t bytes, char *text, size_t text_size)
{
    int64_t offset = (int64_t)(address - begin);
    unsigned long long elem = offset >= 0 ? (unsigned long long)offset / elem_bytes : 0;

    if (offset < 0)
        snprintf(text, text_size, "%s, %lld bytes before its start", name, (long long)-offset);
    else if ((uint64_t)offset >= size)
        snprintf(text, text_size, "%s, %llu bytes past its end (element %llu)", name,
                 (unsigned long long)((uint64_t)offset - size), elem);
    else if ((uint64_t)offset + bytes > size)
        snprintf(text, text_size, "%s, %llu bytes across its end (element %llu)", name,
                 (unsigned long long)bytes, elem);
    else
        snprintf(text, text_size, "%s, element %llu (byte %llu)", name, elem,
                 (unsigned long long)offset);
}

/* The buffer that an index below zero would have reached into, had it not been taken for an
 * unsigned one: such an index lands 2^32 elements too far. */
static const struct simt_buffer *wrapped_target(uintptr_t address)
{
    for (struct simt_buffer *b = simt_run.device->arena.live; b; b = b->next) {
        uint64_t below = b->begin - (address - ((uint64_t)b->elem_bytes << 32));

        if (b->size > 0 && below > 0 && below <= (b->size > SIMT_PAGE ? b->size : SIMT_PAGE))
            return b;
    }
    return NULL;
}

static bool describe_wrapped(uintptr_t address, char *text, size_t size)
{
    const struct simt_buffer *b = wrapped_target(address);
    uint64_t below;

    if (!b) return false;
    below = b->begin - (address - ((uint64_t)b->elem_bytes << 32));
    snprintf(text, size, "%s, element %llu: element -%llu as an unsigned 32-bit index", b->name,
             (unsigned long long)((address - b->begin) / b->elem_bytes),
             (unsigned long long)((below + b->elem_bytes - 1) / b->elem_bytes));
    return true;
}

/* In a buffer or near one. */
static bool describe_near(const struct simt_buffer *near, uintptr_t address, uint64_t bytes,
                          char *text, size_t size)
{
    uint64_t offset = address - near->begin;

    if (address >= near->begin && offset < near->size && !simt_is_backed(near, offset, 1)) {
        snprintf(text, size, "%s, element %llu (byte %llu), which no extent backs", near->name,
                 (unsigned long long)(offset / near->elem_bytes), (unsigned long long)offset);
        return true;
    }
    describe_at(near->name, near->begin, near->size, near->elem_bytes, address, bytes, text, size);
    return true;
}

bool simt_describe(uintptr_t address, uint64_t bytes, char *text, size_t size)
{
    const struct gpu_module *module = simt_run.module;
    const struct simt_buffer *near;
    uintptr_t shared = (uintptr_t)module->table->shared_begin;
    uint64_t distance;

    if (module->n_variables > 0 &&
        address - shared < (uintptr_t)module->table->shared_end - shared) {
        const struct simt_variable *variable = simt_find_variable(module, address);

        describe_at(variable->name, variable->begin, variable->size, 1, address, bytes, text, size);
        return true;
    }
    near = simt_arena_nearest(&simt_run.device->arena, address, &distance);
    if (near && distance < SIMT_PAGE) return describe_near(near, address, bytes, text, size);
    if (describe_wrapped(address, text, size)) return true;
    if (near && distance < NEAR_BYTES) return describe_near(near, address, bytes, text, size);
    snprintf(text, size, "address 0x%llx, which is in no buffer", (unsigned long long)address);
    return false;
}
