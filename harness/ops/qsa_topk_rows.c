/* qsa_topk_rows: the best visible blocks of each row, in a strict order (ops.md §1). */
#include <float.h>
#include <math.h>

#include "harness/case/random.h"
#include "harness/ops/qsa_common.h"
#include "ref/formats.h"

enum { STREAM_SCORE = 1, STREAM_KIND = 2 };

/* Scores have regimes of their own: what matters is how they tie and where they lie. */
enum score_regime {
    SCORES_NORMAL,
    SCORES_RELU_TIES,  /* exactly 0 but for one in 16 */
    SCORES_FEW_VALUES, /* a dozen different ones */
    SCORES_EQUAL,      /* all the same */
    SCORES_CUT_TIE,    /* one value on both sides of the place where the list ends */
    SCORES_ZEROS,      /* +0 and -0, which are equal, and the least subnormals */
    SCORES_LOW_BITS,   /* neighbours in the last bits */
    SCORES_TOP_BITS,   /* alike in the low bits, a few different exponents */
    SCORES_SOME_NAN,
    SCORES_ALL_NAN,   /* with different payloads */
    SCORES_INFINITE,  /* both infinities beside numbers, -FLT_MAX and NaN */
    SCORES_LOWEST,    /* all -FLT_MAX */
    SCORES_MINUS_INF, /* -inf but for one in 8 */
    SCORES_NEGATIVE,
    SCORES_SUBNORMAL,
    SCORES_ASCENDING,
    SCORES_DESCENDING,
    SCORES_LAST_BEST, /* the best block is the last one, the rest are equal */
    SCORES_BITS,      /* any bit pattern */
    SCORE_REGIMES
};
static const char *const regimes[] = {
    "normal",    "relu_ties", "few_values", "equal",     "cut_tie", "zeros",     "low_bits",
    "top_bits",  "some_nan",  "all_nan",    "infinite",  "lowest",  "minus_inf", "negative",
    "subnormal", "ascending", "descending", "last_best", "bits",    NULL};

static const struct param params[] = {
    {"rows", PARAM_INT, false, "1", 0, UINT32_MAX, NULL, "query rows", 1},
    {"pos", PARAM_INT, false, "147", 0, UINT32_MAX, NULL, "position of the first", 0},
    {"ratio", PARAM_INT, false, "4", 0, UINT32_MAX, NULL, "tokens of a block", 1},
    {"topk", PARAM_INT, false, "8", 0, UINT32_MAX, NULL, "blocks to select", 1},
    {"pad", PARAM_OFFSET, false, "+0", -(INT64_C(1) << 32), INT64_C(1) << 32, NULL,
     "columns of a row past the last row's complete blocks", 0},
    {"append", PARAM_INT, true, "0", 0, 1 << 20, NULL, "further visible blocks, all NaN", 0},
    {"halve", PARAM_INT, true, "0", 0, 1, NULL, "scores half as large", 0},
    {"regime", PARAM_ENUM, false, "normal", 0, 0, regimes, "scores", 0},
    {"seed", PARAM_SEED, false, "0x1", 0, 0, NULL, "of every byte", 0},
};

static const struct preset presets[] = {{"qwen38", "pos=2600,ratio=4,topk=512"}, {NULL, NULL}};

static const char *const always[] = {
    "qsa_topk_rows:model=qwen38,pos=2046,rows=10,seed=0x38",
    "qsa_topk_rows:pos=1048575,ratio=4,topk=512,regime=low_bits,seed=0x39",
    "qsa_topk_rows:pos=1048575,ratio=4,topk=2048,regime=relu_ties,seed=0x3a",
    "qsa_topk_rows:pos=262143,ratio=4,topk=2047,rows=2,regime=equal,seed=0x3b",
    "qsa_topk_rows:pos=1048575,ratio=4,topk=511,regime=last_best,seed=0x3c",
    NULL};

static const struct number numbers[] = {
    {"first_pos", "pos + append*ratio"},                 /* appended blocks move it */
    {"complete", "rows ? (first_pos + rows)/ratio : 0"}, /* at the last row */
    {"score_stride", "complete + pad"},
    {"quick", "(first_pos + rows + 1)/ratio <= 20000"}, /* enough for relations on the CPU */
};

static float infinite_score(uint32_t kind, float normal)
{
    static const float others[] = {INFINITY, -INFINITY, NAN, -FLT_MAX, FLT_MAX};
    return kind % 8 < 5 ? others[kind % 8] : normal;
}

static float zero_score(uint32_t kind)
{
    static const uint32_t bits[] = {0, 0x80000000u, 0, 0x80000000u, 1, 0x80000001u};
    return ref_f32_from_bits(bits[kind % 6]);
}

/* The row at a position, with its visible blocks. */
struct row {
    enum score_regime regime;
    uint64_t seed, pos;
    uint32_t complete;
};

static float score_of(const struct row *row, uint32_t block)
{
    uint64_t at = row->pos << 32 | block;
    uint32_t kind = random_u32(row->seed, STREAM_KIND, at);
    uint32_t word = random_u32(row->seed, STREAM_SCORE, at);
    float normal = (float)random_normal_from(word), one;
    switch (row->regime) {
    case SCORES_NORMAL:
        break;
    case SCORES_RELU_TIES:
        return kind % 16 ? 0 : fabsf(normal);
    case SCORES_FEW_VALUES:
        return (float)(word % 12) * 0.25f - 1;
    case SCORES_EQUAL:
        one = (float)random_normal_from(random_u32(row->seed, STREAM_SCORE, row->pos << 32));
        return one;
    case SCORES_CUT_TIE:
        return kind % 3 ? kind % 3 == 1 ? 1 : normal - 4 : 1 + fabsf(normal);
    case SCORES_ZEROS:
        return zero_score(kind);
    case SCORES_LOW_BITS:
        return ref_f32_from_bits(0x3fc00000u + word % 9);
    case SCORES_TOP_BITS:
        return ref_f32_from_bits((kind % 5 << 23) + 0x3f812345u);
    case SCORES_SOME_NAN:
        return kind % 4 ? normal : ref_f32_from_bits(0x7f800001u | word);
    case SCORES_ALL_NAN:
        return ref_f32_from_bits(0x7f800001u | word);
    case SCORES_INFINITE:
        return infinite_score(kind, normal);
    case SCORES_LOWEST:
        return -FLT_MAX;
    case SCORES_MINUS_INF:
        return kind % 8 ? -INFINITY : normal;
    case SCORES_NEGATIVE:
        return -fabsf(normal);
    case SCORES_SUBNORMAL:
        return ref_f32_from_bits((word & 0x80000000u) | (word & 0x3ff));
    case SCORES_ASCENDING:
        return (float)block - (float)(kind % 2);
    case SCORES_DESCENDING:
        return (float)(row->complete - block) - (float)(kind % 2);
    case SCORES_LAST_BEST:
        return block + 1 == row->complete ? 0.5f : 0.25f;
    case SCORES_BITS:
        return ref_f32_from_bits(word);
    case SCORE_REGIMES:
        break;
    }
    return normal;
}

/* Columns that a row does not see are poison: a large one would win. */
static void fill_row(const struct case_line *c, uint32_t index, float *out)
{
    uint64_t pos = (uint64_t)case_u32(c, "pos") + index;
    struct row row = {.regime = (enum score_regime)case_int(c, "regime"),
                      .seed = case_seed(c),
                      .pos = pos,
                      .complete = (uint32_t)qsa_complete(pos, case_u32(c, "ratio"))};
    float factor = case_int(c, "halve") ? 0.5f : 1;
    for (uint32_t b = 0; b < row.complete; b++) out[b] = factor * score_of(&row, b);
    for (uint32_t b = 0; b < case_u32(c, "append"); b++) out[row.complete + b] = NAN;
}

static bool fill_scores(const struct filling *f)
{
    for (uint32_t row = 0; row < f->t->shape[0]; row++)
        fill_row(f->c, row, (float *)(void *)f->t->data + row * f->t->shape[1]);
    return true;
}

static const struct array arrays[] = {
    {"scores", ARRAY_POISONED, fill_scores},
    {"lists", ARRAY_EXACT},
};

static void sample(struct case_line *c, struct rng *r, enum tier tier, uint64_t index)
{
    static const int64_t around[] = {32, 64, 256, 512, 1024}, ratios[] = {1, 2, 3, 4, 4, 5, 16};
    uint32_t longest = tier == TIER_FULL ? 20000 : rng_one_in(r, 6) ? 4000 : 700;
    int64_t ratio = rng_pick(r, ratios, 7), complete, pos;
    case_set_int(c, "rows", rng_one_in(r, 3) ? rng_range(r, 2, 5) : 1);
    complete = rng_edge(r, 0, longest, rng_pick(r, around, 5));
    pos = complete * ratio + rng_range(r, -1, ratio - 1);
    if (rng_one_in(r, 6)) {
        pos = rng_range(r, 2046, 2055);
        complete = (pos + 1) / ratio;
    }
    case_set_int(c, "pos", pos < 0 ? 0 : pos);
    case_set_int(c, "ratio", ratio);
    case_set_int(c, "pad", rng_one_in(r, 3) ? 0 : rng_range(r, 1, 40));
    case_set_int(c, "topk", rng_edge(r, 1, rng_one_in(r, 2) ? 40 : 600, rng_pick(r, around, 5)));
    if (rng_one_in(r, 20)) case_set_int(c, "topk", rng_range(r, 2046, 2048));
    /* Every fourth time as many as there are, or one more or less. */
    if (rng_one_in(r, 4) && complete > 1 && complete < 2047)
        case_set_int(c, "topk", complete + rng_range(r, -1, 1));
    case_set_int(c, "regime", (int64_t)(index % SCORE_REGIMES));
    if (case_enum_is(c, "regime", "cut_tie") && complete > 6 && complete < 4000)
        case_set_int(c, "topk", rng_range(r, complete / 3 + 1, complete / 2));
}

static const struct relation relations[] = {
    {QSA_ROW_ALONE},
    {QSA_FIRST_ROWS_DROPPED},
    {"row-width-changed", RELATION_SAME_BITS, NULL, "pad = pad + draw(1, 70)"},
    /* NaN ranks after every number and a tie goes to the lower block, so NaN blocks at the end
     * change nothing as long as there are enough others. */
    {"nan-blocks-appended", RELATION_SAME_BITS, "quick && topk <= (pos + 1)/ratio",
     "append = edge(1, 700, 256)"},
    /* Halving keeps the order where it keeps every difference. */
    {"scores-halved", RELATION_SAME_BITS,
     "quick && !regime.subnormal && !regime.zeros && !regime.bits", "halve = 1"},
    /* A shorter list is the front of a longer one. */
    {"shorter-list-is-front", RELATION_SAME_BITS, "quick && rows == 1 && topk >= 2",
     "topk = draw(1, topk - 1)"},
    {0}};

const struct op op_qsa_topk_rows = {
    .name = "qsa_topk_rows",
    .modules = (const char *const[]){"qsa_indexer", NULL},
    .family = "qsa",
    .summary = "the best visible blocks of each row, in a strict order",
    .contract = CONTRACT_EXACT,
    TABLE(params),
    TABLE(numbers),
    TABLE(arrays),
    .steps = (const struct step[]){{&interface_qsa_topk_rows}, {0}},
    .presets = presets,
    .always = always,
    .relations = relations,
    .wild = "rows pos ratio topk pad",
    .sample = sample,
};
