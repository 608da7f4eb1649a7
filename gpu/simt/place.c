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
    near = simt_arena_nearest(&simt_run.device->arena, address);
    distance = !near                   ? UINT64_MAX
               : address < near->begin ? near->begin - address
                                       : address - near->begin;
    if (near && (distance < near->size || distance - near->size < NEAR_BYTES)) {
        uint64_t offset = address - near->begin;

        describe_at(near->name, near->begin, near->size, near->elem_bytes, address, bytes, text,
                    size);
        if (address >= near->begin && offset < near->size && !simt_is_backed(near, offset, 1))
            snprintf(text, size, "%s, element %llu (byte %llu), which no extent backs", near->name,
                     (unsigned long long)(offset / near->elem_bytes), (unsigned long long)offset);
        return true;
    }
    snprintf(text, size, "address 0x%llx, which is in no buffer", (unsigned long long)address);
    return false;
}
