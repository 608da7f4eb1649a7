/* Failures: how they are told, what the driver's results mean, when the context is lost. */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>

enum gpu_status gpu_cuda_fail(struct gpu_report *report, const char *rule, const char *format, ...)
{
    va_list list;

    snprintf(report->rule, sizeof report->rule, "%s", rule);
    va_start(list, format);
    vsnprintf(report->text, sizeof report->text, format, list);
    va_end(list);
    return GPU_INFRA;
}

enum gpu_status gpu_cuda_alive(struct gpu_cuda_device *d, const char *call,
                               struct gpu_report *report)
{
    if (!d->lost) return GPU_OK;
    return gpu_cuda_fail(report, "context-lost",
                         "%s after the context was lost; this process needs replacing. First: %s",
                         call, d->lost_text);
}

enum gpu_status gpu_cuda_ready(struct gpu_cuda_device *d, const char *call,
                               struct gpu_report *report)
{
    enum gpu_status status = gpu_cuda_alive(d, call, report);

    if (status == GPU_OK && d->mode != GPU_CUDA_RUNNING)
        return gpu_cuda_fail(report, "wrong-mode", "%s is not possible while %s", call,
                             d->mode == GPU_CUDA_TIMING ? "timing" : "capturing");
    return status;
}

/* Results that a kernel's own behaviour brings about. */
static bool is_fault(cu_result rc)
{
    switch (rc) {
    case CU_ILLEGAL_ADDRESS:
    case CU_ASSERT:
    case CU_HARDWARE_STACK_ERROR:
    case CU_ILLEGAL_INSTRUCTION:
    case CU_MISALIGNED_ADDRESS:
    case CU_INVALID_ADDRESS_SPACE:
    case CU_INVALID_PC:
    case CU_LAUNCH_FAILED:
    case CU_TENSOR_MEMORY_LEAK:
        return true;
    default:
        return false;
    }
}

/* Results after which every later call on the context fails as well. */
static bool is_sticky(cu_result rc)
{
    return is_fault(rc) || rc == CU_DEINITIALIZED || rc == CU_INVALID_CONTEXT ||
           rc == CU_ECC_UNCORRECTABLE || rc == CU_NVLINK_UNCORRECTABLE || rc == CU_CONTAINED ||
           rc == CU_LAUNCH_TIMEOUT || rc == CU_CONTEXT_IS_DESTROYED || rc == CU_UNKNOWN;
}

static const char *fault_words(cu_result rc)
{
    switch (rc) {
    case CU_ILLEGAL_ADDRESS:
        return "it read or wrote an address where nothing is mapped: past a buffer's fence, "
               "outside an extent, or wild";
    case CU_MISALIGNED_ADDRESS:
        return "it accessed an address that is not a multiple of the access's size";
    case CU_ASSERT:
        return "a device-side assertion failed";
    case CU_LAUNCH_OUT_OF_RESOURCES:
        return "the device cannot start it: too many registers or threads for one block";
    default:
        return "it was stopped by the device";
    }
}

void gpu_cuda_lose(struct gpu_cuda_device *d, const char *text)
{
    if (d->lost) return;
    d->lost = true;
    snprintf(d->lost_text, sizeof d->lost_text, "%s", text);
}

enum gpu_status gpu_cuda_finding(struct gpu_report *report, const char *rule)
{
    snprintf(report->rule, sizeof report->rule, "%s", rule);
    return GPU_FINDING;
}

enum gpu_status gpu_cuda_result(struct gpu_cuda_device *d, cu_result rc, const char *call,
                                struct gpu_report *report)
{
    char words[200], text[sizeof d->lost_text];
    bool ran = d->running[0] != '\0';

    if (rc == CU_OK) return GPU_OK;
    gpu_cuda_describe(&d->api, rc, words, sizeof words);
    if (ran && (is_fault(rc) || rc == CU_LAUNCH_OUT_OF_RESOURCES || rc == CU_LAUNCH_TIMEOUT))
        snprintf(text, sizeof text, "%s in kernel %s: %s", words, d->running, fault_words(rc));
    else
        snprintf(text, sizeof text, "%s: %s%s%s", call, words, ran ? "; the kernel was " : "",
                 d->running);
    if (is_sticky(rc)) gpu_cuda_lose(d, text);
    snprintf(report->text, sizeof report->text, "%s", text);
    if (ran && rc == CU_LAUNCH_TIMEOUT) return gpu_cuda_finding(report, "hang");
    if (ran && (is_fault(rc) || rc == CU_LAUNCH_OUT_OF_RESOURCES))
        return gpu_cuda_finding(report, "fault");
    return gpu_cuda_fail(report, rc == CU_OUT_OF_MEMORY ? "out-of-memory" : "driver-error", "%s",
                         text);
}
