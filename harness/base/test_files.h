/* Scratch files for tests. Failures abort the test through Criterion. */
#ifndef ATTEST_HARNESS_TEST_FILES_H
#define ATTEST_HARNESS_TEST_FILES_H

#include <stddef.h>
#include <stdint.h>

struct test_dir {
    char path[200];
    char file[260]; /* of the last test_file_at */
};

void test_dir_make(struct test_dir *dir);
/* Removes the folder and the files in it. */
void test_dir_remove(struct test_dir *dir);
/* The path of a file in the folder, valid until the next call. */
const char *test_file_at(struct test_dir *dir, const char *name);
const char *test_file_write(struct test_dir *dir, const char *name, const void *bytes, size_t size);
/* The whole file; freed by the caller. */
unsigned char *test_file_read(const char *path, size_t *size);
size_t test_dir_count(const struct test_dir *dir);

/* A small reproducible generator (xorshift64*) for mutations; the state must not be 0. */
uint64_t test_random(uint64_t *state);
#endif
