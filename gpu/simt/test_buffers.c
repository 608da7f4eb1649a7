/* Buffers: alignment, fences, red zones, copies, extents and reuse. */
#include "internal.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <xmmintrin.h>

static const struct gpu_backend *const simt = &gpu_backend_simt;

static struct gpu_device *open_device(bool trace)
{
    struct gpu_options options = {.trace = trace};
    struct gpu_report report;
    struct gpu_device *device;

    cr_assert_eq(simt->open(&device, &options, &report), GPU_OK, "%s", report.text);
    return device;
}

/* Sizes around everything that matters, both fences, several alignments: the data touches the
 * unmapped page as far as the alignment lets it. */
Test(simt_buffers, lie_flush_against_the_fence)
{
    static const uint64_t sizes[] = {1, 2, 15, 16, 100, 4095, 4096, 4097, 8192, 70001, 1 << 20};
    struct gpu_device *device = open_device(false);
    struct gpu_report report;

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (uint32_t align = 1; align <= 256; align *= 4) {
            for (int fence = 0; fence < 2; fence++) {
                struct gpu_buffer_desc desc = {.name = "b",
                                               .size_bytes = sizes[i],
                                               .elem_bytes = 1,
                                               .align_bytes = align,
                                               .fence = fence};
                struct gpu_buffer buffer;
                const struct simt_buffer *impl;

                cr_assert_eq(simt->alloc(device, &desc, &buffer, &report), GPU_OK);
                impl = buffer.impl;
                cr_assert_eq(buffer.size_bytes, sizes[i]);
                cr_assert_eq(buffer.address % align, 0);
                cr_assert_geq(buffer.address, impl->map);
                cr_assert_leq(buffer.address + sizes[i], impl->map + impl->map_bytes);
                if (fence == GPU_FENCE_BEFORE)
                    cr_assert_eq(buffer.address, impl->map);
                else
                    cr_assert_lt(impl->map + impl->map_bytes - (buffer.address + sizes[i]), align);
                memset((void *)buffer.address, 0xee, sizes[i]);
                cr_assert_eq(simt->check_guards(device, &buffer, &report), GPU_OK);
                simt->free(device, &buffer);
                cr_assert_eq(buffer.address, 0);
            }
        }
    }
    simt->close(device);
}

Test(simt_buffers, show_every_changed_guard_byte)
{
    struct gpu_device *device = open_device(false);
    struct gpu_report report;

    for (int fence = 0; fence < 2; fence++) {
        struct gpu_buffer_desc desc = {
            .name = "odd", .size_bytes = 1001, .elem_bytes = 1, .align_bytes = 16, .fence = fence};
        struct gpu_buffer buffer;
        const struct simt_buffer *impl;

        cr_assert_eq(simt->alloc(device, &desc, &buffer, &report), GPU_OK);
        impl = buffer.impl;
        for (uintptr_t at = impl->map; at < impl->map + impl->map_bytes; at++) {
            unsigned char *byte = (unsigned char *)at, old = *byte;

            if (at >= buffer.address && at < buffer.address + 1001) continue;
            *byte = (unsigned char)~old;
            cr_assert_eq(simt->check_guards(device, &buffer, &report), GPU_FINDING);
            cr_assert_str_eq(report.rule, "red-zone");
            cr_assert(strstr(report.text, at < buffer.address ? "before the start of odd"
                                                              : "past the end of odd"));
            *byte = old;
        }
        cr_assert_eq(simt->check_guards(device, &buffer, &report), GPU_OK);
        simt->free(device, &buffer);
    }
    simt->close(device);
}

Test(simt_buffers, empty_ones_have_an_address)
{
    struct gpu_device *device = open_device(false);
    struct gpu_buffer_desc desc = {.name = "none", .size_bytes = 0, .elem_bytes = 4};
    struct gpu_report report;
    struct gpu_buffer buffer;

    for (int fence = 0; fence < 2; fence++) {
        desc.fence = fence;
        cr_assert_eq(simt->alloc(device, &desc, &buffer, &report), GPU_OK);
        cr_assert_neq(buffer.address, 0);
        cr_assert_eq(simt->upload(device, &buffer, 0, NULL, 0, &report), GPU_OK);
        cr_assert_eq(simt->download(device, &buffer, 0, NULL, 0, &report), GPU_OK);
        cr_assert_eq(simt->upload(device, &buffer, 0, "x", 1, &report), GPU_INFRA);
        cr_assert_eq(simt->check_guards(device, &buffer, &report), GPU_OK);
        simt->free(device, &buffer);
    }
    simt->close(device);
}

Test(simt_buffers, copies_stay_inside)
{
    struct gpu_device *device = open_device(false);
    struct gpu_buffer_desc desc = {.name = "b", .size_bytes = 100, .elem_bytes = 1};
    unsigned char data[100], back[100];
    struct gpu_report report;
    struct gpu_buffer buffer;

    for (int i = 0; i < 100; i++) data[i] = (unsigned char)i;
    cr_assert_eq(simt->alloc(device, &desc, &buffer, &report), GPU_OK);
    cr_assert_eq(simt->upload(device, &buffer, 0, data, 100, &report), GPU_OK);
    cr_assert_eq(simt->upload(device, &buffer, 40, data, 10, &report), GPU_OK);
    cr_assert_eq(simt->download(device, &buffer, 0, back, 100, &report), GPU_OK);
    for (int i = 0; i < 100; i++) cr_assert_eq(back[i], i >= 40 && i < 50 ? i - 40 : i);
    cr_assert_eq(simt->upload(device, &buffer, 1, data, 100, &report), GPU_INFRA);
    cr_assert_eq(simt->download(device, &buffer, 101, back, 0, &report), GPU_INFRA);
    cr_assert_eq(simt->download(device, &buffer, UINT64_MAX, back, 2, &report), GPU_INFRA);
    simt->free(device, &buffer);
    simt->close(device);
}

/* Extents that share pages, touch, and do not fill theirs. */
Test(simt_buffers, extents_have_their_own_red_zones)
{
    struct gpu_extent extents[] = {{100, 50}, {150, 10}, {5000, 8000}, {20000, 0}, {1ull << 35, 9}};
    struct gpu_buffer_desc desc = {.name = "sparse",
                                   .size_bytes = (1ull << 35) + 100,
                                   .elem_bytes = 1,
                                   .fence = GPU_FENCE_BEFORE,
                                   .extents = extents,
                                   .n_extents = 5};
    struct gpu_device *device = open_device(true);
    struct gpu_report report;
    struct gpu_buffer buffer;
    unsigned char data[8000];

    memset(data, 0x11, sizeof data);
    cr_assert_eq(simt->alloc(device, &desc, &buffer, &report), GPU_OK, "%s", report.text);
    cr_assert_eq(simt->upload(device, &buffer, 100, data, 60, &report), GPU_OK);
    cr_assert_eq(simt->upload(device, &buffer, 5000, data, 8000, &report), GPU_OK);
    cr_assert_eq(simt->upload(device, &buffer, 1ull << 35, data, 9, &report), GPU_OK);
    cr_assert_eq(simt->upload(device, &buffer, 100, data, 61, &report), GPU_INFRA);
    cr_assert_eq(simt->upload(device, &buffer, 99, data, 2, &report), GPU_INFRA);
    cr_assert_eq(simt->upload(device, &buffer, 20000, data, 1, &report), GPU_INFRA);
    cr_assert_eq(simt->check_guards(device, &buffer, &report), GPU_OK, "%s", report.text);
    simt->mark_unwritten(device, &buffer);
    for (size_t i = 0; i < 3; i++) {
        static const uint64_t outside[] = {99, 160, 4999};
        unsigned char *byte = (unsigned char *)(buffer.address + outside[i]);
        unsigned char old = *byte;

        *byte = 0;
        cr_assert_eq(simt->check_guards(device, &buffer, &report), GPU_FINDING);
        *byte = old;
    }
    cr_assert_eq(simt->check_guards(device, &buffer, &report), GPU_OK);
    simt->free(device, &buffer);
    extents[1].offset_bytes = 149; /* overlaps its neighbour */
    cr_assert_eq(simt->alloc(device, &desc, &buffer, &report), GPU_INFRA);
    extents[1].offset_bytes = 150;
    extents[4].size_bytes = 101; /* leaves the buffer */
    cr_assert_eq(simt->alloc(device, &desc, &buffer, &report), GPU_INFRA);
    simt->close(device);
}

/* Many buffers alive at once keep apart, and giving address space back in any order keeps it whole:
 * ten thousand sparse buffers of 16 GiB are 40 times the arena. */
Test(simt_buffers, address_space_comes_back)
{
    struct gpu_device *device = open_device(false);
    struct gpu_extent extent = {1ull << 33, 64};
    struct gpu_buffer_desc desc = {.name = "sparse",
                                   .size_bytes = 1ull << 34,
                                   .elem_bytes = 1,
                                   .extents = &extent,
                                   .n_extents = 1};
    struct gpu_buffer live[8] = {{0, 0, NULL}};
    struct gpu_report report;
    uint32_t random = 12345;

    for (int i = 0; i < 10000; i++) {
        struct gpu_buffer *slot;

        random = random * 1664525u + 1013904223u;
        slot = &live[random >> 29];
        simt->free(device, slot);
        desc.size_bytes = (1ull << 34) + (random & 0xfff) * 65536ull;
        cr_assert_eq(simt->alloc(device, &desc, slot, &report), GPU_OK, "%d: %s", i, report.text);
    }
    for (int i = 0; i < 8; i++) simt->free(device, &live[i]);
    cr_assert_eq(device->arena.n_ranges, 1);
    cr_assert_eq(device->arena.ranges[0].count, SIMT_ARENA_BYTES / SIMT_GRANULE);
    simt->close(device);
}

/* The target is thousands a second; this demands five hundred of whatever machine runs the tests.
 */
Test(simt_buffers, reuse_is_cheap)
{
    struct gpu_device *device = open_device(false);
    struct gpu_buffer_desc desc = {.name = "b", .elem_bytes = 4, .align_bytes = 16};
    struct timespec begin, end;
    struct gpu_report report;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    for (uint32_t i = 0; i < 5000; i++) {
        struct gpu_buffer buffer;

        desc.size_bytes = 1000 + i;
        desc.fence = i % 2;
        cr_assert_eq(simt->alloc(device, &desc, &buffer, &report), GPU_OK);
        cr_assert_eq(simt->check_guards(device, &buffer, &report), GPU_OK);
        simt->free(device, &buffer);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    cr_assert_lt(end.tv_sec - begin.tv_sec, 10);
    cr_assert_lt(device->arena.pooled_bytes, 1 << 20);
    simt->close(device);
}

Test(simt_buffers, refuses_a_process_that_flushes_subnormals)
{
    unsigned normal = _mm_getcsr();
    struct gpu_options options = {0};
    static const unsigned modes[] = {0x8000, 0x0040, 0x2000, 0x4000, 0x6000};

    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        struct gpu_report report;
        struct gpu_device *device;
        enum gpu_status status;

        _mm_setcsr(normal | modes[i]);
        status = simt->open(&device, &options, &report);
        _mm_setcsr(normal);
        cr_assert_eq(status, GPU_INFRA);
        cr_assert(strstr(report.text, "MXCSR") != NULL);
    }
}

Test(simt_buffers, load_tells_what_is_no_module)
{
    struct gpu_device *device = open_device(false);
    struct gpu_module *module;
    struct gpu_report report;

    cr_assert_eq(simt->load(device, "build/there-is-no-such-module.so", &module, &report),
                 GPU_INFRA);
    cr_assert(strstr(report.text, "there-is-no-such-module.so") != NULL);
    cr_assert_eq(simt->load(device, "Makefile", &module, &report), GPU_INFRA);
    cr_assert_eq(simt->load(device, "/lib/x86_64-linux-gnu/libm.so.6", &module, &report),
                 GPU_INFRA);
    cr_assert(strstr(report.text, "not a module of the CPU backend") != NULL, "%s", report.text);
    simt->close(device);
}
