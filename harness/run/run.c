#include "harness/run/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Each piece of a large buffer costs a round trip on a device. */
enum { FILL_CHUNK_BYTES = 1 << 16, COPY_CHUNK_BYTES = 1 << 20 };

bool run_build(const struct verify_context *x, const struct case_line *c, struct instance *in,
                  struct result *r)
{
    enum phase before = phase_begin(x->phases, PHASE_BUILD);
    bool built = op_build(c, in);
    phase_end(x->phases, before);
    if (!built)
        return result_fail(r, VERDICT_ERROR, "memory", "  no memory to build the case\n");
    for (uint32_t i = 0; x->item && i < x->item->n_overrides; i++) {
        const struct override *o = &x->item->overrides[i];
        struct tensor *t = &in->tensors[instance_index(in, o->name)];
        uint64_t room = t->elems * dtype_bytes(t->dtype);
        if (o->size_bytes > room)
            return result_fail(r, VERDICT_ERROR, "captured",
                               "  %s holds %" PRIu64 " bytes, the case's geometry has %" PRIu64 "\n",
                               o->name, o->size_bytes, room);
        t->overridden = true;
        memcpy(t->data, o->data, o->size_bytes);
    }
    return true;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The source line that ends a finding: ", file.cu:123". */
static void note_place(const char *text, char *place, size_t size)
{
    const char *comma = strrchr(text, ','), *colon = comma ? strrchr(comma, ':') : NULL;
    if (!colon || strspn(colon + 1, "0123456789") != strlen(colon + 1) || !colon[1]) return;
    snprintf(place, size, "%s", comma + 1 + strspn(comma + 1, " "));
}

/* A failed backend call: a finding is the kernel's fault, everything else ours. */
static bool backend_failed(struct result *r, enum gpu_status status, const struct gpu_report *report)
{
    char check[96];
    if (status == GPU_REFUSED) {
        snprintf(check, sizeof check, "refusal %s", report->rule);
        return result_fail(r, VERDICT_FAIL, check, "  the launcher refused at launch: %s\n",
                           report->text);
    }
    if (status == GPU_FINDING) {
        snprintf(check, sizeof check, "%s", report->rule);
        note_place(report->text, r->place, sizeof r->place);
        return result_fail(r, VERDICT_FAIL, check, "  %s\n%s", report->text,
                           strcmp(report->rule, "hang")
                               ? ""
                               : "  a large launch may only need longer: --watchdog MS\n");
    }
    return result_fail(r, VERDICT_ERROR, status == GPU_NO_ENTRY ? "entry-point" : report->rule,
                       "  %s\n", report->text);
}

static bool open_device(struct verify_context *x, const struct run_options *o, bool deferred,
                        struct result *r)
{
    struct gpu_options options = {.trace = o->trace,
                                  .schedule = o->schedule,
                                  .watchdog_ms = x->watchdog_ms,
                                  .deferred = deferred};
    struct gpu_report report = {{0}, {0}};
    if (x->device) {
        x->backend->set_options(x->device, &options);
        return true;
    }
    enum gpu_status status = x->backend->open(&x->device, &options, &report);
    return status == GPU_OK ? true : backend_failed(r, status, &report);
}

static bool load_targets(struct verify_context *x, const struct op *op, bool trace,
                         struct gpu_target *targets, struct result *r)
{
    bool simt = x->backend == &gpu_backend_simt;
    for (uint32_t i = 0; op->modules[i]; i++) {
        char path[4096];
        struct gpu_report report = {{0}, {0}};
        const char *suffix = !simt ? "fatbin" : trace ? "trace.so" : "so";
        const char *file = trace && simt ? x->module_trace : x->module_file;
        if (file)
            snprintf(path, sizeof path, "%s", file);
        else
            snprintf(path, sizeof path, "%s/%s.%s", x->module_dir, op->modules[i], suffix);
        targets[i] = (struct gpu_target){x->backend, x->device, NULL, x->entry};
        enum gpu_status status = x->backend->load(x->device, path, &targets[i].module, &report);
        if (status != GPU_OK) return backend_failed(r, status, &report);
    }
    return true;
}

static bool make_buffer(struct verify_context *x, const struct tensor *t,
                        const struct run_options *o, struct gpu_buffer *buffer, struct result *r)
{
    struct gpu_report report = {{0}, {0}};
    struct gpu_buffer_desc desc = {.name = t->name,
                                   .size_bytes = t->elems * dtype_bytes(t->dtype),
                                   .elem_bytes = dtype_bytes(t->dtype),
                                   .align_bytes = dtype_bytes(t->dtype), /* no more than the type needs */
                                   .read_only = t->role == ROLE_IN,
                                   .fence = o->fence,
                                   .extents = t->extents,
                                   .n_extents = t->n_extents};
    struct gpu_extent whole;
    enum gpu_status status = x->backend->alloc(x->device, &desc, buffer, &report);
    if (status != GPU_OK) return backend_failed(r, status, &report);
    uint32_t n;
    const struct gpu_extent *ranges = tensor_backed(t, &whole, &n);
    uint8_t pattern[FILL_CHUNK_BYTES];
    if (t->role == ROLE_OUT) memset(pattern, o->pattern, sizeof pattern);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t at = ranges[i].offset_bytes, left = ranges[i].size_bytes;
        while (left && status == GPU_OK) {
            uint64_t size = t->role == ROLE_OUT && left > sizeof pattern ? sizeof pattern : left;
            status = x->backend->upload(x->device, buffer, at,
                                        t->role == ROLE_OUT ? pattern : t->data + at, size, &report);
            at += size;
            left -= size;
        }
    }
    if (status != GPU_OK) return backend_failed(r, status, &report);
    if (t->role == ROLE_OUT) x->backend->mark_unwritten(x->device, buffer);
    return true;
}

static bool inputs_unchanged(struct verify_context *x, const struct tensor *t,
                             const struct gpu_buffer *buffer, struct result *r)
{
    struct gpu_report report = {{0}, {0}};
    uint8_t chunk[COPY_CHUNK_BYTES];
    struct gpu_extent whole;
    uint32_t n;
    const struct gpu_extent *ranges = tensor_backed(t, &whole, &n);
    r->checks[CHECK_INPUTS]++;
    for (uint32_t i = 0; i < n; i++) {
        for (uint64_t done = 0; done < ranges[i].size_bytes; done += sizeof chunk) {
            uint64_t at = ranges[i].offset_bytes + done, size = ranges[i].size_bytes - done;
            if (size > sizeof chunk) size = sizeof chunk;
            enum gpu_status status = x->backend->download(x->device, buffer, at, chunk, size,
                                                          &report);
            if (status != GPU_OK) return backend_failed(r, status, &report);
            if (!memcmp(chunk, t->data + at, size)) continue;
            uint64_t k = 0;
            while (chunk[k] == t->data[at + k]) k++;
            return result_fail(r, VERDICT_FAIL, check_names[CHECK_INPUTS],
                               "  input %s was written: element %llu changed\n", t->name,
                               (unsigned long long)((at + k) / dtype_bytes(t->dtype)));
        }
    }
    return true;
}

static bool region_untouched(const struct tensor *t, const uint8_t *image, uint8_t pattern,
                             struct result *r)
{
    uint32_t bytes = dtype_bytes(t->dtype);
    r->checks[CHECK_UNTOUCHED]++;
    for (uint64_t k = 0; k < t->free_from * bytes; k++) {
        if (image[k] == pattern) continue;
        return result_fail(r, VERDICT_FAIL, check_names[CHECK_UNTOUCHED],
                           "  %s was written outside the region the kernel owns: element %llu of "
                           "the allocation\n",
                           t->name, (unsigned long long)(k / bytes));
    }
    return true;
}

/* Downloads an output, gathers the owned region and checks that the rest kept its pattern. */
static bool collect_output(struct verify_context *x, const struct tensor *t,
                           const struct gpu_buffer *buffer, uint8_t pattern, uint8_t **dense,
                           struct result *r)
{
    struct gpu_report report = {{0}, {0}};
    uint32_t bytes = dtype_bytes(t->dtype);
    uint64_t size = t->elems * bytes, n = tensor_logical_elems(t);
    uint8_t *image = malloc(size + 1);
    *dense = malloc(n * bytes + 1);
    if (!image || !*dense) {
        free(image);
        return result_fail(r, VERDICT_ERROR, "memory", "  no memory for output %s\n", t->name);
    }
    enum gpu_status status = x->backend->download(x->device, buffer, 0, image, size, &report);
    if (status != GPU_OK) {
        free(image);
        return backend_failed(r, status, &report);
    }
    bool contiguous = n == t->elems && t->origin == 0;
    if (contiguous) {
        memcpy(*dense, image, size);
    } else {
        uint64_t inner = t->rank ? t->shape[t->rank - 1] : 1;
        for (uint64_t i = 0; i < n; i += inner) {
            uint64_t offset = tensor_offset(t, i);
            memcpy(*dense + i * bytes, image + offset * bytes, inner * bytes);
            memset(image + offset * bytes, pattern, inner * bytes);
        }
    }
    bool clean = contiguous || region_untouched(t, image, pattern, r);
    r->checks[CHECK_UNTOUCHED] += contiguous;
    free(image);
    return clean;
}

/* An output that shares the buffer of an earlier one, so as to be judged by a second contract. */
static bool copy_alias(const struct instance *in, uint32_t index, struct outputs *out,
                       struct result *r)
{
    const struct tensor *t = &in->tensors[index];
    uint64_t size = tensor_logical_elems(t) * dtype_bytes(t->dtype);
    out->dense[index] = malloc(size + 1);
    if (!out->dense[index])
        return result_fail(r, VERDICT_ERROR, "memory", "  no memory for output %s\n", t->name);
    memcpy(out->dense[index], out->dense[t->alias_of], size);
    return true;
}

static bool collect(struct verify_context *x, const struct instance *in,
                    const struct gpu_buffer *buffers, const struct run_options *o,
                    struct outputs *out, struct result *r)
{
    for (uint32_t i = 0; i < in->n_tensors; i++) {
        const struct tensor *t = &in->tensors[i];
        struct gpu_report report = {{0}, {0}};
        if (t->alias_of >= 0) {
            if (t->role == ROLE_OUT && !copy_alias(in, i, out, r)) return false;
            continue;
        }
        r->checks[CHECK_GUARD]++;
        enum gpu_status status = x->backend->check_guards(x->device, &buffers[i], &report);
        if (status != GPU_OK) return backend_failed(r, status, &report);
        if (t->role == ROLE_IN && !inputs_unchanged(x, t, &buffers[i], r)) return false;
        if (t->role == ROLE_OUT &&
            !collect_output(x, t, &buffers[i], o->pattern, &out->dense[i], r))
            return false;
    }
    return true;
}

bool run_open(struct verify_context *x, const struct op *op, const struct run_options *o,
              struct gpu_target *targets, struct result *r)
{
    return open_device(x, o, false, r) && load_targets(x, op, o->trace, targets, r);
}

void run_buffers_free(struct verify_context *x, const struct instance *in,
                      struct gpu_buffer *buffers)
{
    for (uint32_t i = 0; i < in->n_tensors; i++) {
        if (in->tensors[i].alias_of < 0 && buffers[i].impl)
            x->backend->free(x->device, &buffers[i]);
        buffers[i] = (struct gpu_buffer){0, 0, NULL};
    }
}

bool run_buffers_make(struct verify_context *x, const struct instance *in,
                      const struct run_options *o, struct gpu_buffer *buffers, struct result *r)
{
    for (uint32_t i = 0; i < in->n_tensors; i++) buffers[i] = (struct gpu_buffer){0, 0, NULL};
    for (uint32_t i = 0; i < in->n_tensors; i++) {
        const struct tensor *t = &in->tensors[i];
        if (t->alias_of >= 0) {
            buffers[i] = buffers[t->alias_of];
        } else if (!make_buffer(x, t, o, &buffers[i], r)) {
            run_buffers_free(x, in, buffers);
            return false;
        }
    }
    return true;
}

bool run_start(struct verify_context *x, const struct case_line *c, const struct instance *in,
               const struct run_options *o, struct started *run, struct result *r)
{
    struct gpu_target targets[OP_MODULES_MAX];
    struct gpu_report report = {{0}, {0}};
    *run = (struct started){.in = in, .options = o};
    enum phase before = phase_begin(x->phases, PHASE_BUFFERS);
    bool ready = open_device(x, o, true, r) && load_targets(x, c->op, o->trace, targets, r) &&
                 run_buffers_make(x, in, o, run->buffers, r);
    phase_end(x->phases, before);
    if (!ready) return false;
    before = phase_begin(x->phases, PHASE_LAUNCH);
    double start = now();
    enum gpu_status status = op_launch(targets, c, in, run->buffers, &report);
    r->kernel_seconds += now() - start;
    phase_end(x->phases, before);
    if (status == GPU_OK) return true;
    run_buffers_free(x, in, run->buffers);
    return backend_failed(r, status, &report);
}

bool run_finish(struct verify_context *x, struct started *run, struct outputs *out,
                struct result *r)
{
    struct gpu_report report = {{0}, {0}};
    memset(out, 0, sizeof *out);
    enum phase before = phase_begin(x->phases, PHASE_LAUNCH);
    double start = now();
    enum gpu_status status = x->backend->finish(x->device, &report);
    r->kernel_seconds += now() - start;
    phase_end(x->phases, before);
    before = phase_begin(x->phases, PHASE_COLLECT);
    bool fine = status == GPU_OK ? collect(x, run->in, run->buffers, run->options, out, r)
                                 : backend_failed(r, status, &report);
    phase_end(x->phases, before);
    before = phase_begin(x->phases, PHASE_BUFFERS);
    run_buffers_free(x, run->in, run->buffers);
    phase_end(x->phases, before);
    if (!fine) outputs_free(out);
    return fine;
}

void run_abandon(struct verify_context *x, struct started *run)
{
    run_buffers_free(x, run->in, run->buffers);
}

bool run_instance(struct verify_context *x, const struct case_line *c, const struct instance *in,
                  const struct run_options *o, struct outputs *out, struct result *r)
{
    struct started run;
    memset(out, 0, sizeof *out);
    return run_start(x, c, in, o, &run, r) && run_finish(x, &run, out, r);
}
