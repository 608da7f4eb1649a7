/* The min/max certificate of numerics §6.
 *
 * Kernel scores are f32, so an interval [value-bound, value+bound] shrinks to its outermost f32
 * members l and h. Ranks are doubles: a number is itself, -Inf is -DBL_MAX and NaN, which ranks
 * after every number, is -Inf. */
#include "select.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats.h"

struct judged {
    const double *value, *bound;
    uint32_t n, k;        /* k <= n */
    double *low, *high;   /* ranks of l and h */
    double *sorted;       /* work */
    unsigned char *taken; /* [n] */
};

static double rank_of(double score)
{
    if (isnan(score)) return -INFINITY;
    return score == -INFINITY ? -DBL_MAX : score;
}

static void set_interval(struct judged *j, uint32_t i)
{
    double value = j->value[i], bound = j->bound[i];
    if (bound == INFINITY) { /* anything, NaN too */
        j->low[i] = -INFINITY;
        j->high[i] = INFINITY;
        return;
    }
    double low = ref_f32_above(value - bound), high = ref_f32_below(value + bound);
    /* No f32 inside: the exact value's own place. */
    bool empty = low > high;
    j->low[i] = rank_of(empty ? value : low);
    j->high[i] = rank_of(empty ? value : high);
}

/* The element that n-element x, sorted descending, has at place k; also sorts x so far that no
 * element before k is smaller and none after is larger (Hoare's selection). */
static double select_descending(double *x, size_t n, size_t k)
{
    size_t left = 0, right = n - 1;
    while (left < right) {
        double pivot = x[left + (right - left) / 2];
        size_t i = left, j = right;
        for (;;) {
            while (x[i] > pivot) i++;
            while (x[j] < pivot) j--;
            if (i >= j) break;
            double moved = x[i];
            x[i++] = x[j];
            x[j--] = moved;
        }
        /* x[left..j] >= pivot >= x[j+1..right] */
        if (k <= j)
            right = j;
        else
            left = j + 1;
    }
    return x[k];
}

static double kth_largest(struct judged *j, const double *x, uint32_t k)
{
    memcpy(j->sorted, x, j->n * sizeof *x);
    return select_descending(j->sorted, j->n, k - 1);
}

/* Marks the set; false, with verdict and text, if it is no set of k items. */
static bool read_set(struct judged *j, const int32_t *set, uint32_t slots,
                     struct ref_select_result *result)
{
    uint32_t count = 0;
    memset(j->taken, 0, j->n);
    result->verdict = REF_SELECT_WRONG;
    result->taken = result->left_out = UINT32_MAX;
    for (uint32_t slot = 0; slot < slots; slot++) {
        if (set[slot] == -1) continue;
        if (set[slot] < 0 || (uint32_t)set[slot] >= j->n) {
            snprintf(result->text, sizeof result->text,
                     "slot %" PRIu32 " holds %" PRId32 ", neither -1 nor one of %" PRIu32 " items",
                     slot, set[slot], j->n);
            return false;
        }
        if (j->taken[set[slot]]) {
            snprintf(result->text, sizeof result->text,
                     "slot %" PRIu32 " holds item %" PRId32 " a second time", slot, set[slot]);
            return false;
        }
        j->taken[set[slot]] = 1;
        count++;
    }
    if (count != j->k)
        snprintf(result->text, sizeof result->text,
                 "%" PRIu32 " items are taken where %" PRIu32 " are wanted", count, j->k);
    return count == j->k;
}

/* Forced in: above the (k+1)-th largest h. Forced out: below the k-th largest l. */
static void count_forced(struct judged *j, struct ref_select_result *result)
{
    double in = j->k < j->n ? kth_largest(j, j->high, j->k + 1) : 0;
    double out = j->k ? kth_largest(j, j->low, j->k) : 0;
    for (uint32_t i = 0; i < j->n; i++) {
        if (j->k == j->n || j->low[i] > in)
            result->forced_in++;
        else if (!j->k || j->high[i] < out)
            result->forced_out++;
        else
            result->free++;
    }
}

/* Whether the set is the exact one; and the boundary's margin. */
static bool is_exact_set(struct judged *j, struct ref_select_result *result)
{
    result->margin = INFINITY;
    if (!j->k || j->k == j->n) return true;
    double *work = j->sorted;
    for (uint32_t i = 0; i < j->n; i++) work[i] = rank_of(j->value[i]);
    double last = select_descending(work, j->n, j->k - 1), next = -INFINITY;
    uint32_t ties = j->k; /* of rank `last`, that the exact set holds: the lowest items */
    for (uint32_t i = 0; i < j->n; i++) {
        if (i >= j->k && work[i] > next) next = work[i];
        ties -= rank_of(j->value[i]) > last;
    }
    if (last == next)
        result->margin = 0;
    else if (isfinite(last) && next > -DBL_MAX)
        result->margin = last - next;
    bool exact = true;
    for (uint32_t i = 0; i < j->n; i++) {
        double rank = rank_of(j->value[i]);
        bool belongs = rank > last || (rank == last && ties);
        ties -= rank == last && belongs;
        exact &= belongs == j->taken[i];
    }
    return exact;
}

static void certify(struct judged *j, struct ref_select_result *result)
{
    uint32_t worst = UINT32_MAX, best = UINT32_MAX; /* taken, left out */
    for (uint32_t i = 0; i < j->n; i++) {
        if (j->taken[i] && (worst == UINT32_MAX || j->high[i] < j->high[worst])) worst = i;
        if (!j->taken[i] && (best == UINT32_MAX || j->low[i] > j->low[best])) best = i;
    }
    result->taken = worst;
    result->left_out = best;
    result->gap = j->value[best] - j->value[worst];
    result->allowance = j->bound[worst] + j->bound[best];
    if (j->high[worst] >= j->low[best]) {
        result->verdict = REF_SELECT_EQUIVALENT;
        return;
    }
    snprintf(result->text, sizeof result->text,
             "item %" PRIu32 " (score %.9g) is taken and item %" PRIu32
             " (score %.9g) left out: it is %.3g above, the arithmetic allows %.3g",
             worst, j->value[worst], best, j->value[best], result->gap, result->allowance);
}

void ref_select_judge(const double *value, const double *bound, uint32_t n, uint32_t k,
                      const int32_t *set, uint32_t slots, double *scratch,
                      struct ref_select_result *result)
{
    struct judged j = {.value = value,
                       .bound = bound,
                       .n = n,
                       .k = k < n ? k : n,
                       .low = scratch,
                       .high = scratch + n,
                       .sorted = scratch + 2 * (size_t)n,
                       .taken = (unsigned char *)(scratch + 3 * (size_t)n)};
    *result = (struct ref_select_result){.margin = INFINITY};
    for (uint32_t i = 0; i < n; i++) set_interval(&j, i);
    count_forced(&j, result);
    bool well_formed = read_set(&j, set, slots, result), exact = is_exact_set(&j, result);
    if (!well_formed) return;
    if (exact)
        result->verdict = REF_SELECT_IDENTICAL;
    else
        certify(&j, result);
}
