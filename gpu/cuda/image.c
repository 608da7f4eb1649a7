/* Module images in the context: one for all the devices of a process, whose threads share it. */
#include "internal.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_IMAGE_BYTES (1l << 30)

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static struct gpu_cuda_image *images;

/* Reads a whole file and ends it with a NUL, which PTX needs. */
static char *read_file(const char *path, struct gpu_report *report)
{
    FILE *file = fopen(path, "rb");
    char *image = NULL;
    long bytes = -1;

    if (file && fseek(file, 0, SEEK_END) == 0) bytes = ftell(file);
    if (bytes > 0 && bytes < MOST_IMAGE_BYTES) image = malloc((size_t)bytes + 1);
    if (image &&
        (fseek(file, 0, SEEK_SET) || fread(image, 1, (size_t)bytes, file) != (size_t)bytes)) {
        free(image);
        image = NULL;
    }
    if (image)
        image[bytes] = '\0';
    else
        gpu_cuda_fail(report, "bad-module", "cannot read '%s': %s", path,
                      !file || bytes < 0 ? strerror(errno)
                      : bytes == 0       ? "it is empty"
                                         : "too large or cut short");
    if (file) fclose(file);
    return image;
}

enum gpu_status gpu_cuda_reject(struct gpu_cuda_device *d, const char *label, cu_result rc,
                                struct gpu_cuda_log *log, struct gpu_report *report)
{
    char words[200];
    enum gpu_status status = gpu_cuda_result(d, rc, "loading a module", report);

    if (status == GPU_OK || d->lost) return status;
    gpu_cuda_describe(&d->api, rc, words, sizeof words);
    for (char *c = log->text; *c; c++) *c = (unsigned char)*c < ' ' ? ' ' : *c;
    return gpu_cuda_fail(
        report, "bad-module", "'%.120s' does not load on compute capability %d.%d: %s%s%.350s",
        label, d->info.cc_major, d->info.cc_minor, words, log->text[0] ? ": " : "", log->text);
}

static enum gpu_status load(struct gpu_cuda_device *d, struct gpu_cuda_image *image,
                            const void *bytes, struct gpu_report *report)
{
    struct gpu_cuda_log *log = &image->log;

    *log = (struct gpu_cuda_log){
        .options = {CU_JIT_ERROR_LOG, CU_JIT_ERROR_LOG_BYTES},
        .values = {log->text, (void *)(uintptr_t)(sizeof log->text - 1)},
    };
    return gpu_cuda_reject(d, image->label,
                           d->api.module_load(&image->module, bytes, 2, log->options, log->values),
                           log, report);
}

static enum gpu_status make(struct gpu_cuda_device *d, const char *label, const void *text,
                            struct gpu_cuda_image **image, struct gpu_report *report)
{
    struct gpu_cuda_image *made = calloc(1, sizeof *made);
    char *file = text ? NULL : read_file(label, report);
    enum gpu_status status = GPU_INFRA;

    if (made) made->label = strdup(label);
    if (!made || !made->label)
        status = gpu_cuda_fail(report, "out-of-memory", "no host memory for module '%s'", label);
    else if (text || file)
        status = load(d, made, text ? text : file, report);
    free(file);
    if (status == GPU_OK) {
        made->next = images;
        *image = images = made;
    } else {
        free(made ? made->label : NULL);
        free(made);
    }
    return status;
}

enum gpu_status gpu_cuda_image_take(struct gpu_cuda_device *d, const char *label, const void *text,
                                    struct gpu_cuda_image **image, struct gpu_report *report)
{
    enum gpu_status status = GPU_OK;

    pthread_mutex_lock(&guard);
    *image = images;
    while (*image && strcmp((*image)->label, label) != 0) *image = (*image)->next;
    if (!*image) status = make(d, label, text, image, report);
    if (status == GPU_OK) (*image)->users++;
    pthread_mutex_unlock(&guard);
    return status;
}

void gpu_cuda_image_give(struct gpu_cuda_device *d, struct gpu_cuda_image *image)
{
    struct gpu_cuda_image **at = &images;

    if (!image) return;
    pthread_mutex_lock(&guard);
    if (--image->users == 0) {
        while (*at != image) at = &(*at)->next;
        *at = image->next;
        if (!d->lost) d->api.module_unload(image->module);
        free(image->label);
        free(image);
    }
    pthread_mutex_unlock(&guard);
}
