/* The QSA oracles against vectors that a public reference model made. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/captured/golden.h"
#include "harness/captured/test_golden.h"
#include "ref/bound.h"
#include "ref/formats.h"
#include "ref/select.h"

TestSuite(golden_qsa, .timeout = 300);

static const struct {
    const char *name;
    struct test_tie ties[8]; /* ends at differ 0 */
} files[] = {
    {"qsa_small_s61", {{0, 0}}},
    {"qsa_ratio8_s200", {{75, 1}}},
    {"qsa_fullrot_s40", {{13, 1}, {16, 2}, {17, 2}, {18, 1}, {20, 1}, {24, 2}, {28, 2}, {0, 0}}},
    {"qsa_qwen38_s2600", {{2051, 1}, {2052, 1}, {2055, 2}}}};
enum { FILES = sizeof files / sizeof *files };

static void load(const char *name, struct golden_qsa *golden)
{
    char error[300] = "";
    cr_assert(golden_qsa_open(test_golden_path(name), golden, error, sizeof error), "%s", error);
}

/* The reference's f32 results against real value and bound, where `bound` must also be sharp: below
 * `most` u of the largest value. Returns the worst error over its bound. */
static double check_bounded(const char *what, const float *got, const double *value,
                            const double *bound, uint64_t n, double most)
{
    double worst = 0.0, largest = 0.0;
    for (uint64_t i = 0; i < n; i++) largest = fmax(largest, fabs(value[i]));
    for (uint64_t i = 0; i < n; i++) {
        double error = fabs(got[i] - value[i]);
        cr_assert(error <= bound[i], "%s, element %llu: %.9g, oracle %.17g +- %.3g", what,
                  (unsigned long long)i, (double)got[i], value[i], bound[i]);
        cr_assert_leq(bound[i], most * REF_U_F32 * largest, "%s", what);
        if (bound[i] > 0.0) worst = fmax(worst, error / bound[i]);
    }
    cr_expect(n == 0 || worst > 0.0, "%s", what);
    return worst;
}

/* Roundings of the norm: (hd/2 + 1)u of the mean, 5u of the root, 4u (§5.5), and of the rotation:
 * 2u of two terms and 1u of the table (§5.6); each relative to values of at most sqrt(2) times the
 * largest. The pool's mean adds 2*ratio. The factor 2 leaves room for higher orders only. */
static double norm_and_rotation_u(uint32_t hd, uint32_t ratio)
{
    return 2.0 * sqrt(2.0) * (hd / 2.0 + 2.0 * ratio + 16.0);
}

Test(golden_qsa, block_keys_lie_within_the_bound)
{
    for (int f = 0; f < FILES; f++) {
        struct golden_qsa golden;
        struct ref_refusal why = {"", ""};
        load(files[f].name, &golden);
        const struct ref_qsa_block_pool *g = &golden.pool;
        cr_assert(ref_qsa_block_pool_accepts(g, &why), "%s", why.text);
        uint64_t n = (uint64_t)g->n_new * g->hd;
        double *value = test_golden_allocate(2 * n, sizeof *value), *bound = value + n;
        uint16_t *keys = test_golden_allocate(n, sizeof *keys);
        ref_qsa_block_pool_bound(g, &REF_MODEL_DEFAULT, value, bound);
        ref_qsa_block_pool(g, keys);
        double worst = check_bounded(files[f].name, golden.block_keys_f32, value, bound, n,
                                     norm_and_rotation_u(g->hd, g->ratio));
        uint64_t differ = 0;
        for (uint64_t i = 0; i < n; i++) {
            uint16_t low = ref_bf16_from_f64(value[i] - bound[i]);
            uint16_t high = ref_bf16_from_f64(value[i] + bound[i]);
            float key = ref_bf16_to_f32(keys[i]);
            cr_assert(key >= ref_bf16_to_f32(low) && key <= ref_bf16_to_f32(high));
            differ += keys[i] != golden.score.block_keys[i];
        }
        /* Two f32 results a few u apart round to different bf16 values where a midpoint lies
         * between them: a share of a few 2^-16 of all keys. */
        cr_expect_lt(differ, n / 1000 + 1);
        cr_log_info("%s: block keys, worst error / bound %.3f, %llu of %llu round differently",
                    files[f].name, worst, (unsigned long long)differ, (unsigned long long)n);
        free(value);
        free(keys);
        golden_qsa_close(&golden);
    }
}

Test(golden_qsa, prepared_queries_lie_within_the_bound)
{
    for (int f = 0; f < FILES; f++) {
        struct golden_qsa golden;
        struct ref_refusal why = {"", ""};
        load(files[f].name, &golden);
        uint32_t n = golden.qprep.n_heads * golden.qprep.hd;
        double *value = test_golden_allocate(2 * (uint64_t)n, sizeof *value), *bound = value + n, worst = 0.0;
        float *canonical = test_golden_allocate(n, sizeof *canonical);
        double most = norm_and_rotation_u(golden.qprep.hd, 0);
        for (uint32_t row = 0; row < golden.rows; row++) {
            struct ref_qsa_qprep_rows g = golden_qsa_qprep(&golden, row);
            cr_assert(ref_qsa_qprep_rows_accepts(&g, &why), "%s", why.text);
            ref_qsa_qprep_rows_bound(&g, &REF_MODEL_DEFAULT, value, bound);
            ref_qsa_qprep_rows(&g, canonical);
            worst = fmax(worst, check_bounded(files[f].name, golden.q_post + (uint64_t)row * n,
                                              value, bound, n, most));
            check_bounded("canonical query", canonical, value, bound, n, most);
        }
        cr_log_info("%s: queries, worst error / bound %.3f", files[f].name, worst);
        free(value);
        free(canonical);
        golden_qsa_close(&golden);
    }
}

/* sum_h sum_d |q k| of one score. */
static double score_magnitude(const struct ref_qsa_score_rows *g, uint32_t block)
{
    double sum = 0.0;
    for (uint32_t i = 0; i < g->n_heads * g->hd; i++)
        sum += fabs((double)g->q[i] *
                    ref_bf16_to_f32(g->block_keys[(uint64_t)block * g->hd + i % g->hd]));
    return sum;
}

/* As with DSA: two double evaluations with at most hd+H+4 roundings on a term's way. */
Test(golden_qsa, scores_agree_to_double_precision)
{
    for (int f = 0; f < FILES; f++) {
        struct golden_qsa golden;
        struct ref_refusal why = {"", ""};
        load(files[f].name, &golden);
        double *value = test_golden_allocate(2 * (uint64_t)golden.blocks, sizeof *value), worst = 0.0;
        for (uint32_t row = 0; row < golden.rows; row++) {
            struct ref_qsa_score_rows g = golden_qsa_score(&golden, row);
            const double *want = golden.scores_f64 + (uint64_t)row * golden.blocks;
            uint32_t complete = (g.first_pos + 1) / g.ratio;
            cr_assert(ref_qsa_score_rows_accepts(&g, &why), "%s", why.text);
            ref_qsa_score_rows_bound(&g, REF_SCORER_F32, value, value + golden.blocks);
            for (uint32_t b = 0; b < golden.blocks; b++) {
                if (b >= complete) {
                    cr_assert(want[b] == -INFINITY && value[b] == -INFINITY);
                    continue;
                }
                double limit = 2 * ref_gamma(g.hd + g.n_heads + 8.0, REF_U_F64) *
                               score_magnitude(&g, b) / sqrt(g.hd);
                double error = fabs(value[b] - want[b]);
                cr_assert(error <= limit, "%s row %u block %u: %.17g, oracle %.17g, limit %.3g",
                          files[f].name, row, b, want[b], value[b], limit);
                worst = fmax(worst, error / limit);
            }
        }
        cr_log_info("%s: scores, worst error / double-precision limit %.4f", files[f].name, worst);
        free(value);
        golden_qsa_close(&golden);
    }
}

struct selection {
    float *scores;
    double *value, *bound, *scratch; /* [blocks] each, scratch [4*blocks] */
    int32_t *list;
};

static void check_selection(const struct golden_qsa *golden, uint32_t row, uint32_t ties,
                            const struct selection *s, const char *name)
{
    struct ref_qsa_score_rows g = golden_qsa_score(golden, row);
    struct ref_qsa_topk_rows topk = {.scores = s->scores,
                                     .rows = 1,
                                     .first_pos = g.first_pos,
                                     .score_stride = golden->blocks,
                                     .ratio = g.ratio,
                                     .topk = golden->topk};
    struct ref_refusal why = {"", ""};
    struct ref_select_result result;
    const int32_t *want = golden->lists + (uint64_t)row * golden->topk;
    uint32_t complete = (g.first_pos + 1) / g.ratio;
    cr_assert(ref_qsa_topk_rows_accepts(&topk, &why), "%s", why.text);
    ref_qsa_score_rows(&g, s->scores);
    ref_qsa_topk_rows(&topk, s->list);
    ref_qsa_score_rows_bound(&g, REF_SCORER_F32, s->value, s->bound);
    ref_select_judge(s->value, s->bound, complete, golden->topk, want, golden->topk, s->scratch,
                     &result);
    cr_expect_eq(result.verdict, ties ? REF_SELECT_EQUIVALENT : REF_SELECT_IDENTICAL,
                 "%s position %u: verdict %d: %s", name, g.first_pos, result.verdict, result.text);
    const double *scores = golden->scores_f64 + (uint64_t)row * golden->blocks;
    test_ties_differ(want, s->list, golden->topk, scores, ties);
}

Test(golden_qsa, selections_are_identical_or_certified_equivalent)
{
    unsigned rows = 0;
    for (int f = 0; f < FILES; f++) {
        struct golden_qsa golden;
        load(files[f].name, &golden);
        struct selection s = {.scores = test_golden_allocate(golden.blocks, sizeof *s.scores),
                              .value = test_golden_allocate(6 * (uint64_t)golden.blocks, sizeof *s.value),
                              .list = test_golden_allocate(golden.topk, sizeof *s.list)};
        s.bound = s.value + golden.blocks;
        s.scratch = s.bound + golden.blocks;
        for (uint32_t row = 0; row < golden.rows; row++) {
            uint32_t expected = test_ties_at(files[f].ties, (uint32_t)golden.row_pos[row]);
            check_selection(&golden, row, expected, &s, files[f].name);
            rows += expected > 0;
        }
        free(s.scores);
        free(s.value);
        free(s.list);
        golden_qsa_close(&golden);
    }
    cr_expect_eq(rows, 11);
}

/* ---- attention ---- */

static double largest_bf16(const uint16_t *bits, uint64_t n)
{
    double largest = 0.0;
    for (uint64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)ref_bf16_to_f32(bits[i])));
    return largest;
}

static void check_attention(const struct golden_qsa *golden, uint32_t row, const double *value,
                            uint64_t attended, const char *what)
{
    const struct ref_qsa_prefill_attn g = golden_qsa_attn(golden, row);
    uint64_t elems = (uint64_t)golden->pool.S * g.nkv * g.hd;
    double key = largest_bf16(golden->attn_k, elems), most = largest_bf16(golden->attn_v, elems);
    double worst = 0.0;
    for (uint32_t h = 0; h < g.nq; h++) {
        double query = 0.0;
        for (uint32_t d = 0; d < g.hd; d++)
            query += fabs((double)ref_bf16_to_f32(g.q[(uint64_t)h * g.hd + d]));
        double peak = query * key / sqrt(g.hd);
        double limit = most * (test_attention_f64_limit(peak, g.hd, attended) +
                               test_interpolation_limit(peak));
        for (uint32_t d = 0; d < g.hd; d++) {
            double want = golden->attn_f64[((uint64_t)row * g.nq + h) * g.hd + d];
            double error = fabs(value[(uint64_t)h * g.hd + d] - want);
            cr_assert(error <= limit, "%s row %u head %u dim %u: %.17g, oracle %.17g, limit %.3g",
                      what, row, h, d, want, value[(uint64_t)h * g.hd + d], limit);
            worst = fmax(worst, error);
        }
    }
    cr_log_info("%s row %u: worst error %.3g of the row scale", what, row, worst / most);
    cr_expect_lt(worst / most, 1e-12);
}

static void prefill_at(const struct golden_qsa *golden, uint32_t row, float scale, double *value,
                       double *bound)
{
    struct ref_qsa_prefill_attn g = golden_qsa_attn(golden, row);
    struct ref_refusal why = {"", ""};
    g.inv_sqrt_d = scale;
    cr_assert(ref_qsa_prefill_attn_accepts(&g, &why), "%s", why.text);
    ref_qsa_prefill_attn(&g, &REF_MODEL_DEFAULT, value, bound);
}

/* The selected tokens gathered into one long page, then plain decode attention over all of them. */
static void gathered_at(const struct golden_qsa *golden, uint32_t row, float scale, double *value,
                        double *bound)
{
    const struct ref_qsa_prefill_attn a = golden_qsa_attn(golden, row);
    struct ref_refusal why = {"", ""};
    int32_t *sel = test_golden_allocate(golden->pool.S, sizeof *sel);
    uint32_t n = golden_qsa_attended(golden, row, sel);
    struct ref_qsa_gather gather = golden_qsa_gather(golden, sel, n);
    uint64_t elems = (uint64_t)n * a.nkv * a.hd;
    uint16_t *keys = test_golden_allocate(2 * elems, sizeof *keys), *values = keys + elems;
    cr_assert(ref_qsa_gather_accepts(&gather, &why), "%s", why.text);
    ref_qsa_gather(&gather, keys, values);
    struct ref_paged_decode_attn g = {.q = a.q,
                                      .k_cache = keys,
                                      .v_cache = values,
                                      .block_table = (const int32_t[]){0},
                                      .table_len = 1,
                                      .num_pages = 1,
                                      .seq_len = n,
                                      .block_size = n,
                                      .nq = a.nq,
                                      .nkv = a.nkv,
                                      .hd = a.hd,
                                      .inv_sqrt_d = scale};
    cr_assert(ref_paged_decode_attn_accepts(&g, &why), "%s", why.text);
    ref_paged_decode_attn(&g, &REF_MODEL_DEFAULT, value, bound);
    free(sel);
    free(keys);
}

/* One attention row of every file that has any, at the real scale hd^-1/2, by one way. */
static void check_attention_by(void (*at)(const struct golden_qsa *, uint32_t, float, double *,
                                          double *),
                               const char *way)
{
    unsigned rows = 0;
    for (int f = 0; f < FILES; f++) {
        struct golden_qsa golden;
        load(files[f].name, &golden);
        uint64_t n = (uint64_t)golden.attn.nq * golden.attn.hd;
        double *value = test_golden_allocate(3 * n, sizeof *value), exact = 1.0 / sqrt(golden.attn.hd);
        int32_t *sel = test_golden_allocate(golden.pool.S, sizeof *sel);
        float low = ref_f32_below(exact), high = ref_f32_above(exact);
        for (uint32_t row = 0; row < golden.attn_rows; row++) {
            at(&golden, row, high, value + n, value + 2 * n);
            at(&golden, row, low, value, value + 2 * n);
            test_interpolate(value, value + n, n, low, high, exact);
            check_attention(&golden, row, value, golden_qsa_attended(&golden, row, sel), way);
            rows++;
        }
        free(value);
        free(sel);
        golden_qsa_close(&golden);
    }
    cr_expect_eq(rows, 11);
}

Test(golden_qsa, prefill_attention_agrees_to_double_precision)
{
    check_attention_by(prefill_at, "prefill attention");
}

Test(golden_qsa, gather_and_plain_decode_is_the_same_function)
{
    check_attention_by(gathered_at, "gathered decode");
}
