/* The pipeline intrinsics: asynchronous copies by batches. cuda::pipeline objects are left out. */
#ifndef ATTEST_SIMT_CUDA_PIPELINE_H
#define ATTEST_SIMT_CUDA_PIPELINE_H

#include "simt_copy.h"

SIMT_FN void __pipeline_memcpy_async(void *to, const void *from, size_t bytes, size_t zfill = 0)
{
    simt_copy_start(to, from, (unsigned)bytes, (unsigned)(bytes - zfill));
}
SIMT_FN void __pipeline_commit(void)
{
    simt_copy_commit();
}
SIMT_FN void __pipeline_wait_prior(size_t pending)
{
    simt_copy_wait((unsigned)pending);
}

#endif
