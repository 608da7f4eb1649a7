#include "harness/files/safetensors.h"

#include <criterion/criterion.h>
#include <endian.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/base/test_files.h"

static struct test_dir dir;

static void set_up(void)
{
    test_dir_make(&dir);
}

static void tear_down(void)
{
    test_dir_remove(&dir);
}

TestSuite(safetensors, .init = set_up, .fini = tear_down, .timeout = 120);

/* A file of this header and as many data bytes 0, 1, 2, ... */
static const char *make_file(const char *header, size_t data_bytes)
{
    size_t header_bytes = strlen(header), size = 8 + header_bytes + data_bytes;
    unsigned char *bytes = malloc(size);
    uint64_t length = htole64(header_bytes);
    cr_assert_not_null(bytes);
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, header, header_bytes);
    for (size_t i = 0; i < data_bytes; i++) bytes[8 + header_bytes + i] = (unsigned char)i;
    test_file_write(&dir, "case", bytes, size);
    free(bytes);
    return dir.file;
}

static void expect_refused(const char *path, const char *reason)
{
    struct st_file *file = (struct st_file *)&dir;
    char error[400] = "";
    cr_expect_not(st_open(path, &file, error, sizeof error), "accepted, wanted: %s", reason);
    cr_expect_null(file);
    cr_expect(strncmp(error, path, strlen(path)) == 0, "no path in: %s", error);
    cr_expect_not_null(strstr(error, reason), "got: %s\nwanted: %s", error, reason);
}

static struct st_file *open_ok(const char *path)
{
    struct st_file *file;
    char error[400] = "";
    cr_assert(st_open(path, &file, error, sizeof error), "%s", error);
    return file;
}

/* Every byte of every tensor, so that a pointer outside the mapping is noticed. */
static unsigned touch(const struct st_file *file)
{
    unsigned sum = 0;
    for (size_t i = 0; i < st_count(file); i++) {
        const struct st_tensor *tensor = st_at(file, i);
        const unsigned char *bytes = tensor->data;
        cr_assert_eq((uintptr_t)bytes % st_dtype_bytes(tensor->dtype), 0);
        cr_assert_eq(tensor->size_bytes, tensor->elems * st_dtype_bytes(tensor->dtype));
        for (uint64_t b = 0; b < tensor->size_bytes; b++) sum += bytes[b];
    }
    return sum;
}

/* ---- hostile headers ---- */

#define T(dtype, shape, begin, end) \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"

static const struct {
    const char *header;
    size_t data_bytes;
    const char *reason;
} hostile[] = {
    {"", 0, "does not begin with '{'"},
    {" {}", 0, "does not begin with '{'"},
    {"[1]", 0, "does not begin with '{'"},
    {"{", 0, "header is not JSON: stopped at its byte 1 of 1"},
    {"{} x", 0, "header is not JSON: stopped at its byte 3 of 4"},
    {"{}{}", 0, "not JSON"},
    {"{\"a\":[1,2}", 0, "not JSON"},
    {"{\"a\":nonsense}", 0, "not JSON"},
    {"{\"a\":\"\\ud800\"}", 0, "not JSON"},
    {"{\"a\\u0000b\":1}", 0, "escaped zero character"},
    {"{}", 1, "the tensors end at byte 0 of 1 bytes of data"},
    {"{\"a\":1}", 0, "tensor a is no JSON object"},
    {"{\"a\":[[[]]]}", 0, "tensor a is no JSON object"},
    {"{\"a\":{}}", 0, "tensor a lacks the key dtype"},
    {"{\"a\":{\"dtype\":\"U8\"}}", 0, "tensor a lacks the key shape"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[]}}", 1, "tensor a lacks the key data_offsets"},
    {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1,
     "tensor a has two keys dtype"},
    {"{\"a\":{\"stride\":[1],\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1,
     "tensor a has the unknown key stride"},
    {"{\"a\":" T("U8", "[2]", "0", "2") ",\"a\":" T("U8", "[2]", "2", "4") "}", 4,
     "header has two tensors a"},
    {"{\"a\":" T("F4", "[2]", "0", "2") "}", 2, "tensor a has the unknown dtype F4"},
    {"{\"a\":" T("u8", "[2]", "0", "2") "}", 2, "tensor a has the unknown dtype u8"},
    {"{\"a\":{\"dtype\":7,\"shape\":[],\"data_offsets\":[0,1]}}", 1,
     "tensor a has the unknown dtype (no string)"},
    {"{\"a\":" T("U8", "2", "0", "2") "}", 2, "tensor a: shape is no array"},
    {"{\"a\":" T("U8", "[2,-1]", "0", "2") "}", 2,
     "tensor a: dimension 1 is no integer of [0, 2^53)"},
    {"{\"a\":" T("U8", "[1.5]", "0", "2") "}", 2, "dimension 0 is no integer"},
    {"{\"a\":" T("U8", "[1e400]", "0", "2") "}", 2, "dimension 0 is no integer"},
    {"{\"a\":" T("U8", "[18446744073709551618]", "0", "2") "}", 2, "dimension 0 is no integer"},
    {"{\"a\":" T("U8", "[\"2\"]", "0", "2") "}", 2, "dimension 0 is no integer"},
    {"{\"a\":" T("U8", "[null]", "0", "2") "}", 2, "dimension 0 is no integer"},
    {"{\"a\":" T("U8", "[[2]]", "0", "2") "}", 2, "dimension 0 is no integer"},
    {"{\"a\":" T("U8", "[4294967296,4294967296,2]", "0", "0") "}", 0, "overflows 64 bits"},
    {"{\"a\":" T("F64", "[4503599627370496,512]", "0", "0") "}", 0, "overflows 64 bits"},
    {"{\"a\":" T("U8", "[1,1,1,1,1,1,1,1,1]", "0", "1") "}", 1, "more than 8 dimensions"},
    {"{\"a\":" T("F32", "[2]", "0", "4") "}", 4,
     "data_offsets [0,4) hold 4 bytes, its shape and dtype F32 call for 8"},
    {"{\"a\":" T("U8", "[0]", "0", "1") "}", 1, "hold 1 bytes"},
    {"{\"a\":" T("U8", "[2]", "2", "0") "}", 2, "[2,0) do not lie inside the 2 bytes of data"},
    {"{\"a\":" T("U8", "[3]", "0", "3") "}", 2, "[0,3) do not lie inside the 2 bytes of data"},
    {"{\"a\":" T("U8", "[2]", "9007199254740990", "9007199254740992") "}", 2, "no two integers"},
    {"{\"a\":" T("U8", "[2]", "-1", "1") "}", 2, "no two integers"},
    {"{\"a\":" T("U8", "[2]", "0.5", "2.5") "}", 3, "no two integers"},
    {"{\"a\":" T("U8", "[2]", "0", "2,4") "}", 4, "no two integers"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[]}}", 1, "no two integers"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":{\"x\":0,\"y\":1}}}", 1,
     "no two integers"},
    {"{\"a\":" T("U8", "[2]", "0", "2") ",\"b\":" T("U8", "[2]", "1", "3") "}", 3,
     "tensor b begins at byte 1 of the data, inside the one before it: a ends at 2"},
    {"{\"a\":" T("U8", "[2]", "0", "2") ",\"b\":" T("U8", "[2]", "0", "2") "}", 2,
     "inside the one before it"},
    {"{\"b\":" T("U8", "[2]", "3", "5") ",\"a\":" T("U8", "[2]", "0", "2") "}", 5,
     "tensor b begins at byte 3 of the data, after a gap: a ends at 2"},
    {"{\"a\":" T("U8", "[2]", "1", "3") "}", 3, "after a gap: the header ends at 0"},
    {"{\"a\":" T("U8", "[2]", "0", "2") "}", 3, "the tensors end at byte 2 of 3 bytes of data"},
    {"{\"__metadata__\":[]}", 0, "__metadata__ is no JSON object"},
    {"{\"__metadata__\":{\"S\":37}}", 0, "metadata S is no string"},
    {"{\"__metadata__\":{\"S\":null}}", 0, "metadata S is no string"},
    {"{\"__metadata__\":{\"S\":\"1\",\"T\":\"1\",\"S\":\"2\"}}", 0, "metadata has two keys S"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "header has two keys __metadata__"},
};

Test(safetensors, hostile_headers_are_refused_with_the_rule)
{
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++)
        expect_refused(make_file(hostile[i].header, hostile[i].data_bytes), hostile[i].reason);
}

Test(safetensors, header_length_is_checked_before_it_is_used)
{
    static const struct {
        uint64_t length;
        const char *reason;
    } cases[] = {
        {3, "header length 3 runs past the end of the file (10 bytes)"},
        {100000000, "header length 100000000 runs past the end"},
        {100000001, "header length 100000001 is above the format's limit of 100000000"},
        {UINT64_MAX - 7, "is above the format's limit"},
        {UINT64_MAX, "header length 18446744073709551615 is above"},
        {0, "does not begin with '{'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned char bytes[10] = {[8] = '{', [9] = '}'};
        uint64_t length = htole64(cases[i].length);
        memcpy(bytes, &length, 8);
        expect_refused(test_file_write(&dir, "case", bytes, sizeof bytes), cases[i].reason);
    }
}

Test(safetensors, a_header_with_a_zero_byte_is_refused)
{
    const unsigned char bytes[] = {4, 0, 0, 0, 0, 0, 0, 0, '{', '}', 0, '{'};
    expect_refused(test_file_write(&dir, "case", bytes, sizeof bytes), "zero byte");
}

Test(safetensors, deep_nesting_is_refused)
{
    enum { DEPTH = 200000 };
    char *header = malloc(2 * DEPTH + 10);
    cr_assert_not_null(header);
    size_t n = (size_t)sprintf(header, "{\"a\":");
    memset(header + n, '[', DEPTH);
    memset(header + n + DEPTH, ']', DEPTH);
    strcpy(header + n + 2 * (size_t)DEPTH, "}");
    expect_refused(make_file(header, 0), "not JSON");
    free(header);
}

Test(safetensors, control_characters_of_a_file_do_not_reach_the_message)
{
    struct st_file *file;
    char error[400] = "";
    cr_expect_not(st_open(make_file("{\"\\u001b[2J\\n\":1}", 0), &file, error, sizeof error));
    cr_expect_not_null(strstr(error, "tensor ?[2J? is no JSON object"), "%s", error);
    cr_expect_not(st_open(dir.file, &file, NULL, 0));
    char small[5];
    cr_expect_not(st_open(dir.file, &file, small, sizeof small));
    cr_expect_eq(strlen(small), 4);
}

Test(safetensors, things_that_are_no_files_are_refused, .timeout = 10)
{
    expect_refused(test_file_at(&dir, "missing"), "cannot be opened: No such file");
    expect_refused(test_file_write(&dir, "empty", "", 0), "has 0 bytes, too few");
    expect_refused(test_file_write(&dir, "seven", "1234567", 7), "has 7 bytes, too few");
    expect_refused(dir.path, "is not a regular file");
    cr_assert_eq(mkfifo(test_file_at(&dir, "fifo"), 0600), 0);
    expect_refused(dir.file, "is not a regular file");
    expect_refused("/dev/zero", "is not a regular file");
}

/* ---- files that are accepted ---- */

Test(safetensors, odd_but_legal_files_are_read)
{
    struct st_file *file = open_ok(make_file("{}   ", 0));
    cr_expect_eq(st_count(file), 0);
    cr_expect_eq(st_metadata_count(file), 0);
    cr_expect_null(st_find(file, "a"));
    cr_expect_null(st_metadata(file, "a"));
    st_close(file);

    /* Offsets in another order than the names, a scalar, empty tensors in front, between, behind.
     */
    static const char header[] = "{\"m\":" T(
        "U8", "[0]", "2",
        "2") ","
             "\"a\":" T("I16", "[]", "2",
                        "4") ","
                             "\"b\":" T("U8", "[2]", "0",
                                        "2") ","
                                             "\"y\":" T("F64", "[3,0]", "4",
                                                        "4") ","
                                                             "\"z\":" T("U8", "[0]", "0", "0") "}";
    file = open_ok(make_file(header, 4));
    cr_assert_eq(st_count(file), 5);
    cr_expect_str_eq(st_at(file, 0)->name, "a");
    cr_expect_str_eq(st_at(file, 4)->name, "z");
    cr_expect_eq(*(const int16_t *)st_find(file, "a")->data, 0x0302);
    cr_expect_eq(st_find(file, "a")->elems, 1);
    cr_expect_eq(st_find(file, "y")->elems, 0);
    touch(file);
    st_close(file);
}

Test(safetensors, misaligned_data_is_handed_out_aligned)
{
    /* Whatever the header's length, at least one of these lies off its alignment. */
    struct st_file *file =
        open_ok(make_file("{\"a\":" T("U8", "[1]", "0", "1") ",\"b\":" T(
                              "F64", "[1]", "1", "9") ",\"c\":" T("I32", "[2]", "9", "17") "}",
                          17));
    unsigned sum = 0;
    for (unsigned i = 0; i < 17; i++) sum += i;
    cr_expect_eq(touch(file), sum);
    const int32_t *c = st_find(file, "c")->data;
    cr_expect_eq(c[0], 0x0c0b0a09);
    cr_expect_eq(c[1], 0x100f0e0d);
    st_close(file);
}

/* ---- writer ---- */

static const uint16_t bf16_data[6] = {0x3f80, 0x4000, 0x7fc0, 0xff80, 1, 2};
static const double f64_data[2] = {1.0, -0.0};
static const uint8_t u8_data[3] = {7, 8, 9};
static const char odd_text[] = "quote \" slash \\ tab \t umlaut \xc3\xbc";

static struct st_writer *sample(void)
{
    struct st_writer *writer = st_writer_new();
    char error[300] = "";
    cr_assert_not_null(writer);
    cr_assert(st_writer_metadata(writer, "case", "op:seed=0x1f", error, sizeof error));
    cr_assert(st_writer_metadata(writer, "odd \"key\"", odd_text, error, sizeof error));
    cr_assert(st_writer_metadata(writer, "Case", "another", error, sizeof error));
    cr_assert(st_writer_tensor(writer, "mask", ST_U8, ST_SHAPE(3), u8_data, error, sizeof error));
    cr_assert(
        st_writer_tensor(writer, "q", ST_BF16, ST_SHAPE(2, 3), bf16_data, error, sizeof error));
    cr_assert(
        st_writer_tensor(writer, "value", ST_F64, ST_SHAPE(1, 2), f64_data, error, sizeof error));
    cr_assert(st_writer_tensor(writer, "none", ST_F32, ST_SHAPE(0, 1000000000000000), NULL, error,
                               sizeof error));
    cr_assert(st_writer_tensor(writer, "one", ST_BF16, 0, NULL, bf16_data, error, sizeof error));
    return writer;
}

static void save_sample(const char *path)
{
    struct st_writer *writer = sample();
    char error[300] = "";
    cr_assert(st_writer_save(writer, path, error, sizeof error), "%s", error);
    st_writer_free(writer);
}

Test(safetensors, what_is_written_is_read_back)
{
    save_sample(test_file_at(&dir, "case"));
    cr_expect_eq(test_dir_count(&dir), 1, "a temporary file stayed");
    struct st_file *file = open_ok(test_file_at(&dir, "case"));
    char error[300] = "";
    cr_assert_eq(st_count(file), 5);
    const void *q = st_require(file, "q", ST_BF16, ST_SHAPE(2, 3), error, sizeof error);
    const void *value = st_require(file, "value", ST_F64, ST_SHAPE(1, 2), error, sizeof error);
    const void *mask = st_require(file, "mask", ST_U8, ST_SHAPE(3), error, sizeof error);
    const uint16_t *one = st_require(file, "one", ST_BF16, 0, NULL, error, sizeof error);
    cr_assert(q && value && mask && one, "%s", error);
    cr_expect_eq(memcmp(q, bf16_data, sizeof bf16_data), 0);
    cr_expect_eq(memcmp(value, f64_data, sizeof f64_data), 0);
    cr_expect_eq(memcmp(mask, u8_data, sizeof u8_data), 0);
    cr_expect_eq(*one, bf16_data[0]);
    cr_expect_eq(st_find(file, "none")->shape[1], 1000000000000000u);
    cr_assert_eq(st_metadata_count(file), 3);
    cr_expect_str_eq(st_metadata(file, "case"), "op:seed=0x1f");
    cr_expect_str_eq(st_metadata(file, "Case"), "another");
    cr_expect_str_eq(st_metadata(file, "odd \"key\""), odd_text);
    const char *key, *text;
    st_metadata_at(file, 0, &key, &text);
    cr_expect_str_eq(key, "Case");
    cr_expect_str_eq(st_path(file), dir.file);
    st_close(file);
}

/* Other readers map the file without copying, so each tensor must be aligned in it. */
Test(safetensors, written_tensors_are_aligned_in_the_file)
{
    save_sample(test_file_at(&dir, "case"));
    size_t size;
    unsigned char *bytes = test_file_read(dir.file, &size);
    uint64_t header_bytes;
    memcpy(&header_bytes, bytes, 8);
    cr_expect_eq(le64toh(header_bytes) % 8, 0);
    const size_t data = 8 + le64toh(header_bytes);
    cr_expect_eq(size, data + sizeof f64_data + sizeof bf16_data + 2 + sizeof u8_data);
    cr_expect_eq(memcmp(bytes + data, f64_data, sizeof f64_data), 0);
    cr_expect_eq(memcmp(bytes + size - 3, u8_data, 3), 0);
    free(bytes);
}

Test(safetensors, writer_refuses_what_it_could_not_read_back)
{
    struct st_writer *writer = sample();
    char error[300] = "";
    cr_expect_not(st_writer_metadata(writer, "case", "x", error, sizeof error));
    cr_expect_str_eq(error, "metadata case is given twice");
    cr_expect_not(st_writer_tensor(writer, "q", ST_U8, ST_SHAPE(1), u8_data, error, sizeof error));
    cr_expect_str_eq(error, "tensor q is given twice");
    cr_expect_not(
        st_writer_tensor(writer, "__metadata__", ST_U8, ST_SHAPE(1), u8_data, error, sizeof error));
    cr_expect_not(st_writer_tensor(writer, "deep", ST_U8, ST_SHAPE(1, 1, 1, 1, 1, 1, 1, 1, 1),
                                   u8_data, error, sizeof error));
    cr_expect_not(st_writer_tensor(writer, "big", ST_F64, ST_SHAPE(UINT64_MAX / 4), u8_data, error,
                                   sizeof error));
    cr_expect_not_null(strstr(error, "overflows"));
    st_writer_free(writer);
}

Test(safetensors, a_failed_save_leaves_the_old_file_and_nothing_else)
{
    char error[300] = "";
    struct st_writer *writer = sample();
    cr_expect_not(st_writer_save(writer, test_file_at(&dir, "no/such"), error, sizeof error));
    cr_expect_not_null(strstr(error, "No such file"), "%s", error);
    /* The target is a folder, so the rename fails after everything was written. */
    cr_assert_eq(mkdir(test_file_at(&dir, "folder"), 0700), 0);
    cr_expect_not(st_writer_save(writer, dir.file, error, sizeof error));
    cr_expect_not_null(strstr(error, "cannot be written: Is a directory"), "%s", error);
    cr_expect_eq(test_dir_count(&dir), 1);
    cr_expect_eq(rmdir(dir.file), 0);
    /* And a save over an existing file replaces it. */
    test_file_write(&dir, "case", "old", 3);
    cr_expect(st_writer_save(writer, dir.file, error, sizeof error), "%s", error);
    st_close(open_ok(dir.file));
    st_writer_free(writer);
}

/* ---- typed access ---- */

Test(safetensors, typed_access_says_what_is_there_and_what_was_expected)
{
    save_sample(test_file_at(&dir, "case"));
    struct st_file *file = open_ok(dir.file);
    char error[300] = "", want[400];
    cr_expect_null(st_require(file, "q", ST_BF16, ST_SHAPE(2, 4), error, sizeof error));
    snprintf(want, sizeof want, "%s: tensor q has shape [2,3], expected [2,4]", dir.file);
    cr_expect_str_eq(error, want);
    cr_expect_null(st_require(file, "q", ST_BF16, ST_SHAPE(6), error, sizeof error));
    cr_expect_not_null(strstr(error, "has shape [2,3], expected [6]"));
    cr_expect_null(st_require(file, "q", ST_F16, ST_SHAPE(2, 3), error, sizeof error));
    cr_expect_not_null(strstr(error, "tensor q has dtype BF16, expected F16"));
    cr_expect_null(st_require(file, "k", ST_F16, ST_SHAPE(2, 3), error, sizeof error));
    cr_expect_not_null(strstr(error, "has no tensor k"));
    cr_expect_null(st_require(file, "one", ST_BF16, ST_SHAPE(1), error, sizeof error));
    cr_expect_not_null(strstr(error, "has shape [], expected [1]"));
    st_close(file);
}

Test(safetensors, metadata_numbers_are_read_whole_or_refused)
{
    struct st_file *file = open_ok(
        make_file("{\"__metadata__\":{\"S\":\"4294967295\",\"big\":\"4294967296\",\"neg\":\"-1\","
                  "\"empty\":\"\",\"tail\":\"12x\",\"long\":\"00000000000000000000000001\","
                  "\"eps\":\"1e-06\",\"inf\":\"inf\",\"nan\":\"nan\",\"huge\":\"1e999\"}}",
                  0));
    char error[300] = "";
    uint32_t u;
    double d;
    cr_expect(st_metadata_u32(file, "S", &u, error, sizeof error));
    cr_expect_eq(u, UINT32_MAX);
    static const char *const no_integers[] = {"big", "neg", "empty", "tail", "long", "eps"};
    for (size_t i = 0; i < sizeof no_integers / sizeof *no_integers; i++) {
        cr_expect_not(st_metadata_u32(file, no_integers[i], &u, error, sizeof error), "%s",
                      no_integers[i]);
        cr_expect_not_null(strstr(error, "no integer of [0, 2^32)"), "%s", error);
    }
    cr_expect(st_metadata_f64(file, "eps", &d, error, sizeof error));
    cr_expect_eq(d, 1e-6);
    static const char *const no_numbers[] = {"inf", "nan", "huge", "empty", "tail"};
    for (size_t i = 0; i < sizeof no_numbers / sizeof *no_numbers; i++)
        cr_expect_not(st_metadata_f64(file, no_numbers[i], &d, error, sizeof error), "%s",
                      no_numbers[i]);
    cr_expect_not(st_metadata_u32(file, "absent", &u, error, sizeof error));
    cr_expect_not_null(strstr(error, "has no metadata absent"), "%s", error);
    st_close(file);
}

/* ---- damaged files ---- */

/* A complete file covers its data to the last byte, so every proper prefix must be refused. */
static void truncate_at_every_length(const char *path)
{
    struct stat status;
    struct st_file *file;
    char error[300];
    st_close(open_ok(path));
    cr_assert_eq(stat(path, &status), 0);
    for (off_t length = status.st_size - 1; length >= 0; length--) {
        cr_assert_eq(truncate(path, length), 0);
        error[0] = '\0';
        cr_assert_not(st_open(path, &file, error, sizeof error), "accepted at %lld bytes",
                      (long long)length);
        cr_assert_neq(error[0], '\0');
    }
}

/* Flips 1 to 3 bits and tries to open; whatever is accepted must be readable. */
static void flip_bits(const char *path, size_t header_share, unsigned rounds)
{
    size_t size, accepted = 0, refused = 0;
    unsigned char *bytes = test_file_read(path, &size);
    uint64_t state = 0x9e3779b97f4a7c15u;
    int fd = open(path, O_WRONLY);
    cr_assert(fd >= 0);
    for (unsigned round = 0; round < rounds; round++) {
        size_t at[3];
        unsigned flips = 1 + (unsigned)(test_random(&state) % 3);
        for (unsigned i = 0; i < flips; i++) {
            at[i] = test_random(&state) % (test_random(&state) % 8 ? header_share : size);
            unsigned char changed = bytes[at[i]] ^ (unsigned char)(1u << test_random(&state) % 8);
            cr_assert_eq(pwrite(fd, &changed, 1, (off_t)at[i]), 1);
        }
        struct st_file *file;
        char error[300] = "";
        if (st_open(path, &file, error, sizeof error)) {
            touch(file);
            st_close(file);
            accepted++;
        } else {
            cr_assert_neq(error[0], '\0');
            refused++;
        }
        for (unsigned i = 0; i < flips; i++)
            cr_assert_eq(pwrite(fd, bytes + at[i], 1, (off_t)at[i]), 1);
    }
    close(fd);
    free(bytes);
    st_close(open_ok(path));
    cr_expect(accepted > 0 && refused > rounds / 4, "%zu accepted, %zu refused", accepted, refused);
}

static const char *copy_golden(const char *name)
{
    char path[200];
    size_t size;
    snprintf(path, sizeof path, "corpora/golden/%s.safetensors", name);
    unsigned char *bytes = test_file_read(path, &size);
    test_file_write(&dir, "case", bytes, size);
    free(bytes);
    return dir.file;
}

Test(safetensors, truncation_at_every_length_is_refused)
{
    save_sample(test_file_at(&dir, "case"));
    truncate_at_every_length(dir.file);
    truncate_at_every_length(copy_golden("qsa_fullrot_s40"));
}

Test(safetensors, flipped_bits_never_lead_outside_the_file)
{
    save_sample(test_file_at(&dir, "case"));
    flip_bits(dir.file, 400, 20000);
    flip_bits(copy_golden("qsa_fullrot_s40"), 8 + 944, 20000);
}
