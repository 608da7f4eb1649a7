/* What a reader needs of a file, or why it is not there. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/error_text.h"
#include "harness/base/text.h"
#include "harness/files/safetensors.h"

static void print_shape(struct text text, uint32_t rank, const uint64_t *shape)
{
    text_add(&text, "[");
    for (uint32_t i = 0; i < rank; i++) text_add(&text, "%s%" PRIu64, i ? "," : "", shape[i]);
    text_add(&text, "]");
}

const void *st_require(const struct st_file *file, const char *name, enum st_dtype dtype,
                       uint32_t rank, const uint64_t *shape, char *error, size_t error_size)
{
    const struct st_tensor *tensor = st_find(file, name);
    if (!tensor) {
        error_text(error, error_size, "%s: has no tensor %s", st_path(file), name);
        return NULL;
    }
    if (tensor->dtype != dtype) {
        error_text(error, error_size, "%s: tensor %s has dtype %s, expected %s", st_path(file),
                   name, st_dtype_name(tensor->dtype), st_dtype_name(dtype));
        return NULL;
    }
    if (tensor->rank != rank || (rank && memcmp(tensor->shape, shape, rank * sizeof *shape))) {
        char have[ST_MAX_RANK * 21 + 3] = "", want[ST_MAX_RANK * 21 + 3] = "";
        print_shape(text_on(have, sizeof have), tensor->rank, tensor->shape);
        print_shape(text_on(want, sizeof want), rank, shape);
        error_text(error, error_size, "%s: tensor %s has shape %s, expected %s", st_path(file),
                   name, have, want);
        return NULL;
    }
    return tensor->data;
}

bool st_metadata_text(const struct st_file *file, const char *key, const char **value, char *error,
                      size_t error_size)
{
    *value = st_metadata(file, key);
    return *value || error_text(error, error_size, "%s: has no metadata %s", st_path(file), key);
}

bool st_metadata_u32(const struct st_file *file, const char *key, uint32_t *value, char *error,
                     size_t error_size)
{
    const char *text;
    if (!st_metadata_text(file, key, &text, error, error_size)) return false;
    size_t digits = strspn(text, "0123456789");
    unsigned long long number = digits > 0 && digits < 19 ? strtoull(text, NULL, 10) : UINT64_MAX;
    if (text[digits] != '\0' || number > UINT32_MAX)
        return error_text(error, error_size, "%s: metadata %s is \"%s\", no integer of [0, 2^32)",
                          st_path(file), key, text);
    *value = (uint32_t)number;
    return true;
}

bool st_metadata_f64(const struct st_file *file, const char *key, double *value, char *error,
                     size_t error_size)
{
    const char *text;
    char *end;
    if (!st_metadata_text(file, key, &text, error, error_size)) return false;
    *value = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(*value))
        return error_text(error, error_size, "%s: metadata %s is \"%s\", no finite number",
                          st_path(file), key, text);
    return true;
}
