/* The safetensors reader, and the reader of captured cases on top of it. What it accepts keeps every
 * promise of its header and survives being written and read again. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "harness/captured/captured.h"
#include "harness/files/safetensors.h"

/* Writing syncs to the disk: one input in so many, chosen by its bytes. */
enum { WRITE_EVERY = 64 };

static void check_tensor(const struct st_tensor *t, const struct st_tensor *before)
{
    uint64_t elems = 1, sum = 0;
    if (before && strcmp(before->name, t->name) >= 0) fuzz_fail("tensors are not in name order");
    if (t->rank > ST_MAX_RANK || t->dtype >= ST_DTYPES) fuzz_fail("rank %u, dtype %d", t->rank, t->dtype);
    for (uint32_t i = 0; i < t->rank; i++) elems *= t->shape[i];
    if (elems != t->elems || elems * st_dtype_bytes(t->dtype) != t->size_bytes)
        fuzz_fail("tensor %s: sizes disagree", t->name);
    if (t->size_bytes && (uintptr_t)t->data % st_dtype_bytes(t->dtype))
        fuzz_fail("tensor %s is not aligned", t->name);
    for (uint64_t i = 0; i < t->size_bytes; i++) sum += ((const uint8_t *)t->data)[i];
    __asm__ volatile("" : : "r"(sum)); /* the bytes must really be read */
}

static void check_same(const struct st_file *a, const struct st_file *b)
{
    const char *key, *value, *other_key, *other_value;
    if (st_count(a) != st_count(b) || st_metadata_count(a) != st_metadata_count(b))
        fuzz_fail("written and read again: %zu tensors, then %zu", st_count(a), st_count(b));
    for (size_t i = 0; i < st_count(a); i++) {
        const struct st_tensor *s = st_at(a, i), *t = st_at(b, i);
        if (strcmp(s->name, t->name) || s->dtype != t->dtype || s->rank != t->rank ||
            memcmp(s->shape, t->shape, s->rank * sizeof *s->shape) ||
            s->size_bytes != t->size_bytes ||
            (s->size_bytes && memcmp(s->data, t->data, s->size_bytes)))
            fuzz_fail("tensor %s changed when written and read again", s->name);
    }
    for (size_t i = 0; i < st_metadata_count(a); i++) {
        st_metadata_at(a, i, &key, &value);
        st_metadata_at(b, i, &other_key, &other_value);
        if (strcmp(key, other_key) || strcmp(value, other_value))
            fuzz_fail("metadata %s changed when written and read again", key);
    }
}

static void write_again(const struct st_file *file)
{
    char path[PATH_MAX], error[1024];
    const char *folder = getenv("TMPDIR"), *key, *value;
    struct st_writer *w = st_writer_new();
    struct st_file *again;
    if (!w) return;
    snprintf(path, sizeof path, "%s/attest-fuzz-%d.safetensors", folder ? folder : "/tmp", getpid());
    for (size_t i = 0; i < st_metadata_count(file); i++) {
        st_metadata_at(file, i, &key, &value);
        if (!st_writer_metadata(w, key, value, error, sizeof error)) fuzz_fail("%s", error);
    }
    for (size_t i = 0; i < st_count(file); i++) {
        const struct st_tensor *t = st_at(file, i);
        if (!st_writer_tensor(w, t->name, t->dtype, t->rank, t->shape, t->data, error, sizeof error))
            fuzz_fail("%s", error);
    }
    if (!st_writer_save(w, path, error, sizeof error)) fuzz_fail("%s", error);
    if (!st_open(path, &again, error, sizeof error)) fuzz_fail("written, but: %s", error);
    unlink(path);
    check_same(file, again);
    st_close(again);
    st_writer_free(w);
}

static void read_captured(const char *path)
{
    struct captured *captured;
    char error[1024];
    if (!captured_open(path, &captured, error, sizeof error)) return;
    for (uint32_t i = 0; i < captured_count(captured); i++) {
        const struct captured_item *item = captured_item(captured, i);
        for (uint32_t k = 0; k < item->n_overrides; k++) {
            uint64_t sum = 0;
            for (uint64_t b = 0; b < item->overrides[k].size_bytes; b++)
                sum += ((const uint8_t *)item->overrides[k].data)[b];
            __asm__ volatile("" : : "r"(sum));
        }
    }
    captured_close(captured);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct st_file *file;
    char error[1024] = "";
    const char *path = fuzz_file(data, size), *key, *value;
    uint32_t hash = 2166136261u;
    if (!st_open(path, &file, error, sizeof error)) {
        if (!error[0] || file) fuzz_fail("refused without a reason, or with a file");
        return 0;
    }
    for (size_t i = 0; i < st_count(file); i++) {
        const struct st_tensor *t = st_at(file, i);
        check_tensor(t, i ? st_at(file, i - 1) : NULL);
        if (st_find(file, t->name) != t) fuzz_fail("tensor %s is not found", t->name);
    }
    for (size_t i = 0; i < st_metadata_count(file); i++) {
        st_metadata_at(file, i, &key, &value);
        if (st_metadata(file, key) != value) fuzz_fail("metadata %s is not found", key);
    }
    for (size_t i = 0; i < size; i++) hash = (hash ^ data[i]) * 16777619u;
    if (hash % WRITE_EVERY == 0) write_again(file);
    st_close(file);
    read_captured(path);
    return 0;
}
