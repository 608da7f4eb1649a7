#include "harness/bench/shapes.h"

#include <stdlib.h>
#include <string.h>

#include "harness/case/op.h"

const char *const bench_unit_names[] = {
    [BENCH_BYTES] = "-", [BENCH_F32] = "f32", [BENCH_MATRIX] = "matrix"};

/* The first position of the scoring rows is 4*7168 - 1, so that all 7168 blocks are complete. */
#define ROWS_8192 "rows=8192,pos=28671,ratio=4"

const struct bench_shape bench_shapes[] = {
    {"glm5next_dsa_mla_decode_fp8:model=glm53,seqs=128,len=[8192],seed=0x1", NULL, 0},
    {"glm5next_dsa_mla_decode_fp8:model=glm53,seqs=1,len=[131072],seed=0x1", NULL, 0},
    {"dsa_kpool_compress:len=65536,dim=128,kpool=4,seed=0x1", NULL, 0},
    {"dsa_index_scores:model=glm53,len=131072,seed=0x1", NULL, 0},
    {"dsa_index_scores:model=glm53,len=16384,rows=64,seed=0x1", NULL, 0},
    {"dsa_index_scores_tiled:model=glm53,len=131072,seed=0x1", NULL, 0},
    {"dsa_index_scores_tiled:model=glm53,len=16384,rows=64,seed=0x1", NULL, 0},
    {"dsa_topk_pools:rows=1,pools=32768,select=512,seed=0x1", NULL, 0},
    {"dsa_topk_pools:rows=128,pools=4096,select=512,seed=0x1", NULL, 0},
    {"dsa_expand_selection:model=glm53,len=8192,rows=128,seed=0x1", NULL, 0},
    {"dsa_topk_to_mask:width=2051,len=8192,rows=128,seed=0x1", NULL, 0},
    {"dsa_mla_masked_attn:model=glm53,heads=64,len=2600,seed=0x1", NULL, 0},
    {"qsa_block_pool:model=qwen38,new=8192,seed=0x1", NULL, 0},
    {"qsa_qprep:model=qwen38,pos=131071,seed=0x1", NULL, 0},
    {"qsa_qprep_rows:model=qwen38,rows=8192,pos=24576,seed=0x1", NULL, 0},
    {"qsa_score:blocks=65536,heads=4,hd=128,seed=0x1", NULL, 0},
    {"qsa_score_rows:" ROWS_8192 ",blocks=7168,heads=4,hd=128,seed=0x1", NULL, 0},
    {"qsa_score_rows_tiled:" ROWS_8192 ",blocks=7168,heads=4,hd=128,seed=0x1", NULL, 0},
    {"qsa_score_rows_tc:" ROWS_8192 ",blocks=7168,seed=0x1", "qsa_score_rows", 21},
    /* Blocks so long that every row sees exactly 7168 of them. */
    {"qsa_topk_rows:rows=8192,pos=469762047,ratio=65536,topk=512,seed=0x1", NULL, 0},
    {"qsa_gather:len=131072,count=2051,block=16,nkv=2,hd=256,seed=0x1", NULL, 0},
    {"qsa_prefill_attn:model=qwen38,rows=256,pos=32512,seed=0x1", NULL, 0},
    {"paged_decode_attn:nq=24,nkv=2,hd=256,scale=0.0625,block=16,len=2051,seed=0x1", NULL, 0},
};
const uint32_t bench_shape_count = sizeof bench_shapes / sizeof *bench_shapes;

static double tensor_bytes(const struct tensor *t)
{
    return (double)tensor_logical_elems(t) * dtype_bytes(t->dtype);
}

static bool is_cache(const struct tensor *t)
{
    return !strcmp(t->name, "k_cache") || !strcmp(t->name, "v_cache");
}

/* Every tensor once; of a cache nothing, the operation counts what it reads. */
static double plain_bytes(const struct instance *in)
{
    double sum = 0;
    for (uint32_t i = 0; i < in->n_tensors; i++) {
        if (in->tensors[i].alias_of < 0 && !is_cache(&in->tensors[i]))
            sum += tensor_bytes(&in->tensors[i]);
    }
    return sum;
}

/* Attended tokens by the selection; a token's latent is read once where K and V are one buffer. */
static void count_decode(const struct case_line *c, const struct instance *in, struct bench_work *w)
{
    const int32_t *rows = instance_data(in, "sel_indices"), *lens = instance_data(in, "seq_lens");
    uint64_t seqs = instance_find(in, "sel_indices")->shape[0];
    uint64_t width = instance_find(in, "sel_indices")->shape[1], tokens = 0;
    double latent = case_u32(c, "latent"), heads = case_u32(c, "heads");
    for (uint64_t s = 0; s < seqs; s++) {
        for (uint64_t i = 0; i < width; i++) {
            int32_t t = rows[s * width + i];
            tokens += t >= 0 && t < lens[s];
        }
    }
    w->unit = BENCH_F32;
    w->operations = 2 * (double)tokens * heads * latent;
    w->bytes += (double)tokens * latent * (instance_find(in, "v_cache")->alias_of >= 0 ? 1 : 2);
}

/* Tokens of the listed blocks and the tail; a token that several rows list counts once in bytes. */
static void count_prefill(const struct case_line *c, const struct instance *in,
                          struct bench_work *w)
{
    const int32_t *lists = instance_data(in, "lists");
    uint64_t rows = case_u32(c, "rows"), topk = case_u32(c, "topk"), ratio = case_u32(c, "ratio");
    uint64_t end = case_u32(c, "pos") + rows, read = 0, attended = 0;
    double hd = case_u32(c, "hd");
    uint8_t *seen = calloc(end + ratio, 1);
    w->unit = BENCH_F32;
    for (uint64_t r = 0; r < rows && seen; r++) {
        uint64_t visible = case_u32(c, "pos") + r + 1, tail = visible / ratio * ratio;
        for (uint64_t i = 0; i < topk; i++) {
            int32_t block = lists[r * topk + i];
            if (block < 0) continue;
            attended += ratio;
            memset(seen + (uint64_t)block * ratio, 1, ratio);
        }
        attended += visible - tail;
        memset(seen + tail, 1, visible - tail);
    }
    for (uint64_t t = 0; t < end && seen; t++) read += seen[t];
    free(seen);
    w->operations = 2 * (double)attended * case_u32(c, "nq") * hd;
    w->bytes += (double)read * 2 * case_u32(c, "nkv") * hd * 2; /* K and V, bf16 */
}

static void count_scores(const struct case_line *c, const struct instance *in, struct bench_work *w,
                         const char *columns, const char *dim)
{
    const struct tensor *out = instance_find(in, columns);
    w->unit = BENCH_F32;
    w->operations = 2 * (double)tensor_logical_elems(out) * case_u32(c, "heads") * case_u32(c, dim);
}

static void count_paged(const struct case_line *c, struct bench_work *w)
{
    double elements = (double)case_u32(c, "len") * case_u32(c, "hd");
    w->unit = BENCH_F32;
    w->operations = 2 * elements * case_u32(c, "nq");
    w->bytes += elements * case_u32(c, "nkv") * 2 * 2;
}

static void count_masked(const struct case_line *c, const struct instance *in, struct bench_work *w)
{
    const struct tensor *mask = instance_find(in, "mask");
    double attended = 0;
    for (uint64_t i = 0; i < tensor_logical_elems(mask); i++) attended += mask->data[i] == 1;
    w->unit = BENCH_F32;
    w->operations = attended * case_u32(c, "heads") * (case_u32(c, "qdim") + case_u32(c, "vdim"));
}

void bench_count(const struct case_line *c, const struct instance *in, struct bench_work *w)
{
    const char *op = c->op->name;
    *w = (struct bench_work){plain_bytes(in), 0, BENCH_BYTES};
    if (!strcmp(op, "glm5next_dsa_mla_decode_fp8")) count_decode(c, in, w);
    if (!strcmp(op, "qsa_prefill_attn")) count_prefill(c, in, w);
    if (!strcmp(op, "paged_decode_attn")) count_paged(c, w);
    if (!strcmp(op, "dsa_mla_masked_attn")) count_masked(c, in, w);
    if (!strcmp(op, "qsa_score") || !strcmp(op, "qsa_score_rows") ||
        !strcmp(op, "qsa_score_rows_tiled"))
        count_scores(c, in, w, "scores", "hd");
    if (!strcmp(op, "dsa_index_scores") || !strcmp(op, "dsa_index_scores_tiled"))
        count_scores(c, in, w, "out", "dim");
    if (!strcmp(op, "qsa_score_rows_tc")) {
        count_scores(c, in, w, "scores", "hd"); /* two products an element: the query's two parts */
        w->unit = BENCH_MATRIX;
    }
    if (!strcmp(op, "qsa_gather")) /* the caches' rows, as large as the outputs */
        w->bytes +=
            tensor_bytes(instance_find(in, "k_out")) + tensor_bytes(instance_find(in, "v_out"));
}
