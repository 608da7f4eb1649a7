#include "harness/files/safetensors.h"

#include <cjson/cJSON.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/base/error_text.h"

struct pending {
    char *name;
    enum st_dtype dtype;
    uint32_t rank;
    uint64_t shape[ST_MAX_RANK];
    uint64_t size_bytes;
    const void *data;
};

struct st_writer {
    cJSON *metadata; /* an object of strings */
    struct pending *tensors;
    size_t n_tensors;
};

struct st_writer *st_writer_new(void)
{
    struct st_writer *writer = calloc(1, sizeof *writer);
    if (!writer) return NULL;
    writer->metadata = cJSON_CreateObject();
    if (!writer->metadata) {
        free(writer);
        return NULL;
    }
    return writer;
}

void st_writer_free(struct st_writer *writer)
{
    if (!writer) return;
    for (size_t i = 0; i < writer->n_tensors; i++) free(writer->tensors[i].name);
    free(writer->tensors);
    cJSON_Delete(writer->metadata);
    free(writer);
}

bool st_writer_metadata(struct st_writer *writer, const char *key, const char *value, char *error,
                        size_t error_size)
{
    if (cJSON_GetObjectItemCaseSensitive(writer->metadata, key))
        return error_text(error, error_size, "metadata %s is given twice", key);
    if (!cJSON_AddStringToObject(writer->metadata, key, value))
        return error_text(error, error_size, "out of memory for metadata %s", key);
    return true;
}

bool st_writer_tensor(struct st_writer *writer, const char *name, enum st_dtype dtype,
                      uint32_t rank, const uint64_t *shape, const void *data, char *error,
                      size_t error_size)
{
    if (strcmp(name, "__metadata__") == 0)
        return error_text(error, error_size, "a tensor cannot be called %s", name);
    for (size_t i = 0; i < writer->n_tensors; i++)
        if (strcmp(writer->tensors[i].name, name) == 0)
            return error_text(error, error_size, "tensor %s is given twice", name);
    if (rank > ST_MAX_RANK)
        return error_text(error, error_size, "tensor %s has %" PRIu32 " dimensions, more than %d",
                          name, rank, ST_MAX_RANK);
    struct pending pending = {
        .dtype = dtype, .rank = rank, .size_bytes = st_dtype_bytes(dtype), .data = data};
    for (uint32_t i = 0; i < rank; i++) {
        pending.shape[i] = shape[i];
        if (__builtin_mul_overflow(pending.size_bytes, shape[i], &pending.size_bytes))
            return error_text(error, error_size, "tensor %s: the size of its shape overflows",
                              name);
    }
    struct pending *grown =
        realloc(writer->tensors, (writer->n_tensors + 1) * sizeof *writer->tensors);
    if (grown) writer->tensors = grown;
    if (!grown || !(pending.name = strdup(name)))
        return error_text(error, error_size, "out of memory for tensor %s", name);
    writer->tensors[writer->n_tensors++] = pending;
    return true;
}

/* Numbers go in as text: printing a double may choose an exponent. */
static bool add_numbers(cJSON *object, const char *key, const uint64_t *numbers, uint32_t count)
{
    cJSON *array = cJSON_AddArrayToObject(object, key);
    for (uint32_t i = 0; array && i < count; i++) {
        char text[24];
        snprintf(text, sizeof text, "%" PRIu64, numbers[i]);
        if (!cJSON_AddItemToArray(array, cJSON_CreateRaw(text))) return false;
    }
    return array != NULL;
}

static bool add_tensor(cJSON *header, const struct pending *tensor, uint64_t begin)
{
    uint64_t offsets[2] = {begin, begin + tensor->size_bytes};
    cJSON *object = cJSON_AddObjectToObject(header, tensor->name);
    return object && cJSON_AddStringToObject(object, "dtype", st_dtype_name(tensor->dtype)) &&
           add_numbers(object, "shape", tensor->shape, tensor->rank) &&
           add_numbers(object, "data_offsets", offsets, 2);
}

/* Wide elements first, otherwise as given: then every tensor is aligned, the header being padded.
 */
static void storage_order(const struct st_writer *writer, size_t *order)
{
    size_t n = 0;
    for (size_t bytes = 8; bytes > 0; bytes /= 2)
        for (size_t i = 0; i < writer->n_tensors; i++)
            if (st_dtype_bytes(writer->tensors[i].dtype) == bytes) order[n++] = i;
}

/* The header as text, padded with spaces so that the data begin at a multiple of 8; NULL when out
 * of memory. */
static char *header_text(const struct st_writer *writer, const size_t *order, uint64_t *length)
{
    uint64_t begin = 0;
    cJSON *header = cJSON_CreateObject();
    bool ok = header != NULL;
    if (ok && writer->metadata->child)
        ok = cJSON_AddItemReferenceToObject(header, "__metadata__", writer->metadata);
    for (size_t i = 0; ok && i < writer->n_tensors; i++) {
        const struct pending *tensor = &writer->tensors[order[i]];
        ok = add_tensor(header, tensor, begin);
        begin += tensor->size_bytes;
    }
    char *text = ok ? cJSON_PrintUnformatted(header) : NULL;
    cJSON_Delete(header);
    if (!text) return NULL;
    size_t used = strlen(text), padded = (used + 7) / 8 * 8;
    char *grown = realloc(text, padded + 1);
    if (!grown) {
        free(text);
        return NULL;
    }
    memset(grown + used, ' ', padded - used);
    grown[padded] = '\0';
    *length = padded;
    return grown;
}

static bool write_all(int fd, const void *data, uint64_t size)
{
    const char *from = data;
    while (size > 0) {
        ssize_t written = write(fd, from, size < (1u << 30) ? size : (1u << 30));
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return false;
        from += written;
        size -= (uint64_t)written;
    }
    return true;
}

static bool write_file(int fd, const struct st_writer *writer, const size_t *order,
                       const char *header, uint64_t header_bytes)
{
    uint64_t length = htole64(header_bytes);
    bool ok = write_all(fd, &length, sizeof length) && write_all(fd, header, header_bytes);
    for (size_t i = 0; ok && i < writer->n_tensors; i++)
        ok = write_all(fd, writer->tensors[order[i]].data, writer->tensors[order[i]].size_bytes);
    /* mkostemp makes a file that only its owner can read. */
    return ok && fchmod(fd, 0644) == 0 && fsync(fd) == 0;
}

static bool sync_folder_of(const char *path)
{
    char *copy = strdup(path);
    if (!copy) return false;
    int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(copy);
    if (fd < 0) return false;
    bool ok = fsync(fd) == 0;
    close(fd);
    return ok;
}

static bool save(const struct st_writer *writer, const size_t *order, const char *path,
                 char *temporary, char *error, size_t error_size)
{
    uint64_t header_bytes = 0;
    char *header = header_text(writer, order, &header_bytes);
    if (!header) return error_text(error, error_size, "%s: out of memory for the header", path);
    if (header_bytes > ST_MAX_HEADER_BYTES) {
        free(header);
        return error_text(error, error_size, "%s: header of %" PRIu64 " bytes is above %u", path,
                          header_bytes, ST_MAX_HEADER_BYTES);
    }
    int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0) {
        free(header);
        return error_text(error, error_size, "%s: cannot be made: %s", temporary, strerror(errno));
    }
    bool ok = write_file(fd, writer, order, header, header_bytes);
    int cause = errno;
    free(header);
    if (close(fd) != 0 && ok) {
        cause = errno;
        ok = false;
    }
    if (ok && rename(temporary, path) != 0) {
        cause = errno;
        ok = false;
    }
    if (!ok) {
        unlink(temporary);
        return error_text(error, error_size, "%s: cannot be written: %s", path, strerror(cause));
    }
    return sync_folder_of(path) ||
           error_text(error, error_size, "%s: its folder cannot be synced: %s", path,
                      strerror(errno));
}

bool st_writer_save(const struct st_writer *writer, const char *path, char *error,
                    size_t error_size)
{
    size_t *order = calloc(writer->n_tensors + 1, sizeof *order);
    char *temporary = NULL;
    bool ok = false;
    if (!order || asprintf(&temporary, "%s.XXXXXX", path) < 0) {
        temporary = NULL;
        error_text(error, error_size, "%s: out of memory", path);
    } else {
        storage_order(writer, order);
        ok = save(writer, order, path, temporary, error, error_size);
    }
    free(temporary);
    free(order);
    return ok;
}
