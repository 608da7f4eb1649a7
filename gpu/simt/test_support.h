/* For the tests of the CPU backend: a device with a module of test kernels, built when needed. */
#ifndef ATTEST_SIMT_TEST_SUPPORT_H
#define ATTEST_SIMT_TEST_SUPPORT_H

#include "gpu/gpu.h"

#define SIMT_TESTDATA "gpu/simt/testdata/"

struct simt_test {
    struct gpu_device *device;
    struct gpu_module *module;
    struct gpu_options options;
    struct gpu_report report;
};

/* Opens a device and loads testdata/<name>.cu's module; fails the test when it cannot. */
void simt_test_open(struct simt_test *test, const char *name, bool trace);
void simt_test_close(struct simt_test *test);
void simt_test_schedule(struct simt_test *test, uint64_t schedule);

/* A buffer of n elements, filled with `data` when that is not NULL. */
struct gpu_buffer simt_test_buffer(struct simt_test *test, const char *name, uint64_t n,
                                   uint32_t elem_bytes, const void *data);
struct gpu_buffer simt_test_alloc(struct simt_test *test, const struct gpu_buffer_desc *desc,
                                  const void *data);
void simt_test_read(struct simt_test *test, const struct gpu_buffer *buffer, void *target,
                    uint64_t bytes);

/* gpu_run with a one-dimensional grid and block. */
enum gpu_status simt_test_run(struct simt_test *test, const char *entry, uint32_t grid,
                              uint32_t block, uint32_t shared_bytes, void **args);

/* The number of the line in testdata/<file> that ends in "BAD: <marker>"; fails without one. */
int simt_test_line(const char *file, const char *marker);

#endif
