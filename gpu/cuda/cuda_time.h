/* Timing and graph replay on the CUDA backend, for `bench` and for the replay check.
 *
 * All functions return GPU_OK, what gpu_backend.launch may return, or GPU_INFRA (rule
 * "wrong-mode" when called in the wrong order). While timing or capturing, launches made through
 * gpu_backend_cuda.launch return at once without running to completion; alloc, free, upload and
 * download have to wait until the mode ends. */
#ifndef ATTEST_GPU_CUDA_TIME_H
#define ATTEST_GPU_CUDA_TIME_H

#include "gpu/gpu.h"

struct gpu_cuda_graph; /* opaque; freed with gpu_cuda_graph_free before its device closes */

/* Everything launched between the two is enqueued back to back. *ms is the device's time from
 * before the first to behind the last, by events. Host work between launches counts where it is
 * slower than the kernels: for short kernels capture the launches and time the graph. */
enum gpu_status gpu_cuda_time_begin(struct gpu_device *device, struct gpu_report *report);
enum gpu_status gpu_cuda_time_end(struct gpu_device *device, double *ms, struct gpu_report *report);

/* Time of `repeats` copies of `size_bytes` from the start of `source` to the start of `target`,
 * both on the device. Bandwidth in bytes moved (read plus written) is 2*size_bytes*repeats/ms.
 * A warm-up copy is not timed. Both ranges must be backed. */
enum gpu_status gpu_cuda_time_copy(struct gpu_device *device, struct gpu_buffer *target,
                                   const struct gpu_buffer *source, uint64_t size_bytes,
                                   uint32_t repeats, double *ms, struct gpu_report *report);

/* Launches between the two are recorded with their argument values and do not run. capture_end
 * makes *graph, owned by the caller; on failure *graph is NULL and the mode is left all the same.
 * An empty capture is a graph that does nothing. */
enum gpu_status gpu_cuda_capture_begin(struct gpu_device *device, struct gpu_report *report);
enum gpu_status gpu_cuda_capture_end(struct gpu_device *device, struct gpu_cuda_graph **graph,
                                     struct gpu_report *report);
/* Runs the recorded launches to completion on what the buffers hold now; watchdog, findings and
 * red zones as with launch. The buffers recorded must still be allocated. */
enum gpu_status gpu_cuda_replay(struct gpu_device *device, struct gpu_cuda_graph *graph,
                                struct gpu_report *report);
/* Replays `repeats` times back to back and gives the device's time for all of them. */
enum gpu_status gpu_cuda_time_replay(struct gpu_device *device, struct gpu_cuda_graph *graph,
                                     uint32_t repeats, double *ms, struct gpu_report *report);
void gpu_cuda_graph_free(struct gpu_device *device, struct gpu_cuda_graph *graph);

#endif
