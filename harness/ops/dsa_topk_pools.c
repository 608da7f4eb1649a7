/* dsa_topk_pools: the best pools of each row of scores (ops.md §2). */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/ops/dsa_common.h"
#include "ref/formats.h"

enum { STREAM_SCORE = 1, STREAM_KIND = 2 };
enum { MAX_SELECT = 8192 }; /* 16 bytes of shared memory each: the next power of two has no room */

/* Scores have regimes of their own: what matters is how they tie and where they lie. */
enum score_regime {
    SCORES_NORMAL,
    SCORES_TIES,        /* a dozen different values */
    SCORES_EQUAL,       /* all the same */
    SCORES_LOWEST,      /* no candidates: all -FLT_MAX */
    SCORES_SOME_LOWEST, /* most -FLT_MAX, fewer candidates than wanted */
    SCORES_RELU,        /* most exactly 0, some above and below */
    SCORES_ZEROS,       /* +0 and -0, which are equal, and the least subnormals */
    SCORES_LOW_BITS,    /* neighbours in the last bits */
    SCORES_SOME_NAN,
    SCORES_ALL_NAN,  /* with different payloads */
    SCORES_INFINITE, /* both infinities beside numbers, -FLT_MAX and NaN */
    SCORES_NEGATIVE,
    SCORES_SUBNORMAL,
    SCORES_ASCENDING,
    SCORES_DESCENDING,
    SCORES_CUT_TIE, /* one value on both sides of the place where the list ends */
    SCORES_BITS,    /* any bit pattern */
    SCORE_REGIMES
};
static const char *const regimes[] = {
    "normal",    "ties",      "equal",      "lowest",  "some_lowest", "relu",
    "zeros",     "low_bits",  "some_nan",   "all_nan", "infinite",    "negative",
    "subnormal", "ascending", "descending", "cut_tie", "bits",        NULL};

static const struct param params[] = {
    {"rows", PARAM_INT, false, "1", 0, UINT32_MAX, NULL, "query rows", 1},
    {"pools", PARAM_INT, false, "37", 0, UINT32_MAX, NULL, "scores of a row", 1},
    {"select", PARAM_INT, false, "8", 0, UINT32_MAX, NULL, "pools to select", 1},
    {"np2", PARAM_INT, true, "-1", -1, UINT32_MAX, NULL,
     "sort size; -1: the power of two not below select", -1},
    {"geom", PARAM_ENUM, false, "none", 0, 0, dsa_geom_names, "geometry vector, one row only", 0},
    {"slack", PARAM_INT, true, "2", 0, 4096, NULL, "pools the scalars have more than the vector",
     1},
    {"append", PARAM_INT, true, "0", 0, 1 << 20, NULL, "further pools at the end, all NaN", 0},
    {"halve", PARAM_INT, true, "0", 0, 1, NULL, "scores half as large", 0},
    {"first", PARAM_INT, true, "0", 0, UINT32_MAX, NULL, "which row comes first", 0},
    {"reverse", PARAM_INT, true, "0", 0, 1, NULL, "rows in reverse order", 0},
    {"regime", PARAM_ENUM, false, "normal", 0, 0, regimes, "scores", 0},
    {"seed", PARAM_SEED, false, "0x1", 0, 0, NULL, "of every byte", 0},
};

static const struct preset presets[] = {{"glm53", "pools=650,select=512"}, {NULL, NULL}};

static const char *const always[] = {
    "dsa_topk_pools:model=glm53,rows=2,regime=ties,seed=0x53",
    "dsa_topk_pools:pools=262144,select=512,regime=low_bits,seed=0x54",
    "dsa_topk_pools:pools=262144,select=512,regime=relu,seed=0x55",
    "dsa_topk_pools:pools=65537,select=2048,rows=2,regime=equal,seed=0x57",
    "dsa_topk_pools:pools=9000,select=8192,regime=normal,seed=0x58",
    NULL};

static const struct number numbers[] = {
    {"Q", "rows"},
    {"scored", "pools + append"}, /* pools that the kernel ranks */
    {"selected_k", "select"},
    {"np2", "np2 < 0 ? pow2(select) : np2"},
    {"slack", "geom.shorter ? slack : 0"},
    {"P", "scored + slack"},
    {"select_k", "selected_k + slack"},
    {"NP2", "geom.shorter ? max(pow2(select_k), np2) : np2"},
    {"quick", "pools <= 20000"}, /* enough for relations on the CPU */
};

static float infinite_score(uint32_t kind, float normal)
{
    switch (kind % 7) {
    case 0:
        return INFINITY;
    case 1:
        return -INFINITY;
    case 2:
        return NAN;
    case 3:
        return -FLT_MAX;
    case 4:
        return FLT_MAX;
    default:
        return normal;
    }
}

static float zero_score(uint32_t kind)
{
    static const uint32_t bits[] = {0, 0x80000000u, 0, 0x80000000u, 1, 0x80000001u};
    return ref_f32_from_bits(bits[kind % 6]);
}

/* Score `pool` of the row with this key; `select` is how many are wanted of `pools`. */
static float score_of(enum score_regime regime, uint64_t seed, uint64_t key, uint32_t pool,
                      uint32_t pools, uint32_t select)
{
    uint64_t at = key << 32 | pool;
    uint32_t kind = random_u32(seed, STREAM_KIND, at), word = random_u32(seed, STREAM_SCORE, at);
    float normal = (float)random_normal_from(word);
    switch (regime) {
    case SCORES_NORMAL:
        break;
    case SCORES_TIES:
        return (float)(word % 12) * 0.25f - 1;
    case SCORES_EQUAL:
        return (float)random_normal_from(random_u32(seed, STREAM_SCORE, key << 32));
    case SCORES_LOWEST:
        return -FLT_MAX;
    case SCORES_SOME_LOWEST:
        return kind % (pools + 1) < select / 2 + 1 ? normal : -FLT_MAX;
    case SCORES_RELU:
        return kind % 16 == 0 ? normal : 0;
    case SCORES_ZEROS:
        return zero_score(kind);
    case SCORES_LOW_BITS:
        return ref_f32_from_bits(0x3fc00000u + word % 9);
    case SCORES_SOME_NAN:
        return kind % 4 ? normal : ref_f32_from_bits(0x7f800001u | word);
    case SCORES_ALL_NAN:
        return ref_f32_from_bits(0x7f800001u | word);
    case SCORES_INFINITE:
        return infinite_score(kind, normal);
    case SCORES_NEGATIVE:
        return -fabsf(normal);
    case SCORES_SUBNORMAL:
        return ref_f32_from_bits((word & 0x80000000u) | (word & 0x3ff));
    case SCORES_ASCENDING:
        return (float)pool - (float)(kind % 2);
    case SCORES_DESCENDING:
        return (float)(pools - pool) - (float)(kind % 2);
    case SCORES_CUT_TIE:
        return kind % 3 == 0 ? 1 + fabsf(normal) : kind % 3 == 1 ? 1 : normal - 4;
    case SCORES_BITS:
        return ref_f32_from_bits(word);
    case SCORE_REGIMES:
        break;
    }
    return normal;
}

static bool fill_scores(const struct filling *f)
{
    const struct case_line *c = f->c;
    uint32_t pools = case_u32(c, "pools"), scored = case_number_u32(c, "scored");
    float factor = case_int(c, "halve") ? 0.5f : 1;
    for (uint32_t row = 0; row < f->t->shape[0]; row++) {
        float *at = (float *)(void *)f->t->data + row * f->t->shape[1];
        for (uint32_t pool = 0; pool < pools; pool++)
            at[pool] = factor * score_of((enum score_regime)case_int(c, "regime"), case_seed(c),
                                         dsa_row_key(c, row), pool, pools, case_u32(c, "select"));
        for (uint32_t pool = pools; pool < scored; pool++) at[pool] = NAN;
    }
    return true;
}

static const struct array arrays[] = {
    {"scores", ARRAY_POISONED, fill_scores},
    {"selected", ARRAY_EXACT},
    {DSA_GEOM("pools, scored, pools, selected_k, np2")},
};

static void sample(struct case_line *c, struct rng *r, enum tier tier, uint64_t index)
{
    static const int64_t around[] = {32, 64, 256, 512, 1024};
    uint32_t longest = tier == TIER_FULL ? 20000 : 1500;
    uint32_t rows = rng_one_in(r, 3) ? (uint32_t)rng_range(r, 2, 4) : 1;
    uint32_t pools = (uint32_t)rng_edge(r, 1, longest, rng_pick(r, around, 5));
    uint32_t select = (uint32_t)rng_edge(r, 1, rng_one_in(r, 2) ? 40 : 600, rng_pick(r, around, 5));
    /* Every fourth time as many as there are, or one more or less. */
    if (rng_one_in(r, 4)) select = (uint32_t)rng_range(r, pools > 1 ? pools - 1 : 1, pools + 1);
    case_set_int(c, "rows", rows);
    case_set_int(c, "pools", pools);
    if (select > MAX_SELECT) select = MAX_SELECT;
    case_set_int(c, "select", select);
    if (rng_one_in(r, 4)) {
        uint64_t np2 = dsa_power_above(select) << rng_range(r, 0, 2);
        case_set_int(c, "np2", np2 > MAX_SELECT ? MAX_SELECT : (int64_t)np2);
    }
    if (case_int(c, "np2") >= 0 && case_int(c, "np2") < select) case_set_int(c, "np2", -1);
    case_set_int(c, "regime", (int64_t)(index % SCORE_REGIMES));
    if (case_enum_is(c, "regime", "cut_tie")) {
        select = (uint32_t)rng_range(r, (pools + 2) / 3, 1 + pools / 2);
        case_set_int(c, "select", select > MAX_SELECT ? MAX_SELECT : select);
        case_set_int(c, "np2", -1);
    }
    if (rng_one_in(r, 4)) {
        case_set_int(c, "rows", 1);
        case_set_int(c, "geom", rng_range(r, 1, 2));
        /* The scalars have slack more to select, too. */
        case_set_int(c, "slack", select > MAX_SELECT - 300 ? 1 : rng_edge(r, 1, 300, 64));
        if (case_int(c, "select") == MAX_SELECT) case_set_enum(c, "geom", "same");
    }
}

static const struct relation relations[] = {
    {DSA_ROWS_REVERSED},
    {DSA_ROW_ALONE},
    /* NaN ranks after every number and a tie goes to the lower pool, so pools of NaN at the end
     * change nothing as long as there are enough others. */
    {"nan-pools-appended", RELATION_SAME_BITS, "quick && select <= pools",
     "append = edge(1, 700, 256)"},
    /* Halving keeps the order where it keeps every difference. */
    {"scores-halved", RELATION_SAME_BITS,
     "quick && !regime.subnormal && !regime.zeros && !regime.bits", "halve = 1"},
    {"np2-doubled", RELATION_SAME_BITS, "quick && np2 <= 4096", "np2 = 2*np2"},
    {DSA_GEOMETRY_DROPPED},
    {0}};

const struct op op_dsa_topk_pools = {
    .name = "dsa_topk_pools",
    .modules = (const char *const[]){"dsa_indexer", NULL},
    .family = "dsa",
    .summary = "the best pools of each row, in a strict order",
    .contract = CONTRACT_EXACT,
    TABLE(params),
    TABLE(numbers),
    TABLE(arrays),
    .presets = presets,
    .always = always,
    .relations = relations,
    .wild = "rows pools select np2",
    .sample = sample,
    .steps = (const struct step[]){{&interface_dsa_topk_pools}, {0}},
};
