/* Saying where an output is wrong: the worst element, where the wrong ones lie, a small map, and
 * what the pattern suggests. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/base/text.h"
#include "harness/judge/compare.h"

enum { MAP_COLUMNS = 64, MAP_ROWS = 8 };

struct spread {
    uint64_t low, high, distinct; /* wrong indices along one dimension */
};

static void measure_spread(const struct tensor *t, const uint8_t *map, struct spread *spread)
{
    uint64_t n = tensor_logical_elems(t);
    for (uint32_t d = 0; d < t->rank; d++) {
        uint8_t *seen = calloc(t->shape[d] ? t->shape[d] : 1, 1);
        uint64_t inner = 1;
        for (uint32_t k = d + 1; k < t->rank; k++) inner *= t->shape[k];
        spread[d] = (struct spread){UINT64_MAX, 0, 0};
        for (uint64_t i = 0; seen && i < n; i++) {
            if (!map[i]) continue;
            uint64_t index = i / inner % t->shape[d];
            if (index < spread[d].low) spread[d].low = index;
            if (index > spread[d].high) spread[d].high = index;
            spread[d].distinct += !seen[index];
            seen[index] = 1;
        }
        free(seen);
    }
}

static void say_spread(const struct tensor *t, const struct spread *s, struct text *out)
{
    text_add(out, "  where:");
    for (uint32_t d = 0; d < t->rank; d++) {
        const char *separator = d ? "; " : " ";
        if (s[d].distinct == t->shape[d])
            text_add(out, "%severy %s (%llu)", separator, t->dim[d],
                     (unsigned long long)t->shape[d]);
        else if (s[d].distinct == 1)
            text_add(out, "%sonly %s %llu of %llu", separator, t->dim[d],
                     (unsigned long long)s[d].low, (unsigned long long)t->shape[d]);
        else
            text_add(out, "%s%llu of %llu %ss, %llu to %llu", separator,
                     (unsigned long long)s[d].distinct, (unsigned long long)t->shape[d], t->dim[d],
                     (unsigned long long)s[d].low, (unsigned long long)s[d].high);
    }
    text_add(out, "\n");
}

/* Rows: all outer dimensions together; columns: the last one. '#' all wrong, '+' some, '.' none. */
static void draw_map(const struct tensor *t, const uint8_t *map, struct text *out)
{
    uint64_t columns = t->shape[t->rank - 1], rows = tensor_logical_elems(t) / columns;
    uint64_t shown_rows = rows < MAP_ROWS ? rows : MAP_ROWS;
    uint64_t shown_columns = columns < MAP_COLUMNS ? columns : MAP_COLUMNS;
    for (uint64_t r = 0; r < shown_rows; r++) {
        text_add(out, "  |");
        for (uint64_t c = 0; c < shown_columns; c++) {
            uint64_t wrong = 0, total = 0;
            for (uint64_t i = r * rows / shown_rows; i < (r + 1) * rows / shown_rows; i++) {
                for (uint64_t k = c * columns / shown_columns;
                     k < (c + 1) * columns / shown_columns; k++) {
                    wrong += map[i * columns + k];
                    total++;
                }
            }
            text_add(out, "%c", wrong == total ? '#' : wrong ? '+' : '.');
        }
        text_add(out, "|\n");
    }
    text_add(out, "  map: %llu row%s down, %s across\n", (unsigned long long)rows,
             rows == 1 ? "" : "s", t->dim[t->rank - 1]);
}

static bool all_zero(const struct tensor *t, const uint8_t *got, const uint8_t *map, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        if (map[i] && element_value(t->dtype, got, i) != 0) return false;
    }
    return true;
}

static bool all_nan(const struct tensor *t, const uint8_t *got, const uint8_t *map, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        if (map[i] && !isnan(element_value(t->dtype, got, i))) return false;
    }
    return true;
}

/* If got = factor * value for every wrong element (within 2 %), the factor; else 0. */
static double common_factor(const struct tensor *t, const uint8_t *got, const struct expected *e,
                            const uint8_t *map, uint64_t n)
{
    double factor = 0;
    uint64_t used = 0;
    if (t->contract != CONTRACT_BOUND) return 0;
    for (uint64_t i = 0; i < n; i++) {
        double value = e->value[i], g = element_value(t->dtype, got, i);
        if (!map[i] || fabs(value) < 8 * e->bound[i] || value == 0) continue;
        if (!isfinite(g)) return 0;
        if (!used++) factor = g / value;
        if (fabs(g / value - factor) > 0.02 * fabs(factor)) return 0;
    }
    return used >= 4 ? factor : 0;
}

/* A sentence on the pattern of the wrong elements, and its short name. */
static const char *suggest(const struct tensor *t, const uint8_t *got, const struct expected *e,
                           const struct comparison *c, const uint8_t *map, const struct spread *s,
                           struct text *out)
{
    uint64_t n = tensor_logical_elems(t);
    const char *last = t->dim[t->rank - 1];
    uint64_t columns = t->shape[t->rank - 1];
    const struct spread *tail = &s[t->rank - 1];
    double factor = common_factor(t, got, e, map, n);
    bool is_float = t->dtype == DTYPE_BF16 || t->dtype == DTYPE_F32;
    if (is_float && all_nan(t, got, map, n)) {
        text_add(out, "  hint: every wrong element is NaN: something that must not matter was "
                      "read, or 0/0 in a merge\n");
        return "NaN";
    }
    if (is_float && all_zero(t, got, map, n)) {
        text_add(out, "  hint: every wrong element is 0: rows skipped, or keys not found\n");
        return "zeros";
    }
    if (factor != 0) {
        text_add(out, "  hint: wrong elements are %.4g times the right ones: a scale\n", factor);
        return "scaled";
    }
    if (tail->low > 0 && tail->high == columns - 1 && tail->distinct == columns - tail->low) {
        text_add(out, "  hint: only the last %llu of each %s: a tail or tile edge\n",
                 (unsigned long long)tail->distinct, last);
        return "tail";
    }
    if (c->wrong == n) {
        text_add(out, "  hint: everything is wrong: an address, a stride or a scale\n");
        return "";
    }
    if (t->rank > 1 && s[0].distinct == 1 && t->shape[0] > 1)
        text_add(out, "  hint: a single %s: its length, table or place in the batch\n", t->dim[0]);
    return "";
}

static void say_worst(const struct tensor *t, const uint8_t *got, const struct expected *e,
                      const struct comparison *c, struct text *out)
{
    char index[160], value[64], right[64];
    tensor_describe_index(t, c->worst, index, sizeof index);
    element_print(t->dtype, got, c->worst, value, sizeof value);
    if (t->contract == CONTRACT_SELECT) {
        text_add(out, "  row %llu: %s\n", (unsigned long long)c->select_row, c->select.text);
        return;
    }
    if (t->contract == CONTRACT_EXACT) {
        element_print(t->dtype, e->exact, c->worst, right, sizeof right);
        text_add(out, "  first wrong: %s[%s]: expected %s, got %s\n", t->name, index, right, value);
        return;
    }
    double o = e->value[c->worst], bound = e->bound[c->worst];
    double g = element_value(t->dtype, got, c->worst);
    text_add(out, "  worst: %s[%s]: expected %.9g +- %.3g, got %s, off by %.4g, err/E %.4g\n",
             t->name, index, o, bound, value, fabs(g - o),
             bound > 0 ? fabs(g - o) / bound : INFINITY);
}

const char *compare_explain(const struct tensor *t, const uint8_t *got, const struct expected *e,
                            const struct comparison *c, const uint8_t *wrong_map, char *buffer,
                            size_t size)
{
    struct text out = text_on(buffer, size);
    struct spread spread[TENSOR_RANK_MAX];
    uint64_t n = tensor_logical_elems(t);
    if (!c->wrong || !n) return "";
    measure_spread(t, wrong_map, spread);
    bool rows = t->contract == CONTRACT_SELECT; /* judged as sets, one a row */
    text_add(&out, "  %llu of %llu %s of %s are wrong (%s)\n", (unsigned long long)c->wrong,
             (unsigned long long)(rows ? n / t->shape[t->rank - 1] : n), rows ? "rows" : "elements",
             t->name, contract_name(t->contract));
    say_worst(t, got, e, c, &out);
    say_spread(t, spread, &out);
    draw_map(t, wrong_map, &out);
    return suggest(t, got, e, c, wrong_map, spread, &out);
}
