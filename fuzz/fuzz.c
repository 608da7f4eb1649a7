#include "fuzz/fuzz.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void fuzz_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    abort();
}

bool fuzz_line(const uint8_t *data, size_t size, char text[CASE_TEXT_MAX], const uint8_t **rest,
               size_t *rest_size)
{
    const uint8_t *end = size ? memchr(data, '\n', size) : NULL;
    size_t length = end ? (size_t)(end - data) : size;
    *rest = data + length + (end != NULL);
    *rest_size = size - length - (end != NULL);
    if (length >= CASE_TEXT_MAX || (length && memchr(data, 0, length))) return false;
    memcpy(text, data, length);
    text[length] = 0;
    return true;
}

bool fuzz_admits(const char *family, const struct op *op)
{
    const char *only = getenv("ATTEST_FUZZ_OP");
    return (!family || !strcmp(family, op->family)) && (!only || !strcmp(only, op->name));
}

const char *fuzz_file(const uint8_t *data, size_t size)
{
    static int fd = -1;
    static char path[64];
    if (fd >= 0) close(fd);
    fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0) fuzz_fail("no memory file: %s", strerror(errno));
    while (size) {
        ssize_t n = write(fd, data, size);
        if (n <= 0) fuzz_fail("memory file: %s", strerror(errno));
        data += n;
        size -= (size_t)n;
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return path;
}
