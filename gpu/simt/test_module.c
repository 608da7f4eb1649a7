/* mk/simt-module.sh on sources of all shapes, from any folder; and what loading makes of them. */
#include "test_support.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A folder of the test's own, removed at its end. */
struct workspace {
    char folder[64], root[512];
};

static void open_workspace(struct workspace *w)
{
    snprintf(w->folder, sizeof w->folder, "build/simt-test/module-%d", (int)getpid());
    cr_assert(getcwd(w->root, sizeof w->root) != NULL);
}

static void write_source(const struct workspace *w, const char *name, const char *text)
{
    char command[256], path[256];
    FILE *file;

    snprintf(command, sizeof command, "mkdir -p %s", w->folder);
    cr_assert_eq(system(command), 0);
    snprintf(path, sizeof path, "%s/%s", w->folder, name);
    file = fopen(path, "w");
    cr_assert(file != NULL);
    fputs(text, file);
    fclose(file);
}

/* Runs the script in the workspace's folder and keeps what it says. */
static int build(const struct workspace *w, const char *arguments, char *output, size_t size)
{
    char command[1024];
    size_t used = 0;
    FILE *pipe;
    int status;

    snprintf(command, sizeof command, "cd %s && %s/mk/simt-module.sh %s 2>&1", w->folder, w->root,
             arguments);
    pipe = popen(command, "r");
    cr_assert(pipe != NULL);
    while (used + 1 < size) {
        size_t got = fread(output + used, 1, size - 1 - used, pipe);

        if (got == 0) break;
        used += got;
    }
    output[used] = 0;
    status = pclose(pipe);
    return status;
}

static void close_workspace(const struct workspace *w)
{
    char command[128];

    snprintf(command, sizeof command, "rm -rf %s", w->folder);
    cr_assert_eq(system(command), 0);
}

static const char shapes[] =
    "#define SIGNATURE(name) extern \"C\" __global__ void name(int *out)\n"
    "#define WIDE 256\n"
    "struct later;\n"
    "extern \"C\" __global__ void declared_first(int *out, const char *text);\n"
    "SIGNATURE(from_a_macro)\n"
    "{\n"
    "    out[0] = '{' + '\"' + 1'000; /* \" } { */ // \" {\n"
    "}\n"
    "namespace inner\n"
    "{\n"
    "template <int N> __global__ void is_a_template(int *out) { out[0] = N; }\n"
    "__global__ void is_cxx(int *out) { out[0] = 1; }\n"
    "extern \"C\"\n"
    "{\n"
    "    __launch_bounds__(WIDE, 2) __global__\n"
    "    void\n"
    "    in_a_block(\n"
    "        int *out,\n"
    "        void (*unused)(int), const char *text = \"){\");\n"
    "    void in_a_block(int *out, void (*unused)(int), const char *text) { out[0] = 3; }\n"
    "    static __global__ void also_static(int *out) { out[0] = 4; }\n"
    "    __device__ void only_device(int *out) { out[0] = 5; }\n"
    "}\n"
    "}\n"
    "__global__ void declared_first(int *out, const char *text)\n"
    "{\n"
    "    __shared__ struct { int a[3]; float b; } both;\n"
    "    auto sum = [&](int x) { both.a[0] = x; return both.a[0]; };\n"
    "    for (int i = 0; i < 2; i++) { out[i] = sum(i); }\n"
    "}\n"
    "extern \"C\" int not_a_kernel(int x) { return x; }\n";

static bool has_entry(struct simt_test *test, const char *name)
{
    struct gpu_kernel *kernel;

    return gpu_backend_simt.resolve(test->module, name, &kernel, &test->report) == GPU_OK;
}

Test(simt_module, finds_the_kernels_and_nothing_else)
{
    struct workspace w;
    struct simt_test test = {0};
    char output[4096], path[128];

    open_workspace(&w);
    write_source(&w, "shapes.cu", shapes);
    cr_assert_eq(build(&w, "shapes.cu shapes.so", output, sizeof output), 0, "%s", output);
    cr_assert_str_eq(output, "");
    snprintf(path, sizeof path, "%s/shapes.so", w.folder);
    cr_assert_eq(gpu_backend_simt.open(&test.device, &test.options, &test.report), GPU_OK);
    cr_assert_eq(gpu_backend_simt.load(test.device, path, &test.module, &test.report), GPU_OK, "%s",
                 test.report.text);
    cr_assert(has_entry(&test, "from_a_macro"));
    cr_assert(has_entry(&test, "declared_first"));
    cr_assert(has_entry(&test, "also_static"));
    cr_assert(!has_entry(&test, "is_a_template"));
    cr_assert(!has_entry(&test, "is_cxx"));
    cr_assert(!has_entry(&test, "only_device"));
    cr_assert(!has_entry(&test, "not_a_kernel"));
    cr_assert(strstr(test.report.text, "it has from_a_macro,") != NULL, "%s", test.report.text);
    simt_test_close(&test);
    close_workspace(&w);
}

Test(simt_module, passes_the_compilers_words_on)
{
    struct workspace w;
    char output[4096], command[256];

    open_workspace(&w);
    write_source(&w, "wrong.cu",
                 "\nextern \"C\" __global__ void k(int *out)\n{\n    out[0] = x;\n}\n");
    cr_assert_neq(build(&w, "wrong.cu wrong.so", output, sizeof output), 0);
    cr_assert(strstr(output, "wrong.cu:4:14: error: use of undeclared identifier 'x'") != NULL,
              "%s", output);
    write_source(&w, "wrong.cu", "#include \"missing.cuh\"\n");
    cr_assert_neq(build(&w, "--trace wrong.cu wrong.so", output, sizeof output), 0);
    cr_assert(strstr(output, "wrong.cu:1:10: fatal error: 'missing.cuh'") != NULL, "%s", output);
    cr_assert_neq(build(&w, "absent.cu absent.so", output, sizeof output), 0);
    cr_assert(strstr(output, "cannot read absent.cu") != NULL, "%s", output);
    cr_assert_neq(build(&w, "--unknown a b", output, sizeof output), 0);
    cr_assert(strstr(output, "usage:") != NULL);
    /* Nothing half-made is left behind. */
    snprintf(command, sizeof command, "test \"$(ls %s)\" = wrong.cu", w.folder);
    cr_assert_eq(system(command), 0);
    close_workspace(&w);
}

/* What is not modelled is an error where it stands, unless nothing can reach it. */
Test(simt_module, names_the_ptx_that_is_not_modelled)
{
    struct workspace w;
    char output[4096];

    open_workspace(&w);
    write_source(
        &w, "ptx.cu",
        "__device__ inline void unused() { asm volatile(\"wgmma.fence.sync.aligned;\"); }\n"
        "extern \"C\" __global__ void k(int *out)\n"
        "{\n"
        "    int x;\n"
        "    asm(\"{ .reg .b32 t;\\n\"\n"
        "        \"mov.b32 t, 1;\\n\"\n"
        "        \"foo.bar.u32 %0, t; }\" : \"=r\"(x));\n"
        "    asm(\"add.s32 %0, %0;\" : \"+r\"(x));\n"
        "    *out = x;\n"
        "}\n");
    cr_assert_neq(build(&w, "ptx.cu ptx.so", output, sizeof output), 0);
    cr_expect(strstr(output, "ptx.cu:7:") != NULL, "%s", output);
    cr_expect(strstr(output, ": error: PTX instruction 'foo.bar.u32' is not modelled on the CPU "
                             "backend\n") != NULL,
              "%s", output);
    cr_expect(strstr(output, "ptx.cu:8:") != NULL, "%s", output);
    cr_expect(strstr(output, ": error: PTX instruction 'add.s32' with these operands is not "
                             "modelled on the CPU backend\n") != NULL,
              "%s", output);
    cr_expect(strstr(output, "wgmma") == NULL, "%s", output);
    close_workspace(&w);
}

/* --arch defines __CUDA_ARCH__; --quiet leaves warnings out, and nothing else. */
Test(simt_module, sources_from_elsewhere)
{
    struct workspace w;
    char output[4096];

    open_workspace(&w);
    write_source(&w, "arch.cu",
                 "#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ < 800\n"
                 "#error too old\n"
                 "#endif\n"
                 "extern \"C\" __global__ void k(int *out) { *out = 1; }\n");
    cr_assert_neq(build(&w, "arch.cu arch.so", output, sizeof output), 0);
    cr_expect(strstr(output, "too old") != NULL, "%s", output);
    cr_assert_neq(build(&w, "--arch 750 arch.cu arch.so", output, sizeof output), 0);
    cr_assert_eq(build(&w, "--arch 900 --quiet arch.cu arch.so", output, sizeof output), 0, "%s",
                 output);
    cr_expect_str_eq(output, "");
    write_source(&w, "arch.cu",
                 "#warning look here\nextern \"C\" __global__ void k(int *out) { }\n");
    cr_assert_eq(build(&w, "--arch 900 arch.cu arch.so", output, sizeof output), 0, "%s", output);
    cr_expect(strstr(output, "look here") != NULL, "%s", output);
    cr_assert_eq(build(&w, "--arch 900 --quiet arch.cu arch.so", output, sizeof output), 0, "%s",
                 output);
    cr_expect_str_eq(output, "");
    cr_assert_neq(build(&w, "--arch x arch.cu arch.so", output, sizeof output), 0);
    cr_expect(strstr(output, "usage:") != NULL, "%s", output);
    close_workspace(&w);
}

/* Coverage needs the rewritten source that it speaks of, and counters that outlive the worker. */
Test(simt_module, coverage_keeps_its_source_and_has_counters)
{
    struct workspace w;
    char output[4096], command[512];

    open_workspace(&w);
    write_source(&w, "k.cu", "extern \"C\" __global__ void k(int *out) { *out = 1; }\n");
    cr_assert_eq(build(&w, "k.cu k.so", output, sizeof output), 0, "%s", output);
    snprintf(command, sizeof command, "test ! -e %s/k.so.cc && ! grep -q __llvm_prf_cnts %s/k.so",
             w.folder, w.folder);
    cr_assert_eq(system(command), 0);
    cr_assert_eq(build(&w, "--coverage k.cu k.so", output, sizeof output), 0, "%s", output);
    snprintf(command, sizeof command, "test -s %s/k.so.cc && grep -q __llvm_prf_cnts %s/k.so",
             w.folder, w.folder);
    cr_assert_eq(system(command), 0);
    close_workspace(&w);
}

/* A header beside the source is found, and make learns of it. */
Test(simt_module, writes_dependencies)
{
    struct workspace w;
    char output[4096], command[512];

    open_workspace(&w);
    write_source(&w, "part.cuh", "#define VALUE 7\n");
    write_source(&w, "whole.cu",
                 "#include \"part.cuh\"\n"
                 "extern \"C\" __global__ void k(int *out) { *out = VALUE; }\n");
    cr_assert_eq(build(&w, "whole.cu whole.so", output, sizeof output), 0, "%s", output);
    snprintf(command, sizeof command,
             "grep -q '^whole.so:' %s/whole.d && grep -q 'part.cuh' %s/whole.d && "
             "grep -q 'simt/include/simt_abi.h' %s/whole.d",
             w.folder, w.folder, w.folder);
    cr_assert_eq(system(command), 0);
    close_workspace(&w);
}
