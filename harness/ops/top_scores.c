#include "harness/ops/top_scores.h"

#include <float.h>
#include <math.h>

#include "harness/case/random.h"
#include "ref/formats.h"

enum { STREAM_SCORE = 1, STREAM_KIND = 2 };

static const char *const names[] = {[SCORES_NORMAL] = "normal",
                                    [SCORES_TIES] = "ties",
                                    [SCORES_EQUAL] = "equal",
                                    [SCORES_LOWEST] = "lowest",
                                    [SCORES_SOME_LOWEST] = "some_lowest",
                                    [SCORES_MINUS_INF] = "minus_inf",
                                    [SCORES_RELU] = "relu",
                                    [SCORES_RELU_TIES] = "relu_ties",
                                    [SCORES_ZEROS] = "zeros",
                                    [SCORES_LOW_BITS] = "low_bits",
                                    [SCORES_TOP_BITS] = "top_bits",
                                    [SCORES_SOME_NAN] = "some_nan",
                                    [SCORES_ALL_NAN] = "all_nan",
                                    [SCORES_INFINITE] = "infinite",
                                    [SCORES_NEGATIVE] = "negative",
                                    [SCORES_SUBNORMAL] = "subnormal",
                                    [SCORES_ASCENDING] = "ascending",
                                    [SCORES_DESCENDING] = "descending",
                                    [SCORES_LAST_BEST] = "last_best",
                                    [SCORES_CUT_TIE] = "cut_tie",
                                    [SCORES_BITS] = "bits"};

struct top_scores top_scores_of(const struct case_line *c)
{
    struct top_scores s = {.seed = case_seed(c), .factor = case_int(c, "halve") ? 0.5f : 1};
    if (case_enum_is(c, "regime", "few_values")) s.regime = SCORES_TIES; /* its other name */
    for (int i = 0; i <= SCORES_BITS; i++) {
        if (case_enum_is(c, "regime", names[i])) s.regime = (enum score_regime)i;
    }
    return s;
}

static float infinite_score(uint32_t at, float normal)
{
    static const float others[] = {INFINITY, -INFINITY, NAN, -FLT_MAX, FLT_MAX};
    return at < 5 ? others[at] : normal;
}

static float score(const struct top_scores *s, uint64_t key, uint32_t i, uint32_t count)
{
    static const uint32_t zeros[] = {0, 0x80000000u, 0, 0x80000000u, 1, 0x80000001u};
    uint64_t at = key << 32 | i;
    uint32_t kind = random_u32(s->seed, STREAM_KIND, at);
    uint32_t word = random_u32(s->seed, STREAM_SCORE, at);
    float normal = (float)random_normal_from(word);
    switch (s->regime) {
    case SCORES_NORMAL:
        break;
    case SCORES_TIES:
        return (float)(word % 12) * 0.25f - 1;
    case SCORES_EQUAL:
        return (float)random_normal_from(random_u32(s->seed, STREAM_SCORE, key << 32));
    case SCORES_LOWEST:
        return -FLT_MAX;
    case SCORES_SOME_LOWEST:
        return kind % (count + 1) < s->select / 2 + 1 ? normal : -FLT_MAX;
    case SCORES_MINUS_INF:
        return kind % 8 ? -INFINITY : normal;
    case SCORES_RELU:
        return kind % 16 ? 0 : normal;
    case SCORES_RELU_TIES:
        return kind % 16 ? 0 : fabsf(normal);
    case SCORES_ZEROS:
        return ref_f32_from_bits(zeros[kind % 6]);
    case SCORES_LOW_BITS:
        return ref_f32_from_bits(0x3fc00000u + word % 9);
    case SCORES_TOP_BITS:
        return ref_f32_from_bits((kind % 5 << 23) + 0x3f812345u);
    case SCORES_SOME_NAN:
        return kind % 4 ? normal : ref_f32_from_bits(0x7f800001u | word);
    case SCORES_ALL_NAN:
        return ref_f32_from_bits(0x7f800001u | word);
    case SCORES_INFINITE:
        return infinite_score(kind % s->infinite_of, normal);
    case SCORES_NEGATIVE:
        return -fabsf(normal);
    case SCORES_SUBNORMAL:
        return ref_f32_from_bits((word & 0x80000000u) | (word & 0x3ff));
    case SCORES_ASCENDING:
        return (float)i - (float)(kind % 2);
    case SCORES_DESCENDING:
        return (float)(count - i) - (float)(kind % 2);
    case SCORES_LAST_BEST:
        return i + 1 == count ? 0.5f : 0.25f;
    case SCORES_CUT_TIE:
        return kind % 3 ? kind % 3 == 1 ? 1 : normal - 4 : 1 + fabsf(normal);
    case SCORES_BITS:
        return ref_f32_from_bits(word);
    }
    return normal;
}

void top_scores_row(const struct top_scores *s, uint64_t key, uint32_t count, float *out)
{
    for (uint32_t i = 0; i < count; i++) out[i] = s->factor * score(s, key, i, count);
}
