#include <criterion/criterion.h>
#include <string.h>

#include "qsa.h"
#include "test_qsa.h"

enum { BLOCK = 8, NKV = 2, NQ = 6, HD = 32, TABLE = 12, PAGES = 20, RATIO = 4, TOKEN = NKV * HD };

/* A cache whose every slot is NaN until a token is put in. */
struct scene {
    uint16_t k[PAGES * BLOCK * TOKEN], v[PAGES * BLOCK * TOKEN], q[4 * NQ * HD];
    int32_t table[TABLE], lists[4 * 8];
    double value[4 * NQ * HD], bound[4 * NQ * HD];
};

static void scene_init(struct scene *s)
{
    for (size_t i = 0; i < sizeof s->k / sizeof *s->k; i++) s->k[i] = s->v[i] = TEST_BF16_NAN;
    for (int i = 0; i < TABLE; i++) s->table[i] = (7 * i + 3) % PAGES;
    for (int i = 0; i < 4 * 8; i++) s->lists[i] = -1;
    memset(s->q, 0, sizeof s->q);
}

static size_t slot_of(const struct scene *s, uint32_t token)
{
    return ((size_t)s->table[token / BLOCK] * BLOCK + token % BLOCK) * TOKEN;
}

/* The same number in all channels of one kv head of a token. */
static void put(struct scene *s, uint32_t token, uint32_t head, double k, double v)
{
    size_t at = slot_of(s, token) + head * HD;
    for (int d = 0; d < HD; d++) {
        s->k[at + d] = ref_bf16_from_f64(k);
        s->v[at + d] = ref_bf16_from_f64(v);
    }
}

static struct ref_qsa_prefill_attn prefill_of(const struct scene *s, uint32_t first_pos,
                                              uint32_t rows)
{
    return (struct ref_qsa_prefill_attn){.q = s->q,
                                         .k_cache = s->k,
                                         .v_cache = s->v,
                                         .block_table = s->table,
                                         .lists = s->lists,
                                         .rows = rows,
                                         .table_len = TABLE,
                                         .num_pages = PAGES,
                                         .first_pos = first_pos,
                                         .topk = 8,
                                         .ratio = RATIO,
                                         .block_size = BLOCK,
                                         .nq = NQ,
                                         .nkv = NKV,
                                         .hd = HD,
                                         .inv_sqrt_d = 0.25f};
}

static struct ref_paged_decode_attn decode_of(const struct scene *s, uint32_t seq_len)
{
    return (struct ref_paged_decode_attn){.q = s->q,
                                          .k_cache = s->k,
                                          .v_cache = s->v,
                                          .block_table = s->table,
                                          .table_len = TABLE,
                                          .num_pages = PAGES,
                                          .seq_len = seq_len,
                                          .block_size = BLOCK,
                                          .nq = NQ,
                                          .nkv = NKV,
                                          .hd = HD,
                                          .inv_sqrt_d = 0.25f};
}

/* Row at position 9 of ratio 4: blocks 0 and 1 complete, tail 8 and 9. It lists block 1 only:
 * tokens 4..7 and 8, 9, six of them, with q = 0 equally weighted: v = token gives (4+5+6+7+8+9)/6
 * = 6.5 in kv head 0 and, holding 10 more each, 16.5 in kv head 1. Query heads 0..2 read head
 * 0, 3..5 head 1. Tokens 0..3 and everything behind 9 are NaN. */
Test(qsa_attn, prefill_worked_by_hand)
{
    static struct scene s;
    scene_init(&s);
    for (uint32_t t = 4; t < 10; t++) {
        put(&s, t, 0, 1, t);
        put(&s, t, 1, 1, t + 10);
    }
    s.lists[5] = 1; /* holes before and behind */
    struct ref_qsa_prefill_attn g = prefill_of(&s, 9, 1);
    cr_assert(ref_qsa_prefill_attn_accepts(&g, NULL));
    ref_qsa_prefill_attn(&g, &REF_MODEL_DEFAULT, s.value, s.bound);
    for (int h = 0; h < NQ; h++) {
        for (int d = 0; d < HD; d++) {
            double want = h < 3 ? 6.5 : 16.5;
            cr_assert_float_eq(s.value[h * HD + d], want, 1e-13);
            cr_assert(s.bound[h * HD + d] > 0 && s.bound[h * HD + d] < 1e-4);
        }
    }
}

/* Scores ln 3 apart: q.k = 32 * 0.125 * k, times 1/4 is k. Keys 0 and ln 3, values 8 and 4:
 * (8 + 3*4)/4 = 5; ln 3 is 1.1015625 in bf16: weights 1 and e^1.1015625 = 3.00886. */
Test(qsa_attn, decode_worked_by_hand)
{
    static struct scene s;
    scene_init(&s);
    for (int i = 0; i < NQ * HD; i++) s.q[i] = ref_bf16_from_f64(0.125);
    for (uint32_t h = 0; h < NKV; h++) {
        put(&s, 0, h, 0, 8);
        put(&s, 1, h, 1.1015625, 4);
    }
    struct ref_paged_decode_attn g = decode_of(&s, 2);
    ref_paged_decode_attn(&g, &REF_MODEL_DEFAULT, s.value, s.bound);
    double weight = exp(1.1015625), want = (8 + 4 * weight) / (1 + weight);
    for (int i = 0; i < NQ * HD; i++) cr_assert_float_eq(s.value[i], want, 1e-14);
    cr_assert_float_eq(want, 5, 0.01);
}

Test(qsa_attn, nothing_attended_gives_zero)
{
    static struct scene s;
    scene_init(&s);
    /* Position 11: three complete blocks, no tail, none listed. */
    struct ref_qsa_prefill_attn g = prefill_of(&s, 11, 1);
    for (int i = 0; i < NQ * HD; i++) s.value[i] = s.bound[i] = 9;
    ref_qsa_prefill_attn(&g, &REF_MODEL_DEFAULT, s.value, s.bound);
    for (int i = 0; i < NQ * HD; i++) cr_assert(s.value[i] == 0 && s.bound[i] == 0);
    struct ref_paged_decode_attn d = decode_of(&s, 0);
    for (int i = 0; i < NQ * HD; i++) s.value[i] = s.bound[i] = 9;
    ref_paged_decode_attn(&d, &REF_MODEL_DEFAULT, s.value, s.bound);
    for (int i = 0; i < NQ * HD; i++) cr_assert(s.value[i] == 0 && s.bound[i] == 0);
}

static void put_random(struct scene *s, uint64_t *state, uint32_t token)
{
    size_t at = slot_of(s, token);
    test_fill_bf16(state, 1, TOKEN, s->k + at);
    test_fill_bf16(state, 1, TOKEN, s->v + at);
}

/* Is token t attended by row r at position p? */
static bool attends(const struct scene *s, uint32_t row, uint32_t p, uint32_t t)
{
    if (t > p) return false;
    if (t / RATIO >= (p + 1) / RATIO) return true;
    for (int i = 0; i < 8; i++) {
        if (s->lists[row * 8 + i] == (int32_t)(t / RATIO)) return true;
    }
    return false;
}

/* Plain softmax in long double over a mask. */
static double naive(const struct scene *s, uint32_t row, uint32_t p, uint32_t head, uint32_t d)
{
    long double sum = 0, weighted = 0;
    for (uint32_t t = 0; t <= p; t++) {
        if (!attends(s, row, p, t)) continue;
        size_t at = slot_of(s, t) + head / (NQ / NKV) * HD;
        long double score = 0;
        for (int i = 0; i < HD; i++)
            score += (long double)ref_bf16_to_f32(s->q[(row * NQ + head) * HD + i]) *
                     ref_bf16_to_f32(s->k[at + i]);
        long double weight = expl(score * 0.25L);
        sum += weight;
        weighted += weight * ref_bf16_to_f32(s->v[at + d]);
    }
    return (double)(weighted / sum);
}

/* Four rows across a block edge with lists of their own; tokens no row attends are NaN. */
Test(qsa_attn, prefill_is_masked_attention)
{
    static struct scene s;
    uint64_t state = 3;
    for (uint32_t first_pos = 30; first_pos < 60; first_pos += 7) {
        scene_init(&s);
        test_fill_bf16(&state, 2, 4 * NQ * HD, s.q);
        for (uint32_t r = 0; r < 4; r++) {
            uint32_t complete = (first_pos + r + 1) / RATIO;
            for (uint32_t i = 0; i < 8; i++)
                if ((i + r) % 3) s.lists[r * 8 + i] = (int32_t)((i * 5 + r) % complete);
            for (uint32_t i = 1; i < 8; i++)
                for (uint32_t j = 0; j < i; j++)
                    if (s.lists[r * 8 + i] == s.lists[r * 8 + j]) s.lists[r * 8 + i] = -1;
        }
        for (uint32_t t = 0; t < first_pos + 4; t++) {
            bool any = false;
            for (uint32_t r = 0; r < 4; r++) any |= attends(&s, r, first_pos + r, t);
            if (any) put_random(&s, &state, t);
        }
        struct ref_qsa_prefill_attn g = prefill_of(&s, first_pos, 4);
        cr_assert(ref_qsa_prefill_attn_accepts(&g, NULL));
        ref_qsa_prefill_attn(&g, &REF_MODEL_DEFAULT, s.value, s.bound);
        for (uint32_t r = 0; r < 4; r++)
            for (uint32_t h = 0; h < NQ; h++)
                for (uint32_t d = 0; d < HD; d++)
                    cr_assert_float_eq(s.value[(r * NQ + h) * HD + d],
                                       naive(&s, r, first_pos + r, h, d), 1e-13);
    }
}

/* Gathered tokens, an identity table and plain decode: the same function as prefill under the mask.
 */
Test(qsa_attn, gather_and_decode_equal_prefill)
{
    static struct scene s;
    enum { POS = 38, N = 2 * RATIO + 3 }; /* blocks 2 and 6, tail 36..38 */
    uint64_t state = 4;
    uint16_t k[N * TOKEN], v[N * TOKEN];
    double value[NQ * HD], bound[NQ * HD];
    int32_t sel[N], identity[2] = {0, 1};
    scene_init(&s);
    test_fill_bf16(&state, 2, NQ * HD, s.q);
    s.lists[0] = 6;
    s.lists[1] = 2;
    for (int i = 0; i < N; i++) sel[i] = i < 4 ? 24 + i : i < 8 ? 8 + i - 4 : 36 + i - 8;
    for (int i = 0; i < N; i++) put_random(&s, &state, (uint32_t)sel[i]);
    struct ref_qsa_prefill_attn g = prefill_of(&s, POS, 1);
    ref_qsa_prefill_attn(&g, &REF_MODEL_DEFAULT, s.value, s.bound);
    struct ref_qsa_gather gather = {.k_cache = s.k,
                                    .v_cache = s.v,
                                    .block_table = s.table,
                                    .sel = sel,
                                    .n_sel = N,
                                    .table_len = TABLE,
                                    .num_pages = PAGES,
                                    .seq_len = POS + 1,
                                    .block_size = BLOCK,
                                    .nkv = NKV,
                                    .hd = HD,
                                    .ratio = RATIO};
    ref_qsa_gather(&gather, k, v);
    struct ref_paged_decode_attn d = decode_of(&s, N);
    d.k_cache = k;
    d.v_cache = v;
    d.block_table = identity;
    ref_paged_decode_attn(&d, &REF_MODEL_DEFAULT, value, bound);
    for (int i = 0; i < NQ * HD; i++) cr_assert_float_eq(value[i], s.value[i], 1e-14);
}

/* An f32 decode kernel: running maximum from the last token back, expf, division at the end. */
static float kernel_decode(const struct scene *s, uint32_t seq_len, uint32_t head, uint32_t d)
{
    float max = -INFINITY, sum = 0, weighted = 0;
    for (uint32_t t = seq_len; t-- > 0;) {
        size_t at = slot_of(s, t) + head / (NQ / NKV) * HD;
        float score = 0;
        for (int i = 0; i < HD; i++)
            score =
                fmaf(ref_bf16_to_f32(s->q[head * HD + i]), ref_bf16_to_f32(s->k[at + i]), score);
        score *= 0.25f;
        float larger = fmaxf(score, max), scale = expf(max - larger);
        float weight = expf(score - larger);
        sum = sum * scale + weight;
        weighted = weighted * scale + weight * ref_bf16_to_f32(s->v[at + d]);
        max = larger;
    }
    return weighted / sum;
}

Test(qsa_attn, bound_holds_for_an_online_kernel)
{
    static struct scene s;
    uint64_t state = 6;
    double worst = 0;
    for (int run = 0; run < 12; run++) {
        uint32_t seq_len = 1 + test_below(&state, TABLE * BLOCK);
        scene_init(&s);
        test_fill_bf16(&state, ldexp(1, run % 5), NQ * HD, s.q);
        for (uint32_t t = 0; t < seq_len; t++) put_random(&s, &state, t);
        struct ref_paged_decode_attn g = decode_of(&s, seq_len);
        ref_paged_decode_attn(&g, &REF_MODEL_DEFAULT, s.value, s.bound);
        for (uint32_t h = 0; h < NQ; h++) {
            for (uint32_t d = 0; d < HD; d++) {
                double error = fabs(kernel_decode(&s, seq_len, h, d) - s.value[h * HD + d]);
                cr_assert(error <= s.bound[h * HD + d]);
                worst = fmax(worst, error / s.bound[h * HD + d]);
            }
        }
    }
    cr_assert(worst > 1e-3, "worst err/E %g", worst);
}

/* A dropped token must not hide in the bound: one of 96 carries a hundredth of the weight. */
Test(qsa_attn, bound_sees_one_missing_token)
{
    static struct scene s;
    uint64_t state = 8;
    scene_init(&s);
    for (uint32_t t = 0; t < 96; t++) put_random(&s, &state, t);
    struct ref_paged_decode_attn g = decode_of(&s, 96);
    ref_paged_decode_attn(&g, &REF_MODEL_DEFAULT, s.value, s.bound);
    uint32_t outside = 0;
    for (uint32_t h = 0; h < NQ; h++)
        for (uint32_t d = 0; d < HD; d++)
            outside +=
                fabs(kernel_decode(&s, 95, h, d) - s.value[h * HD + d]) > s.bound[h * HD + d];
    cr_assert(outside > NQ * HD * 9 / 10, "%u of %d", outside, NQ * HD);
}
