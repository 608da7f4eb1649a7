/* printf in a kernel: standard error, every call behind its block and thread. */
#ifndef ATTEST_SIMT_PRINT_H
#define ATTEST_SIMT_PRINT_H

#include <stdarg.h>

#define SIMT_PRINT_BYTES 1024 /* a longer text is cut */

/* One write a call, so that those of several worker processes do not mix. */
__attribute__((noinline, nodebug, no_sanitize("kernel-address"), format(printf, 1, 2),
               unused)) static int
simt_printf(const char *format, ...)
{
    char text[SIMT_PRINT_BYTES];
    va_list list;
    int head = snprintf(text, sizeof text, "[block %u,%u,%u thread %u,%u,%u] ", blockIdx.x,
                        blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
    va_start(list, format);
    int body = vsnprintf(text + head, sizeof text - (size_t)head, format, list);
    va_end(list);
    fputs(text, stderr);
    return body;
}
namespace std
{
using ::simt_printf;
}

#endif
