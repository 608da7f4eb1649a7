#include "driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static gpu_cuda_lookup override_lookup;
static void *library;
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

void gpu_cuda_driver_override(gpu_cuda_lookup lookup)
{
    override_lookup = lookup;
}

static enum gpu_status unavailable(struct gpu_report *report, const char *rule, const char *text)
{
    snprintf(report->rule, sizeof report->rule, "%s", rule);
    snprintf(report->text, sizeof report->text, "%s", text);
    return GPU_UNAVAILABLE;
}

static enum gpu_status open_library(struct gpu_report *report)
{
    /* The plain name is right wherever the loader is set up; the folders are where containers
     * mount the host's driver without telling the loader. */
    static const char *const names[] = {
        "libcuda.so.1",
        "/usr/local/nvidia/lib64/libcuda.so.1",
        "/usr/local/nvidia/lib/libcuda.so.1",
        "/usr/lib/wsl/lib/libcuda.so.1",
    };
    char text[sizeof report->text], first[400] = "";

    for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++) {
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        const char *why = library ? NULL : dlerror();
        if (i == 0 && why) snprintf(first, sizeof first, "%s", why);
    }
    if (library) return GPU_OK;
    snprintf(text, sizeof text, "no CUDA driver on this machine: %s", first);
    return unavailable(report, "no-driver", text);
}

static void *find(const char *symbol)
{
    return override_lookup ? override_lookup(symbol) : dlsym(library, symbol);
}

/* dlsym gives a data pointer; POSIX promises that its bits are the function's address. */
#define RESOLVE(field, symbol, parameters)            \
    do {                                              \
        void *found = find(#symbol);                  \
        memcpy(&driver->field, &found, sizeof found); \
    } while (0);

#define FIRST_MISSING(field, symbol, parameters) \
    if (!missing && !driver->field) missing = #symbol;

enum gpu_status gpu_cuda_driver_load(struct gpu_cuda_driver *driver, struct gpu_report *report)
{
    const char *missing = NULL;
    char text[200];

    memset(driver, 0, sizeof *driver);
    if (!override_lookup) {
        pthread_mutex_lock(&opening);
        enum gpu_status status = open_library(report);
        pthread_mutex_unlock(&opening);
        if (status != GPU_OK) return status;
    }
    GPU_CUDA_REQUIRED(RESOLVE)
    GPU_CUDA_OPTIONAL(RESOLVE)
    GPU_CUDA_REQUIRED(FIRST_MISSING)
    if (!missing) return GPU_OK;
    snprintf(text, sizeof text,
             "the CUDA driver has no %s: it is older than CUDA 11.4, the oldest that will do",
             missing);
    return unavailable(report, "old-driver", text);
}

void gpu_cuda_describe(const struct gpu_cuda_driver *driver, cu_result result, char *text,
                       size_t text_bytes)
{
    const char *name = NULL, *words = NULL;

    if (driver->error_name(result, &name) != CU_OK || !name) name = "unknown CUDA error";
    if (driver->error_string(result, &words) != CU_OK || !words) words = "no description";
    snprintf(text, text_bytes, "%s (%d, %s)", name, result, words);
}
