/* Finding libcuda and its functions at run time. */
#ifndef ATTEST_GPU_CUDA_DRIVER_H
#define ATTEST_GPU_CUDA_DRIVER_H

#include "driver_api.h"
#include "gpu/gpu.h"

/* Fills *driver. GPU_UNAVAILABLE with the loader's own words where there is no driver, or the
 * first missing function where it is too old. The library stays loaded for the process's life. */
enum gpu_status gpu_cuda_driver_load(struct gpu_cuda_driver *driver, struct gpu_report *report);

/* Tests: functions come from `lookup` instead of libcuda (NULL: from libcuda again). */
typedef void *(*gpu_cuda_lookup)(const char *symbol);
void gpu_cuda_driver_override(gpu_cuda_lookup lookup);

/* Writes "CUDA_ERROR_X (7, words)" for a result; always terminates. */
void gpu_cuda_describe(const struct gpu_cuda_driver *driver, cu_result result, char *text,
                       size_t text_bytes);

#endif
