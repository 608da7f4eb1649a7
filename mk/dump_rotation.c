/* Writes the rotation's cosines and sines as the kernels compute them, for mk/exhaust_rotation.c
 * --dump: f32 pairs, [position][pair][cosine, sine], native byte order. The values come from
 * kernels/selftest_rotation.cu on the CPU backend.
 *
 *   dump_rotation MODULE.so FILE [POSITIONS [ROT [THETA]]]      (defaults 1048576, 64, 1e7)
 *
 * Exit: 0 written, 2 usage or file, 3 the backend or the kernel failed. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/gpu.h"

/* Few enough that a launch stays far from the watchdog, many enough that a launch costs nothing. */
enum { CHUNK_POSITIONS = 4096, BLOCK_THREADS = 256, GRID_BLOCKS = 16, MAX_ROT = 1024 };

struct dump {
    const char *module, *path;
    uint32_t positions, rot;
    float theta;
    struct gpu_device *device;
    struct gpu_target target;
    struct gpu_buffer out;
    float *values; /* [CHUNK_POSITIONS][rot / 2][2] */
    uint64_t row_bytes;
};

static bool number(const char *text, uint32_t low, uint32_t high, uint32_t *value)
{
    char *end;
    errno = 0;
    unsigned long parsed = strtoul(text, &end, 0);
    if (errno || *end || end == text || *text == '-' || parsed < low || parsed > high) return false;
    *value = (uint32_t)parsed;
    return true;
}

static bool parse(int argc, char **argv, struct dump *d)
{
    if (argc < 3 || argc > 6) return false;
    d->module = argv[1];
    d->path = argv[2];
    if (argc > 3 && !number(argv[3], 1, UINT32_C(1) << 31, &d->positions)) return false;
    if (argc > 4 && (!number(argv[4], 2, MAX_ROT, &d->rot) || d->rot % 2)) return false;
    if (argc > 5) {
        char *end;
        d->theta = strtof(argv[5], &end);
        if (end == argv[5] || *end) return false;
    }
    return d->theta > 0 && isfinite(d->theta);
}

static enum gpu_status prepare(struct dump *d, struct gpu_report *report)
{
    const struct gpu_backend *backend = &gpu_backend_simt;
    struct gpu_options options = {0};
    struct gpu_buffer_desc desc = {.name = "out",
                                   .size_bytes = CHUNK_POSITIONS * d->row_bytes,
                                   .elem_bytes = sizeof(float),
                                   .align_bytes = 256,
                                   .fence = GPU_FENCE_AFTER};
    enum gpu_status status = backend->open(&d->device, &options, report);
    if (status != GPU_OK) return status;
    d->target.backend = backend;
    d->target.device = d->device;
    status = backend->load(d->device, d->module, &d->target.module, report);
    if (status != GPU_OK) return status;
    return backend->alloc(d->device, &desc, &d->out, report);
}

static enum gpu_status chunk(struct dump *d, uint32_t first, uint32_t count,
                             struct gpu_report *report)
{
    struct gpu_dim grid = {GRID_BLOCKS, 1, 1}, block = {BLOCK_THREADS, 1, 1};
    void *args[] = {&d->out.address, &first, &count, &d->rot, &d->theta};
    enum gpu_status status = gpu_run(&d->target, "selftest_rotation", grid, block, 0, args, report);
    if (status != GPU_OK) return status;
    return d->target.backend->download(d->device, &d->out, 0, d->values, count * d->row_bytes,
                                       report);
}

static int write_all(struct dump *d, FILE *file, struct gpu_report *report)
{
    for (uint32_t first = 0, count; first < d->positions; first += count) {
        count = d->positions - first;
        if (count > CHUNK_POSITIONS) count = CHUNK_POSITIONS;
        if (chunk(d, first, count, report) != GPU_OK) {
            fprintf(stderr, "dump_rotation: %s: %s\n", report->rule, report->text);
            return 3;
        }
        if (fwrite(d->values, d->row_bytes, count, file) != count) {
            fprintf(stderr, "dump_rotation: %s: %s\n", d->path, strerror(errno));
            return 2;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct dump d = {.positions = UINT32_C(1) << 20, .rot = 64, .theta = 1e7f};
    struct gpu_report report = {{0}, {0}};
    if (!parse(argc, argv, &d)) {
        fprintf(stderr, "usage: %s MODULE.so FILE [POSITIONS [ROT [THETA]]]\n", argv[0]);
        return 2;
    }
    d.row_bytes = (uint64_t)d.rot * sizeof(float);
    if (prepare(&d, &report) != GPU_OK || !(d.values = malloc(CHUNK_POSITIONS * d.row_bytes))) {
        fprintf(stderr, "dump_rotation: %s %s\n", report.rule, report.text);
        return 3;
    }
    FILE *file = fopen(d.path, "wb");
    if (!file) {
        fprintf(stderr, "dump_rotation: %s: %s\n", d.path, strerror(errno));
        return 2;
    }
    int code = write_all(&d, file, &report);
    if (fclose(file) && !code) {
        fprintf(stderr, "dump_rotation: %s: %s\n", d.path, strerror(errno));
        code = 2;
    }
    d.target.backend->free(d.device, &d.out);
    d.target.backend->close(d.device);
    free(d.values);
    return code;
}
