/* Every check of contracts.md §3 on one case and one backend. */
#ifndef ATTEST_VERIFY_H
#define ATTEST_VERIFY_H

#include "gpu/gpu.h"
#include "harness/case/case.h"
#include "harness/case/op.h"
#include "harness/judge/result.h"

struct captured_item;

/* Where the kernels of a run come from. Lives as long as the process that verifies. */
struct verify_context {
    const struct gpu_backend *backend;
    const char *module_dir;  /* production modules: DIR/NAME.so, DIR/NAME.trace.so, DIR/NAME.fatbin */
    const char *module_file; /* a module from elsewhere instead; its traced twin is module_trace */
    const char *module_trace;
    const char *entry;       /* its entry point's name when not the production one */
    const struct ref_error_model *model; /* overrides the operation's; NULL otherwise */
    uint32_t watchdog_ms;
    uint32_t repeats;        /* determinism: further launches of the same case */
    bool trace;              /* run the instrumented module too (simt) */
    bool relations;
    const struct captured_item *item; /* its tensors replace the generated ones; NULL otherwise */
    struct gpu_device *device; /* opened on first use; closed with verify_close */
};

/* Runs one case. Never exits; a crash of the process is the caller's to handle. */
void verify_case(struct verify_context *context, const struct case_line *c, struct result *result);
void verify_close(struct verify_context *context);

struct expected;
struct outputs;
/* The case's tensors, with the context's captured data in place of generated ones. False with an
 * erroneous result. */
bool verify_build(const struct verify_context *context, const struct case_line *c,
                  struct instance *in, struct result *result);
/* Every output against its contract; `label` names the check in a failure. */
bool verify_judge(const struct instance *in, const struct outputs *out, const struct expected *e,
                  const char *label, struct result *result);
/* Arrays for what a right kernel must produce, by tensor (INSTANCE_TENSORS_MAX of them). */
bool expected_alloc(const struct instance *in, struct expected *e);
/* The arrays of a certificate (CONTRACT_SELECT), zeroed: `rows` rows of `stride` items. */
bool expected_alloc_select(struct expected *e, uint64_t rows, uint64_t stride);
void expected_free(struct expected *e);
/* The refusal check alone, without building anything: for very many geometries. */
bool verify_refusal_agrees(const struct case_line *c, bool *refused, char *rule, size_t rule_size,
                           char *text, size_t text_size);
#endif
