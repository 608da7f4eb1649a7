/* The certificate of top-k selections against enumeration: every way the scores of a few items may
 * fall, and for each of them every set that is a top k. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "ref/select.h"

enum { ITEMS_MAX = 6, SLOTS_MAX = 8 };

struct problem {
    double value[ITEMS_MAX], bound[ITEMS_MAX];
    double end[ITEMS_MAX][2]; /* places of the lowest and the highest score an item may have */
    uint32_t n, k;            /* k as given: may exceed n */
    int32_t set[SLOTS_MAX];
    uint32_t slots;
    bool admitted[1 << ITEMS_MAX]; /* by member mask */
};

struct input {
    const uint8_t *data;
    size_t size;
};

static uint8_t next_byte(struct input *in)
{
    if (!in->size) return 0;
    in->size--;
    return *in->data++;
}

/* A NaN's place is behind -Inf's, and that behind every number's. */
static double place_of(double score)
{
    if (isnan(score)) return -INFINITY;
    return score == -INFINITY ? -DBL_MAX : score;
}

static double float_above(double x)
{
    float f = (float)x;
    return (double)f < x ? nextafterf(f, INFINITY) : f;
}

static double float_below(double x)
{
    float f = (float)x;
    return (double)f > x ? nextafterf(f, -INFINITY) : f;
}

/* Numbers a quarter of a float's spacing apart around 1, 0 and large ones, so that value +- bound is
 * exact in double; infinities and NaN. */
static void read_item(struct problem *p, uint32_t i, struct input *in)
{
    static const double units[] = {0x1p-25, 0x1p-151, 0x1p100, 0.25};
    uint8_t kind = next_byte(in), step = next_byte(in), reach = next_byte(in);
    double unit = units[kind & 3];
    p->value[i] = ((kind & 4) && (kind & 3) == 0 ? 1 : 0) + (int8_t)step * unit;
    p->bound[i] = (reach & 31) * unit;
    if (kind >> 4 == 1) p->value[i] = NAN;
    if (kind >> 4 == 2) p->value[i] = -INFINITY;
    if (kind >> 4 == 3) p->value[i] = INFINITY;
    if (!isfinite(p->value[i])) p->bound[i] = 0;
    if (kind >> 4 == 4) p->bound[i] = INFINITY;
    double low = float_above(p->value[i] - p->bound[i]);
    double high = float_below(p->value[i] + p->bound[i]);
    if (low > high || isnan(p->value[i])) low = high = p->value[i];
    p->end[i][0] = place_of(p->bound[i] == INFINITY ? NAN : low);
    p->end[i][1] = place_of(p->bound[i] == INFINITY ? INFINITY : high);
}

static void read_problem(struct problem *p, struct input *in)
{
    uint8_t shape = next_byte(in), how = next_byte(in);
    memset(p, 0, sizeof *p);
    p->n = shape % (ITEMS_MAX + 1);
    p->k = shape / 16 % (ITEMS_MAX + 2);
    for (uint32_t i = 0; i < p->n; i++) read_item(p, i, in);
    p->slots = how & 1 ? next_byte(in) % (SLOTS_MAX + 1) : 0;
    for (uint32_t s = 0; s < p->slots; s++) p->set[s] = (int8_t)next_byte(in);
    if (how & 1) return;
    uint8_t members = next_byte(in);
    for (uint32_t i = 0; i < p->n; i++) {
        if (how & 2) p->set[p->slots++] = members >> i & 1 ? (int32_t)i : -1;
        else if (members >> i & 1) p->set[p->slots++] = (int32_t)i;
    }
}

/* Marks every set of `take` items of which no outsider is strictly better. */
static void admit(struct problem *p, uint32_t take, const double *score)
{
    for (uint32_t mask = 0; mask < 1u << p->n; mask++) {
        double least = INFINITY, best = -INFINITY;
        if ((uint32_t)__builtin_popcount(mask) != take) continue;
        for (uint32_t i = 0; i < p->n; i++) {
            if (mask >> i & 1) least = fmin(least, score[i]);
            else best = fmax(best, score[i]);
        }
        if (least >= best) p->admitted[mask] = true;
    }
}

/* The best remaining, of equals the first, again and again. */
static uint32_t exact_mask(const struct problem *p, uint32_t take, double *margin)
{
    uint32_t mask = 0, taken = 0;
    double places[ITEMS_MAX + 1] = {0};
    for (uint32_t round = 0; round < p->n; round++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t i = 0; i < p->n; i++) {
            if (taken >> i & 1) continue;
            if (best == UINT32_MAX || place_of(p->value[i]) > place_of(p->value[best])) best = i;
        }
        places[round] = place_of(p->value[best]);
        taken |= 1u << best;
        if (round < take) mask = taken;
    }
    double last = take ? places[take - 1] : 0, next = places[take];
    *margin = INFINITY;
    if (!take || take == p->n) return mask;
    if (last == next) *margin = 0;
    else if (isfinite(last) && next > -DBL_MAX) *margin = last - next;
    return mask;
}

/* The members as a mask; false if the slots hold no set of `take` items. */
static bool set_mask(const struct problem *p, uint32_t take, uint32_t *mask)
{
    *mask = 0;
    for (uint32_t s = 0; s < p->slots; s++) {
        if (p->set[s] == -1) continue;
        if (p->set[s] < 0 || (uint32_t)p->set[s] >= p->n || *mask >> p->set[s] & 1) return false;
        *mask |= 1u << p->set[s];
    }
    return (uint32_t)__builtin_popcount(*mask) == take;
}

static void check_forced(const struct problem *p, const struct ref_select_result *r)
{
    uint32_t in_all = ~0u, in_some = 0, forced_in = 0, forced_out = 0;
    for (uint32_t mask = 0; mask < 1u << p->n; mask++) {
        if (!p->admitted[mask]) continue;
        in_all &= mask;
        in_some |= mask;
    }
    for (uint32_t i = 0; i < p->n; i++) {
        forced_in += in_all >> i & 1;
        forced_out += !(in_some >> i & 1);
    }
    if (r->forced_in != forced_in || r->forced_out != forced_out ||
        r->free != p->n - forced_in - forced_out)
        fuzz_fail("forced in %u, out %u, free %u; enumeration: %u, %u of %u", r->forced_in,
                  r->forced_out, r->free, forced_in, forced_out, p->n);
}

/* The pair that shows a set to be wrong must do so. */
static void check_proof(const struct problem *p, uint32_t mask, const struct ref_select_result *r)
{
    if (r->taken >= p->n || r->left_out >= p->n || !(mask >> r->taken & 1) ||
        mask >> r->left_out & 1 || p->end[r->taken][1] >= p->end[r->left_out][0])
        fuzz_fail("taken %u, left out %u prove nothing", r->taken, r->left_out);
}

static void judge(const struct problem *p, uint32_t take)
{
    static const char *const names[] = {"identical", "equivalent", "wrong"};
    double scratch[4 * ITEMS_MAX], margin;
    struct ref_select_result r;
    uint32_t mask, exact = exact_mask(p, take, &margin);
    bool formed = set_mask(p, take, &mask);
    enum ref_select_verdict verdict = !formed             ? REF_SELECT_WRONG
                                      : mask == exact     ? REF_SELECT_IDENTICAL
                                      : p->admitted[mask] ? REF_SELECT_EQUIVALENT
                                                          : REF_SELECT_WRONG;
    ref_select_judge(p->value, p->bound, p->n, p->k, p->set, p->slots, scratch, &r);
    if (r.verdict != verdict)
        fuzz_fail("n %u, k %u, set %x: %s (%s); enumeration says %s", p->n, p->k, mask,
                  names[r.verdict], r.text, names[verdict]);
    if (r.margin != margin) fuzz_fail("margin %g; enumeration says %g", r.margin, margin);
    if (verdict == REF_SELECT_WRONG && !r.text[0]) fuzz_fail("wrong without a reason");
    if (verdict == REF_SELECT_WRONG && formed) check_proof(p, mask, &r);
    check_forced(p, &r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct problem p;
    struct input in = {data, size};
    double score[ITEMS_MAX];
    read_problem(&p, &in);
    uint32_t take = p.k < p.n ? p.k : p.n;
    /* A set is a top k of some scores if it is one where its items are highest and the others lowest,
     * so the ends are all the scores that need trying. */
    for (uint32_t ends = 0; ends < 1u << p.n; ends++) {
        for (uint32_t i = 0; i < p.n; i++) score[i] = p.end[i][ends >> i & 1];
        admit(&p, take, score);
    }
    judge(&p, take);
    return 0;
}
