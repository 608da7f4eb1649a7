#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "harness/base/error_text.h"
#include "harness/report/report.h"

bool report_write_file(const char *path, const char *text, size_t size, char *error,
                       size_t error_size)
{
    char temporary[4096];
    int n = snprintf(temporary, sizeof temporary, "%s.tmp.%ld", path, (long)getpid());
    if (n < 0 || (size_t)n >= sizeof temporary)
        return error_text(error, error_size, "%.200s…: the path is too long", path);
    FILE *f = fopen(temporary, "we");
    if (!f) return error_text(error, error_size, "cannot write %s: %s", temporary, strerror(errno));
    bool fine = fwrite(text, 1, size, f) == size && fflush(f) == 0 && fsync(fileno(f)) == 0;
    int cause = errno;
    if (fclose(f) != 0 && fine) {
        fine = false;
        cause = errno;
    }
    if (fine && rename(temporary, path) == 0) return true;
    if (fine) cause = errno;
    unlink(temporary);
    return error_text(error, error_size, "cannot write %s: %s", path, strerror(cause));
}
