#include "harness/base/test_files.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void test_dir_make(struct test_dir *dir)
{
    const char *base = getenv("TMPDIR");
    snprintf(dir->path, sizeof dir->path, "%s/attest-test-XXXXXX", base ? base : P_tmpdir);
    cr_assert_not_null(mkdtemp(dir->path), "no scratch folder %s", dir->path);
}

void test_dir_remove(struct test_dir *dir)
{
    DIR *stream = opendir(dir->path);
    cr_assert_not_null(stream);
    for (struct dirent *entry; (entry = readdir(stream));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlink(test_file_at(dir, entry->d_name));
    closedir(stream);
    cr_assert_eq(rmdir(dir->path), 0);
}

const char *test_file_at(struct test_dir *dir, const char *name)
{
    int length = snprintf(dir->file, sizeof dir->file, "%s/%s", dir->path, name);
    cr_assert(length > 0 && (size_t)length < sizeof dir->file);
    return dir->file;
}

const char *test_file_write(struct test_dir *dir, const char *name, const void *bytes, size_t size)
{
    FILE *file = fopen(test_file_at(dir, name), "wb");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(bytes, 1, size, file), size);
    cr_assert_eq(fclose(file), 0);
    return dir->file;
}

unsigned char *test_file_read(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file, "%s", path);
    cr_assert_eq(fseek(file, 0, SEEK_END), 0);
    *size = (size_t)ftell(file);
    rewind(file);
    unsigned char *bytes = malloc(*size + 1);
    cr_assert_not_null(bytes);
    cr_assert_eq(fread(bytes, 1, *size, file), *size);
    fclose(file);
    return bytes;
}

size_t test_dir_count(const struct test_dir *dir)
{
    size_t count = 0;
    DIR *stream = opendir(dir->path);
    cr_assert_not_null(stream);
    while (readdir(stream)) count++;
    closedir(stream);
    return count - 2; /* "." and ".." */
}

uint64_t test_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1du;
}
