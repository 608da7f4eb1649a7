#include "test_support.h"

#include "fiber.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUILD (SIMT_WITH_ASAN ? "build/simt-test-asan" : "build/simt-test")

/* Tests run side by side in processes of their own: one builds, the others wait for it. */
static void build_module(const char *name, bool trace, char *path, size_t size)
{
    const char *flags = trace ? "--trace" : SIMT_WITH_ASAN ? "--asan" : "";
    char command[1024];

    snprintf(path, size, "%s/%s%s", BUILD, name, trace ? ".trace.so" : ".so");
    snprintf(command, sizeof command,
             "mkdir -p %s && flock %s/lock sh -ec '"
             "if [ ! -e %s ] || [ -n \"$(find gpu/simt/include gpu/simt/rewrite.awk "
             "gpu/simt/testdata mk/simt-module.sh build/simt-ptx -newer %s)\" ]; then "
             "mk/simt-module.sh %s " SIMT_TESTDATA "%s.cu %s; fi'",
             BUILD, BUILD, path, path, flags, name, path);
    cr_assert_eq(system(command), 0, "building %s", path);
}

void simt_test_open(struct simt_test *test, const char *name, bool trace)
{
    char path[256];
    enum gpu_status status;

    memset(test, 0, sizeof *test);
    test->options.trace = trace;
    build_module(name, trace, path, sizeof path);
    status = gpu_backend_simt.open(&test->device, &test->options, &test->report);
    cr_assert_eq(status, GPU_OK, "%s", test->report.text);
    status = gpu_backend_simt.load(test->device, path, &test->module, &test->report);
    cr_assert_eq(status, GPU_OK, "%s", test->report.text);
}

void simt_test_close(struct simt_test *test)
{
    gpu_backend_simt.close(test->device);
}

void simt_test_schedule(struct simt_test *test, uint64_t schedule)
{
    test->options.schedule = schedule;
    gpu_backend_simt.set_options(test->device, &test->options);
}

struct gpu_buffer simt_test_alloc(struct simt_test *test, const struct gpu_buffer_desc *desc,
                                  const void *data)
{
    struct gpu_buffer buffer;
    enum gpu_status status = gpu_backend_simt.alloc(test->device, desc, &buffer, &test->report);

    cr_assert_eq(status, GPU_OK, "%s", test->report.text);
    if (!data) return buffer;
    status =
        gpu_backend_simt.upload(test->device, &buffer, 0, data, desc->size_bytes, &test->report);
    cr_assert_eq(status, GPU_OK, "%s", test->report.text);
    return buffer;
}

struct gpu_buffer simt_test_buffer(struct simt_test *test, const char *name, uint64_t n,
                                   uint32_t elem_bytes, const void *data)
{
    struct gpu_buffer_desc desc = {
        .name = name, .size_bytes = n * elem_bytes, .elem_bytes = elem_bytes};

    return simt_test_alloc(test, &desc, data);
}

void simt_test_read(struct simt_test *test, const struct gpu_buffer *buffer, void *target,
                    uint64_t bytes)
{
    enum gpu_status status =
        gpu_backend_simt.download(test->device, buffer, 0, target, bytes, &test->report);

    cr_assert_eq(status, GPU_OK, "%s", test->report.text);
}

enum gpu_status simt_test_run(struct simt_test *test, const char *entry, uint32_t grid,
                              uint32_t block, uint32_t shared_bytes, void **args)
{
    struct gpu_target target = {&gpu_backend_simt, test->device, test->module, NULL};

    return gpu_run(&target, entry, (struct gpu_dim){grid, 1, 1}, (struct gpu_dim){block, 1, 1},
                   shared_bytes, args, &test->report);
}

int simt_test_line(const char *file, const char *marker)
{
    char path[256], line[256], wanted[128];
    int number = 0, found = 0;
    FILE *stream;

    snprintf(path, sizeof path, SIMT_TESTDATA "%s", file);
    snprintf(wanted, sizeof wanted, "// BAD: %s\n", marker);
    stream = fopen(path, "r");
    cr_assert(stream != NULL, "cannot read %s (tests run in the root of the repository)", path);
    while (!found && fgets(line, sizeof line, stream)) {
        number++;
        if (strstr(line, wanted)) found = number;
    }
    fclose(stream);
    cr_assert(found > 0, "no line of %s is marked %s", path, marker);
    return found;
}
