/* The part of the CUDA driver's binary interface that the backend uses, declared here so that no
 * toolkit header is needed to build. Names are the project's own; each says which driver type or
 * constant it stands for. test_driver_api.c compares every one with the toolkit's header where one
 * is installed.
 *
 * Functions are found at run time under the exact exported symbol, so the binary signature is never
 * in doubt (cuMemcpyHtoDAsync_v2, not whatever a header's macro renames it to). */
#ifndef ATTEST_GPU_CUDA_DRIVER_API_H
#define ATTEST_GPU_CUDA_DRIVER_API_H

#include <stddef.h>
#include <stdint.h>

typedef int cu_result;                      /* CUresult */
typedef int cu_device;                      /* CUdevice */
typedef struct cu_context_st *cu_context;   /* CUcontext */
typedef struct cu_module_st *cu_module;     /* CUmodule */
typedef struct cu_function_st *cu_function; /* CUfunction */
typedef struct cu_stream_st *cu_stream;     /* CUstream */
typedef struct cu_event_st *cu_event;       /* CUevent */
typedef struct cu_graph_st *cu_graph;       /* CUgraph */
typedef struct cu_exec_st *cu_exec;         /* CUgraphExec */
typedef unsigned long long cu_address;      /* CUdeviceptr */
typedef unsigned long long cu_handle;       /* CUmemGenericAllocationHandle */
typedef int cu_device_attribute;            /* CUdevice_attribute */
typedef int cu_function_attribute;          /* CUfunction_attribute */
typedef int cu_jit_option;                  /* CUjit_option */
typedef int cu_granularity;                 /* CUmemAllocationGranularity_flags */
typedef int cu_capture_mode;                /* CUstreamCaptureMode */

/* CUresult: those the backend tells apart. */
enum {
    CU_OK = 0,
    CU_INVALID_VALUE = 1,
    CU_OUT_OF_MEMORY = 2,
    CU_DEINITIALIZED = 4,
    CU_STUB_LIBRARY = 34,
    CU_NO_DEVICE = 100,
    CU_INVALID_CONTEXT = 201,
    CU_NO_BINARY_FOR_GPU = 209,
    CU_ECC_UNCORRECTABLE = 214,
    CU_INVALID_PTX = 218,
    CU_NVLINK_UNCORRECTABLE = 220,
    CU_UNSUPPORTED_PTX_VERSION = 222,
    CU_CONTAINED = 226,
    CU_NOT_FOUND = 500,
    CU_NOT_READY = 600,
    CU_ILLEGAL_ADDRESS = 700,
    CU_LAUNCH_OUT_OF_RESOURCES = 701,
    CU_LAUNCH_TIMEOUT = 702,
    CU_CONTEXT_IS_DESTROYED = 709,
    CU_ASSERT = 710,
    CU_HARDWARE_STACK_ERROR = 714,
    CU_ILLEGAL_INSTRUCTION = 715,
    CU_MISALIGNED_ADDRESS = 716,
    CU_INVALID_ADDRESS_SPACE = 717,
    CU_INVALID_PC = 718,
    CU_LAUNCH_FAILED = 719,
    CU_TENSOR_MEMORY_LEAK = 721,
    CU_UNKNOWN = 999,
};

/* CUdevice_attribute */
enum {
    CU_ATTR_MAX_THREADS_PER_BLOCK = 1,
    CU_ATTR_MAX_GRID_X = 5,
    CU_ATTR_MAX_GRID_Y = 6,
    CU_ATTR_MAX_GRID_Z = 7,
    CU_ATTR_MULTIPROCESSORS = 16,
    CU_ATTR_L2_BYTES = 38,
    CU_ATTR_CC_MAJOR = 75,
    CU_ATTR_CC_MINOR = 76,
    CU_ATTR_MAX_SHARED_OPTIN = 97,
    CU_ATTR_VIRTUAL_MEMORY = 102,
};

/* CUfunction_attribute */
enum {
    CU_FUNC_STATIC_SHARED_BYTES = 1,
    CU_FUNC_MAX_DYNAMIC_SHARED_BYTES = 8,
};

enum {
    CU_STREAM_NONBLOCKING = 1,        /* CU_STREAM_NON_BLOCKING */
    CU_CAPTURE_RELAXED = 2,           /* CU_STREAM_CAPTURE_MODE_RELAXED */
    CU_HOSTALLOC_PORTABLE_MAPPED = 3, /* CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP */
    CU_ALLOCATION_PINNED = 1,         /* CU_MEM_ALLOCATION_TYPE_PINNED */
    CU_LOCATION_DEVICE = 1,           /* CU_MEM_LOCATION_TYPE_DEVICE */
    CU_ACCESS_READ_WRITE = 3,         /* CU_MEM_ACCESS_FLAGS_PROT_READWRITE */
    CU_GRANULARITY_MINIMUM = 0,       /* CU_MEM_ALLOC_GRANULARITY_MINIMUM */

    CU_JIT_ERROR_LOG = 5,       /* CU_JIT_ERROR_LOG_BUFFER */
    CU_JIT_ERROR_LOG_BYTES = 6, /* CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES */
};

struct cu_location { /* CUmemLocation */
    int type;
    int id;
};

struct cu_allocation_prop { /* CUmemAllocationProp */
    int type;
    int requested_handle_types;
    struct cu_location location;
    void *win32_meta;
    struct {
        unsigned char compression_type;
        unsigned char gpu_direct_rdma;
        unsigned short usage;
        unsigned char reserved[4];
    } flags;
};

struct cu_access_desc { /* CUmemAccessDesc */
    struct cu_location location;
    int flags;
};

/* X(field, exported symbol, parameters). The backend does not open without these. */
#define GPU_CUDA_REQUIRED(X)                                                                       \
    X(init, cuInit, (unsigned flags))                                                              \
    X(driver_version, cuDriverGetVersion, (int *version))                                          \
    X(error_name, cuGetErrorName, (cu_result error, const char **text))                            \
    X(error_string, cuGetErrorString, (cu_result error, const char **text))                        \
    X(device_count, cuDeviceGetCount, (int *count))                                                \
    X(device_get, cuDeviceGet, (cu_device * device, int ordinal))                                  \
    X(device_name, cuDeviceGetName, (char *name, int length, cu_device device))                    \
    X(device_attribute, cuDeviceGetAttribute,                                                      \
      (int *value, cu_device_attribute attribute, cu_device device))                               \
    X(device_memory, cuDeviceTotalMem_v2, (size_t * bytes, cu_device device))                      \
    X(context_retain, cuDevicePrimaryCtxRetain, (cu_context * context, cu_device device))          \
    X(context_release, cuDevicePrimaryCtxRelease_v2, (cu_device device))                           \
    X(context_set, cuCtxSetCurrent, (cu_context context))                                          \
    X(module_load, cuModuleLoadDataEx,                                                             \
      (cu_module * module, const void *image, unsigned n_options, cu_jit_option *options,          \
       void **values))                                                                             \
    X(module_unload, cuModuleUnload, (cu_module module))                                           \
    X(module_function, cuModuleGetFunction,                                                        \
      (cu_function * function, cu_module module, const char *name))                                \
    X(function_get, cuFuncGetAttribute,                                                            \
      (int *value, cu_function_attribute attribute, cu_function function))                         \
    X(function_set, cuFuncSetAttribute,                                                            \
      (cu_function function, cu_function_attribute attribute, int value))                          \
    X(launch, cuLaunchKernel,                                                                      \
      (cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,  \
       unsigned block_y, unsigned block_z, unsigned shared_bytes, cu_stream stream, void **params, \
       void **extra))                                                                              \
    X(stream_create, cuStreamCreate, (cu_stream * stream, unsigned flags))                         \
    X(stream_destroy, cuStreamDestroy_v2, (cu_stream stream))                                      \
    X(stream_query, cuStreamQuery, (cu_stream stream))                                             \
    X(event_create, cuEventCreate, (cu_event * event, unsigned flags))                             \
    X(event_destroy, cuEventDestroy_v2, (cu_event event))                                          \
    X(event_record, cuEventRecord, (cu_event event, cu_stream stream))                             \
    X(event_elapsed, cuEventElapsedTime, (float *ms, cu_event start, cu_event end))                \
    X(host_alloc, cuMemHostAlloc, (void **memory, size_t bytes, unsigned flags))                   \
    X(host_free, cuMemFreeHost, (void *memory))                                                    \
    X(copy_to_device, cuMemcpyHtoDAsync_v2,                                                        \
      (cu_address target, const void *source, size_t bytes, cu_stream stream))                     \
    X(copy_to_host, cuMemcpyDtoHAsync_v2,                                                          \
      (void *target, cu_address source, size_t bytes, cu_stream stream))                           \
    X(copy_on_device, cuMemcpyDtoDAsync_v2,                                                        \
      (cu_address target, cu_address source, size_t bytes, cu_stream stream))                      \
    X(fill_words, cuMemsetD32Async,                                                                \
      (cu_address target, unsigned word, size_t words, cu_stream stream))                          \
    X(granularity, cuMemGetAllocationGranularity,                                                  \
      (size_t * bytes, const struct cu_allocation_prop *prop, cu_granularity option))              \
    X(reserve, cuMemAddressReserve,                                                                \
      (cu_address * address, size_t bytes, size_t alignment, cu_address hint,                      \
       unsigned long long flags))                                                                  \
    X(unreserve, cuMemAddressFree, (cu_address address, size_t bytes))                             \
    X(create, cuMemCreate,                                                                         \
      (cu_handle * handle, size_t bytes, const struct cu_allocation_prop *prop,                    \
       unsigned long long flags))                                                                  \
    X(release, cuMemRelease, (cu_handle handle))                                                   \
    X(map, cuMemMap,                                                                               \
      (cu_address address, size_t bytes, size_t offset, cu_handle handle,                          \
       unsigned long long flags))                                                                  \
    X(unmap, cuMemUnmap, (cu_address address, size_t bytes))                                       \
    X(set_access, cuMemSetAccess,                                                                  \
      (cu_address address, size_t bytes, const struct cu_access_desc *access, size_t count))       \
    X(capture_begin, cuStreamBeginCapture_v2, (cu_stream stream, cu_capture_mode mode))            \
    X(capture_end, cuStreamEndCapture, (cu_stream stream, cu_graph * graph))                       \
    X(graph_instantiate, cuGraphInstantiateWithFlags,                                              \
      (cu_exec * exec, cu_graph graph, unsigned long long flags))                                  \
    X(graph_launch, cuGraphLaunch, (cu_exec exec, cu_stream stream))                               \
    X(graph_destroy, cuGraphDestroy, (cu_graph graph))                                             \
    X(exec_destroy, cuGraphExecDestroy, (cu_exec exec))

/* NULL where the driver is older than the function; each use has an answer for that. */
#define GPU_CUDA_OPTIONAL(X)                                                         \
    X(function_count, cuModuleGetFunctionCount, (unsigned *count, cu_module module)) \
    X(functions, cuModuleEnumerateFunctions,                                         \
      (cu_function * functions, unsigned count, cu_module module))                   \
    X(function_name, cuFuncGetName, (const char **name, cu_function function))       \
    X(function_load, cuFuncLoad, (cu_function function))                             \
    X(write_word, cuStreamWriteValue32_v2,                                           \
      (cu_stream stream, cu_address address, uint32_t value, unsigned flags))

#define GPU_CUDA_FIELD(field, symbol, parameters) cu_result(*field) parameters;
struct gpu_cuda_driver {
    GPU_CUDA_REQUIRED(GPU_CUDA_FIELD)
    GPU_CUDA_OPTIONAL(GPU_CUDA_FIELD)
};
#undef GPU_CUDA_FIELD

#endif
