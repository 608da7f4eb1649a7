/* Replay of a captured launch at other lengths (ops.md §2, geom): the scalars stay those of the
 * capture, the five numbers and the data in the buffers change, and the outputs must be those of an
 * eager launch at that length, bit for bit. On the GPU a CUDA graph is captured once and replayed;
 * on the CPU backend the launch is repeated with the scalars of the capture. */
#ifndef ATTEST_GRAPH_REPLAY_H
#define ATTEST_GRAPH_REPLAY_H

#include "harness/judge/result.h"
#include "harness/verify/verify.h"

struct replay_shape {
    const char *text; /* the case at its greatest length, geom=same; its buffers hold every other */
    const char *key;  /* which parameter is the length */
    const int64_t *lengths;
    uint32_t n_lengths;
};
extern const struct replay_shape replay_shapes[];
extern const uint32_t replay_shape_count;

/* VERDICT_PASS if every length gave the eager bits; *result says what happened otherwise. What lies
 * in the buffers past a shorter length is left from the lengths before. */
bool replay_check(struct verify_context *context, const struct replay_shape *shape,
                  struct result *result);
#endif
