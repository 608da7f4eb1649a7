#include "harness/case/instance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "harness/case/paging.h"

uint32_t dtype_bytes(enum dtype dtype)
{
    static const uint32_t bytes[] = {
        [DTYPE_BF16] = 2, [DTYPE_E4M3] = 1, [DTYPE_F32] = 4, [DTYPE_I32] = 4, [DTYPE_U8] = 1};
    return bytes[dtype];
}

const char *dtype_name(enum dtype dtype)
{
    static const char *const names[] = {[DTYPE_BF16] = "bf16",
                                        [DTYPE_E4M3] = "e4m3",
                                        [DTYPE_F32] = "f32",
                                        [DTYPE_I32] = "i32",
                                        [DTYPE_U8] = "u8"};
    return names[dtype];
}

const char *contract_name(enum contract contract)
{
    static const char *const names[] = {[CONTRACT_EXACT] = "EXACT",
                                        [CONTRACT_BOUND] = "BOUND",
                                        [CONTRACT_SELECT] = "SELECT",
                                        [CONTRACT_ANY] = "any"};
    return names[contract];
}

void instance_init(struct instance *in, enum poison poison)
{
    memset(in, 0, sizeof *in);
    in->poison = poison;
}

static uint64_t data_bytes(const struct tensor *t)
{
    uint64_t bytes = t->elems * dtype_bytes(t->dtype);
    return bytes ? bytes : 1;
}

/* Small tensors come from the heap, whose memory is at hand; large ones are mapped, so that what is
 * never touched costs nothing. */
enum { MAPPED_BYTES = 4 << 20 };

/* Mappings of tensors backed in parts, zeroed again and kept for the next ones: to map, to touch and
 * to unmap a page costs more than to fill it, the more so with other threads at it. What was touched
 * adds up, so that a mapping serves only so many tensors. */
enum { KEPT_MAPPINGS = 8, USES_MAX = 256 };
#define KEPT_MAPPING_BYTES (UINT64_C(8) << 30)
struct mapping {
    uint8_t *data;
    uint32_t uses;
};
static _Thread_local struct mapping kept[KEPT_MAPPINGS];

static uint8_t *map(uint64_t bytes)
{
    void *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return data == MAP_FAILED ? NULL : data;
}

static uint64_t mapped_bytes(const struct tensor *t)
{
    uint64_t bytes = data_bytes(t);
    return bytes > KEPT_MAPPING_BYTES || bytes < KEPT_MAPPING_BYTES / 4 ? bytes
                                                                       : KEPT_MAPPING_BYTES;
}

static uint8_t *data_make(struct tensor *t)
{
    uint64_t bytes = mapped_bytes(t);
    if (bytes < MAPPED_BYTES) return calloc(bytes, 1);
    for (uint32_t i = 0; bytes == KEPT_MAPPING_BYTES && i < KEPT_MAPPINGS; i++) {
        uint8_t *data = kept[i].data;
        if (!data) continue;
        t->mapping_uses = kept[i].uses + 1;
        kept[i].data = NULL;
        return data;
    }
    return map(bytes);
}

static bool keep(const struct tensor *t)
{
    if (mapped_bytes(t) != KEPT_MAPPING_BYTES || !t->n_extents || t->overridden ||
        t->mapping_uses >= USES_MAX)
        return false;
    for (uint32_t i = 0; i < KEPT_MAPPINGS; i++) {
        if (kept[i].data) continue;
        for (uint32_t e = 0; e < t->n_extents; e++)
            memset(t->data + t->extents[e].offset_bytes, 0, t->extents[e].size_bytes);
        kept[i] = (struct mapping){t->data, t->mapping_uses};
        return true;
    }
    return false;
}

static void data_free(const struct tensor *t)
{
    if (mapped_bytes(t) < MAPPED_BYTES)
        free(t->data);
    else if (t->data && !keep(t))
        munmap(t->data, mapped_bytes(t));
}

void instance_free(struct instance *in)
{
    for (uint32_t i = 0; i < in->n_tensors; i++) {
        struct tensor *t = &in->tensors[i];
        if (t->alias_of < 0) data_free(t);
        if (t->alias_of < 0) free(t->extents);
    }
    if (in->pages) paging_free(in->pages);
    free(in->pages);
    memset(in, 0, sizeof *in);
}

/* Points the tensor's dimension names into one static pool of the distinct name lists in use. */
static void name_dims(struct tensor *t, const char *dims)
{
    static const char *const known[] = {"seq",   "head", "dim",  "slot", "row",  "block", "page",
                                        "token", "pool", "pair", "item", "query", "col",  "kv",
                                        "byte"};
    for (uint32_t i = 0; i < t->rank; i++) {
        size_t length = strcspn(dims, ",");
        t->dim[i] = "index";
        for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
            if (strlen(known[k]) == length && !memcmp(known[k], dims, length)) t->dim[i] = known[k];
        }
        dims += length + (dims[length] == ',');
    }
}

struct tensor *instance_add_strided(struct instance *in, const char *name, enum dtype dtype,
                                    enum role role, enum contract contract, uint32_t rank,
                                    const uint64_t *shape, const uint64_t *stride, uint64_t origin,
                                    uint64_t elems, const char *dims)
{
    if (in->n_tensors == INSTANCE_TENSORS_MAX) return NULL;
    struct tensor *t = &in->tensors[in->n_tensors];
    memset(t, 0, sizeof *t);
    t->name = name;
    t->dtype = dtype;
    t->role = role;
    t->contract = contract;
    t->rank = rank;
    for (uint32_t i = 0; i < rank; i++) {
        t->shape[i] = shape[i];
        t->stride[i] = stride[i];
    }
    t->origin = origin;
    t->elems = t->free_from = elems;
    t->alias_of = -1;
    name_dims(t, dims);
    if (role == ROLE_IN) {
        t->data = data_make(t);
        if (!t->data) return NULL;
    }
    in->n_tensors++;
    return t;
}

struct tensor *instance_add(struct instance *in, const char *name, enum dtype dtype, enum role role,
                            enum contract contract, uint32_t rank, const uint64_t *shape,
                            const char *dims)
{
    uint64_t stride[TENSOR_RANK_MAX], elems = 1;
    for (uint32_t i = rank; i-- > 0;) {
        stride[i] = elems;
        elems *= shape[i];
    }
    return instance_add_strided(in, name, dtype, role, contract, rank, shape, stride, 0, elems,
                                dims);
}

const struct tensor *instance_find(const struct instance *in, const char *name)
{
    return &in->tensors[instance_index(in, name)];
}

uint32_t instance_index(const struct instance *in, const char *name)
{
    for (uint32_t i = 0; i < in->n_tensors; i++) {
        if (!strcmp(in->tensors[i].name, name)) return i;
    }
    fprintf(stderr, "internal error: no tensor '%s'\n", name);
    abort();
}

void *instance_data(const struct instance *in, const char *name)
{
    return instance_find(in, name)->data;
}

bool tensor_add_extent(struct tensor *t, uint64_t offset_bytes, uint64_t size_bytes)
{
    if (t->n_extents) {
        struct gpu_extent *last = &t->extents[t->n_extents - 1];
        if (last->offset_bytes + last->size_bytes == offset_bytes) {
            last->size_bytes += size_bytes;
            return true;
        }
    }
    if ((t->n_extents & (t->n_extents - 1)) == 0) {
        size_t room = t->n_extents ? 2 * (size_t)t->n_extents : 1;
        struct gpu_extent *grown = realloc(t->extents, room * sizeof *grown);
        if (!grown) return false;
        t->extents = grown;
    }
    t->extents[t->n_extents++] = (struct gpu_extent){offset_bytes, size_bytes};
    return true;
}

const struct gpu_extent *tensor_backed(const struct tensor *t, struct gpu_extent *whole,
                                       uint32_t *count)
{
    *count = t->n_extents;
    if (t->n_extents) return t->extents;
    *whole = (struct gpu_extent){0, t->elems * dtype_bytes(t->dtype)};
    *count = whole->size_bytes ? 1 : 0;
    return whole;
}

uint64_t instance_backed_bytes(const struct instance *in)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < in->n_tensors; i++) {
        struct gpu_extent whole;
        uint32_t n;
        const struct gpu_extent *parts = tensor_backed(&in->tensors[i], &whole, &n);
        for (uint32_t k = 0; k < n; k++) bytes += parts[k].size_bytes;
    }
    return bytes;
}

uint64_t tensor_logical_elems(const struct tensor *t)
{
    uint64_t n = 1;
    for (uint32_t i = 0; i < t->rank; i++) n *= t->shape[i];
    return n;
}

uint64_t tensor_offset(const struct tensor *t, uint64_t flat)
{
    uint64_t offset = t->origin;
    for (uint32_t i = t->rank; i-- > 0;) {
        offset += flat % t->shape[i] * t->stride[i];
        flat /= t->shape[i];
    }
    return offset;
}

void tensor_describe_index(const struct tensor *t, uint64_t flat, char *text, size_t size)
{
    uint64_t index[TENSOR_RANK_MAX];
    size_t used = 0;
    for (uint32_t i = t->rank; i-- > 0;) {
        index[i] = flat % t->shape[i];
        flat /= t->shape[i];
    }
    if (size) text[0] = 0;
    for (uint32_t i = 0; i < t->rank && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s %llu", i ? ", " : "", t->dim[i],
                                 (unsigned long long)index[i]);
}
