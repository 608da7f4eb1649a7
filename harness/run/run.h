/* One launch of a built case: buffers, poison, guards, outputs. */
#ifndef ATTEST_RUN_H
#define ATTEST_RUN_H

#include "harness/judge/result.h"
#include "harness/run/context.h"

struct run_options {
    enum gpu_fence fence;
    uint8_t pattern;   /* what outputs hold before the launch */
    uint64_t schedule; /* simt: order of threads */
    bool trace;        /* simt: instrumented module */
};

/* The case's tensors, with the context's captured data in place of generated ones. False with an
 * erroneous result. */
bool run_build(const struct verify_context *context, const struct case_line *c,
                  struct instance *in, struct result *result);
/* Loads the modules, launches, checks guards, inputs and untouched regions. On success fills *out
 * (caller frees it). On failure returns false with verdict, check and text set in *result. */
bool run_instance(struct verify_context *context, const struct case_line *c,
                  const struct instance *in, const struct run_options *options, struct outputs *out,
                  struct result *result);
/* A launch under way, which a GPU may be at while its caller does other work. One at a time. */
struct started {
    const struct instance *in;
    const struct run_options *options;
    struct gpu_buffer buffers[INSTANCE_TENSORS_MAX];
};
/* run_instance in two halves. Instance and options must outlive the run. False with the verdict set
 * and nothing under way; otherwise the run is to be finished or abandoned. */
bool run_start(struct verify_context *context, const struct case_line *c,
               const struct instance *in, const struct run_options *options, struct started *run,
               struct result *result);
/* Waits and checks. Gives the buffers back whatever it returns. */
bool run_finish(struct verify_context *context, struct started *run, struct outputs *out,
                struct result *result);
void run_abandon(struct verify_context *context, struct started *run);
/* The parts of it, for who launches more than once. Opens the device if it is not open and loads the
 * operation's modules into targets[OP_MODULES_MAX]. False with the verdict set. */
bool run_open(struct verify_context *context, const struct op *op,
              const struct run_options *options, struct gpu_target *targets, struct result *result);
/* Makes buffers[INSTANCE_TENSORS_MAX] with inputs uploaded and outputs filled with the pattern; an
 * alias shares its buffer. False with the verdict set and nothing left allocated. */
bool run_buffers_make(struct verify_context *context, const struct instance *in,
                      const struct run_options *options, struct gpu_buffer *buffers,
                      struct result *result);
void run_buffers_free(struct verify_context *context, const struct instance *in,
                      struct gpu_buffer *buffers);
#endif
