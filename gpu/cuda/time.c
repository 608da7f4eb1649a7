#include "cuda_time.h"

#include "internal.h"

#include <stdio.h>
#include <stdlib.h>

struct gpu_cuda_graph {
    cu_exec exec;
    uint32_t launches; /* 0: nothing was captured and nothing runs */
};

static cu_result mark(struct gpu_cuda_device *d, int which)
{
    d->in_flight = true;
    return d->api.event_record(d->events[which], d->stream);
}

static enum gpu_status elapsed(struct gpu_cuda_device *d, double *ms, struct gpu_report *report)
{
    float between = 0;
    cu_result rc = mark(d, 1);
    enum gpu_status status = gpu_cuda_result(d, rc, "cuEventRecord", report);

    if (status == GPU_OK) status = gpu_cuda_wait(d, report);
    if (status == GPU_OK)
        status = gpu_cuda_result(d, d->api.event_elapsed(&between, d->events[0], d->events[1]),
                                 "cuEventElapsedTime", report);
    *ms = (double)between;
    return status;
}

static enum gpu_status need_mode(struct gpu_cuda_device *d, enum gpu_cuda_mode mode,
                                 const char *call, struct gpu_report *report)
{
    enum gpu_status status = gpu_cuda_alive(d, call, report);

    if (status == GPU_OK && d->mode != mode)
        return gpu_cuda_fail(report, "wrong-mode", "%s without its begin", call);
    return status;
}

enum gpu_status gpu_cuda_time_begin(struct gpu_device *device, struct gpu_report *report)
{
    struct gpu_cuda_device *d = gpu_cuda_of(device);
    enum gpu_status status = gpu_cuda_ready(d, "time_begin", report);

    if (status == GPU_OK) status = gpu_cuda_flush(d, report);
    if (status == GPU_OK) status = gpu_cuda_result(d, mark(d, 0), "cuEventRecord", report);
    if (status == GPU_OK) d->mode = GPU_CUDA_TIMING;
    return status;
}

enum gpu_status gpu_cuda_time_end(struct gpu_device *device, double *ms, struct gpu_report *report)
{
    struct gpu_cuda_device *d = gpu_cuda_of(device);
    enum gpu_status status = need_mode(d, GPU_CUDA_TIMING, "time_end", report);

    *ms = 0;
    if (status != GPU_OK) return status;
    d->mode = GPU_CUDA_RUNNING;
    return elapsed(d, ms, report);
}

enum gpu_status gpu_cuda_time_copy(struct gpu_device *device, struct gpu_buffer *target,
                                   const struct gpu_buffer *source, uint64_t bytes,
                                   uint32_t repeats, double *ms, struct gpu_report *report)
{
    struct gpu_cuda_device *d = gpu_cuda_of(device);
    enum gpu_status status = gpu_cuda_ready(d, "time_copy", report);
    cu_result rc = CU_OK;

    *ms = 0;
    if (status == GPU_OK &&
        (!gpu_cuda_backed(target->impl, 0, bytes) || !gpu_cuda_backed(source->impl, 0, bytes)))
        return gpu_cuda_fail(report, "bad-range", "time_copy of %llu bytes: a buffer has fewer",
                             (unsigned long long)bytes);
    if (status == GPU_OK) status = gpu_cuda_flush(d, report);
    if (status != GPU_OK) return status;
    for (uint32_t i = 0; i <= repeats && rc == CU_OK; i++) {
        rc = d->api.copy_on_device(target->address, source->address, bytes, d->stream);
        if (i == 0 && rc == CU_OK) /* the first is the warm-up */
            rc = mark(d, 0);
    }
    d->launch_epoch++; /* the target's mirror, if it has one, is old now */
    status = gpu_cuda_result(d, rc, "cuMemcpyDtoDAsync", report);
    return status == GPU_OK ? elapsed(d, ms, report) : status;
}

enum gpu_status gpu_cuda_capture_begin(struct gpu_device *device, struct gpu_report *report)
{
    struct gpu_cuda_device *d = gpu_cuda_of(device);
    enum gpu_status status = gpu_cuda_ready(d, "capture_begin", report);

    if (status == GPU_OK)
        status = gpu_cuda_result(d, d->api.capture_begin(d->stream, CU_CAPTURE_RELAXED),
                                 "cuStreamBeginCapture", report);
    if (status != GPU_OK) return status;
    d->mode = GPU_CUDA_CAPTURING;
    d->captured = 0;
    return GPU_OK;
}

enum gpu_status gpu_cuda_capture_end(struct gpu_device *device, struct gpu_cuda_graph **graph,
                                     struct gpu_report *report)
{
    struct gpu_cuda_device *d = gpu_cuda_of(device);
    enum gpu_status status = need_mode(d, GPU_CUDA_CAPTURING, "capture_end", report);
    cu_graph recorded = NULL;
    struct gpu_cuda_graph *g;

    *graph = NULL;
    if (status != GPU_OK) return status;
    d->mode = GPU_CUDA_RUNNING;
    g = calloc(1, sizeof *g);
    status =
        gpu_cuda_result(d, d->api.capture_end(d->stream, &recorded), "cuStreamEndCapture", report);
    if (status == GPU_OK && !g)
        status = gpu_cuda_fail(report, "out-of-memory", "no host memory for a graph");
    if (status == GPU_OK && d->captured)
        status = gpu_cuda_result(d, d->api.graph_instantiate(&g->exec, recorded, 0),
                                 "cuGraphInstantiate", report);
    if (recorded) d->api.graph_destroy(recorded);
    if (status != GPU_OK) {
        free(g);
        return status;
    }
    g->launches = d->captured;
    *graph = g;
    return GPU_OK;
}

static enum gpu_status enqueue_graph(struct gpu_cuda_device *d, const struct gpu_cuda_graph *g,
                                     struct gpu_report *report)
{
    if (!g->launches) return GPU_OK;
    snprintf(d->running, sizeof d->running, "(a captured graph of %u launches)", g->launches);
    d->in_flight = true;
    enum gpu_status status =
        gpu_cuda_result(d, d->api.graph_launch(g->exec, d->stream), "cuGraphLaunch", report);
    if (status != GPU_OK && !d->lost) d->running[0] = '\0';
    return status;
}

enum gpu_status gpu_cuda_replay(struct gpu_device *device, struct gpu_cuda_graph *graph,
                                struct gpu_report *report)
{
    struct gpu_cuda_device *d = gpu_cuda_of(device);
    enum gpu_status status = gpu_cuda_ready(d, "replay", report);

    if (status == GPU_OK) status = gpu_cuda_flush(d, report);
    if (status == GPU_OK) status = enqueue_graph(d, graph, report);
    return status == GPU_OK ? gpu_cuda_behind(d, report) : status;
}

enum gpu_status gpu_cuda_time_replay(struct gpu_device *device, struct gpu_cuda_graph *graph,
                                     uint32_t repeats, double *ms, struct gpu_report *report)
{
    struct gpu_cuda_device *d = gpu_cuda_of(device);
    enum gpu_status status = gpu_cuda_time_begin(device, report);

    *ms = 0;
    if (status != GPU_OK) return status;
    for (uint32_t i = 0; i < repeats && status == GPU_OK; i++)
        status = enqueue_graph(d, graph, report);
    d->launch_epoch++;
    d->mode = GPU_CUDA_RUNNING;
    return status == GPU_OK ? elapsed(d, ms, report) : status;
}

void gpu_cuda_graph_free(struct gpu_device *device, struct gpu_cuda_graph *graph)
{
    struct gpu_cuda_device *d = gpu_cuda_of(device);

    if (!graph) return;
    if (graph->exec && !d->lost) d->api.exec_destroy(graph->exec);
    free(graph);
}
