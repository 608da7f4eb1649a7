/* QSA cases that launcher and oracle must refuse alike, by numbers and by what the index tensors
 * hold. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "harness/session/session.h"
#include "harness/verify/verify.h"

static void parse(struct case_line *c, const char *text)
{
    char error[512];
    cr_assert(case_parse(text, c, error, sizeof error), "%s", error);
}

static void expect_numbers(const char *text, const char *rule)
{
    static struct case_line c;
    bool refused;
    char got[64] = "", why[1200] = "";
    parse(&c, text);
    cr_expect(verify_refusal_agrees(&c, &refused, got, sizeof got, why, sizeof why), "%s: %s", text,
              why);
    cr_expect_eq(refused, rule != NULL, "%s: %s", text, why);
    if (rule) cr_expect_str_eq(got, rule, "%s: %s", text, why);
}

/* One block column a grid row: 65,535 of them fit, 65,536 (262,144 tokens) do not. The kernels that
 * take 64 columns at a time go on. */
Test(qsa_refusals, score_rows_ends_at_65535_blocks)
{
    expect_numbers("qsa_score_rows:rows=1,pos=262143,blocks=65535", NULL);
    expect_numbers("qsa_score_rows:rows=1,pos=262143,blocks=65536", "grid_limit");
    expect_numbers("qsa_score_rows_tiled:rows=1,pos=262143,blocks=65536", NULL);
    expect_numbers("qsa_score_rows_tc:rows=1,pos=262143,blocks=65536", NULL);
    expect_numbers("qsa_score_rows_tc:rows=1,pos=1048575,blocks=262144", NULL);
    expect_numbers("qsa_score:blocks=262144", NULL);
    expect_numbers("qsa_prefill_pipeline:rows=1,pos=262143,scorer=rows", "grid_limit");
    expect_numbers("qsa_prefill_pipeline:rows=1,pos=262143,scorer=tc,ihd=128", NULL);
}

Test(qsa_refusals, numbers)
{
    expect_numbers("qsa_prefill_attn:ratio=4,block=18", "block_size_multiple_of_ratio");
    expect_numbers("qsa_decode_pipeline:ratio=4,block=18", "block_size_multiple_of_ratio");
    expect_numbers("qsa_decode_pipeline:gblock=7", NULL);
    expect_numbers("qsa_topk_rows:topk=2049", "topk_range");
    expect_numbers("qsa_topk_rows:pad=-1", "score_stride");
    expect_numbers("qsa_score_rows_tc:heads=5", "tc_geometry");
    expect_numbers("qsa_qprep_rows:pad=-1", "qkw");
    expect_numbers("qsa_block_pool:spare=-1", "pool_range");
    expect_numbers("qsa_gather:spare=-1", "seq_len_range");
    expect_numbers("paged_decode_attn:scale=nan", "scale_positive");
}

/* Rules that need the tensors: nothing may run, and both sides name the same rule. */
static void expect_refused(const char *text, const char *rule)
{
    static struct case_line c;
    static struct result r;
    static char modules[4096];
    struct verify_context x = {.backend = &gpu_backend_simt, .watchdog_ms = 20000};
    cr_assert(session_module_dir("simt", modules, sizeof modules));
    x.module_dir = modules;
    parse(&c, text);
    verify_case(&x, &c, &r);
    verify_close(&x);
    cr_expect_eq(r.verdict, VERDICT_REFUSED, "%s: %s, %s", text, verdict_names[r.verdict], r.text);
    cr_expect_str_eq(r.check, rule, "%s", text);
    cr_expect_eq(r.kernel_seconds, 0);
}

Test(qsa_refusals, index_tensors)
{
    expect_refused("qsa_gather:fault=table", "block_table_entry");
    expect_refused("qsa_gather:fault=selection", "sel_range");
    expect_refused("qsa_prefill_attn:fault=table", "block_table_entry");
    expect_refused("qsa_prefill_attn:fault=list", "listed_block");
    expect_refused("qsa_prefill_attn:fault=negative", "listed_block");
    expect_refused("qsa_prefill_attn:fault=duplicate", "duplicate_id");
    expect_refused("paged_decode_attn:fault=table", "block_table_entry");
    /* A tail alone uses its page. */
    expect_refused("qsa_prefill_attn:rows=1,pos=1,fault=table", "block_table_entry");
}
