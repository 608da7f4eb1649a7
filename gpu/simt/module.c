/* Modules: shared objects of compiled kernels, and the entry points in them. */
#include "internal.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The extent of the loaded image, from the program headers of the object that holds the table. */
struct image_search {
    struct gpu_module *module;
    bool found;
};

static int find_image(struct dl_phdr_info *info, size_t size, void *context)
{
    struct image_search *search = context;
    uintptr_t table = (uintptr_t)search->module->table, low = UINTPTR_MAX, high = 0;

    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + header->p_vaddr;

        if (header->p_type != PT_LOAD) continue;
        if (begin < low) low = begin;
        if (begin + header->p_memsz > high) high = begin + header->p_memsz;
    }
    if (table < low || table >= high) return 0;
    search->module->load_base = info->dlpi_addr;
    search->module->image_begin = low;
    search->module->image_end = high;
    search->found = true;
    return 1;
}

static void unload(struct gpu_module *module)
{
    uint64_t shared = module->table ? simt_shared_region(module) : 0;

    simt_unmap(module->written, shared);
    simt_unmap(module->cells, SIMT_CELLS(shared) * sizeof *module->cells);
    if (module->handle) dlclose(module->handle);
    for (struct simt_line *line = module->lines, *next; line; line = next) {
        next = line->next;
        free(line);
    }
    free(module->kernels);
    free(module->variables);
    free(module->path);
    free(module);
}

void simt_unload_all(struct gpu_device *device)
{
    for (struct gpu_module *m = device->modules, *next; m; m = next) {
        next = m->next;
        unload(m);
    }
    device->modules = NULL;
}

/* With tracing asked for, "x.so" means its instrumented sibling "x.trace.so". */
static char *module_path(const char *path, bool trace)
{
    size_t length = strlen(path);
    bool is_so = length > 3 && strcmp(path + length - 3, ".so") == 0;
    bool is_traced = length > 9 && strcmp(path + length - 9, ".trace.so") == 0;
    char *result = malloc(length + sizeof "./.trace.so");

    if (!result) return NULL;
    /* dlopen searches the system's folders for a name without a slash. */
    sprintf(result, "%s%s", strchr(path, '/') ? "" : "./", path);
    if (trace && is_so && !is_traced) strcpy(result + strlen(result) - 3, ".trace.so");
    return result;
}

static bool prepare_trace(struct gpu_module *module)
{
    uint64_t shared = simt_shared_region(module);

    module->device->tracing = true;
    if (shared == 0) return true;
    module->written = simt_map_zeroed(shared);
    module->cells = simt_map_zeroed(SIMT_CELLS(shared) * sizeof *module->cells);
    return module->written && module->cells;
}

static enum gpu_status read_table(struct gpu_module *module, struct gpu_report *report)
{
    struct image_search search = {module, false};
    const struct simt_module_table *table = dlsym(module->handle, "simt_module_table_v1");

    if (!table)
        return simt_infra(report, "%s is not a module of the CPU backend (no simt_module_table_v1)",
                          module->path);
    if (table->abi_version != SIMT_ABI_VERSION)
        return simt_infra(report, "%s was built for version %u of the CPU backend, not %u",
                          module->path, table->abi_version, SIMT_ABI_VERSION);
    module->table = table;
    dl_iterate_phdr(find_image, &search);
    module->kernels = calloc(table->n_entries + 1, sizeof *module->kernels);
    if (!search.found || !module->kernels || !simt_read_variables(module))
        return simt_infra(report, "%s: cannot read the loaded image", module->path);
    if (table->traced && !prepare_trace(module))
        return simt_infra(report, "%s: no memory for tracing", module->path);
    for (uint32_t i = 0; i < table->n_entries; i++)
        module->kernels[i] = (struct gpu_kernel){module, &table->entries[i]};
    return GPU_OK;
}

enum gpu_status simt_load(struct gpu_device *device, const char *path, struct gpu_module **module,
                          struct gpu_report *report)
{
    char *real_path = module_path(path, device->options.trace);
    struct gpu_module *loaded;
    enum gpu_status status;

    *module = NULL;
    if (!real_path) return simt_infra(report, "out of memory");
    for (struct gpu_module *m = device->modules; m; m = m->next) {
        if (strcmp(m->path, real_path) != 0) continue;
        free(real_path);
        *module = m;
        return GPU_OK;
    }
    loaded = calloc(1, sizeof *loaded);
    if (!loaded) {
        free(real_path);
        return simt_infra(report, "out of memory");
    }
    loaded->path = real_path;
    loaded->device = device;
    loaded->handle = dlopen(real_path, RTLD_NOW | RTLD_LOCAL);
    status = loaded->handle ? read_table(loaded, report)
                            : simt_infra(report, "cannot load %s: %s", real_path, dlerror());
    if (status != GPU_OK) {
        unload(loaded);
        return status;
    }
    loaded->next = device->modules;
    device->modules = loaded;
    *module = loaded;
    return GPU_OK;
}

static void list_entries(const struct gpu_module *module, const char *entry,
                         struct gpu_report *report)
{
    const struct simt_module_table *table = module->table;
    size_t size = sizeof report->text, used;

    snprintf(report->rule, sizeof report->rule, "entry");
    used = (size_t)snprintf(report->text, size, "%s has no entry point %s; it has", module->path,
                            entry);
    if (table->n_entries == 0 && used < size) snprintf(report->text + used, size - used, " none");
    for (uint32_t i = 0; i < table->n_entries && used < size; i++)
        used += (size_t)snprintf(report->text + used, size - used, "%s %s", i ? "," : "",
                                 table->entries[i].name);
}

enum gpu_status simt_resolve(struct gpu_module *module, const char *entry,
                             struct gpu_kernel **kernel, struct gpu_report *report)
{
    *kernel = NULL;
    for (uint32_t i = 0; i < module->table->n_entries; i++) {
        if (strcmp(module->table->entries[i].name, entry) != 0) continue;
        *kernel = &module->kernels[i];
        return GPU_OK;
    }
    if (report) list_entries(module, entry, report);
    return GPU_NO_ENTRY;
}
