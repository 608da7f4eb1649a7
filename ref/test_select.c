#include "select.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "test_random.h"

enum { MAX_N = 64 };
static double scratch[4 * MAX_N];

static struct ref_select_result judge(const double *value, const double *bound, uint32_t n,
                                      uint32_t k, const int32_t *set, uint32_t slots)
{
    struct ref_select_result result;
    ref_select_judge(value, bound, n, k, set, slots, scratch, &result);
    return result;
}

/* By hand: 5 > 4 > 3 > 2, bounds 1/4 but for item 3, which may be as high as 4 or as low as 2. The
 * two best: item 0 in every answer, item 2 in none (its h 2.25 is below the second largest l 3.75).
 * Item 3 can replace item 1 only if h_3 = 4 >= l_1 = 3.75: it can. */
Test(select, by_hand)
{
    double value[4] = {5, 4, 2, 3}, bound[4] = {0.25, 0.25, 0.25, 1};
    struct ref_select_result r = judge(value, bound, 4, 2, (int32_t[]){1, 0}, 2);
    cr_assert_eq(r.verdict, REF_SELECT_IDENTICAL);
    cr_assert_eq(r.forced_in, 1);
    cr_assert_eq(r.forced_out, 1);
    cr_assert_eq(r.free, 2);
    cr_assert_eq(r.margin, 1.0);
    r = judge(value, bound, 4, 2, (int32_t[]){0, 3, -1}, 3);
    cr_assert_eq(r.verdict, REF_SELECT_EQUIVALENT);
    cr_assert_eq(r.taken, 3);
    cr_assert_eq(r.left_out, 1);
    cr_assert_eq(r.gap, 1.0);
    cr_assert_eq(r.allowance, 1.25);
    r = judge(value, bound, 4, 2, (int32_t[]){0, 2}, 2);
    cr_assert_eq(r.verdict, REF_SELECT_WRONG);
    cr_assert_eq(r.taken, 2);
    cr_assert_eq(r.left_out, 1);
    cr_assert_eq(r.gap, 2.0);
    cr_assert_eq(r.allowance, 0.5);
    cr_assert(strstr(r.text, "item 2") && strstr(r.text, "item 1"), "%s", r.text);
    bound[3] = 0.5; /* now h_3 = 3.5 < 3.75 */
    cr_assert_eq(judge(value, bound, 4, 2, (int32_t[]){0, 3}, 2).verdict, REF_SELECT_WRONG);
}

/* Kernel scores are f32: between 1 and its neighbours nothing can be exchanged by a bound of less
 * than their distance, for intervals shrink to their outermost floats. */
Test(select, intervals_shrink_to_floats)
{
    double ulp = 0x1p-23, value[2] = {1 + ulp, 1}, bound[2] = {0.9 * ulp, 0.05 * ulp};
    cr_assert_eq(judge(value, bound, 2, 1, (int32_t[]){1}, 1).verdict, REF_SELECT_WRONG);
    bound[0] = ulp;
    cr_assert_eq(judge(value, bound, 2, 1, (int32_t[]){1}, 1).verdict, REF_SELECT_EQUIVALENT);
    bound[0] = 0.6 * ulp;
    bound[1] = 0.6 * ulp; /* reals could meet, floats cannot */
    cr_assert_eq(judge(value, bound, 2, 1, (int32_t[]){1}, 1).verdict, REF_SELECT_WRONG);
    /* No float in [value-bound, value+bound]: the exact values decide. */
    double fine[2] = {1 + ulp / 4, 1 + ulp / 2}, none[2] = {0, 0};
    cr_assert_eq(judge(fine, none, 2, 1, (int32_t[]){1}, 1).verdict, REF_SELECT_IDENTICAL);
    struct ref_select_result r = judge(fine, none, 2, 1, (int32_t[]){0}, 1);
    cr_assert(r.verdict == REF_SELECT_WRONG && r.forced_in == 1 && r.forced_out == 1);
}

Test(select, ties_go_to_the_lowest_or_are_equivalent)
{
    double value[5] = {0, 1, 0, -0.0, 0}, bound[5] = {0};
    struct ref_select_result r = judge(value, bound, 5, 3, (int32_t[]){2, 1, 0}, 3);
    cr_assert_eq(r.verdict, REF_SELECT_IDENTICAL);
    cr_assert_eq(r.margin, 0);
    cr_assert_eq(r.forced_in, 1);
    cr_assert_eq(r.free, 4);
    cr_assert_eq(judge(value, bound, 5, 3, (int32_t[]){4, 1, 3}, 3).verdict, REF_SELECT_EQUIVALENT);
    cr_assert_eq(judge(value, bound, 5, 3, (int32_t[]){4, 0, 3}, 3).verdict, REF_SELECT_WRONG);
}

Test(select, infinities_and_nan)
{
    double value[6] = {NAN, -INFINITY, -FLT_MAX, INFINITY, NAN, -INFINITY}, bound[6] = {0};
    static const int32_t order[6] = {3, 2, 1, 5, 0, 4}; /* best to worst, ties by index */
    for (uint32_t k = 0; k <= 6; k++) {
        struct ref_select_result r = judge(value, bound, 6, k, order, k);
        cr_assert_eq(r.verdict, REF_SELECT_IDENTICAL, "k %u: %s", k, r.text);
        cr_assert_eq(r.margin, k == 3 || k == 5 ? 0 : INFINITY, "k %u: %g", k, r.margin);
    }
    cr_assert_eq(judge(value, bound, 6, 3, (int32_t[]){3, 2, 5}, 3).verdict, REF_SELECT_EQUIVALENT);
    cr_assert_eq(judge(value, bound, 6, 3, (int32_t[]){3, 2, 0}, 3).verdict, REF_SELECT_WRONG);
    cr_assert_eq(judge(value, bound, 6, 1, (int32_t[]){2}, 1).verdict, REF_SELECT_WRONG);
    bound[0] = INFINITY; /* may be anything now */
    cr_assert_eq(judge(value, bound, 6, 1, (int32_t[]){0}, 1).verdict, REF_SELECT_EQUIVALENT);
    cr_assert_eq(judge(value, bound, 6, 5, (int32_t[]){3, 2, 1, 5, 4}, 5).verdict,
                 REF_SELECT_EQUIVALENT);
}

static void check_malformed(const int32_t *set, uint32_t slots, uint32_t k, const char *words)
{
    double value[3] = {3, 2, 1}, bound[3] = {9, 9, 9};
    struct ref_select_result r = judge(value, bound, 3, k, set, slots);
    cr_assert_eq(r.verdict, REF_SELECT_WRONG, "%s", words);
    cr_assert(r.taken == UINT32_MAX && r.left_out == UINT32_MAX);
    cr_assert(strstr(r.text, words), "\"%s\" lacks \"%s\"", r.text, words);
}

Test(select, malformed_sets)
{
    check_malformed((int32_t[]){0, 0}, 2, 2, "second time");
    check_malformed((int32_t[]){0, 3}, 2, 2, "neither -1 nor");
    check_malformed((int32_t[]){0, INT32_MAX}, 2, 2, "neither -1 nor");
    check_malformed((int32_t[]){0, -2}, 2, 1, "neither -1 nor");
    check_malformed((int32_t[]){0, INT32_MIN}, 2, 1, "neither -1 nor");
    check_malformed((int32_t[]){0, -1}, 2, 2, "1 items are taken where 2");
    check_malformed((int32_t[]){0, 1, 2}, 3, 2, "3 items are taken where 2");
    check_malformed((int32_t[]){0}, 1, 0, "1 items are taken where 0");
    check_malformed((int32_t[]){0, 1}, 2, 3, "2 items are taken where 3");
    check_malformed((int32_t[]){0, 1, -1, -1}, 4, 7, "2 items are taken where 3");
    check_malformed(NULL, 0, 1, "0 items are taken where 1");
}

Test(select, nothing_to_choose_and_everything_to_take)
{
    double value[3] = {3, 2, 1}, bound[3] = {9, 9, 9};
    struct ref_select_result r = judge(NULL, NULL, 0, 5, (int32_t[]){-1, -1}, 2);
    cr_assert(r.verdict == REF_SELECT_IDENTICAL && r.margin == INFINITY);
    r = judge(value, bound, 3, 0, (int32_t[]){-1}, 1);
    cr_assert(r.verdict == REF_SELECT_IDENTICAL && r.forced_out == 3 && r.margin == INFINITY);
    r = judge(value, bound, 3, 8, (int32_t[]){2, -1, 0, -1, 1}, 5);
    cr_assert(r.verdict == REF_SELECT_IDENTICAL && r.forced_in == 3 && r.margin == INFINITY);
}

/* Everything an instance admits, by enumeration: every choice of one float from each interval, and
 * for each choice every set no outsider of which is strictly better. */
enum { SMALL = 5, POINTS = 4 };

struct instance {
    double value[SMALL], bound[SMALL];
    double point[SMALL][POINTS]; /* the floats of each interval; -INFINITY is NaN's place */
    int points[SMALL];
    uint32_t n, k;
    unsigned admitted; /* bit m: the set with member mask m */
};

static void draw_instance(struct test_random *rng, struct instance *in)
{
    double ulp = 0x1p-23;
    in->n = 1 + test_below(rng, SMALL);
    in->k = test_below(rng, in->n + 1);
    for (uint32_t i = 0; i < in->n; i++) {
        in->points[i] = 0;
        uint32_t kind = test_below(rng, 12);
        if (kind < 2) { /* -Inf and NaN */
            in->value[i] = kind ? -INFINITY : NAN;
            in->bound[i] = 0;
            in->point[i][in->points[i]++] = kind ? -DBL_MAX : -INFINITY;
            continue;
        }
        /* Quarter ulps above 1; with the bound, at least one float lies inside. */
        int quarter = (int)test_below(rng, 16), reach = 2 + (int)test_below(rng, 5);
        if (quarter % 4 == 0) reach = (int)test_below(rng, 7);
        in->value[i] = 1 + quarter * ulp / 4;
        in->bound[i] = reach * ulp / 4;
        for (int q = -8; q <= 24; q += 4)
            if (abs(q - quarter) <= reach) in->point[i][in->points[i]++] = 1 + q * ulp / 4;
    }
}

static void admit(struct instance *in, const double *score)
{
    for (unsigned set = 0; set < 1u << in->n; set++) {
        double least = INFINITY, best = -INFINITY;
        if ((uint32_t)__builtin_popcount(set) != in->k) continue;
        for (uint32_t i = 0; i < in->n; i++) {
            if (set >> i & 1)
                least = fmin(least, score[i]);
            else
                best = fmax(best, score[i]);
        }
        if (least >= best) in->admitted |= 1u << set;
    }
}

static void enumerate(struct instance *in, uint32_t item, double *score)
{
    if (item == in->n) {
        admit(in, score);
        return;
    }
    for (int p = 0; p < in->points[item]; p++) {
        score[item] = in->point[item][p];
        enumerate(in, item + 1, score);
    }
}

/* The exact set: repeatedly the best remaining, of equals the first. */
static unsigned exact_set(const struct instance *in)
{
    unsigned set = 0;
    for (uint32_t round = 0; round < in->k; round++) {
        int best = -1;
        for (uint32_t i = 0; i < in->n; i++) {
            if (set >> i & 1) continue;
            if (best < 0 || (isnan(in->value[best]) && !isnan(in->value[i])) ||
                in->value[i] > in->value[best])
                best = (int)i;
        }
        set |= 1u << best;
    }
    return set;
}

static void check_instance(const struct instance *in, int number)
{
    unsigned always = ~0u, ever = 0, exact = exact_set(in);
    for (unsigned set = 0; set < 1u << in->n; set++) {
        if (!(in->admitted >> set & 1)) continue;
        always &= set;
        ever |= set;
    }
    for (unsigned set = 0; set < 1u << in->n; set++) {
        int32_t list[SMALL] = {-1, -1, -1, -1, -1};
        int count = 0;
        for (uint32_t i = 0; i < in->n; i++)
            if (set >> i & 1) list[count++] = (int32_t)i;
        struct ref_select_result r = judge(in->value, in->bound, in->n, in->k, list, SMALL);
        bool admitted = in->admitted >> set & 1;
        int want = set == exact ? REF_SELECT_IDENTICAL
                   : admitted   ? REF_SELECT_EQUIVALENT
                                : REF_SELECT_WRONG;
        cr_assert_eq((int)r.verdict, want, "instance %d, set %x of %u: %s", number, set, in->n,
                     r.text);
        uint32_t all = (1u << in->n) - 1;
        cr_assert_eq(r.forced_in, (uint32_t)__builtin_popcount(always & all), "%d", number);
        cr_assert_eq(r.forced_out, in->n - (uint32_t)__builtin_popcount(ever), "%d", number);
        cr_assert_eq(r.forced_in + r.forced_out + r.free, in->n);
    }
}

Test(select, agrees_with_enumeration)
{
    struct test_random rng = {10};
    long admitted = 0, sets = 0;
    for (int number = 0; number < 5000; number++) {
        struct instance in = {0};
        double score[SMALL];
        draw_instance(&rng, &in);
        enumerate(&in, 0, score);
        check_instance(&in, number);
        admitted += __builtin_popcount(in.admitted);
        sets += 1 << in.n;
    }
    cr_assert(admitted > 6000 && admitted < sets / 3, "%ld of %ld", admitted, sets);
}

/* Larger: the certificate's own definition, by sorting. */
Test(select, large_instances_by_sorting)
{
    static double value[MAX_N], bound[MAX_N];
    struct test_random rng = {11};
    for (int round = 0; round < 400; round++) {
        uint32_t n = 1 + test_below(&rng, MAX_N), k = test_below(&rng, n + 1), count = 0;
        int32_t set[MAX_N];
        for (uint32_t i = 0; i < n; i++) {
            value[i] = round & 1 ? (float)test_normal(&rng) : (float)test_below(&rng, 6);
            bound[i] = 0;
        }
        for (uint32_t i = 0; i < n; i++) {
            uint32_t before = 0;
            for (uint32_t j = 0; j < n; j++)
                before += value[j] > value[i] || (value[j] == value[i] && j < i);
            if (before < k) set[count++] = (int32_t)i;
        }
        struct ref_select_result r = judge(value, bound, n, k, set, count);
        cr_assert_eq(r.verdict, REF_SELECT_IDENTICAL, "%s", r.text);
        if (!k || k == n) continue;
        uint32_t out = 0; /* swap a member for the first outsider: equivalent only in a tie */
        for (uint32_t i = 0; i < count && set[i] == (int32_t)out; i++) out++;
        uint32_t at = test_below(&rng, k);
        double gap = value[set[at]] - value[out];
        set[at] = (int32_t)out;
        r = judge(value, bound, n, k, set, count);
        cr_assert_eq(r.verdict, gap > 0 ? REF_SELECT_WRONG : REF_SELECT_EQUIVALENT, "%s", r.text);
    }
}
