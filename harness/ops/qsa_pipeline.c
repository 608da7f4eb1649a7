/* The data and the samples of a QSA pipeline. */
#include "harness/ops/qsa_pipeline.h"

enum { STREAM_RAW = 11, STREAM_QK = 13 };
/* Sampled positions from here on have one attention head: attention is slow on the CPU. */
enum { LONG = 2000 };

const char *const qsa_index_regimes[] = {
    "normal",         "relu_ties", "low_bits",     "equal",     "cancel", "specials",
    "query_specials", "zeros",     "all_negative", "walk",      "needle", "outlier",
    "offset",         "near_eps",  "huge",         "subnormal", "noise",  NULL};
enum { INDEX_REGIMES = sizeof qsa_index_regimes / sizeof *qsa_index_regimes - 1 };

/* Regimes that live on signs keep them: channels that a rotation would mix hold 0. */
static struct qsa_data index_data(const struct case_line *c, uint32_t stream, enum field_kind kind)
{
    struct qsa_data d = qsa_data_make(c, "index", stream, kind, case_u32(c, "ihd"));
    d.f.huge = 0x1p60;
    d.group = case_u32(c, "heads");
    if (qsa_regime_of_signs(c, "index")) d.mute = case_u32(c, "rot");
    return d;
}

/* Raw keys of tokens behind the last complete block are poison. A block of equal raw keys pools to
 * that key: rows are keyed by block where the regime is about blocks. */
bool qsa_pipeline_fill_raw_keys(const struct filling *f)
{
    const struct case_line *c = f->c;
    struct qsa_data d = index_data(c, STREAM_RAW, FIELD_KEY);
    uint64_t ratio = case_u32(c, "ratio"), tokens = case_number_u32(c, "blocks") * ratio;
    int64_t change = case_has(c, "change") ? case_int(c, "change") : -1;
    bool by_block = qsa_regime_of_signs(c, "index");
    for (uint64_t token = 0; token < tokens; token++) {
        uint64_t row = by_block ? token / ratio : token;
        bool changed = change >= 0 && token >= (uint64_t)change;
        qsa_data_store(&d, changed ? qsa_changed_row(row) : row, DTYPE_BF16,
                       f->t->data + 2 * token * d.f.cols);
    }
    return true;
}

bool qsa_pipeline_fill_index_queries(const struct filling *f)
{
    const struct case_line *c = f->c;
    struct qsa_data d = index_data(c, STREAM_QK, FIELD_QUERY);
    uint64_t rows = case_number_u32(c, "rows"), width = case_number_u32(c, "qkw");
    for (uint64_t row = 0; row < rows; row++) {
        for (uint64_t h = 0; h < d.group; h++)
            qsa_data_store(&d, (case_u32(c, "pos") + row) * d.group + h, DTYPE_BF16,
                           f->t->data + 2 * (row * width + h * d.f.cols));
    }
    return true;
}

bool qsa_pipeline_fill_cache(const struct case_line *c, struct instance *in)
{
    return qsa_cache_fill(c, in, NULL, false);
}

/* The position of the last row, and a budget, such that selection just begins to matter, or just
 * does not. */
static void sample_budget(struct case_line *c, struct rng *r, int64_t ratio, int64_t most)
{
    int64_t complete = rng_edge(r, 0, most, 16),
            pos = complete * ratio + rng_range(r, -1, ratio - 2);
    int64_t topk = rng_edge(r, 1, most, 8);
    if (rng_one_in(r, 3)) topk = complete + rng_range(r, -1, 1);
    if (rng_one_in(r, 24)) { /* the released budget of 2,048 tokens, in long blocks */
        pos = rng_range(r, 2046, 2055);
        ratio = rng_one_in(r, 2) ? 128 : 64;
        topk = 2048 / ratio;
    }
    case_set_int(c, "ratio", ratio);
    case_set_int(c, "pos", pos < 0 ? 0 : pos);
    case_set_int(c, "topk", topk < 1 ? 1 : topk);
}

void qsa_pipeline_sample(struct case_line *c, struct rng *r, enum tier tier, uint64_t index)
{
    static const double scales[] = {0.125, 0.17677669, 0.37};
    int64_t most = tier == TIER_FULL ? 150 : 24, ratio = rng_one_in(r, 2) ? 4 : rng_range(r, 1, 6);
    sample_budget(c, r, ratio, most);
    ratio = case_int(c, "ratio");
    case_set_int(c, "block", ratio * rng_range(r, 1, ratio > 32 ? 2 : 64 / ratio));
    case_set_int(c, "heads", rng_range(r, 1, 4));
    case_set_int(c, "ihd", rng_one_in(r, 4) ? 64 : 32);
    qsa_sample_norm(c, r, case_u32(c, "ihd"));
    case_set_int(c, "nkv", rng_range(r, 1, 2));
    case_set_int(c, "nq", case_int(c, "nkv") * (rng_one_in(r, 3) ? 2 : 1));
    case_set_int(c, "hd", rng_one_in(r, 5) ? 64 : 32);
    case_set_real(c, "scale", scales[rng_u32(r) % 3]);
    case_set_enum(c, "index", qsa_index_regimes[index % INDEX_REGIMES]);
    case_set_enum(c, "regime",
                  qsa_attention_regimes[rng_one_in(r, 3) ? rng_u32(r) % QSA_ATTENTION_REGIMES : 0]);
    /* Exact zeros, ties and cancelled sums survive weights that are equal. */
    if (qsa_regime_of_signs(c, "index")) {
        case_set_enum(c, "norm",
                      rng_one_in(r, 2) || case_enum_is(c, "index", "noise") ? "zero" : "random");
        if (case_u32(c, "rot") == case_u32(c, "ihd"))
            case_set_int(c, "rot", case_int(c, "ihd") / 2);
    }
    qsa_sample_pages(c, r, index);
    if (case_int(c, "pos") < LONG) return;
    case_set_int(c, "nq", 1);
    case_set_int(c, "nkv", 1);
}
