/* Source lines: asks llvm-symbolizer or addr2line, whichever can be run, once for each place. */
#include "internal.h"

#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Runs a program and keeps the beginning of what it prints. */
static bool run_program(char *const argv[], char *output, size_t size)
{
    posix_spawn_file_actions_t actions;
    size_t used = 0;
    int ends[2], status;
    pid_t child;
    bool started;

    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    started = posix_spawnp(&child, argv[0], &actions, NULL, argv, environ) == 0;
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    while (started && used + 1 < size) {
        ssize_t got = read(ends[0], output + used, size - 1 - used);

        if (got <= 0) break;
        used += (size_t)got;
    }
    close(ends[0]);
    output[used] = 0;
    return started && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

/* "file:line" out of "file:line:column" or "file:line (discriminator 2)"; returns the line. */
static unsigned long cut_line(char *line)
{
    char *colon = strrchr(line, '/'), *end;
    unsigned long number;

    colon = strchr(colon ? colon : line, ':');
    if (!colon) return 0;
    number = strtoul(colon + 1, &end, 10);
    *end = 0;
    return number;
}

/* Frames come innermost first, one a line. Those in the shim headers and in the system's are not
 * the user's code; the first other one is the answer. Line 0 is code that the compiler made of
 * several lines: such a frame is taken only for want of another. */
static bool choose_frame(char *output, char *text, size_t size)
{
    bool found = false;
    char *save;

    for (char *line = strtok_r(output, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        unsigned long number;

        if (!strchr(line, ':') || line[0] == '?') continue;
        number = cut_line(line);
        if (strstr(line, "gpu/simt/include/") || strncmp(line, "/usr/", 5) == 0) continue;
        while (strncmp(line, "./", 2) == 0) line += 2;
        if (number > 0 || !found) snprintf(text, size, "%s", line);
        if (number > 0) return true;
        found = true;
    }
    return found;
}

static bool ask(const struct gpu_module *module, uintptr_t offset, char *text, size_t size)
{
    char address[32], object[1024], output[4096];
    char *llvm[] = {"llvm-symbolizer", "--functions=none", "--inlines", object, address, NULL};
    char *binutils[] = {"addr2line", "-i", "-e", module->path, address, NULL};

    snprintf(address, sizeof address, "0x%llx", (unsigned long long)offset);
    if (snprintf(object, sizeof object, "--obj=%s", module->path) >= (int)sizeof object)
        return false;
    if (run_program(llvm, output, sizeof output) && choose_frame(output, text, size)) return true;
    return run_program(binutils, output, sizeof output) && choose_frame(output, text, size);
}

static const struct simt_line *look_up(struct gpu_module *module, uintptr_t offset)
{
    struct simt_line *line = module->lines;

    while (line && line->offset != offset) line = line->next;
    if (line) return line;
    line = calloc(1, sizeof *line);
    if (!line) return NULL;
    line->offset = offset;
    line->next = module->lines;
    module->lines = line;
    if (!ask(module, offset, line->text, sizeof line->text))
        snprintf(line->text, sizeof line->text, "%.150s+0x%llx", module->path,
                 (unsigned long long)offset);
    return line;
}

void simt_symbolise(struct gpu_module *module, uintptr_t pc, bool is_return, char *text,
                    size_t size)
{
    const struct simt_line *line = NULL;
    uintptr_t at = pc - is_return;

    if (at >= module->image_begin && at < module->image_end)
        line = look_up(module, at - module->load_base);
    snprintf(text, size, "%s", line ? line->text : "outside the module");
}
