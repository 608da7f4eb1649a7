/* dsa_topk_pools: the best pools of each row of scores (ops.md §2). */
#include <math.h>

#include "harness/ops/dsa_common.h"
#include "harness/ops/top_scores.h"

enum { MAX_SELECT = 8192 }; /* 16 bytes of shared memory each: the next power of two has no room */

static const char *const regimes[] = {
    "normal",    "ties",      "equal",      "lowest",  "some_lowest", "relu",
    "zeros",     "low_bits",  "some_nan",   "all_nan", "infinite",    "negative",
    "subnormal", "ascending", "descending", "cut_tie", "bits",        NULL};
enum { SCORE_REGIMES = sizeof regimes / sizeof *regimes - 1 };

static const struct param params[] = {
    COUNT_KEY("rows", "1", "query rows", 1),
    COUNT_KEY("pools", "37", "scores of a row", 1),
    COUNT_KEY("select", "8", "pools to select", 1),
    RARE_OWN_KEY("np2", "sort size; -1: the power of two not below select"),
    ENUM_KEY("geom", "none", dsa_geom_names, "geometry vector, one row only", 0),
    {"slack", PARAM_INT, true, "2", 0, 4096, NULL, "pools the scalars have more than the vector",
     1},
    {"append", PARAM_INT, true, "0", 0, 1 << 20, NULL, "further pools at the end, all NaN", 0},
    RARE_FLAG_KEY("halve", "scores half as large"),
    RARE_COUNT_KEY("first", "0", "which row comes first", 0),
    RARE_FLAG_KEY("reverse", "rows in reverse order"),
    ENUM_KEY("regime", "normal", regimes, "scores", 0),
    SEED_KEY,
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

static bool fill_scores(const struct filling *f)
{
    const struct case_line *c = f->c;
    uint32_t pools = case_u32(c, "pools"), scored = case_number_u32(c, "scored");
    struct top_scores scores = top_scores_of(c);
    scores.select = case_u32(c, "select");
    scores.infinite_of = 7;
    for (uint32_t row = 0; row < f->t->shape[0]; row++) {
        float *at = (float *)(void *)f->t->data + row * f->t->shape[1];
        top_scores_row(&scores, dsa_row_key(c, row), pools, at);
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
    /* Longer than any list of candidates a kernel can keep, so that it has to cut. */
    bool cut = rng_one_in(r, 8);
    if (cut) pools = (uint32_t)rng_range(r, 2100, 6000);
    uint32_t select = (uint32_t)rng_edge(r, 1, rng_one_in(r, 2) ? 40 : 600, rng_pick(r, around, 5));
    /* Every fourth time as many as there are, or one more or less. */
    if (rng_one_in(r, 4)) select = (uint32_t)rng_range(r, pools > 1 ? pools - 1 : 1, pools + 1);
    if (cut) select = (uint32_t)rng_range(r, 200, 600);
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
    if (cut && !rng_one_in(r, 4)) case_set_enum(c, "regime", "low_bits");
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
    USUAL_TABLES,
    .wild = "rows pools select np2",
    .steps = (const struct step[]){{&interface_dsa_topk_pools}, {0}},
};
