/* simt-ptx SOURCE.ii: writes the preprocessed source to stdout with its inline PTX as C++. Used by
 * mk/simt-module.sh. */
#include "ptx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static char *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    long end;

    if (!file) return NULL;
    if (fseek(file, 0, SEEK_END) == 0 && (end = ftell(file)) >= 0 &&
        fseek(file, 0, SEEK_SET) == 0) {
        text = malloc((size_t)end + 1);
        *size = (size_t)end;
        if (text && fread(text, 1, *size, file) != *size) {
            free(text);
            text = NULL;
        }
    }
    fclose(file);
    return text;
}

int main(int argc, char **argv)
{
    size_t size = 0;
    char *text;
    int n_errors;

    if (argc != 2) {
        fputs("usage: simt-ptx SOURCE.ii\n", stderr);
        return 2;
    }
    text = read_file(argv[1], &size);
    if (!text) {
        fprintf(stderr, "simt-ptx: %s: %s\n", argv[1], strerror(errno));
        return 2;
    }
    n_errors = ptx_translate(text, size, stdout, stderr);
    free(text);
    if (fflush(stdout) || ferror(stdout)) return 2;
    return n_errors ? 1 : 0;
}
