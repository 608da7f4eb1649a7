/* Self-test: buffers as places to keep bytes. */
#include "internal.h"
#include "selftest_internal.h"

#include <stdlib.h>
#include <string.h>

void selftest_noise(void *bytes, uint64_t n, uint32_t seed)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    uint8_t *out = bytes;

    for (uint64_t i = 0; i < n; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out[i] = (uint8_t)(state >> 24);
    }
}

void selftest_info(struct selftest *t)
{
    const struct gpu_cuda_info *i = gpu_cuda_get_info(t->device);
    const struct gpu_limits *l = gpu_backend_cuda.limits(t->device);

    selftest_say(t, "note",
                 "%s, compute capability %d.%d, driver %d, %d multiprocessors, "
                 "%llu bytes of memory, %llu of L2, granule %llu",
                 i->name, i->cc_major, i->cc_minor, i->driver_version, i->multiprocessors,
                 (unsigned long long)i->memory_bytes, (unsigned long long)i->l2_bytes,
                 (unsigned long long)i->granule_bytes);
    selftest_expect(t, i->helper_kernels, "helper kernels %s",
                    i->helper_kernels ? "loaded" : i->helper_note);
    selftest_expect(t,
                    l->max_grid_x >= 65535 && l->max_grid_y >= 1 && l->max_grid_z >= 1 &&
                        l->max_block_threads >= 512 && l->max_shared_bytes >= 49152,
                    "limits: grid %u %u %u, block %u, shared %u", l->max_grid_x, l->max_grid_y,
                    l->max_grid_z, l->max_block_threads, l->max_shared_bytes);
}

/* Adds 1 to every u32 on the device and looks whether each byte came through both ways. */
static bool add_one(struct selftest *t, struct gpu_buffer *b, uint8_t *want)
{
    uint32_t n = (uint32_t)(b->size_bytes / 4), one = 1, value;
    uint8_t *got = malloc(b->size_bytes);
    void *args[] = {&b->address, &n, &one};
    bool good = got && selftest_need(t, selftest_run(t, "selftest_add", n, 0, args), "add 1");

    for (uint32_t i = 0; i < n; i++) {
        memcpy(&value, want + 4 * (uint64_t)i, 4);
        value++;
        memcpy(want + 4 * (uint64_t)i, &value, 4);
    }
    good =
        good &&
        selftest_need(t, gpu_backend_cuda.download(t->device, b, 0, got, b->size_bytes, &t->report),
                      "download");
    if (good && memcmp(got, want, b->size_bytes)) {
        uint64_t at = 0;
        while (got[at] == want[at]) at++;
        selftest_say(t, "FAIL", "%llu bytes: byte %llu is %02x, not %02x",
                     (unsigned long long)b->size_bytes, (unsigned long long)at, got[at], want[at]);
        good = false;
    }
    free(got);
    return good;
}

static bool one_size(struct selftest *t, uint64_t bytes, enum gpu_fence fence)
{
    struct gpu_buffer b;
    uint8_t *want = malloc(bytes);
    /* In three pieces, so that offsets count. */
    uint64_t cut[4] = {0, bytes / 3, bytes / 3 + bytes / 2, bytes};
    bool good = want && selftest_alloc(t, &b, "round-trip", bytes, fence);

    if (!good) {
        free(want);
        return false;
    }
    selftest_noise(want, bytes, (uint32_t)bytes);
    for (int i = 0; i < 3 && good; i++)
        good = selftest_need(t,
                             gpu_backend_cuda.upload(t->device, &b, cut[i], want + cut[i],
                                                     cut[i + 1] - cut[i], &t->report),
                             "upload");
    if (good && bytes >= 4) good = add_one(t, &b, want) && add_one(t, &b, want);
    good = good && selftest_need(t, gpu_backend_cuda.check_guards(t->device, &b, &t->report),
                                 "check_guards");
    gpu_backend_cuda.free(t->device, &b);
    free(want);
    return good;
}

void selftest_round_trip(struct selftest *t)
{
    static const uint64_t sizes[] = {1,       3,       4,       8,       100,     4092,
                                     4096,    4100,    65536,   250000,  262144,  1000000,
                                     2097148, 2097152, 2097156, 5000004, 9000000, 20000000};
    uint32_t good = 0, n = 0;

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        good += one_size(t, sizes[i], GPU_FENCE_AFTER);
        good += one_size(t, sizes[i], GPU_FENCE_BEFORE);
        n += 2;
    }
    selftest_expect(t, good == n, "%u of %u sizes and fences", good, n);
}

void selftest_round_trip_plain(struct selftest *t)
{
    gpu_cuda_helpers_disable(t->device);
    selftest_round_trip(t);
}

void selftest_alignment(struct selftest *t)
{
    uint32_t good = 0, n = 0;

    for (uint32_t align = 1; align <= 65536; align *= 4) {
        for (int fence = 0; fence < 2; fence++) {
            struct gpu_buffer_desc desc = {.name = "aligned",
                                           .size_bytes = 1001,
                                           .elem_bytes = 1,
                                           .align_bytes = align,
                                           .fence = (enum gpu_fence)fence};
            struct gpu_buffer b;
            n++;
            if (!selftest_need(t, gpu_backend_cuda.alloc(t->device, &desc, &b, &t->report),
                               "alloc"))
                continue;
            good += b.address % align == 0 && b.address != 0;
            gpu_backend_cuda.free(t->device, &b);
        }
    }
    selftest_expect(t, good == n, "%u of %u alignments", good, n);
}

/* More small buffers than come back with a launch, and uploads between launches. */
void selftest_coherence(struct selftest *t)
{
    enum { N = 24, ELEMS = 50000 };
    static uint32_t host[ELEMS];
    struct gpu_buffer b[N];
    uint32_t n = ELEMS, wrong = 0, first, five = 5;

    for (uint32_t i = 0; i < N; i++) {
        void *args[] = {&b[i].address, &n, &first};
        first = 1000000 * i;
        if (!selftest_alloc(t, &b[i], "coherence", 4 * ELEMS, GPU_FENCE_AFTER) ||
            !selftest_need(t, selftest_run(t, "selftest_iota", n, 0, args), "iota"))
            return;
    }
    for (uint32_t i = 0; i < N; i++) { /* one element changed on the host, then all on the device */
        void *args[] = {&b[i].address, &n, &five};
        uint32_t patch = 77;
        if (!selftest_need(t,
                           gpu_backend_cuda.upload(t->device, &b[i], 4 * i, &patch, 4, &t->report),
                           "upload") ||
            !selftest_need(t, selftest_run(t, "selftest_add", n, 0, args), "add"))
            return;
    }
    for (uint32_t i = 0; i < N; i++) {
        if (!selftest_need(
                t, gpu_backend_cuda.download(t->device, &b[i], 0, host, sizeof host, &t->report),
                "download"))
            return;
        for (uint32_t k = 0; k < ELEMS; k++)
            wrong += host[k] != (k == i ? 82 : 1000000 * i + k + 5);
        gpu_backend_cuda.free(t->device, &b[i]);
    }
    selftest_expect(t, wrong == 0, "%u buffers of %u bytes, %u elements wrong", N, 4 * ELEMS,
                    wrong);
}

static bool peek(struct selftest *t, struct gpu_buffer *out, uint64_t base, uint64_t offset,
                 uint32_t *value)
{
    void *args[] = {&out->address, &base, &offset};

    return selftest_need(t, selftest_run(t, "selftest_peek", 1, 0, args), "peek") &&
           selftest_need(t, gpu_backend_cuda.download(t->device, out, 0, value, 4, &t->report),
                         "download");
}

/* A page at a very high id: only two pages of 6 GiB and more have memory. */
void selftest_extents(struct selftest *t)
{
    const uint64_t far = 6ull << 30;
    const struct gpu_extent extents[] = {{0, 8192}, {far, 8192}, {far + 16384, 4}};
    struct gpu_buffer_desc desc = {.name = "pages",
                                   .size_bytes = far + 16388,
                                   .elem_bytes = 4,
                                   .align_bytes = 4,
                                   .extents = extents,
                                   .n_extents = 3};
    struct gpu_buffer b, out;
    uint32_t sent = 0x12345678, got = 0, low = 0x0badcafe, back = 0, value = 42;
    uint64_t at = far + 4096;
    void *poke[] = {&b.address, &at, &value};

    if (!selftest_need(t, gpu_backend_cuda.alloc(t->device, &desc, &b, &t->report), "alloc") ||
        !selftest_alloc(t, &out, "out", 4, GPU_FENCE_AFTER) ||
        !selftest_need(t, gpu_backend_cuda.upload(t->device, &b, at, &sent, 4, &t->report), "up") ||
        !selftest_need(t, gpu_backend_cuda.upload(t->device, &b, 4096, &low, 4, &t->report),
                       "up") ||
        !peek(t, &out, b.address, at, &got) || !peek(t, &out, b.address, 4096, &back))
        return;
    selftest_expect(t, got == sent && back == low, "at +6 GiB %08x, at +4 KiB %08x", got, back);
    if (!selftest_need(t, selftest_run(t, "selftest_poke", 1, 0, poke), "poke") ||
        !selftest_need(t, gpu_backend_cuda.download(t->device, &b, at, &got, 4, &t->report),
                       "down"))
        return;
    selftest_expect(t, got == 42, "written by a kernel at +6 GiB: %u", got);
    selftest_expect(t,
                    gpu_backend_cuda.upload(t->device, &b, 8190, &low, 4, &t->report) == GPU_INFRA,
                    "a copy that leaves an extent is refused: %s", t->report.text);
    selftest_need(t, gpu_backend_cuda.check_guards(t->device, &b, &t->report), "check_guards");
    at = far + 12288; /* inside the granule, between two extents */
    if (!selftest_need(t, selftest_run(t, "selftest_poke", 1, 0, poke), "poke between")) return;
    enum gpu_status status = gpu_backend_cuda.check_guards(t->device, &b, &t->report);
    selftest_expect(t, status == GPU_FINDING, "a write between extents: %s", t->report.text);
    gpu_backend_cuda.free(t->device, &b);
    gpu_backend_cuda.free(t->device, &out);
}

/* The same mix of sizes over and over must settle on a fixed set of regions. */
void selftest_pool(struct selftest *t)
{
    enum { ROUNDS = 200, LIVE = 12 };
    struct gpu_buffer b[LIVE];
    struct gpu_cuda_usage usage, early = {0};
    uint64_t start = selftest_now_ns();

    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < LIVE; i++) {
            uint64_t bytes = 4 + (uint64_t)(i * 7919 + round * 104729) % 60000;
            bytes = i < 2 ? (3u << 20) + bytes : bytes;
            if (!selftest_alloc(t, &b[i], "pool", bytes, (enum gpu_fence)((i + round) % 2))) return;
        }
        for (uint32_t i = 0; i < LIVE; i++) gpu_backend_cuda.free(t->device, &b[i]);
        if (round == 20) gpu_cuda_get_usage(t->device, &early);
    }
    gpu_cuda_get_usage(t->device, &usage);
    selftest_expect(t,
                    usage.live_buffers == 0 && usage.regions_made == early.regions_made &&
                        usage.mapped_bytes == early.mapped_bytes &&
                        usage.pinned_bytes == early.pinned_bytes &&
                        usage.pooled_bytes == usage.mapped_bytes,
                    "%llu regions, %llu bytes mapped, %llu pinned; %.2f us a buffer",
                    (unsigned long long)usage.regions_made, (unsigned long long)usage.mapped_bytes,
                    (unsigned long long)usage.pinned_bytes,
                    (double)(selftest_now_ns() - start) / 1000.0 / (ROUNDS * LIVE));
}

void selftest_descriptors(struct selftest *t)
{
    const struct gpu_extent overlapping[] = {{0, 16}, {8, 8}}, outside[] = {{8, 16}};
    struct gpu_buffer_desc two = {
        .name = "two", .size_bytes = 20, .elem_bytes = 4, .extents = overlapping, .n_extents = 2};
    struct gpu_buffer_desc past = {
        .name = "past", .size_bytes = 20, .elem_bytes = 4, .extents = outside, .n_extents = 1};
    struct gpu_buffer_desc huge = {.name = "huge", .size_bytes = 1ull << 45, .elem_bytes = 4};
    struct gpu_buffer b;
    uint32_t word = 0;

    selftest_expect(t, gpu_backend_cuda.alloc(t->device, &two, &b, &t->report) == GPU_INFRA,
                    "overlapping extents: %s", t->report.text);
    selftest_expect(t, gpu_backend_cuda.alloc(t->device, &past, &b, &t->report) == GPU_INFRA,
                    "an extent past the end: %s", t->report.text);
    selftest_expect(t,
                    gpu_backend_cuda.alloc(t->device, &huge, &b, &t->report) == GPU_INFRA &&
                        !strcmp(t->report.rule, "out-of-memory"),
                    "32 TiB: %s: %s", t->report.rule, t->report.text);
    if (!selftest_alloc(t, &b, "small", 20, GPU_FENCE_AFTER)) return;
    selftest_expect(t,
                    gpu_backend_cuda.upload(t->device, &b, 18, &word, 4, &t->report) == GPU_INFRA,
                    "an upload past the end: %s", t->report.text);
    selftest_expect(
        t,
        gpu_backend_cuda.download(t->device, &b, UINT64_MAX - 1, &word, 4, &t->report) == GPU_INFRA,
        "a download at 2^64-2: %s", t->report.text);
    gpu_backend_cuda.free(t->device, &b);
}
