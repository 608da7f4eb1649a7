/* Properties every selected row must have (ops.md §2), from the words of the specification: ids are
 * unique and in range, each hole is accounted for, the count is the row's own, the tail has its
 * place. They are proven on what the kernels give and on what the oracle gives, case after case. */
#include <criterion/criterion.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/case/plan.h"
#include "harness/ops/dsa_common.h"
#include "harness/run/run.h"
#include "harness/session/session.h"

TestSuite(dsa_selection, .timeout = 300);

/* One row and what it was made from. */
struct row {
    const int32_t *ids;   /* [width] */
    const uint8_t *valid; /* [len] */
    const float *scores;  /* [pools], or NULL: the order of the pools is not looked at */
    uint32_t len, kpool, topk, width, pools;
    int64_t first_key, pos;
    bool tail, masked;
    bool one_run; /* the valid tokens have none that is invalid between them */
};

static bool is_whole(const struct row *r, int64_t pool)
{
    for (uint32_t s = 0; s < r->kpool; s++) {
        int64_t token = r->first_key + pool * r->kpool + s;
        if (token < 0 || token >= r->len || token > r->pos || !r->valid[token]) return false;
    }
    return true;
}

static bool ranks_before(const struct row *r, int64_t a, int64_t b)
{
    float x = r->scores[a], y = r->scores[b];
    if (isnan(x) || isnan(y)) return isnan(x) && isnan(y) ? a < b : isnan(y);
    return x != y ? x > y : a < b;
}

static const char *ids_fault(const struct row *r)
{
    uint8_t *seen = calloc(r->len + 1, 1);
    const char *fault = seen ? NULL : "no memory";
    for (uint32_t i = 0; i < r->width && !fault; i++) {
        int32_t id = r->ids[i];
        if (id == -1) continue;
        if (id < 0 || (uint32_t)id >= r->len)
            fault = "an id is out of range";
        else if (r->masked)
            fault = "a masked query holds an id";
        else if (seen[id]++ && (r->one_run || !r->tail))
            fault = "an id stands twice";
        else if (r->one_run && id > r->pos)
            fault = "an id lies after the query";
        else if (r->one_run && !r->valid[id])
            fault = "an id is an invalid token";
    }
    free(seen);
    return fault;
}

/* How many pools the row may hold: what is complete, within the budget, at its own length. */
static int64_t row_count(const struct row *r)
{
    int64_t own = r->pos + 1 > r->first_key ? (r->pos + 1 - r->first_key) / r->kpool : 0;
    int64_t all = r->len > r->first_key ? (r->len - r->first_key) / r->kpool : 0;
    int64_t budget = r->topk / r->kpool, least = own < all ? own : all;
    return least < budget ? least : budget;
}

static int64_t tail_count(const struct row *r)
{
    int64_t visible = 0;
    for (int64_t t = 0; t < r->len && t <= r->pos; t++) visible += r->valid[t] != 0;
    return r->tail ? visible % r->kpool : 0;
}

/* The pool in places i*kpool and on: -1 for a hole, -2 for tokens that are no pool. */
static int64_t pool_at(const struct row *r, int64_t i)
{
    const int32_t *ids = r->ids + i * r->kpool;
    int64_t pool = (ids[0] - r->first_key) / r->kpool;
    for (uint32_t s = 0; s < r->kpool; s++) {
        if (ids[0] == -1 ? ids[s] != -1 : ids[s] != r->first_key + pool * r->kpool + s) return -2;
    }
    return ids[0] == -1 ? -1 : pool;
}

/* The pools stand first, best first, each taken one before every one that is left out. */
static const char *pools_fault(const struct row *r, int64_t *taken)
{
    int64_t count = row_count(r), whole = 0, last = -1;
    for (int64_t pool = 0; pool < r->pools; pool++) whole += is_whole(r, pool);
    for (int64_t i = 0; i < count; i++) {
        int64_t pool = pool_at(r, i);
        if (pool == -2) return "a place holds neither a pool nor a hole";
        if (pool == -1) continue;
        if (!is_whole(r, pool)) return "a pool is no candidate";
        if (r->scores && last >= 0 && !ranks_before(r, last, pool)) return "pools are out of order";
        if (r->scores && *taken != i) return "a hole stands before a pool";
        last = pool;
        ++*taken;
    }
    if (!r->scores) return NULL;
    if (*taken != (count < whole ? count : whole)) return "the row-local count is wrong";
    for (int64_t pool = 0; pool < r->pools && last >= 0; pool++) {
        bool held = false;
        for (int64_t i = 0; i < *taken; i++) held |= pool_at(r, i) == pool;
        if (!held && is_whole(r, pool) && ranks_before(r, pool, last))
            return "a better pool was left out";
    }
    return NULL;
}

/* NULL, or the first property the row lacks. */
static const char *row_fault(const struct row *r)
{
    int64_t taken = 0, count = row_count(r), tail = tail_count(r), holes = 0;
    const char *fault = ids_fault(r);
    if (fault || r->masked) return fault;
    if (r->width != r->topk + (r->tail ? r->kpool - 1 : 0)) return "the width is wrong";
    if ((fault = pools_fault(r, &taken))) return fault;
    for (int64_t i = 0; i < tail && r->one_run; i++) {
        if (r->ids[count * r->kpool + i] == -1) return "the tail is not behind the pools";
        if (r->ids[count * r->kpool + i] != r->ids[count * r->kpool] + i)
            return "the tail has gaps";
        if (i == tail - 1 && r->pos < r->len && r->valid[r->pos] &&
            r->ids[count * r->kpool + i] != r->pos)
            return "the tail does not end at the query";
    }
    for (uint32_t i = 0; i < r->width; i++) holes += r->ids[i] == -1;
    if (holes != r->width - taken * r->kpool - tail) return "holes are not accounted for";
    return NULL;
}

static struct verify_context context_of_this_program(void)
{
    static char folder[PATH_MAX];
    cr_assert(session_module_dir("simt", folder, sizeof folder));
    return (struct verify_context){
        .backend = &gpu_backend_simt, .module_dir = folder, .watchdog_ms = 60000};
}

static bool is_one_run(const struct case_line *c)
{
    return case_int(c, "kpool") == 1 || case_enum_is(c, "invalid", "none") ||
           case_enum_is(c, "invalid", "end") || case_enum_is(c, "invalid", "all");
}

/* Kinds of rows met, so that a test that never meets one fails. */
struct met {
    uint32_t rows, masked, empty, holes, tails, short_rows, full;
};

static void meet(struct met *met, const struct row *r)
{
    met->rows++;
    met->masked += r->masked;
    if (r->masked) return;
    met->empty += row_count(r) == 0 && tail_count(r) == 0;
    met->tails += tail_count(r) > 0;
    met->short_rows += row_count(r) < r->topk / r->kpool;
    met->full += row_count(r) == r->topk / r->kpool;
    for (int64_t i = 0; i < row_count(r); i++) {
        if (pool_at(r, i) != -1) continue;
        met->holes++;
        break;
    }
}

static void check_rows(const struct case_line *c, const struct instance *in, const int32_t *ids,
                       const float *scores, const uint8_t *valid, int64_t first, uint32_t pools,
                       const char *who, struct met *met)
{
    const int32_t *q_pos = instance_data(in, "q_pos");
    const uint8_t *q_mask = instance_data(in, "q_mask");
    char text[CASE_TEXT_MAX];
    struct row r = {.valid = valid,
                    .len = case_u32(c, "len"),
                    .kpool = case_u32(c, "kpool"),
                    .topk = case_u32(c, "topk"),
                    .pools = pools,
                    .first_key = first,
                    .tail = case_int(c, "tail"),
                    .one_run = is_one_run(c)};
    r.width = r.topk + (r.tail ? r.kpool - 1 : 0);
    case_print(c, text, sizeof text);
    for (uint32_t row = 0; row < case_u32(c, "rows"); row++) {
        r.ids = ids + (uint64_t)row * r.width;
        r.scores = scores ? scores + (uint64_t)row * pools : NULL;
        r.pos = q_pos[row];
        r.masked = !q_mask[row];
        const char *fault = row_fault(&r);
        meet(met, &r);
        cr_assert_null(fault, "%s, row %u of %s: %s", who, row, text, fault);
    }
}

/* Draws the index-th case, runs it once, asks the oracle, hands both to `check`. */
static void run_case(struct verify_context *x, const struct op *op, uint64_t index,
                     void (*check)(const struct case_line *c, const struct instance *in,
                                   const struct outputs *got, const struct expected *e,
                                   struct met *met),
                     struct met *met)
{
    static struct case_line c;
    static struct result result;
    struct plan plan = {.seed = 4711};
    struct job job = {JOB_CASE, op, 0, index};
    struct instance in;
    struct ref_refusal why;
    struct outputs got;
    struct expected e[INSTANCE_TENSORS_MAX];
    struct run_options options = {GPU_FENCE_AFTER, 0xa5, 0, false};
    char error[300];
    while (op->always[job.index - index]) job.index++; /* the fixed cases come first */
    memset(e, 0, sizeof e);
    memset(&result, 0, sizeof result);
    cr_assert(plan_case(&plan, &job, &c, error, sizeof error), "%s", error);
    instance_init(&in, POISON_NAN);
    cr_assert(op_build(&c, &in));
    if (!op_ref_accepts(&c, &in, &why)) {
        instance_free(&in);
        return;
    }
    cr_assert(run_instance(x, &c, &in, &options, &got, &result), "%s %s", result.check,
              result.text);
    cr_assert(expected_alloc(&in, e));
    op_oracle(&c, &in, op->model, (const uint8_t *const *)got.dense, e);
    check(&c, &in, &got, e, met);
    expected_free(e);
    outputs_free(&got);
    instance_free(&in);
}

static void check_pipeline(const struct case_line *c, const struct instance *in,
                           const struct outputs *got, const struct expected *e, struct met *met)
{
    uint32_t rows = instance_index(in, "rows"), scores = instance_index(in, "scores");
    uint32_t pools = (uint32_t)in->tensors[scores].shape[1];
    /* A NaN score ranks behind pools that are no candidates, so it may leave a hole. */
    bool numbers = !case_enum_is(c, "regime", "specials");
    const float *order = numbers ? (const float *)(const void *)got->dense[scores] : NULL;
    const uint8_t *valid = instance_data(in, "valid");
    check_rows(c, in, (const int32_t *)(const void *)got->dense[rows], order, valid,
               case_int(c, "pad"), pools, "kernel", met);
    check_rows(c, in, (const int32_t *)(const void *)e[rows].exact, order, valid,
               case_int(c, "pad"), pools, "oracle", met);
}

Test(dsa_selection, rows_of_the_pipeline)
{
    struct verify_context x = context_of_this_program();
    const struct op *op = op_find("dsa_decode_pipeline", 19);
    struct met met = {0};
    for (uint64_t i = 0; i < 400; i++) run_case(&x, op, i, check_pipeline, &met);
    verify_close(&x);
    cr_assert(met.masked > 20 && met.empty > 20 && met.tails > 100 && met.short_rows > 100 &&
                  met.full > 100 && met.holes > 20,
              "%u rows: %u masked, %u empty, %u tails, %u short, %u full, %u with holes", met.rows,
              met.masked, met.empty, met.tails, met.short_rows, met.full, met.holes);
}

static void check_expand(const struct case_line *c, const struct instance *in,
                         const struct outputs *got, const struct expected *e, struct met *met)
{
    uint32_t out = instance_index(in, "out"), len = case_u32(c, "len");
    int64_t first = case_int(c, "firstkey");
    struct dsa_keys keys = {.len = len,
                            .pad = case_u32(c, "pad"),
                            .kpool = case_u32(c, "kpool"),
                            .invalid = (enum dsa_invalid)case_int(c, "invalid"),
                            .seed = case_seed(c),
                            .change = case_int(c, "change")};
    uint8_t *valid = malloc(len + 1);
    cr_assert_not_null(valid);
    for (uint32_t t = 0; t < len; t++) valid[t] = dsa_key_valid(&keys, t);
    if (first == -1) first = keys.pad;
    /* A select_k of the case's own choosing is not the budget: nothing to count against. */
    if (case_int(c, "select") < 0) {
        check_rows(c, in, (const int32_t *)(const void *)got->dense[out], NULL, valid, first,
                   len / keys.kpool + 1, "kernel", met);
        check_rows(c, in, (const int32_t *)(const void *)e[out].exact, NULL, valid, first,
                   len / keys.kpool + 1, "oracle", met);
    }
    free(valid);
}

Test(dsa_selection, rows_of_the_expansion)
{
    struct verify_context x = context_of_this_program();
    const struct op *op = op_find("dsa_expand_selection", 20);
    struct met met = {0};
    for (uint64_t i = 0; i < 1500; i++) run_case(&x, op, i, check_expand, &met);
    verify_close(&x);
    cr_assert(met.masked > 100 && met.empty > 20 && met.tails > 500 && met.holes > 500,
              "%u rows: %u masked, %u empty, %u tails, %u with holes", met.rows, met.masked,
              met.empty, met.tails, met.holes);
}

/* A row of two pools of four out of four, with a tail of two: tokens 2..19, first_key 2. */
enum { GOOD_WIDTH = 11 };
static const int32_t good_ids[GOOD_WIDTH] = {10, 11, 12, 13, 2, 3, 4, 5, 18, 19, -1};

static const char *fault_with(int place, int32_t id, int second, int32_t second_id)
{
    static const float scores[] = {1, 0.5f, 2, 0, -FLT_MAX};
    int32_t ids[GOOD_WIDTH];
    uint8_t valid[20];
    struct row r = {.ids = ids,
                    .valid = valid,
                    .scores = scores,
                    .len = 20,
                    .kpool = 4,
                    .topk = 8,
                    .width = GOOD_WIDTH,
                    .pools = 5,
                    .first_key = 2,
                    .pos = 19,
                    .tail = true,
                    .one_run = true};
    for (int t = 0; t < 20; t++) valid[t] = t >= 2;
    memcpy(ids, good_ids, sizeof ids);
    if (place >= 0) ids[place] = id;
    if (second >= 0) ids[second] = second_id;
    return row_fault(&r);
}

Test(dsa_selection, a_wrong_row_is_seen)
{
    static const struct {
        int place, second;
        int32_t id, second_id;
    } wrong[] = {{0, -1, 11, 0},  /* an id twice */
                 {3, -1, 20, 0},  /* beyond the sequence */
                 {3, -1, -2, 0},  /* negative, but no hole */
                 {4, -1, -1, 0},  /* part of a pool missing */
                 {8, 9, -1, -1},  /* no tail */
                 {8, 10, -1, 18}, /* the tail moved by one */
                 {8, 9, 19, 18},  /* the tail in another order */
                 {9, 10, 17, 19}, /* a token of the tail that is no neighbour */
                 {10, -1, 17, 0}, /* one token too many */
                 {10, -1, 1, 0},  /* padding */
                 {0, 4, 2, 10}};  /* the first tokens of two pools exchanged */
    cr_assert_null(fault_with(-1, 0, -1, 0), "%s", fault_with(-1, 0, -1, 0));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        cr_assert_not_null(
            fault_with(wrong[i].place, wrong[i].id, wrong[i].second, wrong[i].second_id),
            "wrong row %zu passed", i);
}

static const char *fault_of_pools(int32_t first, int32_t second)
{
    static const float scores[] = {1, 0.5f, 2, 1, -FLT_MAX};
    int32_t ids[GOOD_WIDTH] = {-1, -1, -1, -1, -1, -1, -1, -1, 18, 19, -1};
    uint8_t valid[20];
    struct row r = {.ids = ids,
                    .valid = valid,
                    .scores = scores,
                    .len = 20,
                    .kpool = 4,
                    .topk = 8,
                    .width = GOOD_WIDTH,
                    .pools = 5,
                    .first_key = 2,
                    .pos = 19,
                    .tail = true,
                    .one_run = true};
    for (int t = 0; t < 20; t++) valid[t] = t >= 2;
    for (int s = 0; s < 4; s++) {
        if (first >= 0) ids[s] = 2 + 4 * first + s;
        if (second >= 0) ids[4 + s] = 2 + 4 * second + s;
    }
    return row_fault(&r);
}

Test(dsa_selection, a_wrong_choice_is_seen)
{
    cr_assert_null(fault_of_pools(2, 0), "%s", fault_of_pools(2, 0));
    cr_assert_str_eq(fault_of_pools(0, 2), "pools are out of order");
    cr_assert_str_eq(fault_of_pools(2, 3), "a better pool was left out"); /* a tie: the lower one */
    cr_assert_str_eq(fault_of_pools(2, 1), "a better pool was left out");
    cr_assert_str_eq(fault_of_pools(2, -1), "the row-local count is wrong");
    cr_assert_str_eq(fault_of_pools(-1, 2), "a hole stands before a pool");
    cr_assert_str_eq(fault_of_pools(2, 2), "an id stands twice");
}

/* The tail counts valid keys. An invalid token between valid ones moves it into a pool that may be
 * selected: the formula itself then holds tokens twice, so the pipeline refuses such cases. */
Test(dsa_selection, an_invalid_token_inside_would_repeat_the_tail)
{
    static const uint8_t valid[8] = {1, 0, 1, 1, 1, 1, 1, 1}, candidates[2] = {0, 1}, mask = 1;
    static const int32_t selected[2] = {1, 0}, pos = 7;
    static const int32_t slots[8] = {0, -1, 2, 3, 4, 5, 6, 7};
    static const int32_t repeated[11] = {4, 5, 6, 7, -1, -1, -1, -1, 4, 5, 6};
    struct ref_dsa_expand_selection g = {.selected = selected,
                                         .pool_indices = slots,
                                         .valid_cand = candidates,
                                         .valid_keys = valid,
                                         .q_pos = &pos,
                                         .q_mask = &mask,
                                         .Q = 1,
                                         .P = 2,
                                         .KP = 4,
                                         .S = 8,
                                         .select_k = 2,
                                         .width = 11,
                                         .index_topk = 8,
                                         .always_tail = 1};
    int32_t row[11];
    ref_dsa_expand_selection(&g, row);
    cr_assert_arr_eq(row, repeated, sizeof row);

    struct case_line c;
    struct ref_refusal why;
    struct gpu_report report;
    char error[300];
    cr_assert(
        case_parse("dsa_decode_pipeline:len=8,topk=8,invalid=scattered", &c, error, sizeof error),
        "%s", error);
    cr_assert_not(op_ref_accepts(&c, NULL, &why));
    cr_assert_str_eq(why.rule, "duplicate_id");
    cr_assert_eq(op_gpu_check(&c, NULL, &report), GPU_REFUSED);
    cr_assert_str_eq(report.rule, "duplicate_id");
    case_set_int(&c, "tail", 0);
    cr_assert(op_ref_accepts(&c, NULL, &why), "%s", why.text);
}
