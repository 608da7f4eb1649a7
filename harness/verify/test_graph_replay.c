#include <criterion/criterion.h>

#include "harness/session/session.h"
#include "harness/verify/graph_replay.h"

static struct result result;

static bool replay(const struct replay_shape *shape)
{
    struct verify_context x = {.backend = &gpu_backend_simt, .watchdog_ms = 20000};
    char dir[4096];
    cr_assert(session_module_dir("simt", dir, sizeof dir));
    x.module_dir = dir;
    bool fine = replay_check(&x, shape, &result);
    verify_close(&x);
    return fine;
}

Test(graph_replay, selector_at_lengths_on_both_sides_of_pool_and_budget)
{
    static const int64_t lengths[] = {40, 3, 4, 15, 16, 17, 39};
    static const char *const cases[] = {"dsa_kpool_compress:len=40,dim=32,kpool=4,geom=same",
                                        "dsa_index_scores:len=40,geom=same",
                                        "dsa_expand_selection:len=40,kpool=4,topk=16,geom=same",
                                        "dsa_decode_pipeline:len=40,kpool=4,topk=16,geom=same"};
    for (int i = 0; i < 4; i++) {
        struct replay_shape shape = {cases[i], "len", lengths, 7};
        cr_expect(replay(&shape), "%s: %s", cases[i], result.text);
        cr_expect_eq(result.verdict, VERDICT_PASS);
        cr_expect_gt(result.compared, 0);
    }
}

/* Without a vector the capture's scalars decide, and nothing could be said about another length. */
Test(graph_replay, a_capture_without_a_vector_is_no_pass)
{
    static const int64_t lengths[] = {40, 20};
    struct replay_shape shape = {"dsa_index_scores:len=40,geom=none", "len", lengths, 2};
    cr_expect(!replay(&shape));
    cr_expect_eq(result.verdict, VERDICT_ERROR, "%s", result.text);
}

Test(graph_replay, a_length_past_the_captured_buffers_is_no_pass)
{
    static const int64_t lengths[] = {60};
    struct replay_shape shape = {"dsa_topk_pools:pools=40,geom=same", "pools", lengths, 1};
    cr_expect(!replay(&shape));
    cr_expect_eq(result.verdict, VERDICT_ERROR, "%s", result.text);
}
