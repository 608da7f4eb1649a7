#include "test_fake_cuda.h"

#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "test_fake_internal.h"
#include "test_fake_kernels.h"

#define MOST_SHARED 232448

struct fake_cuda_faults fake_cuda_faults;
struct fake_cuda_held fake_cuda_held;

struct node { /* a captured launch */
    const struct fake_kernel *kernel;
    struct fake_launch launch;
    uint64_t params[8];
    void *pointers[8];
    struct node *next;
};

struct cu_graph_st {
    struct node *first, **last;
};

struct cu_module_st {
    struct cu_function_st *functions;
    unsigned n;
};

struct cu_function_st {
    const struct fake_kernel *kernel;
    int dynamic_shared;
};

struct cu_event_st {
    uint64_t ns;
};

static uint64_t busy_until;
static struct cu_graph_st *recording;

cu_result fake_cuda_sticky;
bool fake_cuda_capturing, fake_cuda_in_flight;
static char context_object, stream_object;

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

bool fake_cuda_fails(const char *symbol, cu_result *result)
{
    *result = fake_cuda_faults.fail_result;
    if (!fake_cuda_faults.fail_symbol || strcmp(symbol, fake_cuda_faults.fail_symbol)) return false;
    if (fake_cuda_faults.fail_after == 0) return true;
    fake_cuda_faults.fail_after--;
    return false;
}

/* --- what the device is --- */

cu_result fake_cuInit(unsigned flags)
{
    return flags ? CU_INVALID_VALUE : fake_cuda_faults.init;
}

cu_result fake_cuDriverGetVersion(int *version)
{
    *version = 13000;
    return CU_OK;
}

cu_result fake_cuGetErrorName(cu_result error, const char **text)
{
    *text = error == CU_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_FAKE";
    return CU_OK;
}

cu_result fake_cuGetErrorString(cu_result error, const char **text)
{
    (void)error;
    *text = "the fake driver says so";
    return CU_OK;
}

cu_result fake_cuDeviceGetCount(int *count)
{
    *count = fake_cuda_faults.devices < 0 ? 0 : 1;
    return CU_OK;
}

cu_result fake_cuDeviceGet(cu_device *device, int ordinal)
{
    *device = ordinal;
    return ordinal == 0 ? CU_OK : CU_INVALID_VALUE;
}

cu_result fake_cuDeviceGetName(char *name, int length, cu_device device)
{
    snprintf(name, (size_t)length, "fake device %d", device);
    return CU_OK;
}

cu_result fake_cuDeviceGetAttribute(int *value, int attribute, cu_device device)
{
    static const struct {
        int attribute, value;
    } known[] = {
        {CU_ATTR_MAX_THREADS_PER_BLOCK, 1024},
        {CU_ATTR_MAX_GRID_X, 2147483647},
        {CU_ATTR_MAX_GRID_Y, 65535},
        {CU_ATTR_MAX_GRID_Z, 65535},
        {CU_ATTR_MULTIPROCESSORS, 1},
        {CU_ATTR_L2_BYTES, 1 << 20},
        {CU_ATTR_CC_MAJOR, 9},
        {CU_ATTR_CC_MINOR, 0},
        {CU_ATTR_MAX_SHARED_OPTIN, MOST_SHARED},
        {CU_ATTR_VIRTUAL_MEMORY, 1},
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (known[i].attribute == attribute) {
            *value = known[i].value;
            return device == 0 ? CU_OK : CU_INVALID_VALUE;
        }
    }
    return CU_INVALID_VALUE;
}

uint64_t fake_cuda_device_bytes(void)
{
    return fake_cuda_faults.memory_bytes ? fake_cuda_faults.memory_bytes : 8ull << 30;
}

cu_result fake_cuDeviceTotalMem_v2(size_t *bytes, cu_device device)
{
    (void)device;
    *bytes = fake_cuda_device_bytes();
    return CU_OK;
}

cu_result fake_cuDevicePrimaryCtxRetain(cu_context *context, cu_device device)
{
    (void)device;
    ENTER();
    fake_cuda_held.contexts++;
    *context = (cu_context)(void *)&context_object;
    return CU_OK;
}

cu_result fake_cuDevicePrimaryCtxRelease_v2(cu_device device)
{
    (void)device;
    fake_cuda_held.contexts--;
    return CU_OK;
}

cu_result fake_cuCtxSetCurrent(cu_context context)
{
    return context == (cu_context)(void *)&context_object ? CU_OK : CU_INVALID_CONTEXT;
}

/* --- modules --- */

static unsigned count_entries(const char *image)
{
    unsigned n = 0;

    for (const char *at = image; (at = strstr(at, ".entry ")); at++) n++;
    return n;
}

cu_result fake_cuModuleLoadDataEx(cu_module *module, const void *image, unsigned n_options,
                                  int *options, void **values)
{
    const char *at = image;
    struct cu_module_st *m;

    ENTER();
    if (strncmp(at, ".version", 8)) return CU_NO_BINARY_FOR_GPU;
    if (strstr(at, "no_such_op") ||
        (fake_cuda_faults.reject_entry && strstr(at, fake_cuda_faults.reject_entry))) {
        for (unsigned i = 0; i < n_options; i++)
            if (options[i] == CU_JIT_ERROR_LOG)
                strcpy(values[i], "ptxas application ptx input, line 6;\nfatal: no such op");
        return CU_INVALID_PTX;
    }
    m = calloc(1, sizeof *m);
    m->functions = calloc(count_entries(at) + 1, sizeof *m->functions);
    while ((at = strstr(at, ".entry "))) {
        at += strlen(".entry ");
        const struct fake_kernel *k = fake_kernel_find(at);
        if (k) m->functions[m->n++].kernel = k;
    }
    fake_cuda_held.modules++;
    *module = m;
    return CU_OK;
}

cu_result fake_cuModuleUnload(cu_module module)
{
    free(module->functions);
    free(module);
    fake_cuda_held.modules--;
    return CU_OK;
}

cu_result fake_cuModuleGetFunction(cu_function *function, cu_module module, const char *name)
{
    ENTER();
    for (unsigned i = 0; i < module->n; i++) {
        if (strcmp(module->functions[i].kernel->name, name) == 0) {
            *function = &module->functions[i];
            return CU_OK;
        }
    }
    return CU_NOT_FOUND;
}

cu_result fake_cuModuleGetFunctionCount(unsigned *count, cu_module module)
{
    *count = module->n;
    return CU_OK;
}

cu_result fake_cuModuleEnumerateFunctions(cu_function *functions, unsigned count, cu_module module)
{
    for (unsigned i = 0; i < count; i++) functions[i] = &module->functions[i];
    return CU_OK;
}

cu_result fake_cuFuncGetName(const char **name, cu_function function)
{
    *name = function->kernel->name;
    return CU_OK;
}

cu_result fake_cuFuncLoad(cu_function function)
{
    return function ? CU_OK : CU_INVALID_VALUE;
}

cu_result fake_cuFuncGetAttribute(int *value, int attribute, cu_function function)
{
    (void)function;
    *value = 0;
    return attribute == CU_FUNC_STATIC_SHARED_BYTES ? CU_OK : CU_INVALID_VALUE;
}

cu_result fake_cuFuncSetAttribute(cu_function function, int attribute, int value)
{
    ENTER();
    if (attribute != CU_FUNC_MAX_DYNAMIC_SHARED_BYTES || value > MOST_SHARED)
        return CU_INVALID_VALUE;
    function->dynamic_shared = value;
    return CU_OK;
}

/* --- running --- */

static sigjmp_buf escape;

static void on_signal(int number)
{
    siglongjmp(escape, number);
}

static void execute(const struct fake_kernel *kernel, const struct fake_launch *launch)
{
    struct sigaction action = {.sa_handler = on_signal}, segv, bus;
    struct fake_effect effect = {0};

    fake_cuda_in_flight = true;
    sigaction(SIGSEGV, &action, &segv);
    sigaction(SIGBUS, &action, &bus);
    if (sigsetjmp(escape, 1) == 0)
        kernel->run(launch, &effect);
    else
        effect.error = CU_ILLEGAL_ADDRESS;
    sigaction(SIGSEGV, &segv, NULL);
    sigaction(SIGBUS, &bus, NULL);
    fake_cuda_sticky = fake_cuda_sticky ? fake_cuda_sticky : effect.error;
    if (effect.busy_ns) busy_until = now_ns() + effect.busy_ns;
}

static cu_result record(const struct fake_kernel *kernel, const struct fake_launch *launch)
{
    struct node *n = calloc(1, sizeof *n);

    n->kernel = kernel;
    n->launch = *launch;
    n->launch.params = n->pointers;
    for (uint32_t i = 0; i < kernel->n_params; i++) {
        memcpy(&n->params[i], launch->params[i], kernel->param_bytes[i]);
        n->pointers[i] = &n->params[i];
    }
    *recording->last = n;
    recording->last = &n->next;
    return CU_OK;
}

cu_result fake_cuLaunchKernel(cu_function function, unsigned grid_x, unsigned grid_y,
                              unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                              unsigned shared_bytes, cu_stream stream, void **params, void **extra)
{
    struct fake_launch launch = {grid_x, grid_y, block_x, shared_bytes, params};

    ENTER();
    if ((uint64_t)block_x * block_y * block_z > 1024 || !grid_x || !grid_y || grid_z != 1 ||
        extra || stream != (cu_stream)(void *)&stream_object ||
        (shared_bytes > 49152 && (int)shared_bytes > function->dynamic_shared))
        return CU_INVALID_VALUE;
    if (recording) return record(function->kernel, &launch);
    execute(function->kernel, &launch);
    return CU_OK; /* a fault shows at the next call, as on a device */
}

cu_result fake_cuStreamCreate(cu_stream *stream, unsigned flags)
{
    ENTER();
    if (flags != CU_STREAM_NONBLOCKING) return CU_INVALID_VALUE;
    *stream = (cu_stream)(void *)&stream_object;
    fake_cuda_held.streams++;
    return CU_OK;
}

cu_result fake_cuStreamDestroy_v2(cu_stream stream)
{
    (void)stream;
    fake_cuda_held.streams--;
    return CU_OK;
}

cu_result fake_cuStreamQuery(cu_stream stream)
{
    (void)stream;
    ENTER();
    fake_cuda_in_flight = now_ns() < busy_until;
    return fake_cuda_in_flight ? CU_NOT_READY : CU_OK;
}

/* Never arrives behind a kernel that is still running: the caller has to ask the stream itself. */
cu_result fake_cuStreamWriteValue32_v2(cu_stream stream, cu_address address, uint32_t value,
                                       unsigned flags)
{
    (void)stream;
    ENTER();
    if (flags) return CU_INVALID_VALUE;
    if (now_ns() < busy_until) return CU_OK;
    fake_cuda_in_flight = false;
    *(uint32_t *)(uintptr_t)address = value;
    return CU_OK;
}

cu_result fake_cuEventCreate(cu_event *event, unsigned flags)
{
    ENTER();
    *event = flags ? NULL : calloc(1, sizeof **event);
    fake_cuda_held.events++;
    return *event ? CU_OK : CU_INVALID_VALUE;
}

cu_result fake_cuEventDestroy_v2(cu_event event)
{
    free(event);
    fake_cuda_held.events--;
    return CU_OK;
}

cu_result fake_cuEventRecord(cu_event event, cu_stream stream)
{
    (void)stream;
    ENTER();
    event->ns = now_ns();
    return CU_OK;
}

cu_result fake_cuEventElapsedTime(float *ms, cu_event start, cu_event end)
{
    *ms = (float)(end->ns - start->ns) / 1e6f;
    return CU_OK;
}

cu_result fake_cuStreamBeginCapture_v2(cu_stream stream, int mode)
{
    (void)stream;
    ENTER();
    if (recording || mode != CU_CAPTURE_RELAXED) return CU_INVALID_VALUE;
    recording = calloc(1, sizeof *recording);
    recording->last = &recording->first;
    fake_cuda_capturing = true;
    return CU_OK;
}

cu_result fake_cuStreamEndCapture(cu_stream stream, cu_graph *graph)
{
    (void)stream;
    ENTER();
    if (!recording) return CU_INVALID_VALUE;
    *graph = recording;
    recording = NULL;
    fake_cuda_capturing = false;
    fake_cuda_held.graphs++;
    return CU_OK;
}

/* An executable graph takes the nodes over. */
cu_result fake_cuGraphInstantiateWithFlags(cu_exec *exec, cu_graph graph, unsigned long long flags)
{
    ENTER();
    if (flags || !graph->first) return CU_INVALID_VALUE;
    *exec = (cu_exec)(void *)graph->first;
    graph->first = NULL;
    fake_cuda_held.execs++;
    return CU_OK;
}

cu_result fake_cuGraphLaunch(cu_exec exec, cu_stream stream)
{
    (void)stream;
    ENTER();
    for (struct node *n = (struct node *)(void *)exec; n; n = n->next)
        execute(n->kernel, &n->launch);
    return CU_OK;
}

static void free_nodes(struct node *n)
{
    while (n) {
        struct node *next = n->next;
        free(n);
        n = next;
    }
}

cu_result fake_cuGraphDestroy(cu_graph graph)
{
    free_nodes(graph->first);
    free(graph);
    fake_cuda_held.graphs--;
    return CU_OK;
}

cu_result fake_cuGraphExecDestroy(cu_exec exec)
{
    free_nodes((struct node *)(void *)exec);
    fake_cuda_held.execs--;
    return CU_OK;
}

#define ENTRY(field, symbol, parameters) {#symbol, (void *)fake_##symbol},

void *fake_cuda_lookup(const char *symbol)
{
    static const struct {
        const char *symbol;
        void *function;
    } table[] = {GPU_CUDA_REQUIRED(ENTRY) GPU_CUDA_OPTIONAL(ENTRY)};

    if (fake_cuda_faults.missing && strcmp(symbol, fake_cuda_faults.missing) == 0) return NULL;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i].symbol, symbol) == 0) return table[i].function;
    return NULL;
}
