/* qsa_topk_rows: the best visible blocks of each row, in a strict order (ops.md §1). */
#include <math.h>

#include "harness/ops/qsa_common.h"
#include "harness/ops/top_scores.h"

static const char *const regimes[] = {
    "normal",    "relu_ties", "few_values", "equal",     "cut_tie", "zeros",     "low_bits",
    "top_bits",  "some_nan",  "all_nan",    "infinite",  "lowest",  "minus_inf", "negative",
    "subnormal", "ascending", "descending", "last_best", "bits",    NULL};
enum { SCORE_REGIMES = sizeof regimes / sizeof *regimes - 1 };

static const struct param params[] = {
    COUNT_KEY("rows", "1", "query rows", 1),
    COUNT_KEY("pos", "147", "position of the first", 0),
    COUNT_KEY("ratio", "4", "tokens of a block", 1),
    COUNT_KEY("topk", "8", "blocks to select", 1),
    {"pad", PARAM_OFFSET, false, "+0", -WIDE_OFFSET, WIDE_OFFSET, NULL,
     "columns of a row past the last row's complete blocks", 0},
    {"append", PARAM_INT, true, "0", 0, 1 << 20, NULL, "further visible blocks, all NaN", 0},
    RARE_FLAG_KEY("halve", "scores half as large"),
    ENUM_KEY("regime", "normal", regimes, "scores", 0),
    SEED_KEY,
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

/* Columns that a row does not see are poison: a large one would win. */
static bool fill_scores(const struct filling *f)
{
    struct top_scores scores = top_scores_of(f->c);
    scores.infinite_of = 8;
    for (uint64_t row = 0; row < f->t->shape[0]; row++) {
        uint64_t pos = case_u32(f->c, "pos") + row;
        uint32_t complete = (uint32_t)qsa_complete(pos, case_u32(f->c, "ratio"));
        float *at = (float *)(void *)f->t->data + row * f->t->shape[1];
        top_scores_row(&scores, pos, complete, at);
        for (uint32_t b = 0; b < case_u32(f->c, "append"); b++) at[complete + b] = NAN;
    }
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
    USUAL_TABLES,
    .steps = (const struct step[]){{&interface_qsa_topk_rows}, {0}},
    .wild = "rows pos ratio topk pad",
};
