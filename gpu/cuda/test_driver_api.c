/* The project's own declarations of the driver's interface against the toolkit's header, where one
 * is installed. All of it happens at compile time. */
#include <criterion/criterion.h>

#include "driver_api.h"

#if __has_include(<cuda.h>)
#include <cuda.h>
#define HAVE_HEADER 1
#elif __has_include("/usr/local/cuda/include/cuda.h")
#include "/usr/local/cuda/include/cuda.h"
#define HAVE_HEADER 1
#endif

#ifdef HAVE_HEADER
#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #theirs)
SAME(CU_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
SAME(CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(CU_DEINITIALIZED, CUDA_ERROR_DEINITIALIZED);
SAME(CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(CU_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT);
SAME(CU_NO_BINARY_FOR_GPU, CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME(CU_ECC_UNCORRECTABLE, CUDA_ERROR_ECC_UNCORRECTABLE);
SAME(CU_INVALID_PTX, CUDA_ERROR_INVALID_PTX);
SAME(CU_NVLINK_UNCORRECTABLE, CUDA_ERROR_NVLINK_UNCORRECTABLE);
SAME(CU_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
SAME(CU_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(CU_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS);
SAME(CU_LAUNCH_OUT_OF_RESOURCES, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
SAME(CU_LAUNCH_TIMEOUT, CUDA_ERROR_LAUNCH_TIMEOUT);
SAME(CU_CONTEXT_IS_DESTROYED, CUDA_ERROR_CONTEXT_IS_DESTROYED);
SAME(CU_ASSERT, CUDA_ERROR_ASSERT);
SAME(CU_HARDWARE_STACK_ERROR, CUDA_ERROR_HARDWARE_STACK_ERROR);
SAME(CU_ILLEGAL_INSTRUCTION, CUDA_ERROR_ILLEGAL_INSTRUCTION);
SAME(CU_MISALIGNED_ADDRESS, CUDA_ERROR_MISALIGNED_ADDRESS);
SAME(CU_INVALID_ADDRESS_SPACE, CUDA_ERROR_INVALID_ADDRESS_SPACE);
SAME(CU_INVALID_PC, CUDA_ERROR_INVALID_PC);
SAME(CU_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED);
SAME(CU_UNKNOWN, CUDA_ERROR_UNKNOWN);
#if CUDA_VERSION >= 12080
SAME(CU_CONTAINED, CUDA_ERROR_CONTAINED);
SAME(CU_TENSOR_MEMORY_LEAK, CUDA_ERROR_TENSOR_MEMORY_LEAK);
#endif
SAME(CU_ATTR_MAX_THREADS_PER_BLOCK, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
SAME(CU_ATTR_MAX_GRID_X, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X);
SAME(CU_ATTR_MAX_GRID_Y, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y);
SAME(CU_ATTR_MAX_GRID_Z, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z);
SAME(CU_ATTR_MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(CU_ATTR_L2_BYTES, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
SAME(CU_ATTR_CC_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(CU_ATTR_CC_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(CU_ATTR_MAX_SHARED_OPTIN, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
SAME(CU_ATTR_VIRTUAL_MEMORY, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
SAME(CU_FUNC_STATIC_SHARED_BYTES, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
SAME(CU_FUNC_MAX_DYNAMIC_SHARED_BYTES, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME(CU_STREAM_NONBLOCKING, CU_STREAM_NON_BLOCKING);
SAME(CU_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
SAME(CU_HOSTALLOC_PORTABLE_MAPPED, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
SAME(CU_ALLOCATION_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
SAME(CU_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
SAME(CU_ACCESS_READ_WRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
SAME(CU_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
SAME(CU_JIT_ERROR_LOG, CU_JIT_ERROR_LOG_BUFFER);
SAME(CU_JIT_ERROR_LOG_BYTES, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);

#define SIZE(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), #theirs)
#define OFFSET(ours, a, theirs, b) \
    _Static_assert(offsetof(ours, a) == offsetof(theirs, b), #theirs "." #b)
SIZE(cu_result, CUresult);
SIZE(cu_device, CUdevice);
SIZE(cu_address, CUdeviceptr);
SIZE(cu_handle, CUmemGenericAllocationHandle);
SIZE(struct cu_location, CUmemLocation);
SIZE(struct cu_allocation_prop, CUmemAllocationProp);
SIZE(struct cu_access_desc, CUmemAccessDesc);
OFFSET(struct cu_allocation_prop, requested_handle_types, CUmemAllocationProp,
       requestedHandleTypes);
OFFSET(struct cu_allocation_prop, location, CUmemAllocationProp, location);
OFFSET(struct cu_allocation_prop, win32_meta, CUmemAllocationProp, win32HandleMetaData);
OFFSET(struct cu_allocation_prop, flags, CUmemAllocationProp, allocFlags);
OFFSET(struct cu_access_desc, flags, CUmemAccessDesc, flags);

/* Each function of the list with the header's types in place of the project's: the whole prototype
 * has to be the header's. */
#define cu_result CUresult
#define cu_device CUdevice
#define cu_context CUcontext
#define cu_module CUmodule
#define cu_function CUfunction
#define cu_stream CUstream
#define cu_event CUevent
#define cu_graph CUgraph
#define cu_exec CUgraphExec
#define cu_address CUdeviceptr
#define cu_handle CUmemGenericAllocationHandle
#define cu_device_attribute CUdevice_attribute
#define cu_function_attribute CUfunction_attribute
#define cu_jit_option CUjit_option
#define cu_granularity CUmemAllocationGranularity_flags
#define cu_capture_mode CUstreamCaptureMode
#define cu_allocation_prop CUmemAllocationProp_st
#define cu_access_desc CUmemAccessDesc_st
#define PROTOTYPE(field, symbol, parameters)                                                  \
    _Static_assert(__builtin_types_compatible_p(CUresult(*) parameters, __typeof__(&symbol)), \
                   "the prototype of " #symbol);
GPU_CUDA_REQUIRED(PROTOTYPE)
#if CUDA_VERSION >= 12040
GPU_CUDA_OPTIONAL(PROTOTYPE)
#endif
#endif

Test(cuda_driver_api, matches_the_toolkit)
{
#ifndef HAVE_HEADER
    cr_skip_test("no cuda.h on this machine");
#endif
}
