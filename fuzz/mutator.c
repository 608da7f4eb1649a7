#include <string.h>

#include "fuzz/fuzz.h"
#include "harness/fuzz/mutate.h"

/* The engine's own mutations of bytes; absent where another engine replays or drives. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size) __attribute__((weak));

static size_t mutate_bytes(uint8_t *data, size_t size, size_t max_size)
{
    return LLVMFuzzerMutate ? LLVMFuzzerMutate(data, size, max_size) : size;
}

static const struct op *draw_op(const char *family, struct rng *r)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < op_count; i++) n += fuzz_admits(family, op_table[i]);
    if (!n) fuzz_fail("ATTEST_FUZZ_OP names no operation of this target");
    n = rng_u32(r) % n;
    for (uint32_t i = 0;; i++) {
        if (fuzz_admits(family, op_table[i]) && n-- == 0) return op_table[i];
    }
}

/* The case and what follows it, where both fit; 0 otherwise. */
static size_t put_case(const struct case_line *c, const uint8_t *rest, size_t rest_size,
                       uint8_t *out, size_t max_out)
{
    static char text[CASE_TEXT_MAX];
    size_t length = case_print(c, text, sizeof text);
    if (length + 1 > max_out) return 0;
    if (rest_size > max_out - length - 1) rest_size = max_out - length - 1;
    memmove(out + length + 1, rest, rest_size);
    memcpy(out, text, length);
    out[length] = '\n';
    return length + 1 + rest_size;
}

size_t fuzz_mutate(const struct fuzz_mutation *m, uint8_t *data, size_t size, size_t max_size,
                   unsigned int seed)
{
    static struct case_line c;
    static char text[CASE_TEXT_MAX];
    struct rng r = {seed, 0xf022, 0};
    char error[512];
    const uint8_t *rest;
    size_t rest_size, written;
    if (rng_one_in(&r, m->raw_one_in)) return mutate_bytes(data, size, max_size);
    bool line = fuzz_line(data, size, text, &rest, &rest_size);
    bool known = line && case_parse(text, &c, error, sizeof error) && fuzz_admits(m->family, c.op);
    if (!known || rng_one_in(&r, 64)) mutate_fresh(&c, draw_op(m->family, &r), &r, TIER_QUICK);
    else if (m->wild && c.op->wild && rng_one_in(&r, 2)) op_sample_wild(&c, &r);
    else
        mutate_case(&c, &r, TIER_QUICK);
    written = put_case(&c, rest, rest_size, data, max_size);
    return written ? written : mutate_bytes(data, size, max_size);
}

size_t fuzz_cross(const struct fuzz_mutation *m, const uint8_t *a, size_t a_size, const uint8_t *b,
                  size_t b_size, uint8_t *out, size_t max_out, unsigned int seed)
{
    static struct case_line c, other;
    static char text[CASE_TEXT_MAX];
    struct rng r = {seed, 0xc055, 0};
    char error[512];
    const uint8_t *rest, *other_rest;
    size_t rest_size, other_size;
    if (!fuzz_line(a, a_size, text, &rest, &rest_size) ||
        !case_parse(text, &c, error, sizeof error) || !fuzz_admits(m->family, c.op))
        return 0;
    if (!fuzz_line(b, b_size, text, &other_rest, &other_size) ||
        !case_parse(text, &other, error, sizeof error))
        return 0;
    mutate_cross(&c, &other, &r);
    if (rng_one_in(&r, 2)) {
        rest = other_rest;
        rest_size = other_size;
    }
    return put_case(&c, rest, rest_size, out, max_out);
}
