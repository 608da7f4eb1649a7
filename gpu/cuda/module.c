/* Module images and their entry points. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum gpu_status gpu_cuda_load(struct gpu_device *device, const char *path,
                              struct gpu_module **module, struct gpu_report *report)
{
    struct gpu_cuda_device *d = gpu_cuda_of(device);
    enum gpu_status status = gpu_cuda_ready(d, "load", report);
    struct gpu_cuda_module *m;

    *module = NULL;
    for (m = d->modules; m && status == GPU_OK; m = m->next) {
        if (strcmp(m->path, path) == 0) {
            *module = (struct gpu_module *)m;
            return GPU_OK;
        }
    }
    if (status != GPU_OK) return status;
    m = calloc(1, sizeof *m);
    if (m) m->path = strdup(path);
    if (!m || !m->path)
        status = gpu_cuda_fail(report, "out-of-memory", "no host memory for module '%s'", path);
    else
        status = gpu_cuda_image_take(d, path, NULL, &m->image, report);
    if (status != GPU_OK) {
        free(m ? m->path : NULL);
        free(m);
        return status;
    }
    m->device = d;
    m->next = d->modules;
    d->modules = m;
    *module = (struct gpu_module *)m;
    return GPU_OK;
}

static void list_names(const struct gpu_cuda_module *m, cu_function *functions, unsigned count,
                       char *text, size_t text_bytes)
{
    size_t used = 0;

    for (unsigned i = 0; i < count; i++) {
        const char *name = NULL;
        if (m->device->api.function_name(&name, functions[i]) != CU_OK || !name) continue;
        int n = snprintf(text + used, text_bytes - used, "%s%s", used ? ", " : "", name);
        if (n < 0 || (size_t)n >= text_bytes - used) {
            /* cut at a whole name */
            text[used] = '\0';
            snprintf(text + (used > 5 ? used - 5 : 0), 6, ", ...");
            return;
        }
        used += (size_t)n;
    }
}

/* The names the module has, or why they cannot be listed. */
static void describe_entries(const struct gpu_cuda_module *m, char *text, size_t text_bytes)
{
    const struct gpu_cuda_driver *api = &m->device->api;
    cu_function *functions = NULL;
    unsigned count = 0;

    snprintf(text, text_bytes, "(this driver cannot list them)");
    if (!api->function_count || !api->functions || !api->function_name) return;
    if (api->function_count(&count, m->image->module) != CU_OK) return;
    functions = calloc(count + 1, sizeof *functions);
    if (functions && api->functions(functions, count, m->image->module) == CU_OK) {
        snprintf(text, text_bytes, "%s", count ? "" : "none");
        list_names(m, functions, count, text, text_bytes);
    }
    free(functions);
}

static enum gpu_status no_entry(const struct gpu_cuda_module *m, const char *entry,
                                struct gpu_report *report)
{
    char names[480];

    describe_entries(m, names, sizeof names);
    snprintf(report->rule, sizeof report->rule, "no-entry");
    snprintf(report->text, sizeof report->text, "module '%.120s' has no entry '%.80s'; it has: %s",
             m->path, entry, names);
    return GPU_NO_ENTRY;
}

static enum gpu_status find_function(struct gpu_cuda_module *m, const char *entry,
                                     struct gpu_cuda_kernel *k, struct gpu_report *report)
{
    struct gpu_cuda_device *d = m->device;
    int static_shared = 0;
    cu_result rc = d->api.module_function(&k->function, m->image->module, entry);

    if (rc == CU_NOT_FOUND) return no_entry(m, entry, report);
    if (rc != CU_OK) return gpu_cuda_result(d, rc, "cuModuleGetFunction", report);
    /* Loads the code now, so that a later capture or timing does not. */
    if (d->api.function_load) rc = d->api.function_load(k->function);
    if (rc == CU_OK)
        rc = d->api.function_get(&static_shared, CU_FUNC_STATIC_SHARED_BYTES, k->function);
    k->static_shared = (uint32_t)static_shared;
    return gpu_cuda_reject(d, m->path, rc, &m->image->log, report);
}

enum gpu_status gpu_cuda_resolve(struct gpu_module *module, const char *entry,
                                 struct gpu_kernel **kernel, struct gpu_report *report)
{
    struct gpu_cuda_module *m = (struct gpu_cuda_module *)module;
    enum gpu_status status = gpu_cuda_alive(m->device, "resolve", report);
    struct gpu_cuda_kernel *k;

    *kernel = NULL;
    for (k = m->kernels; k && status == GPU_OK; k = k->next) {
        if (strcmp(k->name, entry) == 0) {
            *kernel = (struct gpu_kernel *)k;
            return GPU_OK;
        }
    }
    if (status != GPU_OK) return status;
    k = calloc(1, sizeof *k);
    if (k) k->name = strdup(entry);
    if (!k || !k->name)
        status = gpu_cuda_fail(report, "out-of-memory", "no host memory for entry '%s'", entry);
    else
        status = find_function(m, entry, k, report);
    if (status != GPU_OK) {
        free(k ? k->name : NULL);
        free(k);
        return status;
    }
    k->next = m->kernels;
    m->kernels = k;
    *kernel = (struct gpu_kernel *)k;
    return GPU_OK;
}

static void drop_module(struct gpu_cuda_device *d, struct gpu_cuda_module *m)
{
    while (m->kernels) {
        struct gpu_cuda_kernel *k = m->kernels;
        m->kernels = k->next;
        free(k->name);
        free(k);
    }
    gpu_cuda_image_give(d, m->image);
    free(m->path);
    free(m);
}

void gpu_cuda_modules_drop_all(struct gpu_cuda_device *d)
{
    while (d->modules) {
        struct gpu_cuda_module *m = d->modules;
        d->modules = m->next;
        drop_module(d, m);
    }
    gpu_cuda_image_give(d, d->helpers);
}
