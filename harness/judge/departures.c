#include "harness/judge/departures.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/judge/compare.h"

const char *const departure_names[DEPARTURE_COUNT] = {
    [DEPARTURE_EMPTY_UNWRITTEN] = "empty-unwritten",
    [DEPARTURE_LOW_FOR_INFINITY] = "low-for-minus-infinity",
    [DEPARTURE_NAN_LOST] = "nan-lost"};

static const double low_enough = -1e30;

static bool accept_name(const char *name, size_t length, struct departures *d)
{
    for (int i = 0; i < DEPARTURE_COUNT; i++) {
        if (strlen(departure_names[i]) != length || memcmp(departure_names[i], name, length))
            continue;
        d->accepted[i] = true;
        return true;
    }
    return false;
}

bool departures_load(const char *path, struct departures *d, char *error, size_t size)
{
    char line[256];
    FILE *f = fopen(path, "r");
    memset(d, 0, sizeof *d);
    if (!f) {
        snprintf(error, size, "%s: %s", path, strerror(errno));
        return false;
    }
    for (int number = 1; fgets(line, sizeof line, f); number++) {
        size_t start = strspn(line, " \t"), end = start + strcspn(line + start, " \t\r\n#");
        if (end == start || accept_name(line + start, end - start, d)) continue;
        snprintf(error, size, "%s:%d: '%.*s' is no known departure; they are %s, %s, %s", path,
                 number, (int)(end - start), line + start, departure_names[0], departure_names[1],
                 departure_names[2]);
        fclose(f);
        return false;
    }
    bool fine = !ferror(f);
    if (!fine) snprintf(error, size, "%s: %s", path, strerror(errno));
    fclose(f);
    return fine;
}

static bool holds_pattern(const uint8_t *element, uint32_t bytes, uint8_t pattern)
{
    for (uint32_t k = 0; k < bytes; k++) {
        if (element[k] != pattern) return false;
    }
    return true;
}

/* Which declared departure makes `got` acceptable where the exact value is `wanted`; COUNT if none
 * does. */
static enum departure departs(const struct departures *d, enum dtype dtype, double wanted,
                              const uint8_t *got, uint8_t pattern)
{
    if (d->accepted[DEPARTURE_EMPTY_UNWRITTEN] && wanted == 0 &&
        holds_pattern(got, dtype_bytes(dtype), pattern))
        return DEPARTURE_EMPTY_UNWRITTEN;
    if (d->accepted[DEPARTURE_NAN_LOST] && isnan(wanted)) return DEPARTURE_NAN_LOST;
    if (d->accepted[DEPARTURE_LOW_FOR_INFINITY] && wanted == -INFINITY) {
        double value = element_value(dtype, got, 0);
        if (isfinite(value) && value <= low_enough) return DEPARTURE_LOW_FOR_INFINITY;
    }
    return DEPARTURE_COUNT;
}

static bool any(const struct departures *d)
{
    for (int i = 0; i < DEPARTURE_COUNT; i++) {
        if (d->accepted[i]) return true;
    }
    return false;
}

static void nearest_element(enum dtype dtype, double value, uint8_t *bits)
{
    float single = (float)value;
    uint16_t code = compare_nearest_bf16(value);
    memcpy(bits, dtype == DTYPE_BF16 ? (void *)&code : (void *)&single, dtype_bytes(dtype));
}

/* The bits of an element that the contract names outright: all of an EXACT one, and of a BOUND one
 * the values without an error: 0, infinities, NaN. */
static bool only_value(const struct tensor *t, const struct expected *e, uint64_t i, uint8_t *bits)
{
    uint32_t bytes = dtype_bytes(t->dtype);
    if (t->contract == CONTRACT_EXACT) {
        memcpy(bits, e->exact + i * bytes, bytes);
        return true;
    }
    if (t->contract != CONTRACT_BOUND) return false;
    double value = e->value[i];
    if (isfinite(value) && (value != 0 || e->bound[i] != 0)) return false;
    nearest_element(t->dtype, value, bits);
    return true;
}

static void mend(const struct departures *d, enum dtype dtype, const uint8_t *wanted,
                 uint8_t pattern, uint8_t *got, uint64_t *used)
{
    enum departure how = departs(d, dtype, element_value(dtype, wanted, 0), got, pattern);
    if (how == DEPARTURE_COUNT) return;
    memcpy(got, wanted, dtype_bytes(dtype));
    used[how]++;
}

static bool is_float(enum dtype dtype) { return dtype == DTYPE_BF16 || dtype == DTYPE_F32; }

void departures_mend(const struct departures *d, const struct tensor *t, const struct expected *e,
                     uint8_t pattern, uint8_t *dense, uint64_t *used)
{
    uint64_t n = tensor_logical_elems(t);
    uint32_t bytes = dtype_bytes(t->dtype);
    uint8_t wanted[8];
    if (!any(d) || !is_float(t->dtype)) return;
    for (uint64_t i = 0; i < n; i++) {
        if (only_value(t, e, i, wanted)) mend(d, t->dtype, wanted, pattern, dense + i * bytes, used);
    }
}

void departures_mend_like(const struct departures *d, enum dtype dtype, const uint8_t *wanted,
                          uint64_t elems, uint8_t pattern, uint8_t *dense, uint64_t *used)
{
    uint32_t bytes = dtype_bytes(dtype);
    if (!any(d) || !is_float(dtype)) return;
    for (uint64_t i = 0; i < elems; i++)
        mend(d, dtype, wanted + i * bytes, pattern, dense + i * bytes, used);
}

uint64_t departures_mend_unwritten(const struct tensor *t, const struct expected *e,
                                   uint8_t pattern_a, uint8_t *a, uint8_t pattern_b, uint8_t *b,
                                   uint64_t *first)
{
    uint64_t n = tensor_logical_elems(t), count = 0;
    uint32_t bytes = dtype_bytes(t->dtype);
    uint8_t wanted[8];
    for (uint64_t i = 0; i < n; i++) {
        uint8_t *x = a + i * bytes, *y = b + i * bytes;
        if (*x != pattern_a || !holds_pattern(x, bytes, pattern_a) ||
            !holds_pattern(y, bytes, pattern_b))
            continue;
        if (!count++) *first = i;
        if (!only_value(t, e, i, wanted)) {
            /* A sum that was not written: not to be judged twice, the nearest value stands for it. */
            if (t->contract != CONTRACT_BOUND) continue;
            nearest_element(t->dtype, e->value[i], wanted);
        }
        memcpy(x, wanted, bytes);
        memcpy(y, wanted, bytes);
    }
    return count;
}
