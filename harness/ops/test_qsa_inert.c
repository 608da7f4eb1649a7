/* Where QSA's selection does nothing, and what splitting the queries buys.
 *
 * Below the budget of 2,048 tokens every visible token is attended; 2,052 visible tokens are the
 * first that leave some out, exactly 4. The tensor-core scorer holds a query as two bf16 parts; one
 * alone, a plain cast, selects other blocks, and the certificate must say so. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/case/paging.h"
#include "harness/case/random.h"
#include "harness/run/run.h"
#include "harness/session/session.h"
#include "ref/formats.h"
#include "ref/qsa.h"
#include "ref/select.h"

enum { BUDGET_BLOCKS = 512, RATIO = 4, LAST_POSITION = 4200 };

static float normal(uint32_t stream, uint64_t index)
{
    return (float)random_normal_from(random_u32(0x15a, stream, index));
}

/* Marks the tokens a row attends: those of its listed blocks and the tail. Returns how many, each
 * once. */
static uint32_t mark_attended(const int32_t *list, uint32_t topk, uint32_t pos, uint8_t *attended)
{
    uint32_t n = 0, complete = (pos + 1) / RATIO;
    memset(attended, 0, pos + 1);
    for (uint32_t i = 0; i < topk; i++) {
        if (list[i] == -1) continue;
        cr_assert(list[i] >= 0 && (uint32_t)list[i] < complete, "position %u lists block %d", pos,
                  list[i]);
        for (uint32_t t = 0; t < RATIO; t++) attended[(uint32_t)list[i] * RATIO + t] = 1;
    }
    for (uint32_t t = complete * RATIO; t <= pos; t++) attended[t] = 1;
    for (uint32_t t = 0; t <= pos; t++) n += attended[t];
    return n;
}

/* Blocks beyond the budget, four tokens each. */
static uint32_t masked_at(uint32_t pos)
{
    uint32_t complete = (pos + 1) / RATIO;
    return complete > BUDGET_BLOCKS ? RATIO * (complete - BUDGET_BLOCKS) : 0;
}

/* No block that is left out has a higher score than one that is taken. */
static void expect_best(const float *scores, const uint8_t *attended, uint32_t pos)
{
    float worst_taken = INFINITY, best_left = -INFINITY;
    for (uint32_t b = 0; b < (pos + 1) / RATIO; b++) {
        if (attended[b * RATIO])
            worst_taken = fminf(worst_taken, scores[b]);
        else
            best_left = fmaxf(best_left, scores[b]);
    }
    cr_assert(worst_taken >= best_left, "position %u leaves out %g and takes %g", pos,
              (double)best_left, (double)worst_taken);
}

Test(qsa_inert, selection_masks_nothing_below_the_budget_and_four_tokens_at_2052, .timeout = 120)
{
    enum { HEADS = 2, HD = 32, BLOCKS = (LAST_POSITION + 1) / RATIO };
    static uint16_t keys[BLOCKS * HD];
    static float q[HEADS * HD], scores[BLOCKS];
    static uint8_t attended[LAST_POSITION + 1];
    static int32_t list[BUDGET_BLOCKS];
    for (uint32_t i = 0; i < BLOCKS * HD; i++) keys[i] = ref_bf16_from_f32(normal(1, i));
    for (uint32_t pos = 0; pos <= LAST_POSITION; pos++) {
        struct ref_qsa_score_rows score = {.q = q,
                                           .block_keys = keys,
                                           .rows = 1,
                                           .n_blocks_max = BLOCKS,
                                           .first_pos = pos,
                                           .score_stride = BLOCKS,
                                           .ratio = RATIO,
                                           .n_heads = HEADS,
                                           .hd = HD};
        struct ref_qsa_topk_rows topk = {.scores = scores,
                                         .rows = 1,
                                         .first_pos = pos,
                                         .score_stride = BLOCKS,
                                         .ratio = RATIO,
                                         .topk = BUDGET_BLOCKS};
        for (uint32_t i = 0; i < HEADS * HD; i++) q[i] = normal(2, (uint64_t)pos << 16 | i);
        ref_qsa_score_rows(&score, scores);
        ref_qsa_topk_rows(&topk, list);
        uint32_t masked = pos + 1 - mark_attended(list, BUDGET_BLOCKS, pos, attended);
        cr_assert_eq(masked, masked_at(pos), "%u visible tokens, %u masked", pos + 1, masked);
        if (pos + 1 < 2052) cr_assert_eq(masked, 0);
        if (pos + 1 == 2052) cr_assert_eq(masked, 4);
        expect_best(scores, attended, pos);
    }
}

/* The kernels of this build on the CPU backend. */
static void open_context(struct verify_context *x)
{
    static char modules[4096];
    memset(x, 0, sizeof *x);
    cr_assert(session_module_dir("simt", modules, sizeof modules));
    x->backend = &gpu_backend_simt;
    x->module_dir = modules;
    x->watchdog_ms = 60000;
}

static void run_case(struct verify_context *x, const struct case_line *c, struct instance *in,
                     struct outputs *out)
{
    static const struct run_options plain = {GPU_FENCE_AFTER, 0xa5, 0, false};
    static struct result result;
    memset(&result, 0, sizeof result);
    cr_assert(run_instance(x, c, in, &plain, out, &result), "%s: %s", result.check, result.text);
}

static void parse(struct case_line *c, const char *text)
{
    char error[512];
    cr_assert(case_parse(text, c, error, sizeof error), "%s", error);
}

/* Dense attention over every visible token of the case. */
static void dense_attention(const struct case_line *c, const struct instance *in, uint32_t pos,
                            double *value, double *bound)
{
    struct ref_paged_decode_attn g = {.q = instance_data(in, "q"),
                                      .k_cache = instance_data(in, "k_cache"),
                                      .v_cache = instance_data(in, "v_cache"),
                                      .block_table = instance_data(in, "block_table"),
                                      .table_len =
                                          (uint32_t)instance_find(in, "block_table")->elems,
                                      .num_pages = in->pages->num_pages,
                                      .seq_len = pos + 1,
                                      .block_size = case_u32(c, "block"),
                                      .nq = case_u32(c, "nq"),
                                      .nkv = case_u32(c, "nkv"),
                                      .hd = case_u32(c, "hd"),
                                      .inv_sqrt_d = (float)case_real(c, "scale")};
    ref_paged_decode_attn(&g, c->op->model, value, bound);
}

/* Channels of the output that no dense attention could have given. */
static uint32_t outside_dense(const struct case_line *c, const struct instance *in,
                              const struct outputs *out, uint32_t pos)
{
    double value[256], bound[256];
    const uint16_t *got = (const uint16_t *)(const void *)out->dense[instance_index(in, "out")];
    uint32_t n = case_u32(c, "nq") * case_u32(c, "hd"), outside = 0;
    cr_assert(n <= 256);
    dense_attention(c, in, pos, value, bound);
    for (uint32_t i = 0; i < n; i++) {
        float low = ref_bf16_to_f32(ref_bf16_from_f64(value[i] - bound[i]));
        float high = ref_bf16_to_f32(ref_bf16_from_f64(value[i] + bound[i]));
        float g = ref_bf16_to_f32(got[i]);
        outside += !(g >= low && g <= high);
    }
    return outside;
}

/* One position through every kernel of the pipeline. */
static void expect_inert(struct verify_context *x, const char *scorer, uint32_t pos)
{
    static struct case_line c;
    static uint8_t attended[LAST_POSITION + 1];
    struct instance in;
    struct outputs out;
    char text[400];
    snprintf(text, sizeof text,
             "qsa_prefill_pipeline:rows=1,pos=%u,topk=%d,ratio=%d,scorer=%s,heads=4,ihd=128,rot=64,"
             "nq=1,nkv=1,hd=32,seed=0x%x",
             pos, BUDGET_BLOCKS, RATIO, scorer, pos);
    parse(&c, text);
    instance_init(&in, POISON_NAN);
    cr_assert(op_build(&c, &in));
    run_case(x, &c, &in, &out);
    const int32_t *list = (const int32_t *)(const void *)out.dense[instance_index(&in, "lists")];
    uint32_t masked = pos + 1 - mark_attended(list, BUDGET_BLOCKS, pos, attended);
    cr_expect_eq(masked, masked_at(pos), "%s, position %u: %u masked", scorer, pos, masked);
    uint32_t outside = outside_dense(&c, &in, &out, pos);
    if (masked)
        cr_expect_gt(outside, 0, "%s, position %u: as if nothing were masked", scorer, pos);
    else
        cr_expect_eq(outside, 0, "%s, position %u: %u channels are not dense attention", scorer,
                     pos, outside);
    outputs_free(&out);
    instance_free(&in);
}

Test(qsa_inert, kernels_mask_what_the_budget_says, .timeout = 300)
{
    static const uint32_t positions[] = {0,    1,    2,    3,    4,    63,   1023, 2046, 2047,
                                         2048, 2049, 2050, 2051, 2052, 2055, 3071, 4200};
    struct verify_context x;
    open_context(&x);
    for (size_t i = 0; i < sizeof positions / sizeof *positions; i++)
        expect_inert(&x, i % 2 ? "rows" : "tc", positions[i]);
    expect_inert(&x, "tc", 2050);
    expect_inert(&x, "tc", 2051);
    expect_inert(&x, "rows", 2050);
    expect_inert(&x, "rows", 2051);
    verify_close(&x);
}

/* 64 rows that all see the same 1,024 blocks, since a block has as many tokens; 128 are wanted. */
enum { ROWS = 64, BLOCKS = 1024, TOPK = 128, HEADS = 4, HD = 128, WIDE = 64 };
enum { FIRST = BLOCKS * WIDE - 1 };

struct scoring {
    float q[ROWS * HEADS * HD], cast[ROWS * HEADS * HD]; /* cast: rounded to bf16 */
    uint16_t keys[BLOCKS * HD];
    float scores[ROWS * BLOCKS];
    int32_t lists[ROWS * TOPK];
    double value[ROWS * BLOCKS], bound[ROWS * BLOCKS];
};

static struct ref_qsa_score_rows rows_of(const struct scoring *s)
{
    return (struct ref_qsa_score_rows){.q = s->q,
                                       .block_keys = s->keys,
                                       .rows = ROWS,
                                       .n_blocks_max = BLOCKS,
                                       .first_pos = FIRST,
                                       .score_stride = BLOCKS,
                                       .ratio = WIDE,
                                       .n_heads = HEADS,
                                       .hd = HD};
}

/* Scores by the tensor-core kernel, lists by the exact top-k. A query rounded to bf16 has no low
 * half, so the kernel then computes what a plain cast would. */
static void select_by_kernel(struct verify_context *x, struct scoring *s, const float *q)
{
    static struct case_line c;
    struct instance in;
    struct outputs out;
    char text[200];
    snprintf(text, sizeof text, "qsa_score_rows_tc:rows=%d,pos=%d,ratio=%d,blocks=%d", ROWS, FIRST,
             WIDE, BLOCKS);
    parse(&c, text);
    instance_init(&in, POISON_NAN);
    cr_assert(op_build(&c, &in));
    memcpy(instance_data(&in, "q"), q, sizeof s->q);
    memcpy(instance_data(&in, "block_keys"), s->keys, sizeof s->keys);
    run_case(x, &c, &in, &out);
    memcpy(s->scores, out.dense[instance_index(&in, "scores")], sizeof s->scores);
    outputs_free(&out);
    instance_free(&in);
    struct ref_qsa_topk_rows topk = {.scores = s->scores,
                                     .rows = ROWS,
                                     .first_pos = FIRST,
                                     .score_stride = BLOCKS,
                                     .ratio = WIDE,
                                     .topk = TOPK};
    ref_qsa_topk_rows(&topk, s->lists);
}

struct count {
    uint32_t identical, equivalent, wrong;
    double margin; /* least share of its allowance by which a wrong row is beyond it */
};

/* Judges the lists against the exact scores with a scorer's bounds. */
static struct count judge(struct scoring *s, enum ref_qsa_scorer scorer)
{
    static double scratch[4 * BLOCKS];
    struct ref_qsa_score_rows g = rows_of(s);
    struct count n = {.margin = INFINITY};
    ref_qsa_score_rows_bound(&g, scorer, s->value, s->bound);
    for (uint32_t row = 0; row < ROWS; row++) {
        struct ref_select_result r;
        ref_select_judge(s->value + row * BLOCKS, s->bound + row * BLOCKS, BLOCKS, TOPK,
                         s->lists + row * TOPK, TOPK, scratch, &r);
        n.identical += r.verdict == REF_SELECT_IDENTICAL;
        n.equivalent += r.verdict == REF_SELECT_EQUIVALENT;
        n.wrong += r.verdict == REF_SELECT_WRONG;
        if (r.verdict != REF_SELECT_WRONG) continue;
        /* The proof holds by itself: the pair is real and further apart than both errors. */
        const int32_t *list = s->lists + row * TOPK;
        bool taken = false, left_out = false;
        for (uint32_t i = 0; i < TOPK; i++) {
            taken |= (uint32_t)list[i] == r.taken;
            left_out |= (uint32_t)list[i] == r.left_out;
        }
        cr_expect(taken && !left_out && r.gap > r.allowance, "row %u: %s", row, r.text);
        n.margin = fmin(n.margin, r.gap / r.allowance);
    }
    return n;
}

static void say(const char *data, const char *kernel, const char *bounds, struct count n)
{
    fprintf(stderr, "%s, %s queries under %s bounds: %u identical, %u equivalent, %u wrong", data,
            kernel, bounds, n.identical, n.equivalent, n.wrong);
    fprintf(stderr, n.wrong ? " (gap at least %.2f allowances)\n" : "\n", n.margin);
}

/* Prepared queries and pooled keys as the indexer makes them of random inputs. */
static void fill_ordinary(struct scoring *s)
{
    static uint16_t qk[ROWS * HEADS * HD], norm[HD];
    uint16_t *raw = malloc(BLOCKS * WIDE * HD * sizeof *raw);
    cr_assert_not_null(raw);
    for (uint32_t i = 0; i < ROWS * HEADS * HD; i++) qk[i] = ref_bf16_from_f32(normal(3, i));
    for (uint32_t i = 0; i < BLOCKS * WIDE * HD; i++) raw[i] = ref_bf16_from_f32(normal(4, i));
    for (uint32_t i = 0; i < HD; i++) norm[i] = ref_bf16_from_f32(0.25f * normal(5, i));
    struct ref_qsa_qprep_rows qprep = {.qk = qk,
                                       .q_norm_w = norm,
                                       .rows = ROWS,
                                       .first_pos = FIRST,
                                       .qkw = HEADS * HD,
                                       .n_heads = HEADS,
                                       .hd = HD,
                                       .rot = 64,
                                       .theta = 1e7f,
                                       .eps = 1e-6f};
    struct ref_qsa_block_pool pool = {.raw_keys = raw,
                                      .k_norm_w = norm,
                                      .n_new = BLOCKS,
                                      .S = BLOCKS * WIDE,
                                      .max_blocks = BLOCKS,
                                      .ratio = WIDE,
                                      .hd = HD,
                                      .rot = 64,
                                      .theta = 1e7f,
                                      .eps = 1e-6f};
    ref_qsa_qprep_rows(&qprep, s->q);
    ref_qsa_block_pool(&pool, s->keys);
    free(raw);
}

/* Neighbouring channels of a query differ only below bf16's last place, those of a key only in
 * sign: the high halves cancel, and what is left of a score comes from the low ones. */
static void fill_low_halves(struct scoring *s)
{
    for (uint32_t i = 0; i < ROWS * HEADS * HD; i += 2) {
        float high = ref_bf16_to_f32(ref_bf16_from_f32(normal(6, i)));
        s->q[i] = high * (1 + 0x1p-10f * normal(6, i + 1));
        s->q[i + 1] = high;
    }
    for (uint32_t i = 0; i < BLOCKS * HD; i += 2) {
        s->keys[i] = ref_bf16_from_f32(normal(7, i));
        s->keys[i + 1] = s->keys[i] ^ 0x8000;
    }
}

static void cast_queries(struct scoring *s)
{
    for (uint32_t i = 0; i < ROWS * HEADS * HD; i++)
        s->cast[i] = ref_bf16_to_f32(ref_bf16_from_f32(s->q[i]));
}

/* What the kernel with split queries and one with cast queries select. Neither may be wrong by its
 * own bounds; the cast one by those of the split. Returns the cast one's. */
static struct count compare_scorers(struct scoring *s, const char *data)
{
    struct verify_context x;
    open_context(&x);
    cast_queries(s);
    select_by_kernel(&x, s, s->q);
    struct count split = judge(s, REF_SCORER_SPLIT_Q);
    say(data, "split", "split", split);
    select_by_kernel(&x, s, s->cast);
    struct count plain = judge(s, REF_SCORER_SPLIT_Q), own = judge(s, REF_SCORER_PLAIN_BF16);
    say(data, "cast", "split", plain);
    say(data, "cast", "cast", own);
    verify_close(&x);
    cr_expect_eq(split.wrong, 0);
    cr_expect_eq(own.wrong, 0);
    cr_expect_geq(split.identical, plain.identical);
    return plain;
}

Test(qsa_inert, a_plain_cast_of_ordinary_queries_selects_other_blocks, .timeout = 120)
{
    struct scoring *s = malloc(sizeof *s);
    cr_assert_not_null(s);
    fill_ordinary(s);
    struct count plain = compare_scorers(s, "ordinary data");
    /* A swap of blocks that the split cannot tell apart would be equivalent; here is none. */
    cr_expect_gt(plain.wrong, 0);
    cr_expect_eq(plain.identical + plain.wrong, ROWS);
    free(s);
}

Test(qsa_inert, a_plain_cast_is_wrong_in_every_row_where_low_halves_decide, .timeout = 120)
{
    struct scoring *s = malloc(sizeof *s);
    cr_assert_not_null(s);
    fill_low_halves(s);
    struct count plain = compare_scorers(s, "low halves");
    cr_expect_eq(plain.wrong, ROWS);
    free(s);
}
