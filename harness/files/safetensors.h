/* Reader and writer of safetensors files: golden vectors and captured cases.
 *
 * A file is an 8-byte little-endian header length, a JSON header, and the tensors' bytes back to
 * back. The reader takes nothing on trust: a file is accepted only if every tensor lies inside it,
 * has the size its shape and dtype call for, and the tensors cover the data exactly, without gap or
 * overlap. Errors name the file, the rule and the numbers.
 *
 * The reader maps the file. One that shrinks while it is open raises SIGBUS when touched, so files
 * must be replaced by rename, as the writer does. */
#ifndef ATTEST_HARNESS_SAFETENSORS_H
#define ATTEST_HARNESS_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ST_MAX_RANK 8
#define ST_MAX_HEADER_BYTES 100000000u

enum st_dtype {
    ST_BOOL,
    ST_U8,
    ST_I8,
    ST_F8_E5M2,
    ST_F8_E4M3,
    ST_I16,
    ST_U16,
    ST_F16,
    ST_BF16,
    ST_I32,
    ST_U32,
    ST_F32,
    ST_F64,
    ST_I64,
    ST_U64,
    ST_DTYPES
};

/* Name as in a header ("BF16"); size of one element in bytes. */
const char *st_dtype_name(enum st_dtype dtype);
size_t st_dtype_bytes(enum st_dtype dtype);

struct st_tensor {
    const char *name;
    enum st_dtype dtype;
    uint32_t rank; /* 0: a scalar, one element */
    uint64_t shape[ST_MAX_RANK];
    uint64_t elems, size_bytes;
    const void *data; /* aligned to the element, also where the file's bytes are not */
};

struct st_file;

/* Opens and checks the whole file. False, with the reason, if it is not a regular file or breaks a
 * rule. On success *out is owned by the caller; every pointer reached through it lives until
 * st_close. *out is NULL on failure. */
bool st_open(const char *path, struct st_file **out, char *error, size_t error_size);
void st_close(struct st_file *file); /* NULL is allowed */
const char *st_path(const struct st_file *file);

/* Tensors in name order. */
size_t st_count(const struct st_file *file);
const struct st_tensor *st_at(const struct st_file *file, size_t index);
const struct st_tensor *st_find(const struct st_file *file, const char *name); /* NULL: none */

/* The tensor's data if it is there with this dtype and shape; otherwise NULL and, for example,
 * "FILE: tensor q has shape [4,64,512], expected [4,64,256]". */
const void *st_require(const struct st_file *file, const char *name, enum st_dtype dtype,
                       uint32_t rank, const uint64_t *shape, char *error, size_t error_size);
/* st_require(file, "q", ST_BF16, ST_SHAPE(4, 64, 512), error, sizeof error) */
#define ST_SHAPE(...) \
    (uint32_t)(sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t)), ((uint64_t[]){__VA_ARGS__})

/* The file's metadata, in key order; a file without any has count 0. */
size_t st_metadata_count(const struct st_file *file);
void st_metadata_at(const struct st_file *file, size_t index, const char **key, const char **value);
const char *st_metadata(const struct st_file *file, const char *key); /* NULL: none */
/* The value of a key that must be there, as text; as a decimal integer of [0, 2^32); as a finite
 * number. False with the reason otherwise. */
bool st_metadata_text(const struct st_file *file, const char *key, const char **value, char *error,
                      size_t error_size);
bool st_metadata_u32(const struct st_file *file, const char *key, uint32_t *value, char *error,
                     size_t error_size);
bool st_metadata_f64(const struct st_file *file, const char *key, double *value, char *error,
                     size_t error_size);

struct st_writer;

/* NULL when out of memory. Freed with st_writer_free, saved or not. */
struct st_writer *st_writer_new(void);
void st_writer_free(struct st_writer *writer);
/* Key and value are copied. Refused: a key given twice. */
bool st_writer_metadata(struct st_writer *writer, const char *key, const char *value, char *error,
                        size_t error_size);
/* The name is copied, the data are borrowed until the last st_writer_save. Refused: a name given
 * twice or "__metadata__", a rank above ST_MAX_RANK, a size that overflows. */
bool st_writer_tensor(struct st_writer *writer, const char *name, enum st_dtype dtype,
                      uint32_t rank, const uint64_t *shape, const void *data, char *error,
                      size_t error_size);
/* Writes to a new file beside `path`, syncs it, renames it to `path` and syncs the folder, so that
 * `path` is the old file or the whole new one, whatever happens. A failure leaves the old one,
 * except when only the sync of the folder failed. No partial file stays behind. */
bool st_writer_save(const struct st_writer *writer, const char *path, char *error,
                    size_t error_size);
#endif
