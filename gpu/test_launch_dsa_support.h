/* For the tests that run the DSA kernels: the CPU backend with one module, buffers, random values.
 * Every helper fails the test when it cannot do its work. */
#ifndef ATTEST_GPU_TEST_LAUNCH_DSA_SUPPORT_H
#define ATTEST_GPU_TEST_LAUNCH_DSA_SUPPORT_H

#include "launch_dsa.h"

enum { DSA_TEST_BUFFERS = 24, DSA_TEST_POISON = 0xa7 };

struct dsa_test {
    struct gpu_device *device;
    struct gpu_target target;
    struct gpu_report report;
    struct gpu_buffer buffers[DSA_TEST_BUFFERS]; /* freed by dsa_test_clear */
    uint32_t n_buffers;
};

/* Runs `body` with the fast module and with the one that checks every access, each in ascending and
 * in a shuffled order of threads. */
void dsa_test_every_way(const char *module, void (*body)(struct dsa_test *test));

/* The same with the fast module alone, for bodies with much arithmetic. */
void dsa_test_fast(const char *module, void (*body)(struct dsa_test *test));

/* An input, and an output full of DSA_TEST_POISON that counts as never written. */
const struct gpu_buffer *dsa_test_input(struct dsa_test *test, const char *name, const void *data,
                                        uint64_t n, uint32_t elem_bytes);
const struct gpu_buffer *dsa_test_output(struct dsa_test *test, const char *name, uint64_t n,
                                         uint32_t elem_bytes);
void dsa_test_read(struct dsa_test *test, const struct gpu_buffer *buffer, void *target);
void dsa_test_clear(struct dsa_test *test);

/* The launch succeeded, found nothing and left all surroundings alone. */
void dsa_test_ran(struct dsa_test *test, enum gpu_status status);

/* Whether a kernel left these bytes alone. */
bool dsa_test_untouched(const void *bytes, uint64_t count);

uint16_t dsa_test_bf16(float value); /* nearest even; finite values */
float dsa_test_f32(uint16_t bf16);
float dsa_test_e4m3(uint8_t code);
uint32_t dsa_test_bits(float value);
float dsa_test_float(uint32_t bits);

/* Random numbers, the same in every run: any word, and a bf16 of magnitude 2^-3 to 2. */
uint32_t dsa_test_random(uint64_t *state);
uint16_t dsa_test_random_bf16(uint64_t *state);

#endif
