#include "test_launch_dsa_support.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The modules lie beside the runner: build/<config>/simt. */
static void module_path(char path[PATH_MAX], const char *module)
{
    char runner[PATH_MAX - 64];
    ssize_t length = readlink("/proc/self/exe", runner, sizeof runner - 1);

    cr_assert_gt(length, 0);
    runner[length] = '\0';
    *strrchr(runner, '/') = '\0';
    snprintf(path, PATH_MAX, "%s/simt/%s.so", runner, module);
}

static void run_one_way(const char *module, void (*body)(struct dsa_test *test), bool trace,
                        uint64_t schedule)
{
    const struct gpu_backend *simt = &gpu_backend_simt;
    struct gpu_options options = {.trace = trace, .schedule = schedule, .watchdog_ms = 120000};
    struct dsa_test test = {.target.backend = simt};
    char path[PATH_MAX];

    module_path(path, module);
    cr_assert_eq(simt->open(&test.device, &options, &test.report), GPU_OK, "%s", test.report.text);
    test.target.device = test.device;
    cr_assert_eq(simt->load(test.device, path, &test.target.module, &test.report), GPU_OK, "%s",
                 test.report.text);
    body(&test);
    dsa_test_clear(&test);
    simt->close(test.device);
}

void dsa_test_every_way(const char *module, void (*body)(struct dsa_test *test))
{
    run_one_way(module, body, false, 0);
    run_one_way(module, body, false, 0x5eed);
    run_one_way(module, body, true, 0);
    run_one_way(module, body, true, 0xfeed);
}

void dsa_test_fast(const char *module, void (*body)(struct dsa_test *test))
{
    run_one_way(module, body, false, 0);
}

static struct gpu_buffer *new_buffer(struct dsa_test *test, const struct gpu_buffer_desc *desc,
                                     const void *data)
{
    struct gpu_buffer *buffer = &test->buffers[test->n_buffers];

    cr_assert_lt(test->n_buffers, DSA_TEST_BUFFERS);
    cr_assert_eq(gpu_backend_simt.alloc(test->device, desc, buffer, &test->report), GPU_OK, "%s",
                 test->report.text);
    test->n_buffers++;
    cr_assert_eq(
        gpu_backend_simt.upload(test->device, buffer, 0, data, desc->size_bytes, &test->report),
        GPU_OK, "%s", test->report.text);
    return buffer;
}

const struct gpu_buffer *dsa_test_input(struct dsa_test *test, const char *name, const void *data,
                                        uint64_t n, uint32_t elem_bytes)
{
    struct gpu_buffer_desc desc = {.name = name,
                                   .size_bytes = n * elem_bytes,
                                   .elem_bytes = elem_bytes,
                                   .align_bytes = 16,
                                   .read_only = true};

    return new_buffer(test, &desc, data);
}

const struct gpu_buffer *dsa_test_output(struct dsa_test *test, const char *name, uint64_t n,
                                         uint32_t elem_bytes)
{
    struct gpu_buffer_desc desc = {
        .name = name, .size_bytes = n * elem_bytes, .elem_bytes = elem_bytes, .align_bytes = 16};
    void *poison = malloc(desc.size_bytes + 1);
    struct gpu_buffer *buffer;

    cr_assert_not_null(poison);
    memset(poison, DSA_TEST_POISON, desc.size_bytes);
    buffer = new_buffer(test, &desc, poison);
    gpu_backend_simt.mark_unwritten(test->device, buffer);
    free(poison);
    return buffer;
}

void dsa_test_read(struct dsa_test *test, const struct gpu_buffer *buffer, void *target)
{
    cr_assert_eq(gpu_backend_simt.download(test->device, buffer, 0, target, buffer->size_bytes,
                                           &test->report),
                 GPU_OK, "%s", test->report.text);
}

void dsa_test_clear(struct dsa_test *test)
{
    for (uint32_t i = 0; i < test->n_buffers; i++)
        gpu_backend_simt.free(test->device, &test->buffers[i]);
    test->n_buffers = 0;
}

void dsa_test_ran(struct dsa_test *test, enum gpu_status status)
{
    cr_assert_eq(status, GPU_OK, "%s: %s", test->report.rule, test->report.text);
    for (uint32_t i = 0; i < test->n_buffers; i++)
        cr_assert_eq(gpu_backend_simt.check_guards(test->device, &test->buffers[i], &test->report),
                     GPU_OK, "%s", test->report.text);
}

bool dsa_test_untouched(const void *bytes, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (((const uint8_t *)bytes)[i] != DSA_TEST_POISON) return false;
    return true;
}

uint16_t dsa_test_bf16(float value)
{
    uint32_t bits = dsa_test_bits(value), half = 0x8000, rest = bits & 0xffff;
    uint32_t upper = bits >> 16;

    return (uint16_t)(rest > half || (rest == half && upper % 2 == 1) ? upper + 1 : upper);
}

float dsa_test_f32(uint16_t bf16)
{
    return dsa_test_float((uint32_t)bf16 << 16);
}

float dsa_test_e4m3(uint8_t code)
{
    int exponent = code >> 3 & 15, mantissa = code & 7;
    float magnitude =
        exponent ? ldexpf((float)(8 + mantissa), exponent - 10) : ldexpf((float)mantissa, -9);

    if ((code & 0x7f) == 0x7f) return NAN;
    return code & 0x80 ? -magnitude : magnitude;
}

uint32_t dsa_test_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

float dsa_test_float(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

uint32_t dsa_test_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 32) ^ (uint32_t)(*state >> 13);
}

uint16_t dsa_test_random_bf16(uint64_t *state)
{
    uint32_t word = dsa_test_random(state);

    return (uint16_t)((word & 0x8000) | (124 + (word >> 8) % 4) << 7 | (word & 0x7f));
}
