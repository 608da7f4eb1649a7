/* The DSA oracles against vectors that a public reference model made. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/captured/golden.h"
#include "harness/captured/test_golden.h"
#include "ref/bound.h"
#include "ref/formats.h"
#include "ref/select.h"

TestSuite(golden_dsa, .timeout = 300);

static const struct {
    const char *name;
    struct test_tie ties[9]; /* ends at differ 0 */
} files[] = {{"dsa_small_s37", {{29, 1}}},
             {"dsa_kpool2_s129",
              {{42, 3}, {54, 1}, {57, 3}, {81, 7}, {105, 5}, {108, 3}, {120, 4}, {123, 7}}},
             {"dsa_kpool8_s300", {{0, 0}}},
             {"dsa_leftpad_s50", {{0, 0}}},
             {"dsa_notail_s90", {{74, 1}}},
             {"dsa_glm53_s2600", {{0, 0}}}};
enum { FILES = sizeof files / sizeof *files };

static void load(const char *name, struct golden_dsa *golden)
{
    char error[300] = "";
    cr_assert(golden_dsa_open(test_golden_path(name), golden, error, sizeof error), "%s", error);
}

static double largest_key(const struct golden_dsa *golden, uint32_t pool, uint32_t d)
{
    const struct ref_dsa_kpool_compress *g = &golden->compress;
    double largest = 0.0;
    for (uint32_t s = 0; s < g->KP; s++) {
        uint64_t token = (uint64_t)golden->pool_indices[(uint64_t)pool * g->KP + s];
        largest = fmax(largest, fabs((double)ref_bf16_to_f32(g->k[token * g->D + d])));
    }
    return largest;
}

Test(golden_dsa, pooled_keys_lie_within_the_bound_and_pools_are_equal)
{
    for (int f = 0; f < FILES; f++) {
        struct golden_dsa golden;
        struct ref_refusal why = {"", ""};
        load(files[f].name, &golden);
        const struct ref_dsa_kpool_compress *g = &golden.compress;
        cr_assert(ref_dsa_kpool_compress_accepts(g, &why), "%s", why.text);
        uint64_t wide = (uint64_t)g->pools * g->D, count = (uint64_t)g->pools * g->KP;
        double *value = test_golden_allocate(2 * wide, sizeof *value), *bound = value + wide;
        double worst = 0.0;
        int32_t *indices = test_golden_allocate(count, sizeof *indices);
        uint8_t *valid = test_golden_allocate(g->pools, 1);
        ref_dsa_kpool_compress(g, &REF_MODEL_DEFAULT, value, bound, indices, valid);
        cr_expect_eq(memcmp(indices, golden.pool_indices, count * sizeof *indices), 0, "%s",
                     files[f].name);
        cr_expect_eq(memcmp(valid, golden.pool_valid, g->pools), 0, "%s", files[f].name);
        for (uint32_t p = 0; p < g->pools; p++) {
            for (uint32_t d = 0; d < golden.head_dim; d++) {
                uint64_t at = (uint64_t)p * g->D + d;
                double got = golden.pool_keys[(uint64_t)p * golden.head_dim + d];
                double error = fabs(got - value[at]);
                cr_assert(error <= bound[at], "%s pool %u dim %u: %.9g, oracle %.17g +- %.3g",
                          files[f].name, p, d, got, value[at], bound[at]);
                /* At most KP+2 rescales of 7u each and about as many roundings of the sums: a bound
                 * of hundreds of u would be a mistake that hides others. */
                cr_assert_leq(bound[at], 256 * REF_U_F32 * largest_key(&golden, p, d));
                if (bound[at] > 0.0) worst = fmax(worst, error / bound[at]);
            }
        }
        cr_log_info("%s: pooled keys, worst error / bound %.3f", files[f].name, worst);
        cr_expect_gt(worst, 0.0);
        free(value);
        free(indices);
        free(valid);
        golden_dsa_close(&golden);
    }
}

/* sum_h |w_h| sum_d |q k| of one score. */
static double score_magnitude(const struct ref_dsa_index_scores *g, uint32_t row, uint32_t pool)
{
    double sum = 0.0;
    for (uint32_t h = 0; h < g->H; h++) {
        const float *q = g->q + ((uint64_t)row * g->H + h) * g->D;
        double dot = 0.0;
        for (uint32_t d = 0; d < g->D; d++)
            dot += fabs((double)q[d] * g->pool_keys[(uint64_t)pool * g->D + d]);
        sum += fabs((double)g->weights[(uint64_t)row * g->H + h]) * dot;
    }
    return sum;
}

/* The file has the score of every pool in double, with the real 1/sqrt(D). The oracle is asked with
 * scale 1 (scores are homogeneous in it) at a position that makes every pool a candidate. Two
 * double evaluations, each in any order with at most D+H+4 roundings on a term's way, lie within
 * 2*gamma_{D+H+8}(2^-53) of the sum of magnitudes of each other (relu is 1-Lipschitz). */
Test(golden_dsa, scores_agree_to_double_precision)
{
    for (int f = 0; f < FILES; f++) {
        struct golden_dsa golden;
        struct ref_refusal why = {"", ""};
        load(files[f].name, &golden);
        struct ref_dsa_index_scores g = golden.scores;
        int32_t *last = test_golden_allocate(g.Q, sizeof *last);
        for (uint32_t r = 0; r < g.Q; r++) last[r] = (int32_t)g.S - 1;
        g.q_pos = last;
        g.scale = 1.0f;
        cr_assert(ref_dsa_index_scores_accepts(&g, &why), "%s", why.text);
        uint64_t count = (uint64_t)g.Q * g.P;
        double *value = test_golden_allocate(2 * count, sizeof *value), worst = 0.0;
        double scale = 1.0 / sqrt(golden.head_dim);
        ref_dsa_index_scores_bound(&g, value, value + count);
        for (uint64_t i = 0; i < count; i++) {
            double limit = 2 * ref_gamma(g.D + g.H + 8.0, REF_U_F64) * scale *
                           score_magnitude(&g, (uint32_t)(i / g.P), (uint32_t)(i % g.P));
            double error = fabs(value[i] * scale - golden.scores_f64[i]);
            cr_assert(error <= limit, "%s row %u pool %u: %.17g, oracle %.17g, limit %.3g",
                      files[f].name, (unsigned)(i / g.P), (unsigned)(i % g.P), golden.scores_f64[i],
                      value[i] * scale, limit);
            if (limit > 0.0) worst = fmax(worst, error / limit);
        }
        cr_log_info("%s: scores, worst error / double-precision limit %.4f", files[f].name, worst);
        free(value);
        free(last);
        golden_dsa_close(&golden);
    }
}

/* Everything the oracles say about the selection of a file. */
struct selection {
    struct golden_dsa golden;
    float *scores;
    double *value, *bound, *scratch; /* [Q, P] [Q, P] [4P] */
    uint8_t *valid_cand;
    int32_t *selected, *expanded; /* [Q, select_k] [Q, width] */
    int32_t *set;                 /* [select_k] the reference's pools of one row */
};

static void select_all(const char *name, struct selection *s)
{
    struct ref_refusal why = {"", ""};
    load(name, &s->golden);
    struct ref_dsa_index_scores *scores = &s->golden.scores;
    struct ref_dsa_topk_pools *topk = &s->golden.topk;
    struct ref_dsa_expand_selection *expand = &s->golden.expand;
    uint64_t count = (uint64_t)scores->Q * scores->P;
    s->scores = test_golden_allocate(count, sizeof *s->scores);
    s->value = test_golden_allocate(2 * count + 4 * (uint64_t)scores->P, sizeof *s->value);
    s->bound = s->value + count;
    s->scratch = s->bound + count;
    s->valid_cand = test_golden_allocate(count, 1);
    s->selected = test_golden_allocate((uint64_t)topk->Q * topk->select_k, sizeof *s->selected);
    s->expanded = test_golden_allocate((uint64_t)expand->Q * expand->width, sizeof *s->expanded);
    s->set = test_golden_allocate(topk->select_k, sizeof *s->set);
    topk->scores = s->scores;
    expand->selected = s->selected;
    expand->valid_cand = s->valid_cand;
    cr_assert(ref_dsa_index_scores_accepts(scores, &why), "%s", why.text);
    cr_assert(ref_dsa_topk_pools_accepts(topk, &why), "%s", why.text);
    cr_assert(ref_dsa_expand_selection_accepts(expand, &why), "%s", why.text);
    ref_dsa_index_scores(scores, s->scores, s->valid_cand);
    ref_dsa_index_scores_bound(scores, s->value, s->bound);
    ref_dsa_topk_pools(topk, s->selected);
    ref_dsa_expand_selection(expand, s->expanded);
}

static void free_selection(struct selection *s)
{
    golden_dsa_close(&s->golden);
    free(s->scores);
    free(s->value);
    free(s->valid_cand);
    free(s->selected);
    free(s->expanded);
    free(s->set);
}

/* The pools of a reference row: its first select_k*KP slots are whole pools or whole holes. */
static void read_pools(struct selection *s, uint32_t row)
{
    const struct ref_dsa_expand_selection *g = &s->golden.expand;
    const int32_t *ids = s->golden.topk_indices + (uint64_t)row * g->width;
    for (uint32_t i = 0; i < g->select_k; i++, ids += g->KP) {
        s->set[i] = ids[0] < 0 ? -1 : (ids[0] - g->first_key) / (int32_t)g->KP;
        for (uint32_t t = 0; t < g->KP; t++)
            cr_assert_eq(ids[t], s->set[i] < 0
                                     ? -1
                                     : g->first_key + s->set[i] * (int32_t)g->KP + (int32_t)t);
    }
}

static int ascending(const void *left, const void *right)
{
    int32_t a = *(const int32_t *)left, b = *(const int32_t *)right;
    return (a > b) - (a < b);
}

/* The ids of two rows from slot `first` on, compared as sets with holes. */
static bool same_ids(const int32_t *left, const int32_t *right, uint32_t first, uint32_t width)
{
    uint32_t count = width - first;
    int32_t *a = test_golden_allocate(2 * (uint64_t)count, sizeof *a), *b = a + count;
    memcpy(a, left + first, count * sizeof *a);
    memcpy(b, right + first, count * sizeof *b);
    qsort(a, count, sizeof *a, ascending);
    qsort(b, count, sizeof *b, ascending);
    bool same = memcmp(a, b, count * sizeof *a) == 0;
    free(a);
    return same;
}

static void check_row(struct selection *s, const char *name, uint32_t row, uint32_t ties)
{
    const struct ref_dsa_expand_selection *g = &s->golden.expand;
    const int32_t *want = s->golden.topk_indices + (uint64_t)row * g->width;
    const int32_t *got = s->expanded + (uint64_t)row * g->width;
    const int32_t *selected = s->selected + (uint64_t)row * g->select_k;
    uint64_t at = (uint64_t)row * g->P;
    uint32_t candidates = 0;
    if (g->q_mask[row]) {
        while (candidates < g->P && s->valid_cand[at + candidates]) candidates++;
        for (uint32_t p = candidates; p < g->P; p++) cr_assert_not(s->valid_cand[at + p]);
        struct ref_select_result result;
        read_pools(s, row);
        ref_select_judge(s->value + at, s->bound + at, candidates, g->select_k, s->set, g->select_k,
                         s->scratch, &result);
        cr_expect_eq(result.verdict, ties ? REF_SELECT_EQUIVALENT : REF_SELECT_IDENTICAL,
                     "%s position %d: verdict %d: %s", name, g->q_pos[row], result.verdict,
                     result.text);
    }
    if (ties) test_ties_differ(s->set, selected, g->select_k, s->golden.scores_f64 + at, ties);
    /* Also where pools differ, the tokens of the unfinished one must be the same. */
    cr_expect(same_ids(want, got, ties ? g->index_topk : 0, g->width), "%s position %d", name,
              g->q_pos[row]);
}

Test(golden_dsa, selections_are_identical_or_certified_equivalent)
{
    unsigned rows = 0;
    for (int f = 0; f < FILES; f++) {
        struct selection s;
        select_all(files[f].name, &s);
        for (uint32_t row = 0; row < s.golden.rows; row++) {
            uint32_t position = (uint32_t)s.golden.expand.q_pos[row];
            uint32_t ties = test_ties_at(files[f].ties, position);
            check_row(&s, files[f].name, row, ties);
            rows += ties > 0;
        }
        free_selection(&s);
    }
    cr_expect_eq(rows, 10);
}

/* The judge must be able to say no: the best pool of a row is exchanged for the worst. */
Test(golden_dsa, a_selection_with_one_wrong_pool_is_judged_wrong)
{
    struct selection s;
    select_all("dsa_kpool8_s300", &s);
    const struct ref_dsa_expand_selection *g = &s.golden.expand;
    uint32_t row = s.golden.rows - 1, worst = 0;
    const double *value = s.value + (uint64_t)row * g->P, *bound = s.bound + (uint64_t)row * g->P;
    uint32_t candidates = ((uint32_t)g->q_pos[row] + 1) / g->KP;
    cr_assert_gt(candidates, g->select_k);
    for (uint32_t p = 0; p < candidates; p++)
        if (value[p] < value[worst]) worst = p;
    read_pools(&s, row);
    s.set[0] = (int32_t)worst;
    struct ref_select_result result;
    ref_select_judge(value, bound, candidates, g->select_k, s.set, g->select_k, s.scratch, &result);
    cr_expect_eq(result.verdict, REF_SELECT_WRONG);
    cr_expect_eq(result.taken, worst);
    free_selection(&s);
}

/* The kernels read 32 channels at a time, so a model of 16 is refused; the vectors of such a one
 * still speak for the arithmetic, padded with zero channels. */
Test(golden_dsa, unpadded_channels_are_refused)
{
    struct golden_dsa golden;
    struct ref_refusal why = {"", ""};
    load("dsa_kpool2_s129", &golden);
    cr_expect_eq(golden.head_dim, 16);
    golden.scores.D = golden.head_dim;
    cr_expect_not(ref_dsa_index_scores_accepts(&golden.scores, &why));
    cr_expect_str_eq(why.rule, "dim_multiple_of_32");
    golden_dsa_close(&golden);
}

/* ---- decode ---- */

/* An oracle of the decode's rows at a float scale; what else it needs is in `context`. */
typedef void rows_at(const void *context, float scale, double *value, double *bound);

/* value [count] at the real scale rank^-1/2, between the two floats around it. */
static double *at_real_scale(rows_at *oracle, const void *context, uint32_t rank, uint64_t count)
{
    double exact = 1.0 / sqrt(rank);
    float low = ref_f32_below(exact), high = ref_f32_above(exact);
    double *value = test_golden_allocate(3 * count, sizeof *value), *other = value + count;
    oracle(context, high, other, other + count);
    oracle(context, low, value, other + count);
    test_interpolate(value, other, count, low, high, exact);
    return value;
}

static void decode_at(const void *context, float scale, double *value, double *bound)
{
    struct ref_dsa_decode g = *(const struct ref_dsa_decode *)context;
    struct ref_refusal why = {"", ""};
    g.scale = scale;
    cr_assert(ref_dsa_decode_accepts(&g, &why), "%s", why.text);
    ref_dsa_decode(&g, &REF_MODEL_DEFAULT, value, bound);
}

static void masked_at(const void *context, float scale, double *value, double *bound)
{
    struct ref_dsa_mla_masked_attn g = *(const struct ref_dsa_mla_masked_attn *)context;
    struct ref_refusal why = {"", ""};
    g.scale = scale;
    cr_assert(ref_dsa_mla_masked_attn_accepts(&g, &why), "%s", why.text);
    ref_dsa_mla_masked_attn(&g, &REF_MODEL_DEFAULT, value, bound);
}

static double largest_latent(const struct golden_dsa *golden)
{
    double largest = 0.0;
    uint64_t count = (uint64_t)golden->compress.S * golden->decode.kv_lora_rank;
    for (uint64_t i = 0; i < count; i++)
        largest = fmax(largest, fabs((double)ref_e4m3_to_f32(golden->latent[i])));
    return largest * golden->decode.k_scale;
}

static uint32_t count_ids(const int32_t *ids, uint32_t width)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < width; i++) n += ids[i] >= 0;
    return n;
}

/* One query head: limits, and the worst error over the row's scale. */
static double check_head(const struct golden_dsa *golden, const double *value, uint64_t row,
                         double latent, const char *name)
{
    const struct ref_dsa_decode *g = &golden->decode;
    double query = 0.0, worst = 0.0;
    for (uint32_t d = 0; d < g->kv_lora_rank; d++)
        query += fabs((double)ref_bf16_to_f32(g->q[row * g->kv_lora_rank + d]));
    uint32_t seq = (uint32_t)(row / g->num_q_heads);
    uint32_t n = count_ids(g->sel_indices + (uint64_t)seq * g->width, g->width);
    double peak = query * latent / sqrt(g->kv_lora_rank);
    double limit = latent * (test_attention_f64_limit(peak, g->kv_lora_rank, n) +
                             test_interpolation_limit(peak));
    for (uint32_t d = 0; d < g->kv_lora_rank; d++) {
        uint64_t at = row * g->kv_lora_rank + d;
        double error = fabs(value[at] - golden->attn_f64[at]);
        cr_assert(error <= limit, "%s seq %u head %u dim %u: %.17g, oracle %.17g, limit %.3g", name,
                  seq, (unsigned)(row % g->num_q_heads), d, golden->attn_f64[at], value[at], limit);
        worst = fmax(worst, error);
    }
    return worst / latent;
}

/* Every row of a file's decode, as computed by one oracle. */
static void check_decode(const struct golden_dsa *golden, rows_at *oracle, const void *context,
                         const char *name)
{
    const struct ref_dsa_decode *g = &golden->decode;
    uint64_t rows = (uint64_t)g->num_seqs * g->num_q_heads;
    double *value = at_real_scale(oracle, context, g->kv_lora_rank, rows * g->kv_lora_rank);
    double latent = largest_latent(golden), worst = 0.0;
    for (uint64_t row = 0; row < rows; row++)
        worst = fmax(worst, check_head(golden, value, row, latent, name));
    cr_log_info("%s: worst error %.3g of the row scale", name, worst);
    cr_expect_lt(worst, 1e-12);
    free(value);
}

Test(golden_dsa, decode_agrees_to_double_precision)
{
    unsigned decodes = 0;
    for (int f = 0; f < FILES; f++) {
        struct golden_dsa golden;
        load(files[f].name, &golden);
        if (golden.decode.num_seqs > 0) {
            check_decode(&golden, decode_at, &golden.decode, files[f].name);
            decodes++;
        }
        golden_dsa_close(&golden);
    }
    cr_expect_eq(decodes, 4);
}

/* The decode as masked attention over every token. A latent times its scale is a bf16 value, the
 * scale being a power of two; every head gets its copy of the keys. */
static void check_masked(const struct golden_dsa *golden, const char *name)
{
    const struct ref_dsa_decode *g = &golden->decode;
    uint32_t S = golden->compress.S, H = g->num_q_heads, L = g->kv_lora_rank;
    uint16_t *keys = test_golden_allocate((uint64_t)S * H * L, sizeof *keys);
    uint8_t *mask = test_golden_allocate((uint64_t)g->num_seqs * S, 1);
    for (uint64_t i = 0; i < (uint64_t)S * H * L; i++) {
        uint8_t code = golden->latent[i / ((uint64_t)H * L) * L + i % L];
        float exact = ref_e4m3_to_f32(code) * g->k_scale;
        keys[i] = ref_bf16_from_f32(exact);
        cr_assert_eq(ref_bf16_to_f32(keys[i]), exact);
    }
    struct ref_dsa_topk_to_mask to_mask = {
        .topk = g->sel_indices, .Q = g->num_seqs, .width = g->width, .S = S};
    ref_dsa_topk_to_mask(&to_mask, mask);
    struct ref_dsa_mla_masked_attn masked = {.q = g->q,
                                             .k = keys,
                                             .v = keys,
                                             .mask = mask,
                                             .Q = g->num_seqs,
                                             .S = S,
                                             .H = H,
                                             .qd = L,
                                             .vd = L};
    check_decode(golden, masked_at, &masked, name);
    free(keys);
    free(mask);
}

Test(golden_dsa, masked_attention_is_the_same_function)
{
    static const char *const names[] = {"dsa_small_s37", "dsa_kpool2_s129", "dsa_kpool8_s300"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct golden_dsa golden;
        load(names[i], &golden);
        check_masked(&golden, names[i]);
        golden_dsa_close(&golden);
    }
}
