#include "dsa.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "formats.h"
#include "test_attn_sim.h"

enum { RANK = 512, SEQS = 3, HEADS = 2, WIDTH = 24, TOKENS = 40, BLOCKS = 16, PAGES = 64 };

static const struct ref_error_model default_model = REF_MODEL_DEFAULT;

/* One set of logical sequences, laid out in pages as asked. */
struct layout {
    uint32_t block_size;
    uint64_t pitch_extra;
    bool shuffled, two_caches;
};

struct test_case {
    uint8_t k[SEQS][TOKENS][RANK],
        v[SEQS][TOKENS][RANK]; /* by token; k is v if there is one cache */
    uint16_t q[SEQS * HEADS * RANK];
    int32_t sel[SEQS * WIDTH], lens[SEQS], tables[SEQS * BLOCKS];
    uint8_t *k_cache, *v_cache;
    struct ref_dsa_decode g;
    double value[SEQS * HEADS * RANK], bound[SEQS * HEADS * RANK];
};

static uint8_t finite_code(struct test_random *rng)
{
    return ref_e4m3_from_f32((float)test_normal(rng));
}

/* Selection rows with holes anywhere: full, half and a few of the tokens. */
static void draw(struct test_case *t, uint64_t seed)
{
    struct test_random rng = {seed};
    memset(t, 0, sizeof *t);
    for (int i = 0; i < SEQS * HEADS * RANK; i++) t->q[i] = ref_bf16_from_f64(test_normal(&rng));
    for (int s = 0; s < SEQS; s++) {
        for (int token = 0; token < TOKENS; token++) {
            for (int c = 0; c < RANK; c++) {
                t->k[s][token][c] = finite_code(&rng);
                t->v[s][token][c] = finite_code(&rng);
            }
        }
        t->lens[s] = s == 0 ? TOKENS : s == 1 ? 17 : 5;
        for (int i = 0; i < WIDTH; i++) {
            int32_t id = (int32_t)((i * 7 + s) % TOKENS); /* distinct: 7 and 40 are coprime */
            t->sel[s * WIDTH + i] = i % 5 == 3 ? -1 : id;
        }
    }
    t->g = (struct ref_dsa_decode){.q = t->q,
                                   .block_tables = t->tables,
                                   .seq_lens = t->lens,
                                   .sel_indices = t->sel,
                                   .num_seqs = SEQS,
                                   .sel_rows = SEQS,
                                   .width = WIDTH,
                                   .max_blocks_per_seq = BLOCKS,
                                   .num_q_heads = HEADS,
                                   .num_kv_heads = 1,
                                   .kv_lora_rank = RANK,
                                   .index_kpool = 4,
                                   .num_pages = PAGES,
                                   .scale = 0.044194174f,
                                   .k_scale = 0.37f,
                                   .v_scale = 0.53f};
}

/* Whether the row of sequence s attends the token. */
static bool attends(const struct test_case *t, int s, int32_t token)
{
    for (int i = 0; i < WIDTH; i++)
        if (t->sel[s * WIDTH + i] == token) return token >= 0 && token < t->lens[s];
    return false;
}

/* Everything no row attends stays poison: NaN codes, and table entries that point nowhere. */
static void lay_out(struct test_case *t, struct layout layout, uint8_t poison)
{
    struct ref_dsa_decode *g = &t->g;
    g->block_size = layout.block_size;
    g->cache_stride_bytes = (uint64_t)layout.block_size * RANK + layout.pitch_extra;
    size_t bytes = g->cache_stride_bytes * PAGES;
    t->k_cache = malloc(bytes);
    t->v_cache = layout.two_caches ? malloc(bytes) : t->k_cache;
    memset(t->k_cache, poison, bytes);
    memset(t->v_cache, poison, bytes);
    for (int i = 0; i < SEQS * BLOCKS; i++) t->tables[i] = INT32_MIN + i;
    for (int s = 0; s < SEQS; s++) {
        for (int32_t token = 0; token < t->lens[s]; token++) {
            if (!attends(t, s, token)) continue;
            int block = token / (int)layout.block_size;
            int page = s * BLOCKS + block;
            if (layout.shuffled) page = (page * 37 + 11) % PAGES;
            t->tables[s * BLOCKS + block] = page;
            size_t at =
                (size_t)page * g->cache_stride_bytes + (size_t)token % layout.block_size * RANK;
            memcpy(t->k_cache + at, t->k[s][token], RANK);
            memcpy(t->v_cache + at, layout.two_caches ? t->v[s][token] : t->k[s][token], RANK);
        }
    }
    g->k_cache = t->k_cache;
    g->v_cache = t->v_cache;
}

static void drop(struct test_case *t)
{
    if (t->v_cache != t->k_cache) free(t->v_cache);
    free(t->k_cache);
}

static void run_with(struct test_case *t, struct layout layout, uint8_t poison)
{
    struct ref_refusal why;
    lay_out(t, layout, poison);
    cr_assert(ref_dsa_decode_accepts(&t->g, &why), "%s", why.text);
    ref_dsa_decode(&t->g, &default_model, t->value, t->bound);
    drop(t);
}

static const struct layout plain = {.block_size = 4};

/* By hand. One coordinate of q and k is not 0: q 1, k 0 and 1 (code 0x38), so with scale*k_scale =
 * s the weights are 1 and e^s. Values in coordinate 1: 3 (0x44) and -3 (0xc4). */
Test(dsa_decode, two_tokens_by_hand)
{
    static struct test_case t;
    draw(&t, 1);
    memset(t.k, 0, sizeof t.k);
    memset(t.v, 0, sizeof t.v);
    memset(t.q, 0, sizeof t.q);
    for (int row = 0; row < SEQS * HEADS; row++) t.q[row * RANK] = ref_bf16_from_f32(1);
    for (int s = 0; s < SEQS; s++) {
        t.k[s][5][0] = 0x38;
        t.v[s][2][1] = 0x44;
        t.v[s][5][1] = 0xc4;
        for (int i = 0; i < WIDTH; i++) t.sel[s * WIDTH + i] = -1;
        t.sel[s * WIDTH + 9] = 5;
        t.sel[s * WIDTH + 4] = 2;
        t.lens[s] = 6;
    }
    t.lens[2] = 5; /* token 5 is not there yet */
    t.g.scale = 0.5f;
    t.g.k_scale = 3.0f;
    t.g.v_scale = 0.25f;
    run_with(&t, (struct layout){.block_size = 4, .two_caches = true}, 0x7f);
    double weight = exp(1.5), want = 0.25 * (3 - 3 * weight) / (1 + weight);
    for (int row = 0; row < 2 * HEADS; row++) {
        cr_assert(fabs(t.value[row * RANK + 1] / want - 1) < 1e-15);
        cr_assert_eq(t.value[row * RANK], 0);
        cr_assert_eq(t.value[row * RANK + 2], 0);
    }
    cr_assert_eq(t.value[2 * HEADS * RANK + 1], 0.75); /* token 2 alone: 3 * 0.25 */
}

/* The definition in a few lines: every token of the sequence, masked by membership. */
static double by_definition(const struct test_case *t, bool two, int s, int h, int c)
{
    const uint16_t *q = t->q + (s * HEADS + h) * RANK;
    double sum = 0, weights = 0;
    for (int32_t token = 0; token < t->lens[s]; token++) {
        if (!attends(t, s, token)) continue;
        double dot = 0;
        for (int i = 0; i < RANK; i++)
            dot += (double)ref_bf16_to_f32(q[i]) * (double)ref_e4m3_to_f32(t->k[s][token][i]);
        double weight = exp((double)t->g.scale * (double)t->g.k_scale * dot);
        const uint8_t *value = two ? t->v[s][token] : t->k[s][token];
        sum += weight * (double)ref_e4m3_to_f32(value[c]);
        weights += weight;
    }
    return weights > 0 ? (double)t->g.v_scale * sum / weights : 0;
}

Test(dsa_decode, agrees_with_the_definition)
{
    static struct test_case t;
    for (int round = 0; round < 4; round++) {
        draw(&t, 20 + (uint64_t)round);
        run_with(&t, (struct layout){.block_size = 8, .two_caches = round & 1}, 0xff);
        for (int s = 0; s < SEQS; s++)
            for (int h = 0; h < HEADS; h++)
                for (int c = 0; c < RANK; c += 37) {
                    double got = t.value[(s * HEADS + h) * RANK + c];
                    double want = by_definition(&t, round & 1, s, h, c);
                    cr_assert(fabs(got - want) < 1e-13, "%d %d %d: %g, not %g", s, h, c, got, want);
                }
    }
}

static void expect_same(const struct test_case *a, const struct test_case *b, const char *what)
{
    cr_assert(!memcmp(a->value, b->value, sizeof a->value), "%s: other values", what);
    cr_assert(!memcmp(a->bound, b->bound, sizeof a->bound), "%s: other bounds", what);
}

/* Where the tokens lie does not matter, nor what lies beside them. */
Test(dsa_decode, layout_and_poison_do_not_matter)
{
    static const struct layout layouts[] = {
        {.block_size = 4, .shuffled = true},
        {.block_size = 16, .shuffled = true},
        {.block_size = 64},
        {.block_size = 12, .pitch_extra = 256, .shuffled = true},
    };
    static struct test_case base, other;
    for (int two = 0; two < 2; two++) {
        draw(&base, 3);
        struct layout first = plain;
        first.two_caches = two;
        run_with(&base, first, 0x7f);
        for (int i = 0; i < 4; i++) {
            struct layout layout = layouts[i];
            layout.two_caches = two;
            draw(&other, 3);
            run_with(&other, layout, i & 1 ? 0xff : 0x7e);
            expect_same(&base, &other, "layout");
        }
    }
    for (size_t i = 0; i < SEQS * HEADS * RANK; i++) cr_assert(isfinite(base.value[i]));
}

/* The row is a set: order, holes, duplicates and ids outside the sequence change nothing. */
Test(dsa_decode, the_row_is_a_set)
{
    static struct test_case base, other;
    draw(&base, 4);
    run_with(&base, plain, 0x7f);
    draw(&other, 4);
    for (int s = 0; s < SEQS; s++) {
        int32_t *row = other.sel + s * WIDTH;
        for (int i = 0; i < WIDTH / 2; i++) {
            int32_t moved = row[i];
            row[i] = row[WIDTH - 1 - i];
            row[WIDTH - 1 - i] = moved;
        }
    }
    run_with(&other, plain, 0x7f);
    expect_same(&base, &other, "reversed");
    static const int32_t nothing[] = {-1, -7, INT32_MIN, INT32_MAX, TOKENS};
    for (int s = 0; s < SEQS; s++) {
        for (int i = 0, k = 0; i < WIDTH; i++)
            if (other.sel[s * WIDTH + i] == -1) other.sel[s * WIDTH + i] = nothing[k++];
    }
    run_with(&other, plain, 0x7f);
    expect_same(&base, &other, "other holes");
    lay_out(&other, plain, 0x7f);
    for (int s = 0; s < SEQS; s++) other.sel[s * WIDTH + 20] = other.sel[s * WIDTH + 23];
    memcpy(base.sel, other.sel, sizeof base.sel);
    ref_dsa_decode(&other.g, &default_model, other.value, other.bound);
    drop(&other);
    for (int s = 0; s < SEQS; s++) base.sel[s * WIDTH + 20] = -1;
    run_with(&base, plain, 0x7f);
    expect_same(&base, &other, "duplicates");
}

Test(dsa_decode, nothing_attended_gives_exact_zeros)
{
    static struct test_case t;
    draw(&t, 5);
    t.lens[0] = 0;
    for (int i = 0; i < WIDTH; i++) {
        t.sel[1 * WIDTH + i] = i & 1 ? -1 : INT32_MIN;
        t.sel[2 * WIDTH + i] = t.lens[2] + i;
    }
    memset(t.value, 0x7f, sizeof t.value);
    memset(t.bound, 0x7f, sizeof t.bound);
    run_with(&t, plain, 0x7f);
    for (size_t i = 0; i < SEQS * HEADS * RANK; i++)
        cr_assert(t.value[i] == 0 && t.bound[i] == 0 && !signbit(t.value[i]));
    t.g.width = 0;
    run_with(&t, plain, 0x7f);
    for (size_t i = 0; i < SEQS * HEADS * RANK; i++) cr_assert(t.value[i] == 0 && t.bound[i] == 0);
}

/* Powers of two: v_scale multiplies the result exactly; scale and k_scale act as their product. */
Test(dsa_decode, scales_act_where_they_should)
{
    static struct test_case base, other;
    draw(&base, 6);
    run_with(&base, plain, 0x7f);
    draw(&other, 6);
    other.g.scale *= 4;
    other.g.k_scale /= 4;
    run_with(&other, plain, 0x7f);
    cr_assert(!memcmp(base.value, other.value, sizeof base.value));
    other.g.v_scale *= 2;
    run_with(&other, plain, 0x7f);
    for (size_t i = 0; i < SEQS * HEADS * RANK; i++)
        cr_assert_eq(other.value[i], 2 * base.value[i]);
    other.g.v_scale = base.g.v_scale;
    other.g.k_scale *= 2;
    run_with(&other, plain, 0x7f);
    cr_assert(memcmp(base.value, other.value, sizeof base.value) != 0);
}

/* A NaN in an attended key spoils its rows, in an attended value its channel, elsewhere nothing. */
Test(dsa_decode, nan_goes_where_it_is_attended)
{
    static struct test_case t;
    draw(&t, 7);
    struct layout layout = {.block_size = 4, .two_caches = true};
    int32_t token = t.sel[0];
    t.v[0][token][100] = 0xff;
    t.k[1][t.sel[WIDTH]][3] = 0x7f;
    run_with(&t, layout, 0x7f);
    for (int h = 0; h < HEADS; h++) {
        for (int c = 0; c < RANK; c++) {
            double first = t.value[h * RANK + c], second = t.value[(HEADS + h) * RANK + c];
            cr_assert_eq(isnan(first), c == 100);
            cr_assert(isnan(second) && t.bound[(HEADS + h) * RANK + c] == 0);
            cr_assert(isfinite(t.value[(2 * HEADS + h) * RANK + c]));
        }
    }
    t.q[2 * HEADS * RANK] = 0x7f80; /* +Inf: attended keys give +-Inf or NaN scores */
    run_with(&t, layout, 0x7f);
    for (int c = 0; c < RANK; c++)
        cr_assert(isnan(t.value[2 * HEADS * RANK + c]) || isinf(t.bound[2 * HEADS * RANK + c]));
}

/* q*k*k_scale leaves the f32 range, the score does not: a kernel may overflow, so nothing is said.
 */
Test(dsa_decode, a_kernel_may_overflow_on_the_way)
{
    static struct test_case t;
    draw(&t, 11);
    for (int i = 0; i < SEQS * HEADS * RANK; i++) t.q[i] = ref_bf16_from_f32(1e28f);
    t.g.scale = 1e-20f;
    t.g.k_scale = 1e10f;
    run_with(&t, plain, 0x7f);
    for (int i = 0; i < SEQS * HEADS * RANK; i++)
        cr_assert(isfinite(t.value[i]) && isinf(t.bound[i]));
    t.g.k_scale = 1e-10f;
    run_with(&t, plain, 0x7f);
    for (int i = 0; i < SEQS * HEADS * RANK; i++) cr_assert(isfinite(t.bound[i]));
}

/* A page beyond 2^32 bytes, without the memory. */
Test(dsa_decode, offsets_beyond_32_bits)
{
    static struct test_case base, t;
    draw(&base, 8);
    base.g.num_seqs = base.g.sel_rows = 1;
    run_with(&base, plain, 0x7f);
    draw(&t, 8);
    t.g.num_seqs = t.g.sel_rows = 1;
    lay_out(&t, plain, 0x7f);
    uint64_t stride = ((uint64_t)1 << 32) / 7 / 16 * 16;
    size_t bytes = stride * 13;
    uint8_t *cache = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    cr_assert(cache != MAP_FAILED);
    for (int page = 0; page < 10; page++)
        memcpy(cache + stride * (uint64_t)(page + 3), t.k_cache + page * t.g.cache_stride_bytes,
               t.g.cache_stride_bytes);
    for (int block = 0; block < 10; block++) t.tables[block] += 3;
    t.g.k_cache = t.g.v_cache = cache;
    t.g.cache_stride_bytes = stride;
    ref_dsa_decode(&t.g, &default_model, t.value, t.bound);
    munmap(cache, bytes);
    drop(&t);
    cr_assert(!memcmp(base.value, t.value, HEADS * RANK * sizeof(double)));
}

/* A kernel of one of the simulated kinds on one row of the case. */
static void kernel_row(const struct test_case *t, const struct sim *sim, int s, int h, int order,
                       struct test_random *rng, float *out)
{
    static float values[TOKENS * RANK], score[TOKENS], q[RANK], k[RANK];
    size_t n = 0;
    ref_bf16_to_f32_n(t->q + (s * HEADS + h) * RANK, RANK, q);
    for (int i = 0; i < WIDTH; i++) {
        int32_t token = t->sel[s * WIDTH + i];
        if (token < 0 || token >= t->lens[s]) continue;
        ref_e4m3_to_f32_n(t->k[s][token], RANK, k);
        ref_e4m3_to_f32_n(t->v[s][token], RANK, values + n * RANK);
        if (order & 1) { /* keys dequantised first, then the scale */
            for (int c = 0; c < RANK; c++) k[c] *= t->g.k_scale;
            score[n++] = sim_dot(q, k, RANK, order) * t->g.scale;
        } else {
            float dot = sim->tensor_core ? sim_tensor_dot(q, k, RANK) : sim_dot(q, k, RANK, order);
            score[n++] = dot * (t->g.scale * t->g.k_scale);
        }
    }
    sim_softmax(sim, rng, score, values, n, RANK, RANK, NULL, out);
}

Test(dsa_decode, honest_kernels_keep_the_bound)
{
    static const struct sim kernels[] = {
        {.splits = 8, .strided = true, .tile = 1, .exp_ulp = 2.5, .exp_error = SIM_EXP_UP},
        {.splits = 1, .exp_ulp = 0.5, .fma = true, .dequantise = true},
        {.splits = 4, .tile = 2, .exp_ulp = 2.5, .log2_domain = true, .reciprocal = true},
        {.splits = 1, .exp_ulp = 1, .exp_error = SIM_EXP_ALTERNATE, .normalise_first = true},
    };
    static struct test_case t;
    static float out[RANK];
    struct test_random rng = {13};
    double worst = 0;
    for (int round = 0; round < 10; round++) {
        draw(&t, 100 + (uint64_t)round);
        if (round & 1) t.g.scale *= 8; /* peaked */
        run_with(&t, (struct layout){.block_size = 4, .two_caches = true}, 0x7f);
        for (int i = 0; i < 4 * SEQS * HEADS * SIM_DOT_ORDERS; i++) {
            struct sim sim = kernels[i % 4];
            int row = i / 4 % (SEQS * HEADS), order = i / 4 / (SEQS * HEADS);
            sim.value_scale = t.g.v_scale;
            kernel_row(&t, &sim, row / HEADS, row % HEADS, order, &rng, out);
            for (int c = 0; c < RANK; c++) {
                double error = fabs((double)out[c] - t.value[row * RANK + c]);
                double bound = t.bound[row * RANK + c];
                cr_assert(error <= bound, "kernel %d, row %d, channel %d: %g off, bound %g", i % 4,
                          row, c, error, bound);
                worst = fmax(worst, error / bound);
            }
        }
    }
    cr_log_info("decode kernels use %.4f of their bound", worst);
    cr_assert(worst > 0.005, "%g", worst);
}

/* Scores and values on tensor cores, weights in two bf16 parts; every product of one sign, so that
 * truncation always errs the same way, every other round. */
Test(dsa_decode, tensor_core_kernels_keep_the_bound)
{
    static const struct sim kernels[] = {
        {.splits = 1, .tile = 16, .exp_ulp = 0.9, .p_bf16 = 2, .tensor_core = true},
        {.splits = 2, .tile = 32, .exp_ulp = 2.5, .p_bf16 = 2, .tensor_core = true},
        {.splits = 1, .tile = 16, .exp_ulp = 0.9, .p_bf16 = 1, .tensor_core = true},
    };
    static struct test_case t;
    static float out[RANK];
    struct test_random rng = {14};
    double worst = 0;
    for (int round = 0; round < 12; round++) {
        draw(&t, 200 + (uint64_t)round);
        struct sim sim = kernels[round % 3];
        struct ref_error_model model = sim_model(&sim);
        if (round & 1) {
            for (int i = 0; i < SEQS * HEADS * RANK; i++) t.q[i] &= 0x7fff;
            for (int i = 0; i < SEQS * TOKENS * RANK; i++) (&t.k[0][0][0])[i] &= 0x7f;
            for (int i = 0; i < SEQS * TOKENS * RANK; i++) (&t.v[0][0][0])[i] &= 0x7f;
        }
        sim.value_scale = t.g.v_scale;
        lay_out(&t, (struct layout){.block_size = 4, .two_caches = true}, 0x7f);
        ref_dsa_decode(&t.g, &model, t.value, t.bound);
        drop(&t);
        for (int row = 0; row < SEQS * HEADS; row++) {
            kernel_row(&t, &sim, row / HEADS, row % HEADS, 0, &rng, out);
            for (int c = 0; c < RANK; c++) {
                double error = fabs((double)out[c] - t.value[row * RANK + c]);
                double bound = t.bound[row * RANK + c];
                cr_assert(error <= bound, "round %d, row %d, channel %d: %g off, bound %g", round,
                          row, c, error, bound);
                worst = fmax(worst, error / bound);
            }
        }
    }
    cr_log_info("tensor-core decode kernels use %.4f of their bound", worst);
    cr_assert(worst > 0.005, "%g", worst);
}

/* Each mistake of real kernels moves some output beyond its bound. */
Test(dsa_decode, wrong_kernels_break_the_bound)
{
    static struct test_case right, wrong;
    static const char *const names[] = {"k_scale for v_scale", "no k_scale",   "scale of 576",
                                        "a token too many",    "a token lost", "K for V"};
    for (int mistake = 0; mistake < 6; mistake++) {
        draw(&right, 9);
        draw(&wrong, 9);
        struct layout layout = {.block_size = 4, .two_caches = true};
        run_with(&right, layout, 0x7f);
        if (mistake == 0) wrong.g.v_scale = wrong.g.k_scale;
        if (mistake == 1) wrong.g.k_scale = 1;
        if (mistake == 2) wrong.g.scale = 1.0f / 24.0f;
        if (mistake == 3) wrong.lens[1]++;
        if (mistake == 3) wrong.sel[WIDTH + 3] = 17; /* the first token past the end */
        if (mistake == 4) wrong.sel[WIDTH] = -1;
        if (mistake == 5) layout.two_caches = false;
        run_with(&wrong, layout, 0x7f);
        int seen = 0;
        for (size_t i = HEADS * RANK; i < 2 * HEADS * RANK; i++)
            seen += fabs(wrong.value[i] - right.value[i]) > right.bound[i];
        cr_assert(seen > HEADS * RANK / 2, "%s: seen in %d", names[mistake], seen);
    }
}
