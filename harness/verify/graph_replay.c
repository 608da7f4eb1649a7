#include "harness/verify/graph_replay.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/cuda/cuda_time.h"
#include "harness/judge/compare.h"
#include "harness/run/run.h"

/* Pools of 4 and of 16, tiles of 32 and 64, the budgets of 64 and 128, down to one token and up
 * again, so that each length also follows a longer and a shorter one. */
static const int64_t lengths[] = {330, 329, 1,   3,   4,   5,  37,  31,  32,  33,  63,
                                  64,  65,  66,  67,  68,  69, 127, 128, 129, 130, 131,
                                  132, 255, 256, 257, 300, 2,  328, 16,  330};
enum { LENGTHS = sizeof lengths / sizeof *lengths, REPLAY_PATTERN = 0x5b };

const struct replay_shape replay_shapes[] = {
    {"dsa_kpool_compress:len=330,dim=128,kpool=4,geom=same,seed=0x11", "len", lengths, LENGTHS},
    {"dsa_kpool_compress:len=330,dim=64,kpool=16,geom=same,invalid=scattered,seed=0x12", "len",
     lengths, LENGTHS},
    {"dsa_index_scores:heads=32,dim=128,len=330,kpool=4,geom=same,seed=0x13", "len", lengths,
     LENGTHS},
    {"dsa_topk_pools:pools=330,select=64,geom=same,regime=low_bits,seed=0x14", "pools", lengths,
     LENGTHS},
    {"dsa_expand_selection:len=330,kpool=4,topk=64,tail=1,geom=same,seed=0x15", "len", lengths,
     LENGTHS},
    {"dsa_expand_selection:len=330,kpool=16,topk=128,tail=0,geom=same,seed=0x16", "len", lengths,
     LENGTHS},
    {"dsa_decode_pipeline:heads=4,iheads=4,dim=64,len=330,kpool=4,topk=64,tail=1,geom=same,"
     "seed=0x17",
     "len", lengths, LENGTHS},
    {"dsa_decode_pipeline:heads=2,iheads=2,dim=32,len=330,kpool=16,topk=128,block=32,tail=1,"
     "geom=same,regime=relu_ties,seed=0x18",
     "len", lengths, LENGTHS},
};
const uint32_t replay_shape_count = sizeof replay_shapes / sizeof *replay_shapes;

static const struct run_options plain = {GPU_FENCE_AFTER, 0xa5, 0, false};

struct replay {
    struct verify_context *x;
    const struct case_line *c; /* of the capture */
    struct instance in;
    struct gpu_target targets[OP_MODULES_MAX];
    struct gpu_buffer buffers[INSTANCE_TENSORS_MAX];
    struct gpu_cuda_graph *graph; /* NULL on the CPU backend */
    struct result *r;
};

static bool good(enum gpu_status status, const struct gpu_report *report, struct result *r)
{
    if (status == GPU_OK) return true;
    return result_fail(r, status == GPU_FINDING ? VERDICT_FAIL : VERDICT_ERROR, report->rule,
                       "  %s\n", report->text);
}

static bool launch(struct replay *p)
{
    struct gpu_report report = {{0}, {0}};
    return good(op_launch(p->targets, p->c, &p->in, p->buffers, &report), &report, p->r);
}

/* A first launch loads what is loaded late; then, on the GPU, the capture. */
static bool capture(struct replay *p)
{
    struct gpu_report report = {{0}, {0}};
    if (!run_open(p->x, p->c->op, &plain, p->targets, p->r) ||
        !run_buffers_make(p->x, &p->in, &plain, p->buffers, p->r) || !launch(p))
        return false;
    if (p->x->backend != &gpu_backend_cuda) return true;
    if (!good(gpu_cuda_capture_begin(p->x->device, &report), &report, p->r)) return false;
    bool fine = launch(p);
    enum gpu_status status = gpu_cuda_capture_end(p->x->device, &p->graph, &report);
    return fine && good(status, &report, p->r);
}

static bool again(struct replay *p)
{
    struct gpu_report report = {{0}, {0}};
    if (!p->graph) return launch(p);
    return good(gpu_cuda_replay(p->x->device, p->graph, &report), &report, p->r);
}

/* Puts the data of another length at the front of the captured buffers. */
static bool upload(struct replay *p, const struct instance *in)
{
    if (in->n_tensors != p->in.n_tensors)
        return result_fail(p->r, VERDICT_ERROR, "replay",
                           "  the captured case has no geometry vector\n");
    for (uint32_t i = 0; i < in->n_tensors; i++) {
        const struct tensor *t = &in->tensors[i], *whole = &p->in.tensors[i];
        uint64_t bytes = t->elems * dtype_bytes(t->dtype);
        struct gpu_report report = {{0}, {0}};
        if (t->alias_of >= 0) continue;
        if (strcmp(t->name, whole->name) || t->elems > whole->elems || t->n_extents)
            return result_fail(p->r, VERDICT_ERROR, "replay",
                               "  %s does not fit the captured buffer\n", t->name);
        uint64_t room = whole->elems * dtype_bytes(whole->dtype);
        uint8_t *pattern = t->role == ROLE_OUT ? malloc(room + 1) : NULL;
        if (t->role == ROLE_OUT && !pattern)
            return result_fail(p->r, VERDICT_ERROR, "memory", "  no memory for %s\n", t->name);
        if (pattern) memset(pattern, REPLAY_PATTERN, room);
        enum gpu_status status =
            p->x->backend->upload(p->x->device, &p->buffers[i], 0, pattern ? pattern : t->data,
                                  pattern ? room : bytes, &report);
        free(pattern);
        if (!good(status, &report, p->r)) return false;
    }
    return true;
}

static bool same_output(struct replay *p, const struct tensor *t, uint32_t index,
                        const uint8_t *eager, int64_t length)
{
    struct gpu_report report = {{0}, {0}};
    uint64_t n = tensor_logical_elems(t), bytes = n * dtype_bytes(t->dtype), first = 0;
    uint8_t *got = malloc(bytes + 1);
    char where[160], was[64], is[64];
    if (!got) return result_fail(p->r, VERDICT_ERROR, "memory", "  no memory for %s\n", t->name);
    bool fine =
        good(p->x->backend->download(p->x->device, &p->buffers[index], 0, got, bytes, &report),
             &report, p->r);
    uint64_t differing = fine ? compare_bits(t, eager, got, n, &first) : 0;
    p->r->compared += n;
    if (differing) {
        tensor_describe_index(t, first, where, sizeof where);
        element_print(t->dtype, eager, first, was, sizeof was);
        element_print(t->dtype, got, first, is, sizeof is);
        fine = result_fail(p->r, VERDICT_FAIL, "replay",
                           "  length %" PRId64 ": %" PRIu64 " elements of %s differ; the first is "
                           "[%s]: eager %s, replayed %s\n",
                           length, differing, t->name, where, was, is);
    }
    free(got);
    return fine;
}

static bool judge(struct replay *p, const struct instance *in, const struct outputs *eager,
                  int64_t length)
{
    for (uint32_t i = 0; i < in->n_tensors; i++) {
        const struct tensor *t = &in->tensors[i];
        struct gpu_report report = {{0}, {0}};
        if (t->alias_of >= 0) continue;
        if (!good(p->x->backend->check_guards(p->x->device, &p->buffers[i], &report), &report,
                  p->r))
            return false;
        if (t->role != ROLE_OUT || t->contract == CONTRACT_ANY) continue;
        if (!same_output(p, t, i, eager->dense[i], length)) return false;
    }
    return true;
}

/* The case at another length, with its vector (`given`) or by scalars alone. */
static bool build_at(struct replay *p, const char *key, int64_t length, bool given,
                     struct case_line *c, struct instance *in)
{
    struct ref_refusal why = {{0}, {0}};
    *c = *p->c;
    case_set_int(c, key, length);
    case_set_enum(c, "geom", given ? "same" : "none");
    instance_init(in, POISON_NAN);
    if (!op_ref_accepts(c, NULL, &why))
        return result_fail(p->r, VERDICT_ERROR, why.rule, "  length %" PRId64 ": %s\n", length,
                           why.text);
    return run_build(p->x, c, in, p->r);
}

static bool replay_at(struct replay *p, const char *key, int64_t length)
{
    static struct case_line eager_case, given_case;
    struct instance eager_in, given_in;
    struct outputs eager = {{NULL}};
    bool fine = build_at(p, key, length, false, &eager_case, &eager_in);
    fine = build_at(p, key, length, true, &given_case, &given_in) && fine;
    fine = fine && run_instance(p->x, &eager_case, &eager_in, &plain, &eager, p->r);
    fine = fine && upload(p, &given_in) && again(p) && judge(p, &eager_in, &eager, length);
    outputs_free(&eager);
    instance_free(&eager_in);
    instance_free(&given_in);
    return fine;
}

bool replay_check(struct verify_context *x, const struct replay_shape *shape, struct result *r)
{
    static struct case_line c;
    struct replay p = {.x = x, .c = &c, .r = r};
    char error[512];
    memset(r, 0, sizeof *r);
    if (!case_parse(shape->text, &c, error, sizeof error))
        return result_fail(r, VERDICT_ERROR, "case", "  %s\n", error);
    instance_init(&p.in, POISON_HUGE);
    bool fine = run_build(x, &c, &p.in, r) && capture(&p);
    for (uint32_t i = 0; i < shape->n_lengths && fine; i++)
        fine = replay_at(&p, shape->key, shape->lengths[i]);
    if (p.graph) gpu_cuda_graph_free(x->device, p.graph);
    if (x->device) run_buffers_free(x, &p.in, p.buffers);
    instance_free(&p.in);
    if (fine) r->verdict = VERDICT_PASS;
    return fine;
}
