#include "test_launch_qsa_support.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The modules lie beside the runner: build/<config>/simt. */
static void module_path(char path[PATH_MAX], const char *file)
{
    char runner[PATH_MAX - 64];
    ssize_t length = readlink("/proc/self/exe", runner, sizeof runner - 1);

    cr_assert_gt(length, 0);
    runner[length] = '\0';
    *strrchr(runner, '/') = '\0';
    snprintf(path, PATH_MAX, "%s/simt/%s", runner, file);
}

static void run_one_way(void (*body)(struct qsa_test *test), bool trace, uint64_t schedule)
{
    const struct gpu_backend *simt = &gpu_backend_simt;
    struct gpu_options options = {.trace = trace, .schedule = schedule};
    struct qsa_test test = {.target.backend = simt};
    char path[PATH_MAX];

    module_path(path, "qsa_indexer.so");
    cr_assert_eq(simt->open(&test.device, &options, &test.report), GPU_OK, "%s", test.report.text);
    test.target.device = test.device;
    cr_assert_eq(simt->load(test.device, path, &test.target.module, &test.report), GPU_OK, "%s",
                 test.report.text);
    body(&test);
    qsa_test_clear(&test);
    simt->close(test.device);
}

void qsa_test_every_way(void (*body)(struct qsa_test *test))
{
    run_one_way(body, false, 0);
    run_one_way(body, false, 0x5eed);
    run_one_way(body, true, 0);
    run_one_way(body, true, 0xfeed);
}

static struct gpu_buffer *new_buffer(struct qsa_test *test, const struct gpu_buffer_desc *desc,
                                     const void *data)
{
    struct gpu_buffer *buffer = &test->buffers[test->n_buffers];

    cr_assert_lt(test->n_buffers, QSA_TEST_BUFFERS);
    cr_assert_eq(gpu_backend_simt.alloc(test->device, desc, buffer, &test->report), GPU_OK, "%s",
                 test->report.text);
    test->n_buffers++;
    cr_assert_eq(
        gpu_backend_simt.upload(test->device, buffer, 0, data, desc->size_bytes, &test->report),
        GPU_OK, "%s", test->report.text);
    return buffer;
}

const struct gpu_buffer *qsa_test_input(struct qsa_test *test, const char *name, const void *data,
                                        uint64_t n, uint32_t elem_bytes)
{
    struct gpu_buffer_desc desc = {.name = name,
                                   .size_bytes = n * elem_bytes,
                                   .elem_bytes = elem_bytes,
                                   .align_bytes = 16,
                                   .read_only = true};

    return new_buffer(test, &desc, data);
}

const struct gpu_buffer *qsa_test_output(struct qsa_test *test, const char *name, uint64_t n,
                                         uint32_t elem_bytes)
{
    struct gpu_buffer_desc desc = {
        .name = name, .size_bytes = n * elem_bytes, .elem_bytes = elem_bytes, .align_bytes = 16};
    void *poison = malloc(desc.size_bytes + 1);
    struct gpu_buffer *buffer;

    cr_assert(poison != NULL);
    memset(poison, QSA_TEST_POISON, desc.size_bytes);
    buffer = new_buffer(test, &desc, poison);
    free(poison);
    gpu_backend_simt.mark_unwritten(test->device, buffer);
    return buffer;
}

void qsa_test_read(struct qsa_test *test, const struct gpu_buffer *buffer, void *target)
{
    cr_assert_eq(gpu_backend_simt.download(test->device, buffer, 0, target, buffer->size_bytes,
                                           &test->report),
                 GPU_OK, "%s", test->report.text);
}

void qsa_test_clear(struct qsa_test *test)
{
    for (uint32_t i = 0; i < test->n_buffers; i++)
        gpu_backend_simt.free(test->device, &test->buffers[i]);
    test->n_buffers = 0;
}

void qsa_test_ran(struct qsa_test *test, enum gpu_status status)
{
    cr_assert_eq(status, GPU_OK, "%s: %s", test->report.rule, test->report.text);
    for (uint32_t i = 0; i < test->n_buffers; i++)
        cr_assert_eq(gpu_backend_simt.check_guards(test->device, &test->buffers[i], &test->report),
                     GPU_OK, "%s", test->report.text);
}

bool qsa_test_untouched(const void *value, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++)
        if (((const unsigned char *)value)[i] != QSA_TEST_POISON) return false;
    return true;
}

uint32_t qsa_test_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

uint16_t qsa_test_bf16(float value)
{
    uint32_t bits = qsa_test_bits(value);

    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float qsa_test_f32(uint16_t bf16)
{
    uint32_t bits = (uint32_t)bf16 << 16;
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

uint32_t qsa_test_random(uint64_t *state, uint32_t limit)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 32) * limit >> 32);
}

uint16_t qsa_test_random_bf16(uint64_t *state)
{
    uint32_t sign = qsa_test_random(state, 2), exponent = 124 + qsa_test_random(state, 4);

    return (uint16_t)(sign << 15 | exponent << 7 | qsa_test_random(state, 128));
}
