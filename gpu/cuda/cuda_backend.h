/* The CUDA backend: what a caller may want beyond the table in gpu/gpu.h.
 *
 * Process rules. A device belongs to the thread that opens it, one a thread at a time. Devices of
 * several threads share the process's context: each has a stream, modules and memory of its own,
 * and a fault in one loses all of them. A process that forks after opening must not use the backend
 * in the child (open there says "forked"): fork first.
 *
 * Fences. Every buffer lies flush against an unmapped neighbour on the side its descriptor asks
 * for, as near as its alignment allows, so that an access past that side faults. The rest of the
 * mapped memory around it (at most a granule of 2 MiB, or a quarter of a large buffer) is a red
 * zone: filled at alloc, and every byte of it is compared by check_guards. A read of the red zone
 * is not seen as such; it reads 0x7fff7fff words: NaN as f32, bf16 and e4m3 (7f, ff), and a huge
 * index as i32. Behind each fence at least 256 MiB of addresses are unmapped.
 *
 * Extents. Address space is reserved for the whole buffer, and only granules that hold a part of an
 * extent are mapped. Inside a mapped granule, bytes outside the extents are red zone: a write to
 * them is found by check_guards, a read of them does not fault.
 *
 * Inputs. `read_only` is not enforced on the device (changing the protection of a mapping costs
 * more than a small case); the caller compares what it downloads. mark_unwritten does nothing.
 *
 * Contents after alloc are unspecified. Transfers of small buffers are gathered: upload writes a
 * pinned mirror, all mirrors travel with one small kernel before a launch, and come back with one
 * behind it, so that download and check_guards after a launch need no further round trip.
 *
 * Findings of launch: "fault" (an illegal or misaligned access, a trap, an assertion, a launch the
 * device cannot start) and "hang" (the watchdog). Most faults and every hang leave the context
 * unusable: from then on each call returns GPU_INFRA with rule "context-lost" and a text that
 * repeats the first failure; free and close still return the host's memory. Only a new process
 * gets a working device again. After a hang the process has to leave with _exit: the driver's exit
 * handlers may wait for the kernel.
 *
 * Other rules of GPU_INFRA: "out-of-memory", "driver-error", "bad-module", "bad-range" (a copy
 * outside the extents), "bad-descriptor", "wrong-mode" (copying while capturing or timing),
 * "already-open", "forked". GPU_REFUSED "shared_limit" comes from launch where static and dynamic
 * shared memory together exceed the device: only the loaded module knows the static part. */
#ifndef ATTEST_GPU_CUDA_BACKEND_H
#define ATTEST_GPU_CUDA_BACKEND_H

#include "gpu/gpu.h"

/* What the machine is, for reports. Borrowed from the device. */
struct gpu_cuda_info {
    char name[96];
    int cc_major, cc_minor; /* compute capability */
    int driver_version;     /* 13000 = CUDA 13.0 */
    int multiprocessors;
    uint64_t l2_bytes, memory_bytes, granule_bytes;
    bool helper_kernels;   /* false: copies one by one and red zones compared on the host, slower */
    char helper_note[256]; /* why not */
};
const struct gpu_cuda_info *gpu_cuda_get_info(const struct gpu_device *device);

/* True once a fault or hang has cost the context; the process has to be replaced. */
bool gpu_cuda_context_lost(const struct gpu_device *device);

/* What the pool holds now: for tests and for watching memory. */
struct gpu_cuda_usage {
    uint64_t live_buffers;
    uint64_t mapped_bytes; /* physical memory held, live and pooled */
    uint64_t pooled_bytes; /* of those, free for reuse */
    uint64_t pinned_bytes; /* host memory pinned by the backend */
    uint64_t regions_made; /* fenced mappings made since open (a pool miss each) */
};
void gpu_cuda_get_usage(const struct gpu_device *device, struct gpu_cuda_usage *usage);

#endif
