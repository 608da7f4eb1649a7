#include "softmax.h"

#include <criterion/criterion.h>
#include <math.h>

#include "bound.h"
#include "formats.h"
#include "test_attn_sim.h"

enum { MAX_KEYS = 600, MAX_CHANNELS = 130 };

static const struct ref_error_model default_model = REF_MODEL_DEFAULT;

/* A row whose kernel scores are floats at most score_error from the real ones. */
struct row {
    double score[MAX_KEYS], score_error[MAX_KEYS], scratch[REF_SOFTMAX_SCRATCH(MAX_KEYS)];
    float kernel_score[MAX_KEYS], values[MAX_KEYS * MAX_CHANNELS];
    double value[MAX_CHANNELS], bound[MAX_CHANNELS];
    struct ref_softmax softmax;
};

static struct row row;

static void open_row(size_t n, size_t channels)
{
    row.softmax = (struct ref_softmax){.score = row.score,
                                       .score_error = row.score_error,
                                       .values = row.values,
                                       .n = n,
                                       .channels = channels,
                                       .value_stride = channels,
                                       .slots = n,
                                       .value_scale = 1.0};
}

static void run(const struct ref_error_model *model)
{
    ref_softmax(&row.softmax, model, row.scratch, row.value, row.bound);
}

/* Exact scores s and values v, one channel. */
static void set_keys(size_t n, const double *s, const float *v)
{
    open_row(n, 1);
    for (size_t j = 0; j < n; j++) {
        row.score[j] = s[j];
        row.score_error[j] = 0;
        row.values[j] = v[j];
    }
}

static void close_to(double got, double want, double relative)
{
    cr_assert(fabs(got - want) <= relative * fabs(want), "%.17g, not %.17g", got, want);
}

/* By hand. Scores ln 1, ln 2, ln 5 weigh 1/8, 2/8, 5/8. */
Test(softmax, weights_by_hand)
{
    double s[3] = {0, log(2), log(5)};
    float v[3] = {8, 4, -8};
    set_keys(3, s, v);
    run(&default_model);
    close_to(row.value[0], 1 + 1 - 5, 1e-15);
    for (int j = 0; j < 3; j++) row.score[j] += 1000; /* only differences count */
    run(&default_model);
    close_to(row.value[0], -3, 1e-12);
    row.softmax.value_scale = 0.25;
    run(&default_model);
    close_to(row.value[0], -0.75, 1e-12);
}

Test(softmax, empty_and_single)
{
    double s[1] = {-3.5};
    float v[1] = {7};
    set_keys(1, s, v);
    row.softmax.n = 0;
    row.value[0] = row.bound[0] = 9;
    run(&default_model);
    cr_assert(row.value[0] == 0 && row.bound[0] == 0);
    row.softmax.n = 1;
    row.score_error[0] = 100; /* one key has weight 1 whatever its score */
    run(&default_model);
    cr_assert_eq(row.value[0], 7);
    cr_assert(row.bound[0] <= 7 * 40 * REF_U_F32, "%g", row.bound[0]);
}

/* By hand: two keys of equal score, v = 0 and 1, no rounding but the scores': o = 1/2, and moving
 * one score up and the other down by e gives 1/(1+e^(2e)): off by tanh(e)/2 exactly. The bound says
 * tanh(theta/2)*range with theta >= e, which for both keys moved by e is the sharp tanh(e/2)
 * twice over, so it must lie between. */
Test(softmax, the_score_error_counts_in_full)
{
    double s[2] = {0, 0};
    float v[2] = {0, 1};
    struct ref_error_model exact = {.mma_k = 16};
    set_keys(2, s, v);
    for (double e = 1e-3; e < 30; e *= 3) {
        row.score_error[0] = row.score_error[1] = e;
        run(&exact);
        double moved = fabs(1.0 / (1.0 + exp(2 * e)) - 0.5);
        cr_assert(row.bound[0] >= moved, "e %g: %g < %g", e, row.bound[0], moved);
        cr_assert(row.bound[0] <= 2.01 * moved + 1e-6, "e %g: %g > %g", e, row.bound[0], moved);
    }
}

Test(softmax, not_finite)
{
    double s[3] = {0, 1, 2};
    float v[3] = {1, 2, 3};
    struct {
        double score0, error0;
        float value0, value1;
        double value, bound; /* 2: of the remaining keys; -1: a usual bound */
    } cases[] = {
        {NAN, 0, 1, 2, NAN, 0},
        {INFINITY, 0, 1, 2, NAN, 0},
        {-INFINITY, INFINITY, 1, 2, 2, INFINITY},
        {0, INFINITY, 1, 2, 2, INFINITY},
        {0, 0, NAN, 2, NAN, 0},
        {0, 0, INFINITY, 2, INFINITY, INFINITY},
        {0, 0, INFINITY, -INFINITY, NAN, 0},
        {0, 0, 3e38f, 2, 2, INFINITY}, /* three times 3e38 may overflow in the sum */
        {0, 0, 1e38f, 2, 2, -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        set_keys(3, s, v);
        row.score[0] = cases[i].score0;
        row.score_error[0] = cases[i].error0;
        row.values[0] = cases[i].value0;
        row.values[1] = cases[i].value1;
        run(&default_model);
        double value = row.value[0], want = cases[i].value;
        cr_assert(isnan(want)   ? isnan(value)
                  : isinf(want) ? value == want
                                : isfinite(value),
                  "case %zu: %g", i, value);
        cr_assert(cases[i].bound < 0 ? row.bound[0] > 0 && isfinite(row.bound[0])
                                     : row.bound[0] == cases[i].bound,
                  "case %zu: bound %g", i, row.bound[0]);
    }
    for (int j = 0; j < 3; j++) row.score[j] = -INFINITY, row.values[j] = 1;
    run(&default_model);
    cr_assert(isnan(row.value[0]) && row.bound[0] == INFINITY);
}

/* Random scores of the given width, in one of several orders, and values. */
static void fill_row(struct test_random *rng, size_t n, size_t channels, double width, int order)
{
    open_row(n, channels);
    for (size_t j = 0; j < n; j++) {
        double x = width * test_normal(rng);
        if (order == 1) x = width * (double)j / (double)n; /* every key raises the maximum */
        if (order == 2) x = -width * (double)j / (double)n;
        row.kernel_score[j] = (float)x;
        double error = 0x1p-20 * fabs(x);
        /* The kernel's score lies at the end of the interval now and then. */
        row.score[j] = (double)row.kernel_score[j] +
                       (test_below(rng, 3) ? test_uniform(rng) : 1.0 - 2.0 * (j & 1)) * error;
        row.score_error[j] = error * (1 + 1e-12);
        for (size_t c = 0; c < channels; c++)
            row.values[j * channels + c] = ref_bf16_to_f32(ref_bf16_from_f64(test_normal(rng)));
    }
}

static const struct sim kernels[] = {
    {.splits = 1, .exp_ulp = 0.5},
    {.splits = 1, .exp_ulp = 0.5, .backwards = true, .fma = true},
    {.splits = 1, .tile = 1, .exp_ulp = 2.5, .exp_error = SIM_EXP_UP},
    {.splits = 1, .tile = 1, .exp_ulp = 2.5, .exp_error = SIM_EXP_RANDOM, .backwards = true},
    {.splits = 8, .tile = 1, .exp_ulp = 2.5, .exp_error = SIM_EXP_AGAINST, .strided = true},
    {.splits = 8, .tile = 64, .exp_ulp = 2.5, .exp_error = SIM_EXP_ALTERNATE, .log2_domain = true},
    {.splits = 3, .tile = 7, .exp_ulp = 1, .reciprocal = true, .fma = true, .log2_domain = true},
    {.splits = 1, .exp_ulp = 2.5, .exp_error = SIM_EXP_AGAINST, .normalise_first = true},
    {.splits = 1, .exp_ulp = 0.5, .exp_error = SIM_EXP_AGAINST, .reciprocal = true, .flush = true},
    {.splits = 1, .exp_ulp = 1, .p_bf16 = 1},
    {.splits = 4, .tile = 16, .exp_ulp = 2.5, .p_bf16 = 1, .sum_bf16 = true, .strided = true},
    {.splits = 1, .tile = 16, .exp_ulp = 2.5, .p_bf16 = 1, .tensor_core = true},
    {.splits = 2, .tile = 64, .exp_ulp = 2.5, .p_bf16 = 1, .tensor_core = true, .fma = true},
    {.splits = 1, .tile = 16, .exp_ulp = 1, .p_bf16 = 2, .tensor_core = true},
    {.splits = 2, .exp_ulp = 1, .p_bf16 = 2},
};
enum { KERNELS = sizeof kernels / sizeof *kernels };

/* Runs one kernel on the row; returns the worst share of the bound it used. */
static double judge(const struct sim *base, struct test_random *rng, float value_scale,
                    bool dequantise)
{
    static float out[MAX_CHANNELS];
    struct sim sim = *base;
    sim.value_scale = value_scale;
    sim.dequantise = dequantise && !sim.tensor_core;
    struct ref_error_model model = sim_model(&sim);
    row.softmax.value_scale = value_scale;
    row.softmax.value_roundings = 2;
    row.softmax.slots = row.softmax.n + 16 * sim.splits;
    run(&model);
    double centre = row.value[0] / value_scale, worst = 0;
    sim_softmax(&sim, rng, row.kernel_score, row.values, row.softmax.n, row.softmax.channels,
                row.softmax.value_stride, &centre, out);
    for (size_t c = 0; c < row.softmax.channels; c++) {
        double error = fabs((double)out[c] - row.value[c]), ratio = error / row.bound[c];
        cr_assert(isfinite(row.bound[c]));
        cr_assert(error <= row.bound[c], "kernel %td, n %zu, channel %zu: %g is %g off, bound %g",
                  base - kernels, row.softmax.n, c, row.value[c], error, row.bound[c]);
        worst = ratio > worst ? ratio : worst;
    }
    return worst;
}

/* All lengths, score widths and orders on one kernel; the worst share of the bound. */
static double sweep(const struct sim *kernel, struct test_random *rng, bool exact_scores)
{
    static const size_t lengths[] = {1, 2, 3, 16, 17, 64, 100, 300, MAX_KEYS};
    static const double widths[] = {0, 0.1, 1, 5, 30, 200};
    double worst = 0;
    for (size_t l = 0; l < 9; l++) {
        for (size_t w = 0; w < 6; w++) {
            for (int order = 0; order < 3; order++) {
                size_t channels = order == 0 && l < 4 ? MAX_CHANNELS : 1 + l % 3;
                fill_row(rng, lengths[l], channels, widths[w], order);
                for (size_t j = 0; j < lengths[l] && exact_scores; j++) {
                    row.score[j] = (double)row.kernel_score[j];
                    row.score_error[j] = 0;
                }
                double used = judge(kernel, rng, l & 1 ? 1.0f : 0.37f, l & 2);
                worst = used > worst ? used : worst;
            }
        }
    }
    return worst;
}

/* Every kernel keeps its bound; and some row uses a fair share of it, so that it means something.
 */
Test(softmax, honest_kernels_keep_the_bound)
{
    struct test_random rng = {6};
    for (int k = 0; k < KERNELS; k++) {
        double worst = sweep(&kernels[k], &rng, false);
        cr_log_info("kernel %d uses %.3f of its bound", k, worst);
        cr_assert(worst > 0.1, "kernel %d: the bound is %.0f times too wide", k, 1 / worst);
    }
}

/* The same where the scores are exact, so that only the sums and exponentials err. */
Test(softmax, honest_arithmetic_keeps_the_bound)
{
    struct test_random rng = {7};
    for (int k = 0; k < KERNELS; k++) {
        double worst = sweep(&kernels[k], &rng, true);
        cr_log_info("kernel %d, exact scores: uses %.3f of its bound", k, worst);
        cr_assert(worst > 0.03, "kernel %d: the bound is %.0f times too wide", k, 1 / worst);
    }
}

/* Values among the subnormals or near the top, scores far apart: the absolute terms. */
Test(softmax, extreme_values_and_scores)
{
    static const double sizes[] = {0x1p-133, 0x1p-126, 0x1p-100, 1, 0x1p100};
    static const double widths[] = {0.1, 60, 100, 1e4, 1e30};
    static const float scales[] = {1.0f, 0x1p-20f, 3e4f, 0x1p-140f};
    struct test_random rng = {8};
    for (int k = 0; k < KERNELS; k++) {
        if (kernels[k].tensor_core) continue; /* the step below is for normal numbers */
        for (int i = 0; i < 5 * 5 * 4; i++) {
            double width = widths[i % 5], size = sizes[i / 5 % 5];
            /* A maximum rounded after scaling is not for such scores. */
            if (width > 1e3 && kernels[k].log2_domain && kernels[k].fma) continue;
            fill_row(&rng, 40, 3, width, 0);
            for (int v = 0; v < 40 * 3; v++)
                row.values[v] = ref_bf16_to_f32(ref_bf16_from_f64(size * (double)row.values[v]));
            judge(&kernels[k], &rng, scales[i / 25], i & 1);
        }
    }
}

/* Wrong weights that a bound of the whole output would let pass: one of many keys counted twice. */
Test(softmax, a_key_counted_twice_is_seen)
{
    struct test_random rng = {9};
    size_t n = 300;
    fill_row(&rng, n, 1, 1, 0);
    for (size_t j = 0; j < n; j++) row.score_error[j] = 0x1p-20;
    struct ref_error_model model = default_model;
    run(&model);
    double value = row.value[0], bound = row.bound[0];
    int seen = 0;
    for (size_t twice = 0; twice < n; twice++) {
        row.score[n] = row.score[twice];
        row.score_error[n] = 0;
        row.values[n] = row.values[twice];
        row.softmax.n = n + 1;
        run(&model);
        seen += fabs(row.value[0] - value) > bound;
    }
    cr_assert(seen > 9 * (int)n / 10, "%d of %zu", seen, n);
}

/* Below, one source of error at a time is driven to its limit, so that no term of the bound can go
 * missing behind another. */
static double share_of_bound(const struct sim *sim)
{
    struct test_random rng = {17};
    struct sim kernel = *sim;
    kernel.value_scale = 1;
    struct ref_error_model model = sim_model(sim);
    float out;
    run(&model);
    sim_softmax(&kernel, &rng, row.kernel_score, row.values, row.softmax.n, 1, 1, row.value, &out);
    return fabs((double)out - row.value[0]) / row.bound[0];
}

static void set_key(size_t j, float score, float value)
{
    row.kernel_score[j] = score;
    row.score[j] = (double)score;
    row.score_error[j] = 0;
    row.values[j] = value;
}

static void expect_share(double share, double least)
{
    cr_assert(share <= 1, "%g of the bound", share);
    cr_assert(share >= least, "only %g of the bound", share);
}

/* Equal scores but one, values of +-1, exponentials that push each weight the way its value goes.
 */
Test(softmax_terms, exponentials)
{
    struct sim sim = {.splits = 1, .exp_ulp = 200, .exp_error = SIM_EXP_AGAINST};
    open_row(64, 1);
    for (size_t j = 0; j < 64; j++) set_key(j, j ? -0.68f : 0, j & 1 ? 1 : -1);
    expect_share(share_of_bound(&sim), 0.4);
}

/* Rising scores: every key is a new maximum, and every rescale errs upwards. */
Test(softmax_terms, rescales)
{
    struct sim sim = {.splits = 1, .tile = 1, .exp_ulp = 200, .exp_error = SIM_EXP_UP};
    open_row(200, 1);
    for (size_t j = 0; j < 200; j++) set_key(j, 0.01f * (float)j, j < 100 ? 1 : -1);
    expect_share(share_of_bound(&sim), 0.1);
}

/* 599 weights of a little under 2^-24 after a weight of 1, in sequence: each is lost in the sum of
 * weights, and 0.49 of each in the value sum. */
static void set_lost_keys(void)
{
    open_row(MAX_KEYS, 1);
    for (size_t j = 0; j < MAX_KEYS; j++) set_key(j, j ? -24.0001f / 1.442695f : 0, j ? -0.49f : 1);
}

Test(softmax_terms, both_sums)
{
    struct sim sim = {.splits = 1, .exp_ulp = 0.5};
    set_lost_keys();
    expect_share(share_of_bound(&sim), 0.6);
}

Test(softmax_terms, tensor_core_sum)
{
    struct sim sim = {.splits = 1, .exp_ulp = 0.5, .tensor_core = true};
    set_lost_keys();
    expect_share(share_of_bound(&sim), 0.6);
}

/* Scores around 200, differences of a few tenths: 2^(x log2e - m log2e) rounds at the size of x. */
Test(softmax_terms, shift_and_log2e)
{
    struct sim sim = {.splits = 1, .exp_ulp = 0.5, .log2_domain = true};
    double worst = 0;
    for (int i = 0; i < 40; i++) {
        open_row(4, 1);
        for (size_t j = 0; j < 4; j++)
            set_key(j, 200 + 0.13f * (float)j + 0.003f * (float)i, j & 1 ? 1 : -1);
        double share = share_of_bound(&sim);
        expect_share(share, 0);
        worst = fmax(worst, share);
    }
    expect_share(worst, 0.1);
}

/* All values but those of flushed weights are 0. */
Test(softmax_terms, flushed_weights)
{
    struct sim sim = {.splits = 1, .exp_ulp = 0.5, .flush = true};
    open_row(100, 1);
    for (size_t j = 0; j < 100; j++) set_key(j, j ? -87.4f : 0, j ? 1 : 0);
    double share = share_of_bound(&sim);
    cr_assert(row.value[0] > 98 * 0x1p-127);
    expect_share(share, 0.1);
}

/* Weights just above 1/2 that round by nearly half a bf16 ulp, against f32 weights in their sum;
 * and against the same weights. */
Test(softmax_terms, bf16_weights)
{
    struct sim sim = {.splits = 1, .exp_ulp = 0.5, .p_bf16 = 1};
    open_row(50, 1);
    for (size_t j = 0; j < 50; j++) set_key(j, j ? -0.689f : 0, 1); /* 0.502: 1/2 + 2^-9 */
    expect_share(share_of_bound(&sim), 0.5);
    sim.sum_bf16 = true; /* where the values are equal the same weights cancel */
    expect_share(share_of_bound(&sim), 0);
    for (size_t j = 0; j < 50; j++) set_key(j, j & 1 ? -0.689f : -0.6855f, j & 1 ? 1 : -1);
    set_key(0, 0, 0);
    expect_share(share_of_bound(&sim), 0.3);
}

/* Weights whose hi and lo together miss nearly 2^-17 of them, all to the same side; and a kernel
 * that drops lo, which a model of split weights must not cover. */
Test(softmax_terms, split_weights)
{
    struct sim sim = {.splits = 1, .exp_ulp = 0.5, .p_bf16 = 2, .tensor_core = true};
    float score = -0.693f, missing = 0;
    while (missing < 0.95f * 0x1p-18f) {
        score = nextafterf(score, 0);
        float p = (float)exp((double)score), hi = ref_bf16_to_f32(ref_bf16_from_f32(p));
        missing = p - hi - ref_bf16_to_f32(ref_bf16_from_f32(p - hi));
        cr_assert(score < -0.6f);
    }
    open_row(8, 1);
    for (size_t j = 0; j < 8; j++) set_key(j, j ? score : 0, 1);
    expect_share(share_of_bound(&sim), 0.5);
    struct ref_error_model split = sim_model(&sim);
    run(&split);
    double bound = row.bound[0], value = row.value[0];
    struct test_random rng = {18};
    float out;
    sim.p_bf16 = 1;
    sim.value_scale = 1;
    sim_softmax(&sim, &rng, row.kernel_score, row.values, 8, 1, 1, NULL, &out);
    cr_assert(fabs((double)out - value) > 5 * bound, "%g off, bound %g", (double)out - value,
              bound);
}
