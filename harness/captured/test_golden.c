#include "harness/captured/test_golden.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/base/test_files.h"
#include "harness/captured/golden.h"
#include "ref/bound.h"

const char *test_golden_path(const char *name)
{
    static char path[200];
    snprintf(path, sizeof path, "corpora/golden/%s.safetensors", name);
    return path;
}

void *test_golden_allocate(uint64_t count, size_t size)
{
    void *buffer = calloc(count ? count : 1, size);
    cr_assert_not_null(buffer);
    return buffer;
}

uint32_t test_ties_at(const struct test_tie *ties, uint32_t position)
{
    while (ties->differ > 0 && ties->position != position) ties++;
    return ties->differ;
}

static bool holds(const int32_t *set, uint32_t count, int32_t item)
{
    for (uint32_t i = 0; i < count; i++)
        if (set[i] == item) return true;
    return false;
}

static uint32_t count_missing(const int32_t *set, const int32_t *from, uint32_t k,
                              const double *scores)
{
    uint32_t missing = 0;
    for (uint32_t i = 0; i < k; i++) {
        if (holds(from, k, set[i])) continue;
        cr_assert_geq(set[i], 0);
        cr_expect_eq(scores[set[i]], 0.0);
        missing++;
    }
    return missing;
}

void test_ties_differ(const int32_t *left, const int32_t *right, uint32_t k, const double *scores,
                      uint32_t differ)
{
    cr_expect_eq(count_missing(left, right, k, scores), differ);
    cr_expect_eq(count_missing(right, left, k, scores), differ);
}

double test_attention_f64_limit(double peak, uint32_t dim, uint64_t n)
{
    const double u = REF_U_F64;
    double theta = (ref_gamma(dim + 4.0, u) + 6 * u) * peak + (double)(n + 1) * 5 * u;
    return 2 * (theta + ref_gamma(3.0 * (double)n + 8.0, u));
}

double test_interpolation_limit(double peak)
{
    return REF_ULP_F32 * REF_ULP_F32 / 4 * peak * peak;
}

void test_interpolate(double *a, const double *b, size_t n, float low, float high, double exact)
{
    double share = low == high ? 0.0 : (exact - low) / ((double)high - low);
    for (size_t i = 0; i < n; i++) a[i] += share * (b[i] - a[i]);
}

/* ---- loading ---- */

static struct test_dir dir;

static void set_up(void)
{
    test_dir_make(&dir);
}

static void tear_down(void)
{
    test_dir_remove(&dir);
}

TestSuite(golden, .init = set_up, .fini = tear_down, .timeout = 120);

struct change {
    const char *tensor;   /* dropped, or if `metadata`: the key that gets the value below */
    const char *metadata; /* new value, "" drops the key, NULL: the change is a tensor's */
    int32_t first;        /* for a tensor of I32 not dropped: its new first element */
    bool drop;
    const char *reason;
};

static bool is_changed(const struct change *change, const char *name, bool metadata)
{
    return metadata == (change->metadata != NULL) && strcmp(change->tensor, name) == 0;
}

/* A copy of a golden file with one thing changed. */
static void write_changed(const char *name, const struct change *change)
{
    struct st_file *file;
    struct st_writer *writer = st_writer_new();
    char error[300] = "";
    int32_t *changed = NULL;
    cr_assert(writer && st_open(test_golden_path(name), &file, error, sizeof error), "%s", error);
    for (size_t i = 0; i < st_metadata_count(file); i++) {
        const char *key, *value;
        st_metadata_at(file, i, &key, &value);
        if (is_changed(change, key, true)) value = change->metadata;
        if (*value) cr_assert(st_writer_metadata(writer, key, value, error, sizeof error));
    }
    for (size_t i = 0; i < st_count(file); i++) {
        const struct st_tensor *t = st_at(file, i);
        const void *data = t->data;
        if (is_changed(change, t->name, false)) {
            if (change->drop) continue;
            changed = malloc(t->size_bytes);
            cr_assert(changed && t->dtype == ST_I32);
            memcpy(changed, t->data, t->size_bytes);
            changed[0] = change->first;
            data = changed;
        }
        cr_assert(st_writer_tensor(writer, t->name, t->dtype, t->rank, t->shape, data, error,
                                   sizeof error));
    }
    cr_assert(st_writer_save(writer, test_file_at(&dir, "case"), error, sizeof error), "%s", error);
    st_writer_free(writer);
    st_close(file);
    free(changed);
}

static bool open_and_close(bool dsa, const char *path, char *error, size_t error_size)
{
    struct golden_dsa golden_dsa;
    struct golden_qsa golden_qsa;
    bool ok = dsa ? golden_dsa_open(path, &golden_dsa, error, error_size)
                  : golden_qsa_open(path, &golden_qsa, error, error_size);
    if (ok && dsa) golden_dsa_close(&golden_dsa);
    if (ok && !dsa) golden_qsa_close(&golden_qsa);
    return ok;
}

static void expect_reason(bool dsa, const char *name, const struct change *change)
{
    char error[300] = "";
    write_changed(name, change);
    cr_expect_not(open_and_close(dsa, dir.file, error, sizeof error), "accepted: %s",
                  change->reason);
    cr_expect_not_null(strstr(error, change->reason), "got: %s\nwanted: %s", error, change->reason);
}

Test(golden, a_dsa_file_that_does_not_hold_together_is_refused)
{
    static const struct change changes[] = {
        {.tensor = "S", .metadata = "", .reason = "has no metadata S"},
        {.tensor = "S", .metadata = "36", .reason = "has shape [37,32], expected [36,32]"},
        {.tensor = "S", .metadata = "4294967295", .reason = "S is out of range"},
        {.tensor = "index_kpool", .metadata = "0", .reason = "index_kpool"},
        {.tensor = "index_topk", .metadata = "20", .reason = "has shape [37,19], expected [37,23]"},
        {.tensor = "left_padding", .metadata = "38", .reason = "left_padding"},
        {.tensor = "always_select_tail", .metadata = "yes", .reason = "neither true nor false"},
        {.tensor = "kv_scale", .metadata = "x", .reason = "no finite number"},
        {.tensor = "block_size", .metadata = "8", .reason = "too short for the tokens"},
        {.tensor = "block_size", .metadata = "4000000000", .reason = "a GiB or more"},
        {.tensor = "num_q_heads", .metadata = "9", .reason = "has shape [4,8,512]"},
        {.tensor = "block_table", .first = 5, .reason = "has a page twice"},
        {.tensor = "block_table", .first = -1, .reason = "or one far out"},
        {.tensor = "block_table", .first = INT32_MAX, .reason = "or one far out"},
        {.tensor = "q_pos", .drop = true, .reason = "tensor q_pos gives no count"},
        {.tensor = "sel_indices", .drop = true, .reason = "has no tensor sel_indices"},
        {.tensor = "expect.pool_keys", .drop = true, .reason = "has no tensor expect.pool_keys"},
    };
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
        expect_reason(true, "dsa_small_s37", &changes[i]);
}

Test(golden, a_qsa_file_that_does_not_hold_together_is_refused)
{
    static const struct change changes[] = {
        {.tensor = "theta", .metadata = "", .reason = "has no metadata theta"},
        {.tensor = "ratio", .metadata = "0", .reason = "ratio, S or hd is out of range"},
        {.tensor = "ratio", .metadata = "2", .reason = "has shape [15,64], expected [30,64]"},
        {.tensor = "budget", .metadata = "3", .reason = "budget is out of range"},
        {.tensor = "budget", .metadata = "8", .reason = "not whole blocks and the tail"},
        {.tensor = "hd", .metadata = "32", .reason = "expected [61,32]"},
        {.tensor = "nkv", .metadata = "4", .reason = "has shape [61,128], expected [61,256]"},
        {.tensor = "qk", .drop = true, .reason = "tensor qk is no matrix"},
        {.tensor = "row_pos", .first = 1, .reason = "not whole blocks and the tail"},
        {.tensor = "row_pos", .first = 61, .reason = "not whole blocks and the tail"},
        {.tensor = "attn_row_pos", .first = 59, .reason = "not whole blocks and the tail"},
        {.tensor = "attn_mask", .drop = true, .reason = "has no tensor attn_mask"},
    };
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
        expect_reason(false, "qsa_small_s61", &changes[i]);
}

/* Flips in the header reach every count, flips in the data every table. */
static void flip_and_open(bool dsa, const char *name, uint64_t seed)
{
    size_t size, accepted = 0;
    unsigned char *bytes = test_file_read(test_golden_path(name), &size);
    for (unsigned round = 0; round < 400; round++) {
        char error[300] = "";
        size_t at = test_random(&seed) % (round % 4 ? 1800 : size);
        unsigned char kept = bytes[at];
        bytes[at] ^= (unsigned char)(1u << test_random(&seed) % 8);
        test_file_write(&dir, "case", bytes, size);
        if (open_and_close(dsa, dir.file, error, sizeof error))
            accepted++;
        else
            cr_assert_neq(error[0], '\0');
        bytes[at] = kept;
    }
    free(bytes);
    cr_expect(accepted > 0 && accepted < 300, "%zu of 400 accepted", accepted);
}

Test(golden, flipped_bits_are_refused_or_harmless)
{
    flip_and_open(true, "dsa_small_s37", 1);
    flip_and_open(false, "qsa_small_s61", 2);
}
