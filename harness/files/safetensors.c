#include "harness/files/safetensors.h"

#include <cjson/cJSON.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/base/error_text.h"

static const struct {
    const char *name;
    uint8_t bytes;
} dtypes[ST_DTYPES] = {
    [ST_BOOL] = {"BOOL", 1},       [ST_U8] = {"U8", 1},           [ST_I8] = {"I8", 1},
    [ST_F8_E5M2] = {"F8_E5M2", 1}, [ST_F8_E4M3] = {"F8_E4M3", 1}, [ST_I16] = {"I16", 2},
    [ST_U16] = {"U16", 2},         [ST_F16] = {"F16", 2},         [ST_BF16] = {"BF16", 2},
    [ST_I32] = {"I32", 4},         [ST_U32] = {"U32", 4},         [ST_F32] = {"F32", 4},
    [ST_F64] = {"F64", 8},         [ST_I64] = {"I64", 8},         [ST_U64] = {"U64", 8},
};

struct entry {
    struct st_tensor tensor;
    uint64_t begin, end; /* bytes from the start of the data */
    void *copy;          /* of data the file holds misaligned, otherwise NULL */
};

struct pair {
    const char *key, *value;
};

struct st_file {
    char *path;
    unsigned char *map;
    uint64_t map_bytes, data_start;
    cJSON *header; /* owns every name, key and value */
    struct entry *entries;
    struct pair *metadata;
    size_t n_entries, n_metadata;
};

/* Where a failure is written, carried through the checks of one file. */
struct report {
    const char *path;
    char *error;
    size_t size;
};

#define FAIL(report, format, ...) \
    error_text((report)->error, (report)->size, "%s: " format, (report)->path, ##__VA_ARGS__)

const char *st_dtype_name(enum st_dtype dtype)
{
    return dtypes[dtype].name;
}

size_t st_dtype_bytes(enum st_dtype dtype)
{
    return dtypes[dtype].bytes;
}

static bool map_regular_file(struct st_file *file, const struct report *report)
{
    /* O_NONBLOCK: opening a FIFO must not wait for its writer. */
    int fd = open(report->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return FAIL(report, "cannot be opened: %s", strerror(errno));
    struct stat status;
    if (fstat(fd, &status) != 0) {
        FAIL(report, "cannot be examined: %s", strerror(errno));
    } else if (!S_ISREG(status.st_mode)) {
        FAIL(report, "is not a regular file");
    } else if (status.st_size < 8) {
        FAIL(report, "has %lld bytes, too few for the 8 bytes of a header length",
             (long long)status.st_size);
    } else {
        file->map_bytes = (uint64_t)status.st_size;
        file->map = mmap(NULL, file->map_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (file->map == MAP_FAILED) {
            file->map = NULL;
            FAIL(report, "cannot be mapped: %s", strerror(errno));
        }
    }
    close(fd);
    return file->map != NULL;
}

static bool parse_header(struct st_file *file, const struct report *report)
{
    uint64_t length;
    memcpy(&length, file->map, sizeof length);
    length = le64toh(length);
    if (length > ST_MAX_HEADER_BYTES)
        return FAIL(report, "header length %" PRIu64 " is above the format's limit of %u", length,
                    ST_MAX_HEADER_BYTES);
    if (length > file->map_bytes - 8)
        return FAIL(report,
                    "header length %" PRIu64 " runs past the end of the file (%" PRIu64 " bytes)",
                    length, file->map_bytes);
    if (length == 0 || file->map[8] != '{') return FAIL(report, "header does not begin with '{'");
    if (memchr(file->map + 8, 0, length)) return FAIL(report, "header holds a zero byte");
    file->data_start = 8 + length;

    /* The parser reads a byte past its input in places, so it gets a terminated copy. */
    char *text = malloc(length + 1);
    if (!text) return FAIL(report, "out of memory for a header of %" PRIu64 " bytes", length);
    memcpy(text, file->map + 8, length);
    text[length] = '\0';
    const char *end = text;
    if (strstr(text, "\\u0000"))
        FAIL(report, "header holds an escaped zero character, which would cut a name short");
    else if (!(file->header = cJSON_ParseWithLengthOpts(text, length + 1, &end, true)))
        FAIL(report, "header is not JSON: stopped at its byte %td of %" PRIu64, end - text, length);
    free(text);
    return file->header != NULL;
}

static bool whole_number(const cJSON *item, uint64_t *value)
{
    double number = cJSON_IsNumber(item) ? item->valuedouble : -1.0;
    if (!(number >= 0.0 && number < 0x1p53) || number != floor(number)) return false;
    *value = (uint64_t)number;
    return true;
}

static bool find_dtype(const char *name, enum st_dtype *dtype)
{
    for (unsigned i = 0; i < ST_DTYPES; i++) {
        if (strcmp(name, dtypes[i].name) == 0) {
            *dtype = (enum st_dtype)i;
            return true;
        }
    }
    return false;
}

/* Elements and bytes of a shape; false if either overflows 64 bits. */
static bool shape_size(struct st_tensor *tensor)
{
    tensor->elems = 1;
    for (uint32_t i = 0; i < tensor->rank; i++)
        if (__builtin_mul_overflow(tensor->elems, tensor->shape[i], &tensor->elems)) return false;
    return !__builtin_mul_overflow(tensor->elems, dtypes[tensor->dtype].bytes, &tensor->size_bytes);
}

static bool read_shape(struct st_tensor *tensor, const cJSON *shape, const struct report *report)
{
    if (!cJSON_IsArray(shape)) return FAIL(report, "tensor %s: shape is no array", tensor->name);
    const cJSON *item;
    cJSON_ArrayForEach(item, shape)
    {
        if (tensor->rank == ST_MAX_RANK)
            return FAIL(report, "tensor %s has more than %d dimensions", tensor->name, ST_MAX_RANK);
        if (!whole_number(item, &tensor->shape[tensor->rank]))
            return FAIL(report, "tensor %s: dimension %" PRIu32 " is no integer of [0, 2^53)",
                        tensor->name, tensor->rank);
        tensor->rank++;
    }
    if (!shape_size(tensor))
        return FAIL(report, "tensor %s: the size of its shape overflows 64 bits", tensor->name);
    return true;
}

static bool read_offsets(struct entry *entry, const cJSON *offsets, uint64_t data_bytes,
                         const struct report *report)
{
    const struct st_tensor *tensor = &entry->tensor;
    if (!cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2 ||
        !whole_number(offsets->child, &entry->begin) ||
        !whole_number(offsets->child->next, &entry->end))
        return FAIL(report, "tensor %s: data_offsets are no two integers of [0, 2^53)",
                    tensor->name);
    if (entry->begin > entry->end || entry->end > data_bytes)
        return FAIL(report,
                    "tensor %s: data_offsets [%" PRIu64 ",%" PRIu64
                    ") do not lie inside the %" PRIu64 " bytes of data",
                    tensor->name, entry->begin, entry->end, data_bytes);
    if (entry->end - entry->begin != tensor->size_bytes)
        return FAIL(report,
                    "tensor %s: data_offsets [%" PRIu64 ",%" PRIu64 ") hold %" PRIu64
                    " bytes, its shape and dtype %s call for %" PRIu64,
                    tensor->name, entry->begin, entry->end, entry->end - entry->begin,
                    dtypes[tensor->dtype].name, tensor->size_bytes);
    return true;
}

static bool read_entry(struct entry *entry, const cJSON *item, uint64_t data_bytes,
                       const struct report *report)
{
    static const char *const keys[3] = {"dtype", "shape", "data_offsets"};
    struct st_tensor *tensor = &entry->tensor;
    const cJSON *found[3] = {NULL}, *member;
    tensor->name = item->string;
    if (!cJSON_IsObject(item)) return FAIL(report, "tensor %s is no JSON object", tensor->name);
    cJSON_ArrayForEach(member, item)
    {
        size_t k = 0;
        while (k < 3 && strcmp(member->string, keys[k]) != 0) k++;
        if (k == 3)
            return FAIL(report, "tensor %s has the unknown key %s", tensor->name, member->string);
        if (found[k]) return FAIL(report, "tensor %s has two keys %s", tensor->name, keys[k]);
        found[k] = member;
    }
    for (size_t k = 0; k < 3; k++)
        if (!found[k]) return FAIL(report, "tensor %s lacks the key %s", tensor->name, keys[k]);
    if (!cJSON_IsString(found[0]) || !find_dtype(found[0]->valuestring, &tensor->dtype))
        return FAIL(report, "tensor %s has the unknown dtype %s", tensor->name,
                    cJSON_IsString(found[0]) ? found[0]->valuestring : "(no string)");
    return read_shape(tensor, found[1], report) &&
           read_offsets(entry, found[2], data_bytes, report);
}

static int by_name(const void *left, const void *right)
{
    return strcmp(((const struct entry *)left)->tensor.name,
                  ((const struct entry *)right)->tensor.name);
}

static int by_key(const void *left, const void *right)
{
    return strcmp(((const struct pair *)left)->key, ((const struct pair *)right)->key);
}

static int by_offset(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    return a->end < b->end ? -1 : a->end > b->end;
}

static bool read_metadata(struct st_file *file, const cJSON *object, const struct report *report)
{
    if (file->metadata) return FAIL(report, "header has two keys __metadata__");
    if (!cJSON_IsObject(object)) return FAIL(report, "__metadata__ is no JSON object");
    file->metadata = calloc((size_t)cJSON_GetArraySize(object) + 1, sizeof *file->metadata);
    if (!file->metadata) return FAIL(report, "out of memory for the metadata");
    const cJSON *member;
    cJSON_ArrayForEach(member, object)
    {
        if (!cJSON_IsString(member))
            return FAIL(report, "metadata %s is no string", member->string);
        file->metadata[file->n_metadata++] = (struct pair){member->string, member->valuestring};
    }
    qsort(file->metadata, file->n_metadata, sizeof *file->metadata, by_key);
    for (size_t i = 1; i < file->n_metadata; i++)
        if (by_key(&file->metadata[i - 1], &file->metadata[i]) == 0)
            return FAIL(report, "metadata has two keys %s", file->metadata[i].key);
    return true;
}

static bool read_entries(struct st_file *file, const struct report *report)
{
    file->entries = calloc((size_t)cJSON_GetArraySize(file->header) + 1, sizeof *file->entries);
    if (!file->entries) return FAIL(report, "out of memory for the tensors");
    const cJSON *item;
    cJSON_ArrayForEach(item, file->header)
    {
        bool ok = strcmp(item->string, "__metadata__") == 0
                      ? read_metadata(file, item, report)
                      : read_entry(&file->entries[file->n_entries++], item,
                                   file->map_bytes - file->data_start, report);
        if (!ok) return false;
    }
    return true;
}

/* The tensors, in the order of their offsets, must cover the data from first byte to last. */
static bool check_layout(struct st_file *file, const struct report *report)
{
    uint64_t covered = 0, data_bytes = file->map_bytes - file->data_start;
    qsort(file->entries, file->n_entries, sizeof *file->entries, by_offset);
    for (size_t i = 0; i < file->n_entries; i++) {
        const struct entry *entry = &file->entries[i];
        if (entry->begin != covered)
            return FAIL(report,
                        "tensor %s begins at byte %" PRIu64 " of the data, %s %s ends at %" PRIu64,
                        entry->tensor.name, entry->begin,
                        entry->begin < covered ? "inside the one before it:" : "after a gap:",
                        i ? file->entries[i - 1].tensor.name : "the header", covered);
        covered = entry->end;
    }
    if (covered != data_bytes)
        return FAIL(report, "the tensors end at byte %" PRIu64 " of %" PRIu64 " bytes of data",
                    covered, data_bytes);
    return true;
}

static bool place_data(struct st_file *file, const struct report *report)
{
    for (size_t i = 0; i < file->n_entries; i++) {
        struct entry *entry = &file->entries[i];
        struct st_tensor *tensor = &entry->tensor;
        tensor->data = file->map + file->data_start + entry->begin;
        if ((uintptr_t)tensor->data % dtypes[tensor->dtype].bytes == 0) continue;
        entry->copy = malloc(tensor->size_bytes ? tensor->size_bytes : 1);
        if (!entry->copy)
            return FAIL(report, "out of memory for tensor %s (%" PRIu64 " bytes)", tensor->name,
                        tensor->size_bytes);
        memcpy(entry->copy, tensor->data, tensor->size_bytes);
        tensor->data = entry->copy;
    }
    qsort(file->entries, file->n_entries, sizeof *file->entries, by_name);
    for (size_t i = 1; i < file->n_entries; i++)
        if (by_name(&file->entries[i - 1], &file->entries[i]) == 0)
            return FAIL(report, "header has two tensors %s", file->entries[i].tensor.name);
    return true;
}

bool st_open(const char *path, struct st_file **out, char *error, size_t error_size)
{
    struct report report = {path, error, error_size};
    *out = NULL;
    struct st_file *file = calloc(1, sizeof *file);
    if (!file || !(file->path = strdup(path))) {
        free(file);
        return FAIL(&report, "out of memory");
    }
    if (!map_regular_file(file, &report) || !parse_header(file, &report) ||
        !read_entries(file, &report) || !check_layout(file, &report) ||
        !place_data(file, &report)) {
        st_close(file);
        return false;
    }
    *out = file;
    return true;
}

void st_close(struct st_file *file)
{
    if (!file) return;
    for (size_t i = 0; i < file->n_entries; i++) free(file->entries[i].copy);
    free(file->entries);
    free(file->metadata);
    cJSON_Delete(file->header);
    if (file->map) munmap(file->map, file->map_bytes);
    free(file->path);
    free(file);
}

const char *st_path(const struct st_file *file)
{
    return file->path;
}

size_t st_count(const struct st_file *file)
{
    return file->n_entries;
}

const struct st_tensor *st_at(const struct st_file *file, size_t index)
{
    return &file->entries[index].tensor;
}

const struct st_tensor *st_find(const struct st_file *file, const char *name)
{
    struct entry wanted = {.tensor.name = name};
    const struct entry *found =
        bsearch(&wanted, file->entries, file->n_entries, sizeof wanted, by_name);
    return found ? &found->tensor : NULL;
}

size_t st_metadata_count(const struct st_file *file)
{
    return file->n_metadata;
}

void st_metadata_at(const struct st_file *file, size_t index, const char **key, const char **value)
{
    *key = file->metadata[index].key;
    *value = file->metadata[index].value;
}

const char *st_metadata(const struct st_file *file, const char *key)
{
    struct pair wanted = {.key = key};
    if (!file->metadata) return NULL;
    const struct pair *found =
        bsearch(&wanted, file->metadata, file->n_metadata, sizeof wanted, by_key);
    return found ? found->value : NULL;
}
