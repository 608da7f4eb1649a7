#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/captured/describe.h"
#include "harness/files/safetensors.h"

static char path[] = "/tmp/attest-describe-XXXXXX";

/* The arguments of qsa_score, the query under another type where asked. */
static char *described(enum st_dtype query, const char *case_line)
{
    static const uint8_t zeros[4096];
    char error[400], *text;
    size_t size;
    int file = mkstemp(path);
    cr_assert_geq(file, 0);
    close(file);
    struct st_writer *w = st_writer_new();
    cr_assert(st_writer_tensor(w, "q", query, ST_SHAPE(4, 32), zeros, error, sizeof error));
    cr_assert(st_writer_tensor(w, "block_keys", ST_BF16, ST_SHAPE(9, 32), zeros, error, sizeof error));
    cr_assert(st_writer_tensor(w, "got.scores", ST_F32, ST_SHAPE(9), zeros, error, sizeof error));
    if (case_line) cr_assert(st_writer_metadata(w, "case", case_line, error, sizeof error));
    cr_assert(st_writer_save(w, path, error, sizeof error), "%s", error);
    st_writer_free(w);
    FILE *stream = open_memstream(&text, &size);
    cr_assert(captured_describe(path, stream, error, sizeof error), "%s", error);
    fclose(stream);
    unlink(path);
    return text;
}

Test(describe, an_operation_that_fits)
{
    char *text = described(ST_F32, "qsa_score:blocks=9,heads=4,hd=32");
    cr_expect_not_null(strstr(text, "block_keys               BF16    [9, 32]"), "%s", text);
    cr_expect_not_null(strstr(text, "a case of qsa_score"), "%s", text);
    cr_expect_not_null(strstr(text, "qsa_score                    3 of 3\n"), "%s", text);
    free(text);
}

Test(describe, a_wrong_type_and_no_case)
{
    char *text = described(ST_BF16, NULL);
    cr_expect_not_null(strstr(text, "no metadata key `case`"), "%s", text);
    cr_expect_not_null(strstr(text, "2 of 3: q is BF16, not F32"), "%s", text);
    free(text);
}

Test(describe, a_case_that_does_not_parse)
{
    char *text = described(ST_F32, "qsa_score:blocks=none");
    cr_expect_not_null(strstr(text, "its case is not right: "), "%s", text);
    free(text);
}

Test(describe, what_is_no_such_file)
{
    char error[400] = "";
    cr_expect_not(captured_describe("/nonexistent.safetensors", stderr, error, sizeof error));
    cr_expect_neq(error[0], 0);
}
