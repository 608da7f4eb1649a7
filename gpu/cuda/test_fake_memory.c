/* The fake driver's memory: reservations, handles that are files in memory, mappings, copies. */
#include "test_fake_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define GRANULE (2ull << 20)
#define MOST 4096

struct handle {
    int fd; /* -1: free */
    uint64_t bytes;
    uint32_t mappings;
    bool released;
};

struct mapping {
    uint64_t address, bytes;
    uint32_t handle;
    bool accessible;
};

static struct handle handles[MOST];
static struct mapping mappings[MOST];
static uint32_t n_handles, n_mappings;
static uint64_t used_bytes;

cu_result fake_cuMemGetAllocationGranularity(size_t *bytes, const struct cu_allocation_prop *prop,
                                             int option)
{
    ENTER();
    if (prop->type != CU_ALLOCATION_PINNED || prop->location.type != CU_LOCATION_DEVICE || option)
        return CU_INVALID_VALUE;
    *bytes = GRANULE;
    return CU_OK;
}

cu_result fake_cuMemAddressReserve(cu_address *address, size_t bytes, size_t alignment,
                                   cu_address hint, unsigned long long flags)
{
    ENTER();
    if (!bytes || bytes % GRANULE || (alignment && alignment != GRANULE) || hint || flags)
        return CU_INVALID_VALUE;
    /* A granule more, so that the start can be rounded up; the rest stays reserved for good. */
    uint8_t *block =
        mmap(NULL, bytes + GRANULE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block == MAP_FAILED) return CU_OUT_OF_MEMORY;
    *address = ((uint64_t)(uintptr_t)block + GRANULE - 1) / GRANULE * GRANULE;
    fake_cuda_held.reservations++;
    return CU_OK;
}

cu_result fake_cuMemAddressFree(cu_address address, size_t bytes)
{
    ENTER();
    for (uint32_t i = 0; i < n_mappings; i++)
        if (mappings[i].address < address + bytes &&
            address < mappings[i].address + mappings[i].bytes)
            return CU_INVALID_VALUE; /* still mapped */
    munmap((void *)(uintptr_t)address, bytes);
    fake_cuda_held.reservations--;
    return CU_OK;
}

cu_result fake_cuMemCreate(cu_handle *handle, size_t bytes, const struct cu_allocation_prop *prop,
                           unsigned long long flags)
{
    uint32_t at = 0;

    ENTER();
    if (!bytes || bytes % GRANULE || flags || prop->type != CU_ALLOCATION_PINNED)
        return CU_INVALID_VALUE;
    while (at < n_handles && handles[at].fd >= 0) at++;
    if (used_bytes + bytes > fake_cuda_device_bytes() || at == MOST) return CU_OUT_OF_MEMORY;
    int fd = memfd_create("fake device memory", 0);
    if (fd < 0 || ftruncate(fd, (off_t)bytes)) return CU_OUT_OF_MEMORY;
    n_handles = at == n_handles ? n_handles + 1 : n_handles;
    handles[at] = (struct handle){fd, bytes, 0, false};
    used_bytes += bytes;
    fake_cuda_held.handles++;
    *handle = at + 1;
    return CU_OK;
}

static void maybe_free(struct handle *h)
{
    if (!h->released || h->mappings) return;
    close(h->fd);
    h->fd = -1;
    used_bytes -= h->bytes;
    fake_cuda_held.handles--;
}

cu_result fake_cuMemRelease(cu_handle handle)
{
    ENTER();
    if (!handle || handle > n_handles || handles[handle - 1].released) return CU_INVALID_VALUE;
    handles[handle - 1].released = true;
    maybe_free(&handles[handle - 1]);
    return CU_OK;
}

cu_result fake_cuMemMap(cu_address address, size_t bytes, size_t offset, cu_handle handle,
                        unsigned long long flags)
{
    ENTER();
    if (!handle || handle > n_handles || offset || flags || address % GRANULE ||
        bytes != handles[handle - 1].bytes || n_mappings == MOST)
        return CU_INVALID_VALUE;
    if (mmap((void *)(uintptr_t)address, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED,
             handles[handle - 1].fd, 0) == MAP_FAILED)
        return CU_OUT_OF_MEMORY;
    mappings[n_mappings++] = (struct mapping){address, bytes, (uint32_t)handle - 1, false};
    handles[handle - 1].mappings++;
    fake_cuda_held.mappings++;
    return CU_OK;
}

cu_result fake_cuMemUnmap(cu_address address, size_t bytes)
{
    ENTER();
    if (fake_cuda_in_flight) return CU_INVALID_VALUE; /* a device would fault under the work */
    for (uint32_t i = 0; i < n_mappings; i++) {
        struct mapping m = mappings[i];
        if (m.address != address || m.bytes != bytes) continue;
        mappings[i] = mappings[--n_mappings];
        mmap((void *)(uintptr_t)address, bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        handles[m.handle].mappings--;
        maybe_free(&handles[m.handle]);
        fake_cuda_held.mappings--;
        return CU_OK;
    }
    return CU_INVALID_VALUE; /* not exactly one mapping */
}

/* The mapping that holds an address, or NULL. */
static struct mapping *mapping_at(uint64_t address)
{
    for (uint32_t i = 0; i < n_mappings; i++)
        if (address >= mappings[i].address && address < mappings[i].address + mappings[i].bytes)
            return &mappings[i];
    return NULL;
}

cu_result fake_cuMemSetAccess(cu_address address, size_t bytes, const struct cu_access_desc *access,
                              size_t count)
{
    ENTER();
    if (count != 1 || access->flags != CU_ACCESS_READ_WRITE) return CU_INVALID_VALUE;
    for (uint64_t at = address; at < address + bytes;) {
        struct mapping *m = mapping_at(at);
        if (!m || m->address != at) return CU_INVALID_VALUE;
        m->accessible = true;
        mprotect((void *)(uintptr_t)at, m->bytes, PROT_READ | PROT_WRITE);
        at += m->bytes;
    }
    return CU_OK;
}

static bool accessible(uint64_t address, uint64_t bytes)
{
    for (uint64_t at = address; at < address + bytes;) {
        struct mapping *m = mapping_at(at);
        if (!m || !m->accessible) return false;
        at = m->address + m->bytes;
    }
    return true;
}

cu_result fake_cuMemHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    ENTER();
    if (flags != CU_HOSTALLOC_PORTABLE_MAPPED) return CU_INVALID_VALUE;
    *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    fake_cuda_held.host_blocks++;
    return *memory ? CU_OK : CU_OUT_OF_MEMORY;
}

cu_result fake_cuMemFreeHost(void *memory)
{
    free(memory);
    fake_cuda_held.host_blocks--;
    return CU_OK;
}

cu_result fake_cuMemcpyHtoDAsync_v2(cu_address target, const void *source, size_t bytes,
                                    cu_stream stream)
{
    (void)stream;
    ENTER();
    if (fake_cuda_capturing || !accessible(target, bytes)) return CU_INVALID_VALUE;
    fake_cuda_in_flight = true;
    memcpy((void *)(uintptr_t)target, source, bytes);
    return CU_OK;
}

cu_result fake_cuMemcpyDtoHAsync_v2(void *target, cu_address source, size_t bytes, cu_stream stream)
{
    (void)stream;
    ENTER();
    if (fake_cuda_capturing || !accessible(source, bytes)) return CU_INVALID_VALUE;
    fake_cuda_in_flight = true;
    memcpy(target, (const void *)(uintptr_t)source, bytes);
    return CU_OK;
}

cu_result fake_cuMemcpyDtoDAsync_v2(cu_address target, cu_address source, size_t bytes,
                                    cu_stream stream)
{
    (void)stream;
    ENTER();
    if (fake_cuda_capturing || !accessible(source, bytes) || !accessible(target, bytes))
        return CU_INVALID_VALUE;
    fake_cuda_in_flight = true;
    memcpy((void *)(uintptr_t)target, (const void *)(uintptr_t)source, bytes);
    return CU_OK;
}

cu_result fake_cuMemsetD32Async(cu_address target, unsigned word, size_t words, cu_stream stream)
{
    (void)stream;
    ENTER();
    if (fake_cuda_capturing || target % 4 || !accessible(target, 4 * words))
        return CU_INVALID_VALUE;
    fake_cuda_in_flight = true;
    for (size_t i = 0; i < words; i++) ((uint32_t *)(uintptr_t)target)[i] = word;
    return CU_OK;
}
