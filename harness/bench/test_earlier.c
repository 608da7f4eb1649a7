#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "harness/bench/earlier.h"

static bool read_text(const char *text, size_t size, struct earlier *e, char *error, size_t room)
{
    FILE *f = fmemopen((void *)text, size, "r");
    cr_assert_not_null(f);
    bool fine = earlier_read(f, "file", e, error, room);
    fclose(f);
    return fine;
}

static const char good[] =
    "{\"case\":\"a:x=1\",\"backend\":\"cuda\",\"median_us\":10,\"least_us\":9,\"most_us\":12}\n"
    "\n"
    "{\"checker\":\"a\",\"cases\":3}\n"
    "{\"case\":\"a:x=1\",\"backend\":\"simt\",\"median_us\":20,\"least_us\":20,\"most_us\":20}\n"
    "{\"case\":\"a:x=1\",\"peer\":\"torch eager\",\"median_us\":5,\"least_us\":5,\"most_us\":6}\n"
    "{\"case\":\"b:x=1\",\"peer\":\"torch\",\"skipped\":\"no peer\"}\n"
    "{\"case\":\"a:x=1\",\"backend\":\"cuda\",\"median_us\":11,\"least_us\":9,\"most_us\":12,"
    "\"device\":\"D\"}";

Test(earlier, last_time_of_the_same_backend)
{
    struct earlier e;
    char error[512] = "";
    cr_assert(read_text(good, sizeof good - 1, &e, error, sizeof error), "%s", error);
    cr_assert_eq(e.count, 5);
    cr_expect_eq(earlier_find(&e, "a:x=1", "cuda")->median_us, 11);
    cr_expect_str_eq(earlier_find(&e, "a:x=1", "cuda")->device, "D");
    cr_expect_eq(earlier_find(&e, "a:x=1", "simt")->median_us, 20);
    cr_expect_null(earlier_find(&e, "b:x=1", "cuda"));
    cr_expect_null(earlier_find(&e, "a:x=2", "cuda"));
    cr_expect_str_eq(e.times[2].peer, "torch eager");
    cr_expect_str_eq(e.times[3].skipped, "no peer");
    earlier_free(&e);
}

/* Each of these, on a line of its own behind a good one, is named with its line. */
Test(earlier, broken_files_are_refused)
{
    static const char *const lines[] = {
        "{",
        "[]",
        "1",
        "null",
        "{\"case\":\"a\"} x",
        "{\"case\":1}",
        "{\"case\":\"\"}",
        "{\"op\":\"a\"}",
        "{\"case\":\"a\",\"median_us\":1,\"least_us\":1}",
        "{\"case\":\"a\",\"median_us\":1,\"least_us\":2,\"most_us\":3}",
        "{\"case\":\"a\",\"median_us\":4,\"least_us\":2,\"most_us\":3}",
        "{\"case\":\"a\",\"median_us\":0,\"least_us\":0,\"most_us\":0}",
        "{\"case\":\"a\",\"median_us\":\"1\",\"least_us\":1,\"most_us\":1}",
        "{\"case\":\"a\",\"median_us\":1e999,\"least_us\":1,\"most_us\":1e999}",
        ("{\"case\":\"a\",\"backend\":\"a name that is longer than any\",\"median_us\":1,"
         "\"least_us\":1,\"most_us\":1}"),
        "{\"case\":\"a\",\"peer\":7,\"median_us\":1,\"least_us\":1,\"most_us\":1}"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        char text[1024], error[512] = "";
        struct earlier e;
        snprintf(text, sizeof text, "%.*s\n%s\n", (int)strcspn(good, "\n"), good, lines[i]);
        cr_expect_not(read_text(text, strlen(text), &e, error, sizeof error), "%s", lines[i]);
        cr_expect_not_null(strstr(error, "file:2: "), "%s: %s", lines[i], error);
        earlier_free(&e);
    }
}

Test(earlier, empty_binary_deep_and_endless_files_are_refused)
{
    enum { SIZE = 3 << 20 };
    char *text = malloc(SIZE), error[512] = "";
    struct earlier e;
    cr_assert_not_null(text);
    cr_expect_not(read_text("\n\n", 2, &e, error, sizeof error));
    cr_expect_str_eq(error, "file: there is no time in it");
    for (int fill = 0; fill < 3; fill++) {
        memset(text, "a[\0"[fill], SIZE);
        cr_expect_not(read_text(text, SIZE, &e, error, sizeof error));
        cr_expect_not_null(strstr(error, "file:1: "), "%s", error);
        earlier_free(&e);
    }
    free(text);
}

Test(earlier, beyond_both_spreads)
{
    struct earlier_time e = {.median_us = 10, .least_us = 9, .most_us = 12};
    cr_expect(earlier_beyond_spreads(&e, 14, 13.5, 14.5));
    cr_expect_not(earlier_beyond_spreads(&e, 13, 12.9, 13.1), "3 us is its spread");
    cr_expect_not(earlier_beyond_spreads(&e, 14, 12, 17), "within the new spread");
    cr_expect(earlier_beyond_spreads(&e, 6.9, 6.8, 7));
}
