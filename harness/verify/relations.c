#include "harness/verify/relations.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness/judge/compare.h"
#include "harness/judge/judge.h"

/* Relations say nothing new about a large case that a small one does not: each costs a launch. */
enum { RELATION_BYTES_MAX = 4 << 20 };

static bool row_equals(const struct tensor *t, const uint8_t *base, const uint8_t *changed,
                       uint64_t elems, bool doubled, uint64_t *first)
{
    if (!doubled) return compare_bits(t, base, changed, elems, first) == 0;
    for (uint64_t i = 0; i < elems; i++) {
        double before = element_value(t->dtype, base, i), after = element_value(t->dtype, changed, i);
        /* At the ends of the range doubling rounds or overflows: nothing is claimed there. */
        if (fabs(before) < 0x1p-120 || fabs(before) > 0x1p120) continue;
        if (after == 2 * before || (isnan(before) && isnan(after))) continue;
        *first = i;
        return false;
    }
    return true;
}

/* What known departures are replaced with in the outputs of a changed case. */
struct mending {
    const struct departures *known;
    uint8_t pattern; /* what its outputs held before */
};

static bool relation_rows(const struct relation *rel, const struct case_line *base,
                          const struct case_line *changed, const struct tensor *t,
                          const struct tensor *changed_t, const uint8_t *a, uint8_t *b,
                          const struct mending *mending, struct result *r)
{
    uint64_t rows = changed_t->rank ? changed_t->shape[0] : 1;
    uint64_t row_elems = rows ? tensor_logical_elems(changed_t) / rows : 0;
    uint64_t row_bytes = row_elems * dtype_bytes(t->dtype), first = 0;
    for (uint64_t row = 0; row < rows; row++) {
        int64_t source = relation_base_row(rel, base, changed, (int64_t)row);
        char check[64], index[160], was[64], is[64], text[CASE_TEXT_MAX];
        if (source < 0) continue;
        const uint8_t *before = a + (uint64_t)source * row_bytes;
        uint8_t *after = b + row * row_bytes;
        departures_mend_like(mending->known, t->dtype, before, row_elems, mending->pattern, after,
                             r->departed);
        if (row_equals(t, before, after, row_elems, rel->kind == RELATION_DOUBLED, &first)) continue;
        case_print(changed, text, sizeof text);
        snprintf(check, sizeof check, "relation %s", rel->name);
        tensor_describe_index(changed_t, row * row_elems + first, index, sizeof index);
        element_print(t->dtype, before, first, was, sizeof was);
        element_print(t->dtype, after, first, is, sizeof is);
        return result_fail(r, VERDICT_FAIL, check,
                           "  %s must give %s outputs: %s[%s] was %s, became %s\n  changed case: %s\n",
                           rel->name, rel->kind == RELATION_DOUBLED ? "doubled" : "the same",
                           t->name, index, was, is, text);
    }
    return true;
}

/* A case that a relation made of the one at hand, and its launch. */
struct changed_case {
    const struct relation *relation;
    struct case_line line;
    struct instance in;
    struct started run;
};

static void name_changed(const struct changed_case *changed, struct result *r)
{
    char text[CASE_TEXT_MAX];
    size_t used = strlen(r->text);
    case_print(&changed->line, text, sizeof text);
    snprintf(r->text + used, sizeof r->text - used, "  changed case (%s): %s\n",
             changed->relation->name, text);
}

static bool relation_start(struct verify_context *x, struct changed_case *changed,
                           const struct run_options *options, struct result *r)
{
    if (run_start(x, &changed->line, &changed->in, options, &changed->run, r)) return true;
    name_changed(changed, r);
    return false;
}

static bool relation_holds(const struct case_line *base, const struct instance *in,
                           const struct outputs *out, const struct expected *e,
                           const struct changed_case *changed, const struct outputs *got,
                           const struct mending *mending, struct result *r)
{
    const struct relation *rel = changed->relation;
    char label[48];
    r->checks[CHECK_RELATION]++;
    if (rel->kind == RELATION_SAME_LIMITS) {
        snprintf(label, sizeof label, "relation %s", rel->name);
        for (uint32_t i = 0; i < in->n_tensors; i++) {
            if (got->dense[i])
                departures_mend(mending->known, &changed->in.tensors[i], &e[i], mending->pattern,
                                got->dense[i], r->departed);
        }
        return judge_outputs(&changed->in, got, e, label, r);
    }
    for (uint32_t i = 0; i < in->n_tensors; i++) {
        const struct tensor *t = &in->tensors[i];
        if (!out->dense[i] || t->contract == CONTRACT_ANY) continue;
        if (!relation_covers(rel, t->name)) continue;
        if (!relation_rows(rel, base, &changed->line, t, &changed->in.tensors[i], out->dense[i],
                           got->dense[i], mending, r))
            return false;
    }
    return true;
}

static bool relation_finish(struct verify_context *x, const struct case_line *c,
                            const struct instance *in, const struct outputs *out,
                            const struct expected *e, struct changed_case *changed,
                            struct result *r)
{
    struct outputs got;
    struct mending mending = {&x->known, changed->run.options->pattern};
    bool fine = run_finish(x, &changed->run, &got, r);
    if (fine)
        fine = relation_holds(c, in, out, e, changed, &got, &mending, r);
    else
        name_changed(changed, r);
    outputs_free(&got);
    instance_free(&changed->in);
    return fine;
}

/* False where the relation does not apply to the case. */
static bool relation_applies(const struct relation *rel, const struct case_line *c,
                             struct rng *choose, struct changed_case *changed)
{
    struct ref_refusal why;
    changed->relation = rel;
    changed->line = *c;
    if (!relation_edit(rel, c, choose, &changed->line)) return false;
    /* Nothing to compare where the case was changed that way already. */
    if (!memcmp(&changed->line, c, sizeof changed->line)) return false;
    return op_ref_accepts(&changed->line, NULL, &why);
}

bool relations_hold(struct verify_context *x, const struct case_line *c, const struct instance *in,
                    const struct outputs *out, const struct expected *e,
                    const struct run_options *options, struct result *r)
{
    struct rng choose = {case_seed(c), 0x7e1a, 0};
    struct changed_case pair[2], *under_way = NULL, *next = pair;
    bool fine = true;
    /* A relation rebuilds the case, so captured data would not follow the change. */
    if (x->item || instance_backed_bytes(in) > RELATION_BYTES_MAX) return true;
    for (const struct relation *rel = c->op->relations; rel && rel->name && fine; rel++) {
        if (!relation_applies(rel, c, &choose, next)) continue;
        instance_init(&next->in, POISON_NAN);
        fine = run_build(x, &next->line, &next->in, r);
        if (under_way) fine = relation_finish(x, c, in, out, e, under_way, r) && fine;
        fine = fine && relation_start(x, next, options, r);
        if (!fine) instance_free(&next->in);
        under_way = fine ? next : NULL;
        next = next == pair ? &pair[1] : pair;
    }
    return under_way ? relation_finish(x, c, in, out, e, under_way, r) : fine;
}
