/* For the tests that run the QSA kernels: the CPU backend with module qsa_indexer, buffers, random
 * values. Every helper fails the test when it cannot do its work. */
#ifndef ATTEST_GPU_TEST_LAUNCH_QSA_SUPPORT_H
#define ATTEST_GPU_TEST_LAUNCH_QSA_SUPPORT_H

#include "launch_qsa.h"

enum { QSA_TEST_BUFFERS = 16, QSA_TEST_POISON = 0xa7 };

struct qsa_test {
    struct gpu_device *device;
    struct gpu_target target;
    struct gpu_report report;
    struct gpu_buffer buffers[QSA_TEST_BUFFERS]; /* freed by qsa_test_clear */
    uint32_t n_buffers;
};

/* Runs `body` with the fast module and with the one that checks every access, each in ascending and
 * in a shuffled order of threads. A body that demands exact bits thereby shows that the order does
 * not matter. */
void qsa_test_every_way(void (*body)(struct qsa_test *test));

/* An input, and an output full of QSA_TEST_POISON that counts as never written. */
const struct gpu_buffer *qsa_test_input(struct qsa_test *test, const char *name, const void *data,
                                        uint64_t n, uint32_t elem_bytes);
const struct gpu_buffer *qsa_test_output(struct qsa_test *test, const char *name, uint64_t n,
                                         uint32_t elem_bytes);
void qsa_test_read(struct qsa_test *test, const struct gpu_buffer *buffer, void *target);
void qsa_test_clear(struct qsa_test *test);

/* The launch succeeded, found nothing and left all surroundings alone. */
void qsa_test_ran(struct qsa_test *test, enum gpu_status status);

/* A value that a kernel did not write. */
bool qsa_test_untouched(const void *value, uint32_t bytes);

uint16_t qsa_test_bf16(float value); /* nearest even; finite values */
float qsa_test_f32(uint16_t bf16);
uint32_t qsa_test_bits(float value);

/* Random numbers, the same in every run: a bf16 of magnitude 2^-3 to 2 of either sign, and any
 * number below a limit. */
uint16_t qsa_test_random_bf16(uint64_t *state);
uint32_t qsa_test_random(uint64_t *state, uint32_t limit);

#endif
