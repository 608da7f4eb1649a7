/* The state of a fuzz run: what it keeps, and its file. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/fuzz/draw.h"
#include "harness/fuzz/mutate.h"
#include "harness/fuzz/state.h"

static void fill(struct fuzz_state *s, uint32_t n)
{
    static struct case_line c;
    struct rng r = {3, 0x57a7, 0};
    bool known;
    for (uint32_t i = 0; i < n; i++) {
        mutate_fresh(&c, op_table[i % op_count], &r, TIER_QUICK);
        cr_assert(fuzz_state_note(s, &c));
        s->cases++;
    }
    s->round = 5;
    s->refused = 2;
    s->empty = 1;
    s->seconds = 12.5;
    cr_assert(fuzz_state_find(s, op_table[0], "contract out", &known) && !known);
}

static void path_of(char *path, size_t size)
{
    snprintf(path, size, "/tmp/attest-test-%d.fuzz", getpid());
}

Test(fuzz_state, keeps_what_is_new)
{
    static struct case_line c;
    struct fuzz_state s;
    bool known;
    cr_assert(fuzz_state_open(&s, "simt", 1));
    case_init(&c, op_table[0]);
    cr_assert(fuzz_state_note(&s, &c) && s.n_kept == 1 && s.classes > 0);
    uint64_t classes = s.classes;
    cr_assert(fuzz_state_note(&s, &c) && s.n_kept == 1 && s.classes == classes);
    cr_assert(fuzz_state_find(&s, op_table[0], "hang", &known) && !known);
    cr_assert(fuzz_state_find(&s, op_table[0], "hang", &known) && known);
    cr_assert(fuzz_state_find(&s, op_table[1], "hang", &known) && !known);
    cr_assert_eq(s.n_found, 2);
    fuzz_state_free(&s);
}

Test(fuzz_state, file_gives_the_same_state_back)
{
    struct fuzz_state s, t;
    char path[64], error[512];
    path_of(path, sizeof path);
    cr_assert(fuzz_state_open(&s, "cuda", 77));
    fill(&s, 60);
    cr_assert(fuzz_state_save(&s, path, error, sizeof error), "%s", error);
    cr_assert(fuzz_state_open(&t, "simt", 1));
    cr_assert(fuzz_state_load(&t, path, error, sizeof error), "%s", error);
    cr_assert_str_eq(t.backend, "cuda");
    cr_assert(t.seed == 77 && t.round == 5 && t.cases == 60 && t.refused == 2 && t.empty == 1);
    cr_assert_eq(t.seconds, 12.5);
    cr_assert(t.classes == s.classes && t.n_kept == s.n_kept && t.n_found == s.n_found);
    cr_assert_eq(memcmp(s.seen, t.seen, 1u << GEOMETRY_CLASS_BITS), 0);
    for (uint32_t i = 0; i < s.n_kept; i++) cr_assert_str_eq(s.kept[i], t.kept[i]);
    cr_assert_str_eq(s.found[0], t.found[0]);
    unlink(path);
    fuzz_state_free(&s);
    fuzz_state_free(&t);
}

static void refuse(const char *content, const char *expected)
{
    struct fuzz_state s;
    char path[64], error[512] = "";
    path_of(path, sizeof path);
    FILE *f = fopen(path, "w");
    cr_assert(f);
    fputs(content, f);
    fclose(f);
    cr_assert(fuzz_state_open(&s, "simt", 1));
    cr_assert(!fuzz_state_load(&s, path, error, sizeof error), "accepted: %s", content);
    cr_assert(strstr(error, expected), "'%s' does not say '%s'", error, expected);
    unlink(path);
    fuzz_state_free(&s);
}

Test(fuzz_state, broken_files_are_refused_with_the_line)
{
    refuse("", "stops in the middle");
    refuse("attest-fuzz 2\n", ":1: it is no fuzz state");
    refuse("attest-fuzz 1\nseed x\n", ":2: 'seed x'");
    refuse("attest-fuzz 1\nseed -1\n", ":2: 'seed -1'");
    refuse("attest-fuzz 1\nseed 1\nseconds nan\n", ":3: 'seconds nan'");
    refuse("attest-fuzz 1\nseed 1\nmore 1\n", ":3: 'more 1'");
    refuse("attest-fuzz 1\nbackend a_name_that_is_too_long\n", ":2: ");
    refuse("attest-fuzz 1\ncase dsa_topk_pools:rows=x\n", ":2: rows=x is not an integer");
    refuse("attest-fuzz 1\nseed 1\ncase dsa_topk_pools:rows=1", "stops in the middle of a line");
}

/* A round is a function of the state: the same after a stop as without one. */
Test(fuzz_state, rounds_can_be_repeated)
{
    static struct work_limit limits[64];
    static struct case_line c;
    struct fuzz_state s;
    char first[40][CASE_TEXT_MAX], text[CASE_TEXT_MAX];
    struct ref_refusal why;
    cr_assert(fuzz_state_open(&s, "simt", 9));
    fill(&s, 60);
    for (uint32_t i = 0; i < op_count; i++) work_learn(&limits[i], op_table[i], TIER_QUICK);
    struct fuzz_draw d = {op_table, op_count, limits, TIER_QUICK, &s, {0, 0, 0}};
    fuzz_draw_start(&d);
    for (int i = 0; i < 40; i++) {
        fuzz_draw_case(&d, &c);
        uint32_t op = 0;
        while (op_table[op] != c.op) op++;
        cr_assert(work_fits(&limits[op], &c) || !op_ref_accepts(&c, NULL, &why));
        case_print(&c, first[i], sizeof first[i]);
    }
    fuzz_draw_start(&d);
    for (int i = 0; i < 40; i++) {
        fuzz_draw_case(&d, &c);
        case_print(&c, text, sizeof text);
        cr_assert_str_eq(text, first[i]);
    }
    s.round++;
    fuzz_draw_start(&d);
    fuzz_draw_case(&d, &c);
    case_print(&c, text, sizeof text);
    cr_assert_str_neq(text, first[0]);
    fuzz_state_free(&s);
}
