#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/session/session.h"

static bool program_dir(char *path, size_t size)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) return false;
    self[n] = 0;
    return (size_t)snprintf(path, size, "%s", dirname(self)) < size;
}

bool session_module_dir(const char *backend, char *path, size_t size)
{
    char dir[PATH_MAX];
    return program_dir(dir, sizeof dir) &&
           (size_t)snprintf(path, size, "%s/%s", dir, backend) < size;
}

static bool is_chosen(const struct op *op, const struct op **ops, uint32_t n_ops)
{
    for (uint32_t i = 0; i < n_ops; i++) {
        if (ops[i] == op) return true;
    }
    return false;
}

bool session_ops(const struct options *o, const struct op **ops, uint32_t *n_ops)
{
    *n_ops = 0;
    for (uint32_t i = 0; i < op_count && !o->n_words; i++) ops[(*n_ops)++] = op_table[i];
    for (int w = 0; w < o->n_words; w++) {
        bool named = false;
        for (uint32_t i = 0; i < op_count; i++) {
            const struct op *op = op_table[i];
            if (strcmp(op->name, o->words[w]) && strcmp(op->family, o->words[w])) continue;
            named = true;
            if (!is_chosen(op, ops, *n_ops)) ops[(*n_ops)++] = op;
        }
        if (!named) {
            fprintf(stderr,
                    "attest: '%s' is no operation and no family; `attest list --ops` shows "
                    "them\n",
                    o->words[w]);
            return false;
        }
    }
    return true;
}

/* mk/simt-module.sh: beside the build folder of this program, or named by the environment. */
static bool module_script(char *path, size_t size)
{
    char dir[PATH_MAX];
    const char *given = getenv("ATTEST_SIMT_MODULE");
    if (given) return (size_t)snprintf(path, size, "%s", given) < size;
    return program_dir(dir, sizeof dir) &&
           (size_t)snprintf(path, size, "%s/../../mk/simt-module.sh", dir) < size;
}

/* A source from elsewhere is written for a device: __CUDA_ARCH__ is that of sm_90. The traced
 * module is the second of two, and what the compiler warns of has been said by then. */
static bool compile(const char *script, bool trace, const char *source, const char *target)
{
    const char *args[] = {script, "--arch", "900", "--trace", "--quiet", source, target, NULL};
    if (!trace) memmove(args + 3, args + 5, 3 * sizeof *args);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        execv(script, (char *const *)args);
        fprintf(stderr, "attest: cannot run %s: %s\n", script, strerror(errno));
        _exit(127);
    }
    int status;
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status);
}

/* Where --source is compiled: a folder of its own, removed when the program that made it ends. */
static struct {
    char folder[PATH_MAX - 32], plain[PATH_MAX], traced[PATH_MAX];
    pid_t owner;
} modules;

static void remove_modules(void)
{
    static const char *const names[] = {"module.so", "module.d", "module.trace.so",
                                        "module.trace.d"};
    char path[PATH_MAX];
    if (getpid() != modules.owner) return; /* a worker */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", modules.folder, names[i]);
        unlink(path);
    }
    rmdir(modules.folder);
}

static bool make_folder(void)
{
    const char *base = getenv("TMPDIR");
    if (!base || !*base) base = P_tmpdir;
    int n = snprintf(modules.folder, sizeof modules.folder, "%s/attest-source-XXXXXX", base);
    if (n < 0 || (size_t)n >= sizeof modules.folder) {
        errno = ENAMETOOLONG;
        return false;
    }
    if (!mkdtemp(modules.folder)) return false;
    modules.owner = getpid();
    snprintf(modules.plain, sizeof modules.plain, "%s/module.so", modules.folder);
    snprintf(modules.traced, sizeof modules.traced, "%s/module.trace.so", modules.folder);
    return atexit(remove_modules) == 0;
}

/* Compiles a CUDA source from elsewhere for the CPU backend, plain and instrumented. */
static bool compile_source(const struct options *o, struct verify_context *x)
{
    const char *plain = modules.plain, *traced = modules.traced;
    char script[PATH_MAX];
    if (access(o->source, R_OK)) {
        fprintf(stderr, "attest: --source %s: %s\n", o->source, strerror(errno));
        return false;
    }
    if (!module_script(script, sizeof script) || !make_folder()) {
        fprintf(stderr, "attest: no place to compile %s: %s\n", o->source, strerror(errno));
        return false;
    }
    if (!compile(script, false, o->source, plain) ||
        (!o->no_trace && !compile(script, true, o->source, traced))) {
        fprintf(stderr, "attest: %s did not compile for the CPU backend\n", o->source);
        return false;
    }
    x->module_file = plain;
    x->module_trace = traced;
    return true;
}

static bool kernel_entry(const struct options *o, struct verify_context *x)
{
    const char *equals = o->kernel_map ? strchr(o->kernel_map, '=') : NULL;
    if (!o->kernel_map) return true;
    if (!equals || !equals[1] || !op_find(o->kernel_map, (size_t)(equals - o->kernel_map))) {
        fprintf(stderr, "attest: --kernel %s: OPERATION=ENTRY is needed\n", o->kernel_map);
        return false;
    }
    x->entry = equals + 1;
    return true;
}

bool session_context(const struct options *o, struct verify_context *x, int *exit_code)
{
    static char dir[PATH_MAX];
    char error[PATH_MAX + 256];
    memset(x, 0, sizeof *x);
    *exit_code = EXIT_USAGE;
    x->backend = o->backend[0] == 'c' ? &gpu_backend_cuda : &gpu_backend_simt;
    x->watchdog_ms = o->watchdog_ms;
    x->repeats = o->repeats;
    x->relations = !o->no_relations;
    if (o->model_given || o->module || o->source) x->model = &o->model;
    if (o->module && access(o->module, R_OK)) {
        fprintf(stderr, "attest: --module %s: %s\n", o->module, strerror(errno));
        return false;
    }
    x->module_file = o->module;
    x->module_trace = o->module;
    if (o->source && x->backend != &gpu_backend_simt) {
        fprintf(stderr, "attest: --source needs the CPU backend; for cuda compile it and use "
                        "--module\n");
        return false;
    }
    if (o->source && !compile_source(o, x)) return false;
    if (!kernel_entry(o, x)) return false;
    if (o->known && !departures_load(o->known, &x->known, error, sizeof error)) {
        fprintf(stderr, "attest: --known %s\n", error);
        return false;
    }
    *exit_code = EXIT_INFRA;
    if (!session_module_dir(x->backend->name, dir, sizeof dir)) {
        fprintf(stderr, "attest: cannot tell where this program lies\n");
        return false;
    }
    x->module_dir = dir;
    return true;
}
