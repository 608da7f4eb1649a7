/* Where the kernels of a run come from, and what is tried with them. */
#ifndef ATTEST_CONTEXT_H
#define ATTEST_CONTEXT_H

#include "harness/case/item.h"
#include "harness/case/op.h"
#include "harness/judge/departures.h"
#include "harness/run/phases.h"

/* Lives as long as the process that verifies. */
struct verify_context {
    const struct gpu_backend *backend;
    const char
        *module_dir; /* production modules: DIR/NAME.so, DIR/NAME.trace.so, DIR/NAME.fatbin */
    const char *module_file; /* a module from elsewhere instead; its traced twin is module_trace */
    const char *module_trace;
    const char *entry;                   /* its entry point's name when not the production one */
    const struct ref_error_model *model; /* overrides the operation's; NULL otherwise */
    uint32_t watchdog_ms;
    uint32_t repeats; /* determinism: further launches of the same case */
    bool trace;       /* run the instrumented module too (simt) */
    bool relations;
    bool diagnose;           /* after a failure, ask the instrumented module for its cause (simt) */
    struct departures known; /* what the kernel's author declared */
    const struct captured_item *item; /* its tensors replace the generated ones; NULL otherwise */
    struct phase_clock *phases;       /* where the time goes; NULL: nobody asks */
    struct gpu_device *device;        /* opened on first use; closed with verify_close */
};
#endif
