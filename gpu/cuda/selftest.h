/* The CUDA backend's self-test: everything the backend promises, tried on the device at hand. */
#ifndef ATTEST_GPU_CUDA_SELFTEST_H
#define ATTEST_GPU_CUDA_SELFTEST_H

/* Runs the checks whose name starts with `filter` (NULL: all). `line` gets one line of text at a
 * time, without newline: "ok NAME DETAIL", "FAIL NAME DETAIL" or "note NAME DETAIL" (figures that
 * cannot fail). Every check runs in a child process of its own, because half of them cost the
 * context; the caller must not have opened the device, and must not have threads that hold locks.
 *
 * Returns the number of FAIL lines; -1 where there is no device, after a line "skip ..." that says
 * why; -2 when no check has such a name, which is not a success. */
int gpu_cuda_selftest(const char *filter, void (*line)(void *context, const char *text),
                      void *context);

#endif
